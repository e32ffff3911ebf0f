"""A read's lines -> events: grouping, noise, rejects, states, time limits (protocol, Interface
Invariants, AirbyteRecordMessage, AirbyteStateMessage; specification, Read)."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SourceError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import (
    Batch,
    ConnectorExited,
    Control,
    Error,
    Estimate,
    Event,
    LogEvent,
    RateLimitWait,
    RecordCountMismatch,
    Reject,
    SkippedItems,
    State,
    Status,
    StreamStatus,
    Tick,
)
from penstock.model.state import StateScope, StateType, StoredState
from penstock.protocols.airbyte.package import PACKAGE
from penstock.protocols.reading import ReadRequest
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.memory import Exit, MemoryRuntime, Sleep, StderrLine, Step

A, B = StreamId(None, "a"), StreamId("n", "b")


def configured(stream: StreamId) -> ConfiguredStream:
    return ConfiguredStream(
        stream=Stream(id=stream, json_schema={}),
        sync_mode=SyncMode.incremental,
        destination_sync_mode=DestinationSyncMode.append,
    )


def request(*streams: StreamId, **more: Any) -> ReadRequest:
    return ReadRequest(config={"key": "v"}, streams=tuple(map(configured, streams)), **more)


def read(*steps: Step, streams: tuple[StreamId, ...] = (A, B), **more: Any) -> list[Event]:
    runtime = MemoryRuntime(lambda _: steps)
    return list(PACKAGE.source.read(runtime, request(*streams, **more)))


def line(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode() + b"\n"


def record(stream: str, n: int, namespace: str | None = None, **more: Any) -> bytes:
    body = {"stream": stream, "data": {"n": n}, "emitted_at": 1000 + n, **more}
    return line("RECORD", record=body if namespace is None else {"namespace": namespace, **body})


def state(stream: str, n: int, namespace: str | None = None) -> bytes:
    descriptor = {"name": stream} | ({} if namespace is None else {"namespace": namespace})
    body = {"stream_descriptor": descriptor, "stream_state": {"n": n}}
    return line("STATE", state={"type": "STREAM", "stream": body})


def global_state(n: int) -> bytes:
    body = {"shared_state": {"n": n}, "stream_states": []}
    return line("STATE", state={"type": "GLOBAL", "global": body})


def status(stream: str, word: str, namespace: str | None = None) -> bytes:
    body = {"stream_descriptor": {"name": stream, "namespace": namespace}, "status": word}
    return line("TRACE", trace={"type": "STREAM_STATUS", "emitted_at": 1.5, "stream_status": body})


def short(events: Iterable[Event]) -> list[str]:
    """One word an event: ``a:1,2`` for a batch, ``state:a``."""
    words: list[str] = []
    for event in events:
        match event:
            case Batch(stream, bodies):
                numbers = [str(json.loads(bytes(b))["n"]) for b in bodies]
                words.append(f"{stream.name}:{','.join(numbers)}")
            case State(scope):
                words.append(f"state:{scope.stream.name if scope.stream else '*'}")
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


# -- grouping and order


def test_records_are_grouped_per_stream_between_states():
    output = record("a", 1) + record("b", 2, "n") + record("a", 3) + state("a", 3) + record("a", 4)
    assert short(read(output)) == ["a:1,3", "state:a", "b:2", "a:4", "exit:0"]


def test_a_shared_state_comes_after_the_records_of_every_stream():
    output = record("a", 1) + record("b", 2, "n") + global_state(1) + record("b", 3, "n")
    assert short(read(output)) == ["a:1", "b:2", "state:*", "b:3", "exit:0"]


def test_a_status_comes_after_its_streams_records():
    output = status("a", "STARTED") + record("a", 1) + status("a", "COMPLETE")
    assert short(read(output)) == ["STARTED:a", "a:1", "COMPLETE:a", "exit:0"]


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_blocks_may_be_cut_anywhere(size: int):
    output = b"".join(record("a", n) + state("a", n) for n in range(20))
    blocks = [output[i : i + size] for i in range(0, len(output), size)]
    words = short(read(*blocks))
    assert words == [w for n in range(20) for w in (f"a:{n}", "state:a")] + ["exit:0"]


def test_a_batch_carries_times_size_and_the_sources_changes():
    changes = [{"field": "x", "change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}]
    output = (
        record("a", 1)
        + record("a", 2, meta={"changes": changes})
        + record("a", 3, meta={"changes": []})
        + record("a", 4, meta=None)
        + record("a", 5, meta={"changes": [{"bad": 1}]})
    )
    batch, counted, _ = read(output)
    assert isinstance(batch, Batch)
    assert list(batch.extracted_at) == [1001, 1002, 1003, 1004, 1005]
    assert {i: json.loads(c) for i, c in batch.changes.items()} == {1: changes}
    assert batch.size == sum(len(bytes(b)) for b in batch.bodies)
    assert counted == SkippedItems("malformed:meta", 1)


def test_namespace_none_and_the_empty_string_are_equal():
    output = record("a", 1) + record("a", 2, "") + state("a", 2, "")
    assert short(read(output)) == ["a:1,2", "state:a", "exit:0"]


def test_l1_the_blob_is_the_sources_own_message_byte_for_byte():
    blob = (
        b'{ "type" : "STREAM", "stream": {"stream_descriptor":{"name":"a"},'
        b'"stream_state":{"x":1.50,"u":"\\u00e9"}},"new":[1 ,2] }'
    )
    found = [e for e in read(b'{"state":' + blob + b',"type":"STATE"}\n') if isinstance(e, State)]
    assert found == [State(StateScope(StateType.stream, A), blob.decode())]


@pytest.mark.dear
def test_states_after_every_record_cost_linear_time():
    """10,000 open streams and 20,000 states: nothing is flushed that is not the state's own."""
    ids = tuple(StreamId(None, f"s{i}") for i in range(10_000))
    output = b"".join(record(s.name, 1) for s in ids)
    output += b"".join(record("s0", n) + state("s0", n) for n in range(20_000))
    events = read(output, streams=ids)
    assert sum(len(e.bodies) for e in events if isinstance(e, Batch)) == 30_000


