"""A read's lines -> events (specification, Output and its messages; L1, L6, L8): grouping, schemas,
versions, batches, noise, rejects."""

import gzip
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.codec.decode import RowDecoder
from penstock.codec.json_schema import row_schema
from penstock.errors import ConfigError
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, StreamId, SyncMode
from penstock.model.events import (
    Activate,
    Batch,
    ConnectorExited,
    Error,
    Event,
    LogEvent,
    Reject,
    Schema,
    SkippedItems,
    State,
    StreamStatus,
    Tick,
    UnconfiguredRecords,
)
from penstock.model.types import ChangeWords
from penstock.protocols.reading import ReadRequest
from penstock.protocols.singer.package import PACKAGE
from penstock.runtimes.contract import RunTimeouts, SharedFolders
from penstock.runtimes.memory import Exit, MemoryRuntime, Sleep, StderrLine, Step

A, B = StreamId(None, "a"), StreamId(None, "b")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def entry(name: str, **more: Any) -> dict[str, Any]:
    words = {"inclusion": "available", "table-key-properties": ["n"]}
    metadata = [{"breadcrumb": [], "metadata": words}]
    return {"tap_stream_id": name, "stream": name, "schema": SCHEMA, "metadata": metadata, **more}


def configured(*entries: dict[str, Any], mode: SyncMode = SyncMode.incremental) -> Any:
    catalog = PACKAGE.source.catalog_of({"streams": list(entries)})
    return tuple(
        ConfiguredStream(
            stream=stream,
            sync_mode=mode,
            destination_sync_mode=DestinationSyncMode.append,
            primary_key=stream.source_defined_primary_key or (),
        )
        for stream in catalog.streams
    )


def read(
    *steps: Step,
    streams: Any = None,
    shared: SharedFolders | None = None,
    config: dict[str, Any] | None = None,
    **more: Any,
) -> list[Event]:
    runtime = MemoryRuntime(lambda _: steps, shared=shared)
    given = configured(entry("a"), entry("b")) if streams is None else streams
    abilities = {"catalog_argument": "catalog"}
    config = {"key": "v"} if config is None else config
    request = ReadRequest(config=config, streams=given, abilities=abilities, **more)
    return list(PACKAGE.source.read(runtime, request))


