"""L6: exit code 0 does not complete a stream of which the source showed nothing, or of which it
logged that it failed (issue 34, B.6). Whole runs; rows decided before."""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.errors import ConfigError
from penstock.model.report import Report

pytestmark = pytest.mark.dear

OVERWRITE = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
APPEND = {"sync_mode": "incremental", "destination_sync_mode": "append"}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def upto(number: int) -> list[int]:
    return list(range(1, number + 1))


def statuses(report: Report) -> dict[str, str]:
    return {s.name: s.status for s in report.streams}


def noted(report: Report, *words: str) -> str:
    found = [n for n in report.notes if all(word in n for word in words)]
    assert len(found) == 1, (words, report.notes)
    return found[0]


# A tap as many are written: each stream in a try, an error goes to stderr and the next stream is
# read. ``streams``: name -> rows; ``fails``: those that raise before their SCHEMA; ``late``: those
# that raise after a row; ``bare``: no SCHEMA before the rows; ``marks``: a STATE names all streams.
TAP = """
schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
names, fails, marks = WORLD["streams"], WORLD.get("fails", []), {}
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": n, "stream": n, "schema": schema, "key_properties": ["id"],
                      **WORLD.get("catalog", {})} for n in names]})
    sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
saved = (given("--state") or {}).get("bookmarks", {})
for name, count in names.items():
    marks[name] = {"id": saved.get(name, {}).get("id", 0)}
    try:
        if name in fails: raise RuntimeError(f"403 Forbidden for {name}")
        if name not in WORLD.get("bare", []):
            say({"type": "SCHEMA", "stream": name, "schema": schema, "key_properties": ["id"]})
        for id in range(marks[name]["id"] + 1, count + 1):
            say({"type": "RECORD", "stream": name, "record": {"id": id}})
            if WORLD.get("marks"): marks[name] = {"id": id}
        if WORLD.get("version"):
            say({"type": "ACTIVATE_VERSION", "stream": name, "version": 1})
    except RuntimeError as e:
        print(f"ERROR {name}: {e}", file=sys.stderr)
    if WORLD.get("marks"): say({"type": "STATE", "value": {"bookmarks": marks}})
if WORLD.get("chatter"): say({"type": "STATE", "value": {}})
"""


def test_L6_a_tap_that_logs_an_error_of_one_stream_does_not_empty_its_table(bench: Bench) -> None:
    tap = bench.connector(TAP)
    modes = {"defaults": OVERWRITE}
    bench.set(streams={"orders": 3, "users": 5})
    assert bench.run(tap, source=modes).exit_code == 0
    bench.set(streams={"orders": 4, "users": 6}, fails=["users"])
    report = bench.run(tap, source=modes)
    assert (report.status, report.exit_code) == ("partial", 1)
    assert statuses(report) == {"orders": "complete", "users": "incomplete"}
    assert (bench.ids("orders"), bench.ids("users")) == (upto(4), upto(5))
    noted(report, "users", "no SCHEMA")
    error = report.error or {}
    assert error["code"] == "source.incomplete"
    assert "users" in error["message"] and "orders" not in error["message"]
    assert "--exclude" in error["hint"]
    bench.set(streams={"orders": 4, "users": 7})
    assert bench.run(tap, source=modes).exit_code == 0
    assert bench.ids("users") == upto(7)


def test_L6_the_only_stream_of_a_tap_is_no_exception(bench: Bench) -> None:
    """Also where the tap says something: an empty state, or an ACTIVATE_VERSION."""
    tap = bench.connector(TAP)
    modes = {"defaults": OVERWRITE}
    bench.set(streams={"users": 5})
    assert bench.run(tap, source=modes).exit_code == 0
    for more in ({"chatter": True}, {"marks": True}):
        bench.set(streams={"users": 6}, fails=["users"], **more)
        report = bench.run(tap, source=modes)
        assert (report.status, report.exit_code) == ("failed", 4)
        assert (report.error or {})["code"] == "source.incomplete"
        assert statuses(report) == {"users": "incomplete"}
        assert bench.ids("users") == upto(5)
    bench.set(streams={"users": 2}, bare=["users"], version=True)
    report = bench.run(tap, source=modes)
    assert statuses(report) == {"users": "incomplete"}
    assert bench.ids("users") == upto(5)


def test_L6_a_schema_without_rows_publishes_an_empty_table(bench: Bench) -> None:
    tap = bench.connector(TAP)
    modes = {"defaults": OVERWRITE}
    bench.set(streams={"orders": 3, "users": 5})
    assert bench.run(tap, source=modes).exit_code == 0
    bench.set(streams={"orders": 3, "users": 0})
    report = bench.run(tap, source=modes)
    assert (report.status, statuses(report)["users"]) == ("succeeded", "complete")
    assert (bench.ids("orders"), bench.ids("users")) == (upto(3), [])


