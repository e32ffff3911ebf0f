"""What a guest prints: stderr line by line to a log, its tail kept for errors; stdout is dropped.

The twin of ``runtimes.stderr`` for guests, which have no descriptor to be drained.
"""

import contextlib
from collections import deque
from collections.abc import Callable

from penstock.runtimes.masking import Masker
from penstock.runtimes.stderr import TAIL_BOUND, LineSplitter


class Stderr:
    """``log`` gets whole masked lines in the guest's thread; what it raises is swallowed, because a
    guest's print must not fail."""

    def __init__(self, masker: Masker, log: Callable[[str], None] | None = None) -> None:
        self._splitter = LineSplitter(masker)
        self._log = log
        self._tail: deque[str] = deque()
        self._kept = 0

    def write(self, data: bytes) -> None:
        with contextlib.suppress(Exception):
            self._take(self._splitter.feed(data))

    def tail(self) -> str:
        """The last lines, at most 8 KiB of UTF-8; what has no end of line yet is included."""
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
