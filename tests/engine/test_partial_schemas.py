"""L8 where a SCHEMA declares only some of the properties of its records: the others are kept.

singer-io's tap-mongodb discovers collections as ``{"type": "object"}``. While it reads, it sends a
SCHEMA for each new date, decimal, float, list or object that a document has; its ``key_properties``
are ``["_id"]``, which no SCHEMA declares. JSON Schema: properties that are not declared are
allowed, unless ``additionalProperties`` says otherwise.
"""

import json
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from quick_runs import Bench, in_this_process

from penstock.engine.run import wiring
from penstock.engine.specs.feeder import PushJob
from penstock.engine.worker.feeder import run_push
from penstock.model.report import Report
from penstock.tables.contract import TableName

pytestmark = pytest.mark.dear

TARGET = Path(__file__).parents[1] / "stubs" / "stub_target.py"

# ``documents``: the records; ``closed``: the SCHEMA of declared properties allows no others.
TAP = """
if "--discover" in sys.argv:
    root = {"table-key-properties": ["_id"], "database-name": "shop", "row-count": 3,
            "is-view": False, "valid-replication-keys": ["_id", "n"]}
    say({"streams": [{"tap_stream_id": "shop-people", "stream": "people", "table_name": "people",
        "schema": {"type": "object"}, "metadata": [{"breadcrumb": [], "metadata": root}]}]})
    sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
def tell(schema):
    say({"type": "SCHEMA", "stream": "people", "schema": schema, "key_properties": ["_id"]})
tell({"type": "object"})
known = {}
closed = {"additionalProperties": False} if WORLD.get("closed") else {}
for document in WORLD["documents"]:
    new = {name: {"anyOf": [{"type": "string", "format": "date-time"}, {}]}
           for name in document if name in ("created", "_sdc_deleted_at")}
    if new.keys() - known.keys():
        known |= new
        tell({"type": "object", "properties": known, **closed})
    say({"type": "RECORD", "stream": "people", "record": document})
say({"type": "STATE", "value": {"bookmarks": {"shop-people": {"at": 1}}}})
"""
AT = "2026-01-02T00:00:00Z"
ANN = {"_id": "a1", "name": "Ann", "age": 5}
BOB = {"_id": "b2", "name": "Bob", "age": 6, "created": AT, "record": {"tags": [1]}}
OLD_ANN = {**ANN, "age": 6, "n": 7, "created": AT}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def run(bench: Bench, *documents: Any, closed: bool = False, **said: Any) -> Report:
    bench.set(documents=documents, closed=closed)
    report = bench.run(bench.connector(TAP), source={"defaults": said})
    assert report.status == "succeeded", report.error
    return report


def rows(bench: Bench) -> list[Any]:
    found = bench.tables.rows.get(TableName(None, "people"), [])
    return [defaultdict(lambda: None, row) for row in found]


def documents(bench: Bench) -> list[Any]:
    return [json.loads(row["record"]) for row in rows(bench)]


INCREMENTS = {"sync_mode": "incremental", "cursor_field": "n"}


@pytest.mark.parametrize(
    "said",
    [{}, {"mode": "append", **INCREMENTS}, INCREMENTS, {"sync_mode": "cdc"}],
    ids=["full", "append", "dedup", "cdc"],
)
def test_L8_a_record_stays_whole_beside_declared_columns(
    bench: Bench, said: dict[str, Any]
) -> None:
    report = run(bench, ANN, BOB, **said)
    assert documents(bench) == [ANN, BOB]
    assert [row["created"] and json.loads(row["created"]) for row in rows(bench)] == [None, AT]
    assert not [note for note in report.notes if "not in the schema" in note]
    keys = [row["_id"] for row in rows(bench)]
    assert keys == ([None, None] if said.get("mode") == "append" else ['"a1"', '"b2"'])


def test_L8_the_key_of_a_partial_schema_merges_rows(bench: Bench) -> None:
    for turn in ((ANN, BOB), (OLD_ANN,)):
        run(bench, *turn, **INCREMENTS)
    assert sorted(documents(bench), key=str) == sorted([BOB, OLD_ANN], key=str)


def test_L9_a_delete_of_a_partial_schema_is_a_delete(bench: Bench) -> None:
    gone = {"_id": "a1", "_sdc_deleted_at": AT}
    run(bench, ANN, BOB, gone, sync_mode="cdc")
    assert documents(bench) == [BOB]


def test_L8_a_document_without_its_key_is_a_reject(bench: Bench) -> None:
    report = run(bench, ANN, {"name": "nobody"}, **INCREMENTS)
    assert documents(bench) == [ANN] and report.streams[0].rejected == 1


def test_L8_a_closed_schema_ends_it(bench: Bench) -> None:
    """JSON Schema: ``additionalProperties: false``."""
    closed = {"_id": "c3", "created": AT}
    run(bench, ANN, closed, closed=True, mode="append", sync_mode="cdc")
    assert [row["record"] for row in rows(bench)][1] is None
    assert json.loads(rows(bench)[1]["created"]) == AT


def test_a_user_chooses_columns_and_types_of_records_of_unknown_shape(bench: Bench) -> None:
    types = {"_id": "string", "age": "integer"}
    report = run(bench, ANN, BOB, columns=["name", "age"], types=types, **INCREMENTS)
    found = [(row["_id"], row["name"], row["age"]) for row in rows(bench)]
    assert found == [("a1", '"Ann"', 5), ("b2", '"Bob"', 6)]
    assert "record" not in rows(bench)[0] and report.streams[0].committed == 2
    run(bench, ANN, BOB, columns=["record", "name"], mode="mirror")
    assert documents(bench) == [ANN, BOB] and rows(bench)[1]["name"] == '"Bob"'
    assert "created" not in rows(bench)[1]


def test_A16_a_table_of_whole_records_that_was_appended_to_stays_as_it_is(bench: Bench) -> None:
    run(bench, ANN, mode="append", **INCREMENTS)
    run(bench, OLD_ANN, **INCREMENTS)
    assert documents(bench) == [ANN, OLD_ANN]
    assert "_id" not in rows(bench)[0]


def test_L8_a_target_gets_the_key_of_a_partial_schema(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Singer SDK: a record without a property of its key ends a target."""

    def submit(module: str, job: bytes) -> bytes:
        if module == "penstock.engine.worker.lane":
            return in_this_process(module, job)
        return msgspec.json.encode(run_push(msgspec.json.decode(job, type=PushJob), stop))

    stop = threading.Event()
    monkeypatch.setattr(wiring, "on_spark", lambda *_: submit)
    save = bench.folder / "fed.jsonl"
    target = f"singer:{sys.executable} {TARGET} '{json.dumps({'save': str(save)})}'"
    bench.set(documents=[ANN, BOB])
    source = {"defaults": INCREMENTS}
    report = bench.run(bench.connector(TAP), source=source, destination={"use": target})
    assert report.status == "succeeded", report.error
    told = [json.loads(line) for line in save.read_text().splitlines()]
    assert {(*m["key_properties"],) for m in told if m["type"] == "SCHEMA"} == {("_id",)}
    assert [m["record"] for m in told if m["type"] == "RECORD"] == [ANN, BOB], "as they came"
