"""Joins the sets of a model's snapshot: the rows that were sent, as the destination has them.

The snapshot is a list of sets of changes, oldest first. Each is a folder of Parquet files, of which
only a first number counts. A set's rows have the columns that the model had then, by position
(``c0``, ...), and their change (:class:`Change`). A joined snapshot has every column of every set,
and each of its types in a separate column: a value that was sent in a column that the model lacks
today, or has in another type, is known when that column comes back.

Not here: what differs between a snapshot and the model (``diff``), which sets hold
(``engine.query.model_diff``: a state names them, and states move as all states do, L1)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.model.catalog import Change
from penstock.model.staged_rows import HELD, KIND, REJECTED, REMOVED
from penstock.spark.key_types import fits, retyped
from penstock.spark.model import by_position

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SENT = "penstock_sent"
"""Column of a set: whether the destination has, or had, a row of this key from Penstock."""

LEFT, LAGS = "penstock_left", "penstock_lags"
"""Columns of a set that was joined. ``LEFT``: the transforms left the row out. ``LAGS``: names of
columns that the last sent row lacked and an older row of its key had: the destination's value is
unknown."""

KEY_TEXTS, ATTEMPT, AGAIN = "key", "attempt", "again"
"""Columns of the files of rejected keys."""

_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_SET, _TAKEN, _OLD, _MATCHED = "penstock_set", "penstock_taken", "penstock_old", "penstock_matched"


class DiffColumn(msgspec.Struct, frozen=True):
    """A column of a set, in order: its original name and its type in Spark's words."""

    name: str
    type: str


class ChangeSet(msgspec.Struct, frozen=True):
    """A set of changes as it is read: its files that count, and its columns. ``rejected``: files
    with the keys of its rows that were rejected (``engine.log.rejected_keys``). ``tries_again``:
    those of them that are to be tried again count as not sent. ``left_out``: files with the keys of
    its rows that transforms left out (``engine.worker.transforms.compared_rows``)."""

    files: tuple[str, ...]
    columns: tuple[DiffColumn, ...]
    rejected: tuple[str, ...] = ()
    tries_again: bool = False
    left_out: tuple[str, ...] = ()


class Snapshot(NamedTuple):
    """The rows that were sent, with :data:`SENT`, :data:`LEFT` and :data:`LAGS`. ``columns``: those
    of ``c0``, ``c1``, ...: the model's current ones, then all others; ``rows`` may lack columns of
    which no set has a value."""

    rows: "DataFrame"
    columns: tuple[DiffColumn, ...]


def columns_of(rows: "DataFrame") -> tuple[DiffColumn, ...]:
    """Returns the model's columns as its sets have them."""
    staged = rows.select(*by_position(rows)).schema.fields
    return tuple(
        DiffColumn(named.name, field.dataType.simpleString())
        for named, field in zip(rows.schema.fields, staged, strict=True)
    )


def key_as_sent(
    sets: Sequence[ChangeSet], wanted: Sequence[DiffColumn], key: Sequence[int]
) -> tuple[DiffColumn, ...]:
    """Returns the model's columns, with its key in the types of the newest set that has rows."""
    newest = next((one.columns for one in reversed(sets) if one.files), ())
    types = {column.name: column.type for column in newest}
    return tuple(
        msgspec.structs.replace(c, type=types.get(c.name, c.type)) if index in key else c
        for index, c in enumerate(wanted)
    )


def with_key(was: Snapshot, wanted: Sequence[DiffColumn], key: Sequence[int]) -> Snapshot | None:
    """Returns the snapshot with the key in the types of ``wanted``; None: a key would change in
    them."""
    now = {f"c{index}": wanted[index].type for index in key if was.columns[index] != wanted[index]}
    if not fits(was.rows, now):
        return None
    return Snapshot(retyped(was.rows, now), (*wanted, *was.columns[len(wanted) :]))


