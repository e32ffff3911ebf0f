"""Defines the contract of a transform that works on one batch at a time, in a worker.

A transform is pure: it reads no files and no network and keeps nothing between batches, so that a
batch may be applied again with the same result (apart from clock and random functions of a query).
Not here: streams, parts and states; the caller maps rejects to records. Neighbours: ``open`` makes
a transform from a pipeline file's entry; ``codec.arrow`` maps a column's type to Arrow.
"""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from penstock.codec.decode import RowReject
from penstock.codec.untyped import Array, Table
from penstock.config.pipeline import StreamOptions
from penstock.config.sections import Limits
from penstock.model.catalog import StreamId
from penstock.model.types import RowSchema
from penstock.protocols.transforming import EnrichmentUse
from penstock.runtimes.contract import RunTimeouts

OnFailure = Literal["skip", "fail", "dlq"]

__all__ = ["BatchTransform", "OnFailure", "RowReject", "TransformResult", "metric"]


@dataclass(slots=True)
class TransformResult:
    """The result of a transform on one batch.

    ``table``: the planned columns, any number of rows. ``rejects``: input rows that the transform
    rejected, in order, each once. ``origin``: int64, for each row of ``table`` the input row from
    which it comes; None if that is unknown. ``counts``: metrics by :func:`metric`."""

    table: Table
    rejects: list[RowReject] = field(default_factory=list[RowReject])
    origin: Array | None = None
    counts: dict[str, int] = field(default_factory=dict[str, int])


class BatchTransform(Protocol):
    """One transform of one stream."""

    @property
    def same_columns(self) -> bool:
        """Whether the output schema always equals the input schema."""
        ...

    def keeps(self, columns: Set[str]) -> bool:
        """Returns whether every output row comes from exactly one input row, no input row gives
        two, and ``columns`` (of the schema last passed to :meth:`output`) keep their values. False
        if the transform cannot know."""
        ...

    def output(self, schema: RowSchema) -> RowSchema:
        """Plans the transform for batches of ``schema``, without data, and returns the output
        schema. Raises ``ConfigError`` with every fault in ``problems``."""
        ...

    def apply(self, batch: Table, deletes: Array | None = None) -> TransformResult:
        """Transforms one batch. ``batch``: the columns of the schema last passed to :meth:`output`,
        by ``Field.name``, in their types of ``codec.arrow``; the result's table has the output
        schema in the same way. ``deletes``: which rows (booleans) are deletes that pass in any
        case (``transforms.deletes``): no rule rejects them, but they may be left out. Raises
        ``SourceError``, which quotes no value of the batch."""
        ...


def metric(name: str, **labels: str) -> str:
    """Returns a metric's key with its labels, as ``name{rule=assert_not_null,field=email}``."""
    inner = ",".join(f"{key}={value}" for key, value in labels.items())
    return f"{name}{{{inner}}}" if inner else name


class TransformJob(msgspec.Struct, frozen=True, kw_only=True):
    """One transform of a stream, as data for a worker. ``where``: its path in the pipeline file.
    ``on_failure``: what happens to a row that it rejects. ``v4``: as in ``open_transform``.
    ``launch``: how ``connectors`` starts it,
    if it is a connector; None: built in. ``place``: a connector's scope for keys and log lines
    (``transform:0``). ``limits``: of a built-in one. ``streams``: those that pass through it, as
    named in the pipeline file; None: all. ``enriching``: of a connector that answers row by row."""

    use: str
    config: dict[str, Any]
    where: str
    on_failure: Literal["skip", "fail", "dlq"] = "dlq"
    v4: bool = False
    launch: dict[str, Any] | None = None
    place: str = ""
    timeouts: RunTimeouts = RunTimeouts()
    limits: Limits | None = None
    streams: tuple[str, ...] | None = None
    enriching: EnrichmentUse | None = None

    def applies(self, stream: StreamId) -> bool:
        """Returns whether the stream passes through it."""
        names = self.streams
        return names is None or any(StreamOptions(name=n).matches(stream) for n in names)
