"""What a Syncmaven destination is sent, and what its answers are worth (issue 12, parts 1, 2 and 6;
L1, L7, L8, L11). Each destination is a process."""

import json
import sys
import time
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.errors import DestinationError
from penstock.model.catalog import (
    Change,
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import (
    ConnectorExited,
    Error,
    LogEvent,
    Reject,
    SkippedItems,
    StreamHalted,
)
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.syncmaven.destination import SyncmavenDestination
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.syncmaven.messages import EnrichmentAnswer, Spec
from penstock.protocols.syncmaven.reply_reader import ReplyReader
from penstock.protocols.writing import (
    END,
    Ack,
    Feed,
    Rows,
    StateMark,
    StreamAck,
    StreamDone,
    WriteRequest,
    WriteStream,
)
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.process import ProcessChannel, ProcessRuntime

pytestmark = pytest.mark.dear

STUB = Path(__file__).parents[2] / "stubs" / "stub_syncmaven.py"
USERS, ORDERS = StreamId(None, "users"), StreamId(None, "orders")
SCHEMA = RowSchema(
    (
        Field("id", "id", DataType(Kind.integer)),
        Field("email", "email", DataType(Kind.string)),
        Field("price", "price", DataType(Kind.decimal, precision=10, scale=2)),
    )
)
ARROW = pa.schema([("id", pa.int64()), ("email", pa.string()), ("price", pa.decimal128(10, 2))])
BOUNDS = RunTimeouts(start=20, heartbeat=20, stop=2)
_COUNTERS = ("received", "skipped", "success", "failed")
DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}


def host(**told: Any) -> Host:
    command = [sys.executable, str(STUB), json.dumps(told)]
    return Host(lambda env: ProcessRuntime(command, env=dict(env), role="destination"))


def stream(id_: StreamId = USERS, **more: Any) -> WriteStream:
    mode = more.pop("mode", DestinationSyncMode.append)
    configured = ConfiguredStream(
        stream=Stream(id=id_, json_schema={}),
        sync_mode=SyncMode.incremental,
        destination_sync_mode=mode,
        primary_key=(("id",),),
    )
    return WriteStream(configured=configured, target=id_, schemas={0: SCHEMA}, latest=0, **more)


def rows(*ids: int, of: StreamId = USERS, email: Any = "a@x.io") -> Rows:
    columns = {"id": list(ids), "email": [email] * len(ids), "price": [None] * len(ids)}
    return Rows(of, 0, pa.record_batch([pa.array(columns[f.name], f.type) for f in ARROW], ARROW))


def mark(seq: int, of: StreamId | None = USERS) -> StateMark:
    type_ = StateType.global_ if of is None else StateType.stream
    return StateMark(seq, StoredState(StateScope(type_, of), f'{{"n":{seq}}}'))


