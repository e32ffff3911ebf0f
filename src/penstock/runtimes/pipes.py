"""A connector's stdin as its writer has it, and the size of pipes.

Neighbours: ``process`` owns the other pipes and reads them.
"""

import contextlib
import errno
import fcntl
import os
import select
import sys
import termios
import threading
import time

CAPACITY = 1 << 20
"""Bytes that a pipe may hold, where the system grants it."""
_SLICE = 0.05
_LOOK = 0.005


class InputPipe:
    """The writing end. One thread writes; :meth:`end` may be called from any."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._ended = False
        self._lock = threading.Lock()
        os.set_blocking(fd, False)
        grow(fd)

    def write(self, data: bytes | memoryview, timeout: float) -> int:
        """See ``ByteChannel.write``."""
        deadline = time.monotonic() + max(timeout, 0.0)
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            # Whoever ends it waits for this lock, so it is held for a moment at a time.
            with self._lock:
                if self._ended:
                    raise BrokenPipeError(errno.EPIPE, "the connector's input is closed")
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                if poll.poll(min(left, _SLICE) * 1000):
                    with contextlib.suppress(BlockingIOError):
                        return os.write(self._fd, data)
            if time.monotonic() >= deadline:
                return 0

    def drained(self, timeout: float) -> bool:
        """See ``ByteChannel.drained``."""
        deadline = time.monotonic() + max(timeout, 0.0)
        while True:
            with self._lock:
                left = 0 if self._ended else self._unread()
            if left == 0 or time.monotonic() >= deadline:
                return left == 0
            time.sleep(_LOOK)

    def _unread(self) -> int:
        # An error condition on the writing end means that no reading end is left.
        poll = select.poll()
        poll.register(self._fd, 0)
        broken = bool(poll.poll(0))
        left = bytearray(4)
        try:
            fcntl.ioctl(self._fd, termios.FIONREAD, left)
        except OSError:
            return 0
        unread = int.from_bytes(left, sys.byteorder)
        if unread and broken:
            raise BrokenPipeError(errno.EPIPE, f"{unread} bytes of the input were never read")
        return unread

    def end(self) -> None:
        """Close it. Idempotent."""
        self._ended = True
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def grow(pipe: int) -> None:
    """A larger pipe means fewer switches between connector and reader. Best effort."""
    set_size = getattr(fcntl, "F_SETPIPE_SZ", None)
    size = CAPACITY
    while set_size is not None and size > 64 * 1024:
        try:
            fcntl.fcntl(pipe, set_size, size)
            return
        except OSError as e:
            if e.errno not in (errno.EPERM, errno.EBUSY, errno.ENOMEM):
                return
            size //= 2
