"""Sources and destinations written from the pages of Airbyte's specification alone."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from connector_sites import Push
from pipelines import Ran, Site

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]
STUB = Path(__file__).parents[1] / "stubs" / "page_source.py"
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "v": {"type": "string"}}}


class Page:
    """A site whose source prints what is written into its folder."""

    def __init__(self, site: Site) -> None:
        self.site, self.folder = site, site.folder / "source"
        self.folder.mkdir()

    def prints(self, command: str, *messages: Any) -> None:
        lines = (m if isinstance(m, str) else json.dumps(m) for m in messages)
        (self.folder / f"{command}.out").write_text("".join(f"{line}\n" for line in lines))

    def offers(self, *streams: dict[str, Any]) -> None:
        listed = [{"json_schema": SCHEMA, **stream} for stream in streams]
        self.prints("discover", {"type": "CATALOG", "catalog": {"streams": listed}})

    def run(self, **parts: Any) -> Ran:
        use = f"airbyte:{shlex.join([sys.executable, str(STUB), str(self.folder)])}"
        return self.site.run(use=use, **parts)

    def given(self) -> list[dict[str, Any]]:
        """What each read was given: its catalog and its state."""
        text = (self.folder / "given.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def ids(self, table: str) -> list[int]:
        return [row["id"] for row in self.site.rows(table, "id")]


@pytest.fixture
def page(site: MakeSite) -> Page:
    return Page(site())


def record(stream: str, id: int, **more: Any) -> dict[str, Any]:
    body = {"stream": stream, "data": {"id": id, "v": f"v{id}"}, "emitted_at": 1700000000000}
    return {"type": "RECORD", "record": {**body, **more}}


def state(name: str, cursor: int, **namespace: Any) -> dict[str, Any]:
    own = {"stream_descriptor": {"name": name, **namespace}, "stream_state": {"id": cursor}}
    return {"type": "STATE", "state": {"type": "STREAM", "stream": own}}


INCREMENTAL = {
    "supported_sync_modes": ["full_refresh", "incremental"],
    "source_defined_cursor": True,
    "default_cursor_field": ["id"],
}


# -- StreamDescriptor: "Any UTF-8 string value is valid, including the empty string"


def test_streams_of_the_empty_namespace_and_of_none_are_two(page: Page) -> None:
    page.offers({"name": "users", **INCREMENTAL}, {"name": "users", "namespace": "", **INCREMENTAL})
    page.prints(
        "read",
        record("users", 1),
        record("users", 11, namespace=""),
        record("users", 2, namespace=None),
        state("users", 2),
        record("users", 12, namespace=""),
        state("users", 12, namespace=""),
    )
    ran = page.run()
    assert ran.status == "succeeded"
    assert ran.counts("users") == ("complete", 2, 2, 0)
    assert ran.counts("users", "") == ("complete", 2, 2, 0)
    (own,) = [table for table in page.site.tables() if table != "users"]
    assert (page.ids("users"), page.ids(own)) == ([1, 2], [11, 12])
    page.prints("read", state("users", 2), state("users", 12, namespace=""))
    page.run()
    given = {
        entry["stream"]["stream_descriptor"].get("namespace"): entry["stream"]["stream_state"]
        for entry in page.given()[-1]["state"]
    }
    assert given == {None: {"id": 2}, "": {"id": 12}}
    asked = [s["stream"].get("namespace") for s in page.given()[-1]["catalog"]["streams"]]
    assert sorted(asked, key=str) == ["", None]


@pytest.mark.parametrize("spelled", [{}, {"namespace": None}, {"namespace": ""}])
def test_a_stream_of_one_spelling_takes_records_and_states_of_either(
    page: Page, spelled: dict[str, Any]
) -> None:
    page.offers({"name": "users", **spelled, **INCREMENTAL})
    either = [record("users", 1), record("users", 2, namespace="")]
    page.prints("read", *either, state("users", 2, namespace=""))
    ran = page.run()
    assert ran.counts("users") == ("complete", 2, 2, 0)
    page.prints("read", record("users", 3, namespace=None), state("users", 3))
    page.run()
    assert page.site.tables() == ["users"]
    assert page.ids("users") == [1, 2, 3]
    (given,) = page.given()[-1]["state"]
    assert given["stream"]["stream_state"] == {"id": 2}


@pytest.mark.parametrize("before", [None, ""])
def test_a_home_of_one_stream_goes_on_where_the_source_has_both(
    page: Page, before: str | None
) -> None:
    """Yesterday's home: the id, the table and the state of none stay. A state that is the other
    stream's is given to neither, since the new table lacks what it covers."""
    users = {"name": "users", **INCREMENTAL}
    page.offers({**users, "namespace": before})
    page.prints("read", record("users", 1, namespace=before), state("users", 1, namespace=before))
    page.run()
    page.offers(
        {**users, "namespace": before}, {**users, "namespace": "" if before is None else None}
    )
    page.prints(
        "read",
        *(record("users", 2, namespace=n) for n in (None, "")),
        *(state("users", 2, namespace=n) for n in (None, "")),
    )
    second = page.run()
    second.noted("stream .users", "which were one until now", "the table of users may hold rows")
    given = page.given()[-1]["state"]
    assert [e["stream"]["stream_state"] for e in given or []] == (
        [{"id": 1}] if before is None else []
    )
    (own,) = [table for table in page.site.tables() if table != "users"]
    assert (page.ids("users"), page.ids(own)) == ([1, 2], [2])
    page.offers({**users, "namespace": ""})  # the other one is gone
    page.prints("read", record("users", 3), record("users", 4, namespace=""))
    third = page.run()
    assert not [n for n in third.notes if "one until now" in n]
    names = [entry["stream"]["stream_descriptor"] for entry in page.given()[-1]["state"]]
    assert {"name": "users", "namespace": ""} in names
    assert (page.ids("users"), page.ids(own)) == ([1, 2], [2, 3, 4])


