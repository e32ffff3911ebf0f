"""Decodes the lines of CSV and JSON files into typed rows, and finds the types of CSV columns.

Runs in Spark's tasks over Arrow columns. A row is a struct: the columns ``c0``, ``c1``, ... and
those that ``model.staged_rows`` defines for rows of text files. A line that is not a row has BROKEN
and LINE; a blank line and a header are NULL. Losses of values follow L9, by ``codec.columns`` for
CSV and ``codec.decode`` for JSON. Neighbours: ``csv_lines`` cuts CSV, ``spark.text_files``
calls."""

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from penstock.codec.arrow import arrow_type
from penstock.codec.columns import fit_text
from penstock.codec.csv_lines import (
    CsvDialect,
    CsvFields,
    CsvRecords,
    Records,
    blank,
    without_return,
)
from penstock.codec.decode import RowDecoder
from penstock.codec.packed_bodies import Packed, Piece
from penstock.codec.untyped import Array, ArrowType, pa
from penstock.codec.untyped import compute as pc
from penstock.model.staged_rows import BROKEN, GIVEN, LINE, MISFITS
from penstock.model.types import CHANGES, DataType, Field, Kind, RowSchema

_BEYOND_MICROS = r"[.,][0-9]{6}0*[1-9]"
_INTEGER = r"^(?:0|-?[1-9][0-9]*)$"
_DIGITS = 15  # after a decimal point; a number has no more
_EXPONENTS = 325  # no exponent of a number has more
_SHORTEST = re.compile(r"1(\.0)?([eE]\+?)([0-9]+)")


def _numbers() -> Iterator[str]:
    """Yields patterns for columns of numbers. In each, two texts are two numbers, but for the sign
    of zero: ``1.1`` and ``1.10`` may be versions, and ``12E3`` a product."""
    whole, ended = "(?:0|[1-9][0-9]*)", r"\.[0-9]*[1-9]"
    yield rf"^-?{whole}(?:{ended})?$"
    yield rf"^-?{whole}(?:\.0|{ended})$"
    yield rf"^-?(?:0|[1-9][0-9]*|(?:[1-9][0-9]*)?{ended})$"  # as Oracle: .5
    yield _shortest("1e+21", "1e-7")  # as JavaScript
    yield _shortest("1e+15", "1e-05")  # as Postgres
    yield _shortest("1e+06", "1e-05")  # as C's %g
    yield _shortest("1e+16", "1e-05", plain=".0")  # as Python
    yield _shortest("1.0E7", "1.0E-4", plain=".0")  # as Java
    for digits in range(1, _DIGITS + 1):
        yield rf"^-?{whole}\.[0-9]{{{digits}}}$"
        last = "|".join(rf"[0-9]{{{n}}}[1-9]0{{{digits - 1 - n}}}" for n in range(digits))
        yield rf"^-?{whole}(?:\.(?:{last}))?$"
        mantissa = rf"(?:[1-9]\.[0-9]{{{digits}}}|0\.0{{{digits}}})"
        yield rf"^-?{mantissa}e[+-](?:[0-9]{{2}}|[1-9][0-9]{{2}})$"  # as C's %e


def _shortest(large: str, small: str, plain: str = "") -> str:
    """Returns the pattern of numbers that are printed with an exponent from ``large`` on and from
    ``small`` down. ``plain``: the end of a whole number without one."""
    match = _SHORTEST.fullmatch(large)
    assert match is not None
    point, plus, whole = re.escape(match[1] or ""), re.escape(match[2]), re.escape(plain)
    below = small.rpartition("-")[2]
    most, least, width = int(match[3]), int(below), len(below)
    up, down = (
        "|".join(f"{n:0{width}}" for n in range(first, _EXPONENTS)) for first in (most, least)
    )
    ended = r"\.[0-9]*[1-9]"
    return (
        rf"^-?(?:0{whole}|0\.0{{0,{least - 2}}}[1-9](?:[0-9]*[1-9])?"
        rf"|[1-9][0-9]{{0,{most - 1}}}(?:{whole}|{ended})"
        rf"|[1-9](?:{point}|{ended})(?:{plus}(?:{up})|{plus[0]}-(?:{down})))$"
    )


