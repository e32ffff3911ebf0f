"""Reads a connector's stderr to its end, in a thread: masks it line by line and keeps the tail.

Not here: stdout, which is read only on demand (``process``).
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
"""Characters; a longer line is split."""
TAIL_BOUND = 8 * 1024
"""Bytes of UTF-8 kept for errors."""
_READ = 64 * 1024
_LOOK = 0.5


class LineSplitter:
    """Splits bytes of UTF-8 into whole lines with secrets masked; see :data:`LINE_BOUND`."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes, *, final: bool = False) -> list[str]:
        """Returns the lines that ``data`` completes; ``final``: also the rest without a newline."""
        *lines, self._rest = (self._rest + self._decoder.decode(data, final)).split("\n")
        out = [
            masked[i : i + LINE_BOUND]
            for masked in (self._masker.mask(line.rstrip("\r")) for line in lines)
            for i in range(0, len(masked) or 1, LINE_BOUND)
        ]
        while len(self._rest) > LINE_BOUND:
            # Never cut through a secret, even one whose end has not been read yet.
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
    """Reads a descriptor in a thread of its own until its end or :meth:`close`, and closes it.

    ``log`` receives each line in that thread; what it raises is ignored, because a connector must
    not block on a full pipe."""

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
        """Returns the last lines, at most :data:`TAIL_BOUND` bytes, after waiting up to ``settle``
        seconds for the end of stderr."""
        self._thread.join(settle)
        with self._lock:
            text = "\n".join(self._tail).encode()
        return text[-TAIL_BOUND:].decode(errors="ignore")

    def close(self, settle: float) -> None:
        """Ends the thread, after giving it ``settle`` seconds to read what was written so far."""
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
