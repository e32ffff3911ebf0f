"""Rows of a load as a DataFrame in the shape of its table; shared by the formats.

Reads parts with a given schema (nothing is inferred, nothing collected), casts what differs from
the table's columns (a value that does not fit becomes NULL and an entry in the row's changes, L9),
adds the metadata columns, and keeps the newest row per key. Not here: what the table's columns are
(``schema_evolution``), how rows are committed (the formats).
"""

import functools
import operator
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import SchemaError
from penstock.model.catalog import FieldPath
from penstock.model.types import (
    CHANGES,
    EXTRACTED_AT,
    RAW_ID,
    SEQ,
    ChangeWords,
    Field,
    Kind,
    MetadataNames,
)
from penstock.spark.types import (
    CHANGE_LIST,
    SOURCE_NAME,
    ddl,
    metadata_fields,
    part_schema,
    quoted,
    stored,
)
from penstock.tables.casts import Cast, casts_between, null_of
from penstock.tables.contract import Deletes, TableLoad, TypeChange
from penstock.tables.schema_evolution import Columns, evolve

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SYNC, GENERATION = "_penstock_sync", "_penstock_generation"  # per load, beside the part's columns
ORIGIN = "_penstock_origin"  # 0: a row the table has, 1: a row of the load
LOAD = "_penstock_load"  # which of several loads a row belongs to
ORDER = ("_penstock_at", "_penstock_arrival")  # EXTRACTED_AT and SEQ, apart from metadata columns
KNOWN = "_penstock_known"  # whether the table had a row of this key
_CURSOR = "_penstock_cursor"  # what a row's cursor counts as

_GLOB = re.compile(r"([\[\]{}*?,\\])")


def load_fields(load: TableLoad) -> tuple[Field, ...]:
    """The columns that the load brings: its data, then its metadata columns."""
    data = tuple(Field(f.name, f.source, stored(f.type)) for f in load.schema.fields)
    return data + (metadata_fields(load.metadata) if load.metadata else ())


def own_columns(load: TableLoad) -> frozenset[str]:
    return (
        frozenset(f.name for f in metadata_fields(load.metadata)) if load.metadata else frozenset()
    )


def target_columns(
    load: TableLoad, old: Sequence[Field] | None, held: "Callable[[], DataFrame | None]"
) -> Columns:
    """The table's columns after ``load``. ``held`` gives the table's rows: they are scanned only
    where a column would become a double, which it may not if an old number lost digits by it."""
    before = tuple(old) if old is not None else None
    name, new, own = load.table.name, load_fields(load), own_columns(load)
    columns = evolve(name, before, new, load.evolution, replaces=load.load.replaces, own=own)
    if before and columns.widened:
        rows = held()
        if rows is not None and loses_digits(rows, before, columns.fields):
            return evolve(name, before, new, load.evolution, own=own, to_double=False)
    return columns


def gone_sql(load: TableLoad, target: Sequence[Field], alias: str = "") -> str:
    """SQL for whether a row stands for a deletion that must not stay in the table."""
    column = load.deleted_column
    if column is None or load.deletes is Deletes.soft or all(f.name != column for f in target):
        return "false"
    return f"{alias}{'.' if alias else ''}{quoted(column)} IS NOT NULL"


def read_parts(spark: "SparkSession", load: TableLoad) -> "DataFrame":
    """Every row of the load's parts, with the internal columns, its sync and its generation, and
    :data:`ORDER`."""
    from pyspark.sql import functions as F

    schema = part_schema(load.schema)
    if load.parts:
        parts = spark.read.schema(schema).parquet(*map(literal_path, load.parts))
    else:
        parts = spark.createDataFrame([], schema)
    return parts.select(
        "*",
        F.col(EXTRACTED_AT).alias(ORDER[0]),
        F.col(SEQ).alias(ORDER[1]),
        F.lit(load.sync_id).cast("bigint").alias(SYNC),
        F.lit(load.load.generation).cast("bigint").alias(GENERATION),
    )


def read_many(spark: "SparkSession", loads: Sequence[TableLoad], listing: Path) -> "DataFrame":
    """The same for several loads of equal columns at once, with :data:`LOAD`, the load's place in
    ``loads``. ``listing``: a file that is written to say which part belongs to which load."""
    from pyspark.sql import functions as F

    lines = [
        msgspec.json.encode(
            {"part": part, LOAD: turn, SYNC: load.sync_id, GENERATION: load.load.generation}
        )
        for turn, load in enumerate(loads)
        for part in load.parts
    ]
    listing.write_bytes(b"\n".join(lines))
    owners = spark.read.schema(f"part STRING, {LOAD} INT, {SYNC} BIGINT, {GENERATION} BIGINT").json(
        literal_path(str(listing))
    )
    paths = [literal_path(part) for load in loads for part in load.parts]
    escaped = F.regexp_replace("_metadata.file_path", r"\+", "%2B")
    part = F.regexp_replace(F.url_decode(escaped), "^file:/+", "/")
    found = spark.read.schema(part_schema(loads[0].schema)).parquet(*paths)
    owned = found.withColumn("part", part).join(F.broadcast(owners), "part", "left")
    lost = F.concat(F.lit("a part belongs to no load: "), F.col("part"))
    sure = F.when(F.col(LOAD).isNull(), F.raise_error(lost).cast("int")).otherwise(F.col(LOAD))
    return owned.withColumn(LOAD, sure)


