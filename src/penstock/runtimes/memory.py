"""The in-memory twin of ``process``: a script plays the connector, in virtual time.

It ships, for tests of protocols and of the engine. A :data:`Script` gets the arguments, contents in
place of private files, and yields what happens: bytes of stdout, :class:`Sleep`,
:class:`StderrLine`, and at the end perhaps :class:`Exit` (else it exits with 0). Time passes only
in timeouts: a read that would wait an hour returns at once.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from penstock.runtimes.contract import Argument, Timeouts
from penstock.runtimes.masking import Masker
from penstock.runtimes.stderr import TAIL_BOUND


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing for so many virtual seconds; infinite by default: a connector that hangs."""

    seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class StderrLine:
    text: str


@dataclass(frozen=True, slots=True)
class Exit:
    """The exit code; negative: killed by that signal."""

    code: int


Step = bytes | Sleep | StderrLine | Exit
Script = Callable[[list[str | bytes]], Iterable[Step]]


class MemoryRuntime:
    """``runs`` keeps the arguments of every start; ``clock`` the virtual seconds that passed."""

    def __init__(
        self,
        script: Script,
        *,
        secrets: Sequence[str] = (),
        log_stderr: Callable[[str], None] | None = None,
    ) -> None:
        self._script = script
        self._masker = Masker(secrets)
        self._log = log_stderr
        self.runs: list[list[str | bytes]] = []
        self.clock = 0.0

    def open(self, arguments: Sequence[Argument], timeouts: Timeouts) -> "MemoryChannel":
        resolved = [a if isinstance(a, str) else a.content for a in arguments]
        self.runs.append(resolved)
        return MemoryChannel(self, iter(self._script(list(resolved))))

    def say(self, line: str) -> str:
        """A line of stderr, masked and logged as ``process`` does."""
        masked = self._masker.mask(line)
        if self._log is not None:
            self._log(masked)
        return masked


class MemoryChannel:
    """One run. Like a process, it gets no further than its next unread output."""

    def __init__(self, runtime: MemoryRuntime, steps: Iterator[Step]) -> None:
        self._runtime = runtime
        self._steps = steps
        self._pending: bytes | None = None
        self._asleep = 0.0
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
        if self.stopped:
            return b""
        if not self._advance(timeout):
            return None
        data, self._pending = self._pending, None
        return data or b""

    def wait(self, timeout: float) -> int | None:
        if self._code is None:
            self._advance(timeout)
        return self._code

    def stop(self) -> None:
        if self._code is None:
            self._code = -15
            close = getattr(self._steps, "close", None)
            if close is not None:
                close()
        self.stopped = True

    def stderr_tail(self) -> str:
        return self._tail.encode()[-TAIL_BOUND:].decode(errors="ignore").removesuffix("\n")

    def _advance(self, timeout: float) -> bool:
        """To the next output or the end; False where ``timeout`` virtual seconds pass before."""
        left = max(timeout, 0.0)
        while self._pending is None and self._code is None:
            if self._asleep > left:
                self._asleep -= left
                self._runtime.clock += left
                return False
            left -= self._asleep
            self._runtime.clock += self._asleep
            self._asleep = 0.0
            match next(self._steps, Exit(0)):
                case Sleep(seconds):
                    self._asleep = seconds
                case StderrLine(text):
                    self._tail += "".join(f"{self._runtime.say(x)}\n" for x in text.splitlines())
                case Exit(code):
                    self._code = code
                case b"":
                    continue
                case data:
                    self._pending = data
        return True
