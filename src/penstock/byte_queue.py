"""Holds items between threads, bounded in bytes, so that a slow reader holds its writer back.

One item is always admitted into an empty queue, however large; a number of items, far above what
bytes allow, bounds those without any. Either side ends the other's wait at once: ``end`` and
``fail`` the reader's, ``abandon`` the writer's. Several queues may share the condition that tells
of their changes, so that one thread can wait for whichever moves first. Not here: what the items
are, the threads.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")
MOST_ITEMS = 4096
_LOOK = 5.0  # a wait looks around at least this often


class QueueAbandoned(Exception):
    """Nobody reads this queue any more."""


class WriterFailed(Exception):
    """The writing side failed; ``cause`` shows how. What it wrote before was read first."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class TooLong(Exception):
    """The other side did nothing for as long as it may."""


class QueueEnd(Enum):
    """The writing side is done."""

    END = "end"


END = QueueEnd.END


class ByteQueue(Generic[T]):
    """``max_bytes``: sum of the sizes that were given. ``put_waited``, ``get_waited``: seconds."""

    def __init__(
        self,
        max_bytes: int,
        max_items: int = MOST_ITEMS,
        changed: threading.Condition | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_items = max_items
        self._items: deque[tuple[T, int]] = deque()
        self._queued_bytes = 0
        self._ended = False
        self._failure: BaseException | None = None
        self._abandoned = False
        self.changed = changed or threading.Condition()
        self.put_waited = 0.0
        self.get_waited = 0.0

    # -- the writing side

    def put(self, item: T, size: int, timeout: float | None = None) -> None:
        """Raises :class:`QueueAbandoned`, and :class:`TooLong` after ``timeout`` seconds without
        room; None: the reader alone decides how long."""
        with self.changed:
            if not self.has_room(size):
                began = time.monotonic()
                try:
                    self._wait(lambda: self.has_room(size), timeout)
                finally:
                    self.put_waited += time.monotonic() - began
            self._add(item, size)

    def offer(self, item: T, size: int) -> bool:
        """As :meth:`put`, without waiting. False: there is no room now."""
        with self.changed:
            room = self.has_room(size)
            if room:
                self._add(item, size)
            return room

    def has_room(self, size: int) -> bool:
        """Whether :meth:`put` would not wait."""
        if self._abandoned or not self._items:
            return True
        return self._queued_bytes + size <= self._max_bytes and len(self._items) < self._max_items

    def end(self) -> None:
        """Nothing follows."""
        with self.changed:
            self._ended = True
            self.changed.notify_all()

    def fail(self, cause: BaseException) -> None:
        """Ends it with a failure; the first one counts."""
        with self.changed:
            if not self._ended and self._failure is None:
                self._failure = cause
            self.end()

    # -- the reading side

    def get(self, timeout: float | None = None) -> T | QueueEnd:
        """The next item, ``END`` for ever after the last one. Raises :class:`WriterFailed` after
        the last one of a writer that failed, and :class:`TooLong`."""
        with self.changed:
            if not self._has_news():
                began = time.monotonic()
                try:
                    self._wait(self._has_news, timeout)
                finally:
                    self.get_waited += time.monotonic() - began
            if self._items:
                return self._take()
            if self._failure is not None:
                raise WriterFailed(self._failure)
            return END

    def poll(self) -> T | None:
        """The next item; None: there is none now."""
        with self.changed:
            return self._take() if self._items else None

    def items(self, timeout: float | None = None) -> Generator[T]:
        """Every item until the end. Raises what the writer failed with, and :class:`TooLong`."""
        while True:
            try:
                item = self.get(timeout)
            except WriterFailed as e:
                failure = e.cause
                break
            if isinstance(item, QueueEnd):
                return
            yield item
        raise failure

    def wait(self, timeout: float, other: Callable[[], bool] = lambda: False) -> None:
        """Until there is something to read, or ``other`` is true, at most ``timeout`` seconds.
        ``other`` is asked with ``changed`` held, whenever a queue that shares it has changed."""
        with self.changed:
            self.changed.wait_for(lambda: self._has_news() or other(), timeout)

    def abandon(self, cause: BaseException | None = None) -> None:
        """The reading side is gone, or must go: writers are told, and what is in it is dropped. Who
        reads all the same gets a failure (``cause``), not an end, which would be taken for all."""
        with self.changed:
            if (self._items or not self._ended) and self._failure is None:
                self._failure = cause or QueueAbandoned("it was stopped in the middle")
            self._abandoned = True
            self._items.clear()
            self._queued_bytes = 0
            self.end()

    def _add(self, item: T, size: int) -> None:
        if self._abandoned:
            raise QueueAbandoned("nobody reads it any more")
        self._items.append((item, size))
        self._queued_bytes += size
        self.changed.notify_all()

    def _take(self) -> T:
        item, size = self._items.popleft()
        self._queued_bytes -= size
        self.changed.notify_all()
        return item

    def _has_news(self) -> bool:
        return bool(self._items) or self._ended

    def _wait(self, ready: Callable[[], bool], timeout: float | None) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        while not ready():
            left = _LOOK if until is None else until - time.monotonic()
            if left <= 0:
                raise TooLong("the other side did nothing for too long")
            self.changed.wait(min(left, _LOOK))
