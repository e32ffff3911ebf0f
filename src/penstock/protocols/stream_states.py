"""Handles saved states of protocols in which every state covers one stream and is independent.

The protocol adds ``parse``, since only it knows what a state means. Pure functions; the rules of
``protocols.contract.StateRole``. Neighbours: ``rapidbyte.state``, ``spark.state``.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from penstock.codec.exact_json import exact
from penstock.model.catalog import Stream, StreamId
from penstock.model.state import StateScope, StateType, StoredState


def saved(blob: str, stream: StreamId) -> StoredState:
    return StoredState(StateScope(StateType.stream, stream), blob)


class StreamStates:
    """``StateRole`` of ``protocols.contract``, without ``parse``."""

    def export(self, states: Sequence[StoredState]) -> Any:
        return [exact(s.blob) for s in states] or None

    def merge(self, saved: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
        return list({s.scope: s for s in (*saved, *new)}.values())

    def reset(self, states: Sequence[StoredState], stream: StreamId) -> list[StoredState]:
        return self.without(states, (stream,))

    def names_of(self, stream: Stream) -> tuple[str, ...]:
        del stream
        return ()

    def called(self, names: Mapping[StreamId, Collection[str]]) -> Self:
        del names
        return self

    def reading(self, streams: Collection[StreamId]) -> Self:
        del streams
        return self

    def splits(self, states: Sequence[StoredState], streams: Collection[StreamId]) -> bool:
        del states, streams
        return True

    def without(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        return [s for s in states if s.scope.stream not in streams]

    def within(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        del streams
        return list(states)

    def versions(self, states: Sequence[StoredState], stream: StreamId) -> frozenset[int]:
        """Returns none: streams have no versions."""
        del states, stream
        return frozenset()

    def describe(self, states: Sequence[StoredState]) -> dict[str, Any]:
        streams = [
            {
                "namespace": s.scope.stream.namespace,
                "name": s.scope.stream.name,
                "state": exact(s.blob),
            }
            for s in states
            if s.scope.stream is not None
        ]
        kind = StateType.stream.value if states else None
        return {"type": kind, "streams": streams, "shared": None}
