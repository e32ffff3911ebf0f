"""One opaque blob with bookmarks by convention: export, parse, merge, reset, describe (L1)."""

import json
from decimal import Decimal
from typing import Any

import pytest

from penstock.errors import StateError
from penstock.model.catalog import StreamId
from penstock.model.state import StateType, StoredState
from penstock.protocols.singer.package import PACKAGE
from penstock.protocols.singer.state import SCOPE, state_file

STATE = PACKAGE.state
A, B = StreamId(None, "db-a"), StreamId(None, "b")
BLOB = (
    '{ "bookmarks":{"db-a":{"v":1.2345678901234567890},"b":{"v":2}},'
    '"currently_syncing":"db-a","activate_versions":{"db-a":3},"x":1}'
)


def saved(blob: str) -> StoredState:
    return StoredState(SCOPE, blob)


def value(states: list[StoredState]) -> Any:
    (one,) = states
    return json.loads(one.blob)


def test_one_legacy_state_the_last_wins():
    assert SCOPE.type is StateType.legacy
    one, two = saved('{"a": 1}'), saved('{"b": 2}')
    assert STATE.merge([one], [two]) == [two]
    assert STATE.merge([one], []) == [one]
    assert STATE.merge([one], [saved("null")]) == []


def test_the_tap_is_given_the_value_as_it_sent_it_L1():
    assert state_file([saved(BLOB)]) == BLOB.encode()
    assert state_file([]) is None
    assert STATE.export([saved('{"a": 1}')]) == {"a": 1}
    assert STATE.export([]) is None


@pytest.mark.parametrize(
    "raw",
    [
        {"bookmarks": {}},
        [{"bookmarks": {}}],
        {"type": "STATE", "value": {"bookmarks": {}}},
        {"type": "state", "value": {"bookmarks": {}}},
        {"singer_state": {"bookmarks": {}}},
        {"completed": {"singer_state": {"bookmarks": {}}}, "partial": {}},
    ],
)
def test_every_form_a_user_may_bring(raw: Any):
    assert value(STATE.parse(raw)) == {"bookmarks": {}}


def test_nothing_and_too_much():
    assert [STATE.parse(r) for r in (None, {}, [], [None])] == [[], [], [], []]
    with pytest.raises(StateError) as caught:
        STATE.parse([{}, {}])
    assert caught.value.code == "state.mixed"


def test_reset_takes_a_streams_bookmark_and_leaves_every_digit_of_the_others():
    (left,) = STATE.reset([saved(BLOB)], B)
    assert "1.2345678901234567890" in left.blob
    assert value([left])["currently_syncing"] == "db-a"
    gone = value(STATE.reset([saved(BLOB)], A))
    assert gone == {
        "bookmarks": {"b": {"v": 2}},
        "currently_syncing": None,
        "activate_versions": {},
        "x": 1,
    }
    other, known = StreamId(None, "other"), STATE.called({A: (), B: ()})
    whole = saved('{"bookmarks": {"db-a": {"v": 1}, "b": 2}, "currently_syncing": "b"}')
    assert known.reset([whole], other) == [whole]
    for role, blob in ((STATE, whole), (known, saved(BLOB))):  # whose is b, whose is x?
        with pytest.raises(StateError):
            role.reset([blob], other)


def test_reset_is_refused_where_streams_cannot_be_told_apart():
    for blob in ('{"users": 2}', "7", '{"bookmarks": [1]}'):
        with pytest.raises(StateError) as caught:
            STATE.reset([saved(blob)], A)
        assert caught.value.code == "state.legacy"
        assert not STATE.splits([saved(blob)], [A])
        assert STATE.without([saved(blob)], [A]) == []
        assert STATE.without([saved(blob)], []) == [saved(blob)]


def test_l6_a_state_splits_by_bookmarks_whose_stream_is_known_for_certain():
    role = STATE.called({A: ("a", "db_a"), B: ("db_a", "Boxes")})

    def left(text: str, *gone: StreamId) -> Any:
        states = [saved(text)]
        assert role.splits(states, gone) is bool(role.without(states, gone))
        return value(role.without(states, gone)) if role.splits(states, gone) else None

    assert left('{"bookmarks": {"a": 1, "b": 2}}', A) == {"bookmarks": {"b": 2}}
    assert left('{"bookmarks": {"BOXES": 1, "b": 2}}', B) == {"bookmarks": {}}
    assert left('{"bookmarks": {"boxes": 1}, "currently_syncing": "boxes"}', B) == {
        "bookmarks": {},
        "currently_syncing": None,
    }
    both = '{"bookmarks": {"db_a": 1}}'
    assert left(both, A) is None and left(both, A, B) == {"bookmarks": {}}
    # Nothing is known to be its own, and something is nobody's
    for text in (
        '{"bookmarks": {"old_a": 1}}',
        '{"bookmarks": {"b": 1}, "lsn": 5}',
        '{"bookmarks": {"a": {}}, "a_since": 5}',
        '{"bookmarks": {"org/repo": {"a": {"since": 1}}}}',
        '{"bookmarks": {}, "a": 1}',
    ):
        assert left(text, A) is None, text
    for text in (
        '{"bookmarks": {"a": 1}, "lsn": 5}',
        '{"bookmarks": {"b": 1}, "currently_syncing": "x", "currently_syncing_repo": "y"}',
        '{"bookmarks": {"a": {}, "old": null}, "activate_versions": {"b": 7}}',
        "{}",
    ):
        assert left(text, A) is not None, text


def test_streams_that_start_anew_lose_their_bookmarks():
    assert value(STATE.without([saved(BLOB)], [A]))["bookmarks"] == {"b": {"v": 2}}
    marks = '"bookmarks": {"db-a": 1, "b": 2}'
    assert value(STATE.without([saved(f"{{{marks}}}")], [A, B])) == {"bookmarks": {}}
    assert STATE.without([saved(BLOB)], [A, B]) == []  # what is shared speaks for nobody then


def test_describe_shows_bookmarks_and_what_is_shared():
    assert STATE.describe([saved(BLOB)]) == {
        "type": "LEGACY",
        "streams": [
            {"namespace": None, "name": "db-a", "state": {"v": Decimal("1.2345678901234567890")}},
            {"namespace": None, "name": "b", "state": {"v": 2}},
        ],
        "shared": {"currently_syncing": "db-a", "activate_versions": {"db-a": 3}, "x": 1},
    }
    assert STATE.describe([saved('{"users": 2}')])["shared"] == {"users": 2}
    assert STATE.describe([]) == {"type": None, "streams": [], "shared": None}


def test_a_pointer_to_a_stream_that_is_not_read_is_not_given():
    """Taps pass over every stream until they meet it
    (https://github.com/singer-io/tap-mambu/pull/116)."""
    role = STATE.called({A: (), B: ()})
    at_b = saved('{"bookmarks":{"db-a":1.10,"b":2},"currently_syncing":"b"}')
    assert role.within([at_b], [A, B]) == [at_b]
    (given,) = role.within([at_b], [A])
    assert given.blob == '{"bookmarks":{"db-a":1.10,"b":2},"currently_syncing":null}'
    other = saved('{"bookmarks":{},"currently_syncing":"a table of the tap"}')
    assert role.within([other, saved('["currently_syncing"]')], [A]) == [
        other,
        saved('["currently_syncing"]'),
    ]
