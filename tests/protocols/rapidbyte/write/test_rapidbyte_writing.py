"""The destination role over a real component: many streams, exact acks, failures, rejects."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import rapidbyte_guests

from penstock.byte_queue import TooLong
from penstock.codec.arrow import part_schema
from penstock.config.sections import Limits
from penstock.connectors.launch import Launch
from penstock.engine.channel.feeder_mail import PushMail
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.log.log import FileLog
from penstock.engine.log.rejects import decode_rejects
from penstock.engine.specs.feeder import FeedOrder, PushEnd, PushJob
from penstock.engine.worker.feeder import run_push
from penstock.errors import LogError
from penstock.model.catalog import (
    ConfiguredStream,
    ConnectorSpec,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import (
    ConnectorExited,
    ConnectorMetrics,
    Error,
    LogEvent,
    Reject,
    SkippedItems,
    Tick,
)
from penstock.model.segments import Segment, SegmentId, StreamSlice, WriteDisposition
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.failures import failed
from penstock.protocols.rapidbyte.destination import RapidbyteDestination
from penstock.protocols.rapidbyte.guest.component import open_component
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.write import answers, run_pool, write_context, writer
from penstock.protocols.rapidbyte.write.ack_tracker import AckTracker
from penstock.protocols.rapidbyte.write.frame_encoder import FrameEncoder
from penstock.protocols.writing import (
    Ack,
    Acks,
    Answer,
    Feed,
    Rows,
    StateMark,
    StreamDone,
    WriteRequest,
    WriteStream,
)
from penstock.runtimes.contract import Component, RunTimeouts
from penstock.runtimes.wasm.component import ComponentRuntime, digest_of
from penstock.store.keys import KeyAddress, MemoryKeys

A, B, C = (StreamId(None, name) for name in ("a", "b", "c"))
APPEND, REPLACE = DestinationSyncMode.append, DestinationSyncMode.overwrite
UPSERT = DestinationSyncMode.append_dedup
ID = RowSchema((Field("id", "Id", DataType(Kind.integer)),), 1)
DESTINATION = RapidbyteDestination()
MANIFEST: dict[str, Any] = {
    "id": "them/sink",
    "name": "Sink",
    "version": "1",
    "protocol_version": "4",
    "roles": {"destination": {"supported_write_modes": [{"mode": "append"}, {"mode": "upsert"}]}},
}


def stream(
    of: StreamId,
    mode: DestinationSyncMode = APPEND,
    schema: RowSchema = ID,
    key: tuple[tuple[str, ...], ...] = (),
    target: StreamId | None = None,
) -> WriteStream:
    return WriteStream(
        configured=ConfiguredStream(
            stream=Stream(id=of, json_schema={}),
            sync_mode=SyncMode.incremental,
            destination_sync_mode=mode,
            cursor_field=("Id",),
            primary_key=key,
        ),
        target=target or of,
        schemas={schema.version: schema},
        latest=schema.version,
    )


def batch(schema: RowSchema, columns: dict[str, list[Any]]) -> Any:
    count = len(next(iter(columns.values())))
    whole = part_schema(schema)
    arrays = [
        pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(count, f.type)
        for f in whole
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=whole)


def rows(of: StreamId, *ids: int, version: int = 1) -> Rows:
    return Rows(of, version, batch(ID, {"id": list(ids)}))


def mark(seq: int, of: StreamId | None = None) -> StateMark:
    scope = StateScope(StateType.global_ if of is None else StateType.stream, of)
    return StateMark(seq, StoredState(scope, "{}"))


@dataclass
class Seen:
    """Every answer but ticks, and what the guest said of itself, in order."""

    answers: list[Answer] = field(default_factory=list[Answer])

    @property
    def story(self) -> list[str]:
        """``take``, ``commit`` and ``rollback`` lines and acks."""
        told = (_told(a) for a in self.answers)
        return [t for t in told if t is not None]

    def of(self, kind: type) -> list[Any]:
        return [a for a in self.answers if isinstance(a, kind)]

    @property
    def acks(self) -> list[int]:
        return [a.seq for a in self.of(Ack)]

    @property
    def exit(self) -> int | None:
        (last,) = self.of(ConnectorExited)
        assert self.answers[-1] is last
        return last.code

    def frames(self, name: str) -> list[Any]:
        said = [a.message for a in self.of(LogEvent) if a.message.startswith(f"take {name} ")]
        raw = [bytes.fromhex(m.rpartition(" ")[2]) for m in said]
        return [pa.ipc.open_stream(pa.py_buffer(r)).read_all() for r in raw]

    def ids(self, name: str) -> list[int]:
        return [i for t in self.frames(name) for i in t.column("id").to_pylist()]

    def contexts(self) -> list[Any]:
        said = [a.message for a in self.of(LogEvent) if a.message.startswith("begin ")]
        return [json.loads(m.removeprefix("begin ")) for m in said]


def _told(answer: Answer) -> str | None:
    if isinstance(answer, Ack):
        return f"ack {answer.seq}"
    if isinstance(answer, LogEvent):
        words = answer.message.split(" ")
        if words[0] in ("take", "skip", "commit", "rollback"):
            return " ".join(words[:2])
    return None


@pytest.fixture(scope="session")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sink") / "sink.wasm"
    path.write_bytes(rapidbyte_guests.c_guest("destination", "sink.c"))
    return path


Make = Callable[..., ComponentRuntime]


@pytest.fixture
def made(sink: Path) -> Make:
    def make(seconds: int | None = None, **settings: Any) -> ComponentRuntime:
        return ComponentRuntime(
            limits=None if seconds is None else Limits(timeout_seconds=seconds),
            component=Component(
                path=str(sink),
                digest=digest_of(sink.read_bytes()),
                cache=str(rapidbyte_guests.CACHE / "compiled"),
                settings=settings,
            ),
        )

    return make


def request(*streams: WriteStream, config: dict[str, Any] | None = None, **more: Any) -> Any:
    return WriteRequest(
        config=config or {}, streams=streams, source_protocol="airbyte", tick=0.05, **more
    )


def written(
    runtime: ComponentRuntime,
    asked: WriteRequest,
    feed: Iterator[Feed],
    seen: Seen | None = None,
) -> Seen:
    seen = seen or Seen()
    for answer in DESTINATION.write(runtime, asked, feed):
        if not isinstance(answer, Tick):
            seen.answers.append(answer)
    return seen


# -- streams and acks


def test_interleaved_streams_are_a_run_each_and_acked_exactly(made: Make):
    """L1: a mark is acked behind the checkpoint that has taken its rows, or a good end."""
    asked = request(stream(A), stream(B), config={"every": 2})
    feed = [
        rows(A, 1), rows(B, 10), mark(1, A), rows(A, 2), mark(2, A), rows(B, 11), rows(A, 3),
        mark(3, A), mark(4, B), mark(5), StreamDone(A), StreamDone(B),
    ]  # fmt: skip
    runtime = made()
    seen = written(runtime, asked, iter(feed))
    assert seen.exit == 0 and not seen.of(Error)
    assert (seen.ids("a"), seen.ids("b")) == ([1, 2, 3], [10, 11])
    assert sorted(seen.acks) == [1, 2, 3, 4, 5]
    story = seen.story
    second_of_a = [i for i, s in enumerate(story) if s == "take a"][1]
    assert story.index("ack 1") > second_of_a and story.index("ack 2") > second_of_a
    assert story.index("ack 3") > story.index("commit a")
    assert story.index("ack 4") > [i for i, s in enumerate(story) if s == "take b"][1]
    assert story.index("ack 5") > max(story.index("ack 3"), story.index("ack 4"))
    assert runtime.stats.written > 0 and runtime.stats.spoke
    assert sorted(c["stream_name"] for c in seen.contexts()) == ["a", "b"]
    metrics = {m.stream: m.series[0]["name"] for m in seen.of(ConnectorMetrics)}
    assert metrics == {A: "records_written", B: "records_written"}


def test_a_mark_with_nothing_before_it_is_acked_at_once(made: Make):
    seen = written(made(), request(stream(A)), iter([mark(1, A), mark(2)]))
    assert (seen.acks, seen.exit) == ([1, 2], 0)
    assert not seen.contexts()  # no run at all


def test_at_end_only_a_good_end_acks(made: Make):
    asked = request(stream(A), config={"every": 1}, acks=Acks.at_end)
    seen = written(made(), asked, iter([rows(A, 1), mark(1, A), rows(A, 2), mark(2, A)]))
    assert seen.story == ["take a", "take a", "commit a", "ack 1", "ack 2"]


def test_strict_takes_no_checkpoint_that_calls_itself_another_kind(made: Make):
    for acks, first in ((Acks.echo, "ack 1"), (Acks.strict, "commit a")):
        feed = iter([rows(A, 1), mark(1, A)])
        asked = request(stream(A), config={"every": 1, "loose": 1}, acks=acks)
        seen = written(made(), asked, held_until_taken(feed))
        assert seen.story[:2] == ["take a", first]
        counted = {c.what for c in seen.of(SkippedItems)}
    assert counted == ({"foreign:checkpoint"} if acks is Acks.strict else set())


def held_until_taken(feed: Iterator[Feed]) -> Iterator[Feed]:
    """Its end comes late: a checkpoint is heard before it."""
    yield from feed
    time.sleep(0.5)


def test_odd_checkpoints_are_named_and_ack_nothing(made: Make):
    feed = held_until_taken(iter([rows(A, 1), mark(1, A)]))
    seen = written(made(), request(stream(A), config={"odd": 1}), feed)
    assert seen.story == ["take a", "commit a", "ack 1"]
    assert {c.what for c in seen.of(SkippedItems)} == {"malformed:checkpoint", "foreign:checkpoint"}
    assert sum(a.level == "WARN" for a in seen.of(LogEvent)) >= 2


def test_frames_that_are_cut_are_counted_as_pieces(made: Make):
    """A checkpoint names frames taken: a batch of many pieces is covered by the last of them."""
    runtime = made(resources={"max_batch_bytes": 4096})
    feed = [rows(A, *range(2000)), mark(1, A), rows(A, 5000), mark(2, A)]
    seen = written(runtime, request(stream(A), config={"every": 1}), held_until_taken(iter(feed)))
    assert seen.exit == 0 and seen.ids("a") == [*range(2000), 5000]
    takes = [i for i, s in enumerate(seen.story) if s == "take a"]
    assert len(takes) > 4
    assert takes[-2] < seen.story.index("ack 1") < takes[-1] + 2
    assert seen.story.index("ack 2") > takes[-1]


def test_a_record_larger_than_a_frame_fails_its_stream_only(made: Make):
    text = RowSchema((Field("t", "t", DataType(Kind.string)),), 1)
    big = Rows(A, 1, batch(text, {"t": ["x" * 20_000]}))
    feed = [big, mark(1, A), rows(B, 1), mark(2, B)]
    asked = request(stream(A, schema=text), stream(B))
    seen = written(made(resources={"max_batch_bytes": 4096}), asked, iter(feed))
    assert (seen.acks, seen.exit) == ([2], 1)
    (error,) = seen.of(Error)
    assert failed(error, "destination").code == "destination.record_too_large" and error.stream == A


# -- failures (L7)


def test_a_stream_that_fails_fails_alone(made: Make):
    config = {"fail": "a", "after": 3, "every": 2}
    asked = request(stream(A), stream(B), config=config)

    def feed() -> Iterator[Feed]:
        yield from [rows(A, 1), mark(1, A), rows(A, 2), mark(2, A), rows(B, 1)]
        yield from [rows(A, 3), mark(3, A), mark(4)]
        time.sleep(0.5)
        yield from [rows(A, 4), mark(5, A), rows(B, 2), mark(6, B), mark(7)]

    seen = written(made(), asked, feed())
    assert sorted(seen.acks) == [1, 2, 6]
    assert (seen.ids("a"), seen.ids("b"), seen.exit) == ([1, 2, 3], [1, 2], 1)
    (error,) = seen.of(Error)
    assert (error.stream, error.failure_type) == (A, "transient_db")
    assert error.raw["code"] == "LOST" and error.raw["safe_to_retry"] is True
    assert error.retry is not None
    assert (
        failed(error, "destination").stream == "a"
        and "the table went away" in failed(error, "destination").message
    )


def test_what_is_fed_after_a_failure_is_never_acked(made: Make):
    """Also where all that came before it is covered."""
    asked = request(stream(A), config={"fail": "a", "after": 2, "every": 2})

    def feed() -> Iterator[Feed]:
        yield from [rows(A, 1), rows(A, 2), mark(1, A)]
        while not seen.of(Error):
            time.sleep(0.01)
            yield Tick()
        yield from [rows(A, 3), mark(2, A), mark(3)]

    seen = Seen()
    written(made(), asked, feed(), seen)
    assert (seen.acks, seen.ids("a"), seen.exit) == ([1], [1, 2], 1)


def test_the_last_attempt_is_not_told_to_be_tried_again(made: Make):
    asked = request(stream(A), config={"fail": "a"}, attempt=9)
    (error,) = written(made(), asked, iter([rows(A, 1)])).of(Error)
    assert error.retry is None


def test_a_run_that_ends_well_before_its_input_does_is_a_failure(made: Make):
    feed = held_until_taken(iter([rows(A, 1), rows(A, 2), mark(1, A), rows(B, 1), mark(2, B)]))
    seen = written(made(), request(stream(A), stream(B), config={"early": "a"}), feed)
    assert (seen.acks, seen.exit) == ([2], 1)
    (error,) = seen.of(Error)
    assert failed(error, "destination").code == "destination.ended_early"


def test_a_feed_that_fails_rolls_every_run_back(made: Make):
    """An end of stream would be taken for all of it."""

    def feed() -> Iterator[Feed]:
        yield from [rows(A, 1), mark(1, A), rows(B, 1), mark(2, B)]
        time.sleep(0.3)
        raise LogError("a part is damaged", code="log.corrupt")

    seen = Seen()
    with pytest.raises(LogError) as caught:
        for answer in DESTINATION.write(made(), request(stream(A), stream(B)), feed()):
            seen.answers.append(answer)
    assert caught.value.code == "log.corrupt"
    story = seen.story
    assert {"rollback a", "rollback b"} <= set(story)
    assert not seen.acks and not any(s.startswith("commit") for s in story)
    assert any("a part is damaged" in a.message for a in seen.of(LogEvent))
    assert not seen.of(Error)  # the guests' own errors only follow from it
    assert not live_threads()


def live_threads() -> list[str]:
    names = {"penstock-run", "penstock-destination", "penstock-feed", "feeder"}
    until = time.monotonic() + 10
    while (left := [t.name for t in threading.enumerate() if t.name in names]) and (
        time.monotonic() < until
    ):
        time.sleep(0.05)
    return left


def test_closing_the_answers_rolls_back_and_ends_all_threads(made: Make):
    stopped = threading.Event()

    def feed() -> Iterator[Feed]:
        yield from [rows(A, 1), mark(1, A), rows(B, 1)]
        while not stopped.is_set():
            time.sleep(0.02)
            yield Tick()

    seen, runtime = Seen(), made()
    told = DESTINATION.write(runtime, request(stream(A), stream(B), config={"every": 1}), feed())
    began = time.monotonic()
    with closing(told):  # type: ignore[type-var]
        for answer in told:
            seen.answers.append(answer)
            if seen.acks and len(seen.ids("b")) == 1:
                break
    stopped.set()
    assert seen.acks == [1]  # what was told stands
    assert time.monotonic() - began < 20 and not live_threads()
    assert not [s for s in (A, B) if runtime.keys().get(KeyAddress("stream", s.key, "committed"))]


def test_a_write_that_takes_too_long_is_stopped(made: Make):
    def feed() -> Iterator[Feed]:
        yield rows(A, 1)
        while True:
            time.sleep(0.02)
            yield Tick()

    seen = written(made(), request(stream(A), timeouts=RunTimeouts(total=0.7)), feed())
    assert seen.exit is None and [failed(e, "destination").code for e in seen.of(Error)] == [
        "destination.timeout"
    ]
    assert not live_threads()


def test_a_guest_that_hears_nothing_holds_nobody_up(made: Make, monkeypatch: pytest.MonkeyPatch):
    """L11: it is left behind, and its own time limit ends it."""
    monkeypatch.setattr(writer, "CLOSING_SECONDS", 1.0)
    runtime = made(seconds=4)

    def feed() -> Iterator[Feed]:
        yield rows(A, 1)
        while True:
            time.sleep(0.02)
            yield Tick()

    told = DESTINATION.write(runtime, request(stream(A), config={"held": "a"}), feed())
    with closing(told):  # type: ignore[type-var]
        for answer in told:
            if isinstance(answer, LogEvent) and answer.message.startswith("take"):
                break
        began = time.monotonic()
    assert time.monotonic() - began < 3
    assert not live_threads()


def test_a_guest_that_runs_for_ever_fails_its_stream(made: Make):
    feed = iter([rows(A, 1), mark(1, A), rows(B, 1), mark(2, B)])
    asked = request(stream(A), stream(B), config={"held": "a"})
    seen = written(made(seconds=2), asked, feed)
    assert (seen.acks, seen.exit) == ([2], 1)
    assert [failed(e, "destination").code for e in seen.of(Error)] == ["destination.timeout"]


# -- what a destination keeps of an interrupted run


class Server(MemoryKeys):
    """Keys of a guest that stand for a server's table: nothing takes back what was put."""

    def begin(self, scope: str) -> None:
        del scope


