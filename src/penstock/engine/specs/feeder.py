"""Defines a push task's job, orders, acks and result: a destination connector is fed from the log.

``PushJob`` goes to the task's stdin, as a lane's job does. While the task runs, the driver writes
orders, which name what to feed next, and the task writes acks; both are numbered files in the run's
mailbox. The task has no access to the ledger or the lease's token: it only feeds what is ordered,
in order. Neighbours: ``engine.deliver.connector_delivery`` (the driver's side) and
``engine.worker.feeder`` (the task's).
"""

from enum import StrEnum
from typing import Any

import msgspec

from penstock.engine.specs.lane import KeysAt
from penstock.model.catalog import StreamId
from penstock.model.segments import Segment, SegmentId
from penstock.protocols.writing import Acks, WriteStream
from penstock.runtimes.contract import RunTimeouts


class PushJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of a push task. ``number``: unique in the run, for file names. ``launch``: as in
    ``LaneJob``. ``attempt``, ``attempts``, ``backoff``, ``options``, ``pipeline``,
    ``on_data_error``, ``gives_results``: as in ``WriteRequest``."""

    run: str
    number: int
    log_root: str
    protocol: str
    source_protocol: str
    pipeline: str
    launch: dict[str, Any]
    config: dict[str, Any]
    config_hash: str
    streams: tuple[WriteStream, ...]
    secrets: tuple[str, ...] = ()
    acks: Acks = Acks.echo
    gives_results: bool = False
    options: dict[str, Any] = {}
    on_data_error: str = "dlq"
    timeouts: RunTimeouts = RunTimeouts()
    attempt: int = 1
    attempts: int = 1
    backoff: float = 0.0
    keys: KeysAt | None = None
    mail_key: bytes = b""  # as in LaneJob


class FeedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order to feed the parts of each segment, slice by slice, then its state if it has one;
    then to complete the streams in ``done``. ``streams``: streams that are new, or whose schema
    changed, since the last order. ``end``: no order follows."""

    segments: tuple[Segment, ...] = ()
    done: tuple[StreamId, ...] = ()
    streams: tuple[WriteStream, ...] = ()
    end: bool = False


class AckedSegments(msgspec.Struct, frozen=True, kw_only=True):
    """Segments whose rows and state the destination has all acked. Each is named once. ``rejects``:
    files of the destination's rejects since the last ack, durable, as paths in the log; they must
    be copied to the run's folder before the segments are settled. ``rejected``: the number of its
    rejects per stream, in a file or not. ``filtered``: records that the destination left out since
    the last ack, as configured, per stream. Both may count rows that no ack covers yet. ``keys``:
    see ``protocols.writing.Ack``. ``gives_results``: the destination has given a result, see
    ``protocols.writing.GivesResults``."""

    segments: tuple[SegmentId, ...]
    rejects: tuple[str, ...] = ()
    rejected: tuple[tuple[StreamId, int], ...] = ()
    filtered: tuple[tuple[StreamId, int], ...] = ()
    keys: tuple[tuple[str, int], ...] = ()
    gives_results: bool = False


class PushEnd(StrEnum):
    """How a push task ended."""

    finished = "finished"  # exit code 0 after the end of its input
    failed = "failed"
    lost = "lost"
    cancelled = "cancelled"


class PushResult(msgspec.Struct, kw_only=True):
    """The result of a push task. ``fed``: rows given to the destination, per stream. ``unacked``:
    segments that were fed and not acked. ``errors``: in order of time, as ``PenstockError.as_dict``
    gives them. ``metrics``: the destination's own measurements, as in ``LaneResult``. ``rejects``:
    files of rejects that no ack named. ``halted``: for each stream that the destination stopped
    without a failure, a sentence; what it did not ack is then no failure either. ``retry``: seconds
    after which another attempt is safe; None: the push did not fail, or must not be repeated.
    ``gives_results``: as in ``AckedSegments``.
    ``stats``: seconds and bytes for the report (``push``, ``destination_wait``, ``bytes``, ...)."""

    end: PushEnd
    fed: list[tuple[StreamId, int]] = []
    unacked: list[SegmentId] = []
    errors: list[dict[str, Any]] = []
    notes: list[str] = []
    metrics: list[dict[str, Any]] = []
    rejects: list[str] = []
    halted: list[tuple[StreamId, str]] = []
    retry: float | None = None
    gives_results: bool = False
    stats: dict[str, float] = {}