def test_one_of_two_streams_of_a_name_is_chosen(page: Page) -> None:
    page.offers({"name": "users"}, {"name": "users", "namespace": ""})
    page.prints("read", record("users", 1), record("users", 2, namespace=""))
    ran = page.run(streams=[{"name": ".users"}])
    assert [(s.namespace, s.name, s.read) for s in ran.report.streams] == [("", "users", 1)]
    (table,) = page.site.tables()
    assert page.ids(table) == [2]


# -- Interface Invariants: "Messages not wrapped in the AirbyteMessage must be dropped"


def pretty(message: dict[str, Any]) -> str:
    return json.dumps(message, indent=2)


def test_json_that_is_no_message_fails_no_stream(page: Page) -> None:
    """An overwritten stream that has no rows today is complete and empty, whatever was printed."""
    page.offers({"name": "users"})
    page.prints("read", record("users", 1))
    page.run()
    bare = record("users", 2)["record"]
    page.prints("read", {"record": bare}, [record("users", 3)], bare, {"log": record("users", 4)})
    ran = page.run()
    assert (ran.status, ran.counts("users")) == ("succeeded", ("complete", 0, 0, 0))
    assert ran.noted("(not_a_message)").startswith("4 JSON lines ")
    assert page.ids("users") == []


def test_pretty_printed_answers_are_read_and_parts_of_records_are_named(page: Page) -> None:
    """The pages print them so. A record over several lines is no message: it is seen as a reject,
    and nothing of its stream is published (L9)."""
    spec = {"connectionSpecification": {"type": "object", "properties": {}}}
    status = {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}}
    streams = [{"name": "users", "json_schema": {"anyOf": [{"type": "null"}, SCHEMA], **SCHEMA}}]
    page.prints("spec", "Loading {", pretty({"type": "SPEC", "spec": spec}))
    page.prints("check", pretty(status))
    page.prints("discover", pretty({"type": "CATALOG", "catalog": {"streams": streams}}), "done")
    page.prints("read", record("users", 1))
    assert page.run().counts("users") == ("complete", 1, 1, 0)
    page.prints("read", pretty(record("users", 2)))
    ran = page.run()
    lines = pretty(record("users", 2)).count("\n") + 1
    note = ran.noted("part_of_a_message_spread_over_lines")
    assert note == f"part_of_a_message_spread_over_lines: {lines}"
    assert ran.status == "failed" and page.ids("users") == [1]
    (reject,) = page.site.rejects()
    assert json.loads(reject["bytes"]) == record("users", 2)


# -- AirbyteStateMessage V1 and V2


@pytest.mark.parametrize("form", ["state_type", "data"])
def test_a_state_in_the_pages_words_reaches_the_destination_and_comes_back(
    page: Page, form: str
) -> None:
    """``state_type``, and V1's ``data`` alone: as they were sent, in both directions."""
    own: dict[str, Any] = {"data": {"users": {"id": 2}}}
    if form == "state_type":
        own = state("users", 2)["state"]
        own["state_type"] = own.pop("type")
    page.offers({"name": "users", **INCREMENTAL})
    page.prints("read", record("users", 1), record("users", 2), {"type": "STATE", "state": own})
    push = Push(page.site, "airbyte")
    for _ in range(2):
        ran = page.run(destination={"use": push.destination(), "config": {}})
        assert ran.status == "succeeded"
    sent = push.runs()[0].states()[0]
    added = {"type": "STREAM"} if form == "state_type" else {}
    assert {k: v for k, v in sent.items() if k not in ("id", "sourceStats")} == {**own, **added}
    given = page.given()[1]["state"]
    assert given == ([{**own, "type": "STREAM"}] if form == "state_type" else own["data"])


# -- Common Interface: every command may send LOGs


def test_logs_of_spec_and_discover_stand_in_the_log(page: Page) -> None:
    log = {"type": "LOG", "log": {"level": "WARN", "message": "slow today"}}
    spec = {"connectionSpecification": {"type": "object", "properties": {}}}
    trace = {"type": "ERROR", "emitted_at": 1, "error": {"message": "tried twice"}}
    page.prints("spec", {**log, "log": {"level": "INFO", "message": "spec says"}},
                {"type": "SPEC", "spec": spec})  # fmt: skip
    page.offers({"name": "users"})
    offered = (page.folder / "discover.out").read_text()
    page.prints("discover", log, {"type": "TRACE", "trace": trace}, offered.strip(), "bye")
    page.prints("read", record("users", 1))
    ran = page.run()
    kept = (page.site.home.run(ran.report.run) / "log.jsonl").read_text()
    said = [json.loads(line) for line in kept.splitlines()]
    for text in ("spec says", "slow today", "tried twice", "text_line: bye"):
        assert [line for line in said if text in json.dumps(line)], text