@pytest.mark.parametrize("mode", [APPEND, UPSERT])
def test_l1_a_run_skips_no_rows_because_an_earlier_one_was_interrupted(
    made: Make, mode: DestinationSyncMode
):
    """The destination keeps a count of rows with each commit, and skips as many in its next run
    unless one ended well in between (v4's own). What was acked is not sent again."""
    server, known = Server(), stream(A, mode, key=(("Id",),))

    def push(feed: list[Feed], attempt: int, **config: Any) -> Seen:
        runtime = made()
        runtime.keys = lambda: server
        told = {"watermark": 1, "every": 1, **config}
        return written(runtime, request(known, config=told, attempt=attempt), iter(feed))

    first = [rows(A, 1, 2), mark(1, A), rows(A, 3, 4), mark(2, A), rows(A, 5, 6), mark(3, A)]
    broken = push(first, 1, fail="a", after=2)
    assert broken.acks == [1, 2] and [e.retry is None for e in broken.of(Error)] == [False]
    rest: list[Feed] = [rows(A, 5, 6), mark(1, A), rows(A, 7), mark(2, A)]
    again = push(rest, 2, fail="a", after=1)  # in the same run of the pipeline
    assert (again.ids("a"), again.acks) == ([5, 6], [1])
    last = push([rows(A, 7), mark(1, A)], 1)  # and in the next
    assert (last.ids("a"), last.acks, last.exit) == ([7], [1], 0)
    assert not [s for seen in (broken, again, last) for s in seen.story if s == "skip a"]


