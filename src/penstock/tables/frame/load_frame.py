"""Builds the DataFrame of a load with the columns of its table; the formats share it.

Reads parts with a given schema (Spark infers none and collects no row), casts columns whose type
differs from the table's (a value that does not fit becomes NULL and an entry in the row's change
list, L9), adds the metadata columns, and keeps the newest row per key. Not here: which columns the
table gets (``schema_evolution``), how rows are committed (the formats)."""

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import SchemaError
from penstock.model.catalog import DestinationSyncMode, FieldPath
from penstock.model.segments import CursorOrder
from penstock.model.table_columns import CHANGE_LIST, metadata_fields
from penstock.model.types import (
    CHANGES,
    EXTRACTED_AT,
    MAX_REASON_TEXT,
    RAW_ID,
    REASON_CUT,
    SEQ,
    Field,
    Kind,
    MetadataNames,
)
from penstock.spark.types import (
    SOURCE_NAME,
    ddl,
    part_schema,
    quoted,
    struct_type,
)
from penstock.tables.contract import Deletes, TableLoad, TablePolicy, TypeChange
from penstock.tables.frame import soft_deletes
from penstock.tables.frame.arrival import (
    ARRIVAL,
    ORIGIN,
    SENT,
    takes_sent,
    with_arrival,
    with_table_order,
)
from penstock.tables.frame.casts import Cast, casts_between, keeps_parts, null_of
from penstock.tables.frame.other_forms import rekeyed
from penstock.tables.frame.schema_evolution import EvolvedColumns, evolve
from penstock.tables.frame.soft_deletes import as_stored, marked_sql
from penstock.tables.history.columns import END, START
from penstock.tables.key_forms import mixed_keys
from penstock.tables.load_columns import cut_cursor, load_fields, metadata_columns
from penstock.tables.newest import (
    MAY_BE_CUT,
    NO_ORDER,
    OTHER,
    SPARK,
    TEXTS,
    TWO,
    Order,
    exactly,
    fold,
    order_of,
    replaces,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SYNC, GENERATION = "_penstock_sync", "_penstock_generation"  # per load, added to the part's columns
LOAD = "_penstock_load"  # the index of the row's load among several
IN_TABLE = "_penstock_known"  # whether the table had a row of this key
_FIRST, _ROW = "_penstock_first", "_penstock_row"  # of a part in its table's layout
_RANK = "_penstock_rank"  # 1: the newest row of its key
_WON = "_penstock_won"  # the row was the newest of those of its key up to it
_LATE = "_penstock_late"  # 1: a row of the table, later than the retried rows
_KEYLESS = "_penstock_keyless"  # the table's row lacks a key field, and the load has no such key

_GLOB = re.compile(r"([\[\]{}*?,\\])")


def target_columns(
    load: TableLoad, old: Sequence[Field] | None, table_rows: "Callable[[], DataFrame | None]"
) -> EvolvedColumns:
    """Returns the table's columns after ``load``. ``old``: its columns before; None: there is no
    table. ``table_rows`` reads the table; it is called only if a column becomes wider, to prove
    that no old number loses digits as a double. Raises ``SchemaError``
    (``schema_evolution.evolve``)."""
    before = tuple(old) if old is not None else None
    name, new = load.table.name, load_fields(load)
    metadata = metadata_columns(load) - {START, END}  # these become wider with the cursor
    policy = load.policy.evolution
    columns = evolve(name, before, new, policy, replaces=load.replaces, metadata=metadata)
    if before and columns.widened:
        rows = table_rows()
        if rows is not None and loses_digits(rows, before, columns.fields):
            return evolve(
                name, before, new, load.policy.evolution, metadata=metadata, to_double=False
            )
    return columns


def deleted_sql(load: TableLoad, target: Sequence[Field], alias: str = "") -> str:
    """Returns a SQL condition: the row deletes its key and, under hard deletes, must not be in the
    table."""
    mark = _mark(load, target)
    if mark is None or load.policy.deletes is Deletes.soft:
        return "false"
    return marked_sql(mark, alias)


def _mark(load: TableLoad, fields: Sequence[Field]) -> Field | None:
    """Returns the column that marks deletes; None: the rows have none."""
    return next((f for f in fields if f.name == load.deleted_column), None)


def read_parts(spark: "SparkSession", load: TableLoad) -> "DataFrame":
    """Returns every row of the load's parts: its data and internal columns, :data:`ARRIVAL`,
    :data:`SYNC`, :data:`GENERATION`, and :data:`SENT` if its rows need it."""
    from pyspark.sql import functions as F

    if load.parts:
        parts = _rows_of(spark, [load])
    else:
        parts = spark.createDataFrame([], part_schema(load.schema))
    sent = [F.expr(_entry_sql(load, CHANGES)).alias(SENT)] if takes_sent(load) else []
    return with_arrival(parts, load).select(
        "*",
        *sent,
        F.lit(load.sync_id).cast("bigint").alias(SYNC),
        F.lit(load.generation_id).cast("bigint").alias(GENERATION),
    )


def _rows_of(
    spark: "SparkSession", loads: Sequence[TableLoad], file: str | None = None
) -> "DataFrame":
    """Returns every row of the parts of ``loads``, which have equal columns: data and internal
    ones. A part in its table's layout has no sequence numbers, except in a load with keys, which is
    read alone. ``file``: a column for the part's URI."""
    from pyspark.sql import functions as F

    firsts = {
        path: part.first
        for path, part in zip(loads[0].parts, loads[0].load.parts, strict=True)
        if loads[0].mode is DestinationSyncMode.append_dedup and part.first is not None
    }
    paths: dict[MetadataNames | None, list[str]] = {}
    for load in loads:
        for path, part in zip(load.parts, load.load.parts, strict=True):
            paths.setdefault(part.shape and part.shape.names, []).append(literal_path(path))
    data = loads[0].schema.fields
    uri = [] if file is None else [F.col("_metadata.file_path").alias(file)]
    frames: list[DataFrame] = []
    for names, files in paths.items():
        if names is None:
            rows = spark.read.schema(part_schema(loads[0].schema)).parquet(*files)
            frames.append(rows.select("*", *uri))
            continue
        rows = spark.read.schema(struct_type((*data, *metadata_fields(names)))).parquet(*files)
        seq = F.lit(None).cast("bigint")
        if firsts:
            rows, seq = _with_first(spark, rows, firsts), F.col(_FIRST) + F.col(_ROW)
        internal = {
            SEQ: seq,
            RAW_ID: F.col(quoted(names.raw_id)),
            EXTRACTED_AT: F.col(quoted(names.extracted_at)),
            CHANGES: F.col(quoted(names.meta)).getField("changes"),
        }
        columns = [F.col(quoted(f.name)) for f in data]
        columns += [value.alias(name) for name, value in internal.items()]
        frames.append(rows.select(*columns, *uri))
    return functools.reduce(lambda one, other: one.unionByName(other), frames)


def _with_first(spark: "SparkSession", rows: "DataFrame", firsts: Mapping[str, int]) -> "DataFrame":
    """Returns the rows of parts with the sequence number of their part's first row, by its path,
    and their number in the part."""
    from pyspark.sql import functions as F

    owners = spark.createDataFrame([*firsts.items()], f"part STRING, {_FIRST} BIGINT")
    numbered = rows.select(
        "*",
        _part_of("_metadata.file_path").alias("_penstock_part"),
        F.col("_metadata.row_index").alias(_ROW),
    )
    same = F.col("_penstock_part") == F.col("part")
    return numbered.join(F.broadcast(owners), same, "left").drop("part", "_penstock_part")


def _part_of(uri: str) -> "Column":
    """Returns the path of a file, from its URI in the column ``uri``."""
    from pyspark.sql import functions as F

    escaped = F.regexp_replace(uri, r"\+", "%2B")
    return F.regexp_replace(F.url_decode(escaped), "^file:/+", "/")


def read_many(spark: "SparkSession", loads: Sequence[TableLoad], listing: Path) -> "DataFrame":
    """Like :func:`read_parts`, for several loads of equal columns in one DataFrame, without
    :data:`ARRIVAL` and with :data:`LOAD`, the load's index in ``loads``. ``listing``: a JSON-lines
    file that is written here and maps each part to its load."""
    from pyspark.sql import functions as F

    lines = [
        msgspec.json.encode(
            {"part": part, LOAD: turn, SYNC: load.sync_id, GENERATION: load.generation_id}
        )
        for turn, load in enumerate(loads)
        for part in load.parts
    ]
    listing.write_bytes(b"\n".join(lines))
    owners = spark.read.schema(f"part STRING, {LOAD} INT, {SYNC} BIGINT, {GENERATION} BIGINT").json(
        literal_path(str(listing))
    )
    uri = "_penstock_file"
    rows = _rows_of(spark, loads, uri).withColumn("part", _part_of(uri)).drop(uri)
    owned = rows.join(F.broadcast(owners), "part", "left")
    reason = F.concat(F.lit("a part belongs to no load: "), F.col("part"))
    checked = F.when(F.col(LOAD).isNull(), F.raise_error(reason).cast("int"))
    return owned.withColumn(LOAD, checked.otherwise(F.col(LOAD)))


def literal_path(path: str) -> str:
    """Returns ``path`` with its glob characters escaped, so that Spark reads it literally."""
    return _GLOB.sub(r"\\\1", path)


def load_rows_as(
    rows: "DataFrame", load: TableLoad, target: Sequence[Field], keep: Sequence[str] = ()
) -> "DataFrame":
    """Casts ``rows`` of :func:`read_parts` to the ``target`` columns and adds the metadata columns;
    the columns ``keep`` follow unchanged."""
    from pyspark.sql import functions as F

    casts = casts_between(
        load_fields(load)[: len(load.schema.fields)], target, load.policy.evolution.type_change
    )
    changes = F.coalesce(F.col(CHANGES), _no_changes())
    changes = _with_entries(changes, casts, load.policy)
    values = _metadata_values(load.policy.metadata, changes) if load.policy.metadata else {}
    values |= _mark_value(load, casts, target)
    return rows.select(*_columns(casts, target, values), *keep)


def part_rows_as(rows: "DataFrame", load: TableLoad, target: Sequence[Field]) -> "DataFrame":
    """Like :func:`load_rows_as`, in the form of a part: the data columns of ``target``, then the
    internal ones."""
    from pyspark.sql import functions as F

    casts = casts_between(
        load_fields(load)[: len(load.schema.fields)], target, load.policy.evolution.type_change
    )
    changes = F.coalesce(F.col(CHANGES), _no_changes())
    changes = _with_entries(changes, casts, load.policy).alias(CHANGES)
    columns = _columns(casts, target, _mark_value(load, casts, target))
    return rows.select(*columns, SEQ, RAW_ID, EXTRACTED_AT, changes)


def _mark_value(
    load: TableLoad, casts: dict[str, Cast], target: Sequence[Field]
) -> "dict[str, Column]":
    """Returns the mark of deletes, by its name, if the table has another type for it."""
    from pyspark.sql import functions as F

    mark, stored = _mark(load, load_fields(load)), _mark(load, target)
    if mark is None or stored is None or mark.type == stored.type:
        return {}
    cast = casts[mark.name].value(F.col(quoted(mark.name)))
    return {mark.name: as_stored(mark, cast, stored)}


def table_rows_as(
    rows: "DataFrame", old: Sequence[Field], load: TableLoad, target: Sequence[Field]
) -> "DataFrame":
    """Casts ``rows`` of the table, whose columns are ``old``, to the ``target`` columns. A lost
    value gets an entry in the change list if the table has metadata columns."""
    from pyspark.sql import functions as F

    casts = casts_between(old, target, TypeChange.coerce)
    metadata: dict[str, Column] = {}
    if load.policy.metadata and any(f.name == load.policy.metadata.meta for f in old):
        meta = F.col(quoted(load.policy.metadata.meta))
        changes = F.coalesce(meta.getField("changes"), _no_changes())
        changes = _with_entries(changes, casts, load.policy)
        metadata[load.policy.metadata.meta] = F.struct(
            meta.getField("sync_id").alias("sync_id"), changes.alias("changes")
        )
    return rows.select(*_columns(casts, target, metadata))


def loses_digits(rows: "DataFrame", old: Sequence[Field], target: Sequence[Field]) -> bool:
    """Returns whether casting the table's ``rows`` to ``target`` would lose a value in any row (one
    scan)."""
    failures = _cast_failures(casts_between(old, target, TypeChange.coerce))
    if not failures:
        return False
    return not rows.filter(functools.reduce(operator.or_, (m for _, m in failures))).isEmpty()


def newest(rows: "DataFrame", load: TableLoad, fields: Sequence[Field]) -> "DataFrame":
    """Keeps one row per primary key, the newest by the rule of ``tables.newest``. Rows arrive in
    the order of :data:`ARRIVAL`; if ``rows`` have :data:`ORIGIN`, the table's come before the
    load's (after retried ones). Keys compare null-safe, but the table's rows that lack a field of
    the key (the stream had another key when they came) are all kept if the load has no such key.
    The result has :data:`~penstock.tables.newest.TWO`, and with ORIGIN :data:`IN_TABLE`. Soft
    deletes: ``tables.frame.soft_deletes``."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    key_texts = key_sql(load, fields)
    keys = [F.expr(sql) for sql in key_texts]
    same_key = Window.partitionBy(*keys)
    arrival, exact = [ARRIVAL], "true"
    if ORIGIN in rows.columns:
        arrival, exact = [ORIGIN, ARRIVAL], f"{ORIGIN} = 1"
        of_load = F.max(ORIGIN).over(same_key) == 1
        lacks_key = functools.reduce(operator.or_, (key.isNull() for key in keys))
        rows = rows.withColumn(IN_TABLE, F.min(ORIGIN).over(same_key) == 0)
        rows = rows.withColumn(_KEYLESS, lacks_key & ~of_load)
        if load.retried:  # which count as older than the table's rows
            rows = rows.withColumn(_LATE, 1 - F.col(ORIGIN))
            arrival = [_LATE, ARRIVAL]
    order = None if load.arrival else cursor_order(load, fields, exact=exact)
    bare = "false" if order is None else cursorless_delete_sql(load, fields)
    folded = fold(", ".join(key_texts), arrival, order, SPARK, bare=bare)
    for stage in folded.stages:
        rows = rows.withColumns({name: F.expr(sql) for name, sql in stage.items()})
    newest_first = same_key.orderBy(
        *(F.desc_nulls_last(n) if falls else F.asc_nulls_last(n) for n, falls in folded.order)
    )
    if _keeping_deletes(rows, load, fields) is not None:
        rows = rows.withColumn(_WON, F.expr(folded.won))
        rows = soft_deletes.filled(
            rows, load, fields, newest_first, won=_WON, cursorless=bare
        ).drop(_WON)
    rows = rows.withColumn(_RANK, F.row_number().over(newest_first))
    kept = f"{_RANK} = 1 OR {_KEYLESS}" if ORIGIN in rows.columns else f"{_RANK} = 1"
    rows = rows.filter(kept).withColumn(TWO, F.expr(folded.two_forms))
    return rows.drop(_RANK, _KEYLESS, _LATE, SENT, *(n for n in folded.columns if n != TWO))


def newest_beside(
    rows: "DataFrame", table: Callable[[], "DataFrame"], load: TableLoad, fields: Sequence[Field]
) -> "DataFrame":
    """Keeps the load's newest row of each key, like :func:`newest`, for a merge into ``table`` (its
    rows with the columns ``fields``). If a key has a delete without a cursor and also other rows,
    or the cursor is text, the table's row is compared here; a key whose newest row is then the
    table's is left out. A soft delete may need the table's row as well."""
    from pyspark.sql import functions as F

    if load.arrival:
        late = None
    elif has_text_cursor(load, fields) or mixed_keys(load):  # too much for a merge's condition
        names = [f"_penstock_key_{index}" for index in range(len(load.primary_key))]
        texts = zip(key_sql(load, fields), names, strict=True)
        late = rows.select(*(F.expr(sql).alias(name) for sql, name in texts)).distinct()
    else:
        late = _late_deletes(rows, load, fields)
    found = [k for k in (late, _keeping_deletes(rows, load, fields)) if k is not None]
    if not found:
        return newest(rows, load, fields)
    late = functools.reduce(lambda one, other: one.union(other), found).distinct()
    keys = [F.expr(sql) for sql in key_sql(load, fields)]
    same = [key.eqNullSafe(late[name]) for key, name in zip(keys, late.columns, strict=True)]
    had = rekeyed(table(), rows, load, key_sql(load, fields))
    old = with_table_order(had, load, fields).join(late, same, "left_semi")
    kept = newest(rows.withColumn(ORIGIN, F.lit(1)).unionByName(old), load, fields)
    return kept.filter(f"{ORIGIN} = 1").drop(ORIGIN, IN_TABLE)


def _late_deletes(
    rows: "DataFrame", load: TableLoad, fields: Sequence[Field]
) -> "DataFrame | None":
    """Returns the keys that have both a delete without a cursor and other rows in ``rows``; None:
    there are none. Scans the rows only if they can have such deletes."""
    from pyspark.sql import functions as F

    bare = cursorless_delete_sql(load, fields)
    if bare == "false" or rows.filter(bare).isEmpty():
        return None
    names = [f"_penstock_key_{index}" for index in range(len(load.primary_key))]
    keys = [F.expr(sql).alias(n) for sql, n in zip(key_sql(load, fields), names, strict=True)]
    found = rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("n"), F.max(F.expr(bare)).alias("b"))
    late = found.filter("n > 1 AND b").select(*names)
    return None if late.isEmpty() else late


def _keeping_deletes(
    rows: "DataFrame", load: TableLoad, fields: Sequence[Field]
) -> "DataFrame | None":
    """Returns the keys of the load's soft deletes that keep columns
    (``tables.frame.soft_deletes``), under the names of :func:`_late_deletes`; None: it has none.
    Scans the rows only if they can have such deletes."""
    from pyspark.sql import functions as F

    cursorless = "false" if load.arrival else cursorless_delete_sql(load, fields)
    keeping = soft_deletes.keeping_sql(load, fields, cursorless)
    if keeping is None:
        return None
    found = rows.filter(keeping)
    if ORIGIN in rows.columns:
        found = found.filter(F.col(ORIGIN) == 1)
    if found.isEmpty():
        return None
    keys = key_sql(load, fields)
    return found.select(
        *(F.expr(sql).alias(f"_penstock_key_{index}") for index, sql in enumerate(keys))
    ).distinct()


def cursor_order(
    load: TableLoad, fields: Sequence[Field], alias: str = "", *, exact: str = "true"
) -> Order | None:
    """Returns the order of the load's cursor; None if ``fields`` lack it. ``exact``: a condition: a
    cursor is exact if the row's change list has no text for it (``newest.exactly``)."""
    sql = path_sql(fields, load.cursor, alias)
    if sql is None:
        return None
    as_text = load.cursor_order is CursorOrder.text
    kind = _kind_at(fields, load.cursor)
    order = order_of(sql, kind, SPARK, as_text=as_text)
    sent = _sent_sql(load, fields, alias)
    if sent is None or kind not in MAY_BE_CUT:
        return order
    return exactly(order, sql, kind, sent, SPARK, known=exact)


