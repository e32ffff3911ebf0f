"""Sources written with ``penstock.sdk``, asked as an Airbyte host asks: a command, files, lines."""

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

ORDERS = Path(__file__).parents[2] / "examples" / "sdk" / "orders.py"
SEVERAL = """
import dataclasses, datetime, logging, sys, time
from penstock.sdk import Checkpoint, Connector, Secret, StreamReader, run
from typing import TypedDict

class Config(TypedDict, total=False):
    api_key: Secret
    limit: int

@dataclasses.dataclass
class Page:
    n: int
    at: datetime.date

class Pages(StreamReader):
    name, row, cursor = "pages", Page, "n"
    def read(self, since):
        print("printed")
        logging.warning("warned")
        for n in range((since or 0) + 1, self.config.get("limit", 5) + 1):
            yield Page(n, datetime.date(2026, 1, n))
            if n % 2 == 0:
                yield Checkpoint(n)

class InOrder(StreamReader):
    name, row, cursor = "in order", Page, "n"
    def read(self, since):
        yield Checkpoint()  # before any row
        for n in range((since or 0) + 1, self.config.get("limit", 5) + 1):
            yield Page(n, datetime.date(2026, 1, n))
            if n % 2 == 0:
                yield Checkpoint()

class Without(StreamReader):
    name = "without"
    def read(self, since):
        yield Checkpoint()

class Broken(StreamReader):
    name = "broken"
    def read(self, since):
        yield {"a": 1}
        raise RuntimeError("the service is away")

class Odd(StreamReader):
    name = "odd"
    def read(self, since):
        yield [1]

class Slow(StreamReader):
    name = "slow"
    def read(self, since):
        yield {"a": 1}
        yield Checkpoint(1)
        time.sleep(60)

run(Connector(credentials=Config, sources=[Pages, InOrder, Without, Broken, Odd, Slow]))
"""