def opened(seen: Seen) -> list[str]:
    said = [a.message for a in seen.of(LogEvent) if a.message.startswith("opened ")]
    return [json.loads(m.removeprefix("opened "))["stream_name"] for m in said]


def test_one_empty_run_comes_before_the_first_of_a_stream_that_does_not_replace(made: Make):
    """Of it only the log is passed on."""
    feed = [
        rows(A, 1), mark(1, A), rows(B, 2), rows(C, 3), StreamDone(A), StreamDone(B),
        rows(A, 4), mark(2, A), StreamDone(C),
    ]  # fmt: skip
    asked = request(stream(A), stream(B, UPSERT, key=(("Id",),)), stream(C, REPLACE))
    seen = written(made(), asked, iter(feed))
    assert seen.exit == 0 and sorted(opened(seen)) == ["a", "b"]
    assert sorted(c["stream_name"] for c in seen.contexts()) == ["a", "a", "b", "c"]
    assert len(seen.of(ConnectorMetrics)) == 4 and not seen.of(SkippedItems)


def test_l7_a_stream_whose_empty_run_fails_gets_no_rows_and_may_be_tried_again(made: Make):
    asked = request(stream(A), stream(B), config={"unopened": "a", "every": 1})
    feed = iter([rows(A, 1), mark(1, A), rows(B, 2), mark(2, B), rows(A, 3), mark(3, A)])
    seen = written(made(), asked, held_until_taken(feed))
    assert (seen.ids("a"), seen.ids("b"), seen.acks, seen.exit) == ([], [2], [2], 1)
    (error,) = seen.of(Error)
    assert (error.stream, error.raw["code"]) == (A, "LOST") and error.retry is not None