def line(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode() + b"\n"


def record(stream: str, n: int, **more: Any) -> bytes:
    return line("RECORD", stream=stream, record={"n": n}, **more)


def schema(stream: str, of: Any = SCHEMA, keys: Any = ("n",), **more: Any) -> bytes:
    words = {} if keys is None else {"key_properties": list(keys)}
    return line("SCHEMA", stream=stream, schema=of, **words, **more)


def state(n: Any) -> bytes:
    return line("STATE", value=n)


def short(events: Iterable[Event]) -> list[str]:
    """One word an event: ``a:1,2`` for a batch, ``state:...``."""
    words: list[str] = []
    for event in events:
        match event:
            case Batch(stream, bodies):
                numbers = [str(json.loads(bytes(b)).get("n")) for b in bodies]
                version = "" if event.version is None else f"@{event.version}"
                words.append(f"{stream.name}{version}:{','.join(numbers)}")
            case State(_, blob):
                words.append(f"state:{blob}")
            case Schema(stream):
                words.append(f"schema:{stream.name}")
            case Activate(stream, version):
                words.append(f"activate:{stream.name}@{version}")
            case StreamStatus(stream, word):
                words.append(f"{word.value}:{stream.name}")
            case SkippedItems(what, count):
                words.append(f"{what}={count}")
            case LogEvent() | Tick():
                pass
            case ConnectorExited(code):
                words.append(f"exit:{code}")
            case _:
                words.append(type(event).__name__)
    return words


def only(events: Iterable[Event], kind: type) -> list[Any]:
    return [e for e in events if isinstance(e, kind)]


def warnings(events: Iterable[Event]) -> list[str]:
    return [e.message for e in only(events, LogEvent) if e.level in ("WARN", "ERROR")]


# -- RECORD and STATE


def test_a_state_comes_after_the_records_of_every_stream_L1():
    output = record("a", 1) + record("b", 2) + record("a", 3) + state({"x": 1}) + record("a", 4)
    assert short(read(output)) == ["a:1,3", "b:2", 'state:{"x": 1}', "a:4", "exit:0"]


def test_a_state_is_kept_byte_for_byte_L1():
    text = '{ "big":12345678901234567890.1234567890,"z":null,"a" :[1, 2]}'
    output = f'{{"type":"STATE","value":{text}}}\n'.encode()
    assert only(read(output), State)[0].blob == text


@pytest.mark.parametrize("value", [None, {}, 7, "text"])
def test_a_state_may_be_any_value_specification_STATE(value: Any):
    assert [json.loads(s.blob) for s in only(read(state(value)), State)] == [value]


def test_a_state_without_a_value_or_with_nan_is_not_saved():
    events = read(line("STATE") + b'{"type":"STATE","value":{"x":NaN}}\n')
    assert short(events) == ["malformed:STATE=2", "exit:0"]
    assert len(warnings(events)) == 2


def test_types_are_case_insensitive_specification_Output():
    output = b'{"type":"Record","stream":"a","record":{"n":1}}\n' + record("a", 2)
    output += b'{"type":"state","value":1}\n'
    assert short(read(output)) == ["a:1,2", "state:1", "exit:0"]


def test_any_type_is_permitted_counted_and_told_once_specification_Output():
    events = read(line("FUTURE", x=1) * 3 + record("a", 1))
    assert short(events) == ["a:1", "unknown_type:FUTURE=3", "exit:0"]
    assert len(warnings(events)) == 1


def test_time_extracted_is_the_extraction_time_else_arrival():
    good = ["2017-11-20T16:45:33.000Z", "2017-11-20T16:45:33.000123+00:00", "2017-11-20 16:45:33"]
    output = b"".join(record("a", n, time_extracted=t) for n, t in enumerate(good))
    output += record("a", 9, time_extracted="yesterday") + record("a", 10)
    (batch,) = only(read(output), Batch)
    assert list(batch.extracted_at[:3]) == [1511196333000] * 3
    assert all(t > 1_700_000_000_000 for t in batch.extracted_at[3:])


def test_many_times_are_read_at_once():
    output = b"".join(
        record("a", n, time_extracted=f"2026-01-01T00:00:{n:02d}.{n:06d}Z") for n in range(50)
    )
    (batch,) = only(read(output), Batch)
    assert list(batch.extracted_at) == [1767225600000 + n * 1000 for n in range(50)]


def test_rejects_hold_their_lines_L8():
    bad = [
        line("RECORD", stream="a", record=None),
        line("RECORD", stream="a", record=[1]),
        line("RECORD", stream="a"),
        line("RECORD", record={"n": 1}),
    ]
    events = read(record("a", 1) + b"".join(bad) + record("a", 2))
    rejects = only(events, Reject)
    assert [r.raw + b"\n" for r in rejects] == bad
    assert [r.stream for r in rejects] == [A, A, A, None]
    assert "record is missing" in rejects[2].reason
    assert "record is not an object" in rejects[0].reason
    assert short(events)[-2:] == ["a:1,2", "exit:0"]


def test_a_line_that_holds_a_record_and_is_no_message_is_a_reject_L8():
    two = record("a", 1)[:-1] + record("a", 2)
    events = read(two + record("b", 1))
    assert [r.raw + b"\n" for r in only(events, Reject)] == [two]
    half = record("a", 1)[:-20]
    (reject,) = only(read(record("b", 1) + half), Reject)
    assert (reject.stream, reject.raw) == (A, half)
    assert "the output ended inside it" in reject.reason


def test_noise_blank_lines_and_python_values_survive():
    output = b"\n".join(
        [
            b"a line of text",
            b"",
            b"[1, 2]",
            b'{"not": "a message"}',
            b'{"type": "RECORD", "stream": "a", "record": {"n": 1, "f": NaN, "s": "\\ud800"}}',
            b'  {"type": "RECORD", "stream": "a", "record": {"n": 2, "f": -Infinity}}\r',
            b'{"type": "RECORD", "stream": "a", "record": {"n": 99999999999999999999999}}',
            b"",
        ]
    )
    events = read(output)
    (batch,) = only(events, Batch)
    assert b"NaN" in bytes(batch.bodies[0])
    assert b"99999999999999999999999" in bytes(batch.bodies[2])
    assert set(short(events)[1:]) == {
        "text_line=1",
        "blank_line=1",
        "not_a_message=2",
        "exit:0",
    }


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"RECORD","stream":"a","rec\\u006frd" :\t{"n":NaN}}',
        b'{"type":"rec\\u004frd","stream":"a","rec\\u006frd":{"n":NaN}}\r',
        b' {"x":{"record":{"n":111},"y":{"n":[]}},"record":{"n":[]},"type":"RECORD",'
        b'"stream":"a","record":{"n":NaN}}',
    ],
    ids=["key escaped", "marks escaped", "the like of it before it"],
)
def test_a_number_that_json_cannot_hold_is_found_however_its_line_is_written_L9(raw: bytes):
    (batch,) = only(read(raw + b"\n"), Batch)
    assert [bytes(b) for b in batch.bodies] == [b'{"n":NaN}']


@pytest.mark.parametrize("between", [b"", b"text\n"])
def test_each_record_whose_version_is_none_is_counted(between: bytes):
    events = read(record("a", 1, version="v") + between + record("a", 2, version="v"))
    assert SkippedItems("malformed:version", 2) in events


def test_a_number_that_json_cannot_hold_is_no_version():
    events = read(
        record("a", 1, version=7).replace(b"7", b"NaN"),
        activate("a", 7).replace(b"7", b"-Infinity"),
    )
    assert [b.version for b in only(events, Batch)] == [None]
    assert not only(events, Activate)


def test_a_message_that_is_no_record_is_not_taken_for_one_by_a_property_of_that_name():
    of = {"properties": {"n": {"default": 7}, "record": {"type": "object"}}}
    output = schema("a", of, keys=["n"]).replace(b"7", b"NaN")
    output += state({"record": {"n": 7}}).replace(b"7", b"NaN")
    events = read(output + record("a", 1))
    assert short(events) == ["schema:a", "a:1", "malformed:STATE=1", "exit:0"]


def test_a_megabyte_line_and_one_that_is_too_long(tmp_path: Path):
    big = line("RECORD", stream="a", record={"n": 1, "t": "x" * 3_000_000})
    assert short(read(big)) == ["a:1", "exit:0"]
    (reject,) = only(read(big, max_record_bytes=1_000_000, spool_folder=str(tmp_path)), Reject)
    assert reject.stream == A
    assert Path(reject.spool).read_bytes() + b"\n" == big
    assert reject.size == len(big) - 1


