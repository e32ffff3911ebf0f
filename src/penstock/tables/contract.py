"""The contract of a table format.

Neighbours: ``engine.deliver.table_loader`` gives :class:`TableLoad` and gets a result per load;
``spark`` gives the session. A format knows nothing of logs, ledgers or sources. Every commit is
idempotent by (``load.key``, ``load.number``) (L3), and every format asks :func:`judge` whether the
table stands where the load expects it.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.errors import DestinationError, PenstockError, StateError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    StreamId,
)
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
    names; nested ones reach into structs) or ``arrival``, ``deleted_column`` (a non-null value
    deletes its key under append_dedup) and sync id; ``load.replaces``: the rows replace what the
    table holds.
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
    def arrival(self) -> bool:
        return self.load.shape.arrival

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


class Held(msgspec.Struct, frozen=True):
    """What a table remembers of a load key: the highest number committed, and that load's token
    (None: an earlier version's). ``undone``: the table was rolled back to a version before it."""

    number: int
    token: str | None = None
    undone: bool = False


class Ahead(StateError):
    """The table has the load's number, or a higher one, of another load. ``number``: the table's
    highest."""

    default_code = "state.table_ahead"
    fields = (*StateError.fields, "number")

    def __init__(self, load: Load, number: int) -> None:
        super().__init__(
            f"the table of {load.stream} has load {number} of this pipeline, and this home has "
            f"given out {load.number} only now: this home is a copy or was restored, or another "
            "home has loaded on",
            stream=str(load.stream),
        )
        self.number = number

    def tell(self, pipeline: str) -> None:
        """Give the hint its way out."""
        self.hint = (
            "nothing was loaded or marked. Go on with the newer home; or `penstock state adopt "
            f"{pipeline}` takes the tables as they are, and what they have beyond this home's "
            "states comes again (twice under append): where that is not wanted, `penstock state "
            "import` the newer home's states first"
        )


class Behind(DestinationError):
    """The table lacks a load that the ledger knows to be committed. ``number``: the table's."""

    default_code = "destination.table_behind"
    fields = (*DestinationError.fields, "number")

    def __init__(self, load: Load, number: int, *, undone: bool) -> None:
        has = f"its newest is load {number}" if number else "it has none"
        if undone:
            has = "it was rolled back to a version before it"
        super().__init__(
            f"the table of {load.stream} lacks load {load.follows}, which this pipeline committed: "
            f"{has}; it was deleted, made anew, rolled back or is another table",
            stream=str(load.stream),
        )
        self.number = number

    def tell(self, pipeline: str) -> None:
        """Give the hint its way out."""
        self.hint = (
            "nothing was loaded or marked, since the rows before would be missing. `penstock run "
            "--recreate` reads the streams from the start and makes their tables anew; `penstock "
            f"state adopt {pipeline}` goes on with the tables as they are"
        )


def judge(load: Load, held: Held | None) -> LoadResult | None:
    """May this load be committed into a table that remembers ``held`` of its key? None: yes; a
    result: it is committed already. Raises :class:`Ahead`, and :class:`Behind` unless the load
    replaces all rows (L3: what is skipped or missing is never taken for done)."""
    number = 0 if held is None else held.number
    if held is not None and number >= load.number:
        same = (held.token or "") == load.token and not held.undone
        if number == load.number and same:
            return LoadResult(0, repeated=True)
        raise Ahead(load, number)
    if load.follows is None or load.replaces:
        return None
    if number > load.follows:
        raise Ahead(load, number)
    if number < load.follows or (held is not None and held.undone):
        raise Behind(load, number, undone=number == load.follows)
    return None


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

    def unable(self, stream: ConfiguredStream, schema: RowSchema) -> str | None:
        """Why it cannot take this stream, which is configured to append_dedup by default (a clause
        for ``plan``), or None. Nothing is left behind."""
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
