"""The verbs for Singer: a tap that says nothing of itself, a target, a blob of bookmarks."""

import json
import sys
import textwrap
from pathlib import Path

import pytest
from cli_harness import RUN, Cli

from penstock.config.home import Home
from penstock.protocols import load
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store

TAP = """
import json, sys

def tell(message):
    print(json.dumps(message), flush=True)

known = {"--config", "--catalog", "--state"}
strange = [word for word in sys.argv[1:] if word.startswith("--") and word not in known]
if strange:
    sys.exit("tap: error: unrecognized arguments: " + " ".join(strange))
schema = {"type": "object", "properties": {"id": {"type": "integer"}, "n": {"type": "string"}}}
tell({"type": "SCHEMA", "stream": "orders", "schema": schema, "key_properties": ["id"]})
for number in range(5):
    tell({"type": "RECORD", "stream": "orders", "record": {"id": number, "n": f"n{number}"}})
tell({"type": "RECORD", "stream": "loose", "record": {"x": [1, 2]}})
tell({"type": "STATE", "value": {"bookmarks": {"orders": {"id": 4}}}})
"""
TARGET = f"singer:{sys.executable} {Path(__file__).parents[1] / 'stubs' / 'stub_target.py'}"
BLOB = {"bookmarks": {"orders": {"id": 4}, "users": {"at": "x"}}, "currently_syncing": "users"}


@pytest.fixture
def tap(cli: Cli) -> str:
    (cli.cwd / "tap.py").write_text(textwrap.dedent(TAP))
    return f"singer:{sys.executable} {cli.cwd / 'tap.py'}"


def test_a_tap_without_discovery_is_asked_all_the_same(cli: Cli, tap: str) -> None:
    spec = cli("spec", tap, "--json")
    assert (spec.code, spec.json["protocol"]) == (0, "singer")
    assert "its configuration is not described" in cli("spec", tap).out
    found = cli("discover", tap, "--json")
    assert (found.code, found.json) == (0, {"streams": [], "open": True})
    assert "only while it is read" in cli("discover", tap).out
    assert cli("check", tap, "--json").json["status"] == "succeeded"


def test_preview_of_streams_that_only_messages_tell(cli: Cli, tap: str) -> None:
    first = cli("preview", tap, "--limit", "2", "--json")
    assert first.json["rows"] == [{"id": 0, "n": "n0"}, {"id": 1, "n": "n1"}]
    loose = cli("preview", tap, "--stream", "loose", "--json")
    (row,) = loose.json["rows"]
    assert json.loads(row["record"]) == {"x": [1, 2]}
    unknown = cli("preview", tap, "--stream", "oders", "--json")
    assert (unknown.code, unknown.error["code"]) == (2, "config.streams")
    assert "orders" in unknown.error["hint"]


def test_preview_of_records_of_unknown_shape(cli: Cli) -> None:
    """A schema that declares some properties of them does not take the others away."""
    partial = """
        import json, sys
        if "--discover" in sys.argv:
            stream = {"tap_stream_id": "people", "stream": "people", "schema": {"type": "object"}}
            print(json.dumps({"streams": [stream]})); sys.exit(0)
        if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
        for schema in ({"type": "object"}, {"properties": {"at": {"type": "string"}}}):
            print(json.dumps({"type": "SCHEMA", "stream": "people", "schema": schema}))
        print(json.dumps({"type": "RECORD", "stream": "people", "record": {"_id": 1, "at": "x"}}))
    """
    (cli.cwd / "tap.py").write_text(textwrap.dedent(partial))
    shown = cli("preview", f"singer:{sys.executable} {cli.cwd / 'tap.py'}", "--json")
    (row,) = shown.json["rows"]
    assert json.loads(row["record"]) == {"_id": 1, "at": "x"}


def test_a_token_that_discovery_renewed_is_said_and_not_shown(cli: Cli) -> None:
    renews = """
        import json, sys
        path = sys.argv[sys.argv.index("--config") + 1]
        config = json.load(open(path))
        with open(path, "w") as file:
            json.dump({**config, "refresh_token": "renewed"}, file)
        print(json.dumps({"streams": []}))
    """
    (cli.cwd / "tap.py").write_text(textwrap.dedent(renews))
    tap = f"singer:{sys.executable} {cli.cwd / 'tap.py'}"
    for verb in ("discover", "check"):
        told = cli(verb, tap, "--config", '{"refresh_token": "old"}')
        assert told.code == 0
        assert told.err.count("changed its configuration") == 1
        assert "renewed" not in told.err + told.out


@pytest.fixture
def synced(cli: Cli) -> Cli:
    store = open_store(Home(cli.home).state_url())
    lease = store.acquire("orders", this_holder(RUN), 60)
    store.remember_source(lease, "singer", "singer:tap-x")
    store.replace_states(lease, load("singer").state.parse(BLOB))
    store.release(lease)
    store.close()
    return cli


def test_the_state_of_a_bare_name_is_told_in_its_own_protocols_words(synced: Cli) -> None:
    told = synced("state", "show", "orders", "--json").json
    states = {s["name"]: s["state"] for s in told["streams"]}
    assert states == {"orders": {"id": 4}, "users": {"at": "x"}}
    assert "currently_syncing" in json.dumps(told["shared"])
    assert synced("state", "export", "orders").json == BLOB
    shown = synced("state", "show", "orders").out
    assert "orders" in shown and "currently_syncing" in shown


def test_a_state_is_not_given_to_a_source_of_another_protocol(synced: Cli) -> None:
    """L1: what is saved is the source's own message, and means something to its kind only."""
    (synced.cwd / "p.yaml").write_text(
        "pipeline: orders\nsource: {use: 'airbyte:source-x'}\ndestination: {use: 'parquet:./l'}\n"
    )
    refused = synced("state", "set", "p.yaml", "[]", "--json")
    assert (refused.code, refused.error["code"]) == (6, "state.other_protocol")
    assert synced("state", "show", "p.yaml", "--json").json["type"]
    assert synced("state", "reset", "p.yaml").code == 0
    assert synced("state", "import", "p.yaml", "-", stdin="[]").code == 0
    assert synced("state", "export", "orders").code == 0


@pytest.mark.parametrize("role", [["--role", "destination"], []])
def test_a_target_is_asked_as_a_destination(cli: Cli, role: list[str]) -> None:
    """``stub_target.py`` is one by its name."""
    target = f"{TARGET} '{{}}'"
    spec = cli("spec", target, *role, "--json")
    assert (spec.code, spec.json["protocol"]) == (0, "singer")
    checked = cli("check", target, "--destination-config", "{}", *role, "--json")
    assert (checked.code, checked.json["end"]) == (0, "destination")
    bad = cli("check", target, "--config", '{"bad": true}', *role, "--json")
    assert (bad.code, bad.json["status"], bad.json["end"]) == (5, "failed", "destination")
