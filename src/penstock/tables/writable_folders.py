"""Proves that a folder can be written to, before rows are read (``check``) and before a load."""

import errno
import os
import tempfile
from pathlib import Path

from penstock.errors import DestinationError


def prove_writable(folder: Path) -> None:
    """Proves that ``folder`` can be written to, or created: writes a temporary file into it or its
    nearest existing parent. (Permission bits do not tell for root, nor on a read-only file system.)
    Leaves nothing behind. Raises ``DestinationError`` (``destination.not_writable``)."""
    try:
        nearest = next(p for p in (folder, *folder.parents) if p.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        _try_file(nearest)
    except OSError as failure:
        raise _not_writable(folder, failure) from failure


def make_writable(folder: Path) -> None:
    """Creates ``folder`` and proves by a temporary file that it can be written to. Raises
    ``DestinationError`` (``destination.not_writable``)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _try_file(folder)
    except OSError as failure:
        raise _not_writable(folder, failure) from failure


def _try_file(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder):
        pass


def _not_writable(folder: Path, failure: OSError) -> DestinationError:
    if failure.errno in (errno.ENOSPC, errno.EDQUOT):
        return DestinationError(
            f"the disk that holds {folder} is full",
            code="destination.disk_full",
            where=str(folder),
            hint="make room there, or choose a folder on another disk, then run again",
        )
    return DestinationError(
        f"{folder} is not writable: {failure.strerror}",
        code="destination.not_writable",
        where=str(folder),
        hint="choose a folder that this user may write to",
    )
