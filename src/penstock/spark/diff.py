"""Computes with Spark which rows of a model differ from those that were sent before.

Writes the differences as a set of changes, which later snapshots include (``snapshot``). Nothing
here decides when a snapshot moves (``engine.query.model_diff``). Neighbour: ``model`` reads the
model itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import LogError
from penstock.model.catalog import Change
from penstock.model.staged_rows import HELD, KIND, REJECTED, SEND
from penstock.spark.model import Model, by_position, failing
from penstock.spark.shared_folders import write_parquet
from penstock.spark.snapshot import LAGS, LEFT, SENT, DiffColumn, Snapshot, columns_of
from penstock.spark.types import json_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HERE, _TIMES, _WAS, _WAS_SENT = "penstock_here", "penstock_n", "penstock_was", "penstock_was_sent"
_OTHER = "penstock_other"  # a snapshot's row: the destination may have other values than these


class Recheck(msgspec.Struct, frozen=True):
    """Controls what is compared with the transforms' current answer, which may have changed.
    ``left_out``: rows that they left out are tried again. ``same``: unchanged rows are written too,
    not to be sent, but to see whether they pass. ``doubted``: it is unknown which rows of the
    snapshot passed. ``again``: the destination got them in other fields, so that unchanged rows
    count as changed."""

    left_out: bool = False
    same: bool = False
    doubted: bool = False
    again: bool = False


def write_table(
    was: Snapshot, folder: Path, model: Model
) -> tuple[tuple[str, ...], tuple[DiffColumn, ...]]:
    """Writes a whole snapshot as one set, so that the next diffs read fewer. Returns its files and
    its columns: each column and type that a sent value had."""
    from pyspark.sql import functions as F

    have = [(f"c{i}", c) for i, c in enumerate(was.columns) if f"c{i}" in was.rows.columns]
    whole = was.rows.select(
        *(F.col(name).alias(f"c{place}") for place, (name, _) in enumerate(have)),
        F.lit(Change.added.value).alias(KIND),
        F.lit(False).alias(SEND),
        SENT,
        LEFT,
        LAGS,
    )
    return _written(whole, folder, model), tuple(column for _, column in have)


def write_changes(
    rows: "DataFrame",
    was: Snapshot | None,
    key: Sequence[int],
    sends: Sequence[Change],
    folder: Path,
    model: Model,
    recheck: Recheck,
    *,
    carried: Sequence[str] = (),
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Writes the differences between the model and the snapshot ``was`` (None: there is none, so
    every row is new and is sent) as a set. Returns its files, in order, and the number of rows of
    each kind, including unchanged and unsent ones.

    ``carried``: columns at the end of ``rows`` that are not values, and are written with them.
    Writes the rows that are sent, those that are refused (a key that is null or duplicate), and, if
    only changed rows are sent, the new ones, which are known from then on; also unchanged ones if
    ``recheck`` requires them. Any other row stays as the snapshot has it. Raises ``SourceError`` if
    the query fails on its rows."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    values = [f"c{index}" for index in range(len(rows.columns) - len(carried))]
    keys = [f"c{index}" for index in key]
    joined, before = _beside(rows, was, values, keys, recheck, carried)
    kind = _kind(joined, values, before, keys, inserts=Change.changed not in sends)
    gone = F.col(_HERE).isNull()
    chosen = [
        F.when(gone, before[name]).otherwise(F.col(name)).alias(name)
        if name in before
        else F.col(name)
        for name in values
    ]
    wanted = {change.value for change in sends}
    if was is None:
        wanted.add(Change.added.value)  # what is there is unknown: everything is sent
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
    if recheck.same:
        kept.add(Change.same.value)
    changes = counted.filter(F.col(KIND).isin(*kept)).select(
        *values,
        *carried,
        KIND,
        send.alias(SEND),
        (send | F.col(_WAS_SENT)).alias(SENT),
        (F.col(_WAS_SENT) & F.lit(not recheck.doubted)).alias(HELD),
    )
    files = _written(changes, folder, model)
    found = counts.get  # empty where Spark saw that there is nothing to run
    return files, {c.value: int(found.get(c.value) or 0) for c in Change}


def _beside(
    rows: "DataFrame",
    was: Snapshot | None,
    values: Sequence[str],
    keys: Sequence[str],
    recheck: Recheck,
    carried: Sequence[str],
) -> "tuple[DataFrame, dict[str, Column]]":
    """Joins the model's rows, by key, with those of the snapshot; returns them with the columns of
    the snapshot's values that exist."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    found = rows.select(*by_position(rows.drop(*carried)), *carried, F.lit(True).alias(_HERE))
    found = found.withColumn(_TIMES, F.count(F.lit(1)).over(Window.partitionBy(*keys)))
    if was is None:
        none = {_WAS: F.lit(None), _WAS_SENT: F.lit(False), _OTHER: F.lit(False)}
        return found.withColumns(none), {}
    names = {name: f"was_{name}" for name in values if name in was.rows.columns}
    old = was.rows.select(
        *(F.col(name).alias(other) for name, other in names.items()),
        F.col(SENT).alias(_WAS_SENT),
        _other_values(was, columns_of(rows.drop(*carried)), recheck).alias(_OTHER),
        F.lit(True).alias(_WAS),
    )
    match = [F.col(name) == F.col(names[name]) for name in keys]
    joined = found.join(old, match, "full_outer")
    return joined, {name: F.col(other) for name, other in names.items()}


