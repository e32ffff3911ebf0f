"""Defines states and their scopes. A state's content is opaque here: the JSON text of the source's
own message, byte for byte (L1)."""

from enum import StrEnum

import msgspec

from penstock.model.catalog import StreamId


class StateType(StrEnum):
    """STREAM: a state per stream. GLOBAL: one state for all streams, with a part per stream.
    LEGACY: one blob for all streams."""

    stream = "STREAM"
    global_ = "GLOBAL"
    legacy = "LEGACY"


class StateScope(msgspec.Struct, frozen=True):
    """The records that a state covers: those of one stream (STREAM), or of all streams of its lane
    (``stream`` None)."""

    type: StateType
    stream: StreamId | None = None

    @property
    def key(self) -> str:
        """Store key: the stream's key, or ``*`` for a shared state."""
        return "*" if self.stream is None else self.stream.key


class StoredState(msgspec.Struct, frozen=True):
    """A state as saved: ``blob`` is the JSON text of the source's own state message. The other
    fields are for states that are to be saved (``engine.deliver.state_parts``). ``part``: the
    blob's own scope, if only its part for the stream in ``scope`` counts and replaces what is saved
    for that stream (a blob ``null``: nothing is saved any more). ``without``: streams whose saved
    parts stay unchanged, whatever the blob contains."""

    scope: StateScope
    blob: str
    part: StateScope | None = None
    without: tuple[StreamId, ...] = ()
