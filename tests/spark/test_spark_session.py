"""Real sessions in processes of their own: silence, death with the parent, no Java on PATH."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from java_free import without_java

from penstock.runtimes.owner import this_owner
from penstock.spark.scratch import remove_left

pytestmark = pytest.mark.spark

OPEN = """
import json, os, sys
from pathlib import Path
from penstock.spark.session import open_session, close_session
from penstock.tables.contract import SessionNeeds
from penstock.tables.delta.tables import DeltaTables
scratch = Path(sys.argv[1])
needs = DeltaTables("unused").needs() if "delta" in sys.argv else SessionNeeds()
"""


def run(code: str, scratch: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environ}
    return subprocess.run(
        [sys.executable, "-c", OPEN + code, str(scratch), *args],
        capture_output=True,
        text=True,
        env=env,
        timeout=300,
    )


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


WORK = """
conf = {"spark.x.secret": "s3cret"}
spark = open_session(needs, scratch_dir=scratch, cores=2, conf=conf)
from pyspark.sql import functions as F
def python(i):
    read = [p for p, finder in sys.path_importer_cache.items() if "zip" in str(type(finder))]
    return [sys.executable, str(sys.flags.safe_path), *read]
python = F.udf(python, "array<string>", useArrow=False)
answer = {
    "worker": spark.range(0, 1, 1, 1).select(python("id")).collect()[0][0],
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "ansi": spark.conf.get("spark.sql.ansi.enabled"),
    "version": spark.version,
}
if "delta" in sys.argv:
    place = str(scratch / "t")
    spark.range(10).write.format("delta").save(place)
    answer["rows"] = spark.read.format("delta").load(place).count()
again = open_session(needs, scratch_dir=scratch, cores=2, conf=conf)
answer["again"] = again is spark
close_session(spark)
answer["open"] = spark.range(1).count()
close_session(spark)
files = [p for p in scratch.rglob("*") if p.is_file()]
answer["files"] = [str(p) for p in files if "s3cret" in p.read_text(errors="ignore")]
print(json.dumps(answer))
"""


def test_a_session_says_nothing_and_its_workers_run_our_python(tmp_path: Path) -> None:
    done = run(WORK, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)  # nothing else on stdout
    assert done.stderr == ""
    assert answer["worker"] == [sys.executable, "True"]  # and of each task no zip is read
    assert (answer["zone"], answer["ansi"], answer["open"]) == ("UTC", "true", 1)
    assert answer["again"] is True and answer["files"] == []
    assert (tmp_path / "run/spark.log").stat().st_size > 0
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["spark.log"]


def test_a_session_removes_what_killed_ones_of_other_runs_left_L11(tmp_path: Path) -> None:
    code = "from penstock.runtimes.owner import this_owner; print(this_owner())"
    ended = [sys.executable, "-c", code]
    dead = subprocess.run(ended, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    left, living = (tmp_path / f"runs/1/spark-{owner}" for owner in (dead, this_owner()))
    others = [tmp_path / "runs/1/spark.log", tmp_path / "runs/1/spark-1", living, left]
    for folder in others:
        (folder / "blocks").mkdir(parents=True)
    (tmp_path / "runs/report.json").touch()
    remove_left(tmp_path / "runs/2")
    assert [p.exists() for p in others] == [True, True, True, False]
    remove_left(tmp_path / "nothing/2")


@pytest.mark.network
@pytest.mark.slow
def test_a_machine_without_java_runs_spark_and_delta(tmp_path: Path) -> None:
    """Its Java, its trust store and its jars are all brought by Penstock."""
    environ = {**without_java(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run(WORK, tmp_path / "scratch", "delta", **environ)
    assert done.returncode == 0, done.stderr + (tmp_path / "scratch/spark.log").read_text()[-3000:]
    assert json.loads(done.stdout)["rows"] == 10


def test_the_jvm_dies_with_a_killed_parent_and_leaves_files_in_the_runs_folder_only_L11(
    tmp_path: Path,
) -> None:
    code = """
spark = open_session(needs, scratch_dir=scratch, cores=2)
from penstock.spark import session
print(session._current.jvm.process.pid, flush=True)
print(spark._jvm.java.lang.System.getProperty("java.io.tmpdir"), flush=True)
import time; time.sleep(600)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN + code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    java = int(process.stdout.readline())
    assert alive(java)
    assert Path(process.stdout.readline().strip()).is_relative_to(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    deadline = time.monotonic() + 30
    while alive(java) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(java)


def test_a_session_that_is_never_closed_ends_with_its_process(tmp_path: Path) -> None:
    code = """
spark = open_session(needs, scratch_dir=scratch, cores=2)
from penstock.spark import session
print(session._current.jvm.process.pid, flush=True)
"""
    done = run(code, tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert not alive(int(done.stdout))


def test_jars_that_cannot_be_fetched_are_an_error_with_the_way_out(tmp_path: Path) -> None:
    code = """
needs = SessionNeeds(("io.example:nothing-here:9.9",))
try:
    open_session(needs, scratch_dir=scratch, cores=2, cache_dir=scratch / "cache")
except Exception as error:
    print(json.dumps([type(error).__name__, error.code, error.message, error.hint]))
"""
    kind, code_, message, hint = json.loads(run(code, tmp_path).stdout)
    assert (kind, code_) == ("DestinationError", "spark.jars_unresolved")
    assert "io.example:nothing-here:9.9" in message and "PENSTOCK_JARS" in hint
