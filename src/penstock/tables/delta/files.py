"""Commits a load into a local Delta table by one commit of file actions, without Spark.

Parts in their table's shape are linked into its folder; many small ones, and a load that keeps one
row per key, are written into new files there (``merged_files``). No reader of Delta sees them until
one entry of the log names them, and the files that they replace, with the load's transaction id and
note. deltalake writes that entry; it is not tried again at a later version, so that what was read
of the table still holds (:class:`CommitConflict`). Only for tables that ask no more of a writer
(:func:`table_for`): no partition, constraint, generated or identity column, column mapping, change
feed or other feature that a file action would have to carry. Not here: whether a load is committed
already, what is done otherwise (``delta``). Neighbour: ``direct_parts`` says which parts are in
their table's shape.
"""

import json
import os
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.files import sync
from penstock.model.catalog import DestinationSyncMode
from penstock.model.types import DataType, Field, Kind
from penstock.spark.types import SOURCE_NAME, struct_type
from penstock.tables.contract import TableLoad
from penstock.tables.delta.spec import LOG
from penstock.tables.files import direct_parts
from penstock.tables.load_columns import load_fields

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction

    from penstock.tables.files.merged_files import TableFile

NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")  # in the name of a column
_PREFIX = "penstock-"  # of the names of files that are linked into a table
_COMMITTED = re.compile(r"\d{20}\.(?:json|checkpoint\..+)")
_NONE_PREVIOUS = -1  # the version of a table that is not there yet
_READER, _WRITER = (1, 3), (1, 2, 7)  # protocol versions; 3 and 7 list their features
_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
_APPEND_ONLY = "delta.appendOnly"
_SETTINGS = {
    _APPEND_ONLY,
    "delta.checkpointInterval",
    "delta.deletedFileRetentionDuration",
    "delta.logRetentionDuration",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
}
_HARMLESS_METADATA = {SOURCE_NAME, "comment"}  # of a column
_ELSEWHERE = re.compile(r"[/%:\\]")  # in the path of a file that is none of the folder's own
_STATISTICS_COLUMNS = 32  # Delta's default
_TEXT_LENGTH = 32  # of a text in the statistics
_GREATEST = "\U0010ffff"
_OLDEST_YEAR, _NEWEST_YEAR = 1900, 9998  # between which all readers read dates alike


class CommitConflict(Exception):
    """Raised where another writer committed to the table first."""


class StagedFiles(msgspec.Struct, frozen=True):
    """Files in a table's folder that are to become part of it. ``removed``: those that they
    replace; ``written``: rows, as in ``LoadResult``."""

    files: list[Path]
    removed: "tuple[TableFile, ...]"
    written: int


