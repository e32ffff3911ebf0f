"""``penstock state rewind``: one value of a stream's saved state, in its form; the rest stays."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from cli_harness import Cli, save_states, stream_state


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home", tmp_path)


def exported(cli: Cli) -> Any:
    return cli("state", "export", "shop", "--json").json


AIRBYTE = [
    stream_state("orders", {"updated_at": "2026-11-21T00:51:39.123+00:00", "seed": 7}),
    stream_state("orders", {"updated_at": "2026-11-21T00:51:39.123+00:00", "seed": 7}, "other"),
    stream_state("parts", {"at": {"id": 12345678901234567890, "page": 3}}),
]
GLOBAL = {
    "type": "GLOBAL",
    "global": {
        "shared_state": {"lsn": 5},
        "stream_states": [
            {"stream_descriptor": {"name": "a"}, "stream_state": {"id": 9}},
            {"stream_descriptor": {"name": "b"}, "stream_state": {"id": 9}},
        ],
    },
}


def test_a_day_is_its_first_moment_in_the_form_of_the_saved_time(cli: Cli) -> None:
    save_states(cli, AIRBYTE)
    done = cli(
        "state", "rewind", "shop", "--stream", "other.orders", "--to", "2024-01-01", "--json"
    )
    assert done.code == 0, done.out
    other, moved, parts = (s["stream"]["stream_state"] for s in exported(cli))
    assert moved == {"updated_at": "2024-01-01T00:00:00.000+00:00", "seed": 7}
    assert (other, parts) == (
        AIRBYTE[0]["stream"]["stream_state"], AIRBYTE[2]["stream"]["stream_state"]
    )  # fmt: skip


@pytest.mark.parametrize("field", ["id", "at.id"])
def test_a_number_stays_a_number(cli: Cli, field: str) -> None:
    save_states(cli, AIRBYTE)
    done = cli("state", "rewind", "shop", "--stream", "parts", "--to", "100", "--field", field)
    assert done.code == 0, done.err
    assert exported(cli)[2]["stream"]["stream_state"] == {"at": {"id": 100, "page": 3}}


def test_of_a_global_state_only_the_streams_own_part_moves(cli: Cli) -> None:
    save_states(cli, [GLOBAL])
    assert cli("state", "rewind", "shop", "--stream", "b", "--to", "1").code == 0
    (whole,) = exported(cli)
    parts = {
        s["stream_descriptor"]["name"]: s["stream_state"] for s in whole["global"]["stream_states"]
    }
    assert (parts, whole["global"]["shared_state"]) == (
        {"a": {"id": 9}, "b": {"id": 1}},
        {"lsn": 5},
    )


def test_a_singer_bookmark(cli: Cli) -> None:
    mark = {"replication_key": "id", "replication_key_value": "2026-01-01", "version": 3}
    save_states(
        cli, {"bookmarks": {"users": mark, "x": dict(mark)}, "currently_syncing": None}, "singer"
    )
    assert cli("state", "rewind", "shop", "--stream", "users", "--to", "2025-05-05").code == 0
    bookmarks = exported(cli)["bookmarks"]
    assert bookmarks["users"] == {**mark, "replication_key_value": "2025-05-05"}
    assert bookmarks["x"] == mark


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--stream", "parts", "--to", "1"], "at.id, at.page"),
        (["--stream", "parts", "--to", "many", "--field", "id"], "is not a number"),
        (["--stream", "parts", "--to", "true", "--field", "id"], "is not a number"),
        (["--stream", "other.orders", "--to", "soon"], "is not a time"),
        (["--stream", "orders", "--to", "2024-01-01"], "names 2 streams"),
        (["--stream", "parts", "--to", "1", "--field", "no"], "it has no value no"),
        (["--stream", "nobody", "--to", "1"], "nobody"),
        (["--to", "1"], "--stream"),
    ],
)
def test_what_is_not_clear_is_refused_and_changes_nothing(
    cli: Cli, words: list[str], said: str
) -> None:
    save_states(cli, AIRBYTE)
    done = cli("state", "rewind", "shop", *words, "--json")
    assert done.code in (2, 6) and said in json.dumps(done.json), done.out
    assert exported(cli) == AIRBYTE


def test_a_stream_whose_state_stands_beside_a_global_one(cli: Cli) -> None:
    """A source that went from GLOBAL to STREAM: the stream's entry in GLOBAL is null."""
    save_states(cli, [GLOBAL, stream_state("a", {"id": 12})])
    shown = cli("state", "show", "shop", "--json").json["streams"]
    assert [(s["name"], s["state"]["id"]) for s in shown] == [("b", 9), ("a", 12)]
    assert cli("state", "rewind", "shop", "--stream", "a", "--to", "10").code == 0
    shared, own = exported(cli)
    assert own["stream"]["stream_state"] == {"id": 10}
    assert [e["stream_state"] for e in shared["global"]["stream_states"]] == [None, {"id": 9}]