def test_L7_an_incomplete_increment_keeps_its_rows_and_state(bench: Bench) -> None:
    tap = bench.connector(TAP)
    modes = {"defaults": {**APPEND, "cursor_field": "id"}}
    bench.set(streams={"orders": 3, "users": 5}, marks=True)
    assert bench.run(tap, source=modes).exit_code == 0
    bench.set(streams={"orders": 4, "users": 6}, marks=True, fails=["users"])
    report = bench.run(tap, source=modes)
    assert (report.exit_code, statuses(report)["users"]) == (1, "incomplete")
    (state,) = bench.states()
    assert '"orders":{"id":4}' in state.blob.replace(" ", "")
    bench.set(streams={"orders": 4, "users": 6}, marks=True)
    assert bench.run(tap, source=modes).exit_code == 0
    assert (bench.ids("orders"), bench.ids("users")) == (upto(4), upto(6))


# An Airbyte source: for each stream of the catalog the messages of ``script``: a number (records up
# to it), a status, or [level, text] of a LOG; then those of ``end``, TRACE ERROR too.
SOURCE = """
names = WORLD["streams"]
if sys.argv[1] == "spec":
    say({"type": "SPEC", "spec": {"connectionSpecification": {"type": "object", "properties": {
        "token": {"type": "string", "airbyte_secret": True}}}}})
    sys.exit(0)
if sys.argv[1] == "discover":
    say({"type": "CATALOG", "catalog": {"streams": [
        {"name": n, "supported_sync_modes": ["full_refresh", "incremental"],
         "source_defined_cursor": True,
         "json_schema": {"type": "object", "properties": {"id": {"type": "integer"}}}}
        for n in names]}})
    sys.exit(0)
saved = {s["stream"]["stream_descriptor"]["name"]: s["stream"]["stream_state"]["id"]
         for s in given("--state") or []}
def play(name, item):
    if isinstance(item, int):
        for id in range(saved.get(name, 0) + 1, item + 1):
            say({"type": "RECORD", "record": {"stream": name, "data": {"id": id}, "emitted_at": 1}})
        if WORLD.get("states"):
            say({"type": "STATE", "state": {"type": "STREAM", "stream": {
                "stream_descriptor": {"name": name}, "stream_state": {"id": item}}}})
    elif isinstance(item, list):
        say({"type": "LOG", "log": {"level": item[0], "message": item[1]}})
    elif item == "TRACE":
        say({"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1,
                                        "error": {"message": "no access", "stream_descriptor": {"name": name}}}})
    elif item.startswith("stderr"):
        print(item, file=sys.stderr)
    else:
        say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": {
            "stream_descriptor": {"name": name}, "status": item}}})
for name, script in names.items():
    for item in script: play(name, item)
"""  # noqa: E501
GOOD = {"orders": [3], "users": [5]}
FAILED = ["ERROR", "users: 403 Client Error\nTraceback ..."]


@pytest.mark.parametrize("level", ["ERROR", "FATAL"])
@pytest.mark.parametrize("begun", [[], ["STARTED", "RUNNING"]])
def test_L6_an_error_in_the_log_and_no_status_leave_tables_as_they_were(
    bench: Bench, level: str, begun: list[str]
) -> None:
    source = bench.connector(SOURCE, "airbyte")
    modes = {"defaults": OVERWRITE}
    bench.set(streams=GOOD)
    assert bench.run(source, source=modes).exit_code == 0
    bench.set(streams={"orders": [*begun, 4], "users": [*begun, [level, FAILED[1]]]})
    report = bench.run(source, source=modes)
    assert (report.status, report.exit_code) == ("failed", 4)
    assert statuses(report) == {"orders": "incomplete", "users": "incomplete"}
    assert (bench.ids("orders"), bench.ids("users")) == (upto(3), upto(5))
    note = noted(report, "orders, users", "logged an error", "users: 403 Client Error")
    assert "Traceback" not in note
    assert "complete_on: exit" in (report.error or {})["hint"]


def test_L6_complete_on_exit_trusts_the_exit_code_and_the_note_names_it(bench: Bench) -> None:
    source = bench.connector(SOURCE, "airbyte")
    modes = {"defaults": OVERWRITE, "complete_on": "exit"}
    bench.set(streams={"orders": [4], "users": [FAILED, FAILED, 2]})
    report = bench.run(source, source=modes)
    assert (report.status, report.exit_code) == ("succeeded", 0)
    assert (bench.ids("orders"), bench.ids("users")) == (upto(4), upto(2))
    noted(report, "orders, users", "2 errors", "403", "complete_on: exit")
    bench.set(streams={"orders": [4], "users": [FAILED, 2, "INCOMPLETE"]})  # a status still decides
    report = bench.run(source, source=modes)
    assert statuses(report) == {"orders": "incomplete", "users": "incomplete"}


