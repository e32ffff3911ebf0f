"""Lets a container without a network reach only the hosts that its user allows.

The container is created without a network: its namespace has only a loopback. This process enters
that namespace to open its listeners, and forwards each connection from its own namespace. No
program or user inside has another way out, and this one ends with the process. There are three
kinds of listeners. A host that the user names with its port has a loopback address of its own,
which the container's ``/etc/hosts`` gives for its name, so that any protocol over TCP works. Every
allowed host is reached through an HTTP proxy (``CONNECT``, and ``http://`` requests) that the usual
variables name. A server of Penstock on this machine's loopback has the same port on the
container's.

Names are resolved here, and each address is checked too (``model.hosts.ReachableHosts``). Needs
root, and an engine on this machine's own kernel. Not here: whether it is available
(``restrictions``), the command that creates the container (``command``), when it begins
(``runtime``).
"""

import contextlib
import ctypes
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.model.hosts import ReachableHosts, address_of, allows, host_of, parsed

PORT = 3128
"""The proxy's port on the container's loopback; nothing else listens there yet."""
_CLONE_NEWNET = 0x40000000
_MOST = 512  # connections at a time; further ones wait to be accepted
_CONNECT_SECONDS = 30.0
_HEAD_SECONDS = 60.0
_HEAD_BYTES = 64 * 1024
_BLOCK = 128 * 1024
_BREATH = 0.2
_ENTER_SECONDS = 10.0
_HOP = (b"proxy-", b"connection:", b"keep-alive:")
_HOST_BASE = 0x7F4D0000  # 127.77.0.0: the hosts that are named with their ports

Place = tuple[str, int]


class EgressRefused(Exception):
    """A refused connection; ``status``: the proxy's response."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


def places(reach: ReachableHosts) -> dict[Place, str]:
    """Returns the loopback address in the container for each host with its own port, by (host,
    port)."""
    named = [p for p in parsed(reach.hosts) if p.exact and p.port and address_of(p.host) is None]
    hosts = {host: n for n, host in enumerate(sorted({p.host for p in named}), 1)}
    return {
        (p.host, p.port): socket.inet_ntoa((_HOST_BASE + hosts[p.host]).to_bytes(4, "big"))
        for p in named
        if p.port
    }


def variables() -> dict[str, str]:
    """Returns the variables that name the proxy to a container's programs."""
    proxy = f"http://127.0.0.1:{PORT}"
    found = {
        **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), proxy),
        "no_proxy": "localhost,127.0.0.0/8,::1",
    }
    return {spelt: value for name, value in found.items() for spelt in (name, name.upper())}


