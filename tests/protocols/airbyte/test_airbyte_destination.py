"""A write's whole conversation with a real process, the scriptable stub destination (L1, L11)."""

import json
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.codec.decode import RowDecoder
from penstock.codec.json_schema import row_schema
from penstock.errors import DestinationError
from penstock.model.catalog import (
    ConfiguredStream,
    ConnectorSpec,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import (
    ConnectorExited,
    Control,
    Error,
    Event,
    LogEvent,
    SkippedItems,
    Tick,
)
from penstock.model.names import clean_columns
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import ChangeWords, DataType, Field, Kind, RowSchema
from penstock.protocols.airbyte import outgoing
from penstock.protocols.airbyte.package import PACKAGE
from penstock.protocols.airbyte.state import scope_of
from penstock.protocols.stdio import write as feeding
from penstock.protocols.writing import (
    END,
    GUESSED_ACK,
    NEWEST_ACK,
    Ack,
    Acks,
    Answer,
    Feed,
    Rows,
    StateMark,
    StreamDone,
    WriteRequest,
    WriteStream,
)
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.masking import Masker
from penstock.runtimes.memory import MemoryRuntime, NextLine, Step
from penstock.runtimes.process import ProcessRuntime

STUB = Path(__file__).parents[2] / "stubs" / "stub_destination.py"
LIMITS = RunTimeouts(start=30, heartbeat=30, stop=1)
DESTINATION = PACKAGE.destination
assert DESTINATION is not None
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "full name": {"type": ["null", "string"]},
        "price": {"type": "number", "multipleOf": 0.01},
        "at": {"type": "string", "format": "date-time"},
        "local": {
            "type": "string",
            "format": "date-time",
            "airbyte_type": "timestamp_without_timezone",
        },
        "day": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {"type": "object", "properties": {"street no": {"type": "integer"}}},
        "any": {"oneOf": [{"type": "string"}, {"type": "object"}]},
    },
}
A, B = StreamId(None, "a"), StreamId("old", "b")


def schema_of(schema: dict[str, Any]) -> RowSchema:
    record = PACKAGE.schema.data_type(schema)
    return row_schema(record, clean_columns(f.source for f in record.fields), None)


def stream(
    of: StreamId,
    target: StreamId | None = None,
    mode: DestinationSyncMode = DestinationSyncMode.append,
    schema: dict[str, Any] = SCHEMA,
    **configured: Any,
) -> WriteStream:
    return WriteStream(
        configured=ConfiguredStream(
            stream=Stream(id=of, json_schema=schema),
            sync_mode=SyncMode.incremental,
            destination_sync_mode=mode,
            generation_id=3,
            minimum_generation_id=0,
            sync_id=9,
            **configured,
        ),
        target=target or of,
        schemas={1: schema_of(schema)},
        latest=1,
    )


STREAMS = (stream(A), stream(B, StreamId("new", "pre_b")))


def rows(of: StreamId, first: int, count: int, **more: Any) -> Rows:
    bodies = [json.dumps({"id": first + i, **more}).encode() for i in range(count)]
    decoder = RowDecoder(schema_of(SCHEMA), words=ChangeWords("NULLED", "TYPE_MISFIT"))
    table = decoder.decode(bodies, 1, [1_700_000_000_123] * count).table
    return Rows(of, 1, table.combine_chunks().to_batches()[0])


def mark(seq: int, of: StreamId, cursor: Any) -> StateMark:
    named = {"name": of.name, **({"namespace": of.namespace} if of.namespace else {})}
    body = {"stream_descriptor": named, "stream_state": cursor}
    blob = json.dumps({"type": "STREAM", "stream": body})
    return StateMark(seq, StoredState(StateScope(StateType.stream, of), blob))


def shared(seq: int, cursor: Any, kind: StateType = StateType.global_) -> StateMark:
    body: dict[str, Any] = {"type": "LEGACY", "data": cursor}
    if kind is StateType.global_:
        body = {"type": "GLOBAL", "global": {"shared_state": cursor, "stream_states": []}}
    return StateMark(seq, StoredState(StateScope(kind), json.dumps(body)))


BASIC: list[Feed] = [
    rows(A, 1, 3),
    mark(1, A, {"cursor": 3}),
    rows(B, 1, 2),
    mark(2, B, {"cursor": 2}),
    rows(A, 4, 2),
    mark(3, A, {"cursor": 5}),
    StreamDone(A),
    StreamDone(B),
]

