"""TCP through the host: every byte arrives, nothing blocks, silence costs no guest time
(protocol, section 4.4 and 8)."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.model.hosts import ReachableHosts
from penstock.protocols.rapidbyte.guest import stream_run
from penstock.protocols.rapidbyte.guest.events import RunEnded
from penstock.protocols.rapidbyte.guest.sockets import SocketBounds, Sockets
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.messages import Refusal, StreamContext

Stages = Callable[..., Stage]
LOOPBACK = ReachableHosts(hosts=("127.0.0.1",), named=("127.0.0.1",))
CONTEXT = StreamContext(stream_name="numbers", sync_mode="full_refresh")


@contextlib.contextmanager
def echo(delay: float = 0.0, gather: int = 0) -> Iterator[int]:
    """A server that gives back what it gets, to any number of clients; the first ``gather`` bytes
    only when it has them all. ``delay``: seconds between two pieces."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(peer: socket.socket) -> None:
            with peer, contextlib.suppress(OSError):
                held = bytearray()
                while data := peer.recv(1 << 20):
                    time.sleep(delay)
                    held += data
                    if len(held) >= gather:
                        peer.sendall(held)
                        held.clear()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = server.accept()
                    threading.Thread(target=serve, args=(peer,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize("delay", [0.0, 0.02])
def test_a_large_pending_buffer_is_offered_again_and_again(stage: Stages, delay: float):
    """As Rust guests do: all that is left, with every call, to a quick and to a slow server. Taking
    256 KiB of it a call would be quadratic: 240 calls that copy 30 MB on average."""
    size = 60_000_000
    with echo(delay, gather=size) as port:
        config = {"mode": "tcp", "host": "127.0.0.1", "port": port, "bytes": size, "chunk": size}
        run = stream_run.read(stage("source", config, allow={"hosts": ("127.0.0.1",)}), CONTEXT)
        *_, ended = run
    assert isinstance(ended, RunEnded) and ended.error is None, ended.error
    assert ended.summary is not None and ended.summary.counts["bytes_read"] == size
    assert ended.worked < 30


@pytest.mark.parametrize("plain, total, chunk", [
    (False, 3_000_000, 65536), (False, 4_000_000, 1_000_000), (True, 40_000, 1000),
])  # fmt: skip
def test_bytes_come_back_as_they_were_sent(stage: Stages, plain: bool, total: int, chunk: int):
    with echo() as port:
        config = {
            "mode": "tcp", "host": "127.0.0.1", "port": port, "bytes": total, "chunk": chunk,
        }  # fmt: skip
        allow = {"hosts": ("127.0.0.1",)}
        *_, ended = stream_run.read(stage("source", config, allow=allow, plain=plain), CONTEXT)
    assert isinstance(ended, RunEnded) and ended.error is None, ended
    assert ended.summary is not None
    assert ended.summary.counts["records_read"] == ended.summary.counts["bytes_read"] == total


def test_waiting_for_a_slow_peer_is_not_the_guests_time(stage: Stages):
    """A guest that polls a peer for six seconds has worked for much less: its limit is four."""
    with echo(delay=6.0) as port:
        config = {"mode": "tcp", "host": "127.0.0.1", "port": port, "bytes": 100, "chunk": 100}
        allow = {"hosts": ("127.0.0.1",), "timeout_seconds": 4}
        began = time.monotonic()
        *_, ended = stream_run.read(stage("source", config, allow=allow), CONTEXT)
    assert isinstance(ended, RunEnded) and ended.error is None, ended.error
    assert time.monotonic() - began >= 6.0
    assert ended.worked < 4.0


def test_a_peer_that_closes_is_an_end_and_one_that_is_not_there_a_fault():
    sockets = Sockets(LOOPBACK)
    with echo() as port:
        handle = sockets.connect("127.0.0.1", port)
        assert sockets.write(handle, b"hello") == 5
        until = time.monotonic() + 10
        kind, data = "would-block", b""
        while kind != "data" and time.monotonic() < until:
            kind, data = sockets.read(handle, 100, absorbed=False)
        assert (kind, data) == ("data", b"hello")
        sockets.close(handle)
        sockets.close(handle)
        with pytest.raises(Refusal) as caught:
            sockets.read(handle, 1, absorbed=False)
        assert caught.value.fault.code == "INVALID_SOCKET"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Refusal) as caught:
        sockets.connect("127.0.0.1", port)
    fault = caught.value.fault
    assert (fault.category, fault.code, fault.retryable) == (
        "transient_network", "TCP_CONNECT_FAILED", True,
    )  # fmt: skip


def test_a_name_that_nobody_knows():
    with pytest.raises(Refusal) as caught:
        Sockets(ReachableHosts(hosts=("*",))).connect("nothing.invalid", 1)
    assert caught.value.fault.code == "DNS_RESOLUTION_FAILED"


def test_a_name_is_looked_up_once_and_its_checked_address_is_connected(
    monkeypatch: pytest.MonkeyPatch,
):
    """Section 8; a second look-up could give another address (DNS rebinding)."""
    asked: list[str] = []

    def answers(host: str, port: int, **_: object) -> list[object]:
        asked.append(host)
        at = ["169.254.169.254", "127.0.0.1", "10.0.0.5"]
        stream = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*stream, (address, port)) for address in at]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for hosts, named in (("*",), ()), (("*.corp",), ("*.corp",)), (("db.corp",), ()):
            with pytest.raises(Refusal) as caught:
                Sockets(ReachableHosts(hosts=hosts, named=named[:0])).connect("db.corp", port)
            assert caught.value.fault.code == "NETWORK_DENIED"
            assert "169.254.169.254" in caught.value.fault.message
        for named in ("db.corp", "*.corp"):
            asked.clear()
            reach = ReachableHosts(hosts=("db.corp",), named=(named,))
            sockets = Sockets(reach, SocketBounds(connect=5))
            sockets.connect("DB.corp.", port)  # past the first, which stays out of reach
            server.settimeout(10)
            assert server.accept()[1][0] == "127.0.0.1"
            assert asked == ["db.corp"]
            sockets.clear()


