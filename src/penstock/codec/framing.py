"""Blocks of bytes, cut anywhere, to whole lines; a line that is too long goes to a file instead.

Knows nothing of what a line holds: CR and blank lines stay as they came. Neighbours: a runtime's
channel gives the blocks; ``protocols/*`` parse what comes out. Each byte is copied at most once,
and a line of any length costs linear time.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import Role, error_class

LONGEST_LINE = 8 << 30
"""Bytes of a line that is spooled."""
HEAD_BYTES = 64 * 1024


@dataclass(slots=True)
class Lines:
    """Whole lines in the order they came, each with its ``\\n``. ``terminated`` False: the stream
    ended inside the last line, which has none."""

    data: bytes | memoryview
    terminated: bool = True


@dataclass(slots=True)
class Oversized:
    """A line longer than the bound. ``path``: a file with all of it but its ``\\n``, owned by
    whoever takes this; None where the framer was given no folder. ``size``: its bytes without the
    ``\\n``. ``head``: its first 64 KiB."""

    path: Path | None
    size: int
    head: bytes
    terminated: bool = True


class LineFramer:
    """Feed blocks, take :class:`Lines` and :class:`Oversized` items; :meth:`finish` gives the rest.

    ``max_record_bytes``: the longest line that is kept in memory. ``spool_folder``: where longer
    ones go (mode 0600); None drops all but their head. What :meth:`feed` yields may refer to the
    block it was given. Raises ``OSError`` when the folder cannot be written, the error of
    ``role`` (``source.endless_line``) for a line beyond ``longest``, so that none fills the disk.
    """

    def __init__(
        self,
        max_record_bytes: int,
        spool_folder: str | Path | None = None,
        *,
        longest: int = LONGEST_LINE,
        role: Role = "source",
    ) -> None:
        self._role: Role = role
        self._max, self._longest = max_record_bytes, longest
        self._folder = None if spool_folder is None else Path(spool_folder)
        self._held = bytearray()  # a line without an end yet; empty while it is spooled
        self._size = 0
        self._spool: _Spool | None = None

    def feed(self, block: bytes) -> Iterator[Lines | Oversized]:
        """Everything that this block completes. The iterator must be exhausted."""
        view = memoryview(block)
        start = 0
        if self._size:
            end = block.find(b"\n")
            if end < 0:
                self._hold(view)
                return
            start = end + 1
            if self._size + end > self._max:
                yield self._oversized(view[:end], terminated=True)
            else:
                self._held += view[:start]
                yield self._lines(terminated=True)
        last = max(start, block.rfind(b"\n") + 1)
        if last > start:
            yield from self._whole(block, start, last)
        if last < len(block):
            self._hold(view[last:])

    def finish(self) -> Iterator[Lines | Oversized]:
        """The half line that the stream ended with, if any."""
        if self._spool:
            yield self._oversized(memoryview(b""), terminated=False)
        elif self._size:
            yield self._lines(terminated=False)

    def close(self) -> None:
        """Remove the file of a line that was still coming. Idempotent."""
        if self._spool:
            self._spool.discard()
            self._spool = None
        self._held, self._size = bytearray(), 0

    def _whole(self, block: bytes, start: int, end: int) -> Iterator[Lines | Oversized]:
        if end - start <= self._max:
            yield Lines(block if end - start == len(block) else memoryview(block)[start:end])
            return
        view = memoryview(block)
        begin = at = start
        while at < end:
            stop = block.rfind(b"\n", at, min(at + self._max + 1, end))
            if stop >= 0:
                at = stop + 1
                continue
            if at > begin:
                yield Lines(view[begin:at])
            stop = block.find(b"\n", at, end)
            yield self._oversized(view[at:stop], terminated=True)
            begin = at = stop + 1
        if at > begin:
            yield Lines(view[begin:at])

    def _hold(self, piece: memoryview) -> None:
        self._size += len(piece)
        if self._size > self._longest:
            self.close()
            raise error_class(self._role)(
                f"a line of the connector's output is longer than {self._longest} bytes and has no "
                "end yet",
                code=f"{self._role}.endless_line",
                hint="this is a fault of the connector: a message is one line",
            )
        if self._size > self._max:
            self._spooled().write(piece)
        else:
            self._held += piece

    def _spooled(self) -> "_Spool":
        if self._spool is None:
            self._spool = _Spool(self._folder)
            self._spool.write(memoryview(self._held))
            self._held = bytearray()
        return self._spool

    def _lines(self, *, terminated: bool) -> Lines:
        held, self._held, self._size = self._held, bytearray(), 0
        return Lines(memoryview(held), terminated)

    def _oversized(self, piece: memoryview, *, terminated: bool) -> Oversized:
        spool = self._spooled()
        spool.write(piece)
        size, self._size, self._spool = self._size + len(piece), 0, None
        return Oversized(spool.close(), size, bytes(spool.head), terminated)


class _Spool:
    def __init__(self, folder: Path | None) -> None:
        self.head = bytearray()
        self._path: Path | None = None
        self._file = None
        if folder is not None:
            handle, name = tempfile.mkstemp(prefix="oversized-", suffix=".line", dir=folder)
            self._path, self._file = Path(name), os.fdopen(handle, "wb", buffering=1 << 20)

    def write(self, piece: memoryview) -> None:
        if len(self.head) < HEAD_BYTES:
            self.head += piece[: HEAD_BYTES - len(self.head)]
        if self._file is not None:
            self._file.write(piece)

    def close(self) -> Path | None:
        if self._file is not None:
            self._file.close()
        return self._path

    def discard(self) -> None:
        path = self.close()
        if path is not None:
            path.unlink(missing_ok=True)
