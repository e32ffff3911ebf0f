"""Singer, RECORD: a record may have properties that its SCHEMA does not declare, and the page's own
worked example has: they are kept, in one JSON column of a table, or as the pipeline says.

What a user's selection leaves out is never kept, though a tap sends it, nor what
``additionalProperties: false`` forbids. L8: what is dropped is counted and noted.
"""

import json
import sys
import threading
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

STUBS = Path(__file__).parents[1] / "stubs"
TARGET, DESTINATION = STUBS / "stub_target.py", STUBS / "stub_destination.py"

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


def test_L8_inside_objects_and_lists_they_keep_their_place(bench: Bench) -> None:
    of = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "user": {"type": "object", "properties": {"login": {"type": "string"}}},
            "items": {
                "type": "array",
                "items": {"type": "object", "properties": {"sku": {"type": "string"}}},
            },
        },
    }
    items = [{"sku": "s"}, {"sku": "t", "qty": 4}]
    run(
        bench,
        record(id=1, user={"login": "a", "email": "a@x"}, items=items, top=[1, {"a": None}]),
        record(id=2, user={"login": "b", "LOGIN": "B"}, items=[], ID=3),
        record(id=3, user=None, items=None, top=None),
        of=of,
    )
    assert rows(bench) == [
        (1, {"user": {"email": "a@x"}, "items": [None, {"qty": 4}], "top": [1, {"a": None}]}),
        (2, {"user": {"LOGIN": "B"}, "ID": 3}),
        (3, None),
    ]


def test_L9_every_digit_and_text_stays_as_it_was_sent(bench: Bench) -> None:
    raw = '{"n":12345678901234567890.12345678901234567890,"e":1e400,"t":"é\\n","_penstock_extra":0}'
    tap = TAP.replace("say(message)", "print(message)")
    line = f'{{"type":"RECORD","stream":"s","record":{{"id":1,{raw[1:]}}}'
    bench.set(schema=ID, messages=[*map(json.dumps, [schema(ID)]), line, json.dumps(STATE)])
    report = bench.run(bench.connector(tap))
    assert report.status == "succeeded", report.error
    (row,) = bench.tables.rows[TableName(None, "s")]
    assert row["_penstock_extra"] == raw


def test_L8_more_names_than_are_read_by_column_are_kept_too(bench: Bench) -> None:
    many = [record(id=n, **{f"f{n}_{i}": i for i in range(200)}) for n in range(4)]
    run(bench, *many)
    assert [extra for _, extra in rows(bench)] == [
        {k: v for k, v in m["record"].items() if k != "id"} for m in many
    ]


SECRET = {"type": "string"}
USER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "secret": SECRET,
        "user": {"type": "object", "properties": {"login": SECRET, "secret": SECRET}},
    },
}
DESELECTED = [
    {"breadcrumb": [], "metadata": {"selected": True}},
    {"breadcrumb": ["properties", "secret"], "metadata": {"selected": False}},
    {
        "breadcrumb": ["properties", "user", "properties", "secret"],
        "metadata": {"selected": False},
    },
    {"breadcrumb": ["properties", "hidden"], "metadata": {"selected": False}},
]
WHOLE = {"id": 1, "secret": "x", "hidden": "x", "user": {"login": "a", "secret": "x", "age": 7}}


@pytest.mark.parametrize("declared", [True, False], ids=["declares them", "leaves them out"])
def test_never_what_the_catalog_deselects(bench: Bench, declared: bool) -> None:
    """A tap may send it all the same; many leave it out of their SCHEMA."""
    user = {"type": "object", "properties": {"login": SECRET}}
    less = {"type": "object", "properties": {"id": {"type": "integer"}, "user": user}}
    said = schema(USER if declared else less)
    report = run(bench, said, record(**WHOLE, more=1), of=USER, metadata=DESELECTED)
    assert rows(bench) == [(1, {"user": {"age": 7}, "more": 1})]
    assert "secret" not in columns(bench)
    assert not [n for n in report.notes if "secret" in n or "hidden" in n]


def test_never_beside_a_list_of_columns(bench: Bench) -> None:
    report = run(
        bench, record(**WHOLE, more=1), of=USER,
        source={"defaults": {"columns": ["id", "user.login"]}},
    )  # fmt: skip
    assert rows(bench) == [(1, None)] and "_penstock_extra" not in columns(bench)
    assert "field not in the schema, dropped: s.more (1)" in report.notes
    run(bench, record(**WHOLE, more=1), of=USER, source={"defaults": {"columns": ["id", "user"]}})
    assert rows(bench)[-1] == (1, {"user": {"age": 7}}), "the whole of an object was asked for"


