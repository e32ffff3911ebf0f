"""Opens TCP connections for a connector, to allowed hosts only, and reads and writes them without
blocking.

A read must not block: a guest runs its connection and its query on one thread, and a blocking read
stops both. A name is resolved once, so that the checked address is the one that is connected to.
The first would-blocks of a streak are answered immediately, because a tokio guest makes about sixty
of them per round trip in any case; later ones after a short wait for the peer. Any progress in
either direction ends the streak. Not here: which hosts are allowed (``declared.permissions``).
Source: the protocol, sections 4.4 and 8.
"""

import contextlib
import errno
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from penstock.model.hosts import ReachableHosts, address_of, allows, host_of
from penstock.protocols.rapidbyte.wire.messages import Refusal, refusal

LONGEST_READ = 65536
_LONGEST_SHOWN = 100
ReadKind = Literal["data", "eof", "would-block", "spin"]

_TIGHT = 0.0005
"""Seconds: a guest that reads again sooner after a would-block is in a busy loop."""
_LONGEST_POLL_MS = 10
_FREE_ABSORBED = 4
"""Would-blocks that are answered at once if the adapter answers most of them itself."""
_FREE = 128
"""Like ``_FREE_ABSORBED``, for a guest that sees every would-block."""

Waiting = Callable[[], AbstractContextManager[Any]]


class SocketBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds one instance. ``sockets``: open at once; ``connect``: seconds to connect to one
    address, and to resolve a name; ``addresses``: how many of a name are tried, since an answer may
    list thousands."""

    sockets: int = 128
    connect: float = 10.0
    addresses: int = 16


@dataclass(slots=True)
class _Connection:
    peer: socket.socket
    streak: int = 0
    last_block: float = 0.0


class Sockets:
    """The connections of one instance, by handle. ``waiting``: a context around each wait (see
    ``CallChannel``)."""

    def __init__(
        self,
        reach: ReachableHosts,
        bounds: SocketBounds | None = None,
        waiting: Waiting = contextlib.nullcontext,
    ) -> None:
        self._reach = reach
        self._bounds = bounds or SocketBounds()
        self.waiting = waiting
        self._open: dict[int, _Connection] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def connect(self, host: str, port: int) -> int:
        """Connects and returns a handle. Raises ``Refusal``: ``NETWORK_DENIED``,
        ``TOO_MANY_SOCKETS``, ``DNS_RESOLUTION_FAILED``, ``TCP_CONNECT_FAILED``."""
        wanted = host_of(host)
        if wanted is None:
            shown = ascii(host[:_LONGEST_SHOWN])
            raise _denied(f"{shown} is neither the name of a host nor an address")
        if not allows(self._reach.hosts, wanted, port):
            raise _denied(f"Host '{wanted}' is not allowed by connector permissions (port {port})")
        if len(self._open) >= self._bounds.sockets:
            raise refusal(
                "internal",
                "TOO_MANY_SOCKETS",
                f"{len(self._open)} connections are open: close some",
            )
        with self.waiting():
            peer = self._connected(wanted, port)
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last += 1
        self._open[self._last] = _Connection(peer)
        return self._last

    def read(self, handle: int, length: int, *, absorbed: bool) -> tuple[ReadKind, bytes]:
        """Reads at most ``length`` bytes. ``absorbed``: the adapter answers the would-blocks that
        follow a ``spin`` itself."""
        connection = self._get(handle)
        length = max(1, min(length, LONGEST_READ))
        free = _FREE_ABSORBED if absorbed else _FREE
        for last_try in (False, True):
            try:
                data = connection.peer.recv(length)
            except BlockingIOError:
                tight = absorbed and time.monotonic() - connection.last_block < _TIGHT
                if last_try or not self._readable(connection, free):
                    connection.last_block = time.monotonic()
                    return ("spin" if tight else "would-block", b"")
                continue
            except OSError as e:
                raise _broken("SOCKET_READ_FAILED", e) from None
            connection.streak = 0
            return ("data", data) if data else ("eof", b"")
        raise AssertionError("the second try returns")

    def write(self, handle: int, data: bytes | memoryview) -> int | None:
        """Writes; returns how many bytes were taken, or None: it would block."""
        connection = self._get(handle)
        for last_try in (False, True):
            try:
                taken = connection.peer.send(data)
            except BlockingIOError:
                # Waits shortly, since the guest would offer, and wasmtime copy, its whole pending
                # buffer again. Not where the peer has sent data, which the guest must read first.
                if last_try or not self._writable(connection):
                    return None
                continue
            except OSError as e:
                raise _broken("SOCKET_WRITE_FAILED", e) from None
            connection.streak = 0
            return taken
        raise AssertionError("the second try returns")

    def close(self, handle: int) -> None:
        connection = self._open.pop(handle, None)
        if connection is not None:
            connection.peer.close()

    def clear(self) -> None:
        for handle in list(self._open):
            self.close(handle)

    def _get(self, handle: int) -> _Connection:
        connection = self._open.get(handle)
        if connection is None:
            raise refusal("internal", "INVALID_SOCKET", f"Invalid socket handle: {handle}")
        return connection

    def _readable(self, connection: _Connection, free: int) -> bool:
        connection.streak += 1
        if connection.streak <= free:
            return False
        wait = min(1 << min(connection.streak - free - 1, 8), _LONGEST_POLL_MS)
        return bool(self._poll(connection, select.POLLIN, wait))

    def _writable(self, connection: _Connection) -> bool:
        ready = self._poll(connection, select.POLLIN | select.POLLOUT, _LONGEST_POLL_MS)
        return bool(ready & ~select.POLLIN)

    def _poll(self, connection: _Connection, events: int, milliseconds: int) -> int:
        poll = select.poll()
        poll.register(connection.peer, events)
        with self.waiting():
            ready = poll.poll(milliseconds)
        return ready[0][1] if ready else 0

    def _connected(self, host: str, port: int) -> socket.socket:
        failure: OSError | None = None
        for family, kind, protocol, _, address in self._reachable(host, port):
            try:
                peer = socket.socket(family, kind, protocol)
            except OSError as e:  # an address family that this machine lacks
                failure = e
                continue
            peer.settimeout(self._bounds.connect)
            try:
                peer.connect(address)
                return peer
            except OSError as e:
                peer.close()
                failure = e
        raise refusal(
            "transient_network",
            "TCP_CONNECT_FAILED",
            f"{host}:{port}: {_os_error_text(failure)}",
            retryable=True,
            safe_to_retry=True,
        )

    def _reachable(self, host: str, port: int) -> list[Any]:
        """Returns the addresses of a host that may be reached. Raises ``Refusal``
        (``NETWORK_DENIED``) where none may."""
        denied: str | None = None
        allowed: list[Any] = []
        for entry in self._addresses(host, port):
            address = address_of(str(entry[4][0]).partition("%")[0])
            if address is None:
                continue
            why = self._reach.refusal(host, port, address)
            denied = denied or why
            allowed += [entry] if why is None else []
        if not allowed and denied is not None:
            raise _denied(denied)
        return allowed[: self._bounds.addresses]

    def _addresses(self, host: str, port: int) -> list[Any]:
        """Resolves a name on a separate thread, since the resolver has no timeout to set."""
        addresses: list[Any] = []
        failure: list[Exception] = []

        def look_up() -> None:
            try:
                addresses.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            except Exception as e:
                failure.append(e)

        thread = threading.Thread(target=look_up, name="penstock-lookup", daemon=True)
        thread.start()
        thread.join(self._bounds.connect)
        if addresses:
            return addresses
        why = str(failure[0]) if failure else f"no answer for {self._bounds.connect:g} s"
        raise refusal(
            "transient_network",
            "DNS_RESOLUTION_FAILED",
            f"{host}: {why}",
            retryable=True,
            safe_to_retry=True,
        )


def _denied(why: str) -> Refusal:
    return refusal("permission", "NETWORK_DENIED", why)


def _broken(code: str, e: OSError) -> Refusal:
    return refusal(
        "transient_network", code, _os_error_text(e), retryable=True, safe_to_retry=True
    )  # fmt: skip


def _os_error_text(e: OSError | None) -> str:
    if e is None:
        return "no address"
    return errno.errorcode.get(e.errno or 0, "") + " " + (e.strerror or str(e))
