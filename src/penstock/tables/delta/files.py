"""Commits a load into a local Delta table as one commit of file actions, not by Spark's writer.

Parts that match their table's layout are linked into its folder. Many small parts, and loads that
keep one row per key, are rewritten into new files there by a task of ours (``merge_task``). Delta
readers see no file until one log entry names the new files, the files that they replace, the load's
transaction id and its note. deltalake writes that entry. It is not retried at a later version, so
that what was read from the table still holds (:class:`CommitConflict`). Only for tables that demand
no more from a writer (:func:`table_for`): no partition, constraint, generated or identity column,
column mapping, change feed or other feature that a file action would have to carry. Not here:
whether a load is committed already, the other ways to commit (``delta``). Neighbour:
``direct_parts`` decides which parts match the layout."""

import json
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.files import sync
from penstock.model.catalog import DestinationSyncMode
from penstock.model.types import DataType, Field
from penstock.spark.types import SOURCE_NAME, row_schema, struct_type
from penstock.tables.contract import LoadResult, TableLoad
from penstock.tables.delta.commit import never_named
from penstock.tables.delta.spec import LOG
from penstock.tables.files import direct_parts, linked_parts
from penstock.tables.files.merge_job import (
    BOUNDED,
    MergeJob,
    NeedsSpark,
    NewFile,
    TableFile,
    comparable,
)
from penstock.tables.history.columns import CURRENT, OURS
from penstock.tables.load_columns import load_fields

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction

NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")  # in the name of a column
_PREFIX = "penstock-"  # of the names of files that are linked into a table
_COMMITTED = re.compile(r"\d{20}\.(?:json|checkpoint\..+)")
_MISREAD = re.compile(r"[\\\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")  # a path that deltalake takes for a URL
_NONE_PREVIOUS = -1  # the version of a table that does not exist yet
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
_ELSEWHERE = re.compile(r"[/%:\\]")  # in the path of a file outside the folder


class CommitConflict(Exception):
    """Raised when another writer committed to the table first."""


class StagedFiles(msgspec.Struct, frozen=True):
    """Holds files in a table's folder that will join the table. ``removed``: the files that they
    replace; ``result``: the load's result once they are committed."""

    files: Sequence[NewFile]
    removed: Sequence[TableFile]
    result: LoadResult


class DeltaFiles:
    """A local Delta table at one version, to which files can be added. ``version``: -1 if the table
    does not exist yet."""

    def __init__(self, folder: Path, load: TableLoad, table: "DeltaTable | None") -> None:
        self._folder, self._load, self._table = folder, load, table
        self.version = _NONE_PREVIOUS if table is None else table.version()

    @property
    def last_number(self) -> int | None:
        """The version of the load's transaction id in the table."""
        return None if self._table is None else self._table.transaction_version(self._load.load.key)

    def linked(self) -> StagedFiles | None:
        """Links the load's parts, which ``direct_parts.fits`` accepts, into the table's folder;
        None: Spark has to write them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        stem = f"{_PREFIX}{secrets.token_hex(8)}-"
        files = linked_parts.linked(self._load, self._folder, stem)
        if files is None:
            return None
        sync(self._folder)  # before a commit names them
        from penstock.tables.files.statistics import described_file

        return StagedFiles([*map(described_file, files)], (), LoadResult(self._load.load.rows))

    def job(self, stem: str) -> MergeJob:
        """Makes the job that writes the load's rows into files in the table's folder. Raises
        ``NeedsSpark`` if Spark has to write them. ``stem``: the beginning of the file names."""
        gathers = direct_parts.in_shape(self._load)
        old = () if gathers else self._old_files()
        self._folder.mkdir(parents=True, exist_ok=True)
        return MergeJob(
            load=self._load,
            columns=tuple(self._columns()),
            described=direct_parts.described(load_fields(self._load)),
            folder=str(self._folder),
            stem=f"{_PREFIX}{stem}",
            old_folder=str(self._folder),
            old=tuple(old),
            gathers=gathers,
            links=direct_parts.fits_where_whole(self._load),
        )

    def discard(self, staged: StagedFiles) -> None:
        """Removes staged files after a failed commit if another commit took its place and no commit
        names them; otherwise VACUUM removes them later."""
        names = {file.name for file in staged.files}
        if never_named(self._folder, self.version + 1, names):
            for name in names:
                (self._folder / name).unlink(missing_ok=True)

    def commit(self, staged: StagedFiles, note: str) -> None:
        """Makes staged files part of the table, in the version after :attr:`version`, in place of
        the files that they replace. ``note``: the commit's userMetadata. Raises
        :class:`CommitConflict`, and any deltalake error, also one from after the commit."""
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import create_table_with_add_actions

        adds = [_add(file) for file in staged.files]
        replaces = self._load.replaces
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

    def _old_files(self) -> list[TableFile]:
        """Returns the table's files into which the load is merged. Raises ``NeedsSpark`` if one is
        outside the folder."""
        if self._table is None or self._load.replaces:
            return []
        bounded = {f.name for f in load_fields(self._load) if f.type.kind in BOUNDED}
        # flattened names: `a.b` may be a column, or a field of the column `a`
        names = {path[0] for path in self._load.primary_key if "." not in path[0]}
        keys = [name for name in names if name in bounded]
        found: list[TableFile] = []
        actions: Any = self._table.get_add_actions(flatten=True)
        for action in _rows_of(actions):
            if _ELSEWHERE.search(action["path"]):
                raise NeedsSpark("a file of the table lies in another folder")
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


def is_misread(folder: Path) -> bool:
    """Returns whether deltalake reads the path as another folder's (``a%20b`` for ``a b``, ``a\\b``
    for ``a/b``) or cannot read it (control characters). Spark reads every name literally."""
    return _MISREAD.search(os.path.realpath(folder)) is not None


def table_for(folder: Path, load: TableLoad, defaults: bool) -> DeltaFiles | None:
    """Returns the table in ``folder`` if file actions alone can commit ``load``; None: Spark has to
    write. ``defaults``: the session sets no properties for new tables."""
    if is_misread(folder) or not (direct_parts.in_shape(load) or _merges(load)):
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


def columns_in(folder: Path) -> tuple[Field, ...] | None:
    """Returns the columns of the table in ``folder``: none if there is no table; None if they
    cannot be read without Spark."""
    if not _has_log(folder):
        return ()
    if is_misread(folder):
        return None
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError
    from pyspark.sql.types import StructType

    try:
        schema = json.loads(DeltaTable(str(folder)).schema().to_json())
        return row_schema(StructType.fromJson(schema)).fields
    except (DeltaError, OSError, ValueError):  # also a type that only Spark knows
        return None


def last_number_in(folder: Path, key: str) -> int | None:
    """Returns the highest number of ``key`` in the table in ``folder``: 0 if the number or the
    table does not exist; None if it cannot be read without Spark."""
    if not _has_log(folder):
        return 0
    if is_misread(folder):
        return None
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(str(folder)).transaction_version(key) or 0
    except (DeltaError, OSError, ValueError):
        return None


def _merges(load: TableLoad) -> bool:
    """Returns whether ``merged_files`` may write the load."""
    merges = load.mode is DestinationSyncMode.append_dedup and bool(load.parts or load.history)
    return merges and comparable(load)


def _has_log(folder: Path) -> bool:
    """Returns whether a commit exists. A log without one remains from a first commit that was not
    made, or that a power cut removed (``delta.repair``)."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return any(_COMMITTED.fullmatch(name) for name in os.listdir(folder / LOG))
    return False


