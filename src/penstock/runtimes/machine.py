"""Reads the memory of the machine or container that this process runs in, and how much is free.

Not here: the memory that a connector uses (``supervisor``)."""

import os
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_bytes() -> int:
    """Returns the bytes of memory of this machine, or the limit of this process's container where
    that is less."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _LIMITS:
        try:
            limit = Path(path).read_text().strip()
        except OSError:
            continue
        if limit.isdigit():
            most = min(most, int(limit))
    return most


_USED = "/sys/fs/cgroup/memory.current"


def available_bytes() -> int:
    """Returns the bytes that can be used now without swapping, on this machine and within its
    container's limit; :func:`memory_bytes` where the system does not report it."""
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