# -- what a destination counts (L8)


def codes(seen: Seen) -> list[str | None]:
    return [failed(e, "destination").code for e in seen.of(Error)]


MISSING, FAILED = "destination.miscounted", "destination.rows_failed"


@pytest.mark.parametrize(
    ("policy", "config", "acks", "code"),
    [
        ("dlq", {"lose": 1}, [], MISSING),
        ("skip", {"lose": 1}, [], MISSING),
        ("dlq", {"lose": 9}, [], MISSING),
        ("dlq", {"lose": 1, "own_up": 1}, [], FAILED),
        ("fail", {"lose": 1, "own_up": 1}, [], FAILED),
        ("dlq", {"lose": 2, "own_up": 1, "letters": 1}, [], FAILED),
        ("dlq", {"lose": 1, "own_up": 1, "letters": 1}, [1, 2], None),
        ("dlq", {"lose": 1, "letters": 1}, [1, 2], None),
        # a frame has two letters of one record: the other one is missing
        ("dlq", {"lose": 2, "letters": 2, "repeats": 2}, [], MISSING),
        ("skip", {"lose": 2, "letters": 2, "repeats": 2}, [], MISSING),
        ("dlq", {"lose": 2, "own_up": 1, "letters": 2, "repeats": 2, "reasons": 1}, [], FAILED),
        # two equal records are refused, and both are counted
        ("dlq", {"lose": 2, "own_up": 1, "letters": 2, "repeats": 2}, [1, 2], None),
        ("dlq", {"lose": 2, "letters": 4, "repeats": 2}, [1, 2], None),
        ("dlq", {"lose": 2, "own_up": 1, "letters": 4, "repeats": 2}, [1, 2], None),
        ("skip", {"lose": 1, "own_up": 1}, [1, 2], None),
        ("dlq", {"mute": 1}, [1, 2], None),
        ("dlq", {"bytes": 1}, [1, 2], None),
    ],
)
@pytest.mark.parametrize("every", [0, 1])
def test_l8_a_run_that_counts_fewer_rows_than_it_was_given_acks_none_of_them(
    made: Make, policy: str, config: dict[str, Any], acks: list[int], code: str | None, every: int
):
    """Neither its checkpoints nor its end. A counter that is not in use says nothing."""
    asked = request(stream(A), config={**config, "every": every})
    feed = iter([rows(A, 1, 2, 3), mark(1, A), rows(A, 4, 5, 6), mark(2, A)])
    seen = written(made(on_data_error=policy), asked, feed)
    assert (seen.acks, codes(seen)) == (acks, [] if code is None else [code])
    left_out = [(c.what, c.count, c.stream) for c in seen.of(SkippedItems)]
    left_out = [item for item in left_out if item != ("skipped:data", 1, A)]
    owned_up = [("skipped:records_failed", 2, A)] if policy == "skip" and acks else []
    equal = [("skipped:equal_dead_letters", 2, A)] if acks and config.get("letters") == 2 else []
    assert left_out == owned_up + equal
    uncounted = [a for a in seen.of(LogEvent) if "does not count records" in a.message]
    assert len(uncounted) == len(config.keys() & {"mute", "bytes"})