def _other_values(was: Snapshot, now: Sequence[DiffColumn], recheck: Recheck) -> "Column":
    """Returns whether the destination may have other values of a row than the snapshot's current
    columns: one in another type, one of an older row, those from before the transforms left it out,
    or those of other fields."""
    from pyspark.sql import functions as F

    if recheck.again:
        return F.lit(True)
    names = {column.name for column in now}
    lags = F.coalesce(F.col(LAGS), F.array().cast("array<string>"))
    other = F.arrays_overlap(lags, F.array(*(F.lit(name) for name in sorted(names))))
    for index, column in enumerate(was.columns[len(now) :], len(now)):
        if column.name in names and f"c{index}" in was.rows.columns:
            other = other | F.col(f"c{index}").isNotNull()
    return other | F.col(LEFT) if recheck.left_out else other


def _kind(
    joined: "DataFrame",
    values: Sequence[str],
    before: "dict[str, Column]",
    keys: Sequence[str],
    *,
    inserts: bool,
) -> "Column":
    """Returns the change of each row (a value of :class:`Change`). ``before``: the snapshot's
    values. ``inserts``: a row that was never sent is new, if it differs from the one that was not
    taken."""
    from pyspark.sql import functions as F

    missing = F.lit(False)
    for name in keys:
        missing = missing | F.col(name).isNull()
    differs = F.col(_OTHER)
    for name in values:
        now, earlier = F.col(name), before.get(name)
        if earlier is None:
            differs = differs | now.isNotNull()
            continue
        if "map<" in joined.schema[name].dataType.simpleString():
            now, earlier = json_text(now), json_text(earlier)
        differs = differs | ~now.eqNullSafe(earlier)
    new = ~F.col(_WAS_SENT) & differs if inserts else F.lit(False)
    return (
        F.when(F.col(_HERE).isNull(), Change.removed.value)
        .when(missing, Change.null_key.value)
        .when(F.col(_TIMES) > 1, Change.duplicate_key.value)
        .when(F.col(_WAS).isNull() | new, Change.added.value)
        .when(differs, Change.changed.value)
        .otherwise(Change.same.value)
    )


def _written(rows: "DataFrame", folder: Path, model: Model) -> tuple[str, ...]:
    with failing(model):
        write_parquet(rows, folder, LogError)
    return files_of(folder)


def files_of(folder: Path) -> tuple[str, ...]:
    """Returns the files of a set, in order."""
    return tuple(sorted(str(p) for p in folder.glob("part-*.parquet")))