def _sent_sql(load: TableLoad, fields: Sequence[Field], alias: str) -> str | None:
    """Returns a SQL expression: the source's text of a cursor that was cut, else NULL. The text is
    in the row's change list or, for a row without one, in :data:`SENT` while its load is compared.
    None: nothing has it."""
    if takes_sent(load):
        return None if alias else SENT
    meta = load.policy.metadata and load.policy.metadata.meta
    if cut_cursor(load) is None or meta not in {f.name for f in fields}:
        return None
    return _entry_sql(load, f"{alias}{'.' if alias else ''}{quoted(meta)}.changes")


def _entry_sql(load: TableLoad, lists: str) -> str:
    """Returns a SQL expression: the source's text of a cursor that was cut, from the change list
    ``lists``; else NULL."""
    words, source = load.policy.change_words, cut_cursor(load) or ""
    begin = f"{words.reason}: "
    entry = (
        f"x.field = {_text(source)} AND x.change = {_text(words.rounded)} "
        f"AND startswith(x.reason, {_text(begin)})"
    )
    return f"substr(try_element_at(filter({lists}, x -> {entry}), 1).reason, {len(begin) + 1})"


def _kind_at(fields: Sequence[Field], path: FieldPath) -> Kind:
    """Returns the kind of the value at ``path``, which ``fields`` have; inside JSON text, text."""
    kind, inside = Kind.string, tuple(fields)
    for depth, name in enumerate(path):
        field = next(f for f in inside if f.name == name)
        kind, inside = field.type.kind, field.type.fields
        if kind is Kind.string and depth < len(path) - 1:
            break
    return kind