def test_l1_dead_letters_do_not_stand_for_rows_that_a_checkpoint_does_not_count(made: Make):
    """The third row of each frame may be in the destination's memory when its run fails."""
    config = {"lose": 1, "letters": 1, "every": 1, "fail": "a", "after": 2}
    feed = [rows(A, 1, 2, 3), mark(1, A), rows(A, 4, 5, 6), mark(2, A)]
    seen = written(made(on_data_error="dlq"), request(stream(A), config=config), iter(feed))
    assert (seen.acks, seen.exit) == ([], 1) and len(seen.of(Reject)) == 2
    whole = {**config, "after": 9}
    seen = written(made(on_data_error="dlq"), request(stream(A), config=whole), iter(feed))
    assert (seen.acks, seen.exit) == ([1, 2], 0)


@pytest.mark.parametrize(("lose", "acks"), [(1, [1]), (9, [])])
def test_l8_an_upsert_may_count_merged_rows_but_not_none(made: Make, lose: int, acks: list[int]):
    asked = request(stream(A, UPSERT, key=(("Id",),)), config={"lose": lose})
    seen = written(made(), asked, iter([rows(A, 1, 2, 2), mark(1, A)]))
    assert seen.acks == acks and codes(seen) == ([] if acks else [MISSING])
    noted = [(c.what, c.count) for c in seen.of(SkippedItems)]
    assert noted == ([("records_merged_or_not_written:a", 1)] if acks else [])


def test_l8_a_counter_that_was_in_use_is_believed_when_it_is_zero(made: Make):
    """Here by a destination that keeps its count of rows although its run ended well."""
    server, runtime = Server(), made()
    runtime.keys = lambda: server
    asked = request(stream(A), config={"watermark": 1, "forgets": "never"})
    feed = iter([rows(A, 1), mark(1, A), StreamDone(A), rows(A, 2), mark(2, A)])
    seen = written(runtime, asked, feed)
    assert (seen.acks, codes(seen)) == ([1], [MISSING])
    assert "skip a" in seen.story


