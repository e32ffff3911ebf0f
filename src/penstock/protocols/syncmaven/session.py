"""Talks to one process of a stream: ``start-stream``, rows, ``end-stream``, ``stream-result``.

Its output is read continuously, so that a halt counts at any moment. Every wait is bounded: it must
take bytes of its input, and answer ``end-stream``, within ``RunTimeouts.heartbeat``; log lines are
no progress (L11).

Where exit code 0 may replace a result, ``end-stream`` is written only once all rows were read. A
program that reads line by line takes it only after it has handled every row, so a program that ends
too early leaves it in the pipe (``ByteChannel.ended_well``).

Not here: several processes (``sessions``), judging a result, and which exit code counts
(``exit_ack``). Source: reference §1.4, §1.5.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

from penstock.errors import DestinationError
from penstock.model.events import LogEvent, SkippedItems, Tick
from penstock.protocols.syncmaven.exit_ack import ExitAck
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
_LOOK = 0.05  # seconds between two reads of its output, while it takes rows
_PATIENCE = 60.0  # seconds without an answer to end-stream until the log shows the remedy
_GRACE = 5.0  # seconds between end-stream and the end of the input, for a program that ends itself

Outcome = Result | HaltMessage | DestinationError


class Session:
    """``outcome`` None: it goes on. ``sent``: rows given to it. ``gave_result``: it gave a result,
    good or bad."""

    def __init__(
        self,
        runtime: Runtime,
        timeouts: RunTimeouts,
        start: bytes,
        exit_ack: ExitAck = ExitAck.never,
    ) -> None:
        self._timeouts = timeouts
        self._runtime = runtime
        self._exit_ack = exit_ack
        self._reader = ReplyReader()
        self._stack = ExitStack()
        self._channel: ByteChannel | None = None
        self._waiting = deque([memoryview(start)])  # to be written
        self._looked = self._taken_at = time.monotonic()
        self._ends = self._held = self._hinted = False
        self._silent = False  # its stdout has ended
        self.gave_result = False
        self.outcome: Outcome | None = None
        self.sent = 0

    def open(self) -> Self:
        """Starts the process. Raises ``DestinationError``."""
        opened = self._runtime.open((), self._timeouts, feed=True)
        self._channel = self._stack.enter_context(opened)
        self._taken_at = time.monotonic()
        return self

    def close(self) -> None:
        """Ends the process."""
        self._stack.close()

    @property
    def stderr_tail(self) -> str:
        return "" if self._channel is None else self._channel.stderr_tail()

    @property
    def busy(self) -> bool:
        """Whether it still has to take its input, or to give its result."""
        return self.outcome is None and bool(self._waiting or self._ends)

    @property
    def _ending(self) -> bool:
        """It has taken ``end-stream``, so a result is not early."""
        return self._ends and not self._held and not self._waiting

    def give(self, lines: Any, rows: int) -> None:
        """Adds lines (bytes or a pyarrow.Buffer) of so many rows, which :meth:`go_on` writes."""
        self._put(lines)
        self.sent += rows

    def finish(self) -> None:
        """Adds the stream's end, which :meth:`go_on` writes."""
        self._ends = True
        self._held = self._exit_ack is not ExitAck.never
        if not self._held:
            self._put(end_stream())

    def go_on(self, timeout: float) -> Iterator[Answer]:
        """Writes some of its input, or reads some of its output, for at most ``timeout`` seconds.
        Only while it is :attr:`busy`."""
        if self._waiting:
            yield from self._write(timeout)
            return
        if self._held:
            yield from self._let_read(timeout)
            return
        yield from self.listen(timeout)
        waited, bound = time.monotonic() - self._taken_at, self._timeouts.heartbeat
        if self.outcome is None and self._exit_ack is not ExitAck.never:
            yield from self._nudge(waited)
        if self.outcome is None and waited > bound:
            self.outcome = _mute(f"did not answer end-stream within {bound:g} s", "no_result")

    def look(self) -> Iterator[Answer]:
        """Reads its output, unless it was read a moment ago."""
        if time.monotonic() - self._looked > _LOOK:
            yield from self.listen()

    def listen(self, timeout: float = 0.0) -> Iterator[Answer]:
        """Reads at most one block of its output."""
        if self.outcome is not None or self._channel is None:
            return
        self._looked = time.monotonic()
        block = b"" if self._silent else self._channel.read(timeout)
        items = self._reader.finish() if block == b"" else self._reader.take(block or b"")
        for item in items:
            if isinstance(item, LogEvent | SkippedItems):
                yield item
            elif isinstance(item, Message | MalformedReply) and self.outcome is None:
                self._take(item)
        if block == b"" and self.outcome is None:
            self._silent = True
            self._over(self._channel, timeout)
        yield Tick()

    def _over(self, channel: ByteChannel, timeout: float) -> None:
        """Handles the end of its stdout: the process has ended, or will."""
        if self._ending and self._exit_ack is not ExitAck.never and not self.gave_result:
            code = channel.wait(timeout)
            if code is None:
                return
            if channel.ended_well():
                self.outcome = Result(self.sent, 0, self.sent, 0, counted=False)
                return
        self.outcome = died(channel, "before it reported how many rows it took", DESTINATION)
        if self._ending:
            self.outcome.hint = _NO_RESULT if self._exit_ack is ExitAck.never else _NO_CLEAN_END

    def _let_read(self, timeout: float) -> Iterator[Answer]:
        """Waits until it has read all rows, and then adds ``end-stream``."""
        if self._channel is None:
            return
        try:
            if self._channel.drained(timeout):
                self._held = False
                self._put(end_stream())
        except BrokenPipeError:
            yield from self._closed_input()
            return
        bound = self._timeouts.heartbeat
        if self._held and time.monotonic() - self._taken_at > bound:
            self.outcome = _mute(
                f"did not read its input to the end within {bound:g} s", "no_result"
            )
        yield from self.look()

    def _nudge(self, waited: float) -> Iterator[Answer]:
        """Ends its input where that is agreed, else logs this remedy once."""
        if self._exit_ack is ExitAck.closed:
            if waited > _GRACE and self._channel is not None and self._channel.drained(0.0):
                self._channel.end_input()
        elif waited > _PATIENCE and not self._hinted:
            self._hinted = True
            yield LogEvent(
                "WARN",
                f"the destination has neither answered end-stream nor ended for {_PATIENCE:g} s: if"
                " it waits for the end of its input, set `acks: at_end`",
            )

    def _take(self, message: Message | MalformedReply) -> None:
        result = isinstance(message, MalformedReply) and message.reply == Reply.stream_result
        self.gave_result |= result or isinstance(message, Result)
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
                hint="what it was sent counts as not written; its own log may give the reason it "
                "ended",
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
            self.outcome = _mute(f"read nothing of its input for {bound:g} s", "heartbeat")
        yield from self.look()

    def _closed_input(self) -> Iterator[Answer]:
        """Reads the rest of its output, which may have the reason, after it closed its input."""
        until = time.monotonic() + self._timeouts.stop
        while self.outcome is None and time.monotonic() < until:
            yield from self.listen(_STEP)
        if self.outcome is None:
            self.outcome = _mute("closed its input before the end of the stream", "closed_input")


_NO_RESULT = (
    "after the end of the stream it has to answer with a stream-result: only rows that this "
    "counts are written. See its last output in the log"
)
_NO_CLEAN_END = (
    "it gave no stream-result, and its end counts only by exit code 0 after it read all of its "
    "input. See its last output in the log"
)


def _mute(what: str, code: str) -> DestinationError:
    return DestinationError(
        f"the destination {what}",
        code=f"destination.{code}",
        hint="see its last output in the log, and whether the system that it writes to answers;"
        " if it is only slow, raise timeouts.heartbeat",
    )
