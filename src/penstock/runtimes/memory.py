"""Runs a Python generator in place of a connector process, for tests: the runtime in memory.

The generator, a :data:`Script`, gets the arguments, contents in place of private files, and yields
steps: bytes of stdout, :class:`Sleep`, :class:`StderrLine`, and at the end perhaps :class:`Exit`
(else the exit code is 0). To read stdin it yields :class:`NextLine` and gets the line as the value
of the ``yield``. Time is virtual, and passes only in timeouts: a read that would wait an hour
returns at once. Waiting for input, or for room in it, is real time, because another thread may
write. Not here: real processes (``process``).
"""

import errno
import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from penstock.runtimes.contract import Argument, RunTimeouts, SharedFolders
from penstock.runtimes.masking import Masker
from penstock.runtimes.stderr import TAIL_BOUND


@dataclass(frozen=True, slots=True)
class Sleep:
    """Makes the connector silent for a number of virtual seconds, by default forever."""

    seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class StderrLine:
    """Makes the connector print to stderr, one or more lines."""

    text: str


@dataclass(frozen=True, slots=True)
class Exit:
    """Ends the connector with an exit code; negative: killed by that signal."""

    code: int


@dataclass(frozen=True, slots=True)
class NextLine:
    """Waits for a line of stdin, with its newline. At the end of stdin the value is the rest
    without a newline, then ``b""``."""


@dataclass(frozen=True, slots=True)
class CloseInput:
    """Stops reading stdin: ``write`` then raises ``BrokenPipeError``."""


Step = bytes | Sleep | StderrLine | Exit | NextLine | CloseInput
Script = Callable[[list[str | bytes]], Iterable[Step]]


class MemoryRuntime:
    """Starts a script any number of times (``runtimes.contract.Runtime``). ``runs``: the arguments
    of every start. ``clock``: the virtual seconds that passed. ``capacity``: the most bytes of
    stdin that wait to be read. ``log_stderr`` receives each masked line of stderr. ``shared``: its
    folders; by default all of this machine, as the script runs in this process."""

    def __init__(
        self,
        script: Script,
        *,
        masker: Masker | None = None,
        log_stderr: Callable[[str], None] | None = None,
        capacity: int = 64 * 1024,
        shared: SharedFolders | None = None,
    ) -> None:
        self._script = script
        self.capacity = capacity
        self._masker = Masker() if masker is None else masker
        self._log = log_stderr
        self._shared = shared or SharedFolders(paths=("/",), cwd="/")
        self.runs: list[list[str | bytes]] = []
        self.clock = 0.0

    def open(
        self, arguments: Sequence[Argument], timeouts: RunTimeouts, *, feed: bool = False
    ) -> "MemoryChannel":
        resolved = [a if isinstance(a, str) else a.content for a in arguments]
        self.runs.append(resolved)
        private = {a.name: a.content for a in reversed(arguments) if not isinstance(a, str)}
        return MemoryChannel(self, iter(self._script(list(resolved))), private, feed=feed)

    def shared_folders(self) -> SharedFolders:
        return self._shared

    def say(self, line: str) -> str:
        """Masks and logs a line of stderr, as ``process`` does."""
        masked = self._masker.mask(line)
        if self._log is not None:
            self._log(masked)
        return masked


class MemoryChannel:
    """Drives one run of a script (``runtimes.contract.ByteChannel``). Like a process with a full
    pipe, the script runs no further than its next unread output."""

    def __init__(
        self,
        runtime: MemoryRuntime,
        steps: Iterator[Step],
        private: dict[str, bytes],
        *,
        feed: bool,
    ) -> None:
        self._runtime = runtime
        self._steps = steps
        self._private = private
        self._pending: bytes | None = None
        self._asleep = 0.0
        self._waits_for_line = False
        self._answer: bytes | None = None
        self._input = bytearray()
        self._ended = self._deaf = not feed
        self._changed = threading.Condition()
        self._code: int | None = None
        self._tail = ""
        self.stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()

    def read(self, timeout: float) -> bytes | None:
        with self._changed:
            if self.stopped:
                return b""
            if not self._advance(timeout):
                return b"" if self.stopped else None
            data, self._pending = self._pending, None
            return data or b""

    def write(self, data: bytes | memoryview, timeout: float) -> int:
        deadline = time.monotonic() + max(timeout, 0.0)
        with self._changed:
            while True:
                if self._deaf or self._ended or self.stopped or self._code is not None:
                    raise BrokenPipeError(errno.EPIPE, "nobody reads the connector's input")
                room = self._runtime.capacity - len(self._input)
                if room > 0:
                    taken = bytes(data[:room])
                    self._input += taken
                    self._changed.notify_all()
                    return len(taken)
                if not self._changed.wait(deadline - time.monotonic()):
                    return 0

    def drained(self, timeout: float) -> bool:
        deadline = time.monotonic() + max(timeout, 0.0)
        with self._changed:
            while self._input:
                if self.stopped or self._code is not None:
                    raise BrokenPipeError(errno.EPIPE, "the input was never read")
                if not self._changed.wait(deadline - time.monotonic()):
                    return False
            return True

    def end_input(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def private(self, name: str) -> bytes | None:
        return None if self.stopped else self._private.get(name)

    def wait(self, timeout: float) -> int | None:
        with self._changed:
            if self._code is None:
                self._advance(timeout)
            return self._code

    def ended_well(self) -> bool:
        with self._changed:
            return self._code == 0 and not self._input and not self.stopped

    def stop(self) -> None:
        with self._changed:
            if self._code is None:
                self._code = -15
                close = getattr(self._steps, "close", None)
                if close is not None:
                    close()
            self.stopped = True
            self._changed.notify_all()

    def stderr_tail(self) -> str:
        return self._tail.encode()[-TAIL_BOUND:].decode(errors="ignore").removesuffix("\n")

    def _advance(self, timeout: float) -> bool:
        """Runs the script to its next output or its end; returns False where ``timeout`` virtual
        seconds pass before that."""
        left = max(timeout, 0.0)
        while self._pending is None and self._code is None:
            if self._asleep > left:
                self._asleep -= left
                self._runtime.clock += left
                return False
            left -= self._asleep
            self._runtime.clock += self._asleep
            self._asleep = 0.0
            if self._waits_for_line and not self._take_line(left):
                return False
            match self._next():
                case Sleep(seconds):
                    self._asleep = seconds
                case StderrLine(text):
                    self._tail += "".join(f"{self._runtime.say(x)}\n" for x in text.splitlines())
                case NextLine():
                    self._waits_for_line = True
                case CloseInput():
                    self._deaf = True
                case Exit(code):
                    self._code = code
                case b"":
                    continue
                case data:
                    self._pending = data
            self._changed.notify_all()
        return True

    def _next(self) -> Step:
        answer, self._answer = self._answer, None
        if answer is None or not isinstance(self._steps, Generator):
            return next(self._steps, Exit(0))
        try:
            return self._steps.send(answer)
        except StopIteration:
            return Exit(0)

    def _take_line(self, seconds: float) -> bool:
        """Takes the line of stdin that the script waits for; returns False where none is written
        within ``seconds`` of real time."""
        deadline = time.monotonic() + seconds
        while True:
            end = self._input.find(b"\n") + 1
            full = len(self._input) >= self._runtime.capacity
            if end == 0 and (self._ended or full):
                end = len(self._input)
            if end or self._ended:
                break
            if not self._changed.wait(deadline - time.monotonic()) or self.stopped:
                return False
        self._answer = bytes(self._input[:end])
        del self._input[:end]
        self._waits_for_line = False
        self._changed.notify_all()
        return True
