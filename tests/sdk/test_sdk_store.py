"""The SDK's store: over the state RPC in both dialects, and in memory (issue 12, parts 3 and 8)."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest

from penstock.model.catalog import StreamId
from penstock.protocols.syncmaven.state_rpc import StateServer
from penstock.sdk import KeyValueStore, StoreError
from penstock.sdk.store import InMemoryKeyStore, RpcStore, SyncStore
from penstock.store.keys import MemoryKeys

STREAM = StreamId(None, "contacts")


@pytest.fixture(params=["RPC_SECRET", "RPC_TOKEN", "", "memory"])
def store(request: pytest.FixtureRequest) -> Iterator[KeyValueStore]:
    """``""``: a client that shows no secret but the one in the path."""
    if request.param == "memory":
        yield SyncStore(InMemoryKeyStore(), "s1")
        return
    with StateServer(MemoryKeys(), stream=STREAM) as server:
        given = server.environment()
        environment = {k: v for k, v in given.items() if k in ("RPC_URL", request.param)}
        yield RpcStore(environment, "s1")


def test_a_store_keeps_values_under_paths(store: KeyValueStore) -> None:
    assert store.get("a") is None and store.size() == 0
    for value in ({"x": [1, None]}, "é🐟", 0, False, "", 1.5, [], {"value": 1, "b": 2}):
        store.set(["a", "b"], value)
        assert store.get(("a", "b")) == value
    store.set("a", 1)
    store.set("ab", 2)
    assert [*store.entries("a")] == [(("a",), 1), (("a", "b"), {"value": 1, "b": 2})]
    assert store.size("a") == 2 and store.size() == 3
    store.delete("a")
    store.delete("a")
    assert store.get("a") is None and [key for key, _ in store.entries()] == [("a", "b"), ("ab",)]
    store.delete_all("a")
    assert [*store.entries()] == [(("ab",), 2)]
    store.delete_all()
    assert store.size() == 0


@pytest.mark.dear
def test_calls_may_come_while_a_list_is_read(store: KeyValueStore) -> None:
    for number in range(50):
        store.set(["n", str(number)], number)
    for key, value in store.entries("n"):
        assert store.get(key) == value
        store.delete(key)
    assert store.size() == 0


def test_syncs_share_no_key() -> None:
    memory = InMemoryKeyStore()
    one, two = SyncStore(memory, "one"), SyncStore(memory, "two")
    with StateServer(MemoryKeys(), stream=STREAM) as server:
        rpc = [RpcStore(server.environment(), name) for name in ("one", "two")]
        for first, second in ((one, two), rpc):
            first.set("a", 1)
            assert second.get("a") is None
            second.delete_all()
            assert first.get("a") == 1
    assert [key for key, _ in memory.entries()] == [("syncId=one", "a")]


def test_refusals_are_told() -> None:
    with StateServer(MemoryKeys(), stream=STREAM) as server:
        environment = server.environment()
        wrong = RpcStore({**environment, "RPC_SECRET": "wrong"}, "s")
        with pytest.raises(StoreError, match="401"):
            wrong.get("a")
        store = RpcStore(environment, "s")
        with pytest.raises(StoreError, match=r"state\.set: .* 413"):
            store.set("a", "x" * (2 << 20))
        store.set("a", 1)
    with pytest.raises(StoreError, match="does not answer"):
        store.get("a")


class Host(BaseHTTPRequestHandler):
    """A host that answers lists as arrays, and closes each connection."""

    answers: ClassVar[dict[str, bytes]] = {
        "get": b"{}",
        "list": b'[{"key":["syncId=s","a"],"value":1}]',
    }

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = self.answers.get(self.path.rpartition(".")[2], b"{}")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


def test_lists_that_are_arrays_are_read() -> None:
    server = HTTPServer(("127.0.0.1", 0), Host)
    Thread(target=server.serve_forever, daemon=True).start()
    store = RpcStore({"RPC_URL": f"http://127.0.0.1:{server.server_port}"}, "s")
    assert [*store.entries()] == [(("a",), 1)]
    assert store.get("a") is None and store.get("b") is None
    server.shutdown()
    server.server_close()
