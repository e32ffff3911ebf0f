"""Reads a source that prints lines: blocks of stdout in, events out, until its exit.

Every wait is bounded (L11). Not here: the meaning of a line, which a :class:`Reader` of the
protocol decodes (``protocols/*/record_reader``). Neighbours: ``runtimes.contract`` runs the
process, ``codec.framing`` splits blocks into lines.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from penstock.codec.framing import LineFramer, Lines, Oversized
from penstock.errors import Role
from penstock.model.catalog import StreamId
from penstock.model.events import ConnectorExited, Error, Event, Tick
from penstock.runtimes.contract import Argument, ByteChannel, Runtime, RunTimeouts

EXIT_GRACE = 60.0  # seconds between the end of stdout and the exit of the process
ANSWER_BYTES = 256 * 1024 * 1024  # the longest answer of a command that answers once

Items = list[Lines | Oversized]


class ReadFailed(Exception):
    """Raised where the read cannot go on: the connector is stopped and counts as incomplete,
    whatever its exit code. ``code``, ``hint``: as in an error. A :class:`Reader` may raise it."""

    def __init__(
        self,
        code: str,
        message: str,
        stream: StreamId | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.stream = stream
        self.hint = hint


class TimedOut(ReadFailed):
    """Raised where one of ``RunTimeouts`` was exceeded."""


class Watch:
    """Measures the timeouts of one running connector. Silence is only the time spent waiting for
    the source: a slow consumer of events does not use up the source's heartbeat. A wait without
    output counts as long as it was requested, so that a runtime with virtual time works too."""

    def __init__(self, timeouts: RunTimeouts, role: Role = "source") -> None:
        self._limits = timeouts
        self._role = role
        self._started = time.monotonic()
        self._spoke = False
        self._silent = 0.0

    def beat(self) -> None:
        """Notes that a record or a state came: the silence ends."""
        self._silent = 0.0

    def read(self, channel: ByteChannel, bound: float) -> bytes | None:
        """Reads one block, for at most ``bound`` seconds and no longer than a timeout allows.
        Raises :class:`TimedOut`."""
        bound = min(bound, self._remaining())
        before = time.monotonic()
        block = channel.read(bound)
        elapsed = time.monotonic() - before
        if block is None and elapsed < bound:
            self._started -= bound - elapsed
            elapsed = bound
        self._silent += elapsed
        self._spoke = self._spoke or bool(block)
        return block

    def left(self) -> float:
        """Returns the seconds of ``RunTimeouts.total`` that are left. Raises :class:`TimedOut` for
        none."""
        total, role = self._limits.total, self._role
        if total is None:
            return float("inf")
        left = total - (time.monotonic() - self._started)
        if left <= 0:
            raise TimedOut(f"{role}.timeout", f"the {role} was still running after {total:g} s")
        return left

    def _remaining(self) -> float:
        """Returns the seconds until the next timeout. Raises :class:`TimedOut`."""
        limits, role, left = self._limits, self._role, self.left()
        bound = limits.heartbeat if self._spoke else limits.start
        if self._silent < bound:
            return min(left, bound - self._silent)
        if self._spoke:
            raise TimedOut(
                f"{role}.heartbeat", f"the {role} sent no record and no state for {bound:g} s"
            )
        raise TimedOut(f"{role}.start_timeout", f"the {role} printed nothing for {bound:g} s")


def blocks(
    channel: ByteChannel, framer: LineFramer, watch: Watch, tick: float
) -> Iterator[Items | None]:
    """Yields the lines that each block of stdout completes, until it ends; None after every
    ``tick`` seconds of silence."""
    while (block := watch.read(channel, tick)) != b"":
        yield None if block is None else list(framer.feed(block))
    yield list(framer.finish())


def exit_code(
    channel: ByteChannel, tick: float, grace: float, role: Role = "source"
) -> Iterator[int | None]:
    """Waits for the process: yields None every ``tick`` seconds, then its exit code. Raises
    :class:`TimedOut` after ``grace`` seconds."""
    waited = 0.0
    while waited < grace:
        code = channel.wait(tick)
        yield code
        if code is not None:
            return
        waited += tick
    raise TimedOut(
        f"{role}.no_exit", f"the {role} closed its output and did not end in {grace:g} s"
    )


def raw_lines(items: Items | None) -> Iterator[bytes]:
    """Yields each line without its newline; oversized lines are skipped."""
    for item in items or ():
        if isinstance(item, Lines):
            yield from bytes(item.data).split(b"\n")


class Reader(Protocol):
    """Converts the lines of one read into events. ``beats`` grows with every record and state."""

    beats: int

    def chunk(self, data: bytes, *, terminated: bool = True) -> Iterator[Event]:
        """Converts complete lines, each with its newline; ``terminated`` False: the output ended
        inside the last one. Records may be buffered until :meth:`flush`."""
        ...

    def flush(self) -> Iterator[Event]:
        """Yields everything that is buffered."""
        ...

    def oversized(self, size: int, head: bytes, file: Path | None) -> Iterator[Event]:
        """Reports a line that is too long to decode: ``head`` is its beginning, ``file`` has the
        whole line."""
        ...


Beside = Callable[[ByteChannel, ConnectorExited | None], Iterator[Event]]
"""Returns events that a protocol adds to those of stdout. Called at every tick, and once with the
exit, while the channel of the ended connector is still open."""


def _nothing(channel: ByteChannel, exited: ConnectorExited | None) -> Iterator[Event]:
    return iter(())


def read(
    runtime: Runtime,
    arguments: Sequence[Argument],
    timeouts: RunTimeouts,
    reader: Reader,
    framer: LineFramer,
    tick: float,
    beside: Beside = _nothing,
) -> Generator[Event]:
    """Runs a source and yields its events; the last one is ``ConnectorExited``. A ``Tick`` comes
    every ``tick`` seconds, whether the source is silent or not."""
    with runtime.open(arguments, timeouts) as channel:
        watch = Watch(timeouts)
        beats, ticked = 0, time.monotonic()
        try:
            for items in blocks(channel, framer, watch, tick):
                while items:
                    for event in _decoded(items.pop(0), reader):
                        yield event
                        del event  # keep no reference to a large event
                        watch.left()  # a line may name files, which take time
                yield from reader.flush()
                if reader.beats != beats:
                    beats = reader.beats
                    watch.beat()
                if items is None or time.monotonic() - ticked >= tick:
                    ticked = time.monotonic()
                    yield from beside(channel, None)
                    yield Tick()
            for code in exit_code(channel, tick, EXIT_GRACE):
                if code is None:
                    yield Tick()
                else:
                    yield from _ended(channel, code, beside)
        except ReadFailed as e:
            channel.stop()
            yield Error(str(e), "system_error", e.stream, code=e.code, hint=e.hint)
            yield from _ended(channel, None, beside)
        finally:
            framer.close()


def _ended(channel: ByteChannel, code: int | None, beside: Beside) -> Iterator[Event]:
    exited = ConnectorExited(code, channel.stderr_tail())
    yield from beside(channel, exited)
    yield exited


def _decoded(item: Lines | Oversized, reader: Reader) -> Iterator[Event]:
    if isinstance(item, Oversized):
        return reader.oversized(item.size, item.head, item.path)
    return reader.chunk(bytes(item.data), terminated=item.terminated)
