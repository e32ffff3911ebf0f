"""Computes with Spark which rows of a model differ from those that were sent before.

The rows that were sent are a *snapshot*: a list of sets of changes, each a folder of Parquet files
of which the first so many count, oldest first. A set's rows have the model's columns by position
(``c0``, ...), and what became of them (:class:`Mark`). Nothing here decides when a snapshot moves:
a state names its sets (``engine.sync.model_diff``), and states move as all states do (L1).
Neighbours: ``model`` reads the model itself.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.model.catalog import Change
from penstock.model.staged_rows import KIND, REJECTED, SEND
from penstock.spark.model import Model, by_position, failed
from penstock.spark.types import json_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SENT = "penstock_sent"
"""Column of a set: whether the row was ever sent, now or before."""

KEY_TEXTS, ATTEMPT, AGAIN = "key", "attempt", "again"
"""Columns of the files of rejected keys."""

_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_HERE, _TIMES, _WAS, _WAS_SENT = "penstock_here", "penstock_n", "penstock_was", "penstock_was_sent"
_RETYPED = "penstock_retyped"  # of a snapshot's row: it had a value in another type than now


class DiffColumn(msgspec.Struct, frozen=True):
    """A column of a set, in order: its original name and its type in Spark's words."""

    name: str
    type: str


class ChangeSet(msgspec.Struct, frozen=True):
    """A set of changes as it is read: its files that count, and its columns. ``rejected``: files of
    the keys of its rows that were rejected (``engine.log.rejected_keys``). ``tries_again``: of
    these, rows that are to be tried again count as not sent."""

    files: tuple[str, ...]
    columns: tuple[DiffColumn, ...]
    rejected: tuple[str, ...] = ()
    tries_again: bool = False


def columns_of(rows: "DataFrame") -> tuple[DiffColumn, ...]:
    """The model's columns as its sets have them."""
    staged = rows.select(*by_position(rows)).schema.fields
    return tuple(
        DiffColumn(named.name, field.dataType.simpleString())
        for named, field in zip(rows.schema.fields, staged, strict=True)
    )


def snapshot(
    spark: "SparkSession",
    sets: Sequence[ChangeSet],
    wanted: Sequence[DiffColumn],
    key: Sequence[int],
) -> "DataFrame | None":
    """The rows that were sent, with the model's columns of now by position: one that a set lacks,
    or has in another type, is NULL there, so that rows with a value in it have changed; so have
    those that had a value in another type, whatever they have now. ``key``: the positions of the
    primary key. None: no set has a file, or one lacks a column of the key."""
    from pyspark.sql import functions as F

    current: DataFrame | None = None
    keys = [f"c{index}" for index in key]
    for one in sets:
        if not one.files:
            continue
        places = {column: f"c{index}" for index, column in enumerate(one.columns)}
        if any(wanted[index] not in places for index in key):
            return None
        chosen = [
            (F.col(places[c]) if c in places else F.lit(None).cast(c.type)).alias(f"c{index}")
            for index, c in enumerate(wanted)
        ]
        now = {column.name: column.type for column in wanted}
        retyped = F.lit(False)
        for column, place in places.items():
            if column.name in now and now[column.name] != column.type:
                retyped = retyped | F.col(place).isNotNull()
        read = _rows(spark, one).filter(~F.col(KIND).isin(*REJECTED))
        changes = read.select(*chosen, retyped.alias(_RETYPED), KIND, SENT)
        if one.rejected:
            refused = _keys(spark, one.rejected, [(i, wanted[i].type) for i in key])
            if one.tries_again:
                changes = changes.join(refused.filter(AGAIN), keys, "left_anti")
        if current is not None:
            current = current.join(changes.select(*keys), keys, "left_anti").select(
                *(f"c{index}" for index in range(len(wanted))), _RETYPED, KIND, SENT
            )
            changes = current.unionByName(changes)
        current = changes.filter(F.col(KIND) != Change.removed.value)
    if current is None:
        return None
    return _only_taken(spark, sets, wanted, key, current.drop(KIND))


