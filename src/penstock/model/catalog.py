"""What a source offers and what a sync asks of it, in no protocol's own words.

Neighbours: ``protocols/*`` translate their wire catalogs to and from these; ``engine.plan.streams``
resolves a :class:`Catalog` and the user's wishes into :class:`ConfiguredStream`.
"""

from enum import StrEnum
from typing import Any

import msgspec


class SyncMode(StrEnum):
    """How the source reads a stream."""

    full_refresh = "full_refresh"
    incremental = "incremental"
    cdc = "cdc"


class DestinationSyncMode(StrEnum):
    """What the destination does with what arrives."""

    append = "append"
    overwrite = "overwrite"
    append_dedup = "append_dedup"


class StreamId(msgspec.Struct, frozen=True):
    """(namespace, name). ``None`` and ``""`` are both met for "no namespace": use :meth:`of`.
    Sorts, those without a namespace first."""

    namespace: str | None
    name: str

    def __lt__(self, other: "StreamId") -> bool:
        return (self.namespace or "", self.name) < (other.namespace or "", other.name)

    @staticmethod
    def of(namespace: str | None, name: str) -> "StreamId":
        return StreamId(namespace or None, name)

    @property
    def key(self) -> str:
        """Injective text form, for file names, store keys and table transaction ids: JSON."""
        return msgspec.json.encode([self.namespace, self.name]).decode()

    def __str__(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"


FieldPath = tuple[str, ...]


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as discovered. ``raw`` is the source's own object, unknown fields included.
    ``selected`` False: the catalog itself says that it is left out unless the user names it.
    ``record_name``: what its records call it, where that is another name than its own.
    ``assumed``: the source told of no streams, and the pipeline of this one: its schema is a guess
    until rows come."""

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


class Catalog(msgspec.Struct, frozen=True):
    """``open``: the source cannot say what it has; its streams are known from its messages only
    (``ReadRequest.open``)."""

    streams: tuple[Stream, ...]
    open: bool = False

    def get(self, stream: StreamId) -> Stream | None:
        return next((s for s in self.streams if s.id == stream), None)


class ConfiguredStream(msgspec.Struct, frozen=True, kw_only=True):
    """How one stream is synced. ``cursor_field`` is a path (empty: the source's own business, or
    none); ``primary_key`` a tuple of paths (empty: none). Paths hold original property names.
    ``columns`` is the user's selection of top-level properties (None: all); ``nested``: paths into
    those of them of which only these parts are kept. ``replaces``: its rows take the place of all
    older ones, whatever the modes say. ``shards``: in how many it is read side by side.
    ``mode_reason``: why the destination sync mode was chosen (a clause).
    ``source_decides``: nobody says how the source reads it: it is given its state and no word of
    the sync mode."""

    stream: Stream
    sync_mode: SyncMode
    destination_sync_mode: DestinationSyncMode
    cursor_field: FieldPath = ()
    primary_key: tuple[FieldPath, ...] = ()
    columns: tuple[str, ...] | None = None
    nested: tuple[FieldPath, ...] = ()
    generation_id: int | None = None
    minimum_generation_id: int | None = None
    sync_id: int | None = None
    replaces: bool = False
    shards: int = 1
    mode_reason: str = ""
    source_decides: bool = False

    @property
    def id(self) -> StreamId:
        return self.stream.id

    @property
    def fills_generation(self) -> bool:
        """True where rows become visible only as a whole, when the stream is complete, and where it
        is given no state when such a whole begins (L6)."""
        return (
            self.replaces
            or self.sync_mode is SyncMode.full_refresh
            or self.destination_sync_mode is DestinationSyncMode.overwrite
        )

    @property
    def can_resume(self) -> bool:
        """True where a later epoch may go on filling the same generation."""
        return self.stream.is_resumable or self.sync_mode is not SyncMode.full_refresh


class Shard(msgspec.Struct, frozen=True):
    """A part of a stream's records that a source tells from the others by itself; ``index`` from
    0."""

    index: int
    count: int


class ConnectorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a connector says of itself. ``config_schema`` is JSON Schema (draft-07)."""

    protocol: str
    config_schema: dict[str, Any]
    abilities: dict[str, Any] = {}
    documentation_url: str | None = None
    changelog_url: str | None = None
    protocol_version: str | None = None


class CheckResult(msgspec.Struct, frozen=True):
    """``end``: whose answer it is, where a pipeline was checked: ``source`` or ``destination``."""

    succeeded: bool
    message: str | None = None
    end: str = "source"


def default_cursor(configured: ConfiguredStream) -> FieldPath:
    """The cursor, or what the source says would be one."""
    return configured.cursor_field or configured.stream.default_cursor_field or ()
