"""Connector keys between real processes, on SQLite and on Postgres: nothing is lost, nothing of a
task that was given up gets in, and the driver's ledger goes on meanwhile."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from penstock.model.segments import SHARED_STATE, SegmentId
from penstock.model.state import StoredState
from penstock.store.contract import GroupIntent, Lease, Store
from penstock.store.keys import SHARED, CoveredKeys, KeyAddress, lane_task
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.store.task_keys import StoreKeys, keys_url, open_keys

PREAMBLE = """
import sys
from penstock.errors import StateError
from penstock.store.keys import KeyAddress
from penstock.store.task_keys import open_keys
port = open_keys(sys.argv[1], "shop", sys.argv[2])
place = KeyAddress("pipeline", "", "count")
def add_one():
    while True:
        old = port.get(place)
        if port.compare_and_swap(place, old, str(int(old or 0) + 1)):
            return
print("ready", flush=True)
sys.stdin.readline()
"""
COUNT = PREAMBLE + "for _ in range(60): add_one()\nprint(port.checkpoint(), flush=True)\n"
FOREVER = (
    PREAMBLE
    + """
try:
    while True:
        add_one()
        print("one", flush=True)
except StateError as error:
    print(error.code, flush=True)
"""
)
PLACE = KeyAddress("pipeline", "", "count")
Child = subprocess.Popen[str]

pytestmark = pytest.mark.timeout(120)


class Tasks:
    """Processes that write keys; they wait for the word to start."""

    def __init__(self, place: str) -> None:
        self.url = keys_url(place)
        self.store: Store = open_store(place)
        self.lease: Lease = self.store.acquire("shop", this_holder("r"), 600)
        self._all: list[Child] = []
        self._settled = 0

    def start(self, code: str, task: str) -> Child:
        self.store.begin_keys(self.lease, task)
        child = subprocess.Popen(
            [sys.executable, "-c", code, self.url, task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._all.append(child)
        return child

    def go(self, *children: Child) -> None:
        for child in children:
            assert line(child) == "ready"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()

    def commit(self, *keys: CoveredKeys) -> None:
        self._settled += 1
        at = SegmentId(1, self._settled)
        group = GroupIntent(loads=(), states=(), epoch=1, consumes=((at, SHARED_STATE),), keys=keys)
        self.store.settle(self.lease, [group], merge)

    def count(self) -> str | None:
        port = open_keys(self.url, "shop", "", dry=True)
        try:
            return port.get(PLACE)
        finally:
            port.close()

    def end(self) -> None:
        for child in self._all:
            child.kill()
            child.wait(60)
            for stream in (child.stdin, child.stdout):
                assert stream is not None
                stream.close()
        self.store.close()


def merge(_: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
    return list(new)


def line(child: Child) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


@pytest.fixture
def tasks(place: str) -> Iterator[Tasks]:
    these = Tasks(place)
    yield these
    these.end()


def test_processes_that_swap_at_once_lose_nothing_while_the_ledger_goes_on(tasks: Tasks) -> None:
    children = {lane_task(n): tasks.start(COUNT, lane_task(n)) for n in range(1, 5)}
    tasks.go(*children.values())
    while tasks.count() != "240":
        tasks.commit(*(CoveredKeys(task, SHARED, 0) for task in children))
        time.sleep(0.01)
    keys = [CoveredKeys(task, SHARED, int(line(child))) for task, child in children.items()]
    for number, one in enumerate(keys):
        tasks.commit(one)
        value = int(tasks.store.connector_keys("shop")[PLACE])
        assert value == 240 if number == 3 else 60 <= value <= 240
    assert tasks.count() == "240"


def test_a_killed_process_holds_nothing_up_and_its_writes_go_when_it_is_given_up(
    tasks: Tasks,
) -> None:
    doomed = tasks.start(FOREVER, lane_task(1))
    tasks.go(doomed)
    for _ in range(5):
        assert line(doomed) == "one"
    doomed.kill()
    doomed.wait(60)
    assert int(tasks.count() or 0) >= 5
    began = time.monotonic()
    tasks.store.end_keys(tasks.lease, tasks=[lane_task(1)])
    assert tasks.count() is None and time.monotonic() - began < 20
    after = tasks.start(COUNT, lane_task(2))
    tasks.go(after)
    tasks.commit(CoveredKeys(lane_task(2), SHARED, int(line(after))))
    assert tasks.store.connector_keys("shop") == {PLACE: "60"}


class Slow:
    """A connection of a task that is stopped just before its value is written."""

    def __init__(self, link: Any, there: Event, go_on: Event) -> None:
        self._link, self._there, self._go_on = link, there, go_on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def execute(self, sql: str, values: tuple[Any, ...]) -> None:
        if sql.startswith("INSERT"):
            self._there.set()
            assert self._go_on.wait(60)
        self._link.execute(sql, values)


def test_l12_giving_a_task_up_waits_for_a_write_that_is_under_way(tasks: Tasks) -> None:
    """Else it would come into being after everything of the task was dropped."""
    there, go_on = Event(), Event()
    tasks.store.begin_keys(tasks.lease, "t")
    plain = open_keys(tasks.url, "shop", "t")
    assert isinstance(plain, StoreKeys)
    plain.put(PLACE, "1")
    connect = plain._connect
    slow = StoreKeys(lambda: Slow(connect(), there, go_on), "shop", "t")
    with ThreadPoolExecutor(2) as pool:
        go_on.set()
        slow.put(PLACE, "2")  # it has its mark from here on
        go_on.clear()
        there.clear()
        writing = pool.submit(slow.put, PLACE, "3")
        assert there.wait(60)
        ending = pool.submit(tasks.store.end_keys, tasks.lease)
        time.sleep(0.3)
        assert not ending.done()
        go_on.set()
        writing.result(60)
        ending.result(60)
    assert tasks.count() is None
    plain.close()
    slow.close()


def test_l12_a_living_process_writes_nothing_after_it_was_given_up(tasks: Tasks) -> None:
    zombie = tasks.start(FOREVER, lane_task(1))
    tasks.go(zombie)
    assert line(zombie) == "one"
    tasks.store.end_keys(tasks.lease)
    assert tasks.count() is None
    while (said := line(zombie)) == "one":
        pass
    assert said == "state.keys_closed" and tasks.count() is None
