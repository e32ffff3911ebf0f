"""Passes items between threads through a queue bounded in bytes, so that a slow reader slows its
writer.

An empty queue admits one item of any size; a maximum number of items, far above what bytes allow,
bounds items without bytes. Either side ends the other's wait at once: ``end`` and ``fail`` the
reader's, ``abandon`` the writer's. Several queues may share the condition that signals their
changes, so that one thread can wait for the first change. Not here: what the items are, the
threads.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")
MOST_ITEMS = 4096
_LOOK = 5.0  # a wait checks at least this often


class QueueAbandoned(Exception):
    """Nobody reads this queue any more."""


class WriterFailed(Exception):
    """The writing side failed; ``cause`` shows how. Everything written before was read first."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class TooLong(Exception):
    """The other side did nothing for as long as allowed."""


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
        """Adds an item. Raises :class:`QueueAbandoned`, and :class:`TooLong` after ``timeout``
        seconds without room; None: no time limit."""
        with self.changed:
            if not self.has_room(size):
                began = time.monotonic()
                try:
                    self._wait(lambda: self.has_room(size), timeout)
                finally:
                    self.put_waited += time.monotonic() - began
            self._add(item, size)

    def offer(self, item: T, size: int) -> bool:
        """Like :meth:`put`, without waiting. Returns False where there is no room."""
        with self.changed:
            room = self.has_room(size)
            if room:
                self._add(item, size)
            return room

    def has_room(self, size: int) -> bool:
        """Returns whether :meth:`put` would not wait."""
        if self._abandoned or not self._items:
            return True
        return self._queued_bytes + size <= self._max_bytes and len(self._items) < self._max_items

    def end(self) -> None:
        """Marks the end: no item follows."""
        with self.changed:
            self._ended = True
            self.changed.notify_all()

    def fail(self, cause: BaseException) -> None:
        """Ends the queue with a failure; the first one counts."""
        with self.changed:
            if not self._ended and self._failure is None:
                self._failure = cause
            self.end()

    # -- the reading side

    def get(self, timeout: float | None = None) -> T | QueueEnd:
        """Returns the next item; after the last one always ``END``. Raises :class:`WriterFailed`
        after the last item of a writer that failed, and :class:`TooLong`."""
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
        """Returns the next item; None: there is none now."""
        with self.changed:
            return self._take() if self._items else None

    def items(self, timeout: float | None = None) -> Generator[T]:
        """Yields every item until the end. Raises the writer's failure, and :class:`TooLong`."""
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
        """Waits until there is something to read, or ``other`` is true, at most ``timeout``
        seconds. Calls ``other`` with ``changed`` held, whenever a queue that shares it has
        changed."""
        with self.changed:
            self.changed.wait_for(lambda: self._has_news() or other(), timeout)

    def abandon(self, cause: BaseException | None = None) -> None:
        """Ends the reading side: wakes writers, and drops the queue's content. Later reads get a
        failure (``cause``), not an end, which would look like complete data."""
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
