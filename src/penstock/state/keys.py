"""Defines a connector's own keys: the port through which it reads and writes them, and twins of it.

A key's namespace is never that of cursors. What a run writes is seen at once by every task of it
and becomes durable with the checkpoint that covers it, so a port also counts checkpoints. Not here:
what a scope means to a protocol, which checkpoint is committed when. Neighbours: ``protocols``
hands guests' calls to a :class:`KeyPort`; ``task_keys`` opens one on the store; ``keys_ledger``
holds the rules.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from penstock.errors import StateError

SHARED = "*"  # ``StateScope.key`` of a state that is not one stream's


class Place(msgspec.Struct, frozen=True, order=True):
    """Where a key lives. ``scope``: ``pipeline``, ``stream`` or ``instance``; ``owner``: empty for
    the pipeline, the source's stream (``StreamId.key``) whatever a destination calls it, or the
    role and position of the connector (``transform:1``)."""

    scope: str
    owner: str
    key: str


class Covered(msgspec.Struct, frozen=True):
    """What a checkpoint covers: everything that ``task`` wrote, while it worked for states of
    ``scope`` (``StateScope.key``), up to the checkpoint of number ``upto``, as
    :meth:`KeyPort.checkpoint` gave it. ``place``: of the transform that wrote it, which may be
    ahead of others of the same task; empty: no transform."""

    task: str
    scope: str
    upto: int
    place: str = ""


def covers(scope: str, place: str = "") -> str:
    """What :meth:`KeyPort.begin` takes, for :class:`Covered` of the same scope and place."""
    return f"{scope}\n{place}" if place else scope  # a scope is one line


def scope_of(text: str) -> str:
    """Of what :func:`covers` gave."""
    return text.partition("\n")[0]


def bounds_of(covered: Iterable[Covered]) -> dict[tuple[str, str], int]:
    """Per task and :func:`covers`, the last checkpoint."""
    bounds: dict[tuple[str, str], int] = {}
    for each in covered:
        at = (each.task, covers(each.scope, each.place))
        bounds[at] = max(each.upto, bounds.get(at, 0))
    return bounds


def lane_task(epoch: int) -> str:
    """The name under which an epoch of a lane writes keys."""
    return f"epoch:{epoch}"


def push_task(run: str, number: int) -> str:
    """The name under which a conversation with a destination writes keys."""
    return f"push:{run}:{number}"


def keys_closed(pipeline: str, task: str) -> StateError:
    return StateError(
        f"{task} of pipeline {pipeline!r} was given up: it may write no more keys",
        code="state.keys_closed",
        hint="this run was overtaken, or its task replaced; see `penstock runs`",
    )


class KeyPort(Protocol):
    """The keys as one task sees them: the newest value that any task of the run wrote, else the
    durable one. Each call is atomic, also between tasks on several machines. Any exception is told
    to the connector as ``STATE_BACKEND``."""

    def get(self, place: Place) -> str | None: ...

    def put(self, place: Place, value: str) -> None: ...

    def compare_and_swap(self, place: Place, expected: str | None, new: str) -> bool:
        """Write ``new`` where the value is ``expected`` (None: where there is none)."""
        ...

    def begin(self, scope: str) -> None:
        """A stream, or an attempt at it, begins: what is written from now on is covered by states
        of ``scope`` (:func:`covers`; :data:`SHARED` before the first call). What was written since
        the last checkpoint is given up."""
        ...

    def checkpoint(self) -> int:
        """A checkpoint comes now, and covers everything that was written for its scope before it:
        its number, for :class:`Covered`. It never falls; 0: there is nothing to cover."""
        ...

    def close(self) -> None: ...


OpenKeys = Callable[[], KeyPort]
"""Opens a port, one for each conversation."""


class MemoryKeys:
    """``KeyPort`` of one process: for check and discover, and for tests. Nothing is durable, so
    that its checkpoints have no numbers."""

    def __init__(self) -> None:
        self._written: dict[Place, str] = {}
        self._since: dict[Place, str | None] = {}  # before the last checkpoint; None: not written
        self._lock = threading.Lock()

    def get(self, place: Place) -> str | None:
        with self._lock:
            return self._get(place)

    def put(self, place: Place, value: str) -> None:
        with self._lock:
            self._put(place, value)

    def compare_and_swap(self, place: Place, expected: str | None, new: str) -> bool:
        with self._lock:
            if self._get(place) != expected:
                return False
            self._put(place, new)
            return True

    def begin(self, scope: str) -> None:
        with self._lock:
            for place, before in self._since.items():
                if before is None:
                    del self._written[place]
                else:
                    self._written[place] = before
            self._since.clear()

    def checkpoint(self) -> int:
        with self._lock:
            self._since.clear()
        return 0

    def close(self) -> None:
        """Nothing to close."""

    def _get(self, place: Place) -> str | None:
        return self._written.get(place)

    def _put(self, place: Place, value: str) -> None:
        self._since.setdefault(place, self._written.get(place))
        self._written[place] = value


class DryKeys(MemoryKeys):
    """Reads through to another port, and keeps what is written to itself. ``base`` is closed with
    it."""

    def __init__(self, base: KeyPort) -> None:
        super().__init__()
        self._base = base

    def close(self) -> None:
        self._base.close()

    def _get(self, place: Place) -> str | None:
        return self._written[place] if place in self._written else self._base.get(place)
