"""Remembers when the process of a command began, for the report's ``wall``.

Imports the standard library only. Neighbours: ``cli`` records it, ``engine.run.start`` uses it for
the first run of the process."""

import os
import time

_noted: list[float] = []


def note() -> None:
    """Records this process's start, as a reading of ``time.monotonic``: the kernel's (Linux, to 10
    ms), else now."""
    now = time.monotonic()
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (AttributeError, IndexError, OSError, ValueError):
        age = 0.0
    _noted.append(now - max(age, 0.0))


def take() -> float | None:
    """Returns the recorded start, once: later runs of the process began later. None: not
    recorded."""
    return _noted.pop() if _noted else None
