"""Runs over the lines of files in Spark's tasks, batch by batch, for ``text_files``.

Spark gives a task lines of files, or of pieces of them, in order, and expects a value for each
line. A value is the list of the rows that ended at the line. One batch is held back, so that the
rest at the end of a file has a place. Not here: what a line means (``codec.file_rows``)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from penstock.codec.csv_lines import CsvDialect, CsvRecords
from penstock.codec.file_rows import CsvTypes, row_type
from penstock.codec.untyped import Array, ArrowType, pa
from penstock.codec.untyped import compute as pc
from penstock.model.types import DataType

Make = Callable[[str, bool], Any]
"""(file, whether its first line comes) -> what takes its lines, in order."""


def read_lines(
    batches: Any, make: Make, whole: bool, types: Sequence[DataType] | None
) -> Iterator[Array]:
    """Yields for each line the list of what ended there: rows of ``types``; None: bytes.
    ``batches``: (line, file, begin of the piece) as Arrow columns. ``whole``: pieces of a file
    follow each other."""
    state, kind = _Pieces(make, whole), pa.binary() if types is None else row_type(types)
    held: _Placed | None = None
    for line, file, start in batches:
        now = _Placed(len(line), kind)
        for first, lines, before, reader in state.pieces(line, file, start):
            if before is not None:
                now.put(first, before.add(lines.slice(0, 0), end=True))
            now.put(first, reader.add(lines))
        if held is not None:
            yield held.lists()
        held = now
    if held is not None:
        if state.reader is not None:
            held.end(state.reader.add(pa.array([], pa.binary()), end=True))
        yield held.lists()


def look_at_lines(batches: Any, make: Make, whole: bool, asked: Sequence[int]) -> Iterator[Array]:
    """Yields NULL for each line, except for the last one the types that the columns ``asked`` may
    have, as JSON (``CsvTypes.found``)."""
    state, types, held = _Pieces(make, whole), CsvTypes(asked), 0
    for line, file, start in batches:
        for _, lines, before, reader in state.pieces(line, file, start):
            if before is not None:
                types.add(before.add(lines.slice(0, 0), True)[3])
            types.add(reader.add(lines, False)[3])
        if held:
            yield pa.nulls(held, pa.string())
        held = len(line)
    if held:
        if state.reader is not None:
            types.add(state.reader.add(pa.array([], pa.binary()), True)[3])
        found = msgspec.json.encode(types.found()).decode()
        yield pa.array([*([None] * (held - 1)), found], pa.string())


class Header:
    """Finds the header of a file: the first record that is not blank."""

    def __init__(self, dialect: CsvDialect, begins: bool) -> None:
        self._records = CsvRecords(dialect)
        self._found = not begins

    def add(self, lines: Array, *, end: bool = False) -> tuple[Array, Sequence[int]]:
        if self._found:
            return pa.nulls(len(lines), pa.binary()), range(len(lines))
        records = self._records.add(lines, end=end)
        given: list[bytes | None] = [None] * len(records.data)
        for number, record in enumerate(records.data.to_pylist()):
            if record.rstrip(b"\r"):
                given[number], self._found = record, True
                break
        return pa.array(given, pa.binary()), records.at


class _Pieces:
    """Cuts batches of lines where a file, or a piece of one, ends. ``reader``: the current one."""

    def __init__(self, make: Make, whole: bool) -> None:
        self._make, self._whole = make, whole
        self._where: Any = None
        self.reader: Any = None

    def pieces(
        self, line: Array, file: Array, start: Array
    ) -> Iterator[tuple[int, Array, Any, Any]]:
        """Yields the number of the first line, the lines, the reader that has ended (None: none
        has), and that of the lines."""
        for first, count in _runs(file, start):
            name, begin = file[first].as_py(), start[first].as_py()
            where, before = name if self._whole else (name, begin), None
            if where != self._where:
                before = self.reader
                self.reader, self._where = self._make(name, begin == 0), where
            yield first, line.slice(first, count), before, self.reader


def _runs(file: Array, start: Array) -> Iterator[tuple[int, int]]:
    """Yields the runs of lines of one piece: (first, how many)."""
    count = len(file)
    if not count:
        return
    same = pc.and_(pc.equal(file, file[0]), pc.equal(start, start[0]))
    if pc.all(same).as_py():
        yield 0, count
        return
    pairs = list(zip(file.to_pylist(), start.to_pylist(), strict=True))
    first = 0
    for number in range(1, count + 1):
        if number == count or pairs[number] != pairs[first]:
            yield first, number - first
            first = number


class _Placed:
    """Collects values, each with the number of its line."""

    def __init__(self, count: int, kind: ArrowType) -> None:
        self.count, self._kind = count, kind
        self._values: list[Array] = []
        self._at: list[Sequence[int]] = []

    def put(self, first: int, found: tuple[Array, Sequence[int]]) -> None:
        """Adds values whose places count from ``first``."""
        values, at = found
        if len(values):
            self._values.append(values)
            self._at.append([first + place for place in at] if first else at)

    def end(self, found: tuple[Array, Sequence[int]]) -> None:
        """Adds what is left, at the last line."""
        self.put(self.count - 1, (found[0], [0] * len(found[0])))

    def lists(self) -> Array:
        """Returns for each line the list of its values."""
        if not self._values:
            return pa.nulls(self.count, pa.list_(self._kind))
        values = pa.concat_arrays(self._values)
        ends = range(self.count + 1)
        if len(self._at) > 1 or self._at[0] != range(self.count):
            counts = [0] * (self.count + 1)
            for places in self._at:
                for place in places:
                    counts[place + 1] += 1
            ends = list(_running(counts))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)


def _running(counts: Sequence[int]) -> Iterator[int]:
    total = 0
    for count in counts:
        total += count
        yield total
