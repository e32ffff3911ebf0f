"""Writes a DataFrame or an Arrow table to a Parquet file that Spark reads without changes.

Values that Parquet or Spark would change silently are refused (``write.rows``): spans of time and
periods, which they store as bare integers, times of a day, UUIDs, numbers of 128 bits, sparse
columns, decimals of a negative scale, and Python objects. So are two columns, or fields of an
object, whose names differ at most in case: Spark treats them as one. A column without a type, whose
values are all null, takes the type that it has in the table, or waits for the first value. Not
here: the run (``writing``).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.api.value_kinds import MICROSECONDS, ValueKinds, unfit
from penstock.errors import ConfigError
from penstock.model.catalog import FieldPath

_OBJECTS = 20_000  # of a column, that are compared at a time
_SPANS = "holds spans of time, which Parquet stores as integers"
_TO_TEXT = "cast the column to text"
_ONE_TYPE = "give the column values of one type, as frame[name].astype(str)"


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
        return _of_pandas(rows)
    if kind == "polars":
        _refuse_polars(rows)
    if hasattr(rows, "to_arrow"):
        try:
            return rows.to_arrow()
        except pa.ArrowException as failure:
            raise unfit(failure) from None
    raise no_table(rows)


def _of_pandas(rows: Any) -> Any:
    import pyarrow as pa

    named = any(name is not None for name in rows.index.names)
    _compare_objects(rows, named)
    try:
        return pa.Table.from_pandas(rows, preserve_index=named)
    # names that come twice, values without a type, sparse columns, integers beyond 64 bits
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as failure:
        raise unfit(failure, _ONE_TYPE) from None


def _compare_objects(rows: Any, named: bool) -> None:
    """Raises ``ConfigError`` where values of a column of Python objects cannot share it."""
    kinds = ValueKinds()
    columns = [rows.iloc[:, index] for index in range(rows.shape[1])]
    if named:
        columns += [rows.index.get_level_values(n) for n in range(rows.index.nlevels)]
    for column in columns:
        if column.dtype != object:
            continue
        for begin in range(0, len(column), _OBJECTS):
            kinds.of_frame(str(column.name), column[begin : begin + _OBJECTS].tolist(), begin)


def no_table(rows: Any) -> ConfigError:
    """Makes the error of an object that has no rows."""
    return ConfigError(
        f"{type(rows).__name__} is not a table",
        code="write.rows",
        hint="give a DataFrame of Spark, pandas or Polars, an Arrow table or reader, or a list or"
        " generator of dicts",
    )


def _refuse_polars(rows: Any) -> None:
    """Refuses types that Arrow lacks: Polars gives objects as their addresses in memory."""
    for name, kind in rows.schema.items():
        text = str(kind)
        if any(word in text for word in ("Int128", "UInt128", "Object")):
            raise unfit(f"the column {name} is {text}, which Arrow lacks", _TO_TEXT)


def write_file(table: Any, path: Path) -> tuple[FieldPath, ...]:
    """Writes a table as :func:`write_tables` does."""
    return write_tables(table.schema, [table], path)


def write_tables(schema: Any, tables: Iterable[Any], path: Path) -> tuple[FieldPath, ...]:
    """Writes tables of one schema to a Parquet file; returns the columns and fields of objects that
    have no type because every value is null; the file has them as text. Raises ``ConfigError``
    (``write.rows``)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _plain_schema(schema)
    if not len(schema):
        raise unfit("they have no columns", "if there is nothing to write, leave the call out")
    _refuse_twice(list(schema), "")
    for field in schema:
        for kind in _types(field.type):
            if (why := _refused(kind)) is not None:
                raise unfit(f"{field.name} {why[0]}", why[1])
    typed = pa.schema([f.with_type(_typed(f.type)) for f in schema], schema.metadata)
    with pq.ParquetWriter(path, typed) as out:
        for table in tables:
            out.write_table(cast(plain(table), typed))
    return _untyped_fields(schema)


def cast(table: Any, schema: Any) -> Any:
    """Casts a table's columns, by name; a missing column is NULL. Raises ``ConfigError``, which
    names the column, where a cast would change a value."""
    import pyarrow as pa

    columns: list[Any] = []
    for field in schema:
        index = table.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        try:
            columns.append(table.column(index).cast(field.type))
        except pa.ArrowException as failure:
            times = any(pa.types.is_timestamp(kind) for kind in _types(field.type))
            hint = MICROSECONDS if times else _ONE_TYPE
            raise unfit(f"the column {field.name!r}: {failure}", hint) from None
    return pa.table(columns, schema=schema)