MERGED = {"type": "object", "properties": {**ID["properties"], "v": {"type": "string"}}}


@pytest.mark.parametrize("method", ["LOG_BASED", "INCREMENTAL"])
@pytest.mark.parametrize(
    "said",
    [{}, {"undeclared": "drop"}, {"undeclared": "columns"}, {"columns": ["id", "v"]}],
    ids=["keep", "drop", "columns", "listed"],
)
def test_L8_a_delete_whose_mark_no_schema_declares_is_a_delete(
    bench: Bench, said: dict[str, Any], method: str
) -> None:
    """It would be a row of NULLs in place of the one that was there. PipelineWise's taps add the
    mark to the record of a deleted row: https://github.com/transferwise/pipelinewise/pull/2"""
    what = {"replication-method": method, "forced-replication-method": method, "selected": True}
    metadata = [{"breadcrumb": [], "metadata": {**what, "replication-key": "id"}}]

    def then(*messages: Any, rules: str | None = None) -> Report:
        where = f"SELECT * FROM input WHERE {rules}"
        transforms = [{"use": "transform-sql", "config": {"query": where}}] if rules else []
        return run(
            bench, schema(MERGED), *messages, of=MERGED, metadata=metadata,
            source={"use": bench.connector(TAP), "defaults": {"mode": "upsert", **said}},
            transforms=transforms,
        )  # fmt: skip

    gone = {"_sdc_deleted_at": "2026-01-02T03:04:05Z"}
    then(*(record(id=n, v="a") for n in range(1, 6)))
    report = then(record(id=1, **gone), record(id=2, v="b"), record(id=3, **gone), record(id=6))
    assert bench.ids("s") == [2, 4, 5, 6]
    assert any("_sdc_deleted_at" in n and "deletes the row" in n for n in report.notes)
    then(record(id=4, _sdc_deleted_at=None, v="c"))
    assert bench.ids("s") == [2, 4, 5, 6]
    then(record(id=4, **gone))
    assert bench.ids("s") == [2, 5, 6]
    then(record(id=5, **gone), rules="v IS NOT NULL")
    assert bench.ids("s") == [2, 6]
    values = {row["id"]: row["v"] for row in bench.tables.rows[TableName(None, "s")]}
    assert values == {2: "b", 6: None}


def test_L8_an_appended_delete_whose_mark_no_schema_declares_is_a_row(bench: Bench) -> None:
    gone = "2026-01-02T03:04:05Z"
    append = {"use": bench.connector(TAP), "defaults": {"mode": "append"}}
    run(bench, record(id=1), record(id=1, _sdc_deleted_at=gone), source=append)
    assert rows(bench) == [(1, None), (1, {"_sdc_deleted_at": gone})]


def test_never_what_a_closed_schema_forbids(bench: Bench) -> None:
    closed = {"additionalProperties": False}
    inner = {"type": ["null", "object"], "properties": {"a": {"type": "integer"}}}
    of = {
        **ID, **closed,
        "properties": {"id": {"type": "integer"}, "open": inner, "shut": {**inner, **closed}},
    }  # fmt: skip
    report = run(bench, record(id=1, top=1, open={"a": 1, "b": 2}, shut={"a": 1, "b": 2}), of=of)
    assert rows(bench) == [(1, {"open": {"b": 2}})]
    assert {n for n in report.notes if n.startswith("field not in the schema, dropped")} == {
        "field not in the schema, dropped: s.top (1)",
        "field not in the schema, dropped: s.shut.b (1)",
    }


@pytest.mark.parametrize("policy", ["fail", "ignore"])
def test_under_another_policy_for_new_columns_it_stays_a_note(bench: Bench, policy: str) -> None:
    lake = {"path": str(bench.folder / "lake")}
    evolution = {"new_column": policy}
    destination = {"use": "parquet", "config": lake, "schema_evolution": evolution}
    report = run(bench, record(id=1, name="Ann"), destination=destination)
    assert rows(bench) == [(1, None)] and "_penstock_extra" not in columns(bench)
    assert "field not in the schema, dropped: s.name (1)" in report.notes


def test_the_pipeline_drops_them(bench: Bench) -> None:
    report = run(bench, record(id=1, name="Ann"), source={"defaults": {"undeclared": "drop"}})
    assert "_penstock_extra" not in columns(bench)
    assert "field not in the schema, dropped: s.name (1)" in report.notes


