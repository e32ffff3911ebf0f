"""``penstock state``: shown, exported, set, imported, reset, refused (issue 3 part 7)."""

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from cli_harness import RUN, SOURCE, STATES, Cli, stream_state

from penstock.config.home import Home
from penstock.protocols import load
from penstock.store.database_url import sqlite_file
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store

SHOWN = {
    "pipeline": "shop",
    "type": "STREAM",
    "streams": [
        {"namespace": "shop", "name": "users", "state": {"at": 7}},
        {"namespace": None, "name": "orders", "state": {"id": 12}},
    ],
    "shared": None,
}


def save(cli: Cli, states: Any, pipeline: str = "shop") -> None:
    store = open_store(Home(cli.home).state_url())
    lease = store.acquire(pipeline, this_holder(RUN), 60)
    store.remember_source(lease, "airbyte", SOURCE)
    store.replace_states(lease, load("airbyte").state.parse(states))
    store.release(lease)
    store.close()


def test_show_has_the_contracts_shape(shop: Cli) -> None:
    told = shop("state", "show", "shop", "--json")
    assert (told.code, told.json, told.err) == (0, SHOWN, "")
    as_text = shop("state", "show", "shop").out
    assert "shop.users" in as_text
    assert '{"id": 12}' in as_text


def test_of_many_connector_keys_show_prints_the_first_and_json_has_all(shop: Cli) -> None:
    with closing(sqlite3.connect(sqlite_file(Home(shop.home).state_url()))) as store, store:
        store.executemany(
            "INSERT INTO penstock_keys (pipeline, slot, version, scope, owner, key, value, task,"
            " covers, mark, gone) VALUES ('shop', ?, 1, 'path', ?, ?, x'37', '', '', 0, 0)",
            [(f"s{i}", b'[null, "orders"]', b"k%05d" % i) for i in range(1_030)],
        )
    told = shop("state", "show", "shop")
    assert "k00019" in told.out and "k00020" not in told.out
    assert "and 1,010 more keys; --json gives all" in told.out
    assert len(shop("state", "show", "shop", "--json").json["connector_keys"]) == 1_030


def test_show_of_one_stream(shop: Cli) -> None:
    for name in ("users", "shop.users", '{"namespace": "shop", "name": "users"}'):
        told = shop("state", "show", "shop", "--stream", name, "--json")
        assert told.json["streams"] == SHOWN["streams"][:1]
    unknown = shop("state", "show", "shop", "--stream", "usres", "--json")
    assert (unknown.code, unknown.error["code"]) == (2, "config.unknown_stream")
    assert "users" in unknown.error["hint"]


def test_a_pipeline_is_named_by_its_file_or_by_its_connectors(shop: Cli) -> None:
    file = f"pipeline: shop\nsource: {{use: '{SOURCE}'}}\ndestination: {{use: 'parquet:./lake'}}\n"
    assert shop("state", "show", "-", "--json", stdin=file).json == SHOWN
    (shop.cwd / "p.yaml").write_text(file)
    assert shop("state", "show", "p.yaml", "--json").json == SHOWN
    never = shop("state", "show", SOURCE, "parquet:./lake", "--json")
    assert (never.code, never.error["code"]) == (2, "config.unknown_pipeline")


def test_export_is_what_the_source_would_be_given_and_imports_again(shop: Cli) -> None:
    exported = shop("state", "export", "shop")
    assert exported.json == STATES
    assert shop("state", "reset", "shop", "--json").json["streams"] == []
    (shop.cwd / "state.json").write_text(exported.out)
    assert shop("state", "import", "shop", "state.json", "--json").json == SHOWN
    assert shop("state", "import", "shop", "-", "--json", stdin=exported.out).json == SHOWN
    one = shop("state", "export", "shop", "--stream", "orders")
    assert one.json == STATES[1:]


def test_reset_of_one_stream_keeps_the_others(shop: Cli) -> None:
    told = shop("state", "reset", "shop", "--stream", "users", "--json")
    assert told.json["streams"] == SHOWN["streams"][1:]
    assert shop("state", "show", "shop", "--json").json == told.json


def test_reset_of_a_stream_of_a_global_state_keeps_the_shared_one(shop: Cli) -> None:
    streams = [
        {"stream_descriptor": {"name": name}, "stream_state": {"n": 1}} for name in ("a", "b")
    ]
    shared = {"lsn": 5}
    save(shop, [{"type": "GLOBAL", "global": {"shared_state": shared, "stream_states": streams}}])
    told = shop("state", "reset", "shop", "--stream", "a", "--json").json
    assert told["shared"] == {"lsn": 5}
    assert [s["state"] for s in told["streams"]] == [None, {"n": 1}]
    refused = shop("state", "export", "shop", "--stream", "a", "--json")
    assert (refused.code, refused.error["code"]) == (6, "state.shared")


def test_reset_of_a_stream_of_a_legacy_state_is_refused_with_the_reason(shop: Cli) -> None:
    save(shop, {"cursor": 3}, "old")
    told = shop("state", "reset", "old", "--stream", "users", "--json")
    assert (told.code, told.error["code"]) == (6, "state.legacy")
    assert "one blob" in told.error["message"]
    assert shop("state", "show", "old", "--json").json["shared"] == {"cursor": 3}
    assert shop("state", "reset", "old", "--json").json["shared"] is None


def test_L3_adopt_takes_the_tables_as_they_are(shop: Cli) -> None:
    told = shop("state", "adopt", "shop", "--json").json
    names = [{"namespace": s["namespace"], "name": s["name"]} for s in SHOWN["streams"]]
    assert told["pipeline"] == "shop"
    assert sorted(map(str, told["adopted"])) == sorted(map(str, names))
    one = shop("state", "adopt", "shop", "--stream", "users")
    assert one.code == 0 and "users" in one.out
    assert shop("state", "show", "shop", "--json").json == SHOWN
    assert shop("state", "adopt", "shop", "--stream", "usres", "--json").code == 2


