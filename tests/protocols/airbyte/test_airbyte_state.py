"""What Airbyte's states mean (protocol, State & Checkpointing; AirbyteStateMessage V1 and V2)."""

import json
from typing import Any

import pytest

from penstock.errors import StateError
from penstock.model.catalog import StreamId
from penstock.model.state import StateScope, StateType, StoredState
from penstock.protocols.airbyte.package import PACKAGE
from penstock.protocols.airbyte.state import scope_of, state_file

ROLE = PACKAGE.state
A, B = StreamId(None, "a"), StreamId("n", "b")


def saved(message: dict[str, Any]) -> StoredState:
    blob = json.dumps(message)
    return StoredState(scope_of(blob), blob)


def stream(name: str, state: Any, namespace: str | None = None, **more: Any) -> StoredState:
    descriptor = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    body = {"stream_descriptor": descriptor, "stream_state": state}
    return saved({"type": "STREAM", "stream": body, **more})


def shared(states: dict[str, Any], shared_state: Any = None, **more: Any) -> StoredState:
    entries = [{"stream_descriptor": {"name": n}, "stream_state": s} for n, s in states.items()]
    body = {"shared_state": shared_state, "stream_states": entries}
    return saved({"type": "GLOBAL", "global": body, **more})


LEGACY = saved({"data": {"cursor": 1}})


def test_stream_states_replace_per_namespace_and_name():
    new = stream("a", {"n": 2})
    other = stream("a", {"n": 9}, namespace="x")
    merged = ROLE.merge([stream("a", {"n": 1}), other], [new])
    assert merged == [new, other]


def test_a_namespace_of_none_and_the_empty_string_are_one_scope():
    new = stream("a", {"n": 2}, namespace="")
    (merged,) = ROLE.merge([stream("a", {"n": 1})], [new])
    assert merged == StoredState(StateScope(StateType.stream, StreamId(None, "a")), new.blob)


def test_streams_under_the_empty_namespace_and_under_none_have_states_of_their_own():
    """Protocol, StreamDescriptor. Where the source has both: STREAM states, entries of GLOBAL, and
    what a user brings; a state that was saved under none and is the other one's is dropped."""
    none, empty = StreamId(None, "a"), StreamId("", "a")
    role = ROLE.called({none: (), empty: ()}).reading([none, empty])
    spelled = [stream("a", {"n": 1}), stream("a", {"n": 2}, namespace="")]
    messages = [json.loads(s.blob) for s in spelled]
    two = role.parse(messages)
    assert [s.scope.stream for s in two] == [none, empty]
    assert role.without(two, [none]) == two[1:] and role.without(two, [empty]) == two[:1]
    assert (role.own(two, none), role.own(two, empty)) == ('{"n":1}', '{"n":2}')
    body = {"stream_states": [m["stream"] for m in messages]}
    one = role.parse({"type": "GLOBAL", "global": body})
    described = role.describe(one)["streams"]
    assert [(e["namespace"], e["state"]["n"]) for e in described] == [(None, 1), ("", 2)]
    left = role.describe(role.without(one, [empty]))["streams"]
    assert [(e["namespace"], e["state"]) for e in left] == [(None, {"n": 1}), ("", None)]
    again = role.describe(role.with_own(one, empty, '{"n":3}'))["streams"]
    assert again[1]["state"] == {"n": 3}
    old = StoredState(StateScope(StateType.stream, none), two[1].blob)
    assert role.merge([old], []) == role.without([old], []) == []
    assert role.export([old]) is None
    assert ROLE.merge([old], []) == [old]


@pytest.mark.parametrize("null", [None, "absent"])
def test_a_null_stream_state_resets_that_stream(null: Any):
    blob = {"type": "STREAM", "stream": {"stream_descriptor": {"name": "a"}}}
    new = stream("a", None) if null is None else saved(blob)
    keep = stream("b", {"n": 1})
    assert ROLE.merge([stream("a", {"n": 1}), keep], [new]) == [keep]


