"""Records segments sent to a destination connector but not yet acknowledged, so that the next run
can report how many rows it sends again.

Only for counting: no decision depends on it. Driver only; one JSON file next to the log.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from penstock.files import replace
from penstock.model.segments import ConsumedSlice
from penstock.tasks.storage import storage


class SentMarks:
    """The recorded (segment, stream) pairs. ``path`` None: in memory, for simulations. Methods that
    write raise ``LogError``."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._marks = self._read()

    def before(self) -> frozenset[ConsumedSlice]:
        """Returns the pairs as they are now."""
        return frozenset(self._marks)

    def add(self, items: Iterable[ConsumedSlice]) -> None:
        """Adds pairs and writes the file."""
        new = set(items) - self._marks
        if new:
            self._marks |= new
            self._write()

    def remove(self, items: Iterable[ConsumedSlice]) -> None:
        """Removes pairs and writes the file."""
        old = self._marks.intersection(items)
        if old:
            self._marks -= old
            self._write()

    def _read(self) -> set[ConsumedSlice]:
        if self._path is None:
            return set()
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=set[ConsumedSlice])
        except (FileNotFoundError, msgspec.DecodeError):
            return set()

    def _write(self) -> None:
        if self._path is None:
            return
        with storage(self._path, "write"):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            marks = sorted(self._marks, key=lambda m: (m.segment, m.stream.key))
            replace(self._path, msgspec.json.encode(marks), durable=True)
