"""Defines a lane's job, which its process reads from stdin, its questions to the driver and its
result.

The job holds the connector's configuration, so it is never an argument, an environment variable,
part of a Spark task or a file in clear (``tasks.job_file``). Neighbours:
``engine.run.lane_runner`` writes it, ``engine.worker.lane`` reads it.
"""

from enum import StrEnum
from typing import Any, Literal, Protocol

import msgspec

from penstock.config.sections import MAX_DEAD_LETTERS
from penstock.model.catalog import ConfiguredStream, FieldPath, Shard, Stream, StreamId
from penstock.model.database_query import DatabaseRead
from penstock.model.delete_marks import DeleteMark
from penstock.model.events import TransformColumns
from penstock.model.segments import PartLayout, WriteDisposition
from penstock.model.staged_rows import StagedRows
from penstock.model.state import StoredState
from penstock.model.types import ChangeWords, MissingColumns, RowSchema, UndeclaredPolicy
from penstock.runtimes.contract import RunTimeouts
from penstock.transforms.contract import TransformJob


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """A source's estimate of what it will send (ESTIMATE)."""

    rows: int | None = None
    bytes: int | None = None


class NewConfig(msgspec.Struct, frozen=True):
    """A connector's new configuration (CONTROL), and the hash of the user's configuration that it
    is based on: it is valid as long as the user's stays the same."""

    base_hash: str
    config: dict[str, Any]


class LaneQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A lane's question in the middle of a read: how to continue a stream. ``number`` counts an
    epoch's questions from 1. ``json_schema``: the source sent this schema
    (``model.events.Schema``); None: it sent a ``version`` of the stream, or one of the following.
    ``showed``: a transform emitted rows that do not fit the plan. ``required``, ``frame_types``:
    columns (original names) that are never null, and those whose frames have a type of their own,
    where either differ from the plan's; ``lost``: columns that were planned to be never null and
    that the source now declares nullable. ``fresh``: no row of the stream was read in this epoch.
    ``passed``: records of an unselected stream were read, which the driver stores before a state
    covers them; the answer is empty. ``missing``: records have properties that are to be kept and
    that need these columns."""

    number: int
    stream: StreamId
    json_schema: dict[str, Any] | None = None
    version: int | None = None
    primary_key: tuple[FieldPath, ...] | None = None
    cursor_field: FieldPath | None = None
    showed: TransformColumns | None = None
    required: tuple[str, ...] | None = None
    frame_types: dict[str, str] = {}
    lost: tuple[str, ...] = ()
    fresh: bool = False
    passed: bool = False
    missing: MissingColumns | None = None

    @property
    def plans(self) -> bool:
        """Whether the stream has to be planned again."""
        shown = (self.json_schema, self.required, self.missing)
        return any(one is not None for one in shown)


class LaneStream(msgspec.Struct, frozen=True, kw_only=True):
    """What the sealer needs of a stream of its lane. ``requires_complete_status``: exit
    code 0 is not enough for the stream to be complete; an explicit COMPLETE status is needed (L6).
    ``requires_state``: exit code 0 is enough only where a state covers all rows of the stream.
    ``consumes``: reading removes the records at the source (cdc), so that they are sealed even
    after a failure. ``layout``: its parts are written in the shape of its table; None: with the
    internal columns."""

    stream: StreamId
    disposition: WriteDisposition
    schema_version: int
    generation: int
    fills_generation: bool
    version: int | None = None
    requires_complete_status: bool = False
    requires_state: bool = False
    shard: Shard | None = None
    consumes: bool = False
    layout: PartLayout | None = None

    @property
    def read_again(self) -> bool:
        """Whether a later sync reads again what no state covers; a full refresh starts from the
        beginning instead."""
        return not self.fills_generation or self.version is not None


class LaneBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a lane's memory and seals. ``part_bytes``: record bytes that one decode takes, and
    so the size of a part. ``buffer_bytes``: of all streams together before everything is decoded.
    ``reject_bytes``: of all rejects in memory before they are written. ``reject_quota``: of the
    rejects of one stream in one epoch, files of long records included; beyond it the lane fails. A
    state is sealed once ``seal_bytes`` of records or ``seal_seconds`` have passed since the last
    seal."""

    part_bytes: int = 12 << 20
    buffer_bytes: int = 64 << 20
    seal_bytes: int = 64 << 20
    seal_seconds: float = 10.0
    reject_bytes: int = 8 << 20
    reject_quota: int = MAX_DEAD_LETTERS