# -- noise


def test_noise_is_counted_and_logged_and_never_fatal():
    output = (
        b"\n  \nsome text\n[1]\n5\n"
        b'{"no":"type"}\n{"type":5}\n'
        b'{"type":"FUTURE","x":1}\n'
        + line("CATALOG", catalog={})
        + line("LOG", log={"level": "LOUD", "message": "hello", "stack_trace": "st"})
        + line("LOG", log={})
        + line("TRACE", trace={"type": "ANALYTICS", "emitted_at": 1, "analytics": {"type": "t"}})
        + line("TRACE", trace={"type": "NEW", "emitted_at": 1})
        + line("CONTROL", control={"type": "NEW", "emitted_at": 1})
        + record("a", 1)
    )
    events = read(output)
    counts = {e.what: e.count for e in events if isinstance(e, SkippedItems)}
    assert counts == {
        "blank_line": 2,
        "text_line": 1,
        "not_a_message": 4,
        "unknown_type:FUTURE": 1,
        "unexpected_type:CATALOG": 1,
        "malformed:LOG": 1,
        "analytics:t": 1,
        "unknown_trace:NEW": 1,
        "unknown_control:NEW": 1,
    }
    assert LogEvent("INFO", "hello", "st") in events
    assert LogEvent("INFO", "text_line: some text") in events
    assert [w for w in short(events) if ":" in w and "=" not in w] == ["a:1", "exit:0"]


@pytest.mark.parametrize("before", [b"", b"\n"], ids=["good chunk", "slow chunk"])
def test_a_message_that_is_not_known_is_logged_whole_whatever_lines_are_beside_it(before: bytes):
    events = read(before + GOOD + b'{"type":"FUTURE","x":1}\n' + line("CATALOG", catalog={}))
    assert [e.message for e in events if isinstance(e, LogEvent)] == [
        'unknown_type:FUTURE: {"type":"FUTURE","x":1}',
        'unexpected_type:CATALOG: {"type": "CATALOG", "catalog": {}}',
    ]


def test_noise_is_logged_at_most_twenty_times_a_kind():
    events = read(b"text\n" * 5000)
    assert len([e for e in events if isinstance(e, LogEvent)]) == 20
    assert SkippedItems("text_line", 5000) in events


def test_log_messages_keep_their_level():
    (log, _) = read(line("LOG", log={"level": "ERROR", "message": "m"}))
    assert log == LogEvent("ERROR", "m")


def test_a_connector_cannot_make_endless_kinds_of_counts():
    output = b"".join(line(f"T{i}") for i in range(2000))
    counts = [e for e in read(output) if isinstance(e, SkippedItems)]
    assert len(counts) < 250
    assert sum(c.count for c in counts) == 2000


def test_records_outside_the_configured_catalog_are_counted():
    """Protocol, Read: "those that do not will be ignored"."""
    output = record("x", 1) + record("x", 2) + record("a", 1) + record("x", 3, "m")
    words = short(read(output))
    assert words == [
        "a:1",
        "stream_not_configured:x=2",
        "stream_not_configured:m.x=1",
        "exit:0",
    ]


def test_states_and_statuses_of_other_streams_are_counted():
    words = short(read(state("x", 1) + status("x", "COMPLETE") + status("a", "NEW")))
    assert words == [
        "state_not_configured:x=1",
        "status_not_configured:x=1",
        "unknown_status:NEW=1",
        "exit:0",
    ]


# -- rejects (L8)

GOOD = record("a", 1)
SHAPES = [
    b'{"type":"RECORD"}',
    b'{"type":"RECORD","record":null}',
    b'{"type":"RECORD","record":5}',
    b'{"type":"RECORD","record":{"data":{},"emitted_at":1}}',
    b'{"type":"RECORD","record":{"stream":5,"data":{},"emitted_at":1}}',
    b'{"type":"RECORD","record":{"stream":"a","emitted_at":1}}',
    b'{"type":"RECORD","record":{"stream":"a","data":[1],"emitted_at":1}}',
    b'{"type":"RECORD","record":{"stream":"a","data":null,"emitted_at":1}}',
]
LINES = [
    GOOD.strip() + GOOD.strip(),
    GOOD.strip() + b" " + GOOD.strip(),
    b"INFO reading " + GOOD.strip(),
    GOOD.strip() + b" trailing",
    GOOD.strip()[:-1],
    b'{"type": "RECORD", "record": {"stream": "a", "data": {"x": ',
    b'{"type":"RECORD","record":{"stream":"a","data":{"x":01},"emitted_at":1}}',
    b'{"type":"RECORD","record":{"stream":"a","data":{"x":"\t"},"emitted_at":1}}',
]


@pytest.mark.parametrize("raw", SHAPES + LINES)
@pytest.mark.parametrize("before", [b"", b"\n"], ids=["good chunk", "slow chunk"])
def test_l8_a_broken_record_is_a_reject_with_its_bytes(raw: bytes, before: bytes):
    """A RECORD of the wrong shape, or a line that holds one and is not exactly one message."""
    events = read(before + record("a", 8) + raw + b"\n" + record("a", 9))
    (reject,) = [e for e in events if isinstance(e, Reject)]
    assert reject.raw == raw
    assert reject.reason
    numbers = [n for w in short(events) if w.startswith("a:") for n in w[2:].split(",")]
    assert numbers == ["8", "9"]
    assert not [e for e in events if isinstance(e, LogEvent)]
    if b'"stream":"a"' in raw or b'"stream": "a"' in raw:
        assert reject.stream == A


