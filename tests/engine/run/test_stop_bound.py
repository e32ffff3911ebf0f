"""L11: a run that was asked to stop and waits for Java ends within a bound, as cancelled."""

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.config.home import Home
from penstock.config.load import parse_pipeline
from penstock.engine.deliver.table_loader import NoLoader
from penstock.engine.run import run, stop_bound
from penstock.engine.run import spark as run_spark
from penstock.engine.run.start import run_pipeline
from penstock.engine.run.stop_bound import StopBound
from penstock.engine.specs.observer import NullObserver
from penstock.spark.error_text import died

STUB = Path(__file__).parents[2] / "stubs" / "stub_source.py"


def test_java_is_killed_once_where_a_run_does_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_bound, "STOP_SECONDS", 0.2)
    cancel, killed = threading.Event(), threading.Event()
    with StopBound(cancel, killed.set):
        assert not killed.wait(1.5)  # nobody asked
        cancel.set()
        assert killed.wait(10)


def test_java_lives_where_the_run_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_bound, "STOP_SECONDS", 1.0)
    cancel, killed = threading.Event(), threading.Event()
    with StopBound(cancel, killed.set):
        cancel.set()
        time.sleep(0.1)
    assert not killed.wait(2)


def test_a_run_whose_load_never_returns_ends_as_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load returns once Java is killed, as a call into Java does."""
    cancel, killed = threading.Event(), threading.Event()

    def loads_for_ever(self: NoLoader, loads: Any) -> Any:
        cancel.set()
        assert killed.wait(30)
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(stop_bound, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(run_spark.RunSpark, "start_early", lambda *_: None)
    monkeypatch.setattr(run_spark.RunSpark, "open", lambda *_: None)
    monkeypatch.setattr(NoLoader, "begin", loads_for_ever)
    monkeypatch.setattr(run, "kill_java", killed.set)
    dead = died(-9, "", "spark.log")
    monkeypatch.setattr(run, "java_died", lambda *_: dead if killed.is_set() else None)
    text = (
        f"pipeline: shop\nsource: {{ use: 'airbyte:{sys.executable} {STUB}' }}\n"
        f"destination: {{ use: 'parquet:{tmp_path / 'lake'}' }}\n"
    )
    report = run_pipeline(
        parse_pipeline(text, {}), Home(tmp_path), observer=NullObserver(), cancel=cancel
    )
    assert (report.exit_code, report.status) == (7, "cancelled"), report.error