def has_text_cursor(load: TableLoad, fields: Sequence[Field]) -> bool:
    """Returns whether the rows of a key may have cursors of two forms, apart from missing ones."""
    found = not load.arrival and path_sql(fields, load.cursor) is not None
    return found and _kind_at(fields, load.cursor) in TEXTS


def replaces_sql(load: TableLoad, old: Sequence[Field], target: Sequence[Field]) -> str:
    """Returns a SQL condition for a merge: the load's row ``s``, from :func:`newest`, replaces the
    table's row ``t``, whose columns are ``old``."""
    row = None if load.arrival else cursor_order(load, target, "s")
    if row is None and load.retried:
        return "false"
    if row is None or has_text_cursor(load, target):
        return "true"  # a text was compared with the table's row (newest_beside)
    table = cursor_order(load, old, "t", exact="false") or NO_ORDER
    bare = cursorless_delete_sql(load, target, "s")
    return replaces(row, table, two_forms=f"s.{TWO}", bare=bare, retried=load.retried)


def other_form_sql(load: TableLoad, fields: Sequence[Field]) -> str | None:
    """Returns a SQL condition: the row's cursor has the form *other*, while most in its column have
    another form. None: a merge compares no forms, since there are no others, or they were compared
    before."""
    order = None if load.arrival else cursor_order(load, fields)
    if order is None or has_text_cursor(load, fields) or order == NO_ORDER:
        return None
    return f"(({order.form}) = {OTHER} AND NOT {cursorless_delete_sql(load, fields)})"


