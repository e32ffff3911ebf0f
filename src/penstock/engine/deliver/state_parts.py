"""Merges states of which only some parts count into the saved ones: those of runs in which a stream
is refreshed (``StoredState.part``, ``StoredState.without``).

Pure, over the protocol's rules. Not here: which parts wait (``engine.deliver.load_plan``).
"""

from collections.abc import Collection, Sequence
from itertools import groupby

from penstock.model.catalog import StreamId
from penstock.model.state import StoredState
from penstock.protocols.contract import SharedStates, StateRole
from penstock.store.contract import Merge

NO_STATE = "null"


def merging(role: StateRole) -> Merge:
    """Returns how this protocol's new states join the saved ones."""

    def merge(saved: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
        states = list(saved)
        for plain, run in groupby(new, key=lambda s: s.part is None and not s.without):
            given = list(run)
            if plain:
                states = role.merge(states, given)
                continue
            for state in given:
                states = _merged(role, states, state)
        return states

    return merge


def _merged(role: StateRole, saved: list[StoredState], new: StoredState) -> list[StoredState]:
    bare = [] if new.blob == NO_STATE else [StoredState(new.part or new.scope, new.blob)]
    if new.part is not None and new.scope.stream is not None:
        if new.part == new.scope or not saved:
            others = _streams_of(role, bare) - {new.scope.stream}
            left = role.without(saved, (new.scope.stream,))
            return role.merge(left, role.without(bare, sorted(others)))
        return moved(role, saved, bare, new.scope.stream)
    for stream in new.without:
        bare = moved(role, bare, saved, stream)
    return role.merge(saved, bare) if bare else saved


def stand_alone(
    role: StateRole, states: Sequence[StoredState], streams: Collection[StreamId]
) -> bool:
    """Whether these streams' shares of the states can be moved (:func:`moved`)."""
    return not isinstance(role, SharedStates) or role.stands_alone(states, streams)


def moved(
    role: StateRole, into: Sequence[StoredState], given: Sequence[StoredState], stream: StreamId
) -> list[StoredState]:
    """Returns the states ``into``, with the stream's share replaced by that in ``given``."""
    if not isinstance(role, SharedStates):
        return [*role.without(into, (stream,)), *(s for s in given if s.scope.stream == stream)]
    return role.with_own(into, stream, role.own(given, stream))


def _streams_of(role: StateRole, states: Sequence[StoredState]) -> set[StreamId]:
    entries = role.describe(states)["streams"]
    return {StreamId(entry["namespace"], entry["name"]) for entry in entries}
