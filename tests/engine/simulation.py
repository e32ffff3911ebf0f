"""A whole sync in memory, stopped wherever a test likes: the harness of the exhaustive crash tests.

Real: ``engine.sync``, ``engine.pending``, ``engine.sealer``, the protocol's state rules. In-memory
twins: store, log, tables, source and clock. Every durable write of a twin calls ``World.step``,
which may raise :class:`Crash` (the program is killed), :class:`LaneLost` (the lane's process is
killed) or run a second program to its end (a driver that was paused and lost its lease).
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.engine.delivery import Committed, Gate, TableDelivery, Verdicts
from penstock.engine.epochs import LaneStart, SyncStream
from penstock.engine.job import LaneEnd, LaneResult
from penstock.engine.memory import MemoryLog
from penstock.engine.sealer import Bounds, LaneStream, Sealer
from penstock.engine.sync import Outcome, Sync, SyncPlan
from penstock.errors import DestinationError, LogError, PenstockError, StateError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import Batch, Event, State, Status, StreamStatus
from penstock.model.segments import Load, Segment, Shape
from penstock.model.state import SavedState, StateScope, StateType
from penstock.protocols.airbyte import PACKAGE
from penstock.state.contract import Holder
from penstock.state.memory import MemoryStore
from penstock.tables.contract import LoadResult


class Crash(BaseException):
    """The program is gone: nothing after the step that raised it happens."""


class LaneLost(BaseException):
    """The lane's process is gone."""


@dataclass
class Fault:
    """At the ``at``-th step (from 1) do ``kind``: crash, lost (the lane, where the step is a
    lane's; else crash), takeover (another driver runs to its end in the middle of ours)."""

    at: int
    kind: str = "crash"


@dataclass
class Scenario:
    """``records``: what the source holds, per stream: (id, version) in order; ``every``: a state
    after so many records; ``quantum``: events a lane handles between two looks of the driver."""

    mode: DestinationSyncMode
    sync_mode: SyncMode = SyncMode.incremental
    state: StateType = StateType.stream
    lanes: int = 1
    records: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    every: int = 2
    quantum: int = 1
    resumable: bool = False
    statuses: bool = True
    last_state: bool = True
    load_while_reading: bool = True
    fail_after: int | None = None  # the source exits 1 after so many records of its lane


class World:
    """What outlives a program: store, log, tables. Programs come and go."""

    def __init__(self) -> None:
        self.steps = 0
        self.fault: Fault | None = None
        self.on_takeover: Callable[[], None] | None = None
        self.in_lane = False
        self.clock = 0.0
        self.store = MemoryStore(on_step=self.step, clock=lambda: self.clock)
        self.log = MemoryLog(on_step=self.step)
        self.tables: dict[StreamId, Table] = {}
        self.names: list[str] = []
        self.commits = 0
        self.refuse_at = 0  # of the commit with this number, the first load is refused

    def arm(self, fault: Fault | None) -> None:
        self.steps, self.fault = 0, fault

    def step(self, name: str) -> None:
        self.steps += 1
        self.names.append(name)
        fault = self.fault
        if fault is None or self.steps != fault.at:
            return
        self.fault = None
        if fault.kind == "takeover" and self.on_takeover is not None:
            lane, self.in_lane = self.in_lane, False
            self.on_takeover()
            self.in_lane = lane
        elif fault.kind == "lost" and self.in_lane:
            raise LaneLost(name)
        else:
            raise Crash(name)


@dataclass
class Table:
    """Rows by arrival, with Delta's way of remembering: of each key the highest number; a lower or
    equal one is skipped without a word."""

    rows: list[tuple[int, int, int]] = field(default_factory=list)  # id, version, seq
    applied: dict[str, int] = field(default_factory=dict)


class SimLoader:
    def __init__(self, world: World) -> None:
        self._world = world

    def begin(self, loads: Sequence[Load]) -> Committed:
        return Committed(self._loads(loads))

    def _loads(self, loads: Sequence[Load]) -> list[LoadResult | PenstockError]:
        self._world.commits += 1
        if self._world.refuse_at == self._world.commits:
            refused: list[LoadResult | PenstockError] = [DestinationError("refused")]
            return [*refused, *self._commit(loads[1:])]
        return self._commit(loads)

    def _commit(self, loads: Sequence[Load]) -> list[LoadResult | PenstockError]:
        return [self._one(load) for load in loads]

    def _one(self, load: Load) -> LoadResult:
        world = self._world
        rows = [r for p in load.parts for r in world.log.parts.get(p.path, ())]
        world.step("table.commit.before")
        table = world.tables.setdefault(load.stream, Table())
        if table.applied.get(load.key, 0) >= load.number:
            return LoadResult(0, repeated=True)
        table.applied[load.key] = load.number
        kept = [] if load.replaces else table.rows
        if load.mode is DestinationSyncMode.append_dedup:
            best: dict[int, tuple[int, int, int]] = {r[0]: r for r in kept}
            for row in rows:
                old = best.get(row[0])
                if old is None or (row[1], row[2]) >= (old[1], old[2]):
                    best[row[0]] = row
            table.rows = list(best.values())
        else:
            table.rows = [*kept, *rows]
        world.step("table.commit.after")
        return LoadResult(len(rows))

    def keep_rejects(self, segment: Segment) -> None:
        del segment


