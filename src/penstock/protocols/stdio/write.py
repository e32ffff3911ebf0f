"""Writes to a destination that reads lines, whatever the protocol: one thread feeds its stdin, the
caller's reads its stdout. Chunks of bytes in, answers out.

Every wait is bounded (L11): a destination that neither reads nor answers is stopped after
``RunTimeouts.heartbeat`` seconds, and so is one that does not end. A write succeeded only where the
destination read its input to the end and exited with 0. Not here: the messages that are written,
and the meaning of its output (``protocols/*/destination.py`` gives chunks and an
:class:`OutputReader`).
"""

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol

from penstock.errors import Defect
from penstock.model.events import ConnectorExited, Error, Tick
from penstock.protocols.failures import ENDED_HINTS
from penstock.protocols.writing import Answer
from penstock.runtimes.contract import Argument, ByteChannel, Runtime, RunTimeouts

Chunk = Any
"""Data to write: bytes, a memoryview or a pyarrow.Buffer. None: no data at the moment."""

CLOSED_INPUT_SECONDS = 300.0
"""Seconds for a destination that closed its stdin to commit, report the reason, and end."""
_STEP = 0.2  # seconds of one wait
_JOIN_SECONDS = 60.0  # for the chunk that is being encoded


class OutputReader(Protocol):
    """Converts a destination's stdout into answers. ``beats`` grows with every ack; ``failed``: the
    destination reported a failure, so that exit code 0 does not mean success."""

    beats: int
    failed: bool

    def take(self, block: bytes) -> Iterator[Answer]: ...

    def finish(self) -> Iterator[Answer]:
        """Converts the rest of the output when stdout has ended."""
        ...

    def ended_well(self) -> Iterator[Answer]:
        """Yields the answers that follow from a success: all input was read, no failure was
        reported, and the exit code is 0."""
        ...


class StdinFeeder:
    """Draws ``chunks`` and writes them, in its own thread, then closes stdin. ``ended``: everything
    was written and read; ``broken``: the destination closed its stdin."""

    def __init__(self, channel: ByteChannel, chunks: Generator[Chunk | None]) -> None:
        self._channel, self._chunks = channel, chunks
        self.ended = self.broken = False
        self.ended_at = 0.0
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._waiting_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops writing. Waits for the chunk that is being encoded; no further one is drawn."""
        self._stop.set()
        self._thread.join(_JOIN_SECONDS)

    def check(self) -> None:
        """Raises the exception that drawing a chunk raised."""
        alive = self._thread.is_alive()  # read before ``_failure``, which the thread sets last
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if not (alive or self.ended or self.broken):
            raise Defect("the thread that feeds the destination is gone")

    def stalled(self) -> float:
        """Returns the seconds since the destination last took a byte; 0 while nothing waits to be
        written."""
        since = self._waiting_since
        return 0.0 if since is None else time.monotonic() - since

    def _run(self) -> None:
        try:
            with closing(self._chunks):
                for chunk in self._chunks:
                    if chunk is not None:
                        self._write(chunk)
                    if self._stop.is_set():
                        return
                self._drain()
        except BrokenPipeError:
            self.broken = True
        except BaseException as e:  # ``check`` raises it in the caller's thread
            self._failure = e

    def _write(self, chunk: Chunk) -> None:
        view = memoryview(chunk).cast("B")
        self._waiting_since = time.monotonic()
        while view and not self._stop.is_set():
            taken = self._channel.write(view, _STEP)
            if taken:
                self._waiting_since = time.monotonic()
                view = view[taken:]
        self._waiting_since = None

    def _drain(self) -> None:
        self._waiting_since = time.monotonic()
        while not self._channel.drained(_STEP):
            if self._stop.is_set():
                return
        self._waiting_since = None
        self.ended_at = time.monotonic()
        self.ended = True
        self._channel.end_input()


_HANGS = (
    "see its last output in the log, and whether the system that it writes to answers; if it is"
    " only slow, raise `timeouts` in the pipeline file"
)


class _TimedOut(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _ours(message: str, code: str, hint: str) -> Error:
    return Error(message, "system_error", code=f"destination.{code}", hint=hint)


class _Limits:
    """Measures the timeouts of one write."""

    def __init__(self, timeouts: RunTimeouts, feeder: StdinFeeder, output: OutputReader) -> None:
        self._timeouts, self._feeder, self._output = timeouts, feeder, output
        self._began = self._beat_at = time.monotonic()
        self._beats = 0
        self._broken_at: float | None = None

    def check(self) -> None:
        """Raises :class:`_TimedOut`."""
        now, bound, total = time.monotonic(), self._timeouts.heartbeat, self._timeouts.total
        if self._output.beats != self._beats:
            self._beats, self._beat_at = self._output.beats, now
        if total is not None and now - self._began > total:
            raise _TimedOut("timeout", f"the destination was still running after {total:g} s")
        if self._feeder.stalled() > bound:
            raise _TimedOut(
                "heartbeat",
                f"the destination read nothing of its input for {bound:g} s",
            )
        if self._feeder.ended and now - max(self._feeder.ended_at, self._beat_at) > bound:
            raise _TimedOut(
                "no_exit",
                f"the destination did not end within {bound:g} s of the end of its input",
            )
        if self._feeder.broken:
            self._broken_at = self._broken_at or now
            if now - self._broken_at > CLOSED_INPUT_SECONDS:
                raise _TimedOut(
                    "closed_input",
                    "the destination closed its input before the end and did not end",
                )


def converse(
    runtime: Runtime,
    arguments: Sequence[Argument],
    timeouts: RunTimeouts,
    tick: float,
    chunks: Generator[Chunk | None],
    output: OutputReader,
) -> Iterator[Answer]:
    """Runs a destination and yields its answers; the last one is ``ConnectorExited``. A ``Tick``
    comes every ``tick`` seconds. An exception of drawing a chunk is raised here."""
    with (
        runtime.open(arguments, timeouts, feed=True) as channel,
        closing(StdinFeeder(channel, chunks)) as feeder,
    ):
        limits = _Limits(timeouts, feeder, output)
        try:
            yield from _heard(channel, feeder, output, limits, tick)
            yield from output.finish()
            while (code := channel.wait(tick)) is None:
                feeder.check()
                limits.check()
                yield Tick()
        except _TimedOut as e:
            channel.stop()
            yield _ours(str(e), e.code, _HANGS)
            yield ConnectorExited(None, channel.stderr_tail())
            return
        feeder.check()
        if code == 0 and not feeder.ended:
            text = "the destination ended with exit code 0 before it had read all of its input"
            yield _ours(text, "ended_early", ENDED_HINTS["destination"])
        elif code == 0 and not output.failed:
            yield from output.ended_well()
        yield ConnectorExited(code, channel.stderr_tail())


def _heard(
    channel: ByteChannel, feeder: StdinFeeder, output: OutputReader, limits: _Limits, tick: float
) -> Iterator[Answer]:
    ticked = time.monotonic()
    while (block := channel.read(tick)) != b"":
        if block:
            yield from output.take(block)
        feeder.check()
        limits.check()
        if time.monotonic() - ticked >= tick:
            ticked = time.monotonic()
            yield Tick()
