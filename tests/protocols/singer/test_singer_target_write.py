"""A Singer target as a process (issue 4, destinations 3): what it is sent, what its words mean,
and how it may end (L1, L11)."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from singer_feed import SHARED, USERS, mark, rows, schema, stream, users, write

from penstock.errors import DestinationError
from penstock.model.catalog import ConnectorSpec, DestinationSyncMode, StreamId, SyncMode
from penstock.model.events import ConnectorExited, Error, LogEvent, SkippedItems, Tick
from penstock.model.state import StateScope, StateType
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.singer.destination import SingerTarget
from penstock.protocols.singer.state_echoes import CLOSING
from penstock.protocols.writing import END, Ack, Acks, Answer, Feed, StreamDone, WriteRequest
from penstock.protocols.writing import WriteStream as Write
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.process import ProcessRuntime

STUB = Path(__file__).parents[2] / "stubs" / "stub_target.py"
S = [{"bookmarks": {"users": {"at": n}}} for n in range(9)]


def stub(**overrides: Any) -> ProcessRuntime:
    return ProcessRuntime([sys.executable, str(STUB), msgspec.json.encode(overrides).decode()])


def acked(answers: list[Answer]) -> list[int]:
    return [a.seq for a in answers if isinstance(a, Ack)]


def the_exit(answers: list[Answer]) -> ConnectorExited:
    assert isinstance(answers[-1], ConnectorExited)
    return answers[-1]


def error(answers: list[Answer]) -> Error:
    return next(a for a in answers if isinstance(a, Error))


def counted(answers: list[Answer]) -> dict[str, int]:
    return {a.what: a.count for a in answers if isinstance(a, SkippedItems)}


def lines(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


# -- what it is sent


def test_schema_first_then_records_and_states_in_order(tmp_path: Path) -> None:
    one = stream("users", cursor_field=("id",))
    feed: list[Feed] = [users(one, 1, 2), mark(1, S[1]), Tick(), users(one, 3, 1), mark(2, S[2])]
    answers = write(stub(save=str(tmp_path / "in")), [one], feed)
    found = lines(tmp_path / "in")
    assert found[0] == {
        "type": "SCHEMA",
        "stream": "users",
        "schema": {
            "type": "object",
            "properties": {
                "id": {"type": ["null", "integer"]},
                "name": {"type": ["null", "string"]},
            },
        },
        "key_properties": ["id"],
        "bookmark_properties": ["id"],
    }
    assert found[1] == {
        "type": "RECORD",
        "stream": "users",
        "record": {"id": 1, "name": "user 1"},
        "time_extracted": "2024-02-29T12:00:00Z",
    }
    assert [m["type"] for m in found] == ["SCHEMA", "RECORD", "RECORD", "STATE", "RECORD", "STATE"]
    assert [m["value"] for m in found if m["type"] == "STATE"] == S[1:3]
    assert acked(answers) == [2, END]
    assert the_exit(answers).code == 0


def test_a_schema_is_sent_again_only_where_it_changed(tmp_path: Path) -> None:
    one = stream("users")
    wider = schema(id=Kind.integer, name=Kind.string, age=Kind.integer)
    one.schemas.update({2: USERS, 3: wider})
    grown = msgspec.structs.replace(one, latest=3)
    feed: list[Feed] = [
        users(one, 1, 1),
        rows(one, {"id": 2}, version=2),
        grown,
        rows(grown, {"id": 3, "age": 5}, version=3),
    ]
    write(stub(save=str(tmp_path / "in")), [one], feed)
    found = lines(tmp_path / "in")
    kinds = ["SCHEMA", "RECORD", "RECORD", "SCHEMA", "RECORD", "STATE"]
    assert [m["type"] for m in found] == kinds
    assert "age" in found[3]["schema"]["properties"]
    assert found[4]["record"] == {"id": 3, "name": None, "age": 5}


def test_a_stream_that_is_announced_later_and_one_without_rows_have_a_schema(
    tmp_path: Path,
) -> None:
    late = stream("late", mode=DestinationSyncMode.append, namespace="shop")
    feed: list[Feed] = [late, users(late, 1, 1), StreamDone(StreamId(None, "empty"))]
    write(stub(save=str(tmp_path / "in")), [stream("empty")], feed, activate_version="never")
    found = [(m["type"], m.get("stream"), m.get("key_properties")) for m in lines(tmp_path / "in")]
    assert found == [
        ("SCHEMA", "shop-late", []),
        ("RECORD", "shop-late", None),
        ("SCHEMA", "empty", ["id"]),
        ("STATE", None, None),
    ]


def test_schemas_are_in_the_dialect_of_targets(tmp_path: Path) -> None:
    """Reference §0.7 and §1.6: no $ref, no booleans, no multipleOf; what our own reader makes of
    it are the same types."""
    from penstock.codec.json_schema import row_schema
    from penstock.protocols.singer.outgoing_schema import json_schema
    from penstock.protocols.singer.schema import SingerSchema

    inner = Field("a_", "a b", DataType(Kind.decimal, precision=20, scale=3))
    kinds: dict[str, DataType] = {k.value: DataType(k) for k in Kind if k.value not in _NESTED}
    kinds["decimal"] = DataType(Kind.decimal, precision=38, scale=0)
    kinds["struct"] = DataType(Kind.struct, fields=(inner,))
    kinds["array"] = DataType(Kind.array, item=DataType(Kind.array, item=DataType(Kind.json)))
    of = schema(**kinds)
    made = json_schema(of)
    text = msgspec.json.encode(made).decode()
    assert not [w for w in ("$ref", "true", "false", "multipleOf", "anyOf") if w in text]
    again = row_schema(SingerSchema().data_type(made), {})
    lossy = {"timestamp_ntz": Kind.timestamp, "time": Kind.time_tz, "number_text": Kind.string}
    for before, after in zip(of.fields, again.fields, strict=True):
        expected = lossy.get(before.source, before.type.kind)
        assert after.type.kind is expected
        if before.source == "struct":
            assert after.type.fields[0].type == inner.type
        elif before.source not in lossy:
            assert after.type == before.type


def test_l9_a_key_is_told_as_never_null_and_nothing_else_is() -> None:
    from penstock.protocols.singer.outgoing_schema import json_schema

    of = schema(id=DataType(Kind.integer), j=DataType(Kind.json), v=DataType(Kind.string))
    made = json_schema(of, {"id", "j"})["properties"]
    assert made["id"] == {"type": ["integer"]} and made["v"] == {"type": ["null", "string"]}
    assert "null" not in made["j"]["type"] and len(made["j"]["type"]) == 6


_NESTED = ("decimal", "struct", "array")


def test_a_generation_is_a_version_that_is_activated_when_the_stream_is_complete(
    tmp_path: Path,
) -> None:
    """L6: nothing is activated before the stream was complete at the source."""
    full = {"mode": DestinationSyncMode.overwrite, "sync_mode": SyncMode.full_refresh}
    done = stream("done", **full, generation_id=7, minimum_generation_id=7)
    half = stream("half", **full, generation_id=8)
    grows = stream("grows", generation_id=3, minimum_generation_id=0)
    feed: list[Feed] = [users(s, 1, 1) for s in (done, half, grows)]
    feed += [StreamDone(done.id), StreamDone(grows.id), mark(1, S[1])]
    about = {"capabilities": ["activate-version"], "settings": {}}
    write(stub(save=str(tmp_path / "in"), about=about), [done, half, grows], feed)
    found = lines(tmp_path / "in")
    versions = {m["stream"]: m.get("version") for m in found if m["type"] == "RECORD"}
    assert versions == {"done": 7, "half": 8, "grows": None}
    activated = [m for m in found if m["type"] == "ACTIVATE_VERSION"]
    assert activated == [{"type": "ACTIVATE_VERSION", "stream": "done", "version": 7}]


@pytest.mark.parametrize(
    ("about", "told", "sent"),
    [
        (None, "auto", False),
        ({"capabilities": ["about"]}, "auto", False),
        (None, "always", True),
        ({"capabilities": ["activate-version"]}, "never", False),
    ],
)
def test_versions_are_sent_where_the_target_says_so_or_as_told(
    tmp_path: Path, about: Any, told: str, sent: bool
) -> None:
    """Also for a stream that is announced late."""
    one = stream("users", mode=DestinationSyncMode.overwrite, generation_id=7)
    overrides = {"save": str(tmp_path / "in"), **({"about": about} if about else {})}
    feed: list[Feed] = [one, users(one, 1, 1), StreamDone(one.id)]
    write(stub(**overrides), [], feed, activate_version=told)
    kinds = [m["type"] for m in lines(tmp_path / "in")]
    assert ("ACTIVATE_VERSION" in kinds) is sent
    assert any("version" in m for m in lines(tmp_path / "in")) is sent


def test_the_state_of_another_protocol_stays_here(tmp_path: Path) -> None:
    one = stream("users")
    scope = StateScope(StateType.stream, one.id)
    feed: list[Feed] = [users(one, 1, 1), mark(1, {"token": "secret"}, scope)]
    answers = write(stub(save=str(tmp_path / "in")), [one], feed, source="airbyte")
    state = lines(tmp_path / "in")[-1]["value"]
    assert state["bookmarks"]["users"]["seq"] == 1
    assert "secret" not in (tmp_path / "in").read_text()
    assert acked(answers) == [1, END]


# -- what its words mean (L1)


def test_acks_come_while_it_is_fed() -> None:
    one = stream("users")
    seen = threading.Event()

    def feed() -> Iterator[Feed]:
        yield users(one, 1, 1)
        yield mark(1, S[1])
        while not seen.is_set():
            yield Tick()
            time.sleep(0.02)
        yield users(one, 2, 1)
        yield mark(2, S[2])

    request = WriteRequest(config={}, streams=(one,), source_protocol="singer", tick=0.2)
    answers: list[Answer] = []
    for answer in SingerTarget().write(stub(ack="each"), request, feed()):
        answers.append(answer)
        if answer == Ack(1):
            seen.set()
    assert acked(answers) == [1, 2, END]


def test_a_target_that_prints_a_state_only_if_it_is_last_acks_what_is_closed() -> None:
    """target-jsonl: rows after the last state would take all acks away."""
    one = stream("users")
    answers = write(stub(ack="last"), [one], [users(one, 1, 1), mark(1, S[1]), users(one, 2, 1)])
    assert acked(answers) == [1, END]
    answers = write(stub(ack="last"), [one], [users(one, 1, 1), mark(1, S[1])])
    assert acked(answers) == [1, END]
    answers = write(stub(ack="last"), [one], [users(one, 1, 1)])
    assert acked(answers) == [END]


def test_a_closing_state_acks_no_rows_without_exit_code_0(tmp_path: Path) -> None:
    """The mark before is acked by it, the rows between are not."""
    one = stream("users")
    overrides = {"ack": "last", "exit": 3, "save": str(tmp_path / "in")}
    answers = write(stub(**overrides), [one], [users(one, 1, 1), mark(1, S[1]), users(one, 2, 1)])
    assert acked(answers) == [1]
    closing = lines(tmp_path / "in")[-1]
    assert closing["value"].pop(CLOSING)
    assert closing == {"type": "STATE", "value": S[1]}
    assert error(answers).code == "destination.exited"
    assert the_exit(answers).code == 3


def test_a_target_that_merges_bookmarks_acks_what_they_repeat() -> None:
    """PipelineWise: a value per flush, of the streams that were flushed so far."""
    one, two = stream("users"), stream("orders")
    both = {"bookmarks": {"users": 1, "orders": 1}}
    feed: list[Feed] = [users(one, 1, 1), users(two, 1, 1), mark(1, both)]
    feed += [users(one, 2, 1), users(two, 2, 1), mark(2, {"bookmarks": {"users": 2, "orders": 2}})]
    answers = write(stub(ack="merge", every=2), [one, two], feed)
    assert acked(answers) == [1, 2, END]
    ours = [StateScope(StateType.stream, s.id) for s in (one, two)]
    feed = [users(one, 1, 1), mark(1, {}, ours[0]), users(two, 1, 1), mark(2, {}, ours[1])]
    feed += [users(one, 2, 1), mark(3, {}, ours[0]), users(two, 2, 1), mark(4, {}, ours[1])]
    answers = write(stub(ack="merge", every=2), [one, two], feed, source="airbyte")
    assert acked(answers) == [1, 2, 3, 4, END]


def test_noise_and_strange_states_ack_nothing() -> None:
    odd = ["", "{}", "  ", "hello", "null", "[]", '{"bookmarks":{}}', '{"bookmarks":{"users":9}}']
    odd += ['{"type":"STATE","value":{"bookmarks":{"users":{"at":1}}}}', '{"half":', "3"]
    one = stream("users")
    answers = write(stub(prints=odd, ack="none"), [one], [users(one, 1, 1), mark(1, S[1])])
    assert acked(answers) == []
    assert the_exit(answers).code == 0
    assert counted(answers) == {
        "state_unmatched": 6,
        "text_line": 2,
        "echoed_message:STATE": 1,
    }
    assert [a.message for a in answers if isinstance(a, LogEvent)] == [
        "text_line: hello",
        'text_line: {"half":',
    ]


def test_a_target_that_never_acks_is_acked_at_its_end_where_that_was_asked_for() -> None:
    one = stream("users")
    feed = [users(one, 1, 1), mark(1, S[1])]
    assert acked(write(stub(ack="none"), [one], list(feed))) == []
    assert acked(write(stub(ack="none"), [one], list(feed), acks=Acks.at_end)) == [END]
    assert acked(write(stub(ack="each"), [one], list(feed), acks=Acks.at_end)) == [END]
    failed = write(stub(ack="each", exit=1), [one], list(feed), acks=Acks.at_end)
    assert acked(failed) == []


# -- how it may end


def test_a_target_that_exits_early_is_an_error_in_its_own_words() -> None:
    one = stream("users")
    overrides = {"after": 3, "code": 2, "say": "INFO on\nCRITICAL no space left\nINFO bye"}
    answers = write(stub(**overrides), [one], [users(one, 1, 50_000), mark(1, S[1])])
    assert "no space left" in error(answers).message
    assert "code 2" in error(answers).message
    assert acked(answers) == []
    assert the_exit(answers).code == 2


def test_a_target_that_is_killed_is_an_error_and_what_it_acked_counts() -> None:
    one = stream("users")
    feed: list[Feed] = [users(one, 1, 1), mark(1, S[1]), users(one, 2, 50_000), mark(2, S[2])]
    answers = write(stub(after=100, kill=True, ack="each"), [one], feed)
    assert acked(answers) == [1]
    assert "signal 9" in error(answers).message
    assert the_exit(answers).code == -9


def test_exit_code_0_before_the_end_of_its_input_is_an_error() -> None:
    """Reference §0.5: a target that is told to stop writes what it has and exits with 0."""
    one = stream("users")
    overrides = {"after": 3, "code": 0, "ack": "each"}
    for acks in (Acks.echo, Acks.at_end):
        answers = write(stub(**overrides), [one], [users(one, 1, 50_000), mark(1, S[1])], acks=acks)
        assert error(answers).code == "destination.ended_early"
        assert acked(answers) == []


def test_a_target_that_closes_its_input_and_stays_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L11."""
    monkeypatch.setattr("penstock.protocols.stdio.write.CLOSED_INPUT_SECONDS", 0.5)
    one = stream("users")
    began = time.monotonic()
    answers = write(stub(after=1, close=True), [one], [users(one, 1, 50_000)])
    assert error(answers).code == "destination.closed_input"
    assert the_exit(answers).code is None
    assert time.monotonic() - began < 30


