"""Runs a transform connector over one stream, in a thread next to the lane's own.

Takes tables from a queue with a bound in bytes. Puts its answers into another one, also bounded,
that all runs of a stage share. Not here: what the answers mean (``connector``).
"""

import threading
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from penstock.byte_queue import ByteQueue, QueueAbandoned
from penstock.errors import Defect, PenstockError
from penstock.model.catalog import StreamId
from penstock.model.events import LogEvent, Reject
from penstock.protocols.connection import Connection
from penstock.protocols.failures import failure
from penstock.protocols.transforming import Given, TransformedRows, TransformRequest


class FeedFailed(Exception):
    """Raised in a transform's input where its source failed."""


@dataclass(slots=True)
class LastAnswer:
    """Marks the last answer of every run."""


Answer = Given | LastAnswer
Answers = ByteQueue[tuple["TransformRun", Answer]]


class TransformRun:
    """One run. ``answers``: of all runs of the stage, in order of time. ``base``: tables of the
    stream that earlier runs were fed. ``version``: of its rows. ``queue_bytes``: bytes of tables
    that may wait. ``over``, ``well``: set by the stage."""

    def __init__(
        self,
        stream: StreamId,
        answers: Answers,
        *,
        base: int,
        version: int | None,
        queue_bytes: int,
    ) -> None:
        self.stream, self.base, self.version = stream, base, version
        self.newest = 0  # extraction time of the newest record it was fed, in ms
        self.over = self.well = self.broken = self.ended = False
        self._answers = answers
        self._tables: ByteQueue[Any] = ByteQueue(queue_bytes, changed=answers.changed)
        self._thread: threading.Thread | None = None

    def start(self, transform: Connection, request: TransformRequest) -> None:
        """Starts the run's thread."""

        def work() -> None:
            try:
                with closing(transform.apply(request, self._tables.items())) as given:
                    for answer in given:
                        if not self._tell(answer):
                            return
            except PenstockError as e:
                self._failed(e)
            except BaseException as e:  # the stage must be notified of any failure
                self._failed(Defect(f"a transform's run broke: {e!r}"))
            finally:
                self._tables.abandon()
                self._tell(LastAnswer())

        self._thread = threading.Thread(target=work, name="penstock-transform", daemon=True)
        self._thread.start()

    def offer(self, table: Any, size: int) -> bool:
        """Queues a table; False: there is no room now. A run that has ended takes every table, and
        drops it."""
        try:
            return self._tables.offer(table, size)
        except QueueAbandoned:
            return True

    def has_room(self, size: int) -> bool:
        """Whether a table of ``size`` bytes can be queued now."""
        return self._tables.has_room(size)

    def end(self) -> None:
        """Ends the input."""
        self.ended = True
        self._tables.end()

    def fail(self, why: str) -> None:
        """Raises :class:`FeedFailed` in the run's input, so that its end completes nothing. Ignored
        where the input has ended."""
        if not self.ended:
            self.broken = True
            self._tables.abandon(FeedFailed(why))

    def stop(self) -> None:
        """Stops the run, and drops the tables that wait, also of an input that has ended."""
        self._tables.abandon(FeedFailed("the lane has stopped"))

    def join(self, seconds: float) -> None:
        """Waits for the run's thread, ``seconds`` at most."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _tell(self, answer: Answer) -> bool:
        """Queues an answer; False: the stage has stopped reading."""
        try:
            self._answers.put((self, answer), _size(answer))
        except QueueAbandoned:
            return False
        return True

    def _failed(self, error: PenstockError) -> None:
        self._tell(failure(error, self.stream, "transform"))


def _size(answer: Answer) -> int:
    match answer:
        case TransformedRows():
            return answer.size
        case Reject():
            return len(answer.raw)
        case LogEvent():
            return len(answer.message)
        case _:
            return 0
