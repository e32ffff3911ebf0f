"""What the planner fuzz must find again once it is taken out: a fix each, as a patch.

A patch brings back the fault that it names, in the words of the code of before. Neighbour:
``test_planner_fuzz``.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import memory_tables as memory
from penstock.codec.exact_json import exact, exact_text
from penstock.engine.deliver.reject_limits import LimitDecision, Rejections
from penstock.engine.plan import streams as plan
from penstock.engine.run import run
from penstock.engine.sync import epochs, progress
from penstock.model.catalog import SyncMode
from penstock.model.state import StoredState
from penstock.protocols.airbyte import state_echoes
from penstock.protocols.airbyte import stream_config as airbyte_configure
from penstock.protocols.singer import stream_config as singer_configure
from penstock.protocols.singer.state import SingerState
from penstock.protocols.stream_config import Target, said_target, target_of
from penstock.tables.contract import LoadResult


def _unsplit_state_is_given(stack: ExitStack) -> None:
    """A stream that begins anew is given a state that only its tap can read."""

    def without(self: Any, states: Sequence[StoredState], streams: Any) -> list[StoredState]:
        gone = {s.name for s in streams}
        kept: list[StoredState] = []
        for state in states:
            value = exact(state.blob)
            marks = value.get("bookmarks") if isinstance(value, dict) else None
            if isinstance(marks, dict):
                value["bookmarks"] = {k: v for k, v in marks.items() if k not in gone}
                state = StoredState(state.scope, exact_text(value).decode())
            kept.append(state)
        return kept

    stack.enter_context(mock.patch.object(SingerState, "without", without))
    stack.enter_context(mock.patch.object(SingerState, "splits", lambda *a: True))


def _overwrite_with_increments(stack: ExitStack) -> None:
    """Overwrite, said alone, leaves the source at its best mode."""

    def target(stream: Any, overrides: Any, sync: Any, key: Any) -> Target:
        said = said_target(stream, overrides)
        return target_of(stream, overrides, sync, key) if said is None else Target(said, "said")

    anew = lambda configured: configured.sync_mode is SyncMode.full_refresh  # noqa: E731
    for module in (epochs, progress, plan):
        stack.enter_context(mock.patch.object(module, "begins_anew", anew))
    for module in (airbyte_configure, singer_configure):
        found = {"target_of": target, "read_anew": lambda *a: False}
        stack.enter_context(mock.patch.multiple(module, **found))


def _newest_echo_is_no_ack(stack: ExitStack) -> None:
    """Only the oldest state that waits is acked, and one that is skipped is an error."""
    matched = state_echoes.PendingStates._matched

    def strictly(self: Any, scope: Any, state: Mapping[str, Any], *, whole: bool) -> list[Any]:
        given, digest = state_echoes._id(state.get("id")), state_echoes._digest(state)
        first = scope.pending[0] if scope.pending else None
        if first is not None and first.seq != given and first.digest != digest:
            return self._unknown(state)
        return matched(self, scope, state, whole=whole)

    stack.enter_context(mock.patch.object(state_echoes.PendingStates, "_matched", strictly))
    stack.enter_context(
        mock.patch.object(state_echoes.PendingStates, "ended_well", lambda self: iter(()))
    )


def _known_number_is_done(stack: ExitStack) -> None:
    """A new load whose number the table has is taken for a repeated one."""

    def judge(load: Any, held: Any) -> LoadResult | None:
        known = held is not None and held.number >= load.number
        return LoadResult(0, repeated=True) if known else None

    stack.enter_context(mock.patch.object(memory, "already_committed", judge))


def _rejects_are_no_failure(stack: ExitStack) -> None:
    """However many records were rejected, what is left of them is published."""
    judge = lambda self, pending, *a, **k: LimitDecision(pending)  # noqa: E731
    stack.enter_context(mock.patch.object(Rejections, "judge", judge))


def _any_source_gets_the_state(stack: ExitStack) -> None:
    """Nobody asks whose state it is."""
    stack.enter_context(mock.patch.object(run, "refuse_other_source", lambda *_, **__: None))


TAKEN_OUT = {
    "A1": (_unsplit_state_is_given, {"lost", "emptied"}, 240),
    "A3": (_overwrite_with_increments, {"lost", "stale"}, 0),
    "A5": (_newest_echo_is_no_ack, {"stuck"}, 170),
    "A8": (_rejects_are_no_failure, {"bad", "emptied"}, 0),
    "A13": (_known_number_is_done, {"lost"}, 0),
    "A15": (_any_source_gets_the_state, {"lost"}, 0),
}
"""A fix -> how it is taken out, the rules one of which a case breaks then, and the case to begin
with: one that shows it is near."""
