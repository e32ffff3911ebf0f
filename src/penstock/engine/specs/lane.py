"""What a lane's process is told, in one message on its stdin, and what it answers.

It holds the connector's configuration, so it is never an argument, an environment variable, part
of a Spark task or a file in clear (``engine.channel.job_file``). Neighbours:
``engine.sync.lane_runner`` writes it, ``engine.worker.lane`` reads it.
"""

from enum import StrEnum
from typing import Any, Literal

import msgspec

from penstock.config.sections import MAX_DEAD_LETTERS
from penstock.model.catalog import ConfiguredStream, FieldPath, Shard, Stream, StreamId
from penstock.model.events import Showed
from penstock.model.segments import Shape
from penstock.model.state import SavedState
from penstock.model.types import ChangeWords, RowSchema
from penstock.runtimes.contract import Timeouts
from penstock.transforms.contract import TransformJob


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """How much a source expects to send."""

    rows: int | None = None
    bytes: int | None = None


class NewConfig(msgspec.Struct, frozen=True):
    """A connector's new configuration (CONTROL), and the hash of the user's that it came from: it
    holds only as long as the user's stays the same."""

    base_hash: str
    config: dict[str, Any]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """The source told a schema in the middle of a read (``model.events.Schema``), or, where
    ``json_schema`` is None, a ``version`` of the stream; or, where ``showed`` is there, rows have
    come out of a transform that do not fit the plan; or other columns than planned are never null,
    which are then ``required`` (original names; ``lost``: of these, those that the source takes
    back): how does it go on? ``number`` counts an epoch's questions from 1. ``fresh``: no row of
    the stream has come in this epoch. ``passed``: records of a stream came that was not wanted,
    which is to be remembered before a state speaks for them; there is nothing to answer."""

    number: int
    stream: StreamId
    json_schema: dict[str, Any] | None = None
    version: int | None = None
    primary_key: tuple[FieldPath, ...] | None = None
    cursor_field: FieldPath | None = None
    showed: Showed | None = None
    required: tuple[str, ...] | None = None
    lost: tuple[str, ...] = ()
    fresh: bool = False
    passed: bool = False


class LaneStream(msgspec.Struct, frozen=True, kw_only=True):
    """What the sealer must know of a stream of its lane. ``must_say``: only the source's word shows
    that all of it has come, its good end does not. ``consumes``: what was read is gone at the
    source (cdc), so that it is kept whatever becomes of the rest."""

    stream: StreamId
    shape: Shape
    schema_version: int
    generation: int
    fills_generation: bool
    version: int | None = None
    must_say: bool = False
    shard: Shard | None = None
    consumes: bool = False

    @property
    def read_again(self) -> bool:
        """A later sync reads again what no state covers; a refresh begins anew."""
        return not self.fills_generation or self.version is not None


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """``part_bytes``: bodies that one decode takes, and so the size of a part. ``buffer_bytes``: of
    all streams together before everything is decoded. ``reject_bytes``: of all rejects that wait in
    memory, before they are written. ``reject_quota``: of the rejects of one stream in one epoch,
    files of long records included; beyond it the lane fails. A state seals once ``seal_bytes`` of
    records or ``seal_seconds`` have passed since the last seal."""

    part_bytes: int = 16 << 20
    buffer_bytes: int = 64 << 20
    seal_bytes: int = 64 << 20
    seal_seconds: float = 10.0
    reject_bytes: int = 8 << 20
    reject_quota: int = MAX_DEAD_LETTERS


class StreamJob(msgspec.Struct, frozen=True, kw_only=True):
    """``schema``: of the rows. ``given``: of the records, where transforms stand between. ``key``:
    paths of original property names; a row in which any of them is null is a reject. ``ignored``:
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


class KeysAt(msgspec.Struct, frozen=True, kw_only=True):
    """Where a component's own keys are. ``url`` may hold a password. ``dry``: writes are lost."""

    url: str
    pipeline: str
    dry: bool = False


class LaneJob(msgspec.Struct, frozen=True, kw_only=True):
    """``launch``: how ``connectors`` starts the connector, as data. ``limit``: records per stream
    after which the source is stopped. ``dry``: nothing of it is kept. ``shared_states``: False
    where other lanes read other streams of the same source: a state that speaks for all of them is
    then an error. ``abilities``, ``unchosen``, ``tries``, ``attempts``, ``backoff``: as in
    ``ReadRequest``."""

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
    attempts: int = 1
    backoff: float = 0.0
    timeouts: Timeouts = Timeouts()
    bounds: Bounds = Bounds()
    max_record_bytes: int = 256 << 20
    abilities: dict[str, Any] = {}
    unchosen: tuple[Stream, ...] = ()
    served: bool = False  # its input is our own (engine.serve): states are written down
    keys: KeysAt | None = None
    mail_key: bytes = b""  # of Mailbox
    open: bool = False  # streams that nobody has told it of are asked for, see StreamAnswer


class StreamAnswer(msgspec.Struct, kw_only=True):
    """What a lane is answered (:class:`Ask`): how the stream goes on, or why it cannot
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
    ``expected``: what the source expected to send of each stream, or (None) of all. ``retries``:
    streams that may be tried again, after so many seconds; ``passing``: the errors that this may
    mend, which are not in ``errors``. ``drifted``: records had fields that their schema does not.
    ``stats``: seconds, bytes, counts for the report."""

    end: LaneEnd
    complete: list[StreamId] = []
    read: list[tuple[StreamId, int]] = []
    errors: list[dict[str, Any]] = []
    passing: list[dict[str, Any]] = []
    notes: list[str] = []
    metrics: list[dict[str, Any]] = []
    expected: list[tuple[StreamId | None, Expected]] = []
    retries: list[tuple[StreamId, float]] = []
    drifted: bool = False
    stats: dict[str, float] = {}

    @property
    def again(self) -> bool:
        """The epoch is not its lane's last word: what it read counts only where it was sealed."""
        return self.end is LaneEnd.lost or bool(self.retries)