def test_records_of_streams_that_are_not_configured_are_counted():
    events = read(schema("b") + record("a", 1) + record("parent", 1) * 2 + schema("parent"))
    assert short(events) == [
        "UnconfiguredRecords",
        "a:1",
        "stream_not_configured:parent=3",
        "exit:0",
    ]
    assert [e.stream.name for e in events if isinstance(e, UnconfiguredRecords)] == ["parent"]


# -- names


def test_messages_may_use_the_identity_or_the_stream_name():
    one = entry("shop-orders", stream="orders")
    for name in ("shop-orders", "orders"):
        events = read(record(name, 1), streams=configured(one))
        assert [b.stream.name for b in only(events, Batch)] == ["shop-orders"]
    words = {"inclusion": "available", "schema-name": "shop"}
    spaced = entry("x", stream="orders", metadata=[{"breadcrumb": [], "metadata": words}])
    assert short(read(record("shop_orders", 1), streams=configured(spaced))) == ["x:1", "exit:0"]


def test_a_name_that_two_streams_may_mean_is_an_error_and_stops_states_L1_L8():
    both = configured(entry("x-orders", stream="orders"), entry("y-orders", stream="orders"))
    output = record("x-orders", 2) + record("orders", 1) + state(1)
    events = read(output, streams=both)
    assert [b.stream.name for b in only(events, Batch)] == ["x-orders"]
    (error,) = only(events, Error)
    assert "x-orders, y-orders" in error.message
    assert not only(events, State)
    assert short(events)[-1] == "exit:None"


def test_a_stream_of_which_nothing_came_is_not_empty_if_others_came_instead_L6():
    events = read(record("a", 1) + record("what", 1))
    (error,) = only(events, Error)
    assert error.message.startswith("no record came of b, but records of what")
    assert short(events)[-1] == "exit:None"
    assert not only(read(record("a", 1) + schema("b") + record("what", 1)), Error)
    assert not only(read(record("a", 1)), Error)


# -- SCHEMA


def test_a_schema_that_says_no_more_is_no_barrier():
    annotated = {
        "additionalProperties": False,
        "selected": True,
        "properties": {"n": {"inclusion": "automatic", "type": ["integer", "null"]}},
        "type": ["null", "object"],
    }
    output = schema("a") + record("a", 1) + schema("a", annotated) + record("a", 2)
    assert short(read(output)) == ["a:1,2", "exit:0"]


def test_a_schema_without_deselected_fields_is_no_barrier():
    both = {"type": "object", "properties": {"n": {"type": "integer"}, "m": {"type": "string"}}}
    streams = configured(entry("a", schema=both))
    assert short(read(schema("a") + record("a", 1), streams=streams)) == ["a:1", "exit:0"]


@pytest.mark.parametrize("bare", [{}, {"type": "object"}, {"properties": {}}, True])
def test_a_schema_without_properties_is_no_barrier(bare: Any):
    assert short(read(schema("a", bare, keys=None) + record("a", 1))) == ["a:1", "exit:0"]


def test_what_the_catalog_says_never_comes_is_no_new_column():
    both = {"type": "object", "properties": {"n": {"type": "integer"}, "raw": {}}}
    words = {"inclusion": "unsupported"}
    items = [{"breadcrumb": ["properties", "raw"], "metadata": words}]
    streams = configured(entry("a", schema=both, metadata=items))
    assert short(read(schema("a", both, keys=[]) + record("a", 1), streams=streams)) == [
        "a:1",
        "exit:0",
    ]


def test_a_byte_order_mark_before_the_first_schema_or_row_costs_nothing(tmp_path: Path):
    file = tmp_path / "rows"
    file.write_bytes(b'\xef\xbb\xbf{"n": 2}\n')
    wider = {"properties": {"n": {"type": "integer"}, "x": {"type": "string"}}}
    events = read(b"\xef\xbb\xbf" + schema("a", wider) + record("a", 1) + batch("a", file))
    assert short(events) == ["schema:a", "a:1", "a:2", "exit:0"]


def test_a_new_column_or_type_or_key_is_a_barrier_for_its_stream():
    wider = {"type": "object", "properties": {"n": {"type": "number"}, "m": {"type": "string"}}}
    output = schema("a") + record("a", 1) + record("b", 1) + schema("a", wider)
    output += record("a", 2) + schema("a", wider) + record("a", 3)
    events = read(output)
    assert short(events) == ["a:1", "schema:a", "b:1", "a:2,3", "exit:0"]
    (event,) = only(events, Schema)
    assert (event.json_schema, event.primary_key) == (wider, (("n",),))
    assert short(read(schema("a", keys=["n"]) + schema("a", keys=[]))) == ["schema:a", "exit:0"]


def test_A7_a_bookmark_that_the_catalog_does_not_name_is_told():
    """Specification, SCHEMA: ``bookmark_properties`` are the cursor; after discovery they were
    ignored, so that the newest row was that of any column or none."""
    more = {"type": "object", "properties": {"n": {"type": "integer"}, "t": {"type": "integer"}}}
    marked = schema("a", more, bookmark_properties=["t"])
    bare = configured(entry("a", schema=more))
    told = read(marked, marked, record("a", 1), Exit(0), streams=bare)
    assert [e.cursor_field for e in told if isinstance(e, Schema)] == [("t",)]
    named = configured(entry("a", schema=more, replication_key="n"))
    told = read(marked, record("a", 1), Exit(0), streams=named)
    assert not [e for e in told if isinstance(e, Schema)]  # what the catalog says holds


