"""L8, L9 where a source's deletes are told only while it is read: a delete is no live row.

``docs/pipeline-file.md``, columns: those for key, cursor and deletes are kept, whatever the list
says. pipelinewise-tap-postgres and -mysql have ``_sdc_deleted_at`` in no catalog: they add it to
the SCHEMA of log replication.
"""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.model.report import Report
from penstock.tables.contract import TableName

# ``fields``: metadata of fields in the catalog; ``turns``: [properties, record] in order, with
# ``_sdc_deleted_at`` in every SCHEMA.
TAP = """
KNOWN = {"id": {"type": "integer"}, "name": {"type": ["null", "string"]},
         "note": {"type": ["null", "string"]}}
DELETED = {"_sdc_deleted_at": {"type": ["null", "string"], "format": "date-time"}}
if "--discover" in sys.argv:
    root = {"table-key-properties": ["id"], "is-view": False, "schema-name": "public"}
    fields = [{"breadcrumb": ["properties", n], "metadata": m} for n, m in WORLD["fields"].items()]
    say({"streams": [{"tap_stream_id": "users", "stream": "users", "table_name": "users",
        "schema": {"type": "object", "properties": KNOWN},
        "metadata": [{"breadcrumb": [], "metadata": root}, *fields]}]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
for more, record in WORLD["turns"]:
    added = {name: {"type": ["null", "string"]} for name in more}
    schema = {"type": "object", "properties": {**KNOWN, **added, **DELETED}}
    say({"type": "SCHEMA", "stream": "users", "schema": schema, "key_properties": ["id"]})
    say({"type": "RECORD", "stream": "users", "record": record})
say({"type": "STATE", "value": {"bookmarks": {"users": {"lsn": 1}}}})
"""
GONE = {"id": 1, "_sdc_deleted_at": "2026-01-02T00:00:00Z"}
ANN, BOB = {"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def report_of(
    bench: Bench,
    *turns: Any,
    fields: Any = None,
    mode: str = "upsert",
    query: str = "",
    **said: Any,
) -> Report:
    turns = tuple(turn if isinstance(turn, tuple) else ((), turn) for turn in turns)
    bench.set(turns=turns, fields=fields or {})
    defaults = {"sync_mode": "log_based", "mode": mode, **said}
    parts = {"transforms": [{"use": "transform-sql", "config": {"query": query}}]} if query else {}
    report = bench.run(bench.connector(TAP), source={"defaults": defaults}, **parts)
    assert report.status == "succeeded", report.error
    return report


def run(bench: Bench, *turns: Any, **more: Any) -> list[dict[str, Any]]:
    """Runs the turns; the table's rows without metadata."""
    report_of(bench, *turns, **more)
    rows = bench.tables.rows.get(TableName(None, "users"), [])
    names = {"id", "name", "note", "more", "_sdc_deleted_at"}
    return [{k: v for k, v in row.items() if k in names} for row in rows]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, {"columns": ["id", "name"]}),
        ({}, {"columns": ["name", "_sdc_deleted_at"]}),  # the user knows of it, the catalog not
        ({"note": {"selected": False}}, {}),
        ({"note": {"selected-by-default": False}}, {}),
    ],
)
def test_L9_a_delete_is_a_delete_whatever_columns_are_selected(
    bench: Bench, fields: Any, said: Any
) -> None:
    rows = run(bench, ANN, BOB, GONE, fields=fields, **said)
    assert [(row["id"], row["name"]) for row in rows] == [(2, "Bob")]
    assert "note" not in rows[0]


def test_L9_a_delete_that_is_appended_is_told_from_a_row(bench: Bench) -> None:
    rows = run(bench, ANN, GONE, mode="append", columns=["id", "name"])
    assert [row["_sdc_deleted_at"] is None for row in rows] == [True, False]


def test_L9_a_query_that_leaves_out_who_is_gone_is_told_when_it_is_known(bench: Bench) -> None:
    """``plan`` cannot know it."""
    told = "its transforms leave out _sdc_deleted_at: rows that are gone"
    report = report_of(bench, ANN, GONE, query="SELECT id, name FROM input")
    assert sum(told in note for note in report.notes) == 1
    kept = report_of(bench, ANN, GONE, query="SELECT * FROM input")
    assert not [note for note in kept.notes if told in note]


def test_L8_a_column_that_comes_later_is_selected_unless_the_user_says_which_are(
    bench: Bench,
) -> None:
    deselected = {"note": {"selected-by-default": False}}
    turns = ANN, (("more",), {**BOB, "note": "n", "more": "x"})
    rows = run(bench, *turns, fields=deselected)
    assert rows[1]["more"] == "x" and "note" not in rows[1]
    assert "more" not in run(bench, *turns, columns=["id", "name"])[-1]
