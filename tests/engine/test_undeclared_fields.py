"""L8: properties that a source's schema lacks, also inside objects, leave the rows and not the
report, where they are not kept (``undeclared: drop``); and what the report says keeps them.

JSON Schema: an object may have properties that its schema does not name, unless it says
`additionalProperties: false`; sources of Airbyte say `additionalProperties: true` everywhere.
"""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.model.report import Report
from penstock.tables.contract import TableName

RECORD = {
    "id": 1,
    "top": 9,
    "user": {"login": "a", "email": "a@x", "plan": {"seats": 3}},
    "items": [{"sku": "s", "qty": 3}, {"sku": "t", "qty": 4}],
    "map": {"kind": "k", "x-1": "data"},
}
COMMON = f"""
RECORD = {RECORD!r}
free = {{"type": ["null", "object"], "additionalProperties": True}}
schema = {{"type": "object", "additionalProperties": True, "properties": {{
    "id": {{"type": "integer"}},
    "user": {{**free, "properties": {{"login": {{"type": "string"}}}}}},
    "items": {{"type": "array",
               "items": {{**free, "properties": {{"sku": {{"type": "string"}}}}}}}},
    "map": {{"type": "object", "properties": {{"kind": {{"type": "string"}}}},
             "additionalProperties": {{"type": "string"}}}},
}}}}
"""
SINGER = """
stream = {"tap_stream_id": "orders", "stream": "orders", "schema": schema, "metadata": []}
if "--discover" in sys.argv:
    say({"streams": [stream]})
elif "--about" not in sys.argv:
    say({"type": "SCHEMA", "stream": "orders", "schema": schema, "key_properties": []})
    say({"type": "RECORD", "stream": "orders", "record": RECORD})
    say({"type": "STATE", "value": {"orders": 1}})
"""
AIRBYTE = """
if "spec" in sys.argv:
    say({"type": "SPEC", "spec": {"connectionSpecification": {}}})
elif "discover" in sys.argv:
    say({"type": "CATALOG", "catalog": {"streams": [
        {"name": "orders", "json_schema": schema, "supported_sync_modes": ["full_refresh"]}]}})
else:
    say({"type": "RECORD", "record": {"stream": "orders", "data": RECORD, "emitted_at": 1}})
    say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status":
        {"stream_descriptor": {"name": "orders"}, "status": "COMPLETE"}}})
"""


@pytest.fixture(params=["singer", "airbyte"])
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    bench = Bench(tmp_path, monkeypatch)
    bench.set()
    body = COMMON + {"singer": SINGER, "airbyte": AIRBYTE}[request.param]

    def run(**defaults: Any) -> tuple[Report, dict[str, Any]]:
        source = bench.connector(body, request.param)
        report = bench.run(source, source={"defaults": {"undeclared": "drop", **defaults}})
        assert report.status == "succeeded", report.error
        return report, bench.tables.rows[TableName(None, "orders")][-1]

    return run


def test_L8_fields_inside_objects_are_told_and_types_keep_them(run: Any) -> None:
    report, row = run()
    dropped = "field not in the schema, dropped: orders."
    assert {n.removeprefix(dropped) for n in report.notes if n.startswith(dropped)} == {
        "top (1)", "user.email (1)", "user.plan (1)", "items[].qty (1)",
    }  # fmt: skip
    (hint,) = [n for n in report.notes if "such fields of its objects" in n]
    assert hint.startswith("orders: `types: { items: json, user: json }` for the stream keeps")
    assert row["user"] == {"login": "a"} and row["map"] == '{"kind":"k","x-1":"data"}'
    report, row = run(types={"items": "json", "user": "json"})
    assert row["user"] == '{"login":"a","email":"a@x","plan":{"seats":3}}'
    assert row["items"] == '[{"sku":"s","qty":3},{"sku":"t","qty":4}]'
    assert [n for n in report.notes if "schema" in n] == [f"{dropped}top (1)"]


def test_L8_what_the_pipeline_leaves_out_is_not_told(run: Any) -> None:
    report, row = run(columns=["id", "user"], types={"user": "struct<email: string>"})
    assert row["user"] == {"email": "a@x"} and "items" not in row
    assert {n for n in report.notes if n.startswith("field not in")} == {
        "field not in the schema, dropped: orders.top (1)",
        "field not in the schema, dropped: orders.user.plan (1)",
    }
