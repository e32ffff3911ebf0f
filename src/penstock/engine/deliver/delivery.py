"""Defines how sealed rows reach a destination (:class:`Delivery`), and delivers them into tables
(:class:`TableDelivery`).

``engine.sync.sync`` decides what may be delivered now; a :class:`Delivery` writes it to the ledger,
commits it and saves the states (L1, L3). Tables commit each load under a number of its own;
``engine.deliver.connector_delivery`` serves destination connectors. Everything durable goes through
the store and the log.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from penstock.engine.deliver.load_plan import Pending
from penstock.engine.deliver.part_checks import CheckInDriver, Damaged, PartCheck
from penstock.engine.deliver.session import SyncSession
from penstock.engine.log.log import written_down_hint
from penstock.engine.specs.failpoints import reach
from penstock.errors import PenstockError
from penstock.model.catalog import StreamId
from penstock.model.segments import ConsumedSlice, Group, Load, PlannedOn, SegmentId
from penstock.model.state import StoredState
from penstock.store.contract import GroupIntent, LoadIntent
from penstock.store.remembered import Remembered
from penstock.store.rules import restated
from penstock.tables.contract import LoadResult, NotSeen, TableAhead, TableBehind


class LaneWatcher(Protocol):
    """Looks after lanes while a delivery waits. Raises ``LeaseLost``, ``Cancelled``."""

    def look(self) -> None:
        """Looks after everything that runs, without waiting."""
        ...

    def pause(self) -> None:
        """Calls :meth:`look`, and waits for a short time before or after it."""
        ...


class RunningCommits(Protocol):
    """Commits that are running."""

    def poll(self) -> list[LoadResult | PenstockError] | None:
        """Returns the results in the order of the loads; None, after a short wait for them, while
        the commits run."""
        ...


class FinishedCommits(msgspec.Struct, frozen=True):
    """Implements :class:`RunningCommits` for results that are known at once."""

    results: list[LoadResult | PenstockError]

    def poll(self) -> list[LoadResult | PenstockError]:
        return self.results


class Loader(Protocol):
    """Commits loads into tables."""

    def begin(self, loads: Sequence[Load]) -> RunningCommits:
        """Starts committing each load, whose parts are verified; at most one load per stream in a
        call, and one call at a time."""
        ...

    def planned_on(self, stream: StreamId) -> PlannedOn | None:
        """Returns the version on which a load of the stream is planned
        (``TableFormat.planned_on``)."""
        ...


class Delivery(Protocol):
    """The contract of delivery."""

    ack_per_state: bool
    """Whether each state is acked separately. False: one state covers all that one delivery
    sends."""

    def repeat(self, meanwhile: LaneWatcher) -> None:
        """Commits again, before anything else, the loads that an earlier run wrote to the ledger
        (L3)."""
        ...

    def deliver(self, pending: Pending, meanwhile: LaneWatcher) -> None:
        """Delivers what is ready. It may still be uncommitted on return."""
        ...

    def poll(self) -> None:
        """Settles the acks that have arrived."""
        ...

    def flush(self, meanwhile: LaneWatcher) -> None:
        """Waits until everything that was delivered is committed or failed."""
        ...

    def source_done(self, streams: Iterable[StreamId]) -> None:
        """Marks streams complete that the source has read to their end, and whose last rows are
        delivered."""
        ...

    def under_way(self) -> set[ConsumedSlice]:
        """Returns what was delivered and is not consumed in the store."""
        ...

    def published(self) -> set[StreamId]:
        """Returns the streams with a whole generation delivered since the last call."""
        ...

    def stop(self) -> None:
        """Stops a cancelled run's delivery; acks that arrive within a bounded time still count."""
        ...

    def dead(self) -> bool:
        """Whether nothing can be delivered any more, so that sources may stop."""
        ...


