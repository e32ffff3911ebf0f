"""Real kills (issue 3, layer b; L1 to L7, L11, L12): a few cells of the matrix, a retry of Spark,
Ctrl-C, a second run at the same time, a driver that is killed.

The whole matrix: ``python tests/e2e/kills.py --all`` (``docs/kill-matrix.md``).
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_harness import Place, Running, assert_adds_up, end_all
from kill_log import POSTGRES
from kills import every_cell
from postgres_kills import on_postgres
from table_kills import cell, cells, run_cell

from penstock.api.pipelines import pipeline_of
from penstock.config.command_line import Options
from penstock.config.home import Home
from penstock.engine.inspect import states
from penstock.engine.inspect.pipelines import open_known
from penstock.engine.inspect.waiting_rows import is_table, waiting
from penstock.engine.specs.failpoints import tasks_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    yield
    end_all()


IN_CI = (
    "parquet-append/mid-part/connector",
    "parquet-dedup/after-commit/program",
    "parquet-overwrite/after-seal/worker",
    "delta-append/after-ledger/worker",
    "delta-dedup/after-intent/child",
    "delta-overwrite/after-intent/program",
)


COLD = "parquet-append/mid-part/connector"
"""Its run that is killed starts a Spark of its own; those of the others may find one."""


@pytest.mark.parametrize("name", IN_CI)
def test_a_killed_run_comes_back_exactly_once_L1_L3_L5(name: str, tmp_path: Path) -> None:
    run_cell(cell(name), tmp_path, cold=name == COLD)


ON_POSTGRES = (
    "parquet-append/after-intent/server",
    "delta-append/after-commit/backend",
    "parquet-append/after-ledger/program",
)


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_a_run_whose_store_is_on_postgres_comes_back_exactly_once_L1_L3_L12(
    name: str, tmp_path: Path
) -> None:
    """The server, or the run's sessions, are killed: the run goes on; or the run itself is."""
    with on_postgres():
        run_cell(cell(name), tmp_path)


def test_every_cell_is_of_one_store_and_named_once() -> None:
    names = [it.name for it in every_cell()]
    assert len(names) == len(set(names)) == len(every_cell("sqlite")) + len(every_cell("postgres"))
    killed = {name.rpartition("/")[2] for name in names if name.startswith(POSTGRES)}
    assert {"server", "backend", "program"} <= killed
    assert not any(it.name.startswith(POSTGRES) for it in every_cell("sqlite"))


def test_the_cells_in_ci_meet_every_point_and_every_target() -> None:
    """The whole matrix has every pair of them."""
    chosen = [cell(name) for name in IN_CI]
    assert all(c.possible for c in chosen)
    for what in ("point", "target", "shape"):
        assert {getattr(c, what) for c in chosen} == {getattr(c, what) for c in cells()}


SLOW = {
    "streams": 2,
    "interleave": True,
    "records": 100,
    "state_every": 10,
    "hang_after": 120,
}
SMALL = {
    "bounds": {"part_bytes": 4_000, "seal_bytes": 8_000, "seal_seconds": 0.3},
    "load": {"max_pending_bytes": 1, "max_pending_time": 0.1},
    "plan": {"scan_seconds": 0.2, "poll_seconds": 0.05},
}


def hung(folder: Path, **config: object) -> Place:
    """A parquet append whose source hangs, once, at record 120 of 200."""
    faults = {"once": str(folder / "hung"), "journal": str(folder / "journal.jsonl")}
    return Place(
        folder,
        "parquet",
        config={**SLOW, **faults, **config},
        options={"destination_sync_mode": "append"},  # the default would load at the end only
        told=dict(SMALL),
    )


