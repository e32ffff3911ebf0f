"""TCP through the host: every byte arrives, nothing blocks, silence costs no guest time
(protocol, section 4.4 and 8)."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.protocols.rapidbyte import source
from penstock.protocols.rapidbyte.messages import Refusal, StreamContext
from penstock.protocols.rapidbyte.sockets import SocketBounds, Sockets
from penstock.protocols.rapidbyte.stage import Stage
from penstock.protocols.rapidbyte.told import Ended

Stages = Callable[..., Stage]
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
        run = source.read(stage("source", config, allow={"hosts": ("127.0.0.1",)}), CONTEXT)
        *_, ended = run
    assert isinstance(ended, Ended) and ended.error is None, ended.error
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
        *_, ended = source.read(stage("source", config, allow=allow, plain=plain), CONTEXT)
    assert isinstance(ended, Ended) and ended.error is None, ended
    assert ended.summary is not None
    assert ended.summary.counts["records_read"] == ended.summary.counts["bytes_read"] == total


def test_waiting_for_a_slow_peer_is_not_the_guests_time(stage: Stages):
    """A guest that polls a peer for six seconds has worked for much less: its limit is four."""
    with echo(delay=6.0) as port:
        config = {"mode": "tcp", "host": "127.0.0.1", "port": port, "bytes": 100, "chunk": 100}
        allow = {"hosts": ("127.0.0.1",), "timeout_seconds": 4}
        began = time.monotonic()
        *_, ended = source.read(stage("source", config, allow=allow), CONTEXT)
    assert isinstance(ended, Ended) and ended.error is None, ended.error
    assert time.monotonic() - began >= 6.0
    assert ended.worked < 4.0


def test_a_peer_that_closes_is_an_end_and_one_that_is_not_there_a_fault():
    sockets = Sockets(("127.0.0.1",))
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
        Sockets(("*",)).connect("nothing.invalid", 1)
    assert caught.value.fault.code == "DNS_RESOLUTION_FAILED"


def test_connecting_is_bounded():
    """A server whose queue is full answers no more connections."""
    sockets = Sockets(("127.0.0.1",), SocketBounds(connect=0.3))
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
    sockets = Sockets(("127.0.0.1",))
    with socket.create_server(("127.0.0.1", 0)) as server:
        handle = sockets.connect("127.0.0.1", server.getsockname()[1])
        began = time.perf_counter()
        kinds = {sockets.read(handle, 10, absorbed=False)[0] for _ in range(100)}
        assert kinds == {"would-block"}
        assert time.perf_counter() - began < 0.5  # a wait each would make it a second
        for _ in range(40):
            sockets.read(handle, 10, absorbed=False)
        began = time.perf_counter()
        sockets.read(handle, 10, absorbed=False)
        assert 0.005 < time.perf_counter() - began < 2
        sockets.clear()


def test_a_spinner_is_told_apart_from_one_that_sleeps():
    sockets = Sockets(("127.0.0.1",))
    with socket.create_server(("127.0.0.1", 0)) as server:
        handle = sockets.connect("127.0.0.1", server.getsockname()[1])
        sockets.read(handle, 10, absorbed=True)
        assert "spin" in {sockets.read(handle, 10, absorbed=True)[0] for _ in range(30)}
        time.sleep(0.01)
        assert sockets.read(handle, 10, absorbed=True)[0] == "would-block"
        sockets.clear()
