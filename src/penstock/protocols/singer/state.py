"""What Singer's state means: one opaque blob, of which only ``bookmarks`` has a known shape.

Pure functions over saved states; a saved blob is the value of the tap's own STATE message, byte for
byte (L1), and is rewritten only where a user or a new sync takes a stream's bookmark away. Numbers
keep all their digits. Not here: when a state may be saved (``engine``), where (``state``). Sources:
specification, State and STATE Message; the conventions of singer-python's bookmarks (``bookmarks``
by tap_stream_id, ``currently_syncing``, ``activate_versions``).
"""

from collections.abc import Collection, Sequence
from typing import Any, cast

import msgspec

from penstock.errors import StateError
from penstock.model.catalog import StreamId
from penstock.model.state import SavedState, StateScope, StateType
from penstock.protocols import wire

SCOPE = StateScope(StateType.legacy)

_BY_STREAM = ("bookmarks", "activate_versions")
_CURRENT = "currently_syncing"


def state_file(states: Sequence[SavedState]) -> bytes | None:
    """The content of ``--state``; None: nothing to give."""
    blob = states[-1].blob if states else "null"
    return None if blob == "null" else blob.encode()


class SingerState:
    """``StateRole`` of ``protocols.contract``."""

    def export(self, states: Sequence[SavedState]) -> Any:
        text = state_file(states)
        return None if text is None else msgspec.json.decode(text)

    def parse(self, raw: Any) -> list[SavedState]:
        """Accepts the bare value, a STATE message, what Meltano keeps (``singer_state``, or
        ``completed`` and ``partial``, of which the first counts), a list of one, and nothing (null,
        ``[]``, ``{}``)."""
        if isinstance(raw, list):
            items = cast(list[Any], raw)
            if len(items) > 1:
                raise StateError(
                    "a list of several states: a tap has one",
                    code="state.mixed",
                    hint="give the value of the last STATE message",
                )
            raw = items[0] if items else None
        value = _unwrapped(raw)
        if value in (None, {}):
            return []
        return [SavedState(SCOPE, wire.exact_text(value).decode())]

    def merge(self, saved: Sequence[SavedState], new: Sequence[SavedState]) -> list[SavedState]:
        """The last one is the state; null is none."""
        states = [*saved, *new]
        return [states[-1]] if states and states[-1].blob != "null" else []

    def reset(self, states: Sequence[SavedState], stream: StreamId) -> list[SavedState]:
        """Raises ``StateError`` where the blob has no bookmarks."""
        if any(_bookmarks(wire.exact(s.blob)) is None for s in states):
            raise StateError(
                f"the state of {stream} alone cannot be reset: this tap's state has no bookmarks by"
                " stream, and only the tap knows what it means",
                code="state.legacy",
                hint="reset the whole state (`penstock state reset` without --stream)",
                stream=str(stream),
            )
        return self.without(states, (stream,))

    def without(
        self, states: Sequence[SavedState], streams: Collection[StreamId]
    ) -> list[SavedState]:
        gone = frozenset(s.name for s in streams)
        return [_without(s, gone) for s in states]

    def describe(self, states: Sequence[SavedState]) -> dict[str, Any]:
        """``shared``: everything beside the bookmarks, the whole blob where it has none."""
        streams: list[dict[str, Any]] = []
        shared: Any = None
        for state in states[-1:]:
            shared = msgspec.json.decode(state.blob)
            marks = _bookmarks(shared)
            if marks is None:
                continue
            shared = {k: v for k, v in shared.items() if k != "bookmarks"} or None
            streams = [{"namespace": None, "name": n, "state": s} for n, s in marks.items()]
        kind = StateType.legacy.value if states else None
        return {"type": kind, "streams": streams, "shared": shared}


def _bookmarks(value: Any) -> dict[str, Any] | None:
    marks = cast(dict[str, Any], value).get("bookmarks") if isinstance(value, dict) else None
    return cast(dict[str, Any], marks) if isinstance(marks, dict) else None


def _without(state: SavedState, gone: frozenset[str]) -> SavedState:
    """Without these streams' bookmarks and versions; the same object where there are none."""
    value = wire.exact(state.blob)
    if _bookmarks(value) is None:
        return state
    changed = False
    for part in _BY_STREAM:
        marks = value.get(part)
        if isinstance(marks, dict) and not gone.isdisjoint(marks):
            value[part] = {k: v for k, v in cast(dict[str, Any], marks).items() if k not in gone}
            changed = True
    if isinstance(value.get(_CURRENT), str) and value[_CURRENT] in gone:
        value[_CURRENT] = None
        changed = True
    return SavedState(state.scope, wire.exact_text(value).decode()) if changed else state


def _unwrapped(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    given = cast(dict[str, Any], raw)
    kind = given.get("type")
    if isinstance(kind, str) and kind.upper() == "STATE" and "value" in given:
        return given["value"]
    for key in ("completed", "partial"):
        inner = given.get(key)
        if isinstance(inner, dict) and "singer_state" in inner:
            return cast(dict[str, Any], inner)["singer_state"]
    if given.keys() == {"singer_state"}:
        return given["singer_state"]
    return given
