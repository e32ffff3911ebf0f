"""Defines the interface between the engine and a table format, and the structs that both exchange.

The engine passes :class:`TableLoad` values to :meth:`TableFormat.commit` and gets one
:class:`LoadResult` or error per load. Every commit is idempotent by (``load.key``, ``load.number``)
(L3). Before it commits, each format calls :func:`already_committed`, which compares the load with
the last load of its key in the table. Not here: the event log, the ledger, sources. Neighbours:
``engine.deliver.table_loader`` calls ``commit``; ``spark`` opens the session."""

import shlex
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from penstock.errors import DestinationError, PenstockError, StateError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    StreamId,
)
from penstock.model.segments import CursorOrder, Load, PlannedOn
from penstock.model.types import ChangeWords, Field, MetadataNames, RowSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.tasks.submit import Submit


class TableName(msgspec.Struct, frozen=True):
    """Names a table by cleaned names (``model.names``). ``namespace`` None: the table lies at the
    destination's root."""

    namespace: str | None
    name: str


class NewColumn(StrEnum):
    """What to do with a column that a load has and the table lacks."""

    add = "add"
    ignore = "ignore"
    fail = "fail"


class RemovedColumn(StrEnum):
    """What to do with a column that the table has and a load lacks."""

    ignore = "ignore"
    fail = "fail"


class TypeChange(StrEnum):
    """What to do when a column's type differs between a load and the table."""

    coerce = "coerce"
    fail = "fail"
    null = "null"


class NullabilityChange(StrEnum):
    """What to do when a load may hold NULL in a column that was not nullable before."""

    allow = "allow"
    fail = "fail"


class SchemaChangePolicies(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pipeline file's ``schema_evolution``: one policy per kind of change."""

    new_column: NewColumn = NewColumn.add
    removed_column: RemovedColumn = RemovedColumn.ignore
    type_change: TypeChange = TypeChange.coerce
    nullability_change: NullabilityChange = NullabilityChange.allow


class Deletes(StrEnum):
    """``hard``: a deleted key leaves the table; ``soft``: its row stays, with the deletion time."""

    hard = "hard"
    soft = "soft"


class TablePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what applies to every load of a run. ``metadata`` None: no metadata columns.
    ``change_words``: the change-list words for a value that a cast loses. ``longest_text``: the
    longest such value, in characters, that its entry may hold; a longer one may contain a secret of
    the configuration, which Spark must not know; None: no limit."""

    metadata: MetadataNames | None = None
    deletes: Deletes = Deletes.hard
    evolution: SchemaChangePolicies = SchemaChangePolicies()
    change_words: ChangeWords = ChangeWords()
    longest_text: int | None = None


class TableLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one commit into one table. ``parts``: absolute paths of Parquet files. They hold
    the columns of ``schema`` and the internal ones of ``model.types`` (SEQ, RAW_ID, EXTRACTED_AT,
    CHANGES), or instead the table's metadata columns where ``load.parts`` (the same parts, in the
    same order) declare it.

    ``load.disposition`` defines how rows join the table: mode, primary key, cursor (paths of
    cleaned column names; nested ones reach into structs) or ``arrival``, ``deleted_column`` (a
    non-null value deletes its key under append_dedup) and sync id. :attr:`replaces`: the load's
    rows replace all rows of the table. With :attr:`history`, a load with ``load.replaces`` ends the
    versions of the keys that it lacks, unless it is a refresh."""

    load: Load
    table: TableName
    parts: tuple[str, ...]
    schema: RowSchema
    policy: TablePolicy = TablePolicy()

    @property
    def mode(self) -> DestinationSyncMode:
        return self.load.disposition.mode

    @property
    def primary_key(self) -> tuple[FieldPath, ...]:
        return self.load.disposition.primary_key

    @property
    def cursor(self) -> FieldPath:
        return self.load.disposition.cursor

    @property
    def cursor_order(self) -> CursorOrder:
        return self.load.disposition.cursor_order

    @property
    def arrival(self) -> bool:
        return self.load.disposition.arrival

    @property
    def retried(self) -> bool:
        return self.load.disposition.retried

    @property
    def deleted_column(self) -> str | None:
        return self.load.disposition.deleted_column

    @property
    def history(self) -> bool:
        """Whether the table keeps every version of a key."""
        return self.load.disposition.history

    @property
    def replaces(self) -> bool:
        """Whether the load's rows replace all rows of the table."""
        return self.load.replaces_rows

    @property
    def sync_id(self) -> int | None:
        return self.load.disposition.sync_id

    @property
    def generation_id(self) -> int:
        return self.load.generation_id

    @property
    def stream(self) -> StreamId:
        return self.load.stream


class LoadWay(StrEnum):
    """Records how the rows of a load came into their table, see ``tables.load_way``."""

    publish = "publish"
    merge = "merge"
    rewrite = "rewrite"
    spark = "spark"


class LoadResult(msgspec.Struct, frozen=True, eq=False):
    """Reports one committed load. ``written``: rows appended, or inserted, updated and deleted by a
    dedup. ``superseded``: rows that a dedup left out, since another row of their key, in the load
    or the table, is newer. ``repeated``: the table had this load already, and nothing was written.
    ``notes``: lines for the report. ``way`` None: the format has one way only. Two results are
    equal if they report the same about the table, whichever way the rows came."""

    written: int
    repeated: bool = False
    notes: tuple[str, ...] = ()
    superseded: int = 0
    way: LoadWay | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoadResult) and self._outcome() == other._outcome()

    def __hash__(self) -> int:
        return hash(self._outcome())

    def _outcome(self) -> tuple[int, bool, tuple[str, ...], int]:
        return self.written, self.repeated, self.notes, self.superseded