@pytest.mark.parametrize(
    ("told", "expected", "counted"),
    [
        (b',"emitted_at":1700000000000', 1_700_000_000_000, None),
        (b',"emitted_at":1700000000000.0', 1_700_000_000_000, None),
        (b',"emitted_at":1.7e12', 1_700_000_000_000, None),
        (b',"emitted_at":1700000000000.25', 1_700_000_000_000, None),
        (b',"emitted_at":"1700000000000"', 1_700_000_000_000, None),
        (b"", None, "emitted_at_missing"),
        (b',"emitted_at":null', None, "emitted_at_missing"),
        (b',"emitted_at":true', None, "emitted_at_unreadable"),
        (b',"emitted_at":"now"', None, "emitted_at_unreadable"),
        (b',"emitted_at":"nan"', None, "emitted_at_unreadable"),
        (b',"emitted_at":{"ms":1}', None, "emitted_at_unreadable"),
        (b',"emitted_at":99999999999999999', None, "emitted_at_unreadable"),
        (b',"emitted_at":123456789012345678901234567890', None, "emitted_at_unreadable"),
        (b',"emitted_at":1e400', None, "emitted_at_unreadable"),
    ],
)
@pytest.mark.parametrize("before", [b"", b"\n"], ids=["good chunk", "slow chunk"])
def test_l8_no_record_is_lost_for_the_time_that_it_bears(
    told: bytes, expected: int | None, counted: str | None, before: bytes
):
    """Protocol, AirbyteRecordMessage: an integer of milliseconds. Connectors in other languages
    write floats, null or nothing; then it is the time of arrival."""
    began = time.time_ns() // 1_000_000
    odd = b'{"type":"RECORD","record":{"stream":"a","data":{"n":5}' + told + b"}}\n"
    events = read(before + record("a", 8) + odd + record("a", 9))
    assert not [e for e in events if isinstance(e, Reject)]
    times = [t for e in events if isinstance(e, Batch) for t in e.extracted_at]
    assert times[::2] == [1008, 1009]
    if expected is not None:
        assert times[1] == expected
    else:
        assert began <= times[1] <= time.time_ns() // 1_000_000
    assert [
        e.what for e in events if isinstance(e, SkippedItems) and e.what.startswith("emitted")
    ] == [*([counted] if counted else [])]


@pytest.mark.parametrize(
    "raw",
    [
        b"[" + GOOD.strip() + b"]",
        b'{"record":{"stream":"a","data":{},"emitted_at":1}}',
        b'{"stream":"a","data":{},"emitted_at":1}',
        b'{"event":"sent","message":{"type":"RECORD","record":{"stream":"a","data":{}}}}',
        b'{"type":5,"record":{"stream":"a","data":{},"emitted_at":1}}',
        b'{"type":null,"record":{"stream":"a"}}',
        b'"\\"type\\": \\"RECORD\\""',
        b"17",
        b"null",
    ],
)
@pytest.mark.parametrize("before", [b"", b"\n"], ids=["good chunk", "slow chunk"])
def test_json_that_is_no_message_is_dropped_and_counted(raw: bytes, before: bytes):
    """Protocol, Interface Invariants: "Messages not wrapped in the AirbyteMessage must be dropped";
    what such a line holds is not guessed to be a record."""
    events = read(before + record("a", 8) + raw + b"\n" + record("a", 9))
    assert not [e for e in events if isinstance(e, Reject)]
    numbers = [n for w in short(events) if w.startswith("a:") for n in w[2:].split(",")]
    assert numbers == ["8", "9"]
    assert SkippedItems("not_a_message", 1) in events


def test_a_long_line_of_json_that_is_no_message_is_no_record(tmp_path: Path):
    raw = b'{"record":{"stream":"a","data":{"x":"%b"},"emitted_at":1}}' % LONG
    limits: dict[str, Any] = {"max_record_bytes": 1000, "spool_folder": str(tmp_path)}
    assert set(short(read(raw + b"\n" + GOOD, **limits))) == {"oversized_line=1", "a:1", "exit:0"}


def pretty(raw: bytes, indent: int = 2) -> bytes:
    return json.dumps(json.loads(raw), indent=indent).encode() + b"\n"


@pytest.mark.parametrize("indent", [0, 2, 4])
def test_parts_of_a_message_over_several_lines_are_named_as_that(indent: int):
    """Protocol: "The JSON objects cannot be serialized across multiple lines". No row is lost
    unseen (L8): such a RECORD is one reject, whole; another message is dropped."""
    first, log = pretty(record("b", 1, "n"), indent), pretty(line("LOG", log={"level": "INFO"}))
    events = read(first + GOOD + log + state("a", 1) + first)
    rejects = [e for e in events if isinstance(e, Reject)]
    assert [(e.stream, e.raw) for e in rejects] == [(B, first.strip())] * 2
    assert all("spread over" in e.reason for e in rejects)
    parts = 2 * first.count(b"\n") + log.count(b"\n")
    counts = [e for e in events if isinstance(e, SkippedItems)]
    assert {e.what for e in counts} == {"part_of_a_message_spread_over_lines"}
    assert sum(e.count for e in counts) == parts


def test_an_object_over_lines_that_is_no_message_is_dropped():
    text = pretty(b'{"record":{"stream":"a"},"list":[1,{"type":"LOG"}]}')
    events = read(text + GOOD)
    assert not [e for e in events if isinstance(e, Reject)]
    assert SkippedItems("not_a_message", 1) in events


def test_an_object_that_does_not_end_is_the_lines_that_it_was():
    """A good message ends it, and so does a line of a log and the end of the output."""
    begun = b'{"type": "RECORD",\n"record": {\n"stream": "a",\n'
    for after in (GOOD, b"INFO and so on\n" + GOOD, b""):
        events = read(GOOD + begun + after)
        rejects = [e.raw for e in events if isinstance(e, Reject)]
        assert rejects == [b'{"type": "RECORD",', b'"record": {']
        whole = [e for e in events if isinstance(e, Batch)]
        assert sum(len(e.bodies) for e in whole) == (2 if after else 1)


def test_an_object_over_two_lines_is_no_message():
    """Protocol: "The JSON objects cannot be serialized across multiple lines"."""
    both = b'{"type":"RECORD",\n"record":{"stream":"a","data":{},"emitted_at":1}}'
    events = read(both + b"\n")
    assert [e.raw for e in events if isinstance(e, Reject)] == [both]


def test_a_blank_line_does_not_hide_two_messages_on_one_line():
    events = read(b"\n" + GOOD.strip() + GOOD)
    assert len([e for e in events if isinstance(e, Reject)]) == 1
    assert not [e for e in events if isinstance(e, Batch)]


