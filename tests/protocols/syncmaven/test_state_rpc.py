"""The state RPC over HTTP: both dialects, who may call, hostile clients, lists of any length
(issue 12, part 3; the page, "State management")."""

import http.client
import json
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.errors import StateError
from penstock.model.catalog import StreamId
from penstock.protocols.syncmaven import state_rpc_app
from penstock.protocols.syncmaven.state_rpc import StateServer
from penstock.store.keys import (
    PATH,
    SHARED,
    CoveredKeys,
    KeyAddress,
    KeyPort,
    MemoryKeys,
    push_task,
)
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.store.task_keys import keys_url, open_keys

CONTACTS = StreamId(None, "contacts")


class Client:
    """One connection. ``bearer``: None: it sends none, as clients of other makes do."""

    def __init__(self, server: StateServer, bearer: str | None = "RPC_TOKEN") -> None:
        given = server.environment()
        url = urlsplit(given["RPC_URL"])
        self.path = url.path
        self.headers = {"Content-Type": "application/json"}
        if bearer is not None:
            self.headers["Authorization"] = f"Bearer {given.get(bearer, bearer)}"
        self.connection = http.client.HTTPConnection(str(url.hostname), url.port or 0, timeout=30)

    def send(
        self, method: str, body: Any, *, path: str | None = None, verb: str = "POST"
    ) -> http.client.HTTPResponse:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        path = self.path if path is None else path
        self.connection.request(verb, f"{path}/{method}", raw, self.headers)
        return self.connection.getresponse()

    def call(self, method: str, **body: Any) -> Any:
        answer = self.send(f"state.{method}", body)
        raw = answer.read()
        assert answer.status == 200, raw
        if answer.getheader("Content-Type") == "application/x-ndjson":
            return [json.loads(line) for line in raw.splitlines()]
        assert answer.getheader("Content-Type") == "application/json"
        return json.loads(raw)

    def refusal(self, method: str, body: Any, **how: Any) -> tuple[int, str]:
        answer = self.send(method, body, **how)
        told = json.loads(answer.read())
        assert set(told) == {"error"}
        return answer.status, told["error"]


@pytest.fixture
def keys() -> KeyPort:
    return MemoryKeys()


@pytest.fixture
def server(keys: KeyPort) -> Iterator[StateServer]:
    with StateServer(keys, stream=CONTACTS) as made:
        yield made


def test_the_pages_dialect_is_for_clients_with_the_secret(server: StateServer) -> None:
    client = Client(server, "RPC_SECRET")
    assert client.call("get", key="a") == {}
    for value in ({"x": 1}, "hello", [1, 2], 0, False, "", None, {}):
        assert client.call("set", key=["syncId=s", "a"], value=value) == {}
        assert client.call("get", key=["syncId=s", "a"]) == {"value": value}
    assert client.call("set", key="b", value=1) == {}
    assert client.call("get", key=["b"]) == {"value": 1}
    listed = [{"key": ["b"], "value": 1}, {"key": ["syncId=s", "a"], "value": {}}]
    assert client.call("list", prefix=[]) == listed
    assert client.call("size", prefix=[]) == {"size": 2}
    assert client.call("delete", key="b") == {"rowsDeleted": 1}
    assert client.call("delete", key="b") == {"rowsDeleted": 0}
    client.call("set", key=["syncId=s"], value=2)
    assert client.call("deleteAll", prefix="syncId=s") == {"rowsDeleted": 2}
    assert client.call("list", prefix="syncId=s") == []


