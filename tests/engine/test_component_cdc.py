"""L9 where a WebAssembly component reads changes (cdc): a delete is no live row.

v4's ``source-postgres`` tells in the column ``_rb_op`` of its frames what became of a row, and
lists that column in no catalog; a delete has its key, and NULL in every other column.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from quick_runs import Bench

from penstock.errors import ConfigError
from penstock.tables.contract import TableName

sys.path.append(str(Path(__file__).parents[1] / "protocols" / "rapidbyte"))

import rapidbyte_guests

MANIFEST = {
    "id": "them/changes", "name": "Changes", "version": "1", "protocol_version": "4",
    "roles": {"source": {"supported_sync_modes": ["full_refresh", "incremental", "cdc"]}},
    "permissions": {},
}  # fmt: skip
MARK = {
    "id": 0, "kind": "source", "stream": "users", "cursor_field": "lsn",
    "cursor_value": {"type": "lsn", "value": "0/1"}, "records_processed": 3, "bytes_processed": 1,
}  # fmt: skip
CHANGES = [
    {"id": 1, "name": "Ann", "note": "x", "_rb_op": "insert"},
    {"id": 2, "name": "Bob", "note": "y", "_rb_op": "insert"},
    {"id": 1, "name": None, "note": None, "_rb_op": "delete"},
]
ONLY = {"columns": ["id", "name"]}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path, monkeypatch)
    rapidbyte_guests.lend_script(made.home.path, tmp_path / "source.wasm")
    return made


def source(bench: Bench, **said: Any) -> tuple[str, dict[str, Any]]:
    """The reference and the section of a source that sends ``CHANGES``; ``said``: to the stream."""
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(CHANGES)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream = {
        "name": "users",
        "schema": [
            {"name": n, "data_type": t, "nullable": True}
            for n, t in (("id", "Int64"), ("name", "Utf8"), ("note", "Utf8"))
        ],
        "supported_sync_modes": ["full_refresh"],
        "source_defined_primary_key": ["id"],
    }
    config = {
        "catalog": json.dumps({"streams": [stream]}).encode().hex(),
        "users": "context ; frame rows ; raw 0 mark",
        "rows": sink.getvalue().to_pybytes().hex(),
        "mark": json.dumps(MARK).encode().hex(),
    }
    chosen = {"name": "users", "sync_mode": "cdc", **said}
    section = {"config": config, "assume_manifest": MANIFEST, "streams": [chosen]}
    return str(bench.folder / "source.wasm"), section


def rows(bench: Bench) -> list[dict[str, Any]]:
    return [dict(row) for row in bench.tables.rows.get(TableName(None, "users"), [])]


@pytest.mark.parametrize("said", [{}, ONLY, {"columns": ["name", "_rb_op"]}])
def test_L9_a_delete_is_a_delete_whatever_columns_are_selected(bench: Bench, said: Any) -> None:
    use, section = source(bench, **said)
    report = bench.run(use, source=section)
    assert report.status == "succeeded", report.error
    (row,) = rows(bench)
    assert (row["id"], row["name"], row["_rb_op"]) == (2, "Bob", "insert")
    assert ("note" in row) is not bool(said)
    assert not [n for n in report.notes if "leave out" in n or "not in the schema" in n]


def test_L9_changes_that_are_appended_say_what_they_are(bench: Bench) -> None:
    use, section = source(bench, destination_sync_mode="append", **ONLY)
    assert bench.run(use, source=section).status == "succeeded"
    told = [(row["_rb_op"], row["_rb_deleted_at"] is None) for row in rows(bench)]
    assert told == [("insert", True), ("insert", True), ("delete", False)]


def test_a_source_is_asked_for_the_columns_of_its_table(bench: Bench) -> None:
    """Its ``SELECT`` knows no other."""
    use, section = source(bench, **ONLY)
    report = bench.run(use, source=section)
    log = (bench.home.run(report.run) / "log.jsonl").read_text()
    messages = [json.loads(line)["message"] for line in log.splitlines()]
    (context,) = [json.loads(m) for m in messages if m.startswith('{"')]
    assert sorted(context["selected_columns"]) == ["id", "name"]


def transformed(query: str) -> list[dict[str, Any]]:
    return [{"use": "transform-sql", "config": {"query": query}}]


def test_a_query_may_use_what_became_of_a_row(bench: Bench) -> None:
    use, section = source(bench)
    query = "SELECT id, name, _rb_deleted_at FROM input WHERE _rb_op <> 'update'"
    report = bench.run(use, source=section, transforms=transformed(query))
    assert report.status == "succeeded" and not [n for n in report.notes if "leave out" in n]
    assert bench.ids("users") == [2]


def test_a_query_that_leaves_out_who_is_gone_is_told_before_the_run(bench: Bench) -> None:
    use, section = source(bench)
    query = transformed("SELECT id, name FROM input")
    planned = bench.plan(use, source=section, transforms=query)
    assert any("leave out _rb_deleted_at: rows that are gone" in n for n in planned["notes"])
    with pytest.raises(ConfigError):
        bench.run(use, source=section, transforms=transformed("SELECT nothing FROM input"))


@pytest.mark.parametrize("mode", ["full_refresh", "incremental"])
def test_L8_a_table_that_holds_changes_is_copied_whole(bench: Bench, mode: str) -> None:
    """Such as one that a pipeline under cdc has filled: what its rows say of another table deletes
    none of them."""
    use, section = source(bench, sync_mode=mode, destination_sync_mode="append_dedup")
    table = pa.table({"id": [1, 2], "name": ["a", "b"], "_rb_op": ["delete", "insert"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    catalog = json.loads(bytes.fromhex(section["config"]["catalog"]))
    (stream,) = catalog["streams"]
    stream["schema"][-1]["name"] = "_rb_op"
    stream |= {"supported_sync_modes": [mode], "source_defined_cursor": "id"}
    mark = {**MARK, "cursor_field": "id", "cursor_value": {"type": "utf8", "value": "2"}}
    section["config"] |= {
        "catalog": json.dumps(catalog).encode().hex(),
        "rows": sink.getvalue().to_pybytes().hex(),
        "mark": json.dumps(mark).encode().hex(),
    }
    report = bench.run(use, source=section)
    assert report.status == "succeeded", report.error
    assert [(row["id"], row["_rb_op"]) for row in rows(bench)] == [(1, "delete"), (2, "insert")]
    assert not any("_rb_deleted_at" in row for row in rows(bench))
