"""The pieces beneath the roles, each alone: documents, frames, keys, metrics, retries."""

import json
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.byte_queue import ByteQueue
from penstock.protocols.rapidbyte.guest.frame_table import FramePool, FrameTable
from penstock.protocols.rapidbyte.guest.host import HostBounds, HostFunctions
from penstock.protocols.rapidbyte.guest.metrics import MOST_SERIES, Metrics
from penstock.protocols.rapidbyte.guest.retry import delay, may_retry
from penstock.protocols.rapidbyte.wire import messages
from penstock.protocols.rapidbyte.wire.arrow_ipc import frame_of, split_frames
from penstock.protocols.rapidbyte.wire.frame_check import FrameBounds
from penstock.protocols.rapidbyte.wire.key_scopes import key_place
from penstock.protocols.rapidbyte.wire.messages import ConnectorFault, CursorValue, Refusal
from penstock.store.keys import KeyAddress, MemoryKeys

# -- what planning imports


def test_reading_manifests_and_permissions_does_not_load_the_runtime():
    """``plan`` and ``spec`` stay light: wasmtime alone takes 100 ms."""
    modules = (
        "declared.manifest", "declared.permissions", "declared.host_patterns",
        "wire.messages", "guest.retry",
    )  # fmt: skip
    code = "".join(f"import penstock.protocols.rapidbyte.{m}; " for m in modules) + \
        "import sys; " \
        "print([m for m in sys.modules if m.startswith(('wasmtime', 'pyarrow'))])"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done


# -- documents


def test_config_json_is_compact_and_sorted():
    assert messages.config_json({"b": [1, {"d": 1, "c": "é"}], "a": None}) == (
        '{"a":null,"b":[1,{"c":"é","d":1}]}'
    )


@pytest.mark.parametrize(
    "document, expected",
    [
        ('{"payload":{"id":1},"x":2}', {"id": 1}),
        ('{"id":2}', {"id": 2}),
        ("[1]", [1]),
    ],
)
def test_a_document_in_or_out_of_its_envelope(document: str, expected: Any):
    assert json.loads(messages.unwrap_envelope(document)) == expected


def test_what_is_no_json_has_no_payload():
    with pytest.raises(ValueError):
        messages.unwrap_envelope("{")


@pytest.mark.parametrize(
    "value, text",
    [
        ({"type": "null"}, None),
        ({"type": "int64", "value": -5}, "-5"),
        ({"type": "utf8", "value": "a"}, "a"),
        ({"type": "timestamp_micros", "value": 12}, "12"),
        ({"type": "decimal", "value": "1.50", "scale": 2}, "1.50"),
        ({"type": "json", "value": {"a": [1]}}, '{"a":[1]}'),
        ({"type": "lsn", "value": "0/1"}, "0/1"),
    ],
)
def test_cursor_values_as_v4_keeps_them(value: Any, text: str | None):
    assert msgspec.convert(value, CursorValue).text() == text


@pytest.mark.parametrize(
    "value",
    [
        {"type": "bogus", "value": {"a": 1}},
        {"type": "utf8", "value": True},
        {"type": "utf8"},
        {"type": "int64", "value": 1.5e30},
        {"type": "int64", "value": True},
        {"type": "int64", "value": 1 << 63},
        {"type": "timestamp_micros", "value": "12"},
        {"type": "decimal", "value": "1.50"},
        {"type": "decimal", "value": 1.5, "scale": 2},
        {"type": "json"},
        {"type": "lsn", "value": 7},
        {"value": "a"},
    ],
)
def test_a_cursor_value_that_is_not_its_types_is_no_checkpoint(value: Any):
    """A tagged union (reference, section 2.2): nothing is guessed."""
    mark = {"id": 1, "kind": "source", "stream": "s", "cursor_field": "id", "cursor_value": value,
            "records_processed": 1, "bytes_processed": 1}  # fmt: skip
    with pytest.raises(ValueError):
        messages.decode_json(json.dumps(mark).encode(), messages.CheckpointPayload)


def test_details_that_are_no_json_are_kept_as_text():
    fault = ConnectorFault(category="data", code="X", message="m", details_json="{oops")
    assert fault.report()["details"] == "{oops"
    assert str(fault) == "[data] X: m"


# -- frames (sections 4.1 and 6)


def refused(action: Any) -> str:
    with pytest.raises(Refusal) as caught:
        action()
    assert caught.value.fault.category == "frame"
    return caught.value.fault.code


def test_a_frame_is_writable_then_sealed_then_spent():
    table = FrameTable()
    handle = table.new()
    assert handle == 1 and table.write(handle, b"ab") == 2 and table.write(handle, b"c") == 3
    assert refused(lambda: table.read(handle, 0, 1)) == "FRAME_READ_FAILED"
    assert refused(lambda: table.take(handle)) == "EMIT_BATCH_FAILED"
    table.seal(handle)
    assert bytes(table.read(handle, 1, 2)) == b"bc"
    assert refused(lambda: table.write(handle, b"d")) == "FRAME_WRITE_FAILED"
    assert bytes(table.take(handle)) == b"abc"
    assert refused(lambda: table.length(handle)) == "FRAME_LEN_FAILED"
    assert table.new() == 2  # a handle is never used again
    assert table.live_bytes == 0