def _only_taken(
    spark: "SparkSession",
    sets: Sequence[ChangeSet],
    wanted: Sequence[DiffColumn],
    key: Sequence[int],
    rows: "DataFrame",
) -> "DataFrame":
    """The rows of a snapshot, of which those with a rejected key are as sent as the last one that
    was not rejected: where the destination took no row of a key, it is sent no removal of it, which
    a row of others may meet."""
    from pyspark.sql import functions as F

    keys = [f"c{index}" for index in key]
    types = [(index, wanted[index].type) for index in key]
    every = [path for one in sets for path in one.rejected]
    if not every:
        return rows
    rejected = F.broadcast(_keys(spark, every, types).select(*keys).distinct())
    taken: DataFrame | None = None
    for number, one in enumerate(sets):
        if not one.files:
            continue
        places = {column: f"c{index}" for index, column in enumerate(one.columns)}
        sent = F.col(SENT) & (F.col(KIND) != Change.removed.value)
        found = (
            _rows(spark, one)
            .filter(~F.col(KIND).isin(*REJECTED))
            .select(
                *(F.col(places[wanted[index]]).alias(f"c{index}") for index in key),
                sent.alias(_WAS_SENT),
                F.lit(number).alias(_TIMES),
            )
            .join(rejected, keys, "left_semi")
        )
        if one.rejected:
            found = found.join(_keys(spark, one.rejected, types), keys, "left_anti")
        taken = found if taken is None else taken.unionByName(found)
    if taken is None:
        return rows
    last = taken.groupBy(*keys).agg(F.max_by(_WAS_SENT, _TIMES).alias(_WAS_SENT))
    known = rejected.join(last, keys, "left").fillna(False, [_WAS_SENT])
    return rows.join(known, keys, "left").select(
        *(c for c in rows.columns if c != SENT), F.coalesce(_WAS_SENT, SENT).alias(SENT)
    )


def tried_again(
    spark: "SparkSession",
    sets: Sequence[ChangeSet],
    wanted: Sequence[DiffColumn],
    key: Sequence[int],
) -> "DataFrame":
    """The keys of rows that were rejected and not sent since: the columns of the primary key by
    position, the key as texts (:data:`KEY_TEXTS`), and how often (:data:`ATTEMPT`)."""
    from pyspark.sql import functions as F

    keys = [f"c{index}" for index in key]
    found: DataFrame | None = None
    for one in sets:
        places = {column: f"c{index}" for index, column in enumerate(one.columns)}
        if not one.files or any(wanted[index] not in places for index in key):
            continue
        read = _rows(spark, one).filter(~F.col(KIND).isin(*REJECTED))
        here = read.select(*(F.col(places[wanted[index]]).alias(f"c{index}") for index in key))
        if found is not None:
            found = found.join(here, keys, "left_anti")
        if one.rejected and one.tries_again:
            refused = _keys(spark, one.rejected, [(i, wanted[i].type) for i in key])
            refused = refused.filter(AGAIN).join(here, keys, "left_semi")
            found = refused if found is None else found.unionByName(refused)
    if found is None:
        found = _keys(spark, (), [(i, wanted[i].type) for i in key])
    return found.groupBy(*keys, KEY_TEXTS).agg(F.max(ATTEMPT).alias(ATTEMPT))


def _rows(spark: "SparkSession", one: ChangeSet) -> "DataFrame":
    """The rows of a set. Its types are those that Spark wrote into its first file: Spark itself
    would start a job for each set to find them."""
    from pyarrow import parquet
    from pyspark.sql.types import StructType

    about = parquet.read_metadata(one.files[0]).metadata
    schema = StructType.fromJson(msgspec.json.decode(about[_SCHEMA]))
    return spark.read.schema(schema).parquet(*one.files)


def _keys(
    spark: "SparkSession", files: Sequence[str], columns: Sequence[tuple[int, str]]
) -> "DataFrame":
    """Keys that were kept as texts, in the types of the primary key's columns; one that does not
    read in its type is NULL, which joins nothing."""
    from pyspark.sql import functions as F

    columns_of_files = f"{KEY_TEXTS} array<string>, {ATTEMPT} int, {AGAIN} boolean"
    read = spark.read.schema(columns_of_files).json(list(files))
    typed: list[Column] = []
    for at, (index, type_) in enumerate(columns):
        text = F.col(KEY_TEXTS)[at]
        value = F.unbase64(text) if type_ == "binary" else text.try_cast(type_)
        typed.append(value.alias(f"c{index}"))
    return read.select(*typed, KEY_TEXTS, ATTEMPT, F.coalesce(AGAIN, F.lit(True)).alias(AGAIN))


def write_table(rows: "DataFrame", folder: Path, model: Model) -> tuple[str, ...]:
    """Write a whole snapshot as one set, so that the next diffs read fewer."""
    from pyspark.sql import functions as F

    whole = rows.select(
        *(c for c in rows.columns if c not in (_RETYPED, SENT)),
        F.lit(Change.added.value).alias(KIND),
        F.lit(False).alias(SEND),
        SENT,
    )
    return _written(whole, folder, model)