def meets_other_form(
    rows: "DataFrame", table: "DataFrame", load: TableLoad, fields: Sequence[Field], *, others: bool
) -> bool:
    """Returns whether a row of :func:`newest` has another form of cursor than the row of its key in
    ``table`` (columns ``fields``). ``others``: ``rows`` have some that match
    :func:`other_form_sql`."""
    from pyspark.sql import functions as F

    other = other_form_sql(load, fields)
    if other is None:
        return False
    keys = zip(key_sql(load, fields, "s"), key_sql(load, fields, "t"), strict=True)
    same = F.expr(" AND ".join(f"{s} <=> {t}" for s, t in keys))
    rows = rows.filter(f"NOT {cursorless_delete_sql(load, fields)}")

    def met(one: str, two: str) -> bool:
        found = rows.filter(one).alias("s").join(table.filter(two).alias("t"), same, "left_semi")
        return not found.isEmpty()

    if others and met(other, f"NOT {other}"):
        return True
    return not table.filter(other).isEmpty() and met(f"NOT {other}", other)


def cursorless_delete_sql(load: TableLoad, fields: Sequence[Field], alias: str = "") -> str:
    """Returns a SQL condition: the row is a delete without a cursor value (often it has its key
    only)."""
    cursor, mark = path_sql(fields, load.cursor, alias), _mark(load, fields)
    if cursor is None or mark is None:
        return "false"
    return f"({marked_sql(mark, alias)} AND {cursor} IS NULL)"


