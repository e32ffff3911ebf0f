"""A source and its lane in memory: what it holds is a script of records and of what it says between
them.

Real: ``engine.worker.lane_events`` (schemas, versions, activations), the sealer, the planner's
versions. Twins: the source, the mailbox, planning. Neighbour: ``simulation``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa

from penstock.codec.arrow import with_frame_types
from penstock.codec.columns import Columns
from penstock.engine.plan.replan import Planner
from penstock.engine.specs.lane import (
    LaneBounds,
    LaneEnd,
    LaneQuestion,
    LaneResult,
    LaneStream,
    StreamJob,
)
from penstock.engine.specs.plan import ContinuedStream, LaneStart, PlannedStream
from penstock.engine.worker.lane_events import LaneEvents
from penstock.engine.worker.lane_failures import EpochFailures
from penstock.engine.worker.row_decoding import StreamDecoders
from penstock.engine.worker.sealer import Sealer
from penstock.errors import LogError, PenstockError, SchemaError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Shard,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import (
    Activate,
    Batch,
    Error,
    Event,
    Schema,
    State,
    Status,
    StreamStatus,
)
from penstock.model.segments import WriteDisposition
from penstock.model.state import StateScope, StateType
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.store.contract import Lease, Store
from penstock.store.remembered import Remembered, TableNames
from penstock.tables.contract import TableName


class LaneLost(BaseException):
    """The lane's process is gone."""


class _Unanswered(Exception):
    """The lane waits for the driver: the event is taken again once it is told."""


# What a stream's script may hold beside records, which are (id, version) pairs.


