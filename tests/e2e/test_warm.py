"""A Spark that stays for the next run (issue 11): which gets it, and nothing of the last one;
whoever dies, no run is lost or comes twice (L1, L3, L5, L10, L11).
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_harness import Ended, Place, assert_adds_up, end_all

import warm_spark
from penstock.spark import warm
from penstock.spark.class_archive import archive_path
from penstock.spark.jars import find_jars
from penstock.spark.java import find_java
from penstock.spark.lent_session import borrow
from penstock.tables.formats import ready_needs

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 60
STREAMS = ("s0", "s1")
SECRET = "correct-horse-battery"
SCRIPT = Path(sys.executable).with_name("penstock")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(done: Callable[[], bool], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(0.05)
    return done()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = warm_spark.cache_in(tmp_path_factory.mktemp("lasting") / "cache")
    yield made
    warm.stop(keepers(made))


@pytest.fixture
def left(lasting: Path) -> Iterator[Path]:
    """With the Spark of the test before, if one stayed."""
    yield lasting
    end_all()
    until(lambda: all(one["state"] == "idle" for one in status(lasting)))


@pytest.fixture
def cache(left: Path) -> Path:
    """Without one."""
    warm.stop(keepers(left))
    return left


def place(folder: Path, cache: Path, destination: str = "parquet", **config: Any) -> Place:
    return Place(
        folder,
        destination,
        config={"streams": 2, "records": RECORDS, "state_every": 10, "interleave": True, **config},
        options={"sync_mode": "incremental", "destination_sync_mode": "append"},
        told={"master": "local[4]"},  # two runs of one lane at the same time
        cache=cache,
    )


def keepers(cache: Path) -> Path:
    return warm.folder_of_all(cache / "penstock")


def status(cache: Path) -> list[dict[str, Any]]:
    return warm.status(keepers(cache))


def jvm(cache: Path) -> int:
    found = status(cache)
    assert len(found) == 1, found
    return int(found[0]["pid"])


def done(at: Place, ended: Ended, start: str, records: int = RECORDS) -> None:
    assert ended.code == 0, (ended.code, ended.report, ended.told[-3000:])
    assert ended.report is not None and ended.report["start"] == start
    assert_adds_up(ended)
    for stream in STREAMS:
        assert [seq for _, seq in at.rows(stream)] == list(range(1, records + 1)), stream
    assert not at.left_after(15)


def begun(at: Place, cache: Path, records: int) -> int:
    """The Java of a first run, which may have found it."""
    ended = at.run(records=records)
    assert ended.report is not None, ended.told[-3000:]
    done(at, ended, ended.report["start"], records)
    return jvm(cache)


def descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def test_the_next_run_has_it_and_two_at_a_time_share_it(tmp_path: Path, cache: Path) -> None:
    at = place(tmp_path / "one", cache)
    done(at, at.run({"SHOP_PASSWORD": SECRET}, api_key=SECRET), "cold")
    pid = jvm(cache)
    done(at, at.run({"SHOP_PASSWORD": SECRET}, api_key=SECRET, records=2 * RECORDS), "warm",
         2 * RECORDS)  # fmt: skip
    assert jvm(cache) == pid
    # L10: nothing of a run is with those who stay
    keeper = status(cache)[0]["keeper"]
    for process in descendants(keeper):
        assert SECRET.encode() not in Path(f"/proc/{process}/environ").read_bytes()
        assert b"SHOP_PASSWORD" not in Path(f"/proc/{process}/environ").read_bytes()
    for file in keepers(cache).rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file
    assert list((at.home / "runs").glob("*/spark.log")), "each run has Java's words"
    # a run that has it, and one at the same time
    slow = place(tmp_path / "slow", cache, hang_after=RECORDS, once=str(tmp_path / "hung"))
    running = slow.start()
    slow.process("penstock.engine.worker.lane")
    assert status(cache)[0]["state"] == "busy"
    # of another format, where Delta's jars are here
    delta = any((cache / "penstock" / "jars").glob("delta-*.jar"))
    other = place(tmp_path / "other", cache, "delta" if delta else "parquet")
    done(other, other.run(), "warm")
    assert jvm(cache) == pid
    # a third one finds too few slots
    full = place(tmp_path / "full", cache, hang_after=RECORDS, once=str(tmp_path / "full hung"))
    beside = full.start()
    full.process("penstock.engine.worker.lane")
    assert status(cache)[0]["used_by"] == 2
    third = place(tmp_path / "third", cache)
    done(third, third.run(), "cold")
    assert jvm(cache) == pid, "a JVM of its own, which ended with it"
    beside.process.send_signal(signal.SIGINT)
    assert beside.wait(60).code == 7
    assert status(cache)[0]["used_by"] == 1 and alive(pid), "the other's"
    running.process.send_signal(signal.SIGINT)  # L11: and what was cancelled gives it back
    cancelled = running.wait(60)
    assert cancelled.code == 7 and cancelled.report is not None, cancelled.told[-2000:]
    assert cancelled.report["status"] == "cancelled" and cancelled.report["start"] == "warm"
    assert not slow.left_after(15)
    assert until(lambda: status(cache)[0]["state"] == "idle")
    done(slow, slow.run(), "warm")
    assert jvm(cache) == pid


def test_of_two_clients_one_is_killed_and_the_other_goes_on_L5_L11(
    tmp_path: Path, left: Path
) -> None:
    cache = left
    first = place(tmp_path / "first", cache)
    pid = begun(first, cache, 20)
    other = place(tmp_path / "other", cache, delay=0.2)
    beside = other.start()
    other.process("penstock.engine.worker.lane")
    running = first.start(hang_after=RECORDS, once=str(tmp_path / "hung"))
    first.process("penstock.engine.worker.lane")
    assert until(lambda: (tmp_path / "hung").exists())
    assert status(cache)[0]["used_by"] == 2
    running.process.kill()
    assert running.wait(30).code == -9
    assert not first.left_after(25), "its lane and its connector are gone, before any lease is old"
    assert alive(pid), "the other one's"
    done(first, first.run(), "cold")
    ended = beside.wait(90)
    done(other, ended, "warm")
    assert until(lambda: not alive(pid)), "nobody has it after them"
    assert status(cache) == []


def test_a_jvm_that_is_killed_under_two_clients_loses_neither_s_rows_L5(
    tmp_path: Path, left: Path
) -> None:
    cache = left
    places = [place(tmp_path / name, cache, hang_after=20) for name in ("one", "two")]
    once = [str(tmp_path / f"hung {i}") for i in range(2)]
    pid = begun(places[0], cache, 10)
    running = [at.start(once=o) for at, o in zip(places, once, strict=True)]
    assert until(lambda: all(Path(o).exists() for o in once), 60)
    assert status(cache)[0]["used_by"] == 2
    os.kill(pid, signal.SIGKILL)
    for run in running:
        ended = run.wait(90)
        assert (ended.code, ended.error["code"]) == (5, "spark.java_died"), ended.told[-2000:]
        assert Path(str(ended.error["where"])).name == "spark.log"
    for at, o in zip(places, once, strict=True):
        assert not at.left_after(40)
        ended = at.run(once=o)
        assert ended.report is not None
        done(at, ended, ended.report["start"])


def test_a_driver_that_is_killed_takes_its_spark_along_L5_L11(tmp_path: Path, left: Path) -> None:
    cache = left
    at = place(tmp_path / "one", cache)
    pid = begun(at, cache, 20)
    running = at.start(hang_after=RECORDS, once=str(tmp_path / "hung"))
    at.process("penstock.engine.worker.lane")
    assert until(lambda: (tmp_path / "hung").exists())
    assert jvm(cache) == pid
    running.process.kill()
    assert running.wait(30).code == -9
    assert until(lambda: not alive(pid))
    assert not at.left_after(40), "lanes and connectors are gone"
    done(at, at.run(), "cold")
    done(at, at.run(), "warm")


def test_a_jvm_that_is_killed_between_runs_is_started_once_by_two_that_start_together_L5(
    tmp_path: Path, left: Path
) -> None:
    cache = left
    places = [place(tmp_path / name, cache) for name in ("one", "two")]
    first = begun(places[0], cache, 20)
    os.kill(first, signal.SIGKILL)
    assert until(lambda: not status(cache))
    running = [at.start() for at in places]
    ended = [run.wait(120) for run in running]
    assert sorted(e.report["start"] for e in ended if e.report) == ["cold", "warm"]
    for at, end in zip(places, ended, strict=True):
        assert end.report is not None
        done(at, end, end.report["start"])
    assert jvm(cache) != first


PROBE = """
import json, sys
from pathlib import Path
from penstock.spark.session import close_session, how_started, open_session
from penstock.tables.formats import ready_needs
scratch, cache, home, conf, leave = *map(Path, sys.argv[1:4]), *map(json.loads, sys.argv[4:6])
spark = open_session(ready_needs(), master="local[4]", conf=conf, scratch_dir=scratch,
                     cache_dir=cache, stays_with=home)
