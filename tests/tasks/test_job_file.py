"""L10: a job's passwords are in no file in clear, none that others read, and in no Spark task."""

import stat
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import LogError
from penstock.tasks import spark_job
from penstock.tasks.job_file import put_job, remove_job, take_job

JOB = b'{"config": {"password": "correct-horse-battery"}}'


def test_a_job_comes_back_from_its_file_and_key(tmp_path: Path) -> None:
    key = put_job(tmp_path / "run", JOB)
    file = Path(key.path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert b"horse" not in file.read_bytes()
    assert not any(b"horse" in bytes(str(half), "latin-1") for half in key)
    assert take_job(key) == JOB
    assert take_job(key) == JOB, "a retried task is refused by its claim, not here"
    remove_job(key)
    with pytest.raises(LogError, match="is over"):
        take_job(key)


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b[:-1] + bytes([b[-1] ^ 1])])
def test_a_changed_file_starts_nothing(tmp_path: Path, change: Any) -> None:
    """Who may write there could else change the command that is run."""
    key = put_job(tmp_path, JOB)
    file = Path(key.path)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(LogError) as caught:
        take_job(key)
    assert caught.value.code == "log.corrupt"


class _Column:
    def __call__(self, _: str) -> "_Column":
        return self

    def asNondeterministic(self) -> "_Column":
        return self


class _Frame:
    def range(self, *_: int) -> "_Frame":
        return self

    def select(self, _: object) -> "_Frame":
        return self

    def collect(self) -> list[list[str]]:
        raise RuntimeError("the task was lost")


def test_what_spark_is_given_holds_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pickled as PySpark pickles it; its file is gone once the job has ended, however it ended."""
    from pyspark import cloudpickle
    from pyspark.sql import functions

    shipped: list[bytes] = []

    def udf(task: object, *_: object, **__: object) -> _Column:
        shipped.append(cloudpickle.dumps(task))
        return _Column()

    monkeypatch.setattr(functions, "udf", udf)
    spark: Any = _Frame()
    with pytest.raises(RuntimeError):
        spark_job.on_spark(spark, tmp_path, True)("some.module", JOB)
    assert shipped and b"some.module" in shipped[0]
    assert b"horse" not in shipped[0]
    assert list(tmp_path.iterdir()) == []
