"""Which failures of a connector may pass, and after how long it may be tried again.

``transient_error`` may (protocol 0.18, AirbyteErrorTraceMessage). ``config_error`` does not pass by
itself. Nor is ``system_error``, which is also what an error without a type is, tried again in the
same run: it is what a connector says of a fault of its own, where it does not know that the fault
may pass. Waits grow as the platform's do (reference, airbyte §2: 10 s, 30 s, 90 s); a source that
told when its quota is reset is left alone until then. A destination that is begun again is sent
what it did not ack. Neighbours: ``engine.worker.lane_failures``,
``engine.deliver.connector_delivery``.
"""

import random
import time
from collections.abc import Iterator

from penstock.model.catalog import StreamId
from penstock.model.events import Error, Event, StreamStatus
from penstock.protocols.airbyte.enums import FailureType
from penstock.protocols.contract import Answer, ReadRequest, WriteRequest

_FACTOR = 3
_LONGEST = 270.0
_LONGEST_QUOTA = 3600.0
"""However late a quota is reset: every wait has a bound."""


def with_retries(events: Iterator[Event], request: ReadRequest) -> Iterator[Event]:
    """The same events; failures that may pass have their ``retry``."""
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
    """The same answers of a destination; failures that may pass have their ``retry``. That it
    ended in the middle of its input, after such a failure, is no other failure."""
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
    """Seconds after the ``tried``-th attempt (from 1), with up to a quarter more. ``spread``: a
    number from 0 to 1 that the caller draws."""
    return min(backoff * _FACTOR ** min(tried - 1, 16), max(backoff, _LONGEST)) * (1 + spread / 4)


def _tried(request: ReadRequest, stream: StreamId | None) -> int:
    """How often, this attempt included."""
    known = request.tries
    most = max(known.values(), default=0) if stream is None else known.get(stream, 0)
    return most + 1
