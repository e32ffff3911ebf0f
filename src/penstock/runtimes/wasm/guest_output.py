"""Logs what a guest prints to stderr, line by line, and keeps the tail for errors.

Like ``runtimes.stderr``, for guests, whose output arrives by calls. Not here: stdout, which is
dropped (``wasi``).
"""

import contextlib
from collections import deque
from collections.abc import Callable

from penstock.runtimes.masking import Masker
from penstock.runtimes.stderr import TAIL_BOUND, LineSplitter


class Stderr:
    """Splits a guest's stderr into masked lines. ``log`` gets each line in the guest's thread; what
    it raises is ignored, because a guest's print must not fail."""

    def __init__(self, masker: Masker, log: Callable[[str], None] | None = None) -> None:
        self._splitter = LineSplitter(masker)
        self._log = log
        self._tail: deque[str] = deque()
        self._kept = 0

    def write(self, data: bytes) -> None:
        """Takes bytes that the guest printed; raises nothing."""
        with contextlib.suppress(Exception):
            self._take(self._splitter.feed(data))

    def tail(self) -> str:
        """Returns the last lines, at most 8 KiB of UTF-8, with an unfinished last line."""
        self._take(self._splitter.feed(b"", final=True))
        return "\n".join(self._tail).encode()[-TAIL_BOUND:].decode(errors="ignore")

    def _take(self, lines: list[str]) -> None:
        for line in lines:
            self._tail.append(line)
            self._kept += len(line) + 1
            while self._kept > TAIL_BOUND and len(self._tail) > 1:
                self._kept -= len(self._tail.popleft()) + 1
            if self._log is not None:
                with contextlib.suppress(Exception):
                    self._log(line)
