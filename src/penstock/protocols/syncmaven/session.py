"""Talks to one process of a stream: ``start-stream``, rows, ``end-stream``, ``stream-result``.

What it says is read all the while, so that a halt counts at any moment. Every wait is bounded: it
must take bytes of its input, and answer ``end-stream``, within ``RunTimeouts.heartbeat``; lines of
its log are no progress (L11). Not here: several of them at once (``sessions``), what a result is
worth (``writer``). Source: reference §1.4, §1.5.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

from penstock.errors import DestinationError
from penstock.model.events import LogEvent, SkippedItems, Tick
from penstock.protocols.syncmaven.messages import (
    HaltMessage,
    MalformedReply,
    Message,
    Reply,
    Result,
    end_stream,
)
from penstock.protocols.syncmaven.probe import DESTINATION, died
from penstock.protocols.syncmaven.reply_reader import ReplyReader
from penstock.protocols.writing import Answer
from penstock.runtimes.contract import ByteChannel, Runtime, RunTimeouts

_STEP = 0.05  # seconds of one wait
_LOOK = 0.05  # seconds between two looks at what it says, while it takes rows

Outcome = Result | HaltMessage | DestinationError


class Session:
    """``outcome`` None: it goes on. ``sent``: rows that it was given."""

    def __init__(self, runtime: Runtime, timeouts: RunTimeouts, start: bytes) -> None:
        self._timeouts = timeouts
        self._runtime = runtime
        self._reader = ReplyReader()
        self._stack = ExitStack()
        self._channel: ByteChannel | None = None
        self._waiting = deque([memoryview(start)])  # to be written
        self._looked = self._taken_at = time.monotonic()
        self._ends = False
        self.outcome: Outcome | None = None
        self.sent = 0

    def open(self) -> Self:
        """Starts the process. Raises ``DestinationError``."""
        opened = self._runtime.open((), self._timeouts, feed=True)
        self._channel = self._stack.enter_context(opened)
        self._taken_at = time.monotonic()
        return self

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self._stack.close()

    @property
    def stderr_tail(self) -> str:
        return "" if self._channel is None else self._channel.stderr_tail()

    @property
    def busy(self) -> bool:
        """Whether it has to take what it was given, or to say its result."""
        return self.outcome is None and bool(self._waiting or self._ends)

    @property
    def _ending(self) -> bool:
        """It has taken ``end-stream``: its result is no early one."""
        return self._ends and not self._waiting

    def give(self, lines: Any, rows: int) -> None:
        """Lines (bytes or a pyarrow.Buffer) of so many rows, which :meth:`go_on` writes."""
        self._put(lines)
        self.sent += rows

    def finish(self) -> None:
        """The stream's end, which :meth:`go_on` writes."""
        self._put(end_stream())
        self._ends = True

    def go_on(self, timeout: float) -> Iterator[Answer]:
        """Writes some of what it was given, or hears some of what it says; waits at most so many
        seconds for that. Only while it is :attr:`busy`."""
        if self._waiting:
            yield from self._write(timeout)
            return
        yield from self.listen(timeout)
        bound = self._timeouts.heartbeat
        if self.outcome is None and time.monotonic() - self._taken_at > bound:
            self.outcome = _silent(f"did not answer end-stream within {bound:g} s", "no_result")

    def look(self) -> Iterator[Answer]:
        """What it says, unless it was heard a moment ago."""
        if time.monotonic() - self._looked > _LOOK:
            yield from self.listen()

    def listen(self, timeout: float = 0.0) -> Iterator[Answer]:
        """What it says, at most one block of it."""
        if self.outcome is not None or self._channel is None:
            return
        self._looked = time.monotonic()
        block = self._channel.read(timeout)
        items = self._reader.finish() if block == b"" else self._reader.take(block or b"")
        for item in items:
            if isinstance(item, LogEvent | SkippedItems):
                yield item
            elif isinstance(item, Message | MalformedReply) and self.outcome is None:
                self._take(item)
        if block == b"" and self.outcome is None:
            self.outcome = died(self._channel, "before it said how many rows it took", DESTINATION)
            if self._ending:
                self.outcome.hint = (
                    "it was told the end of the stream, and has to answer with a stream-result:"
                    " only what this counts is written. See in the log what it said last"
                )
        yield Tick()

    def _take(self, message: Message | MalformedReply) -> None:
        if isinstance(message, MalformedReply):
            if self._ending and message.reply == Reply.stream_result:
                self.outcome = DestinationError(
                    f"the destination's stream-result cannot be read: {message.reason}",
                    code="destination.no_result",
                    hint="it has the four counters received, skipped, success and failed; without"
                    " them nothing counts as written",
                )
        elif isinstance(message, HaltMessage) or (isinstance(message, Result) and self._ending):
            self.outcome = message
        elif isinstance(message, Result):
            self.outcome = DestinationError(
                "the destination sent its stream-result before the end of the stream",
                code="destination.early_result",
                hint="what it was sent counts as not written; its own log may say why it ended",
            )

    def _put(self, data: Any) -> None:
        if not self._waiting:
            self._taken_at = time.monotonic()
        self._waiting.append(memoryview(data).cast("B"))

    def _write(self, timeout: float) -> Iterator[Answer]:
        if self._channel is None:
            return
        try:
            taken = self._channel.write(self._waiting[0], timeout)
        except BrokenPipeError:
            yield from self._closed_input()
            return
        now, bound = time.monotonic(), self._timeouts.heartbeat
        if taken:
            self._taken_at = now
            self._waiting[0] = self._waiting[0][taken:]
            if not self._waiting[0]:
                self._waiting.popleft()
        elif now - self._taken_at > bound:
            self.outcome = _silent(f"read nothing of its input for {bound:g} s", "heartbeat")
        yield from self.look()

    def _closed_input(self) -> Iterator[Answer]:
        """It reads no more: what it still says tells why."""
        until = time.monotonic() + self._timeouts.stop
        while self.outcome is None and time.monotonic() < until:
            yield from self.listen(_STEP)
        if self.outcome is None:
            self.outcome = _silent("closed its input before the end of the stream", "closed_input")


def _silent(what: str, code: str) -> DestinationError:
    return DestinationError(
        f"the destination {what}",
        code=f"destination.{code}",
        hint="see in the log what it said last, and whether the system that it writes to answers;"
        " if it is only slow, raise timeouts.heartbeat",
    )