class Wrote:
    """The answers of a write, by kind."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.acks = [a.seq for a in answers if isinstance(a, Ack)]
        self.whole = [a.stream for a in answers if isinstance(a, StreamAck)]
        self.errors = [a.code for a in answers if isinstance(a, Error)]
        self.rejects = [a for a in answers if isinstance(a, Reject)]
        self.halted = [a.stream for a in answers if isinstance(a, StreamHalted)]
        self.counted = {a.what: a.count for a in answers if isinstance(a, SkippedItems)}
        self.logged = "\n".join(a.message for a in answers if isinstance(a, LogEvent))
        (self.exit,) = [a.code for a in answers if isinstance(a, ConnectorExited)]


def write(
    to: Host,
    *feed: Feed,
    streams: tuple[WriteStream, ...] = (),
    timeouts: RunTimeouts = BOUNDS,
    **request: Any,
) -> Wrote:
    asked = WriteRequest(
        config=request.pop("config", {}),
        streams=streams or (stream(), stream(ORDERS)),
        source_protocol="airbyte",
        pipeline="shop",
        timeouts=timeouts,
        tick=0.1,
        **request,
    )
    return Wrote(list(SyncmavenDestination().write(to, asked, iter(feed))))


def heard(sink: Path) -> list[dict[str, Any]]:
    lines = sink.read_text().split("\n")
    assert lines.pop() == ""
    assert all(lines), "never a blank line: the node CDK ends at one"
    return [json.loads(line) for line in lines]


def ids_by_process(sink: Path) -> list[list[int]]:
    """The ids of the rows between each start-stream and its end-stream."""
    found: list[list[int]] = []
    for message in heard(sink):
        if message["type"] == "start-stream":
            found.append([])
        elif message["type"] == "row":
            found[-1].append(message["payload"]["row"]["id"])
    return found


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    return tmp_path / "sink.jsonl"


# -- what is sent


def test_the_whole_conversation_is_the_one_that_real_connectors_know(sink: Path) -> None:
    wrote = write(
        host(sink=str(sink), streams=["contacts"]),
        rows(1, 2),
        mark(1),
        StreamDone(USERS),
        streams=(stream(),),
        config={"url": "http://x"},
    )
    assert (wrote.acks, wrote.errors, wrote.exit) == ([1, END], [], 0)
    assert heard(sink) == [
        {"type": "describe-streams", "payload": {"credentials": {"url": "http://x"}}},
        {
            "type": "start-stream",
            "payload": {
                "stream": "contacts",
                "connectionCredentials": {"url": "http://x"},
                "streamOptions": {},
                "syncId": "shop/users",
                "fullRefresh": False,
            },
        },
        {"type": "row", "payload": {"row": {"id": 1, "email": "a@x.io", "price": None}}},
        {"type": "row", "payload": {"row": {"id": 2, "email": "a@x.io", "price": None}}},
        {"type": "end-stream", "reason": "success"},
    ]


def test_the_sync_id_is_of_the_source_whatever_the_destination_calls_the_stream(
    sink: Path,
) -> None:
    """It "is a unique identifier of the sync configuration", by which connectors name their keys:
    those of an enrichment of the same stream, and those of before a new prefix."""
    renamed = msgspec.structs.replace(stream(), target=StreamId("crm", "my_users"))
    write(host(sink=str(sink)), rows(1), mark(1), streams=(renamed,))
    (start,) = [m["payload"] for m in heard(sink) if m["type"] == "start-stream"]
    assert start["syncId"] == "shop/users"


def test_zero_rows_start_no_stream(sink: Path) -> None:
    wrote = write(host(sink=str(sink)), mark(1), StreamDone(USERS))
    assert (wrote.acks, wrote.exit) == ([1, END], 0)
    assert [m["type"] for m in heard(sink)] == ["describe-streams"]


PAGE_EXAMPLE = b"""{
  "type": "connection-spec",
  "credentialsSchema": {"type": "object"} //JSON schema of credentials
}
"""  # the protocol page, `spec` reply message: as it is printed there


@pytest.mark.parametrize(
    "example",
    [PAGE_EXAMPLE, b"{\n  type: 'connection-spec',\n  credentialsSchema: { type: 'object' }\n}\n"],
)
def test_a_message_that_is_spread_over_lines_is_read(example: bytes) -> None:
    """The protocol page prints a message so, and nowhere asks for one a line."""
    reader = ReplyReader()
    output = b"a line of its own\n{ no object\n" + example + b'{"type": "log"}\n{\n'
    said = [s for line in output.splitlines(keepends=True) for s in reader.take(line)]
    said += reader.finish()
    kinds = [s for s in said if isinstance(s, Spec)]
    assert [(s.credentials_schema, s.by_page) for s in kinds] == [({"type": "object"}, True)]
    texts = [s.message for s in said if isinstance(s, LogEvent) and "text_line" in s.message]
    assert texts == ["text_line: a line of its own", "text_line: { no object", "text_line: {"]


@pytest.mark.parametrize(
    "line",
    [
        rb'{"type":"log","payload":{"message":"cut \ud83d","params":["\ud83d\ude00"]}}',
        rb"{type:'log',payload:{message:'cut \ud83d',params:['\ud83d\ude00']}}",
    ],
)
def test_a_text_that_was_cut_within_a_character_has_a_form_in_utf8(line: bytes) -> None:
    """The page, `log` ("at any point"): JavaScript writes half a surrogate pair as an escape, and a
    log line with one ended every run."""
    (said,) = ReplyReader().take(line + b"\n")
    assert said == LogEvent("INFO", "cut ? \U0001f600")


def test_an_answer_that_was_cut_within_a_character_is_an_answer() -> None:
    line = rb'{"type":"enrichment-response","payload":{"row":{"name":"Ann \\ud83d \ud83d"}}}'
    (said,) = ReplyReader("transform").take(line + b"\n")
    assert said == EnrichmentAnswer(({"name": "Ann \\ud83d ?"},))


def test_the_pages_dialect_is_understood_however_loosely_it_is_written() -> None:
    for told in ({"dialect": "page"}, {"noise": True}, {"dialect": "page", "noise": True}):
        wrote = write(host(**told, stderr=400_000, log=True), rows(1, 2, 3), mark(1))
        assert (wrote.acks, wrote.errors, wrote.exit) == ([1, END], [], 0), told
        assert 'row 2 {"k":1}' in wrote.logged
    spec = SyncmavenDestination().spec(host(dialect="page"), RunTimeouts(start=20), lambda e: None)
    assert spec.config_schema["additionalProperties"] is True


def test_decimals_and_nulls_are_written_as_the_row_type_takes_them(sink: Path) -> None:
    row_type = {**DRAFT, "properties": {"price": {"type": "number"}, "email": {"type": "string"}}}
    columns = [[1, 2], ["é\n", None], [Decimal("1.50"), None]]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, ARROW, strict=True)]
    priced = pa.record_batch(arrays, ARROW)
    wrote = write(host(sink=str(sink), row_type=row_type), Rows(USERS, 0, priced))
    assert wrote.exit == 0
    sent = [m["payload"]["row"] for m in heard(sink) if m["type"] == "row"]
    assert sent == [{"id": 1, "email": "é\n", "price": 1.5}, {"id": 2}]
    write(host(sink=str(sink)), Rows(USERS, 0, priced), options={"nulls": "omit"})
    assert heard(sink)[-2]["payload"]["row"] == {"id": 2}
    assert heard(sink)[-3]["payload"]["row"]["price"] == "1.50"


def test_fields_are_mapped_and_only_these_are_sent(sink: Path) -> None:
    """A reject has the row as it came, under the columns' own names (L8)."""
    row_type = {**DRAFT, "properties": {"mail": {"type": "string", "format": "email"}}}
    mapped = stream(mapping={"mail": "email", "externalId": "id"})
    feed = (rows(1), rows(2, email="no"), mark(1))
    wrote = write(host(sink=str(sink), row_type=row_type), *feed, streams=(mapped,))
    assert wrote.acks == [1, END]
    sent = [m["payload"]["row"] for m in heard(sink) if m["type"] == "row"]
    assert sent == [{"mail": "a@x.io", "externalId": 1}]
    (reject,) = wrote.rejects
    assert json.loads(reject.raw) == {"id": 2, "email": "no", "price": None}
    assert reject.field == "mail" and "externalId=2" in reject.reason


@pytest.mark.parametrize(
    ("types", "texts", "sent"),
    [
        ({"email": "integer"}, ["12", "012", "1.0", "", "-3", None], [12, -3, None]),
        ({"email": "number"}, ["1.50", "1e3", "NaN", ".5", "12 ", "9" * 30],
         [1.5, 1000.0, int("9" * 30)]),
        ({"email": ["boolean", "null"]}, ["true", "false", "True", "1", None, "t"],
         [True, False, None]),
        ({"id": "string"}, ["a"] * 6, ["1", "2", "3", "4", "5", "6"]),
    ],
)  # fmt: skip
def test_a_value_is_written_as_the_type_that_is_taken_where_nothing_is_lost(
    sink: Path, types: dict[str, Any], texts: list[str | None], sent: list[Any]
) -> None:
    row_type = {**DRAFT, "properties": {name: {"type": t} for name, t in types.items()}}
    (name,) = types
    columns = [list(range(1, 7)), texts, [None] * 6]
    batch = pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, ARROW, strict=True)], ARROW
    )
    wrote = write(host(sink=str(sink), row_type=row_type), Rows(USERS, 0, batch), mark(1))
    found = [m["payload"]["row"].get(name) for m in heard(sink) if m["type"] == "row"]
    assert found == sent and len(wrote.rejects) == 6 - len(sent)
    assert {json.loads(r.raw)[name] for r in wrote.rejects} <= set(texts)


BIG = 120208464334560123  # an id of an advertising network
UNION = {"anyOf": [{"type": "string"}, {"type": "number"}]}  # zod's z.string().or(z.number())


@pytest.mark.parametrize(
    ("properties", "sent"),
    [
        ({"id": {"type": ["string", "integer"]}}, [str(BIG), 2**53, 5, str(-BIG)]),
        ({"id": UNION}, [str(BIG), 2**53, 5, str(-BIG)]),
        ({}, [str(BIG), 2**53, 5, str(-BIG)]),
        ({"id": {"type": "string"}}, [str(BIG), str(2**53), "5", str(-BIG)]),
        ({"id": {"type": ["integer", "null"]}}, [BIG, 2**53, 5, -BIG]),
        ({"id": {"type": ["string", "integer"], "pattern": "^x"}}, [BIG, 2**53, 5, -BIG]),
    ],
)
@pytest.mark.parametrize("checked", [False, True])
def test_an_integer_that_doubles_do_not_hold_is_text_where_text_is_taken(
    sink: Path, properties: dict[str, Any], sent: list[Any], checked: bool
) -> None:
    """Reference §3.4: the real host sends them as text. A destination that builds the id of a row
    of such a number would take two rows for one; a value is always written alike."""
    row_type = {**DRAFT, "properties": properties, "additionalProperties": False}
    if checked:  # no proof by columns: each row is validated
        row_type["properties"] = {**properties, "email": {"type": "string", "format": "email"}}
    wrote = write(host(sink=str(sink), row_type=row_type), rows(BIG, 2**53, 5, -BIG), mark(1))
    assert wrote.acks == [1, END] and not wrote.rejects
    assert [m["payload"]["row"]["id"] for m in heard(sink) if m["type"] == "row"] == sent
    counted = {"integers_beyond_2^53_sent_as_numbers": 2} if sent[0] == BIG else {}
    assert wrote.counted == counted


