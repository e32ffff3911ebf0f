"""One sync, from the lease to the last state: the driver's state machine.

Recover, read, drain (DESIGN.md §3 and §4). It decides what happens next and nothing else: segments
are judged by ``engine.pending``, lanes are run by a :class:`LaneRunner`, tables are written by a
:class:`Loader`, everything durable goes through the store and the log. Single-threaded; every
collaborator may be an in-memory twin.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.engine.failpoints import reach
from penstock.engine.job import LaneEnd, LaneResult
from penstock.engine.log import Log
from penstock.engine.mailbox import NewConfig
from penstock.engine.pending import Pending, Waiting, decide, visible
from penstock.errors import Cancelled, LogError, PenstockError
from penstock.model.catalog import ConfiguredStream, StreamId, SyncMode
from penstock.model.segments import Consumed, Group, Load, Segment, SegmentId, Shape
from penstock.model.state import SavedState, StateType
from penstock.protocols.contract import StateRole
from penstock.state.contract import GroupIntent, Lease, Reset, Store
from penstock.tables.contract import LoadResult


class SyncStream(msgspec.Struct, frozen=True, kw_only=True):
    """``held``: its loads wait for the end of the sync (a Parquet table that is rewritten)."""

    configured: ConfiguredStream
    shape: Shape
    schema_version: int
    lane: int = 0
    held: bool = False

    @property
    def id(self) -> StreamId:
        return self.configured.id


class SyncPlan(msgspec.Struct, frozen=True, kw_only=True):
    """``load_bytes``, ``load_seconds``: what must be pending before a load is made while sources
    still read, if one of Spark's ``slots`` (None: unknown) is free. ``max_epochs``: how often a
    lane that was lost with its worker is begun again."""

    pipeline: str
    streams: tuple[SyncStream, ...]
    lanes: int = 1
    max_epochs: int = 3
    slots: int | None = None
    load_bytes: int = 512 << 20
    load_seconds: float = 300.0
    poll_seconds: float = 0.2
    scan_seconds: float = 2.0


class LaneStart(msgspec.Struct, frozen=True, kw_only=True):
    lane: int
    epoch: int
    streams: tuple[SyncStream, ...]
    generations: tuple[tuple[StreamId, int], ...]
    states: tuple[SavedState, ...]


class LaneHandle(Protocol):
    def poll(self) -> LaneResult | None:
        """None while it runs."""
        ...

    def new_config(self) -> NewConfig | None:
        """A configuration that the connector changed and that was not given yet (CONTROL)."""
        ...

    def cancel(self) -> None: ...


class LaneRunner(Protocol):
    def start(self, start: LaneStart) -> LaneHandle: ...


class Loader(Protocol):
    def commit(self, loads: Sequence[Load]) -> list[LoadResult | PenstockError]:
        """Commit each load, whose parts are whole; at most one load per stream in a call."""
        ...

    def keep_rejects(self, segment: Segment) -> None:
        """Move a segment's rejects to where users query them. Idempotent."""
        ...


class Observer(Protocol):
    """Who is told; decides nothing."""

    def loaded(self, load: Load, result: LoadResult) -> None: ...

    def states(self, states: Sequence[SavedState]) -> None:
        """States whose loads are all committed."""
        ...

    def load_failed(self, stream: StreamId, error: PenstockError) -> None: ...

    def lane_started(self, start: LaneStart) -> None: ...

    def lane_ended(self, start: LaneStart, result: LaneResult) -> None: ...

    def segments(self, segments: Sequence[Segment]) -> None: ...

    def note(self, text: str) -> None: ...


