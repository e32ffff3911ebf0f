"""``engine.worker.transforms.barrier`` and ``engine.worker.transforms.connector``: what passes a
transform that is a connector, and when (L1, L2, L8); over scripts that answer as a protocol
would."""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest
from playing import playing

from penstock.codec.columns import Columns
from penstock.connectors.launch import Launch
from penstock.engine.log.memory import MemoryLog
from penstock.engine.log.rejects import decode_rejects
from penstock.engine.specs.lane import LaneBounds, LaneJob, LaneStream, StreamJob
from penstock.engine.worker.row_decoding import StreamDecoders
from penstock.engine.worker.sealer import Sealer
from penstock.engine.worker.transforms import connector
from penstock.engine.worker.transforms.barrier import STATE_BYTES, EventBarrier
from penstock.engine.worker.transforms.stages import Transforming
from penstock.errors import PenstockError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import (
    Batch,
    ConnectorExited,
    Error,
    Event,
    Reject,
    Schema,
    State,
    Status,
    StreamStatus,
    TransformColumns,
)
from penstock.model.segments import WriteDisposition
from penstock.model.state import StateScope, StateType
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.transforming import TransformedRows, TransformProgress, TransformRequest
from penstock.protocols.writing import END
from penstock.runtimes.contract import Component
from penstock.transforms.chain import (
    columns_by_output_name,
    output_schema,
    plan_chain,
    refitted_schema,
)
from penstock.transforms.contract import TransformJob

A, B = StreamId(None, "a"), StreamId(None, "b")
INTEGER, TEXT = DataType(Kind.integer), DataType(Kind.string)
SCHEMA = RowSchema((Field("id", "id", INTEGER), Field("note", "no te", DataType(Kind.json))))


def count(stream: StreamId, n: int) -> Batch:
    return Batch(stream, Columns(pa.table({})), [], stands_for=n)


def state(blob: str, stream: StreamId | None = A) -> State:
    kind = StateType.stream if stream is not None else StateType.global_
    return State(StateScope(kind, stream), blob)


def done(stream: StreamId = A) -> StreamStatus:
    return StreamStatus(stream, Status.complete)


def told(waiting: EventBarrier) -> list[str]:
    """What may pass: blobs, COMPLETE, and counts."""
    found: list[str] = []
    for event in waiting.ready():
        match event:
            case State():
                found.append(event.blob)
            case StreamStatus():
                found.append(f"{event.stream} done")
            case Batch():
                found.append(f"{event.stream}+{event.read}")
    return found


# -- the queue


def test_l1_state_waits_until_exactly_what_came_before_it_has_come_out() -> None:
    waiting = EventBarrier()
    waiting.fed(A, count(A, 10))
    waiting.state(state("s1"))
    waiting.came(A)
    assert told(waiting) == []
    waiting.through(A, 1)
    assert told(waiting) == ["a+10", "s1"]


def test_l2_state_that_later_rows_have_overtaken_gives_way_to_the_next_one() -> None:
    """Rows after s1 have passed: under s1 they would be read again, and be there twice."""
    waiting = EventBarrier()
    waiting.fed(A, count(A, 10))
    waiting.state(state("s1"))
    waiting.fed(A, count(A, 5))
    waiting.came(A)
    waiting.through(A, 2)
    assert told(waiting) == ["a+10"]
    waiting.state(state("s2"))
    assert told(waiting) == ["a+5", "s2"]


def test_l2_last_state_passes_at_the_end_and_leaves_what_came_after_it_uncovered() -> None:
    waiting = EventBarrier()
    waiting.fed(A, count(A, 10))
    waiting.state(state("s1"))
    waiting.fed(A, count(A, 5))
    waiting.status(done())
    waiting.came(A)
    assert told(waiting) == []
    waiting.ended(A)
    assert told(waiting) == ["a+10", "s1", "a+5", "a done"]
    assert waiting.empty()


def test_streams_do_not_wait_for_each_other_but_a_shared_state_waits_for_all() -> None:
    waiting = EventBarrier()
    waiting.fed(A, count(A, 1))
    waiting.fed(B, count(B, 2))
    waiting.state(state("a1", A))
    waiting.state(state("b1", B))
    waiting.state(state("all", None))
    waiting.ended(B)
    assert told(waiting) == ["b+2", "b1"]
    waiting.ended(A)
    assert told(waiting) == ["a+1", "a1", "all"]


