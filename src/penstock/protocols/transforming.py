"""Defines what a transform is asked to do, and what it gives back.

Data only. :class:`TransformRequest`: one run over one stream; it is fed tables (pyarrow).
:data:`Given`: the tables that come out, and how far in its input they reach. Not here: the
transforms that are no connectors (``transforms``), how one is talked to (``connection``).
Neighbours: ``reading``, ``writing``, the same for the other roles.
"""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from penstock.model.catalog import ConfiguredStream
from penstock.model.events import (
    ConnectorMetrics,
    Error,
    LogEvent,
    Reject,
    SkippedItems,
    Tick,
)
from penstock.model.state import StoredState
from penstock.model.types import DataType, RowSchema
from penstock.runtimes.contract import RunTimeouts


class EnrichmentUse(msgspec.Struct, frozen=True, kw_only=True):
    """How a transform that answers row by row is used. ``use``: its reference, as written.
    ``pipeline``: its name, the same in every run. ``options``: for the connector, in its own words.
    ``processes``: that work at once; ``ahead``: requests that each is sent before it has answered
    the first. ``on_error``: a row that it has no answer to is a ``Reject``, or passes as it is.
    ``columns``: types of properties that it adds. ``cache_seconds``: how long an answer is good,
    for rows of the same ``cache_key`` (original names; empty: the stream's primary key, or all
    columns where it has none); None: none is kept. ``kept``: properties that a row has still where
    its answer leaves them out: the mark of a row that is gone."""

    use: str
    pipeline: str = ""
    options: dict[str, Any] = {}
    processes: int = 1
    ahead: int = 1
    on_error: Literal["reject", "pass"] = "reject"
    columns: dict[str, DataType] = {}
    cache_seconds: float | None = None
    cache_key: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class TransformRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a transform over one stream. ``state``: as the source was given it. ``scope``: of
    what covers the keys that it keeps for itself (``store.keys.covers``). ``waiting``: bytes that
    may wait before it, and as many behind it. ``given``, ``made``: the planned schemas of what it
    is fed and of what it makes, where they are known. ``enriching``: for a connector that answers
    row by row."""

    config: dict[str, Any]
    stream: ConfiguredStream
    scope: str
    state: StoredState | None = None
    timeouts: RunTimeouts = RunTimeouts()
    waiting: int = 16 << 20
    dry_run: bool = False
    """Nothing of what comes out is kept."""
    attempt: int = 1
    """How often the stream was begun in this run, this time included."""
    given: RowSchema | None = None
    made: RowSchema | None = None
    enriching: EnrichmentUse | None = None


@dataclass(slots=True)
class TransformedRows:
    """Rows that came out: a table (pyarrow) in the transform's own columns. ``size``: bytes."""

    table: Any
    size: int


@dataclass(slots=True)
class TransformProgress:
    """All that came of the first ``upto`` tables that it was fed, and of no later one (``END``: of
    all, and it ended well), was given before. ``keys``: the checkpoint of its own keys
    (``store.keys``)."""

    upto: int
    keys: int = 0


Given = (
    TransformedRows
    | TransformProgress
    | Reject
    | LogEvent
    | Error
    | SkippedItems
    | ConnectorMetrics
    | Tick
)