class Time(Protocol):
    """The clock and the lease's keeper. ``check`` raises ``LeaseLost`` or ``Cancelled``."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def check(self) -> None: ...


class Outcome(msgspec.Struct, kw_only=True):
    """``complete``: streams that the source finished and that are committed whole."""

    complete: set[StreamId]
    failed: dict[StreamId, PenstockError]
    errors: list[PenstockError]
    cancelled: bool = False


class _Running(msgspec.Struct):
    start: LaneStart
    handle: LaneHandle


class Sync:
    def __init__(
        self,
        plan: SyncPlan,
        *,
        lease: Lease,
        store: Store,
        log: Log,
        loader: Loader,
        runner: LaneRunner,
        states: StateRole,
        observer: Observer,
        time: Time,
        save_config: Callable[[NewConfig], None],
    ) -> None:
        self._plan, self._lease, self._store, self._log = plan, lease, store, log
        self._loader, self._runner, self._states = loader, runner, states
        self._observer, self._time, self._save_config = observer, time, save_config
        self._streams = {s.id: s for s in plan.streams}
        self._held = frozenset(s.id for s in plan.streams if s.held)
        self._blocked: dict[StreamId, PenstockError] = {}
        self._shared_blocked = False
        self._complete: set[StreamId] = set()
        self._published: set[StreamId] = set()
        self._errors: list[PenstockError] = []
        self._waiting: Mapping[StreamId, tuple[Waiting, ...]] = {}
        self._cancelled = False

    def run(self) -> Outcome:
        """Raises only what stops everything: a lost lease, a store or a log that refuses."""
        self.recover()
        self._published.clear()  # of earlier syncs
        self._read()
        self._close_open_epochs()
        if not self._cancelled:
            self._drain(final=True)
            self._drop_old_epochs()
        complete = self._complete - set(self._blocked) - self._left_in_log()
        if self._shared_blocked:
            complete = {s for s in complete if self._streams[s].configured.fills_generation}
        return Outcome(
            complete=complete,
            failed=dict(self._blocked),
            errors=self._errors,
            cancelled=self._cancelled,
        )

    def _left_in_log(self) -> set[StreamId]:
        """Streams with sealed rows that are not committed: a cancelled run leaves them."""
        pending = self._decide(final=True)
        return {load.stream for g in pending.ready for load in g.loads} | set(pending.waiting)

    # -- recovery (L3, L5)

    def recover(self) -> None:
        """Repeat what was written down, then drain what was sealed, without asking the source."""
        self._close_open_epochs()
        groups = self._store.open_groups(self._plan.pipeline)
        self._tell(segment for g in groups for load in g.loads for segment in load.segments)
        self._commit([g for g in groups if self._is_whole(g)], again=True)
        self._drain(final=True)
        self._drop_old_epochs()

    def _close_open_epochs(self) -> None:
        """Fence every epoch that was ever given out at the last segment we see."""
        last = dict.fromkeys(self._store.open_epochs(self._plan.pipeline), 0)
        for segment in self._log.segments():
            if segment.id.epoch in last:
                last[segment.id.epoch] = max(last[segment.id.epoch], segment.id.seq)
        if last:
            self._store.close_epochs(self._lease, last)

    def _drop_old_epochs(self) -> None:
        """Epochs that are closed and hold nothing any more leave the disk, then the ledger."""
        used = {s.id.epoch for s in self._visible()}
        closed = self._store.closed_epochs(self._plan.pipeline)
        empty = [e for e in self._log.epochs() if e in closed and e not in used]
        if empty:
            self._log.drop_epochs(empty)
            self._store.forget(self._lease, empty)

    # -- loads

    def _visible(self) -> list[Segment]:
        closed = self._store.closed_epochs(self._plan.pipeline)
        return visible(self._log.segments(), closed)

    def _decide(self, *, final: bool) -> Pending:
        segments = self._visible()
        return decide(
            segments,
            self._store.consumed(self._plan.pipeline, {s.id.epoch for s in segments}),
            blocked=frozenset(self._blocked),
            held=frozenset[StreamId]() if final else self._held,
        )

    def _drain(self, *, final: bool) -> None:
        pending = self._decide(final=final)
        ready = [
            self._stripped(group)
            for group in pending.ready
            if self._is_whole(group) and not (self._shared_blocked and _is_shared(group.states))
        ]
        if ready:
            self._tell(segment for group in ready for segment, _ in group.consumes)
            groups = self._store.intend(self._lease, ready, self._states.merge)
            reach("after-intent")
            self._commit(groups)
            self._published |= pending.publishes - self._blocked.keys()
            pending = self._decide(final=final)
        self._waiting = pending.waiting
        written_down = self._written_down()
        spent = [s for s in pending.spent if s.id not in written_down]
        for segment in spent:
            self._loader.keep_rejects(segment)
        self._log.discard(spent)

    def _tell(self, taken: Iterable[SegmentId]) -> None:
        wanted = set(taken)
        if wanted:
            self._observer.segments([s for s in self._log.segments() if s.id in wanted])

    def _is_whole(self, group: Group | GroupIntent) -> bool:
        """Are its parts as they were sealed? A load is written down only if they are; a stream
        whose parts are not goes no further, nor does a state that it shares."""
        for load in group.loads:
            try:
                self._log.verify(load.parts)
            except LogError as e:
                e.stream = str(load.stream)
                self._blocked[load.stream] = e
                self._errors.append(e)
                self._observer.load_failed(load.stream, e)
        damaged = any(load.stream in self._blocked for load in group.loads)
        self._shared_blocked |= damaged and _is_shared(group.states)
        return not damaged

    def _written_down(self) -> set[SegmentId]:
        """Segments of loads that failed: the next run repeats them, so their parts must stay."""
        if not self._blocked:
            return set()
        groups = self._store.open_groups(self._plan.pipeline)
        return {segment for group in groups for load in group.loads for segment in load.segments}

    def _stripped(self, group: GroupIntent) -> GroupIntent:
        """A state that was sealed before some of its streams were reset says nothing of them."""
        if not _is_shared(group.states):
            return group
        floors = self._store.floors(self._plan.pipeline).items()
        gone = [s for s, epoch in floors if s is not None and group.epoch <= epoch]
        if not gone:
            return group
        states = tuple(self._states.without(group.states, gone))
        return msgspec.structs.replace(group, states=states)

    def _commit(self, groups: Sequence[Group], *, again: bool = False) -> None:
        """``again``: some of their loads may be committed already."""
        remaining = list(groups)
        while remaining:
            self._time.check()
            wave, remaining = self._wave(remaining)
            work = [(group, load) for group in wave for load in group.loads]
            if again:
                work = self._uncommitted(work)
            self._commit_loads(work)
            for group in wave:
                if not any(load.stream in self._blocked for load in group.loads):
                    self._observer.states(group.states)

    def _uncommitted(self, work: Sequence[tuple[Group, Load]]) -> list[tuple[Group, Load]]:
        done = {
            (group.id, *load)
            for group in {g.id: g for g, _ in work}.values()
            for load in self._store.committed_loads(self._plan.pipeline, group.id)
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
        for group in groups:
            streams = {load.stream for load in group.loads}
            is_shared = _is_shared(group.states)
            if streams & self._blocked.keys() or (is_shared and self._shared_blocked):
                self._shared_blocked |= is_shared
                continue
            if streams & taken or (is_shared and shared):
                later.append(group)
            else:
                wave.append(group)
            taken |= streams
            shared |= is_shared
        return wave, later

    def _commit_loads(self, work: Sequence[tuple[Group, Load]]) -> None:
        if not work:
            return
        results = self._loader.commit([load for _, load in work])
        reach("after-commit")
        committed: list[tuple[int, Load]] = []
        for (group, load), result in zip(work, results, strict=True):
            if isinstance(result, PenstockError):
                self._blocked[load.stream] = result
                self._shared_blocked |= _is_shared(group.states)
                self._errors.append(result)
                self._observer.load_failed(load.stream, result)
            else:
                committed.append((group.id, load))
        self._store.loaded(self._lease, committed, self._states.merge)
        reach("after-ledger")
        for (_, load), result in zip(work, results, strict=True):
            if isinstance(result, LoadResult):
                self._observer.loaded(load, result)

    # -- reading

    def _read(self) -> None:
        wanted = [s for s in self._plan.streams if s.id not in self._blocked]
        if self._shared_blocked or (self._plan.streams and not wanted):
            return
        starts = self._begin(wanted, range(self._plan.lanes))
        attempts = dict.fromkeys(starts, 1)
        running = {lane: self._start(start) for lane, start in starts.items()}
        loaded_at = scanned_at = self._time.now()
        while running:
            self._check(running)
            for lane, it in list(running.items()):
                self._take_config(it.handle)
                result = it.handle.poll()
                if result is None:
                    continue
                del running[lane]
                self._take_config(it.handle)
                self._ended(it.start, result)
                if self._may_begin_again(result, attempts[lane]):
                    attempts[lane] += 1
                    for start in self._begin(self._unfinished(it.start), [lane]).values():
                        running[lane] = self._start(start)
            now = self._time.now()
            if running and now - scanned_at >= self._plan.scan_seconds:
                scanned_at = now
                free = self._plan.slots is None or self._plan.slots > len(running)
                if free and self._due(now - loaded_at):
                    self._drain(final=False)
                    loaded_at = self._time.now()
            if running:
                self._time.sleep(self._plan.poll_seconds)

    def _check(self, running: Mapping[int, _Running]) -> None:
        if self._cancelled:
            return
        try:
            self._time.check()
        except Cancelled as e:
            self._cancelled = True
            self._errors.append(e)
            for it in running.values():
                it.handle.cancel()

    def _start(self, start: LaneStart) -> _Running:
        self._observer.lane_started(start)
        return _Running(start, self._runner.start(start))

    def _take_config(self, handle: LaneHandle) -> None:
        config = handle.new_config()
        if config is not None:
            self._save_config(config)

    def _due(self, seconds: float) -> bool:
        pending = self._decide(final=False)
        return bool(pending.ready) and (
            pending.raw_bytes >= self._plan.load_bytes or seconds >= self._plan.load_seconds
        )

    def _ended(self, start: LaneStart, result: LaneResult) -> None:
        self._observer.lane_ended(start, result)
        self._complete |= set(result.complete)
        if result.end is not LaneEnd.lost:
            self._errors += [PenstockError.from_dict(e) for e in result.errors]
            return
        self._close_open_epochs_of(start.epoch)
        self._drain(final=True)

    def _unfinished(self, start: LaneStart) -> list[SyncStream]:
        """What a lost lane still has to read: a published generation is not filled again."""
        done = {s.id for s in start.streams if s.id in self._published}
        self._complete |= done
        return [s for s in start.streams if s.id not in done and s.id not in self._blocked]

    def _close_open_epochs_of(self, epoch: int) -> None:
        seqs = [s.id.seq for s in self._log.segments() if s.id.epoch == epoch]
        self._store.close_epochs(self._lease, {epoch: max(seqs, default=0)})

    def _may_begin_again(self, result: LaneResult, attempts: int) -> bool:
        if result.end is not LaneEnd.lost:
            return False
        if self._cancelled or self._shared_blocked or attempts >= self._plan.max_epochs:
            self._errors += [PenstockError.from_dict(e) for e in result.errors]
            return False
        self._observer.note("a lane was lost with its process; its source was begun again")
        return True

    # -- epochs and generations (L4, L6)

    def _begin(self, streams: Sequence[SyncStream], lanes: Iterable[int]) -> dict[int, LaneStart]:
        """New epochs for these lanes: from the saved states, and from what a generation that goes
        on being filled has sealed."""
        resumed, anew = self._split(streams)
        restart = {s.id for s in anew if s.configured.sync_mode is SyncMode.full_refresh}
        restart |= self._abandon(s.id for s in anew)
        fresh = [s.id for s in anew if s.configured.fills_generation]
        current = self._store.generations(self._plan.pipeline)
        current.update(self._store.new_generation(self._lease, fresh) if fresh else {})
        on_top: list[SavedState] = []
        for stream, waiting in resumed.items():
            current[stream] = waiting[-1].slice.generation
            on_top += [w.state for w in waiting if w.state is not None][-1:]
        saved = self._states.without(self._store.states(self._plan.pipeline), sorted(restart))
        states = tuple(self._states.merge(saved, on_top))
        starts: dict[int, LaneStart] = {}
        for lane in lanes:
            mine = tuple(s for s in streams if s.lane == lane)
            if mine:
                starts[lane] = LaneStart(
                    lane=lane,
                    epoch=self._store.new_epoch(self._lease, lane),
                    streams=mine,
                    generations=tuple((s.id, current.get(s.id, 0)) for s in mine),
                    states=states,
                )
        return starts

    def _split(
        self, streams: Sequence[SyncStream]
    ) -> tuple[dict[StreamId, tuple[Waiting, ...]], list[SyncStream]]:
        """Streams whose unfinished generation goes on, and the others."""
        shared = _is_shared(self._store.states(self._plan.pipeline))
        floors = self._store.floors(self._plan.pipeline)
        resumed: dict[StreamId, tuple[Waiting, ...]] = {}
        anew: list[SyncStream] = []
        for stream in streams:
            waiting = self._waiting.get(stream.id, ())
            newest = max((w.slice.generation for w in waiting), default=0)
            its = tuple(w for w in waiting if w.slice.generation == newest)
            same = all(
                w.slice.shape.joins_like(stream.shape)
                and w.slice.schema_version == stream.schema_version
                for w in its
            )
            floor = max(floors.get(None, 0), floors.get(stream.id, 0))
            same &= all(w.segment.epoch > floor for w in its)
            known = shared or any(w.state is not None for w in its)
            if its and same and known and _resumes(stream.configured):
                resumed[stream.id] = its
            else:
                anew.append(stream)
        return resumed, anew

    def _abandon(self, streams: Iterable[StreamId]) -> set[StreamId]:
        """Give up unfinished generations of these streams, and of streams no longer synced."""
        gone = {s for s in streams if s in self._waiting}
        gone |= {s for s in self._waiting if s not in self._streams}
        items = [Consumed(w.segment, s) for s in gone for w in self._waiting[s]]
        if items:
            self._take_states_back(gone)
            self._store.abandon(self._lease, items)
            self._drain(final=True)
        return gone & self._streams.keys()

    def _take_states_back(self, gone: set[StreamId]) -> None:
        """A shared state may speak for rows that are given up: it must not, before they go. Where
        it cannot be told apart (LEGACY) and a stream relies on it, everything is read again."""
        saved = self._store.states(self._plan.pipeline)
        if not _is_shared(saved):
            return
        names = sorted(gone)
        left = self._states.without(saved, names)
        relies = any(
            s not in self._streams
            or self._streams[s].configured.sync_mode is not SyncMode.full_refresh
            for s in gone
        )
        if left == saved and relies and any(s.scope.type is StateType.legacy for s in saved):
            self._observer.note("the source's one state spoke for rows given up: all is read again")
            self._store.replace_states(self._lease, [])
            return
        strip = Reset(tuple(names), lambda states: self._states.without(states, names))
        self._store.replace_states(self._lease, left, strip)


def _is_shared(states: Iterable[SavedState]) -> bool:
    return any(s.scope.stream is None for s in states)


def _resumes(configured: ConfiguredStream) -> bool:
    return configured.fills_generation and configured.can_resume
