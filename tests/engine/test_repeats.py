"""A label never claims more than the table shows: a source whose cursor is inclusive sends its last
rows again in each run, and append keeps them all (issue 34, B.4)."""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.model.report import Report

pytestmark = pytest.mark.dear


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


# A tap as the Singer SDK writes them: it compares the bookmark by >=. ``WORLD["rows"]``: its rows,
# (id, at) each; ``method``: what its catalog says of replication.
TAP = """
schema = {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "string"}}}
METHOD = WORLD.get("method", "INCREMENTAL")
entry = {"tap_stream_id": "events", "stream": "events", "schema": schema,
         "metadata": [{"breadcrumb": [], "metadata": {"selected": True,
                       "table-key-properties": WORLD.get("key", []),
                       "replication-key": "at", "valid-replication-keys": ["at"],
                       "forced-replication-method": METHOD}}]}
if "--discover" in sys.argv:
    say({"streams": [entry]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
since = (given("--state") or {}).get("bookmarks", {}).get("events", {}).get("at", "")
say({"type": "SCHEMA", "stream": "events", "schema": schema, "key_properties": WORLD.get("key", []),
     "bookmark_properties": ["at"]})
for id, at in WORLD["rows"]:
    if at >= since:
        say({"type": "RECORD", "stream": "events", "record": {"id": id, "at": at}})
        since = at
say({"type": "STATE", "value": {"bookmarks": {"events": {"at": since}}}})
"""
# The same as an Airbyte source. ``defined``: the source defines its cursor.
SOURCE = """
stream = {"name": "events", "supported_sync_modes": ["full_refresh", "incremental"],
          "json_schema": {"type": "object", "properties": {"id": {"type": "integer"},
                                                           "at": {"type": "string"}}},
          **WORLD.get("stream", {"default_cursor_field": ["at"]})}
if sys.argv[1] == "spec":
    say({"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}}); sys.exit(0)
if sys.argv[1] == "discover":
    say({"type": "CATALOG", "catalog": {"streams": [stream]}}); sys.exit(0)
name = {"stream_descriptor": {"name": "events"}}
saved = [s["stream"]["stream_state"]["at"] for s in given("--state") or []]
since = saved[0] if saved else ""
for id, at in WORLD["rows"]:
    if at >= since:
        say({"type": "RECORD", "record": {"stream": "events", "data": {"id": id, "at": at},
                                          "emitted_at": 1}})
        since = at
say({"type": "STATE", "state": {"type": "STREAM", "stream": {**name, "stream_state": {"at": since}}}})
say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1,
                                "stream_status": {**name, "status": "COMPLETE"}}})
"""  # noqa: E501
ROWS = [[number, f"2026-01-{number:02}"] for number in range(1, 12)]
APPEND = {"sync_mode": "incremental", "destination_sync_mode": "append"}


def noted(answer: Report | dict[str, Any], *words: str) -> list[str]:
    notes = answer["notes"] if isinstance(answer, dict) else answer.notes
    return [n for n in notes if all(word in n for word in ("at-least-once", *words))]


@pytest.mark.parametrize("protocol", ["singer", "airbyte"])
def test_rows_at_an_inclusive_cursor_are_labelled_at_least_once(
    bench: Bench, protocol: str
) -> None:
    """Eleven rows, thirteen after two runs without news: the plan and each report say so."""
    source = bench.connector(TAP if protocol == "singer" else SOURCE, protocol)
    bench.set(rows=ROWS)
    planned = bench.plan(source, source={"defaults": APPEND})
    assert planned["guarantee"] == "at-least-once"
    assert len(noted(planned, "events (cursor at)", "mode: upsert", "primary_key")) == 1
    for count in (11, 12, 13):
        report = bench.run(source, source={"defaults": APPEND})
        assert (report.exit_code, report.guarantee) == (0, "at-least-once")
        assert len(noted(report, "events (cursor at)")) == 1, report.notes
        assert len(bench.ids("events")) == count
    assert bench.plan(source, source={"defaults": APPEND})["guarantee"] == "at-least-once"


@pytest.mark.parametrize("protocol", ["singer", "airbyte"])
def test_one_row_per_key_stays_exactly_once(bench: Bench, protocol: str) -> None:
    source = bench.connector(TAP if protocol == "singer" else SOURCE, protocol)
    bench.set(rows=ROWS)
    keyed = {"defaults": {"mode": "upsert", "cursor_field": "at", "primary_key": "id"}}
    assert bench.plan(source, source=keyed)["guarantee"] == "exactly-once"
    for _ in range(2):
        report = bench.run(source, source=keyed)
        assert (report.guarantee, noted(report)) == ("exactly-once", [])


def test_a_full_refresh_stays_exactly_once(bench: Bench) -> None:
    tap = bench.connector(TAP)
    bench.set(rows=ROWS, method="FULL_TABLE")
    report = bench.run(tap, source={"defaults": {"destination_sync_mode": "overwrite"}})
    assert (report.exit_code, report.guarantee) == (0, "exactly-once")


def test_a_log_read_from_its_saved_position_is_labelled_at_least_once(bench: Bench) -> None:
    """tap-mongodb reads its oplog by ``$gte`` (singer-io/tap-mongodb#53): the last change comes
    in each run."""
    tap = bench.connector(TAP)
    bench.set(rows=ROWS, method="LOG_BASED")
    log_based = {"defaults": {"destination_sync_mode": "append"}}
    planned = bench.plan(tap, source=log_based)
    assert planned["streams"][0]["sync_mode"] == "cdc"
    assert planned["guarantee"] == "at-least-once"
    for count in (11, 12, 13):
        report = bench.run(tap, source=log_based)
        assert (report.exit_code, report.guarantee) == (0, "at-least-once")
        assert len(noted(report, "events (its position in the log)")) == 1, report.notes
        assert len(bench.ids("events")) == count


def test_a_position_that_only_the_source_knows_is_labelled_too(bench: Bench) -> None:
    source = bench.connector(SOURCE, "airbyte")
    bench.set(rows=ROWS, stream={"source_defined_cursor": True})
    for count in (11, 12):
        report = bench.run(source, source={"defaults": APPEND})
        assert report.guarantee == "at-least-once"
        assert len(noted(report, "the position that its source keeps")) == 1, report.notes
        assert len(bench.ids("events")) == count


def test_a_stream_that_the_source_shows_while_it_is_read_is_labelled(bench: Bench) -> None:
    """A tap without discovery: the plan knows no stream, the run does."""
    tap = bench.connector(
        'if "--discover" in sys.argv:\n'
        '    print("unrecognized arguments: --discover", file=sys.stderr); sys.exit(2)\n' + TAP
    )
    bench.set(rows=ROWS)
    report = bench.run(tap, source={"defaults": {"destination_sync_mode": "append"}})
    assert (report.exit_code, report.guarantee) == (0, "at-least-once"), report
    assert len(noted(report, "events (cursor at)")) == 1, report.notes
