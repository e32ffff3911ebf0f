"""Rebuilds the marker of a Parquet table that a power cut left empty or half written, from the
ledger's record of the next load, the names of the table's files and their footers.

File names alone do not show which numbers were applied; the ledger does (``Load.follows``). What
cannot be proved is refused with the ways out: files of another pipeline, or a rewritten folder that
the ledger does not know to hold the last committed load. The ledger keeps no token of a settled
load, so the marker has none, and another home's load of that number is refused, not skipped.
Neighbours: ``parquet.folders`` reads and writes markers, ``parquet`` calls this under the table's
lock."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.errors import DestinationError
from penstock.model.catalog import FieldPath
from penstock.model.types import DataType, Field
from penstock.spark.types import row_schema
from penstock.tables.contract import TableLoad
from penstock.tables.files.direct_parts import SPARK_COLUMNS
from penstock.tables.frame import load_frame
from penstock.tables.load_columns import load_fields
from penstock.tables.parquet.folders import (
    Marker,
    file_owner,
    key_hash,
    parquet_files,
    rewrite_token,
    write_marker,
)
from penstock.tables.parquet.merge import KEY

NOTE = "the marker of table {} was damaged, as by a power cut: it was rebuilt from the ledger"


def rebuild_marker(folder: Path, load: TableLoad) -> Marker:
    """Writes a marker into ``folder``, whose own is damaged, so that the table is as before
    ``load``, and returns it. Raises ``DestinationError`` (``destination.marker_damaged``)."""
    names = parquet_files(folder)
    kept = _counted(folder, names, load)
    follows = load.load.follows
    columns = _columns(folder, kept or names, load) if kept or load.replaces else ()
    if not columns:  # no row of the table counts: it is like a new one
        columns = load_frame.target_columns(load, None, lambda: None).fields
    keyed = _key_of_history(folder, kept) if load.history else ()
    marker = Marker(columns, {load.load.key: follows} if follows else {}, keyed=keyed)
    write_marker(folder, marker)
    return marker


def _counted(folder: Path, names: Sequence[str], load: TableLoad) -> list[str]:
    """Returns the names of the files whose rows belong to the table. Raises ``DestinationError`` if
    the ledger does not prove it."""
    own, key = load.load, key_hash(load.load.key)
    owners = {name: file_owner(name) for name in names}
    others = [n for n, owner in owners.items() if owner and not owner.rewrite and owner.key != key]
    if others:
        raise _refused(folder, f"{others[0]} is of another pipeline, or of an earlier state of it")
    if own.replaces_rows:
        return []
    if own.follows is None:
        raise _refused(folder, "the ledger lacks the table's last load")
    appended = {n: owner.number for n, owner in owners.items() if owner and not owner.rewrite}
    rewritten = {n: owner.key for n, owner in owners.items() if owner and owner.rewrite}
    known = {rewrite_token(own.key, number): number for number in range(1, own.follows + 1)}
    for name, token in rewritten.items():
        if token not in known:
            raise _refused(folder, f"the ledger does not prove which load wrote {name}")
    finished = [n for n, number in appended.items() if number <= own.follows]
    newest = max(
        (*(known[token] for token in rewritten.values()), *(appended[n] for n in finished)),
        default=0,
    )
    if newest != own.follows:
        raise _refused(folder, f"no file in it is of load {own.follows}, which it had last")
    return [*finished, *rewritten]


def _key_of_history(folder: Path, names: Sequence[str]) -> tuple[FieldPath, ...]:
    """Returns the key of the versions in these files, from their footers; empty: unknown, since
    Spark or an earlier version of Penstock wrote no key."""
    import pyarrow.parquet as pq

    said = {(pq.read_metadata(folder / name).metadata or {}).get(KEY.encode()) for name in names}
    found = [msgspec.json.decode(key, type=tuple[FieldPath, ...]) for key in said if key]
    return found[0] if len(found) == 1 else ()


def _columns(folder: Path, names: Sequence[str], load: TableLoad) -> tuple[Field, ...]:
    """Returns the columns that all these files have. If the load replaces all rows: those of any
    readable file; empty if there is none."""
    found: list[tuple[Field, ...]] = []
    for name in names:
        try:
            found.append(_columns_of(folder / name, load))
        except (OSError, ValueError) as failure:
            if not load.replaces:
                raise _refused(folder, f"{name} cannot be read ({failure})") from failure
    shapes = {frozenset((f.name, _plain(f.type)) for f in fields) for fields in found}
    if len(shapes) > 1 and not load.replaces:
        raise _refused(folder, "its files have different columns")
    return next(iter(found), ())


def _columns_of(file: Path, load: TableLoad) -> tuple[Field, ...]:
    """Returns the columns of a file from Spark's own entry in its footer; without one, from the
    Arrow types, under the original names that the load knows."""
    import pyarrow.parquet as pq

    from penstock.codec import columns

    footer = pq.read_metadata(file)
    described = (footer.metadata or {}).get(SPARK_COLUMNS.encode())
    if described is not None:
        from pyspark.sql.types import StructType

        return row_schema(StructType.fromJson(msgspec.json.decode(described))).fields
    known = {f.name: f for f in load_fields(load)}
    found = (
        Field(column.name, column.name, columns.data_type(column.type))
        for column in footer.schema.to_arrow_schema()
    )
    return tuple(
        known[f.name] if f.name in known and _plain(known[f.name].type) == f.type else f
        for f in found
    )


def _plain(kind: DataType) -> DataType:
    """Returns the type that a plain Parquet file stores for this type."""
    from penstock.codec import arrow, columns

    return columns.data_type(arrow.arrow_type(kind))


def _refused(folder: Path, reason: str) -> DestinationError:
    return DestinationError(
        f"the marker of the table in {folder} is damaged, as by a power cut, and cannot be rebuilt:"
        f" {reason}",
        code="destination.marker_damaged",
        where=str(folder),
        hint="nothing was loaded or marked. Restore the folder's _penstock.json from a copy; or "
        "move the folder away, and `penstock run --recreate` reads the streams from the start and "
        "makes their tables again",
    )