AT = {"day": Kind.date, "local": Kind.timestamp_ntz, "at": Kind.timestamp}


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"type": "string", "format": "date-time"}, ["2026-01-02T00:00:00Z", "2026-01-02T01:00:00Z",
                                                     "2026-01-02T01:00:00Z"]),
        ({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
         ["2026-01-02T00:00:00Z", "2026-01-02T01:00:00Z", "2026-01-02T01:00:00Z"]),
        ({"type": "string"}, ["2026-01-02", "2026-01-02T01:00:00Z", "2026-01-02T01:00:00Z"]),
        (None, ["2026-01-02", "2026-01-02T01:00:00Z", "2026-01-02T01:00:00Z"]),
    ],
)  # fmt: skip
def test_a_date_and_a_time_without_a_zone_are_times_in_utc_where_times_are_asked_for(
    sink: Path, schema: Any, sent: list[str]
) -> None:
    """Reference §3.4. JavaScript reads a time without a zone as the time of its own machine."""
    fields = tuple(Field(n, n, DataType(k)) for n, k in AT.items())
    hour = datetime(2026, 1, 2, 1)
    columns = [
        pa.array([date(2026, 1, 2)]),
        pa.array([hour], pa.timestamp("us")),
        pa.array([hour], pa.timestamp("us", "UTC")),
    ]
    row_type = {**DRAFT, "properties": dict.fromkeys(AT, schema) if schema else {}}
    timed = msgspec.structs.replace(stream(), schemas={0: RowSchema(fields)})
    batch = pa.record_batch(columns, list(AT))
    wrote = write(
        host(sink=str(sink), row_type=row_type), Rows(USERS, 0, batch), mark(1), streams=(timed,)
    )
    assert wrote.acks == [1, END] and not wrote.rejects
    (row,) = [m["payload"]["row"] for m in heard(sink) if m["type"] == "row"]
    assert list(row.values()) == sent


def test_a_reject_has_the_row_as_it_came_and_not_as_it_would_be_written() -> None:
    """L8."""
    row_type = {**DRAFT, "properties": {"email": {"type": "string", "format": "email"},
                                        "id": {"type": "string"}}}  # fmt: skip
    wrote = write(host(row_type=row_type), rows(BIG, email="no"), mark(1))
    (reject,) = wrote.rejects
    assert json.loads(reject.raw) == {"id": BIG, "email": "no", "price": None}


def test_rows_are_spread_over_time(sink: Path) -> None:
    """Also those that are sent again to find which failed."""
    began = time.monotonic()
    options = {"rows_per_second": 100, "on_failed_rows": "isolate", "checkpoint_every": 40}
    wrote = write(host(sink=str(sink), fail=[7]), rows(*range(1, 61)), mark(1), options=options)
    assert (wrote.acks, len(wrote.rejects)) == ([1, END], 1)
    sent = sum(len(ids) for ids in ids_by_process(sink))
    assert sent > 100 and time.monotonic() - began > (sent - 10) / 100


def test_a_number_that_json_does_not_have_is_no_number_of_the_row_type(sink: Path) -> None:
    field = Field("seq", "seq", DataType(Kind.number))
    arrow = pa.schema([pa.field("seq", pa.float64())])
    batch = pa.record_batch([pa.array([1.5, float("nan"), float("inf")])], arrow)
    row_type = {**DRAFT, "properties": {"seq": {"type": "number"}}}
    to = host(sink=str(sink), row_type=row_type)
    numbers = msgspec.structs.replace(stream(), schemas={0: RowSchema((field,))})
    wrote = write(to, Rows(USERS, 0, batch), streams=(numbers,))
    sent = [m["payload"]["row"] for m in heard(sink) if m["type"] == "row"]
    assert sent == [{"seq": 1.5}]
    assert [r.field for r in wrote.rejects] == ["seq", "seq"]


def test_a_row_of_five_megabytes_passes(sink: Path) -> None:
    wrote = write(host(sink=str(sink)), rows(1, email="x" * 5_000_000), mark(1))
    assert wrote.acks == [1, END]
    assert len(heard(sink)[2]["payload"]["row"]["email"]) == 5_000_000


# -- checkpoints and acks


def test_every_checkpoint_is_a_process_and_acks_what_it_counted(sink: Path) -> None:
    feed = [rows(1, 2), mark(1), rows(3, 4, 5), mark(2), rows(6, 7), mark(3)]
    wrote = write(host(sink=str(sink)), *feed, options={"checkpoint_every": 3})
    assert ids_by_process(sink) == [[1, 2, 3], [4, 5, 6], [7]]
    assert wrote.acks == [1, 2, 3, END]


def test_streams_have_a_process_each_and_a_shared_state_waits_for_all(sink: Path) -> None:
    feed = [rows(1), rows(2, of=ORDERS), mark(1, None), rows(3), StreamDone(USERS)]
    wrote = write(host(sink=str(sink), streams=["users", "orders"]), *feed)
    starts = [m["payload"]["stream"] for m in heard(sink) if m["type"] == "start-stream"]
    assert sorted(starts) == ["orders", "users"]
    assert wrote.acks == [1, END]


def test_l1_a_state_that_covers_no_row_is_acked_without_a_process(sink: Path) -> None:
    wrote = write(host(sink=str(sink)), mark(1), rows(1), mark(2), mark(3), mark(4, None))
    assert wrote.acks == [1, 2, 3, 4, END]
    idle = write(host(), mark(1), mark(2, None))
    assert (idle.acks, idle.exit) == ([1, 2, END], 0)


def test_failed_rows_hold_the_state_back_by_default() -> None:
    feed = [rows(1, 2), mark(1), rows(3), mark(2)]
    wrote = write(host(fail=[3]), *feed, options={"checkpoint_every": 2})
    assert (wrote.acks, wrote.errors, wrote.exit) == ([1], ["destination.rows_failed"], 1)


