"""The spans of a run: seconds that add up, and a profile that a trace viewer opens."""

import json
from pathlib import Path

import pytest

from penstock.config.home import Home
from penstock.config.load import parse_pipeline
from penstock.engine.reporting.timeline import (
    DISCOVER,
    LANE,
    LOAD,
    PREPARE,
    STAGE,
    START,
    Timeline,
    refuse_unwritable,
)
from penstock.engine.run.start import run_pipeline
from penstock.engine.specs.observer import NullObserver
from penstock.errors import ConfigError
from penstock.model.report import TimeSpent

PIPELINE = """
pipeline: p
source: {use: "airbyte:./no-such"}
destination: {use: "parquet:./lake"}
"""


def timeline() -> Timeline:
    made = Timeline()
    at = made.began

    def add(name: str, begin: float, end: float, track: str = "driver") -> None:
        made.add(name, at + begin, at + end, track=track)

    add(PREPARE, 0, 10)
    add(START, 4, 9)
    add(LANE, 10, 20, "lane 0")
    add(STAGE, 10, 12, "lane 0")
    add(LANE, 12, 22, "lane 1")
    add(LOAD, 15, 18, "load")
    add(LOAD, 21, 25, "load")
    return made


def test_the_seconds_of_a_report_add_up_to_the_runs() -> None:
    spent = TimeSpent(install=1.0, start=5.0, extract=7.5, source_wait=5.0, decode=2.0)
    timeline().settle(spent, 27.0)
    assert spent == TimeSpent(
        install=1.0, prepare=4.0, start=5.0, stage=2.0, lane=2.5, extract=7.5, source_wait=5.0,
        decode=2.0, load=7.0, beside=4.0, finish=2.0, tail=5.0,
    )  # fmt: skip
    whole = spent.install + spent.prepare + spent.start + spent.stage + spent.lane
    assert whole + spent.extract + spent.load - spent.beside + spent.finish == 27.0


def test_what_a_run_waits_for_a_discovery_is_a_row_of_its_own() -> None:
    """Before the read it is no preparation; after a lane's connector has ended, no lane."""
    made = Timeline()
    for name, begin, end in (
        (PREPARE, 0, 6),
        (DISCOVER, 1, 3),
        (START, 6, 8),
        (LANE, 8, 15),
        (DISCOVER, 12, 15),
        (LOAD, 15, 17),
    ):
        made.add(name, made.began + begin, made.began + end, track=name)
    spent = TimeSpent(start=2.0, extract=3.0)
    made.settle(spent, 18.0)
    assert spent == TimeSpent(
        prepare=4.0, discover=5.0, start=2.0, lane=1.0, extract=3.0, load=2.0, finish=1.0, tail=3.0
    )


def test_a_run_that_ended_early_has_no_seconds_but_those_it_took() -> None:
    spent = TimeSpent()
    Timeline().settle(spent, 0.5)
    assert spent == TimeSpent(finish=0.5)


def test_a_profile_is_trace_events(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    timeline().write(file, "R1")
    events = json.loads(file.read_bytes())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(names.values()) == ["driver", "lane 0", "lane 1", "load"]
    spans = [e for e in events if e["ph"] == "X"]
    assert all({"name", "pid", "tid", "ts", "dur"} <= e.keys() for e in spans)
    lane = next(e for e in spans if names[e["tid"]] == "lane 1")
    assert (lane["name"], lane["ts"], lane["dur"]) == ("lane", 12_000_000, 10_000_000)
    assert [e["ts"] for e in spans] == sorted(e["ts"] for e in spans)


@pytest.mark.parametrize("name", ["no/profile.json", "."])
def test_a_profile_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, name: str
) -> None:
    home = tmp_path / "home"
    pipeline = parse_pipeline(PIPELINE, {})
    with pytest.raises(ConfigError) as refused:
        run_pipeline(pipeline, Home(home), observer=NullObserver(), profile=tmp_path / name)
    assert refused.value.code == "config.profile"
    assert not home.exists()


def test_a_profile_that_can_be_written_leaves_nothing_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text("kept")
    refuse_unwritable(tmp_path / "profile.json")
    refuse_unwritable(tmp_path / "kept.json")
    assert [p.name for p in tmp_path.iterdir()] == ["kept.json"]
    assert (tmp_path / "kept.json").read_text() == "kept"
