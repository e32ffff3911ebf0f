"""Asks a JVM's listening ports for broadcast blocks as somebody without its secret would, in the
messages of Spark's transport (``org.apache.spark.network.protocol``)."""

import os
import re
import socket
import struct
from pathlib import Path

RPC_REQUEST, RPC_RESPONSE, FETCH_REQUEST, FETCH_SUCCESS = 3, 4, 0, 1
OPEN_BLOCKS = 0


def ports(pid: int) -> list[int]:
    """On which the process listens."""
    inodes = set[str]()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd))
        except FileNotFoundError:
            continue  # closed meanwhile
        inodes |= {found[1]} if found else set()
    listening: list[int] = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                listening.append(int(words[1].rpartition(":")[2], 16))
    return sorted(set(listening))


def fetch(port: int, block: str) -> bytes | None:
    """The block's bytes; None where they are not given."""
    try:
        with socket.create_connection(("127.0.0.1", port), 3) as peer:
            peer.settimeout(3)
            words = b"".join(_text(w) for w in ("app", "probe"))
            message = bytes([OPEN_BLOCKS]) + words + struct.pack(">i", 1) + _text(block)
            _send(peer, RPC_REQUEST, struct.pack(">qi", 7, len(message)) + message)
            kind, answer = _receive(peer)
            if kind != RPC_RESPONSE:
                return None
            (stream,) = struct.unpack(">q", answer[13:21])  # request, size, type, stream, chunks
            _send(peer, FETCH_REQUEST, struct.pack(">qi", stream, 0))
            kind, answer = _receive(peer)
            return answer[12:] if kind == FETCH_SUCCESS else None
    except (OSError, EOFError, struct.error):
        return None


def blocks(pid: int, count: int = 8) -> dict[str, bytes]:
    """Every broadcast block that any port gives."""
    found: dict[str, bytes] = {}
    for port in ports(pid):
        for number in range(count):
            name = f"broadcast_{number}_piece0"
            if (content := fetch(port, name)) is not None:
                found[name] = content
    return found


def _text(word: str) -> bytes:
    raw = word.encode()
    return struct.pack(">i", len(raw)) + raw


def _send(peer: socket.socket, kind: int, body: bytes) -> None:
    peer.sendall(struct.pack(">qb", 9 + len(body), kind) + body)


def _receive(peer: socket.socket) -> tuple[int, bytes]:
    head = _exactly(peer, 9)
    size, kind = struct.unpack(">qb", head)
    if not 9 <= size < 1 << 24:
        raise EOFError
    return kind, _exactly(peer, size - 9)


def _exactly(peer: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        piece = peer.recv(size - len(got))
        if not piece:
            raise EOFError
        got += piece
    return got
