"""Defines the job of a merge, which a Spark task executes, and its result.

The driver makes a job from one load and the files of one version of its table. The task writes new
files, to which nothing refers, and returns their names. The driver commits or removes them. Imports
no Spark, Arrow or DuckDB. Not here: the work (``merged_files``), how jobs are submitted
(``load_tasks``). Neighbours: ``delta.files`` and ``parquet.merge`` make jobs, ``merge_task`` runs
them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.model.catalog import FieldPath
from penstock.model.types import Kind
from penstock.tables.contract import TableLoad
from penstock.tables.load_columns import load_fields

_KEYS = {
    Kind.string, Kind.integer, Kind.boolean, Kind.decimal, Kind.date, Kind.timestamp,
    Kind.timestamp_ntz, Kind.binary,
}  # fmt: skip
_NESTED = (Kind.struct, Kind.array)
BOUNDED = (Kind.integer, Kind.string)  # kinds of keys whose bounds select the files to read

Bounds = dict[str, tuple[Any, Any]]
"""The least and the greatest key of a file, by column, as far as they are known."""


class NeedsSpark(Exception):
    """Raised if Spark has to write a load; the text is a clause with the reason."""


class MergeFailed(Exception):
    """Raised by the driver if a task failed by an error that is neither one of Penstock's own nor a
    file's."""


class TableFile(msgspec.Struct, frozen=True):
    """A file of the table. ``name``: in its folder; ``size``: its bytes; ``bounds``: those of its
    keys."""

    name: str
    size: int
    bounds: Bounds


class NewFile(msgspec.Struct, frozen=True):
    """A durable file that a task wrote or linked. ``modified``: milliseconds since 1970.
    ``statistics``: from ``files.statistics``."""

    name: str
    size: int
    modified: int
    statistics: dict[str, Any]


class MergeJob(msgspec.Struct, frozen=True, kw_only=True):
    """Writes the files that a table gets by one load. ``columns``: the table's, in its order;
    ``described``: the metadata of each new file (``direct_parts.described``). New files are written
    into ``folder``, which exists, with names that begin with ``stem``. ``old``: the table's files
    in ``old_folder`` into which the load is merged.

    ``gathers``: the load's parts match the table's layout; they are combined into few files,
    unchanged. ``links``: its parts become files as they are, if the table gets every row of them
    and loses none. ``plain_folder``: the table is a plain folder of Parquet files: the bounds of
    ``old`` are in their footers, many small files are combined, and a table without rows has a
    file."""

    load: TableLoad
    columns: tuple[str, ...]
    described: dict[str, str]
    folder: str
    stem: str
    old_folder: str = ""
    old: tuple[TableFile, ...] = ()
    gathers: bool = False
    links: bool = False
    plain_folder: bool = False

    @property
    def size(self) -> int:
        """The bytes that it may read."""
        return sum(p.size for p in self.load.load.parts) + sum(f.size for f in self.old)


class MergeResult(msgspec.Struct, frozen=True, kw_only=True):
    """Reports one merge. ``files``: new ones; ``removed``: indexes of the job's ``old`` that they
    replace; ``written``: rows inserted, updated and deleted; ``superseded``, ``mixed``, ``unsure``:
    as in ``newest_rows.RowSelection``. Without files, the reason: ``needs_spark``: see
    :class:`NeedsSpark`; ``error``: a ``PenstockError`` as data; ``os_error``: number, text and path
    of an ``OSError``; ``failure``: the text of another exception."""

    files: tuple[NewFile, ...] = ()
    removed: tuple[int, ...] = ()
    written: int = 0
    superseded: int = 0
    mixed: int = 0
    unsure: int = 0
    needs_spark: str | None = None
    error: dict[str, Any] | None = None
    os_error: tuple[int, str, str | None] | None = None
    failure: str | None = None


class MergeTaskJob(msgspec.Struct, frozen=True):
    """Holds the merges of one task, and the driver's umask."""

    merges: tuple[MergeJob, ...]
    umask: int


class MergeTaskResult(msgspec.Struct, frozen=True):
    """Holds one result per merge, in order; or ``error``: why the task has none."""

    results: tuple[MergeResult, ...] = ()
    error: dict[str, Any] | None = None


def comparable(load: TableLoad) -> bool:
    """Returns whether the load's keys and cursor have kinds that may be compared alike here and in
    Spark, and the order of its rows is known."""
    if any(part.shape is not None and part.first is None for part in load.load.parts):
        return False
    fields = {f.name: f.type.kind for f in load_fields(load)}
    return compared_in_tasks(fields, load.primary_key, load.cursor, arrival=load.arrival)


def compared_in_tasks(
    fields: Mapping[str, Kind], keys: Sequence[FieldPath], cursor: FieldPath, *, arrival: bool
) -> bool:
    """Like :func:`comparable`, for columns of these kinds."""
    if not keys or not all(len(k) == 1 and fields.get(k[0]) in _KEYS for k in keys):
        return False
    if arrival or not cursor or cursor[0] not in fields:
        return True
    return len(cursor) == 1 and fields[cursor[0]] not in _NESTED
