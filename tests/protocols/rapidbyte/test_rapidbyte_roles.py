"""The three roles' conversations with real components (protocol, sections 3, 4 and 7)."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import DestinationError, SourceError
from penstock.protocols.rapidbyte.guest import probe, stream_run
from penstock.protocols.rapidbyte.guest.events import (
    CheckpointCall,
    ComponentLog,
    DeadLettered,
    Frame,
    RunEnded,
)
from penstock.protocols.rapidbyte.guest.stage import QueueBounds, Stage
from penstock.protocols.rapidbyte.wire.arrow_ipc import frame_of
from penstock.protocols.rapidbyte.wire.messages import (
    CursorInfo,
    CursorValue,
    StreamContext,
    StreamLimits,
    WriteMode,
)
from penstock.runtimes.masking import Masker
from penstock.store.keys import DryKeys, KeyAddress, MemoryKeys

Stages = Callable[..., Stage]
CONTEXT = StreamContext(stream_name="numbers", sync_mode="full_refresh")


def arrow(rows: int, width: int = 0) -> bytes:
    columns = {"id": pa.array(range(rows), pa.int64()), "text": pa.array(["x" * width] * rows)}
    return bytes(frame_of(pa.RecordBatch.from_pydict(columns)))


def rows_of(frame: Any) -> list[int]:
    with pa.ipc.open_stream(pa.py_buffer(frame)) as reader:
        return reader.read_all().column("id").to_pylist()


def ended(items: Iterator[Any]) -> RunEnded:
    *_, last = items
    assert isinstance(last, RunEnded)
    return last


# -- source


def test_check_and_discover_run_under_the_same_permissions_and_limits(stage: Stages):
    said: list[ComponentLog] = []
    report = probe.check(stage("source", {"status": 2}), said.append)
    assert (report.status, report.message, report.warnings) == ("warning", "as asked", ["w0", "w1"])
    assert said[-1] == ComponentLog("DEBUG", "closed")  # close always
    catalog = probe.discover(stage("source", {}), said.append)
    assert catalog.streams[0].name == "numbers"
    assert catalog.streams[0].schema[0].data_type == "Int64"
    with pytest.raises(SourceError) as caught:
        probe.check(stage("source", {"mode": "open-err"}), said.append)
    assert caught.value.code == "connector.failed"
    with pytest.raises(SourceError) as caught:
        probe.check(stage("source", {}, allow={"max_memory": 1 << 16}), said.append)
    assert caught.value.code == "connector.memory"


def test_a_catalog_that_is_none_is_told(stage: Stages):
    with pytest.raises(SourceError) as caught:
        probe.discover(stage("source", {"mode": "bad-catalog"}), lambda _: None)
    assert caught.value.code == "connector.bad_answer"


def test_arrow_frames_arrive_as_they_were_sent(stage: Stages):
    data = arrow(500)
    told = list(stream_run.read(stage("source", {"frame": data.hex(), "frames": 3}), CONTEXT))
    frames = [t for t in told if isinstance(t, Frame)]
    assert [t.number for t in frames] == [1, 2, 3]
    assert all(rows_of(t.data) == list(range(500)) for t in frames)
    assert isinstance(told[-1], RunEnded) and told[-1].summary is not None
    assert told[-1].summary.counts["batches_emitted"] == 3
    assert told[-1].frames_out == 3


def test_checkpoints_metrics_and_letters_come_in_order_and_count_the_frames_before(stage: Stages):
    """Section 4.2; part 6: envelopes are tagged with the frames seen so far."""
    told = list(stream_run.read(stage("source", {"frames": 2, "checkpoints": 1}), CONTEXT))
    order = [type(t).__name__ for t in told if not isinstance(t, ComponentLog)]
    assert order == [
        "Frame",
        "CheckpointCall",
        "DeadLettered",
        "Frame",
        "CheckpointCall",
        "DeadLettered",
        "RunEnded",
    ]
    marks = [t for t in told if isinstance(t, CheckpointCall)]
    assert [(m.frames, m.kind) for m in marks] == [(1, 0), (2, 0)]
    payload = marks[1].payload
    assert payload is not None and payload.cursor_value is not None
    assert (payload.cursor_field, payload.cursor_value.text()) == ("id", "2")
    letter = next(t for t in told if isinstance(t, DeadLettered)).letter
    assert (letter.stream_name, letter.record_json) == ("numbers", '{"id":1}')
    assert letter.error_category == "internal"  # an unknown word
    last = told[-1]
    assert isinstance(last, RunEnded)
    (metric,) = last.metrics
    assert (metric.name, metric.labels, metric.count, metric.total) == (
        "records_read", (("s", "numbers"),), 2, 4,
    )  # fmt: skip


def test_a_malformed_checkpoint_is_named_and_does_not_fail_the_connector(stage: Stages):
    told = list(stream_run.read(stage("source", {"frames": 1, "odd_checkpoint": 1}), CONTEXT))
    (mark,) = (t for t in told if isinstance(t, CheckpointCall))
    assert mark.payload is None and mark.problem is not None and "kind" in mark.problem
    assert any(isinstance(t, ComponentLog) and t.level == "WARN" for t in told)
    last = told[-1]
    assert isinstance(last, RunEnded) and last.error is None


def test_the_stream_context_is_the_document_v4_sends(stage: Stages):
    context = StreamContext(
        stream_name="users",
        sync_mode="incremental",
        cursor_info=CursorInfo(cursor_field="id", last_value=CursorValue(type="utf8", value="42")),
        write_mode=WriteMode(mode="append"),
    )
    told = list(stream_run.read(stage("source", {"mode": "context", "frames": 0}), context))
    text, asked = [t.message for t in told if isinstance(t, ComponentLog)][:2]
    assert json.loads(text) == {
        "stream_name": "users",
        "schema": {"format": "columns", "data": []},
        "sync_mode": "incremental",
        "cursor_info": {"cursor_field": "id", "cursor_type": "utf8",
                        "last_value": {"type": "utf8", "value": "42"}},
        "limits": {"max_batch_bytes": 67108864, "max_record_bytes": 16777216,
                   "max_inflight_batches": 16, "max_parallel_requests": 1,
                   "checkpoint_interval_bytes": 67108864, "checkpoint_interval_rows": 0,
                   "checkpoint_interval_seconds": 0},
        "policies": {"on_data_error": "fail",
                     "schema_evolution": {"new_column": "add", "removed_column": "ignore",
                                          "type_change": "fail", "nullability_change": "allow"}},
        "write_mode": {"mode": "append"},
        "effective_parallelism": 1,
    }  # fmt: skip
    assert asked == "phase 0 dry 0 max 0"


def test_a_failure_comes_after_what_was_emitted_before_it(stage: Stages):
    told = list(stream_run.read(stage("source", {"frames": 9, "fail_after": 2}), CONTEXT))
    assert sum(isinstance(t, Frame) for t in told) == 2
    assert isinstance(told[-1], RunEnded) and told[-1].fault is not None
    assert told[-1].fault.code == "GONE" and told[-1].fault.category == "transient_db"
    assert told[-2] == ComponentLog("DEBUG", "closed")  # closed also after a failure


def test_a_fault_of_close_is_only_a_warning(stage: Stages):
    told = list(stream_run.read(stage("source", {"mode": "close-trap", "frames": 1}), CONTEXT))
    assert isinstance(told[-1], RunEnded) and told[-1].error is None
    assert any(isinstance(t, ComponentLog) and "close failed" in t.message for t in told)


def test_a_slow_listener_holds_the_source_back_by_bytes(stage: Stages):
    pressure = QueueBounds(outbox_bytes=250_000)
    run = stream_run.read(
        stage("source", {"frames": 40, "size": 100_000}, pressure=pressure), CONTEXT
    )
    first = next(run)
    assert isinstance(first, Frame)
    time.sleep(0.3)
    emitted = 1
    for told in run:
        emitted += isinstance(told, Frame)
        if isinstance(told, RunEnded):
            assert told.waited > 0.1
            assert told.worked < 10
    assert emitted == 40


def test_closing_early_ends_the_source(stage: Stages):
    def sources() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name == "penstock-source"}

    before = sources()
    run = stream_run.read(stage("source", {"frames": 100_000, "size": 100_000}), CONTEXT)
    assert isinstance(next(run), Frame)
    ours = sources() - before
    assert ours
    run.close()
    until = time.monotonic() + 20
    while sources() & ours and time.monotonic() < until:
        time.sleep(0.05)
    assert not sources() & ours


def test_secrets_are_masked_in_what_it_logs(stage: Stages):
    config = {"mode": "context", "frames": 0}
    context = StreamContext(stream_name="hunter2hunter2", sync_mode="full_refresh")
    masked = stage("source", config, masker=Masker(["hunter2hunter2"]))
    told = list(stream_run.read(masked, context))
    assert not any("hunter2" in t.message for t in told if isinstance(t, ComponentLog))
    assert any("****" in t.message for t in told if isinstance(t, ComponentLog))


def test_a_run_summary_without_its_part_is_a_fault(stage: Stages):
    last = ended(stream_run.read(stage("source", {"mode": "no-summary", "frames": 0}), CONTEXT))
    assert last.error is not None and last.error.code == "connector.bad_answer"


# -- state (section 4.3)


def test_keys_live_in_their_scope_and_survive_the_run(stage: Stages):
    keys = MemoryKeys()
    list(stream_run.read(stage("source", {"mode": "probe"}, keys=keys), CONTEXT))
    assert keys.get(KeyAddress("stream", '[null,"numbers"]', "k")) == ""
    assert keys.get(KeyAddress("pipeline", "", "k")) is None


def test_a_dry_run_leaves_no_key(stage: Stages):
    keys = MemoryKeys()
    told = list(stream_run.read(stage("source", {"mode": "probe"}, keys=DryKeys(keys)), CONTEXT))
    assert any(isinstance(t, ComponentLog) and t.message == "get ok1café" for t in told)
    assert keys.get(KeyAddress("stream", '[null,"numbers"]', "k")) is None


class CountedKeys(MemoryKeys):
    """Knows what each checkpoint covered."""

    def __init__(self) -> None:
        super().__init__()
        self.since: list[str] = []
        self.covered: list[list[str]] = []

    def put(self, place: KeyAddress, value: str) -> None:
        super().put(place, value)
        self.since.append(place.key)

    def checkpoint(self) -> int:
        self.covered.append(self.since)
        self.since = []
        return len(self.covered)


def test_what_it_keeps_as_it_closes_is_covered_by_the_end_of_its_run(stage: Stages):
    keys = CountedKeys()
    config = {"mode": "close-puts", "frames": 1}
    last = ended(stream_run.read(stage("source", config, keys=keys), CONTEXT))
    assert last.error is None
    assert keys.covered == [["closed"]] and last.keys == 1
    failing = CountedKeys()
    ended(stream_run.read(stage("source", {**config, "fail_after": 1}, keys=failing), CONTEXT))
    assert not failing.covered


# -- destination


def test_a_destination_takes_frames_and_its_checkpoints_count_them(stage: Stages):
    frames = [arrow(n) for n in (10, 1, 3000)]
    told = list(stream_run.write(stage("destination", {"checkpoints": 1}), CONTEXT, frames))
    marks = [t for t in told if isinstance(t, CheckpointCall)]
    assert [(m.kind, m.frames, m.payload and m.payload.id) for m in marks] == [
        (1, 1, 1), (1, 2, 2), (1, 3, 3),
    ]  # fmt: skip
    last = told[-1]
    assert isinstance(last, RunEnded) and last.summary is not None
    assert last.summary.counts["bytes_written"] == sum(map(len, frames))
    assert last.frames_in == 3


def test_a_feed_that_fails_is_an_error_of_next_batch_never_an_end(stage: Stages):
    """Part 6: a source that fails must not look like the end of its stream."""

    def feed() -> Iterator[bytes]:
        yield arrow(5)
        raise SourceError("the source broke", code="source.exited")

    last = ended(stream_run.write(stage("destination", {}), CONTEXT, feed()))
    assert last.summary is None and last.fault is not None and last.host_fault is not None
    assert last.fault.code == last.host_fault.code == "UPSTREAM_FAILED"
    assert isinstance(last.error, DestinationError) and "the source broke" in last.error.message
    assert last.frames_in == 1


def test_oversized_frames_are_cut_to_what_it_takes(stage: Stages):
    limit = 20_000
    context = StreamContext(
        stream_name="numbers",
        sync_mode="full_refresh",
        limits=StreamLimits(max_batch_bytes=limit),
    )
    big = arrow(1000, width=200)
    assert len(big) > 10 * limit
    config = {"biggest": limit}
    last = ended(stream_run.write(stage("destination", config), context, [big, arrow(3)]))
    assert last.error is None and last.frames_in > 10
    uncut = ended(stream_run.write(stage("destination", {"biggest": 100}), CONTEXT, [arrow(3)]))
    assert uncut.fault is not None and uncut.fault.code == "BATCH_TOO_LARGE"


def test_a_record_larger_than_a_batch_fails_with_its_size(stage: Stages):
    context = StreamContext(
        stream_name="numbers", sync_mode="full_refresh", limits=StreamLimits(max_batch_bytes=5000)
    )
    last = ended(stream_run.write(stage("destination", {}), context, [arrow(1, width=50_000)]))
    assert last.error is not None and "RECORD_TOO_LARGE" in last.error.message


def test_a_commit_state_is_kept(stage: Stages):
    last = ended(stream_run.write(stage("destination", {"fail_after": 1}), CONTEXT, [arrow(1)] * 5))
    assert last.fault is not None and last.fault.commit_state == "after_commit_unknown"


def test_a_feed_is_drawn_with_back_pressure(stage: Stages):
    drawn: list[int] = []

    def feed() -> Iterator[bytes]:
        for k in range(1000):
            drawn.append(k)
            yield bytes(100_000)

    pressure = QueueBounds(inbox_bytes=300_000)
    run = stream_run.write(
        stage("destination", {"fail_after": 2}, pressure=pressure), CONTEXT, feed()
    )
    assert ended(run).fault is not None
    assert len(drawn) < 20


def test_only_a_feed_that_ended_well_ends_the_stream(stage: Stages):
    """Closed early, or failed: the connector must not take what came for all of it."""
    ended_key = KeyAddress("pipeline", "", "ended")
    whole = MemoryKeys()
    list(stream_run.write(stage("destination", {}, keys=whole), CONTEXT, [arrow(1)]))
    assert whole.get(ended_key) == "yes"

    cut = MemoryKeys()
    config = {"checkpoints": 1}
    run = stream_run.write(stage("destination", config, keys=cut), CONTEXT, [arrow(1)] * 200)
    assert isinstance(next(run), CheckpointCall)
    run.close()
    assert not any(t.name == "penstock-destination" for t in threading.enumerate())
    broken = MemoryKeys()

    def feed() -> Iterator[bytes]:
        yield arrow(1)
        raise OSError("gone")

    list(stream_run.write(stage("destination", {}, keys=broken), CONTEXT, feed()))
    assert broken.get(ended_key) is None
    slow = MemoryKeys()

    def endless() -> Iterator[bytes]:
        while True:
            yield arrow(1)

    run = stream_run.write(stage("destination", config, keys=slow), CONTEXT, endless())
    assert isinstance(next(run), CheckpointCall)
    run.close()
    assert slow.get(ended_key) is None


# -- transform


def test_a_transform_gives_frames_for_frames(stage: Stages):
    frames = [arrow(n) for n in (1, 20, 300)]
    told = list(stream_run.apply(stage("transform", {}), CONTEXT, frames))
    assert [bytes(t.data) for t in told if isinstance(t, Frame)] == frames
    last = told[-1]
    assert isinstance(last, RunEnded) and last.summary is not None
    assert last.summary.counts["batches_processed"] == 3
    assert (last.frames_in, last.frames_out) == (3, 3)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_frames_that_wait_compressed_are_the_same_to_everybody(stage: Stages, codec: Any):
    """Section 6: host-side compression is transparent; and more of them wait in the same room."""
    frames = [bytes(200_000), b"x", os.urandom(1000), arrow(50)]
    pressure = QueueBounds(inbox_bytes=50_000, outbox_bytes=50_000, codec=codec)
    run = stream_run.apply(stage("transform", {}, pressure=pressure), CONTEXT, frames)
    assert [bytes(t.data) for t in run if isinstance(t, Frame)] == frames


def test_a_transform_between_source_and_destination(stage: Stages):
    """Frames are drawn through all three at once, each held back by the next."""
    small = QueueBounds(inbox_bytes=200_000, outbox_bytes=200_000)

    def frames(items: Iterator[Any]) -> Iterator[bytes]:
        for told in items:
            if isinstance(told, Frame):
                yield bytes(told.data)
            elif isinstance(told, RunEnded) and told.error is not None:
                raise told.error

    first = stream_run.read(
        stage("source", {"frames": 30, "size": 90_000}, pressure=small), CONTEXT
    )
    second = stream_run.apply(stage("transform", {}, pressure=small), CONTEXT, frames(first))
    last = ended(
        stream_run.write(stage("destination", {}, pressure=small), CONTEXT, frames(second))
    )
    assert last.error is None and last.summary is not None
    assert last.summary.counts["bytes_written"] == 30 * 90_000