def key_sql(load: TableLoad, fields: Sequence[Field], alias: str = "") -> list[str]:
    """Returns a SQL expression per field of the primary key. Raises ``SchemaError``
    (``schema.primary_key``) if there is no key or the table lacks one of its fields."""
    keys = [path_sql(fields, path, alias) for path in load.primary_key]
    if not keys or None in keys:
        missing = [".".join(p) for p, sql in zip(load.primary_key, keys, strict=True) if not sql]
        raise SchemaError(
            f"table {load.table.name}: append_dedup needs a primary key, and "
            + (
                f"the table has no column {', '.join(missing)}"
                if missing
                else "the stream has none"
            ),
            code="schema.primary_key",
            where=load.table.name,
            stream=str(load.stream),
            hint="allow the new column with schema_evolution.new_column, or set another primary_key"
            if _has_all(load_fields(load), load.primary_key)
            else "set primary_key to columns that the stream has, or use append",
        )
    return [sql for sql in keys if sql]


def _has_all(fields: Sequence[Field], paths: Sequence[FieldPath]) -> bool:
    return bool(paths) and all(path_sql(fields, path) for path in paths)


def refuse_lost_keys(rows: "DataFrame", load: TableLoad, target: Sequence[Field]) -> None:
    """Raises ``SchemaError`` (``schema.key_type``) if a key in ``rows`` of :func:`read_parts` does
    not fit the type of the table's column: NULL cannot be a key (L9), and two keys that lose digits
    may become one. Scans the keys only if the types differ."""
    data = load_fields(load)[: len(load.schema.fields)]
    casts = casts_between(data, target, load.policy.evolution.type_change)
    paths = set(load.primary_key)
    losses = [*_cast_failures(casts), *_inexact_keys(casts)]
    lost = [(path, failed) for path, failed in losses if path in paths]
    if not lost or rows.filter(functools.reduce(operator.or_, (m for _, m in lost))).isEmpty():
        return
    raise SchemaError(
        f"table {load.table.name}: its primary key {', '.join(map('.'.join, dict(lost)))} has"
        " another type now, and the load has keys that the table's column cannot hold",
        code="schema.key_type",
        where=load.table.name,
        stream=str(load.stream),
        hint="`penstock state reset` discards this load; then `penstock run --recreate` reads the "
        "stream again and gives the table the new type",
    )


