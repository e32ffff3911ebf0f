"""A fault of ours in the middle of a run: the run ends in the ledger, with a report and its trace.

The seam is the loader; the source is a process, the store and the log are files, Spark is left out.
"""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from penstock.config.home import Home
from penstock.config.load import parse_pipeline
from penstock.engine.deliver.table_loader import NoLoader
from penstock.engine.run import run, run_all, start
from penstock.engine.run import spark as run_spark
from penstock.engine.specs.observer import NullObserver
from penstock.errors import LogError
from penstock.model.report import Report
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store

STUB = Path(__file__).parents[2] / "stubs" / "stub_source.py"
SECRET = "correct-horse-battery"
FILE = """
pipeline: shop
source:
  use: 'airbyte:{python} {stub}'
  config: {{ scenario: basic, api_key: {secret} }}
destination: {{ use: 'parquet:{lake}' }}
"""


def run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Any) -> Report:
    monkeypatch.setattr(run_spark.RunSpark, "start_early", lambda *_: None)
    monkeypatch.setattr(run_spark.RunSpark, "open", lambda *_: None)
    monkeypatch.setattr(NoLoader, "begin", broken)
    text = FILE.format(python=sys.executable, stub=STUB, lake=tmp_path / "lake", secret=SECRET)
    return start.run_pipeline(parse_pipeline(text, {}), Home(tmp_path), observer=NullObserver())


def test_a_fault_of_ours_ends_the_run_with_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: NoLoader, loads: Any) -> Any:
        raise ValueError(f"no such thing as {SECRET}")

    report = run_once(tmp_path, monkeypatch, broken)
    assert (report.status, report.exit_code) == ("failed", 70)
    assert report.error is not None and report.error["code"] == "defect.ValueError"
    assert "ValueError: no such thing as " in report.error["message"]
    assert all(line.status == "incomplete" for line in report.streams)

    folder = tmp_path / "runs" / report.run
    assert json.loads((folder / "report.json").read_text())["exit_code"] == 70
    log = (folder / "log.jsonl").read_text()
    traces = [m for m in map(json.loads, log.splitlines()) if "Traceback" in m["message"]]
    assert len(traces) == 1 and "in broken" in traces[0]["message"]
    assert SECRET not in log + json.dumps(report.error)  # L10

    store = open_store(Home(tmp_path).state_url())
    (kept,) = store.runs("shop", 10)
    assert (kept["run"], kept["status"], kept["exit_code"]) == (report.run, "failed", 70)
    store.release(store.acquire("shop", this_holder("next"), 60))  # nobody holds it any more
    store.close()


@pytest.mark.parametrize(
    ("failure", "code", "exit_code"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "spark.java_died", 5),
        (Py4JNetworkError("Answer from Java side is empty"), "spark.java_died", 5),
        (OSError(28, "No space left on device", "/x/y"), "disk.full", 6),
        (OSError(122, "Disk quota exceeded"), "disk.full", 6),
        (OSError(30, "Read-only file system", "/x/y"), "disk.read_only", 6),
        (OSError(5, "Input/output error"), "disk.failed", 6),
        (OSError(24, "Too many open files"), "config.open_files", 2),
        (RecursionError("maximum recursion depth exceeded"), "schema.too_deep", 3),
    ],
)
def test_a_failure_that_is_not_ours_is_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, code: str, exit_code: int
) -> None:
    """Java that died is no file that could not be written, and a full disk no fault of ours."""

    def broken(self: NoLoader, loads: Any) -> Any:
        raise failure

    monkeypatch.setattr(run, "DEATH_SECONDS", 0.0)
    report = run_once(tmp_path, monkeypatch, broken)
    assert report.error is not None
    assert (report.error["code"], report.exit_code) == (code, exit_code)
    assert report.error["hint"]


def test_an_endless_recursion_of_ours_is_a_defect_with_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: NoLoader, loads: Any) -> Any:
        return broken(self, loads)

    report = run_once(tmp_path, monkeypatch, broken)
    assert report.error is not None
    assert (report.error["code"], report.exit_code) == ("defect.RecursionError", 70)
    log = (tmp_path / "runs" / report.run / "log.jsonl").read_text()
    assert "in broken" in log and "Traceback" in log


def test_a_report_that_cannot_be_written_ends_the_run_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: run.Run, report: Report) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run.Run, "write_report", full)
    with pytest.raises(LogError, match="the disk is full") as caught:
        run_once(tmp_path, monkeypatch, NoLoader.begin)
    assert (caught.value.code, caught.value.exit_code) == ("disk.full", 6)
    store = open_store(Home(tmp_path).state_url())
    (kept,) = store.runs("shop", 10)
    assert kept["status"] == "succeeded"
    store.close()


def test_a_fault_before_a_run_begins_is_told_of_its_pipeline_without_secrets_L10(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError(f"no such thing as {SECRET}")

    class Heard(NullObserver):
        def log(self, level: str, origin: str, message: str) -> None:
            heard.append(message)

    heard: list[str] = []
    monkeypatch.setattr(start, "open_store_of_run", broken)
    text = FILE.format(python=sys.executable, stub=STUB, lake=tmp_path / "lake", secret="${KEY}")
    (result,) = run_all.run_all(
        {"shop": parse_pipeline(text, {"KEY": SECRET})},
        Home(tmp_path),
        observe=lambda _: nullcontext(Heard()),
    )
    assert (result.status, result.exit_code) == ("failed", 70)
    assert result.error is not None and "no such thing as " in result.error["message"]
    assert any("in broken" in line for line in heard)
    assert SECRET not in "".join(heard) + json.dumps(result.error)