@dataclass(frozen=True)
class New:
    """Another schema: its columns, as ``name`` or ``name:type``."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class Ver:
    """Records from here on belong to this version."""

    number: int


@dataclass(frozen=True)
class Act:
    """ACTIVATE_VERSION of the version in force, or of ``number``."""

    number: int | None = None


@dataclass(frozen=True)
class Declares:
    """Records from here on come as columns that say whether ``x`` is never null; it is null in all
    of them where not."""

    x: bool


@dataclass(frozen=True)
class Bad:
    """A record that no row can be made of."""


def rows_of(items: Sequence[Any]) -> list[tuple[int, int]]:
    """The records that become rows."""
    return [i for i in items if isinstance(i, tuple)]


class Rows(tuple[tuple[int, int, int], ...]):
    """Of one part: (id, version, arrival). ``schema``: the version that they were made under."""

    schema: int = 0


@dataclass
class SimDecoded:
    rows: Rows
    rejects: tuple[tuple[int, str, str | None], ...] = ()
    missing: None = None

    @property
    def count(self) -> int:
        return len(self.rows)


class SimPlanner(Planner):
    """``engine.plan.replan.Planner`` but for the planning of a schema. ``current``, ``schemas``:
    what a prepared run holds."""

    def __init__(self, scenario: Any, store: Store, lease: Lease) -> None:
        prepared: Any = SimpleNamespace(passed=set())
        super().__init__(prepared, store, lease, lambda text: None)
        self._scenario = scenario
        self.current: dict[StreamId, PlannedStream] = {}
        self.schemas: dict[StreamId, RowSchema] = {}

    def remember(self) -> tuple[PlannedStream, ...]:
        """The plan, as discovery has it, and what the last rows had."""
        scenario = self._scenario
        names = () if scenario.open else scenario.records
        for index, name in enumerate(names):
            stream, schema = StreamId(None, name), _schema(scenario.first)
            before = self._store.newest_schemas(self._lease.pipeline, [stream]).get(stream)
            if before is not None:
                shown = schema.with_required(before.required)
                schema = shown.with_frame_types(before.frame_types)
            self._keep(stream, schema, index % scenario.lanes, scenario.first)
        return tuple(self.current.values())

    def plan(self, ask: LaneQuestion, lane: int, *, filling: bool) -> PlannedStream | None:
        if ask.stream.name in self._scenario.unwanted:
            return None
        if ask.required is not None:
            told = tuple(self.current[ask.stream].configured.stream.json_schema["columns"])
            proved = self.schemas[ask.stream].with_required(ask.required)
            return self._keep(ask.stream, proved.with_frame_types(ask.frame_types), lane, told)
        columns = tuple((ask.json_schema or {})["columns"])
        schema, before = _schema(columns), self.schemas.get(ask.stream)
        if filling and before is not None:
            now = {f.name: f for f in schema.fields}
            if any(f.name in now and now[f.name] != f for f in before.fields):
                raise SchemaError("changed in the middle of a full refresh", code="schema.changed")
            gone = tuple(f for f in before.fields if f.name not in now)
            schema = RowSchema((*schema.fields, *gone))
        return self._keep(ask.stream, schema, lane, columns)

    def _keep(
        self, stream: StreamId, schema: RowSchema, lane: int, told: tuple[str, ...]
    ) -> PlannedStream:
        if self._scenario.dynamic:
            names = TableNames(tables={stream.key: stream.name})
            self._store.remember(self._lease, Remembered(tables=names))
            schema = self._store.schema_version(self._lease, stream, schema)
        else:
            schema = RowSchema(schema.fields, 1)
        self.schemas[stream] = schema
        planned = _planned_stream(self._scenario, stream, schema, lane, told)
        if stream in self._store.remembered(self._lease.pipeline).pending_refreshes:
            planned = msgspec.structs.replace(
                planned,
                configured=msgspec.structs.replace(planned.configured, refreshes=True),
                disposition=msgspec.structs.replace(planned.disposition, refreshes=True),
            )
        self.current[stream] = planned
        return planned

    def continued(self, planned: ContinuedStream) -> StreamJob:
        lane = self.lane_stream(planned.stream.id, planned.generation)
        if planned.version is not None:
            lane = msgspec.structs.replace(
                lane, fills_generation=planned.fills, version=planned.version
            )
        return self._job(planned.stream.id, lane)

    def first_job(self, stream: StreamId, generation: int, lane: int) -> StreamJob:
        shards = self.current[stream].shards
        shard = Shard(lane, shards) if shards > 1 else None
        return self._job(stream, self.lane_stream(stream, generation, shard))

    def _job(self, stream: StreamId, lane: LaneStream) -> StreamJob:
        configured = self.current[stream].configured
        return StreamJob(configured=configured, lane=lane, schema=self.schemas[stream])

    def lane_stream(
        self, stream: StreamId, generation: int, shard: Shard | None = None
    ) -> LaneStream:
        known = self.current[stream]
        return LaneStream(
            stream=stream,
            disposition=known.disposition,
            schema_version=self.schemas[stream].version,
            generation=generation,
            fills_generation=known.configured.fills_generation,
            shard=shard,
        )


def _schema(columns: Sequence[str]) -> RowSchema:
    return RowSchema(tuple(_field(*c.partition(":")[::2]) for c in columns))


def _field(name: str, kind: str) -> Field:
    return Field(name, name, DataType(Kind(kind or "integer")))


def _planned_stream(
    scenario: Any, stream: StreamId, schema: RowSchema, lane: int, columns: tuple[str, ...]
) -> PlannedStream:
    mode: DestinationSyncMode = scenario.mode
    key = (("id",),) if mode is DestinationSyncMode.append_dedup else ()
    return PlannedStream(
        configured=ConfiguredStream(
            stream=Stream(
                id=stream,
                json_schema={"columns": list(columns)},
                is_resumable=scenario.resumable,
            ),
            sync_mode=scenario.sync_mode,
            destination_sync_mode=mode,
            primary_key=key,
        ),
        disposition=WriteDisposition(
            mode=mode, primary_key=key, cursor=("version",) if key else ()
        ),
        schema=schema,
        columns={},
        table=TableName(None, stream.name),
        lane=lane,
        deferred="held" if scenario.held else None,
        shards=scenario.shards,
    )


class SimSource:
    """What a source given these states says; an int at the end is its exit code. Its cursor is the
    position in the script; streams take turns, item by item. A version that was begun anew has
    another number in each epoch, where the scenario says ``renumber``."""

    def __init__(self, scenario: Any, start: LaneStart, known: Mapping[StreamId, Any]) -> None:
        self._scenario, self._epoch, self._lane = scenario, start.epoch, start.lane
        self._tries = start.tries
        names = scenario.records if scenario.open else [s.id.name for s in start.streams]
        self._streams = [StreamId(None, n) for n in names]
        self._known = known
        cursors = _cursors(scenario, start)
        self._at = {s: self._begin(s, cursors.get(s, 0)) for s in self._streams}
        saved = _versions(start)
        self._version: dict[StreamId, int | None] = {s: saved.get(s.name) for s in self._streams}

    def _items(self, stream: StreamId) -> list[Any]:
        """Of a stream that is divided, every so-manieth from this lane's on."""
        shards = self._scenario.shards
        return self._scenario.records[stream.name][self._lane if shards > 1 else 0 :: shards]

    def _in_force(self, stream: StreamId, kind: type[Any]) -> Any:
        passed = self._items(stream)[: self._at[stream]]
        return next((i for i in reversed(passed) if isinstance(i, kind)), None)

    def _begin(self, stream: StreamId, at: int) -> int:
        """A version that is not whole begins anew under another number."""
        if not self._scenario.renumber:
            return at
        passed = list(enumerate(self._items(stream)[:at]))
        for index, item in reversed(passed):
            if isinstance(item, Act):
                return at
            if isinstance(item, Ver):
                return index
        return at

    def _number(self, version: int) -> int:
        return version * 100 + (self._epoch if self._scenario.renumber else 0)

    def events(self) -> Iterator[Event | int]:
        scenario = self._scenario
        fails_after = self._fails_after()
        since = dict.fromkeys(self._streams, 0)
        said = dict.fromkeys(self._streams, 0)
        for stream in self._streams:
            yield from self._announced(stream)
        while left := [s for s in self._streams if self._at[s] < len(self._items(s))]:
            for stream in left:
                item = self._items(stream)[self._at[stream]]
                record = isinstance(item, tuple | Bad)
                if record and sum(said.values()) == scenario.fail_after:
                    yield 1
                    return
                if record and sum(said.values()) == fails_after:
                    of = scenario.transient_of
                    named = None if of is None else StreamId(None, of)
                    yield Error("reset by peer", "transient_error", named, retry=0.01)
                    if named is not None:
                        yield Error("some streams failed", "config_error")
                    yield 1
                    return
                self._at[stream] += 1
                said[stream] += record
                since[stream] += record
                yield from self._said(stream, item)
                ended = self._at[stream] == len(self._items(stream))
                due = record and since[stream] >= scenario.every
                if due or (ended and scenario.last_state):
                    since[stream] = 0
                    yield from self._state(stream)
                if ended and scenario.statuses:
                    yield StreamStatus(stream, Status.complete)
        for stream in self._streams:
            if scenario.statuses and not said[stream]:
                yield from self._state(stream)
                yield StreamStatus(stream, Status.complete)
        yield 0

    def _fails_after(self) -> int | None:
        tried = max((n for _, n in self._tries), default=0)
        after = self._scenario.transient
        return after[tried] if tried < len(after) else None

    def _announced(self, stream: StreamId) -> Iterator[Event]:
        new = self._in_force(stream, New)
        columns = self._scenario.first if new is None else new.columns
        told = self._known.get(stream)
        if told is None or tuple(told.configured.stream.json_schema["columns"]) != columns:
            yield Schema(stream, {"columns": list(columns)})

    def _said(self, stream: StreamId, item: Any) -> Iterator[Event]:
        match item:
            case New(columns):
                yield Schema(stream, {"columns": list(columns)})
            case Ver(number):
                self._version[stream] = self._number(number)
            case Act(number):
                version = self._version[stream] if number is None else self._number(number)
                yield Activate(stream, version or 0)
            case Declares():
                pass
            case _ if not isinstance(item, Bad) and (shows := self._in_force(stream, Declares)):
                yield Batch(stream, _columns(item, shows), [0], {}, 10, self._version[stream])
            case _:
                body = b"!" if isinstance(item, Bad) else json.dumps(item).encode()
                yield Batch(stream, [body], [0], {}, len(body), self._version[stream])

    def _state(self, stream: StreamId) -> Iterator[Event]:
        kind, at = self._scenario.state, self._at
        if self._scenario.no_states:
            return
        if kind is StateType.legacy:
            blob: dict[str, Any] = {
                "bookmarks": {s.name: {"at": n, "version": self._version[s]} for s, n in at.items()}
            }
            if self._scenario.position:
                blob["lsn"] = sum(at.values())
            yield State(StateScope(kind), json.dumps(blob))
            return

        def one(s: StreamId) -> dict[str, Any]:
            return {"stream_descriptor": {"name": s.name}, "stream_state": {"at": at[s]}}

        if kind is StateType.stream:
            message = {"type": "STREAM", "stream": one(stream)}
            yield State(StateScope(kind, stream), json.dumps(message))
            return
        position = {"lsn": sum(at.values())} if self._scenario.position else {}
        shared = {"shared_state": position, "stream_states": [*map(one, at)]}
        yield State(StateScope(kind), json.dumps({"type": "GLOBAL", "global": shared}))


