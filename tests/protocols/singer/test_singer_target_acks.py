"""L1: which state an echo stands for, whatever kind of target prints it."""

from typing import Any

import msgspec
import pytest

from penstock.codec.exact_json import exact
from penstock.model.catalog import StreamId
from penstock.model.state import StateScope, StateType, StoredState
from penstock.protocols.singer.state_echoes import CLOSING, SentStates, marks_for
from penstock.protocols.writing import StateMark

USERS, ORDERS = StreamId(None, "users"), StreamId("shop", "orders")
SHARED = StateScope(StateType.legacy)
A = {"bookmarks": {"users": {"at": 1}}}
B = {"bookmarks": {"users": {"at": 2}}}
AB = {"bookmarks": {"users": {"at": 2}, "orders": {"lsn": 7}}}


def text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def tap(*steps: Any, strict: bool = False) -> SentStates:
    """Each value is a state that comes after rows, unless None stands before it."""
    marks = marks_for("singer", lambda s: s.name, strict=strict)
    seq, rows = 0, True
    for step in steps:
        if step is None:
            rows = False
            continue
        if rows:
            marks.fed(USERS)
        seq, rows = seq + 1, True
        assert (
            msgspec.json.decode(marks.mark(StateMark(seq, StoredState(SHARED, text(step))))) == step
        )
    return marks


def test_an_equal_value_acks_its_mark_and_those_before() -> None:
    marks = tap(A, B, AB)
    assert marks.echo(B) == [2]
    assert marks.echo(A) is None
    assert not marks.complete()
    assert marks.echo(AB) == [3]
    assert marks.complete()


def blobs(*given: str, strict: bool = False) -> SentStates:
    """Each is a state that comes after rows, unless there is a ``=`` before it."""
    marks = marks_for("singer", lambda s: s.name, strict=strict)
    for seq, blob in enumerate(given, 1):
        if not blob.startswith("="):
            marks.fed(USERS)
        blob = blob.removeprefix("=")
        assert marks.mark(StateMark(seq, StoredState(SHARED, blob))) == blob
    return marks


def test_numbers_and_order_of_keys_do_not_matter_and_under_strict_every_digit_does() -> None:
    marks = tap({"x": 1, "y": {"b": 1.10, "a": 2}})
    assert marks.echo(exact('{"y":{"a":2.0,"b":1.1},"x":1}')) == [1]
    blob = '{"lsn": 12345678901234567890.123456789}'
    marks = blobs(blob, strict=True)
    assert marks.echo(exact('{"lsn":12345678901234567000}')) is None
    assert marks.echo(exact(blob)) == [1]


DEEP = '{"bookmarks": {"users": {"at": [%s]}}, "currently_syncing": null}'
ROUNDED = [  # a number, and what programs print that keep it as a double
    ("0.10000000000000000555", ["0.1", "1e-1", "0.10000000000000001", "0.10000000000000000555"]),
    ("0.1", ["0.1", "0.1000000000000000055511151231257827"]),
    ("1700000000.12345678901234567", ["1700000000.1234567", "1700000000.12345671654"]),
    ("12345678901234567890.5",
     ["1.2345678901234567e19", "12345678901234567000", "12345678901234567168"]),
    ("9007199254740993", ["9007199254740992", "9007199254740992.0", "9.007199254740992E15"]),
    ("-1700000000000000001", ["-1.7e18", "-1700000000000000000"]),
]  # fmt: skip


@pytest.mark.parametrize(("number", "printed"), ROUNDED)
@pytest.mark.parametrize("form", [DEEP, '{"at": %s}'])
def test_l1_an_echo_of_a_target_that_rounds_is_that_of_the_one_state_that_it_can_be(
    number: str, printed: list[str], form: str
) -> None:
    """It never acked: each run ended with 5 and sent the rows again."""
    for echo in printed:
        marks = blobs(form % 7, form % number)
        assert marks.closing() is None
        assert marks.echo(exact(form % echo)) == [2], echo
        assert marks.complete()
        assert marks.echo(exact(form % echo)) == []
        other = blobs(form % number)
        assert other.echo(exact(form % "0.25")) is None
        assert other.echo(exact(form % f'"{echo}"')) is None, "a text is no number"


def test_l1_states_that_are_one_to_doubles_are_acked_by_the_first_and_at_the_end() -> None:
    """Rows lie between them: the echo of the first equals the second to the last digit."""
    first, second = '{"at": 0.10000000000000000555}', '{"at": 0.1}'
    marks = blobs(first, second)
    assert marks.echo(exact(second)) == [1]
    assert marks.echo(exact(second)) == []
    assert not marks.complete()
    closing = msgspec.json.decode(marks.closing() or "")
    assert marks.echo(closing) == [2]
    assert marks.complete()
    assert blobs(first, "=" + second).echo(exact(second)) == [2], "no rows lie between them"