# -- few instances for many streams


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sessions were open whenever one was opened."""
    open_now, found, lock = [0], [0], threading.Lock()
    session = Stage.session

    def counting(self: Stage, host: Any) -> Any:
        begun = session(self, host)
        with lock:
            open_now[0] += 1
            found.append(open_now[0])
        close = begun.close

        def closing_() -> None:
            with lock:
                open_now[0] -= 1
            close()

        begun.close = closing_  # type: ignore[method-assign]
        return begun

    monkeypatch.setattr(Stage, "session", counting)
    return found


@pytest.mark.dear
def test_five_hundred_streams_need_few_instances(made: Make, alive: list[int]):
    names = [StreamId(None, f"s{i:03d}") for i in range(500)]

    def feed() -> Iterator[Feed]:
        seq = 0
        for turn in range(2):  # the second turn comes when the runs of the first have ended
            for i, name in enumerate(names):
                yield rows(name, 1000 * turn + i)
                seq += 1
                yield mark(seq, name)
        yield mark(1001)

    seen = written(made(), request(*map(stream, names)), feed())
    assert seen.exit == 0 and sorted(seen.acks) == list(range(1, 1002))
    # a run each turn, and one empty run each, before the first
    assert max(alive) <= write_context.AT_ONCE and len(alive) - 1 == 1500
    assert all(seen.ids(n.name) == [i, 1000 + i] for i, n in enumerate(names))
    assert seen.acks[-1] == 1001


def test_what_waits_for_rows_is_committed(made: Make, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_pool, "IDLE_SECONDS", 0.3)
    seen = Seen()

    def feed() -> Iterator[Feed]:
        yield from [rows(A, 1), mark(1, A)]
        until = time.monotonic() + 60
        while not seen.acks and time.monotonic() < until:
            time.sleep(0.05)
            yield Tick()
        yield rows(A, 2)

    written(made(), request(stream(A)), feed(), seen)
    assert seen.story == ["take a", "commit a", "ack 1", "take a", "commit a"]


def test_l8_a_stream_whose_run_breaks_was_not_written(made: Make, monkeypatch: pytest.MonkeyPatch):
    """Exit code 0 would cover rows without a state."""

    def full(*_: Any) -> None:
        raise TooLong

    monkeypatch.setattr(answers, "metric_events", full)
    seen = written(made(), request(stream(A)), iter([rows(A, 1)]))
    assert seen.exit == 1 and seen.acks == []
    (error,) = seen.of(Error)
    assert error.stream == A and "a run of a broke" in error.message


def test_memory_bounds_the_instances_too(made: Make):
    runtime = made(assume_manifest={**MANIFEST, "limits": {"max_memory": "1gb"}})
    assert write_context.WriteSettings.of(open_component(runtime), request(stream(A))).at_once == 2


def test_another_schema_is_another_run(made: Make):
    wider = RowSchema((*ID.fields, Field("t", "t", DataType(Kind.string))), 2)
    feed: list[Feed] = [
        rows(A, 1),
        mark(1, A),
        with_schemas(stream(A), {1: ID, 2: wider}),
        Rows(A, 2, batch(wider, {"id": [2], "t": ["x"]})),
        mark(2, A),
    ]
    seen = written(made(), request(stream(A)), iter(feed))
    assert seen.story == ["take a", "commit a", "ack 1", "take a", "commit a", "ack 2"]
    assert [t.column_names for t in seen.frames("a")] == [["id"], ["id", "t"]]


@pytest.mark.parametrize(
    ("sync_mode", "columns", "sent"),
    [
        (SyncMode.cdc, ["_rb_op", "_rb_deleted_at"], ["_rb_op"]),
        # what a query made of them, and a table that has such columns of its own
        (SyncMode.cdc, ["_rb_deleted_at"], ["_rb_deleted_at"]),
        (SyncMode.full_refresh, ["_rb_op", "_rb_deleted_at"], ["_rb_op", "_rb_deleted_at"]),
    ],
)
def test_a_destination_of_changes_gets_the_columns_of_v4(
    made: Make, sync_mode: SyncMode, columns: list[str], sent: list[str]
):
    """A further one would be added to its table, or end its run under ``new_column: fail``."""
    texts = tuple(Field(name, name, DataType(Kind.string)) for name in columns)
    schema = RowSchema((*ID.fields, *texts), 1)
    of = stream(A, schema=schema)
    configured = msgspec.structs.replace(of.configured, sync_mode=sync_mode)
    of = msgspec.structs.replace(of, configured=configured)
    fed = batch(schema, {"id": [1], **{name: ["x"] for name in columns}})
    seen = written(made(), request(of), iter([Rows(A, 1, fed), mark(1, A), StreamDone(A)]))
    assert [t.column_names for t in seen.frames("a")] == [["id", *sent]]


def test_l9_frames_say_what_the_schema_says_and_deny_no_null():
    text = Field("t", "t", DataType(Kind.decimal, 10, 2))
    known = RowSchema((*ID.fields, text, Field("n", "n", DataType(Kind.json)))).with_required(
        {"Id", "t"}
    )
    frames = FrameEncoder(known, 1 << 20, narrow=True)
    whole = batch(known, {"id": [1, 2], "t": [Decimal("1.5")] * 2, "n": ["1", "2"]})
    lost = batch(known, {"id": [1, 2], "t": [Decimal("1.5"), None]})
    both = [*(f for f, _ in frames.of(whole)), frames.empty()]
    made = [pa.ipc.open_stream(pa.py_buffer(f)).schema for f in both]
    assert [[f.nullable for f in s] for s in made] == [[False, False, True]] * 2
    ((frame, count),) = frames.of(lost)
    assert count == 2
    assert [f.nullable for f in pa.ipc.open_stream(pa.py_buffer(frame)).schema] == [
        False, True, True
    ]  # fmt: skip


def with_schemas(known: WriteStream, schemas: dict[int, RowSchema]) -> WriteStream:
    return WriteStream(
        configured=known.configured, target=known.target, schemas=schemas, latest=max(schemas)
    )


class Port(MemoryKeys):
    """Says when it begins and is closed."""

    def __init__(self, heard: list[str]) -> None:
        super().__init__()
        self._heard = heard

    def begin(self, scope: str) -> None:
        self._heard.append(f"begin {scope}")

    def close(self) -> None:
        self._heard.append("close")


def test_each_run_has_a_port_to_its_keys_for_its_own_scope(made: Make):
    heard: list[str] = []
    runtime = made()
    runtime.keys = lambda: Port(heard)
    written(runtime, request(stream(A), stream(B)), iter([rows(A, 1), rows(B, 1)]))
    assert sorted(heard) == ['begin [null,"a"]', 'begin [null,"b"]', "close", "close"]


# -- replace


def test_a_replaced_stream_is_one_run_and_acked_by_its_good_end(made: Make):
    """Its rows are nowhere to be seen before."""
    asked = request(stream(A, REPLACE), stream(B, REPLACE), config={"every": 1})
    feed = [
        rows(A, 1), rows(A, 2), mark(1, A), rows(B, 3), mark(2, B), StreamDone(A), StreamDone(B)
    ]  # fmt: skip
    seen = written(made(), asked, held_until_taken(iter(feed)))
    assert seen.exit == 0 and sorted(seen.acks) == [1, 2]
    assert seen.story.index("ack 1") > seen.story.index("commit a")
    assert [c["write_mode"] for c in seen.contexts()] == [{"mode": "replace"}] * 2


def test_a_replaced_stream_without_rows_is_emptied_and_its_state_waits_for_that(made: Make):
    asked = request(stream(A, REPLACE), stream(B, REPLACE))
    seen = written(made(), asked, iter([mark(1, A), StreamDone(A), mark(2, B)]))
    assert seen.story == ["take a", "commit a", "ack 1"]
    (table,) = seen.frames("a")
    assert table.num_rows == 0 and table.column_names == ["id"]
    assert seen.exit == 0  # of B nothing was said: it is left as it is


def test_a_replaced_stream_that_is_not_done_is_rolled_back(made: Make):
    asked = request(stream(A, REPLACE), stream(B))
    seen = written(made(), asked, iter([rows(A, 1), mark(1, A), rows(B, 2), mark(2, B)]))
    assert (seen.acks, seen.exit) == ([2], 1)
    assert "rollback a" in seen.story and "commit a" not in seen.story
    assert [failed(e, "destination").code for e in seen.of(Error)] == ["destination.incomplete"]


def test_generations_beyond_the_bound_end_one_by_one_and_never_twice(made: Make, alive: list[int]):
    names = [StreamId(None, f"r{i:02d}") for i in range(20)]
    feed: list[Feed] = [rows(n, i) for i, n in enumerate(names)]
    feed += [mark(i + 1, n) for i, n in enumerate(names)]
    feed += map(StreamDone, names)
    seen = written(made(), request(*(stream(n, REPLACE) for n in names)), iter(feed))
    assert seen.exit == 0 and sorted(seen.acks) == list(range(1, 21))
    assert len(seen.contexts()) == 20 and max(alive) <= write_context.AT_ONCE

    late = written(
        made(),
        request(*(stream(n, REPLACE) for n in names)),
        iter([*feed[:20], rows(names[0], 99)]),
    )
    codes = [failed(e, "destination").code for e in late.of(Error) if e.stream == names[0]]
    assert codes == ["destination.split"]  # a second run would have replaced the first
    assert late.exit == 1 and late.ids("r00") == [0]


def test_the_next_generation_is_a_run_of_its_own(made: Make):
    feed = [rows(A, 1), mark(1, A), StreamDone(A), rows(A, 2), mark(2, A), StreamDone(A)]
    seen = written(made(), request(stream(A, REPLACE)), iter(feed))
    assert seen.story == ["take a", "commit a", "ack 1", "take a", "commit a", "ack 2"]


# -- what a destination is given


def test_values_arrive_in_types_that_v4_can_name(made: Make):
    struct = DataType(Kind.struct, fields=(Field("x", "X y", DataType(Kind.decimal, 38, 9)),))
    kinds: dict[str, DataType] = {
        "when": DataType(Kind.timestamp),
        "wall": DataType(Kind.timestamp_ntz),
        "day": DataType(Kind.date),
        "hour": DataType(Kind.time),
        "price": DataType(Kind.decimal, 38, 9),
        "raw": DataType(Kind.binary),
        "ok": DataType(Kind.boolean),
        "list": DataType(Kind.array, item=DataType(Kind.number)),
        "nested": struct,
        "any": DataType(Kind.json),
    }
    schema = RowSchema(tuple(Field(n, n.upper(), k) for n, k in kinds.items()), 1)
    part = part_schema(schema)
    values: dict[str, list[Any]] = {f.name: [None] for f in part}
    tiny = Decimal("0.000000001")
    values |= {
        "when": [datetime(2024, 2, 29, 12, tzinfo=UTC)], "wall": [datetime(2024, 2, 29, 12)],
        "day": [date(2024, 2, 29)], "hour": ["12:00"], "price": [tiny], "raw": [b"\x00\xff"],
        "ok": [True], "list": [[1.5, None]], "nested": [{"x": tiny}], "any": ['{"a": 1}'],
    }  # fmt: skip
    empty: dict[str, list[Any]] = {f.name: [None] for f in part}
    both = {n: values[n] + empty[n] for n in values}
    given = pa.RecordBatch.from_arrays([pa.array(both[f.name], f.type) for f in part], schema=part)
    for manifest, price in ((MANIFEST, tiny), ({**MANIFEST, "id": "x/dest-postgres"}, None)):
        runtime = made(assume_manifest=manifest)
        seen = written(runtime, request(stream(A, schema=schema)), iter([Rows(A, 1, given)]))
        (table,) = seen.frames("a")
        first, second = table.to_pylist()
        assert first == {
            "when": datetime(2024, 2, 29, 12), "wall": datetime(2024, 2, 29, 12),
            "day": date(2024, 2, 29), "hour": "12:00", "price": price or "0.000000001",
            "raw": b"\x00\xff", "ok": True, "list": "[1.5,null]",
            "nested": '{"X y":0.000000001}', "any": '{"a": 1}',
        }  # fmt: skip
        assert set(second.values()) == {None}
        assert {str(t) for t in table.schema.types} <= {
            "timestamp[us]", "date32[day]", "string", "binary", "bool", "decimal128(38, 9)"
        }  # fmt: skip


@pytest.mark.parametrize(("original", "name"), [(False, "id"), (True, "Id")])
def test_the_context_speaks_of_the_table(made: Make, original: bool, name: str):
    """``original``: a v4 file, at whose destination columns have the source's names."""
    known = stream(A, UPSERT, key=(("Id",),), target=StreamId("shop", "users"))
    selecting = msgspec.structs.replace(known.configured, columns=("Id",))
    known = WriteStream(
        configured=selecting, target=known.target, schemas=known.schemas, latest=known.latest
    )
    runtime = made(
        on_data_error="dlq", resources={"checkpoint_interval_rows": 7}, original_names=original
    )
    seen = written(runtime, request(known), iter([rows(A, 1)]))
    (context,) = seen.contexts()
    assert context["stream_name"] == "shop.users"
    assert context["write_mode"] == {"mode": "upsert", "primary_key": [name]}
    assert context["cursor_info"] == {"cursor_field": name, "cursor_type": "utf8"}
    assert context["selected_columns"] == [name]
    assert [f.column_names for f in seen.frames("shop.users")] == [[name]]
    assert context["policies"]["on_data_error"] == "dlq"
    assert context["limits"]["checkpoint_interval_rows"] == 7


