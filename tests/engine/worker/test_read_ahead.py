"""Reading ahead changes neither the order of events nor where an error comes (L2, L11)."""

import threading
import time
from collections.abc import Iterator

import pytest

from penstock.engine.worker.read_ahead import ReadAhead
from penstock.errors import SourceError
from penstock.model.catalog import StreamId
from penstock.model.events import Batch, ConnectorExited, Event, State, Tick
from penstock.model.state import StateScope, StateType

STREAM = StreamId(None, "s")


def batch(number: int, size: int = 10) -> Batch:
    return Batch(STREAM, [b"{}"], [number], {}, size)


def state(number: int) -> State:
    return State(StateScope(StateType.stream, STREAM), str(number))


def test_l2_events_keep_their_order() -> None:
    events: list[Event] = []
    for number in range(500):
        events += [batch(number), state(number)]
    events.append(ConnectorExited(0))
    assert list(ReadAhead(iter(events), bound=5_000)) == events


def test_an_error_comes_after_every_event_before_it() -> None:
    def source() -> Iterator[Event]:
        yield batch(1)
        yield batch(2)
        raise SourceError("gone", code="source.failed")

    ahead = ReadAhead(source())
    taken: list[Event] = []
    with pytest.raises(SourceError, match="gone"):
        taken.extend(ahead)
    assert taken == [batch(1), batch(2)]
    assert next(ahead, None) is None


def test_no_more_than_the_bound_waits_and_one_large_event_passes() -> None:
    given = 0

    def source() -> Iterator[Event]:
        nonlocal given
        for number in range(20):
            given += 1
            yield batch(number, 1_000_000)

    ahead = ReadAhead(source(), bound=3_500_000)
    deadline = time.monotonic() + 5
    while given < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert given == 4  # three wait, one is in hand
    assert next(ReadAhead(iter([batch(1, 10**9)]), bound=10)).size == 10**9
    assert len(list(ahead)) == 20


def test_l11_close_ends_the_conversation_in_the_thread_that_held_it() -> None:
    threads: list[int] = []

    def source() -> Iterator[Event]:
        threads.append(threading.get_ident())
        try:
            while True:
                yield Tick()
        finally:
            threads.append(threading.get_ident())

    ahead = ReadAhead(source(), bound=10_000)
    assert next(ahead) == Tick()
    began = time.monotonic()
    ahead.close()
    ahead.close()
    assert time.monotonic() - began < 10
    assert len(threads) == 2 and threads[0] == threads[1] != threading.get_ident()