def as_held(rows: "DataFrame", load: TableLoad, fields: Sequence[Field]) -> "DataFrame":
    """Rows that the table has, with what :func:`newest` compares them by."""
    from pyspark.sql import functions as F

    at = load.metadata.extracted_at if load.metadata else None
    known = at is not None and any(f.name == at for f in fields)
    return rows.withColumns(
        {
            ORDER[0]: F.col(quoted(at)) if known and at else F.lit(None).cast("timestamp"),
            ORDER[1]: F.lit(None).cast("bigint"),
            ORIGIN: F.lit(0),
        }
    )


def literal_path(path: str) -> str:
    """A path that Spark does not read as a pattern."""
    return _GLOB.sub(r"\\\1", path)


def in_shape(
    rows: "DataFrame", load: TableLoad, target: Sequence[Field], keep: Sequence[str] = ()
) -> "DataFrame":
    """``rows`` of :func:`read_parts` as ``target`` columns, followed by ``keep`` as they are."""
    from pyspark.sql import functions as F

    casts = casts_between(
        load_fields(load)[: len(load.schema.fields)], target, load.evolution.type_change
    )
    changes = F.coalesce(F.col(CHANGES), _no_changes())
    changes = _with_entries(changes, casts, load.change_words)
    own = _metadata_values(load.metadata, changes) if load.metadata else {}
    return rows.select(*_columns(casts, target, own), *keep)


def old_in_shape(
    rows: "DataFrame", old: Sequence[Field], load: TableLoad, target: Sequence[Field]
) -> "DataFrame":
    """The table's rows, whose columns are ``old``, as ``target`` columns."""
    from pyspark.sql import functions as F

    casts = casts_between(old, target, TypeChange.coerce)
    own: dict[str, Column] = {}
    if load.metadata and any(f.name == load.metadata.meta for f in old):
        meta = F.col(quoted(load.metadata.meta))
        changes = F.coalesce(meta.getField("changes"), _no_changes())
        changes = _with_entries(changes, casts, load.change_words)
        own[load.metadata.meta] = F.struct(
            meta.getField("sync_id").alias("sync_id"), changes.alias("changes")
        )
    return rows.select(*_columns(casts, target, own))


def loses_digits(rows: "DataFrame", old: Sequence[Field], target: Sequence[Field]) -> bool:
    """Whether a row the table has would lose a value on its way to ``target`` (one scan)."""
    misfits = _misfits(casts_between(old, target, TypeChange.coerce))
    if not misfits:
        return False
    return not rows.filter(functools.reduce(operator.or_, (m for _, m in misfits))).isEmpty()


