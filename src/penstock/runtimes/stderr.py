"""A connector's stderr: always drained, line by line, secrets masked, its tail kept.

Not here: stdout, which is read only when somebody wants it (``process``).
"""

import codecs
import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable

from penstock.runtimes.masking import Masker

LINE_BOUND = 16 * 1024
"""Characters: a longer line is given in pieces."""
TAIL_BOUND = 8 * 1024
"""Bytes of UTF-8 kept for errors."""
_READ = 64 * 1024
_LOOK = 0.5


class LineSplitter:
    """Bytes in, whole masked lines out."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes, *, final: bool = False) -> list[str]:
        *lines, self._rest = (self._rest + self._decoder.decode(data, final)).split("\n")
        out = [
            masked[i : i + LINE_BOUND]
            for masked in (self._masker.mask(line.rstrip("\r")) for line in lines)
            for i in range(0, len(masked) or 1, LINE_BOUND)
        ]
        while len(self._rest) > LINE_BOUND:
            # Pieces are cut out of masked text, and never through a secret of which the end is
            # still to come.
            cut = self._masker.safe_cut(self._rest[: 2 * LINE_BOUND])
            if cut == 0 and len(self._rest) <= 2 * LINE_BOUND:
                break
            cut = cut or len(self._rest)
            out.append(self._masker.mask(self._rest[:cut]))
            self._rest = self._rest[cut:]
        if final and self._rest:
            out.append(self._masker.mask(self._rest))
            self._rest = ""
        return out


class StderrDrain:
    """A thread that owns the descriptor: reads until its end, or until :meth:`close`.

    ``log`` is called in that thread; what it raises is swallowed, because nobody could be told and
    a connector must not block on a full pipe."""

    def __init__(self, fd: int, masker: Masker, log: Callable[[str], None] | None) -> None:
        self._fd = fd
        self._log = log
        self._splitter = LineSplitter(masker)
        self._lock = threading.Lock()
        self._tail: deque[str] = deque()
        self._kept = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-stderr", daemon=True)
        self._thread.start()

    def tail(self, settle: float) -> str:
        """The last lines; waits up to ``settle`` seconds for stderr to end first."""
        self._thread.join(settle)
        with self._lock:
            text = "\n".join(self._tail).encode()
        return text[-TAIL_BOUND:].decode(errors="ignore")

    def close(self, settle: float) -> None:
        """Everything written so far is drained, within ``settle`` seconds."""
        self._thread.join(settle)
        self._closing.set()
        self._thread.join(2 * _LOOK)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        try:
            while not self._closing.is_set():
                if not poll.poll(_LOOK * 1000):
                    continue
                data = os.read(self._fd, _READ)
                self._take(self._splitter.feed(data, final=not data))
                if not data:
                    return
        finally:
            os.close(self._fd)

    def _take(self, lines: list[str]) -> None:
        with self._lock:
            for line in lines:
                self._tail.append(line)
                self._kept += len(line) + 1
                while self._kept > TAIL_BOUND and len(self._tail) > 1:
                    self._kept -= len(self._tail.popleft()) + 1
        if self._log is not None:
            for line in lines:
                with contextlib.suppress(Exception):
                    self._log(line)
