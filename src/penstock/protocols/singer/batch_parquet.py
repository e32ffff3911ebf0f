"""Converts the rows of a Parquet file of a BATCH message to JSON, by column.

Bytes become base64, names are the file's own. A file of a few kilobytes may hold rows of any length
(compression, dictionaries), so rows are converted together only while they are short: the others in
slices of bounded size, and a row of many bytes by itself, in pieces. DuckDB's memory for the file
is bounded too. Not here: which files are read (``batch_files``).
"""

import json
from binascii import b2a_base64
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import IO, Any

from penstock.codec.framing import LineFramer
from penstock.protocols.singer.batch_rows import BatchError, MalformedRow, Rows, rows_of

_ROWS = 2048  # as many as DuckDB converts at once
_SHORT = 32 * 1024  # bytes of a row's values, for rows converted together
_SLICE = 8 << 20  # bytes of values that are converted at once; of one row: in pieces
_PIECE = 3 << 20  # a multiple of 3, for base64
_HELD = 2  # times the longest record: bytes that DuckDB may hold while rows are short
_LEAST_HELD = 512 << 20
_MOST_HELD = 5 << 30  # a page has less than 2 GiB, and a row is copied once
_FIXED = 24  # bytes of a value without a length of its own


def parquet_rows(
    name: str, file: IO[bytes], max_record_bytes: int, framer: LineFramer
) -> Iterator[Rows | MalformedRow]:
    """Yields the rows of ``file``, which messages call ``name``; too long ones go through
    ``framer``. Raises :class:`BatchError`."""
    import duckdb
    import pyarrow as pa

    held = max(_HELD * max_record_bytes, _LEAST_HELD)
    options: Any = {"threads": 1, "memory_limit": f"{held}B", "temp_directory": ""}
    try:
        with duckdb.connect(config=options) as connection:
            yield from _File(connection, file, max_record_bytes, framer).rows()
    except (duckdb.Error, pa.ArrowException, OSError) as e:
        raise BatchError(f"{name}: {e}") from e


