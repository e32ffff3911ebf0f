"""Makes the Parquet file of a DataFrame or an Arrow table, which Spark reads as it is.

What Parquet or Spark would change without a word is refused (``write.rows``): spans of time and
periods, which they have as bare integers, times of a day, UUIDs, numbers of 128 bits, sparse
columns, decimals of a negative scale, and Python objects. A column without a type, of which every
value is null, takes the type that it has in the table, or waits for the first value. Not here: the
run (``writing``).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError
from penstock.model.catalog import FieldPath

_SPANS = "holds spans of time, which Parquet has as bare integers"
_HINT = "cast the column: times have microseconds at most, and nothing is rounded"
_TO_TEXT = "cast the column to text"


def arrow_table(rows: Any) -> Any:
    """Returns the rows of a DataFrame (pandas, Polars) or of an Arrow table as an Arrow table.
    Raises ``ConfigError`` (``write.rows``)."""
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    kind = type(rows).__module__.partition(".")[0]
    if hasattr(rows, "collect") and kind == "polars":  # a LazyFrame
        rows = rows.collect()
    if not hasattr(rows, "columns"):
        raise no_table(rows)
    if kind == "pandas":
        try:
            named = any(name is not None for name in rows.index.names)
            return pa.Table.from_pandas(rows, preserve_index=named)
        # names that come twice, mixed values, sparse columns, integers beyond 64 bits
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as failure:
            raise unfit(failure) from None
    if kind == "polars":
        _refuse_polars(rows)
    if hasattr(rows, "to_arrow"):
        try:
            return rows.to_arrow()
        except pa.ArrowException as failure:
            raise unfit(failure) from None
    raise no_table(rows)


def no_table(rows: Any) -> ConfigError:
    """Makes the error of an object that has no rows."""
    return ConfigError(
        f"{type(rows).__name__} is not a table",
        code="write.rows",
        hint="give a DataFrame of Spark, pandas or Polars, an Arrow table or reader, or a list or"
        " generator of dicts",
    )


def _refuse_polars(rows: Any) -> None:
    """Refuses the types that Arrow has not: Polars gives objects as their addresses in memory."""
    for name, kind in rows.schema.items():
        text = str(kind)
        if any(word in text for word in ("Int128", "UInt128", "Object")):
            raise unfit(f"the column {name} is {text}, which Arrow has not", _TO_TEXT)


def write_file(table: Any, path: Path) -> tuple[FieldPath, ...]:
    """Writes a table as :func:`write_tables` does."""
    return write_tables(table.schema, [table], path)


def write_tables(schema: Any, tables: Iterable[Any], path: Path) -> tuple[FieldPath, ...]:
    """Writes tables of one schema to a Parquet file; returns the columns and fields of objects that
    have no type, as every value is null. They are text in the file. Raises ``ConfigError``
    (``write.rows``)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _without_run_ends(schema)
    for field in schema:
        for kind in _types(field.type):
            if (why := _refused(kind)) is not None:
                raise unfit(f"{field.name} {why[0]}", why[1])
    typed = pa.schema([f.with_type(_typed(f.type)) for f in schema], schema.metadata)
    try:
        with pq.ParquetWriter(path, typed, coerce_timestamps="us") as out:
            for table in tables:
                out.write_table(_run_ends_decoded(table).cast(typed))
    except pa.ArrowException as failure:
        raise unfit(failure) from None
    return _untyped_fields(schema)


def _without_run_ends(schema: Any) -> Any:
    import pyarrow as pa

    fields = [
        f.with_type(f.type.value_type) if pa.types.is_run_end_encoded(f.type) else f for f in schema
    ]
    return pa.schema(fields, schema.metadata)


def _run_ends_decoded(table: Any) -> Any:
    import pyarrow as pa

    from penstock.codec.untyped import compute as pc

    for index, field in enumerate(table.schema):
        if pa.types.is_run_end_encoded(field.type):
            column = pc.run_end_decode(table.column(index))
            table = table.set_column(index, field.name, column)
    return table


def untyped_fields(folder: Path) -> tuple[FieldPath, ...]:
    """Returns what :func:`write_file` does, of Parquet files of one schema that lie in a folder."""
    import pyarrow.parquet as pq

    file = next(folder.glob("*.parquet"), None)
    return () if file is None else _untyped_fields(pq.read_schema(file))


def _untyped_fields(schema: Any) -> tuple[FieldPath, ...]:
    return tuple(path for field in schema for path in _untyped(field.type, (field.name,)))


def _types(kind: Any) -> Iterator[Any]:
    """The type and those inside of it."""
    yield kind
    for inner in _inside(kind):
        yield from _types(inner)


def _inside(kind: Any) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return [kind.value_type]
    return [kind.field(index).type for index in range(kind.num_fields)]


def _refused(kind: Any) -> tuple[str, str] | None:
    """Why Spark would not read values of the type as they are, and what to do."""
    import pyarrow as pa

    types = pa.types
    name = str(getattr(kind, "extension_name", ""))
    if types.is_duration(kind) or types.is_interval(kind):
        return _SPANS, _HINT
    if name == "pandas.period":
        return "holds periods, which Parquet has as bare integers", (
            "cast the column: .dt.to_timestamp() for the first instant of each, or .astype(str)"
        )
    if name == "arrow.uuid":
        return "holds UUIDs, which Spark does not read", f"{_TO_TEXT}: str(value)"
    if types.is_time(kind):
        return "holds times of a day, which tables do not have", _TO_TEXT
    if types.is_decimal256(kind) or types.is_union(kind) or types.is_run_end_encoded(kind):
        return f"is {kind}, which Spark does not read", _TO_TEXT
    if types.is_struct(kind) and not kind.num_fields:
        return "holds objects without a field, which Parquet does not have", (
            "leave the column out, or write json.dumps(value)"
        )
    if types.is_decimal(kind) and kind.scale < 0:
        return f"is {kind}, a scale that Parquet does not have", _HINT
    return None


def _untyped(kind: Any, path: FieldPath) -> Iterator[FieldPath]:
    """The paths of fields of the type null, lists apart: what an empty list would hold is text."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        yield path
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            field = kind.field(index)
            yield from _untyped(field.type, (*path, field.name))


def _typed(kind: Any) -> Any:
    """The type with text in the place of null, and single precision in that of half."""
    import pyarrow as pa

    types = pa.types
    if types.is_null(kind):
        return pa.string()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return pa.struct([f.with_type(_typed(f.type)) for f in fields])
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_typed(kind.value_type)), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_typed(kind.value_type)))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_typed(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(_typed(kind.key_type), kind.item_field.with_type(_typed(kind.item_type)))
    return kind


def unfit(why: object, hint: str = _HINT) -> ConfigError:
    """Makes the error of rows that no file can have as they are."""
    return ConfigError(f"the rows cannot be written: {why}", code="write.rows", hint=hint)