_TIMESTAMP = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
    r" ?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?$"
)
CANDIDATES: tuple[tuple[DataType, str], ...] = (
    (DataType(Kind.boolean), ""),
    (DataType(Kind.integer), _INTEGER),
    (DataType(Kind.decimal, 38, 0), _INTEGER),
    *((DataType(Kind.number), pattern) for pattern in _numbers()),
    (DataType(Kind.date), r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    (DataType(Kind.timestamp), _TIMESTAMP),
)
"""The types to try for a column of texts, in order, and what each text must match too. The first
type that holds every value exactly is taken."""


def row_type(types: Sequence[DataType]) -> ArrowType:
    """Returns the Arrow type of a row."""
    return pa.struct(
        [
            *(pa.field(f"c{index}", arrow_type(kind)) for index, kind in enumerate(types)),
            pa.field(GIVEN, pa.list_(pa.string())),
            pa.field(MISFITS, pa.list_(pa.int32())),
            pa.field(BROKEN, pa.string()),
            pa.field(LINE, pa.binary()),
        ]
    )


class FileRows(Protocol):
    """Decodes the lines of one file, or of one piece of a file, in order."""

    def add(self, lines: Array, *, end: bool = False) -> tuple[Array, Sequence[int]]:
        """Returns the results for ``lines`` (binary, without line feeds) and earlier ones, and for
        each the number of the line at which it ended. ``end``: no more lines come."""
        ...


class CsvTexts:
    """Cuts lines of a CSV file into columns of texts. ``places``: for each field of a line, the
    number of its column among ``width``. ``header``: the first line is the header."""

    def __init__(
        self, dialect: CsvDialect, places: Sequence[int], width: int, *, header: bool
    ) -> None:
        self._records, self._fields = CsvRecords(dialect), CsvFields(dialect, len(places))
        self._places = {column: index for index, column in enumerate(places)}
        self._width, self._header = width, header

    def add(self, lines: Array, end: bool) -> tuple[Records, Array, Array, list[Array]]:
        """Returns the records; which of them are neither rows nor broken; why they are broken
        (NULL: they are not); and the columns of those that are rows."""
        records = self._records.add(lines, end=end)
        records.data = without_return(records.data)
        passed = blank(records.data)
        faults = self._fields.faults(records)
        if self._header and not pc.all(passed).as_py():
            first = pc.index(passed, False).as_py()
            numbers = pa.array(range(len(passed)), pa.int32())
            passed = pc.or_(passed, pc.equal(numbers, first))
            self._header = False
        sound = pc.and_(pc.is_null(faults), pc.invert(passed))
        kept = records.data.filter(sound)
        texts = self._fields.texts(kept)
        nothing = pa.nulls(len(kept), pa.string())
        columns = [
            texts[self._places[column]] if column in self._places else nothing
            for column in range(self._width)
        ]
        return records, passed, faults, columns


class CsvRows:
    """Implements :class:`FileRows` for CSV. ``types``: of all columns, for ``places`` as for
    :class:`CsvTexts`. ``file``: its name, for rejects."""

    def __init__(
        self,
        dialect: CsvDialect,
        places: Sequence[int],
        types: Sequence[DataType],
        *,
        header: bool,
        file: str,
    ) -> None:
        self._file = file
        self._texts = CsvTexts(dialect, places, len(types), header=header)
        self._types = types

    def add(self, lines: Array, *, end: bool = False) -> tuple[Array, Sequence[int]]:
        records, passed, faults, columns = self._texts.add(lines, end)
        count = len(columns[0]) if columns else 0
        values: list[Array] = []
        lost: dict[int, list[int]] = {}
        for number, (texts, kind) in enumerate(zip(columns, self._types, strict=True)):
            fitted = fit_text(texts, kind)
            values.append(fitted.values)
            found = [fitted.cast_failures, fitted.rounded]
            if fitted.cut:
                cut = pc.indices_nonzero(pc.match_substring_regex(texts, _BEYOND_MICROS))
                found.append(cut)
            for row in (row for rows in found if rows is not None for row in rows.to_pylist()):
                lost.setdefault(row, []).append(number)
        given = None
        if lost:
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            given = pa.array([list(row) for row in rows], pa.list_(pa.string()))
        rows_made = _rows(self._types, values, count, given, lost)
        return _placed(rows_made, records.data, passed, _in_file(self._file, faults)), records.at


class JsonRows:
    """Implements :class:`FileRows` for JSON, one record per line; an array of records stands for
    each of its records. ``fields``: the columns. ``file``: its name, for rejects."""

    def __init__(self, fields: Sequence[Field], file: str) -> None:
        self._file = file
        named = [Field(f"c{n}", f.source, f.type) for n, f in enumerate(fields)]
        self._decoder = RowDecoder(RowSchema(tuple(named)))
        self._types = [f.type for f in fields]
        self._sources = [f.source for f in fields]

    def add(self, lines: Array, *, end: bool = False) -> tuple[Array, Sequence[int]]:
        del end
        lines, at = _spread(lines)
        empty = pc.match_substring_regex(lines, r"\A[ \t\r]*\z")
        bodies = lines.filter(pc.invert(empty))
        decoded = self._decoder.decode(_packed(bodies), 0, [0] * len(bodies))
        refused = {reject.index: reject.reason for reject in decoded.rejects}
        table, count = decoded.table, len(bodies) - len(refused)
        kept = bodies
        if refused:
            kept = bodies.filter(pa.array([i not in refused for i in range(len(bodies))]))
        lost = self._lost(table)
        given = None
        if lost or decoded.cut or decoded.extra_fields:
            texts = kept.cast(pa.string())
            given = pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), texts)
        values = [table[f"c{number}"].combine_chunks() for number in range(len(self._types))]
        rows = _rows(self._types, values, count, given, lost)
        faults: Array = pa.nulls(len(lines), pa.string())
        if refused:
            reasons = pa.array([refused.get(i) for i in range(len(bodies))], pa.string())
            faults = pc.replace_with_mask(faults, pc.invert(empty), reasons)
        return _placed(rows, lines, empty, _in_file(self._file, faults)), at

    def _lost(self, table: Any) -> dict[int, list[int]]:
        """Returns the columns that lost something, by row."""
        lists = table[CHANGES].combine_chunks()
        found: dict[int, list[int]] = {}
        for row in pc.indices_nonzero(pc.greater(pc.list_value_length(lists), 0)).to_pylist():
            fields = [change["field"] for change in lists[row].as_py()]
            found[row] = [n for n, s in enumerate(self._sources) if any(_of(f, s) for f in fields)]
        return found


