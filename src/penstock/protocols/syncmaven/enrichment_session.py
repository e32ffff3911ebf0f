"""Talks to one enrichment process: starts it, sends requests, reads their answers in order.

Answers have no ids in this protocol, so the first one belongs to the oldest request; an answer
without a request ends the session. The process's output is read continuously, so that a halt counts
at any moment. Every wait is bounded: it must take bytes of a request, or answer one, within
``RunTimeouts.heartbeat``; log lines are no progress (L11). Not here: which rows are requested and
the order of their answers (``enrichment_run``). Source: the protocol page; reference §1.2, §1.3.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from penstock.errors import SourceError
from penstock.model.events import LogEvent, SkippedItems
from penstock.protocols.syncmaven.messages import EnrichmentAnswer, HaltMessage, Message
from penstock.protocols.syncmaven.probe import ENRICHMENT, died
from penstock.protocols.syncmaven.reply_reader import ReplyReader
from penstock.runtimes.contract import ByteChannel, Runtime, RunTimeouts

_STEP = 0.05  # seconds of one wait


class AnswerAbandoned(Exception):
    """Raised in place of an answer that nobody waits for any more."""


class EnrichmentSession:
    """One process, from :meth:`open` to :meth:`close`. ``start``: its first line. ``said``: takes
    its log. ``over``: returns whether nobody waits any more. Methods raise ``SourceError``
    (``transform.halted``, ``transform.exited``, ``transform.heartbeat``,
    ``transform.unasked_answer``), and :class:`AnswerAbandoned`."""

    def __init__(
        self,
        runtime: Runtime,
        timeouts: RunTimeouts,
        start: bytes,
        said: Callable[[LogEvent | SkippedItems], None],
        over: Callable[[], bool],
    ) -> None:
        self._runtime, self._timeouts, self._start = runtime, timeouts, start
        self._said, self._over = said, over
        self._reader = ReplyReader("transform")
        self._stack = ExitStack()
        self._channel: ByteChannel | None = None

    def open(self) -> None:
        """Starts the process and the enrichment in it."""
        opened = self._runtime.open((), self._timeouts, feed=True)
        self._channel = self._stack.enter_context(opened)
        self.ask([self._start], answered=False)

    def close(self) -> None:
        """Ends the process."""
        self._channel = None
        self._stack.close()

    def ask(
        self, lines: Sequence[bytes], ahead: int = 1, *, answered: bool = True
    ) -> list[EnrichmentAnswer]:
        """Sends lines, with at most ``ahead`` unanswered ones, and returns their answers.
        ``answered`` False: the lines have none."""
        found: list[EnrichmentAnswer] = []
        sent, rest, moved = 0, memoryview(b""), time.monotonic()
        while rest or sent < len(lines) or (answered and len(found) < len(lines)):
            if self._over():
                raise AnswerAbandoned
            if not rest and sent < len(lines) and (not answered or sent - len(found) < ahead):
                rest, sent = memoryview(lines[sent]), sent + 1
            taken = self._write(rest) if rest else 0
            rest = rest[taken:]
            waits = not rest and (sent == len(lines) or sent - len(found) >= ahead)
            came = self._receive(_STEP if waits and answered else 0.0)
            whole = sent - bool(rest) - len(found) if answered else 0
            if len(came) > whole:
                raise _unasked()
            found += came
            now = time.monotonic()
            if taken or came:
                moved = now
            elif now - moved > self._timeouts.heartbeat:
                raise self._silent(read=not rest)
        return found

    def listen(self) -> None:
        """Reads its output while no request is open."""
        if self._receive(0.0):
            raise _unasked()

    def _write(self, data: memoryview) -> int:
        assert self._channel is not None
        try:
            return self._channel.write(data, _STEP)
        except BrokenPipeError:
            return self._closed_input()

    def _closed_input(self) -> int:
        """Reads the rest of its output, which may have the reason, after it closed its input."""
        until = time.monotonic() + self._timeouts.stop
        while time.monotonic() < until:
            self._receive(_STEP)
        raise SourceError(
            "the enrichment closed its input during a request",
            code="transform.closed_input",
            hint="see its last output in the log",
        )

    def _receive(self, timeout: float) -> list[EnrichmentAnswer]:
        """Returns the answers in at most one block of its output."""
        assert self._channel is not None
        block = self._channel.read(timeout)
        if block is None:
            return []
        found: list[EnrichmentAnswer] = []
        items = self._reader.finish() if block == b"" else self._reader.take(block)
        for item in items:
            match item:
                case LogEvent() | SkippedItems():
                    self._said(item)
                case EnrichmentAnswer():
                    found.append(item)
                case HaltMessage():
                    raise _halted(item)
                case _:
                    if isinstance(item, Message):
                        self._said(
                            LogEvent("WARN", f"{type(item).__name__}: no answer to a request")
                        )
        if block == b"" and not found:
            raise died(self._channel, "during a request", ENRICHMENT)
        return found

    def _silent(self, *, read: bool) -> SourceError:
        what = "answered no request" if read else "read nothing of a request"
        return SourceError(
            f"the enrichment {what} within {self._timeouts.heartbeat:g} s",
            code="transform.heartbeat",
            hint="see its last output in the log, and whether the service that it calls answers;"
            " if it is only slow, raise timeouts.heartbeat; one that never answers may not know the"
            " message that starts it (docs/enrichments.md, Dialects)",
        )


def _halted(halt: HaltMessage) -> SourceError:
    said = halt.message or "without a reason"
    stopped = "stopped (its status is ok)" if halt.ok else "halted"
    return SourceError(
        f"the enrichment {stopped}: {said}",
        code="transform.halted",
        hint="rows that it had not answered are read again by the next run; what was answered"
        " before the last saved state is kept",
        connector={"message": halt.message, "data": halt.data},
    )


def _unasked() -> SourceError:
    return SourceError(
        "the enrichment sent an answer to no request",
        code="transform.unasked_answer",
        hint="its answers have no ids, so none of them can be trusted any more; this is a fault of"
        " the connector: one request has one answer, with all its rows",
    )