# -- rejects


def test_a_dead_letter_is_a_reject_before_the_ack_that_covers_it(made: Make):
    """L8; part 13."""
    config = {"letters": 1, "every": 1}
    feed = iter([rows(A, 1), mark(1, A)])
    seen = written(made(on_data_error="dlq"), request(stream(A), config=config), feed)
    (reject,) = seen.of(Reject)
    assert (reject.stream, reject.reason, reject.raw) == (A, "data: too blue", b'{"id":1}')
    assert seen.answers.index(reject) < seen.answers.index(seen.of(Ack)[0])


@pytest.mark.parametrize("policy", ["dlq", "skip", "fail"])
def test_l8_a_dead_letter_of_the_empty_run_is_kept_and_counts_as_none_of_the_rows(
    made: Make, policy: str
):
    """It is of a record that the destination took in an earlier run, such as one that it retries
    when it is opened. Its text does not stand for a row of this run."""
    config = {"kept": 1, "lose": 1, "letters": 1}
    asked = request(stream(A), config=config)
    feed = held_until_taken(iter([rows(A, 1, 2), mark(1, A)]))
    seen = written(made(on_data_error=policy), asked, feed)
    kept = [(r.reason, r.raw, r.records) for r in seen.of(Reject)]
    skipped = [(c.what, c.stream) for c in seen.of(SkippedItems)]
    errors = [e.message for e in seen.of(Error)]
    if policy == "fail":
        assert (seen.acks, seen.exit) == ([], 1) and "too old" in errors[0]
        return
    assert (seen.acks, seen.exit) == ([1], 0), errors
    letters = [("data: too old", b'{"id":1}', 0), ("data: too blue", b'{"id":1}', 1)]
    assert kept == (letters if policy == "dlq" else [])
    assert skipped == ([("skipped:data", None), ("skipped:data", A)] if policy == "skip" else [])


def pushed(made: Make, root: Path, how: str, **config: Any) -> tuple[FileLog, Any, PushMail, Any]:
    """Two streams of two rows, one letter each: the log, the segments, the mail, the result."""
    log = FileLog(root / "log")
    log.claim(1, "me")
    box = Mailbox(log.root, "run")
    box.create()
    mail = PushMail(log.root, "run", 1)
    mail.create()
    segments = tuple(_segment(log, of, i + 1) for i, of in enumerate((A, B)))
    mail.order(FeedOrder(segments=segments, end=True))
    component = made(on_data_error=how).component
    job = PushJob(
        run="run",
        number=1,
        log_root=str(log.root),
        protocol="rapidbyte",
        source_protocol="airbyte",
        pipeline="p",
        launch=msgspec.to_builtins(
            Launch(protocol="rapidbyte", role="destination", component=component)
        ),
        config={"letters": 1, "every": 1, **config},
        config_hash="",
        streams=(stream(A), stream(B)),
    )
    return log, segments, mail, run_push(job, threading.Event())