def test_l1_shared_state_does_not_pass_over_rows_of_a_stream_that_began_after_it() -> None:
    waiting = EventBarrier()
    waiting.fed(A, count(A, 1))
    waiting.state(state("all", None))
    waiting.fed(B, count(B, 1))
    waiting.came(B)
    waiting.ended(A)
    assert told(waiting) == ["a+1"]
    waiting.ended(B)
    waiting.over()
    assert told(waiting) == ["all", "b+1"]


def test_l1_nothing_that_covers_a_failed_stream_passes_now_or_later() -> None:
    waiting = EventBarrier()
    waiting.fed(A, count(A, 1))
    waiting.fed(B, count(B, 1))
    waiting.state(state("a1", A))
    waiting.state(state("all", None))
    waiting.state(state("b1", B))
    waiting.status(done(A))
    waiting.failed(A)
    assert told(waiting) == ["a+1"]
    waiting.state(state("a2", A))
    waiting.state(state("all2", None))
    waiting.status(done(A))
    waiting.status(done(B))
    waiting.ended(B)
    assert told(waiting) == ["b+1", "b1", "b done"]
    assert waiting.empty()


def test_states_that_wait_are_bounded_and_the_newest_of_each_scope_is_kept() -> None:
    waiting = EventBarrier()
    waiting.fed(A, count(A, 1))
    waiting.state(state("b", B))
    for n in range(20):
        waiting.state(state(f"{n} " + "x" * (STATE_BYTES // 8)))
    waiting.ended(A)
    found = told(waiting)
    assert found[:2] == ["a+1", "b"] and found[-1].startswith("19 ") and len(found) < 13


def test_counts_of_many_states_are_joined_and_all_are_given() -> None:
    waiting = EventBarrier()
    for n in range(2000):
        waiting.fed(A, count(A, 1))
        waiting.fed(B, count(B, 1))
        waiting.state(state(f"a{n}", A))
        assert told(waiting) == []
    waiting.ended(B)
    assert told(waiting) == ["b+2000"]
    waiting.ended(A)
    found = told(waiting)
    assert found[-1] == "a1999"
    assert sum(int(f.removeprefix("a+")) for f in found if "+" in f) == 2000
    assert waiting.empty()


def kept(stream: StreamId, number: int, place: str = "t") -> Batch:
    return Batch(stream, Columns(pa.table({})), [], stands_for=0, keys=((place, number),))


def test_l1_what_a_transform_kept_goes_before_the_state_that_covers_its_rows() -> None:
    """And apart from what the source kept, which comes with the source's state."""
    for stream in (A, None):
        waiting = EventBarrier()
        waiting.fed(A, count(A, 1))
        own = state("s1", stream)
        own.keys = 3
        waiting.state(own)
        waiting.fed(A, count(A, 1))
        waiting.through(A, 1)
        waiting.kept(kept(A, 7))
        first, passed = waiting.ready()
        assert isinstance(first, Batch) and (first.read, first.keys) == (1, (("t", 7),))
        assert isinstance(passed, State) and passed.keys == 3


def test_l1_what_a_transform_kept_goes_behind_a_state_that_covers_less() -> None:
    waiting = EventBarrier()
    waiting.fed(A, count(A, 1))
    waiting.fed(B, count(B, 1))
    waiting.state(state("all", None))
    waiting.fed(A, count(A, 1))
    waiting.status(done())
    waiting.ended(A)
    waiting.kept(kept(A, 7))
    assert told(waiting) == ["a+1"]
    waiting.ended(B)
    waiting.over()
    passed = waiting.ready()
    keys = [e.keys for e in passed if isinstance(e, Batch) and e.stream == A]
    assert isinstance(passed[1], State) and keys == [(("t", 7),)]
    assert isinstance(passed[-1], StreamStatus)


def test_l8_counts_that_are_joined_lose_no_place_and_keep_the_newest_keys() -> None:
    waiting = EventBarrier()
    waiting.fed(A, count(A, 5))
    waiting.through(A, 1)
    waiting.fed(A, count(A, 6))
    for place, number in (("t", 2), ("u", 9), ("t", 4)):
        waiting.kept(kept(A, number, place))
    assert waiting.ready() == [], "counted once all of its tables are through"
    waiting.through(A, 2)
    (one,) = waiting.ready()
    assert isinstance(one, Batch) and (one.read, one.keys) == (11, (("t", 4), ("u", 9)))


def test_l1_nothing_is_kept_of_rows_that_are_lost() -> None:
    waiting = EventBarrier()
    waiting.fed(A)
    lost = count(A, 1)
    lost.keys = (("before", 3),)
    waiting.read(lost)
    waiting.failed(A)
    (passed,) = waiting.ready()
    assert isinstance(passed, Batch) and (passed.read, passed.keys) == (1, ())


# -- columns


def test_column_called_as_one_that_went_in_keeps_its_original_name_and_what_its_text_is() -> None:
    came = RowSchema(
        (Field("note", "note", TEXT), Field("new one", "new one", INTEGER), Field("id", "id", TEXT))
    )
    made = output_schema(SCHEMA, came)
    assert made.fields[0] == Field("note", "no te", DataType(Kind.json))
    assert made.fields[1].source == "new one" and made.fields[1].name != ""
    assert made.fields[2] == Field("id", "id", TEXT)
    assert set(columns_by_output_name(SCHEMA, made)) == {"note", "new one", "id"}
    assert refitted_schema(SCHEMA, made, came, first=True) is None


def test_first_rows_say_what_the_columns_are_and_later_ones_may_lack_some() -> None:
    only = RowSchema((Field("id", "id", INTEGER),))
    assert refitted_schema(SCHEMA, SCHEMA, only, first=True) == only
    assert refitted_schema(SCHEMA, SCHEMA, only, first=False) is None
    wider = RowSchema((Field("id", "id", TEXT), Field("x", "x", TEXT)))
    found = refitted_schema(SCHEMA, SCHEMA, wider, first=False)
    assert found is not None
    assert {f.name: f.type for f in found.fields} == {
        "note": DataType(Kind.json), "id": TEXT, "x": TEXT
    }  # fmt: skip


def component(number: int = 0) -> TransformJob:
    launch = Launch(
        protocol="rapidbyte", role="transform", component=Component(path="x", digest="y")
    )
    return TransformJob(
        use="./x.wasm",
        config={},
        where=f"transforms[{number}]",
        place=f"transform:{number}",
        launch=msgspec.to_builtins(launch),
    )


def sql(query: str) -> TransformJob:
    return TransformJob(use="transform-sql", config={"query": query}, where="transforms[1]")


def configured(stream: StreamId = A, *, key: bool = False) -> ConfiguredStream:
    mode = DestinationSyncMode.append_dedup if key else DestinationSyncMode.append
    return ConfiguredStream(
        stream=Stream(id=stream, json_schema={}),
        sync_mode=SyncMode.full_refresh,
        destination_sync_mode=mode,
        primary_key=(("id",),) if key else (),
    )


def test_chain_is_planned_by_outlines_and_replanned_by_what_rows_have_shown() -> None:
    """A later transform is asked anew, an earlier one stays what it was."""
    asked: list[tuple[str, list[str]]] = []

    def outline(job: TransformJob, _: ConfiguredStream, given: RowSchema) -> RowSchema | None:
        asked.append((job.place, [f.name for f in given.fields]))
        more = Field("x", "x", TEXT)
        return RowSchema((*given.fields, more)) if job.place == "transform:0" else None

    chain = [component(0), sql("SELECT id, x FROM input"), component(2)]
    first = plan_chain(chain, SCHEMA, configured(), outline=outline)
    assert [f.name for f in first.schema.fields] == ["id", "x"]
    assert asked == [("transform:0", ["id", "note"]), ("transform:2", ["id", "x"])]
    showed = TransformColumns(1, RowSchema((Field("id", "id", TEXT),)))
    asked.clear()
    again = plan_chain(chain, SCHEMA, configured(), outline=outline, before=first, showed=showed)
    assert again.made[0] == first.made[0] and again.schema.fields == (Field("id", "id", TEXT),)
    assert asked == []
    wider = RowSchema((*SCHEMA.fields, Field("late", "late", TEXT)))
    before = plan_chain(
        [component(0)], SCHEMA, configured(), showed=TransformColumns(0, showed.columns)
    )
    quiet = plan_chain([component(0)], wider, configured(), before=before)
    assert [f.name for f in quiet.schema.fields] == ["id", "late"], "what it dropped stays away"


# -- a stage over a scripted transform

Script = Callable[[Iterator[Any]], Iterator[Any]]


class Scripted:
    """A transform whose runs are scripts."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[TransformRequest] = []

    def apply(self, request: TransformRequest, feed: Iterator[Any], keys: Any) -> Iterator[Any]:
        del keys
        self.requests.append(request)
        return self.script(feed)


def handing_on(feed: Iterator[Any]) -> Iterator[Any]:
    for table in feed:
        yield TransformedRows(table, table.nbytes)
    yield TransformProgress(END)


Stage = Callable[..., list[Event]]


@pytest.fixture
def run() -> Callable[..., list[Event]]:
    """``run(script, events, after=[...])``: the events that come of these."""

    def made(
        script: Script,
        events: Iterable[Event],
        *,
        after: list[TransformJob] | None = None,
        heard: Callable[[Event, StreamDecoders], None] | None = None,
        limit: int | None = None,
    ) -> list[Event]:
        chain = (component(0), *(after or []))
        job = job_of(chain, limit)
        streams = StreamDecoders(job)
        through = Transforming(job, streams, playing(Scripted(script).apply))
        out: list[Event] = []
        for event in through.events(iter(events)):
            if heard is not None:
                heard(event, streams)
            out.append(event)
        return out

    return made


def job_of(
    chain: tuple[TransformJob, ...], limit: int | None = None, *, key: bool = False
) -> LaneJob:
    def stream(name: StreamId) -> StreamJob:
        wanted = configured(name, key=key)
        plan = plan_chain(chain, SCHEMA, wanted)
        disposition = WriteDisposition(mode=wanted.destination_sync_mode)
        lane = LaneStream(
            stream=name,
            disposition=disposition,
            schema_version=1,
            generation=0,
            fills_generation=False,
        )
        return StreamJob(
            configured=wanted, lane=lane, schema=plan.schema, given=SCHEMA, made=plan.made,
            key=wanted.primary_key,
        )  # fmt: skip

    return LaneJob(
        run="r", lane=0, epoch=1, log_root="", protocol="airbyte", launch={}, config={},
        config_hash="", streams=(stream(A), stream(B)), transforms=chain, limit=limit,
    )  # fmt: skip


def records(first: int, last: int, stream: StreamId = A) -> Batch:
    bodies = [b'{"id":%d,"no te":{"n":%d}}' % (n, n) for n in range(first, last + 1)]
    return Batch(stream, bodies, [1000] * len(bodies), size=sum(map(len, bodies)))


def ids(events: list[Event], stream: StreamId = A) -> list[int]:
    tables = [e.bodies for e in events if isinstance(e, Batch) and e.stream == stream]
    found = [t.table for t in tables if isinstance(t, Columns) and len(t)]
    return [n for t in found for n in t.column("id").to_pylist()]


def read(events: list[Event], stream: StreamId = A) -> int:
    rejects = sum(e.records or 0 for e in events if isinstance(e, Reject) and e.stream == stream)
    return rejects + sum(e.read for e in events if isinstance(e, Batch) and e.stream == stream)


def named(events: list[Event]) -> list[str]:
    """The order of states, ends and rows."""
    found: list[str] = []
    for event in events:
        match event:
            case State():
                found.append(event.blob)
            case StreamStatus():
                found.append(f"{event.stream} {event.status.value}")
            case Batch() if len(event.bodies):
                found.append(f"{len(event.bodies)} rows")
            case Error():
                found.append("error")
            case ConnectorExited():
                found.append(f"exit {event.code}")
            case _:
                pass
    return found


def test_l1_states_pass_when_all_rows_before_them_have_come_out(run: Stage) -> None:
    def at_the_end(feed: Iterator[Any]) -> Iterator[Any]:
        tables = list(feed)
        yield from (TransformedRows(t, t.nbytes) for t in tables)
        yield TransformProgress(END)

    events = run(
        at_the_end,
        [records(1, 3), state("s1"), records(4, 5), state("s2"), done(), ConnectorExited(0)],
    )
    assert named(events) == ["3 rows", "2 rows", "s2", "a COMPLETE", "exit 0"]
    assert ids(events) == [1, 2, 3, 4, 5] and read(events) == 5


def test_text_and_original_names_come_back_as_they_went_in(run: Stage) -> None:
    events = run(handing_on, [records(1, 1), done(), ConnectorExited(0)])
    batch = next(e for e in events if isinstance(e, Batch) and len(e.bodies))
    assert batch.bodies.table.to_pylist() == [{"id": 1, "no te": '{"n":1}'}]  # type: ignore[attr-defined]
    assert list(batch.extracted_at) == [1000] and batch.stands_for == 0


def test_stream_that_fails_is_told_with_its_place_and_others_go_on(run: Stage) -> None:
    def failing(feed: Iterator[Any]) -> Iterator[Any]:
        table = next(feed)
        if table.column("id")[0].as_py() == 1:
            yield TransformedRows(table, table.nbytes)
            yield Error("no more", "data", A, {"code": "NO_MORE"}, 1.5)
            return
        yield TransformedRows(table, table.nbytes)
        yield from handing_on(feed)

    source = [
        records(1, 2), state("a1"), records(3, 4), done(A),
        records(50, 51, B), state("b1", B), done(B), ConnectorExited(0),
    ]  # fmt: skip
    events = run(failing, source)
    (error,) = [e for e in events if isinstance(e, Error)]
    assert error.message == "transforms[0]: no more" and error.stream == A and error.retry == 1.5
    told = [n for n in named(events) if "rows" not in n]
    assert [n for n in told if not n.startswith("b")] == ["error", "a INCOMPLETE", "exit 0"]
    assert [n for n in told if n.startswith("b")] == ["b1", "b COMPLETE"]  # in its own time
    assert told[-1] == "exit 0" and ids(events, B) == [50, 51]


@pytest.mark.parametrize("end", [StreamStatus(A, Status.incomplete), ConnectorExited(1)])
def test_source_that_fails_is_never_an_end_to_the_transform(run: Stage, end: Event) -> None:
    """Section 3.3: ``next-batch`` gives an error; what waited is dropped (L1)."""
    met: list[str] = []
    emitted = threading.Event()

    def waiting(feed: Iterator[Any]) -> Iterator[Any]:
        try:
            for table in feed:
                yield TransformedRows(table, table.nbytes)
                emitted.set()
            met.append("end")
        except Exception as e:
            met.append(type(e).__name__)
        yield TransformProgress(END)

    def source() -> Iterator[Event]:
        yield from [records(1, 2), state("s1")]
        assert emitted.wait(60)
        yield from [end] if isinstance(end, ConnectorExited) else [end, ConnectorExited(1)]

    events = run(waiting, source())
    assert met == ["FeedFailed"]
    assert "s1" not in named(events) and "a COMPLETE" not in named(events)


def test_l7_stream_that_had_ended_keeps_its_end_when_the_source_then_fails(run: Stage) -> None:
    def slow(feed: Iterator[Any]) -> Iterator[Any]:
        tables = list(feed)
        time.sleep(0.3)
        yield from (TransformedRows(t, t.nbytes) for t in tables)
        yield TransformProgress(END)

    source = [records(1, 2), state("all", None), done(), records(1, 2, B), ConnectorExited(1)]
    assert [n for n in named(run(slow, source)) if "rows" not in n] == ["a COMPLETE", "exit 1"]


def test_l8_dead_letters_are_among_the_records_that_were_read(run: Stage) -> None:
    def picky(feed: Iterator[Any]) -> Iterator[Any]:
        for table in feed:
            yield Reject(A, "not liked", b'{"id":1}')
            yield TransformedRows(table.slice(1), table.nbytes)
        yield TransformProgress(END)

    events = run(picky, [records(1, 3), records(4, 6), done(), ConnectorExited(0)])
    assert sum(isinstance(e, Reject) for e in events) == 2
    assert read(events) == 6 and ids(events) == [2, 3, 5, 6]


class Account(NamedTuple):
    """Of stream A, as sealed. ``told``: records that the lane's progress counts."""

    read: int
    committed: int
    rejected: int
    filtered: int
    lines: int
    rows: int
    told: int


Sealed = Callable[..., Account]


@pytest.fixture
def sealed() -> Sealed:
    """What a sealer makes of a lane whose transforms, ``components`` of them, are one script."""

    def made(
        script: Script, events: list[Event], *, components: int = 1, how: str = "dlq",
        key: bool = False, after: Sequence[TransformJob] = (),
    ) -> Account:  # fmt: skip
        connect = playing(Scripted(script).apply)
        job = job_of((*(component(n) for n in range(components)), *after), key=key)
        streams, log = StreamDecoders(job), MemoryLog()
        sealer = Sealer(
            log, epoch=1, lane=0, streams=[s.lane for s in job.streams], decode=streams.decode,
            clock=lambda: 0.0, bounds=LaneBounds(seal_bytes=1), on_data_error=how,
        )  # fmt: skip
        out: list[Event] = []
        for event in Transforming(job, streams, connect).events(iter(events)):
            out.append(event)
            match event:
                case Batch():
                    sealer.batch(event)
                case Reject():
                    sealer.reject(event)
                case State():
                    sealer.state(event)
                case StreamStatus():
                    sealer.status(event)
                case _:
                    pass
        sealer.finish(clean=True)
        slices = [s for segment in log.segments() for s in segment.slices if s.stream == A]
        assert all(s.read >= s.rejected + s.filtered for s in slices)
        total = sum(s.read for s in slices)
        rejected, filtered = sum(s.rejected for s in slices), sum(s.filtered for s in slices)
        return Account(
            total, total - rejected - filtered, rejected, filtered,
            sum(len(list(decode_rejects(raw))) for raw in log.rejects.values()),
            sum(s.rows for s in slices), read(out),
        )  # fmt: skip

    return made


def three_letters_a_row(feed: Iterator[Any]) -> Iterator[Any]:
    """And a checkpoint after each table, of which the even rows are handed on."""
    for n, table in enumerate(feed):
        for row in table.column("id").to_pylist():
            for letter in range(3):
                yield Reject(A, f"letter {letter}", b'{"id":%d}' % row)
        even = table.filter(pa.array([row % 2 == 0 for row in table.column("id").to_pylist()]))
        yield TransformedRows(even, even.nbytes)
        yield TransformProgress(n + 1)
    yield TransformProgress(END)


@pytest.mark.parametrize("how", ["dlq", "skip"])
def test_l8_more_dead_letters_than_records_count_no_more_than_were_read(
    sealed: Sealed, how: str
) -> None:
    given = [records(1, 3), state("s1"), records(4, 4), records(5, 8), state("s2"), done(),
             ConnectorExited(0)]  # fmt: skip
    lost = (8, 0) if how == "dlq" else (0, 8)
    lines = 24 if how == "dlq" else 0
    assert sealed(three_letters_a_row, given, how=how) == (8, 0, *lost, lines, 4, 8)


def test_l8_dead_letters_of_two_components_in_a_row_count_no_more_than_were_read(
    sealed: Sealed,
) -> None:
    given = [records(1, 3), state("s1"), records(4, 8), state("s2"), done(), ConnectorExited(0)]
    assert sealed(three_letters_a_row, given, components=2) == (8, 0, 8, 0, 36, 4, 8)


def test_l8_rows_without_a_key_behind_two_components_count_no_more_than_were_read(
    sealed: Sealed,
) -> None:
    def without(feed: Iterator[Any]) -> Iterator[Any]:
        for table in feed:
            bare = table.set_column(0, "id", pa.nulls(table.num_rows, pa.int64()))
            both = pa.concat_tables([bare, bare])
            yield TransformedRows(both, both.nbytes)
        yield TransformProgress(END)

    given = [records(1, 2), Batch(A, [b"[1]"], [1], size=3), state("s"), done(), ConnectorExited(0)]
    assert sealed(without, given, components=2, key=True) == (3, 0, 3, 0, 9, 0, 3)


def test_l8_one_dead_letter_leaves_the_other_records_committed(sealed: Sealed) -> None:
    def picky(feed: Iterator[Any]) -> Iterator[Any]:
        for table in feed:
            yield Reject(A, "not liked", b'{"id":1}')
            yield TransformedRows(table.slice(1), table.nbytes)
        yield TransformProgress(END)

    given = [records(1, 3), records(4, 6), done(), ConnectorExited(0)]
    assert sealed(picky, given) == (6, 4, 2, 0, 2, 4, 6)


def leaving_out(*ids: int, letters: tuple[int, ...] = ()) -> Script:
    """Hands rows on but those of ``ids``; those of ``letters`` become dead letters."""

    def script(feed: Iterator[Any]) -> Iterator[Any]:
        for table in feed:
            found = table.column("id").to_pylist()
            for row in found:
                if row in letters:
                    yield Reject(A, "not liked", b'{"id":%d}' % row)
            left = table.filter(pa.array([row not in (*ids, *letters) for row in found]))
            yield TransformedRows(left, left.nbytes)
        yield TransformProgress(END)

    return script


SIX = [records(1, 3), state("s1"), records(4, 6), state("s2"), done(), ConnectorExited(0)]


def test_l8_records_that_a_component_leaves_out_are_filtered(sealed: Sealed) -> None:
    assert sealed(leaving_out(1, 2, 4, 5), SIX) == (6, 2, 0, 4, 0, 2, 6)
    assert sealed(leaving_out(*range(1, 7)), SIX) == (6, 0, 0, 6, 0, 0, 6)
    assert sealed(leaving_out(), SIX) == (6, 6, 0, 0, 0, 6, 6)


def test_l8_dead_letters_are_not_left_out_too(sealed: Sealed) -> None:
    assert sealed(leaving_out(1, 4, letters=(2, 6)), SIX) == (6, 2, 2, 2, 2, 2, 6)
    # the second component is given two rows and takes both
    assert sealed(leaving_out(1, 4, letters=(2, 6)), SIX, components=2) == (6, 2, 2, 2, 2, 2, 6)


def test_l8_what_answers_table_by_table_is_counted_so(sealed: Sealed) -> None:
    """As an enrichment does."""

    def every_second(feed: Iterator[Any]) -> Iterator[Any]:
        for n, table in enumerate(feed):
            left = table.filter(pa.array([row % 2 == 0 for row in table.column("id").to_pylist()]))
            yield TransformedRows(left, left.nbytes)
            yield TransformProgress(n + 1)
        yield TransformProgress(END)

    assert sealed(every_second, SIX) == (6, 3, 0, 3, 0, 3, 6)
    assert sealed(every_second, SIX, components=2) == (6, 3, 0, 3, 0, 3, 6)


def test_l8_joined_and_multiplied_rows_hide_what_is_left_out(sealed: Sealed) -> None:
    def twice(feed: Iterator[Any]) -> Iterator[Any]:
        for table in feed:
            both = pa.concat_tables([table.slice(1), table.slice(1)])
            yield TransformedRows(both, both.nbytes)
        yield TransformProgress(END)

    assert sealed(twice, SIX) == (6, 6, 0, 0, 0, 8, 6)

    def at_the_end(feed: Iterator[Any]) -> Iterator[Any]:
        last = pa.concat_tables([*feed]).slice(0, 4)
        yield TransformedRows(last, last.nbytes)
        yield TransformProgress(END)

    assert sealed(at_the_end, SIX) == (6, 4, 0, 2, 0, 4, 6)


@pytest.mark.parametrize(
    ("query", "account"),
    [
        ("SELECT id FROM input WHERE id > 4", (6, 2, 0, 4, 0, 2, 6)),
        ("SELECT max(id) AS id FROM input", (6, 4, 0, 2, 0, 2, 6)),  # as of any joined rows
        ("SELECT id FROM input WHERE id > 9", (6, 0, 0, 6, 0, 0, 6)),
    ],
)
def test_l8_what_a_query_after_a_component_leaves_out_is_filtered(
    sealed: Sealed, query: str, account: tuple[int, ...]
) -> None:
    assert sealed(leaving_out(1, 4), SIX, after=[sql(query)]) == account


def test_l8_record_that_is_none_is_a_reject_before_the_transform_sees_it(run: Stage) -> None:
    bad = Batch(A, [b"[1]", b'{"id":2}'], [1, 1], size=10)
    events = run(handing_on, [bad, done(), ConnectorExited(0)])
    assert sum(isinstance(e, Reject) for e in events) == 1
    assert read(events) == 2 and ids(events) == [2]


def test_built_in_transforms_work_behind_it_and_counts_stay_the_sources(run: Stage) -> None:
    rules = {"rules": [{"assert_range": {"field": "id", "max": 4}}]}
    after = [
        TransformJob(use="transform-validate", config=rules, where="transforms[1]"),
        sql("SELECT id FROM input WHERE id > 1"),
    ]
    events = run(handing_on, [records(1, 3), records(4, 6), state("s"), done(), ConnectorExited(0)],
                 after=after)  # fmt: skip
    assert ids(events) == [2, 3, 4] and read(events) == 6
    assert named(events)[-3:] == ["s", "a COMPLETE", "exit 0"]


def test_two_components_in_a_row_hold_a_state_until_both_are_through(run: Stage) -> None:
    events = run(
        handing_on, [records(1, 3), state("s"), done(), ConnectorExited(0)], after=[component(1)]
    )
    assert named(events) == ["3 rows", "s", "a COMPLETE", "exit 0"]
    assert read(events) == 3


def test_rows_that_do_not_fit_ask_how_the_stream_goes_on_before_they_pass(run: Stage) -> None:
    def other(feed: Iterator[Any]) -> Iterator[Any]:
        for table in feed:
            made = pa.table({"id": table.column("id").cast(pa.string()), "New": table.column("id")})
            yield TransformedRows(made, made.nbytes)
        yield TransformProgress(END)

    def answered(event: Event, streams: StreamDecoders) -> None:
        if isinstance(event, Schema):
            assert event.showed is not None
            job = streams.jobs[A]
            made = output_schema(SCHEMA, event.showed.columns)
            streams.learn(msgspec.structs.replace(job, schema=made, made=(made,)))

    events = run(other, [records(1, 1), records(2, 2), done(), ConnectorExited(0)], heard=answered)
    (asked,) = [e for e in events if isinstance(e, Schema)]
    assert asked.showed is not None and asked.showed.number == 0
    assert [f.name for f in asked.showed.columns.fields] == ["id", "New"]
    assert events.index(asked) < next(i for i, e in enumerate(events) if isinstance(e, Batch))
    assert ids(events) == ["1", "2"]


def test_l9_a_column_without_values_has_the_type_that_is_planned(run: Stage) -> None:
    """Arrow's type ``null``, which writers give a column of NULL alone."""

    def forgetting(feed: Iterator[Any]) -> Iterator[Any]:
        for table in feed:
            made = table.set_column(0, "id", pa.nulls(table.num_rows))
            yield TransformedRows(made, made.nbytes)
        yield TransformProgress(END)

    events = run(forgetting, [records(1, 1), done(), ConnectorExited(0)])
    assert not [e for e in events if isinstance(e, Schema)]
    assert [b.bodies.table.num_rows for b in events if isinstance(b, Batch) and len(b.bodies)] == [
        1
    ]


def test_versions_of_a_stream_are_never_in_one_run(run: Stage) -> None:
    def batch(first: int, last: int, version: int) -> Batch:
        made = records(first, last)
        made.version = version
        return made

    events = run(handing_on, [batch(1, 2, 1), batch(3, 4, 2), state("s"), ConnectorExited(0)])
    versions = [e.version for e in events if isinstance(e, Batch) and len(e.bodies)]
    assert versions == [1, 2] and named(events)[-2:] == ["s", "exit 0"]


def test_limit_ends_a_run_once_enough_was_fed(run: Stage) -> None:
    source = [*(records(n, n) for n in range(1, 50)), ConnectorExited(0)]
    events = run(handing_on, source, limit=5)
    assert ids(events) == [1, 2, 3, 4, 5] and read(events) == 49


def test_l11_back_pressure_holds_the_source_back_and_nothing_is_lost(
    run: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "QUEUED_BYTES", 4096)
    monkeypatch.setattr(connector, "_LEAST_QUEUED", 512)
    pulled: list[int] = []

    def slow(feed: Iterator[Any]) -> Iterator[Any]:
        for n, table in enumerate(feed):
            if n < 20:
                time.sleep(0.01)
                assert len(pulled) < n + 25
            for _ in range(3):
                yield TransformedRows(table, table.nbytes)
        yield TransformProgress(END)

    def source() -> Generator[Event]:
        for n in range(60):
            pulled.append(n)
            yield records(n * 10, n * 10 + 9)
        yield done()
        yield ConnectorExited(0)

    events = run(slow, source())  # type: ignore[arg-type]
    assert len(ids(events)) == 1800 and read(events) == 600
    assert not any(isinstance(e, Error) for e in events)


def test_more_streams_at_the_same_time_than_instances_are_an_error_with_advice(
    run: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "MOST_RUNS", 1)
    with pytest.raises(PenstockError) as raised:
        run(handing_on, [records(1, 1), records(1, 1, B), ConnectorExited(0)])
    assert raised.value.code == "transform.too_many_streams" and raised.value.hint


def test_closing_the_events_ends_the_runs() -> None:
    met: list[str] = []

    def waiting(feed: Iterator[Any]) -> Iterator[Any]:
        try:
            for _ in feed:
                pass
        except Exception as e:
            met.append(type(e).__name__)
        yield TransformProgress(END)

    job = job_of((component(0),))
    through = Transforming(job, StreamDecoders(job), playing(Scripted(waiting).apply))
    events = through.events(iter([records(1, 1), state("s"), state("t")]))
    next(events, None)
    began = time.monotonic()
    events.close()
    assert met == ["FeedFailed"]
    assert time.monotonic() - began < 5
