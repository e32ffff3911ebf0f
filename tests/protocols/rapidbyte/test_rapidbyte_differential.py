"""The same guests plain and wrapped: what they see, tell and emit is the same (issue 5, part 2).

The adapter is never the only evidence of itself. The guest logs the outcome of each call it makes,
right ones and wrong ones, with every field of an error and a digest of all bytes."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import SourceError
from penstock.protocols.rapidbyte.guest import stream_run
from penstock.protocols.rapidbyte.guest.events import (
    ComponentLog,
    DeadLettered,
    Frame,
    RunEnded,
    StageEvent,
)
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.messages import StreamContext

pytestmark = pytest.mark.dear

CONTEXT = StreamContext(stream_name="numbers", sync_mode="full_refresh")
FRAMES = [bytes((i * 7 + k) % 256 for i in range(n)) for k, n in enumerate((1, 300, 4096, 70001))]


def plainly(told: StageEvent) -> Any:
    """Without what may differ: times, and the warning that it runs plain."""
    if isinstance(told, Frame):
        return ("frame", told.number, bytes(told.data))
    if isinstance(told, DeadLettered):
        return ("letter", told.letter.record_json, told.letter.error_category)
    if isinstance(told, RunEnded):
        return ("ended", told.summary, told.fault, told.host_fault, told.frames_in, told.frames_out)
    return told


def seen(items: Any) -> list[Any]:
    return [
        plainly(t) for t in items if not (isinstance(t, ComponentLog) and "fast path" in t.message)
    ]


def run(stage: Stage) -> list[Any]:
    role = stage.loaded.role
    if role == "source":
        return seen(stream_run.read(stage, CONTEXT))
    given = stream_run.write if role == "destination" else stream_run.apply
    return seen(given(stage, CONTEXT, iter(FRAMES)))


CASES = [
    ("source", {"mode": "probe"}),
    ("source", {"mode": "context"}),
    ("source", {"frames": 3, "size": 5000, "chunk": 700}),
    ("source", {"frames": 2, "size": 10, "checkpoints": 1, "odd_checkpoint": 1}),
    ("source", {"frames": 3, "size": 50, "fail_after": 2}),
    ("source", {"mode": "open-err"}),
    ("source", {"mode": "no-summary"}),
    ("destination", {"mode": "probe"}),
    ("destination", {"chunk": 4096}),
    ("destination", {"chunk": 999, "checkpoints": 1, "fail_after": 3}),
    ("destination", {"mode": "connect-twice", "host": "x.example", "ip": "10.0.0.1"}),
    ("transform", {"mode": "probe"}),
    ("transform", {"chunk": 1000}),
]


@pytest.mark.parametrize("role, config", CASES, ids=lambda v: str(v))
def test_plain_and_wrapped_see_the_same(
    stage: Callable[..., Stage], role: str, config: dict[str, Any]
):
    plain, wrapped = (run(stage(role, config, plain=p)) for p in (True, False))
    assert wrapped == plain
    if config.get("mode") == "probe":
        assert sum(isinstance(t, ComponentLog) for t in wrapped) > 100


@pytest.mark.parametrize("seed", range(12))
def test_calls_in_any_order_see_the_same(stage: Callable[..., Stage], seed: int):
    config = {"mode": "random", "seed": seed * 7919 + 1, "steps": 400}
    plain, wrapped = (run(stage("source", config, plain=p)) for p in (True, False))
    assert wrapped == plain
    lines = [t.message for t in wrapped if isinstance(t, ComponentLog)]
    assert sum(" ok" in line for line in lines) > 50
    assert sum(" err " in line for line in lines) > 20


def test_a_plain_guest_is_warned_about(stage: Callable[..., Stage]):
    told = list(stream_run.read(stage("source", {"frames": 1}, plain=True), CONTEXT))
    assert any(isinstance(t, ComponentLog) and "without the fast path" in t.message for t in told)


def test_errors_that_only_a_wrapped_guest_can_be_told(stage: Callable[..., Stage]):
    """next-batch, state-get and the socket calls: wasmtime cannot lower their errors."""
    lines = [t.message for t in run(stage("source", {"mode": "probe-errors"}))
             if isinstance(t, ComponentLog)]  # fmt: skip
    for part in ("NO_RECEIVER", "INVALID_SCOPE", "KEY_TOO_LONG", "INVALID_SOCKET"):
        assert any(part in line for line in lines), part
    *_, ended = run(stage("source", {"mode": "probe-errors"}, plain=True))
    assert ended[1] is None  # a plain one is ended instead, and the error is kept
    assert ended[3].code == "NO_RECEIVER"
    *_, told = stream_run.read(stage("source", {"mode": "probe-errors"}, plain=True), CONTEXT)
    assert isinstance(told, RunEnded) and told.error is not None
    assert told.error.code == "connector.failed" and "cannot be notified" in told.error.message


def test_pieces_larger_than_a_crossing(stage: Callable[..., Stage]):
    """Beyond PIECE, odd sizes and odd pieces; the plain way cannot carry these."""
    for size, chunk in ((262_144, 0), (262_145, 0), (1_500_001, 0), (1_500_001, 262_143)):
        told = run(stage("source", {"frames": 2, "size": size, "chunk": chunk}))
        for k in range(2):
            frame = next(t for t in told if t[0] == "frame" and t[1] == k + 1)[2]
            assert len(frame) == size
            assert frame == bytes((i * 31 + (i >> 8) + k) & 255 for i in range(size))


def test_a_frame_goes_through_a_transform_unchanged(stage: Callable[..., Stage]):
    given = [bytes(range(256)) * 3000, b"\xff" * 262_144, b"\x80\x00" * 150_001]
    for chunk in (0, 262_144, 100_003):
        told = stream_run.apply(stage("transform", {"chunk": chunk}), CONTEXT, iter(given))
        assert [bytes(t.data) for t in told if isinstance(t, Frame)] == given


def test_open_error_keeps_every_field(stage: Callable[..., Stage]):
    """Protocol, section 5."""
    *_, ended = stream_run.read(stage("source", {"mode": "open-err"}), CONTEXT)
    assert isinstance(ended, RunEnded) and isinstance(ended.error, SourceError)
    assert ended.error.connector == {
        "category": "config", "scope": "batch", "code": "BAD_CONFIG",
        "message": "café: bad config", "retryable": True, "retry_after_ms": 1500,
        "backoff_class": "slow", "safe_to_retry": True, "commit_state": "before_commit",
        "details": {"at": [1]}, "host_fault": None,
    }  # fmt: skip