told = {"start": how_started(), "zone": spark.conf.get("spark.sql.session.timeZone"),
        "ansi": spark.conf.get("spark.sql.ansi.enabled"),
        "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
        "views": [t.name for t in spark.catalog.listTables()],
        "database": spark.catalog.currentDatabase(),
        "warehouse": spark.conf.get("spark.sql.warehouse.dir"),
        "cached": spark.range(1000).storageLevel.useMemory}
if leave:
    spark.range(1000).cache().count()
    spark.range(5).createOrReplaceTempView("left_behind")
    spark.sql("CREATE DATABASE IF NOT EXISTS left_behind")
    spark.sql("USE left_behind")
told["scratch"] = sorted(p.name for p in scratch.iterdir()) if scratch.is_dir() else []
close_session(spark)
again = open_session(ready_needs(), master="local[4]", scratch_dir=scratch, cache_dir=cache,
                     stays_with=home)
told["again"] = [how_started(), again.range(3).count()]
java = again._jvm.org.apache.spark.sql.classic.SparkSession
told["default"] = java.getDefaultSession().get().sessionUUID() != again._jsparkSession.sessionUUID()
close_session(again)
print(json.dumps(told))
"""


def test_settings_views_and_caches_of_a_run_are_gone_with_it(tmp_path: Path, left: Path) -> None:
    cache = left

    def probe(conf: dict[str, str], leave: bool) -> dict[str, Any]:
        scratch = tmp_path / "scratch"
        places = map(str, (scratch, cache / "penstock", tmp_path))
        words = [*places, json.dumps(conf), json.dumps(leave)]
        environ = {**os.environ, "XDG_CACHE_HOME": str(cache)}
        done = subprocess.run(
            [sys.executable, "-c", PROBE, *words],
            capture_output=True, text=True, timeout=240, env=environ,
        )  # fmt: skip
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return json.loads(done.stdout)

    own = {"spark.sql.shuffle.partitions": "3", "spark.sql.session.timeZone": "Asia/Tokyo"}
    first = probe(own, leave=True)
    assert (first["partitions"], first["zone"]) == ("3", "Asia/Tokyo")
    assert first["again"] == ["warm", 3], "also within one process"
    assert first["default"], "what asks for any session is not given one of a run"
    pid = jvm(cache)
    second = probe({}, leave=False)
    assert (second["start"], second["partitions"], second["zone"]) == ("warm", "8", "UTC")
    assert (second["ansi"], second["views"], second["database"]) == ("true", [], "default")
    assert second["cached"] is False
    assert second["warehouse"].endswith("penstock-scratch-warehouse")
    # what a session cannot be given later is a JVM of the run's own
    assert probe({"spark.sql.no.such.setting": "1"}, leave=False)["start"] == "cold"
    assert jvm(cache) == pid


def test_what_only_a_start_can_be_given_is_asked_of_no_spark_that_stays() -> None:
    """The run then starts its own, as for a setting that Spark does not take (above)."""
    no: Any = None
    assert borrow(no, {}, {"spark.executorEnv.SHOP": SECRET}, no, no, no, no, no, no) is None


BUSY = """
import sys, threading, time
from pathlib import Path
from pyspark.sql import functions as F
from penstock.spark.session import close_session, how_started, open_session
from penstock.tables.formats import ready_needs

