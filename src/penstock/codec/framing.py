"""Cuts blocks of bytes into whole lines; writes a line that is too long to a file instead.

A block may end anywhere in a line. CR and blank lines are left as they are; a byte order mark at
the very beginning, which .NET's consoles write, is dropped (RFC 8259, 8.1). Each byte is copied at
most once, and a line of any length costs linear time. Not here: what a line holds. Neighbours: a
runtime's channel reads the blocks; ``protocols/*`` parse the lines.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import Role, error_class

LONGEST_LINE = 8 << 30
"""The most bytes of a line; a longer one is an error, even in a file."""
HEAD_BYTES = 64 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Lines:
    """Whole lines in their order, each with its ``\\n``. ``terminated`` False: the stream ended
    inside the last line, which has no ``\\n``."""

    data: bytes | memoryview
    terminated: bool = True


@dataclass(slots=True)
class Oversized:
    """A line longer than the bound. ``path``: a file with the line without its ``\\n``, which the
    receiver must delete; None if the framer has no folder. ``size``: the line's bytes without the
    ``\\n``. ``head``: its first 64 KiB."""

    path: Path | None
    size: int
    head: bytes
    terminated: bool = True


class LineFramer:
    """Turns blocks into :class:`Lines` and :class:`Oversized`: :meth:`feed` takes a block,
    :meth:`finish` yields the rest.

    ``max_record_bytes``: the longest line that is kept in memory. ``spool_folder``: for files of
    longer lines (mode 0600); None: only their head is kept. The items of :meth:`feed` may share
    memory with the block. Raises ``OSError`` when the folder cannot be written, and the error of
    ``role`` (``source.endless_line``) for a line beyond ``longest``, so that no line fills the
    disk."""

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
        self._partial = bytearray()  # the unfinished line; empty while it is written to a file
        self._size = 0
        self._spool: _Spool | None = None
        self._begin: bytes | None = b""  # the stream's first bytes, while they may be a mark

    def feed(self, block: bytes) -> Iterator[Lines | Oversized]:
        """Yields the lines that end in ``block``. The iterator must be exhausted."""
        if self._begin is not None:
            block = self._without_mark(self._begin + block)
        view = memoryview(block)
        start = 0
        if self._size:
            end = block.find(b"\n")
            if end < 0:
                self._keep(view)
                return
            start = end + 1
            if self._size + end > self._max:
                yield self._oversized(view[:end], terminated=True)
            else:
                self._partial += view[:start]
                yield self._lines(terminated=True)
        last = max(start, block.rfind(b"\n") + 1)
        if last > start:
            yield from self._whole(block, start, last)
        if last < len(block):
            self._keep(view[last:])

    def finish(self) -> Iterator[Lines | Oversized]:
        """Yields the unterminated last line of the stream, if there is one."""
        if self._begin:
            self._keep(memoryview(self._begin))
        if self._spool:
            yield self._oversized(memoryview(b""), terminated=False)
        elif self._size:
            yield self._lines(terminated=False)

    def close(self) -> None:
        """Removes the file of an unfinished line. Idempotent."""
        if self._spool:
            self._spool.discard()
            self._spool = None
        self._partial, self._size = bytearray(), 0

    def _without_mark(self, begin: bytes) -> bytes:
        """Returns the stream's first bytes without a mark; none while they may be a part of one."""
        if len(begin) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(begin):
            self._begin = begin
            return b""
        self._begin = None
        return begin.removeprefix(_BYTE_ORDER_MARK)

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

    def _keep(self, piece: memoryview) -> None:
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
            self._partial += piece

    def _spooled(self) -> "_Spool":
        if self._spool is None:
            self._spool = _Spool(self._folder)
            self._spool.write(memoryview(self._partial))
            self._partial = bytearray()
        return self._spool

    def _lines(self, *, terminated: bool) -> Lines:
        line = bytes(self._partial)  # a long line is in memory once, for whoever reads it
        self._partial, self._size = bytearray(), 0
        return Lines(line, terminated)

    def _oversized(self, piece: memoryview, *, terminated: bool) -> Oversized:
        spool = self._spooled()
        spool.write(piece)
        size, self._size, self._spool = self._size + len(piece), 0, None
        return Oversized(spool.close(), size, bytes(spool.head), terminated)


class _Spool:
    """Writes an oversized line to a file (none if ``folder`` is None) and keeps its head."""

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