def test_a_target_that_hangs_is_stopped() -> None:
    """L11: it reads nothing, or does not end after the end of its input."""
    one = stream("users")
    bound = RunTimeouts(heartbeat=1.0, stop=1.0)
    answers = write(stub(after=2, hang=True), [one], [users(one, 1, 50_000)], timeouts=bound)
    assert error(answers).code == "destination.heartbeat"
    bound = RunTimeouts(heartbeat=5.0, stop=1.0)  # its start takes a second where much runs
    answers = write(stub(after=1, hang=True), [one], [users(one, 1, 1)], timeouts=bound)
    assert error(answers).code == "destination.no_exit"
    bound = RunTimeouts(total=1.0, stop=1.0)
    answers = write(stub(after=1, hang=True), [one], [users(one, 1, 1)], timeouts=bound)
    assert error(answers).code == "destination.timeout"


def test_what_drawing_the_feed_raises_is_raised_and_the_target_dies() -> None:
    one = stream("users")

    def feed() -> Iterator[Feed]:
        yield users(one, 1, 1)
        raise DestinationError("the part is gone", code="x.y")

    with pytest.raises(DestinationError, match="the part is gone"):
        write(stub(), [one], feed())


def test_closing_the_generator_ends_the_target_while_the_feed_goes_on() -> None:
    one = stream("users")

    def feed() -> Iterator[Feed]:
        yield users(one, 1, 1)
        while True:
            yield Tick()
            time.sleep(0.02)

    request = WriteRequest(
        config={}, streams=(one,), source_protocol="singer", tick=0.2, timeouts=RunTimeouts(stop=1)
    )
    answers = SingerTarget().write(stub(), request, feed())
    began = time.monotonic()
    assert isinstance(next(answers), Tick)
    answers.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 20