class Preconditions:
    """Checks groups before they are delivered: their parts are unchanged since they were sealed,
    and their states do not cover streams that were reset since."""

    def __init__(self, session: SyncSession, check: PartCheck | None = None) -> None:
        self._session, self._failures = session, session.failures
        self._check = check or CheckInDriver(session.log)

    def passed(self, pending: Pending, meanwhile: LaneWatcher) -> list[GroupIntent]:
        """Returns the groups that may be delivered. A group waits for earlier ones that stay
        behind. A version that becomes visible is saved in the store before its rows are delivered:
        once it is sealed whole only a reset can stop it."""
        session, failures = self._session, self._failures
        damaged = self._damaged(pending.ready, meanwhile)
        found: list[GroupIntent] = []
        behind: set[StreamId] = set()
        for group in pending.ready:
            shut = failures.shared_blocked and is_shared(group.states)
            if self._is_whole(group, damaged) and not shut and not group.streams & behind:
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

    def whole(self, groups: Sequence[Group], meanwhile: LaneWatcher) -> list[Group]:
        """Returns the groups whose parts are unchanged since they were sealed."""
        damaged = self._damaged(groups, meanwhile)
        return [group for group in groups if self._is_whole(group, damaged)]

    def _damaged(
        self, groups: Sequence[Group] | Sequence[GroupIntent], meanwhile: LaneWatcher
    ) -> Damaged:
        """Verifies the parts of all groups at once, and looks after the lanes meanwhile."""
        parts = [part for group in groups for load in group.loads for part in load.parts]
        if not parts:
            return {}
        began = time.monotonic()
        running = self._check.begin(parts)
        while (damaged := running.poll()) is None:
            meanwhile.look()
        self._session.observer.load_seconds(time.monotonic() - began)
        return damaged

    def _is_whole(self, group: Group | GroupIntent, damaged: Damaged) -> bool:
        """Whether no part of a group is damaged. A stream with a damaged part is blocked, and so is
        its shared state."""
        shared = is_shared(group.states)
        for load in group.loads:
            e = next((damaged[part.path] for part in load.parts if part.path in damaged), None)
            if e is not None:
                e.stream = str(load.stream)
                if isinstance(load, Load) and e.code == "log.corrupt":
                    e.hint = written_down_hint(self._session.pipeline)
                self._failures.block(load.stream, e, shared=shared)
                self._session.observer.load_failed(load.stream, e)
        hurt = any(load.stream in self._failures.blocked for load in group.loads)
        self._failures.shared_blocked |= hurt and shared
        return not hurt

    def _stripped(self, group: GroupIntent) -> GroupIntent:
        """Removes streams from a shared state that was sealed before they were reset."""
        if not is_shared(group.states):
            return group
        session = self._session
        floors = session.store.floors(session.pipeline).items()
        gone = [s for s, epoch in floors if s is not None and group.epoch <= epoch]
        if not gone:
            return group
        states = restated(group.states, lambda given: session.state_role.without(given, gone))
        return msgspec.structs.replace(group, states=states)

    def announce(self, taken: Iterable[SegmentId]) -> None:
        """Reports to the observer which segments are about to be delivered."""
        wanted = set(taken)
        if wanted:
            found = self._session.log.segments()
            self._session.observer.segments([s for s in found if s.id in wanted])


