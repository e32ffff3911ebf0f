"""Spark starts while a run is prepared, once, and is given up where the run is refused."""

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_harness import Ended, Place, Running, end_all

pytestmark = pytest.mark.spark

# a tap that tells its streams when it is let, and has then three rows
TAP = """
import json, os, sys, time
folder = sys.argv[1]
schema = {"type": "object", "properties": {"id": {"type": "integer"}, "seq": {"type": "integer"}}}
if "--discover" in sys.argv:
    open(folder + "/asked", "a").close()
    for _ in range(1200):
        if os.path.exists(folder + "/go"):
            break
        time.sleep(0.05)
    stream = {"tap_stream_id": "moons", "stream": "moons", "schema": schema}
    print(json.dumps({"streams": [{**stream, "key_properties": ["id"], "metadata": []}]}))
    sys.exit()
head = {"type": "SCHEMA", "stream": "moons", "schema": schema, "key_properties": ["id"]}
print(json.dumps(head))
for i in range(3):
    print(json.dumps({"type": "RECORD", "stream": "moons", "record": {"id": i, "seq": i}}))
print(json.dumps({"type": "STATE", "value": {"at": 3}}))
"""


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    end_all()


def place_of(tmp_path: Path, **more: object) -> Place:
    program = tmp_path / "tap.py"
    program.write_text(TAP)
    command = shlex.join([sys.executable, str(program), str(tmp_path)])
    place = Place(tmp_path, "parquet", config={}, source=f"singer:{command}", **more)  # type: ignore[arg-type]
    return place


def await_asked(place: Place, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not (place.folder / "asked").exists():
        assert time.monotonic() < deadline, "the source was not asked for its streams"
        time.sleep(0.05)


def javas(place: Place) -> set[int]:
    """The JVMs of this place; not their children, which bear their command until they exec."""
    found = {pid for pid, command in place.processes().items() if "SparkSubmit" in command}
    return {pid for pid in found if parent(pid) not in found}


def parent(pid: int) -> int:
    """The parent of a process, or 0 where the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def refused(running: Running, place: Place) -> Ended:
    """Lets the tap answer a run that names a stream which it does not have."""
    at = time.monotonic()
    (place.folder / "go").touch()
    ended = running.wait(60)
    assert time.monotonic() - at < 10, ended.told[-2000:]
    assert ended.code == 2 and ended.error["code"] == "config.streams", ended.told[-2000:]
    return ended


def test_spark_starts_once_while_the_source_is_asked_for_its_streams(tmp_path: Path) -> None:
    place = place_of(tmp_path, cold=True)
    running = place.start()
    place.process("java", "SparkSubmit")
    await_asked(place)
    assert running.process.poll() is None
    (tmp_path / "go").touch()
    seen: set[int] = set()
    while running.process.poll() is None:
        seen |= javas(place)
        time.sleep(0.1)
    ended = running.wait()
    assert ended.code == 0 and ended.report and ended.report["start"] == "cold", ended.told[-2000:]
    assert len(seen) == 1
    assert place.rows("moons") == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("how", ["refused", "stopped"])
def test_a_run_that_ends_before_it_is_prepared_leaves_no_spark_L11(
    tmp_path: Path, how: str
) -> None:
    place = place_of(tmp_path, cold=True, options={"streams": "suns"})
    running = place.start()
    pid = place.process("java", "SparkSubmit")
    await_asked(place)
    if how == "refused":
        refused(running, place)
    else:
        at = time.monotonic()
        os.kill(running.process.pid, signal.SIGINT)
        time.sleep(0.2)
        (tmp_path / "go").touch()
        ended = running.wait(30)
        assert time.monotonic() - at < 10, ended.told[-2000:]
        assert ended.code in (2, 7), ended.told[-2000:]
    assert not Path(f"/proc/{pid}").exists()
    assert not place.left_after(5)
    listed = {file.name for file in place.home.glob("runs/*/*")}
    assert listed <= {"attempt.json", "log.jsonl"}  # it was tried, and began nothing


def test_a_warm_spark_outlives_a_run_that_is_refused(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    (tmp_path / "go").touch()
    assert place.run().code == 0
    (tmp_path / "go").unlink()
    (tmp_path / "asked").unlink()
    place.options = {"streams": "suns"}
    running = place.start()
    await_asked(place)
    refused(running, place)
    place.options = {}
    again = place.run()
    assert again.code == 0 and again.report and again.report["start"] == "warm", again.told[-2000:]