def test_failed_rows_are_found_in_smaller_checkpoints_and_become_rejects() -> None:
    wrote = write(
        host(fail=[3, 7]), rows(*range(1, 9)), mark(1), options={"on_failed_rows": "isolate"}
    )
    assert (wrote.acks, wrote.errors, wrote.exit) == ([1, END], [], 0)
    assert [json.loads(r.raw)["id"] for r in wrote.rejects] == [3, 7]
    assert "id=3" in wrote.rejects[0].reason
    before_ack = wrote.answers.index(wrote.rejects[-1]) < wrote.answers.index(Ack(1))
    assert before_ack, "the ack must not come before the rejects that it covers"


def test_failed_and_skipped_rows_may_be_left_out_and_are_counted() -> None:
    wrote = write(host(fail=[1], skip=[2]), rows(1, 2, 3), options={"on_failed_rows": "accept"})
    assert (wrote.acks, wrote.exit) == ([END], 0)
    assert wrote.counted == {"failed_at_destination": 1, "skipped_by_destination": 1}


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ({"received": 1, "skipped": 0, "success": 1, "failed": 0}, "destination.rows_failed"),
        ({"received": 9, "skipped": 0, "success": 9, "failed": 0}, "destination.miscounted"),
        ({"received": 3, "skipped": 0, "success": 3, "failed": 1}, "destination.miscounted"),
        ({"received": 1, "skipped": 0, "success": 3, "failed": 0}, "destination.miscounted"),
        ({"received": 3, "success": 3, "failed": 0}, "destination.no_result"),
        ({"skipped": 0, "success": 3, "failed": 0}, "destination.no_result"),
    ],
)
def test_counters_that_do_not_add_up_ack_nothing(result: dict[str, int], code: str) -> None:
    bounds = RunTimeouts(
        start=20, heartbeat=600, stop=1
    )  # a result that is no result ends the wait
    wrote = write(host(result=result), rows(1, 2, 3), mark(1), timeouts=bounds)
    assert (wrote.acks, wrote.errors, wrote.exit) == ([], [code], 1)


@pytest.mark.parametrize("result", [{}, {"2026-01-01": {**dict.fromkeys(_COUNTERS, 0)}}])
@pytest.mark.parametrize("policy", ["accept", "isolate"])
def test_rows_that_no_counter_names_are_not_taken_for_failed(
    result: dict[str, Any], policy: str
) -> None:
    """L8: `accept` and `isolate` are about rows that the destination says it failed."""
    wrote = write(host(result=result), rows(1, 2, 3), mark(1), options={"on_failed_rows": policy})
    assert (wrote.acks, wrote.errors, wrote.exit) == ([], ["destination.miscounted"], 1)
    assert wrote.rejects == []


def test_counters_by_date_are_added_up() -> None:
    """As mixpanel's connector gives them (reference §1.3)."""
    counted = [dict(zip(_COUNTERS, n, strict=True)) for n in ((2, 1, 1, 0), (1, 0, 1, 0))]
    result = {"2026-01-01": counted[0], "2026-01-02": counted[1]}
    wrote = write(host(result=result), rows(1, 2, 3), mark(1))
    assert (wrote.acks, wrote.errors) == ([1, END], [])
    assert wrote.counted == {"skipped_by_destination": 1}


FAILS_IN_THE_SEARCH = """
import json, pathlib, sys
told, runs = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])
sent = 0
for line in sys.stdin:
    match json.loads(line)["type"]:
        case "describe-streams":
            payload = {"defaultStream": "users", "streams": [{"name": "users"}]}
            answer = {"type": "stream-spec", "payload": payload}
        case "start-stream":
            runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
            continue
        case "row":
            sent += 1
            continue
        case "end-stream":
            counted = {"received": sent, "skipped": 0, "success": sent - 1, "failed": 1}
            answer = {"type": "stream-result", "payload": counted}
            if len(runs.read_text()) > 1:
                answer = told
    print(json.dumps(answer), flush=True)
"""


@pytest.mark.parametrize(
    ("answer", "errors", "halted"),
    [
        ({"type": "halt", "payload": {"status": "ok"}}, [], [USERS]),
        ({"type": "halt", "payload": {"status": "error"}}, ["destination.halted"], []),
        (
            {
                "type": "stream-result",
                "payload": {"received": 9, "skipped": 0, "success": 9, "failed": 0},
            },
            ["destination.miscounted"],
            [],
        ),
    ],
)
def test_what_ends_a_stream_ends_the_search_for_its_failed_rows(
    tmp_path: Path, answer: dict[str, Any], errors: list[str], halted: list[StreamId]
) -> None:
    """L8: more rows counted than were sent are no success, and a quota is no failure."""
    command = [sys.executable, "-c", FAILS_IN_THE_SEARCH, json.dumps(answer), str(tmp_path / "n")]
    to = Host(lambda env: ProcessRuntime(command, env=dict(env), role="destination"))
    wrote = write(to, rows(1, 2, 3), mark(1), options={"on_failed_rows": "isolate"})
    assert (wrote.acks, wrote.errors, wrote.halted) == ([], errors, halted)
    assert (wrote.exit, wrote.rejects) == (1 if errors else 0, [])


def test_a_row_that_is_left_out_counts_once_where_failed_ones_are_found() -> None:
    """L8."""
    to = host(fail=[3], skip=[2, 5])
    wrote = write(to, rows(*range(1, 9)), mark(1), options={"on_failed_rows": "isolate"})
    assert (wrote.acks, len(wrote.rejects)) == ([1, END], 1)
    left_out = [a for a in wrote.answers if isinstance(a, SkippedItems) and a.stream is not None]
    assert [a.what for a in left_out] == ["skipped_by_destination"] * len(left_out)
    assert sum(a.count for a in left_out) == 2


BY_THE_PAGE = """
import json, sys
while word := sys.stdin.readline():
    match json.loads(word)["type"]:
        case "describe-streams":
            sys.stdout.write(json.dumps({"streams": json.loads(sys.argv[1]),
                                         "type": "streams-spec"}) + chr(10))
            sys.stdout.flush()
        case "end-stream":
            break
"""


def by_the_page(streams: Any) -> Host:
    """A destination made from the page alone, which ends at the end of the stream."""
    command = [sys.executable, "-c", BY_THE_PAGE, json.dumps(streams)]
    return Host(lambda env: ProcessRuntime(command, env=dict(env), role="destination"))


def test_a_destination_that_gives_no_result_is_told_what_is_missing() -> None:
    """One that gave results before: else its end acks (``test_exit_acks``)."""
    wrote = write(
        by_the_page([{"name": "contacts"}]),
        rows(1),
        mark(1),
        streams=(stream(into="contacts"),),
        gives_results=True,
    )
    assert (wrote.acks, wrote.errors) == ([], ["destination.exited"])
    (error,) = [a for a in wrote.answers if isinstance(a, Error)]
    assert "answer with a stream-result" in (error.hint or "")


def test_an_answer_that_cannot_be_read_ends_the_wait_for_it() -> None:
    with pytest.raises(DestinationError) as failed:
        write(by_the_page({"contacts": {}}), rows(1), timeouts=RunTimeouts(start=600, stop=1))
    assert failed.value.code == "destination.invalid_answer"
    assert "no list of streams" in failed.value.message


