"""What a transform keeps for itself is durable with the rows it is of, never ahead of them (L1),
whatever the scope of the source's states; and gone where they are given up."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import scripted
import simulation
from playing import playing
from scripted import SimPlanner
from simulation import Crash, Fault, Scenario, World, ids, run_once
from test_connector_stage import A, B, component, done, job_of, records, state
from test_crashes import FEW_RECORDS

from penstock.engine.deliver.load_plan import covered, decide
from penstock.engine.log.memory import MemoryLog
from penstock.engine.specs.lane import LaneBounds, StreamJob
from penstock.engine.specs.plan import LaneStart
from penstock.engine.worker.row_decoding import StreamDecoders
from penstock.engine.worker.sealer import Sealer
from penstock.engine.worker.transforms.stages import Transforming
from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.events import Batch, ConnectorExited, Event, State, StreamStatus, Tick
from penstock.model.segments import ConsumedSlice, Segment
from penstock.model.state import StateType
from penstock.protocols.transforming import (
    Given,
    TransformedRows,
    TransformProgress,
    TransformRequest,
)
from penstock.protocols.writing import END
from penstock.store.contract import Store
from penstock.store.keys import KeyAddress, KeyPort, OpenKeys, covers, lane_task
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.store.open import open_store
from penstock.store.task_keys import keys_url, open_keys

pytestmark = pytest.mark.dear


class Counting:
    """A transform that keeps how many rows of a stream it has seen, and says so after each
    table. ``marks`` False: only at the end. ``lag``: seconds before each table."""

    def __init__(self, *, marks: bool = True, lag: dict[str, float] | None = None) -> None:
        self._marks, self._lag = marks, lag or {}

    def apply(
        self, request: TransformRequest, feed: Iterator[Any], keys: OpenKeys
    ) -> Iterator[Given]:
        port = keys()
        port.begin(request.scope)
        place = request.config["place"]
        key = seen(request.stream.id, place)
        for number, table in enumerate(feed, 1):
            time.sleep(self._lag.get(place, 0))
            port.put(key, str(int(port.get(key) or 0) + table.num_rows))
            yield TransformedRows(table, table.nbytes)
            if self._marks:
                yield TransformProgress(number, keys=port.checkpoint())
        yield TransformProgress(END, keys=port.checkpoint())


def seen(stream: StreamId, place: str = "transform:0") -> KeyAddress:
    return KeyAddress("stream", stream.key, place)


class Shop:
    """A lane, its log and its store, without the driver between them."""

    def __init__(self, store: Store, opener: Callable[[str, str], KeyPort]) -> None:
        self.store, self.opener = store, opener
        self.lease = store.acquire("shop", this_holder("r"), 600)
        self.log = MemoryLog()
        self.transform = Counting()

    def read(
        self,
        events: Sequence[Event],
        *,
        fills: Sequence[StreamId] = (),
        stages: int = 1,
        patient: bool = True,
    ) -> list[Segment]:
        """What an epoch seals of this. ``patient``: the source waits until a state is through."""
        self.store.begin_keys(self.lease, lane_task(1))
        chain = tuple(component(n) for n in range(stages))
        chain = tuple(msgspec.structs.replace(t, config={"place": t.place}) for t in chain)
        job = job_of(chain)
        filling = {"fills_generation": True, "generation": 1}
        its: list[StreamJob] = []
        for each in job.streams:
            more = filling if each.configured.id in fills else {}
            lane = msgspec.structs.replace(each.lane, **more)
            its.append(msgspec.structs.replace(each, lane=lane))
        job = msgspec.structs.replace(job, streams=tuple(its))
        streams = StreamDecoders(job)
        sealer = Sealer(
            self.log,
            epoch=1,
            lane=0,
            streams=[s.lane for s in job.streams],
            decode=streams.decode,
            clock=lambda: 0.0,
            bounds=LaneBounds(seal_seconds=0),
        )
        opener = self.opener
        keys = partial(opener, "shop", lane_task(1))
        through = Transforming(job, streams, playing(self.transform.apply, keys))
        clean, passed = False, 0

        def source() -> Generator[Event]:
            states = 0
            for event in events:
                until = time.monotonic() + 10
                while patient and passed < states and time.monotonic() < until:
                    time.sleep(0.01)
                    yield Tick()
                states += isinstance(event, State)
                yield event

        for event in through.events(source()):
            match event:
                case Batch():
                    sealer.batch(event)
                case State():
                    passed += 1
                    sealer.state(event)
                case StreamStatus():
                    sealer.status(event)
                case ConnectorExited():
                    clean = event.code == 0
                case _:
                    pass
        sealer.finish(clean=clean)
        self.store.end_keys(self.lease, covered(self.log.segments()), [lane_task(1)])
        return self.log.segments()

    def commit(self, segments: Sequence[Segment]) -> None:
        pending = decide(segments, self.consumed())
        self.store.settle(self.lease, pending.ready, lambda old, new: [*new])

    def consumed(self) -> set[ConsumedSlice]:
        return self.store.consumed("shop", {1})

    def kept(self, place: str = "transform:0") -> dict[str, int]:
        """The durable counts."""
        found = self.store.connector_keys("shop")
        values = {s.name: found.get(seen(s, place)) for s in (A, B)}
        return {name: int(value) for name, value in values.items() if value is not None}

    def each_commit(self, segments: Sequence[Segment]) -> Iterator[dict[str, int]]:
        """Segment after segment, the rows that are committed."""
        rows: dict[str, int] = {}
        for number, segment in enumerate(segments, 1):
            self.commit(segments[:number])
            for part in (s for s in segment.slices if s.rows):
                rows[part.stream.name] = rows.get(part.stream.name, 0) + part.rows
            yield rows


@pytest.fixture(params=["memory", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    if request.param == "memory":
        twin = MemoryStore()
        yield Shop(twin, twin.open_keys)
        return
    place = tmp_path / "s.db"
    url = keys_url(place)
    store = open_store(str(place))
    yield Shop(store, lambda pipeline, task: open_keys(url, pipeline, task))
    store.close()


def shared(blob: str) -> State:
    return state(blob, None)


@pytest.mark.parametrize("end", [0, 1])
def test_l1_keys_are_durable_with_the_shared_state_that_covers_their_rows(
    shop: Shop, end: int
) -> None:
    events: list[Event] = [
        records(1, 3), records(1, 2, B), shared("s1"), records(4, 5), shared("s2"),
        records(6, 6), ConnectorExited(end),
    ]  # fmt: skip
    told: list[tuple[str | None, dict[str, int]]] = []
    segments = shop.read(events)
    for segment, rows in zip(segments, shop.each_commit(segments), strict=True):
        assert shop.kept() == rows
        told.append((segment.state, dict(rows)))
    assert told[:2] == [("s1", {"a": 3, "b": 2}), ("s2", {"a": 5, "b": 2})]
    assert told[2:] == ([] if end else [(None, {"a": 6, "b": 2})]), "rows that are dropped"
    shop.store.end_keys(shop.lease)
    assert shop.opener("shop", "x").get(seen(A)) == str(told[-1][1]["a"])


@pytest.mark.parametrize("marks", [True, False])
def test_l1_keys_of_the_last_moment_come_with_the_end(shop: Shop, marks: bool) -> None:
    """A Singer source says of no stream that it is complete, and may tell no state at all."""
    shop.transform = Counting(marks=marks)
    segments = shop.read([records(1, 3), records(1, 2, B), ConnectorExited(0)])
    shop.commit(segments)
    assert shop.kept() == {"a": 3, "b": 2}
    assert all(s.exact is False for s in segments if s.slices)


def test_l6_keys_of_a_generation_come_with_it_though_the_state_is_shared(shop: Shop) -> None:
    segments = shop.read(
        [records(1, 3), records(1, 2, B), shared("s1"), records(4, 5), done(A), ConnectorExited(1)],
        fills=[A],
    )
    shop.commit(segments[:1])
    assert shop.kept() == {"b": 2}
    shop.commit(segments)
    assert shop.kept() == {"a": 5, "b": 2}


def test_l6_keys_of_a_generation_that_is_given_up_go_with_it(shop: Shop) -> None:
    segments = shop.read(
        [records(1, 3), records(1, 2, B), shared("s1"), records(4, 5), ConnectorExited(1)],
        fills=[A],
    )
    shop.commit(segments)
    reader = shop.opener("shop", "x")
    assert shop.kept() == {"b": 2} and reader.get(seen(A)) == "3", "what waits may go on"
    shop.store.abandon(shop.lease, [ConsumedSlice(s.id, A) for s in segments])
    shop.store.end_keys(shop.lease, covered(segments, shop.consumed()), [lane_task(1)])
    assert reader.get(seen(A)) is None and shop.kept() == {"b": 2}


@pytest.mark.parametrize("slow", ["transform:0", "transform:1"])
@pytest.mark.parametrize("scope", [A, None])
def test_l1_transforms_in_a_row_are_covered_apart(
    shop: Shop, slow: str, scope: StreamId | None
) -> None:
    """One may be tables ahead of the other when that makes a checkpoint."""
    shop.transform = Counting(lag={slow: 0.02})
    events: list[Event] = []
    for n in range(1, 9):
        events += [records(n, n), state(f"s{n}", scope)]
    segments = shop.read([*events, ConnectorExited(0)], stages=2, patient=False)
    assert [s.state for s in segments][:8] == [f"s{n}" for n in range(1, 9)]
    for rows in shop.each_commit(segments):
        assert shop.kept("transform:0") == shop.kept("transform:1") == rows


# -- a whole sync, stopped at every step

WHOLE = {
    "append": Scenario(mode=DestinationSyncMode.append),
    "append-global": Scenario(mode=DestinationSyncMode.append, state=StateType.global_),
    "append-legacy": Scenario(mode=DestinationSyncMode.append, state=StateType.legacy),
    "refresh": Scenario(mode=DestinationSyncMode.overwrite, sync_mode=SyncMode.full_refresh),
    "refresh-global": Scenario(
        mode=DestinationSyncMode.overwrite,
        sync_mode=SyncMode.full_refresh,
        state=StateType.global_,
    ),
    "refresh-resumable": Scenario(
        mode=DestinationSyncMode.overwrite, sync_mode=SyncMode.full_refresh, resumable=True
    ),
    "refresh-resumable-global": Scenario(
        mode=DestinationSyncMode.overwrite,
        sync_mode=SyncMode.full_refresh,
        resumable=True,
        state=StateType.global_,
    ),
}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[[], World]:
    """Worlds whose sources have a transform behind them, which keeps how far it has come."""
    now: list[World] = []

    class Kept(scripted.SimSource):
        def __init__(self, scenario: Any, start: LaneStart, known: Any) -> None:
            super().__init__(scenario, start, known)
            self._ports: dict[StreamId, KeyPort] = {}
            for stream in self._streams:
                port = self._ports[stream] = now[-1].store.open_keys("sim", lane_task(start.epoch))
                port.begin(covers(stream.key, "transform:0"))
                begins, whole = self._at[stream], len(scenario.records[stream.name])
                met = int(port.get(seen(stream)) or 0)
                anew = scenario.sync_mode is SyncMode.full_refresh and not begins
                assert met in ({0, whole} if anew else {begins}), (stream, met, begins)

        def _said(self, stream: StreamId, item: Any) -> Iterator[Event]:
            yield from super()._said(stream, item)
            port = self._ports[stream]
            port.put(seen(stream), str(self._at[stream]))
            told = (("transform:0", port.checkpoint()),)
            yield Batch(stream, [], [], keys=told)

    def plan_of(scenario: Scenario, planner: SimPlanner) -> Any:
        store, lease = planner._store, planner._lease
        store.end_keys(lease, covered(now[-1].log.segments()))  # as ``engine.run`` does
        return msgspec.structs.replace(plain(scenario, planner), keyed=True)

    plain = simulation.plan_of
    monkeypatch.setattr(simulation, "plan_of", plan_of)
    monkeypatch.setattr(scripted, "SimSource", Kept)

    def made() -> World:
        now.append(World())
        return now[-1]

    return made


def durable(world: World) -> dict[str, int]:
    found = world.store.connector_keys("sim")
    return {n: int(found.get(seen(StreamId(None, n))) or 0) for n in FEW_RECORDS}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("kind", ["crash", "lost"])
def test_l1_keys_and_rows_agree_after_a_stop_at_any_step(
    world: Callable[[], World], name: str, kind: str
) -> None:
    scenario = replace(WHOLE[name], records=FEW_RECORDS)
    first = world()
    run_once(first, scenario)
    everything = {n: len(items) for n, items in FEW_RECORDS.items()}
    assert durable(first) == everything
    for at in range(1, first.steps + 1):
        again = world()
        again.arm(Fault(at, kind))
        with suppress(Crash):
            run_once(again, scenario)
        again.arm(None)
        for stream, count in durable(again).items():
            assert count <= len(ids(again, stream)), (at, stream)
        run_once(again, scenario, take_over=True)
        assert durable(again) == everything, at
        assert {n: len(ids(again, n)) for n in FEW_RECORDS} == everything, at
