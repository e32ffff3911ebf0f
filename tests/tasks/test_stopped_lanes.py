"""L11: a lane's process, or the Spark task above it, that is stopped by SIGSTOP does not hold its
run."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock.errors import Defect
from penstock.runtimes.stopped import is_stopped
from penstock.tasks import child_process, spark_job
from penstock.tasks.child_process import packed, supervise

STOPS_ITSELF = """
import os, signal
def main():
    os.kill(os.getpid(), signal.SIGSTOP)
"""
TASK = """
import sys
from penstock.tasks import child_process
child_process.BEAT_SECONDS = 0.2
child_process.supervise_packed("sleeps", sys.stdin.buffer.read(), sys.argv[1])
"""


def modules(folder: Path, **sources: str) -> None:
    (folder / "penstock").mkdir()  # beside the real one on the path that a child is given
    for name, text in sources.items():
        (folder / f"{name}.py").write_text(text)


def test_l11_a_lane_that_is_stopped_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules(tmp_path, stops_itself=STOPS_ITSELF)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(child_process, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(child_process, "STOPPED_SECONDS", 0.5)
    began = time.monotonic()
    with pytest.raises(Defect, match="was stopped") as caught:
        supervise("stops_itself", b"{}")
    assert caught.value.code == "lane.lost" and time.monotonic() - began < 20


def test_l11_a_task_that_is_stopped_is_given_up_and_killed_and_its_lane_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is a process as Spark's Python worker is one; it is stopped while its lane works."""
    lane = tmp_path / "lane"
    sleeps = (
        "import os\ndef main():\n"
        f"    open({str(lane)!r}, 'w').write(str(os.getpid()))\n"
        "    while os.read(0, 4096): pass\n"
    )
    modules(tmp_path, sleeps=sleeps)
    alive = tmp_path / "job.alive"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])}
    task = subprocess.Popen(
        [sys.executable, "-c", TASK, str(alive)], stdin=subprocess.PIPE, env=environ
    )
    assert task.stdin is not None
    task.stdin.write(packed(b"{}", None))
    task.stdin.close()
    threading.Thread(target=task.wait, daemon=True).start()
    deadline = time.monotonic() + 20
    while not (lane.exists() and lane.read_text() and alive.exists()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pid = int(lane.read_text())
    os.kill(task.pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGSTOP)
    while not (is_stopped(pid) and is_stopped(task.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    monkeypatch.setattr(spark_job, "_LOOK_SECONDS", 0.2)
    monkeypatch.setattr(spark_job, "SILENT_SECONDS", 1.0)
    with pytest.raises(Defect, match="no sign of life") as caught:
        spark_job._while_alive(lambda: bytes(task.wait()), alive, "sleeps", set())
    assert caught.value.code == "lane.lost"
    deadline = time.monotonic() + 20
    while task.poll() is None or Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the stopped lane was left behind"
        time.sleep(0.05)


def test_what_a_task_answers_or_raises_is_passed_on(tmp_path: Path) -> None:
    def lost() -> bytes:
        raise RuntimeError("lost")

    assert spark_job._while_alive(lambda: b"answer", tmp_path / "none", "m", set()) == b"answer"
    with pytest.raises(RuntimeError, match="lost"):
        spark_job._while_alive(lost, tmp_path / "none", "m", set())


def test_l11_a_task_without_a_slot_is_given_up_once_no_other_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feeder may wait for its lane for as long as that works; then its wait has a bound."""
    monkeypatch.setattr(spark_job, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(spark_job, "START_SECONDS", 0.5)
    lane, working, over = tmp_path / "lane.alive", set[Path](), threading.Event()
    lane.write_bytes(b"1 ")
    done = threading.Event()

    def as_the_lane() -> None:
        spark_job._while_alive(lambda: bytes(done.wait(20)), lane, "lane", working)
        over.set()

    threading.Thread(target=as_the_lane, daemon=True).start()
    while not working:
        time.sleep(0.01)
    threading.Timer(1.5, done.set).start()
    with pytest.raises(spark_job.NoSlot):
        spark_job._while_alive(
            lambda: bytes(threading.Event().wait(30)), tmp_path / "feeder.alive", "feeder", working
        )
    assert over.is_set(), "the lane had worked for three times the bound"
    assert working == set()