@pytest.mark.parametrize("bearer", ["RPC_TOKEN", None])
def test_all_others_get_what_the_real_host_answers(server: StateServer, bearer: str | None) -> None:
    client = Client(server, bearer)
    assert client.call("get", key="a") == {}
    for value in ({"x": 1}, "hello", [1, 2], 0, False, "", None):
        assert client.call("set", key=["syncId=s", "a"], value=value) == {}
        assert client.call("get", key=["syncId=s", "a"]) == value
    client.call("set", key=["syncId=s", "b"], value=1)
    both = [{"key": ["syncId=s", "a"], "value": None}, {"key": ["syncId=s", "b"], "value": 1}]
    assert client.call("list", prefix="syncId=s") == both
    answer = client.send("state.list", {"prefix": "none"})
    assert answer.read() == b"" and answer.getheader("Content-Type") == "application/x-ndjson"
    client.call("del", key=["syncId=s", "a"])
    assert client.call("size", prefix=["syncId=s"]) == {"size": 1}
    client.call("deleteByPrefix", prefix=["syncId=s"])
    assert client.call("list", prefix=["syncId=s"]) == []


def test_a_client_of_the_page_may_ask_for_lines(server: StateServer) -> None:
    client = Client(server, "RPC_SECRET")
    client.call("set", key="a", value=1)
    client.headers["Accept"] = "application/x-ndjson"
    assert client.send("state.list", {"prefix": []}).read() == b'{"key":["a"],"value":1}\n'


def test_both_kinds_of_client_share_the_keys(server: StateServer) -> None:
    page, sdk = Client(server, "RPC_SECRET"), Client(server)
    sdk.call("set", key="a", value=[1])
    assert page.call("get", key="a") == {"value": [1]}
    assert page.call("delete", key="a") == {"rowsDeleted": 1} and sdk.call("get", key="a") == {}


def test_a_prefix_matches_whole_segments_and_is_no_pattern(server: StateServer) -> None:
    client = Client(server, "RPC_SECRET")
    keys = [["a"], ["a", "b"], ["ab"], ["A"], ['a"'], ["a,b"], ["a::b"], ["%"], ["a_"], ["é", "🐟"]]
    for key in keys:
        client.call("set", key=key, value=key)
    assert client.call("size", prefix=[]) == {"size": len(keys)}
    assert [e["key"] for e in client.call("list", prefix="a")] == [["a"], ["a", "b"]]
    assert [e["key"] for e in client.call("list", prefix=["é"])] == [["é", "🐟"]]
    assert client.call("list", prefix="") == client.call("list", prefix=[])
    for pattern in ("%", "a_"):
        assert [e["key"] for e in client.call("list", prefix=pattern)] == [[pattern]]
    assert client.call("deleteAll", prefix="a") == {"rowsDeleted": 2}
    assert sorted(e["key"] for e in client.call("list", prefix=[])) == sorted(keys[2:])


def test_values_keep_their_digits_and_break_no_line(server: StateServer) -> None:
    client = Client(server)
    value = b'{"n": 12345678901234567890.10,\n "big": 1e400, "t": "a\\nb\xc3\xa9"}'
    assert client.send("state.set", b'{"key":"a", "value": ' + value + b"}").read() == b"{}"
    kept = b'{"n":12345678901234567890.10,"big":1e400,"t":"a\\nb\xc3\xa9"}'
    assert client.send("state.get", {"key": "a"}).read() == kept
    assert client.send("state.list", {"prefix": []}).read().count(b"\n") == 1


def test_streams_share_no_key_and_a_reset_finds_them(keys: KeyPort) -> None:
    with (
        StateServer(keys, stream=CONTACTS) as one,
        StateServer(keys, stream=StreamId("crm", "contacts")) as two,
    ):
        Client(one).call("set", key="a", value=1)
        assert Client(two).call("get", key="a") == {}
        assert Client(two).call("deleteByPrefix", prefix=[]) == {"rowsDeleted": 0}
        assert Client(one).call("get", key="a") == 1
        assert set(one.secrets).isdisjoint(two.secrets)
    assert keys.get(KeyAddress(PATH, CONTACTS.key, '"a",')) == "1"


# -- who may call