def test_a_frame_of_the_stage_before_is_only_read():
    table = FrameTable()
    handle = table.receive(b"abc")
    assert table.length(handle) == 3
    assert refused(lambda: table.write(handle, b"d")) == "FRAME_WRITE_FAILED"
    table.drop(handle)
    table.drop(handle)
    assert len(table) == 0 and table.live_bytes == 0


def test_a_frame_that_grew_too_large_says_so_at_every_call():
    table = FrameTable(FrameBounds(frame_bytes=10))
    handle = table.new()
    assert refused(lambda: table.write(handle, bytes(11))) == "FRAME_WRITE_FAILED"
    assert refused(lambda: table.seal(handle)) == "FRAME_WRITE_FAILED"
    assert table.new() == 2


def fed(*frames: bytes) -> ByteQueue[Any]:
    pipe: ByteQueue[Any] = ByteQueue(1 << 20)
    for frame in frames:
        pipe.put(frame, len(frame), 1)
    pipe.end()
    return pipe


@pytest.mark.parametrize(
    "bounds", [FrameBounds(frames=2), FrameBounds(all_bytes=10), FrameBounds(frames=1)]
)
def test_a_frame_for_which_there_is_no_room_is_not_lost(bounds: FrameBounds):
    """L1: it would be counted as taken, and acked, by the checkpoint after it."""
    frames = [b"first", b"other", b"third", b"4"]
    host = HostFunctions("destination", stream="s", instance="destination", inbox=fed(*frames),
                bounds=HostBounds(frames=bounds))  # fmt: skip
    alive: list[int] = []
    taken: list[bytes] = []
    refusals = 0
    while True:
        try:
            handle = host.next_batch()
        except Refusal as e:
            assert e.fault.code == "NEXT_BATCH_FAILED" and host.frames_in == len(taken)
            refusals += 1
            host.frame_drop(alive.pop(0))
            continue
        if handle is None:
            break
        alive.append(handle)
        taken.append(bytes(host.frame_read(handle, 0, host.frame_len(handle))))
    assert taken == frames and refusals >= 1 and host.frames_in == 4


def test_a_frame_larger_than_all_may_be_is_taken_alone():
    table = FrameTable(FrameBounds(all_bytes=10))
    handle = table.receive(bytes(50))
    assert refused(lambda: table.receive(b"x")) == "NEXT_BATCH_FAILED"
    table.drop(handle)
    table.receive(b"x")


def test_instances_without_a_limit_share_what_the_process_holds_for_them():
    """64 instances may not hold 64 times what one may."""
    pool = FramePool(25, seconds=0.05)
    tables = [FrameTable(FrameBounds(all_bytes=20), pool) for _ in range(3)]
    handles = [t.new() for t in tables]
    tables[0].write(handles[0], bytes(10))
    tables[1].write(handles[1], bytes(10))
    with pytest.raises(Refusal, match="of the other instances more than 25 bytes"):
        tables[2].write(handles[2], bytes(10))
    tables[0].clear()
    again = tables[2].new()
    assert tables[2].write(again, bytes(10)) == 10
    own = FrameTable(FrameBounds(all_bytes=20, pooled=False), pool)
    assert own.write(own.new(), bytes(20)) == 20
    assert refused(lambda: tables[1].receive(bytes(9))) == "NEXT_BATCH_FAILED"
    alone = FrameTable(FrameBounds(all_bytes=20), pool)
    alone.drop(alone.receive(bytes(9)))  # the first is always taken, else nothing would go on
    for table in tables:
        table.clear()
    assert pool.live_bytes == 0


def test_an_instance_waits_for_room_that_another_gives_back():
    pool = FramePool(10, seconds=30)
    one, two = FrameTable(pool=pool), FrameTable(pool=pool)
    handle = one.new()
    one.write(handle, bytes(10))
    timer = threading.Timer(0.05, lambda: one.drop(handle))
    timer.start()
    assert two.write(two.new(), bytes(10)) == 10
    timer.join()


def test_one_that_is_alone_is_not_kept_waiting_for_others():
    table = FrameTable(pool=FramePool(10, seconds=600))
    handle = table.new()
    table.write(handle, bytes(8))
    assert refused(lambda: table.write(handle, bytes(8))) == "FRAME_WRITE_FAILED"


# -- what was refused

DENIED = ConnectorFault(category="permission", code="NETWORK_DENIED", message="no")