class DeltaFiles:
    """A local Delta table as of one version, to which files may be added. ``version``: -1 where the
    table is not there yet."""

    def __init__(self, folder: Path, load: TableLoad, table: "DeltaTable | None") -> None:
        self._folder, self._load, self._table = folder, load, table
        self.version = _NONE_PREVIOUS if table is None else table.version()

    @property
    def last_number(self) -> int | None:
        """The version of the load's transaction id in the table."""
        return None if self._table is None else self._table.transaction_version(self._load.load.key)

    def stage(self) -> "StagedFiles | None":
        """Puts the load's rows into files of the table's folder; None where Spark has to write
        them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        stem = f"{_PREFIX}{secrets.token_hex(8)}-"
        if direct_parts.fits(self._load):
            files = direct_parts.linked(self._load, self._folder, stem)
            if files is None:
                return None
            sync(self._folder)  # before a commit names them
            return StagedFiles(files, (), self._load.load.rows)
        from penstock.tables.files.merged_files import gather, merge
        from penstock.tables.files.newest_rows import NeedsSpark

        try:
            if direct_parts.in_shape(self._load):
                files = gather(self._load, self._folder, stem, self._columns())
                return StagedFiles(files, (), self._load.load.rows)
            merged = merge(self._load, self._folder, stem, self._columns(), self._old_files())
        except NeedsSpark:
            return None
        return StagedFiles(merged.files, merged.removed, merged.written)

    def commit(self, staged: "StagedFiles", note: str) -> None:
        """Makes staged files part of the table, in the version after :attr:`version`; they replace
        others. ``note``: the commit's userMetadata. Raises :class:`CommitConflict`, and what
        deltalake raises, also for what it does after the commit."""
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import create_table_with_add_actions

        adds = [_add(file) for file in staged.files]
        replaces = self._load.load.replaces
        properties = self._properties(note, blind=not (replaces or staged.removed))
        try:
            if self._table is not None:
                actions: list[AddAction | RemoveAction] = [*adds, *map(_remove, staged.removed)]
                self._table.create_write_transaction(
                    actions,
                    "overwrite" if replaces else "append",
                    self._table.schema(),
                    commit_properties=properties,
                )
                return
            create_table_with_add_actions(
                str(self._folder),
                _schema(load_fields(self._load)),
                adds,
                mode="error",
                commit_properties=properties,
            )
        except CommitFailedError as failure:
            raise CommitConflict(str(failure)) from failure
        except DeltaError as failure:
            if self._table is None and _has_log(self._folder):
                raise CommitConflict(str(failure)) from failure
            raise

    def _columns(self) -> list[str]:
        if self._table is None:
            return [f.name for f in load_fields(self._load)]
        return [f.name for f in self._table.schema().fields]

    def _old_files(self) -> "list[TableFile]":
        """The table's files into which the load is merged. Raises ``NeedsSpark`` where one lies
        elsewhere."""
        from penstock.tables.files.merged_files import TableFile
        from penstock.tables.files.newest_rows import NeedsSpark

        if self._table is None or self._load.load.replaces:
            return []
        # flattened names: `a.b` may be a column, or a field of the column `a`
        keys = [path[0] for path in self._load.primary_key if "." not in path[0]]
        found: list[TableFile] = []
        actions: Any = self._table.get_add_actions(flatten=True)
        for action in _rows_of(actions):
            if _ELSEWHERE.search(action["path"]):
                raise NeedsSpark(f"{action['path']} lies in another folder")
            bounds = {k: (action.get(f"min.{k}"), action.get(f"max.{k}")) for k in keys}
            found.append(TableFile(action["path"], action["size_bytes"], bounds))
        return found

    def _properties(self, note: str, *, blind: bool) -> "CommitProperties":
        from deltalake import CommitProperties, Transaction

        load = self._load.load
        return CommitProperties(
            custom_metadata={"userMetadata": note, "isBlindAppend": blind},
            max_commit_retries=0,
            app_transactions=[Transaction(load.key, load.number)],
        )


def table_for(folder: Path, load: TableLoad, defaults: bool) -> DeltaFiles | None:
    """The table in ``folder``, where ``load`` can be committed by file actions alone; None: Spark
    has to write. ``defaults``: new tables have no properties that the session asks for."""
    if not (direct_parts.in_shape(load) or _merges(load)):
        return None
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = DeltaTable(str(folder))
    except TableNotFoundError:
        fields = load_fields(load)
        fresh = defaults and _is_empty(folder) and not any(map(_needs_feature, fields))
        return DeltaFiles(folder, load, None) if fresh else None
    except DeltaError:
        return None  # what deltalake cannot read, Spark may
    return DeltaFiles(folder, load, table) if _takes_files(table, load) else None


def _merges(load: TableLoad) -> bool:
    """Whether ``merged_files`` may write the load. Parts in a table's shape have lost the order of
    arrival."""
    if load.mode is not DestinationSyncMode.append_dedup or not load.parts:
        return False
    from penstock.tables.files.newest_rows import comparable

    return not any(part.shape for part in load.load.parts) and comparable(load)


def _has_log(folder: Path) -> bool:
    """Whether a commit is there. A log without one is what is left of a first commit that was not
    made, or that a power cut took (``delta.repair``)."""
    with suppress(FileNotFoundError):
        return any(_COMMITTED.fullmatch(name) for name in os.listdir(folder / LOG))
    return False


def _is_empty(folder: Path) -> bool:
    """Whether nothing is there but what an earlier try of a load left."""
    with suppress(FileNotFoundError):
        names = [name for name in os.listdir(folder) if name != LOG]
        tried = all(name.startswith((_PREFIX, f".{_PREFIX}")) for name in names)
        return tried and not _has_log(folder)
    return True


def _needs_feature(field: Field) -> bool:
    """Whether a new table with this column needs more than the oldest protocol."""
    return NEEDS_MAPPING.search(field.name) is not None or _has_feature(field.type)


def _has_feature(kind: DataType) -> bool:
    inner = (kind.item,) if kind.item else tuple(f.type for f in kind.fields)
    odd = any(NEEDS_MAPPING.search(f.name) for f in kind.fields)
    return odd or kind.kind is Kind.timestamp_ntz or any(map(_has_feature, inner))


def _takes_files(table: "DeltaTable", load: TableLoad) -> bool:
    protocol, about = table.protocol(), table.metadata()
    removes = load.load.replaces or load.mode is DestinationSyncMode.append_dedup
    if removes and about.configuration.get(_APPEND_ONLY, "false") != "false":
        return False
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    settings = {key for key in about.configuration if key.startswith("delta.")}
    return (
        protocol.min_reader_version in _READER
        and protocol.min_writer_version in _WRITER
        and features <= _FEATURES
        and settings <= _SETTINGS
        and not about.partition_columns
        and _same_columns(json.loads(table.schema().to_json()), load)
    )


def _same_columns(schema: Mapping[str, Any], load: TableLoad) -> bool:
    """Whether the table's columns are nullable, free of settings, and those of the load's rows, in
    any order. A setting that is not known to ask nothing of a writer is left to Spark: the length
    of a VARCHAR is one, and no feature of the table names it."""
    wanted = json.loads(struct_type(load_fields(load)).json())["fields"]
    if not _HARMLESS_METADATA.issuperset(_metadata_keys(schema)):
        return False
    have = {f["name"]: f for f in _plain(schema["fields"])}
    return have == {f["name"]: f for f in _plain(wanted)} and len(have) == len(wanted)


def _metadata_keys(node: Any) -> list[str]:
    if isinstance(node, list):
        return [key for inner in node for key in _metadata_keys(inner)]
    if not isinstance(node, dict):
        return []
    own = list(node.get("metadata") or ())
    return own + [key for value in node.values() for key in _metadata_keys(value)]


def _plain(node: Any) -> Any:
    """A schema without the columns' metadata."""
    if isinstance(node, list):
        return [_plain(inner) for inner in node]
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items() if key != "metadata"}
    return node