def _columns(record: tuple[int, int], shows: Declares) -> Columns:
    names = ("id", "version", "x")
    fields = [pa.field(n, pa.int64(), nullable=n != "x" or not shows.x) for n in names]
    values = (*record, record[0] if shows.x else None)
    table = pa.table([[v] for v in values], schema=pa.schema(fields))
    return Columns(with_frame_types(table, {"x": "int32"} if shows.x else {}))


def positions(blobs: Sequence[str]) -> dict[str, int]:
    """What states claim, per stream."""
    found: dict[str, int] = {}
    for blob in blobs:
        message = json.loads(blob)
        if "bookmarks" in message:
            found |= {n: mark["at"] for n, mark in message["bookmarks"].items()}
            continue
        parts = (
            [message["stream"]]
            if message["type"] == "STREAM"
            else message["global"]["stream_states"]
        )
        for one in parts:
            if one.get("stream_state"):
                found[one["stream_descriptor"]["name"]] = one["stream_state"]["at"]
    return found


def _versions(start: LaneStart) -> dict[str, int | None]:
    marks = [json.loads(s.blob).get("bookmarks", {}) for s in start.states]
    return {name: mark["version"] for each in marks for name, mark in each.items()}


def _cursors(scenario: Any, start: LaneStart) -> dict[StreamId, int]:
    """Full refreshes go on only where they can resume."""
    if scenario.sync_mode is SyncMode.full_refresh and not scenario.resumable:
        return {}
    given = positions([s.blob for s in start.states])
    return {StreamId(None, name): at for name, at in given.items()}


