"""L10: what a lane's process has in its environment comes with its job, not from Spark's worker."""

import json
import os
import sys
from pathlib import Path

import pytest

from penstock.tasks.child_process import packed, supervise, supervise_packed

ALIVE = os.devnull  # the file of its signs of life
SAYS_ITS_ENVIRONMENT = """
import json, os, sys
from penstock.tasks.child_main import _some
def main():
    _some(1)
    sys.stdout.write(json.dumps(dict(os.environ)))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    package = tmp_path / "penstock"  # beside the real one on the path that a child is given
    package.mkdir()
    (tmp_path / "says_environment.py").write_text(SAYS_ITS_ENVIRONMENT)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return "says_environment"


def test_the_environment_of_a_job_replaces_that_of_the_worker(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_AN_EARLIER_RUN", "s3cret")
    given = {b"OF_THIS_RUN": b"\xff", b"SPARK_AUTH_SECRET": b"x", b"PATH": os.environb[b"PATH"]}
    told = json.loads(supervise_packed(module, packed(b"{}", given), ALIVE))
    assert told["OF_THIS_RUN"] == "\udcff"
    assert "OF_AN_EARLIER_RUN" not in told and "SPARK_AUTH_SECRET" not in told
    assert told["PYTHONSAFEPATH"] == "1"
    assert told["ARROW_DEFAULT_MEMORY_POOL"] == "system"
    given[b"ARROW_DEFAULT_MEMORY_POOL"] = b"mimalloc"
    told = json.loads(supervise_packed(module, packed(b"{}", given), ALIVE))
    assert told["ARROW_DEFAULT_MEMORY_POOL"] == "mimalloc"


def test_without_one_it_is_the_worker_s_own(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_WORKER", "1")
    monkeypatch.setenv("SPARK_AUTH_SECRET", "s3cret")
    for told in (supervise(module, b"{}"), supervise_packed(module, packed(b"{}", None), ALIVE)):
        answer = json.loads(told)
        assert answer["OF_THE_WORKER"] == "1" and "SPARK_AUTH_SECRET" not in answer


DECODES = """
import json, sys
from penstock.tasks.child_main import _some
from penstock.codec.decode import warm
import pyarrow as pa
def main():
    _some(1)
    warm()
    column = pa.array([1, None, 3])
    sys.stdout.write(json.dumps({
        "loaded": [n for n in ("numpy", "pandas") if sys.modules.get(n) is not None],
        "column": column.to_pylist(),
    }))
"""


def test_a_worker_process_does_not_load_numpy_and_pandas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "penstock").mkdir()
    (tmp_path / "decodes.py").write_text(DECODES)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    answer = json.loads(supervise("decodes", b"{}"))
    assert answer == {"loaded": [], "column": [1, None, 3]}