class StreamJob(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of a lane's job. ``schema``: of the rows in the log. ``given``: of the source's
    records, where transforms change it. ``key``: paths of original property names; a row in which
    any of them is null is a reject. ``exact``: those by which a table merges; a row in which one
    does not fit its column exactly is a reject. ``ignored``: paths of properties that the user did
    not select. ``whole``: the schema's column ``WHOLE_RECORD`` takes the whole record as JSON text.
    ``undeclared``: the policy for properties that the schema does not declare; ``closed``: paths of
    objects whose undeclared properties are dropped in any case; ``mark``: the property that marks
    deletes, where it gets a column though undeclared. ``deletes``: the rule for marks; None: no
    deletes are carried out. ``json_texts``: properties that are declared as text and have columns
    of JSON. ``texts``: entries of the change lists have the values' texts; not where a query
    follows, which may hash or drop them."""

    configured: ConfiguredStream
    lane: LaneStream
    schema: RowSchema
    key: tuple[FieldPath, ...] = ()
    exact: tuple[FieldPath, ...] = ()
    ignored: tuple[FieldPath, ...] = ()
    whole: bool = False
    undeclared: UndeclaredPolicy = UndeclaredPolicy.drop
    closed: tuple[FieldPath, ...] = ()
    mark: str | None = None
    deletes: DeleteMark | None = None
    json_texts: tuple[str, ...] = ()
    texts: bool = True
    given: RowSchema | None = None
    made: tuple[RowSchema, ...] = ()  # output schema of each transform connector, as planned so far

    @property
    def id(self) -> StreamId:
        return self.configured.id


class KeysAt(msgspec.Struct, frozen=True, kw_only=True):
    """Where connectors' own keys are stored. ``url`` may hold a password. ``dry``:
    writes are discarded at the end."""

    url: str
    pipeline: str
    dry: bool = False


class RetriedFile(msgspec.Struct, frozen=True):
    """The retried rejects of a stream: a file of ``engine.log.retries``."""

    stream: StreamId
    path: str


class LaneJob(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch of one lane. ``launch``: how ``connectors`` starts the connector, as data.
    ``limit``: records per stream after which the source is stopped. ``dry``: nothing is kept.
    ``shared_states``: False where other lanes read other streams of the same source: a state shared
    by all streams is then an error. ``abilities``, ``unchosen``, ``tries``, ``attempts``,
    ``backoff``: as in ``ReadRequest``. ``staged``: a query's rows, which the lane reads in place of
    a connector; ``queried``: a query whose rows it has a database send; ``retried``: rejects that
    it reads in place of a connector."""

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
    states: tuple[StoredState, ...] = ()
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
    timeouts: RunTimeouts = RunTimeouts()
    bounds: LaneBounds = LaneBounds()
    max_record_bytes: int = 256 << 20
    abilities: dict[str, Any] = {}
    unchosen: tuple[Stream, ...] = ()
    served: bool = False  # the source is another program (engine.serve): states are written out
    every_state: bool = False  # that program gets each state, else the newest of a load
    keys: KeysAt | None = None
    mail_key: bytes = b""  # of Mailbox
    change_lists: bool = True  # the rows of a table have them
    open: bool = False  # the lane sends a question for streams that are not in ``streams``
    staged: StagedRows | None = None
    queried: DatabaseRead | None = None
    retried: tuple[RetriedFile, ...] = ()

    @property
    def has_records(self) -> bool:
        """Whether the source is a connector, whose records can be decoded again."""
        return self.staged is None and self.queried is None and not self.served


class StreamAnswer(msgspec.Struct, kw_only=True):
    """The driver's answer to a :class:`LaneQuestion`: how the stream continues, or why it cannot
    (``PenstockError.as_dict``), or neither: the stream is not selected."""

    stream: StreamJob | None = None
    error: dict[str, Any] | None = None


class LaneEnd(StrEnum):
    """How an epoch of a lane ended."""

    finished = "finished"  # exit code 0
    failed = "failed"  # the source failed, or Penstock stopped it
    lost = "lost"  # the lane's process or its worker vanished
    cancelled = "cancelled"


class LaneResult(msgspec.Struct, kw_only=True):
    """The result of a lane's epoch. ``read``: records per stream. ``errors``: in order of time, as
    ``PenstockError.as_dict`` gives them. ``metrics``: the connector's own measurements.
    ``expected``: the source's estimates, per stream or (None) of all streams together. ``retries``:
    streams that may be read again, each after this many seconds; ``passing``: the errors that this
    may fix, which are not in ``errors``. ``in_doubt``: streams that the source's exit code 0 did
    not complete, why (a clause), and what to do. ``unsent``: good rows of a query that the
    destination has already, and that are not among ``read``. ``stats``: seconds, bytes, counts for
    the report."""

    end: LaneEnd
    complete: list[StreamId] = []
    read: list[tuple[StreamId, int]] = []
    errors: list[dict[str, Any]] = []
    passing: list[dict[str, Any]] = []
    notes: list[str] = []
    metrics: list[dict[str, Any]] = []
    expected: list[tuple[StreamId | None, Expected]] = []
    retries: list[tuple[StreamId, float]] = []
    in_doubt: list[tuple[StreamId, str, str | None]] = []
    unsent: list[tuple[StreamId, int]] = []
    stats: dict[str, float] = {}

    @property
    def again(self) -> bool:
        """Whether the lane is read again in another epoch: only the sealed rows of this one count
        as read."""
        return self.end is LaneEnd.lost or bool(self.retries)


class LaneReader(Protocol):
    """Reads one epoch of a lane to its end: with a connector, or the rows of a query."""

    def read(self, job: LaneJob) -> LaneResult:
        """Returns the result once the epoch has ended. Raises the reason where it was lost. Called
        in a thread of the lane's own."""
        ...