def test_global_and_legacy_states_replace_the_whole():
    old, new = shared({"a": 1, "b": 2}), shared({"a": 3})
    assert ROLE.merge([old], [new]) == [new]
    later = saved({"type": "LEGACY", "data": {"cursor": 2}})
    assert ROLE.merge([LEGACY], [later]) == [later]
    assert ROLE.merge([LEGACY], [saved({"type": "LEGACY", "data": None})]) == []


@pytest.mark.parametrize("new", [stream("a", {"n": 1}), shared({"a": 1})])
def test_legacy_may_become_anything(new: StoredState):
    assert ROLE.merge([LEGACY], [new]) == [new]


def test_a_state_of_another_type_replaces_what_it_speaks_for():
    one, two = stream("a", {"n": 1}), stream("b", {"n": 2})
    both = shared({"a": 3, "b": 3}, {"lsn": 3})
    assert ROLE.merge([one, two], [both]) == [both]
    assert ROLE.merge([both], [one, two]) == [one, two]
    assert ROLE.merge([one, two], [LEGACY]) == [LEGACY] == ROLE.merge([both], [LEGACY])
    assert ROLE.merge([one, two], [shared({}, {"lsn": 3})]) == [shared({}, {"lsn": 3})]


def test_a_state_of_another_type_leaves_the_positions_of_streams_that_it_does_not_name():
    one, two = stream("a", {"n": 1}), stream("b", {"n": 2})
    assert ROLE.merge([one, two], [shared({"a": 3})]) == [shared({"a": 3}), two]
    assert ROLE.merge([shared({"b": 3}), one], [stream("a", None)]) == [shared({"b": 3})]
    left = ROLE.merge([shared({"a": 3, "b": 3})], [one])
    assert ROLE.export(left) == ROLE.export([shared({"a": None, "b": 3}), one])
    left = ROLE.merge([shared({"a": 3, "b": 3})], [stream("a", None)])
    assert ROLE.export(left) == ROLE.export([shared({"a": None, "b": 3})])


@pytest.mark.parametrize("saved", [[LEGACY], [stream("a", {"n": 1})], [shared({"a": 1})]])
def test_a_null_legacy_state_resets_the_whole_state(saved: list[StoredState]):
    """Protocol, AirbyteStateMessage V2: "If the type is `LEGACY` and `data` is null, that means the
    state should be reset", and a message without a type is LEGACY."""
    for null in ('{"type":"LEGACY","data":null}', '{"data":null}', '{"state_type":"LEGACY"}'):
        assert ROLE.merge(saved, [StoredState(LEGACY.scope, null)]) == []
    nothing = StoredState(LEGACY.scope, '{"id":1}')
    assert ROLE.merge(saved, [nothing]) == [s for s in saved if s != LEGACY]


def test_states_of_streams_beside_a_global_one():
    new, old = shared({"a": 2}, {"lsn": 1}), stream("c", {"n": 1})
    later, own = shared({"a": 3}, {"lsn": 2}), stream("c", {"n": 2})
    assert ROLE.merge([old], [new]) == [new, old]
    assert ROLE.merge([new, old], [later]) == [later, old]
    assert ROLE.merge([new, old], [own]) == [new, own]
    assert state_file([old, new]) == f"[{new.blob},{old.blob}]".encode()
    assert [s.scope for s in ROLE.parse(ROLE.export([new, old]))] == [new.scope, old.scope]
    assert [s["name"] for s in ROLE.describe([new, old])["streams"]] == ["a", "c"]
    assert ROLE.without([new, old], [StreamId(None, "c")]) == [new]


def python_cdk(states: list[StoredState]) -> dict[str, Any]:
    """What airbyte_cdk 7's ConnectorStateManager reads of ``--state``, by stream: a GLOBAL state
    only where it is alone, and without a shared part; else the STREAM states."""
    given = ROLE.export(states)
    entries = [one["stream"] for one in given if one["type"] == "STREAM"]
    if len(given) == 1 and given[0]["type"] == "GLOBAL":
        entries = given[0]["global"]["stream_states"]
    return {e["stream_descriptor"]["name"]: e["stream_state"] for e in entries}