def test_a_message_over_two_lines_does_not_hide_two_messages_on_one_line():
    """A line's fate does not depend on the lines beside it."""
    double = GOOD.strip() + GOOD
    first, second = b'{"type":"RECORD","record":', b'{"stream":"a","data":{},"emitted_at":1}}'
    events = read(double + first + b"\n" + second + b"\n")
    spread = first + b"\n" + second
    assert [e.raw for e in events if isinstance(e, Reject)] == [double.strip(), spread]
    assert not [e for e in events if isinstance(e, Batch)]


def test_half_a_last_line_that_holds_a_record_is_a_reject():
    half = b'{"type": "RECORD", "record": {"stream": "b", "namespace": "n", "data": {"x"'
    events = read(GOOD + half)
    (reject,) = [e for e in events if isinstance(e, Reject)]
    assert (reject.stream, reject.raw) == (B, half)
    assert "the output ended inside it" in reject.reason


def test_a_last_line_without_a_newline_is_a_message_where_it_is_whole():
    assert short(read(GOOD + GOOD.strip())) == ["a:1", "a:1", "exit:0"]
    assert short(read(GOOD + b"some te")) == ["a:1", "text_line=1", "exit:0"]


def test_a_log_that_quotes_a_record_is_no_reject():
    text = GOOD.decode()
    events = read(line("LOG", log={"level": "INFO", "message": text}))
    assert [e.message for e in events if isinstance(e, LogEvent)] == [text]


def test_another_message_with_a_stray_record_field_is_taken():
    raw = line("LOG", log={"level": "INFO", "message": "m"}, record={"bad": 1})
    assert read(raw)[0] == LogEvent("INFO", "m")


@pytest.mark.parametrize(
    "number", [b"NaN", b"Infinity", b"-Infinity", b'"\\ud83d"', b'"\\uDE00 x"']
)
def test_values_that_json_cannot_hold_reach_the_decoder_as_they_came(number: bytes):
    """L9: one value that does not fit never costs its row."""
    data = (
        b'{"n": 1, "x": ' + number + b', "text": "NaN -Infinity \\" NaN \\\\ud83d \\ud83d\\ude00"}'
    )
    raw = b'{"type":"RECORD","record":{"stream":"a","data":' + data + b',"emitted_at":5}}\n'
    batch, _ = read(raw)
    assert isinstance(batch, Batch)
    assert [bytes(b) for b in batch.bodies] == [data]


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"RECORD","record":{"stream":"a","data":%b,"emitted_at":5}}',
        b'{"type":"RECORD","record":{"stream":"a","d\\u0061ta" :\t%b ,"emitted_at":5}}',
        b'{"type":"REC\\u004fRD","rec\\u006frd":{"stream":"a","data":%b,"emitted_at":5}}\r',
        b' {"data":{"n":111},"x":{"n":[]},"type":"RECORD","record":{"stream":"a","data":{"n":[]},'
        b'"data":%b,"emitted_at":5}}',
    ],
    ids=["plain", "key escaped", "marks escaped", "the like of it before it"],
)
def test_l9_a_number_that_json_cannot_hold_is_found_however_its_line_is_written(raw: bytes):
    batch, _ = read(raw % b'{"n":NaN}' + b"\n")
    assert isinstance(batch, Batch)
    assert ([bytes(b) for b in batch.bodies], list(batch.extracted_at)) == ([b'{"n":NaN}'], [5])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_cannot_hold_is_no_time(number: str):
    began = time.time_ns() // 1_000_000
    (batch, count, _) = read(record("a", 1).replace(b"1001", number.encode()))
    assert isinstance(batch, Batch) and batch.extracted_at[0] >= began
    assert count == SkippedItems("emitted_at_unreadable", 1)


def test_l6_a_message_is_not_lost_for_a_value_that_json_cannot_hold():
    """An error whose text was cut within a character; a stray ``record`` in a log."""
    error, log = b'"ERROR","error":{"message":"\\ud83d cut","x":NaN}', b'"message":"m","record":{}'
    output = b'{"type":"TRACE","trace":{"type":%b}}\n' % error
    output += b'{"type":"LOG","log":{"level":"WARN","x":NaN,%b}}\n' % log
    events = read(output)
    assert [e.message for e in events if isinstance(e, Error)] == ["? cut"]
    assert LogEvent("WARN", "m") in events
    assert not [e for e in events if isinstance(e, Reject | SkippedItems)]


def test_l1_no_state_and_no_configuration_is_kept_that_json_cannot_hold():
    output = b'{"type":"STATE","state":{"type":"LEGACY","data":{"x":NaN,"record":{}}}}\n'
    output += b'{"type":"CONTROL","control":{"type":"CONNECTOR_CONFIG","emitted_at":1,'
    output += b'"connectorConfig":{"config":{"token":"\\ud800","x":NaN}}}}\n'
    events = read(output)
    assert [e.level for e in events if isinstance(e, LogEvent)] == ["ERROR", "ERROR"]
    assert short(events) == ["malformed:STATE=1", "malformed:CONTROL=1", "exit:0"]


def test_an_oversized_record_is_a_reject_with_its_head_and_size(tmp_path: Path):
    big = record("a", 1, pad="x" * 3000)
    events = read(GOOD + big + b"y" * 3000 + b"\n" + GOOD, max_record_bytes=1000)
    (reject,) = [e for e in events if isinstance(e, Reject)]
    assert str(len(big) - 1) in reject.reason
    assert (reject.stream, reject.raw) == (A, big[: len(reject.raw)])
    assert SkippedItems("oversized_line", 1) in events
    spooled = read(big, max_record_bytes=1000, spool_folder=str(tmp_path))
    (reject,) = [e for e in spooled if isinstance(e, Reject)]
    assert Path(str(reject.spool)).stat().st_size == reject.size == len(big) - 1


