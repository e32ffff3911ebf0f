"""Converts errors of the storage that the driver and Spark's tasks share into errors of the log.

Neighbours: ``engine.log`` keeps its files there, ``tasks.spark_job`` a task's job.
"""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import LogError


@contextmanager
def storage(path: Path, what: str) -> Generator[None]:
    """Converts ``OSError`` into ``LogError``: ``log.full`` for a full disk or quota, else
    ``log.io``. ``what``: the verb for the message (``write``, ``read``)."""
    try:
        yield
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise LogError(
                f"the disk is full: could not {what} {path}",
                code="log.full",
                hint="free some space on that disk, then run again: what was sealed is kept",
            ) from e
        raise _io(path, what, e.strerror or str(e)) from e


def unreadable(path: Path, number: int) -> LogError:
    """Makes the error for a file that another process could not read. ``number``: its errno."""
    return _io(path, "read", os.strerror(number))


def _io(path: Path, what: str, why: str) -> LogError:
    return LogError(
        f"could not {what} {path}: {why}",
        code="log.io",
        hint="the folder must be on storage that this machine can read and write",
    )
