"""L6 where a tap's SCHEMA has other types than its catalog: a full refresh has one schema, which is
the one of its first row.

Singer SDK: discovery prints ``Stream.schema``, and with ``stream_maps`` the message has the mapped
one.
"""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.model.report import Report
from penstock.tables.contract import TableName

# ``turns``: [type of id, ids] in order, each ended by a state.
TAP = """
def schema_of(kind, **more):
    return {"type": "object", "properties": {"id": {"type": kind}, **more}}
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": name, "stream": name, "key_properties": [],
         "schema": schema_of(WORLD["catalog"], tags={"type": "array", "items": {}},
                             old={"type": "string"})}
        for name in ("users", "others")]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
for kind, ids in WORLD["turns"]:
    schema = schema_of(kind, tags={"type": "string"})
    say({"type": "SCHEMA", "stream": "users", "schema": schema, "key_properties": []})
    for one in ids:
        say({"type": "RECORD", "stream": "users", "record": {"id": one, "tags": "[1, 2]"}})
    say({"type": "STATE", "value": {"bookmarks": {"users": {"at": 1}}}})
schema = schema_of(WORLD["catalog"])
say({"type": "SCHEMA", "stream": "others", "schema": schema, "key_properties": []})
say({"type": "RECORD", "stream": "others", "record": {"id": 1}})
"""
MODES = ["mirror", "full_refresh_append", "full_refresh_overwrite_deduped"]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def run(bench: Bench, *turns: Any, mode: str = "mirror") -> Report:
    bench.set(catalog="integer", turns=turns)
    defaults = {"mode": mode, **({"primary_key": "id"} if "dedup" in mode else {})}
    return bench.run(bench.connector(TAP), source={"defaults": defaults})


@pytest.mark.parametrize("mode", MODES)
def test_L6_a_refresh_takes_the_types_that_come_before_its_first_row(
    bench: Bench, mode: str
) -> None:
    for _ in range(2):
        report = run(bench, ["number", []], ["string", ["a", "b"]], mode=mode)
        assert report.status == "succeeded", report.error
        assert set(bench.ids("users")) == {"a", "b"} and set(bench.ids("others")) == {1}
    row = bench.tables.rows[TableName(None, "users")][0]
    assert row["tags"] == "[1, 2]"
    assert row["old"] is None  # the catalog's column, of which nothing came


@pytest.mark.parametrize("mode", ["mirror", "full_refresh_overwrite_deduped"])
def test_L6_types_that_change_after_the_first_row_end_the_refresh(bench: Bench, mode: str) -> None:
    """Rows before and after would be one generation of two schemas."""
    report = run(bench, ["string", ["a"]], ["integer", [2]], mode=mode)
    assert report.error is not None and report.error["code"] == "schema.changed"
    assert "id (string -> integer)" in report.error["message"]
    assert bench.ids("users") == []


def test_L6_a_text_column_of_a_table_that_is_added_to_takes_numbers_as_text(bench: Bench) -> None:
    """The generation keeps one schema: a column of text stores what is sent, whatever is said."""
    report = run(bench, ["string", ["a"]], ["integer", [2]], mode="full_refresh_append")
    assert report.status == "succeeded", report.error
    assert bench.ids("users") == ["2", "a"]
    report = run(bench, ["integer", [1]], ["string", ["b"]], mode="full_refresh_append")
    assert report.status == "succeeded", report.error
    assert bench.ids("users") == ["1", "2", "a", "b"]


def test_L6_a_number_column_that_turns_to_text_ends_the_refresh_that_adds(bench: Bench) -> None:
    report = run(bench, ["integer", [1]], ["string", ["b"]], mode="full_refresh_append")
    assert report.error is not None and report.error["code"] == "schema.changed"
    assert bench.ids("users") == []