def cast_notes(load: TableLoad, target: Sequence[Field]) -> tuple[str, ...]:
    """Returns lines for the report about ``target`` columns whose type differs from the load's and
    that are text, or in which values may become NULL or lose parts. Scans no rows."""
    data = load_fields(load)[: len(load.schema.fields)]
    casts = casts_between(data, target, load.policy.evolution.type_change)
    columns = [".".join(path) for cast in casts.values() for path, _ in cast.failures]
    types = {f.name: f.type for f in target}
    parts = [f.name for f in data if f.name in casts and keeps_parts(f.type, types[f.name])]
    texts = [
        f.name
        for f in data
        if f.name in casts and types[f.name].kind is Kind.string is not f.type.kind
    ]
    notes: list[str] = []
    if columns:
        entry = "their text" if load.policy.longest_text is None else "an entry"
        notes.append(
            f"the source's values of {', '.join(columns)} have another type than the table's"
            f" column: those that do not fit it become NULL, with {entry} in the row's change"
            " list (`penstock run --recreate` gives the table the new type; `schema_evolution:"
            " {type_change: fail}` refuses them)"
        )
    if kept := [name for name in texts if name not in columns]:
        notes.append(
            f"the source's values of {', '.join(kept)} are written as text, since the table has"
            " columns of text for them (`penstock run --recreate` gives the table the new type)"
        )
    if parts:
        notes.append(
            f"of the source's JSON in {', '.join(parts)} the table's columns keep only the fields "
            "that they have"
        )
    return tuple(notes)


