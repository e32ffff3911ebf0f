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
    """A state as saved: ``blob`` is the JSON text of the source's own state message. The rest is of
    states that are to be saved (``engine.deliver.state_parts``). ``part``: the blob's own scope,
    where only what it says of the stream in ``scope`` counts, in place of what is saved of that
    stream (a blob ``null``: nothing is saved of it any more). ``without``: streams whose saved
    parts stay as they are, whatever the blob says of them."""

    scope: StateScope
    blob: str
    part: StateScope | None = None
    without: tuple[StreamId, ...] = ()
