"""Refuses a SQLite store on a disk with hardly any room: SQLite maps a file of the store into
memory, and a page of it that the disk has no block for ends the process by SIGBUS, without a word.

Not here: a disk that is full, which SQLite reports (``database_url.failed``). Neighbour:
``database`` calls it.
"""

import os
from pathlib import Path

from penstock.errors import StateError

LEAST_BYTES = 128 << 10
"""The mapped file, the file of its write-ahead log, and a few rows."""


def refuse_full(path: Path) -> None:
    """Raises ``StateError`` (``state.disk_full``) where the disk that holds the file ``path`` has
    less than :data:`LEAST_BYTES` left. Raises ``OSError``."""
    disk = os.statvfs(path.parent)
    blocks = disk.f_bavail
    if not blocks and not os.geteuid():
        blocks = disk.f_bfree  # what is reserved for the system's administrator
    left = blocks * disk.f_frsize
    if disk.f_blocks and left < LEAST_BYTES:
        raise StateError(
            f"the disk that holds the state store {path} is full: {left >> 10} kB are left",
            code="state.disk_full",
            where=str(path),
            hint=f"free at least {LEAST_BYTES >> 10} kB there, then run again; nothing that was "
            "committed is lost",
        )