# More than any pipe and any reader's buffer holds.
BIG: list[Feed] = [rows(A, i * 2000, 2000, **{"full name": "x" * 500}) for i in range(4)]


def runtime(config: dict[str, Any]) -> ProcessRuntime:
    return ProcessRuntime([sys.executable, str(STUB)], masker=Masker([config.get("api_key", "")]))


def write(
    config: dict[str, Any],
    feed: Sequence[Feed] | Iterator[Feed] = BASIC,
    streams: tuple[WriteStream, ...] = STREAMS,
    acks: Acks = Acks.echo,
    source: str = "airbyte",
    timeouts: RunTimeouts = LIMITS,
) -> list[Answer]:
    request = WriteRequest(
        config=config,
        streams=streams,
        source_protocol=source,
        timeouts=timeouts,
        acks=acks,
        tick=0.05,
    )
    answers = list(DESTINATION.write(runtime(config), request, iter(feed)))
    assert isinstance(answers[-1], ConnectorExited)
    return answers


def acked(answers: list[Answer]) -> list[int]:
    return [a.seq for a in answers if isinstance(a, Ack)]


def errors(answers: list[Answer]) -> list[str]:
    return [a.code or a.message for a in answers if isinstance(a, Error)]


def counts(answers: list[Answer]) -> dict[str, int]:
    found: dict[str, int] = {}
    for a in answers:
        if isinstance(a, SkippedItems):
            found[a.what] = found.get(a.what, 0) + a.count
    return found


def exit_code(answers: list[Answer]) -> int | None:
    return next(a.code for a in answers if isinstance(a, ConnectorExited))