def test_one_that_cannot_be_started_is_a_destinations_error(tmp_path: Path) -> None:
    runtime = ProcessRuntime([str(tmp_path / "no-such-target")], role="destination")
    with pytest.raises(DestinationError) as caught:
        write(runtime, [stream("users")], [])
    assert caught.value.code == "connector.not_found"


def test_much_is_fed_with_back_pressure_and_arrives_whole(tmp_path: Path) -> None:
    one = stream("users")
    feed: list[Feed] = []
    for n in range(1, 6):
        feed += [users(one, n * 10_000, 10_000), mark(n, {"bookmarks": {"users": n}})]
    answers = write(stub(ack="each"), [one], feed)
    assert acked(answers) == [1, 2, 3, 4, 5, END]


# -- questions


def test_what_a_target_says_of_itself_is_its_spec() -> None:
    said: list[Any] = []
    settings = {"type": "object", "properties": {"path": {"type": "string"}}}
    about = {"capabilities": ["about", "activate-version"], "settings": settings}
    spec = SingerTarget().spec(stub(about=about), RunTimeouts(stop=1), said.append)
    assert spec.config_schema["properties"] == settings["properties"]
    assert spec.abilities["capabilities"] == ["about", "activate-version"]
    silent = SingerTarget().spec(stub(), RunTimeouts(stop=1), said.append)
    assert silent.config_schema["type"] == "object"
    assert [type(e) for e in said] == [LogEvent]