class Asked:
    def __init__(self, folder: Path, program: Path) -> None:
        self.folder = folder
        self.command = [sys.executable, str(program)]

    def file(self, name: str, content: Any) -> str:
        path = self.folder / name
        path.write_text(json.dumps(content))
        return str(path)

    def words(self, config: Any, *streams: str, mode: str = "incremental", **state: Any) -> Any:
        """Of a ``read``; ``state``: stream -> the state of it."""
        entries = [{"stream": {"name": s, "json_schema": {}}, "sync_mode": mode} for s in streams]
        found = ["read", "--config", self.file("config.json", config)]
        found += ["--catalog", self.file("catalog.json", {"streams": entries})]
        if state:
            told = [
                {
                    "type": "STREAM",
                    "stream": {"stream_descriptor": {"name": name}, "stream_state": kept},
                }
                for name, kept in state.items()
            ]
            found += ["--state", self.file("state.json", told)]
        return found

    def __call__(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        done = subprocess.run([*self.command, *words], capture_output=True, timeout=60)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def read(self, *a: Any, **kw: Any) -> tuple[int, list[dict[str, Any]]]:
        return self(*self.words(*a, **kw))


def records(messages: list[dict[str, Any]]) -> list[Any]:
    return [m["record"]["data"] for m in messages if m["type"] == "RECORD"]


def states(messages: list[dict[str, Any]]) -> list[Any]:
    return [m["state"]["stream"]["stream_state"] for m in messages if m["type"] == "STATE"]


def statuses(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    told = [m["trace"].get("stream_status") for m in messages if m["type"] == "TRACE"]
    return [(t["stream_descriptor"]["name"], t["status"]) for t in told if t]


def errors(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    told = [m["trace"].get("error") for m in messages if m["type"] == "TRACE"]
    return [(t["failure_type"], t["message"]) for t in told if t]


@pytest.fixture
def several(tmp_path: Path) -> Asked:
    program = tmp_path / "several.py"
    program.write_text(textwrap.dedent(SEVERAL))
    return Asked(tmp_path, program)


def test_a_source_of_twenty_lines_reads_what_is_new(tmp_path: Path) -> None:
    """The greatest cursor of its rows is its state."""
    orders = Asked(tmp_path, ORDERS)
    given = tmp_path / "given"
    given.mkdir()
    config = {"folder": str(given)}
    rows = [{"id": n, "total": n / 2, "changed": f"2026-01-0{n}"} for n in (2, 1, 3)]
    (given / "1.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    code, (found,) = orders("discover", "--config", orders.file("c.json", config))
    (stream,) = found["catalog"]["streams"]
    assert (code, stream["name"], stream["source_defined_primary_key"]) == (0, "orders", [["id"]])
    assert (stream["default_cursor_field"], stream["source_defined_cursor"]) == (["changed"], True)
    assert stream["supported_sync_modes"] == ["full_refresh", "incremental"]
    assert stream["json_schema"]["properties"]["total"] == {"type": "number"}
    code, first = orders.read(config, "orders")
    assert (code, records(first)) == (0, rows)
    assert statuses(first) == [("orders", s) for s in ("STARTED", "RUNNING", "COMPLETE")]
    (kept,) = states(first)
    (given / "2.jsonl").write_text(json.dumps({**rows[0], "changed": "2026-01-04"}) + "\n")
    code, second = orders.read(config, "orders", orders=kept)
    assert [r["changed"] for r in records(second)] == ["2026-01-04"]
    code, third = orders.read(config, "orders", orders=states(second)[0])
    assert (code, records(third), states(third)) == (0, [], [])
    code, again = orders.read(config, "orders", mode="full_refresh", orders=kept)
    assert (len(records(again)), states(again)) == (4, [])


def test_a_check_says_what_is_wrong(tmp_path: Path) -> None:
    orders = Asked(tmp_path, ORDERS)

    def checked(config: Any) -> Any:
        code, (message,) = orders("check", "--config", orders.file("c.json", config))
        assert code == 0
        return message["connectionStatus"]

    assert checked({"folder": str(tmp_path)}) == {"status": "SUCCEEDED"}
    assert checked({"folder": "/no/such"}) == {
        "status": "FAILED",
        "message": "/no/such is no folder",
    }
    assert "required field `folder`" in checked({})["message"]


def test_l10_a_secret_is_declared_and_no_value_is_told(several: Asked) -> None:
    _, (found,) = several("spec")
    properties = found["spec"]["connectionSpecification"]["properties"]
    assert properties["api_key"]["airbyte_secret"] is True
    code, messages = several.read({"api_key": "hush", "limit": "hush"}, "pages")
    assert (code, errors(messages)[0][0]) == (1, "config_error")
    assert "hush" not in json.dumps(messages)


def test_checkpoints_are_states_and_what_is_printed_is_logged(several: Asked) -> None:
    code, messages = several.read({}, "pages", pages={"checkpoint": 1})
    assert (code, [r["n"] for r in records(messages)]) == (0, [2, 3, 4, 5])
    assert records(messages)[0]["at"] == "2026-01-02"
    assert states(messages) == [{"checkpoint": 2}, {"checkpoint": 4}]
    counts = [m["state"]["sourceStats"]["recordCount"] for m in messages if m["type"] == "STATE"]
    assert counts == [1, 2]
    logs = [(m["log"]["level"], m["log"]["message"]) for m in messages if m["type"] == "LOG"]
    assert logs[:2] == [("INFO", "printed"), ("WARN", "warned")]


def test_a_checkpoint_without_a_value_is_the_greatest_cursor(several: Asked) -> None:
    """The rows after the last one are covered too; where a checkpoint has a value of its own, they
    come again, which is logged."""
    code, told = several.read({"api_key": "k"}, "in order")
    assert code == 0 and [s["checkpoint"] for s in states(told)] == [2, 4, 5]
    code, told = several.read({"api_key": "k"}, "in order", **{"in order": {"checkpoint": 5}})
    assert (code, records(told), states(told)) == (0, [], [])
    code, told = several.read({"api_key": "k"}, "pages")
    logged = [m["log"] for m in told if m["type"] == "LOG" and m["log"]["level"] == "WARN"]
    assert "pages: 1 rows after the last Checkpoint come again" in logged[-1]["message"]
    code, told = several.read({"api_key": "k"}, "without")
    assert code == 1 and "needs a stream with a cursor" in errors(told)[0][1]


def test_a_stream_that_fails_is_told_and_the_others_go_on(several: Asked) -> None:
    code, messages = several.read({"limit": 1}, "broken", "odd", "pages", mode="full_refresh")
    assert code == 1
    ends = [s for s in statuses(messages) if s[1] in ("COMPLETE", "INCOMPLETE")]
    assert ends == [("broken", "INCOMPLETE"), ("odd", "INCOMPLETE"), ("pages", "COMPLETE")]
    assert errors(messages) == [
        ("system_error", "the service is away"),
        ("system_error", "a row is a list, no object"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("catalog.json", {"streams": [{"stream": {"name": "x"}, "sync_mode": "y"}]}, "no stream"),
        ("catalog.json", [], "not of the protocol"),
        ("state.json", [{"type": "STREAM"}], "not of the protocol"),
        ("state.json", {"pages": {"id": 7}}, "a LEGACY state"),
        ("config.json", [1], "does not fit"),
    ],
)
def test_what_cannot_be_worked_with_is_the_users_to_mend(
    several: Asked, name: str, content: Any, words: str
) -> None:
    asked = several.words({}, "pages", pages={})
    several.file(name, content)
    code, messages = several(*asked)
    ((kind, message),) = errors(messages)
    assert (code, kind) == (1, "config_error")
    assert words in message


def test_l5_a_source_that_is_stopped_does_not_look_as_if_it_were_done(several: Asked) -> None:
    process = subprocess.Popen(
        [*several.command, *several.words({}, "slow", mode="incremental")], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    while b'"STATE"' not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    process.stdout.close()