def test_the_pipeline_gives_each_a_column(bench: Bench) -> None:
    """One whose name differs by case alone from another's has a column too; those inside objects
    stay in the one column."""
    own = {"defaults": {"undeclared": "columns", "mode": "append"}}
    run(bench, record(id=1, name="Ann", ID=9), record(id=2), source=own)
    first, second = bench.tables.rows[TableName(None, "s")]
    (other,) = columns(bench) - {"id", "name"} - {c for c in columns(bench) if c[0] == "_"}
    assert (first["name"], first[other], second["name"]) == ('"Ann"', "9", None)
    assert other.startswith("ID_") and "_penstock_extra" not in columns(bench)
    run(bench, record(id=3, name="Cy", age=4), source=own)
    third = bench.tables.rows[TableName(None, "s")][-1]
    assert (third["name"], third["age"]) == ('"Cy"', "4")


def test_a_later_schema_that_declares_it_makes_it_a_column(bench: Bench) -> None:
    """The old values stay where they are."""
    more = {"type": "object", "properties": {**ID["properties"], "name": {"type": "string"}}}
    append = {"defaults": {"mode": "append", "sync_mode": "incremental"}}
    run(
        bench, record(id=1), record(id=2, name="Ann", n=1), STATE, schema(more),
        record(id=3, name="Cy", n=2), source=append,
    )  # fmt: skip
    assert rows(bench) == [(1, None), (2, {"name": "Ann", "n": 1}), (3, {"n": 2})]
    assert [row.get("name") for row in bench.tables.rows[TableName(None, "s")]] == [
        None, None, "Cy",
    ]  # fmt: skip
    run(bench, record(id=4, name="Di"), of=more, source=append)
    assert rows(bench)[-1] == (4, None)


def test_L2_rows_before_and_after_the_first_one_are_all_there(bench: Bench) -> None:
    """Batches of which only a later one has such values, in each mode."""
    for mode in ("append", "upsert", "mirror"):
        bench.tables.rows.clear()
        records = [record(id=n) for n in range(3000)]
        more = [record(id=n, name="x") for n in range(3000, 3010)]
        own = {"defaults": {"mode": mode, "primary_key": "id", "cursor_field": "id"}}
        if mode == "mirror":
            own["defaults"].pop("cursor_field")
        run(bench, *records, STATE, *more, STATE, source=own, full_refresh=True)
        found = dict(rows(bench))
        assert len(found) == 3010, mode
        assert [k for k, v in found.items() if v] == list(range(3000, 3010)), mode


def test_L8_rejects_and_keys_are_as_before(bench: Bench) -> None:
    own = {"defaults": {"mode": "upsert", "sync_mode": "incremental"}}
    report = run(
        bench, record(id=1, a=1), record(name="nobody"), record(id=1, a=2), record(id=2), source=own
    )
    assert sorted(rows(bench), key=str) == [(1, {"a": 2}), (2, None)]
    assert report.streams[0].rejected == 1
    run(bench, record(id=1, b=3), source=own)
    assert dict(rows(bench)) == {1: {"b": 3}, 2: None}


def transformed(query: str) -> list[dict[str, Any]]:
    return [{"use": "transform-sql", "config": {"query": query}}]


def test_a_query_that_does_not_name_it_drops_it(bench: Bench) -> None:
    chosen = transformed("SELECT id, id + 1 AS next FROM input")
    report = run(bench, record(id=1, a=1), transforms=chosen)
    assert rows(bench) == [(1, None)]
    (note,) = [n for n in report.notes if "field not in the schema" in n]
    assert "given to the transforms, whose rows do not have its column: s.a (1)" in note


@pytest.mark.parametrize(
    "query", ["SELECT * FROM input", "SELECT id, _penstock_extra FROM input WHERE id > 0"]
)
def test_a_query_that_names_it_keeps_it(bench: Bench, query: str) -> None:
    for n in (1, 2):
        report = run(bench, record(id=n), record(id=n + 10, a=n), transforms=transformed(query),
            source={"defaults": {"mode": "append"}})  # fmt: skip
        assert "field not in the schema, kept: s.a (1)" in report.notes
    assert rows(bench) == [(1, None), (11, {"a": 1}), (2, None), (12, {"a": 2})]


def test_a_query_may_read_it_before_the_first_one_comes(bench: Bench) -> None:
    query = "SELECT id, _penstock_extra IS NULL AS none FROM input"
    run(bench, record(id=1), transforms=transformed(query))
    assert [row["none"] for row in bench.tables.rows[TableName(None, "s")]] == [True]


