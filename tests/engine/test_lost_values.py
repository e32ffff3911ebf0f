"""L9, end to end: what a connector prints and no table can hold is NULL or rounded, with an entry
that says which; nothing of the others is touched. Both protocols that send JSON.

Pages: JSON has no NaN, and UTF-8 no half of a surrogate pair; Python's ``json`` and JavaScript
print both. Runs without Spark (``quick_runs``)."""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.tables.contract import TableName

ROWS = r"""
ROWS = [r'{"id":1,"n":1e-400,"o":{"k":"a\ud800b","l":1},"s":"x"}',
        r'{"id":2,"n":"2e-324","o":{"k":[NaN,"\ud83d\ude00"]},"s":"\udc00"}',
        r'{"id":3,"n":0e-400,"o":{"\ud800":1},"s":"\\ud800"}',
        r'{"id":4,"n":NaN,"o":null,"s":null}']
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "n": {"type": "number"},
          "o": {"type": "object"}, "s": {"type": "string"}}}
"""
SOURCE = (
    ROWS
    + """
if "spec" in sys.argv:
    say({"type": "SPEC", "spec": {"connectionSpecification": {}}})
elif "check" in sys.argv:
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif "discover" in sys.argv:
    say({"type": "CATALOG", "catalog": {"streams": [{"name": "t", "json_schema": SCHEMA,
         "supported_sync_modes": ["full_refresh"]}]}})
else:
    for row in ROWS:
        print('{"type":"RECORD","record":{"stream":"t","emitted_at":1,"data":' + row + '}}')
"""
)
TAP = (
    ROWS
    + """
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": "t", "stream": "t", "schema": SCHEMA}]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
say({"type": "SCHEMA", "stream": "t", "schema": SCHEMA, "key_properties": []})
for row in ROWS: print('{"type":"RECORD","stream":"t","record":' + row + '}')
"""
)
APPEND = {"defaults": {"sync_mode": "full_refresh", "destination_sync_mode": "append"}}


@pytest.mark.parametrize(("program", "protocol"), [(SOURCE, "airbyte"), (TAP, "singer")])
def test_l9_what_no_table_can_hold_is_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, protocol: str
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    bench.set()
    source = bench.connector(program, protocol)
    report = bench.run(source, source=APPEND)
    assert report.exit_code == 0, report.error
    rows = sorted(bench.tables.rows[TableName(None, "t")], key=lambda row: row["id"])
    assert [(r["n"], r["o"], r["s"]) for r in rows] == [
        (0.0, '{"k":null,"l":1}', "x"),
        (0.0, '{"k":[null,"\U0001f600"]}', None),
        (0.0, '{"\\\\ud800":1}', "\\ud800"),
        (None, None, None),
    ]

    def entries(row: dict[str, Any]) -> list[tuple[str, str]]:
        lists = [v for v in row.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
        return sorted((e["field"], e["change"]) for e in lists[0]) if lists else []

    assert [entries(row) for row in rows] == [
        [("n", "TRUNCATED"), ("o", "NULLED")],
        [("n", "TRUNCATED"), ("o", "NULLED"), ("s", "NULLED")],
        [("o", "NULLED")],
        [("n", "NULLED")],
    ]


CARDS = """
card = {"type": ["null", "integer"]}
schema = {"type": "object", "properties": {"id": {"type": "integer"}, "card": card}}
stream = {"tap_stream_id": "t", "stream": "t", "schema": schema, "key_properties": ["id"]}
if "--discover" in sys.argv: say({"streams": [stream]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
say({"type": "SCHEMA", **stream})
for i in range(3): say({"type": "RECORD", "stream": "t", "record": {"id": i, "card": "4111-22"}})
"""


@pytest.mark.parametrize("query", [
    None,
    "SELECT id FROM input",
    "SELECT id, card AS number FROM input",
    "SELECT id, coalesce(card, 7) * 31 AS card FROM input",
    "SELECT id, card FROM input WHERE id > 0",
])  # fmt: skip
def test_l9_a_value_that_a_query_hashes_drops_or_renames_is_in_no_entry_and_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str | None
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    bench.set()
    transform = {"use": "transform-sql", "config": {"query": query}}
    parts = {} if query is None else {"transforms": [transform]}
    report = bench.run(bench.connector(CARDS), source=APPEND, **parts)
    assert report.exit_code == 0, report.error
    rows = bench.tables.rows[TableName(None, "t")]
    assert rows and ("4111" in repr(rows)) is (query is None)
    assert all("TYPE_MISFIT" in repr(row) for row in rows)
    assert "4111" not in repr(report)