def _is_empty(folder: Path) -> bool:
    """Returns whether the folder has nothing but leftovers of an earlier try of a load."""
    with suppress(FileNotFoundError):
        names = [name for name in os.listdir(folder) if name != LOG]
        tried = all(name.startswith((_PREFIX, f".{_PREFIX}")) for name in names)
        return tried and not _has_log(folder)
    return True


def _needs_feature(field: Field) -> bool:
    """Returns whether a new table with this column needs more than the oldest protocol. deltalake
    itself adds the feature of times without a zone."""
    return NEEDS_MAPPING.search(field.name) is not None or _has_feature(field.type)


def _has_feature(kind: DataType) -> bool:
    inner = (kind.item,) if kind.item else tuple(f.type for f in kind.fields)
    odd = any(NEEDS_MAPPING.search(f.name) for f in kind.fields)
    return odd or any(map(_has_feature, inner))


def has_settings(folder: Path) -> bool:
    """Returns whether the table in ``folder`` has settings that file actions would have to
    carry."""
    from deltalake import DeltaTable

    table = DeltaTable(str(folder))
    return _asks_more(table) or _appends_only(table)


def _takes_files(table: "DeltaTable", load: TableLoad) -> bool:
    removes = load.replaces or load.mode is DestinationSyncMode.append_dedup
    if (removes and _appends_only(table)) or _asks_more(table):
        return False
    schema = json.loads(table.schema().to_json())
    return not table.metadata().partition_columns and _same_columns(schema, load)


def _appends_only(table: "DeltaTable") -> bool:
    return table.metadata().configuration.get(_APPEND_ONLY, "false") != "false"


def _asks_more(table: "DeltaTable") -> bool:
    protocol, about = table.protocol(), table.metadata()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    settings = {key for key in about.configuration if key.startswith("delta.")}
    return not (
        protocol.min_reader_version in _READER
        and protocol.min_writer_version in _WRITER
        and features <= _FEATURES
        and settings <= _SETTINGS
    )


def _same_columns(schema: Mapping[str, Any], load: TableLoad) -> bool:
    """Returns whether the table's columns are nullable, have no settings, and are those of the
    load's rows, in any order. A column with a setting that might bind a writer is left to Spark:
    the length of a VARCHAR is such a setting, and no table feature announces it."""
    ours = {f["name"] for f in schema["fields"] if f["metadata"].get(SOURCE_NAME) == OURS}
    if CURRENT in ours and not load.history:
        return False
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
    """Returns a schema without the columns' metadata."""
    if isinstance(node, list):
        return [_plain(inner) for inner in node]
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items() if key != "metadata"}
    return node


def _schema(fields: tuple[Field, ...]) -> Any:
    from deltalake import Schema

    return Schema.from_json(struct_type(fields).json())


def _add(file: NewFile) -> "AddAction":
    from deltalake.transaction import AddAction

    return AddAction(
        path=file.name,
        size=file.size,
        partition_values={},
        modification_time=file.modified,
        data_change=True,
        stats=msgspec.json.encode(file.statistics).decode(),
    )


def _remove(file: TableFile) -> "RemoveAction":
    from deltalake.transaction import RemoveAction

    return RemoveAction(file.name, True, int(time.time() * 1000), file.size, {})


def _rows_of(actions: Any) -> list[dict[str, Any]]:
    """Returns the rows of an Arrow table from a library other than PyArrow."""
    import pyarrow as pa

    table: Any = pa.table(actions)
    return table.to_pylist()
