"""Writes a connector's stdin with a timeout, and enlarges pipes.

Not here: the connector's other pipes (``process``, ``stderr``).
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
"""The wanted size of a pipe in bytes, if the system permits it."""
_SLICE = 0.05
_LOOK = 0.005


class InputPipe:
    """Writes to a connector's stdin. One thread writes; :meth:`end` may be called from any."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._ended = False
        self._left: int | None = None  # unread bytes at its close, where known
        self._lock = threading.Lock()
        os.set_blocking(fd, False)
        grow(fd)

    def write(self, data: bytes | memoryview, timeout: float) -> int:
        """Writes some of ``data``; see ``ByteChannel.write``."""
        deadline = time.monotonic() + max(timeout, 0.0)
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            # end() waits for this lock, so it is held for at most _SLICE seconds at a time.
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
        """Waits until the connector has read all input; see ``ByteChannel.drained``."""
        deadline = time.monotonic() + max(timeout, 0.0)
        while True:
            with self._lock:
                left = 0 if self._ended else self._unread()
            if left == 0 or time.monotonic() >= deadline:
                return left == 0
            time.sleep(_LOOK)

    def read_whole(self) -> bool:
        """Returns whether every written byte is known to have been read. A pipe keeps unread bytes,
        also without readers, as long as this end is open; bytes left at :meth:`end` count as never
        read."""
        with self._lock:
            return (self._left if self._ended else self._in_pipe()) == 0

    def _unread(self) -> int:
        # An error condition on the writing end means that no reading end is open.
        poll = select.poll()
        poll.register(self._fd, 0)
        broken = bool(poll.poll(0))
        unread = self._in_pipe() or 0
        if unread and broken:
            raise BrokenPipeError(errno.EPIPE, f"{unread} bytes of the input were never read")
        return unread

    def _in_pipe(self) -> int | None:
        """Returns the number of unread bytes in the pipe; None: unknown."""
        left = bytearray(4)
        try:
            fcntl.ioctl(self._fd, termios.FIONREAD, left)
        except OSError:
            return None
        return int.from_bytes(left, sys.byteorder)

    def end(self) -> None:
        """Closes the connector's stdin. Idempotent."""
        self._ended = True
        with self._lock:
            if self._fd >= 0:
                self._left = self._in_pipe()
                os.close(self._fd)
                self._fd = -1


def grow(pipe: int) -> None:
    """Enlarges a pipe towards :data:`CAPACITY`, so that connector and reader switch less often.
    Best effort: ignores a refusal of the system."""
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