class _File:
    """Reads one file from its beginning to its end."""

    def __init__(
        self, connection: Any, file: IO[bytes], max_record_bytes: int, framer: LineFramer
    ) -> None:
        import pyarrow.parquet as pq

        self._connection, self._max, self._framer = connection, max_record_bytes, framer
        found = pq.ParquetFile(file)
        schema: Any = found.schema_arrow
        self._groups = [
            found.metadata.row_group(n).num_rows for n in range(found.metadata.num_row_groups)
        ]
        # DuckDB opens the file by its descriptor, so it is the one that was checked. Folder names
        # are not columns.
        self._path = f"/dev/fd/{file.fileno()}"
        connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
        types = self._query("SELECT *", number=False).types
        self._names = [f.name for f in schema]
        self._columns = [f"c{n}" for n in range(len(types))]
        given = list(zip(self._columns, types, [f.type for f in schema], strict=True))
        self._values = [(c, kind, _value(c, kind, own, 0)) for c, kind, own in given]
        record = _object(self._columns, types, self._names, [f.type for f in schema], 0)
        self._record = f"CAST({record} AS VARCHAR)"
        sizes = [size for c, kind, _ in given if (size := _size(c, kind, 0)) is not None]
        self._size = f"CAST({' + '.join(sizes)} AS BIGINT)" if sizes else None

    def rows(self) -> Iterator[Rows | MalformedRow]:
        import duckdb

        short = self._record
        if self._size is not None:
            short = f"CASE WHEN {self._size} <= {_SHORT} THEN {short} END"
        at = 0
        try:
            for batch in self._query(f"SELECT {short} AS b").to_arrow_reader(_ROWS):
                column = batch.column(0)
                count = len(column)
                if column.null_count:
                    count = column.is_null().index(True).as_py()
                if count:
                    yield from self._taken(column.slice(0, count))
                at += count
                if column.null_count:
                    break
            else:
                return
        except duckdb.OutOfMemoryException:
            pass  # a page is large
        for begin, end in pairwise(accumulate(self._groups, initial=0)):
            if end > at:
                yield from self._long(max(begin, at), end)

    def _long(self, begin: int, end: int) -> Iterator[Rows | MalformedRow]:
        """Yields the rows ``begin`` to ``end`` of one row group, where some are long."""
        self._connection.execute(f"SET memory_limit = '{_MOST_HELD}B'")
        start, total = begin, 0
        for row, size in enumerate(self._sizes(begin, end), begin):
            if total + size > _SLICE and row > start:
                yield from self._slice(start, row)
                start, total = row, 0
            total += size
            if size > _SLICE:
                yield from self._in_pieces(row)
                start, total = row + 1, 0
        if start < end:
            yield from self._slice(start, end)

    def _sizes(self, begin: int, end: int) -> memoryview:
        found = self._query(f"SELECT {self._size or 0}::BIGINT AS n", begin, end)
        column = found.to_arrow_table().column(0).combine_chunks()
        return memoryview(column.buffers()[1]).cast("q")[column.offset :][: len(column)]

    def _slice(self, begin: int, end: int) -> Iterator[Rows | MalformedRow]:
        query = self._query(f"SELECT {self._record} AS b", begin, end)
        for batch in query.to_arrow_reader(_ROWS):
            yield from self._taken(batch.column(0))

    def _taken(self, column: Any) -> Iterator[Rows | MalformedRow]:
        import pyarrow.compute as pc

        compute: Any = pc
        rows = _bodies(column)
        if (compute.max(compute.binary_length(column)).as_py() or 0) <= self._max:
            yield rows
            return
        for row in rows:
            yield from self._framed(b"%b\n" % row)

    def _in_pieces(self, row: int) -> Iterator[Rows | MalformedRow]:
        """Converts one row without a second copy of its longest values."""
        texts = [
            c if str(kind) in ("VARCHAR", "BLOB") else f"CAST(to_json({value}) AS VARCHAR)"
            for c, kind, value in self._values
        ]
        cells = self._query(f"SELECT {', '.join(texts)}", row, row + 1).to_arrow_table()
        start = b"{"
        for n, name in enumerate(self._names):
            yield from self._framed(start + json.dumps(name, ensure_ascii=False).encode() + b":")
            for piece in _cell(cells.column(n).chunk(0), str(self._values[n][1])):
                yield from self._framed(piece)
                yield ()
            start = b","
        yield from self._framed(b"}\n")

    def _framed(self, piece: bytes) -> Iterator[Rows | MalformedRow]:
        for item in self._framer.feed(piece):
            yield from rows_of(item)

    def _query(
        self, select: str, begin: int | None = None, end: int = 0, *, number: bool = True
    ) -> Any:
        options = "hive_partitioning = false"
        where = ""
        names = ""
        if number:
            options += ", file_row_number = true"
            names = f" AS r({', '.join([*self._columns, 'n'])})"
        if begin is not None:
            where = f" WHERE n >= {begin} AND n < {end}"
        sql = f"{select} FROM read_parquet($file, {options}){names}{where}"
        return self._connection.sql(sql, params={"file": self._path})


def _cell(column: Any, kind: str) -> Iterator[bytes]:
    """Yields the JSON of a single value, in pieces."""
    (value,) = _bodies(column) if column.null_count == 0 else (None,)
    if value is None:
        yield b"null"
    elif kind == "BLOB":
        yield b'"'
        for at in range(0, len(value), _PIECE):
            yield b2a_base64(value[at : at + _PIECE], newline=False)
        yield b'"'
    elif kind == "VARCHAR":
        yield b'"'
        at = 0
        while at < len(value):
            end = min(at + _PIECE, len(value))
            while end < len(value) and value[end] & 0xC0 == 0x80:  # within a character
                end -= 1
            yield json.dumps(str(value[at:end], "utf-8"), ensure_ascii=False)[1:-1].encode()
            at = end
        yield b'"'
    else:
        yield bytes(value)