class LastLoad(msgspec.Struct, frozen=True):
    """Describes the last load of one key in a table: the highest committed number and that load's
    token (None: an earlier version of Penstock committed it). ``undone``: the table was rolled back
    to a version before that load."""

    number: int
    token: str | None = None
    undone: bool = False


class TableAhead(StateError):
    """Raised when the table has the load's number, or a higher one, from a different load.
    ``number``: the table's highest."""

    default_code = "state.table_ahead"
    fields = (*StateError.fields, "number")

    def __init__(self, load: Load, number: int) -> None:
        super().__init__(
            f"the table of {load.stream} has load {number} of this pipeline, and this home has "
            f"given out {load.number} only now: this home is a copy or was restored, or another "
            "home loaded later",
            stream=str(load.stream),
        )
        self.number = number

    def add_hint(self, pipeline: str) -> None:
        """Sets the hint, whose commands name ``pipeline``."""
        self.hint = (
            "nothing was loaded or marked. Go on with the newer home; or `penstock state adopt "
            f"{pipeline}` takes the tables as they are, and rows beyond this home's states come "
            "again (twice under append): if that is not wanted, import the newer home's states "
            "first"
        )


class TableBehind(DestinationError):
    """Raised when the table lacks a load that the ledger records as committed. ``number``: the
    table's highest; 0: it has no load of this key."""

    default_code = "destination.table_behind"
    fields = (*DestinationError.fields, "number")

    def __init__(self, load: Load, number: int, *, undone: bool) -> None:
        has = f"its newest is load {number}" if number else "it has none"
        if undone:
            has = "it was rolled back to a version before it"
        super().__init__(
            f"the table of {load.stream} lacks load {load.follows}, which this pipeline committed: "
            f"{has}; it was deleted, made again, rolled back or replaced",
            stream=str(load.stream),
        )
        self.number = number

    def add_hint(self, pipeline: str) -> None:
        """Sets the hint, whose commands name ``pipeline``."""
        self.hint = (
            "nothing was loaded or marked, since the rows before would be missing. `penstock run "
            "--recreate` reads the streams from the start and makes their tables again; `penstock "
            f"state adopt {pipeline}` goes on with the tables as they are"
        )


