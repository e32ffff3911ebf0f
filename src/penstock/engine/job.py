"""What a lane's process is told, in one message on its stdin, and what it answers.

It holds the connector's configuration, so it is never an argument, an environment variable or a
file. Neighbours: ``engine.lanes`` writes it, ``engine.child`` reads it.
"""

from enum import StrEnum
from typing import Any, Literal

import msgspec

from penstock.engine.buffers import Bounds, LaneStream
from penstock.model.catalog import ConfiguredStream, FieldPath, Stream, StreamId
from penstock.model.state import SavedState
from penstock.model.types import ChangeWords, RowSchema
from penstock.runtimes.contract import Timeouts


class StreamJob(msgspec.Struct, frozen=True, kw_only=True):
    """``schema``: of the rows. ``given``: of the records, where transforms stand between. ``key``:
    paths of original property names; a record in which all are null is a reject. ``ignored``:
    properties that the user did not select. ``whole``: the records' schema has one column, which
    takes the record as it is."""

    configured: ConfiguredStream
    lane: LaneStream
    schema: RowSchema
    key: tuple[FieldPath, ...] = ()
    ignored: tuple[str, ...] = ()
    whole: bool = False
    given: RowSchema | None = None
    made: tuple[RowSchema, ...] = ()  # by each transform that is a connector, as far as is known

    @property
    def id(self) -> StreamId:
        return self.configured.id


class TransformJob(msgspec.Struct, frozen=True, kw_only=True):
    """One transform. ``where``: its place in the pipeline file. ``on_failure``: what a row becomes
    that it refuses. ``launch``: it is a connector, and how ``connectors`` starts it, as data;
    ``place``: then the name under which its keys and its log lines go (``transform:0``)."""

    use: str
    config: dict[str, Any]
    where: str
    on_failure: Literal["skip", "fail", "dlq"] = "dlq"
    launch: dict[str, Any] | None = None
    place: str = ""
    timeouts: Timeouts = Timeouts()


class KeysAt(msgspec.Struct, frozen=True, kw_only=True):
    """Where a component's own keys are. ``url`` may hold a password. ``dry``: writes are lost."""

    url: str
    pipeline: str
    dry: bool = False


class LaneJob(msgspec.Struct, frozen=True, kw_only=True):
    """``launch``: how ``connectors`` starts the connector, as data. ``limit``: records per stream
    after which the source is stopped. ``dry``: nothing of it is kept. ``shared_states``: False
    where other lanes read other streams of the same source: a state that speaks for all of them is
    then an error. ``abilities``, ``unchosen``: as in ``ReadRequest``."""

    run: str
    lane: int
    epoch: int
    log_root: str
    protocol: str
    launch: dict[str, Any]
    config: dict[str, Any]
    config_hash: str
    streams: tuple[StreamJob, ...]
    transforms: tuple[TransformJob, ...] = ()
    states: tuple[SavedState, ...] = ()
    secrets: tuple[str, ...] = ()
    strict: bool = False
    on_data_error: Literal["skip", "fail", "dlq"] = "dlq"
    change_words: ChangeWords = ChangeWords()
    limit: int | None = None
    dry: bool = False
    shared_states: bool = True
    tries: tuple[tuple[StreamId, int], ...] = ()
    timeouts: Timeouts = Timeouts()
    bounds: Bounds = Bounds()
    max_record_bytes: int = 256 << 20
    abilities: dict[str, Any] = {}
    unchosen: tuple[Stream, ...] = ()
    served: bool = False  # its input is our own (engine.serve): states are written down
    keys: KeysAt | None = None
    open: bool = False  # streams that nobody has told it of are asked for, see StreamAnswer


class StreamAnswer(msgspec.Struct, kw_only=True):
    """What a lane is answered (``mailbox.Ask``): how the stream goes on, or why it cannot
    (``PenstockError.as_dict``), or neither: nobody wants it."""

    stream: StreamJob | None = None
    error: dict[str, Any] | None = None


class LaneEnd(StrEnum):
    finished = "finished"  # exit code 0
    failed = "failed"  # the source failed, or we stopped it
    lost = "lost"  # the lane's process or its worker vanished
    cancelled = "cancelled"


class LaneResult(msgspec.Struct, kw_only=True):
    """What a lane's epoch came to. ``read``: records per stream. ``errors``: in order of time, as
    ``PenstockError.as_dict`` gives them. ``metrics``: what the connector measured of itself.
    ``retries``: streams that may be tried again, after so many seconds. ``stats``: seconds, bytes,
    counts for the report."""

    end: LaneEnd
    complete: list[StreamId] = []
    read: list[tuple[StreamId, int]] = []
    errors: list[dict[str, Any]] = []
    notes: list[str] = []
    metrics: list[dict[str, Any]] = []
    retries: list[tuple[StreamId, float]] = []
    stats: dict[str, float] = {}

    @property
    def again(self) -> bool:
        """The epoch is not its lane's last word: what it read counts only where it was sealed."""
        return self.end is LaneEnd.lost or bool(self.retries)