class ScriptedLane(LaneEvents):
    """The real one's way with events; what it asks is answered between two events."""

    def __init__(self, epoch: int, jobs: Mapping[StreamId, StreamJob]) -> None:
        self._job: Any = SimpleNamespace(
            limit=None,
            shared_states=True,
            epoch=epoch,
            served=False,
            streams=(*jobs.values(),),
            secrets=(),
        )
        self._streams = StreamDecoders(self._job)
        self.read = dict.fromkeys(jobs, 0)
        self._bytes = dict.fromkeys(jobs, 0)
        self._counted: dict[str, int] = {}
        self._versions: dict[StreamId, int] = {}
        self._announced: dict[StreamId, int] = {}
        self._shown: set[StreamId] = set()
        self._event_log: Any = SimpleNamespace(log=lambda level, text: None)
        self.failures = EpochFailures()
        self.in_doubt: list[tuple[StreamId, str, str | None]] = []
        self._doubts: list[str] = []
        self._asked = 0
        self.waits_for: LaneQuestion | None = None
        self.told: list[StreamJob | PenstockError | None] = []

    def _asking(self, ask: LaneQuestion, sealer: Sealer) -> StreamJob | None:
        if not self.told:
            self.waits_for = ask
            raise _Unanswered
        self._asked = ask.number
        answer = self.told.pop()
        if isinstance(answer, PenstockError):
            raise answer
        return answer

    def took(self, event: Event, sealer: Sealer) -> bool:
        """False: take it again, an answer is missing."""
        if self.waits_for is not None:
            return False
        try:
            self.take(event, sealer)
        except _Unanswered:
            return False
        return True

    def schema(self, stream: StreamId) -> RowSchema:
        return self._streams.jobs[stream].schema


