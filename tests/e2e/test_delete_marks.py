"""L9: which rows a delete mark removes, through connectors of several protocols, in both formats.

From public reports: pipelinewise pull request #2 (`...+00:00+00:00` as `_sdc_deleted_at`),
airbyte#8830 (marks that are not honoured), pipelinewise-target-snowflake#275 and dlt#4165 (a delete
with the key only empties the row that it marks).
"""

import sys
from collections.abc import Callable
from typing import Any

import deltalake
import duckdb
import pytest
from pipelines import Ran, Site

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TAP = """
import json, sys
stream = {"tap_stream_id": "t", "stream": "t", "schema": SCHEMA, "metadata": [{"breadcrumb": [],
    "metadata": {"selected": True, "table-key-properties": ["id"],
                 "replication-method": "LOG_BASED", "forced-replication-method": "LOG_BASED"}}]}
if "--discover" in sys.argv:
    print(json.dumps({"streams": [stream]}))
elif "--about" not in sys.argv:
    print(json.dumps({"type": "SCHEMA", "stream": "t", "schema": SCHEMA, "key_properties": ["id"]}))
    for r in RECORDS:
        print(json.dumps({"type": "RECORD", "stream": "t", "record": r}))
    print(json.dumps({"type": "STATE", "value": {"bookmarks": {"t": {"lsn": len(RECORDS)}}}}))
"""
AIR = """
import json, sys
def out(**m): print(json.dumps(m), flush=True)
stream = {"name": "t", "json_schema": SCHEMA, "source_defined_primary_key": [["id"]],
          "supported_sync_modes": ["full_refresh", "incremental"], "source_defined_cursor": True,
          "default_cursor_field": ["lsn"]}
if sys.argv[1] == "spec":
    out(type="SPEC", spec={"connectionSpecification": {"type": "object", "properties": {}}})
elif sys.argv[1] == "check":
    out(type="CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED"})
elif sys.argv[1] == "discover":
    out(type="CATALOG", catalog={"streams": [stream]})
else:
    for r in RECORDS:
        out(type="RECORD", record={"stream": "t", "data": r, "emitted_at": 1700000000000})
    out(type="STATE", state={"type": "STREAM", "stream": {"stream_descriptor": {"name": "t"},
        "stream_state": {"lsn": len(RECORDS)}}})
    out(type="TRACE", trace={"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status": {
        "stream_descriptor": {"name": "t"}, "status": "COMPLETE"}})
"""
MARKS = {"singer": "_sdc_deleted_at", "airbyte": "_ab_cdc_deleted_at"}
TIME = {"type": ["null", "string"], "format": "date-time"}
COLUMNS = {"id": {"type": "integer"}, "name": {"type": ["null", "string"]},
           "lsn": {"type": ["null", "integer"]}}  # fmt: skip
Row = dict[str, Any]


class Marked:
    """A pipeline whose source sends rows of a stream ``t`` with a delete mark of some type."""

    def __init__(self, here: Site, protocol: str, mark: Row | None, **more: Any) -> None:
        self.here, self.protocol, self.mark = here, protocol, MARKS[protocol]
        properties = {**COLUMNS, **more}
        if mark is not None:
            properties[self.mark] = mark
        self.schema = {"type": "object", "properties": properties}

    def run(self, *records: Row, **sections: Any) -> Ran:
        script = self.here.folder / "source.py"
        body = TAP if self.protocol == "singer" else AIR
        script.write_text(f"SCHEMA = {self.schema!r}\nRECORDS = {list(records)!r}\n{body}")
        return self.here.run(use=f"{self.protocol}:{sys.executable} {script}", **sections)

    def send(self, *records: Row, **sections: Any) -> Ran:
        done = self.run(*records, **sections)
        assert done.status == "succeeded", done.error
        return done

    def rows(self) -> dict[int, Row]:
        folder = self.here.lake / "t"
        if self.here.format == "delta":
            arrow = deltalake.DeltaTable(str(folder)).to_pyarrow_table()
        else:
            files = f"read_parquet('{folder}/*.parquet', union_by_name = true)"
            arrow = duckdb.connect().sql(f"SELECT * FROM {files}").to_arrow_table()
        return {row["id"]: row for row in arrow.to_pylist()}


def live(*ids: int, lsn: int | None = 1, **more: Any) -> list[Row]:
    return [{"id": i, "name": f"n{i}", "lsn": lsn, **more} for i in ids]


