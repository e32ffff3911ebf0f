"""Finds processes that are stopped (SIGSTOP, a debugger), which never answer or end, and wakes a
process when its parent dies (L11).

SIGKILL ends a stopped process; the end of a pipe does not. Imports the standard library only, since
the parents of lanes do. Without ``/proc`` (macOS) no process counts as stopped. Neighbours:
``tasks.child_process`` watches a lane, ``spark.jvm`` a JVM.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

LOOK_SECONDS = 2.0
"""The pause between two checks, and the most time that one check counts."""
_STOPPED = b"Tt"
_PR_SET_PDEATHSIG = 1


def is_stopped(pid: int) -> bool:
    """Returns whether the process exists and is stopped now."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b") ")[2][:1]
    except OSError:
        return False
    return state in _STOPPED and state != b""


class StoppedProcess:
    """Counts for how long a process has been stopped, by regular checks. A check counts for at most
    :data:`LOOK_SECONDS`, so that time during which the watcher itself was stopped is not
    counted."""

    def __init__(self, pid: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._pid, self._clock = pid, clock
        self._seconds, self._at = 0.0, clock()

    def seconds(self) -> float:
        """Checks the process, and returns the seconds for which every check found it stopped."""
        before, self._at = self._at, self._clock()
        if is_stopped(self._pid):
            self._seconds += min(self._at - before, LOOK_SECONDS)
        else:
            self._seconds = 0.0
        return self._seconds


def this_process() -> str:
    """Names this process for :func:`kill`: the boot of its machine, its process namespace, its id
    and its start."""
    return f"{_machine()} {os.getpid()} {_began(os.getpid())}"


def kill(named: str) -> None:
    """Kills the process that :func:`this_process` named, if it is on this machine and its id was
    not reused."""
    machine, _, rest = named.rpartition(" ")[0].rpartition(" ")
    began = named.rpartition(" ")[2]
    if rest.isdecimal() and began and machine == _machine() and _began(int(rest)) == began:
        with suppress(OSError):
            os.kill(int(rest), signal.SIGKILL)


def _machine() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return "unknown"


def _began(pid: int) -> str:
    """Returns the clock ticks between the machine's start and the process's; empty: unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def wake_with_parent() -> None:
    """Makes the kernel send SIGCONT to this process when the thread that started it ends: if it is
    stopped then, it continues, and finds that its owner is gone. A running process ignores the
    signal."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