def test_sources_of_airbytes_python_cdk_find_the_states_beside_one_another():
    old = shared({"a": {"n": 1}, "b": {"n": 12345678901234567890}, "c": None})
    assert python_cdk([old]) == {"a": {"n": 1}, "b": {"n": 12345678901234567890}, "c": None}
    now = ROLE.merge([old], [stream("a", {"n": 2})])
    assert python_cdk(now) == {"a": {"n": 2}, "b": {"n": 12345678901234567890}}
    back = ROLE.merge([stream("a", {"n": 2}), stream("b", {"n": 3})], [shared({"a": {"n": 4}})])
    assert python_cdk(back) == {"a": {"n": 4}, "b": {"n": 3}}


def test_l1_the_source_gets_its_own_bytes_back():
    """L1: numbers, spaces, unknown fields and stats as they came."""
    blob = (
        '{ "type":"STREAM","stream":{"stream_descriptor":{"name":"a"},'
        '"stream_state":{"x":1.50, "n":123456789012345678901}},'
        '"sourceStats":{"recordCount":3.0},"new":null}'
    )
    text = state_file([StoredState(scope_of(blob), blob)])
    assert text == f"[{blob}]".encode()


def test_export_forms():
    one, two = stream("a", {"n": 1}), stream("b", {"n": 2}, namespace="n")
    assert ROLE.export([one, two]) == [json.loads(one.blob), json.loads(two.blob)]
    assert ROLE.export([LEGACY]) == {"cursor": 1}
    assert ROLE.export([]) is None
    assert ROLE.export([stream("a", None)]) is None
    assert ROLE.export([stream("a", None), two]) == [json.loads(two.blob)]


def test_per_stream_is_the_protocol_pages_other_word_for_stream():
    """Protocol, AirbyteStateType: "PER_STREAM means that the state should be read from stream"."""
    body = {"stream_descriptor": {"name": "a"}, "stream_state": {"n": 1}}
    sent = {"state_type": "PER_STREAM", "stream": body}
    state = saved(sent)
    assert state.scope == StateScope(StateType.stream, A)
    assert json.loads(state_file([state]) or b"") == [{**sent, "type": "STREAM"}]
    (parsed,) = ROLE.parse([sent])
    assert (parsed.scope, json.loads(parsed.blob)) == (state.scope, sent)
    with pytest.raises(ValueError, match="unknown type 'OTHER'"):
        saved({"state_type": "OTHER", "stream": body})


def test_state_type_of_the_specification_is_exported_with_type():
    body = {"stream_descriptor": {"name": "a"}, "stream_state": {"n": 1.10}}
    state = saved({"state_type": "STREAM", "stream": body})
    assert state.scope == StateScope(StateType.stream, A)
    assert ROLE.export([state])[0]["type"] == "STREAM"


def test_a_missing_type_is_legacy_unless_only_another_body_is_there():
    """Protocol: "if type is not set, it is assumed that the state message is LEGACY"."""
    assert scope_of('{"data":{}}').type is StateType.legacy
    assert scope_of("{}").type is StateType.legacy
    assert scope_of('{"stream":{"stream_descriptor":{"name":"a"}},"data":{}}').type == "LEGACY"
    bare = '{"stream":{"stream_descriptor":{"name":"a"}},"data":null,"global":null}'
    assert scope_of(bare) == StateScope(StateType.stream, A)
    assert scope_of(
        '{"type":"STREAM","stream":{"stream_descriptor":{"name":"a"}},"data":{}}'
    ).stream


@pytest.mark.parametrize(
    "blob", ["[]", "{", '{"type":"NEW"}', '{"type":"STREAM"}', '{"type":"GLOBAL"}']
)
def test_a_state_that_cannot_be_placed_is_refused(blob: str):
    with pytest.raises(ValueError):
        scope_of(blob)


STREAM_MESSAGE = {
    "type": "STREAM",
    "stream": {"stream_descriptor": {"name": "a"}, "stream_state": {"n": 1}},
}


