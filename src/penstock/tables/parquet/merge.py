"""Fills the new folder of a Parquet table by Arrow: the table's rows after a load, without Spark.

A load that keeps one row per key is compared with the table's files (``newest_rows``): files that
lose no row get a second name in the new folder, and what is left of the others and the load's rows
go into new files (``merged_files``). A load that replaces all rows brings its parts in their
table's shape, or no row at all. Only for tables with the load's columns, whose marker says that
they have one row per key; all else is Spark's. Not here: the exchange of the folders, conflicts,
markers (``parquet``).
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.model.catalog import DestinationSyncMode
from penstock.tables.contract import Deletes, TableLoad
from penstock.tables.files import direct_parts, merged_files
from penstock.tables.files.merged_files import TableFile
from penstock.tables.files.newest_rows import (
    Bounds,
    NeedsSpark,
    NewestRows,
    RowSelection,
    comparable,
)
from penstock.tables.load_columns import load_fields
from penstock.tables.parquet.folders import Marker, finished_files

MOST_SMALL_FILES = 8  # that a merge leaves as they are
SMALL_FILE_BYTES = merged_files.FILE_BYTES // MOST_SMALL_FILES
_NEW, _KEPT = "new-", "kept-"  # of the names in a folder that is being filled


def fill(
    load: TableLoad, marker: Marker | None, folder: Path, columns: Sequence[str], staged: Path
) -> int | None:
    """Puts the files of the table in ``folder`` after ``load`` into the empty folder ``staged``,
    durably but for second names; returns the rows written, as ``LoadResult`` counts them. None:
    Spark has to write them, and ``staged`` is empty. ``columns``: the table's, which are the
    load's, in the table's order; ``marker``: the table's, None where it has no rows to keep. Raises
    ``OSError``, and what Arrow raises of a broken file."""
    try:
        if load.mode is DestinationSyncMode.append_dedup:
            written = _merged(load, marker, folder, columns, staged)
        elif load.parts:
            written = _gathered(load, columns, staged)
        else:
            written = 0
        if not any(staged.iterdir()):  # readers learn the columns from a file
            merged_files.without_rows(load, staged, _NEW, columns)
    except NeedsSpark:
        return None
    return written


def gathered(load: TableLoad, columns: Sequence[str], folder: Path, stem: str) -> list[Path] | None:
    """Writes the parts of an append, in their table's shape, into few files in ``folder``; None:
    Spark has to. ``columns``: the table's, in its order."""
    if not direct_parts.in_shape(load):
        return None
    try:
        return merged_files.gather(load, folder, stem, columns)
    except NeedsSpark:
        return None


def _gathered(load: TableLoad, columns: Sequence[str], staged: Path) -> int:
    if gathered(load, columns, staged, _NEW) is None:
        raise NeedsSpark("its parts are not in the table's shape")
    return load.load.rows


def _merged(
    load: TableLoad, marker: Marker | None, folder: Path, columns: Sequence[str], staged: Path
) -> int:
    if any(part.shape for part in load.load.parts) or not load.parts or not comparable(load):
        raise NeedsSpark("its rows cannot be compared here")
    if marker is not None and set(marker.keyed) != set(load.primary_key):
        raise NeedsSpark("the table may have several rows of a key")
    paths = [] if marker is None else finished_files(folder, marker)
    old = [_file(Path(path), load) for path in paths]
    with NewestRows(load) as rows:
        outcome = rows.outcome([(folder / file.name, file.bounds) for file in old])
    outcome = _with_small_files(outcome, old)
    kept = [file.name for index, file in enumerate(old) if index not in outcome.lost]
    merged = merged_files.write(load, outcome, folder, old, staged, _NEW, columns)
    try:
        for name in kept:
            os.link(folder / name, staged / f"{_KEPT}{name}")
    except OSError as failure:  # of the file system, or of files of another user
        for path in staged.iterdir():
            with suppress(FileNotFoundError):
                path.unlink()
        raise NeedsSpark("its files cannot be linked") from failure
    return merged.written


def _with_small_files(outcome: RowSelection, old: Sequence[TableFile]) -> RowSelection:
    """Adds the small files to those that are written anew, where there are many, so that a table
    that gets a few rows a sync has few files."""
    small = [
        index
        for index, file in enumerate(old)
        if index not in outcome.lost and file.size < SMALL_FILE_BYTES
    ]
    if len(small) <= MOST_SMALL_FILES:
        return outcome
    least = sorted(small, key=lambda index: old[index].size)[: 4 * MOST_SMALL_FILES]
    nothing = pa.array([], pa.int64())
    return msgspec.structs.replace(outcome, lost={**outcome.lost, **dict.fromkeys(least, nothing)})


def _file(path: Path, load: TableLoad) -> TableFile:
    """Reads the footer of a file of the table. Raises ``NeedsSpark`` where a row may be one that a
    hard delete has to remove."""
    footer = pq.read_metadata(path)
    fields = {f.name for f in load_fields(load)}
    if load.policy.deletes is Deletes.hard and load.deleted_column in fields:
        found = _leaf(footer, str(load.deleted_column))
        if found is None or any(s.num_values for s in found):
            raise NeedsSpark(f"{path} may have rows that are deleted")
    bounds: Bounds = {}
    for key in load.primary_key:
        found = _leaf(footer, key[0]) or []
        valued = [s for s in found if s.num_values]
        if valued and all(s.has_min_max for s in valued):
            bounds[key[0]] = min(s.min for s in valued), max(s.max for s in valued)
    return TableFile(path.name, path.stat().st_size, bounds)


def _leaf(footer: Any, column: str) -> list[Any] | None:
    """The statistics of a column by row group; None where one lacks them, or the column is not a
    simple one."""
    names = [footer.schema.column(index).path for index in range(len(footer.schema))]
    if names.count(column) != 1:  # a nested one may have the same path
        return None
    index = names.index(column)
    groups = (footer.row_group(group) for group in range(footer.num_row_groups))
    found = [group.column(index).statistics for group in groups]
    return found if all(s is not None and s.has_null_count for s in found) else None
