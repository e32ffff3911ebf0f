"""How sealed rows reach a destination: the contract, and delivery into tables that Spark writes.

``engine.sync.sync`` says what may be delivered now; a :class:`Delivery` writes it down, carries it
out and saves the states (L1, L3). Tables commit each load under a number of its own; destination
connectors are ``engine.deliver.connector_delivery``'s. Everything durable goes through the store
and the log.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from penstock.engine.deliver.load_plan import Pending
from penstock.engine.deliver.session import SyncSession
from penstock.engine.log.log import WRITTEN_DOWN_HINT
from penstock.engine.specs.failpoints import reach
from penstock.errors import LogError, PenstockError
from penstock.model.catalog import StreamId
from penstock.model.segments import Consumed, Group, Load, SegmentId
from penstock.model.state import SavedState
from penstock.state.contract import GroupIntent
from penstock.state.remembered import Remembered
from penstock.tables.contract import LoadResult, TableAhead, TableBehind


class Meanwhile(Protocol):
    """What goes on while a delivery is waited for. Raises ``LeaseLost``, ``Cancelled``."""

    def look(self) -> None: ...

    def pause(self) -> None:
        """:meth:`look`, after or before a short wait."""
        ...


class Committing(Protocol):
    """Commits on their way."""

    def poll(self) -> list[LoadResult | PenstockError] | None:
        """Their results, in order; None while they go on."""
        ...


class Committed(msgspec.Struct, frozen=True):
    """Commits that were over at once."""

    results: list[LoadResult | PenstockError]

    def poll(self) -> list[LoadResult | PenstockError]:
        return self.results


class Loader(Protocol):
    def begin(self, loads: Sequence[Load]) -> Committing:
        """Commit each load, whose parts are whole; at most one load per stream in a call, and one
        call at a time."""
        ...


class Delivery(Protocol):
    ack_per_state: bool
    """Every state goes out by itself; else the last of what is delivered at once speaks for all."""

    def repeat(self, meanwhile: Meanwhile) -> None:
        """First of all: what an earlier run wrote down is carried out again (L3)."""
        ...

    def deliver(self, pending: Pending, meanwhile: Meanwhile) -> None:
        """Take what is ready. It may still be on its way when this returns."""
        ...

    def poll(self) -> None:
        """Settle what has arrived."""
        ...

    def flush(self, meanwhile: Meanwhile) -> None:
        """Wait until nothing is on its way: it is committed, or blocked."""
        ...

    def source_done(self, streams: Iterable[StreamId]) -> None:
        """The source has read these streams to their end, and their last rows are delivered."""
        ...

    def under_way(self) -> set[Consumed]:
        """What was taken and is not consumed in the store."""
        ...

    def published(self) -> set[StreamId]:
        """Streams whose generation was delivered whole since the last call."""
        ...

    def stop(self) -> None:
        """The run was cancelled: what still arrives, for a bounded while, counts."""
        ...

    def dead(self) -> bool:
        """Nothing can be delivered any more: sources need not go on."""
        ...


class Preconditions:
    """What must hold before a group goes out: its parts are as they were sealed, and its states do
    not speak for streams that were reset since."""

    def __init__(self, session: SyncSession) -> None:
        self._session, self._failures = session, session.failures

    def passed(self, pending: Pending) -> list[GroupIntent]:
        """A version that becomes visible is remembered before its rows are: once it is sealed whole
        nothing but a reset can stop it. What follows a group that stays behind waits for it."""
        session, failures = self._session, self._failures
        found: list[GroupIntent] = []
        behind: set[StreamId] = set()
        for group in pending.ready:
            shut = failures.shared_blocked and is_shared(group.states)
            if self.is_whole(group) and not shut and not group.streams & behind:
                found.append(self._stripped(group))
            else:
                behind |= group.streams
                failures.shared_blocked |= is_shared(group.states)
        visible: dict[StreamId, dict[int, int]] = {}
        for stream, generation, version in (*pending.activates, *pending.refreshes):
            if stream not in failures.blocked:
                visible.setdefault(stream, {})[generation] = version
        if visible:
            session.store.remember(session.lease, Remembered(visible=visible))
        return found

    def is_whole(self, group: Group | GroupIntent) -> bool:
        """A stream whose parts are not goes no further, nor does a state that it shares."""
        shared = is_shared(group.states)
        for load in group.loads:
            try:
                self._session.log.verify(load.parts)
            except LogError as e:
                e.stream = str(load.stream)
                if isinstance(load, Load) and e.code == "log.corrupt":
                    e.hint = WRITTEN_DOWN_HINT
                self._failures.block(load.stream, e, shared=shared)
                self._session.observer.load_failed(load.stream, e)
        damaged = any(load.stream in self._failures.blocked for load in group.loads)
        self._failures.shared_blocked |= damaged and shared
        return not damaged

    def _stripped(self, group: GroupIntent) -> GroupIntent:
        """A state that was sealed before some of its streams were reset says nothing of them."""
        if not is_shared(group.states):
            return group
        session = self._session
        floors = session.store.floors(session.pipeline).items()
        gone = [s for s, epoch in floors if s is not None and group.epoch <= epoch]
        if not gone:
            return group
        states = tuple(session.state_role.without(group.states, gone))
        return msgspec.structs.replace(group, states=states)

    def announce(self, taken: Iterable[SegmentId]) -> None:
        """The observer hears what is about to go out."""
        wanted = set(taken)
        if wanted:
            found = self._session.log.segments()
            self._session.observer.segments([s for s in found if s.id in wanted])


class TableDelivery:
    """Loads of numbers that are written down first. Nothing is under way between calls."""

    ack_per_state = False

    def __init__(self, session: SyncSession, loader: Loader) -> None:
        self._session, self._loader = session, loader
        self._store, self._lease = session.store, session.lease
        self._observer, self._failures = session.observer, session.failures
        self._preconditions = Preconditions(session)
        self._published: set[StreamId] = set()
        self._adopted: set[StreamId] = set()  # in this run
        self._behind: set[StreamId] = set()  # loads of these wait behind one that failed

    def repeat(self, meanwhile: Meanwhile) -> None:
        groups = self._store.open_groups(self._session.pipeline)
        loads = (load for group in groups for load in group.loads)
        self._preconditions.announce(segment for load in loads for segment in load.segments)
        self._commit([g for g in groups if self._preconditions.is_whole(g)], meanwhile, again=True)

    def deliver(self, pending: Pending, meanwhile: Meanwhile) -> None:
        ready = self._preconditions.passed(pending)
        if not ready:
            return
        self._preconditions.announce(segment for group in ready for segment, _ in group.consumes)
        groups = self._store.intend(self._lease, ready, self._session.state_role.merge)
        reach("after-intent")
        self._commit(groups, meanwhile)
        self._published |= pending.publishes - self._failures.blocked.keys()

    def poll(self) -> None:
        """Nothing is under way."""

    def flush(self, meanwhile: Meanwhile) -> None:
        """Nothing is under way."""

    def source_done(self, streams: Iterable[StreamId]) -> None:
        """A table learns of it from its load."""

    def under_way(self) -> set[Consumed]:
        return set()

    def published(self) -> set[StreamId]:
        found, self._published = self._published, set()
        return found

    def stop(self) -> None:
        """Nothing is under way."""

    def dead(self) -> bool:
        """A table that fails does not hold the others back."""
        return False

    def _commit(
        self, groups: Sequence[Group], meanwhile: Meanwhile, *, again: bool = False
    ) -> None:
        """``again``: some of their loads may be committed already."""
        remaining = list(groups)
        while remaining:
            meanwhile.look()
            wave, remaining = self._wave(remaining)
            work = [(group, load) for group in wave for load in group.loads]
            if again:
                work = self._uncommitted(work)
            adopted = self._commit_loads(work, meanwhile)
            left = self._failures.blocked.keys() | adopted
            for group in wave:
                if not any(load.stream in left for load in group.loads):
                    self._observer.states(group.states)
            if adopted:  # their loads have other numbers now
                named = {group.id for group in (*wave, *remaining)}
                found = self._store.open_groups(self._session.pipeline)
                remaining, again = [g for g in found if g.id in named], True

    def _uncommitted(self, work: Sequence[tuple[Group, Load]]) -> list[tuple[Group, Load]]:
        done = {
            (group.id, *load)
            for group in {g.id: g for g, _ in work}.values()
            for load in self._store.committed_loads(self._session.pipeline, group.id)
        }
        return [(g, load) for g, load in work if (g.id, load.key, load.number) not in done]

    def _wave(self, groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
        """Groups that may move together: no stream twice, one shared state at most, and nothing
        that overtakes a group of the same stream or state. Groups that wait for a load that failed
        stay written down, for the next run."""
        wave: list[Group] = []
        later: list[Group] = []
        taken: set[StreamId] = set()
        shared = False
        failures = self._failures
        for group in groups:
            streams = {load.stream for load in group.loads}
            shares = is_shared(group.states)
            waits = streams & (failures.blocked.keys() | self._behind)
            if waits or (shares and failures.shared_blocked):
                self._behind |= streams
                failures.shared_blocked |= shares
                continue
            if streams & taken or (shares and shared):
                later.append(group)
            else:
                wave.append(group)
            taken |= streams
            shared |= shares
        return wave, later

    def _commit_loads(
        self, work: Sequence[tuple[Group, Load]], meanwhile: Meanwhile
    ) -> set[StreamId]:
        """Streams whose tables are taken as they are, so that their loads were renumbered."""
        if not work:
            return set()
        committing = self._loader.begin([load for _, load in work])
        while (results := committing.poll()) is None:
            meanwhile.pause()
        reach("after-commit")
        committed: list[tuple[int, Load]] = []
        adopted = self._renumbered(work, results)
        for (group, load), result in zip(work, results, strict=True):
            if load.stream in adopted:
                continue
            if isinstance(result, TableAhead | TableBehind):
                result.add_hint(self._session.pipeline)
            if isinstance(result, PenstockError):
                self._failures.block(load.stream, result, shared=is_shared(group.states))
                self._observer.load_failed(load.stream, result)
            else:
                committed.append((group.id, load))
        self._store.loaded(self._lease, committed, self._session.state_role.merge)
        reach("after-ledger")
        for (_, load), result in zip(work, results, strict=True):
            if isinstance(result, LoadResult):
                self._observer.loaded(load, result)
        return adopted

    def _renumbered(
        self,
        work: Sequence[tuple[Group, Load]],
        results: Sequence[LoadResult | PenstockError],
    ) -> set[StreamId]:
        """Of the loads that did not find their table where they expected it those whose table is
        taken as it is (``Store.adopt``); once a run, lest two homes do it in turns."""
        found = {
            load.stream: result.number
            for (_, load), result in zip(work, results, strict=True)
            if isinstance(result, TableAhead | TableBehind) and load.stream not in self._adopted
        }
        adopted = self._store.renumber(self._lease, found) if found else set[StreamId]()
        for stream in sorted(adopted):
            self._observer.note(
                f"stream {stream}: its table was taken as it is (its newest is load "
                f"{found[stream]})"
            )
        self._adopted |= adopted
        return adopted


def is_shared(states: Iterable[SavedState]) -> bool:
    """Does one of them speak for several streams?"""
    return any(s.scope.stream is None for s in states)
