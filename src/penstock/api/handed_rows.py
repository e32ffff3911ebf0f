"""Stages the rows that a program hands over in one Parquet file, in bounded memory.

Rows are a table, an Arrow stream, or a list or generator of dicts or of tables. They are taken
block by block. A stream's columns are known before its first row; those of dicts, and of several
tables, after the last one: blocks wait in Arrow files until then, and are cast to types that hold
each value exactly. Values that cannot share a column are refused (``write.rows``), and so is a
generator or reader that an earlier write has begun to read, since it no longer gives all of its
rows. Neighbours: ``frames`` makes the Parquet file, ``value_kinds`` compares the values of a
column, ``writing``.
"""

import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from penstock.api.frames import (
    arrow_table,
    cast,
    no_table,
    plain,
    write_file,
    write_tables,
)
from penstock.api.value_kinds import ValueKinds, no_row, unfit
from penstock.codec.untyped import ArrowSchema, ArrowType, Table, pa
from penstock.model.catalog import FieldPath

_MOST_ROWS, _BLOCK_BYTES = 20_000, 16 << 20
_TABLES = ("pandas", "polars")
_NO_ROWS = ("numpy", "pyarrow")  # libraries whose iterables yield no rows
_DIGITS, _SCALE = 38, 18  # for decimals in dicts, where each value fits
_ONE_TYPE = "give a column values of one type, as float(value) or str(value)"


_DEPTH = 32  # levels of objects and lists whose sizes are summed
_READ_ONCE = "it can be read once: make it again for each write, or give a list or a table"
_begun: dict[int, weakref.ref[Any]] = {}


class HandedRows(NamedTuple):
    """The rows in the file. ``untyped``: the columns and fields without a type, as in
    ``frames.write_tables``. ``once``: they came from an object that can be read once."""

    rows: int
    untyped: tuple[FieldPath, ...]
    once: bool


def stage(rows: Any, folder: Path) -> HandedRows:
    """Writes the rows into a file of ``folder``. Raises ``ConfigError`` (``write.rows``), and any
    error that the program's generator or stream raises, with a note of the rows before it."""
    file = folder / "rows.parquet"
    once = isinstance(rows, (Iterator, pa.RecordBatchReader))
    if once:
        _begin(rows)
    untyped = _written(rows, folder, file)
    return HandedRows(pa.parquet.read_metadata(file).num_rows, untyped, once)


def _begin(rows: Any) -> None:
    """Records that a write reads an object that can be read once. Raises ``ConfigError`` where
    another write has begun to read it."""
    known = _begun.get(id(rows))
    if known is not None and known() is rows:
        raise unfit(f"an earlier write has read this {type(rows).__name__}", _READ_ONCE)
    key = id(rows)
    with suppress(TypeError):  # some iterators of Python have no weak references
        _begun[key] = weakref.ref(rows, lambda _: _begun.pop(key, None))


def _written(rows: Any, folder: Path, file: Path) -> tuple[FieldPath, ...]:
    package = type(rows).__module__.partition(".")[0]
    if isinstance(rows, Iterator) and package != "pyarrow":  # pandas too: read_csv(chunksize=)
        return _Blocks(folder).write(_noting(rows, "row"), file)
    if package in _TABLES or isinstance(rows, (pa.Table, pa.RecordBatch)):
        return write_file(arrow_table(rows), file)
    if hasattr(rows, "__arrow_c_stream__"):
        reader = _reader(rows)
        tables = _noting(map(_as_table, reader), "batch")
        return write_tables(reader.schema, _joined(tables), file)
    if isinstance(rows, Iterable) and not isinstance(rows, (str, bytes, Mapping)):
        if package in _NO_ROWS or hasattr(rows, "columns"):  # a frame gives its columns' names
            raise no_table(rows)
        return _Blocks(folder).write(_noting(rows, "row"), file)
    return write_file(arrow_table(rows), file)


def _noting(rows: Iterable[Any], what: str) -> Iterator[Any]:
    """Yields the rows. Adds to an error that they raise a note of how many came before."""
    number = 0
    try:
        for row in rows:
            number += 1
            yield row
    except GeneratorExit:
        raise
    except BaseException as failure:
        after = f"after {what} {number}" if number else f"before the first {what}"
        failure.add_note(f"raised {after} of those given to penstock.write: no row was written")
        raise


def _reader(rows: Any) -> Any:
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    try:
        return pa.RecordBatchReader.from_stream(rows)
    except (pa.ArrowException, TypeError):  # a stream of one column
        raise no_table(rows) from None
    except Exception as failure:  # raised by the library that made it, e.g. for a closed connection
        why = f"this {type(rows).__name__} gives no rows: {failure}"
        raise unfit(why, "mend its query, or open its connection, and make it again") from failure


def _as_table(batch: Any) -> Table:
    return pa.Table.from_batches([batch])


def _joined(tables: Iterable[Table]) -> Iterator[Table]:
    """Joins small tables of one schema: a row group each would make a slow file."""
    waiting: list[Table] = []
    size = 0
    for table in tables:
        waiting.append(table)
        size += table.nbytes
        if size >= _BLOCK_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


