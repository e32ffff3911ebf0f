"""The Python interface: the same engine as the command line, answers that are structs, errors of
the one tree (docs/python.md)."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

import penstock
from penstock.errors import ConfigError, Locked, SourceError

if TYPE_CHECKING:
    from conftest import Api

ONE = {"streams": 1, "records": 20}


def rows(folder: Path) -> int:
    return duckdb.sql(f"FROM read_parquet('{folder}/*.parquet')").to_arrow_table().num_rows


# -- verbs that move no data


def test_discover_lists_streams_with_their_modes(api: "Api") -> None:
    found = penstock.discover(api.source, config={"streams": 2}, home=api.home)
    assert found.names == ["s0", "s1"] and not found.open
    assert found.streams[0].sync_modes == ["full_refresh", "incremental"]
    assert "id" in found.streams[0].json_schema["properties"]


def test_check_is_true_or_false_and_says_why(api: "Api") -> None:
    assert penstock.check(api.source, home=api.home)
    failed = penstock.check(api.source, config={"scenario": "check_failed"}, home=api.home)
    assert not failed and failed.end == "source" and failed.message
    assert penstock.check(api.lake, home=api.home)


def test_plan_is_false_with_its_problems(api: "Api") -> None:
    good = penstock.plan(api.source, api.lake, config=ONE, home=api.home, mode="append")
    assert good and [s.name for s in good.streams] == ["s0"]
    assert {"id", "seq"} <= {c.name for c in good.streams[0].columns}
    bad = penstock.plan(api.source, api.lake, config=ONE, home=api.home, streams=["s9"])
    assert not bad and "s9" in bad.problems[0]


def test_keywords_are_the_options_of_the_command_line(api: "Api") -> None:
    planned = penstock.plan(
        api.source, api.lake, config=ONE, home=api.home, sync_mode="incremental",
        destination_sync_mode="append_dedup", cursor_field="seq", primary_key=["id"],
        exclude=["t*"], lanes=1, max_rejected="5%",
    )  # fmt: skip
    assert planned, planned.problems
    stream = planned.streams[0]
    assert (stream.sync_mode, stream.destination_sync_mode) == ("incremental", "append_dedup")
    assert stream.primary_key == [["id"]] and stream.cursor_field == ["seq"]
    with pytest.raises(ConfigError) as wrong:
        penstock.plan(api.source, api.lake, mode="upsurt", home=api.home)
    assert wrong.value.code == "config.option" and "upsert" in str(wrong.value.problems)
    with pytest.raises(TypeError, match="colour"):
        penstock.plan(api.source, api.lake, colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'config'"):
        penstock.plan(api.source, api.lake, konfig={})  # type: ignore[call-arg]


def test_an_unknown_pipeline_is_an_error_with_a_hint(api: "Api") -> None:
    with pytest.raises(ConfigError) as unknown:
        penstock.state("shop", home=api.home)
    assert unknown.value.code == "config.unknown_pipeline" and unknown.value.hint
    assert penstock.runs(home=api.home) == []


def test_nothing_is_imported_before_it_is_asked_for(api: "Api") -> None:
    code = (
        "import sys, penstock; before = set(sys.modules); penstock.run; "
        "print(*sorted({'pyspark', 'pyarrow', 'msgspec', 'pandas', 'duckdb'} & before)); "
        "print(*sorted({'pyspark', 'pyarrow', 'pandas', 'duckdb', 'rich'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert told.stdout == "\n\n", told


# -- runs


@pytest.mark.spark
def test_a_run_returns_its_report_and_the_store_knows_it(spark_api: "Api") -> None:
    report = spark_api.run(ONE)
    assert (report.status, report.streams[0].committed) == ("succeeded", 20)
    assert rows(spark_api.folder / "lake" / "s0") == 20
    html = report._repr_html_()
    assert "<td>s0</td><td>complete</td><td>20</td>" in html
    home = spark_api.home
    assert penstock.state("shop", home=home).streams[0].state == {"seq": 20}
    (past,) = penstock.runs("shop", home=home)
    assert (past.run, past.status, past.streams[0].read) == (report.run, "succeeded", 20)
    assert penstock.rejects("shop", home=home) == []


@pytest.mark.spark
def test_the_html_form_escapes_what_a_connector_says(spark_api: "Api") -> None:
    report = spark_api.run(ONE)
    report.notes.append("<script>alert(1)</script>")
    assert "<script>" not in report._repr_html_()


@pytest.mark.spark
def test_a_run_that_fails_raises_with_its_report(spark_api: "Api") -> None:
    with pytest.raises(SourceError) as failed:
        spark_api.run({**ONE, "crash_after": 10, "crash_trace": True})
    report = failed.value.report
    assert isinstance(report, penstock.Report)
    assert (report.status, report.exit_code) == ("failed", 4)
    (past,) = penstock.runs("shop", home=spark_api.home)
    assert past.error is not None and past.error["code"] == failed.value.code


@pytest.mark.spark
def test_a_partial_run_raises_and_what_is_complete_stays_L7(spark_api: "Api") -> None:
    with pytest.raises(penstock.PenstockError) as partial:
        spark_api.run({"scenario": "bad_stream"})
    assert partial.value.report.status == "partial"
    assert rows(spark_api.folder / "lake" / "s0") == 100


@pytest.mark.spark
def test_two_runs_at_once_in_threads(spark_api: "Api") -> None:
    """Two pipelines share one Spark; the same one twice is refused (L12)."""
    told: dict[str, object] = {}

    def work(name: str, **config: object) -> None:
        try:
            told[name] = spark_api.run({**ONE, **config}, name=name.rstrip("'"))
        except penstock.PenstockError as error:
            told[name] = error

    slow = {"steps": [{"sleep": 4}, {"records": {"stream": "s0", "to": 5}},
                      {"status": {"stream": "s0", "status": "COMPLETE"}}]}  # fmt: skip
    threads = [
        threading.Thread(target=work, args=("one",), kwargs=slow),
        threading.Thread(target=work, args=("two",)),
    ]
    for thread in threads:
        thread.start()
    threads[1].join(120)
    work("one'")
    threads[0].join(120)
    assert isinstance(told["one"], penstock.Report) and told["one"].streams[0].committed == 5
    assert isinstance(told["two"], penstock.Report) and told["two"].streams[0].committed == 20
    assert isinstance(told["one'"], Locked)


@pytest.mark.spark
def test_keep_ends_the_logs_and_reports_of_old_runs_and_no_row(spark_api: "Api") -> None:
    file = spark_api.folder / "shop.yaml"
    file.write_text(
        "pipeline: shop\nkeep: 1s\n"
        f"source: {{ use: '{spark_api.source}', config: {{ streams: 1, records: 20 }} }}\n"
        f"destination: {{ use: '{spark_api.lake}' }}\n"
    )
    first = penstock.run(file, home=spark_api.home)
    time.sleep(1.1)
    second = penstock.run(file, home=spark_api.home, full_refresh=True)
    assert [each.run for each in penstock.runs("shop", home=spark_api.home)] == [second.run]
    folders = {folder.name for folder in (spark_api.home / "runs").iterdir()}
    assert second.run in folders and first.run not in folders
    assert penstock.state("shop", home=spark_api.home).streams
    assert rows(spark_api.folder / "lake" / "s0") >= 20
