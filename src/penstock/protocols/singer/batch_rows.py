"""Defines the results of reading a BATCH message's files: rows, malformed rows, and the error.

Not here: files. Neighbours: ``batch_files`` and ``batch_parquet`` produce them, ``record_reader``
takes them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.codec.framing import Lines, Oversized
from penstock.protocols.stdio.json_lines import FIRST, OPEN, split

Rows = Sequence[Any]
"""JSON objects, buffer-like."""


class BatchError(Exception):
    """Raised for a batch whose rows cannot all be read; names the file and the reason. ``hint``:
    what to do."""

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint


@dataclass(slots=True)
class MalformedRow:
    """A row that is not an object, or too long. ``raw``: its bytes; or only the first ones, where
    ``spool`` is a file with all ``size`` bytes."""

    reason: str
    raw: bytes
    spool: str | None = None
    size: int = 0


def rows_of(item: Lines | Oversized) -> Iterator[Rows | MalformedRow]:
    """Yields the rows in a framer's output, one row a line."""
    if isinstance(item, Oversized):
        spool = None if item.path is None else str(item.path)
        reason = f"a row of {item.size} bytes is larger than max_record_bytes"
        yield MalformedRow(reason, item.head, spool, 0 if spool is None else item.size)
        return
    lines = [line for line in split(bytes(item.data)) if line.strip()]
    if lines and set(map(FIRST, lines)) != {OPEN}:
        for line in lines:
            if line[0] != OPEN and not line.lstrip().startswith(b"{"):
                yield MalformedRow("a row of a batch is not an object", line)
        lines = [line.lstrip() for line in lines if line.lstrip().startswith(b"{")]
    if lines:
        yield lines
