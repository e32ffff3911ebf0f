"""Parses, merges, resets and describes saved states. A state is the document of a source's own
checkpoint; its cursor is given back to the source in the next run.

Pure functions; every state is of one stream. Neighbours: ``source_stream`` makes states of
checkpoints, ``rapidbyte.declared.stream_context`` makes cursors of states. Source: the protocol,
sections 6 and 7.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.errors import StateError
from penstock.model.catalog import Stream, StreamId
from penstock.model.state import SavedState, StateScope, StateType
from penstock.protocols.rapidbyte.wire.messages import CursorValue, decode_json

_HINT = "give what `penstock state export` writes"


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a checkpoint that the next run uses."""

    stream: str
    cursor_field: str
    cursor_value: CursorValue


def cursor_of(state: SavedState) -> Cursor:
    """Decodes the cursor of a saved state. Raises ``StateError``."""
    try:
        return decode_json(state.blob.encode(), Cursor)
    except ValueError as e:
        raise StateError(
            f"the saved state of {state.scope.stream} is no checkpoint with a cursor: {e}",
            code="state.invalid",
            hint="run `penstock state reset`, or set one with `penstock state set`",
            stream=str(state.scope.stream),
        ) from None


def saved(blob: str, stream: StreamId) -> SavedState:
    return SavedState(StateScope(StateType.stream, stream), blob)


class RapidbyteState:
    """Handles saved states (``StateRole`` of ``protocols.contract``)."""

    def export(self, states: Sequence[SavedState]) -> Any:
        return [msgspec.json.decode(s.blob) for s in states] or None

    def parse(self, raw: Any) -> list[SavedState]:
        """Accepts a list of checkpoints, a single one, and none (null, ``[]``, ``{}``)."""
        items = cast(list[Any], raw) if isinstance(raw, list) else [raw]
        states = [_parsed(item, i) for i, item in enumerate(items) if item not in (None, {})]
        return self.merge([], states)

    def merge(self, saved: Sequence[SavedState], new: Sequence[SavedState]) -> list[SavedState]:
        return list({s.scope: s for s in (*saved, *new)}.values())

    def reset(self, states: Sequence[SavedState], stream: StreamId) -> list[SavedState]:
        return self.without(states, (stream,))

    def names_of(self, stream: Stream) -> tuple[str, ...]:
        del stream
        return ()

    def called(self, names: Mapping[StreamId, Collection[str]]) -> "RapidbyteState":
        del names
        return self

    def splits(self, states: Sequence[SavedState], streams: Collection[StreamId]) -> bool:
        del states, streams
        return True

    def without(
        self, states: Sequence[SavedState], streams: Collection[StreamId]
    ) -> list[SavedState]:
        return [s for s in states if s.scope.stream not in streams]

    def within(
        self, states: Sequence[SavedState], streams: Collection[StreamId]
    ) -> list[SavedState]:
        del streams
        return list(states)

    def versions(self, states: Sequence[SavedState], stream: StreamId) -> frozenset[int]:
        """None: streams have no versions."""
        del states, stream
        return frozenset()

    def describe(self, states: Sequence[SavedState]) -> dict[str, Any]:
        streams = [
            {
                "namespace": s.scope.stream.namespace,
                "name": s.scope.stream.name,
                "state": msgspec.json.decode(s.blob),
            }
            for s in states
            if s.scope.stream is not None
        ]
        kind = StateType.stream.value if states else None
        return {"type": kind, "streams": streams, "shared": None}


def _parsed(item: Any, index: int) -> SavedState:
    try:
        cursor = msgspec.convert(item, Cursor)
    except msgspec.ValidationError as e:
        raise StateError(
            f"state {index + 1} is no checkpoint with a cursor: {e}",
            code="state.invalid",
            hint=_HINT,
        ) from None
    return saved(msgspec.json.encode(item).decode(), StreamId.of(None, cursor.stream))