def newest(rows: "DataFrame", load: TableLoad, fields: Sequence[Field]) -> "DataFrame":
    """One row per primary key: newest by cursor (:func:`cursor_sql`), then extraction time, then
    (where ``rows`` have :data:`ORIGIN`) the load before the table, then arrival. Under
    ``load.arrival`` the first two say nothing. A delete without a cursor has that of the newest row
    that came before it. Keys compare null-safe. ``rows`` must carry :data:`ORDER`; with ORIGIN the
    answer has :data:`KNOWN`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = [F.expr(sql) for sql in key_sql(load, fields)]
    same_key = Window.partitionBy(*keys)
    arrival = [ORDER[1]]
    if ORIGIN in rows.columns:
        arrival = [ORIGIN, ORDER[1]]
        rows = rows.withColumn(KNOWN, F.min(ORIGIN).over(same_key) == 0)
    order: list[Column] = []
    cursor = cursor_sql(fields, load.cursor)
    if cursor and not load.arrival:
        own, bare = F.expr(cursor), bare_delete_sql(load, fields)
        if bare != "false":
            before = same_key.orderBy(*(F.col(c).asc_nulls_first() for c in arrival))
            until = before.rowsBetween(Window.unboundedPreceding, Window.currentRow)
            own = F.when(F.expr(bare), F.max(own).over(until)).otherwise(own)
        rows = rows.withColumn(_CURSOR, own)
        order.append(F.col(_CURSOR).desc_nulls_last())
    if not load.arrival:
        order.append(F.col(ORDER[0]).desc_nulls_last())
    order += [F.col(c).desc_nulls_last() for c in arrival]
    place = F.row_number().over(same_key.orderBy(*order))
    return (
        rows.withColumn("_penstock_place", place)
        .filter("_penstock_place = 1")
        .drop("_penstock_place", _CURSOR)
    )


def cursor_sql(fields: Sequence[Field], path: FieldPath, alias: str = "") -> str | None:
    """SQL for what a cursor compares by; None where the columns do not have it. Text compares as
    text, as times in ISO 8601 should, unless it is a number: then it compares by its value, and
    is older than all text that is none. Blank text is no cursor."""
    sql = path_sql(fields, path, alias)
    if sql is None or not _is_text(fields, path):
        return sql
    number = f"try_cast(trim({sql}) AS DECIMAL(38, 10))"
    return (
        f"CASE WHEN trim({sql}) <> '' THEN named_struct('is_text', {number} IS NULL, "
        f"'number', {number}, 'text', CASE WHEN {number} IS NULL THEN {sql} END) END"
    )


def _is_text(fields: Sequence[Field], path: FieldPath) -> bool:
    """True of a path that ends in a text column, or goes on inside JSON text."""
    kind, inside = None, tuple(fields)
    for name in path:
        if kind is Kind.string:
            break
        field = next(f for f in inside if f.name == name)
        kind, inside = field.type.kind, field.type.fields
    return kind is Kind.string


def bare_delete_sql(load: TableLoad, fields: Sequence[Field], alias: str = "") -> str:
    """SQL for whether a row is a delete that carries no cursor, as one that has only its key."""
    cursor = path_sql(fields, load.cursor, alias)
    column = load.deleted_column
    if cursor is None or column is None or all(f.name != column for f in fields):
        return "false"
    prefix = f"{alias}." if alias else ""
    return f"({prefix}{quoted(column)} IS NOT NULL AND {cursor} IS NULL)"


def key_sql(load: TableLoad, fields: Sequence[Field], alias: str = "") -> list[str]:
    """The primary key's columns in SQL. Raises ``SchemaError`` (``schema.primary_key``)."""
    found = [path_sql(fields, path, alias) for path in load.primary_key]
    if not found or None in found:
        lost = [".".join(p) for p, sql in zip(load.primary_key, found, strict=True) if not sql]
        raise SchemaError(
            f"table {load.table.name}: append_dedup needs a primary key, and "
            + (f"the table has no column {', '.join(lost)}" if lost else "the stream has none"),
            code="schema.primary_key",
            where=load.table.name,
            stream=str(load.stream),
            hint="set primary_key to columns that the stream has, or use append",
        )
    return [sql for sql in found if sql]


def path_sql(fields: Sequence[Field], path: FieldPath, alias: str = "") -> str | None:
    """SQL for a path of column names; None where the columns do not have it. A path that goes on
    inside JSON text reads it there."""
    sql, inside = (f"{alias}." if alias else ""), tuple(fields)
    for depth, name in enumerate(path):
        field = next((f for f in inside if f.name == name), None)
        if field is None:
            return None
        sql += ("." if depth else "") + quoted(name)
        rest = path[depth + 1 :]
        if rest and field.type.kind is Kind.string:
            steps = "".join("[" + _text(name) + "]" for name in rest)
            return f"get_json_object({sql}, {_text('$' + steps, quote=chr(34))})"
        inside = field.type.fields
    return sql if path else None


def _text(value: str, quote: str = "'") -> str:
    return quote + value.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote


def _columns(
    casts: dict[str, Cast], target: Sequence[Field], own: "dict[str, Column]"
) -> "list[Column]":
    from pyspark.sql import functions as F

    columns: list[Column] = []
    for field in target:
        value = own.get(field.name)
        if value is None and field.name in casts:
            value = casts[field.name].value(F.col(quoted(field.name)))
        if value is None:
            value = null_of(field.type)
        columns.append(value.alias(field.name, metadata={SOURCE_NAME: field.source}))
    return columns


def _metadata_values(names: MetadataNames, changes: "Column") -> "dict[str, Column]":
    from pyspark.sql import functions as F

    return {
        names.raw_id: F.col(RAW_ID),
        names.extracted_at: F.col(EXTRACTED_AT),
        names.meta: F.struct(F.col(SYNC).alias("sync_id"), changes.alias("changes")),
        names.generation_id: F.col(GENERATION),
    }


def _no_changes() -> "Column":
    from pyspark.sql import functions as F

    return F.array().cast(ddl(CHANGE_LIST))


def _with_entries(changes: "Column", casts: dict[str, Cast], words: ChangeWords) -> "Column":
    """``changes`` and one entry for every value that a cast loses."""
    from pyspark.sql import functions as F

    entries = [
        F.when(
            lost,
            F.struct(
                F.lit(path).alias("field"),
                F.lit(words.change).alias("change"),
                F.lit(words.reason).alias("reason"),
            ),
        )
        for path, lost in _misfits(casts)
    ]
    return F.concat(changes, F.array_compact(F.array(*entries))) if entries else changes


def _misfits(casts: dict[str, Cast]) -> "list[tuple[str, Column]]":
    from pyspark.sql import functions as F

    return [
        (path, lost(F.col(quoted(name))))
        for name, cast in casts.items()
        for path, lost in cast.misfits
    ]