def path_sql(fields: Sequence[Field], path: FieldPath, alias: str = "") -> str | None:
    """Returns a SQL expression for a path of column names; None if ``fields`` lack it. A path that
    continues below a text column reads that column as JSON."""
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
    casts: dict[str, Cast], target: Sequence[Field], metadata: "dict[str, Column]"
) -> "list[Column]":
    from pyspark.sql import functions as F

    columns: list[Column] = []
    for field in target:
        value = metadata.get(field.name)
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


def _with_entries(changes: "Column", casts: dict[str, Cast], policy: TablePolicy) -> "Column":
    """Appends to the change list ``changes`` one entry for every value that a cast loses, and for
    every one that loses digits, with the value's text if no secret can be in it."""
    from pyspark.sql import functions as F

    words = policy.change_words

    def shown(text: "Column") -> "Column":
        most = policy.longest_text
        return _short(text) if most is None else F.when(F.length(text) <= most, _short(text))

    texts = {
        path: shown(text(F.col(quoted(name))))
        for name, cast in casts.items()
        for path, text in cast.texts
    }
    entries = [
        F.when(
            lost,
            F.struct(
                F.lit(".".join(path)).alias("field"),
                F.lit(word).alias("change"),
                F.concat_ws(": ", F.lit(words.reason), texts[path]).alias("reason"),
            ),
        )
        for word, losses in (
            (words.change, _cast_failures(casts)),
            (words.rounded, _cast_roundings(casts)),
        )
        for path, lost in losses
    ]
    return F.concat(changes, F.array_compact(F.array(*entries))) if entries else changes