def _of(field: str, column: str) -> bool:
    """Returns whether an entry's ``field`` may belong to the column, whose name may contain points
    too."""
    return field == column or field.startswith((f"{column}.", f"{column}["))


def _in_file(file: str, faults: Array) -> Array:
    return pc.binary_join_element_wise(f"{file}: ", faults, "")


def _spread(lines: Array) -> tuple[Array, Sequence[int]]:
    """Replaces lines that are JSON arrays by their elements."""
    lists = pc.match_substring_regex(lines, r"\A[ \t\r]*\[")
    if not pc.any(lists).as_py():
        return lines, range(len(lines))
    made: list[bytes] = []
    at: list[int] = []
    for number, (line, is_list) in enumerate(
        zip(lines.to_pylist(), lists.to_pylist(), strict=True)
    ):
        each = [line]
        if is_list:
            with suppress(msgspec.DecodeError):  # such a line is a reject
                each = [bytes(item) for item in msgspec.json.decode(line, type=list[msgspec.Raw])]
        made += each
        at += [number] * len(each)
    return pa.array(made, pa.binary()), at


def _packed(bodies: Array) -> Packed:
    """Packs bodies without an object for each, if their column begins at the first of them."""
    ends = array("i")
    if len(bodies) and not bodies.offset:
        ends.frombytes(memoryview(bodies.buffers()[1])[: 4 * (len(bodies) + 1)])
    if not ends or ends[0]:
        return Packed.of(bodies.to_pylist())
    data: Any = bodies.buffers()[2]
    return Packed((Piece(data.slice(0, ends[-1]).to_pybytes(), ends),))