def write_changes(
    rows: "DataFrame",
    was: "DataFrame | None",
    key: Sequence[int],
    sends: Sequence[Change],
    folder: Path,
    model: Model,
    *,
    carried: Sequence[str] = (),
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Write what differs between the model and the snapshot ``was`` (None: there is none, so that
    every row is new and is sent) as a set; gives its files, in order, and the number of rows of
    each kind, those that are as before and those that are not sent included.

    ``carried``: columns at the end of ``rows`` that are no values, and are written with them.

    Written are the rows that are sent, those that are refused (a key that is null or comes twice),
    and, where only changed rows are sent, the new ones, which are known from then on. Any other
    stays as the snapshot has it. Raises ``SourceError`` where the query fails on its rows."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    values = [f"c{index}" for index in range(len(rows.columns) - len(carried))]
    keys = [f"c{index}" for index in key]
    joined, before = _beside(rows, was, values, keys, carried)
    kind = _kind(joined, before, keys)
    gone = F.col(_HERE).isNull()
    chosen = [
        (
            F.when(gone, before[name]).otherwise(F.col(name)) if name in before else F.col(name)
        ).alias(name)
        for name in values
    ]
    wanted = {change.value for change in sends}
    if was is None:
        wanted.add(Change.added.value)  # nobody knows what is there: everything is sent
    was_sent = F.coalesce(F.col(_WAS_SENT), F.lit(False))
    marked = joined.select(*chosen, *carried, kind.alias(KIND), was_sent.alias(_WAS_SENT))
    send = F.col(KIND).isin(*wanted) & ((F.col(KIND) != Change.removed.value) | F.col(_WAS_SENT))
    counts = Observation()
    counted = marked.observe(
        counts, *(F.count_if(F.col(KIND) == c.value).alias(c.value) for c in Change)
    )
    kept = wanted | set(REJECTED)
    if Change.changed in sends and Change.added not in sends:
        kept.add(Change.added.value)
    changes = counted.filter(F.col(KIND).isin(*kept)).select(
        *values, *carried, KIND, send.alias(SEND), (send | F.col(_WAS_SENT)).alias(SENT)
    )
    files = _written(changes, folder, model)
    found = counts.get  # empty where Spark saw that there is nothing to run
    return files, {c.value: int(found.get(c.value) or 0) for c in Change}


def _beside(
    rows: "DataFrame",
    was: "DataFrame | None",
    values: Sequence[str],
    keys: Sequence[str],
    carried: Sequence[str],
) -> "tuple[DataFrame, dict[str, Column]]":
    """The model's rows and, by key, those of the snapshot; with the columns of the snapshot's
    values (none where there is no snapshot)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    found = rows.select(*by_position(rows.drop(*carried)), *carried, F.lit(True).alias(_HERE))
    found = found.withColumn(_TIMES, F.count(F.lit(1)).over(Window.partitionBy(*keys)))
    if was is None:
        return found.withColumns(
            {_WAS: F.lit(None), _WAS_SENT: F.lit(False), _RETYPED: F.lit(False)}
        ), {}
    old = was.select(
        *(F.col(name).alias(f"was_{name}") for name in values),
        F.col(SENT).alias(_WAS_SENT),
        F.col(_RETYPED),
        F.lit(True).alias(_WAS),
    )
    match = [F.col(name) == F.col(f"was_{name}") for name in keys]
    return found.join(old, match, "full_outer"), {name: F.col(f"was_{name}") for name in values}


def _kind(joined: "DataFrame", before: "dict[str, Column]", keys: Sequence[str]) -> "Column":
    """What became of each row (a value of :class:`Change`). ``before``: the snapshot's values."""
    from pyspark.sql import functions as F

    missing = F.lit(False)
    for name in keys:
        missing = missing | F.col(name).isNull()
    differs = F.col(_RETYPED)
    for name, earlier in before.items():
        now = F.col(name)
        if "map<" in joined.schema[name].dataType.simpleString():
            now, earlier = json_text(now), json_text(earlier)
        differs = differs | ~now.eqNullSafe(earlier)
    return (
        F.when(F.col(_HERE).isNull(), Change.removed.value)
        .when(missing, Change.null_key.value)
        .when(F.col(_TIMES) > 1, Change.duplicate_key.value)
        .when(F.col(_WAS).isNull(), Change.added.value)
        .when(differs, Change.changed.value)
        .otherwise(Change.same.value)
    )


def _written(rows: "DataFrame", folder: Path, model: Model) -> tuple[str, ...]:
    from pyspark.errors import PySparkException

    try:
        rows.write.mode("overwrite").parquet(str(folder))
    except PySparkException as failure:
        raise failed(failure, model) from None
    return files_of(folder)


def files_of(folder: Path) -> tuple[str, ...]:
    """The files of a set, in order."""
    return tuple(sorted(str(p) for p in folder.glob("part-*.parquet")))
