"""End to end: a column that the user leaves out is not asked for where the source can
be told, and not stored where it comes all the same. Runs without Spark (``quick_runs``)."""

import json
from pathlib import Path

import pytest
from quick_runs import Bench

from penstock.tables.contract import TableName

SCHEMA = """
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "secret": {"type": "string"},
  "o": {"type": "object", "properties": {"a": {"type": "string"}, "pin": {"type": "string"}}}}}
ROW = {"id": 1, "secret": "hush", "o": {"a": "x", "pin": "hush"}}
"""
TAP = (
    SCHEMA
    + """
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": "t", "stream": "t", "schema": SCHEMA, "metadata": []}]})
    sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
json.dump(given("--catalog"), open(WORLD["asked"], "w"))
say({"type": "SCHEMA", "stream": "t", "schema": SCHEMA, "key_properties": []})
say({"type": "RECORD", "stream": "t", "record": ROW})
"""
)
SOURCE = (
    SCHEMA
    + """
if "spec" in sys.argv:
    say({"type": "SPEC", "spec": {"connectionSpecification": {}}})
elif "check" in sys.argv:
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif "discover" in sys.argv:
    say({"type": "CATALOG", "catalog": {"streams": [{"name": "t", "json_schema": SCHEMA,
         "supported_sync_modes": ["full_refresh"]}]}})
else:
    json.dump(given("--catalog"), open(WORLD["asked"], "w"))
    say({"type": "RECORD", "record": {"stream": "t", "emitted_at": 1, "data": ROW}})
"""
)


@pytest.mark.parametrize(("program", "protocol"), [(SOURCE, "airbyte"), (TAP, "singer")])
def test_a_column_that_is_left_out_comes_from_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, protocol: str
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    asked = tmp_path / "asked.json"
    bench.set(asked=str(asked))
    source = bench.connector(program, protocol)
    defaults = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}
    columns = ["!secret", "!*.pin"]
    report = bench.run(source, source={"defaults": {**defaults, "columns": columns}})
    assert report.exit_code == 0, report.error
    (row,) = bench.tables.rows[TableName(None, "t")]
    assert (row["id"], row["o"], "secret" in row) == (1, {"a": "x"}, False)
    assert "hush" not in str(row)
    (told,) = json.loads(asked.read_text())["streams"]
    if protocol == "singer":
        chosen = {tuple(m["breadcrumb"]): m["metadata"].get("selected") for m in told["metadata"]}
        assert chosen["properties", "secret"] is False
        assert chosen["properties", "o", "properties", "pin"] is False
