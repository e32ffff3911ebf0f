"""Implements the state role of a protocol without sources: no states to read, merge or reset.

A destination's own state is not a source's state. Source: the protocol page, State management.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penstock.errors import StateError
from penstock.model.catalog import Stream, StreamId
from penstock.model.state import StoredState


class SyncmavenState:
    """``StateRole`` of ``protocols.contract``."""

    def export(self, states: Sequence[StoredState]) -> Any:
        return None

    def parse(self, raw: Any) -> list[StoredState]:
        raise StateError(
            "a Syncmaven connector is not a source: it has no state",
            code="state.no_source",
            hint="give the state of the pipeline's source",
        )

    def merge(self, saved: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
        return [*saved, *new]

    def reset(self, states: Sequence[StoredState], stream: StreamId) -> list[StoredState]:
        return list(states)

    def names_of(self, stream: Stream) -> tuple[str, ...]:
        return ()

    def called(self, names: Mapping[StreamId, Collection[str]]) -> "SyncmavenState":
        return self

    def reading(self, streams: Collection[StreamId]) -> "SyncmavenState":
        return self

    def splits(self, states: Sequence[StoredState], streams: Collection[StreamId]) -> bool:
        return True

    def without(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        return list(states)

    def within(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        return list(states)

    def versions(self, states: Sequence[StoredState], stream: StreamId) -> frozenset[int]:
        return frozenset()

    def describe(self, states: Sequence[StoredState]) -> dict[str, Any]:
        return {"type": None, "streams": [], "shared": None}