def test_plan_shows_what_is_done_with_them(bench: Bench) -> None:
    bench.set(schema=ID, messages=[])
    use = bench.connector(TAP)
    assert bench.plan(use)["streams"][0]["undeclared"] == "keep"
    own = {"defaults": {"undeclared": "columns"}}
    assert bench.plan(use, source=own)["streams"][0]["undeclared"] == "columns"


def test_L3_a_later_run_has_the_column_from_its_start(bench: Bench) -> None:
    """One schema version, so that no load is cut in two."""
    own = {"defaults": {"mode": "append"}}
    run(bench, record(id=1, a=1), source=own)
    report = run(bench, record(id=2), record(id=3, a=3), source=own)
    assert rows(bench) == [(1, {"a": 1}), (2, None), (3, {"a": 3})]
    assert not [n for n in report.notes if "from now on" in n]


def test_L6_they_come_with_the_version_of_their_rows(bench: Bench) -> None:
    """ACTIVATE_VERSION, with rows before and after the first one that has such a property."""

    def version(number: int, *records: dict[str, Any]) -> list[dict[str, Any]]:
        activate = {"type": "ACTIVATE_VERSION", "stream": "s", "version": number}
        said = [{**r, "version": number} for r in records]
        return [*said[:-1], activate, said[-1]]

    own = {"defaults": {"sync_mode": "incremental", "mode": "append"}}
    run(bench, *version(1, record(id=1), record(id=2, a=2), record(id=3, a=3)), source=own)
    assert rows(bench) == [(1, None), (2, {"a": 2}), (3, {"a": 3})]
    run(bench, *version(2, record(id=4), record(id=5, b=5), record(id=6, b=6)), source=own)
    assert rows(bench) == [(4, None), (5, {"b": 5}), (6, {"b": 6})]


# -- from tap to target


def with_destinations(patch: pytest.MonkeyPatch) -> None:
    """Feeds destinations in this process too."""

    def submit(module: str, job: bytes) -> bytes:
        if module == "penstock.engine.worker.lane":
            return in_this_process(module, job)
        return msgspec.json.encode(run_push(msgspec.json.decode(job, type=PushJob), stop))

    stop = threading.Event()
    patch.setattr(wiring, "on_spark", lambda *_: submit)


def passed_on(
    bench: Bench, patch: pytest.MonkeyPatch, use: str, **parts: Any
) -> list[dict[str, Any]]:
    """The messages that a target got."""
    with_destinations(patch)
    save = bench.folder / "fed.jsonl"
    save.unlink(missing_ok=True)
    target = f"singer:{sys.executable} {TARGET} '{json.dumps({'save': str(save)})}'"
    report = bench.run(use, destination={"use": target}, **parts)
    assert report.status == "succeeded", report.error
    return [json.loads(line, parse_float=str) for line in save.read_text().splitlines()]


def records_of(messages: list[dict[str, Any]]) -> list[Any]:
    return [m["record"] for m in messages if m["type"] == "RECORD"]


def test_singer_page_a_target_gets_the_records_of_the_tap(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.set()
    told = passed_on(bench, monkeypatch, bench.connector(PAGE))
    of = {(m["stream"], *m["record"].values()) for m in told if m["type"] == "RECORD"}
    assert of == {("users", 1, "Chris"), ("users", 2, "Mike"), ("locations", 1, "Philadelphia")}
    assert {(*r,) for r in records_of(told)} == {("id", "name")}
    declared = {(*m["schema"]["properties"],) for m in told if m["type"] == "SCHEMA"}
    assert declared == {("id",)}, "what the tap did not declare is not declared"


def test_L8_a_target_is_told_of_the_mark_of_deletes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"id": 2, "_sdc_deleted_at": "2026-01-02T03:04:05Z"}
    log_based = {"replication-method": "LOG_BASED", "selected": True}
    metadata = [{"breadcrumb": [], "metadata": log_based}]
    messages = [schema(ID), record(id=1, n=1), record(**gone, n=2), STATE]
    bench.set(schema=ID, metadata=metadata, messages=messages)
    told = passed_on(bench, monkeypatch, bench.connector(TAP))
    assert records_of(told) == [{"id": 1, "_sdc_deleted_at": None, "n": 1}, {**gone, "n": 2}]
    declared = [m["schema"]["properties"] for m in told if m["type"] == "SCHEMA"]
    assert declared[-1]["_sdc_deleted_at"] == {"type": ["null", "string"]}


