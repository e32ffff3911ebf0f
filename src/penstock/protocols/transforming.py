"""Defines a transform's requests and answers.

Data only. :class:`TransformRequest`: one run over one stream; it is fed tables (pyarrow).
:data:`Given`: the tables that come out, and how far in its input they reach. Not here: transforms
that are not connectors (``transforms``), the conversation with one (``connection``). Neighbours:
``reading``, ``writing``, the same for the other roles.
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
    ``pipeline``: its name, the same in every run. ``options``: passed to the connector.
    ``processes``: how many work in parallel; ``ahead``: requests sent to each before it has
    answered the first. ``on_error``: a row without an answer becomes a ``Reject``, or passes
    unchanged. ``columns``: types of properties that it adds. ``cache_seconds``: how long an answer
    stays valid for rows of the same ``cache_key`` (original names; empty: the stream's primary key,
    or all columns without one); None: no cache. ``kept``: properties that a row keeps even where
    its answer omits them: the mark of a deleted row."""

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
    """One run of a transform over one stream. ``state``: the one that the source was given.
    ``scope``: that of its own keys (``store.keys.covers``). ``waiting``: bytes that may wait before
    it, and as many behind it. ``given``, ``made``: the planned schemas of its input and of its
    output, where they are known. ``enriching``: for a connector that answers row by row."""

    config: dict[str, Any]
    stream: ConfiguredStream
    scope: str
    state: StoredState | None = None
    timeouts: RunTimeouts = RunTimeouts()
    waiting: int = 16 << 20
    dry_run: bool = False
    """A dry run: no output is kept."""
    attempt: int = 1
    """The attempts of the stream in this run, this one included."""
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
    """Everything made from the first ``upto`` tables of its input has been given, and nothing from
    later ones (``END``: from all, and it ended well). ``keys``: the checkpoint of its own keys
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
