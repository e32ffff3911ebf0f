"""Connectors written with ``penstock.sdk`` against a scripted host: every message of both dialects
(issue 12, part 8)."""

import dataclasses
import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypedDict

import jsonschema_rs
import msgspec
import pytest

from penstock.sdk import (
    Backoff,
    Connector,
    Enricher,
    Halt,
    RateLimitError,
    RowError,
    StreamWriter,
)
from penstock.sdk.schema import DRAFT, json_schema
from penstock.sdk.testing import Dialect, ScriptedHost

EXAMPLES = Path(__file__).parents[2] / "examples" / "sdk"
QUICK = Backoff(first=0.01, total=0.1)


class Credentials(TypedDict):
    token: str


class Options(TypedDict, total=False):
    mode: str


@dataclasses.dataclass
class Contact:
    id: int
    email: str | None = None


class Kept(StreamWriter):
    """Keeps what it is given, for the test to see."""

    name, row, options, batch_size = "contacts", Contact, Options, 3
    calls: ClassVar[list[Any]] = []

    def open(self) -> None:
        sync = self.sync
        seen = (sync.credentials, sync.options, sync.sync_id, sync.full_refresh)
        self.calls.append(("open", *seen))

    def write(self, rows: list[Contact]) -> None:
        self.calls.append([(row.id, row.email) for row in rows])
        for row in rows:
            if row.email == "bad":
                self.reject(row, "no such address")
            if row.email == "same":
                self.skip(row, "nothing new")

    def close(self) -> None:
        self.calls.append("close")


class Twice(Enricher):
    def enrich(self, row: dict[str, Any]) -> Any:
        return [row] * row["times"] if "times" in row else {**row, "one": True}


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    Kept.calls.clear()


def connector(writer: type[StreamWriter] = Kept, **more: Any) -> Connector:
    return Connector(credentials=Credentials, streams=[writer], rate_limit=QUICK, **more)