@pytest.mark.parametrize("went_on", ["get", "put", "cas", "checkpoint", "next", "emit"])
def test_a_refusal_is_forgotten_once_the_guest_has_gone_on(went_on: str):
    role = "transform" if went_on in ("next", "emit") else "source"
    host = HostFunctions(role, stream="s", instance="x", inbox=fed(b"a"), out=ByteQueue(1 << 20))
    host.record_refusal(Refusal(DENIED))
    frame = host.frame_new(1)
    host.frame_write(frame, b"a")
    host.frame_seal(frame)
    host.log(2, "what now")
    assert host.first_fault is not None  # proves nothing
    match went_on:
        case "get":
            host.state_get(0, "k")
        case "put":
            host.state_put(0, "k", "v")
        case "cas":
            host.state_cas(0, "k", None, "v")
        case "checkpoint":
            host.checkpoint(0, "{}")
        case "next":
            host.next_batch()
        case _:
            host.emit_batch(frame)
    assert host.first_fault is None


def test_waiting_for_the_state_store_is_not_the_guests_time():
    class Slow(MemoryKeys):
        def get(self, key_place: KeyAddress) -> str | None:
            assert depth == [1]
            return super().get(key_place)

    depth: list[int] = []

    @contextmanager
    def waiting() -> Generator[None]:
        depth.append(1)
        yield
        depth.pop()

    host = HostFunctions("source", stream="s", instance="source", keys=Slow())
    host.attach(waiting)
    assert host.state_get(0, "k") is None and not depth


# -- keys (section 4.3)


def test_keys_have_owners():
    assert key_place(0, "k", stream="s", instance="source") == KeyAddress("pipeline", "", "k")
    assert key_place(1, "k", stream="s", instance="source") == KeyAddress("stream", "s", "k")
    assert key_place(2, "k", stream="s", instance="transform:1") == KeyAddress(
        "instance", "transform:1", "k"
    )


def test_compare_and_swap_under_concurrent_writers():
    keys, where = MemoryKeys(), KeyAddress("pipeline", "", "count")

    def work() -> None:
        for _ in range(200):
            while True:
                seen = keys.get(where)
                if keys.compare_and_swap(where, seen, str(int(seen or 0) + 1)):
                    break

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert keys.get(where) == "800"


# -- metrics


def test_metrics_are_all_kept_in_bounded_space():
    metrics = Metrics()
    for i in range(MOST_SERIES + 5):
        document = {"name": f"m{i}", "value": {"type": "gauge", "value": i}}
        metrics.add(msgspec.convert(document, messages.MetricPayload))
    assert len(metrics.all()) == MOST_SERIES and metrics.dropped == 5
    again = {"name": "m3", "value": {"type": "gauge", "value": -1.5}}
    metrics.add(msgspec.convert(again, messages.MetricPayload))
    third = metrics.all()[3]
    assert (third.count, third.last, third.least, third.most) == (2, -1.5, -1.5, 3)


# -- retries (section 5)

FAULT = ConnectorFault(
    category="transient_db", code="X", message="m", retryable=True, safe_to_retry=True
)


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, True),
        ({"retryable": False}, False),
        ({"safe_to_retry": False}, False),
        ({"commit_state": "before_commit"}, True),
        ({"commit_state": "after_commit_unknown"}, False),
        ({"commit_state": "after_commit_confirmed"}, False),
    ],
)
def test_a_retry_needs_every_consent(changes: dict[str, Any], expected: bool):
    assert may_retry(msgspec.structs.replace(FAULT, **changes)) is expected


def test_what_the_host_refused_for_good_is_not_tried_again():
    denied = ConnectorFault(category="permission", code="NETWORK_DENIED", message="no")
    assert not may_retry(FAULT, denied)
    assert may_retry(FAULT, FAULT)


@pytest.mark.parametrize(
    "backoff, attempt, most",
    [("fast", 1, 0.1), ("normal", 1, 1), ("normal", 3, 4), ("slow", 2, 10), ("slow", 99, 60)],
)
def test_delays_double_with_jitter_up_to_a_minute(backoff: str, attempt: int, most: float):
    fault = msgspec.structs.replace(FAULT, backoff_class=backoff)
    assert delay(fault, attempt, 1.0) == pytest.approx(most)
    assert delay(fault, attempt, 0.0) == pytest.approx(most / 2)


def test_a_delay_that_was_asked_for_is_never_cut_short():
    fault = msgspec.structs.replace(FAULT, retry_after_ms=90_000)
    assert delay(fault, 1, 0.0) == 90
    assert 90 <= delay(fault, 5, 0.7) <= 180


# -- cutting frames


def test_cut_frames_hold_the_same_rows_in_the_same_order():
    sizes = [1, 5000, 1, 1, 9000, 3, 2, 7000]
    column = pa.array(["x" * n for n in sizes])
    frame = frame_of(pa.RecordBatch.from_arrays([column], ["t"]))
    pieces = list(split_frames([frame, b"as it is"], 10_000))
    assert pieces[-1] == b"as it is"
    assert all(len(p) <= 10_000 for p in pieces)
    rows: list[str] = []
    for piece in pieces[:-1]:
        with pa.ipc.open_stream(pa.py_buffer(piece)) as reader:
            rows += reader.read_all().column("t").to_pylist()
    assert rows == column.to_pylist()


def test_what_must_be_cut_and_is_no_arrow_is_refused():
    with pytest.raises(Refusal) as caught:
        list(split_frames([bytes(100)], 50))
    assert caught.value.fault.code == "FRAME_DECODE"
