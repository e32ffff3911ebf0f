"""What the machine has: its memory. Not here: what a connector uses of it (``supervisor``)."""

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
