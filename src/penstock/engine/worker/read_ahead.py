"""Reads a source's events ahead in a thread, so that framing overlaps with decoding and writing.

Keeps the order of events, and raises an error where the source raised it. The whole conversation,
its end included, happens in that one thread, since a channel may be used by one thread only.
Neighbours: ``engine.worker.lane`` iterates over it, ``byte_queue`` holds what waits.
"""

import threading
from collections.abc import Generator, Iterator
from typing import Self

from penstock.byte_queue import ByteQueue, QueueAbandoned
from penstock.model.events import Batch, Event, Reject, State

AHEAD_BYTES = 12 << 20
"""The size of a part (``Bounds.part_bytes``): the next part is framed while one is decoded."""
CLOSE_SECONDS = 60.0  # for the conversation to stop and its connector to end


class ReadAhead:
    """An iterator over events that are read ahead. Iterate once; call :meth:`close` always. At most
    ``bound`` bytes of events wait, or one event that is larger."""

    def __init__(self, events: Iterator[Event], bound: int = AHEAD_BYTES) -> None:
        self._events = events
        self._queue: ByteQueue[Event] = ByteQueue(bound)
        self._taken = self._queue.items()
        self._thread = threading.Thread(target=self._read, name="source", daemon=True)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        return next(self._taken)

    def close(self) -> None:
        """Ends the conversation; events that were not taken are dropped. Idempotent."""
        self._queue.abandon()
        self._thread.join(CLOSE_SECONDS)

    def _read(self) -> None:
        failure: BaseException | None = None
        try:
            for event in self._events:
                try:
                    self._queue.put(event, _size(event))
                except QueueAbandoned:
                    break  # close() was called
        except BaseException as e:  # raised again in the iterating thread
            failure = e
        try:
            if isinstance(self._events, Generator):
                self._events.close()
        except BaseException as e:
            failure = failure or e
        if failure is None:
            self._queue.end()
        else:
            self._queue.fail(failure)


def _size(event: Event) -> int:
    match event:
        case Batch():
            return event.size
        case Reject():
            return len(event.raw)
        case State():
            return len(event.blob)
        case _:
            return 0