LONG = b"x" * 70_000


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"RECORD","record":{"stream":"a","data":{"t":"%b"},"emitted_at":1}}',
        b'{"type":"REC\\u004FRD","rec\\u006frd":{"stre\\u0061m":"a","data":{"t":"%b"}}}',
        b'{"record":{"data":{"t":"%b"},"stream":"a"},"type":"RECORD"}',
        b'{"record" : {"data":{"stream":"b","t":"%b"},"stre\\u0061m":"a"},"type":"RECORD"}\r',
        b'{"x":"%b","n":1e400,"type":"RECORD","record":{"data":{},"stream":"a"}}',
        b'{"x":{"stream":"b","type":"LOG"},"record":{"data":"%b","stream":"a"},"type":"RECORD"}',
    ],
    ids=["plain", "escaped", "stream last", "another stream first", "marks last", "type last"],
)
def test_l8_an_oversized_record_is_a_reject_of_its_stream_however_it_is_written(
    raw: bytes, tmp_path: Path
):
    raw = raw % LONG
    events = read(raw + b"\n" + GOOD, max_record_bytes=1000, spool_folder=str(tmp_path))
    (reject,) = [e for e in events if isinstance(e, Reject)]
    assert (reject.stream, reject.size) == (A, len(raw))
    assert Path(str(reject.spool)).read_bytes() == raw


def test_an_oversized_message_that_is_no_record_is_none_by_what_it_holds(tmp_path: Path):
    log = b'{"log":{"level":"INFO","message":"%b","record":{"type":"RECORD"}},"type":"LOG"}' % LONG
    limits: dict[str, Any] = {"max_record_bytes": 1000, "spool_folder": str(tmp_path)}
    events = read(log + b"\n" + GOOD, **limits)
    assert set(short(events)) == {"oversized_line=1", "a:1", "exit:0"}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("record", "stream"),
    [
        (b'{"stre\\u0061m":"a"}', A),
        (b'{"data":{"stream":"b"},"stream":"a","namespace":5}', A),
        (b'{"data":5,"stream":"a","emitted_at":{"stream":"b"},"namespace":null,"meta":tru}', None),
        (b'{"data":{"stream":"a"},"stream":"b","namespace":[]}', B),
        (b'{"data":{"stream":"a"},"stream":"c","namespace":5}', None),
        (b'{"d":{"stream":"a"},"stream":"b"}', B),
        (b'{"d":{"stream":"a"},"stream":5}', None),
        (b'null,"x":{"stream":"a"}', None),
        (b'{"d":{"stream":"a"},"stream":"b","namespace":"other"}', None),
    ],
)
def test_l8_a_record_of_the_wrong_shape_is_of_the_stream_that_it_names(
    record: bytes, stream: StreamId | None
):
    events = read(b'{"type":"RECORD","record":' + record + b"}\n")
    (reject,) = [e for e in events if isinstance(e, Reject)]
    assert reject.stream == stream


@pytest.mark.parametrize("before", [b"", b"\n"], ids=["good chunk", "slow chunk"])
def test_a_file_that_a_record_refers_to_is_counted_and_told_once(before: bytes):
    """Protocol, AirbyteRecordMessage.file_reference: the rows are taken, the files are not."""
    file = {"staging_file_url": "/tmp/a", "source_file_relative_path": "a", "file_size_bytes": 1}
    output = record("a", 1, file_reference=file) + record("a", 2, file_reference=None)
    output += record("a", 3) + record("a", 4, file_reference=file)
    events = read(before + output, output)
    assert [w for w in short(events) if w.startswith("a:")] == ["a:1,2,3,4"] * 2
    counted = [e.count for e in events if isinstance(e, SkippedItems) and "file_" in e.what]
    assert counted == [2, 2]
    (warned,) = [e for e in events if isinstance(e, LogEvent)]
    assert warned.level == "WARN" and "files" in warned.message


# -- traces, control, states


def test_error_control_estimate_and_status_reasons():
    error = {
        "message": "m",
        "failure_type": "config_error",
        "internal_message": "i",
        "stream_descriptor": {"name": "b", "namespace": "n"},
        "future": 1,
    }
    reasons = [{"type": "RATE_LIMITED", "rate_limited": {"quota_reset": 5}}]
    limited = {"stream_descriptor": {"name": "a"}, "status": "RUNNING", "reasons": reasons}
    stream_estimate = {"name": "a", "type": "STREAM", "row_estimate": 5}
    output = b"".join(
        line("TRACE", trace={"emitted_at": 1, **t})
        for t in (
            {"type": "ERROR", "error": error},
            {"type": "ESTIMATE", "estimate": stream_estimate},
            {"type": "ESTIMATE", "estimate": {"name": "", "type": "SYNC", "byte_estimate": 6}},
            {"type": "STREAM_STATUS", "stream_status": limited},
        )
    )
    config = {"config": {"token": "t", "n": 1.5}}
    output += line(
        "CONTROL",
        control={"type": "CONNECTOR_CONFIG", "emitted_at": 1.5, "connectorConfig": config},
    )
    assert read(record("a", 1) + output)[1:] == [
        Error("m", "config_error", B, error),
        Estimate(A, 5, None),
        Estimate(None, None, 6),
        StreamStatus(A, Status.running, RateLimitWait(5)),
        Control({"token": "t", "n": 1.5}),
        ConnectorExited(0, ""),
    ]