def test_bookmark_and_key_that_are_no_properties_are_named():
    more = {"type": "object", "properties": {"n": {"type": "integer"}, "t": {"type": "string"}}}
    output = schema("a", more, keys=["n", "nope"], bookmark_properties=["gone", "t"])
    events = read(output)
    (event,) = only(events, Schema)
    assert (event.primary_key, event.cursor_field) == ((("n",), ("nope",)), ("t",))
    assert [w.split("'")[1] for w in warnings(events)] == ["nope", "gone"]


def test_L8_a_key_is_whole_or_none_specification_SCHEMA():
    """`key_properties` are the primary key together: rows that differ in the part that the schema
    lacks are different rows."""
    words = {"table-key-properties": ["n", "during"]}
    items = [
        {"breadcrumb": [], "metadata": words},
        {"breadcrumb": ["properties", "during"], "metadata": {"inclusion": "unsupported"}},
    ]
    both = {"type": "object", "properties": {"n": {"type": "integer"}, "during": {}}}
    streams = configured(entry("a", schema=both, metadata=items))
    told = read(schema("a", keys=["n", "during"]) + record("a", 1), streams=streams)
    assert short(told) == ["a:1", "exit:0"]  # the catalog's own key
    (event,) = only(read(schema("x", keys=["n", "during"]), streams=(), open=True), Schema)
    assert event.primary_key == (("n",), ("during",))


@pytest.mark.parametrize("host", [False, True])
def test_L8_a_stream_of_unknown_shape_has_a_key_that_no_schema_declares(host: bool):
    """tap-mongodb: ``{"type": "object"}``, then what it has met; always with ``_id``."""
    some = {"type": "object", "properties": {"at": {"type": "string"}}}
    output = schema("x", {"type": "object"}, keys=["_id"]) + schema("x", some, keys=["_id"])
    events = read(output + record("x", 1), streams=(), open=True, refuses=host)
    assert [e.primary_key for e in only(events, Schema)] == [(("_id",),)] * 2
    assert short(events)[-2:] == ["x:1", "exit:0"] and not warnings(events)
    strict = schema("x", {**some, "additionalProperties": False}, keys=["_id"])
    told = read(output + strict, streams=(), open=True, refuses=host)
    assert bool(only(told, Error)) is host and bool(warnings(told)) is not host


def test_missing_key_properties_say_nothing_of_the_key():
    events = read(schema("a", keys=None) + record("a", 1))
    assert short(events) == ["a:1", "exit:0"]
    assert "key_properties" in warnings(events)[0]


@pytest.mark.parametrize("broken", [None, "text", [1], 7])
def test_a_schema_that_is_none_is_told_and_the_records_stay(broken: Any):
    events = read(schema("a", broken) + record("a", 1))
    assert short(events) == ["a:1", "malformed:SCHEMA=1", "exit:0"]
    assert len(warnings(events)) == 1


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"type":"STATE","value":{"n":1e400},"manifest":1e400}', "state"),
        (b'{"type":"STATE","value":{"n":1e400},"version":1e400,"stream":-1E400}', "state"),
        (b'{"type":"RECORD","stream":"a","record":{"n":1},"version":1e400}', "a:1"),
        (b'{"type":"RECORD","stream":"a","record":{"n":1},"time_extracted":1e400}', "a:1"),
        (b'{"type":"SCHEMA","stream":"a","schema":{"maximum":1e400},"key_properties":[]}', ""),
    ],
)
def test_a_number_that_no_double_holds_costs_no_message_and_no_read(raw: bytes, expected: str):
    events = read(raw + b"\n", record("a", 2))
    assert "a:2" in short(events)
    assert not [e for e in events if isinstance(e, Reject | Error)]
    assert not [e for e in only(events, SkippedItems) if e.what == "text_line"]
    assert not expected or expected in short(events) or only(events, State)


@pytest.mark.parametrize("depth", range(900, 1000, 4))
def test_no_depth_of_a_message_ends_the_read(depth: int):
    deep = b"[" * depth + b"]" * depth
    output = b'{"type":"SCHEMA","stream":"a","schema":{"x":%b},"key_properties":["n"]}\n' % deep
    output += b'{"type":"SCHEMA","stream":"a","schema":{},"key_properties":%b}\n' % deep
    output += b'{"type":"STATE","value":{},"manifest":%b}\n' % deep
    assert "a:2" in short(read(output + record("a", 2)))


def test_a_boolean_schema_allows_anything():
    events = read(schema("c", True) + record("c", 1), streams=(), open=True)
    assert [e.json_schema for e in only(events, Schema)] == [{}]


# -- open reads


def test_an_open_read_announces_each_stream_before_its_first_record():
    output = schema("x") + record("x", 1) + record("y", 2) + schema("y") + record("y", 3)
    events = read(output, streams=(), open=True)
    expected = ["schema:x", "schema:y", "y:2", "schema:y", "x:1", "y:3", "exit:0"]
    assert sorted(short(events)) == sorted(expected)
    assert [(e.stream.name, e.json_schema) for e in only(events, Schema)] == [
        ("x", SCHEMA),
        ("y", {}),
        ("y", SCHEMA),
    ]