def test_a_push_keeps_letters_in_a_file_that_the_ack_names(made: Make, tmp_path: Path):
    """L8: durable, and named, before the segment may be settled."""
    log, segments, mail, result = pushed(made, tmp_path, "dlq")
    assert result.end is PushEnd.finished and not result.errors and not result.unacked
    acked = mail.acks()
    assert sorted(s for a in acked for s in a.segments) == [s.id for s in segments]
    files = [*(f for a in acked for f in a.rejects), *result.rejects]
    assert acked[0].rejects  # its own letter is in it
    lines = [r for f in files for r in decode_rejects((log.root / f).read_bytes())]
    assert sorted((r.name or "", r.body, r.reason) for r in lines) == [
        (name, '{"id":1}', "data: too blue") for name in ("a", "b")
    ]
    assert all((log.root / f).stat().st_mode & 0o777 == 0o600 for f in files)
    counted = sorted(each for told in acked for each in told.rejected)
    assert counted == [(A, 1), (B, 1)] and result.fed == [(A, 2), (B, 2)]
    assert sorted(m["stream"] for m in result.metrics) == ["a", "b"]
    assert result.stats["bytes"] > 0
    assert not [each for told in acked for each in told.filtered]


@pytest.mark.parametrize("how", ["dlq", "skip"])
def test_l8_a_record_of_several_dead_letters_counts_once(made: Make, tmp_path: Path, how: str):
    """One of a stream's two rows is refused, for two reasons; both letters are kept."""
    log, segments, mail, result = pushed(made, tmp_path, how, letters=2, repeats=2, lose=1)
    acked = mail.acks()
    assert not result.errors and len([s for a in acked for s in a.segments]) == len(segments)
    rejected = sorted(each for told in acked for each in told.rejected)
    filtered = sorted(each for told in acked for each in told.filtered)
    assert (rejected if how == "dlq" else filtered) == [(A, 1), (B, 1)]
    assert not (filtered if how == "dlq" else rejected)
    files = [*(f for a in acked for f in a.rejects), *result.rejects]
    lines = [r for f in files for r in decode_rejects((log.root / f).read_bytes())]
    assert len(lines) == (4 if how == "dlq" else 0)


def test_what_a_destination_skips_is_counted_with_the_ack(made: Make, tmp_path: Path):
    """L8: filtered, as a skipped letter of a source is."""
    _, segments, mail, result = pushed(made, tmp_path, "skip")
    assert result.end is PushEnd.finished and not result.errors and not result.rejects
    acked = mail.acks()
    assert sorted(s for a in acked for s in a.segments) == [s.id for s in segments]
    assert sorted(each for told in acked for each in told.filtered) == [(A, 1), (B, 1)]
    assert not [each for told in acked for each in (*told.rejects, *told.rejected)]
    assert result.notes == ["destination: skipped:data: 2"]


def _segment(log: FileLog, of: StreamId, seq: int) -> Segment:
    table = pa.Table.from_batches([batch(ID, {"id": [seq, seq + 10]})])
    part = log.write_part(1, f"{seq:06d}-1", table, 100)
    return Segment(
        id=SegmentId(1, seq),
        lane=0,
        scope=StateScope(StateType.stream, of),
        slices=(
            StreamSlice(
                stream=of,
                disposition=WriteDisposition(mode=APPEND),
                schema_version=1,
                generation=0,
                fills_generation=False,
                parts=(part,),
                read=2,
            ),
        ),
        state="{}",
    )


def test_letters_are_only_counted_where_errors_are_skipped(made: Make):
    feed = iter([rows(A, 1), rows(A, 2)])
    seen = written(made(on_data_error="skip"), request(stream(A), config={"letters": 1}), feed)
    assert not seen.of(Reject)
    assert [(c.what, c.stream) for c in seen.of(SkippedItems)] == [("skipped:data", A)] * 2


# -- before anything runs


def test_spec_check_and_problems(made: Make):
    said: list[Any] = []
    runtime = made(assume_manifest=MANIFEST)
    spec = DESTINATION.spec(runtime, RunTimeouts(), said.append)
    assert DESTINATION.check(runtime, {}, RunTimeouts(), said.append).succeeded
    nested = stream(B, UPSERT, key=(("a", "b"),))
    found = DESTINATION.problems(
        spec,
        [
            stream(StreamId("n", "t")),
            stream(A, REPLACE, target=StreamId(None, "n.t")),
            nested,
            stream(C, UPSERT),
        ],
    )
    assert [f.partition(":")[0] for f in found] == ["stream a", "stream a", "stream b", "stream c"]
    for word, text in zip(
        ("write_mode replace", "both 'n.t'", "nested", "key"), found, strict=True
    ):
        assert word in text
    spec = ConnectorSpec(protocol="rapidbyte", config_schema={})
    assert not DESTINATION.problems(spec, [nested][:0])
    notes = DESTINATION.fidelity(spec, "airbyte", [stream(A, REPLACE)], {})
    assert any("at least once" in n for n in notes) and any(n.startswith("a: ") for n in notes)
    timed = stream(A, schema=RowSchema((Field("at", "at", DataType(Kind.timestamp)),), 1))
    protocols = ("airbyte", "rapidbyte")
    zones = ["time zone" in "".join(DESTINATION.fidelity(spec, p, [timed], {})) for p in protocols]
    assert zones == [True, False], "a component's frames have zones of their own"


def test_shared_marks_wait_for_every_stream_and_a_failed_one_holds_them_for_ever():
    marks = AckTracker()
    marks.fed(A, 2)
    marks.fed(B, 1)
    assert marks.add(1, A) == [] and marks.add(2, None) == [] and marks.add(3, C) == [3]
    assert marks.covered(A, 1) == []
    assert marks.covered(A, 2) == [1]
    assert marks.covered(B, 7) == [2]
    assert marks.add(4, None) == [4]
    marks.fed(A)  # dropped: its run failed
    assert marks.add(5, None) == [] and marks.add(6, A) == [] and marks.add(7, B) == [7]
    assert marks.add(8, C, ahead=True) == []
    marks.fed(C)
    assert marks.covered(C, 1) == [8]