@pytest.mark.parametrize(
    ("body", "message", "kind", "stream"),
    [
        ({"error": {"message": "boom"}}, "boom", None, None),
        ({"emitted_at": None, "error": {"message": "boom"}}, "boom", None, None),
        ({"emitted_at": "2026-01-01", "error": {"message": "boom"}}, "boom", None, None),
        ({"error": {"message": None, "internal_message": "inside"}}, "inside", None, None),
        ({"error": {"message": "boom", "failure_type": 5}}, "boom", None, None),
        ({"error": {"message": "boom", "stack_trace": ["a", "b"]}}, "boom", None, None),
        ({"error": {"message": "boom", "stream_descriptor": "n.b"}}, "boom", None, None),
        (
            {
                "error": {
                    "message": "boom",
                    "failure_type": "config_error",
                    "internal_message": {"a": 1},
                    "stream_descriptor": {"name": "b", "namespace": "n"},
                }
            },
            "boom",
            "config_error",
            B,
        ),
        ({"error": "boom"}, '{"type": "ERROR", "error": "boom"}', None, None),
        ({"error": {"message": ["boom"]}}, '"error": {"message": ["boom"]}', None, None),
        ({}, '{"type": "ERROR"}', None, None),
    ],
)
def test_l6_an_error_is_never_lost_for_what_stands_beside_it(
    body: dict[str, Any], message: str, kind: str | None, stream: StreamId | None
):
    """Protocol, AirbyteTraceMessage: after exit code 0 it alone says that a read is not whole."""
    events = read(line("TRACE", trace={"type": "ERROR", **body}))
    (error,) = [e for e in events if isinstance(e, Error)]
    assert message in error.message
    assert (error.failure_type, error.stream) == (kind, stream)
    for field, given in body.get("error", {}).items() if message == "boom" else ():
        assert error.raw[field] == given


@pytest.mark.parametrize("emitted_at", [{}, {"emitted_at": None}, {"emitted_at": "now"}])
def test_no_control_and_no_status_is_lost_for_the_time_that_it_bears(emitted_at: dict[str, Any]):
    """A CONTROL may be the only one that ever has a new refresh token."""
    control = {"type": "CONNECTOR_CONFIG", "connectorConfig": {"config": {"token": "t"}}}
    complete = {"stream_descriptor": {"name": "a"}, "status": "COMPLETE", "reasons": "none"}
    output = line("CONTROL", control={**control, **emitted_at})
    output += line(
        "TRACE", trace={"type": "STREAM_STATUS", "stream_status": complete, **emitted_at}
    )
    assert read(output)[:-1] == [Control({"token": "t"}), StreamStatus(A, Status.complete)]


BEYOND = b'{"type":"TRACE","trace":{"emitted_at":-1E400,"type":'


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (BEYOND + b'"ERROR","error":{"message":"m","x":[1e400]}}}', Error("m", raw={})),
        (BEYOND + b'"ANALYTICS","analytics":{"type":"t"}}}', SkippedItems("analytics:t", 1)),
        (
            b'{"type":"CONTROL","control":{"type":"CONNECTOR_CONFIG","emitted_at":1e400,'
            b'"connectorConfig":{"config":{"token":"t","most":1e400}}}}',
            Control({"token": "t", "most": float("inf")}),
        ),
        (
            BEYOND + b'"STREAM_STATUS","stream_status":{"stream_descriptor":{"name":"a"},'
            b'"status":"COMPLETE","reasons":[{"type":"RATE_LIMITED","rate_limited":'
            b'{"quota_reset":1e400}}]}}}',
            StreamStatus(A, Status.complete, RateLimitWait(None)),
        ),
        (b'{"type":"LOG","log":{"level":"WARN","message":"m"},"x":1e400}', LogEvent("WARN", "m")),
        (b"[1e400]", SkippedItems("not_a_message", 1)),
    ],
    ids=["error", "analytics", "control", "status", "log", "text"],
)
def test_a_number_that_no_double_holds_costs_no_message_and_no_read(raw: bytes, expected: Event):
    events = read(raw + b"\n")
    if isinstance(expected, Error):
        (error,) = [e for e in events if isinstance(e, Error)]
        assert (error.message, error.raw["x"]) == ("m", [float("inf")])
    else:
        assert expected in events


@pytest.mark.parametrize("depth", range(900, 1000, 4))
def test_no_depth_of_a_message_ends_the_read(depth: int):
    deep = b"[" * depth + b"]" * depth
    (event, *_) = read(b'{"type":"LOG","log":{"level":"WARN","message":"m","x":%b}}\n' % deep)
    assert isinstance(event, LogEvent)


@pytest.mark.parametrize(
    ("limited", "until"),
    [({"quota_reset": 5.75}, 5), ({"quota_reset": 5.0}, 5), ({"quota_reset": "soon"}, None)],
)
def test_a_quota_may_be_reset_at_any_number(limited: dict[str, Any], until: int | None):
    reasons = [{"type": "RATE_LIMITED", "rate_limited": limited}]
    running = {"stream_descriptor": {"name": "a"}, "status": "RUNNING", "reasons": reasons}
    told = line("TRACE", trace={"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": running})
    assert read(told)[0] == StreamStatus(A, Status.running, RateLimitWait(until))


def counts_of(output: bytes) -> list[Event]:
    return [e for e in read(output) if isinstance(e, RecordCountMismatch | State)]


def with_stats(message: bytes, count: Any) -> bytes:
    told = json.loads(message)
    told["state"]["sourceStats"] = {"recordCount": count, "rejectedRecordCount": 0.0}
    return json.dumps(told).encode() + b"\n"


def test_the_records_that_came_are_compared_with_what_the_source_counts():
    """Protocol 0.18, AirbyteStateStats: records since the state before it in its scope."""
    three = b"".join(record("a", n) for n in range(3))
    assert RecordCountMismatch(A, 5, 3) in counts_of(three + with_stats(state("a", 1), 5.0))
    fits = three + with_stats(state("a", 1), 3.0) + with_stats(state("a", 1), 0.0)
    assert not [e for e in counts_of(fits) if isinstance(e, RecordCountMismatch)]
    for odd in (None, "many", -1, 2.5, {}):
        told = counts_of(three + with_stats(state("a", 1), odd))
        assert [type(e) for e in told] == [State]
    other = record("b", 1, "n") + three + with_stats(state("a", 1), 3)
    assert not [e for e in counts_of(other) if isinstance(e, RecordCountMismatch)]
    shared = record("b", 1, "n") + three + with_stats(global_state(1), 4.0)
    more = record("a", 9) + with_stats(global_state(2), 4.0)
    assert [e for e in counts_of(shared + more) if isinstance(e, RecordCountMismatch)] == [
        RecordCountMismatch(None, 4, 1)
    ]


