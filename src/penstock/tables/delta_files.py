"""Commits the parts of a load as files of a local Delta table, by one commit of file actions.

The parts are linked into the table's folder under names of their own, where no reader of Delta sees
them, and one entry of the log names them all, with the load's transaction id and note. deltalake
writes that entry; it is not tried again at a later version, so that what was read of the table
still holds (:class:`Conflict`). Only for tables that ask no more of a writer (:func:`table_for`):
no partition, constraint, generated or identity column, column mapping, change feed or other feature
that a file action would have to carry. Not here: whether a load is committed already, what is done
otherwise (``delta``). Neighbour: ``direct_parts`` says which parts are in their table's shape.
"""

import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.model.types import DataType, Field, Kind
from penstock.spark.types import struct_type
from penstock.tables import direct_parts, load_frame
from penstock.tables.contract import TableLoad

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction

NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")  # in the name of a column
_PREFIX = "penstock-"  # of the names of files that are linked into a table
_NONE_PREVIOUS = -1  # the version of a table that is not there yet
_READER, _WRITER = (1, 3), (1, 2, 7)  # protocol versions; 3 and 7 list their features
_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
_SETTINGS = {
    "delta.appendOnly",
    "delta.checkpointInterval",
    "delta.deletedFileRetentionDuration",
    "delta.logRetentionDuration",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
}
_STATISTICS_COLUMNS = 32  # Delta's default
_TEXT_LENGTH = 32  # of a text in the statistics
_GREATEST = "\U0010ffff"
_OLDEST_YEAR, _NEWEST_YEAR = 1900, 9998  # between which all readers read dates alike


class Conflict(Exception):
    """Raised where another writer committed to the table first."""


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

    def link(self) -> list[Path] | None:
        """Links the parts into the table's folder; None where that cannot be done."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return direct_parts.linked(self._load, self._folder, f"{_PREFIX}{secrets.token_hex(8)}-")

    def commit(self, files: Sequence[Path], note: str) -> None:
        """Makes ``files`` part of the table, in the version after :attr:`version`. ``note``: the
        commit's userMetadata. Raises :class:`Conflict`, and what deltalake raises, also for what it
        does after the commit."""
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import create_table_with_add_actions

        try:
            if self._table is not None:
                adds: list[AddAction | RemoveAction] = [_add(file) for file in files]
                self._table.create_write_transaction(
                    adds, "append", self._table.schema(), commit_properties=self._properties(note)
                )
                return
            create_table_with_add_actions(
                str(self._folder),
                _schema(load_frame.load_fields(self._load)),
                [_add(file) for file in files],
                mode="error",
                commit_properties=self._properties(note),
            )
        except CommitFailedError as failure:
            raise Conflict(str(failure)) from failure
        except DeltaError as failure:
            if self._table is None and _has_log(self._folder):
                raise Conflict(str(failure)) from failure
            raise

    def _properties(self, note: str) -> "CommitProperties":
        from deltalake import CommitProperties, Transaction

        load = self._load.load
        return CommitProperties(
            custom_metadata={"userMetadata": note, "isBlindAppend": True},
            max_commit_retries=0,
            app_transactions=[Transaction(load.key, load.number)],
        )


def table_for(folder: Path, load: TableLoad, defaults: bool) -> DeltaFiles | None:
    """The table in ``folder``, where ``load`` can be committed by file actions alone; None: Spark
    has to write. ``defaults``: new tables have no properties that the session asks for."""
    if load.load.replaces or not direct_parts.fits(load):
        return None
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = DeltaTable(str(folder))
    except TableNotFoundError:
        fields = load_frame.load_fields(load)
        fresh = defaults and _is_empty(folder) and not any(map(_needs_feature, fields))
        return DeltaFiles(folder, load, None) if fresh else None
    except DeltaError:
        return None  # what deltalake cannot read, Spark may
    return DeltaFiles(folder, load, table) if _takes_files(table, load) else None


def _has_log(folder: Path) -> bool:
    return (folder / "_delta_log").is_dir()


def _is_empty(folder: Path) -> bool:
    """Whether nothing is there but what an earlier try of a load left."""
    with suppress(FileNotFoundError):
        return all(name.startswith((_PREFIX, f".{_PREFIX}")) for name in os.listdir(folder))
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
    any order."""
    wanted = json.loads(struct_type(load_frame.load_fields(load)).json())["fields"]
    if any(key.startswith("delta.") for key in _metadata_keys(schema)):
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
        return value if len(value) <= _TEXT_LENGTH else value[:_TEXT_LENGTH] + _GREATEST
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
