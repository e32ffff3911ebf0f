"""Connector keys in memory: the twin of ``keys_ledger`` and ``task_keys``, for ``state.memory``.

A :class:`KeyTable` is a pipeline's keys; whoever calls it holds its lock. :class:`TableKeys` is a
task's port to it, and takes the lock itself.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import msgspec

from penstock.model.catalog import StreamId
from penstock.state.keys import SHARED, Covered, Place, bounds_of, keys_closed, scope_of


class _Version(msgspec.Struct, frozen=True):
    """``task`` empty: durable."""

    value: str
    task: str = ""
    covers: str = ""
    mark: int = 0

    def is_covered(self, bounds: dict[tuple[str, str], int]) -> bool:
        return self.mark <= bounds.get((self.task, self.covers), 0)


class KeyTable:
    """``versions``: of each key, oldest first. ``marks``: of each task that may write, the last."""

    def __init__(self, pipeline: str) -> None:
        self.pipeline = pipeline
        self.versions: dict[Place, list[_Version]] = {}
        self.marks: dict[str, int] = {}

    def begin(self, task: str) -> None:
        self.marks.setdefault(task, 0)

    def newest(self, place: Place) -> str | None:
        versions = self.versions.get(place)
        return versions[-1].value if versions else None

    def write(self, place: Place, value: str, task: str, covers: str, mark: int | None) -> int:
        """``mark`` None: a new one is taken. Raises ``StateError``."""
        if task not in self.marks:
            raise keys_closed(self.pipeline, task)
        if mark is None:
            mark = self.marks[task] = self.marks[task] + 1
        kept = [v for v in self.versions.get(place, ()) if (v.task, v.mark) != (task, mark)]
        self.versions[place] = [*kept, _Version(value, task, covers, mark)]
        return mark

    def discard(self, task: str, mark: int) -> None:
        self._keep(lambda _, v: (v.task, v.mark) != (task, mark))

    def end(self, covered: Iterable[Covered], tasks: Iterable[str] | None) -> None:
        ended = self._tasks() if tasks is None else set(tasks)
        bounds = bounds_of(covered)
        self.marks = {task: mark for task, mark in self.marks.items() if task not in ended}
        self._keep(lambda _, v: v.task not in ended or v.is_covered(bounds))

    def promote(self, covered: Iterable[Covered]) -> None:
        bounds = bounds_of(covered)
        if not bounds:
            return
        for place, versions in self.versions.items():
            now = [_Version(v.value) if v.task and v.is_covered(bounds) else v for v in versions]
            last = max((at for at, v in enumerate(now) if not v.task), default=0)
            self.versions[place] = [v for at, v in enumerate(now) if v.task or at == last]

    def reset(self, streams: Iterable[StreamId] | None) -> None:
        if streams is None:
            self.versions = {}
            return
        given = {s.key for s in streams}
        self._keep(
            lambda place, v: (
                not (place.scope == "stream" and place.owner in given)
                and scope_of(v.covers) not in given
            )
        )

    def durable(self) -> dict[Place, str]:
        found = {p: v.value for p, its in self.versions.items() for v in its if not v.task}
        return dict(sorted(found.items()))

    def _tasks(self) -> set[str]:
        return {v.task for its in self.versions.values() for v in its if v.task} | set(self.marks)

    def _keep(self, wanted: Callable[[Place, _Version], bool]) -> None:
        kept = {p: [v for v in its if wanted(p, v)] for p, its in self.versions.items()}
        self.versions = {place: versions for place, versions in kept.items() if versions}


class TableKeys:
    """``KeyPort``. ``table``: the pipeline's."""

    def __init__(
        self, table: Callable[[], KeyTable], lock: AbstractContextManager[object], task: str
    ) -> None:
        self._table, self._lock, self._task = table, lock, task
        self._scope = SHARED
        self._mark: int | None = None
        self._covered: dict[str, int] = {}  # the last checkpoint of each scope

    def get(self, place: Place) -> str | None:
        with self._lock:
            return self._table().newest(place)

    def put(self, place: Place, value: str) -> None:
        with self._lock:
            self._write(place, value)

    def compare_and_swap(self, place: Place, expected: str | None, new: str) -> bool:
        with self._lock:
            if self._table().newest(place) != expected:
                return False
            self._write(place, new)
            return True

    def begin(self, scope: str) -> None:
        with self._lock:
            if self._mark is not None:
                self._table().discard(self._task, self._mark)
            self._scope, self._mark = scope, None

    def checkpoint(self) -> int:
        with self._lock:
            if self._mark is not None:
                self._covered[self._scope], self._mark = self._mark, None
            return self._covered.get(self._scope, 0)

    def close(self) -> None:
        """Nothing to close."""

    def _write(self, place: Place, value: str) -> None:
        self._mark = self._table().write(place, value, self._task, self._scope, self._mark)
