"""A power cut takes nothing that a promise stands on (L1 to L4): by the system calls of real runs,
driver, JVM, lanes and tasks, every rename and link follows a sync of its file and precedes one of
its folder, before the ledger says that it is there.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_harness import Place, end_all

from system_calls import SYNCS, Call, Fault, calls, ordered, traced

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]

PROMISES_NOTHING = {
    r"/home/log/[^/]+/mailbox/(?!.*/config-)": "driver and lanes talk while they live",
    r"/home/runs/": "the report is in the store",
    r"/home/state\.db-shm$": "SQLite's memory",
    r"/home/state\.db(-wal|-journal)?$": "SQLite syncs it before it says committed",
    r"/lake/\.penstock/": "locks, and files before they have their names",
}


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    yield
    end_all()


def exempt(path: str) -> bool:
    return any(re.search(pattern, path) for pattern in PROMISES_NOTHING)


def checked(place: Place, trace: list[Call]) -> tuple[list[Fault], set[str]]:
    """The ledger promises where the program's own thread commits; another renews the lease."""
    driver = trace[0].thread

    def ledger(call: Call) -> tuple[str, ...]:
        wal = str(place.home / "state.db-wal")
        says = call.thread == driver and call.name in SYNCS and call.paths[:1] == (wal,)
        return (f"{place.home}/", f"{place.lake}/") if says else ()

    return ordered(trace, (place.home, place.lake), ledger, exempt)


def runs(place: Place, folder: Path, count: int) -> Iterator[list[Call]]:
    for number in range(count):
        file = folder / f"trace-{number}"
        place.under = traced(file)
        ended = place.run()
        assert ended.code == 0, ended.told[-3000:]
        yield list(calls(file))


def test_x(tmp_path: Path) -> None:
    place = Place(
        tmp_path / "place", "parquet", config={"streams": 2, "records": 50},
        options={"destination_sync_mode": "append"}, cold=True,
    )  # fmt: skip
    for trace in runs(place, tmp_path, 2):
        faults, given = checked(place, trace)
        print("\n".join(sorted(map(str, faults))[:60]))
        print("GIVEN", "\n".join(sorted(given)))
    raise AssertionError