def got(sink: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    head, *lines = [json.loads(x) for x in sink.read_bytes().splitlines()]
    return head["run"], lines


# -- spec, check, plan


def ignore(_: Event) -> None: ...


def starts(command: list[str]) -> ProcessRuntime:
    return ProcessRuntime(command, role="destination")


def test_spec_and_check_and_their_failures_are_a_destinations() -> None:
    spec = DESTINATION.spec(runtime({}), LIMITS, ignore)
    assert spec.abilities["supported_destination_sync_modes"][0] == "append"
    assert DESTINATION.check(runtime({}), {}, LIMITS, ignore).succeeded
    failed = DESTINATION.check(runtime({}), {"check": "FAILED"}, LIMITS, ignore)
    assert not failed.succeeded and "no such place" in (failed.message or "")
    with pytest.raises(DestinationError) as told:
        DESTINATION.spec(starts(["sh", "-c", "echo no >&2; exit 3"]), LIMITS, ignore)
    assert told.value.code == "destination.exited"
    assert "no" in told.value.message and "destination" in (told.value.hint or "")
    with pytest.raises(DestinationError) as missing:
        DESTINATION.spec(starts(["./not-there"]), LIMITS, ignore)
    assert missing.value.code == "connector.not_found" and missing.value.exit_code == 5
    with pytest.raises(DestinationError) as silent:
        DESTINATION.spec(starts(["sh", "-c", "sleep 60"]), RunTimeouts(start=0.2, stop=0.2), ignore)
    assert silent.value.code == "destination.start_timeout"
    assert silent.value.message == "spec: the destination printed nothing for 0.2 s"


def test_a_refused_sync_mode_and_other_problems_are_told_before_a_row_moves() -> None:
    """Bad input: a destination that refuses the sync mode."""
    some = ProcessRuntime([sys.executable, str(STUB), "--with", json.dumps({"modes": ["append"]})])
    spec = DESTINATION.spec(some, LIMITS, ignore)
    dedup = stream(A, mode=DestinationSyncMode.append_dedup)
    told = DESTINATION.problems(spec, (dedup, stream(B)))
    assert len(told) == 2
    assert "does not support destination_sync_mode append_dedup" in told[0]
    assert "primary key" in told[1]
    said: list[Event] = []
    unsaid = ProcessRuntime([sys.executable, str(STUB), "--with", json.dumps({"modes": None})])
    spec = DESTINATION.spec(unsaid, LIMITS, said.append)
    assert DESTINATION.problems(spec, (stream(A),)) == []
    assert any(isinstance(e, LogEvent) and e.level == "WARN" for e in said)


def fidelity(source_protocol: str, *streams: WriteStream) -> list[str]:
    spec = ConnectorSpec(protocol="airbyte", config_schema={})
    return DESTINATION.fidelity(spec, source_protocol, streams, {})


def test_fidelity_says_what_narrows() -> None:
    notes = fidelity("singer", stream(A, mode=DestinationSyncMode.overwrite))
    text = "\n".join(notes)
    for words in ("at least once", "inside a GLOBAL state", "decimals", "UTC", "empties its table"):
        assert words in text
    assert "GLOBAL" not in "\n".join(fidelity("airbyte", *STREAMS))
    timed = {"type": "object", "properties": {"t": {"type": "string", "format": "time"}}}
    (note,) = (n for n in fidelity("singer", stream(A, schema=timed)) if "zone" in n)
    assert note.startswith("a: t: ")
    assert "zone" not in text


# -- what is sent


@pytest.mark.parametrize("cursor", [None, ("id",)])
def test_an_increment_without_a_cursor_is_one_whose_source_defines_it(
    cursor: tuple[str, ...] | None,
) -> None:
    """Protocol, ConfiguredAirbyteStream: an increment has ``cursor_field``, unless the source
    defines the cursor. A tap's bookmark may name no property."""
    (entry,) = outgoing.catalog([stream(A, cursor_field=cursor)])["streams"]
    assert entry["sync_mode"] == "incremental"
    assert entry["stream"]["source_defined_cursor"] is (cursor is None)
    assert entry.get("cursor_field") == (["id"] if cursor else None)


def test_catalog_has_the_types_of_the_parts_and_the_target_names(tmp_path: Path) -> None:
    """Protocol, Data Types, as real connectors keep them."""
    keyed = stream(A, None, DestinationSyncMode.append_dedup, primary_key=(("id",),))
    write({"sink": str(tmp_path / "sink")}, [], (keyed, STREAMS[1]))
    run, _ = got(tmp_path / "sink")
    first, second = run["catalog"]["streams"]
    properties = first["stream"]["json_schema"]["properties"]
    assert properties["id"] == {"type": ["null", "integer"]}
    assert properties["full name"] == {"type": ["null", "string"]}
    assert properties["price"] == {"type": ["null", "number"]}
    assert properties["at"]["airbyte_type"] == "timestamp_with_timezone"
    assert properties["local"]["airbyte_type"] == "timestamp_without_timezone"
    assert properties["day"] == {"type": ["null", "string"], "format": "date"}
    assert properties["tags"]["items"] == {"type": ["null", "string"]}
    assert properties["address"]["properties"] == {"street no": {"type": ["null", "integer"]}}
    assert properties["any"] == SCHEMA["properties"]["any"]  # type: ignore[index]
    assert first["primary_key"] == [["id"]] and first["destination_sync_mode"] == "append_dedup"
    assert (first["generation_id"], first["minimum_generation_id"], first["sync_id"]) == (3, 0, 9)
    assert "namespace" not in first["stream"]
    assert (second["stream"]["namespace"], second["stream"]["name"]) == ("new", "pre_b")


def test_a_time_is_sent_with_a_zone_only_where_it_is_said_to_have_one() -> None:
    """A bare ``format: time`` says nothing of zones, and its values have one or have none."""
    bare = {"type": "string", "format": "time"}
    zoned = {**bare, "airbyte_type": "time_with_timezone"}
    schema: dict[str, Any] = {
        "type": "object",
        "definitions": {"t": zoned},
        "properties": {
            "bare": bare,
            "zoned": zoned,
            "local": {**bare, "airbyte_type": "time_without_timezone"},
            "referred": {"$ref": "#/definitions/t"},
            "either": {"oneOf": [{"type": "null"}, zoned]},
            "list": {"type": "array", "items": bare},
            "inside": {"type": "object", "properties": {"bare": bare, "zoned": zoned}},
        },
    }
    of = schema_of(schema)
    fit = RowDecoder(of, words=ChangeWords("NULLED", "TYPE_MISFIT"))
    bodies = [b'{"bare":"01:02:03Z"}', b'{"bare":"01:02:03"}']
    values = fit.decode(bodies, 1, [0, 0]).table.column("bare").to_pylist()
    assert values == ["01:02:03Z", "01:02:03"]
    made = outgoing.json_schema(of, schema)["properties"]
    text, with_zone = {"type": ["null", "string"]}, "time_with_timezone"
    assert made["bare"] == made["list"]["items"] == made["inside"]["properties"]["bare"] == text
    assert made["local"]["airbyte_type"] == "time_without_timezone"
    for one in (
        made["zoned"],
        made["referred"],
        made["either"],
        made["inside"]["properties"]["zoned"],
    ):
        assert (one["format"], one["airbyte_type"]) == ("time", with_zone)
    assert outgoing.zoneless_times(of, schema) == ["bare", "list", "inside"]
    assert outgoing.json_schema(of, {})["properties"]["zoned"] == text


def test_l9_a_key_is_told_as_never_null_and_nothing_else_is() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "d": {"type": "string", "format": "date"}},
    }
    made = outgoing.json_schema(schema_of(schema), schema, {"d"})["properties"]
    assert made == {
        "id": {"type": ["null", "integer"]}, "d": {"type": "string", "format": "date"}
    }  # fmt: skip
    told = outgoing.json_schema(schema_of(schema), schema)["properties"]
    assert told["d"] == {"type": ["null", "string"], "format": "date"}