def test_l10_a_wrong_secret_is_refused_and_nothing_is_done(
    server: StateServer, keys: KeyPort
) -> None:
    Client(server).call("set", key="a", value=1)
    env = server.environment()
    secret = env["RPC_SECRET"]
    for bearer in ("", "wrong", secret[:-1], f"{secret}x", "é"):
        client = Client(server, f"no {bearer}")
        client.headers["Authorization"] = f"Bearer {bearer}".encode().decode("latin-1")
        assert client.refusal("state.deleteAll", {"prefix": []})[0] == 401
        assert client.refusal("state.set", {"key": "a", "value": 2}, path="")[0] == 401
    for header in (f"Basic {secret}", secret, f"Bearer {env['RPC_URL']}"):
        client = Client(server)
        client.headers["Authorization"] = header
        assert client.refusal("state.deleteAll", {"prefix": []})[0] == 401
    for path in ("", "/wrong", f"{Client(server).path}/x", f"/{secret}"):
        status, error = Client(server, None).refusal(
            "state.set", {"key": "a", "value": 2}, path=path
        )
        assert status == 401 and "RPC_SECRET" in error and secret not in error
    assert Client(server).refusal("state.set", {"key": "a", "value": 2}, path="/wrong")[0] == 401
    assert Client(server).call("list", prefix=[]) == [{"key": ["a"], "value": 1}]


def test_a_bearer_alone_is_enough(server: StateServer) -> None:
    client = Client(server, "RPC_SECRET")
    client.path = ""
    assert client.call("get", key="a") == {}
    client.headers["Authorization"] = client.headers["Authorization"].replace("Bearer", "bearer ")
    assert client.call("get", key="a") == {}


def test_the_server_listens_on_loopback_and_where_it_is_told(keys: KeyPort) -> None:
    with StateServer(keys, stream=CONTACTS) as server:
        assert server.environment()["RPC_URL"].startswith("http://127.0.0.1:")
    with StateServer(keys, stream=CONTACTS, host="127.0.0.2") as server:
        assert server.environment()["RPC_URL"].startswith("http://127.0.0.2:")
        assert Client(server).call("get", key="a") == {}
    with StateServer(keys, stream=CONTACTS, host="192.0.2.1"):
        pass  # an address that this machine has only once a container runs
    with pytest.raises(StateError) as refused, StateServer(keys, stream=CONTACTS, host="a.invalid"):
        pass
    assert refused.value.code == "state.rpc_failed" and "a.invalid" in refused.value.message


# -- hostile clients


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"key": 1}',
        b'{"key": ["a", 1]}',
        b'{"key": null}',
        b'{"key": "\\ud800", "value": 1}',
        b'{"key": "a", "value": "\xff"}',
        b'{"key": "a", "value": nope}',
        b'{"key": "a"} x',
        b'{"key": "a", "value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_bad_body_is_answered_clearly(server: StateServer, body: bytes) -> None:
    status, error = Client(server).refusal("state.set", body)
    assert status == 400 and '{"key": "a"' in error
    assert Client(server).refusal("state.deleteAll", b'{"key": "a"}')[0] == 400
    assert Client(server).call("list", prefix=[]) == []


def test_a_key_that_is_too_long_is_named(server: StateServer) -> None:
    assert Client(server).call("set", key="k" * 1000, value=1) == {}
    for key in ("k" * 1100, ["é" * 600], ["a"] * 300):
        status, error = Client(server).refusal("state.set", {"key": key, "value": 1})
        assert status == 400 and "1024 bytes" in error


def test_unknown_methods_and_verbs_are_named(server: StateServer) -> None:
    for name in ("state.unknown", "get", "state.Get"):
        status, error = Client(server).refusal(name, {"key": "a"})
        assert status == 404 and "state.deleteByPrefix" in error
    for verb in ("GET", "PUT", "DELETE"):
        assert Client(server).refusal("state.get", {"key": "a"}, verb=verb)[0] == 405


@pytest.mark.parametrize("size", [state_rpc_app.LARGEST_BODY, 8 * state_rpc_app.LARGEST_BODY])
def test_a_body_that_is_too_large_is_answered_though_its_client_still_sends(
    server: StateServer, size: int
) -> None:
    body = b'{"key":"a","value":"' + b"x" * size + b'"}'
    status, error = Client(server).refusal("state.set", body)
    assert status == 413 and str(state_rpc_app.LARGEST_BODY) in error
    client = Client(server)
    client.connection.request("POST", f"{client.path}/state.set", iter([body]), client.headers)
    assert client.connection.getresponse().status == 413
    assert Client(server).call("get", key="a") == {}
    almost = "x" * (state_rpc_app.LARGEST_BODY - 100)
    assert Client(server).call("set", key="a", value=almost) == {}