def test_an_echo_with_digits_that_no_double_has_is_exact() -> None:
    numbers = [f'{{"at": 170000000000000000{n}}}' for n in range(1, 9)]
    marks = blobs(*numbers)
    assert marks.echo(exact(numbers[3])) == [4]
    assert marks.echo(exact(numbers[6])) == [7]
    assert marks.closing() is not None, "the last may come back as any of them"


def test_l1_repeated_bookmarks_that_were_rounded_ack_what_they_certainly_repeat() -> None:
    one, two, three = (
        f'{{"bookmarks": {{"users": {{"at": {at}}}}}, "x": {x}}}'
        for x, at in enumerate(("0.30000000000000000001", "0.30000000000000000002", "0.4"))
    )
    merged = '{"bookmarks": {"users": {"at": %s}, "y": 1}}'
    marks = blobs(one, two, three)
    assert marks.echo(exact(merged % "0.3")) == [1]
    assert marks.echo(exact(merged % "0.3")) == []
    assert marks.echo(exact(merged % "0.4")) == [3]
    exactly = blobs(one, two, three)
    assert exactly.echo(exact(merged % "0.30000000000000000002")) == [2]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400])
def test_a_number_beyond_doubles_is_matched_as_any(number: str) -> None:
    value = f'{{"at": {number}}}'
    marks = blobs(value)
    assert marks.echo(exact('{"at": 1}')) is None
    assert marks.echo(exact(value)) == [1]


def test_bookmarks_that_are_all_repeated_ack_the_newest() -> None:
    """PipelineWise targets put a value together from the streams that they have flushed."""
    marks = tap({**A, "currently_syncing": "users"}, AB, {"bookmarks": {**AB["bookmarks"], "x": 1}})
    merged = {"bookmarks": {**AB["bookmarks"], "y": 2}, "currently_syncing": None}
    assert marks.echo({"bookmarks": {"users": {"at": 2}}}) is None
    assert marks.echo(merged) == [2]


def test_an_equal_value_counts_more_than_repeated_bookmarks() -> None:
    """Between the two lie rows of a stream that has no bookmark yet."""
    first, second = {**A, "currently_syncing": "users"}, {**A, "currently_syncing": "orders"}
    marks = tap(first, second)
    assert marks.echo(first) == [1]
    assert marks.echo(second) == [2]


def test_a_value_sent_twice_with_rows_in_between_is_the_first_ones() -> None:
    marks = tap(A, A, None, A)
    assert marks.echo(A) == [1]
    assert marks.echo(A) == []
    assert not marks.complete()
    marks = tap(A, None, A, None, A)
    assert marks.echo(A) == [3]
    bookmarks = tap({**A, "n": 1}, {**A, "n": 2})
    assert bookmarks.echo({**A, "n": 3}) == [1]
    assert bookmarks.echo({**A, "n": 3}) == []


@pytest.mark.parametrize("empty", [{}, None, {"bookmarks": {}}])
def test_an_empty_value_acks_nothing(empty: Any) -> None:
    marks = tap(empty if empty is not None else {}, B)
    assert marks.echo(empty) is None
    assert marks.echo(B) == [2]


@pytest.mark.parametrize("odd", [[], [A], "bookmarks", 1, True, {"bookmarks": []}, {"type": "X"}])
def test_what_was_never_sent_acks_nothing(odd: Any) -> None:
    marks = tap(A, B)
    assert marks.echo(odd) is None


def test_strict_takes_equal_values_only() -> None:
    marks = tap(A, strict=True)
    assert marks.echo({**A, "more": 1}) is None
    assert marks.echo(A) == [1]


def test_rows_after_the_last_state_are_closed_by_one_more() -> None:
    """The closing value says no more than the last one; whoever gives it back acks both."""
    marks = tap(A)
    assert marks.closing() is None
    marks.fed(USERS)
    assert not marks.complete()
    closing = msgspec.json.decode(marks.closing() or "")
    token = closing.pop(CLOSING)
    assert closing == A
    assert marks.echo(A) == [1]
    assert not marks.complete(), "its echo may stand for the one before the rows"
    assert marks.echo({**A, CLOSING: "another"}) == []
    assert not marks.complete()
    assert marks.echo({**A, CLOSING: token}) == []
    assert marks.complete()