@dataclass
class SimDecoded:
    rows: tuple[tuple[int, int, int], ...]
    rejects: tuple[tuple[int, str, str | None], ...] = ()

    @property
    def count(self) -> int:
        return len(self.rows)


def source_events(scenario: Scenario, start: LaneStart) -> Iterator[Event | int]:
    """What a source given these states says; an int at the end is its exit code. Its cursor is the
    position in the stream; streams take turns, record by record."""
    cursors = _cursors(scenario, start)
    streams = [s.id for s in start.streams]
    left = {s: scenario.records[s.name][cursors.get(s, 0) :] for s in streams}
    at = {s: cursors.get(s, 0) for s in streams}
    since = dict.fromkeys(streams, 0)
    said = 0
    total = dict.fromkeys(streams, 0)
    while any(left.values()):
        for stream in streams:
            if not left[stream]:
                continue
            if scenario.fail_after is not None and said >= scenario.fail_after:
                yield 1
                return
            record = left[stream].pop(0)
            body = json.dumps(record).encode()
            said += 1
            total[stream] += 1
            at[stream] += 1
            since[stream] += 1
            yield Batch(stream, [body], [0], {}, len(body))
            ended = not left[stream]
            if since[stream] >= scenario.every or (ended and scenario.last_state):
                since[stream] = 0
                yield _state(scenario, stream, at)
            if ended and scenario.statuses:
                yield StreamStatus(stream, Status.complete)
    for stream in streams:
        if scenario.statuses and not total[stream]:
            yield _state(scenario, stream, at)
            yield StreamStatus(stream, Status.complete)
    yield 0


def _cursors(scenario: Scenario, start: LaneStart) -> dict[StreamId, int]:
    """Full refreshes go on only where they can resume."""
    given: dict[StreamId, int] = {}
    for saved in start.states:
        message = json.loads(saved.blob)
        if message["type"] == "STREAM":
            states = [message["stream"]]
        else:
            states = message["global"]["stream_states"]
        for one in states:
            if one.get("stream_state"):
                name = one["stream_descriptor"]["name"]
                given[StreamId(None, name)] = one["stream_state"]["at"]
    if scenario.sync_mode is SyncMode.full_refresh and not scenario.resumable:
        return {}
    return given


def _state(scenario: Scenario, stream: StreamId, at: dict[StreamId, int]) -> State:
    def one(s: StreamId) -> dict[str, Any]:
        return {"stream_descriptor": {"name": s.name}, "stream_state": {"at": at[s]}}

    if scenario.state is StateType.stream:
        message = {"type": "STREAM", "stream": one(stream)}
        return State(StateScope(StateType.stream, stream), json.dumps(message))
    message = {"type": "GLOBAL", "global": {"shared_state": {}, "stream_states": [*map(one, at)]}}
    return State(StateScope(StateType.global_), json.dumps(message))


class SimHandle:
    """A lane that advances ``quantum`` events at each poll."""

    def __init__(self, world: World, scenario: Scenario, start: LaneStart) -> None:
        self._world, self._scenario, self._start = world, scenario, start
        self._result: LaneResult | None = None
        self._steps = self._work()

    def poll(self) -> LaneResult | None:
        if self._result is not None:
            return self._result
        self._world.in_lane = True
        try:
            for _ in range(self._scenario.quantum):
                self._result = next(self._steps)
                if self._result is not None:
                    break
        except LaneLost:
            self._result = LaneResult(end=LaneEnd.lost)
        except LogError as e:  # another driver dropped the epoch under our feet
            self._result = LaneResult(end=LaneEnd.lost, errors=[e.as_dict()])
        finally:
            self._world.in_lane = False
        return self._result

    def new_config(self) -> None:
        return None

    def ask(self) -> None:
        return None

    def answer(self, ask: Any, answer: Any) -> None:
        raise AssertionError("nobody asked")

    def cancel(self) -> None:
        return None

    def _work(self) -> Iterator[LaneResult | None]:
        start = self._start
        self._world.log.claim(start.epoch, "sim")
        generations = dict(start.generations)
        sealer = Sealer(
            self._world.log,
            epoch=start.epoch,
            lane=start.lane,
            streams=[
                LaneStream(
                    stream=s.id,
                    shape=s.shape,
                    schema_version=s.schema_version,
                    generation=generations[s.id],
                    fills_generation=s.configured.fills_generation,
                )
                for s in start.streams
            ],
            decode=lambda stream, bodies, seq, times, changes: SimDecoded(
                tuple((*json.loads(b), (start.epoch << 40) + seq + i) for i, b in enumerate(bodies))
            ),
            clock=lambda: 0.0,
            bounds=Bounds(seal_bytes=1, seal_seconds=1e9, part_bytes=40),
        )
        read: dict[StreamId, int] = {s.id: 0 for s in start.streams}
        for event in source_events(self._scenario, start):
            match event:
                case int():
                    complete = sealer.finish(clean=event == 0)
                    yield LaneResult(
                        end=LaneEnd.finished if event == 0 else LaneEnd.failed,
                        complete=sorted(s for s, c in complete.items() if c),
                        read=sorted(read.items()),
                    )
                case Batch():
                    read[event.stream] += len(event.bodies)
                    sealer.batch(event)
                case State():
                    sealer.state(event)
                case StreamStatus():
                    sealer.status(event)
                case _:
                    raise AssertionError(event)
            yield None