@pytest.mark.parametrize("item", [["WARN", "403"], ["INFO", "ERROR"], "stderr ERROR 403"])
def test_L6_other_lines_are_no_errors(bench: Bench, item: Any) -> None:
    """Exit code 0 decides: also of a stream of which nothing came."""
    source = bench.connector(SOURCE, "airbyte")
    bench.set(streams=GOOD)
    assert bench.run(source, source={"defaults": OVERWRITE}).exit_code == 0
    bench.set(streams={"orders": [4], "users": [item]})
    report = bench.run(source, source={"defaults": OVERWRITE})
    assert (report.status, report.exit_code) == ("succeeded", 0)
    assert (bench.ids("orders"), bench.ids("users")) == (upto(4), [])


def test_L6_complete_after_an_error_is_believed_with_a_warning(bench: Bench) -> None:
    """The declarative CDK: a page of HTML with 200 is logged, and the stream ends COMPLETE."""
    source = bench.connector(SOURCE, "airbyte")
    bench.set(
        streams={
            "orders": ["STARTED", 3, "COMPLETE"],
            "users": ["STARTED", 10, FAILED, ["ERROR", "again"], "COMPLETE"],
            "visits": ["STARTED", 1, "COMPLETE"],
        }
    )
    report = bench.run(source, source={"defaults": OVERWRITE})
    assert (report.status, report.exit_code) == ("succeeded", 0)
    assert bench.ids("users") == upto(10)
    note = noted(report, "2 errors", "403 Client Error", "COMPLETE")
    assert note.startswith("users: ")


def test_L6_a_warning_names_every_stream_that_may_be_meant(bench: Bench) -> None:
    """No stream was begun, or two were: the error may be any one's. A stream without a status among
    others that have one is incomplete, as before."""
    source = bench.connector(SOURCE, "airbyte")
    bench.set(streams={"orders": [FAILED, 3, "COMPLETE"], "users": [5, "COMPLETE"], "visits": [1]})
    report = bench.run(source, source={"defaults": OVERWRITE})
    assert report.exit_code == 1
    assert statuses(report)["visits"] == "incomplete" and bench.ids("visits") == []
    assert noted(report, "COMPLETE", "rows may be missing").startswith("orders, users: ")
    noted(report, "visits", "no status confirms")


def test_L7_an_airbyte_increment_in_doubt_keeps_rows_and_state(bench: Bench) -> None:
    source = bench.connector(SOURCE, "airbyte")
    modes = {"defaults": APPEND}
    bench.set(streams={"orders": [3], "users": [FAILED, 2]}, states=True)
    report = bench.run(source, source=modes)
    assert (report.exit_code, statuses(report)["users"]) == (4, "incomplete")
    assert (bench.ids("orders"), bench.ids("users")) == (upto(3), upto(2))
    bench.set(streams={"orders": [3], "users": [6]}, states=True)
    assert bench.run(source, source=modes).exit_code == 0
    assert (bench.ids("orders"), bench.ids("users")) == (upto(3), upto(6))


def test_L6_a_trace_error_and_exit_code_0_complete_nothing(bench: Bench) -> None:
    source = bench.connector(SOURCE, "airbyte")
    bench.set(streams=GOOD)
    assert bench.run(source, source={"defaults": OVERWRITE}).exit_code == 0
    bench.set(streams={"orders": [4], "users": ["TRACE"]})
    report = bench.run(source, source={"defaults": OVERWRITE, "complete_on": "exit"})
    assert report.exit_code == 4
    assert (bench.ids("orders"), bench.ids("users")) == (upto(3), upto(5))


def test_L10_the_error_in_a_note_is_masked(bench: Bench) -> None:
    source = bench.connector(SOURCE, "airbyte")
    bench.set(streams={"users": ["STARTED", ["ERROR", "bad token s3cr3t-value-9"], "COMPLETE"]})
    config = {"token": "s3cr3t-value-9"}
    report = bench.run(source, source={"defaults": OVERWRITE, "config": config})
    note = noted(report, "logged an error")
    assert "bad token" in note and "s3cr3t" not in note


def test_complete_on_is_a_key_of_airbyte_sources(bench: Bench) -> None:
    with pytest.raises(ConfigError) as refused:
        bench.plan(bench.connector(SOURCE, "airbyte"), source={"complete_on": "never"})
    assert "complete_on" in str(refused.value.problems or refused.value.message)
