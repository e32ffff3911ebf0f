"""Sends one stream's rows to one process: ``start-stream``, rows, ``end-stream``, and waits for its
``stream-result``.

What it says is read all the while, so that a halt counts at any moment. Every wait is bounded: it
must take bytes of its input, and answer ``end-stream``, within ``Timeouts.heartbeat``; lines of its
log are no progress (L11). Not here: what a result is worth (``writer``). Source: reference §1.4,
§1.5.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

from penstock.errors import DestinationError
from penstock.model.events import Counted, Log, Tick
from penstock.protocols.contract import Answer
from penstock.protocols.syncmaven.messages import Halt, Message, Result, end_stream
from penstock.protocols.syncmaven.probe import DESTINATION, died
from penstock.protocols.syncmaven.reply_reader import ReplyReader
from penstock.runtimes.contract import ByteChannel, Runtime, Timeouts

STEP = 0.05  # seconds of one wait
_LOOK = 0.05  # seconds between two looks at what it says, while it takes rows

Outcome = Result | Halt | DestinationError


class Pace:
    """Spreads rows over time, whatever number of processes they go to: ``rate`` a second."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._next_at = 0.0

    @property
    def most_rows(self) -> int:
        """Rows to be sent at once: a tenth of a second's."""
        return max(1, self._rate // 10)

    def wait(self) -> float:
        """Seconds until rows may be sent."""
        return self._next_at - time.monotonic()

    def sent(self, rows: int) -> None:
        self._next_at = max(self._next_at, time.monotonic()) + rows / self._rate


class Session:
    """``outcome`` None: it goes on. ``sent``: rows. ``pace``: when rows may be sent."""

    def __init__(
        self, runtime: Runtime, timeouts: Timeouts, start: bytes, pace: "Pace | None" = None
    ) -> None:
        self._timeouts, self._start, self._pace = timeouts, start, pace
        self._runtime = runtime
        self._reader = ReplyReader()
        self._stack = ExitStack()
        self._channel: ByteChannel | None = None
        self._looked = 0.0
        self._ending = False
        self.outcome: Outcome | None = None
        self.sent = 0

    def open(self) -> Self:
        """Starts the process. Raises ``DestinationError``."""
        opened = self._runtime.open((), self._timeouts, feed=True)
        self._channel = self._stack.enter_context(opened)
        return self

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self._stack.close()

    @property
    def stderr_tail(self) -> str:
        return "" if self._channel is None else self._channel.stderr_tail()

    def begin(self) -> Iterator[Answer]:
        yield from self._write(self._start)

    def send(self, lines: Any, rows: int) -> Iterator[Answer]:
        """Stops where it has an outcome before it took all."""
        if self._pace is not None:
            while self.outcome is None and (wait := self._pace.wait()) > 0:
                yield from self.listen(min(wait, STEP))
            self._pace.sent(rows)
        yield from self._write(lines)
        self.sent += rows

    def end(self) -> Iterator[Answer]:
        """Until it has an outcome."""
        yield from self._write(end_stream(), ends=True)
        bound = self._timeouts.heartbeat
        until = time.monotonic() + bound
        while self.outcome is None:
            yield from self.listen(STEP)
            if self.outcome is None and time.monotonic() > until:
                self.outcome = _silent(f"did not answer end-stream within {bound:g} s", "no_result")

    def listen(self, timeout: float = 0.0) -> Iterator[Answer]:
        """What it says, at most one block of it."""
        if self.outcome is not None or self._channel is None:
            return
        self._looked = time.monotonic()
        block = self._channel.read(timeout)
        items = self._reader.finish() if block == b"" else self._reader.take(block or b"")
        for item in items:
            if isinstance(item, Log | Counted):
                yield item
            elif isinstance(item, Message) and self.outcome is None:
                self._take(item)
        if block == b"" and self.outcome is None:
            self.outcome = died(self._channel, "before it said how many rows it took", DESTINATION)
        yield Tick()

    def _take(self, message: Message) -> None:
        if isinstance(message, Halt) or (isinstance(message, Result) and self._ending):
            self.outcome = message
        elif isinstance(message, Result):
            self.outcome = DestinationError(
                "the destination sent its stream-result before the end of the stream",
                code="destination.early_result",
                hint="what it was sent counts as not written; its own log may say why it ended",
            )

    def _write(self, data: Any, *, ends: bool = False) -> Iterator[Answer]:
        """``ends``: once it has taken these bytes, its result is no early one."""
        if self._channel is None:
            return
        view = memoryview(data).cast("B")
        taken_at = time.monotonic()
        bound = self._timeouts.heartbeat
        while view and self.outcome is None:
            try:
                taken = self._channel.write(view, STEP)
            except BrokenPipeError:
                yield from self._closed_input()
                return
            now = time.monotonic()
            if taken:
                view, taken_at = view[taken:], now
                self._ending = ends and not view
            elif now - taken_at > bound:
                self.outcome = _silent(f"read nothing of its input for {bound:g} s", "heartbeat")
            if now - self._looked > _LOOK:
                yield from self.listen()

    def _closed_input(self) -> Iterator[Answer]:
        """It reads no more: what it still says tells why."""
        until = time.monotonic() + self._timeouts.stop
        while self.outcome is None and time.monotonic() < until:
            yield from self.listen(STEP)
        if self.outcome is None:
            self.outcome = _silent("closed its input before the end of the stream", "closed_input")


def _silent(what: str, code: str) -> DestinationError:
    return DestinationError(
        f"the destination {what}",
        code=f"destination.{code}",
        hint="see in the log what it said last, and whether the system that it writes to answers;"
        " if it is only slow, raise timeouts.heartbeat",
    )