@pytest.mark.parametrize(
    ("raw", "scopes"),
    [
        (None, []),
        ([], []),
        ({}, []),
        (STREAM_MESSAGE, ["STREAM"]),
        ([STREAM_MESSAGE], ["STREAM"]),
        ({"type": "STATE", "state": STREAM_MESSAGE}, ["STREAM"]),
        ([{"type": "STATE", "state": STREAM_MESSAGE}], ["STREAM"]),
        ([{**STREAM_MESSAGE, "type": None, "state_type": "STREAM"}], ["STREAM"]),
        ({"cursor": 5}, ["LEGACY"]),
        ({"type": "my own", "cursor": 5}, ["LEGACY"]),
        ({"data": {"cursor": 5}}, ["LEGACY"]),
        ({"type": "GLOBAL", "global": {"stream_states": []}}, ["GLOBAL"]),
        ({"stream": STREAM_MESSAGE["stream"]}, ["STREAM"]),
        ([{"stream": STREAM_MESSAGE["stream"], "sourceStats": {}}], ["STREAM"]),
        ({"global": {"stream_states": [STREAM_MESSAGE["stream"]]}}, ["GLOBAL"]),
        (STREAM_MESSAGE["stream"], ["STREAM"]),
        ({"stream": {"cursor": 5}}, ["LEGACY"]),  # a blob with an entry for a stream "stream"
        ({"global": 5}, ["LEGACY"]),
    ],
)
def test_parse_takes_every_form_a_user_may_bring(raw: Any, scopes: list[str]):
    found = ROLE.parse(raw)
    assert [s.scope.type.value for s in found] == scopes


API_STREAMS = [
    {"streamDescriptor": {"name": "a"}, "streamState": {"n": 1}},
    {"streamDescriptor": {"name": "b", "namespace": "n"}, "streamState": {"n": 2}},
]


def test_parse_takes_what_airbytes_own_pages_and_api_export():
    """The platform's API, ConnectionState: camelCase around the source's own state."""
    one = [stream("a", {"n": 1})]
    both = [*one, stream("b", {"n": 2}, "n")]
    assert ROLE.export(ROLE.parse(API_STREAMS[0])) == ROLE.export(one)
    assert ROLE.export(ROLE.parse(API_STREAMS)) == ROLE.export(both)
    connection = {"connectionId": "c", "stateType": "stream", "streamState": API_STREAMS}
    assert ROLE.export(ROLE.parse(connection)) == ROLE.export(both)
    (shared_state,) = ROLE.parse(
        {
            "stateType": "global",
            "globalState": {"shared_state": {"lsn": 1}, "streamStates": API_STREAMS},
        }
    )
    body = json.loads(shared_state.blob)["global"]
    assert body["shared_state"] == {"lsn": 1}
    assert [s["stream_state"] for s in body["stream_states"]] == [{"n": 1}, {"n": 2}]
    legacy = {"stateType": "legacy", "connectionId": "c", "state": {"cursor": 5}}
    assert ROLE.export(ROLE.parse(legacy)) == {"cursor": 5}
    assert ROLE.parse({"stateType": "not_set", "connectionId": "c"}) == []


@pytest.mark.parametrize("raw", [{"cursor": 5}, {"data": {"cursor": 5}}])
def test_a_legacy_blob_comes_out_as_the_bare_blob(raw: Any):
    assert ROLE.export(ROLE.parse(raw)) == {"cursor": 5}


@pytest.mark.parametrize("states", [[stream("a", {"n": 1}), stream("b", [1], "n")], [LEGACY]])
def test_export_and_parse_are_opposites(states: list[StoredState]):
    assert ROLE.export(ROLE.parse(ROLE.export(states))) == ROLE.export(states)


@pytest.mark.parametrize(
    "raw",
    [
        [{"type": "GLOBAL", "global": {"stream_states": []}}] * 2,
        [STREAM_MESSAGE, {"data": {}}],
        [5],
        "text",
        {"type": "STREAM"},
        {"type": "GLOBAL", "global": {"stream_states": 5}},
        {"type": "STATE", "state": 5},
    ],
)
def test_parse_refuses_what_is_no_state(raw: Any):
    with pytest.raises(StateError) as caught:
        ROLE.parse(raw)
    assert caught.value.hint


def test_reset_of_one_stream():
    one, two = stream("a", {"n": 1}), stream("b", {"n": 2}, namespace="n")
    assert ROLE.reset([one, two], A) == [two]
    assert ROLE.reset([two], A) == [two]


