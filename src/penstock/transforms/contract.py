"""The contract of a transform that works on one batch at a time, in a worker.

It is pure: no files, no network, no memory from batch to batch, so a batch may be given to it again
and gives the same (but for what a query asks of clocks and chance). Not here: streams, parts and
states; whoever calls knows which rows a reject belongs to. Neighbours: ``open`` makes one from a
pipeline file's entry; ``codec.arrow`` says which Arrow type a column has.
"""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from penstock.codec.decode import RowReject
from penstock.codec.untyped import Array, Table
from penstock.config.sections import Limits
from penstock.model.types import RowSchema
from penstock.runtimes.contract import Timeouts

OnFailure = Literal["skip", "fail", "dlq"]

__all__ = ["Applied", "BatchTransform", "OnFailure", "RowReject", "metric"]


@dataclass(slots=True)
class Applied:
    """What became of a batch.

    ``table``: the planned columns, any number of rows. ``rejects``: rows of the input that are not
    in it, in order, each once. ``origin``: int64, for each row of ``table`` the row of the input
    that it comes from; None where that is unknown. ``counts``: metrics by :func:`metric`."""

    table: Table
    rejects: list[RowReject] = field(default_factory=list[RowReject])
    origin: Array | None = None
    counts: dict[str, int] = field(default_factory=dict[str, int])


class BatchTransform(Protocol):
    """One transform of one stream."""

    @property
    def same_columns(self) -> bool:
        """What comes out always has the schema of what goes in."""
        ...

    def keeps(self, columns: Set[str]) -> bool:
        """Each row that comes out is surely one row of what went in, no other is, and these columns
        of it have their values still; of the schema last given to :meth:`output`."""
        ...

    def output(self, schema: RowSchema) -> RowSchema:
        """What comes out of batches of this schema, from now on; planned without data. Raises
        ``ConfigError`` with every fault in ``problems``."""
        ...

    def apply(self, batch: Table) -> Applied:
        """``batch``: the columns of the schema last given to :meth:`output`, by ``Field.name``, in
        their types of ``codec.arrow``; so is the table that comes out. Raises ``SourceError``,
        which tells no value of the batch."""
        ...


def metric(name: str, **labels: str) -> str:
    """``name{rule=assert_not_null,field=email}``."""
    inner = ",".join(f"{key}={value}" for key, value in labels.items())
    return f"{name}{{{inner}}}" if inner else name


class TransformJob(msgspec.Struct, frozen=True, kw_only=True):
    """One transform. ``where``: its place in the pipeline file. ``on_failure``: what a row becomes
    that it refuses. ``launch``: it is a connector, and how ``connectors`` starts it, as data;
    ``place``: then the name under which its keys and its log lines go (``transform:0``).
    ``limits``: of one that is no connector."""

    use: str
    config: dict[str, Any]
    where: str
    on_failure: Literal["skip", "fail", "dlq"] = "dlq"
    launch: dict[str, Any] | None = None
    place: str = ""
    timeouts: Timeouts = Timeouts()
    limits: Limits | None = None
