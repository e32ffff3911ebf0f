"""One run of a transform that is a connector, over one stream, beside the lane's own thread.

It takes tables through a queue bounded in bytes and gives its answers to a :class:`Mail`, bounded
too, that all runs of a stage share. Not here: what the answers mean (``component_stage``).
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, cast

from penstock.errors import Defect, PenstockError
from penstock.model.catalog import StreamId
from penstock.model.events import Error, Log, Reject
from penstock.protocols.contract import Came, Given, TransformRequest, TransformRole
from penstock.runtimes.contract import Runtime

_LOOK = 1.0
_OBJECT_BYTES = 256


class Closed(Exception):
    """Nobody listens any more; never leaves this module and its runs."""


class FeedFailed(Exception):
    """What a transform is told where its source failed."""


@dataclass(slots=True)
class Over:
    """The last answer of every run."""


Answer = Given | Over


class Mail:
    """The answers of all runs in the order in which they came. ``bound``: bytes that may wait, or
    one answer that is larger. ``changed``: also where a run has taken a table."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._items: deque[tuple[TransformRun, Answer, int]] = deque()
        self._weight = 0
        self.closed = False
        self.changed = threading.Condition()

    def put(self, run: "TransformRun", answer: Answer) -> None:
        """Raises :class:`Closed`."""
        size = _weight(answer)
        with self.changed:
            while not self.closed and self._items and self._weight + size > self._bound:
                self.changed.wait(_LOOK)
            if self.closed:
                raise Closed
            self._items.append((run, answer, size))
            self._weight += size
            self.changed.notify_all()

    def take(self) -> "tuple[TransformRun, Answer] | None":
        with self.changed:
            if not self._items:
                return None
            run, answer, size = self._items.popleft()
            self._weight -= size
            self.changed.notify_all()
            return run, answer

    def wait(self) -> None:
        """Until something has changed, or for a second."""
        with self.changed:
            if not self._items:
                self.changed.wait(_LOOK)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self._items.clear()
            self.changed.notify_all()


class TransformRun:
    """``base``: tables of the stream that earlier runs were fed. ``version``: of its rows.
    ``held``: bytes of tables that may wait. ``over``, ``well``: kept by whoever hears it."""

    def __init__(
        self, stream: StreamId, mail: Mail, *, base: int, version: int | None, held: int
    ) -> None:
        self.stream, self.base, self.version = stream, base, version
        self.newest = 0  # extraction time of the newest record it was fed, in ms
        self.over = self.well = self.broken = self.ended = False
        self._mail, self._held = mail, held
        self._tables: deque[tuple[Any, int]] = deque()
        self._weight = 0
        self._failure: BaseException | None = None
        self._deaf = False
        self._thread: threading.Thread | None = None

    def start(self, role: TransformRole, runtime: Runtime, request: TransformRequest) -> None:
        def work() -> None:
            try:
                given = cast(Any, role.apply(runtime, request, self._feed()))
                with closing(given):
                    for answer in given:
                        self._mail.put(self, answer)
            except Closed:
                return
            except PenstockError as e:
                self._failed(e)
            except BaseException as e:  # whoever listens must be told, whatever it was
                self._failed(Defect(f"a transform's run broke: {e!r}"))
            finally:
                with self._mail.changed:
                    self._deaf = True
                    self._tables.clear()
                    self._mail.changed.notify_all()
                with suppress(Closed):
                    self._mail.put(self, Over())

        self._thread = threading.Thread(target=work, name="penstock-transform", daemon=True)
        self._thread.start()

    def offer(self, table: Any, size: int) -> bool:
        """False: there is no room now. One that has ended takes everything, and drops it."""
        with self._mail.changed:
            if self._deaf:
                return True
            if self._tables and self._weight + size > self._held:
                return False
            self._tables.append((table, size))
            self._weight += size
            self._mail.changed.notify_all()
            return True

    def end(self) -> None:
        """Nothing follows."""
        with self._mail.changed:
            self.ended = True
            self._mail.changed.notify_all()

    def fail(self, why: str) -> None:
        """Its next table is an error, and its end proves nothing. Not where its input had ended."""
        with self._mail.changed:
            if not self.ended:
                self.broken = True
                self._failure = FeedFailed(why)
                self._mail.changed.notify_all()

    def join(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    def _feed(self) -> Iterator[Any]:
        while True:
            with self._mail.changed:
                while not (self._tables or self._told_end()):
                    self._mail.changed.wait(_LOOK)
                if self._mail.closed:
                    raise FeedFailed("the lane has stopped")
                if self._failure is not None:
                    raise self._failure
                if not self._tables:
                    return
                table, size = self._tables.popleft()
                self._weight -= size
                self._mail.changed.notify_all()
            yield table

    def _told_end(self) -> bool:
        return self.ended or self._failure is not None or self._mail.closed or self._deaf

    def _failed(self, error: PenstockError) -> None:
        raw = {**(error.connector or {}), "code": error.code, "hint": error.hint}
        with suppress(Closed):
            self._mail.put(self, Error(error.message, "system_error", self.stream, raw))


def _weight(answer: Answer) -> int:
    match answer:
        case Came():
            return _OBJECT_BYTES + answer.size
        case Reject():
            return _OBJECT_BYTES + len(answer.raw)
        case Log():
            return _OBJECT_BYTES + len(answer.message)
        case _:
            return _OBJECT_BYTES