def snapshot(
    spark: "SparkSession",
    sets: Sequence[ChangeSet],
    wanted: Sequence[DiffColumn],
    key: Sequence[int],
) -> Snapshot | None:
    """Joins ``sets``. ``wanted``: the model's current columns; ``key``: the positions of its
    primary key. None: no set has a file, or one lacks a column of the key."""
    from pyspark.sql import functions as F

    sets = [one for one in sets if one.files]
    if not sets or any(wanted[index] not in one.columns for one in sets for index in key):
        return None
    columns = tuple(dict.fromkeys((*wanted, *(c for one in sets for c in one.columns))))
    keys = [f"c{index}" for index in key]
    current: DataFrame | None = None
    before: set[DiffColumn] = set()
    for one in sets:
        changes = _rows(spark, one, columns, key)
        if one.rejected and one.tries_again:
            refused = _keys(spark, one.rejected, [(i, wanted[i].type) for i in key])
            changes = changes.join(refused.filter(AGAIN), keys, "left_anti")
        if current is not None:
            changes = _lagging(current, changes, before, one, columns, keys)
            current = current.join(changes.select(*keys), keys, "left_anti")
            changes = current.unionByName(changes, allowMissingColumns=True)
        before |= {*one.columns}
        current = changes.filter(F.col(KIND) != Change.removed.value)
    assert current is not None
    return Snapshot(_only_taken(spark, sets, wanted, key, current.drop(KIND, HELD)), columns)


