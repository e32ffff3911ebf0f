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
from penstock.engine.log.log import WRITTEN_DOWN_HINT, Log
from penstock.engine.specs.failpoints import reach
from penstock.engine.specs.keys import visible_key
from penstock.errors import LogError, PenstockError
from penstock.model.catalog import StreamId
from penstock.model.segments import Consumed, Group, Load, Segment, SegmentId
from penstock.model.state import SavedState
from penstock.protocols.contract import StateRole
from penstock.state.contract import GroupIntent, Lease, Store
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


class DeliveryObserver(Protocol):
    """Who is told; decides nothing."""

    def segments(self, segments: Sequence[Segment]) -> None: ...

    def loaded(self, load: Load, result: LoadResult) -> None: ...

    def states(self, states: Sequence[SavedState]) -> None:
        """States whose loads are all committed."""
        ...

    def load_failed(self, stream: StreamId, error: PenstockError) -> None: ...

    def refused(self, stream: StreamId, rejected: int) -> None:
        """Nothing more of the stream is delivered, as too many records were rejected: so many
        beside those of its loads."""
        ...

    def note(self, text: str) -> None: ...


class Verdicts:
    """What has failed so far: shared by everything that decides. ``errors``: in order of time."""

    def __init__(self) -> None:
        self.errors: list[PenstockError] = []
        self.blocked: dict[StreamId, PenstockError] = {}
        self.shared_blocked = False

    def block(self, stream: StreamId, error: PenstockError, *, shared: bool) -> None:
        """Nothing of this stream goes on, nor does a state that it shares."""
        self.blocked[stream] = error
        self.shared_blocked |= shared
        self.errors.append(error)


class Delivery(Protocol):
    each_state: bool
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


class Gate:
    """May this group go out? Its parts must be as they were sealed, and its states may not speak
    for streams that were reset since."""

    def __init__(
        self,
        pipeline: str,
        log: Log,
        store: Store,
        states: StateRole,
        observer: DeliveryObserver,
        verdicts: Verdicts,
    ) -> None:
        self._pipeline, self._log, self._store, self._states = pipeline, log, store, states
        self._observer, self._verdicts = observer, verdicts

    def passed(self, pending: Pending, lease: Lease) -> list[GroupIntent]:
        """A version that becomes visible is remembered before its rows are: once it is sealed whole
        nothing but a reset can stop it. What a group that stays behind has rows of waits for it."""
        verdicts = self._verdicts
        found: list[GroupIntent] = []
        behind: set[StreamId] = set()
        for group in pending.ready:
            streams = {load.stream for load in group.loads}
            shut = verdicts.shared_blocked and is_shared(group.states)
            if self.is_whole(group) and not shut and not streams & behind:
                found.append(self._stripped(group))
            else:
                behind |= streams
                verdicts.shared_blocked |= is_shared(group.states)
        seen: dict[str, dict[str, str]] = {}
        for stream, generation, version in (*pending.activates, *pending.refreshes):
            if stream not in verdicts.blocked:
                seen.setdefault(visible_key(stream), {})[str(generation)] = str(version)
        if seen:
            self._store.grow_names(lease, seen)
        return found

    def is_whole(self, group: Group | GroupIntent) -> bool:
        """A stream whose parts are not goes no further, nor does a state that it shares."""
        shared = is_shared(group.states)
        for load in group.loads:
            try:
                self._log.verify(load.parts)
            except LogError as e:
                e.stream = str(load.stream)
                if isinstance(load, Load) and e.code == "log.corrupt":
                    e.hint = WRITTEN_DOWN_HINT
                self._verdicts.block(load.stream, e, shared=shared)
                self._observer.load_failed(load.stream, e)
        damaged = any(load.stream in self._verdicts.blocked for load in group.loads)
        self._verdicts.shared_blocked |= damaged and shared
        return not damaged

    def _stripped(self, group: GroupIntent) -> GroupIntent:
        """A state that was sealed before some of its streams were reset says nothing of them."""
        if not is_shared(group.states):
            return group
        floors = self._store.floors(self._pipeline).items()
        gone = [s for s, epoch in floors if s is not None and group.epoch <= epoch]
        if not gone:
            return group
        states = tuple(self._states.without(group.states, gone))
        return msgspec.structs.replace(group, states=states)

    def tell(self, taken: Iterable[SegmentId]) -> None:
        """The observer hears what is about to go out."""
        wanted = set(taken)
        if wanted:
            self._observer.segments([s for s in self._log.segments() if s.id in wanted])


class TableDelivery:
    """Loads of numbers that are written down first. Nothing is under way between calls."""

    each_state = False

    def __init__(
        self,
        pipeline: str,
        *,
        lease: Lease,
        store: Store,
        loader: Loader,
        gate: Gate,
        states: StateRole,
        observer: DeliveryObserver,
        verdicts: Verdicts,
    ) -> None:
        self._pipeline, self._lease, self._store = pipeline, lease, store
        self._loader, self._gate, self._states = loader, gate, states
        self._observer, self._verdicts = observer, verdicts
        self._published: set[StreamId] = set()
        self._adopted: set[StreamId] = set()  # in this run
        self._behind: set[StreamId] = set()  # loads of these wait behind one that failed

    def repeat(self, meanwhile: Meanwhile) -> None:
        groups = self._store.open_groups(self._pipeline)
        self._gate.tell(segment for g in groups for load in g.loads for segment in load.segments)
        self._commit([g for g in groups if self._gate.is_whole(g)], meanwhile, again=True)

    def deliver(self, pending: Pending, meanwhile: Meanwhile) -> None:
        ready = self._gate.passed(pending, self._lease)
        if not ready:
            return
        self._gate.tell(segment for group in ready for segment, _ in group.consumes)
        groups = self._store.intend(self._lease, ready, self._states.merge)
        reach("after-intent")
        self._commit(groups, meanwhile)
        self._published |= pending.publishes - self._verdicts.blocked.keys()

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
            left = self._verdicts.blocked.keys() | adopted
            for group in wave:
                if not any(load.stream in left for load in group.loads):
                    self._observer.states(group.states)
            if adopted:  # their loads have other numbers now
                named = {group.id for group in (*wave, *remaining)}
                found = self._store.open_groups(self._pipeline)
                remaining, again = [g for g in found if g.id in named], True

    def _uncommitted(self, work: Sequence[tuple[Group, Load]]) -> list[tuple[Group, Load]]:
        done = {
            (group.id, *load)
            for group in {g.id: g for g, _ in work}.values()
            for load in self._store.committed_loads(self._pipeline, group.id)
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
        verdicts = self._verdicts
        for group in groups:
            streams = {load.stream for load in group.loads}
            shares = is_shared(group.states)
            waits = streams & (verdicts.blocked.keys() | self._behind)
            if waits or (shares and verdicts.shared_blocked):
                self._behind |= streams
                verdicts.shared_blocked |= shares
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
                result.add_hint(self._pipeline)
            if isinstance(result, PenstockError):
                self._verdicts.block(load.stream, result, shared=is_shared(group.states))
                self._observer.load_failed(load.stream, result)
            else:
                committed.append((group.id, load))
        self._store.loaded(self._lease, committed, self._states.merge)
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
