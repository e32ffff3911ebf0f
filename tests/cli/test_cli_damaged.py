"""``penstock state`` where one digit of a saved state was changed: refused by what would use it,
with ways out that work as they are named (L1)."""

import json
import re
import shlex
import sqlite3
from contextlib import closing

import pytest
from cli_harness import Cli, stream_state

from penstock.config.home import Home
from penstock.store.database_url import sqlite_file

USERS, ORDERS = '["shop","users"]', '[null,"orders"]'


def change(cli: Cli, scope: str, before: str, after: str, table: str = "states") -> None:
    """One digit, in the file, as a bad disk changes it."""
    with closing(sqlite3.connect(sqlite_file(Home(cli.home).state_url()))) as store, store:
        done = store.execute(
            f"UPDATE penstock_{table} SET blob = replace(blob, ?, ?) WHERE scope = ?",
            (before, after, scope),
        )
        assert done.rowcount == 1
        ((blob,),) = store.execute(f"SELECT blob FROM penstock_{table} WHERE scope = ?", (scope,))
        assert after in blob


def test_L1_what_uses_a_damaged_state_is_refused_and_names_the_ways_out(shop: Cli) -> None:
    change(shop, USERS, "7", "8")
    for words in (["show"], ["export"], ["rewind", "--stream", "users", "--to", "1"]):
        told = shop("state", words[0], "shop", *words[1:], "--json")
        assert (told.code, told.error["code"]) == (6, "state.damaged"), words
        assert told.error["stream"] == "shop.users"
        for way in ("state history shop", "state set shop", "state reset shop --stream shop.users"):
            assert f"penstock {way}" in told.error["hint"]


def test_L1_the_history_has_what_was_saved_and_set_puts_it_back(shop: Cli) -> None:
    change(shop, USERS, "7", "8")
    told = shop("state", "history", "shop", "--json")
    (saved,) = [e["state"] for e in told.json if e["name"] == "users"]
    file = shop.cwd / "users.json"
    file.write_text(json.dumps([saved]))
    assert shop("state", "set", "shop", "@users.json", "--stream", "shop.users").code == 0
    shown = shop("state", "show", "shop", "--json").json["streams"]
    assert {s["name"]: s["state"] for s in shown} == {"users": {"at": 7}, "orders": {"id": 12}}


def test_L1_reset_of_the_stream_as_printed_keeps_the_others(shop: Cli) -> None:
    change(shop, USERS, "7", "8")
    hint = shop("state", "show", "shop", "--json").error["hint"]
    (command,) = re.findall(r"`penstock (state reset [^`]*)`", hint)
    assert shop(*shlex.split(command), "--json").code == 0
    assert [s["name"] for s in shop("state", "show", "shop", "--json").json["streams"]] == [
        "orders"
    ]


def test_L1_a_change_of_another_stream_hides_no_damage(shop: Cli) -> None:
    change(shop, USERS, "7", "8")
    given = json.dumps([stream_state("orders", {"id": 99})])
    for words in (["set", "shop", given], ["reset", "shop", "--stream", "orders"]):
        told = shop("state", *words, "--json")
        assert (told.code, told.error["code"]) == (6, "state.damaged"), words
        assert told.error["stream"] == "shop.users"
    assert shop("state", "show", "shop", "--json").code == 6


@pytest.mark.parametrize("verb", ["reset", "import"])
def test_L1_reset_and_import_of_everything_leave_nothing_damaged(shop: Cli, verb: str) -> None:
    change(shop, USERS, "7", "8")
    given = json.dumps([stream_state("orders", {"id": 99})])
    words = ["reset", "shop"] if verb == "reset" else ["import", "shop", "-"]
    assert shop("state", *words, stdin=given).code == 0
    shown = shop("state", "show", "shop", "--json").json["streams"]
    assert [s["name"] for s in shown] == ([] if verb == "reset" else ["orders"])


def test_a_damaged_entry_of_the_history_is_shown_as_such(shop: Cli) -> None:
    change(shop, USERS, "7", "8", table="history")
    told = shop("state", "history", "shop", "--json")
    (users,) = [e for e in told.json if e["name"] == "users"]
    assert (users["state"], users["damaged"]) == (None, True)
    assert all("damaged" not in e for e in told.json if e["name"] != "users")
    assert "damaged" in shop("state", "history", "shop").out