def test_a_text_that_the_pipeline_calls_json_is_told_as_anything() -> None:
    """A component's text column may hold an object; its own schema would refuse it."""
    either = {"oneOf": [{"type": "string"}, {"type": "object"}]}
    schema: dict[str, Any] = {
        "properties": {"text": {"type": "string"}, "either": either, "list": {"type": "array"}}
    }
    names = ("text", "either", "list")
    of = RowSchema(tuple(Field(n, n, DataType(Kind.json)) for n in names))
    made = outgoing.json_schema(of, schema)["properties"]
    assert {"object", "string", "null"} <= {*made["text"]["type"]}
    assert (made["either"], made["list"]) == (either, {"type": "array"})


def test_messages_come_in_order_under_the_target_names(tmp_path: Path) -> None:
    """To real destinations: namespace and prefix, state id and counts; COMPLETE comes last."""
    answers = write({"sink": str(tmp_path / "sink")})
    assert acked(answers) == [1, 2, 3] and errors(answers) == [] and exit_code(answers) == 0
    _, lines = got(tmp_path / "sink")
    kinds = [x["type"] for x in lines]
    assert kinds == ["RECORD"] * 3 + ["STATE"] + ["RECORD"] * 2 + ["STATE"] + ["RECORD"] * 2 + [
        "STATE",
        "TRACE",
        "TRACE",
    ]
    record = lines[4]["record"]
    assert (record["namespace"], record["stream"], record["data"]["id"]) == ("new", "pre_b", 1)
    assert record["emitted_at"] == 1_700_000_000_123
    assert record["meta"] == {"changes": []}
    assert "namespace" not in lines[0]["record"]
    state = lines[6]["state"]
    assert state["stream"]["stream_descriptor"] == {"name": "pre_b", "namespace": "new"}
    assert state["stream"]["stream_state"] == {"cursor": 2}
    assert state["id"] == 2 and isinstance(state["sourceStats"]["recordCount"], float)
    assert b'"recordCount":2.0' in (tmp_path / "sink").read_bytes()
    assert lines[9]["state"]["sourceStats"]["recordCount"] == 2
    status = lines[-1]["trace"]["stream_status"]
    assert status == {
        "stream_descriptor": {"name": "pre_b", "namespace": "new"},
        "status": "COMPLETE",
    }


def test_a_stream_that_is_not_done_is_never_told_complete(tmp_path: Path) -> None:
    """L6: without COMPLETE a destination keeps the old generation."""
    write({"sink": str(tmp_path / "sink")}, BASIC[:7])
    told = [x["trace"]["stream_status"] for x in got(tmp_path / "sink")[1] if x["type"] == "TRACE"]
    assert [(t["stream_descriptor"]["name"], t["status"]) for t in told] == [
        ("a", "COMPLETE"),
        ("pre_b", "INCOMPLETE"),
    ]


