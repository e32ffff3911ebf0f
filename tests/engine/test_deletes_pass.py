"""A delete passes every filter and rule with its key, mark and cursor alone, where deletes are
carried out; ``plan`` says where a query cannot let it pass (issue 35, B2).

A change data capture source sends a delete with its key only: a filter by any other column would
stop it, and the row would stay for ever.
"""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.model.report import Report
from penstock.tables.contract import TableName

pytestmark = pytest.mark.dear

TAP = """
KNOWN = {"id": {"type": "integer"}, "v": {"type": ["null", "string"]},
         "n": {"type": ["null", "integer"]},
         "_sdc_deleted_at": {"type": ["null", "string"], "format": "date-time"}}
if "--discover" in sys.argv:
    root = {"table-key-properties": ["id"], "replication-method": WORLD["method"],
            "valid-replication-keys": ["n"]}
    say({"streams": [{"tap_stream_id": "users", "stream": "users",
        "schema": {"type": "object", "properties": KNOWN},
        "metadata": [{"breadcrumb": [], "metadata": root}]}]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
say({"type": "SCHEMA", "stream": "users", "key_properties": ["id"],
     "schema": {"type": "object", "properties": KNOWN}})
for record in WORLD["records"]:
    say({"type": "RECORD", "stream": "users", "record": record})
say({"type": "STATE", "value": {"bookmarks": {"users": {"lsn": 1}}}})
"""
AIRBYTE = """
KNOWN = {"id": {"type": "integer"}, "v": {"type": ["null", "string"]},
         "n": {"type": ["null", "integer"]},
         "_ab_cdc_deleted_at": {"type": ["null", "string"]}}
STREAM = {"name": "users", "json_schema": {"type": "object", "properties": KNOWN},
    "supported_sync_modes": ["full_refresh", "incremental"], "source_defined_cursor": True,
    "source_defined_primary_key": [["id"]]}
verb = sys.argv[1]
if verb == "spec":
    say({"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}})
elif verb == "check":
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif verb == "discover":
    say({"type": "CATALOG", "catalog": {"streams": [STREAM]}})
else:
    for record in WORLD["records"]:
        data = {k.replace("_sdc", "_ab_cdc"): v for k, v in record.items()}
        say({"type": "RECORD", "record": {"stream": "users", "data": data, "emitted_at": 1}})
    one = {"stream_descriptor": {"name": "users"}, "stream_state": {"lsn": 1}}
    say({"type": "STATE", "state": {"type": "STREAM", "stream": one}})
    status = {"stream_descriptor": {"name": "users"}, "status": "COMPLETE"}
    trace = {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": status}
    say({"type": "TRACE", "trace": trace})
"""
ANN = {"id": 1, "v": "Ann", "n": 1}
BOB = {"id": 2, "v": "Bob", "n": 2}
GONE = {"id": 1, "_sdc_deleted_at": "2026-01-02T00:00:00Z"}
NOT_NULL = {"use": "transform-sql", "config": {"query": "SELECT * FROM input WHERE v IS NOT NULL"}}
RULE = {"use": "transform-validate", "config": {"rules": [{"assert_not_null": "v"}]}}
UNIQUE = {"use": "transform-validate", "config": {"rules": [{"assert_unique": "id"}]}}


def sql(query: str) -> dict[str, Any]:
    return {"use": "transform-sql", "config": {"query": query}}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def run(
    bench: Bench,
    *records: dict[str, Any],
    transforms: list[Any],
    source: str = TAP,
    mode: str = "upsert",
    method: str = "LOG_BASED",
    **parts: Any,
) -> Report:
    bench.set(records=records, method=method)
    protocol = "singer" if source is TAP else "airbyte"
    defaults = {"mode": mode, "sync_mode": "incremental" if source is AIRBYTE else method.lower()}
    report = bench.run(
        bench.connector(source, protocol),
        source={"defaults": defaults},
        transforms=transforms,
        **parts,
    )
    assert report.status == "succeeded", report.error
    return report


def rows(bench: Bench) -> list[tuple[int, Any, bool]]:
    """(id, v, whether it is marked), in order."""
    found = bench.tables.rows.get(TableName(None, "users"), [])
    marks = ("_sdc_deleted_at", "_ab_cdc_deleted_at")
    return sorted(
        (row["id"], row.get("v"), any(row.get(mark) is not None for mark in marks)) for row in found
    )


def counts(report: Report) -> tuple[int, int, int, int]:
    (s,) = report.streams
    return s.read, s.committed, s.rejected, s.filtered


@pytest.mark.parametrize("source", [TAP, AIRBYTE], ids=["singer", "airbyte"])
@pytest.mark.parametrize(
    "chain",
    [[NOT_NULL], [RULE], [UNIQUE], [NOT_NULL, RULE, sql("SELECT *, upper(v) AS big FROM input")]],
    ids=["filter", "rule", "unique", "all"],
)
def test_L9_a_delete_with_its_key_only_passes(bench: Bench, source: str, chain: list[Any]) -> None:
    report = run(bench, ANN, BOB, GONE, transforms=chain, source=source)
    assert rows(bench) == [(2, "Bob", False)]
    assert counts(report) == (3, 3, 0, 0)