def test_a_record_before_its_schema_is_schemaless_specification_SCHEMA():
    words = short(read(record("x", 1) + record("x", 2), streams=(), open=True))
    assert words == ["schema:x", "x:1,2", "exit:0"]
    words = short(read(record("x", 1) + state({"x": 1}), streams=(), open=True, refuses=True))
    assert words[:2] == ["schema:x", "x:1"], "a host's too"


@pytest.mark.parametrize(
    ("output", "code"),
    [
        (line("SCHEMA", stream="x", schema="no", key_properties=[]), "source.bad_schema"),
        (line("SCHEMA", stream="x", key_properties=[]), "source.bad_schema"),
        (line("SCHEMA", schema=SCHEMA, key_properties=[]), "source.bad_schema"),
        (schema("x", keys=["n", "during"]), "source.bad_schema"),
    ],
)
def test_where_a_host_must_hear_what_cannot_be_taken_ends_the_read(output: bytes, code: str):
    """Issue 9, C: as in Singer's own targets; no state that comes after it is met."""
    later = schema("x") + record("x", 2) + state({"x": 2})
    before = schema("y") + record("y", 1) + state({"y": 1})
    events = read(before + output + later, streams=(), open=True, refuses=True)
    assert [e.code for e in only(events, Error)] == [code]
    assert len(only(events, State)) == 1 and isinstance(events[-1], ConnectorExited)
    assert events[-1].code is None
    assert not only(read(before + output + later, streams=(), open=True), Error)


def test_an_open_read_gives_the_tap_no_catalog():
    runtime = MemoryRuntime(lambda _: [record("x", 1)])
    list(PACKAGE.source.read(runtime, ReadRequest(config={}, streams=(), open=True)))
    assert [a for a in runtime.runs[0] if isinstance(a, str)] == ["--config"]


def test_a_read_that_selects_nothing_is_an_error():
    with pytest.raises(ConfigError) as caught:
        read(b"", streams=())
    assert caught.value.code == "config.no_streams"


# -- versions


def activate(stream: str, version: Any) -> bytes:
    return line("ACTIVATE_VERSION", stream=stream, version=version)


def test_versions_part_batches_and_activation_comes_after_its_records_L6():
    output = activate("a", 1) + record("a", 1, version=1) + record("b", 9) + activate("a", 1)
    output += record("a", 2, version=2) + record("a", 3, version=1)
    assert short(read(output)) == [
        "activate:a@1",
        "a@1:1",
        "activate:a@1",
        "b:9",
        "a@2:2",
        "a@1:3",
        "exit:0",
    ]


def test_an_activation_without_a_version_is_told():
    events = read(activate("a", None) + activate("a", "x"))
    assert short(events) == ["malformed:ACTIVATE_VERSION=2", "malformed:version=1", "exit:0"]


@pytest.mark.parametrize(
    ("output", "mode", "complete"),
    [
        (record("a", 1, version=1) + activate("a", 1), SyncMode.full_refresh, True),
        (activate("a", 1), SyncMode.full_refresh, False),
        (record("a", 1, version=1) + activate("a", 2), SyncMode.full_refresh, False),
        (
            record("a", 1, version=1) + activate("a", 1) + record("a", 2, version=1),
            SyncMode.full_refresh,
            False,
        ),
        (
            record("a", 1, version=1) + activate("a", 1) + activate("a", 2),
            SyncMode.full_refresh,
            False,
        ),
        (
            record("a", 1, version=1) + activate("a", 1) + activate("a", 1),
            SyncMode.full_refresh,
            True,
        ),
        (record("a", 1, version=1) + activate("a", 1), SyncMode.incremental, False),
    ],
)
def test_a_stream_is_whole_in_a_failed_run_if_its_activation_came_last_L6_L7(
    output: bytes, mode: SyncMode, complete: bool
):
    streams = configured(entry("a"), mode=mode)
    assert ("COMPLETE:a" in short(read(output, Exit(1), streams=streams))) is complete
    assert "COMPLETE:a" not in short(read(output, streams=streams))


# -- BATCH


def batch(stream: str, path: Path, form: str = "jsonl", **encoding: Any) -> bytes:
    words = {"format": form, **encoding}
    return line("BATCH", stream=stream, encoding=words, manifest=[f"file://{path}"])


def test_batch_files_become_records_in_their_place(tmp_path: Path):
    packed, plain = tmp_path / "a b.gz", tmp_path / "plain.jsonl"
    packed.write_bytes(gzip.compress(b'{"n": 1}\n{"n": 2}\n'))
    plain.write_bytes(b'{"n": 3}\n\n{"n": NaN}')
    table = pa.table({"n": pa.array([5], pa.int64()), "d": pa.array(["x"])})
    pq.write_table(table, tmp_path / "t.parquet")
    output = record("a", 0) + batch("a", packed, compression="gzip") + state(1)
    output += batch("a", plain, compression="none") + batch("a", tmp_path / "t.parquet", "parquet")
    events = read(output)
    assert short(events) == ["a:0", "a:1,2", "state:1", "a:3", "a:nan", "a:5", "exit:0"]
    assert [b.size for b in only(events, Batch)][1] == 16