# -- several processes


def sinks(folder: Path) -> list[list[dict[str, Any]]]:
    """What each process of a stream heard, in no order."""
    found = [heard(path) for path in folder.glob("*.jsonl")]
    return [lines for lines in found if lines[0]["type"] == "start-stream"]


def sent_ids(lines: list[dict[str, Any]]) -> list[int]:
    return [m["payload"]["row"]["id"] for m in lines if m["type"] == "row"]


def test_rows_of_a_key_go_to_one_process_in_their_order(tmp_path: Path) -> None:
    """Part 5."""
    ids = [*range(1, 41)]
    orders = (ids, ids[::-1], ids[7:] + ids[:7])
    batches = [rows(*some, email=f"{n}@x.io") for n, some in enumerate(orders)]
    sink = str(tmp_path / "{pid}.jsonl")
    wrote = write(host(sink=sink), *batches, mark(1), options={"parallelism": 3})
    assert (wrote.acks, wrote.errors, wrote.exit) == ([1, END], [], 0)
    processes = sinks(tmp_path)
    assert len(processes) == 3
    assert sorted(i for lines in processes for i in sent_ids(lines)) == sorted(ids * 3)
    for lines in processes:
        assert [lines[0]["type"], lines[-1]["type"]] == ["start-stream", "end-stream"]
        came = [m["payload"]["row"] for m in lines if m["type"] == "row"]
        for key in {row["id"] for row in came}:
            emails = [row["email"] for row in came if row["id"] == key]
            assert emails == ["0@x.io", "1@x.io", "2@x.io"], "all of a key, in order"


def test_the_state_waits_for_every_process_of_a_checkpoint(tmp_path: Path) -> None:
    """L1. Two of the three take all of theirs."""
    told = {"fail": [33], "sink": str(tmp_path / "{pid}.jsonl")}
    feed = [rows(*range(1, 31)), mark(1), rows(*range(31, 61)), mark(2)]
    options = {"parallelism": 3, "checkpoint_every": 30}
    wrote = write(host(**told), *feed, options=options)
    assert (wrote.acks, wrote.errors, wrote.exit) == ([1], ["destination.rows_failed"], 1)
    assert len(sinks(tmp_path)) == 6
    kept = write(host(fail=[33]), *feed, options={**options, "on_failed_rows": "isolate"})
    assert (kept.acks, kept.errors) == ([1, 2, END], [])
    assert [json.loads(r.raw)["id"] for r in kept.rejects] == [33]
    assert kept.counted["rows_sent_again_to_find_failed_ones"] < 30, "those of one process only"


def test_one_of_several_processes_that_halts_or_dies_ends_its_stream_only() -> None:
    """L7."""
    to = {"streams": ["users", "orders"]}
    feed = [rows(*range(1, 200)), mark(1), rows(1, of=ORDERS), mark(2, ORDERS)]
    for told, code in (
        ({"halt": {"at": "row", "after": 70}}, "destination.halted"),
        ({"die": {"at": "row", "after": 70}}, "destination.exited"),
    ):
        wrote = write(host(**to, **told), *feed, options={"parallelism": 3})
        assert (wrote.acks, wrote.errors, wrote.exit) == ([2], [code], 1)


def test_only_one_process_has_the_rows_until_it_was_told_that_they_are_all(sink: Path) -> None:
    """Another's rows would go when it clears what is there."""
    all_of_it = stream(full_refresh=True)
    options = {"parallelism": 3, "checkpoint_every": 10}
    feed = [rows(*range(1, 41)), mark(1)]
    wrote = write(host(sink=str(sink)), *feed, streams=(all_of_it,), options=options)
    assert wrote.acks == [1, END]
    said = heard(sink)[1:]
    assert [m["type"] for m in said[:12]] == ["start-stream", *["row"] * 10, "end-stream"]
    starts = [m["payload"]["fullRefresh"] for m in said if m["type"] == "start-stream"]
    assert starts == [True, *[False] * 9]
    assert "one process has the rows, up to the first checkpoint" in wrote.logged


def test_a_key_of_another_type_begins_new_processes(sink: Path) -> None:
    """The hash of 1 and that of "1" differ, so that a later row could overtake an earlier one."""
    text = RowSchema((Field("id", "id", DataType(Kind.string)),))
    number = RowSchema((Field("id", "id", DataType(Kind.integer)),))
    keyed = msgspec.structs.replace(stream(), schemas={0: number, 1: text}, latest=1)
    ids = [pa.array([*range(40)], pa.int64()), pa.array([str(n) for n in range(40)])]
    feed = [Rows(USERS, v, pa.record_batch([a], ["id"])) for v, a in enumerate(ids)]
    options = {"parallelism": 2}
    wrote = write(host(sink=str(sink)), *feed, mark(1), streams=(keyed,), options=options)
    assert wrote.acks == [1, END]
    said = heard(sink)[1:]
    first = next(
        at
        for at, m in enumerate(said)
        if m["type"] == "row" and isinstance(m["payload"]["row"]["id"], str)
    )
    before = [m["type"] for m in said[:first]]
    assert (before.count("row"), before.count("end-stream")) == (40, 2)


def test_keys_are_divided_whatever_columns_they_have(tmp_path: Path) -> None:
    inner = Field("b_", "b", DataType(Kind.string))
    schema = RowSchema(
        (
            Field("at", "At", DataType(Kind.timestamp)),
            Field("sum", "sum", DataType(Kind.decimal, precision=38, scale=2)),
            Field("a", "a", DataType(Kind.struct, fields=(inner,))),
        )
    )
    keyed = msgspec.structs.replace(stream(), schemas={0: schema})
    keyed = msgspec.structs.replace(
        keyed,
        configured=msgspec.structs.replace(
            keyed.configured, primary_key=(("At",), ("sum",), ("a", "b"))
        ),
    )
    columns = [
        pa.array([n * 10**6 if n % 7 else None for n in range(60)], pa.timestamp("us", "UTC")),
        pa.array([Decimal(n) for n in range(60)], pa.decimal128(38, 2)),
        pa.array([{"b_": str(n)} if n % 5 else None for n in range(60)]),
    ]
    batch = pa.record_batch(columns, ["at", "sum", "a"]).slice(3, 50)
    sink = str(tmp_path / "{pid}.jsonl")
    feed = [Rows(USERS, 0, batch), Rows(USERS, 0, batch.slice(11, 30)), mark(1)]
    wrote = write(host(sink=sink), *feed, streams=(keyed,), options={"parallelism": 2})
    assert wrote.acks == [1, END], wrote.errors
    sums = [{m["payload"]["row"]["sum"] for m in p if m["type"] == "row"} for p in sinks(tmp_path)]
    assert len(sums) == 2 and not sums[0] & sums[1] and len(sums[0] | sums[1]) == 50