def test_l11_clients_that_say_nothing_hold_nobody_up(
    keys: KeyPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_rpc_app, "BODY_SECONDS", 0.3)
    with StateServer(keys, stream=CONTACTS) as server:
        url = urlsplit(server.environment()["RPC_URL"])
        address = (str(url.hostname), url.port or 0)
        silent = [socket.create_connection(address, timeout=10) for _ in range(50)]
        slow = socket.create_connection(address, timeout=10)
        slow.sendall(
            f"POST {url.path}/state.get HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode()
        )
        noise = socket.create_connection(address, timeout=10)
        noise.sendall(b"\x16\x03\x01 not http\r\n\r\n")
        assert noise.recv(100).startswith(b"HTTP/1.1 400")
        assert Client(server).call("set", key="a", value=1) == {}
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
        began = time.monotonic()
    assert time.monotonic() - began < 4
    for each in (*silent, slow, noise):
        each.close()


def test_l11_a_reader_that_stops_ends_with_the_server(keys: KeyPort) -> None:
    for number in range(60):
        keys.put(KeyAddress(PATH, CONTACTS.key, f'"{number}",'), f'"{"x" * 500_000}"')
    with StateServer(keys, stream=CONTACTS) as server:
        client = Client(server)
        client.send("state.list", {"prefix": []}).read(10)
        assert Client(server).call("size", prefix=[]) == {"size": 60}
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert not [t for t in threading.enumerate() if t.name == "state-rpc"]


class Failing(MemoryKeys):
    """A store that fails after its first page."""

    def put(self, place: KeyAddress, value: str) -> None:
        raise StateError("the disk is full", code="state.disk_full")

    def page_under(self, under: KeyAddress, after: str | None = None) -> list[tuple[str, str]]:
        if after is not None:
            raise StateError("the disk is gone")
        return [('"a",', "1")]


def test_a_store_that_fails_is_told_and_never_looks_like_the_end_of_a_list() -> None:
    with StateServer(Failing(), stream=CONTACTS) as server:
        status, error = Client(server).refusal("state.set", {"key": "a", "value": 1})
        assert status == 500 and "the disk is full" in error
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            Client(server).send("state.list", {"prefix": []}).read()
        assert Client(server, "RPC_SECRET").call("get", key="a") == {}


def test_concurrent_clients_lose_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s.db"))
    lease = store.acquire("shop", this_holder("r"), 600)
    store.begin_keys(lease, "t")
    keys = open_keys(keys_url(str(tmp_path / "s.db")), "shop", "t")

    def work(server: StateServer, number: int) -> None:
        client = Client(server, "RPC_SECRET" if number % 2 else None)
        for step in range(20):
            client.call("set", key=["of", str(number), str(step)], value=step)
            listed = client.call("list", prefix=["of", str(number)])
            assert len(listed) == step + 1
        assert client.call("size", prefix=["of", str(number)]) == {"size": 20}

    with StateServer(keys, stream=CONTACTS) as server, ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, server, number) for number in range(8)]:
            done.result(60)
        assert Client(server).call("size", prefix="of") == {"size": 160}
    keys.close()
    store.close()


# -- the run's overlay