def test_reset_under_global_nulls_the_entry_and_keeps_the_shared_state():
    shared_text = '"shared_state":{"lsn":12345678901234567890.50}'
    entries = [{"stream_descriptor": {"name": n}, "stream_state": {"n": 2}} for n in "ab"]
    blob = f'{{"type":"GLOBAL","global":{{{shared_text},"stream_states":{json.dumps(entries)}}}}}'
    (after,) = ROLE.reset([StoredState(scope_of(blob), blob)], A)
    states = json.loads(after.blob)["global"]["stream_states"]
    assert [e["stream_state"] for e in states] == [None, {"n": 2}]
    assert shared_text in after.blob


def test_reset_under_legacy_is_refused_with_the_reason():
    with pytest.raises(StateError, match="one blob") as caught:
        ROLE.reset([LEGACY], A)
    assert caught.value.code == "state.legacy"


def test_without_takes_out_streams_that_start_anew():
    one, two = stream("a", {"n": 1}), stream("b", {"n": 2}, namespace="n")
    assert ROLE.without([one, two], [A]) == [two]
    both = shared({"a": {"n": 1}, "c": {"n": 2}}, {"lsn": 1})
    (after,) = ROLE.without([both], [A, B])  # c goes on
    assert json.loads(after.blob)["global"]["shared_state"] == {"lsn": 1}
    assert ROLE.describe([after])["streams"][0]["state"] is None
    assert ROLE.without([both], [B]) == [both]
    assert ROLE.without([both], []) == [both] and ROLE.without([LEGACY], []) == [LEGACY]


def test_l6_what_speaks_for_nobody_else_goes_too():
    """As platforms clear: a GLOBAL state's shared part with the last stream, LEGACY at once."""
    both = shared({"a": {"n": 1}, "c": {"n": 2}}, {"lsn": 1})
    assert ROLE.splits([both], [A])
    assert ROLE.without([both], [A, StreamId(None, "c")]) == []
    assert ROLE.without([LEGACY], [A]) == [] and not ROLE.splits([LEGACY], [A])
    alone = shared({}, {"lsn": 1})  # all that it knows is shared
    assert ROLE.without([alone], [A]) == [] and not ROLE.splits([alone], [A])
    assert ROLE.splits([shared({}, {})], [A]) and ROLE.splits([LEGACY], [])


def test_l6_a_shared_position_moves_on_for_those_that_are_not_read():
    """A CDC source reads one log: the changes of streams that are not in the run pass unseen."""
    b = StreamId(None, "b")
    both = shared({"a": {"n": 1}, "b": {"n": 2}}, {"lsn": 1})
    (given,) = ROLE.within([both], [A])
    assert json.loads(given.blob)["global"] == {
        "shared_state": {"lsn": 1},
        "stream_states": [
            {"stream_descriptor": {"name": "a"}, "stream_state": {"n": 1}},
            {"stream_descriptor": {"name": "b"}, "stream_state": None},
        ],
    }
    assert ROLE.within([both], [A, b]) == [both]
    assert ROLE.within([both], [StreamId(None, "new")]) == []
    apart = shared({"a": {"n": 1}, "b": {"n": 2}}, {})
    assert ROLE.within([apart], [A]) == [apart] and ROLE.within([LEGACY], [A]) == [LEGACY]


def test_describe():
    assert ROLE.describe([]) == {"type": None, "streams": [], "shared": None}
    assert ROLE.describe([LEGACY]) == {"type": "LEGACY", "streams": [], "shared": {"cursor": 1}}
    entry = {"namespace": "n", "name": "b", "state": {"n": 2}}
    assert ROLE.describe([stream("b", {"n": 2}, "n")]) == {
        "type": "STREAM",
        "streams": [entry],
        "shared": None,
    }
    assert ROLE.describe([shared({"a": 1}, {"lsn": 1})]) == {
        "type": "GLOBAL",
        "streams": [{"namespace": None, "name": "a", "state": 1}],
        "shared": {"lsn": 1},
    }


def test_ten_thousand_stream_states_merge_in_linear_time():
    many = [stream(f"s{i}", {"n": i}) for i in range(10_000)]
    assert len(ROLE.merge(many, many)) == 10_000
