"""A connector's own state: keys in three scopes, through a port to the store.

The port is what the store offers; here are its in-memory twin and the overlay of a dry run, in
which nothing lasts. A key's namespace is never that of cursors. Not here: when written keys become
durable (with the checkpoint: the engine's business). Source: the protocol, section 4.3.
"""

import threading
from enum import IntEnum
from typing import Protocol

import msgspec

from penstock.protocols.rapidbyte.messages import refusal

LONGEST_KEY = 1024  # bytes


class Scope(IntEnum):
    pipeline = 0
    stream = 1
    instance = 2


class Place(msgspec.Struct, frozen=True):
    """Where a key lives: ``owner`` is empty for the pipeline, the stream's name, or the role and
    position of the connector (``transform:1``)."""

    scope: str
    owner: str
    key: str


class KeyPort(Protocol):
    """Each call is atomic, also between tasks on several machines. Any exception is told to the
    connector as ``STATE_BACKEND``."""

    def get(self, place: Place) -> str | None: ...

    def put(self, place: Place, value: str) -> None: ...

    def compare_and_swap(self, place: Place, expected: str | None, new: str) -> bool:
        """Write ``new`` where the value is ``expected`` (None: where there is none)."""
        ...


class MemoryKeys:
    """``KeyPort`` of one process: for check and discover, and for tests."""

    def __init__(self) -> None:
        self._values: dict[Place, str] = {}
        self._lock = threading.Lock()

    def get(self, place: Place) -> str | None:
        with self._lock:
            return self._values.get(place)

    def put(self, place: Place, value: str) -> None:
        with self._lock:
            self._values[place] = value

    def compare_and_swap(self, place: Place, expected: str | None, new: str) -> bool:
        with self._lock:
            if self._values.get(place) != expected:
                return False
            self._values[place] = new
            return True


class DryKeys:
    """``KeyPort`` over another one: reads through, keeps what is written to itself."""

    def __init__(self, base: KeyPort) -> None:
        self._base = base
        self._written: dict[Place, str] = {}
        self._lock = threading.Lock()

    def get(self, place: Place) -> str | None:
        with self._lock:
            return self._get(place)

    def put(self, place: Place, value: str) -> None:
        with self._lock:
            self._written[place] = value

    def compare_and_swap(self, place: Place, expected: str | None, new: str) -> bool:
        with self._lock:
            if self._get(place) != expected:
                return False
            self._written[place] = new
            return True

    def _get(self, place: Place) -> str | None:
        return self._written[place] if place in self._written else self._base.get(place)


def place(scope: int, key: str, *, stream: str, instance: str) -> Place:
    """Raises ``Refusal`` (``INVALID_SCOPE``, ``KEY_TOO_LONG``)."""
    if scope not in tuple(Scope):
        raise refusal("config", "INVALID_SCOPE", f"invalid state scope: {scope}")
    if len(key.encode()) > LONGEST_KEY:
        raise refusal("config", "KEY_TOO_LONG", f"a key has at most {LONGEST_KEY} bytes")
    kind = Scope(scope)
    owner = {Scope.pipeline: "", Scope.stream: stream, Scope.instance: instance}[kind]
    return Place(kind.name, owner, key)
