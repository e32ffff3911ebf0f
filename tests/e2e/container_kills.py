"""Kills where a real connector is an image (issue 13; L1, L2, L5, L11): SIGKILL of its container in
the middle of a stream, or of the whole program with all that it started, then one more run.

``SOURCE`` is an unmodified Airbyte source into a table; ``DESTINATION`` one on Syncmaven's node
CDK. Neighbours: ``kills`` and ``push_kills`` have the same for processes, at every point.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from container_images import ENGINE
from e2e_harness import Ended, Place, Running, assert_adds_up

from penstock.runtimes.container.engine import VARIABLE

SOURCE, DESTINATION = "source", "destination"
CONTAINER, EVERYTHING = "container", "everything"
USERS = 1200
ROWS = 600
AT = 60  # rows that the destination has had when it is struck
STRIKE_SECONDS = 120.0
_SMALL = {
    "bounds": {"part_bytes": 50_000, "seal_bytes": 50_000},
    "load": {"max_pending_bytes": 1, "max_pending_time": 0.1},
    "plan": {"scan_seconds": 0.2, "poll_seconds": 0.05},
}


def run_container_cell(
    role: str, target: str, folder: Path, containers: Callable[[], list[str]]
) -> None:
    """Kills and recovers. ``containers``: gives the names of those that are there. Raises
    ``AssertionError`` with the reason."""
    place = _source(folder) if role == SOURCE else _destination(folder)
    begun = _sealed if role == SOURCE else _written
    environ = {VARIABLE: ENGINE}
    running = place.start(environ)
    _await(running, lambda: begun(place))
    (name,) = containers()
    if target == CONTAINER:
        subprocess.run([ENGINE, "kill", "-s", "KILL", name], check=True, capture_output=True)
    else:
        _kill_all(place)
    _assert_struck(role, target, running.wait())
    if target == EVERYTHING:
        assert containers() == [name], "nobody was left to remove it"
    before = _written(place)
    assert role == SOURCE or 0 < before < ROWS, "struck too late"
    last = place.run(environ)
    assert last.code == 0, (last.report, last.told[-3000:])
    assert_adds_up(last)
    assert containers() == []
    if role == SOURCE:
        table = f"read_parquet('{place.lake}/users/*.parquet')"
        counted = duckdb.connect().execute(f"SELECT count(*), count(DISTINCT id) FROM {table}")
        assert counted.fetchall() == [(USERS, USERS)]
        return
    heard = [json.loads(line)["seq"] for line in _sink(place).read_text().splitlines()]
    assert set(heard) == set(range(1, ROWS + 1))
    assert len(heard) - ROWS <= last.stream("s0")["sent_again"]
    assert place.saved() == {"s0": ROWS}


def _source(folder: Path) -> Place:
    config = {"count": USERS, "seed": 1, "parallelism": 1, "records_per_slice": 100}
    return Place(
        folder,
        "parquet",
        config={**config, "always_updated": True},
        source="airbyte:docker:test/source-faker:7.2.1",
        options={"streams": "users", "destination_sync_mode": "append_dedup"},
        told=dict(_SMALL),
    )


def _destination(folder: Path) -> Place:
    written = folder / "written"
    written.mkdir(parents=True)
    written.chmod(0o777)
    return Place(
        folder,
        "syncmaven",
        config={"records": ROWS, "streams": 1, "state_every": 50},
        to="syncmaven:docker:test/cdk-destination:1",
        options={
            "destination_stream": "rows",
            "destination_config": json.dumps({"file": str(written / "rows")}),
        },
        told={**_SMALL, "folders": [str(written)]},
    )


def _sink(place: Place) -> Path:
    return place.folder / "written" / "rows"


def _sealed(place: Place) -> bool:
    return any((place.home / "log").rglob("seg-*.json"))


def _written(place: Place) -> int:
    """How many rows the destination has had, once they are ``AT``."""
    rows = _sink(place).read_bytes().count(b"\n") if _sink(place).exists() else 0
    return rows if rows >= AT else 0


def _await(running: Running, begun: Callable[[], Any]) -> None:
    deadline = time.monotonic() + STRIKE_SECONDS
    while not begun():
        assert running.process.poll() is None, running.told()[-3000:]
        assert time.monotonic() < deadline, running.told()[-3000:]
        time.sleep(0.02)


def _kill_all(place: Place) -> None:
    """The program, the processes beside its connectors, and what those started: supervisors and
    the engine's command line, which have a clean environment."""
    found = list(place.processes())
    for pid in found:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [p for p in map(int, _children(thread)) if p not in found]
    for pid in reversed(found):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _children(thread: Path) -> list[str]:
    try:
        return (thread / "children").read_text().split()
    except OSError:
        return []


def _assert_struck(role: str, target: str, killed: Ended) -> None:
    if target == EVERYTHING:
        assert killed.code == -9, killed.told[-2000:]
        return
    assert killed.code not in (0, 124, -9), (killed.code, killed.told[-2000:])
    assert killed.error["code"] == f"{role}.exited", killed.error
    assert "signal 9" in killed.error["message"]