@pytest.mark.parametrize(("protocol", "format"), [("singer", "parquet"), ("airbyte", "delta")])
def test_l9_a_mark_that_is_no_time_deletes_where_it_is_declared_one(
    site: Callable[..., Site], format: str, protocol: str
) -> None:
    stream = Marked(site(format), protocol, TIME)
    stream.send(*live(1, 2, 3, 4, 5, 6, 7))
    odd = ["2018-11-22T12:51:30+00:00+00:00", "Thu Nov 22 2018 12:51:30 GMT", 1542891090, "", False,
           "0000-00-00 00:00:00"]  # fmt: skip
    rows = [{"id": i, "lsn": 2, stream.mark: mark} for i, mark in enumerate(odd, 1)]
    done = stream.send(*rows)
    found = stream.rows()
    assert sorted(found) == [4, 5, 6, 7]
    assert {found[i][stream.mark] for i in (4, 5, 6, 7)} == {None}
    assert any("deletes whose mark did not fit" in note and "(3)" in note for note in done.notes)


@pytest.mark.parametrize(
    ("kind", "format"), [("undeclared", "delta"), ("boolean", "parquet"), ("integer", "delta")]
)
def test_l9_words_and_numbers_are_marks_too(
    site: Callable[..., Site], format: str, kind: str
) -> None:
    """A live mark is stored as it was sent, and the row lives through the loads that follow."""
    declared = None if kind == "undeclared" else {"type": ["null", kind]}
    stream = Marked(site(format), "singer", declared)
    no, yes = {"undeclared": ("No", "yes"), "boolean": (False, True), "integer": (0, 1)}[kind]
    stream.send(*live(1, 2, 3, 4, **{stream.mark: no}))
    assert sorted(stream.rows()) == [1, 2, 3, 4]
    done = stream.send(
        {"id": 1, "lsn": 2, stream.mark: yes},
        {"id": 2, "lsn": 2, stream.mark: "2024-05-05T00:00:00Z"},
        {"id": 3, "name": "new", "lsn": 2, stream.mark: no},
        {"id": 4, "lsn": 2, stream.mark: "perhaps"},
    )
    found = stream.rows()
    assert {i: (r["name"], r[stream.mark]) for i, r in found.items()} == {
        3: ("new", no), 4: ("n4", no)}  # fmt: skip
    assert sum(stream.rejected for stream in done.report.streams) == 1
    stream.send(*live(5, lsn=3))
    assert sorted(stream.rows()) == [3, 4, 5], "the table's live marks delete nothing"


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_l9_a_mark_whose_type_changes_means_the_same(
    site: Callable[..., Site], format: str
) -> None:
    """The table's column keeps its type: the mark is judged before it is cast to that."""
    stream = Marked(site(format), "singer", TIME)
    stream.send(*live(1, 2, 3))
    stream.schema["properties"][stream.mark] = {"type": ["null", "boolean"]}
    stream.send({"id": 1, stream.mark: True}, {"id": 2, "name": "new", stream.mark: False})
    assert {i: r["name"] for i, r in stream.rows().items()} == {2: "new", 3: "n3"}


@pytest.mark.parametrize(("protocol", "format"), [("singer", "parquet"), ("airbyte", "delta")])
def test_a_soft_delete_with_columns_of_the_log_keeps_the_rows_own(
    site: Callable[..., Site], format: str, protocol: str
) -> None:
    log = f"{stream_prefix(protocol)}updated_at"
    stream = Marked(site(format), protocol, TIME, **{log: TIME})
    soft = {"destination": {"deletes": "soft"}}
    stream.send(*live(1, 2, **{log: "2024-01-01T00:00:00Z"}), **soft)
    own = 3 if protocol == "airbyte" else None  # a tap's change log names no cursor
    stream.send(
        {"id": 1, "lsn": own, stream.mark: "2024-05-05T00:00:00Z", log: "2024-05-05T00:00:00Z"},
        {"id": 2, "name": "Bea", "lsn": 2},
        {"id": 2, "lsn": None, stream.mark: "2024-05-05T00:00:00Z", log: None},
        **soft,
    )
    found = stream.rows()
    assert [found[i]["name"] for i in (1, 2)] == ["n1", "Bea"]
    assert [found[i]["lsn"] for i in (1, 2)] == [own or 1, 2]
    assert all(found[i][stream.mark] is not None for i in (1, 2))
    assert str(found[1][log]).startswith("2024-05-05")


def stream_prefix(protocol: str) -> str:
    return {"singer": "_sdc_", "airbyte": "_ab_cdc_"}[protocol]