def _size(value: str, kind: Any, depth: int) -> str | None:
    """Returns an SQL expression for the approximate size of ``value`` in bytes, without what JSON
    adds; None: always small."""
    item = f"y{depth}"
    match kind.id:
        case "varchar":
            return f"coalesce(strlen({value}::VARCHAR), 0)"
        case "blob":
            return f"coalesce(octet_length({value}), 0)"
        case "list" | "array" | "map":
            if kind.id == "map":
                (_, key), (_, inner_kind) = kind.children
                parts = [
                    _size(f"{item}.key", key, depth + 1),
                    _size(f"{item}.value", inner_kind, depth + 1),
                ]
                value = f"map_entries({value})"
            else:
                parts = [_size(item, kind.children[0][1], depth + 1)]
            sizes = [part for part in parts if part is not None]
            each = " + ".join([*sizes, str(_FIXED)])
            if not sizes:
                return f"coalesce(len({value}), 0) * {_FIXED}"
            return f"coalesce(list_sum(list_transform({value}, lambda {item}: {each})), 0)"
        case "struct":
            fields = [f"struct_extract_at({value}, {n + 1})" for n in range(len(kind.children))]
            found = [_size(f, k, depth) for f, (_, k) in zip(fields, kind.children, strict=True)]
            sizes = [size for size in found if size is not None]
            return f"({' + '.join(sizes)})" if sizes else None
        case _:
            return None


def _object(
    values: Sequence[str],
    types: Sequence[Any],
    names: Sequence[str],
    own: Sequence[Any],
    depth: int,
) -> str:
    """Returns the SQL expression of a JSON object. Fields are taken by position, since DuckDB
    renames columns that differ only in case."""
    parts: list[str] = []
    for value, kind, name, inner in zip(values, types, names, own, strict=True):
        key = name.replace("'", "''")
        parts.append(f"'{key}', {_value(value, kind, inner, depth)}")
    return f"json_object({', '.join(parts)})"


def _value(value: str, kind: Any, own: Any, depth: int) -> str:
    """Returns the SQL expression of the JSON value of ``value``; ``value`` itself where DuckDB's
    own JSON is right. ``own``: its type in the file's schema."""
    own = getattr(own, "storage_type", own)
    item = f"x{depth}"
    match kind.id:
        case "blob":
            return f"to_base64({value})"
        case "list" | "array":
            inner = _value(item, kind.children[0][1], own.value_type, depth + 1)
            if inner == item:
                return value
            return f"list_transform({value}, lambda {item}: {inner})"
        case "map":
            (_, key), (_, value_type) = kind.children
            pair = [f"{item}.key", f"{item}.value"]
            made = [
                _value(pair[0], key, own.key_type, depth + 1),
                _value(pair[1], value_type, own.item_type, depth + 1),
            ]
            if made == pair:
                return value
            entry = f"struct_pack(key := {made[0]}, value := {made[1]})"
            entries = f"list_transform(map_entries({value}), lambda {item}: {entry})"
            return f"map_from_entries({entries})"
        case "struct":
            names, types = zip(*kind.children, strict=True)
            called, inner = [f.name for f in own], [f.type for f in own]
            fields = [f"struct_extract_at({value}, {n + 1})" for n in range(len(types))]
            made = [_value(*one, depth) for one in zip(fields, types, inner, strict=True)]
            if made == fields and called == [*names]:
                return value
            whole = _object(fields, types, called, inner, depth)
            return f"CASE WHEN {value} IS NULL THEN NULL ELSE {whole} END"
        case _:
            return value


def _bodies(column: Any) -> Sequence[Any]:
    """Returns the texts of a column as slices of its buffer, without a copy."""
    import pyarrow as pa

    column = column.cast(
        pa.large_binary() if pa.types.is_binary(column.type) else pa.large_string()
    )
    _, ends, data = column.buffers()
    bounds = memoryview(ends).cast("q")[column.offset : column.offset + len(column) + 1]
    text = memoryview(data)
    return [text[a:b] for a, b in pairwise(bounds)]
