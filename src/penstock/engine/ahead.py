"""A source's events, read ahead in a thread: framing overlaps with decoding and writing.

Nothing but a bounded queue: the same events in the same order, the same error at the same place.
The whole conversation, its end included, happens in that one thread, for a channel belongs to one.
Neighbour: ``engine.child`` iterates over it.
"""

import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import Self

from penstock.errors import Defect
from penstock.model.events import Batch, Event, Reject, State

AHEAD_BYTES = 8 << 20
CLOSE_SECONDS = 60.0  # for the conversation to notice, and its connector to be ended
_OBJECT_BYTES = 1024  # what an event counts beside its content


class Ahead:
    """Iterate once; :meth:`close` always. At most ``bound`` bytes of events wait to be taken, or
    one event that is larger."""

    def __init__(self, events: Iterator[Event], bound: int = AHEAD_BYTES) -> None:
        self._events, self._bound = events, bound
        self._queue: deque[tuple[Event, int]] = deque()
        self._weight = 0
        self._closed = self._ended = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="source", daemon=True)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        with self._changed:
            while not self._queue:
                if self._ended:
                    failure, self._failure = self._failure, None
                    if failure is not None:
                        raise failure
                    raise StopIteration
                if not self._changed.wait(1.0) and not self._thread.is_alive():
                    raise Defect("the thread that reads the source is gone")
            event, weight = self._queue.popleft()
            self._weight -= weight
            self._changed.notify_all()
            return event

    def close(self) -> None:
        """End the conversation; what was not taken is dropped. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(CLOSE_SECONDS)

    def _read(self) -> None:
        failure: BaseException | None = None
        try:
            for event in self._events:
                if not self._put(event):
                    break
        except BaseException as e:  # whatever it is, whoever iterates must get it
            failure = e
        try:
            if isinstance(self._events, Generator):
                self._events.close()
        except BaseException as e:
            failure = failure or e
        with self._changed:
            self._failure, self._ended = failure, True
            self._changed.notify_all()

    def _put(self, event: Event) -> bool:
        """False once nobody wants more."""
        weight = _weight(event)
        with self._changed:
            while not self._closed and self._queue and self._weight + weight > self._bound:
                self._changed.wait(1.0)
            if self._closed:
                return False
            self._queue.append((event, weight))
            self._weight += weight
            self._changed.notify_all()
            return True


def _weight(event: Event) -> int:
    match event:
        case Batch():
            return _OBJECT_BYTES + event.size
        case Reject():
            return _OBJECT_BYTES + len(event.raw)
        case State():
            return _OBJECT_BYTES + len(event.blob)
        case _:
            return _OBJECT_BYTES