def test_values_keep_their_type_and_misfits_are_told_in_the_protocols_words(tmp_path: Path) -> None:
    """L9: the change list crosses; words that Airbyte lacks become its own."""
    config = {"sink": str(tmp_path / "sink")}
    more = {"full name": 'é"\n', "price": 12.50, "at": "2024-02-29T01:02:03+01:00", "any": {"b": 1}}
    feed = [rows(A, 1, 1, **more), rows(A, 2, 1, day="not a day")]
    assert acked(write(config, [*feed, mark(1, A, 1)])) == [1]
    first, second = [x["record"] for x in got(tmp_path / "sink")[1][:2]]
    assert first["data"]["full name"] == 'é"\n' and first["data"]["any"] == {"b": 1}
    assert first["data"]["price"] == 12.5 and first["data"]["at"] == "2024-02-29T00:02:03Z"
    assert first["data"]["tags"] is None
    assert second["data"]["day"] is None
    change = {"field": "day", "change": "NULLED", "reason": "DESTINATION_TYPECAST_ERROR"}
    assert second["meta"]["changes"] == [change]


@pytest.mark.parametrize("how", ["echo", "mangled", "changed"])
def test_global_and_legacy_and_foreign_states_cross_and_are_acked(how: str, tmp_path: Path) -> None:
    config = {"sink": str(tmp_path / how), "acks": how}
    feed = [rows(A, 1, 2), shared(1, {"lsn": 1}), rows(B, 1, 1), shared(2, {"lsn": 1})]
    assert acked(write(config, feed)) == [1, 2]
    states = [x["state"] for x in got(tmp_path / how)[1] if x["type"] == "STATE"]
    assert [s["sourceStats"]["recordCount"] for s in states] == [2, 1]
    assert states[0]["global"] == {"shared_state": {"lsn": 1}, "stream_states": []}
    foreign = shared(1, {"bookmarks": {"x": None}}, StateType.legacy)
    assert acked(write({**config, "sink": str(tmp_path / "2")}, [foreign], source="singer")) == [1]
    told = got(tmp_path / "2")[1][0]["state"]
    assert told["type"] == "GLOBAL"
    assert told["global"]["shared_state"] == {"penstock": foreign.state.blob}
    if how != "changed":
        legacy = shared(1, {"old": 1.50}, StateType.legacy)
        assert acked(write(config, [legacy])) == [1]


# -- what comes back


@pytest.mark.parametrize("how", ["echo", "late", "bare", "nulls", "mangled", "changed", "twice"])
def test_every_form_of_an_echo_in_order_is_an_ack(how: str) -> None:
    """Of real destinations: bare states, nulls added, ``global_``, other content. What had to
    be guessed is counted, for the report."""
    answers = write({"acks": how})
    assert sorted(acked(answers)) == [1, 2, 3] and errors(answers) == []
    guessed = 3 if how in ("bare", "mangled", "changed") else None
    assert counts(answers).get(GUESSED_ACK) == guessed
    assert counts(answers).get("repeated_state", 0) == (3 if how == "twice" else 0)


FORMS = [
    [],
    ["no_id"],
    ["no_id", "reordered", "destination_stats"],
    ["no_id", "no_source_stats", "additions", "empty_namespace"],
]


@pytest.mark.parametrize("form", FORMS, ids="-".join)
@pytest.mark.parametrize("when", ["newest", "every_third", "final"])
def test_l1_the_newest_state_acks_all_before_it_in_its_scope(when: str, form: list[str]) -> None:
    """Specification, Destination: an echo says that all records before it are written. Destinations
    that buffer give back the newest state of what they have flushed, and no other."""
    config = {"acks": when, "form": form}
    of_a = [f for n in range(1, 6) for f in (rows(A, n * 2, 2), mark(n, A, {"cursor": n}))]
    answers = write(config, of_a)
    assert acked(answers) == ([3, 5] if when == "every_third" else [5])
    assert errors(answers) == [] and counts(answers).get("guessed_ack") is None
    for kind in (StateType.global_, StateType.legacy):
        of_all = [
            f for n in (1, 2) for f in (rows(A, n, 1), rows(B, n, 1), shared(n, {"lsn": n}, kind))
        ]
        answers = write(config, of_all)
        assert acked(answers) == [2] and errors(answers) == []


def test_l1_an_echo_of_one_stream_says_nothing_of_another() -> None:
    """Streams are flushed one by one: what is acked is a scope's."""
    newest = write({"acks": "newest"})
    assert acked(newest) == [3, 2] and errors(newest) == []
    final = write({"acks": "final"})
    assert acked(final) == [3] and errors(final) == []


