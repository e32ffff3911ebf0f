"""Leases and openings between real processes (L12), on SQLite and on Postgres."""

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.errors import LeaseLost, Locked
from penstock.model.catalog import StreamId
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.store.pipeline_lock import take

PREAMBLE = """
import sys, time
from msgspec import structs
from penstock.errors import PenstockError
from penstock.store import database, sql
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
place = sys.argv[1]
print("ready", flush=True)
sys.stdin.readline()
"""
RACE = """
store = open_store(place)
try:
    lease = store.acquire("shop", this_holder(sys.argv[2]), 600)
    print("won", store.new_epoch(lease, 0), lease.state_id, flush=True)
except PenstockError as error:
    print(error.code, flush=True)
sys.stdin.readline()
"""
RUN = RACE.replace("    print(", "    store.start_run(lease, 'dead', '2026-11-20')\n    print(", 1)
OPEN = """
try:
    store = open_store(place)
    lease = store.acquire(sys.argv[2], this_holder("r"), 600)
    print("won", store.new_epoch(lease, 0), flush=True)
except PenstockError as error:
    print(error.code, error.message, flush=True)
"""
COUNT = """
store = open_store(place)
lease = store.acquire(sys.argv[2], this_holder("r"), 600)
print("last", [store.new_epoch(lease, 0) for _ in range(50)][-1], flush=True)
"""
WAIT_SECONDS = 60

Child = subprocess.Popen[str]


class Children:
    """Processes that wait for the word to start."""

    def __init__(self) -> None:
        self._all: list[Child] = []

    def start(self, code: str, *arguments: str) -> Child:
        child = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._all.append(child)
        return child

    @staticmethod
    def line(child: Child) -> str:
        assert child.stdout is not None
        return child.stdout.readline().strip()

    @staticmethod
    def go(child: Child) -> None:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()

    def race(self, *children: Child) -> list[str]:
        for child in children:
            assert self.line(child) == "ready"
        for child in children:
            self.go(child)
        return [self.line(child) for child in children]

    def end(self) -> None:
        for child in self._all:
            child.kill()
            child.wait(WAIT_SECONDS)
            for stream in (child.stdin, child.stdout):
                assert stream is not None
                stream.close()


@pytest.fixture
def children() -> Iterator[Children]:
    these = Children()
    yield these
    these.end()


pytestmark = [pytest.mark.timeout(120), pytest.mark.dear]


def test_l12_two_processes_race_for_a_lease_and_one_wins(place: str, children: Children) -> None:
    answers = children.race(*(children.start(RACE, place, f"r{n}") for n in range(2)))
    assert sorted(a.split()[0] for a in answers) == ["state.locked", "won"]


def test_four_processes_open_a_fresh_store_at_once(place: str, children: Children) -> None:
    answers = children.race(*(children.start(OPEN, place, f"p{n}") for n in range(4)))
    assert answers == ["won 1"] * 4
    store = open_store(place)
    assert store.pipelines() == ["p0", "p1", "p2", "p3"]
    store.close()


def test_processes_that_write_at_once_wait_for_each_other(place: str, children: Children) -> None:
    answers = children.race(*(children.start(COUNT, place, f"p{n}") for n in range(3)))
    assert answers == ["last 50"] * 3


def test_l12_sigkilled_holders_lock_is_broken_and_its_run_shown_failed(
    place: str, children: Children
) -> None:
    child = children.start(RUN, place, "dead")
    (answer,) = children.race(child)
    state_id = answer.split()[2]
    store = open_store(place)
    with pytest.raises(Locked) as refused:
        store.acquire("shop", this_holder("next"), 60)
    assert f"process {child.pid}" in refused.value.message
    assert store.runs("shop")[0]["status"] == "running"
    child.kill()
    _await_zombie_or_gone(child.pid)
    assert store.runs("shop")[0]["status"] == "failed"
    lease = store.acquire("shop", this_holder("next"), 60)  # not reaped yet: a zombie is dead too
    assert lease.state_id == state_id and store.new_epoch(lease, 0) == 2
    store.close()


def _await_zombie_or_gone(pid: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.01)
    raise AssertionError("the killed process is still there")


def test_l12_stolen_lease_is_lost_to_a_living_process(place: str, children: Children) -> None:
    """The old holder lives where it cannot be checked, and goes on writing; another took over."""
    code = """
    store = open_store(place)
    lease = store.acquire("shop", structs.replace(this_holder("old"), boot="elsewhere"), 0.2)
    print("held", flush=True)
    sys.stdin.readline()
    for write in (
        lambda: store.new_epoch(lease, 0),
        lambda: store.renew(lease, 60),
        lambda: store.replace_states(lease, []),
        lambda: store.start_run(lease, "x", "y"),
    ):
        try:
            write()
            print("wrote", flush=True)
        except PenstockError as error:
            print(error.code, flush=True)
    """
    child = children.start(textwrap.dedent(code), place)
    assert children.race(child) == ["held"]
    store = open_store(place)
    lease = take(store, "shop", this_holder("thief"), 60)
    children.go(child)
    assert [children.line(child) for _ in range(4)] == ["state.lease_lost"] * 4
    assert store.new_epoch(lease, 0) == 1 and store.runs("shop") == []
    store.close()


def test_threads_of_one_process_share_a_store(place: str) -> None:
    store = open_store(place)
    lease = store.acquire("shop", this_holder("r"), 60)
    with ThreadPoolExecutor(4) as pool:
        epochs = list(pool.map(lambda lane: store.new_epoch(lease, lane), range(40)))
        generations = list(
            pool.map(lambda _: store.new_generation(lease, [StreamId(None, "s")]), range(10))
        )
    assert sorted(epochs) == list(range(1, 41))
    assert sorted(g[StreamId(None, "s")] for g in generations) == list(range(1, 11))
    store.close()


def test_an_old_lease_does_not_survive_release(place: str) -> None:
    store = open_store(place)
    lease = store.acquire("shop", this_holder("r"), 60)
    store.release(lease)
    with pytest.raises(LeaseLost) as lost:
        store.new_epoch(lease, 0)
    assert json.dumps(lost.value.as_dict())
    store.close()