scratch, cache, home = map(Path, sys.argv[1:4])
spark = open_session(ready_needs(), master="local[4]", scratch_dir=scratch, cache_dir=cache,
                     stays_with=home)
slow = F.udf(lambda seconds: time.sleep(seconds) or 1, "int")
print(how_started(), flush=True)
for line in sys.stdin:
    tasks, seconds = line.split()
    rows = spark.range(0, int(tasks), 1, int(tasks)).select(slow(F.lit(float(seconds))))
    work = threading.Thread(target=rows.collect)
    work.start()
    if tasks == "1":
        work.join()
        print("done", flush=True)
close_session(spark)
"""


def test_a_query_of_many_tasks_keeps_no_run_beside_it_waiting(tmp_path: Path, left: Path) -> None:
    cache = left

    def begin(name: str) -> "subprocess.Popen[str]":
        scratch = tmp_path / name
        scratch.mkdir()
        words = map(str, (scratch, cache / "penstock", tmp_path))
        pipe = subprocess.PIPE
        environ = {**os.environ, "XDG_CACHE_HOME": str(cache)}
        return subprocess.Popen(
            [sys.executable, "-c", BUSY, *words], stdin=pipe, stdout=pipe, text=True, env=environ
        )

    def say(run: "subprocess.Popen[str]", words: str) -> None:
        assert run.stdin is not None
        run.stdin.write(f"{words}\n")
        run.stdin.flush()

    def heard(run: "subprocess.Popen[str]") -> str:
        assert run.stdout is not None
        return run.stdout.readline().strip()

    runs = [begin("many")]
    try:
        assert heard(runs[0]) in ("cold", "warm")
        runs.append(begin("one"))
        assert heard(runs[1]) == "warm"
        say(runs[0], "240 0.5")  # 30 s in four slots
        time.sleep(2)
        began = time.monotonic()
        say(runs[1], "1 0")
        assert heard(runs[1]) == "done"
        assert time.monotonic() - began < 10
    finally:
        for run in runs:
            run.kill()
            run.communicate()


@pytest.fixture
def archives(left: Path) -> Iterator[set[Path]]:
    """As if all had been tried today: one takes a minute of both processors. Gives what was
    tried."""
    folder = left / "penstock"
    every = find_jars(ready_needs().packages, folder).files
    marks = [archive_path(find_java(), jars, folder).with_suffix(".tried") for jars in ((), every)]
    ours = [mark for mark in marks if not mark.exists()]
    for mark in marks:
        mark.touch()
    yield tried_archives(left)
    for mark in ours:
        mark.unlink(missing_ok=True)


def tried_archives(cache: Path) -> set[Path]:
    return {*(cache / "penstock" / "classes").glob("*.tried")}


def test_the_command_line_shows_stops_and_does_without_L11(
    tmp_path: Path, left: Path, archives: set[Path]
) -> None:
    cache = left
    at = place(tmp_path / "one", cache)
    ours = ("PENSTOCK_", "CI")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    environ["XDG_CACHE_HOME"] = str(cache)

    def command(*words: str, **more: str) -> Any:
        done = subprocess.run(
            [str(SCRIPT), *words, "--json", "--home", str(at.home)],
            capture_output=True, text=True, timeout=240, env={**environ, **more},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    run = ["run", at.source_reference, f"parquet:{at.lake}", "--config", json.dumps(at.config)]
    assert command(*run)["start"] in ("cold", "warm")
    assert command(*run)["start"] == "warm"
    (shown,) = command("spark", "status")["daemons"]
    (stopped,) = command("spark", "stop")["stopped"]
    assert stopped["pid"] == shown["pid"] and not alive(stopped["pid"])
    assert command("spark", "status") == {"daemons": []}
    assert command(*run, "--no-daemon")["start"] == "cold"
    assert command("spark", "status") == {"daemons": []}
    assert command("spark", "stop") == {"stopped": [], "ending": []}
    assert tried_archives(cache) == archives
    idle = {"PENSTOCK_DAEMON_IDLE": "6"}
    assert command("spark", "start", **idle)["started"] is True
    again = command("spark", "start", **idle)
    assert again["started"] is False
    assert command(*run, **idle)["start"] == "warm"
    (shown,) = command("spark", "status")["daemons"]
    assert shown["pid"] == again["daemons"][0]["pid"]
    assert (shown["state"], shown["runs"], shown["idle_seconds"]) == ("idle", 3, 6.0)
    assert until(lambda: not alive(shown["pid"]), 20), "idle"
    assert tried_archives(cache) == archives