def test_what_is_written_is_durable_with_the_checkpoint_and_gone_without(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s.db"))
    lease = store.acquire("shop", this_holder("r"), 600)
    task = push_task("r", 1)
    store.begin_keys(lease, task)
    keys = open_keys(keys_url(str(tmp_path / "s.db")), "shop", task)
    keys.begin(SHARED)
    with StateServer(keys, stream=CONTACTS) as server:
        Client(server).call("set", key="a", value=1)
        covered = CoveredKeys(task, SHARED, keys.checkpoint())
        Client(server).call("set", key="a", value=2)
        Client(server).call("set", key="b", value=2)
        Client(server).call("del", key="a")
        assert Client(server).call("get", key="a") == {}
    assert store.connector_keys("shop") == {}
    store.end_keys(lease, [covered], [task])
    again = open_keys(keys_url(str(tmp_path / "s.db")), "shop", "next")
    with StateServer(again, stream=CONTACTS) as server:
        assert Client(server).call("list", prefix=[]) == [{"key": ["a"], "value": 1}]
        status, error = Client(server).refusal("state.set", {"key": "a", "value": 3})
        assert status == 500 and "was replaced" in error
    for port in (keys, again):
        port.close()
    store.close()


# -- 100,000 keys

LISTED = """
import json, resource, sys, threading, time
from http.client import HTTPConnection
from urllib.parse import urlsplit
from penstock.model.catalog import StreamId
from penstock.protocols.syncmaven.state_rpc import StateServer
from penstock.store.task_keys import open_keys

def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

keys = open_keys(sys.argv[1], "shop", "t")
with StateServer(keys, stream=StreamId(None, "contacts")) as server:
    given = server.environment()
    url = urlsplit(given["RPC_URL"])
    def listed(prefix, bearer):
        connection = HTTPConnection(url.hostname, url.port, timeout=60)
        headers = {"Authorization": "Bearer " + given[bearer]}
        body = json.dumps({"prefix": prefix})
        connection.request("POST", url.path + "/state.list", body, headers)
        answer, size, lines = connection.getresponse(), 0, 0
        while piece := answer.read1(65536):
            size, lines = size + len(piece), lines + piece.count(b'{"key"')
        return lines, size
    listed("few", "RPC_TOKEN"), listed("few", "RPC_SECRET")
    before, began = rss(), time.monotonic()
    peak, stop = [before], threading.Event()
    def watch():
        while not stop.wait(0.005):
            peak[0] = max(peak[0], rss())
    threading.Thread(target=watch, daemon=True).start()
    found = [listed("many", bearer) for bearer in ("RPC_TOKEN", "RPC_SECRET")]
    stop.set()
    print(json.dumps([found, peak[0] - before, time.monotonic() - began]))
"""


@pytest.mark.dear
def test_100_000_keys_are_listed_in_flat_memory(tmp_path: Path) -> None:
    """40 MB of entries, twice; the process grows by less than a quarter of one list."""
    place = str(tmp_path / "s.db")
    store = open_store(place)
    store.begin_keys(store.acquire("shop", this_holder("r"), 600), "t")
    store.close()
    fill = f"""
    import sqlite3
    from penstock.store import keys_ledger
    from penstock.store.keys import PATH, KeyAddress
    from penstock.model.catalog import StreamId
    class Plain:
        def __init__(self, conn): self.conn = conn
        def rows(self, sql, values, *, share=False):
            return self.conn.execute(sql, values).fetchall()
        def execute(self, sql, values):
            self.conn.execute(sql, values)
    conn = sqlite3.connect({place!r})
    sql, owner = Plain(conn), StreamId(None, "contacts").key
    for number in range(100_000):
        place = KeyAddress(PATH, owner, f'"many","{{number:06}}",')
        keys_ledger.put(sql, "shop", place, 1, '"' + "x" * 350 + '"', ("", "", 0))
    for number in range(1000):
        place = KeyAddress(PATH, owner, f'"few","{{number:06}}",')
        keys_ledger.put(sql, "shop", place, 1, '"' + "x" * 350 + '"', ("", "", 0))
    conn.commit()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(fill)], check=True)
    out = subprocess.run(
        [sys.executable, "-c", LISTED, keys_url(place)], check=True, capture_output=True, text=True
    ).stdout
    found, grown, seconds = json.loads(out)
    print(f"listed {found} in {seconds:.1f} s, RSS grew by {grown / 1e6:.1f} MB")
    assert [lines for lines, _ in found] == [100_000, 100_000]
    assert all(size > 35_000_000 for _, size in found)
    assert grown < 10_000_000
