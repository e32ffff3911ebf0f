"""Talking to a running connector that prints lines: blocks, silence, time limits, the exit.

Knows no protocol: a :class:`Reader` says what lines mean. Every wait is bounded (L11). Neighbours:
``protocols/*`` bring their readers, ``runtimes.contract`` runs the process, ``codec.framing`` cuts
lines.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from penstock.codec.framing import LineFramer, Lines, Oversized
from penstock.errors import Role
from penstock.model.catalog import StreamId
from penstock.model.events import Error, Event, Exited, Tick
from penstock.runtimes.contract import Argument, ByteChannel, Runtime, Timeouts

EXIT_GRACE = 60.0  # seconds between the end of stdout and the exit of the process
ANSWER_BYTES = 256 * 1024 * 1024  # of the answer of a command that answers once

Items = list[Lines | Oversized]


class GivenUp(Exception):
    """The conversation cannot go on: the connector is stopped, and whatever its exit code, it did
    not complete. ``code`` as in an error. A :class:`Reader` may raise it."""

    def __init__(self, code: str, message: str, stream: StreamId | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.stream = stream


class TimedOut(GivenUp):
    """A limit of ``Timeouts`` was passed."""


class Watch:
    """The clocks of one conversation. Silence is time spent waiting for the source only: a slow
    reader of events does not use up the source's heartbeat. A wait that ran out counts as long as
    it was asked for, so that a runtime in virtual time keeps these clocks too."""

    def __init__(self, timeouts: Timeouts, role: Role = "source") -> None:
        self._limits = timeouts
        self._role = role
        self._started = time.monotonic()
        self._spoke = False
        self._silent = 0.0

    def beat(self) -> None:
        self._silent = 0.0

    def read(self, channel: ByteChannel, bound: float) -> bytes | None:
        """One read, at most ``bound`` seconds and no longer than a limit allows. Raises
        :class:`TimedOut`."""
        bound = min(bound, self._patience())
        before = time.monotonic()
        block = channel.read(bound)
        elapsed = time.monotonic() - before
        if block is None and elapsed < bound:
            self._started -= bound - elapsed
            elapsed = bound
        self._silent += elapsed
        self._spoke = self._spoke or bool(block)
        return block

    def _patience(self) -> float:
        limits, age, role = self._limits, time.monotonic() - self._started, self._role
        left = float("inf") if limits.total is None else limits.total - age
        if left <= 0:
            raise TimedOut(
                f"{role}.timeout", f"the {role} was still running after {limits.total:g} s"
            )
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
    """The lines that each block of stdout completes, until it ends; None for every ``tick``
    seconds of silence."""
    while (block := watch.read(channel, tick)) != b"":
        yield None if block is None else list(framer.feed(block))
    yield list(framer.finish())


def exit_code(
    channel: ByteChannel, tick: float, grace: float, role: Role = "source"
) -> Iterator[int | None]:
    """None for every ``tick`` that passes before the process has ended, then its exit code."""
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
    """Each line on its own, without its newline; oversized ones are left out."""
    for item in items or ():
        if isinstance(item, Lines):
            yield from bytes(item.data).split(b"\n")


class Reader(Protocol):
    """One read's lines -> events. ``beats`` grows whenever a record or a state came."""

    beats: int

    def chunk(self, data: bytes, *, terminated: bool = True) -> Iterator[Event]:
        """Whole lines, each with its newline; ``terminated`` False: the output ended inside the
        last one. Records may be held back until :meth:`flush`."""
        ...

    def flush(self) -> Iterator[Event]:
        """Everything held back."""
        ...

    def oversized(self, size: int, head: bytes, file: Path | None) -> Iterator[Event]:
        """A line that was too long to be framed: ``head`` is its beginning, ``file`` all of it."""
        ...


Beside = Callable[[ByteChannel, Exited | None], Iterator[Event]]
"""What else a protocol has to say: asked at every tick, and once more, with the exit, when the
connector has ended and its channel is still open."""


def _nothing(channel: ByteChannel, exited: Exited | None) -> Iterator[Event]:
    return iter(())


def read(
    runtime: Runtime,
    arguments: Sequence[Argument],
    timeouts: Timeouts,
    reader: Reader,
    framer: LineFramer,
    tick: float,
    beside: Beside = _nothing,
) -> Generator[Event]:
    """One read's events; the last one is ``Exited``. A ``Tick`` comes every ``tick`` seconds,
    whether the source is silent or not."""
    with runtime.open(arguments, timeouts) as channel:
        watch = Watch(timeouts)
        beats, ticked = 0, time.monotonic()
        try:
            for items in blocks(channel, framer, watch, tick):
                for item in items or ():
                    yield from _sorted(item, reader)
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
        except GivenUp as e:
            channel.stop()
            yield Error(str(e), "system_error", e.stream, code=e.code)
            yield from _ended(channel, None, beside)
        finally:
            framer.close()


def _ended(channel: ByteChannel, code: int | None, beside: Beside) -> Iterator[Event]:
    exited = Exited(code, channel.stderr_tail())
    yield from beside(channel, exited)
    yield exited


def _sorted(item: Lines | Oversized, reader: Reader) -> Iterator[Event]:
    if isinstance(item, Oversized):
        return reader.oversized(item.size, item.head, item.path)
    return reader.chunk(bytes(item.data), terminated=item.terminated)