def test_a_batch_row_that_is_no_object_is_a_reject(tmp_path: Path):
    file = tmp_path / "x"
    file.write_bytes(b'{"n": 1}\n[2]\n')
    events = read(batch("a", file))
    assert short(events) == ["Reject", "a:1", "exit:0"]
    assert only(events, Reject)[0].raw == b"[2]"


@pytest.mark.parametrize("how", ["missing", "cut", "nothing in it", "format", "remote"])
def test_a_batch_that_cannot_be_read_is_an_error_and_no_state_follows_L1(tmp_path: Path, how: str):
    file = tmp_path / "x.gz"
    if how == "cut":
        file.write_bytes(gzip.compress(b'{"n": 1}\n' * 9999)[:-20])
    elif how == "nothing in it":  # not even the header of gzip
        file.touch()
    message = batch("a", file, "arrow" if how == "format" else "jsonl", compression="gzip")
    if how == "remote":
        message = message.replace(b"file://", b"s3://")
    events = read(state(0) + message + record("a", 1) + state(1))
    (error,) = only(events, Error)
    assert error.code == "source.batch_unreadable"
    assert str(file) in error.message
    assert [s.blob for s in only(events, State)] == ["0"]
    assert short(events)[-1] == "exit:None"


@pytest.mark.parametrize("how", ["no stream", "text around it", "cut", "too long"])
def test_a_batch_message_that_cannot_be_read_is_no_single_reject_L1_L8(tmp_path: Path, how: str):
    """Its files may hold any number of rows, which a later state would cover."""
    file = tmp_path / "x"
    file.write_bytes(b'{"n": 1}\n{"n": 2}\n')
    message = batch("a", file)
    if how == "no stream":
        message = message.replace(b'"stream": "a"', b'"stream": null')
    elif how == "text around it":
        message = b"INFO " + message
    elif how == "cut":
        message = message[:-4] + b"\n"
    else:
        message = line("BATCH", stream="a", encoding={"format": "jsonl"}, manifest=[f"{file}"] * 99)
    events = read(state(0) + message + record("a", 3) + state(1), max_record_bytes=1000)
    (error,) = only(events, Error)
    assert error.code == "source.batch_unreadable" and "BATCH" in error.message
    assert [s.blob for s in only(events, State)] == ["0"]
    assert short(events)[-1] == "exit:None"


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"BATCH","stream":"a","manifest":["%b"]}',
        b'{"type":"B\\u0041TCH","stream":"a","manifest":["%b"]}',
        b'{"encoding":{"format":"jsonl"},"manifest":["%b"],"stream":"a","type":"batch"}',
        b'{"type":"BATCH","record":{},"stream":"a","manifest":["%b"]}\r',
    ],
    ids=["plain", "escaped", "type last", "a stray record"],
)
def test_an_oversized_batch_ends_the_read_however_it_is_written_L1_L8(raw: bytes, tmp_path: Path):
    output = state(0) + raw % (b"x" * 70_000) + b"\n" + state(1)
    events = read(output, max_record_bytes=1000, spool_folder=str(tmp_path))
    (error,) = only(events, Error)
    assert (error.code, error.stream) == ("source.batch_unreadable", A)
    assert [s.blob for s in only(events, State)] == ["0"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"RECORD","stream":"a","record":{"t":"%b"}}',
        b'{"type":"REC\\u004frd","stre\\u0061m":"a","rec\\u006Frd":{"t":"%b"}}',
        b'{"record":{"stream":"b","t":"%b"},"stream":"a","type":"RECORD"}\r',
        b'{"x":["%b"],"type":"RECORD","stream":"a","record":{"type":"BATCH"}}',
    ],
    ids=["plain", "escaped", "another stream first", "marks last"],
)
def test_an_oversized_record_is_a_reject_of_its_stream_however_it_is_written_L8(
    raw: bytes, tmp_path: Path
):
    raw = raw % (b"x" * 70_000)
    events = read(raw + b"\n", max_record_bytes=1000, spool_folder=str(tmp_path))
    (reject,) = only(events, Reject)
    assert (reject.stream, reject.size) == (A, len(raw))
    assert Path(str(reject.spool)).read_bytes() == raw


@pytest.mark.parametrize("seam", [b"", b" ", b"\t\r"])
def test_a_batch_on_one_line_with_a_record_is_no_single_reject_L1_L8(tmp_path: Path, seam: bytes):
    both = [record("a", 1).strip(), b'{"manifest":["f"],"type":"B\\u0041TCH","stream":"a"}']
    for first, second in both, both[::-1]:
        events = read(state(0) + first + seam + second + b"\n" + state(1))
        assert [e.code for e in only(events, Error)] == ["source.batch_unreadable"]
        assert [s.blob for s in only(events, State)] == ["0"]


def test_a_broken_record_that_mentions_a_batch_is_a_reject_L8():
    broken = line("RECORD", stream="a", record={"type": "BATCH"})[:-2] + b"\n"
    events = read(broken + record("a", 1) + state(1))
    assert len(only(events, Reject)) == 1 and not only(events, Error)


def test_parquet_rows_keep_digits(tmp_path: Path):
    from decimal import Decimal

    big = Decimal("99999999999999.999999")
    table = pa.table({"d": pa.array([big]), "i": pa.array([9007199254740993], pa.int64())})
    pq.write_table(table, tmp_path / "t.parquet")
    (found,) = only(read(batch("a", tmp_path / "t.parquet", "parquet")), Batch)
    assert bytes(found.bodies[0]) == b'{"d":99999999999999.999999,"i":9007199254740993}'