DAY = "2024-01-03"
AHEAD = [
    ("2024-01-03T00:00:00Z", "2034-01-02"),
    ("2024-01-03T01:00:00+02:00", "2024-01-02T23:00:01Z"),
    (9, "10"),
]
"""Saved cursors, and later ones."""
UNKNOWN = [("abc", "abd"), ("2024-01-03T00:00:00Z", "2024-01-03T05:00:00")]


@pytest.mark.parametrize(("saved", "to"), AHEAD)
def test_L5_a_later_cursor_skips_rows_and_is_refused(cli: Cli, saved: Any, to: str) -> None:
    state = [stream_state("orders", {"at": saved}), stream_state("parts", {"at": DAY})]
    save_states(cli, state)
    done = cli("state", "rewind", "shop", "--stream", "orders", "--to", to, "--json")
    assert (done.code, done.error["code"]) == (6, "state.cursor_ahead"), done.out
    assert str(saved) in done.error["message"] and to in done.error["message"]
    assert exported(cli) == state
    command = shlex.split(done.error["hint"].split("`")[1])
    forced = cli(*command[1:], "--json")
    assert forced.code == 0 and "notes" not in forced.json, forced.out
    moved, other = (s["stream"]["stream_state"]["at"] for s in exported(cli))
    assert str(moved).startswith(to) and other == DAY


@pytest.mark.parametrize(("saved", "to"), UNKNOWN)
def test_of_a_cursor_without_a_known_order_the_answer_says_so(
    cli: Cli, saved: Any, to: str
) -> None:
    save_states(cli, [stream_state("orders", {"at": saved})])
    words = ("state", "rewind", "shop", "--stream", "orders", "--to")
    done = cli(*words, to, "--json")
    assert done.code == 0, done.out
    (note,) = done.json["notes"]
    assert saved in note and to in note and "later" in note
    assert exported(cli)[0]["stream"]["stream_state"] == {"at": to}
    assert "later" in cli(*words, saved).out
    assert "later" not in cli(*words, saved).out  # it is that already


def test_a_later_cursor_is_refused_in_every_kind_of_state(cli: Cli) -> None:
    words = ("state", "rewind", "shop", "--to", "10", "--json", "--stream")
    save_states(cli, [GLOBAL])
    assert cli(*words, "a").error["code"] == "state.cursor_ahead"
    assert exported(cli) == [GLOBAL]
    mark = {"replication_key": "id", "replication_key_value": 9, "version": 30}
    singer = {"bookmarks": {"users": mark}}
    save_states(cli, singer, "singer")
    assert cli(*words, "users").error["code"] == "state.cursor_ahead"
    assert exported(cli) == singer


@pytest.mark.parametrize("protocol", ["rapidbyte", "spark"])
def test_a_state_that_is_a_document_of_its_own_is_rewound(cli: Cli, protocol: str) -> None:
    documents: list[dict[str, Any]] = [
        {"stream": name, "cursor_field": "id", "cursor_value": {"type": "int64", "value": 9}}
        for name in ("a", "b")
    ]
    save_states(cli, documents, protocol)
    words = ("state", "rewind", "shop", "--stream", "b", "--field", "value", "--json", "--to")
    assert cli(*words, "10").error["code"] == "state.cursor_ahead"
    assert exported(cli) == documents
    done = cli(*words, "4")
    assert done.code == 0, done.out
    documents[1]["cursor_value"]["value"] = 4
    assert exported(cli) == documents


def test_the_way_past_a_refusal_names_stream_and_field_as_they_were_named(cli: Cli) -> None:
    state = [stream_state("a b", {"x": {"id": 9}, "page": 3}, "my.ns")]
    save_states(cli, state)
    named = json.dumps({"namespace": "my.ns", "name": "a b"})
    done = cli(
        "state", "rewind", "shop", "--stream", named, "--to", "10", "--field", "x.id", "--json"
    )
    assert done.error["code"] == "state.cursor_ahead"
    assert cli(*shlex.split(done.error["hint"].split("`")[1])[1:]).code == 0
    assert exported(cli)[0]["stream"]["stream_state"] == {"x": {"id": 10}, "page": 3}
