"""What the exhaustive crash tests do alike: stop programs at their steps, judge what is left."""

import os
import random
import zlib
from collections.abc import Callable, Iterator
from itertools import product

from scripted import rows_of
from simulation import Crash, Fault, Scenario, Tally, World, ids, run_once, saved_positions

from penstock.engine.deliver.load_plan import visible
from penstock.errors import PenstockError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import ConsumedSlice

Run = Callable[[World, Scenario, Tally], object]


def into_tables(world: World, scenario: Scenario, tally: Tally) -> object:
    return run_once(world, scenario, take_over=True, tally=tally)


def count_steps(scenario: Scenario, run: Run = into_tables) -> int:
    world = World()
    run(world, scenario, Tally())
    return world.steps


def stopped(world: World, scenario: Scenario, fault: Fault | None, run: Run = into_tables) -> Tally:
    """One program, with this fault. A driver that lost its lease says so, and stops."""
    tally = Tally()
    world.arm(fault)
    world.on_takeover = lambda: run(world, scenario, Tally())
    try:
        run(world, scenario, tally)
    except Crash:
        pass
    except PenstockError as e:
        assert e.code == "state.lease_lost", repr(e)
        assert fault is not None and fault.kind == "takeover"
    world.arm(None)
    return tally


def singles(steps: int, seed: object) -> range:
    """A tenth of the steps, of each ``seed`` others; all of them where
    ``PENSTOCK_TEST_EVERY_PAIR`` is set."""
    if os.environ.get("PENSTOCK_TEST_EVERY_PAIR"):
        return range(1, steps + 1)
    return range(1 + zlib.crc32(repr(seed).encode()) % 10, steps + 1, 10)


def pairs(steps: int, count: int, seed: object) -> Iterator[tuple[int, int]]:
    """``count`` of the pairs of steps, of each ``seed`` others; all of them where
    ``PENSTOCK_TEST_EVERY_PAIR`` is set."""
    every = list(product(range(1, steps + 1), repeat=2))
    if os.environ.get("PENSTOCK_TEST_EVERY_PAIR"):
        count = len(every)
    yield from random.Random(repr(seed)).sample(every, min(count, len(every)))


def in_log(world: World, stream: str, *, shown: bool = False) -> list[tuple[int, int]]:
    """Rows that are sealed, and neither loaded nor given up; or written down, and not loaded.
    ``shown``: only those written down to replace what the table has."""
    groups = world.store.open_groups("sim")
    left = [p.path for g in groups for load in g.loads for p in load.parts
            if load.stream == StreamId(None, stream) and (load.replaces or not shown)]  # fmt: skip
    found = [(r[0], r[1]) for path in left for r in world.log.parts.get(path, ())]
    if shown:
        return found
    segments = visible(world.log.segments(), world.store.closed_epochs("sim"))
    taken = world.store.consumed("sim", {s.id.epoch for s in segments})
    for segment in segments:
        for part in segment.slices:
            mine = part.stream == StreamId(None, stream)
            if mine and ConsumedSlice(segment.id, part.stream) not in taken:
                paths = [p.path for p in part.parts]
                found += [(r[0], r[1]) for p in paths for r in world.log.parts[p]]
    return found


def check_never_ahead(world: World, scenario: Scenario, schedule: object) -> None:
    """L1: what a saved state claims is in the table."""
    dedup = scenario.mode is DestinationSyncMode.append_dedup
    for stream, at in saved_positions(world).items():
        have = ids(world, stream)
        for key, version in rows_of(scenario.records.get(stream, [])[:at]):
            there = [v for k, v in have if k == key]
            assert version in there or (dedup and max(there, default=-1) > version), (
                schedule,
                stream,
                at,
                have,
            )


def expected(scenario: Scenario, stream: str) -> list[tuple[int, int]]:
    rows = rows_of(scenario.records[stream])
    if scenario.mode is DestinationSyncMode.append_dedup:
        best: dict[int, int] = {}
        for key, version in rows:
            best[key] = max(version, best.get(key, version))
        return sorted(best.items())
    return sorted(rows)


def check_exact(world: World, scenario: Scenario, schedule: object) -> None:
    for stream in scenario.records:
        if stream not in scenario.unwanted:
            assert ids(world, stream) == expected(scenario, stream), (schedule, stream)
    assert all(n == 1 for n in world.log.runs_of_sources.values()), schedule  # L4


def check_accounted(world: World, schedule: object, *, given_up: bool = False) -> None:
    """L8: what was sealed is in a load, once; ``given_up``: or was given up."""
    sealed: dict[StreamId, int] = {}
    for segment in world.sealed.values():
        for part in segment.slices:
            sealed[part.stream] = sealed.get(part.stream, 0) + part.read
    loaded: dict[StreamId, int] = {}
    for load in world.loads.values():
        loaded[load.stream] = loaded.get(load.stream, 0) + load.read
    for stream, read in sealed.items():
        count = loaded.get(stream, 0)
        assert count == read or (given_up and count < read), (schedule, stream, count, read)
