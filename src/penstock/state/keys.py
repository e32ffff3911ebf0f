"""Defines the port through which a connector reads and writes its own keys, and ports in memory.

Connector keys are apart from the cursors in states. What a task writes is seen at once by every
task of the run, and becomes durable with the checkpoint that covers it; so a port also counts
checkpoints. Not here: what a scope means to a protocol (``protocols``, which call a
:class:`KeyPort`), the port on the store (``task_keys``), the rules of versions (``keys_ledger``),
when a checkpoint is committed (``engine``).
"""

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from penstock.errors import StateError

SHARED = "*"  # ``StateScope.key`` of a state that is not one stream's


class Place(msgspec.Struct, frozen=True, order=True):
    """Identifies a connector key in its pipeline. ``scope``: ``pipeline``, ``stream`` or
    ``instance``. ``owner``, by scope: empty; the source's stream (``StreamId.key``), whatever a
    destination calls it; the role and position of the connector (``transform:1``)."""

    scope: str
    owner: str
    key: str


class Covered(msgspec.Struct, frozen=True):
    """Names the keys that a checkpoint covers: all that ``task`` wrote for states of ``scope``
    (``StateScope.key``) up to the checkpoint number ``upto``, which :meth:`KeyPort.checkpoint`
    returned. ``place``: the transform that wrote them, which may be ahead of other transforms of
    the same task; empty: no transform."""

    task: str
    scope: str
    upto: int
    place: str = ""


def covers(scope: str, place: str = "") -> str:
    """Makes the scope that :meth:`KeyPort.begin` takes, for a :class:`Covered` of the same scope
    and place."""
    return f"{scope}\n{place}" if place else scope  # a scope is one line


def scope_of(text: str) -> str:
    """Returns the ``StateScope.key`` in a scope that :func:`covers` made."""
    return text.partition("\n")[0]


def bounds_of(covered: Iterable[Covered]) -> dict[tuple[str, str], int]:
    """Maps (task, scope as of :func:`covers`) to the number of the last checkpoint."""
    bounds: dict[tuple[str, str], int] = {}
    for each in covered:
        at = (each.task, covers(each.scope, each.place))
        bounds[at] = max(each.upto, bounds.get(at, 0))
    return bounds


def lane_task(epoch: int) -> str:
    """Returns the task name under which the source and transforms of an epoch write keys."""
    return f"epoch:{epoch}"


def push_task(run: str, number: int) -> str:
    """Returns the task name under which a run's feeder of number ``number`` writes keys."""
    return f"push:{run}:{number}"


def keys_closed(pipeline: str, task: str) -> StateError:
    """Makes the error for a task that may not write keys, or no longer (``Store.end_keys``)."""
    return StateError(
        f"{task} of pipeline {pipeline!r} was given up: it may write no more keys",
        code="state.keys_closed",
        hint="this run was overtaken, or its task replaced; see `penstock runs`",
    )


class KeyPort(Protocol):
    """Reads and writes the keys as one task sees them: the newest value that any task of the run
    wrote, else the durable one. Each call is atomic, also between tasks on several machines. A
    connector gets any exception of a call as the error ``STATE_BACKEND``."""

    def get(self, place: Place) -> str | None:
        """Returns a key's value; None where there is no such key."""
        ...

    def put(self, place: Place, value: str) -> None:
        """Writes a key's value."""
        ...

    def compare_and_swap(self, place: Place, expected: str | None, new: str) -> bool:
        """Writes ``new`` where the value is ``expected`` (None: where there is none); returns
        whether it was."""
        ...

    def begin(self, scope: str) -> None:
        """Begins a stream, or another attempt at it: states of ``scope`` (of :func:`covers`) cover
        what is written from now on. Drops what was written since the last checkpoint. The scope
        before the first call is :data:`SHARED`."""
        ...

    def checkpoint(self) -> int:
        """Counts a checkpoint, which covers all that was written for the current scope before it.
        Returns its number, for :class:`Covered`: it never decreases; 0: nothing was written."""
        ...

    def close(self) -> None:
        """Closes the port's connection."""
        ...


OpenKeys = Callable[[], KeyPort]
"""Opens a new port; each connection to a connector has its own."""


class MemoryKeys:
    """Keeps keys in this process (``KeyPort``), for check, discover and tests. Nothing becomes
    durable, so :meth:`checkpoint` returns 0."""

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
        """No-op: there is no connection."""

    def _get(self, place: Place) -> str | None:
        return self._written.get(place)

    def _put(self, place: Place, value: str) -> None:
        self._since.setdefault(place, self._written.get(place))
        self._written[place] = value


class DryKeys(MemoryKeys):
    """Reads keys of the port ``base``, and keeps writes in this process (``KeyPort`` of a dry run).
    Closes ``base`` when it is closed."""

    def __init__(self, base: KeyPort) -> None:
        super().__init__()
        self._base = base

    def close(self) -> None:
        self._base.close()

    def _get(self, place: Place) -> str | None:
        return self._written[place] if place in self._written else self._base.get(place)