def test_set_puts_a_state_over_the_saved_one(shop: Cli) -> None:
    new = json.dumps([stream_state("orders", {"id": 99})])
    told = shop("state", "set", "shop", new, "--json").json
    assert [s["state"] for s in told["streams"]] == [{"at": 7}, {"id": 99}]
    both = [stream_state("orders", {"id": 1}), stream_state("users", {"at": 1}, "shop")]
    (shop.cwd / "both.json").write_text(json.dumps(both))
    told = shop("state", "set", "shop", "@both.json", "--stream", "users", "--json").json
    assert [s["state"] for s in told["streams"]] == [{"at": 1}, {"id": 99}]


def test_a_state_of_another_pipeline_is_refused_and_forced(shop: Cli) -> None:
    """Issue 3, bad input: a state file from another pipeline."""
    foreign = json.dumps([stream_state("tickets", {"n": 1}), STATES[1]])
    told = shop("state", "import", "shop", "-", "--json", stdin=foreign)
    assert (told.code, told.error["code"]) == (6, "state.foreign")
    assert "tickets" in told.error["message"]
    assert "orders" not in told.error["message"]
    assert shop("state", "show", "shop", "--json").json == SHOWN
    forced = shop("state", "import", "shop", "-", "--force", "--json", stdin=foreign)
    assert [s["name"] for s in forced.json["streams"]] == ["tickets", "orders"]


def test_the_streams_of_the_pipeline_file_are_no_strangers(cli: Cli) -> None:
    """A pipeline that never ran takes a state, for the streams that its file lists."""
    file = (
        f"pipeline: new\nsource: {{use: '{SOURCE}', streams: [{{name: users}}]}}\n"
        "destination: {use: 'parquet:./lake'}\n"
    )
    (cli.cwd / "new.yaml").write_text(file)
    known = json.dumps([stream_state("users", {"n": 1})])
    assert cli("state", "import", "new.yaml", "-", stdin=known).code == 0
    assert cli("state", "show", "new", "--json").json["streams"][0]["state"] == {"n": 1}
    foreign = json.dumps([stream_state("tickets", {"n": 1})])
    assert cli("state", "import", "new.yaml", "-", stdin=foreign).code == 6


@pytest.mark.parametrize(
    ("text", "where"),
    [('{"a": ', "stdin:1:7"), ('[\n  {"a" 1}\n]', "stdin:2:8"), ("", "stdin:1:1")],
)
def test_malformed_json_is_told_with_line_and_column(shop: Cli, text: str, where: str) -> None:
    told = shop("state", "import", "shop", "-", "--json", stdin=text)
    assert (told.code, told.error["code"]) == (6, "state.not_json")
    assert told.error["where"] == where


def test_a_state_that_is_no_state_message_is_refused(shop: Cli) -> None:
    told = shop("state", "import", "shop", "-", "--json", stdin='[{"type": "STREAM"}]')
    assert told.code == 6
    assert shop("state", "show", "shop", "--json").json == SHOWN


def test_numbers_keep_all_their_digits(shop: Cli) -> None:
    """L1: a state is the source's own text, whoever carries it."""
    given = '[{"type": "STREAM", "stream": {"stream_descriptor": {"name": "orders"}, '
    given += '"stream_state": {"at": 1700000000.123456789012345678}}}]'
    assert shop("state", "import", "shop", "-", stdin=given).code == 0
    store = open_store(Home(shop.home).state_url())
    assert "1700000000.123456789012345678" in store.states("shop")[0].blob
    store.close()


@pytest.mark.parametrize(
    "words", [["reset", "shop"], ["set", "shop", "[]"], ["import", "shop", "-"]]
)
def test_nothing_is_changed_while_a_run_holds_the_pipeline(shop: Cli, words: list[str]) -> None:
    """L12: refused, with the holder's name."""
    store = open_store(Home(shop.home).state_url())
    lease = store.acquire("shop", this_holder("01RUNNING"), 60)
    told = shop("state", *words, "--json", stdin="[]")
    assert (told.code, told.error["code"]) == (6, "state.locked")
    assert "01RUNNING" in told.error["message"]
    store.release(lease)
    store.close()
    assert shop("state", "show", "shop", "--json").json == SHOWN


def test_a_bare_name_that_never_said_its_protocol_asks_for_the_file(cli: Cli) -> None:
    store = open_store(Home(cli.home).state_url())
    store.release(store.acquire("shop", this_holder(RUN), 60))
    store.close()
    told = cli("state", "show", "shop", "--json")
    assert (told.code, told.error["code"]) == (6, "state.protocol_unknown")
    assert cli("state", "show", SOURCE, "parquet:./lake", "--json").code == 2
    file = f"pipeline: shop\nsource: {{use: '{SOURCE}'}}\ndestination: {{use: 'parquet:./lake'}}\n"
    assert cli("state", "show", "-", "--json", stdin=file).json["streams"] == []


def test_history_is_newest_first(shop: Cli) -> None:
    shop("state", "set", "shop", json.dumps([stream_state("orders", {"id": 99})]))
    shop("state", "reset", "shop", "--stream", "orders")
    told = shop("state", "history", "shop", "--stream", "orders", "--json").json
    assert [e["state"] and e["state"]["stream"]["stream_state"] for e in told] == [
        None, {"id": 99}, {"id": 12},
    ]  # fmt: skip
    assert [e["run"] for e in told] == ["state reset", "state set", RUN]
    assert told[0].keys() == {"at", "run", "type", "namespace", "name", "state"}
    assert "removed" in shop("state", "history", "shop").out