class NotSeen(DestinationError):
    """Raised when a load is committed but this machine does not see files that its commit names,
    because a worker does not share the table's folder. ``version``: the table's first version that
    names one of them; ``newest``: its newest."""

    fields = (*DestinationError.fields, "version", "newest")

    def __init__(
        self, load: Load, folder: Path, files: Sequence[Path], version: int, newest: int, who: str
    ) -> None:
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        super().__init__(
            f"load {load.number} of {load.stream} is in the table, and this machine does not see "
            f"files that it wrote ({files[0]}{more}): {who} does not share the folder {folder}",
            code="destination.files_not_seen",
            stream=str(load.stream),
            where=str(folder),
        )
        self.version, self.newest = version, newest

    def add_hint(self, pipeline: str) -> None:
        """Sets the hint, whose commands name ``pipeline``."""
        folder, back = shlex.quote(str(self.where)), self.version - 1
        restored = f"import deltalake; deltalake.DeltaTable({str(self.where)!r}).restore({back})"
        hint = (
            "nothing was marked and no state was saved: the rows are still in the log. Mount the "
            "folder on every worker (docs/cluster.md). Then bring the files from that worker to "
            "the same path and run again, which takes the load as it is"
        )
        if self.version == 0 == self.newest:
            hint += f"; or, if they are gone, `rm -r {folder}` and run again: it has no others"
        elif self.newest == self.version:
            hint += (
                f"; or, if they are gone, `{sys.executable} -c {shlex.quote(restored)}` and "
                f"`penstock state adopt {pipeline}`, then run again: the load is repeated"
            )
        self.hint = hint


def already_committed(load: Load, last: LastLoad | None) -> LoadResult | None:
    """Compares ``load`` with ``last``, the table's last load of the same key.

    Returns None if the load must be committed now, or a result with ``repeated`` if the table has
    it already. Raises :class:`TableAhead`, and :class:`TableBehind` unless the load replaces all
    rows (L3: a skipped or missing load never counts as committed)."""
    number = 0 if last is None else last.number
    if last is not None and number >= load.number:
        same = (last.token or "") == load.token and not last.undone
        if number == load.number and same:
            return LoadResult(0, repeated=True)
        raise TableAhead(load, number)
    if load.follows is None or load.replaces_rows:
        return None
    if number > load.follows:
        raise TableAhead(load, number)
    if number < load.follows or (last is not None and last.undone):
        raise TableBehind(load, number, undone=number == load.follows)
    return None


class NestedTable(msgspec.Struct, frozen=True):
    """Describes, for the plan of one of two tables whose folders are nested, the ``other`` table.
    ``outer``: the other's folder is the outer one; ``shared``: both have the same folder, in
    different formats. ``new``: the planned table does not exist yet."""

    other: str
    outer: bool
    new: bool
    shared: bool = False

    @property
    def danger(self) -> str:
        """Returns a clause: what happens to the two tables."""
        if self.shared:
            return "readers of one would find the files of the other, or its rewrite delete them"
        return "a VACUUM or a rewrite of the outer table deletes the files of the inner one"

    def relation(self, lies: str, has: str) -> str:
        """``lies inside the table OTHER``, or ``has the table OTHER inside its folder``."""
        if self.shared:
            return f"{lies} in the folder of a table of another format, {self.other}"
        if self.outer:
            return f"{lies} inside the table {self.other}"
        return f"{has} the table {self.other} inside its folder"