def test_a_stream_that_cannot_be_divided_has_one_process_and_a_warning(sink: Path) -> None:
    keyless = stream()
    keyless = msgspec.structs.replace(
        keyless, configured=msgspec.structs.replace(keyless.configured, primary_key=())
    )
    options = {"parallelism": 3, "rows_per_second": 100}
    feed = [rows(*range(30)), mark(1)]
    wrote = write(host(sink=str(sink)), *feed, streams=(keyless,), options=options)
    assert wrote.acks == [1, END]
    assert ids_by_process(sink) == [[*range(30)]]
    assert "one process has the rows, since the stream has no primary key" in wrote.logged


# -- rows that do not fit


@pytest.mark.parametrize("policy", ["dlq", "skip", "fail"])
def test_a_row_that_does_not_fit_its_row_type_is_never_sent(policy: str, sink: Path) -> None:
    row_type = {**DRAFT, "properties": {"email": {"type": "string", "format": "email"}}}
    to = host(sink=str(sink), row_type=row_type)
    wrote = write(to, rows(1), rows(2, email="no"), rows(3), mark(1), on_data_error=policy)
    sent = [i for ids in ids_by_process(sink) for i in ids]
    if policy == "fail":
        assert (wrote.acks, wrote.errors) == ([], ["destination.row_type"])
        assert sent in ([], [1]), "it is stopped at once"
        return
    assert (wrote.acks, sent) == ([1, END], [1, 3])
    if policy == "dlq":
        (reject,) = wrote.rejects
        assert (reject.field, json.loads(reject.raw)["id"]) == ("email", 2)
        assert "id=2" in reject.reason
    else:
        assert wrote.counted == {"row_type": 1}


# -- halts, deaths, silence


def test_a_halt_while_rows_flow_stops_them_and_acks_nothing() -> None:
    many = [rows(*range(n, n + 1000), email="x" * 1000) for n in range(0, 20_000, 1000)]
    wrote = write(host(halt={"at": "row", "after": 5}), *many, mark(1))
    assert (wrote.acks, wrote.errors, wrote.exit) == ([], ["destination.halted"], 1)
    (error,) = [a for a in wrote.answers if isinstance(a, Error)]
    assert "quota" in error.message
    assert error.raw == {"message": "quota", "data": {"n": 2}}


def test_a_halt_without_a_status_is_an_error() -> None:
    wrote = write(host(halt={"at": "end-stream", "status": None}), rows(1), mark(1))
    assert (wrote.acks, wrote.errors) == ([], ["destination.halted"])


SAYS = """
import json, sys
rows = 0
for line in sys.stdin:
    match json.loads(line)["type"]:
        case "describe-streams":
            payload = {"defaultStream": "users", "streams": [{"name": "users"}]}
            print(json.dumps({"type": "stream-spec", "payload": payload}), flush=True)
        case "row":
            rows += 1
            print(sys.argv[1], flush=True)
        case "end-stream":
            counted = {"received": rows, "skipped": 0, "success": rows, "failed": 0}
            print(json.dumps({"type": "stream-result", "payload": counted}), flush=True)
"""


@pytest.mark.parametrize(
    ("said", "acks"),
    [
        ('200 OK: {"status":"ok"}', [1, END]),
        ('{"status":"error","message":"retried"}', [1, END]),
        ('{"payload":{"status":"error","message":"quota"}}', []),
    ],
)
def test_what_another_program_answered_is_no_halt(said: str, acks: list[int]) -> None:
    """A halt may be without a type, but has its status in a payload (reference §1.3)."""
    command = [sys.executable, "-c", SAYS, said]
    to = Host(lambda env: ProcessRuntime(command, env=dict(env), role="destination"))
    assert write(to, rows(1, 2), mark(1)).acks == acks


def test_a_halt_that_says_ok_ends_well_and_acks_only_what_was_counted() -> None:
    halt = {"at": "row", "after": 2, "status": "ok"}
    feed = [rows(1), mark(1), rows(2, 3), mark(2)]
    wrote = write(host(halt=halt), *feed, options={"checkpoint_every": 1})
    assert wrote.acks == [1, 2, END], "one row a process: none ever sees two"
    wrote = write(host(halt=halt), *feed)
    assert (wrote.acks, wrote.errors, wrote.exit, wrote.halted) == ([], [], 0, [USERS])


@pytest.mark.parametrize(
    ("told", "ended"),
    [
        ({"halt": {"at": "row", "after": 2, "status": "ok"}}, ([], [USERS], 0)),
        ({"halt": {"at": "row", "after": 2}}, (["destination.halted"], [], 1)),
        ({"fail": [2]}, (["destination.rows_failed"], [], 1)),
    ],
)
def test_rows_without_a_state_are_taken_where_their_own_stream_was(
    told: dict[str, Any], ended: tuple[list[str], list[StreamId], int]
) -> None:
    """L1, L7. A stream that failed or was halted took none, whatever the exit code; another that
    has its result needs no state after its rows, nor has one without rows to wait."""
    idle = StreamId(None, "idle")
    to = host(streams=["users", "orders", "idle"], **told)
    streams = (stream(), stream(ORDERS), stream(idle))
    wrote = write(to, rows(1, 2, 3), rows(1, of=ORDERS), streams=streams)
    assert (wrote.acks, wrote.whole) == ([], [ORDERS, idle])
    assert (wrote.errors, wrote.halted, wrote.exit) == ended


def test_a_stream_that_fails_leaves_the_others_alone() -> None:
    """L7. One destination fails the row with id 9, which only ``orders`` has."""
    to = host(streams=["users", "orders"], fail=[9])
    wrote = write(to, rows(1), mark(1), rows(9, of=ORDERS), mark(2, ORDERS), rows(2), mark(3))
    assert (wrote.acks, wrote.exit) == ([1, 3], 1)
    assert [a.stream for a in wrote.answers if isinstance(a, Error)] == [ORDERS]


@pytest.mark.parametrize("announced", [True, False])
def test_two_streams_are_never_written_to_one(sink: Path, announced: bool) -> None:
    """The first in the request has it, also where it has no rows yet: the other may be one that is
    no longer selected, or that only the write shows to have nowhere else to go. L7: the first goes
    on."""
    to = host(sink=str(sink), streams=["contacts"])
    later = stream(ORDERS)
    streams = (stream(),) if announced else (stream(), later)
    first = [later] if announced else []
    feed = [*first, rows(1, of=ORDERS), mark(1, ORDERS), rows(2), mark(2)]
    wrote = write(to, *feed, streams=streams)
    assert (wrote.acks, wrote.whole) == ([2], [USERS])
    assert (wrote.errors, wrote.exit) == (["destination.same_stream"], 1)
    assert ids_by_process(sink) == [[2]]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"into": "contact"}, "destination.unknown_stream"),
        ({"options": {"mode": "z"}}, "destination.options"),
    ],
)
def test_a_stream_that_cannot_be_written_leaves_the_others_alone(
    sink: Path, asked: dict[str, Any], code: str
) -> None:
    """L7."""
    to = host(sink=str(sink), streams=["users", "orders"], options=OPTIONS)
    feed = [rows(1), rows(2, of=ORDERS), mark(1), mark(2, ORDERS)]
    wrote = write(to, *feed, streams=(stream(), stream(ORDERS, **asked)))
    assert (wrote.acks, wrote.errors, wrote.exit) == ([1], [code], 1)
    assert ids_by_process(sink) == [[1]]