@pytest.mark.parametrize("when", ["newest", "final"])
def test_l1_of_equal_states_the_newest_is_taken_after_a_good_end_only(when: str) -> None:
    """A source that repeats its state: an echo of it may be the first one's."""
    config = {"acks": when, "form": ["no_id", "no_source_stats"]}
    feed = [f for n in range(1, 4) for f in (rows(A, n * 2, 2), mark(n, A, {"cursor": 1}))]
    answers = write(config, feed)
    assert acked(answers) == [1, 3] and counts(answers)[NEWEST_ACK] == 1
    assert acked(write({**config, "exit_code": 1}, feed)) == [1]
    assert acked(write(config, feed, acks=Acks.strict)) == [1]
    told_apart = write({"acks": when, "form": ["no_id"]}, [*feed[:4], rows(A, 8, 3), feed[5]])
    assert acked(told_apart) == [3] and NEWEST_ACK not in counts(told_apart)


def test_l1_strict_takes_whole_messages_only() -> None:
    assert acked(write({"acks": "echo"}, acks=Acks.strict)) == [1, 2, 3]
    assert acked(write({"acks": "nulls"}, acks=Acks.strict)) == [1, 2, 3]
    bare = write({"acks": "bare"}, acks=Acks.strict)
    assert acked(bare) == [] and counts(bare)["bare_state"] == 3
    changed = write({"acks": "changed"}, acks=Acks.strict)
    assert acked(changed) == [] and errors(changed) == ["destination.state_unknown"]


def test_l1_a_destination_that_never_acks_acks_nothing() -> None:
    assert acked(write({"acks": "none"})) == []


def test_l1_a_state_that_is_passed_over_is_acked_with_the_next_of_its_scope() -> None:
    answers = write({"acks": "skip_first"})
    assert acked(answers) == [2, 3] and errors(answers) == []
    alone = write({"acks": "skip_first"}, BASIC[:4])
    assert acked(alone) == [2], "nothing of stream a came back"


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_l1_a_late_echo_of_an_earlier_state_acks_nothing_more(form: list[str]) -> None:
    answers = write({"acks": "reversed", "form": form})
    assert acked(answers) == [3, 2] and errors(answers) == []
    assert counts(answers)["repeated_state"] == 1 and GUESSED_ACK not in counts(answers)


def test_l1_an_echo_under_another_stream_or_unasked_is_no_ack() -> None:
    wrong = write({"acks": "wrong_stream"})
    assert acked(wrong) == [] and errors(wrong) == ["destination.state_unknown"]
    unasked = write({"acks": "unasked"})
    assert acked(unasked) == [1, 2, 3] and errors(unasked) == ["destination.state_unknown"]


def test_l1_at_end_only_a_good_end_counts() -> None:
    for how in ("none", "newest", "echo", "wrong_stream"):
        good = write({"acks": how}, acks=Acks.at_end)
        assert acked(good) == [END] and errors(good) == []
    assert acked(write({"exit_code": 1}, acks=Acks.at_end)) == []
    assert acked(write({"exit_at": 4, "exit_code": 0}, BIG, acks=Acks.at_end)) == []
    assert acked(write({"exit_now": True}, acks=Acks.at_end)) == [], "it read nothing"
    told = write({"trace": "half of it", "trace_always": True}, acks=Acks.at_end)
    assert acked(told) == [] and exit_code(told) == 0


def test_asides_are_treated_as_a_sources() -> None:
    answers = write({"noise": True, "log": "hello", "control": {"token": "new"}})
    assert acked(answers) == [1, 2, 3]
    assert any(isinstance(a, LogEvent) and a.message == "hello" for a in answers)
    assert [a.config for a in answers if isinstance(a, Control)] == [{"token": "new"}]
    told = counts(answers)
    assert told["text_line"] == 1 and told["unknown_type:NEW_THING"] == 1
    assert told["unexpected_type:RECORD"] == 1


# -- how it ends


def test_exit_1_after_half_keeps_the_acks_before_it() -> None:
    answers = write({"exit_at": 4, "trace": "disk full", "say": "last words"})
    assert acked(answers) == [1] and errors(answers) == ["disk full"]
    last = answers[-1]
    assert isinstance(last, ConnectorExited) and last.code == 1 and "last words" in last.stderr_tail


