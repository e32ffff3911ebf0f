"""A connection through the host: WASI sockets are not there, and the host lets it reach allowed
hosts only.

The host's sockets never block. A guest has one thread, so waiting is asking again; the host sleeps
a little where a guest asks again and again, which makes such a loop cheap. A write must not be
repeated alone while the peer waits for us to read: what has arrived is taken in between.
Source: the protocol, section 4.4.
"""

import time

from componentize_py_types import Err
from wit_world.imports import host, types

from rapidbyte_guest.faults import fault

_PIECE = 65536
"""The host reads no more at once."""


class Connection:
    """``patience``: seconds that the peer may stay silent."""

    def __init__(self, name: str, port: int, patience: float = 60.0) -> None:
        self._handle = host.connect_tcp(name, port)
        self._patience = patience
        self._arrived = bytearray()
        self._ended = False

    def send(self, data: bytes) -> None:
        """All of it. Raises a ``transient_network`` fault where the peer takes no more."""
        at, last = 0, time.monotonic()
        while at < len(data):
            answer = host.socket_write(self._handle, data[at : at + _PIECE])
            if isinstance(answer, types.SocketWriteResult_Written):
                at += answer.value
                last = time.monotonic()
            elif not self._take() and time.monotonic() - last > self._patience:
                raise _silent(self._patience)

    def receive(self, size: int) -> bytes:
        """Exactly so many bytes."""
        self._await(lambda: len(self._arrived) >= size)
        return self._given(size)

    def line(self) -> bytes:
        """Up to and with the next newline."""
        self._await(lambda: b"\n" in self._arrived)
        return self._given(self._arrived.index(b"\n") + 1)

    def close(self) -> None:
        host.socket_close(self._handle)

    def _given(self, size: int) -> bytes:
        out = bytes(self._arrived[:size])
        del self._arrived[:size]
        return out

    def _await(self, enough) -> None:
        last = time.monotonic()
        while not enough():
            if self._take():
                last = time.monotonic()
            elif self._ended:
                raise fault("transient_network", "CLOSED", "the peer closed the connection")
            elif time.monotonic() - last > self._patience:
                raise _silent(self._patience)

    def _take(self) -> bool:
        """What has arrived meanwhile; False: nothing did."""
        answer = host.socket_read(self._handle, _PIECE)
        if isinstance(answer, types.SocketReadResult_Data):
            self._arrived += answer.value
            return True
        self._ended = isinstance(answer, types.SocketReadResult_Eof)
        return False


def _silent(patience: float) -> Err:
    return fault("transient_network", "SILENT", f"the peer was silent for {patience:g} seconds")