class SimHandle:
    """A lane that advances ``quantum`` events at each poll."""

    def __init__(self, world: Any, scenario: Any, planner: SimPlanner, start: LaneStart) -> None:
        self._world, self._scenario, self._start = world, scenario, start
        self._planner = planner
        self._result: LaneResult | None = None
        self._cancelled = False
        generations = dict(start.generations)
        planner.current.update({s.id: s for s in start.streams})
        jobs = {s.id: planner.first_job(s.id, generations[s.id], start.lane) for s in start.streams}
        self._lane = ScriptedLane(start.epoch, jobs)
        self._source = SimSource(scenario, start, jobs)
        self._steps = self._work([job.lane for job in jobs.values()])

    def poll(self) -> LaneResult | None:
        if self._result is not None:
            return self._result
        self._world.in_lane = True
        try:
            for _ in range(self._scenario.quantum):
                self._result = next(self._steps)
                if self._result is not None:
                    break
        except LaneLost:
            self._result = LaneResult(end=LaneEnd.lost)
        except LogError as e:  # another driver dropped the epoch under our feet
            self._result = LaneResult(end=LaneEnd.lost, errors=[e.as_dict()])
        finally:
            self._world.in_lane = False
        return self._result

    def ask(self) -> LaneQuestion | None:
        return self._lane.waits_for

    def answer(self, ask: LaneQuestion, answer: ContinuedStream | PenstockError | None) -> None:
        told = self._planner.continued(answer) if isinstance(answer, ContinuedStream) else answer
        self._lane.told, self._lane.waits_for = [told], None

    def cancel(self) -> None:
        self._cancelled = True

    def _work(self, streams: Sequence[LaneStream]) -> Iterator[LaneResult | None]:
        start = self._start
        self._world.log.claim(start.epoch, "sim")
        sealer = Sealer(
            self._world.log,
            epoch=start.epoch,
            lane=start.lane,
            streams=streams,
            decode=self._decode,
            clock=lambda: 0.0,
            bounds=LaneBounds(
                seal_bytes=self._scenario.seal_bytes, seal_seconds=1e9, part_bytes=40
            ),
        )
        for event in self._source.events():
            if isinstance(event, int):
                yield self._ended(sealer, LaneEnd.finished if event == 0 else LaneEnd.failed)
                return
            try:
                while not self._lane.took(event, sealer):
                    yield None
                    if self._cancelled:
                        break
            except PenstockError as e:
                yield self._ended(sealer, LaneEnd.failed, [e.as_dict()])
                return
            if self._cancelled:
                yield self._ended(sealer, LaneEnd.cancelled)
                return
            yield None

    def _ended(
        self, sealer: Sealer, end: LaneEnd, errors: list[dict[str, Any]] | None = None
    ) -> LaneResult:
        complete = sealer.finish(clean=end is LaneEnd.finished)
        settled = self._lane.failures.settle([s for s, c in complete.items() if not c])
        return LaneResult(
            end=end,
            complete=sorted(s for s, c in complete.items() if c),
            read=sorted(self._lane.read.items()),
            errors=[*(errors or []), *(e.as_dict() for e in settled.errors)],
            passing=[e.as_dict() for e in settled.passing],
            retries=settled.retries,
        )

    def _decode(
        self,
        stream: StreamId,
        bodies: Sequence[bytes],
        seq: int,
        times: Sequence[int],
        changes: Mapping[int, bytes],
    ) -> SimDecoded:
        first = (self._start.epoch << 40) + seq
        found = [None if bytes(b) == b"!" else json.loads(b) for b in bodies]
        schema = self._lane.schema(stream)
        for claimed in schema.required:
            assert all(b is None or b[claimed] is not None for b in found), (stream, schema)
        pairs = [(b["id"], b["version"]) if isinstance(b, dict) else b for b in found]
        good = Rows((*pair, first + i) for i, pair in enumerate(pairs) if pair is not None)
        good.schema = schema.version
        bad = tuple((i, "bad", None) for i, b in enumerate(bodies) if bytes(b) == b"!")
        return SimDecoded(good, bad)