def _rows(
    types: Sequence[DataType],
    values: Sequence[Array],
    count: int,
    given: Array | None,
    lost: Mapping[int, Sequence[int]],
) -> Array:
    """Makes the rows of the lines that are rows."""
    kind = row_type(types)
    misfits = [lost.get(row) for row in range(count)] if lost else [None] * count
    if given is None:
        given = pa.nulls(count, pa.list_(pa.string()))
    columns: list[Any] = [
        *values,
        given,
        pa.array(misfits, pa.list_(pa.int32())),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.binary()),
    ]
    fields = [kind.field(index) for index in range(kind.num_fields)]
    made = [c.cast(f.type) for c, f in zip(columns, fields, strict=True)]
    return pa.StructArray.from_arrays(made, fields=fields)


def _placed(rows: Array, lines: Array, passed: Array, faults: Array) -> Array:
    """Puts rows at the places of their lines, and the broken lines between them; lines in
    ``passed`` are NULL."""
    if len(rows) == len(lines):
        return rows
    broken = pc.and_(pc.is_valid(faults), pc.invert(passed))
    where = pc.indices_nonzero(broken)
    count = len(where)
    kind = rows.type
    fields = [kind.field(index) for index in range(kind.num_fields)]
    columns: list[Array] = [pa.nulls(count, f.type) for f in fields[:-2]]
    columns += [faults.take(where), lines.take(where)]
    every = pa.concat_arrays([rows, pa.StructArray.from_arrays(columns, fields=fields)])
    order: list[int | None] = []
    row, fault = 0, len(rows)
    for is_passed, is_broken in zip(passed.to_pylist(), broken.to_pylist(), strict=True):
        if is_passed:
            order.append(None)
        elif is_broken:
            order.append(fault)
            fault += 1
        else:
            order.append(row)
            row += 1
    return every.take(pa.array(order, pa.int64()))


class CsvTypes:
    """Finds the types of columns of texts: for each, those of :data:`CANDIDATES` that hold every
    value exactly. ``wanted``: the columns that are looked at."""

    def __init__(self, wanted: Sequence[int]) -> None:
        self.seen = dict.fromkeys(wanted, False)
        self.left = {column: list(range(len(CANDIDATES))) for column in wanted}

    def add(self, columns: Sequence[Array]) -> None:
        """Takes the values of rows."""
        for column, left in self.left.items():
            texts = columns[column].drop_null()
            if not len(texts):
                continue
            self.seen[column] = True
            some = [number for number in left if _holds(texts[:1], number)]
            self.left[column] = [number for number in some if _holds(texts, number)]

    def merge(self, left: Mapping[int, Sequence[int]]) -> None:
        """Adds what another instance found in other rows, for the columns that have values
        there."""
        for column, numbers in left.items():
            self.seen[column] = True
            self.left[column] = [number for number in self.left[column] if number in numbers]

    def found(self) -> dict[int, list[int]]:
        """Returns the remaining types of the columns that have values."""
        return {column: left for column, left in self.left.items() if self.seen[column]}

    def types(self) -> dict[int, DataType]:
        """Returns the type of each column: text where no other holds, or it has no values."""
        return {
            column: CANDIDATES[left[0]][0] if left and self.seen[column] else DataType(Kind.string)
            for column, left in self.left.items()
        }


def _holds(texts: Array, number: int) -> bool:
    kind, pattern = CANDIDATES[number]
    if pattern and not pc.all(pc.match_substring_regex(texts, pattern)).as_py():
        return False
    fitted = fit_text(texts, kind)
    return fitted.cast_failures is None and fitted.rounded is None and not fitted.cut