class TableDelivery:
    """Implements :class:`Delivery` for tables: writes each load with its number to the ledger, then
    commits it (L3). Between calls nothing is uncommitted."""

    ack_per_state = False

    def __init__(
        self, session: SyncSession, loader: Loader, check: PartCheck | None = None
    ) -> None:
        self._session, self._loader = session, loader
        self._store, self._lease = session.store, session.lease
        self._observer, self._failures = session.observer, session.failures
        self._preconditions = Preconditions(session, check)
        self._published: set[StreamId] = set()
        self._adopted: set[StreamId] = set()  # in this run
        self._behind: set[StreamId] = set()  # loads of these wait behind one that failed

    def repeat(self, meanwhile: LaneWatcher) -> None:
        groups = self._store.open_groups(self._session.pipeline)
        loads = (load for group in groups for load in group.loads)
        self._preconditions.announce(segment for load in loads for segment in load.segments)
        self._commit(self._preconditions.whole(groups, meanwhile), meanwhile, again=True)

    def deliver(self, pending: Pending, meanwhile: LaneWatcher) -> None:
        ready = self._preconditions.passed(pending, meanwhile)
        if not ready:
            return
        self._preconditions.announce(segment for group in ready for segment, _ in group.consumes)
        groups = self._store.intend(self._lease, self._planned(ready), self._session.merge)
        reach("after-intent")
        self._commit(groups, meanwhile)
        self._published |= pending.publishes - self._failures.blocked.keys()

    def _planned(self, groups: Sequence[GroupIntent]) -> list[GroupIntent]:
        """Adds to each load the version of its table on which it is planned: each earlier load
        makes one version."""
        versions: dict[StreamId, PlannedOn | None] = {}

        def planned(load: LoadIntent) -> LoadIntent:
            if not load.reaches_table:
                return load
            if load.stream not in versions:
                versions[load.stream] = self._loader.planned_on(load.stream)
            now = versions[load.stream]
            if now is None:
                return load
            versions[load.stream] = PlannedOn(now.version + 1, now.boot)
            return msgspec.structs.replace(load, planned=now)

        return [msgspec.structs.replace(g, loads=(*map(planned, g.loads),)) for g in groups]

    def poll(self) -> None:
        """No-op: commits end within :meth:`deliver`."""

    def flush(self, meanwhile: LaneWatcher) -> None:
        """No-op: commits end within :meth:`deliver`."""

    def source_done(self, streams: Iterable[StreamId]) -> None:
        """No-op: the load of a table records whether its stream is complete."""

    def under_way(self) -> set[ConsumedSlice]:
        return set()

    def published(self) -> set[StreamId]:
        found, self._published = self._published, set()
        return found

    def stop(self) -> None:
        """No-op: commits end within :meth:`deliver`."""

    def dead(self) -> bool:
        """Returns False: a table that fails does not hold the others back."""
        return False

    def _commit(
        self, groups: Sequence[Group], meanwhile: LaneWatcher, *, again: bool = False
    ) -> None:
        """Commits groups in waves. ``again``: some of their loads may be committed already."""
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
        """Splits off the groups that may be committed together: no stream twice, one shared state
        at most, and no group before an earlier one of the same stream or state. Groups behind a
        failed load stay in the ledger, for the next run."""
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
        self, work: Sequence[tuple[Group, Load]], meanwhile: LaneWatcher
    ) -> set[StreamId]:
        """Commits loads and marks them in the ledger. Returns the streams whose tables were
        adopted, so that their loads got new numbers."""
        if not work:
            return set()
        committing = self._loader.begin([load for _, load in work])
        while (results := committing.poll()) is None:
            meanwhile.look()
        reach("after-commit")
        committed: list[tuple[int, Load]] = []
        adopted = self._renumbered(work, results)
        for (group, load), result in zip(work, results, strict=True):
            if load.stream in adopted:
                continue
            if isinstance(result, TableAhead | TableBehind | NotSeen):
                result.add_hint(self._session.pipeline)
            if isinstance(result, PenstockError):
                self._failures.block(load.stream, result, shared=is_shared(group.states))
                self._observer.load_failed(load.stream, result)
            else:
                committed.append((group.id, load))
        self._store.loaded(self._lease, committed, self._session.merge)
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
        """Gives new numbers to loads whose table has another number than expected, where the user
        adopted the table (``Store.adopt``); once a run, so that two homes do not alternate. Returns
        their streams."""
        found = {
            load.stream: result.number
            for (_, load), result in zip(work, results, strict=True)
            if isinstance(result, TableAhead | TableBehind) and load.stream not in self._adopted
        }
        adopted = self._store.renumber(self._lease, found) if found else set[StreamId]()
        for stream in sorted(adopted):
            self._observer.note(
                f"stream {stream}: its table is accepted as it is (its newest load is "
                f"{found[stream]})"
            )
        self._adopted |= adopted
        return adopted


def is_shared(states: Iterable[StoredState]) -> bool:
    """Whether one of these states covers several streams."""
    return any(s.scope.stream is None for s in states)