def test_a_name_with_thousands_of_addresses_is_tried_at_a_few(monkeypatch: pytest.MonkeyPatch):
    """None of them answers: each would take ten seconds, which are not the guest's time."""
    stream = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
    found = [(*stream, ("127.0.0.1", 1))] * 4000  # nobody listens on port 1
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    tried: list[object] = []

    class Counted(socket.socket):
        def connect(self, address: object) -> None:
            tried.append(address)
            raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "socket", Counted)
    with pytest.raises(Refusal) as caught:
        Sockets(ReachableHosts(hosts=("a.example",), private=True)).connect("a.example", 1)
    assert caught.value.fault.code == "TCP_CONNECT_FAILED"
    assert len(tried) == SocketBounds().addresses


@pytest.mark.parametrize("host", ["127.0.0.1\0.corp.test", "127.1", "0x7f000001", "[::1", "a b"])
def test_what_is_no_host_reaches_no_resolver(monkeypatch: pytest.MonkeyPatch, host: str):
    monkeypatch.delattr(socket, "getaddrinfo")
    with pytest.raises(Refusal) as caught:
        Sockets(ReachableHosts(hosts=("*", "*.corp.test"), private=True)).connect(host, 80)
    assert caught.value.fault.code == "NETWORK_DENIED"
    assert "\0" not in caught.value.fault.message


def test_connecting_is_bounded():
    """A server whose queue is full answers no more connections."""
    sockets = Sockets(LOOPBACK, SocketBounds(connect=0.3))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(Refusal) as caught:
            for _ in range(5):
                sockets.connect("127.0.0.1", port)
        assert caught.value.fault.code == "TCP_CONNECT_FAILED"
        assert time.monotonic() - began < 10
    sockets.clear()
    assert len(sockets) == 0


def test_the_first_would_blocks_of_a_streak_do_not_wait():
    """A tokio guest makes about sixty per round trip: waiting on them costs an INSERT load 15 times
    its time."""
    sockets = Sockets(LOOPBACK)
    with socket.create_server(("127.0.0.1", 0)) as server:
        handle = sockets.connect("127.0.0.1", server.getsockname()[1])
        began = time.perf_counter()
        kinds = {sockets.read(handle, 10, absorbed=False)[0] for _ in range(100)}
        assert kinds == {"would-block"}
        assert time.perf_counter() - began < 0.9  # a wait each would make it a second
        for _ in range(40):
            sockets.read(handle, 10, absorbed=False)
        began = time.perf_counter()
        sockets.read(handle, 10, absorbed=False)
        assert 0.005 < time.perf_counter() - began < 2
        sockets.clear()


def test_a_spinner_is_told_apart_from_one_that_sleeps():
    sockets = Sockets(LOOPBACK)
    with socket.create_server(("127.0.0.1", 0)) as server:
        handle = sockets.connect("127.0.0.1", server.getsockname()[1])
        sockets.read(handle, 10, absorbed=True)
        assert "spin" in {sockets.read(handle, 10, absorbed=True)[0] for _ in range(30)}
        time.sleep(0.01)
        assert sockets.read(handle, 10, absorbed=True)[0] == "would-block"
        sockets.clear()
