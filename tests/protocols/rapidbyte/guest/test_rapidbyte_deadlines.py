"""How long a guest is waited for: while it is asked, and while it runs, with and without input
(L11)."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.protocols.rapidbyte.guest import probe, stream_run
from penstock.protocols.rapidbyte.guest.deadlines import (
    LONGEST_CHECK,
    LONGEST_DISCOVER,
    AnswerTimeout,
)
from penstock.protocols.rapidbyte.guest.events import ComponentLog, Frame, RunEnded
from penstock.protocols.rapidbyte.guest.host import HostBounds
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.messages import StreamContext
from penstock.runtimes.contract import RunTimeouts

pytestmark = pytest.mark.dear

Stages = Callable[..., Stage]
CONTEXT = StreamContext(stream_name="numbers", sync_mode="full_refresh")
LOCAL = {"hosts": ("127.0.0.1",)}


@pytest.fixture
def silent() -> Iterator[int]:
    """It takes connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def gone(name: str) -> bool:
    until = time.monotonic() + 10
    while any(t.name == name for t in threading.enumerate()):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def last(items: Iterator[Any]) -> RunEnded:
    *_, told = items
    assert isinstance(told, RunEnded)
    return told


# -- while it is asked


@pytest.mark.parametrize(
    "timeouts, most, expected",
    [
        (RunTimeouts(start=3, heartbeat=5), LONGEST_CHECK, AnswerTimeout(3, "timeouts.start")),
        (RunTimeouts(start=3, total=40), LONGEST_CHECK, AnswerTimeout(40, "timeouts.total")),
        (RunTimeouts(total=LONGEST_CHECK), LONGEST_CHECK, AnswerTimeout(LONGEST_CHECK)),
        (RunTimeouts(start=9000), LONGEST_DISCOVER, AnswerTimeout(LONGEST_DISCOVER)),
    ],
)
def test_an_answer_always_has_a_bound(timeouts: RunTimeouts, most: float, expected: AnswerTimeout):
    assert AnswerTimeout.of(timeouts, most) == expected


def _check(stage: Stage, within: AnswerTimeout) -> Any:
    return probe.check(stage, lambda _: None, within)


@pytest.mark.parametrize(
    "role, ask",
    [
        ("source", _check),
        ("source", lambda stage, within: probe.discover(stage, lambda _: None, within)),
        ("transform", _check),
        ("destination", _check),
    ],
)
@pytest.mark.parametrize("mode", ["polls", "polls-on"])
def test_a_silent_peer_ends_a_question_and_the_guest(
    stage: Stages, silent: int, role: str, ask: Callable[[Stage, AnswerTimeout], Any], mode: str
):
    """Also of a guest that does not take no for an answer."""
    asked = stage(role, {"mode": mode, "host": "127.0.0.1", "port": silent}, allow=LOCAL)
    began = time.monotonic()
    with pytest.raises(PenstockError) as caught:
        ask(asked, AnswerTimeout(0.5, "timeouts.start"))
    assert time.monotonic() - began < 5
    error = caught.value
    assert error.code == "connector.timeout"
    assert f"within 0.5 s, while it waited for 127.0.0.1:{silent}" in error.message
    assert "raise timeouts.start" in (error.hint or "")
    assert "timeout_seconds" not in (error.hint or "")
    assert gone(f"penstock-{role}")


def test_after_an_answer_was_given_up_nobody_is_told_more(stage: Stages, silent: int):
    said: list[ComponentLog] = []
    config = {"mode": "polls", "host": "127.0.0.1", "port": silent}
    with pytest.raises(PenstockError):
        probe.check(stage("source", config, allow=LOCAL), said.append, AnswerTimeout(0.3))
    told = len(said)
    assert gone("penstock-source") and len(said) == told


# -- while it runs


@pytest.mark.parametrize("role", ["source", "transform", "destination"])
def test_a_run_that_polls_a_silent_peer_ends_at_its_heartbeat(
    stage: Stages, silent: int, role: str
):
    """It hardly works meanwhile, so the limit of its work does not end it."""
    bounds = HostBounds(silence=1.0)
    config = {"mode": "tcp", "host": "127.0.0.1", "port": silent, "bytes": 10}
    polling = stage(role, config, allow=LOCAL, bounds=bounds)
    began = time.monotonic()
    if role == "source":
        ended = last(stream_run.read(polling, CONTEXT, tick=0.2))
    else:
        apply: Any = stream_run.apply if role == "transform" else stream_run.write
        ended = last(apply(polling, CONTEXT, [b"x"]))
    assert 1.0 <= time.monotonic() - began < 8
    assert ended.error is not None and ended.error.code == "connector.heartbeat"
    assert f"for 1 s, while it waited for 127.0.0.1:{silent}" in ended.error.message
    assert "raise timeouts.heartbeat" in (ended.error.hint or "")
    assert gone(f"penstock-{role}")


def test_lines_of_its_log_are_no_sign_of_life(stage: Stages):
    """As of any source: its heartbeat is a record or a state."""
    bounds = HostBounds(silence=0.5, log_lines=10_000_000)
    talking = stage("source", {"mode": "logs", "n": 10_000_000}, bounds=bounds)
    ended = last(stream_run.read(talking, CONTEXT))
    assert ended.error is not None and ended.error.code == "connector.heartbeat"
    assert gone("penstock-source")


def test_a_frame_taken_is_a_sign_of_life(stage: Stages):
    """A destination that replaces says nothing before its end, and takes what comes."""

    def feed() -> Iterator[bytes]:
        for _ in range(8):
            time.sleep(0.3)
            yield b"x"

    bounds = HostBounds(timeout=1.0)
    ended = last(stream_run.write(stage("destination", {}, bounds=bounds), CONTEXT, feed()))
    assert ended.error is None and ended.frames_in == 8


def test_waiting_for_input_is_no_silence(stage: Stages):
    """Of a stream whose source reads others meanwhile; what it says of itself has its own bound."""

    def feed() -> Iterator[bytes]:
        yield b"x"
        time.sleep(2.5)
        yield b"y"

    bounds = HostBounds(timeout=60.0, silence=1.0)
    told = list(stream_run.apply(stage("transform", {}, bounds=bounds), CONTEXT, feed()))
    assert [bytes(t.data) for t in told if isinstance(t, Frame)] == [b"x", b"y"]
    assert isinstance(told[-1], RunEnded) and told[-1].error is None


def test_a_slow_listener_is_not_the_guests_silence(stage: Stages):
    bounds = HostBounds(silence=0.5)
    frames = 0
    for told in stream_run.read(stage("source", {"frames": 3}, bounds=bounds), CONTEXT):
        frames += isinstance(told, Frame)
        assert not isinstance(told, RunEnded) or told.error is None
        time.sleep(0.6)
    assert frames == 3