def parquet_rows(path: Path, table: Any, **properties: Any) -> list[dict[str, Any]]:
    """The rows of a parquet file after our decoder, all of them fitting."""
    pq.write_table(table, path)
    (found,) = only(read(batch("a", path, "parquet")), Batch)
    record = PACKAGE.schema.data_type({"type": "object", "properties": properties})
    decoder = RowDecoder(row_schema(record, {}), words=ChangeWords("NULLED", "TYPE_MISFIT"))
    decoded = decoder.decode(found.bodies, 1, found.extracted_at)
    rows: list[dict[str, Any]] = decoded.table.to_pylist()
    assert not [r for r in rows if r["_penstock_changes"]]
    return [{k: v for k, v in r.items() if not k.startswith("_penstock")} for r in rows]


def test_bytes_in_parquet_arrive_as_they_are_nested_ones_too_L8(tmp_path: Path):
    base64 = {"type": ["null", "string"], "contentEncoding": "base64"}
    inner = pa.struct([("b", pa.binary()), ("n", pa.int64())])
    table = pa.table(
        {
            "plain": pa.array([b"abcd", b"\x00\xff", None], pa.binary()),
            "fixed": pa.array([b"ab", b"\\x", None], pa.binary(2)),
            "listed": pa.array([[b"abcd", None], [], None], pa.list_(pa.large_binary())),
            "inside": pa.array([{"b": b"abcd", "n": 1}, {"b": None, "n": 2}, None], inner),
            "deep": pa.array([[{"b": b"\xfe", "n": 3}, None], None, []], pa.list_(inner)),
        }
    )
    of_inner = {"type": "object", "properties": {"b": base64, "n": {"type": "integer"}}}
    rows = parquet_rows(
        tmp_path / "t",
        table,
        plain=base64,
        fixed=base64,
        listed={"type": "array", "items": base64},
        inside=of_inner,
        deep={"type": "array", "items": of_inner},
    )
    assert rows == table.to_pylist()


def test_bytes_in_a_map_of_parquet_are_base64(tmp_path: Path):
    kind = pa.map_(pa.string(), pa.list_(pa.binary()))
    pq.write_table(pa.table({"m": pa.array([[("k", [b"\xff"])], None], kind)}), tmp_path / "t")
    (found,) = only(read(batch("a", tmp_path / "t", "parquet")), Batch)
    assert [json.loads(bytes(b)) for b in found.bodies] == [{"m": {"k": ["/w=="]}}, {"m": None}]


def test_names_in_parquet_that_differ_only_in_case_stay_apart_L8(tmp_path: Path):
    integer = {"type": "integer"}
    table = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], ["id", "ID", 'it\'s "1"'])
    names = {"id": integer, "ID": integer, 'it\'s "1"': integer}
    (row,) = parquet_rows(tmp_path / "t", table, **names)
    assert sorted(row.values()) == [1, 2, 3]
    twins = pa.array([{"a": 1, "A": 2}, None], pa.struct([("a", pa.int64()), ("A", pa.int64())]))
    rows = parquet_rows(tmp_path / "u", pa.table({"o": twins}), o={"type": "object"})
    assert rows == [{"o": '{"a":1,"A":2}'}, {"o": None}]


def test_the_path_of_a_parquet_file_is_no_pattern_and_no_column(tmp_path: Path):
    folder = tmp_path / "n=7"
    folder.mkdir()
    pq.write_table(pa.table({"n": pa.array([1])}), folder / "x[1]*.parquet")
    pq.write_table(pa.table({"n": pa.array([2])}), folder / "x1.parquet")
    assert short(read(batch("a", folder / "x[1]*.parquet", "parquet"))) == ["a:1", "exit:0"]


@pytest.mark.parametrize(
    "start", ["file://localhost", "file://LOCALHOST", "file:", "FILE://", "file://", ""]
)
def test_every_name_of_a_local_batch_file_RFC_8089(tmp_path: Path, start: str):
    (tmp_path / "x").write_bytes(b'{"n": 1}\n')
    manifest = [f"{start}{tmp_path}/x"]
    events = read(line("BATCH", stream="a", encoding={"format": "jsonl"}, manifest=manifest))
    assert short(events) == ["a:1", "exit:0"]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("folders", [(), ("given",)])
def test_a_batch_of_an_isolated_tap_reads_no_other_file_of_the_host_L10(
    tmp_path: Path, form: str, folders: tuple[str, ...]
):
    """A container with ``allowed_preopens``, whatever its message and its configuration name."""
    given = tmp_path / "given"
    given.mkdir()
    secret = tmp_path / "rows"
    if form == "jsonl":
        secret.write_bytes(b'{"n": 42}\n')
    else:
        pq.write_table(pa.table({"n": [42]}), secret)
    (given / "link").symlink_to(secret)
    shared = SharedFolders(paths=tuple(str(tmp_path / f) for f in folders))
    config = {"batch_config": {"storage": {"root": f"file://{tmp_path}"}}}
    for path in (secret, given / "link", f"{given}/../rows", f"{given}/%2e%2e/rows"):
        events = read(
            state(0) + batch("a", Path(path), form) + state(1), shared=shared, config=config
        )
        (error,) = only(events, Error)
        assert error.code == "source.batch_unreadable"
        assert not only(events, Batch) and not only(events, Reject)
        assert [s.blob for s in only(events, State)] == ["0"]
        if path == secret:
            assert "was given" in error.message
            assert "permissions.fs.allowed_preopens" in str(error.hint)


