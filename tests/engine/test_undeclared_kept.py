"""Singer, RECORD: a record may have properties that its SCHEMA does not declare, and the page's own
worked example has: they are kept, in one JSON column of a table, or as the pipeline says.

What a user's selection leaves out is never kept, though a tap sends it, nor what
``additionalProperties: false`` forbids. L8: what is dropped is counted and noted.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.model.report import Report
from penstock.tables.contract import TableName

# The messages of the specification's example, as they are printed there.
PAGE = """
MESSAGES = r'''
{"type": "SCHEMA", "stream": "users", "key_properties": ["id"], "schema": {"required": ["id"], "type": "object", "properties": {"id": {"type": "integer"}}}}
{"type": "RECORD", "stream": "users", "record": {"id": 1, "name": "Chris"}}
{"type": "RECORD", "stream": "users", "record": {"id": 2, "name": "Mike"}}
{"type": "SCHEMA", "stream": "locations", "key_properties": ["id"], "schema": {"required": ["id"], "type": "object", "properties": {"id": {"type": "integer"}}}}
{"type": "RECORD", "stream": "locations", "record": {"id": 1, "name": "Philadelphia"}}
{"type": "STATE", "value": {"users": 2, "locations": 1}}
'''
id = {"required": ["id"], "type": "object", "properties": {"id": {"type": "integer"}}}
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": n, "stream": n, "key_properties": ["id"], "schema": id}
                     for n in ("users", "locations")]})
elif "--about" not in sys.argv:
    print(MESSAGES.strip(), flush=True)
"""  # noqa: E501

# ``messages``: what the tap prints; ``schema``, ``metadata``: of its catalog's one stream.
TAP = """
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": "s", "stream": "s", "schema": WORLD["schema"],
                      "key_properties": ["id"], "metadata": WORLD.get("metadata", [])}]})
elif "--about" not in sys.argv:
    for message in WORLD["messages"]: say(message)
"""
ID = {"type": "object", "properties": {"id": {"type": "integer"}}}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def record(**values: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "s", "record": values}


def schema(of: dict[str, Any], key: tuple[str, ...] = ("id",)) -> dict[str, Any]:
    return {"type": "SCHEMA", "stream": "s", "schema": of, "key_properties": list(key)}


STATE = {"type": "STATE", "value": {"s": 1}}


def run(bench: Bench, *messages: Any, of: Any = None, **parts: Any) -> Report:
    of = ID if of is None else of
    first = [] if messages and messages[0]["type"] == "SCHEMA" else [schema(of)]
    metadata = parts.pop("metadata", [])
    bench.set(schema=of, messages=[*first, *messages, STATE], metadata=metadata)
    report = bench.run(bench.connector(TAP), **parts)
    assert report.status == "succeeded", report.error
    return report


def rows(bench: Bench, table: str = "s") -> list[tuple[Any, Any]]:
    """(id, what is kept of the record) of each row, in order."""
    found = bench.tables.rows.get(TableName(None, table), [])
    extra = [row.get("_penstock_extra") for row in found]
    return [(row["id"], e and json.loads(e)) for row, e in zip(found, extra, strict=True)]


def columns(bench: Bench, table: str = "s") -> set[str]:
    found = bench.tables.rows.get(TableName(None, table), [])
    return {name for row in found for name in row}


def test_singer_page_the_worked_example_arrives_whole(bench: Bench) -> None:
    bench.set()
    report = bench.run(bench.connector(PAGE))
    assert report.status == "succeeded", report.error
    assert rows(bench, "users") == [(1, {"name": "Chris"}), (2, {"name": "Mike"})]
    assert rows(bench, "locations") == [(1, {"name": "Philadelphia"})]
    assert {n for n in report.notes if n.startswith("field not in")} == {
        "field not in the schema, kept: users.name (2)",
        "field not in the schema, kept: locations.name (1)",
    }