class SessionNeeds(msgspec.Struct, frozen=True):
    """Lists what a destination needs from a Spark session that is not open yet. ``packages``: Maven
    coordinates of jars; ``conf``: session settings; ``trial``: SQL that makes Java load the classes
    that a load into such a table needs; in it, ``{place}`` is an empty folder and ``penstock_rows``
    a view of a few rows with ``id``, ``kind`` and ``text``."""

    packages: tuple[str, ...] = ()
    conf: dict[str, str] = {}
    trial: tuple[str, ...] = ()

    def also(self, other: "SessionNeeds") -> "SessionNeeds":
        """Returns the union of both needs."""
        if other == self:
            return self
        packages = tuple(dict.fromkeys((*self.packages, *other.packages)))
        return SessionNeeds(packages, {**self.conf, **other.conf}, (*self.trial, *other.trial))


class LoadTasks(NamedTuple):
    """Holds what a format needs to process rows in Spark's tasks (L13). ``submit`` runs one
    process; ``at_once``: how many may run at the same time; ``token``: the run's lease, for the
    names of the files that they write; ``elsewhere``: they may run on other machines.
    ``prove_lease`` raises ``LeaseLost``; call it before committing what tasks wrote (L12)."""

    submit: "Submit"
    at_once: int
    token: str
    elsewhere: bool
    prove_lease: Callable[[], None]


class PlannedDestination(Protocol):
    """The destination for the plan and the report: a :class:`TableFormat`, or a destination
    connector (``engine.plan.destination_endpoint``). ``name``: the value of ``destination.use``.
    ``rewrite_note``: a clause for ``plan``: how a load that replaces a table's files affects
    readers at that moment; None: not at all. ``host_note``: a clause for ``plan``: what its tables
    do not guard against when another host continues a pipeline; None: nothing."""

    name: str
    rewrite_note: str | None
    host_note: str | None

    def needs(self) -> SessionNeeds:
        """The jars and settings that the Spark session must start with."""
        ...

    def check(self) -> None:
        """Proves, without Spark, that the destination can be written to. Raises
        ``DestinationError``; a connector ``ConfigError``."""
        ...

    def location(self, table: TableName) -> str:
        """Returns the path, URI or name under which a reader opens ``table``; the report shows
        it."""
        ...

    def single_load_reason(self, mode: DestinationSyncMode) -> str | None:
        """Returns a sentence for ``plan``: why loads of this mode are committed once, at the end of
        the sync. None if they may be committed while the source still reads."""
        ...

    def unsupported_reason(self, stream: ConfiguredStream, schema: RowSchema) -> str | None:
        """Returns a clause for ``plan``: why the destination cannot take ``stream``, which is
        configured to append_dedup by default. None if it can. Leaves no file behind."""
        ...

    def nested(self, tables: Sequence[TableName]) -> dict[TableName, NestedTable]:
        """Maps each of ``tables`` whose folder is, or would be, inside or around another table's
        folder to that other table, as far as this is visible without Spark."""
        ...


class TableFormat(PlannedDestination, Protocol):
    """A destination of one table format, at one path or in one database; holds all its tables.
    ``takes_parts``: its tables are local files, so parts that match a table's layout may become its
    files (``tables.files.direct_parts``)."""

    takes_parts: bool

    def planned_on(self, table: TableName) -> PlannedOn | None:
        """Returns the version of the table on which a load is planned now. None: the tables have no
        versions that identify a commit which a power cut damaged."""
        ...

    def last_number(self, table: TableName, key: str) -> int | None:
        """Returns the number of the table's last load of ``key``, found without Spark: 0 if the
        load or the table does not exist. None: it cannot be found without Spark. Raises nothing."""
        ...

    def columns_of(self, table: TableName) -> Sequence[Field] | None:
        """Returns the table's columns, found without Spark: none if there is no table. None: they
        cannot be found without Spark. JSON and times of day are text. Raises nothing."""
        ...

    def commit(
        self, spark: "SparkSession", tasks: LoadTasks, loads: Sequence[TableLoad]
    ) -> list[LoadResult | PenstockError]:
        """Commits ``loads`` and returns one outcome per load, in order; a load that fails does not
        stop the others. A process that dies during the call leaves each load either invisible,
        visible, or (files of one Parquet load) partly visible until it is repeated."""
        ...
