"""``keep: 30d`` ends the logs and reports of old runs, and nothing that a row may still need."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.config.home import Home
from penstock.engine.log.log import FileLog
from penstock.engine.run.attempts import keep_attempt
from penstock.engine.run.old_runs import end_old_runs
from penstock.errors import ConfigError
from penstock.store.contract import Lease
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = 86400.0


class Kept:
    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.store = MemoryStore()
        self.lease: Lease = self.store.acquire("shop", this_holder("now"), 600)
        self.log = FileLog(folder / "log")

    def ran(self, run: str, days: float, *, files: bool = True, rejected: int = 0) -> Path:
        began = (NOW - timedelta(days=days)).isoformat().replace("+00:00", "Z")
        self.store.start_run(self.lease, run, began)
        report: dict[str, Any] = {
            "run": run, "status": "succeeded", "started_at": began,
            "streams": [{"name": "users", "rejected": rejected}],
        }  # fmt: skip
        self.store.finish_run(self.lease, run, report)
        folder = self.home.path / "runs" / run
        if files:
            folder = self.home.run(run)
            for name in ("log.jsonl", "report.json", "spark.log"):
                (folder / name).write_text("x")
            if rejected:
                (folder / "rejects").mkdir()
                (folder / "rejects" / "1.jsonl").write_text("a reject")
        return folder

    def end(self, days: float = 30) -> list[str]:
        return end_old_runs(self.store, self.lease, self.home, self.log, days * DAY, NOW)

    def runs(self) -> list[str]:
        return [str(report["run"]) for report in self.store.runs("shop")]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_old_runs_end_and_those_within_the_time_stay(kept: Kept) -> None:
    old = kept.ran("old", 30.1)
    young, newest = kept.ran("young", 29.9), kept.ran("newest", 0)
    assert kept.end() == ["old"] and kept.end() == []
    assert kept.runs() == ["newest", "young"]
    assert not old.exists() and (young / "log.jsonl").exists() and (newest / "log.jsonl").exists()


def test_the_newest_run_stays_however_old_it_is(kept: Kept) -> None:
    only = kept.ran("only", 400)
    assert kept.end() == [] and kept.runs() == ["only"] and (only / "log.jsonl").exists()


def test_L8_rejects_stay_and_are_found_by_their_run(kept: Kept) -> None:
    folder = kept.ran("old", 90, rejected=1)
    kept.ran("newest", 0)
    assert kept.end() == []
    assert kept.runs() == ["newest", "old"]
    assert [path.name for path in folder.rglob("*")] == ["rejects", "1.jsonl"]


def test_L8_the_run_of_another_machine_stays_if_its_report_has_rejects(kept: Kept) -> None:
    kept.ran("there", 90, files=False, rejected=2)
    kept.ran("there-without", 80, files=False)
    kept.ran("newest", 0)
    assert kept.end() == ["there-without"] and kept.runs() == ["newest", "there"]


def test_a_run_without_a_report_ends_with_its_files_and_stays_without(kept: Kept) -> None:
    """Whether it has rejects on the machine that ran it is not known here."""
    for run in ("killed", "killed-there"):
        kept.store.start_run(kept.lease, run, "2025-12-01T00:00:00Z")
    kept.store.release(kept.lease)
    kept.lease = kept.store.acquire("shop", this_holder("later"), 600)
    (kept.home.run("killed") / "log.jsonl").write_text("x")
    kept.ran("newest", 0)
    assert kept.end() == ["killed"] and kept.runs() == ["newest", "killed-there"]


def test_L5_nothing_ends_while_segments_wait(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later run copies their rejects, and may be asked for them by the name of an old run."""
    old = kept.ran("old", 90)
    kept.ran("newest", 0)
    monkeypatch.setattr(kept.log, "segments", lambda: ["a segment"])
    assert kept.end() == [] and kept.runs() == ["newest", "old"] and (old / "log.jsonl").exists()


def test_a_link_in_a_run_s_folder_is_not_followed(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    (kept.ran("old", 90) / "link").symlink_to(tmp_path / "mine")
    kept.ran("newest", 0)
    assert kept.end() == ["old"] and (tmp_path / "mine" / "file").exists()


def test_a_time_longer_than_any_date_ends_nothing(kept: Kept) -> None:
    kept.ran("old", 900)
    kept.ran("newest", 0)
    assert kept.end(days=1e9) == []


def test_old_attempts_that_failed_before_they_began_end_too(kept: Kept) -> None:
    kept.ran("newest", 0)
    for run, pipeline, days in (("a", "shop", 31), ("b", "shop", 29), ("c", "other", 31)):
        began = (NOW - timedelta(days=days)).isoformat().replace("+00:00", "Z")
        error = ConfigError("the file has a fault", code="config.invalid")
        keep_attempt(kept.home, run, pipeline, began, 0.1, error)
    assert kept.end() == []
    assert sorted(p.name for p in kept.home.runs.glob("?")) == ["b", "c"]