class SimTime:
    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        self._world.clock += 0.001
        return self._world.clock

    def sleep(self, seconds: float) -> None:
        del seconds

    def check(self) -> None:
        return None


class Tally:
    """``engine.sync.Observer``: committed and read rows, for L8."""

    def __init__(self) -> None:
        self.committed: dict[StreamId, int] = {}
        self.notes: list[str] = []

    def states(self, states: Sequence[SavedState]) -> None: ...

    def loaded(self, load: Load, result: LoadResult) -> None:
        self.committed[load.stream] = self.committed.get(load.stream, 0) + load.rows

    def load_failed(self, stream: StreamId, error: PenstockError) -> None: ...
    def lane_started(self, start: LaneStart) -> None: ...
    def lane_ended(self, start: LaneStart, result: LaneResult) -> None: ...
    def segments(self, segments: Sequence[Segment]) -> None: ...

    def stream_planned(self, stream: StreamId) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def plan_of(scenario: Scenario) -> SyncPlan:
    key = (("id",),) if scenario.mode is DestinationSyncMode.append_dedup else ()
    streams = tuple(
        SyncStream(
            configured=ConfiguredStream(
                stream=Stream(
                    id=StreamId(None, name), json_schema={}, is_resumable=scenario.resumable
                ),
                sync_mode=scenario.sync_mode,
                destination_sync_mode=scenario.mode,
                primary_key=key,
            ),
            shape=Shape(mode=scenario.mode, primary_key=key, cursor=("version",) if key else ()),
            schema_version=1,
            lane=index % scenario.lanes,
        )
        for index, name in enumerate(scenario.records)
    )
    seconds = 0.0 if scenario.load_while_reading else 1e9
    return SyncPlan(
        pipeline="sim",
        streams=streams,
        lanes=scenario.lanes,
        load_bytes=0 if scenario.load_while_reading else 1 << 60,
        load_seconds=seconds,
        scan_seconds=0.0,
    )


def run_once(world: World, scenario: Scenario, *, take_over: bool = False) -> Outcome:
    """One program from start to end, unless a fault stops it. ``take_over``: its lease is given
    even though somebody holds it (the holder was silent for too long)."""
    if take_over:
        world.clock += 10_000.0
    holder = Holder(name="sim", pid=0, boot="", started_at="", run="r")
    lease = world.store.acquire("sim", holder, ttl=100.0)
    tally, verdicts, loader = Tally(), Verdicts(), SimLoader(world)
    gate = Gate("sim", world.log, world.store, PACKAGE.state, tally, verdicts)
    sync = Sync(
        plan_of(scenario),
        lease=lease,
        store=world.store,
        log=world.log,
        delivery=TableDelivery(
            "sim",
            lease=lease,
            store=world.store,
            loader=loader,
            gate=gate,
            states=PACKAGE.state,
            observer=tally,
            verdicts=verdicts,
        ),
        keep_rejects=loader.keep_rejects,
        runner=_Runner(world, scenario),
        planner=_NoPlanner(),
        states=PACKAGE.state,
        observer=tally,
        time=SimTime(world),
        verdicts=verdicts,
        save_config=lambda new: None,
    )
    outcome = sync.run()
    world.store.release(lease)
    return outcome


class _NoPlanner:
    def version(self, stream: StreamId, version: int) -> tuple[int, bool]:
        raise AssertionError("nobody asked")

    def plan(self, ask: Any, lane: int, *, filling: bool) -> SyncStream:
        raise AssertionError("nobody asked")


class _Runner:
    def __init__(self, world: World, scenario: Scenario) -> None:
        self._world, self._scenario = world, scenario

    def start(self, start: LaneStart) -> SimHandle:
        return SimHandle(self._world, self._scenario, start)


def saved_positions(world: World) -> dict[str, int]:
    """How far the saved states claim to be, per stream."""
    found: dict[str, int] = {}
    for saved in world.store.states("sim"):
        message = json.loads(saved.blob)
        parts = (
            [message["stream"]]
            if message["type"] == "STREAM"
            else message["global"]["stream_states"]
        )
        for one in parts:
            if one.get("stream_state"):
                found[one["stream_descriptor"]["name"]] = one["stream_state"]["at"]
    return found


def ids(world: World, stream: str) -> list[tuple[int, int]]:
    table = world.tables.get(StreamId(None, stream), Table())
    return sorted((r[0], r[1]) for r in table.rows)


__all__ = ["Crash", "Fault", "SavedState", "Scenario", "StateError", "World", "run_once"]