def _short(text: "Column") -> "Column":
    """Cuts ``text`` to at most ``MAX_REASON_TEXT`` bytes: as much as is sure to fit."""
    from pyspark.sql import functions as F

    most = MAX_REASON_TEXT - len(REASON_CUT.encode())
    short = F.left(text, F.lit(most // 4))
    for width in (3, 2, 1):
        begin = F.left(text, F.lit(most // width))
        short = F.when(F.octet_length(begin) <= most, begin).otherwise(short)
    whole = F.octet_length(text) <= MAX_REASON_TEXT
    return F.when(whole, text).otherwise(F.concat(short, F.lit(REASON_CUT)))


def _cast_failures(casts: dict[str, Cast]) -> "list[tuple[FieldPath, Column]]":
    from pyspark.sql import functions as F

    return [
        (path, lost(F.col(quoted(name))))
        for name, cast in casts.items()
        for path, lost in cast.failures
    ]


def _inexact_keys(casts: dict[str, Cast]) -> "list[tuple[FieldPath, Column]]":
    from pyspark.sql import functions as F

    return [
        (path, lost(F.col(quoted(name))))
        for name, cast in casts.items()
        for path, lost in cast.inexact
    ]


def _cast_roundings(casts: dict[str, Cast]) -> "list[tuple[FieldPath, Column]]":
    from pyspark.sql import functions as F

    return [
        (path, lost(F.col(quoted(name))))
        for name, cast in casts.items()
        for path, lost in cast.rounded
    ]