def _schema(fields: tuple[Field, ...]) -> Any:
    from deltalake import Schema

    return Schema.from_json(struct_type(fields).json())


def _add(file: Path) -> "AddAction":
    from deltalake.transaction import AddAction

    about = file.stat()
    return AddAction(
        path=file.name,
        size=about.st_size,
        partition_values={},
        modification_time=int(about.st_mtime * 1000),
        data_change=True,
        stats=msgspec.json.encode(statistics(file)).decode(),
    )


def _remove(file: "TableFile") -> "RemoveAction":
    from deltalake.transaction import RemoveAction

    return RemoveAction(file.name, True, int(time.time() * 1000), file.size, {})


def _rows_of(actions: Any) -> list[dict[str, Any]]:
    """An Arrow table of another library than PyArrow as rows."""
    import pyarrow as pa

    table: Any = pa.table(actions)
    return table.to_pylist()


def statistics(file: Path) -> dict[str, Any]:
    """Delta's statistics of a Parquet file, from its footer: rows, and of the first columns nulls,
    the least and the greatest value, where these are whole numbers, texts, dates or instants. A
    bound may lie further out than the values, never further in; one that is not known is left
    out."""
    import pyarrow.parquet as pq

    footer = pq.read_metadata(file)
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    leaf = 0
    for field in footer.schema.to_arrow_schema():
        width = _leaves(field.type)
        nested, index = width != 1 or field.type.num_fields > 0, leaf
        leaf += width
        if leaf > _STATISTICS_COLUMNS:
            break
        if nested:
            continue
        found = [
            footer.row_group(group).column(index).statistics
            for group in range(footer.num_row_groups)
        ]
        if not all(s is not None and s.has_null_count for s in found):
            continue
        nulls[field.name] = sum(s.null_count for s in found)
        valued = [s for s in found if s.num_values]
        if valued and all(s.has_min_max for s in valued):
            with suppress(OverflowError, ValueError):
                low, high = min(s.min for s in valued), max(s.max for s in valued)
                bounds = _lower(low), _upper(high)
                if None not in bounds:
                    least[field.name], greatest[field.name] = bounds
    return {
        "numRecords": footer.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }


def _leaves(kind: Any) -> int:
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return sum(map(_leaves, inner)) if inner else 1


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_TEXT_LENGTH]
    return _bound(value)


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) <= _TEXT_LENGTH:
            return value
        # what goes on with the greatest character may be beyond any bound of this length
        return None if value[_TEXT_LENGTH] == _GREATEST else value[:_TEXT_LENGTH] + _GREATEST
    if isinstance(value, datetime):
        value += timedelta(microseconds=-value.microsecond % 1000)
    return _bound(value)


def _bound(value: Any) -> Any:
    """A value in Delta's JSON, cut to milliseconds; None for one that is left out."""
    if isinstance(value, date) and not _OLDEST_YEAR <= value.year <= _NEWEST_YEAR:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return None
        text = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{text}Z"
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, int) and not isinstance(value, bool) else None