def test_L8_a_target_gets_them_where_they_were(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "user": {"type": "object", "properties": {"login": {"type": "string"}}},
            "items": {
                "type": "array",
                "items": {"type": "object", "properties": {"sku": {"type": "string"}}},
            },
        },
    }
    given = [
        {"id": 1, "user": None, "items": None},
        {"id": 2, "user": {"login": "b", "age": 7}, "items": [{"sku": "a"}, {"sku": "b", "n": 1}]},
        {"id": 3, "user": {"login": "c"}, "items": [], "more": {"x": [1.50, "\u00e9"]}},
    ]
    bench.set(schema=of, messages=[schema(of), *(record(**g) for g in given), STATE])
    told = records_of(passed_on(bench, monkeypatch, bench.connector(TAP)))
    assert told == json.loads(json.dumps(given), parse_float=str)


def test_singer_RECORD_without_a_SCHEMA_is_passed_on_as_it_came(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a RECORD message from a stream is not preceded by a SCHEMA message for that stream, it is
    assumed to be schema-less."""
    bench.set(
        schema={}, messages=[record(id=1, name="Ann"), record(id=2, record={"record": 2}), STATE]
    )
    told = passed_on(bench, monkeypatch, bench.connector(TAP))
    assert records_of(told) == [{"id": 1, "name": "Ann"}, {"id": 2, "record": {"record": 2}}]


def test_singer_RECORD_without_a_SCHEMA_is_a_row(bench: Bench) -> None:
    bench.set(schema={}, messages=[record(id=1, name="Ann"), STATE])
    report = bench.run(bench.connector(TAP))
    assert report.status == "succeeded", report.error
    (row,) = bench.tables.rows[TableName(None, "s")]
    assert json.loads(row["record"]) == {"id": 1, "name": "Ann"}


def test_L8_another_destination_gets_the_column(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airbyte, "Implementing a destination": fields that its catalog does not have are ignored. So
    the column is in its catalog, also where it came while the destination was being fed."""
    with_destinations(monkeypatch)
    sink = bench.folder / "sink.jsonl"
    options = json.dumps({"sink": str(sink)})
    use = f"airbyte:{sys.executable} {DESTINATION} --with '{options}'"
    run(bench, record(id=1), STATE, record(id=2, name="Ann"), destination={"use": use})
    run(bench, record(id=3, name="Bob"), destination={"use": use})
    told = [json.loads(line) for line in sink.read_text().splitlines()]
    data = {
        m["record"]["data"]["id"]: m["record"]["data"].get("_penstock_extra")
        for m in told if m.get("type") == "RECORD"
    }  # fmt: skip
    assert data == {1: None, 2: {"name": "Ann"}, 3: {"name": "Bob"}}
    catalog = [m["run"]["catalog"] for m in told if "run" in m][-1]
    assert "_penstock_extra" in catalog["streams"][0]["stream"]["json_schema"]["properties"]


AIRBYTE = """
if "spec" in sys.argv:
    say({"type": "SPEC", "spec": {"connectionSpecification": {}}})
elif "discover" in sys.argv:
    say({"type": "CATALOG", "catalog": {"streams": [
        {"name": "s", "json_schema": WORLD["schema"], "supported_sync_modes": ["full_refresh"]}]}})
else:
    say({"type": "RECORD", "record": {"stream": "s", "data": WORLD["data"], "emitted_at": 1}})
    say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status":
        {"stream_descriptor": {"name": "s"}, "status": "COMPLETE"}}})
"""


@pytest.mark.parametrize("policy", [None, "keep", "columns"])
def test_airbyte_fields_beyond_the_catalog_are_kept_where_the_pipeline_says_so(
    bench: Bench, policy: str | None
) -> None:
    """Protocol, Schema Mismatches: such a field "should be ignored downstream"."""
    bench.set(schema=ID, data={"id": 1, "eye_color": "green"})
    source = bench.connector(AIRBYTE, "airbyte")
    defaults = {} if policy is None else {"undeclared": policy}
    report = bench.run(source, source={"defaults": defaults})
    assert report.status == "succeeded", report.error
    (row,) = bench.tables.rows[TableName(None, "s")]
    found = (row.get("_penstock_extra"), row.get("eye_color"))
    assert found == {
        None: (None, None), "keep": ('{"eye_color":"green"}', None), "columns": (None, '"green"'),
    }[policy]  # fmt: skip
    dropped = "field not in the schema, dropped: s.eye_color (1)" in report.notes
    assert dropped is (policy is None)
