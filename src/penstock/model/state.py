"""States and where they belong. The content of a state is a black box here: JSON text, the source's
own message, byte for byte (L1)."""

from enum import StrEnum

import msgspec

from penstock.model.catalog import StreamId


class StateType(StrEnum):
    """STREAM: one state a stream. GLOBAL: one for all, with parts per stream. LEGACY: one blob."""

    stream = "STREAM"
    global_ = "GLOBAL"
    legacy = "LEGACY"


class StateScope(msgspec.Struct, frozen=True):
    """What a state speaks for: one stream (STREAM) or everything its lane reads (``stream``
    None)."""

    type: StateType
    stream: StreamId | None = None

    @property
    def key(self) -> str:
        """Store key: the stream's key, or ``*`` for a shared state."""
        return "*" if self.stream is None else self.stream.key


class SavedState(msgspec.Struct, frozen=True):
    """A state as saved: ``blob`` is the JSON text of the source's own state message."""

    scope: StateScope
    blob: str
