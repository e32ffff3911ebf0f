"""Defines what the Python interface returns, with the names of the command line's JSON
(docs/cli.md).

No I/O. The report of a run is ``model.report.Report``."""

from typing import Any

import msgspec

from penstock.model.catalog import Stream, StreamId
from penstock.model.report import StreamReport


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a planned table. ``source``: the field's name at the source. ``declared``: the
    type that it has there, where the table keeps another one."""

    name: str
    source: str
    type: str
    declared: str | None = None


class StreamPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would do with one stream. ``table``: of a table; ``target``: the name at a
    destination connector. ``undeclared``: what it would do with properties that the stream's schema
    does not declare. ``load_way``: how its loads come into its table (``publish``, ``merge``,
    ``rewrite``, ``spark``), ``load_reason``: why. ``columns_known`` False: the load decides the
    columns."""

    namespace: str | None
    name: str
    sync_mode: str
    destination_sync_mode: str
    mode_reason: str
    newest_by: dict[str, Any] | None
    history: bool
    cursor_field: list[str]
    primary_key: list[list[str]]
    lane: int
    shards: Any
    hints: list[dict[str, Any]]
    table: str | None
    target: str | None
    retry_rejected: int
    undeclared: str
    loads: str
    load_way: str | None
    load_reason: str | None
    columns_known: bool
    columns: list[Column]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What ``run`` would do. ``problems``: why it would be refused; empty: it would not be."""

    pipeline: str
    streams: list[StreamPlan]
    permissions: dict[str, Any]
    limits: dict[str, Any]
    guarantee: str
    notes: list[str]
    problems: list[str]
    asks: dict[str, Any] = {}
    held: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return not self.problems


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a check; false where it failed. ``end``: which one answered."""

    status: str
    message: str | None
    end: str

    def __bool__(self) -> bool:
        return self.status == "succeeded"


class DiscoveredStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that a source has."""

    namespace: str | None
    name: str
    json_schema: Any
    sync_modes: list[str]
    primary_key: Any
    cursor_field: Any
    source_defined_cursor: bool | None
    default_cursor_field: Any
    source_defined_primary_key: Any
    is_resumable: bool | None
    selected: bool | None

    @staticmethod
    def of(stream: Stream) -> "DiscoveredStream":
        """Describes a stream of a catalog."""
        return DiscoveredStream(
            namespace=stream.id.namespace,
            name=stream.id.name,
            json_schema=stream.json_schema,
            sync_modes=[mode.value for mode in stream.sync_modes],
            primary_key=stream.source_defined_primary_key or [],
            cursor_field=stream.default_cursor_field or [],
            source_defined_cursor=stream.source_defined_cursor,
            default_cursor_field=stream.default_cursor_field,
            source_defined_primary_key=stream.source_defined_primary_key,
            is_resumable=stream.is_resumable,
            selected=stream.selected,
        )


class Discovered(msgspec.Struct, frozen=True, kw_only=True):
    """The streams of a source. ``open``: it shows more of them while it is read."""

    streams: list[DiscoveredStream]
    open: bool

    @property
    def names(self) -> list[str]:
        """Returns the streams' names, with their namespaces if they have one."""
        return [str(StreamId(s.namespace, s.name)) for s in self.streams]


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """The saved state of one stream, as its source sent it; a number that no float has is a
    ``Decimal``. ``unread``: ``{"state"}``, from which a stream that the last run did not read
    continues (None: its start); None: from ``state``."""

    namespace: str | None
    name: str
    state: Any
    unread: dict[str, Any] | None = None


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """The saved state of a pipeline. ``shared``: the state that all streams share."""

    pipeline: str
    type: str | None
    streams: list[StreamState]
    shared: Any = None
    connector_keys: list[dict[str, Any]] = []


class PastRun(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded run. Fields that a running or dead run has not reported are None."""

    run: str
    pipeline: str
    status: str
    started_at: str
    exit_code: int | None = None
    seconds: float | None = None
    guarantee: str | None = None
    streams: list[StreamReport] = []
    notes: list[str] = []
    error: dict[str, Any] | None = None
    log: str | None = None


class RejectedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rejected row. ``bytes``: the record as text, or as base64 (see ``encoding``); ``file``: a
    file with the whole record. ``key``: the primary key, where a destination rejected the row;
    ``attempt``: the number of consecutive runs that rejected it, if they are retried. ``id``:
    unique in its pipeline; ``retried``: the run that retried it."""

    run: str
    stream: str | None
    reason: str
    field: str | None
    bytes: str
    at: str
    namespace: str | None
    name: str | None
    encoding: str | None
    file: str | None
    key: dict[str, Any] | None = None
    attempt: int = 1
    id: str = ""
    retried: str | None = None
