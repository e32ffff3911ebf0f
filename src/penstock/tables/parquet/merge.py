"""Fills the new folder of a Parquet table with the files that a task of ours wrote, without Spark.

A load that keeps one row per key is compared with the table's files: files that lose no row get a
second name in the new folder; the remaining rows of the others and the load's rows go into new
files. A load that replaces all rows brings its parts in their table's layout, or no row at all.
Only for tables with the load's columns whose marker states one row per key; Spark handles the
others. Not here: the exchange of the folders, conflicts, markers (``parquet``), reading and writing
rows (``merge_task``)."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.model.catalog import DestinationSyncMode
from penstock.tables.contract import TableLoad
from penstock.tables.files import direct_parts
from penstock.tables.files.merge_job import MergeJob, MergeResult, NeedsSpark, TableFile, comparable
from penstock.tables.load_columns import load_fields
from penstock.tables.parquet.folders import Marker, finished_files

KEY = "penstock.primary_key"  # of a history's files, in their footers
_NEW, _KEPT = "new-", "kept-"  # of the names in a folder that is being filled


def rewrite_job(
    load: TableLoad,
    marker: Marker | None,
    folder: Path,
    columns: Sequence[str],
    staging: Path,
    stem: str,
) -> MergeJob:
    """Makes the job that writes the files of the table in ``folder`` after ``load`` into the hidden
    folder ``staging``, with names that begin with ``stem``. ``columns``: the table's, which are the
    load's, in the table's order; ``marker``: the table's, None if it has no rows to keep. Raises
    ``NeedsSpark``."""
    dedups = load.mode is DestinationSyncMode.append_dedup
    old: tuple[TableFile, ...] = ()
    if dedups:
        old = _old_files(load, marker, folder)
    elif load.parts and not direct_parts.in_shape(load):
        raise NeedsSpark("its parts are not in the table's shape")
    job = _job(load, columns, staging, stem, gathers=not dedups)
    return msgspec.structs.replace(job, old_folder=str(folder), old=old, plain_folder=True)


def append_job(load: TableLoad, columns: Sequence[str], staging: Path, stem: str) -> MergeJob:
    """Makes the job that writes the parts of an append, in their table's layout, into few files in
    the hidden folder ``staging``. Takes the arguments and raises the errors of
    :func:`rewrite_job`."""
    if not direct_parts.in_shape(load):
        raise NeedsSpark("its parts are not in the table's shape")
    return _job(load, columns, staging, stem, gathers=True)


def _job(
    load: TableLoad, columns: Sequence[str], staging: Path, stem: str, *, gathers: bool
) -> MergeJob:
    return MergeJob(
        load=load,
        columns=(*columns,),
        described=direct_parts.described(load_fields(load)) | _key_of(load),
        folder=str(staging),
        stem=stem,
        gathers=gathers,
        links=direct_parts.fits_where_whole(load),
    )


def _key_of(load: TableLoad) -> dict[str, str]:
    """Returns the key in the footers of a history's files."""
    return {KEY: msgspec.json.encode(load.primary_key).decode()} if load.history else {}


def _old_files(load: TableLoad, marker: Marker | None, folder: Path) -> tuple[TableFile, ...]:
    if not (load.parts or load.history) or not comparable(load):
        raise NeedsSpark("its rows cannot be compared here")
    if marker is None:
        return ()
    if set(marker.keyed) != set(load.primary_key):
        raise NeedsSpark("the table may have several rows of a key")
    paths = map(Path, finished_files(folder, marker))
    return tuple(TableFile(path.name, path.stat().st_size, {}) for path in paths)


def fill(job: MergeJob, result: MergeResult, staged: Path) -> None:
    """Puts the files of the table after the load into the empty folder ``staged``; all but second
    names are durable. Raises ``NeedsSpark``, and leaves ``staged`` empty then."""
    staging, folder = Path(job.folder), Path(job.old_folder)
    for index, file in enumerate(result.files):
        os.rename(staging / file.name, staged / f"{_NEW}{index:05d}.parquet")
    removed = set(result.removed)
    kept = (file.name for index, file in enumerate(job.old) if index not in removed)
    try:
        for name in kept:
            os.link(folder / name, staged / f"{_KEPT}{name}")
    except OSError as failure:  # of the file system, or of files of another user
        for path in staged.iterdir():
            with suppress(FileNotFoundError):
                path.unlink()
        raise NeedsSpark("its files cannot be linked") from failure