def _refuse_twice(fields: list[Any], path: str) -> None:
    """Raises ``ConfigError`` for names that come twice, whatever their case."""
    seen: dict[str, str] = {}
    for field in fields:
        low = field.name.lower()
        if low in seen:
            names = " and ".join(f"{path}{name}" for name in (seen[low], field.name))
            what = "fields" if path else "columns"
            raise unfit(
                f"two {what} have one name: {names}",
                "rename one: their names are equal, or differ only in case",
            )
        seen[low] = field.name
        for inner in _structs(field.type):
            _refuse_twice(inner, f"{path}{field.name}.")


def _structs(kind: Any) -> Iterator[list[Any]]:
    """Yields the fields of the object type, or of each object type in a list or map type."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        yield [kind.field(index) for index in range(kind.num_fields)]
    else:
        for inner in _inside(kind):
            yield from _structs(inner)


def _plain_schema(schema: Any) -> Any:
    """Returns the schema without the encodings of :func:`plain`."""
    import pyarrow as pa

    def decoded(kind: Any) -> Any:
        return kind.value_type if _is_encoded(kind) else kind

    return pa.schema([f.with_type(decoded(f.type)) for f in schema], schema.metadata)


def plain(table: Any) -> Any:
    """Returns the table with run-end and dictionary encoded columns decoded."""
    import pyarrow as pa

    from penstock.codec.untyped import compute as pc

    for index, field in enumerate(table.schema):
        if not _is_encoded(field.type):
            continue
        column, runs = table.column(index), pa.types.is_run_end_encoded(field.type)
        try:
            decoded = pc.run_end_decode(column) if runs else pc.dictionary_decode(column)
        except pa.ArrowException as failure:  # a dictionary of objects
            raise unfit(f"the column {field.name!r}: {failure}", "decode the column") from None
        made = field.with_type(field.type.value_type)
        table = table.set_column(index, made, decoded)
    return table


def _is_encoded(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_run_end_encoded(kind) or pa.types.is_dictionary(kind)


def untyped_fields(folder: Path) -> tuple[FieldPath, ...]:
    """Returns what :func:`write_file` does, for a folder of Parquet files of one schema."""
    import pyarrow.parquet as pq

    file = next(folder.glob("*.parquet"), None)
    return () if file is None else _untyped_fields(pq.read_schema(file))


def _untyped_fields(schema: Any) -> tuple[FieldPath, ...]:
    return tuple(path for field in schema for path in _untyped(field.type, (field.name,)))


def _types(kind: Any) -> Iterator[Any]:
    """Yields the type and the types nested in it."""
    yield kind
    for inner in _inside(kind):
        yield from _types(inner)


def _inside(kind: Any) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return [kind.value_type]
    return [kind.field(index).type for index in range(kind.num_fields)]


def _refused(kind: Any) -> tuple[str, str] | None:
    """Returns why Spark would not read values of the type unchanged, and what to do."""
    import pyarrow as pa

    types = pa.types
    name = str(getattr(kind, "extension_name", ""))
    if types.is_duration(kind) or types.is_interval(kind):
        return _SPANS, MICROSECONDS
    if name == "pandas.period":
        return "holds periods, which Parquet stores as integers", (
            "cast the column: .dt.to_timestamp() for the first instant of each, or .astype(str)"
        )
    if name == "arrow.bool8":
        return "holds bool8, which Parquet stores as integers", "cast the column to bool"
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
        return f"is {kind}, a scale that Parquet does not have", MICROSECONDS
    return None


def _untyped(kind: Any, path: FieldPath) -> Iterator[FieldPath]:
    """Yields the paths of fields of type null, except in lists: what an empty list would hold is
    text."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        yield path
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            field = kind.field(index)
            yield from _untyped(field.type, (*path, field.name))


def _typed(kind: Any) -> Any:
    """Returns the type with text in place of null, microseconds in place of other time units, and
    single precision in place of half."""
    import pyarrow as pa

    types = pa.types
    if types.is_null(kind):
        return pa.string()
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
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
