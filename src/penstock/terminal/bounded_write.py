"""Writes to a reader that may read nothing: in pieces that never block, within a bound (L11).

Not here: what is written (``output``). A pipe's reader that does not read would else hold the
process, whose first signal only asks it to stop.
"""

import os
import select
import time
from collections.abc import Callable

from penstock.errors import Cancelled, SourceError

READER_SECONDS = 600.0
_LOOK_SECONDS = 0.5


def write_bounded(fd: int, body: bytes, stopped: Callable[[], bool]) -> None:
    """Writes a message to the program that started this one. Raises ``Cancelled`` once ``stopped``
    while it waits, ``SourceError`` where nothing was read for :data:`READER_SECONDS`, and
    ``OSError``. After the first two a part of the message may be written."""
    left, poll = memoryview(body), select.poll()
    poll.register(fd, select.POLLOUT)
    taken = time.monotonic()
    while left:
        if poll.poll(_LOOK_SECONDS * 1000):
            left = left[os.write(fd, left[: select.PIPE_BUF]) :]
            taken = time.monotonic()
        elif stopped():
            raise Cancelled(
                "the run was stopped while the program that started it read nothing from stdout",
                hint="run again: that program sends again what it has no state of",
            )
        elif time.monotonic() - taken > READER_SECONDS:
            raise SourceError(
                "the program that started this one has read nothing from its stdout for "
                f"{READER_SECONDS:.0f} s",
                code="source.host_reads_nothing",
                hint="see why it does not read, then run it again: what was committed is kept, and "
                "it sends again what it has no state of",
            )