def _rows(
    spark: "SparkSession", one: ChangeSet, columns: Sequence[DiffColumn], key: Sequence[int]
) -> "DataFrame":
    """Returns the rows of a set, under the places of its columns in ``columns``; those that
    transforms left out count as sent the way they were before."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    read = _read(spark, one)
    own = {column: f"c{index}" for index, column in enumerate(one.columns)}
    values = [F.col(own[c]).alias(f"c{i}") for i, c in enumerate(columns) if c in own]
    marks = {HELD: F.col(SENT), LEFT: F.lit(False), LAGS: F.lit(None).cast("array<string>")}
    found = read.filter(~F.col(KIND).isin(*REJECTED)).select(
        *values,
        KIND,
        SENT,
        *((F.col(n) if n in read.columns else v).alias(n) for n, v in marks.items()),
    )
    if not one.left_out:
        return found
    keys = [f"c{index}" for index in key]
    types = StructType([read.schema[own[columns[index]]] for index in key])
    types = types.add(REMOVED, "boolean")
    left = (
        spark.read.schema(types)
        .parquet(*one.left_out)
        .select(
            *(F.col(own[columns[index]]).alias(f"c{index}") for index in key),
            F.col(REMOVED),
            F.lit(True).alias(_MATCHED),
        )
    )
    matched = F.col(_MATCHED).isNotNull()
    sent = F.when(matched, F.col(HELD) & ~F.col(REMOVED)).otherwise(F.col(SENT))
    joined = found.join(left, keys, "left")
    return joined.withColumns({SENT: sent, LEFT: F.col(LEFT) | matched}).drop(REMOVED, _MATCHED)


def _lagging(
    current: "DataFrame",
    changes: "DataFrame",
    before: set[DiffColumn],
    one: ChangeSet,
    columns: Sequence[DiffColumn],
    keys: Sequence[str],
) -> "DataFrame":
    """Adds to ``changes`` the values that their rows lack from older ones (:data:`LAGS`).
    ``before``: the columns of older sets."""
    from pyspark.sql import functions as F

    names = {column.name for column in one.columns}
    gone = [i for i, c in enumerate(columns) if c in before and c.name not in names]
    gone = [index for index in gone if f"c{index}" in current.columns]
    if not gone:
        return changes
    valued = (F.when(F.col(f"c{index}").isNotNull(), F.lit(columns[index].name)) for index in gone)
    none = F.array().cast("array<string>")
    older = F.array_union(F.coalesce(LAGS, none), F.array_compact(F.array(*valued)))
    older = F.array_except(older, F.array(*(F.lit(name) for name in sorted(names))))
    lags = F.array_union(F.coalesce(LAGS, none), F.coalesce(_OLD, none))
    joined = changes.join(current.select(*keys, older.alias(_OLD)), list(keys), "left")
    return joined.withColumn(LAGS, lags).drop(_OLD)


def _only_taken(
    spark: "SparkSession",
    sets: Sequence[ChangeSet],
    wanted: Sequence[DiffColumn],
    key: Sequence[int],
    rows: "DataFrame",
) -> "DataFrame":
    """Returns the rows of a snapshot, where a row with a rejected key counts as sent like the last
    one that was not rejected. If the destination took no row of a key, it gets no removal for it,
    which might match a row of others."""
    from pyspark.sql import functions as F

    keys = [f"c{index}" for index in key]
    types = [(index, wanted[index].type) for index in key]
    every = [path for one in sets for path in one.rejected]
    if not every:
        return rows
    rejected = F.broadcast(_keys(spark, every, types).select(*keys).distinct())
    taken: DataFrame | None = None
    for number, one in enumerate(sets):
        sent = F.col(SENT) & (F.col(KIND) != Change.removed.value)
        found = (
            _rows(spark, one, wanted, key)
            .select(*keys, sent.alias(_TAKEN), F.lit(number).alias(_SET))
            .join(rejected, keys, "left_semi")
        )
        if one.rejected:
            found = found.join(_keys(spark, one.rejected, types), keys, "left_anti")
        taken = found if taken is None else taken.unionByName(found)
    assert taken is not None
    last = taken.groupBy(*keys).agg(F.max_by(_TAKEN, _SET).alias(_TAKEN))
    known = rejected.join(last, keys, "left").fillna(False, [_TAKEN])
    return rows.join(known, keys, "left").select(
        *(c for c in rows.columns if c != SENT), F.coalesce(_TAKEN, SENT).alias(SENT)
    )


def tried_again(
    spark: "SparkSession",
    sets: Sequence[ChangeSet],
    wanted: Sequence[DiffColumn],
    key: Sequence[int],
) -> "DataFrame":
    """Returns the keys of rows that were rejected and not sent since: the columns of the primary
    key by position, the key as texts (:data:`KEY_TEXTS`), and how often (:data:`ATTEMPT`)."""
    from pyspark.sql import functions as F

    keys = [f"c{index}" for index in key]
    found: DataFrame | None = None
    for one in sets:
        if not one.files or any(wanted[index] not in one.columns for index in key):
            continue
        here = _rows(spark, one, wanted, key).select(*keys)
        if found is not None:
            found = found.join(here, keys, "left_anti")
        if one.rejected and one.tries_again:
            refused = _keys(spark, one.rejected, [(i, wanted[i].type) for i in key])
            refused = refused.filter(AGAIN).join(here, keys, "left_semi")
            found = refused if found is None else found.unionByName(refused)
    if found is None:
        found = _keys(spark, (), [(i, wanted[i].type) for i in key])
    return found.groupBy(*keys, KEY_TEXTS).agg(F.max(ATTEMPT).alias(ATTEMPT))


def _read(spark: "SparkSession", one: ChangeSet) -> "DataFrame":
    """Reads the files of a set. Its types are those that Spark wrote into its first file: Spark
    itself would start a job for each set to find them."""
    from pyarrow import parquet
    from pyspark.sql.types import StructType

    about = parquet.read_metadata(one.files[0]).metadata
    schema = StructType.fromJson(msgspec.json.decode(about[_SCHEMA]))
    return spark.read.schema(schema).parquet(*one.files)


def _keys(
    spark: "SparkSession", files: Sequence[str], columns: Sequence[tuple[int, str]]
) -> "DataFrame":
    """Returns keys that were kept as texts, in the types of the primary key's columns; one that
    does not parse in its type is NULL, which joins nothing."""
    from pyspark.sql import functions as F

    columns_of_files = f"{KEY_TEXTS} array<string>, {ATTEMPT} int, {AGAIN} boolean"
    read = spark.read.schema(columns_of_files).json(list(files))
    typed: list[Column] = []
    for at, (index, type_) in enumerate(columns):
        text = F.col(KEY_TEXTS)[at]
        value = F.unbase64(text) if type_ == "binary" else text.try_cast(type_)
        typed.append(value.alias(f"c{index}"))
    return read.select(*typed, KEY_TEXTS, ATTEMPT, F.coalesce(AGAIN, F.lit(True)).alias(AGAIN))