def test_a_batch_of_an_isolated_tap_is_read_from_the_folder_that_it_was_given(tmp_path: Path):
    (tmp_path / "rows").write_bytes(b'{"n": 1}\n')
    events = read(batch("a", tmp_path / "rows"), shared=SharedFolders(paths=(str(tmp_path),)))
    assert short(events) == ["a:1", "exit:0"]


@pytest.mark.parametrize(
    "root", ["file://{0}/b", "{0}/b", "file:///{0}/b", "file://b", "b", "./b/", "osfs://{0}/b"]
)
def test_a_process_names_batches_below_the_root_of_its_configuration(tmp_path: Path, root: str):
    """As the Singer SDK takes ``batch_config.storage.root``; a relative one begins in the working
    folder of the tap, where files may lie without it too."""
    cwd = tmp_path / "cwd"
    for folder in (tmp_path / "b", cwd / "b"):
        folder.mkdir(parents=True)
        (folder / "a b").write_bytes(b'{"n": 1}\n')
    shared = SharedFolders(paths=(str(cwd),), cwd=str(cwd))
    config = {"batch_config": {"storage": {"root": root.format(tmp_path)}}}
    inside = tmp_path / "b" if "{0}" in root else cwd / "b"
    message = line(
        "BATCH", stream="a", encoding={"format": "jsonl"}, manifest=[(inside / "a b").as_uri()]
    )
    assert short(read(message, shared=shared, config=config)) == ["a:1", "exit:0"]
    (error,) = only(read(batch("a", tmp_path / "b" / "a b"), shared=shared), Error)
    assert "batch_config.storage.root" in str(error.hint)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_batch_that_names_a_pipe_does_not_hang_L11(tmp_path: Path, form: str):
    os.mkfifo(tmp_path / "pipe")
    began = time.monotonic()
    (error,) = only(read(batch("a", tmp_path / "pipe", form)), Error)
    assert (error.code, error.stream) == ("source.batch_unreadable", A)
    assert "not a regular file" in error.message
    assert time.monotonic() - began < 10


def test_the_total_timeout_holds_within_a_batch_L11(tmp_path: Path):
    """A line of a kilobyte may stand for files that take hours."""
    (tmp_path / "rows").write_bytes(b'{"n": 1}\n' * 100_000)
    message = line(
        "BATCH", stream="a", encoding={"format": "jsonl"}, manifest=[f"{tmp_path}/rows"] * 10_000
    )
    began = time.monotonic()
    events = read(state(0) + message + state(1), timeouts=RunTimeouts(total=1.0))
    assert only(events, Error)[0].code == "source.timeout"
    assert [s.blob for s in only(events, State)] == ["0"]
    assert time.monotonic() - began < 20


def test_a_bomb_in_one_row_of_a_batch_lets_the_read_be_stopped_L11(tmp_path: Path):
    """No row ends for a long time, and the read must notice that it is to end."""
    (tmp_path / "rows").write_bytes(gzip.compress(b'{"n": "' + b"x" * (64 << 20) + b'"}'))
    events = read(batch("a", tmp_path / "rows"), max_record_bytes=1 << 20)
    assert len(only(events, Tick)) > 8
    reason = "a row of 67108873 bytes is larger than max_record_bytes"
    assert only(events, Reject)[0].reason == reason


# -- ends


def test_the_critical_line_is_the_error_of_a_failed_tap():
    steps = [record("a", 1), StderrLine("INFO x\nCRITICAL the token expired\nINFO bye"), Exit(2)]
    events = read(*steps)
    (error,) = only(events, Error)
    assert error.message == "the token expired (exit code 2)"
    assert short(events) == ["a:1", "Error", "exit:2"]


def test_a_tap_that_we_stopped_is_not_complete_whatever_its_code_L11():
    events = read(record("a", 1), Sleep(), timeouts=RunTimeouts(heartbeat=60))
    assert only(events, Error)[0].code == "source.heartbeat"
    assert short(events)[-1] == "exit:None"


def test_a_tap_that_does_not_know_catalog_is_given_properties_and_then_nothing():
    def script(arguments: list[str | bytes]) -> Iterable[Step]:
        for word in ("--catalog", "--properties"):
            if word in arguments:
                yield StderrLine(f"usage: tap\ntap: error: unrecognized arguments: {word} x")
                yield Exit(2)
                return
        yield record("a", 1)

    runtime = MemoryRuntime(script)
    request = ReadRequest(config={}, streams=configured(entry("a")))
    assert short(PACKAGE.source.read(runtime, request)) == ["a:1", "exit:0"]
    assert [r[2] if len(r) > 2 else None for r in runtime.runs] == [
        "--catalog",
        "--properties",
        None,
    ]


def test_a_tap_that_fails_for_another_reason_is_started_once():
    runtime = MemoryRuntime(lambda _: [StderrLine("CRITICAL no such table"), Exit(1)])
    request = ReadRequest(config={}, streams=configured(entry("a")))
    assert short(PACKAGE.source.read(runtime, request)) == ["Error", "exit:1"]
    assert len(runtime.runs) == 1
