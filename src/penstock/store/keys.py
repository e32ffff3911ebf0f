"""Defines the port through which a connector reads and writes its own keys, and ports in memory.

Connector keys are separate from the cursors in states. Every task of the run sees at once what a
task writes. It becomes durable with the checkpoint that covers it, so a port also counts
checkpoints. Not here: what a scope means to a protocol (``protocols``, which call a
:class:`KeyPort`), the port on the store (``task_keys``), the rules of versions (``keys_ledger``),
when a checkpoint is committed (``engine``)."""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from penstock.errors import StateError

SHARED = "*"  # ``StateScope.key`` of a state that is not one stream's

PATH = "path"
"""The scope of a stream's keys that are also listed, counted and deleted by prefix. Such a key has
at most :data:`LONGEST_PATH` bytes, since an index holds it."""

LONGEST_PATH = 1024
PAGE_BYTES = 1 << 20  # of values in one page of a list; a larger value is a page of its own
PAGE_KEYS = 1000


class KeyAddress(msgspec.Struct, frozen=True, order=True):
    """Identifies a connector key in its pipeline. ``scope``: ``pipeline``, ``stream``, ``instance``
    or :data:`PATH`. ``owner``, by scope: empty; the source's stream (``StreamId.key``), whatever a
    destination calls it, also for :data:`PATH`; the role and position of the connector
    (``transform:1``)."""

    scope: str
    owner: str
    key: str


class CoveredKeys(msgspec.Struct, frozen=True):
    """Names the keys that a checkpoint covers: all that ``task`` wrote for states of ``scope``
    (``StateScope.key``) up to the checkpoint number ``upto``, which :meth:`KeyPort.checkpoint`
    returned. ``place``: the transform that wrote them, which may be ahead of other transforms of
    the same task; empty: no transform."""

    task: str
    scope: str
    upto: int
    place: str = ""


def covers(scope: str, place: str = "") -> str:
    """Makes the scope that :meth:`KeyPort.begin` takes, for a :class:`CoveredKeys` of the same
    scope and place."""
    return f"{scope}\n{place}" if place else scope  # a scope is one line


def scope_of(text: str) -> str:
    """Returns the ``StateScope.key`` in a scope that :func:`covers` made."""
    return text.partition("\n")[0]


def bounds_of(covered: Iterable[CoveredKeys]) -> dict[tuple[str, str], int]:
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
        f"{task} of pipeline {pipeline!r} was replaced: it may write no more keys",
        code="state.keys_closed",
        hint="this run was overtaken, or its task replaced; see `penstock runs`",
    )