def test_a_state_that_no_echo_could_name_is_closed_too() -> None:
    for steps in ((A, A), ({},), (A, B, A)):
        marks = tap(*steps)
        closing = msgspec.json.decode(marks.closing() or "")
        assert marks.echo(closing) == [len(steps)]
        assert marks.complete()
    stateless = marks_for("singer", lambda s: s.name)
    assert stateless.closing() is None
    stateless.fed(USERS)
    assert stateless.echo(msgspec.json.decode(stateless.closing() or "")) == []
    assert stateless.complete()


# -- from another protocol

STREAM_USERS, STREAM_ORDERS = (StateScope(StateType.stream, s) for s in (USERS, ORDERS))
ALL = StateScope(StateType.global_)


def name(stream: StreamId) -> str:
    return stream.name if stream.namespace is None else f"{stream.namespace}-{stream.name}"


def sent(marks: SentStates, seq: int, scope: StateScope) -> dict[str, Any]:
    return msgspec.json.decode(marks.mark(StateMark(seq, StoredState(scope, '{"secret": 1}'))))


def test_every_stream_has_a_number_that_grows() -> None:
    marks = marks_for("airbyte", name)
    marks.fed(USERS)
    first = sent(marks, 1, STREAM_USERS)
    marks.fed(ORDERS)
    second = sent(marks, 2, STREAM_ORDERS)
    marks.fed(USERS)
    third = sent(marks, 3, STREAM_USERS)
    seqs = [{k: v["seq"] for k, v in x["bookmarks"].items()} for x in (first, second, third)]
    assert seqs == [{"users": 1}, {"users": 1, "shop-orders": 2}, {"users": 3, "shop-orders": 2}]
    only_users = {"bookmarks": {"users": third["bookmarks"]["users"]}}
    assert marks.echo(only_users) == [3], "a target that merges acks each stream by itself"
    assert not marks.complete()
    assert marks.echo(second) == [2]
    assert marks.complete()


def test_a_number_that_comes_back_as_a_double_is_ours() -> None:
    marks = marks_for("airbyte", name)
    marks.fed(USERS)
    value = exact(marks.mark(StateMark(1, StoredState(STREAM_USERS, "{}"))))
    value["bookmarks"]["users"]["seq"] = exact("1.0")
    assert marks.echo(value) == [1]
    value["bookmarks"]["users"]["seq"] = exact("1.5")
    assert marks.echo(value) is None


def test_the_last_value_acks_every_stream() -> None:
    marks = marks_for("airbyte", name)
    for seq, (stream, scope) in enumerate([(USERS, STREAM_USERS), (ORDERS, STREAM_ORDERS)] * 2, 1):
        marks.fed(stream)
        last = sent(marks, seq, scope)
    assert marks.echo(last) == [3, 4]
    assert marks.complete()


def test_a_shared_state_needs_every_stream_that_had_rows() -> None:
    marks = marks_for("airbyte", name)
    marks.fed(USERS)
    marks.fed(ORDERS)
    first = sent(marks, 1, ALL)
    marks.fed(USERS)
    second = sent(marks, 2, ALL)
    half = {"bookmarks": {"users": second["bookmarks"]["users"]}}
    assert marks.echo(half) == []
    assert marks.echo(first) == [1]
    whole = {"bookmarks": {**first["bookmarks"], **half["bookmarks"]}}
    assert marks.echo(whole) == [2]


def test_a_shared_state_before_any_row_has_a_bookmark_of_its_own() -> None:
    marks = marks_for("airbyte", name)
    value = sent(marks, 1, ALL)
    assert value["bookmarks"]
    assert marks.echo({}) is None
    assert marks.echo(value) == [1]


def test_the_echo_of_an_earlier_push_acks_nothing() -> None:
    """Some targets keep the last state and print it when they start."""
    before, now = marks_for("airbyte", name), marks_for("airbyte", name)
    for marks in (before, now):
        marks.fed(USERS)
    old, _ = sent(before, 1, STREAM_USERS), sent(now, 1, STREAM_USERS)
    assert now.echo(old) is None
    assert now.echo({"bookmarks": {"users": {"seq": 1}}}) is None


def test_rows_that_no_state_covers_are_closed_by_one_more() -> None:
    marks = marks_for("airbyte", name)
    marks.fed(USERS)
    first = sent(marks, 1, STREAM_USERS)
    marks.fed(ORDERS)
    assert first != (closing := msgspec.json.decode(marks.closing() or ""))
    assert marks.echo(first) == [1]
    assert not marks.complete()
    assert marks.echo(closing) == []
    assert marks.complete()
    only_rows = marks_for("airbyte", name)
    only_rows.fed(USERS)
    assert only_rows.echo(msgspec.json.decode(only_rows.closing() or "")) == []
    assert only_rows.complete()