def test_check_is_a_run_without_input() -> None:
    target, sink = SingerTarget(), lambda event: None
    fine = target.check(stub(), {}, RunTimeouts(stop=1), sink)
    assert fine.succeeded
    bad = target.check(stub(), {"bad": True}, RunTimeouts(stop=1), sink)
    assert not bad.succeeded
    assert "config is bad" in (bad.message or "")
    hangs = ProcessRuntime([sys.executable, "-c", "import time; time.sleep(60)"])
    began = time.monotonic()
    slow = target.check(hangs, {}, RunTimeouts(start=1, stop=1), sink)
    assert not slow.succeeded
    assert time.monotonic() - began < 20


def test_what_a_target_cannot_take_is_a_problem() -> None:
    target = SingerTarget()
    spec = target.spec(stub(), RunTimeouts(stop=1), lambda event: None)
    same = stream("a-b"), stream("b", namespace="a")
    nested = stream("nested", primary_key=(("id", "x"),))
    keyless = stream("keyless", primary_key=())
    strange = stream("strange", primary_key=(("nowhere",),))
    fine = stream("fine", primary_key=(("id", "x"),), mode=DestinationSyncMode.append)
    found = target.problems(spec, [*same, nested, keyless, strange, fine])
    words = ["'a-b'", "id.x", "primary key", "nowhere"]
    assert len(found) == len(words)
    for word, problem in zip(words, found, strict=True):
        assert word in problem


