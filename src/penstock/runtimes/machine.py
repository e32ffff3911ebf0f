"""What the machine has: its memory, and how much of it is free. Not here: what a connector uses of
it (``supervisor``)."""

import os
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_bytes() -> int:
    """Of this machine, or of the container that we run in, where that has less."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _LIMITS:
        try:
            told = Path(path).read_text().strip()
        except OSError:
            continue
        if told.isdigit():
            most = min(most, int(told))
    return most


_USED = "/sys/fs/cgroup/memory.current"


def available_bytes() -> int:
    """What can be had now without swapping, of this machine and of the container that we run in;
    all of it where nobody says."""
    most = memory_bytes()
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:"))
        most = min(most, free)
        limit = Path(_LIMITS[0]).read_text().strip()
        if limit.isdigit():
            stat = Path("/sys/fs/cgroup/memory.stat").read_text().splitlines()
            cached = next((int(x.split()[1]) for x in stat if x.startswith("inactive_file ")), 0)
            most = min(most, int(limit) - int(Path(_USED).read_text()) + cached)
    except (OSError, StopIteration, ValueError):
        pass
    return most
