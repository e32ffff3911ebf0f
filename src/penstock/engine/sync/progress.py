"""Holds the streams of a sync while it runs, and reads the saved states.

Data, and reads of the store. Not here: sealed segments (``engine.sync.backlog``), epochs
(``engine.sync.epochs``); both read what ``engine.sync.sync`` writes here.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from penstock.engine.deliver.delivery import is_shared
from penstock.engine.deliver.session import SyncSession
from penstock.engine.plan.state_names import begins_anew
from penstock.engine.specs.plan import PlannedStream
from penstock.model.catalog import StreamId
from penstock.model.state import StateType, StoredState
from penstock.protocols.contract import StateRole
from penstock.store.contract import Reset
from penstock.store.remembered import Refresh


@dataclass(slots=True)
class SyncProgress:
    """The streams of one sync. ``streams``: planned before and during the read. ``complete``: those
    that the source has read to their end. ``cancelled``: the run was cancelled."""

    session: SyncSession
    streams: dict[StreamId, PlannedStream]
    complete: set[StreamId] = field(default_factory=set[StreamId])
    cancelled: bool = False
    refreshed: frozenset[StreamId] | None = None  # streams that ever had one, once it is known

    def state_role(self) -> StateRole:
        """Returns the protocol's rules for states, with the names of this sync's streams."""
        role = self.session.state_role
        return role.called(
            {id: role.names_of(s.configured.stream) for id, s in self.streams.items()}
        )

    def states(self) -> list[StoredState]:
        """Returns the saved states."""
        return self.session.store.states(self.session.pipeline)

    def refreshes(self) -> Mapping[StreamId, Refresh]:
        """Returns the newest refresh of each stream that ever had one, ended or not. No refresh
        begins during a sync."""
        store, pipeline = self.session.store, self.session.pipeline
        if self.refreshed is None:
            found = store.remembered(pipeline).refresh
            self.refreshed = frozenset(found)
            return found
        return store.remembered(pipeline, self.refreshed).refresh if self.refreshed else {}

    def state_types(self) -> str:
        """Returns the types of the saved states, as shown to users; empty: there are none."""
        return " and ".join(sorted({s.scope.type.value for s in self.states()}))

    def note_new_type(self, before: str) -> None:
        """Notes that the source's states now have other types than ``before``."""
        now = self.state_types()
        if before and now and now != before:
            legacy = StateType.legacy.value
            if before == legacy:
                unread = (
                    f". Only the source knows whether it went on from its {legacy} state: if it "
                    "could not read it, it began at its start, and rows came again"
                )
            else:
                unread = ""
            self.session.observer.note(
                f"the source's state was {before} and is now {now}, as a new version of a connector"
                " may do: the streams that it reads go on from the new one; of the others only"
                " positions are kept that can be separated, else they are read from the start"
                f"{unread}"
            )

    def go_on(self, streams: Iterable[StreamId]) -> bool:
        """Whether any of these streams continues from its state; an unplanned stream may."""
        known = self.streams
        return any(s not in known or not begins_anew(known[s].configured) for s in streams)

    def take_states_back(self, gone: Set[StreamId]) -> None:
        """Removes these streams from a shared saved state, before rows of theirs that it covers are
        given up. A state that cannot be split is deleted entirely, and a stream that relies on it
        is read again."""
        saved = self.states()
        if not is_shared(saved):
            return
        session, role, names = self.session, self.state_role(), sorted(gone)
        left = role.without(saved, names)
        if not left and self.go_on(gone) and not role.splits(saved, names):
            session.observer.note(
                "the shared state covers discarded rows: all streams are read again"
            )
            session.store.replace_states(session.lease, [])
            return
        strip = Reset(tuple(names), lambda states: role.without(states, names))
        session.store.replace_states(session.lease, left, strip)
