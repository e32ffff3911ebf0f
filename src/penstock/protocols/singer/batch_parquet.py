"""Converts the rows of a Parquet file of a BATCH message to JSON, by column.

Bytes become base64, names are the file's own. Not here: which files are read (``batch_files``).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import IO, Any, cast

from penstock.protocols.singer.batch_rows import BatchError, MalformedRow, Rows

_ROWS = 10_000


def parquet_rows(
    name: str, file: IO[bytes], max_record_bytes: int, spool_folder: str | None
) -> Iterator[Rows | MalformedRow]:
    """Yields the rows of ``file``, which messages call ``name``. Raises :class:`BatchError`."""
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

    # By its descriptor, so that DuckDB opens the file that was checked. Names of folders are no
    # columns.
    source = "read_parquet($file, hive_partitioning = false)"
    given = {"file": f"/dev/fd/{file.fileno()}"}
    try:
        known = list(cast(Any, pq.read_schema(file)))
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            types = connection.sql(f"SELECT * FROM {source}", params=given).types
            columns = [f"c{n}" for n in range(len(types))]
            record = _object(columns, types, [f.name for f in known], [f.type for f in known], 0)
            sql = f"SELECT CAST({record} AS VARCHAR) AS b FROM {source} AS r({', '.join(columns)})"
            reader: Any = connection.sql(sql, params=given).to_arrow_reader(_ROWS)
            for batch in reader:
                yield _bodies(batch.column(0))
    except (duckdb.Error, pa.ArrowException, OSError) as e:
        raise BatchError(f"{name}: {e}") from e


def _object(
    values: Sequence[str],
    types: Sequence[Any],
    names: Sequence[str],
    own: Sequence[Any],
    depth: int,
) -> str:
    """The SQL expression of a JSON object. Fields are taken by position, since DuckDB renames
    columns that differ only in case."""
    parts: list[str] = []
    for value, kind, name, inner in zip(values, types, names, own, strict=True):
        key = name.replace("'", "''")
        parts.append(f"'{key}', {_value(value, kind, inner, depth)}")
    return f"json_object({', '.join(parts)})"


def _value(value: str, kind: Any, own: Any, depth: int) -> str:
    """The SQL expression of the JSON value of ``value``; ``value`` itself where DuckDB's own JSON
    is right. ``own``: its type in the file's schema."""
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
    """The texts of a column as slices of its buffer, without a copy."""
    import pyarrow as pa

    column = column.cast(pa.large_string())
    _, ends, data = column.buffers()
    bounds = memoryview(ends).cast("q")[column.offset : column.offset + len(column) + 1]
    text = memoryview(data)
    return [text[a:b] for a, b in pairwise(bounds)]