@pytest.mark.parametrize("config", [{"exit_now": True}, {"exit_at": 4, "exit_code": 0}])
def test_exit_0_before_the_end_of_its_input_is_an_error(config: dict[str, Any]) -> None:
    """Bad input: a target that exits at once."""
    answers = write({**config, "say": "bye"}, BIG)
    assert errors(answers) == ["destination.ended_early"] and exit_code(answers) == 0


def test_a_death_while_nothing_is_fed_is_heard_at_once() -> None:
    """The source may be silent for hours."""

    def feed() -> Iterator[Feed]:
        yield rows(A, 1, 4)
        while True:
            time.sleep(0.02)
            yield Tick()

    began = time.monotonic()
    answers = write({"exit_at": 4, "exit_code": 0}, feed())
    assert time.monotonic() - began < 15
    assert errors(answers) == ["destination.ended_early"]


def test_a_destination_that_closes_its_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad input: a target that closes stdin, and then ends, or does not."""
    answers = write({"close_at": 10, "exit_code": 3}, BIG)
    assert exit_code(answers) == 3 and acked(answers) == []
    monkeypatch.setattr(feeding, "CLOSED_INPUT_SECONDS", 0.3)
    answers = write({"close_at": 10, "close_sleep": 60}, BIG)
    assert errors(answers) == ["destination.closed_input"] and exit_code(answers) is None


@pytest.mark.parametrize("stubborn", [False, True])
def test_l11_one_that_neither_reads_nor_answers_is_stopped(stubborn: bool) -> None:
    short = RunTimeouts(start=30, heartbeat=1.0, stop=0.5)
    began = time.monotonic()
    answers = write({"hang_at": 10, "hang_stubborn": stubborn}, BIG, timeouts=short)
    assert errors(answers) == ["destination.heartbeat"] and exit_code(answers) is None
    assert time.monotonic() - began < 20


def test_l11_one_that_does_not_end_is_stopped() -> None:
    short = RunTimeouts(start=30, heartbeat=1.0, stop=0.5)
    answers = write({"hang_at_end": True}, timeouts=short)
    assert acked(answers) == [1, 2, 3], "what it gave back stays acked"
    assert errors(answers) == ["destination.no_exit"]
    total = RunTimeouts(start=30, heartbeat=60, total=1.0, stop=0.5)
    assert errors(write({"hang_at_end": True}, timeouts=total)) == ["destination.timeout"]


def test_a_destination_that_talks_before_it_reads_does_not_deadlock() -> None:
    """Two full pipes: 8 MB of logs out while megabytes wait to go in."""
    answers = write({"huge_logs": 8000}, [*BIG, mark(1, A, 1)])
    assert acked(answers) == [1]
    assert sum(isinstance(a, LogEvent) for a in answers) == 8000


def test_closing_the_conversation_ends_the_destination(tmp_path: Path) -> None:
    def feed() -> Iterator[Feed]:
        yield rows(A, 1, 4)
        yield mark(1, A, 1)
        while True:
            time.sleep(0.02)
            yield Tick()

    config = {"sink": str(tmp_path / "sink")}
    request = WriteRequest(
        config=config, streams=STREAMS, source_protocol="airbyte", timeouts=LIMITS, tick=0.05
    )
    answers = DESTINATION.write(runtime(config), request, feed())
    for answer in answers:
        if isinstance(answer, Ack):
            break
    pid = got(tmp_path / "sink")[0]["pid"]
    answers.close()  # type: ignore[attr-defined]
    assert not Path(f"/proc/{pid}").exists()


def test_a_failure_of_the_feed_is_raised_and_ends_the_destination(tmp_path: Path) -> None:
    def feed() -> Iterator[Feed]:
        yield rows(A, 1, 4)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        write({}, feed())
    with pytest.raises(DestinationError) as told:
        write({}, [rows(StreamId(None, "new"), 1, 1)])
    assert told.value.code == "destination.new_stream"


def test_a_schema_that_grew_is_used_from_then_on(tmp_path: Path) -> None:
    """The catalog is fixed when it starts; records carry the new property (protocol: extra fields
    are ignored)."""
    grown = stream(A)
    wider = {"type": "object", "properties": {"id": {"type": "integer"}, "z": {"type": "string"}}}
    decoder = RowDecoder(schema_of(wider))
    batch = decoder.decode([b'{"id":2,"z":"q"}'], 1, [5]).table.to_batches()[0]
    told = WriteStream(
        configured=grown.configured,
        target=grown.target,
        schemas={1: grown.schemas[1], 2: schema_of(wider)},
        latest=2,
    )
    sink = tmp_path / "sink"
    write({"sink": str(sink)}, [rows(A, 1, 1), told, Rows(A, 2, batch), rows(A, 3, 1)], (grown,))
    data = [x["record"]["data"] for x in got(sink)[1] if x["type"] == "RECORD"]
    assert data[1] == {"id": 2, "z": "q"} and data[2]["id"] == 3


def test_the_same_conversation_over_the_in_memory_twin() -> None:
    """docs/architecture.md: a role's code runs over a process or a test double alike."""
    seen: list[dict[str, Any]] = []

    def script(arguments: list[str | bytes]) -> Generator[Step, bytes, None]:
        assert [a for a in arguments if isinstance(a, str)] == ["write", "--config", "--catalog"]
        while line := (yield NextLine()):
            seen.append(json.loads(line))
            if seen[-1]["type"] == "STATE":
                yield line

    request = WriteRequest(
        config={}, streams=STREAMS, source_protocol="airbyte", timeouts=LIMITS, tick=0.05
    )
    answers = list(DESTINATION.write(MemoryRuntime(script), request, iter(BASIC)))
    assert acked(answers) == [1, 2, 3] and exit_code(answers) == 0 and errors(answers) == []
    assert len(seen) == 12


