"""Defines what the files of a BATCH message give: rows, rows that are none, and why they cannot be
read.

Data only. Neighbours: ``batch_files`` and ``batch_parquet`` make it, ``record_reader`` takes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Rows = Sequence[Any]
"""JSON objects, buffer-like."""


class BatchError(Exception):
    """Raised for a batch of which not all rows can be read; names the file and the reason.
    ``hint``: what to do."""

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint


@dataclass(slots=True)
class MalformedRow:
    """A row that is not an object, or too long. ``raw``: its bytes; or their beginning, where
    ``spool`` is a file with all of them, of ``size`` bytes."""

    reason: str
    raw: bytes
    spool: str | None = None
    size: int = 0