def test_a_reject_counts_as_a_record_that_came():
    broken = b'{"type":"RECORD","record":{"stream":"a","data":[1],"emitted_at":5}}\n'
    torn = b'{"type":"RECORD","record":{"stream":"a","data":{"x":\n'
    output = record("a", 1) + broken + torn + with_stats(state("a", 1), 3.0)
    assert not [e for e in counts_of(output) if isinstance(e, RecordCountMismatch)]


def test_states_of_two_types_in_one_run_are_an_error_that_names_both():
    events = read(state("a", 1) + global_state(1) + global_state(2) + state("a", 2))
    (error,) = [e for e in events if isinstance(e, Error)]
    assert "STREAM" in error.message and "GLOBAL" in error.message
    assert short(events) == ["state:a", "Error", "state:a", "mixed_state:GLOBAL=2", "exit:0"]


def test_legacy_states_may_be_followed_by_stream_states():
    events = read(line("STATE", state={"data": {"n": 1}}) + state("a", 1))
    assert short(events) == ["state:*", "state:a", "exit:0"]


def test_a_state_that_cannot_be_read_is_not_saved_and_says_so():
    events = read(line("STATE", state={"type": "NEW"}) + line("STATE"))
    assert short(events) == ["malformed:STATE=2", "exit:0"]
    assert [e.level for e in events if isinstance(e, LogEvent)] == ["ERROR", "ERROR"]


# -- arguments, exit, time (L11)


def test_the_arguments_of_a_read():
    """Specification, Source: read --config F --catalog F [--state F]."""
    runtime = MemoryRuntime(lambda _: ())
    blob = '{"type":"STREAM","stream":{"stream_descriptor":{"name":"a"},"stream_state":{"n":1.0}}}'
    states = (StoredState(StateScope(StateType.stream, A), blob),)
    list(PACKAGE.source.read(runtime, request(A, states=states)))
    list(PACKAGE.source.read(runtime, request(A)))
    first, second = runtime.runs
    assert [a for a in first if isinstance(a, str)] == ["read", "--config", "--catalog", "--state"]
    assert [a for a in second if isinstance(a, str)] == ["read", "--config", "--catalog"]
    files = [a for a in first if isinstance(a, bytes)]
    assert json.loads(files[0]) == {"key": "v"}
    assert json.loads(files[1])["streams"][0]["stream"]["name"] == "a"
    assert files[2] == f"[{blob}]".encode()


def test_the_exit_code_and_the_last_words_come_last():
    events = read(GOOD, StderrLine("boom"), Exit(7))
    assert events[-1] == ConnectorExited(7, "boom")


def test_silence_is_ticked():
    events = read(GOOD, Sleep(3.5), GOOD, tick=1.0)
    ticks = [i for i, e in enumerate(events) if isinstance(e, Tick)]
    assert ticks == [1, 2, 3]


@pytest.mark.parametrize(
    ("steps", "limits", "code"),
    [
        ((Sleep(),), {"start": 5.0}, "source.start_timeout"),
        ((GOOD, Sleep()), {"heartbeat": 5.0}, "source.heartbeat"),
        ((GOOD, *(GOOD, Sleep(2.0)) * 9), {"total": 7.0}, "source.timeout"),
        (
            (Sleep(4), b"text\n", Sleep(4), GOOD, Sleep()),
            {"start": 5, "heartbeat": 20},
            "source.heartbeat",
        ),
    ],
)
def test_a_limit_ends_the_read_with_an_error_and_a_stop(
    steps: tuple[Step, ...], limits: dict[str, float], code: str
):
    events = read(*steps, timeouts=RunTimeouts(**limits))
    error, end = events[-2:]
    assert isinstance(error, Error) and (error.code, error.raw) == (code, {})
    assert end == ConnectorExited(None, "")


def test_only_records_and_states_are_heartbeats():
    """Logs do not hold off the heartbeat; records, states and broken records do."""
    log = line("LOG", log={"level": "INFO", "message": "alive"})
    chatter = [GOOD] + [log, Sleep(2.0)] * 5
    events = read(*chatter, timeouts=RunTimeouts(heartbeat=5.0))
    assert isinstance(events[-2], Error)
    for beat in (GOOD, state("a", 1), b'{"type":"RECORD"}\n'):
        events = read(GOOD, *[beat, Sleep(4.0)] * 5, timeouts=RunTimeouts(heartbeat=5.0))
        assert events[-1] == ConnectorExited(0, "")


def test_a_command_that_answered_and_then_hangs_or_chatters_is_ended():
    """L11. What it said before the answer counts."""
    answer = line("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED"})
    for rest in ((Sleep(),), (line("LOG", log={"level": "INFO", "message": "m"}), Sleep())):
        runtime = MemoryRuntime(lambda _, rest=rest: (b"noise\n", answer, *rest))
        heard: list[Event] = []
        assert PACKAGE.source.check(runtime, {}, RunTimeouts(stop=2), heard.append).succeeded
        assert runtime.clock < 10
        assert SkippedItems("text_line", 1) in heard


def test_a_command_that_never_answers_is_ended():
    with pytest.raises(SourceError, match="printed nothing for 5 s") as caught:
        PACKAGE.source.spec(MemoryRuntime(lambda _: (Sleep(),)), RunTimeouts(start=5), print)
    assert caught.value.code == "source.start_timeout"


def test_a_failed_discover_speaks_in_the_connectors_words():
    """Protocol, AirbyteTraceMessage; a catalog beside a failure is not taken."""
    error = {"message": "no such host", "failure_type": "config_error"}
    output = line("CATALOG", catalog={"streams": []}) + line(
        "TRACE", trace={"type": "ERROR", "emitted_at": 1, "error": error}
    )
    runtime = MemoryRuntime(lambda _: (output, Exit(1)))
    with pytest.raises(SourceError, match="discover: no such host") as caught:
        PACKAGE.source.discover(runtime, {}, RunTimeouts(), lambda _: None)
    assert caught.value.code == "source.config_error"
    assert caught.value.connector == error


def test_closing_the_generator_ends_the_connector():
    closed: list[bool] = []

    def script(_: list[str | bytes]) -> Iterable[Step]:
        try:
            while True:
                yield GOOD
        finally:
            closed.append(True)

    events = PACKAGE.source.read(MemoryRuntime(script), request(A))
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert closed == [True]