@pytest.mark.parametrize("at", ["start-stream", "row", "end-stream"])
@pytest.mark.parametrize("code", [0, 3])
def test_a_destination_that_dies_is_told_by_its_own_last_words(at: str, code: int) -> None:
    wrote = write(host(die={"at": at, "code": code}), rows(1), mark(1))
    assert (wrote.acks, wrote.errors, wrote.exit) == ([], ["destination.exited"], 1)
    (error,) = [a for a in wrote.answers if isinstance(a, Error)]
    assert f"exited with code {code}" in error.message
    assert "the disk is full" in error.message


def test_a_result_that_is_there_before_the_write_of_the_end_returns_is_no_early_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = ProcessChannel.write

    def slow(channel: ProcessChannel, data: bytes | memoryview, timeout: float) -> int:
        taken = whole(channel, data, timeout)
        if b"end-stream" in bytes(data):
            time.sleep(0.4)
        return taken

    monkeypatch.setattr(ProcessChannel, "write", slow)
    wrote = write(host(), rows(1), mark(1))
    assert (wrote.acks, wrote.errors) == ([1, END], [])


def test_the_first_process_of_a_full_refresh_is_told_so(sink: Path) -> None:
    """Part 5: the next would drop what the first was sent."""
    all_of_it = stream(full_refresh=True)
    feed = rows(1, 2, 3), mark(1)
    write(host(sink=str(sink)), *feed, streams=(all_of_it,), options={"checkpoint_every": 2})
    starts = [m["payload"] for m in heard(sink) if m["type"] == "start-stream"]
    assert [start["fullRefresh"] for start in starts] == [True, False]


def test_its_exit_code_after_its_result_is_no_failure() -> None:
    assert write(host(exit=1), rows(1), mark(1)).acks == [1, END]


@pytest.mark.parametrize(
    ("told", "code"),
    [({"silent": "end-stream"}, "destination.no_result"), ({"deaf": 1}, "destination.heartbeat")],
)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_every_wait_for_it_is_bounded(told: dict[str, Any], code: str, parallelism: int) -> None:
    """L11. Its log is no progress."""
    big = [rows(*range(5000), email="x" * 1000)]
    began = time.monotonic()
    bounds = RunTimeouts(start=20, heartbeat=1, stop=1)
    options = {"parallelism": parallelism}
    wrote = write(host(**told, log=True), *big, mark(1), timeouts=bounds, options=options)
    assert (wrote.acks, wrote.errors) == ([], [code])
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"silent": "describe-streams"}, "destination.timeout"),
        ({"die": {"at": "describe-streams"}}, "destination.exited"),
        ({"halt": {"at": "describe-streams"}}, "destination.halted"),
    ],
)
def test_a_question_that_is_not_answered_fails(told: dict[str, Any], code: str) -> None:
    with pytest.raises(DestinationError) as failed:
        write(host(**told), rows(1), timeouts=RunTimeouts(start=2, stop=1))
    assert failed.value.code == code
    assert failed.value.hint


def test_a_failure_of_the_feed_is_no_end_of_the_stream(sink: Path) -> None:
    def feed() -> Iterator[Feed]:
        yield rows(1)
        raise OSError("a part is gone")

    asked = WriteRequest(config={}, streams=(stream(),), source_protocol="airbyte", tick=0.1)
    with pytest.raises(OSError, match="a part is gone"):
        list(SyncmavenDestination().write(host(sink=str(sink)), asked, feed()))
    assert "end-stream" not in [m["type"] for m in heard(sink)]


# -- before a run


def spec_of(**told: Any) -> Any:
    return SyncmavenDestination().spec(host(**told), RunTimeouts(start=20), lambda e: None)


def notes(*streams: WriteStream, **told: Any) -> list[str]:
    return SyncmavenDestination().fidelity(spec_of(**told), "airbyte", streams, {})


GONE = "_ab_cdc_deleted_at"
MARKED = RowSchema((SCHEMA.fields[0], Field(GONE, GONE, DataType(Kind.string))))
NAMES_OTHERS = {**DRAFT, "properties": {"id": {"type": "integer"}}}


def marked(**more: Any) -> WriteStream:
    """A stream of a source that tells of deletes."""
    return msgspec.structs.replace(stream(**more), schemas={0: MARKED}, latest=0, deleted_at=GONE)


def mirrored(**more: Any) -> WriteStream:
    """A model's stream of which removed rows are sent."""
    found = marked(mode=DestinationSyncMode.append_dedup, **more)
    sends = (Change.added, Change.changed, Change.removed)
    return msgspec.structs.replace(
        found, configured=msgspec.structs.replace(found.configured, sends=sends)
    )


def with_marks(*marks: str | None) -> Rows:
    columns = [pa.array([*range(1, len(marks) + 1)]), pa.array(marks, pa.string())]
    return Rows(USERS, 0, pa.record_batch(columns, ["id", GONE]))


OPTIONS = {**DRAFT, "properties": {"mode": {"enum": ["a", "b"]}}, "additionalProperties": False}


_NEXT = [[{"$ref": f"#/definitions/s{n}"}] * 2 for n in range(1, 41)]
MANY_WAYS = {
    "$ref": "#/definitions/s0",
    "definitions": {f"s{n}": {"oneOf": both} for n, both in enumerate(_NEXT)} | {"s40": {}},
}


@pytest.mark.parametrize(
    ("told", "streams", "words"),
    [
        ({"roles": ["enrichment"]}, [stream()], "not a destination"),
        ({"streams": ["x"]}, [stream(into="contact")], "no stream 'contact'"),
        ({}, [stream(), stream(ORDERS)], "both be written to 'contacts'"),
        ({}, [mirrored()], "gone are sent with the time in '_ab_cdc_deleted_at'"),
        (
            {"row_type": NAMES_OTHERS},
            [mirrored()],
            "gone are sent with the time in '_ab_cdc_deleted_at'",
        ),
        ({"options": OPTIONS}, [stream(options={"mode": "z"})], "destination.options.mode"),
        ({"row_type": {"type": "nonsense"}}, [stream()], "not a valid JSON Schema"),
        ({"row_type": MANY_WAYS}, [stream()], "takes more than 50,000 steps to check"),
        ({"row_type": {**DRAFT, "required": ["vat"]}}, [stream()], "requires vat"),
        ({"row_type": {**DRAFT, "required": ["id"]}}, [stream(mapping={"a": "id"})], "requires id"),
        ({}, [stream(mapping={"a": "emial"})], "no column 'emial'; did you mean 'email'"),
    ],
)
def test_what_cannot_work_is_said_before_the_run(
    told: dict[str, Any], streams: list[WriteStream], words: str
) -> None:
    problems = SyncmavenDestination().problems(spec_of(**told), streams)
    assert len(problems) == 1
    assert words in problems[0]


