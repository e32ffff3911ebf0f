"""Decides which failures of a connector are retried, and after what delay.

Only ``transient_error`` is retried (protocol 0.18, AirbyteErrorTraceMessage). ``config_error`` does
not pass by itself. ``system_error`` is also the type of an error without a type: the connector does
not know whether the fault may pass. Delays grow as the platform's do (reference, airbyte §2: 10 s,
30 s, 90 s); a source that reported its quota reset is not retried before it. A restarted
destination gets what it did not ack. Not here: restarting (``engine.worker.lane_failures``,
``engine.deliver.connector_delivery``).
"""

import random
import time
from collections.abc import Iterator

from penstock.model.catalog import StreamId
from penstock.model.events import Error, Event, StreamStatus
from penstock.protocols.airbyte.enums import FailureType
from penstock.protocols.reading import ReadRequest
from penstock.protocols.writing import Answer, WriteRequest

_FACTOR = 3
_LONGEST = 270.0
_LONGEST_QUOTA = 3600.0
"""The longest wait for a quota's reset: every wait has a bound (L11)."""


def with_retries(events: Iterator[Event], request: ReadRequest) -> Iterator[Event]:
    """Yields the events of a source; sets ``retry`` on errors that are retried."""
    resets: dict[StreamId, float] = {}
    for event in events:
        if isinstance(event, StreamStatus) and event.limited is not None:
            resets[event.stream] = (event.limited.until or 0) / 1000
        if isinstance(event, Error) and event.failure_type == FailureType.transient_error:
            tried = _tried(request, event.stream)
            if tried < request.attempts:
                until = [at for s, at in resets.items() if event.stream in (None, s)]
                event.retry = max(
                    delay(request.backoff, tried, random.random()),
                    min(max(until, default=0.0) - time.time(), _LONGEST_QUOTA),
                )
        yield event


def with_write_retries(answers: Iterator[Answer], request: WriteRequest) -> Iterator[Answer]:
    """Yields the answers of a destination; sets ``retry`` on errors that are retried. An early end
    after such an error is retried too."""
    wait: float | None = None
    for answer in answers:
        if isinstance(answer, Error) and request.attempt < request.attempts:
            if answer.failure_type == FailureType.transient_error:
                wait = delay(request.backoff, request.attempt, random.random())
                answer.retry = wait
            elif answer.code == "destination.ended_early":
                answer.retry = wait
        yield answer


def delay(backoff: float, tried: int, spread: float) -> float:
    """Returns the seconds to wait after the ``tried``-th attempt (from 1), with up to a quarter
    more. ``spread``: a random number from 0 to 1."""
    return min(backoff * _FACTOR ** min(tried - 1, 16), max(backoff, _LONGEST)) * (1 + spread / 4)


def _tried(request: ReadRequest, stream: StreamId | None) -> int:
    """Returns the number of attempts, this one included."""
    tries = request.tries
    before = max(tries.values(), default=0) if stream is None else tries.get(stream, 0)
    return before + 1