class Egress:
    """Forwards the connections of one container. ``reach``: None: it may reach no host. ``served``:
    the port of a server on this process's loopback, which it may reach as well. ``tell``: receives
    a sentence for each refused connection, in separate threads."""

    def __init__(
        self, reach: ReachableHosts | None, served: int | None, tell: Callable[[str], None]
    ) -> None:
        self._reach = reach
        self._served = None if served is None else ("127.0.0.1", served)
        self._tell = tell
        self._free = threading.BoundedSemaphore(_MOST)
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False

    def open(self, pid: int, mounted: str) -> None:
        """Listens in the network namespace of the process ``pid``, which must have ``mounted`` (the
        name of a folder) among its mounts: else the number belongs to another machine. Raises
        ``OSError``."""
        listeners: list[tuple[socket.socket, Place | None]] = []
        wanted: list[tuple[Place, Place | None]] = []
        if self._reach is not None:
            wanted.append((("127.0.0.1", PORT), None))
            wanted += [((at, p[1]), p) for p, at in places(self._reach).items()]
        if self._served is not None:
            wanted.append((self._served, self._served))
        with open(_namespace(pid, mounted), "rb") as namespace:
            made: queue.SimpleQueue[Any] = queue.SimpleQueue()

            def listen() -> None:
                # Namespaces belong to a thread: this one stays in it, and ends.
                try:
                    _enter(namespace.fileno())
                    for address, place in wanted:
                        made.put((socket.create_server(address, backlog=128), place))
                    made.put(None)
                except OSError as e:
                    made.put(e)

            threading.Thread(target=listen, name="penstock-egress-enter", daemon=True).start()
            try:
                while (one := made.get(timeout=_ENTER_SECONDS)) is not None:
                    if isinstance(one, OSError):
                        raise one
                    listeners.append(one)
                    self._keep(one[0])
            except queue.Empty:
                raise OSError("its network could not be entered in time") from None
        for listener, place in listeners:
            threading.Thread(
                target=self._accept, args=(listener, place), name="penstock-egress", daemon=True
            ).start()

    def close(self) -> None:
        """Ends every connection. Idempotent."""
        with self._lock:
            self._closed = True
            open_sockets = list(self._sockets)
        for one in open_sockets:
            self._drop(one)

    # -- inside

    def _keep(self, one: socket.socket) -> None:
        with self._lock:
            if not self._closed:
                self._sockets.add(one)
                return
        one.close()
        raise OSError("the container has ended")

    def _drop(self, one: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(one)
        # close() alone wakes no thread that waits in accept() or recv()
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()

    def _accept(self, listener: socket.socket, place: Place | None) -> None:
        while True:
            self._free.acquire()
            client: socket.socket | None = None
            try:
                client, _ = listener.accept()
                self._keep(client)
                work = threading.Thread(target=self._serve, args=(client, place), daemon=True)
                work.start()
            except (OSError, RuntimeError) as e:  # closed; or no more threads or files here
                self._free.release()
                if client is not None:
                    self._drop(client)
                if self._closed:
                    return
                self._tell(f"a connection of the container was not taken: {e}")
                time.sleep(_BREATH)

    def _serve(self, client: socket.socket, place: Place | None) -> None:
        """Forwards one connection to its end."""
        peer: socket.socket | None = None
        asks_proxy = place is None
        try:
            answer, first = b"", b""
            if place is None:
                place, answer, first = _asked(client)
            # No listed name is an address, and the proxy was answered before.
            ours = place == self._served and not asks_proxy
            peer = socket.create_connection(place) if ours else self._connected(*place)
            self._keep(peer)
            client.settimeout(None)
            if answer:
                client.sendall(answer)
            if first:
                peer.sendall(first)
            back = threading.Thread(target=_pump, args=(peer, client), daemon=True)
            back.start()
            _pump(client, peer)
            back.join()
        except EgressRefused as e:
            self._tell(f"a connection of the container was refused: {e}")
            if asks_proxy:
                with contextlib.suppress(OSError):
                    client.sendall(_answer(e))
        except OSError:
            pass  # either end has gone, and the other one is closed now
        finally:
            self._drop(client)
            if peer is not None:
                self._drop(peer)
            self._free.release()

    def _connected(self, host: str, port: int) -> socket.socket:
        reach = self._reach or ReachableHosts()
        if not allows(reach.hosts, host, port):
            raise EgressRefused("403 Forbidden", f"{host}:{port} is not in network.allowed_hosts")
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as e:
            raise EgressRefused("502 Bad Gateway", f"{host} is not known: {e}") from e
        why = "it has no address"
        status = "502 Bad Gateway"
        for family, kind, protocol, _, address in found:
            number = address_of(str(address[0]))
            refusal = "no address" if number is None else reach.refusal(host, port, number)
            if refusal is not None:
                why, status = refusal, "403 Forbidden"
                continue
            try:
                peer = socket.socket(family, kind, protocol)
            except OSError as e:  # a kind of address that this machine lacks
                why = str(e)
                continue
            try:
                peer.settimeout(_CONNECT_SECONDS)
                peer.connect(address)
                peer.settimeout(None)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return peer
            except OSError as e:
                peer.close()
                why, status = f"{host}:{port}: {e}", "502 Bad Gateway"
        raise EgressRefused(status, why)


def _asked(client: socket.socket) -> tuple[Place, bytes, bytes]:
    """Returns (target, immediate answer, bytes to send to the target) of a request to the proxy."""
    client.settimeout(_HEAD_SECONDS)
    head = bytearray()
    while b"\r\n\r\n" not in head:
        block = client.recv(_HEAD_BYTES)
        if not block:
            raise OSError("closed")
        head += block
        if len(head) > _HEAD_BYTES:
            raise EgressRefused("431 Request Header Fields Too Large", "a request is too long")
    lines, _, rest = bytes(head).partition(b"\r\n\r\n")
    words, *fields = lines.split(b"\r\n")
    verb, _, more = words.partition(b" ")
    target = more.rpartition(b" ")[0].decode("ascii", "replace")
    tunnel = verb == b"CONNECT"
    try:
        url = urlsplit(f"//{target}" if tunnel else target)
        host, port = host_of(url.hostname or ""), url.port
    except ValueError as e:
        raise EgressRefused("400 Bad Request", f"a request names no host: {e}") from e
    if not tunnel and url.scheme == "http":
        port = port or 80
    elif not tunnel:
        port = None
    if host is None or not port:
        raise EgressRefused("400 Bad Request", "a request to the proxy names no host and port")
    if tunnel:
        return (host, port), b"HTTP/1.1 200 Connection established\r\n\r\n", rest
    # One request per connection, so that each is checked against the list.
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    kept = [f for f in fields if not f.lower().startswith(_HOP)]
    sent = [verb + b" " + path.encode() + b" HTTP/1.1", *kept, b"Connection: close"]
    return (host, port), b"", b"\r\n".join(sent) + b"\r\n\r\n" + rest


def _answer(why: EgressRefused) -> bytes:
    text = f"{why}\n".encode()
    head = f"HTTP/1.1 {why.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + text


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Forwards one direction to its end, and closes it at the other end."""
    try:
        while data := source.recv(_BLOCK):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for one in (source, sink):  # a broken direction ends both
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _namespace(pid: int, mounted: str) -> Path:
    """Returns the network namespace of a process. Raises ``OSError`` where it is not the
    container's."""
    process = Path(f"/proc/{pid}")
    if pid <= 0 or mounted not in (process / "mountinfo").read_text(errors="replace"):
        raise OSError("its process is not of this machine, or has ended")
    namespace = process / "ns" / "net"
    if os.stat(namespace).st_ino == os.stat("/proc/self/ns/net").st_ino:
        raise OSError("it has this machine's own network")
    return namespace


def _enter(namespace: int) -> None:
    """Enters a network namespace. Raises ``OSError``."""
    setns = getattr(ctypes.CDLL(None, use_errno=True), "setns", None)  # os.setns comes with 3.12
    if setns is None or setns(namespace, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