SPEC = ConnectorSpec(protocol="singer", config_schema={})


def test_fidelity_notes_say_what_narrows_and_what_is_lost() -> None:
    of = schema(price=DataType(Kind.decimal, precision=38, scale=9), blob=Kind.binary)
    one: Write = stream("users", of, mode=DestinationSyncMode.overwrite)
    notes = "\n".join(SingerTarget().fidelity(SPEC, "airbyte", [one], {}))
    for word in ("at least once", "null", "singer.decimal", "base64", "ACTIVATE_VERSION", "states"):
        assert word in notes
    assert SHARED.stream is None


def test_fidelity_notes_come_where_they_hold_only() -> None:
    def notes(source: str, of: RowSchema, **more: Any) -> str:
        written = [stream("users", of, **more)]
        return "\n".join(SingerTarget().fidelity(SPEC, source, written, {}))

    texts, typed = schema(id=Kind.string), schema(id=Kind.integer, at=Kind.timestamp)
    for source, of, told in (("singer", texts, False), ("singer", typed, True), ("x", texts, True)):
        assert ("no list of changes" in notes(source, of)) is told
    assert "in UTC" in notes("singer", typed) and "in UTC" not in notes("singer", texts)
    marked = schema(id=Kind.integer, _ab_cdc_deleted_at=Kind.string)
    assert "_sdc_deleted_at" in notes("x", marked)
    assert "_sdc_deleted_at" not in notes("x", marked, mode=DestinationSyncMode.append)
    assert "_sdc_deleted_at" not in notes("x", texts)


def test_deletions_of_an_airbyte_source_reach_the_target_under_its_name(tmp_path: Path) -> None:
    """As targets of the Singer SDK take them."""
    at = "2024-02-29T12:00:00Z"
    of = schema(id=Kind.integer, _ab_cdc_deleted_at=Kind.string)
    for mode in (DestinationSyncMode.append_dedup, DestinationSyncMode.append):
        sink = tmp_path / mode.value
        one = stream("users", of, mode=mode)
        fed = rows(one, {"id": 1, "_ab_cdc_deleted_at": at}, {"id": 2})
        write(stub(save=str(sink)), [one], [fed])
        told, first, second = lines(sink)[:3]
        both = {"_ab_cdc_deleted_at": at, "_sdc_deleted_at": at}
        if mode is DestinationSyncMode.append:
            del both["_sdc_deleted_at"]
        assert told["schema"]["properties"].keys() == {"id", *both}
        assert first["record"] == {"id": 1, **both}
        assert second["record"] == {"id": 2, **dict.fromkeys(both)}