# -- records that do not say their stream's namespace

CRM, HR, USERS = StreamId("crm", "users"), StreamId("hr", "users"), StreamId(None, "users")


def cdk_read(*names: str | None, stats: float = 2.0, code: int = 0) -> tuple[Step, ...]:
    """What a source of Airbyte's Python CDK says (6.61 and 7.39 alike): the namespace stands in
    states and statuses, and in no record (``utils/record_helper.py``)."""
    output = b""
    for namespace in names:
        output += status("users", "STARTED", namespace)
        output += record("users", 1) + record("users", 2)
        output += with_stats(state("users", 2, namespace), stats)
        output += status("users", "COMPLETE", namespace)
    return output, Exit(code)


@pytest.mark.parametrize("before", [b"", b"\n"], ids=["good chunk", "slow chunk"])
def test_l8_a_record_without_a_namespace_is_of_the_one_stream_of_its_name(before: bytes):
    events = read(before, *cdk_read("crm"), streams=(CRM, A))
    assert [e.stream for e in events if isinstance(e, Batch)] == [CRM]
    assert [w for w in short(events) if "=" not in w] == [
        "STARTED:users", "users:1,2", "state:users", "COMPLETE:users", "exit:0",
    ]  # fmt: skip
    assert SkippedItems("namespace_missing:crm.users", 2) in events


@pytest.mark.parametrize("more", [{}, {"meta": {}}], ids=["plain", "with meta"])
def test_only_records_without_their_namespace_are_counted_as_such(more: dict[str, Any]):
    output = [record("b", 1, "n", **more), record("b", 2, **more), record("b", 3, "n", **more)]
    events = read(b"".join(output), record("b", 4, **more))
    counts = [e for e in events if isinstance(e, SkippedItems)]
    assert counts == [SkippedItems("namespace_missing:n.b", 1)] * 2


def test_l8_of_two_forms_of_one_streams_name_the_order_stays():
    output = record("users", 1, "crm") + record("users", 2) + record("users", 3, "crm")
    assert short(read(output, streams=(CRM,)))[0] == "users:1,2,3"


def test_l1_states_and_statuses_without_a_namespace_are_of_the_one_stream_of_their_name():
    error = {"message": "m", "stream_descriptor": {"name": "users"}}
    output = record("users", 1) + state("users", 1) + status("users", "COMPLETE")
    output += line("TRACE", trace={"type": "ERROR", "emitted_at": 1, "error": error})
    events = read(output, streams=(CRM,))
    (saved,) = [e for e in events if isinstance(e, State)]
    assert saved.scope == StateScope(StateType.stream, CRM)
    assert json.loads(saved.blob) == json.loads(state("users", 1))["state"]
    found = [e.stream for e in events if isinstance(e, StreamStatus | Error)]
    assert found == [CRM, CRM]


def unclear(events: Iterable[Event]) -> list[StreamId | None]:
    return [e.stream for e in events if isinstance(e, Error) and e.code == "source.unclear_stream"]


@pytest.mark.parametrize("before", [b"", b"\n"], ids=["good chunk", "slow chunk"])
def test_l8_a_record_that_may_be_of_several_streams_is_a_reject_without_one(before: bytes):
    """Neither stream is complete, nor does its state move: its rows may be among them (L1, L6)."""
    events = read(before, *cdk_read("crm", "hr"), streams=(CRM, HR))
    rejects = [e for e in events if isinstance(e, Reject)]
    assert [(e.stream, e.raw) for e in rejects] == [
        (None, record("users", n).strip()) for n in (1, 2, 1, 2)
    ]
    assert "crm.users, hr.users" in rejects[0].reason
    assert unclear(events) == [CRM, HR]
    kept = [type(e) for e in events if isinstance(e, Batch | State)]
    assert kept == [] and "COMPLETE:users" not in short(events)


@pytest.mark.parametrize("namespace", [None, "billing"])
def test_l6_a_stream_is_not_empty_where_records_of_its_name_were_passed_over(
    namespace: str | None,
):
    """They are another stream's by their name, or of one that no catalog has."""
    others = (Stream(id=USERS, json_schema={}), Stream(id=HR, json_schema={}))
    output = record("users", 1, namespace) + with_stats(state("users", 1, "crm"), 1.0)
    output += status("users", "COMPLETE", "crm") + record("a", 1) + state("a", 1)
    events = read(output, streams=(CRM, A), unchosen=others)
    assert unclear(events) == [CRM]
    words = [w for w in short(events) if not w.startswith(("stream_", "Record"))]
    assert words == ["Error", "a:1", "state:a", "exit:0"]


@pytest.mark.parametrize("end", [global_state(1), b""], ids=["shared state", "exit code 0"])
def test_l6_neither_a_shared_state_nor_the_end_makes_such_a_stream_empty(end: bytes):
    events = read(record("users", 1, "billing") + end, streams=(CRM,))
    assert unclear(events) == [CRM]
    assert not [e for e in events if isinstance(e, State)]
    failed = read(record("users", 1, "billing"), Exit(1), streams=(CRM,))
    assert unclear(failed) == [], "the exit code says it already"


def test_records_of_a_stream_that_was_not_selected_leave_one_of_its_name_alone():
    """Protocol, Read: they are ignored, and an empty stream is empty."""
    others = (Stream(id=HR, json_schema={}), Stream(id=USERS, json_schema={}))
    output = record("users", 1, "hr") + state("users", 1, "crm")
    assert short(read(output, streams=(CRM,), unchosen=others)) == [
        "state:users", "stream_not_configured:hr.users=1", "exit:0",
    ]  # fmt: skip
    mixed = record("users", 1) + record("users", 2, "crm") + state("users", 2, "crm")
    assert not unclear(read(mixed, streams=(CRM,), unchosen=others)), "it has records of its own"
    both = read(record("users", 1) + record("users", 2, "crm"), streams=(CRM, USERS))
    assert [e.stream for e in both if isinstance(e, Batch)] == [USERS, CRM]