class _Blocks:
    """Rows whose columns are known only after the last one. Each run of blocks with the same
    columns is kept in a file of ``folder`` until then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[Path] = []
        self._schema: ArrowSchema = pa.schema([])

    def write(self, rows: Iterator[Any], file: Path) -> tuple[FieldPath, ...]:
        """Reads all rows, then writes the Parquet file. Raises ``ConfigError``."""
        first = next(rows, None)
        if first is None:
            raise unfit(
                "there are no rows, and so no columns",
                "a generator can be read once; if there is nothing to write, leave the call out, "
                "or give an Arrow table that has columns and no rows",
            )
        given = chain([first], rows)
        self._keep(_of_dicts(given) if isinstance(first, Mapping) else _of_tables(given))
        return write_tables(self._schema, _joined(self._kept()), file)

    def _keep(self, tables: Iterator[Table]) -> None:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        writer: Any = None
        for table in tables:
            table = plain(table).replace_schema_metadata(None)
            self._schema = _common(self._schema, table.schema)
            if writer is None or writer[0] != table.schema:
                if writer is not None:
                    writer[1].close()
                self._files.append(self._folder / f"{len(self._files)}.arrow")
                made = pa.ipc.new_stream(str(self._files[-1]), table.schema, options=options)
                writer = (table.schema, made)
            writer[1].write_table(table)
        if writer is not None:
            writer[1].close()

    def _kept(self) -> Iterator[Table]:
        for file in self._files:
            with pa.ipc.open_stream(str(file)) as reader:
                for batch in reader:
                    yield cast(_as_table(batch), self._schema)
            file.unlink()


def _of_dicts(rows: Iterator[Any]) -> Iterator[Table]:
    """Makes tables from blocks of dicts."""
    kinds = ValueKinds()
    taken = 0
    for block in _cut(rows):
        try:
            columns = kinds.columns(block, taken)
        except RecursionError:
            last = taken + len(block)
            why = f"an object in the rows {taken + 1} to {last} contains itself, or is too deep"
            raise unfit(why, "write json.dumps(value)") from None
        yield pa.table({name: _array(name, values) for name, values in columns.items()})
        taken += len(block)


def _cut(rows: Iterator[Any]) -> Iterator[list[Any]]:
    """Cuts rows into blocks by number and by size, since texts and bytes can be long."""
    block: list[Any] = []
    size = 0
    for row in rows:
        block.append(row)
        if isinstance(row, Mapping):
            size += sum(map(_size, row.values()))
        if size >= _BLOCK_BYTES or len(block) >= _MOST_ROWS:
            yield block
            block, size = [], 0
    if block:
        yield block


def _size(value: Any, depth: int = _DEPTH) -> int:
    """Returns the memory that a value takes, with the values in it."""
    size = sys.getsizeof(value)
    if depth and isinstance(value, Mapping):
        size += sum(_size(inner, depth - 1) for inner in value.values())
    elif depth and isinstance(value, (list, tuple)):
        size += sum(_size(inner, depth - 1) for inner in value)
    return size


def _of_tables(tables: Iterator[Any]) -> Iterator[Table]:
    for number, rows in enumerate(tables, 1):
        if not hasattr(rows, "columns"):
            raise no_row(rows, number, *(["the rows before it are tables"] if number > 1 else []))
        yield arrow_table(rows)


def _array(name: str, values: list[Any]) -> Any:
    try:
        made = pa.array(values)
        kind = _steady(made.type)
        return made if kind == made.type else made.cast(kind)
    except OverflowError:
        why, hint = "has a whole number of more than 64 bits", "give it as a Decimal or as text"
    except (ValueError, TypeError, pa.ArrowException) as failure:
        why, hint = f"cannot be one: {failure}", _ONE_TYPE
    raise unfit(f"the column {name!r} {why}", hint)


def _steady(kind: ArrowType) -> ArrowType:
    """Returns the type that values of dicts get in whatever order they come: instants in UTC, and
    decimals of one scale."""
    types = pa.types
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if types.is_decimal128(kind):
        fits = kind.scale <= _SCALE and kind.precision - kind.scale <= _DIGITS - _SCALE
        return pa.decimal128(_DIGITS, _SCALE) if fits else kind
    if types.is_struct(kind):
        return pa.struct([f.with_type(_steady(f.type)) for f in _fields(kind)])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_steady(kind.value_type)))
    return kind


def _common(known: ArrowSchema, come: ArrowSchema) -> ArrowSchema:
    """Returns the columns of both, with types that hold the values of both."""
    if known == come:
        return known
    try:
        schema = pa.unify_schemas([known, come], promote_options="permissive")
    except pa.ArrowException as failure:
        raise unfit(failure, _ONE_TYPE) from None
    for name in {*known.names} & {*come.names}:
        for one in (known, come):
            if _loses(one.field(name).type, schema.field(name).type):
                differ = f"{known.field(name).type} and {come.field(name).type}"
                raise unfit(f"the column {name!r} is {differ} in different rows", _ONE_TYPE)
    return schema


def _loses(kind: ArrowType, wider: ArrowType) -> bool:
    """Returns whether a cast that Arrow allows would change values of the type."""
    types = pa.types
    if types.is_struct(kind) and types.is_struct(wider):
        return any(_loses(f.type, wider.field(f.name).type) for f in _fields(kind))
    if types.is_nested(kind) and types.is_nested(wider):
        inner = zip(_fields(kind), _fields(wider), strict=False)
        return any(_loses(a.type, b.type) for a, b in inner)
    if types.is_decimal(kind):
        return types.is_floating(wider)
    texts = types.is_string(kind) or types.is_large_string(kind)
    return texts and (types.is_binary(wider) or types.is_large_binary(wider))


def _fields(kind: ArrowType) -> list[Any]:
    return [kind.field(index) for index in range(kind.num_fields)]
