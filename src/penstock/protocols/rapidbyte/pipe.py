"""A bounded queue between two stages, or between a stage and whoever listens: back-pressure is by
bytes, and by a number of items that is far above it.

Each wait is bounded, and ends at once when the other side is gone. One item is always admitted into
an empty pipe, however large. Not here: what the items are.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")
_LOOK = 5.0  # a wait looks around at least this often


class Abandoned(Exception):
    """Nobody reads this pipe any more."""


class Failed(Exception):
    """The writing side failed; ``cause`` says how. What it wrote before was read first."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class TooLong(Exception):
    """The other side did nothing for as long as it may."""


class End(Enum):
    """The writing side is done."""

    END = "end"


END = End.END


class Pipe(Generic[T]):
    """``max_bytes``: sum of the sizes that were given. Waiting times are summed up, in seconds."""

    def __init__(self, max_bytes: int, max_items: int = 4096) -> None:
        self._max_bytes = max_bytes
        self._max_items = max_items
        self._items: deque[tuple[T, int]] = deque()
        self._held = 0
        self._ended = False
        self._failure: BaseException | None = None
        self._abandoned = False
        self._changed = threading.Condition()
        self.put_waited = 0.0
        self.get_waited = 0.0

    @property
    def held(self) -> int:
        """Bytes that were put and not taken."""
        return self._held

    def put(self, item: T, size: int, patience: float) -> None:
        """Raises :class:`Abandoned`, and :class:`TooLong` after ``patience`` seconds without
        room."""
        with self._changed:
            if not self._has_room(size):
                began = time.monotonic()
                try:
                    self._wait(lambda: self._has_room(size), began + patience)
                finally:
                    self.put_waited += time.monotonic() - began
            if self._abandoned:
                raise Abandoned("nobody reads it any more")
            self._items.append((item, size))
            self._held += size
            self._changed.notify_all()

    def get(self, patience: float) -> T | End:
        """The next item, ``END`` for ever after the last one. Raises :class:`Failed` after the last
        one of a writer that failed, and :class:`TooLong`."""
        with self._changed:
            if not self._has_news():
                began = time.monotonic()
                try:
                    self._wait(self._has_news, began + patience)
                finally:
                    self.get_waited += time.monotonic() - began
            if self._items:
                item, size = self._items.popleft()
                self._held -= size
                self._changed.notify_all()
                return item
            if self._failure is not None:
                raise Failed(self._failure)
            return END

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def fail(self, cause: BaseException) -> None:
        """Ends it with a failure; the first one counts."""
        with self._changed:
            if not self._ended and self._failure is None:
                self._failure = cause
            self._ended = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """The reading side is gone, or must go: writers are told, and what is in it is dropped. Who
        reads all the same gets a failure, not an end: an end would be taken for all of it."""
        with self._changed:
            if (self._items or not self._ended) and self._failure is None:
                self._failure = Abandoned("it was given up in the middle")
            self._abandoned = True
            self._ended = True
            self._items.clear()
            self._held = 0
            self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        if self._abandoned or not self._items:
            return True
        return self._held + size <= self._max_bytes and len(self._items) < self._max_items

    def _has_news(self) -> bool:
        return bool(self._items) or self._ended

    def _wait(self, ready: Callable[[], bool], until: float) -> None:
        while not ready():
            left = until - time.monotonic()
            if left <= 0:
                raise TooLong("the other side did nothing for too long")
            self._changed.wait(min(left, _LOOK))
