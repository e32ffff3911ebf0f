"""``penstock state set`` and ``import`` of a state that does not name what is saved: nothing of
another stream goes without ``--force``."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from cli_harness import RUN, Cli, save_states, stream_state

from penstock.config.home import Home
from penstock.model.catalog import StreamId
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store

STREAMS = [stream_state("orders", {"checkpoint": "2024-01-03"}), stream_state("users", {"id": 7})]


def of_all(shared: Any) -> dict[str, Any]:
    entries = [
        {"stream_descriptor": {"name": name}, "stream_state": {"id": 9}} for name in ("a", "b")
    ]
    return {"type": "GLOBAL", "global": {"shared_state": shared, "stream_states": entries}}


MARKS = {"bookmarks": {"a": {"id": 9}, "b": {"id": 8}}, "currently_syncing": None}


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home", tmp_path)


def exported(cli: Cli) -> Any:
    return cli("state", "export", "shop", "--json").json


def shown(cli: Cli) -> dict[str, Any]:
    return {s["name"]: s["state"] for s in cli("state", "show", "shop", "--json").json["streams"]}


@pytest.mark.parametrize("verb", ["set", "import"])
@pytest.mark.parametrize(
    ("protocol", "saved"),
    [
        ("airbyte", STREAMS),
        ("airbyte", [of_all({"lsn": 5})]),
        ("airbyte", [of_all(None)]),
        ("singer", MARKS),
    ],
)
def test_L1_a_document_without_a_stream_does_not_replace_those_of_streams(
    cli: Cli, verb: str, protocol: str, saved: Any
) -> None:
    save_states(cli, saved, protocol)
    given = '{"x": 1}'
    (cli.cwd / "x.json").write_text(given)
    words = ("state", verb, "shop", given if verb == "set" else "x.json")
    done = cli(*words, "--json")
    assert (done.code, done.error["code"]) == (6, "state.drops_streams"), done.out
    assert ", ".join(sorted(shown(cli))) in done.error["message"]
    assert exported(cli) == saved
    named = shlex.split(done.error["hint"].split("`")[1])
    assert cli(*named[1:]).json == saved  # the form to give
    assert ("--stream" in done.error["hint"]) == (verb == "set")
    assert "--force" in done.error["hint"]
    forced = cli(*words, "--force", "--json")
    assert (forced.code, forced.json["shared"], forced.json["streams"]) == (0, {"x": 1}, [])


@pytest.mark.parametrize("given", [{"type": "LEGACY", "data": {"x": 1}}, of_all({"lsn": 6})])
def test_L1_set_keeps_the_streams_that_a_state_of_another_type_does_not_name(
    cli: Cli, given: dict[str, Any]
) -> None:
    given = json.loads(json.dumps(given))
    given.get("global", {})["stream_states"] = []
    save_states(cli, STREAMS)
    done = cli("state", "set", "shop", json.dumps(given), "--json")
    assert (done.code, done.error["code"]) == (6, "state.drops_streams"), done.out
    assert exported(cli) == STREAMS


@pytest.mark.parametrize(
    ("protocol", "saved", "given"),
    [
        ("singer", MARKS, {"bookmarks": {"a": {"id": 1}}}),
        ("airbyte", [of_all(None)], None),
    ],
)
def test_set_keeps_the_part_of_a_stream_that_is_not_named(
    cli: Cli, protocol: str, saved: Any, given: Any
) -> None:
    save_states(cli, saved, protocol)
    if protocol == "airbyte":
        entry = {"stream_descriptor": {"name": "a"}, "stream_state": {"id": 1}}
        given = {"type": "GLOBAL", "global": {"stream_states": [entry]}}
    before = shown(cli)
    done = cli("state", "set", "shop", json.dumps(given), "--json")
    assert done.code == 0, done.out
    assert shown(cli) == {**before, "a": {"id": 1}}


def test_L1_a_shared_position_is_not_replaced_beside_a_stream_that_would_go(cli: Cli) -> None:
    saved, given = [of_all({"lsn": 5})], of_all({"lsn": 6})
    save_states(cli, saved)
    del given["global"]["stream_states"][1]
    done = cli("state", "set", "shop", json.dumps(given), "--json")
    assert (done.code, done.error["code"]) == (6, "state.drops_streams"), done.out
    assert "b" in done.error["message"] and exported(cli) == saved
    whole = of_all({"lsn": 6})
    assert cli("state", "set", "shop", json.dumps(whole)).code == 0
    assert exported(cli) == [whole]


@pytest.mark.parametrize(
    ("protocol", "saved", "stream"),
    [
        ("airbyte", STREAMS, "orders"),
        ("airbyte", STREAMS, "users"),
        ("airbyte", [of_all(None)], "a"),
        ("airbyte", [of_all({"lsn": 5})], "b"),
        ("airbyte", [of_all({"lsn": 5}), stream_state("c", {"id": 1})], "c"),
        ("singer", MARKS, "b"),
        ("singer", {"bookmarks": {"a": "2024-01-01", "b": {"id": 8}}, "at": 3}, "a"),
    ],
)
def test_what_show_prints_of_a_stream_is_taken_back(
    cli: Cli, protocol: str, saved: Any, stream: str
) -> None:
    save_states(cli, saved, protocol)
    before = shown(cli)
    same = cli("state", "set", "shop", json.dumps(before[stream]), "--stream", stream, "--json")
    assert same.code == 0, same.out
    assert exported(cli) == saved
    for other in ('{"checkpoint": 0.10000000000000000555}', "{}"):
        done = cli("state", "set", "shop", other, "--stream", stream, "--json")
        assert done.code == 0, done.out
        assert re.findall(r"0\.\d+", cli("state", "export", "shop").out) == re.findall(
            r"0\.\d+", other
        )
        assert shown(cli) == {**before, stream: json.loads(other)}


def test_the_document_of_a_query_or_a_component_is_taken_back(cli: Cli) -> None:
    documents = [
        {"stream": n, "cursor_field": "id", "cursor_value": {"type": "int64", "value": 9}}
        for n in ("a", "b")
    ]
    for protocol in ("rapidbyte", "spark"):
        save_states(cli, documents, protocol)
        new = {**documents[0], "cursor_value": {"type": "int64", "value": 3}}
        words = ("state", "set", "shop", json.dumps(new), "--json")
        assert cli(*words, "--stream", "a").code == 0
        assert exported(cli) == [new, documents[1]]
        for given in ('{"x": 1}', "{}", "null"):
            for stream in (["--stream", "a"], []):
                done = cli("state", "set", "shop", given, *stream, "--json")
                assert done.code in (2, 6) or given != '{"x": 1}', done.out
                assert exported(cli) == [new, documents[1]]


def test_a_stream_that_was_reset_takes_what_it_had(cli: Cli) -> None:
    save_states(cli, STREAMS)
    store = open_store(Home(cli.home).state_url())
    lease = store.acquire("shop", this_holder(RUN), 60)
    store.new_generation(lease, [StreamId(None, "users")])  # a run read it
    store.release(lease)
    store.close()
    assert cli("state", "reset", "shop", "--stream", "users").code == 0
    done = cli("state", "set", "shop", '{"id": 7}', "--stream", "users", "--json")
    assert done.code == 0, done.out
    assert shown(cli) == {"orders": {"checkpoint": "2024-01-03"}, "users": {"id": 7}}


def test_the_bookmark_of_one_stream_is_taken_out_of_a_whole_state(cli: Cli) -> None:
    save_states(cli, MARKS, "singer")
    given = {"bookmarks": {"a": {"id": 1}, "b": {"id": 2}}}
    done = cli("state", "set", "shop", json.dumps(given), "--stream", "b", "--json")
    assert done.code == 0, done.out
    assert exported(cli) == {**MARKS, "bookmarks": {"a": {"id": 9}, "b": {"id": 2}}}


@pytest.mark.parametrize(
    ("protocol", "saved", "stream"),
    [("airbyte", {"cursor": 3}, "orders"), ("singer", {"cursor": 3}, "orders")],
)
def test_of_a_state_that_is_one_for_all_the_way_is_the_whole(
    cli: Cli, protocol: str, saved: Any, stream: str
) -> None:
    save_states(cli, saved, protocol)
    done = cli("state", "set", "shop", '{"x": 1}', "--stream", stream, "--json")
    assert (done.code, done.error["code"]) == (6, "state.shared"), done.out
    out, back = (shlex.split(c) for c in done.error["hint"].split("`")[1:4:2])
    assert out[-2] == ">"
    (cli.cwd / out[-1]).write_text(cli(*out[1:-2]).out)
    assert cli(*back[1:]).code == 0
    assert exported(cli) == saved


def test_a_stream_of_another_name_is_not_found_before_anything_changes(cli: Cli) -> None:
    save_states(cli, STREAMS)
    for given in ('{"id": 1}', "{}", json.dumps(STREAMS)):
        done = cli("state", "set", "shop", given, "--stream", "ordrs", "--json")
        assert (done.code, done.error["code"]) == (2, "config.unknown_stream"), done.out
    assert exported(cli) == STREAMS


@pytest.mark.parametrize("given", ["null", "[]"])
def test_no_state_for_a_stream_leads_to_reset(cli: Cli, given: str) -> None:
    save_states(cli, STREAMS)
    done = cli("state", "set", "shop", given, "--stream", "orders", "--json")
    assert (done.code, done.error["code"]) == (6, "state.none_given"), done.out
    assert exported(cli) == STREAMS
    command = shlex.split(done.error["hint"].split("`")[1])
    assert cli(*command[1:]).code == 0
    assert exported(cli) == STREAMS[1:]
