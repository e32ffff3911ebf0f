"""What is told of a task that was lost: its worker, and what that lacks (L11)."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.log.log import FileLog
from penstock.engine.run import lane_runner
from penstock.engine.specs.lane import LaneEnd, LaneResult
from penstock.engine.specs.plan import LaneStart
from penstock.errors import LogError, PenstockError
from penstock.tasks.job_file import put_job, take_job
from penstock.tasks.spark_job import SubmittedJob

EXECUTOR_LOST = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed "
    "4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 7) (10.0.0.2 executor 5): "
    "ExecutorLostFailure (executor 5 exited caused by one of the running tasks)"
)
RAISED = "RuntimeError: penstock-task-raised "


def lost(text: str, trace: str = "", claimed: str | None = None) -> PenstockError:
    class TaskFailure(Exception):
        _stackTrace = trace

    def submit() -> bytes:
        raise TaskFailure(text)

    job = SubmittedJob("lane-0", submit)
    deadline = time.monotonic() + 10
    while (error := job.lost("source", lambda: claimed)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert error is not None
    return error


def raised(error: Any, worker: str = "10.0.0.2 (executor 5)", words: str = "") -> str:
    told = {"worker": worker, "error": error, "words": words}
    return f"Traceback ...\n{RAISED}{json.dumps(told)}\n\tat x.y(Z)"


@pytest.mark.parametrize(
    ("text", "trace", "code", "words"),
    [
        (EXECUTOR_LOST, "", "lane.lost", "ExecutorLostFailure"),
        ("PYTHON_VERSION_MISMATCH", EXECUTOR_LOST, "spark.other_python", "another Python"),
        (
            raised(None, words="ModuleNotFoundError(\"No module named 'penstock'\")"),
            "",
            "spark.no_penstock",
            "no Penstock",
        ),
        (
            raised(None, words="RuntimeError('penstock-task-has 0.0.1 ')"),
            "",
            "spark.other_penstock",
            "has Penstock 0.0.1,",
        ),
        (raised(None, words="KeyError('x')"), "", "lane.lost", "KeyError('x')"),
        (
            raised(LogError("it does not see the log", code="log.not_shared").as_dict()),
            "",
            "log.not_shared",
            "it does not see the log",
        ),
    ],
)
def test_a_lost_task_names_its_worker(text: str, trace: str, code: str, words: str) -> None:
    error = lost(text, trace)
    assert error.code == code
    assert "worker 10.0.0.2 (executor 5)" in error.message and words in error.message


def test_a_task_that_was_begun_twice_names_the_worker_that_had_begun_it() -> None:
    text = raised(LogError("this job has run already", code="log.claimed").as_dict(), "10.0.0.3")
    error = lost(text, claimed="10.0.0.2 (executor 5), process 17")
    assert error.code == "lane.lost"
    assert "10.0.0.2 (executor 5), process 17" in error.message
    assert "10.0.0.3" not in error.message


def test_a_worker_that_lacks_the_log_is_told_from_a_run_that_is_over(tmp_path: Path) -> None:
    key = put_job(tmp_path / "run", b"job")
    Path(key.path).unlink()
    with pytest.raises(LogError) as told:
        take_job(key)
    assert told.value.code == "log.claimed"
    (tmp_path / "run").rmdir()
    with pytest.raises(LogError) as told:
        take_job(key)
    assert (told.value.code, told.value.where) == ("log.not_shared", str(tmp_path / "run"))


def test_L8_what_a_lane_sealed_where_nobody_sees_it_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose folder begins as a copy of the log's has the job, and seals for itself."""
    result = LaneResult(end=LaneEnd.finished, stats={"segments": 1.0})

    class Answered:
        def __init__(self, *_: object) -> None: ...

        def answer(self) -> LaneResult:
            return result

    monkeypatch.setattr(lane_runner, "SubmittedJob", Answered)
    nothing: Any = lambda *_: {}  # noqa: E731
    reader = lane_runner.LaneProcess(nothing)
    lanes = lane_runner.Lanes(reader, Mailbox(tmp_path, "run"), nothing, nothing, nothing)
    handle = lanes.start(LaneStart(lane=0, epoch=7, streams=(), generations=(), states=()))
    told = handle.poll()
    assert told is not None and told.end is LaneEnd.lost
    assert told.errors[0]["code"] == "log.not_shared"
    FileLog(tmp_path).claim(7, "a worker that shares it")
    assert handle.poll() == result
