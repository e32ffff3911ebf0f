"""Which failures of a connector may pass, and after how long (protocol 0.18, failure types)."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.model.catalog import StreamId
from penstock.model.events import Error, Event, RateLimitWait, Status, StreamStatus
from penstock.protocols.airbyte.retry import delay, with_retries, with_write_retries
from penstock.protocols.reading import ReadRequest
from penstock.protocols.writing import Answer, WriteRequest

A, B = StreamId(None, "a"), StreamId(None, "b")


def request(**more: Any) -> ReadRequest:
    return ReadRequest(config={}, streams=(), attempts=3, backoff=10.0, **more)


def waits(*events: Event, **more: Any) -> list[float | None]:
    def told() -> Iterator[Event]:
        yield from events

    return [e.retry for e in with_retries(told(), request(**more)) if isinstance(e, Error)]


def test_a_transient_error_may_pass_and_no_other() -> None:
    for kind in ("config_error", "system_error", None, "another"):
        assert waits(Error("m", kind)) == [None]
    for stream in (None, A):
        (wait,) = waits(Error("m", "transient_error", stream))
        assert wait is not None and 10 <= wait <= 12.5


def test_attempts_are_counted_and_end() -> None:
    """Three in a run; waits grow threefold."""
    (wait,) = waits(Error("m", "transient_error", A), tries={A: 1})
    assert wait is not None and 30 <= wait <= 37.5
    assert waits(Error("m", "transient_error", A), tries={A: 2}) == [None]
    assert waits(Error("m", "transient_error"), tries={A: 2, B: 0}) == [None]
    assert waits(Error("m", "transient_error", B), tries={A: 2}) != [None]
    once = ReadRequest(config={}, streams=())
    (told,) = with_retries(iter([Error("m", "transient_error")]), once)
    assert isinstance(told, Error) and told.retry is None


@pytest.mark.parametrize(("tried", "least"), [(1, 10), (2, 30), (3, 90), (4, 270), (40, 270)])
def test_waits_have_a_bound(tried: int, least: float) -> None:
    assert delay(10.0, tried, 0.0) == least and delay(10.0, tried, 1.0) == least * 1.25


def test_a_source_that_told_when_its_quota_is_reset_is_left_alone_until_then() -> None:
    until = int((time.time() + 100) * 1000)
    limited = StreamStatus(A, Status.running, RateLimitWait(until))
    (wait,) = waits(limited, Error("m", "transient_error", A))
    assert wait is not None and 95 < wait <= 100
    (wait,) = waits(limited, Error("m", "transient_error"))
    assert wait is not None and 95 < wait <= 100
    (wait,) = waits(limited, Error("m", "transient_error", B))
    assert wait is not None and wait < 13
    far = StreamStatus(A, Status.running, RateLimitWait(until * 2))
    assert waits(far, Error("m", "transient_error", A)) == [3600.0]
    assert waits(StreamStatus(A, Status.running, RateLimitWait()), Error("m", "transient_error"))[0]


# -- destinations


def write_waits(*answers: Answer, **more: Any) -> list[float | None]:
    request = WriteRequest(
        config={}, streams=(), source_protocol="airbyte", **{"attempts": 3, "backoff": 10.0, **more}
    )
    told = with_write_retries(iter(answers), request)
    return [a.retry for a in told if isinstance(a, Error)]


def test_a_destinations_transient_error_may_pass_and_no_other() -> None:
    for kind in ("config_error", "system_error", None, "another"):
        assert write_waits(Error("m", kind)) == [None]
    (wait,) = write_waits(Error("m", "transient_error"))
    assert wait is not None and 10 <= wait <= 12.5
    (wait,) = write_waits(Error("m", "transient_error", A), attempt=2)
    assert wait is not None and 30 <= wait <= 37.5
    assert write_waits(Error("m", "transient_error"), attempt=3) == [None]
    assert write_waits(Error("m", "transient_error"), attempts=1) == [None]


def test_that_it_left_in_the_middle_is_the_same_failure() -> None:
    """It exits with 0 after it said what was wrong."""
    left = Error("in the middle", "system_error", code="destination.ended_early")
    assert write_waits(left) == [None]
    first, second = write_waits(Error("m", "transient_error"), left)
    assert first == second is not None