class KeyPort(Protocol):
    """Reads and writes the keys as one task sees them: the newest value that any task of the run
    wrote, else the durable one. Each call is atomic, also between tasks on several machines. A
    connector gets any exception of a call as the error ``STATE_BACKEND``."""

    def get(self, place: KeyAddress) -> str | None:
        """Returns a key's value; None if there is no such key."""
        ...

    def put(self, place: KeyAddress, value: str) -> None:
        """Writes a key's value."""
        ...

    def compare_and_swap(self, place: KeyAddress, expected: str | None, new: str) -> bool:
        """Writes ``new`` if the value is ``expected`` (None: if there is none); returns whether it
        was."""
        ...

    def delete(self, place: KeyAddress) -> bool:
        """Deletes a key; returns whether it existed."""
        ...

    def delete_under(self, under: KeyAddress) -> int:
        """Deletes every key of the scope :data:`PATH` that has the owner of ``under`` and begins
        with its key; returns how many there were."""
        ...

    def count_under(self, under: KeyAddress) -> int:
        """Returns how many keys :meth:`delete_under` would delete."""
        ...

    def page_under(self, under: KeyAddress, after: str | None = None) -> list[tuple[str, str]]:
        """Returns a page of the keys that :meth:`delete_under` would delete, with their values:
        those after the key ``after``, in the order of their code points, at most :data:`PAGE_KEYS`
        and about :data:`PAGE_BYTES`. An empty page is the end."""
        ...

    def begin(self, scope: str) -> None:
        """Begins a stream, or another attempt at it: states of ``scope`` (of :func:`covers`) cover
        what is written from now on. Drops what was written since the last checkpoint. The scope
        before the first call is :data:`SHARED`."""
        ...

    def checkpoint(self) -> int:
        """Counts a checkpoint, which covers all that was written for the current scope before it.
        Returns its number, for :class:`CoveredKeys`: it never decreases; 0: nothing was written."""
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
        self._written: dict[KeyAddress, str | None] = {}  # None: deleted
        # before the last checkpoint; an empty tuple: not written
        self._since: dict[KeyAddress, tuple[()] | tuple[str | None]] = {}
        self._lock = threading.RLock()

    def get(self, place: KeyAddress) -> str | None:
        with self._lock:
            return self._written[place] if place in self._written else self._durable(place)

    def put(self, place: KeyAddress, value: str) -> None:
        with self._lock:
            self._write(place, value)

    def compare_and_swap(self, place: KeyAddress, expected: str | None, new: str) -> bool:
        with self._lock:
            if self.get(place) != expected:
                return False
            self._write(place, new)
            return True

    def delete(self, place: KeyAddress) -> bool:
        with self._lock:
            if self.get(place) is None:
                return False
            self._write(place, None)
            return True

    def delete_under(self, under: KeyAddress) -> int:
        with self._lock:
            keys = [key for page in self._pages(under) for key, _ in page]
            for key in keys:
                self._write(KeyAddress(under.scope, under.owner, key), None)
            return len(keys)

    def count_under(self, under: KeyAddress) -> int:
        with self._lock:
            return sum(len(page) for page in self._pages(under))

    def page_under(self, under: KeyAddress, after: str | None = None) -> list[tuple[str, str]]:
        with self._lock:
            while True:
                durable = self._durable_page(under, after)
                last = durable[-1][0] if durable else None
                found: dict[str, str | None] = dict(durable)
                for place, value in self._written.items():
                    key = place.key
                    if (
                        (place.scope, place.owner) == (under.scope, under.owner)
                        and key.startswith(under.key)
                        and (after is None or key > after)
                        and (last is None or key <= last)
                    ):
                        found[key] = value
                there = [(key, value) for key, value in sorted(found.items()) if value is not None]
                if there or last is None:
                    break
                after = last  # every key of that page is deleted
        size = 0
        for number, (_, value) in enumerate(there):
            size += len(value)
            if number and (number == PAGE_KEYS or size > PAGE_BYTES):
                return there[:number]
        return there

    def begin(self, scope: str) -> None:
        with self._lock:
            for place, before in self._since.items():
                if before:
                    self._written[place] = before[0]
                else:
                    del self._written[place]
            self._since.clear()

    def checkpoint(self) -> int:
        with self._lock:
            self._since.clear()
        return 0

    def close(self) -> None:
        """No-op: there is no connection."""

    def _pages(self, under: KeyAddress) -> Iterator[list[tuple[str, str]]]:
        after: str | None = None
        while page := self.page_under(under, after):
            yield page
            after = page[-1][0]

    def _write(self, place: KeyAddress, value: str | None) -> None:
        before = (self._written[place],) if place in self._written else ()
        self._since.setdefault(place, before)
        self._written[place] = value

    def _durable(self, place: KeyAddress) -> str | None:
        del place
        return None

    def _durable_page(self, under: KeyAddress, after: str | None) -> list[tuple[str, str]]:
        del under, after
        return []


class DryKeys(MemoryKeys):
    """Reads keys of the port ``base``, and keeps writes in this process (``KeyPort`` of a dry run).
    Closes ``base`` when it is closed."""

    def __init__(self, base: KeyPort) -> None:
        super().__init__()
        self._base = base

    def close(self) -> None:
        self._base.close()

    def _durable(self, place: KeyAddress) -> str | None:
        return self._base.get(place)

    def _durable_page(self, under: KeyAddress, after: str | None) -> list[tuple[str, str]]:
        return self._base.page_under(under, after)
