"""L9: a delete mark that is declared as an object or a list is judged by all of what was sent."""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.tables.contract import TableName

TAP = """
schema = {"type": "object", "properties": {"id": {"type": "integer"},
          "name": {"type": ["null", "string"]}, "_sdc_deleted_at": WORLD["mark"]}}
stream = {"tap_stream_id": "t", "stream": "t", "schema": schema, "key_properties": ["id"]}
if "--discover" in sys.argv:
    say({"streams": [stream]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
say({"type": "SCHEMA", **stream})
for record in WORLD["records"]:
    say({"type": "RECORD", "stream": "t", "record": record})
say({"type": "STATE", "value": {"bookmarks": {"t": {"lsn": WORLD["records"][-1]}}}})
"""
LIVE: list[Any] = [None, {}, [], False, 0, "", "null", "0000-00-00", " No "]
GONE: list[Any] = [True, 5, "2018-11-22T12:51:30Z", "yes", "1.5"]
ODD: list[Any] = [{"at": "x"}, {"other": 1}, ["x"], [None], "deleted", "a+00:00"]


@pytest.mark.parametrize("mark", [
    {"type": ["null", "object"], "properties": {"at": {"type": "string"}}},
    {"type": ["null", "array"], "items": {"type": "string"}},
])  # fmt: skip
def test_l9_a_mark_declared_as_an_object_or_a_list_is_judged_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: dict[str, Any]
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    use = bench.connector(TAP)
    marks = [*LIVE, *GONE, *ODD]
    for name in ("first", "second"):
        records: list[dict[str, Any]] = [{"id": i, "name": name} for i in range(len(marks))]
        if name == "second":
            records = [{**r, "_sdc_deleted_at": m} for r, m in zip(records, marks, strict=True)]
        bench.set(mark=mark, records=records)
        source = {"defaults": {"sync_mode": "incremental", "mode": "upsert"}}
        report = bench.run(use, source=source)
        assert report.status == "succeeded", report.error
    assert report.streams[0].rejected == len(ODD)
    rows = {r["id"]: r["name"] for r in bench.tables.rows[TableName(None, "t")]}
    live, odd = range(len(LIVE)), range(len(LIVE) + len(GONE), len(marks))
    assert rows == {**dict.fromkeys(live, "second"), **dict.fromkeys(odd, "first")}
