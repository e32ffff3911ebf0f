"""A whole sync in memory, stopped wherever a test likes: the harness of the exhaustive crash tests.

Real: ``engine.sync.sync``, ``engine.deliver.load_plan``, ``engine.worker.sealer``, the lane's way
with events, the protocols' state rules. In-memory twins: store, log, tables, source (``scripted``)
and clock. Every durable write of a twin calls ``World.step``, which may raise :class:`Crash` (the
program is killed), :class:`LaneLost` (the lane's process is killed) or run a second program to its
end (a driver that was paused and lost its lease).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripted import LaneLost, SimHandle, SimPlanner, positions

from penstock.engine.deliver.delivery import (
    Delivery,
    FinishedCommits,
    TableDelivery,
)
from penstock.engine.deliver.load_plan import visible
from penstock.engine.deliver.session import SyncSession
from penstock.engine.log.kept_rejects import RejectsKeeper
from penstock.engine.log.memory import MemoryLog
from penstock.engine.log.repeated_rejects import EarlierRejects, RepeatedRejects
from penstock.engine.specs.feeder import PushResult
from penstock.engine.specs.lane import LaneResult
from penstock.engine.specs.plan import LaneStart, PlannedStream, SyncOutcome, SyncPlan
from penstock.engine.sync.ports import DiscoveryDone
from penstock.engine.sync.sync import SyncRun
from penstock.errors import DestinationError, PenstockError, SourceError, StateError
from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.rejected import MaxRejected
from penstock.model.segments import Load, Segment, SegmentId
from penstock.model.state import StateType, StoredState
from penstock.protocols.airbyte.package import PACKAGE
from penstock.protocols.contract import StateRole
from penstock.protocols.singer.package import PACKAGE as SINGER
from penstock.store.contract import Holder
from penstock.store.memory import MemoryStore
from penstock.tables.contract import LastLoad, LoadResult, already_committed


class Crash(BaseException):
    """The program is gone: nothing after the step that raised it happens."""


@dataclass
class Fault:
    """At the ``at``-th step (from 1) do ``kind``: crash, lost (the lane, where the step is a
    lane's; else crash), takeover (another driver runs to its end in the middle of ours)."""

    at: int
    kind: str = "crash"


@dataclass
class Scenario:
    """``records``: what the source holds, per stream: (id, version) in order, and what it says
    between them (``scripted``); ``every``: a state after so many records; ``quantum``: events a
    lane handles between two looks of the driver. ``first``: the columns that discovery tells.
    ``dynamic``: schemas and names are kept in the store. ``shards``: of every stream; as many lanes
    as that. A refresh that the store has as pending is played. ``catalogs``: what the discoveries
    of the programs, one after the other, return beside the read (the last one of all later ones),
    after ``discovery_polls`` looks at it; None: it fails each time. Empty: there is no discovery
    beside."""

    mode: DestinationSyncMode
    sync_mode: SyncMode = SyncMode.incremental
    state: StateType = StateType.stream
    lanes: int = 1
    shards: int = 1
    records: dict[str, list[Any]] = field(default_factory=dict)
    every: int = 2
    quantum: int = 1
    resumable: bool = False
    statuses: bool = True
    last_state: bool = True
    load_while_reading: bool = True
    fail_after: int | None = None  # the source exits 1 after so many records of its lane
    transient: tuple[int, ...] = ()  # after how many records each attempt fails, and may pass
    transient_of: str | None = None  # the stream that it names; None: none
    open: bool = False
    dynamic: bool = False
    first: tuple[str, ...] = ("id", "version")
    unwanted: frozenset[str] = frozenset()
    held: bool = False
    renumber: bool = False
    no_states: bool = False
    position: bool = False  # the shared state has one beside what it says of the streams
    seal_bytes: int = 1
    max_rejected: MaxRejected = field(default_factory=MaxRejected)
    catalogs: tuple[str | None, ...] = ()
    discovery_polls: int = 3

    @property
    def states(self) -> StateRole:
        return SINGER.state if self.state is StateType.legacy else PACKAGE.state


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
        self.sealed: dict[SegmentId, Segment] = {}
        self.sent: set[SegmentId] = set()  # engine.deliver.unacked's file
        self.holder = ""  # the token of the lease that was given last
        self.loads: dict[tuple[str, int], Load] = {}
        self.commits = 0
        self.refuse_at = 0  # of the commit with this number, the first load is refused
        self.programs = 0
        self.kept = "old"  # the catalog of the last discovery
        self.given: dict[int, str] = {}  # the catalog that an epoch's source was given
        self.found: set[str] = set()  # the catalogs that discoveries returned
        self.reads_failed = 0

    def arm(self, fault: Fault | None) -> None:
        self.steps, self.fault = 0, fault

    def step(self, name: str) -> None:
        self.steps += 1
        self.names.append(name)
        if name == "log.seal.after":
            new = visible(self.log.manifests[-1], self.store.closed_epochs("sim"))
            self.sealed |= {s.id: s for s in new}
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
    """Rows by arrival, and what it remembers of each key, as every format does."""

    rows: list[tuple[int, int, int]] = field(default_factory=list)  # id, version, seq
    applied: dict[str, LastLoad] = field(default_factory=dict)


class SimLoader:
    def __init__(self, world: World) -> None:
        self._world = world

    def begin(self, loads: Sequence[Load]) -> FinishedCommits:
        return FinishedCommits(self._loads(loads))

    def planned_on(self, stream: StreamId) -> None:
        return None

    def _loads(self, loads: Sequence[Load]) -> list[LoadResult | PenstockError]:
        self._world.commits += 1
        if self._world.refuse_at == self._world.commits:
            refused: list[LoadResult | PenstockError] = [DestinationError("refused")]
            return [*refused, *self._commit(loads[1:])]
        return self._commit(loads)

    def _commit(self, loads: Sequence[Load]) -> list[LoadResult | PenstockError]:
        outcomes: list[LoadResult | PenstockError] = []
        for load in loads:
            try:
                outcomes.append(self._one(load) if load.reaches_table else LoadResult(0))
            except PenstockError as e:
                outcomes.append(e)
        return outcomes

    def _one(self, load: Load) -> LoadResult:
        world = self._world
        parts = [world.log.parts.get(p.path, ()) for p in load.parts]
        rows = [r for part in parts for r in part]
        made = {part.schema for part in parts if part}
        assert max(made, default=0) <= load.schema_version, (load, made)
        assert load.replaces or made <= {load.schema_version}, (load, made)
        known_as = world.store.schemas("sim", load.stream)
        if load.schema_version in known_as and made <= known_as.keys():  # L9
            whole, parts_ = known_as[load.schema_version], [known_as[v] for v in made]
            assert all(whole.required <= p.required for p in parts_), (load, made)
            sent = whole.frame_types.items()
            assert all(sent <= p.frame_types.items() for p in parts_), (load, made)
        assert load.read == load.rows + load.rejected + load.filtered, load  # L8
        assert world.loads.setdefault((load.key, load.number), load) == load  # L3
        world.step("table.commit.before")
        table = world.tables.setdefault(load.stream, Table())
        known = already_committed(load, table.applied.get(load.key))
        if known is not None:
            return known
        table.applied[load.key] = LastLoad(load.number, load.token)
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
    """``engine.specs.observer.SyncObserver``: committed and read rows, for L8."""

    def __init__(self) -> None:
        self.committed: dict[StreamId, int] = {}
        self.notes: list[str] = []
        self.again: dict[StreamId, int] = {}
        self.pushes: list[PushResult] = []
        self.refusals: dict[StreamId, int] = {}
        self.rejected: dict[StreamId, int] = {}
        self.lanes: list[LaneStart] = []

    def fed(self, result: PushResult) -> None:
        self.pushes.append(result)

    def rejected_at_destination(self, rejected: Iterable[tuple[StreamId, int]]) -> None:
        for stream, rows in rejected:
            self.rejected[stream] = self.rejected.get(stream, 0) + rows

    def sent_again(self, stream: StreamId, rows: int) -> None:
        self.again[stream] = self.again.get(stream, 0) + rows

    def states(self, states: Sequence[StoredState]) -> None: ...

    def loaded(self, load: Load, result: LoadResult) -> None:
        self.committed[load.stream] = self.committed.get(load.stream, 0) + load.rows

    def load_failed(self, stream: StreamId, error: PenstockError) -> None: ...
    def refused(self, stream: StreamId, rejected: int) -> None:
        self.refusals[stream] = self.refusals.get(stream, 0) + rejected

    def lane_started(self, start: LaneStart) -> None:
        self.lanes.append(start)

    def lane_ended(self, start: LaneStart, result: LaneResult) -> None: ...
    def segments(self, segments: Sequence[Segment]) -> None: ...

    def stream_planned(self, stream: PlannedStream, *, new: bool) -> None: ...

    def load_seconds(self, seconds: float) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def plan_of(scenario: Scenario, planner: SimPlanner) -> SyncPlan:
    return SyncPlan(
        streams=planner.remember(),
        open=scenario.open,
        lanes=scenario.lanes,
        max_rejected=scenario.max_rejected,
        load_bytes=0 if scenario.load_while_reading else 1 << 60,
        load_seconds=0.0 if scenario.load_while_reading else 1e9,
        scan_seconds=0.0,
    )


MakeDelivery = Callable[["World", Scenario, SyncSession], Delivery]


def into_tables(world: World, scenario: Scenario, session: SyncSession) -> Delivery:
    del scenario
    return TableDelivery(session, SimLoader(world))


def run_once(
    world: World,
    scenario: Scenario,
    *,
    take_over: bool = False,
    delivery: MakeDelivery = into_tables,
    tally: Tally | None = None,
) -> SyncOutcome:
    """One program from start to end, unless a fault stops it. ``take_over``: its lease is given
    even though somebody holds it (the holder was silent for too long)."""
    holder = Holder(name="sim", pid=0, boot="", started_at="", run="r")
    over = world.store.lock("sim") if take_over else None
    lease = world.store.acquire("sim", holder, 100.0, over)
    world.holder = lease.token
    tally = tally or Tally()
    rejects = RejectsKeeper(Path(), None, tally.note)

    def synced(discovery: SimDiscovery | DiscoveryDone) -> SyncOutcome:
        none = EarlierRejects(Path(), (), {})
        repeated = RepeatedRejects(Path(), lambda: none)
        session = SyncSession(
            lease, world.store, world.log, scenario.states, rejects, repeated, tally
        )
        planner = SimPlanner(scenario, world.store, lease)
        sync = SyncRun(
            plan_of(scenario, planner),
            session,
            delivery(world, scenario, session),
            _Runner(world, scenario, planner, discovery.given),
            planner,
            SimTime(world),
            discovery,
        )
        return sync.run()

    number, world.programs = world.programs, world.programs + 1
    if scenario.catalogs:
        catalog = scenario.catalogs[min(number, len(scenario.catalogs) - 1)]
        outcome = synced(SimDiscovery(world, catalog, scenario.discovery_polls))
        if outcome.changed:
            assert catalog is not None
            outcome = synced(DiscoveryDone(catalog))
    else:
        outcome = synced(DiscoveryDone())
    assert not outcome.changed
    world.store.release(lease)
    return outcome


class SimDiscovery:
    """``engine.plan.catalog_check.CatalogCheck``: a discovery that takes a while."""

    beside, first = True, False

    def __init__(self, world: World, catalog: str | None, polls: int) -> None:
        self._world, self._catalog, self._polls, self.given = world, catalog, polls, world.kept

    def poll(self, *, reading: bool) -> str | None:
        self._polls -= 1
        if self._polls > 0 or (self._catalog is None and reading):
            return None
        if self._catalog is None:
            raise SourceError("no discovery", code="source.exited")
        self._world.kept = self._catalog
        self._world.found.add(self._catalog)
        return self._catalog

    def read_failed(self) -> None:
        self._world.reads_failed += 1


class _Runner:
    def __init__(self, world: World, scenario: Scenario, planner: SimPlanner, given: str) -> None:
        self._world, self._scenario, self._planner = world, scenario, planner
        self._given = given

    def start(self, start: LaneStart) -> SimHandle:
        self._world.given[start.epoch] = self._given
        return SimHandle(self._world, self._scenario, self._planner, start)


def saved_positions(world: World) -> dict[str, int]:
    """How far the saved states claim to be, per stream."""
    return positions([s.blob for s in world.store.states("sim")])


def ids(world: World, stream: str) -> list[tuple[int, int]]:
    table = world.tables.get(StreamId(None, stream), Table())
    return sorted((r[0], r[1]) for r in table.rows)


__all__ = [
    "Crash",
    "Fault",
    "LaneLost",
    "Scenario",
    "StateError",
    "StoredState",
    "World",
    "run_once",
]