def test_options_of_which_no_schema_is_published_are_given_as_they_stand(sink: Path) -> None:
    """Most connectors read options and publish no schema of them (the node CDK sends
    ``streamOptions: undefined``); the real host validates none (reference §3)."""
    options = {"audienceName": "customers", "doNotClearAudience": True}
    asked = stream(options=options)
    assert SyncmavenDestination().problems(spec_of(), [asked]) == []
    (note,) = [n for n in notes(asked) if "destination.options" in n]
    assert "publishes no schema of its options" in note
    assert not [n for n in notes(stream()) if "options" in n]
    schema = {**DRAFT, "properties": {"audienceName": {"type": "string"}}}
    assert not [n for n in notes(asked, options=schema) if "destination.options" in n]
    wrote = write(host(sink=str(sink)), rows(1), mark(1), streams=(asked,))
    assert wrote.acks == [1, END]
    (start,) = [m["payload"] for m in heard(sink) if m["type"] == "start-stream"]
    assert start["streamOptions"] == options


# -- rows that are gone at the source


@pytest.mark.parametrize(
    ("told", "more"),
    [
        ({"row_type": {**DRAFT, "properties": {GONE: {"type": ["string", "null"]}}}}, {}),
        ({"row_type": {"allOf": [{"properties": {GONE: {"type": "string"}}}]}}, {}),
        ({}, {"mapping": {"id": "id", "leftAt": GONE}}),  # the user says which field it is
    ],
)
def test_removals_are_sent_where_something_says_what_they_are(
    told: dict[str, Any], more: dict[str, Any]
) -> None:
    asked = mirrored(**more)
    assert SyncmavenDestination().problems(spec_of(**told), [asked]) == []
    assert not [n for n in notes(asked, **told) if "gone" in n]


def test_removals_are_refused_by_a_destination_that_tells_its_streams_late(sink: Path) -> None:
    """What it told when the plan was made need not be what it tells now."""
    wrote = write(host(sink=str(sink)), with_marks(None), streams=(mirrored(),))
    assert (wrote.errors, wrote.exit) == (["destination.removals"], 1)
    assert [m["type"] for m in heard(sink)] == ["describe-streams"]


@pytest.mark.parametrize("nulls", ["auto", "send"])
def test_a_source_that_tells_deletes_does_so_with_a_note_and_a_count(
    sink: Path, nulls: str
) -> None:
    """Rows that are there do not bear the mark: a destination that makes a property of every
    unknown field would make one of it."""
    asked = marked()
    (note,) = [n for n in notes(asked) if "gone at the source" in n]
    assert "'_ab_cdc_deleted_at'" in note and "as rows that are there" in note
    wrote = write(
        host(sink=str(sink)), with_marks(None, "2026-01-02"), streams=(asked,),
        options={"nulls": nulls},
    )  # fmt: skip
    assert wrote.counted == {"removals_sent_as_rows": 1}
    there, gone = [m["payload"]["row"] for m in heard(sink) if m["type"] == "row"]
    assert there == ({"id": 1} if nulls == "auto" else {"id": 1, GONE: None})
    assert gone == {"id": 2, GONE: "2026-01-02"}


def test_a_field_that_the_row_type_names_is_cleared_when_a_row_is_there_again(sink: Path) -> None:
    row_type = {**DRAFT, "properties": {GONE: {"type": ["string", "null"]}}}
    wrote = write(host(sink=str(sink), row_type=row_type), with_marks(None), streams=(mirrored(),))
    assert (wrote.exit, wrote.counted) == (0, {})
    (row,) = [m["payload"]["row"] for m in heard(sink) if m["type"] == "row"]
    assert row == {"id": 1, GONE: None}


def test_streams_that_send_only_a_part_are_noted(sink: Path) -> None:
    """Files, sheets and audiences are cleared when a stream starts."""
    whole = msgspec.structs.replace(
        stream(),
        configured=msgspec.structs.replace(stream().configured, sync_mode=SyncMode.full_refresh),
    )
    for asked, noted in ((mirrored(), True), (stream(), True), (whole, False)):
        found = [n for n in notes(asked) if "only rows that are new or changed" in n]
        assert bool(found) is noted
    for given, noted in (
        ({"on_failed_rows": "isolate"}, True),
        ({"on_failed_rows": "isolate", "checkpoint_every": 10_000_000}, False),
        ({}, False),
    ):
        found = SyncmavenDestination().fidelity(spec_of(), "airbyte", [whole], given)
        assert any("after every 1000 rows" in n for n in found) is noted


def test_streams_and_options_that_fit_are_no_problem() -> None:
    spec = spec_of(options=OPTIONS, streams=["users", "orders"])
    fits = [stream(options={"mode": "a"}), stream(ORDERS, into="orders")]
    assert SyncmavenDestination().problems(spec, fits) == []


def test_columns_that_are_not_known_yet_are_no_problem() -> None:
    """Of a model, `plan` knows only the columns that the pipeline file names."""
    known = stream(mapping={"name": "full_name"})
    guess = msgspec.structs.replace(known.configured.stream, assumed=True)
    assumed = msgspec.structs.replace(known.configured, stream=guess)
    told = spec_of(row_type={**DRAFT, "required": ["vat"]})
    for asked in (known, stream()):
        open_ = msgspec.structs.replace(asked, configured=assumed)
        assert SyncmavenDestination().problems(told, [open_]) == []


def test_a_spec_without_a_schema_takes_any_credentials() -> None:
    said: list[Any] = []
    spec = SyncmavenDestination().spec(host(credentials=None), RunTimeouts(start=20), said.append)
    assert spec.config_schema == {}
    assert any("no schema of its credentials" in e.message for e in said if isinstance(e, LogEvent))


def test_a_check_asks_for_its_streams_with_the_credentials(sink: Path) -> None:
    log = lambda e: None  # noqa: E731
    found = SyncmavenDestination().check(host(sink=str(sink)), {"k": 1}, RunTimeouts(start=20), log)
    assert found.succeeded
    assert heard(sink)[0]["payload"]["credentials"] == {"k": 1}
    halting = host(halt={"at": "describe-streams"})
    refused = SyncmavenDestination().check(halting, {}, RunTimeouts(start=20), log)
    assert not refused.succeeded
    assert "quota" in (refused.message or "")
