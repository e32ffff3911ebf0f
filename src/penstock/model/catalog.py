"""Defines a source's catalog and the configuration of a sync's streams, for every protocol.

Not here: the catalogs on the wire, which ``protocols/*`` translate to and from these. Neighbours:
``engine.plan.streams`` resolves a :class:`Catalog` and the pipeline file into
:class:`ConfiguredStream`.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec


class SyncMode(StrEnum):
    """How the source reads a stream."""

    full_refresh = "full_refresh"
    incremental = "incremental"
    cdc = "cdc"


class DestinationSyncMode(StrEnum):
    """How rows join their table: ``append`` adds them, ``overwrite`` replaces the table's rows,
    ``append_dedup`` keeps the newest row per primary key."""

    append = "append"
    overwrite = "overwrite"
    append_dedup = "append_dedup"


class StreamId(msgspec.Struct, frozen=True):
    """Identifies a stream by namespace and name. Sources write "no namespace" as null or "": make
    ids with :meth:`of`, which takes both for None. A stream has the namespace ``""`` only if its
    source also has one of that name without a namespace. Sortable, ids without a namespace
    first."""

    namespace: str | None
    name: str

    def __lt__(self, other: "StreamId") -> bool:
        return _order(self) < _order(other)

    @staticmethod
    def of(namespace: str | None, name: str) -> "StreamId":
        """Returns the id of a stream; an empty namespace counts as none."""
        return StreamId(namespace or None, name)

    @property
    def key(self) -> str:
        """Injective text form, for file names, store keys and table transaction ids: JSON."""
        return msgspec.json.encode([self.namespace, self.name]).decode()

    def __str__(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"


def _order(stream: StreamId) -> tuple[bool, str, str]:
    return stream.namespace is not None, stream.namespace or "", stream.name


FieldPath = tuple[str, ...]


class Change(StrEnum):
    """What happened to a row since its stream's rows were sent. ``null_key``, ``duplicate_key``: it
    cannot be distinguished from others, and is refused."""

    added = "added"
    changed = "changed"
    removed = "removed"
    same = "same"
    null_key = "null_key"
    duplicate_key = "duplicate_key"


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as discovered. ``raw``: the source's own object, unknown fields included.
    ``selected`` False: the catalog leaves the stream out unless the user names it. ``record_name``:
    the stream's name in its records, if that differs from its own. ``assumed``: the source did not
    list the stream and the pipeline file named it: its schema is a guess until rows arrive.
    ``compared``: its rows can be compared with those that were sent before, to distinguish new,
    changed and removed ones. ``partial``: a schema without any properties came first, and this one
    declares some: records may have others, which must be kept. ``begins_after_cursor``: it sends no
    record at the saved cursor or below. ``reject_hint``: what to do if its records are
    rejected."""

    id: StreamId
    json_schema: dict[str, Any]
    sync_modes: tuple[SyncMode, ...] = (SyncMode.full_refresh,)
    source_defined_cursor: bool = False
    default_cursor_field: FieldPath | None = None
    source_defined_primary_key: tuple[FieldPath, ...] | None = None
    is_resumable: bool = False
    raw: dict[str, Any] = {}
    selected: bool = True
    record_name: str | None = None
    assumed: bool = False
    compared: bool = False
    partial: bool = False
    begins_after_cursor: bool = False
    reject_hint: str | None = None


class Catalog(msgspec.Struct, frozen=True):
    """The streams that a source offers. ``open``: the source cannot list them; they become known
    from its messages only (``ReadRequest.open``). ``unnamed``: how many of its entries have no
    name; they are left out. ``notes``: which parts could not be taken unchanged, each a
    sentence."""

    streams: tuple[Stream, ...]
    open: bool = False
    unnamed: int = 0
    notes: tuple[str, ...] = ()

    def get(self, stream: StreamId) -> Stream | None:
        """Returns the stream with this id; None if the catalog lacks it."""
        return next((s for s in self.streams if s.id == stream), None)


class ConfiguredStream(msgspec.Struct, frozen=True, kw_only=True):
    """How one stream is synced. ``cursor_field`` is a path (empty: defined by the source, or none);
    ``primary_key`` a tuple of paths (empty: none). Paths hold original property names. ``columns``:
    the selected top-level properties (None: all but ``left_out``, including those that the source
    names only while it is read); ``nested``: paths into properties that are selected only in part;
    ``unselected``: paths of properties that the catalog deselects, whether the schema has them or
    not. ``replaces``: the stream's rows replace all older ones, whatever the modes are. ``shards``:
    the number of shards that are read in parallel. ``mode_reason``: why the destination sync mode
    was chosen (a clause). ``source_decides``: the source gets its state but no sync mode, and
    chooses itself how to read. ``sends``: the rows are compared with those that were sent before,
    and rows of these kinds are sent. ``refreshes``: a refresh of the stream is pending
    (``--recreate``), whose rows replace the table's once; its modes stay. ``history``: its table
    keeps every version of a key; with ``replaces``, rows then end the versions of older ones."""

    stream: Stream
    sync_mode: SyncMode
    destination_sync_mode: DestinationSyncMode
    cursor_field: FieldPath = ()
    primary_key: tuple[FieldPath, ...] = ()
    columns: tuple[str, ...] | None = None
    left_out: tuple[str, ...] = ()
    nested: tuple[FieldPath, ...] = ()
    unselected: tuple[FieldPath, ...] = ()
    generation_id: int | None = None
    minimum_generation_id: int | None = None
    sync_id: int | None = None
    replaces: bool = False
    shards: int = 1
    mode_reason: str = ""
    source_decides: bool = False
    sends: tuple[Change, ...] = ()
    refreshes: bool = False
    history: bool = False

    @property
    def id(self) -> StreamId:
        return self.stream.id

    def selected(self, names: Iterable[str]) -> set[str]:
        """Returns those of these top-level properties that are selected."""
        given = set(names)
        return given.difference(self.left_out) if self.columns is None else given & {*self.columns}

    @property
    def fills_generation(self) -> bool:
        """Whether the rows fill a generation: they become visible together, once the stream is
        complete, and the stream gets no state when a generation begins (L6)."""
        return (
            self.replaces
            or self.refreshes
            or self.sync_mode is SyncMode.full_refresh
            or self.destination_sync_mode is DestinationSyncMode.overwrite
        )

    @property
    def can_resume(self) -> bool:
        """Whether a later epoch may continue to fill the same generation."""
        return self.stream.is_resumable or self.sync_mode is not SyncMode.full_refresh


class Shard(msgspec.Struct, frozen=True):
    """One of ``count`` disjoint parts of a stream's records, split by the source; ``index`` counts
    from 0."""

    index: int
    count: int


class ConnectorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``spec``. ``config_schema``: JSON Schema (draft-07) of the configuration."""

    protocol: str
    config_schema: dict[str, Any]
    abilities: dict[str, Any] = {}
    documentation_url: str | None = None
    changelog_url: str | None = None
    protocol_version: str | None = None


class CheckResult(msgspec.Struct, frozen=True):
    """The answer to ``check``. ``end``: the endpoint that answered: ``source``, ``destination``, or
    a transform's place."""

    succeeded: bool
    message: str | None = None
    end: str = "source"


def default_cursor(configured: ConfiguredStream) -> FieldPath:
    """Returns the configured cursor, else the source's default cursor, else none."""
    return configured.cursor_field or configured.stream.default_cursor_field or ()