@pytest.mark.parametrize(
    "sent",
    [
        {"data": {"users": {"id": 7}}},
        {"type": "LEGACY", "data": {"n": 1.50}},
        {"state_type": "LEGACY", "data": {"n": 1}},
        {"type": "STREAM", "stream": {"stream_descriptor": {"name": "to"}, "stream_state": 1}},
        {
            "type": "STREAM",
            "stream": {"stream_descriptor": {"name": "to", "namespace": None, "x": 1}},
            "data": {"to": {"id": 7}},
        },
        {
            "type": "GLOBAL",
            "state_type": "GLOBAL",
            "global": {"shared_state": {"lsn": 9}, "stream_states": []},
        },
    ],
)
def test_a_state_is_sent_as_its_source_sent_it(sent: dict[str, Any]) -> None:
    """Protocol, AirbyteStateMessage V1 and V2: LEGACY needs no type."""
    blob = json.dumps(sent)
    scope = scope_of(blob)
    target = None if scope.stream is None else StreamId(None, "to")
    message = outgoing.state(StoredState(scope, blob), "airbyte", target, 5, 3)
    more: dict[str, Any] = {"id": 5, "sourceStats": {"recordCount": 3.0}}
    if scope.type is not StateType.legacy:
        more["state_type"] = scope.type.value
    assert json.loads(outgoing.state_line(message))["state"] == {**sent, **more}


@pytest.mark.parametrize("word", ["state_type", "type"])
def test_a_typed_state_has_both_discriminators(word: str) -> None:
    """The page calls it ``state_type``, destinations of Airbyte's SDKs read ``type``."""
    body = {"stream_descriptor": {"name": "a"}, "stream_state": {"id": 1}}
    blob = json.dumps({word: "STREAM", "stream": body})
    saved = StoredState(scope_of(blob), blob)
    message = outgoing.state(saved, "airbyte", StreamId("new", "b"), 1, 0)
    assert (message["type"], message["state_type"]) == ("STREAM", "STREAM")
    assert message["stream"]["stream_descriptor"] == {"name": "b", "namespace": "new"}


@pytest.mark.parametrize(("target", "kind"), [(None, "GLOBAL"), (StreamId(None, "a"), "STREAM")])
def test_another_protocols_state_has_both_discriminators(
    target: StreamId | None, kind: str
) -> None:
    """Protocol, AirbyteStateMessage V2: without ``state_type`` it reads as V1 without data."""
    saved = StoredState(StateScope(StateType.global_), '{"users": 2}')
    message = outgoing.state(saved, "singer", target, 1, 0)
    assert (message["type"], message["state_type"]) == (kind, kind)