def await_hang(place: Place, seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not (place.folder / "hung").exists():
        assert time.monotonic() < deadline, "the source never came to its hang"
        time.sleep(0.1)


def await_rows(place: Place, rows: int, seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while sum(len(place.rows(s)) for s in ("s0", "s1")) < rows:
        assert time.monotonic() < deadline, "nothing was loaded while the source was reading"
        time.sleep(0.2)


def await_told(running: Running, *texts: str, seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not all(text in running.told() for text in texts):
        assert time.monotonic() < deadline, running.told()[-2000:]
        time.sleep(0.1)


def assert_whole(place: Place, records: int = 100) -> None:
    for stream in ("s0", "s1"):
        assert [seq for _, seq in place.rows(stream)] == list(range(1, records + 1)), stream
    assert place.saved() == {"s0": records, "s1": records}


def reads(place: Place) -> int:
    return sum(1 for entry in place.journal() if entry["command"] == "read")


def test_a_retried_task_never_runs_the_source_twice_L4(tmp_path: Path) -> None:
    """Spark retries the task of a worker that was killed (maxFailures 3): CLAIM refuses every
    retry, the job fails, and a new epoch asks the source once more."""
    place = hung(tmp_path)
    place.cold = True
    place.told["master"] = "local[2,3]"
    running = place.start()
    await_hang(place)
    child = place.process("penstock.engine.worker.lane")
    parent = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1]
    assert b"penstock.tasks.fork_server" in Path(f"/proc/{parent}/cmdline").read_bytes()
    (task,) = tasks_of(child)
    os.kill(task, signal.SIGKILL)
    ended = running.wait()
    assert ended.code == 0, ended.told[-3000:]
    told = next(tmp_path.glob("home/runs/*/spark.log")).read_text(errors="replace")
    assert "this job has run already" in told, "Spark did not retry: the test proves nothing"
    assert reads(place) == 2
    assert_adds_up(ended)
    assert_whole(place)
    assert not place.left_after(45)


def test_sigterm_ends_a_run_soon_and_keeps_what_is_sealed_L11(tmp_path: Path) -> None:
    place = hung(tmp_path)
    del place.told["load"]  # so that it waits in the log
    running = place.start()
    await_hang(place)
    await_told(running, "stream s0 60 ", "stream s1 60 ")
    at = time.monotonic()
    os.kill(running.process.pid, signal.SIGTERM)
    ended = running.wait(60)
    assert time.monotonic() - at < 45, ended.told[-2000:]
    assert ended.code == 7 and ended.report is not None, (ended.code, ended.told[-2000:])
    assert ended.report["status"] == "cancelled"
    assert not place.left_after(1)
    assert ended.stream("s0")["read"] == ended.stream("s1")["read"] == 60
    assert place.rows("s0") == place.rows("s1") == []
    again = place.run()
    assert again.code == 0, again.told[-2000:]
    assert_adds_up(again)
    assert_whole(place)
    last = [e for e in place.journal() if e["command"] == "read"][-1]
    given = {
        s["stream"]["stream_descriptor"]["name"]: s["stream"]["stream_state"]["seq"]
        for s in last["state"]
    }
    assert given == {"s0": 60, "s1": 60}, "what was sealed was read again"


def test_a_second_run_is_refused_and_a_dead_one_is_followed_at_once_L12(tmp_path: Path) -> None:
    place = hung(tmp_path)
    first = place.start()
    await_hang(place)
    refused = place.run()
    assert refused.code == 6 and refused.error["code"] == "state.locked", refused.told
    message = json.dumps(refused.error)
    assert str(first.process.pid) in message and "@" in message
    assert time.strftime("%Y-%m-%dT", time.gmtime()) in message, "when it started is not said"
    first.process.kill()
    assert first.wait(30).code == -9
    at = time.monotonic()
    second = place.run()
    assert second.code == 0, second.told[-2000:]
    assert "discovering" in second.told and time.monotonic() - at < 120
    assert_whole(place)


def test_nothing_outlives_a_killed_driver_L11(tmp_path: Path) -> None:
    """Neither a connector that ignores SIGTERM nor its grandchildren, which do so, too."""
    place = hung(tmp_path, hang="grandchildren")
    running = place.start()
    await_hang(place)
    connector = place.process("stub_source.py", "read")
    running.process.kill()
    running.wait(30)
    left = place.left_after(40)
    assert not left, left
    assert not Path(f"/proc/{connector}").exists()
    orphans = [
        int(p.name)
        for p in Path("/proc").iterdir()
        if p.name.isdigit() and b"signal.signal(signal.SIGTERM, signal.SIG_IGN)" in _command(p)
    ]
    assert not orphans
    assert_whole_after(place)


def test_rows_of_a_killed_run_are_given_up_with_the_state_L5(tmp_path: Path) -> None:
    """Who begins again after a kill has each row once: what the killed run sealed is given up, and
    the source is read from its start."""
    place = hung(tmp_path)
    place.told = {"bounds": SMALL["bounds"]}  # what is sealed waits for the end
    running = place.start()
    await_hang(place)
    time.sleep(1)  # seal_seconds is less
    running.process.kill()
    running.wait(30)
    pipeline = pipeline_of(place.source_reference, f"parquet:{place.lake}", Options(name="e2e"))
    with open_known(pipeline, Home(place.home)) as known:
        rows = states.show(known)["waiting"]
        assert states.give_up_waiting(pipeline, known)["given_up"] == rows and rows
        assert waiting(known) == [] and is_table(pipeline)
    assert_whole_after(place)


@pytest.mark.parametrize("when", ["extract", "load"])
def test_a_java_that_dies_is_told_as_that_L11(when: str, tmp_path: Path) -> None:
    """Killed while the source reads, and while a load is committed: exit 5 and one error that says
    so, no trace, no source begun again on a dead Java; the next run completes exactly."""
    place = hung(tmp_path)
    place.cold = True
    place.options["destination_sync_mode"] = "append"  # loads while the source reads
    running = place.start()
    if when == "extract":
        await_hang(place)
    else:
        await_told(running, "phase load")
    os.kill(place.process("java", "SparkSubmit"), signal.SIGKILL)
    at = time.monotonic()
    ended = running.wait(60)
    assert time.monotonic() - at < 30
    assert ended.code == 5 and ended.error["code"] == "spark.java_died", ended.told[-2000:]
    assert "SIGKILL" in ended.error["message"] and "memory" in ended.error["message"]
    assert "Traceback" not in ended.told and "ConnectionRefused" not in ended.told
    assert reads(place) == 1
    assert not place.left_after(45)
    (place.folder / "hung").touch()
    place.cold = False
    assert_whole_after(place)


def test_a_start_of_spark_is_given_up_at_once_L11(tmp_path: Path) -> None:
    place = Place(tmp_path, "parquet", config={"records": 10}, cold=True)
    running = place.start()
    pid = place.process("java", "SparkSubmit")
    at = time.monotonic()
    os.kill(running.process.pid, signal.SIGINT)
    ended = running.wait(30)
    assert time.monotonic() - at < 5, ended.told[-2000:]
    assert ended.code == 7 and ended.error["code"] == "cancelled", ended.told[-2000:]
    assert not Path(f"/proc/{pid}").exists()


def assert_whole_after(place: Place) -> None:
    again = place.run()
    assert again.code == 0, again.told[-2000:]
    assert_whole(place)


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_what_is_loaded_while_the_source_reads_stays_when_it_dies_L7(tmp_path: Path) -> None:
    """A source that is killed while loads go on: the run fails, its table keeps what states cover,
    and the next run adds the rest."""
    place = hung(tmp_path)
    running = place.start()
    await_hang(place)
    await_rows(place, 100)
    os.kill(place.process("stub_source.py", "read"), signal.SIGKILL)
    ended = running.wait()
    assert ended.code in (1, 4) and ended.error["code"] == "source.exited"
    kept = {s: len(place.rows(s)) for s in ("s0", "s1")}
    assert kept == place.saved()
    again = place.run()
    assert again.code == 0
    assert_adds_up(again)
    assert_whole(place)