@pytest.fixture(params=["code", "page"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param


def test_every_message_of_both_dialects(dialect: Dialect) -> None:
    host = ScriptedHost(connector(description="a CRM", enrichment=Twice), dialect=dialect)
    spec = host.describe()
    assert spec["roles"] == ["destination", "enrichment"] and spec["description"] == "a CRM"
    assert spec["connectionCredentials"]["required"] == ["token"]
    told = host.describe_streams({"token": "t"})
    assert told["defaultStream"] == "contacts" and told["roles"] == spec["roles"]
    (stream,) = told["streams"]
    assert stream["rowType"]["properties"].keys() == {"id", "email"}
    assert stream["streamOptions"]["properties"] == {"mode": {"type": "string"}}
    for schema in (spec["connectionCredentials"], stream["rowType"], stream["streamOptions"]):
        assert schema["$schema"] == DRAFT and schema["type"] == "object"
        jsonschema_rs.Draft7Validator(schema)
    emails = ["a", "bad", "b", "same", "c"]
    rows: list[Any] = [{"id": n, "email": e, "more": n} for n, e in enumerate(emails)]
    outcome = host.sync(
        rows, credentials={"token": "t"}, options={"mode": "x"}, sync_id="s1", full_refresh=True
    )
    assert outcome.result == {"received": 5, "skipped": 1, "success": 3, "failed": 1}
    assert Kept.calls == [
        ("open", {"token": "t"}, {"mode": "x"}, "s1", True),
        [(0, "a"), (1, "bad"), (2, "b")],
        [(3, "same"), (4, "c")],
        "close",
    ]
    assert ("error", "a row was rejected: no such address") in outcome.logs
    rows = [{"id": 1}, {"times": 2}, {"times": 0}]
    assert host.enrich(rows, credentials={"token": "t"}) == [
        [{"id": 1, "one": True}],
        [{"times": 2}, {"times": 2}],
        [],
    ]


def test_a_stream_without_rows_is_opened_and_closed() -> None:
    outcome = ScriptedHost(connector()).sync([], credentials={"token": "t"})
    assert outcome.result == {"received": 0, "skipped": 0, "success": 0, "failed": 0}
    assert [str(call)[:7] for call in Kept.calls] == ["('open'", "close"]


def test_a_row_that_does_not_fit_fails_alone() -> None:
    rows: list[Any] = [{"id": "one"}, {"id": 2}, {}, "row", None]
    outcome = ScriptedHost(connector()).sync(rows, credentials={"token": "t"})
    assert outcome.result == {"received": 5, "skipped": 0, "success": 1, "failed": 4}
    assert any("row 1 does not fit" in text for _, text in outcome.logs)


class Broken(Kept):
    def write(self, rows: list[Contact]) -> None:
        if any(row.id == 4 for row in rows):
            raise OSError("connection reset")


def test_a_batch_that_raises_is_failed_whole_and_the_stream_goes_on() -> None:
    rows = [{"id": n} for n in range(10)]
    outcome = ScriptedHost(connector(Broken)).sync(rows, credentials={"token": "t"})
    assert outcome.result == {"received": 10, "skipped": 0, "success": 7, "failed": 3}
    assert ("error", "3 rows failed: OSError: connection reset") in outcome.logs


# -- rate limits


class Limited(Kept):
    refusals: ClassVar[int] = 2

    def write(self, rows: list[Contact]) -> None:
        self.reject(rows[0], "of an attempt that does not count")
        if type(self).refusals:
            type(self).refusals -= 1
            raise RateLimitError("slow down", headers={"Retry-After": "0"})
        self.take_counts()
        super().write(rows)


def test_a_rate_limit_is_waited_out_and_the_rows_come_once() -> None:
    Limited.refusals = 2
    host = ScriptedHost(dataclasses.replace(connector(Limited), rate_limit=Backoff(total=5)))
    outcome = host.sync([{"id": n} for n in range(3)], credentials={"token": "t"})
    assert outcome.result == {"received": 3, "skipped": 0, "success": 3, "failed": 0}
    assert Kept.calls[1:] == [[(0, None), (1, None), (2, None)], "close"]
    assert [level for level, _ in outcome.logs] == ["warn", "warn"]


def test_l11_a_rate_limit_that_does_not_end_halts() -> None:
    Limited.refusals = 1000
    outcome = ScriptedHost(connector(Limited)).sync([{"id": 1}] * 3, credentials={"token": "t"})
    assert outcome.result is None and outcome.halt is not None
    assert "rate limited for longer than 0.1 s" in outcome.halt["message"]


def test_back_off_doubles_to_its_longest_and_heeds_the_service() -> None:
    waits = Backoff(first=1, longest=4, total=13).waits()
    bare = RateLimitError("x")
    assert [waits.after(bare) for _ in range(5)] == [1, 2, 4, 4, None]
    waits = Backoff(total=100).waits()
    assert waits.after(RateLimitError("x", retry_after=90)) == 90
    assert waits.after(RateLimitError("x", headers={"retry-after": "11"})) is None
    past = RateLimitError("x", headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})
    assert waits.after(past) == 0.1
    assert RateLimitError("x", headers={"Retry-After": "soon"}).retry_after is None


# -- halts


class Halting(Kept):
    def write(self, rows: list[Contact]) -> None:
        raise Halt("the account is closed", ok=rows[0].id > 100)


@pytest.mark.parametrize(("first", "status"), [(1, "error"), (101, "ok")])
def test_after_a_halt_end_stream_is_answered_with_the_halt(first: int, status: str) -> None:
    rows = [{"id": n} for n in range(first, first + 9)]
    outcome = ScriptedHost(connector(Halting)).sync(rows, credentials={"token": "t"})
    halt = {"status": status, "message": "the account is closed"}
    assert outcome.of("halt") == [halt, halt] and outcome.result is None
    assert outcome.replies[-1] == {"type": "halt", "payload": halt}


class NoDoor(Kept):
    def open(self) -> None:
        raise OSError("no route")


class NoEnd(Kept):
    def close(self) -> None:
        raise OSError("flush failed")


class Strict(Enricher):
    row = Contact

    def enrich(self, row: Contact) -> Any:
        if row.email == "bad":
            raise RowError("no such address")
        return {"id": row.id, "known": True}


@pytest.mark.parametrize("dialect", ["code", "page"])
def test_a_row_that_cannot_be_enriched_says_why_and_the_others_go_on(dialect: Dialect) -> None:
    host = ScriptedHost(Connector(enrichment=Strict), dialect=dialect)
    rows = [{"id": 1, "email": "a"}, {"id": 2, "email": "bad"}, {"id": "x"}, {"id": 4, "email": ""}]
    assert [bool(found) for found in host.enrich(rows)] == [True, False, False, True]
    assert host.row_errors[1] == "no such address" and "does not fit" in host.row_errors[2]


class Silent(Enricher):
    def enrich(self, row: Any) -> Any:
        return None


def test_what_cannot_go_on_halts_and_says_why() -> None:
    def halt(made: Connector, **how: Any) -> str:
        how = {"credentials": {"token": "t"}, **how}
        found = ScriptedHost(made).sync([{"id": 1}], **how).halt
        assert found is not None and found["status"] == "error"
        return found["message"]

    assert "no stream 'other'; there are: contacts" in halt(connector(), stream="other")
    assert "the credentials do not fit" in halt(connector(), credentials={"token": 1})
    assert "the options do not fit" in halt(connector(), options={"mode": 1})
    assert halt(connector(NoDoor)) == "OSError: no route"
    assert halt(connector(NoEnd)) == "OSError: flush failed"
    with pytest.raises(AssertionError, match="return the row, or"):
        ScriptedHost(Connector(enrichment=Silent)).enrich([{}])


@pytest.mark.parametrize("raw", [b"{nope\n", b"\xff\n", b'{"type":"row","payload":{"row":\n'])
def test_l8_a_line_that_cannot_be_read_halts_and_is_not_passed_over(raw: bytes) -> None:
    start = {"type": "start-stream", "payload": {"stream": "contacts", "syncId": "s"}}
    start["payload"]["connectionCredentials"] = {"success": True, "data": {"token": "t"}}
    end = {"type": "end-stream", "reason": "success"}
    outcome = ScriptedHost(connector()).converse([start, raw, end])
    assert outcome.result is None and len(outcome.of("halt")) == 2


def test_blank_lines_unknown_messages_and_odd_order_do_no_harm() -> None:
    host = ScriptedHost(connector(enrichment=Twice))
    outcome = host.converse([b"\n", b" \n", {"type": "surprise"}, {"type": "describe"}, b"[]\n"])
    assert [reply["type"] for reply in outcome.replies] == ["log", "spec", "log"]
    for message in ("row", "end-stream", "enrichment-request"):
        assert "before" in (host.converse([{"type": message}]).halt or {})["message"]
    empty = {"type": "describe-streams", "payload": {"credentials": {"$empty": True}}}
    assert host.converse([empty]).of("stream-spec")


def test_what_is_printed_and_logged_becomes_log_messages() -> None:
    class Talking(Kept):
        def write(self, rows: list[Contact]) -> None:
            import logging

            print("printed\nin two lines")
            print("to stderr", file=sys.stderr)
            logging.getLogger("any").warning("logged %d", len(rows))

    outcome = ScriptedHost(connector(Talking)).sync([{"id": 1}], credentials={"token": "t"})
    wanted = [("info", "printed"), ("info", "in two lines"), ("warn", "to stderr")]
    assert outcome.logs == [*wanted, ("warn", "logged 1")]


# -- schemas


class Part(msgspec.Struct):
    """A part of it."""

    size: Annotated[int, msgspec.Meta(ge=0, extra_json_schema={"x-secret": True})]
    of: "list[Part]" = []


class Whole(TypedDict):
    pair: tuple[int, str]
    parts: list[Part]
    other: dict[str, float] | None


def test_schemas_are_of_draft_7_and_have_no_other_keyword() -> None:
    schema = json_schema(Whole)
    text = json.dumps(schema)
    assert schema["$schema"] == DRAFT and schema["type"] == "object"
    for other in ("prefixItems", "$defs", "x-secret", "discriminator"):
        assert other not in text
    valid = jsonschema_rs.Draft7Validator(schema)
    part = {"size": 1, "of": [{"size": 2, "of": []}]}
    assert valid.is_valid({"pair": [1, "a"], "parts": [part], "other": None})
    assert not valid.is_valid({"pair": [1, "a", 2], "parts": [], "other": None})
    assert not valid.is_valid({"pair": [1, "a"], "parts": [{"size": -1}], "other": None})
    assert json_schema({"type": "object"})["$schema"] == DRAFT
    assert json_schema(Part)["description"] == "A part of it."
    with pytest.raises(TypeError, match="draft 7"):
        json_schema({"$schema": "https://json-schema.org/draft/2020-12/schema"})


# -- as processes


def run_code(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_sdk_is_light_to_import() -> None:
    """In CPU seconds, so that a busy machine does not decide."""
    code = """
    import sys, time
    began = time.process_time()
    import penstock.sdk
    print(time.process_time() - began)
    heavy = {"pyspark", "duckdb", "pyarrow", "sqlalchemy", "typer", "asyncio", "http.client"}
    assert not heavy & set(sys.modules), heavy & set(sys.modules)
    ours = {m for m in sys.modules if m.startswith("penstock.")}
    assert all(m.startswith("penstock.sdk") for m in ours), ours
    """
    assert min(float(run_code(code)) for _ in range(4)) < 0.15


class Received(BaseHTTPRequestHandler):
    bodies: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        refused = not self.bodies and b"limit" in body
        self.bodies.append(None if refused else json.loads(body))
        self.send_response(429 if refused else 200)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


@pytest.fixture
def address() -> Iterator[str]:
    Received.bodies.clear()
    server = HTTPServer(("127.0.0.1", 0), Received)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_the_example_destination_is_a_process(address: str, dialect: Dialect) -> None:
    host = ScriptedHost([sys.executable, str(EXAMPLES / "webhook.py")], dialect=dialect)
    assert host.describe()["roles"] == ["destination"]
    rows = [{"id": n, "email": f"limit{n}@x.io", "extra": "é🐟"} for n in range(250)]
    outcome = host.sync([*rows, {"id": "bad"}], credentials={"url": address})
    assert outcome.result == {"received": 251, "skipped": 0, "success": 250, "failed": 1}
    refused, *batches = Received.bodies
    assert refused is None and [len(batch) for batch in batches] == [100, 100, 50]
    assert batches[2][-1] == {"id": 249, "email": "limit249@x.io"}


def test_the_example_enrichment_is_a_process(dialect: Dialect) -> None:
    host = ScriptedHost([sys.executable, str(EXAMPLES / "domains.py")], dialect=dialect)
    assert host.describe()["roles"] == ["enrichment"]
    rows = [{"mail": "a@X.io"}, {"mail": "b@x.io"}, {"mail": None}]
    first, second, none = host.enrich(rows, options={"field": "mail"})
    assert first == [{"mail": "a@X.io", "domain": "x.io", "is_new": True}]
    assert second[0]["is_new"] is False and none == []


NOISY = """
import os, subprocess, sys
from penstock.sdk import Connector, StreamWriter, run

class Rows(StreamWriter):
    name = "rows"
    def write(self, rows):
        subprocess.run(["echo", "a child speaks"])
        os.write(1, b"so do bytes\\n")
        print("x" * 100_000)

run(Connector(streams=[Rows]))
"""


def test_nothing_but_messages_reaches_stdout() -> None:
    outcome = ScriptedHost([sys.executable, "-c", NOISY]).sync([{}], stream="rows")
    assert outcome.result == {"received": 1, "skipped": 0, "success": 1, "failed": 0}
    assert [text[:3] for _, text in outcome.logs] == ["xxx"]


def test_a_process_ends_with_its_host() -> None:
    start = '{"type":"start-stream","payload":{"stream":"rows","connectionCredentials":{}}}\n'
    code = "from penstock.sdk import *\nclass R(StreamWriter):\n  name='rows'\n  write=print\n"
    command = [sys.executable, "-c", f"{code}run(Connector(streams=[R]))"]
    idle = subprocess.run(command, input="", capture_output=True, text=True, timeout=30)
    assert (idle.returncode, idle.stdout) == (0, "")
    cut = subprocess.run(command, input=start, capture_output=True, text=True, timeout=30)
    assert cut.returncode == 1 and "ended before end-stream" in cut.stdout
    live = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert live.stdin is not None and live.stdout is not None
    live.stdin.write(b'{"type":"describe"}\n')
    live.stdin.flush()
    assert b'"spec"' in live.stdout.readline()
    live.terminate()
    assert live.wait(10) == 0 and live.stdout.read() == b""
