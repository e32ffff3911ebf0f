"""Parses, merges, resets and describes saved states. A state is the document of a source's own
checkpoint; its cursor goes back to the source in the next run.

Pure functions; every state is of one stream. Neighbours: ``source_stream`` makes states of
checkpoints, ``rapidbyte.declared.stream_context`` makes cursors of states. Source: the protocol,
sections 6 and 7.
"""

from typing import Any, cast

import msgspec

from penstock.codec.exact_json import exact_text
from penstock.errors import StateError
from penstock.model.catalog import StreamId
from penstock.model.state import StoredState
from penstock.protocols.rapidbyte.wire.messages import CursorValue, decode_json
from penstock.protocols.stream_states import StreamStates, saved

_HINT = "give what `penstock state export` writes"


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a checkpoint that the next run uses."""

    stream: str
    cursor_field: str
    cursor_value: CursorValue


def cursor_of(state: StoredState) -> Cursor:
    """Decodes the cursor of a saved state. Raises ``StateError``."""
    try:
        return decode_json(state.blob.encode(), Cursor)
    except ValueError as e:
        raise StateError(
            f"the saved state of {state.scope.stream} is not a checkpoint with a cursor: {e}",
            code="state.invalid",
            hint="run `penstock state reset`, or set one with `penstock state set`",
            stream=str(state.scope.stream),
        ) from None


class RapidbyteState(StreamStates):
    """Handles saved states (``StateRole`` of ``protocols.contract``)."""

    def parse(self, raw: Any) -> list[StoredState]:
        """Accepts a list of checkpoints, a single one, and none (null, ``[]``, ``{}``)."""
        items = cast(list[Any], raw) if isinstance(raw, list) else [raw]
        states = [_parsed(item, i) for i, item in enumerate(items) if item not in (None, {})]
        return self.merge([], states)


def _parsed(item: Any, index: int) -> StoredState:
    try:
        cursor = msgspec.convert(item, Cursor)
    except msgspec.ValidationError as e:
        raise StateError(
            f"state {index + 1} is not a checkpoint with a cursor: {e}",
            code="state.invalid",
            hint=_HINT,
        ) from None
    return saved(exact_text(item).decode(), StreamId.of(None, cursor.stream))
