"""L2, L13: parts are verified by a Spark job, with the errors that the log itself has."""

import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.engine.deliver.delivery import Preconditions
from penstock.engine.deliver.part_checks import CheckInDriver, Damaged, RunningCheck
from penstock.engine.log.log import FileLog
from penstock.engine.run import part_tasks
from penstock.engine.run.part_tasks import CheckInTasks
from penstock.errors import PenstockError
from penstock.model.segments import PartRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def parts_in(root: Path) -> list[PartRef]:
    """One that is whole, and one of each damage; the last is a folder, which cannot be read."""
    parts: list[PartRef] = []
    for name in ("whole", "gone", "shorter", "longer", "changed", "folder", "again"):
        body = name.encode() * 1000
        (root / name).write_bytes(body)
        parts.append(PartRef(name, 1, len(body), len(body), zlib.crc32(body)))
    (root / "gone").unlink()
    (root / "shorter").write_bytes(b"shorter" * 999)
    (root / "longer").write_bytes(b"longer" * 1001)
    (root / "changed").write_bytes(b"changed" * 999 + b"chAnged")
    (root / "folder").unlink()
    (root / "folder").mkdir()
    return parts


def answer(running: RunningCheck) -> Damaged:
    while (damaged := running.poll()) is None:
        pass
    return damaged


@pytest.mark.spark
@pytest.mark.parametrize("task_bytes", [part_tasks.TASK_BYTES, 1])
def test_l13_a_job_finds_what_the_log_finds(
    shared_spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task_bytes: int
) -> None:
    monkeypatch.setattr(part_tasks, "TASK_BYTES", task_bytes)  # one share, or one for each part
    parts = parts_in(tmp_path)
    here = answer(CheckInDriver(FileLog(tmp_path)).begin(parts))
    found = answer(CheckInTasks(shared_spark, tmp_path).begin(parts))
    assert {*found} == {"gone", "shorter", "longer", "changed", "folder"}
    assert {p: e.as_dict() for p, e in found.items()} == {p: e.as_dict() for p, e in here.items()}
    assert found["folder"].code == "log.io" and found["gone"].code == "log.corrupt"


@pytest.mark.spark
def test_l11_a_worker_that_does_not_see_the_log_is_named(
    shared_spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = [p for p in parts_in(tmp_path) if p.path == "whole"]
    check = CheckInTasks(shared_spark, tmp_path)
    monkeypatch.setattr(part_tasks, "runs_elsewhere", lambda spark: True)  # pyright: ignore
    monkeypatch.setattr(
        part_tasks,
        "_answers",
        lambda *asked: [("10.0.0.2 (executor 5)", 0, [(0, "missing", 0)])],  # pyright: ignore
    )
    error = answer(check.begin([part]))["whole"]
    assert (error.code, error.where) == ("log.not_shared", str(tmp_path))
    assert error.message.startswith("worker 10.0.0.2 (executor 5) cannot verify")
    (tmp_path / "whole").unlink()  # nobody has it
    assert answer(check.begin([part]))["whole"].code == "log.corrupt"


def test_what_a_task_runs_needs_no_penstock(tmp_path: Path) -> None:
    """A worker's Python may lack it, or have another version."""
    import pyspark
    from pyspark import cloudpickle

    asked = [[], [(part.path, part.size, part.crc) for part in parts_in(tmp_path)]]
    task = part_tasks._task(str(tmp_path), asked)  # pyright: ignore[reportPrivateUsage]
    shipped = tmp_path / "task"
    shipped.write_bytes(cloudpickle.dumps(task))
    code = (
        "import pickle, sys; sys.path.append(sys.argv[1])\n"
        "task = pickle.load(open(sys.argv[2], 'rb')); assert task(0) == ''; print(task(1))\n"
        "assert not [name for name in sys.modules if name.startswith('penstock')]"
    )
    packages = str(Path(pyspark.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, packages, str(shipped)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    _, number, found = json.loads(done.stdout)
    assert number == 1 and [index for index, *_ in found] == [1, 2, 3, 4, 5]


class Slow:
    """A check that takes three polls."""

    def __init__(self, damaged: Damaged) -> None:
        self._damaged, self.polls = damaged, 0

    def begin(self, parts: Any) -> "Slow":
        del parts
        return self

    def poll(self) -> Damaged | None:
        self.polls += 1
        return self._damaged if self.polls == 3 else None


class Looked:
    def __init__(self) -> None:
        self.times = 0

    def look(self) -> None:
        self.times += 1

    def pause(self) -> None: ...


def test_lanes_are_looked_after_while_parts_are_verified() -> None:
    from test_preconditions import acked_one_by_one, session_of

    lanes = Looked()
    passed = Preconditions(session_of(), Slow({})).passed(acked_one_by_one(), lanes)
    assert len(passed) == 3 and lanes.times == 2


def test_l11_a_job_that_is_lost_is_an_error_of_ours(tmp_path: Path) -> None:
    class Lost:
        def range(self, *numbers: int) -> Any:
            raise RuntimeError(f"ExecutorLostFailure {numbers}")

    spark: Any = Lost()
    with pytest.raises(PenstockError) as caught:
        answer(CheckInTasks(spark, tmp_path).begin([PartRef("a", 1, 1, 1, 0)]))
    assert caught.value.code == "lane.lost" and "check of parts" in caught.value.message
