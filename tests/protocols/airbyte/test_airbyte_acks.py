"""Which echo is an ack (L1), without a process: ``protocols.airbyte.state_echoes`` and
``replies``."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.catalog import StreamId
from penstock.model.events import Error, SkippedItems
from penstock.protocols.airbyte.destination_output import DestinationOutput
from penstock.protocols.airbyte.state_echoes import PendingStates
from penstock.protocols.writing import Ack, DestinationCounts

A, B = StreamId(None, "a"), StreamId("ns", "b")
TARGETS = {StreamId(None, "to_a"): A, StreamId("to", "b"): B}
NAMES = {source: target for target, source in TARGETS.items()}


def state(of: StreamId, cursor: Any, number: int | None = None) -> dict[str, Any]:
    target = NAMES[of]
    named = {"name": target.name, **({"namespace": target.namespace} if target.namespace else {})}
    body = {"stream_descriptor": named, "stream_state": cursor}
    made: dict[str, Any] = {"type": "STREAM", "stream": body, "sourceStats": {"recordCount": 1.0}}
    return made if number is None else {**made, "id": number}


def sent(
    *cursors: tuple[StreamId, Any], strict: bool = False
) -> tuple[PendingStates, DestinationOutput]:
    marks = PendingStates(TARGETS, strict=strict)
    for number, (of, cursor) in enumerate(cursors, 1):
        marks.sent(number, of.key, state(of, cursor, number), {of: 1})
    return marks, DestinationOutput(marks)


def hear(replies: DestinationOutput, *messages: Any, whole: bool = True) -> list[Any]:
    given = [{"type": "STATE", "state": m} if whole else m for m in messages]
    block = b"".join(json.dumps(m).encode() + b"\n" for m in given)
    return [*replies.take(block), *replies.finish()]


def acks(answers: list[Any]) -> list[int]:
    return [a.seq for a in answers if isinstance(a, Ack)]


def test_equal_states_in_a_row_are_told_apart_by_their_order() -> None:
    """Two states of one content are two states."""
    _, replies = sent((A, 1), (A, 1), (A, 1))
    assert acks(hear(replies, state(A, 1))) == [1]
    assert acks(hear(replies, state(A, 1), state(A, 1))) == [2, 3]


def test_numbers_nulls_and_order_of_keys_do_not_matter() -> None:
    _, replies = sent((A, {"x": 1.0, "y": [1, 2.50], "z": None}))
    assert acks(hear(replies, state(A, {"y": [1.0, 2.5], "x": 1}))) == [1]


def test_an_id_as_a_float_is_the_id() -> None:
    _, replies = sent((A, 1), (A, 2))
    assert acks(hear(replies, {**state(A, "lost"), "id": 1.0})) == [1]


def test_an_id_of_another_scope_or_of_nobody_is_no_ack() -> None:
    for number in (2, 77):
        _, replies = sent((A, 1), (B, 2))
        answers = hear(replies, state(A, 1, number))
        assert acks(answers) == []
        assert [e.code for e in answers if isinstance(e, Error)] == ["destination.state_unknown"]


def test_a_skip_is_acked_with_what_came_after_it() -> None:
    """Specification, Destination: an echo covers all records before its state."""
    _, replies = sent((A, 1), (A, 2), (A, 3))
    assert acks(hear(replies, state(A, 2, 2))) == [2] and not replies.failed
    late = hear(replies, state(A, 1, 1), state(A, 1))
    assert (
        acks(late) == []
        and [e.what for e in late if isinstance(e, SkippedItems)] == ["repeated_state"] * 2
    )
    assert acks(hear(replies, state(A, 3))) == [3]


def test_l1_an_echo_that_comes_twice_is_not_taken_for_a_later_state_that_equals_it() -> None:
    """States may return to what they were: 1, 2, 1."""
    _, replies = sent((A, 1), (A, 2), (A, 1))
    assert acks(hear(replies, state(A, 1))) == [1]
    assert acks(hear(replies, state(A, 1))) == [], "2 would be acked with it"
    assert acks(hear(replies, state(A, 2), state(A, 1))) == [2, 3]


def test_equal_states_with_no_rows_between_them_are_one() -> None:
    marks = PendingStates(TARGETS, strict=False)
    for number, rows in enumerate((4, 0, 0, 5), 1):
        message = {**state(A, 1, number), "sourceStats": {"recordCount": float(rows)}}
        marks.sent(number, A.key, message, {A: rows})
    assert acks(hear(DestinationOutput(marks), {**state(A, 1), "sourceStats": None})) == [3]


def test_the_order_of_streams_and_empty_namespaces_do_not_matter_in_a_global_state() -> None:
    def entry(name: str, **more: Any) -> dict[str, Any]:
        return {"stream_descriptor": {"name": name, **more}, "stream_state": {"c": name}}

    marks = PendingStates(TARGETS, strict=False)
    for number in (1, 2):
        body = {"shared_state": {"n": number}, "stream_states": [entry("x"), entry("y")]}
        marks.sent(number, "*", {"type": "GLOBAL", "global": body, "id": number}, {A: 1})
    back = {"shared_state": {"n": 2}, "stream_states": [entry("y", namespace=""), entry("x")]}
    assert acks(hear(DestinationOutput(marks), {"type": "GLOBAL", "global": back})) == [2]


def test_a_thousand_faults_are_one_error_and_counted() -> None:
    _, replies = sent((A, 1))
    answers = hear(replies, *[state(A, 1, 100 + i) for i in range(1000)])
    assert sum(isinstance(a, Error) for a in answers) == 1
    counted = [a for a in answers if isinstance(a, SkippedItems) and a.what == "unknown_state"]
    assert sum(a.count for a in counted) == 1000


def test_a_bare_state_without_a_type_is_taken() -> None:
    _, replies = sent((B, {"c": 1}))
    bare = {k: v for k, v in state(B, {"c": 1}).items() if k == "stream"}
    assert acks(hear(replies, {**bare, "type": None}, whole=False)) == [1]


def test_a_bare_state_without_a_type_is_legacy_if_it_is_one_of_ours() -> None:
    """A missing type means LEGACY."""
    marks = PendingStates(TARGETS, strict=False)
    for number in (1, 2):
        legacy = {"type": "LEGACY", "data": {"c": number}, "sourceStats": {}, "id": number}
        marks.sent(number, "*", legacy, {A: 1})
    replies = DestinationOutput(marks)
    ours: dict[str, Any] = {"data": {"c": 1}, "sourceStats": {"recordCount": 0.0}, "id": 1}
    assert acks(hear(replies, ours, whole=False)) == [1]
    assert acks(hear(replies, {"data": {"c": 2.0}}, whole=False)) == [2]
    marks.sent(3, "*", {"type": "LEGACY", "data": {"c": 3}}, {A: 1})
    for noise in ({"data": {"user": 5}}, {"data": {}, "id": "x", "sourceStats": {}}):
        answers = hear(replies, noise, whole=False)
        assert acks(answers) == [] and not [a for a in answers if isinstance(a, Error)]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"STREAM"}',
        b'{"type":"STATE","state":null}',
        b'{"type":"STATE","state":[]}',
        b'{"type":"STATE","state":{"type":"STREAM","stream":{}}}',
        b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{}}}}',
        b'{"stream":{"stream_descriptor":5}}',
        b'{"type":"STATE","state":{}}',
        b'{"data":{"a":1}}',
        b'{"stream":"a"}',
        b"[]",
        b"\xff\xfe",
        b'{"type":"STATE","state":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
    ],
)
def test_no_odd_line_is_an_ack_or_a_crash(line: bytes) -> None:
    _, replies = sent((A, 1))
    assert acks([*replies.take(line + b"\n"), *replies.finish()]) == []


def test_global_with_another_name_and_nothing_else_told() -> None:
    marks = PendingStates(TARGETS, strict=False)
    body = {"shared_state": {"lsn": 5}, "stream_states": []}
    marks.sent(1, "*", {"type": "GLOBAL", "global": body, "id": 1}, {A: 1})
    marks.sent(2, "*", {"type": "GLOBAL", "global": body, "id": 2}, {A: 1})
    replies = DestinationOutput(marks)
    assert acks(hear(replies, {"global_": body}, whole=False)) == [1]
    assert acks(hear(replies, {"type": "GLOBAL", "global_": {"shared_state": 0}}, whole=False)) == [
        2
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 2)), max_size=8),
    st.booleans(),
    st.data(),
)
def test_l1_whatever_comes_back_an_ack_never_passes_the_newest_that_did(
    given_: list[tuple[StreamId, int]], named: bool, data: st.DataObject
) -> None:
    """Echoes by id in any order, or by content in the order that the protocol demands, some of them
    missing: nothing is acked in a scope beyond the newest state that came back."""
    _, replies = sent(*given_)
    order = data.draw(st.permutations(range(1, len(given_) + 1)))
    kept = order[: data.draw(st.integers(0, len(order)))]
    kept = kept if named else sorted(kept)
    heard: dict[StreamId, int] = {}
    for number in kept:
        of, cursor = given_[number - 1]
        heard[of] = max(number, heard.get(of, 0))
        for acked in acks(hear(replies, state(of, cursor, number if named else None))):
            assert given_[acked - 1][0] == of and acked <= heard[of]
            assert acked == number or not named


def test_l8_what_the_destination_counted_comes_before_the_ack_of_all_that_it_covers() -> None:
    """Protocol 0.18, AirbyteStateStats: since the last state that it gave back."""
    _, replies = sent((A, 1), (A, 2), (B, 3), (A, 4))
    stats = {"recordCount": 1.0, "rejectedRecordCount": 1.0}
    answers = hear(replies, {**state(A, 2, 2), "destinationStats": stats})
    assert answers == [DestinationCounts({A: 2}, 1, 1), Ack(2)]
    again = hear(replies, {**state(A, 2, 2), "destinationStats": stats})
    assert not [a for a in again if isinstance(a, DestinationCounts)], "they count once"
    for odd in (
        None,
        5,
        {},
        {"recordCount": None},
        {"recordCount": "x", "rejectedRecordCount": []},
    ):
        _, replies = sent((A, 1))
        assert hear(replies, {**state(A, 1, 1), "destinationStats": odd}) == [Ack(1)]
    _, replies = sent((A, 1))
    few = {**state(A, 1, 1), "destinationStats": {"rejectedRecordCount": -3}}
    assert hear(replies, few) == [DestinationCounts({A: 1}, None, 0), Ack(1)]


def test_states_of_the_empty_namespace_and_of_none_have_echoes_of_their_own() -> None:
    """Protocol, StreamDescriptor: either is a namespace. An echo in the other spelling counts where
    only one of the two was sent."""
    none, empty = StreamId(None, "a"), StreamId("", "a")

    def echo(number: int, **namespace: Any) -> dict[str, Any]:
        body = {"stream_descriptor": {"name": "a", **namespace}, "stream_state": number}
        return {"type": "STREAM", "stream": body}

    for targets in ({none: none, empty: empty}, {none: none}):
        marks = PendingStates(targets, strict=False)
        for number, of in enumerate(targets, 1):
            marks.sent(number, of.key, echo(number), {})
        replies = DestinationOutput(marks)
        assert acks(hear(replies, echo(len(targets), namespace=""))) == [len(targets)]
