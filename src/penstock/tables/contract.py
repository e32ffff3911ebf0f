"""The contract of a table format.

Neighbours: ``engine.load`` gives :class:`TableLoad` and gets a result per load; ``spark`` gives the
session. A format knows nothing of logs, ledgers or sources. Every commit is idempotent by
(``load.key``, ``load.number``) (L3).
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.errors import PenstockError
from penstock.model.catalog import DestinationSyncMode, FieldPath, StreamId
from penstock.model.segments import Load
from penstock.model.types import ChangeWords, MetadataNames, RowSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableName(msgspec.Struct, frozen=True):
    """Cleaned names; ``namespace`` None: the destination's root."""

    namespace: str | None
    name: str


class NewColumn(StrEnum):
    add = "add"
    ignore = "ignore"
    fail = "fail"


class RemovedColumn(StrEnum):
    ignore = "ignore"
    fail = "fail"


class TypeChange(StrEnum):
    coerce = "coerce"
    fail = "fail"
    null = "null"


class NullabilityChange(StrEnum):
    allow = "allow"
    fail = "fail"


class SchemaEvolution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    new_column: NewColumn = NewColumn.add
    removed_column: RemovedColumn = RemovedColumn.ignore
    type_change: TypeChange = TypeChange.coerce
    nullability_change: NullabilityChange = NullabilityChange.allow


class Deletes(StrEnum):
    hard = "hard"
    soft = "soft"


class TableLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one commit needs. ``parts``: absolute paths of Parquet files that carry the
    columns of ``schema`` and the internal ones of ``model.types`` (SEQ, RAW_ID, EXTRACTED_AT,
    CHANGES).

    ``load.shape`` says how rows join the table: mode, primary key, cursor (paths of cleaned column
    names; nested ones reach into structs), ``deleted_column`` (a non-null value deletes its key
    under append_dedup) and sync id; ``load.replaces``: the rows replace what the table holds.
    ``metadata`` None: no metadata columns. ``change_words``: of a value that a cast loses."""

    load: Load
    table: TableName
    parts: tuple[str, ...]
    schema: RowSchema
    metadata: MetadataNames | None = None
    deletes: Deletes = Deletes.hard
    evolution: SchemaEvolution = SchemaEvolution()
    change_words: ChangeWords = ChangeWords()

    @property
    def mode(self) -> DestinationSyncMode:
        return self.load.shape.mode

    @property
    def primary_key(self) -> tuple[FieldPath, ...]:
        return self.load.shape.primary_key

    @property
    def cursor(self) -> FieldPath:
        return self.load.shape.cursor

    @property
    def deleted_column(self) -> str | None:
        return self.load.shape.deleted_column

    @property
    def sync_id(self) -> int | None:
        return self.load.shape.sync_id

    @property
    def stream(self) -> StreamId:
        return self.load.stream


class LoadResult(msgspec.Struct, frozen=True):
    """``written``: rows that came out (appended, or inserted, updated and deleted by a dedup).
    ``repeated``: the table had this load already."""

    written: int
    repeated: bool = False
    notes: tuple[str, ...] = ()


class SessionNeeds(msgspec.Struct, frozen=True):
    """What must be known before the Spark session exists. ``packages``: Maven coordinates."""

    packages: tuple[str, ...] = ()
    conf: dict[str, str] = {}


class Place(Protocol):
    """Where a pipeline's rows go, as far as its plan and its report need to know."""

    name: str

    def needs(self) -> SessionNeeds: ...

    def check(self) -> None:
        """Without Spark: is the place writable? Raises ``DestinationError``."""
        ...

    def location(self, table: TableName) -> str:
        """What the report shows and what readers open."""
        ...

    def loads_once(self, mode: DestinationSyncMode) -> str | None:
        """Why loads of this mode must wait for the end of the sync (a sentence for ``plan``), or
        None where they may be committed while the source still reads."""
        ...


class TableFormat(Place, Protocol):
    """One destination of one format, at one place."""

    def commit(
        self, spark: "SparkSession", loads: Sequence[TableLoad]
    ) -> list[LoadResult | PenstockError]:
        """One outcome per load, in order; a load that fails does not stop the others. A process
        that dies inside leaves each load either invisible, visible, or (files of one Parquet load)
        partly visible until it is repeated."""
        ...