def test_L9_a_delete_passes_a_query_that_gives_every_row_a_value(bench: Bench) -> None:
    """The delete has none in such a column; it is known as never NULL no more."""
    chain = [sql("SELECT *, 'x' AS origin FROM input WHERE v IS NOT NULL")]
    run(bench, ANN, BOB, transforms=chain)
    report = run(bench, GONE, transforms=chain)
    assert rows(bench) == [(2, "Bob", False)]
    assert counts(report) == (1, 1, 0, 0)


@pytest.mark.parametrize("policy", ["fail", "skip", "dlq"])
def test_L9_a_delete_breaks_no_rule_whatever_becomes_of_broken_rows(
    bench: Bench, policy: str
) -> None:
    to = {"use": "parquet", "config": {"path": "lake"}, "on_data_error": policy}
    run(bench, ANN, BOB, GONE, transforms=[RULE], destination=to)
    assert rows(bench) == [(2, "Bob", False)]


def test_L9_a_row_that_came_back_is_there(bench: Bench) -> None:
    """The order of the rows of a key is kept, also where a rule tells repeated values."""
    run(bench, ANN, GONE, {**ANN, "v": "Anna"}, BOB, transforms=[NOT_NULL])
    assert rows(bench) == [(1, "Anna", False), (2, "Bob", False)]


def test_a_delete_that_is_appended_is_a_row_like_others(bench: Bench) -> None:
    report = run(bench, ANN, BOB, GONE, transforms=[NOT_NULL], mode="append")
    assert rows(bench) == [(1, "Ann", False), (2, "Bob", False)]
    assert counts(report) == (3, 2, 0, 1)


def test_a_delete_by_cursor_keeps_its_cursor(bench: Bench) -> None:
    """An older row that comes later does not bring the deleted one back in this load."""
    gone = {**GONE, "n": 5}
    run(bench, ANN, gone, {**ANN, "n": 4}, BOB, transforms=[NOT_NULL], method="INCREMENTAL")
    assert rows(bench) == [(2, "Bob", False)]


@pytest.mark.parametrize("chain", [[NOT_NULL], [RULE], []], ids=["filter", "rule", "none"])
def test_a_soft_delete_keeps_the_columns_of_its_row(bench: Bench, chain: list[Any]) -> None:
    to = {"use": "parquet", "config": {"path": "lake"}, "deletes": "soft"}
    run(bench, ANN, BOB, transforms=chain, destination=to)
    run(bench, GONE, transforms=chain, destination=to)
    assert rows(bench) == [(1, "Ann", True), (2, "Bob", False)]


def test_a_delete_that_a_filter_stops_brings_none_of_its_columns(bench: Bench) -> None:
    """What the user filters out is in no column of a row that is marked."""
    to = {"use": "parquet", "config": {"path": "lake"}, "deletes": "soft"}
    filter = [sql("SELECT * FROM input WHERE v <> 'secret'")]
    run(bench, ANN, BOB, transforms=filter, destination=to)
    run(bench, {**GONE, "v": "secret"}, {**GONE, "id": 2, "v": "Bo"}, transforms=filter,
        destination=to)  # fmt: skip
    assert rows(bench) == [(1, "Ann", True), (2, "Bo", True)]


NOTE = "deletes the row of its key"


@pytest.mark.parametrize(
    ("query", "noted"),
    [
        ("SELECT * FROM input WHERE v IS NOT NULL ORDER BY id LIMIT 9", False),
        ("SELECT id, upper(v) AS v, _sdc_deleted_at FROM input WHERE n > 1", False),
        ("SELECT id + 1000 AS id, v, _sdc_deleted_at FROM input WHERE v IS NOT NULL", True),
        ("SELECT id, max(v) AS v, max(_sdc_deleted_at) AS _sdc_deleted_at FROM input GROUP BY id",
         True),
        ("SELECT DISTINCT * FROM input", True),
    ],
)  # fmt: skip
def test_plan_says_where_a_query_may_stop_a_delete(bench: Bench, query: str, noted: bool) -> None:
    bench.set(records=[], method="LOG_BASED")
    use = bench.connector(TAP)
    defaults = {"mode": "upsert", "sync_mode": "log_based"}
    plan = bench.plan(use, source={"defaults": defaults}, transforms=[sql(query)])
    assert any(NOTE in note for note in plan["notes"]) == noted
    report = run(bench, ANN, BOB, GONE, transforms=[sql(query)])
    assert any(NOTE in note for note in report.notes) == noted


def test_nothing_is_noted_of_rows_that_are_appended(bench: Bench) -> None:
    report = run(bench, ANN, transforms=[sql("SELECT DISTINCT * FROM input")], mode="append")
    assert not any(NOTE in note for note in report.notes)
