"""Names this process so that a later one can check whether it still lives, and remove what a killed
one left behind.

Neighbours: ``container`` names its containers so, ``spark.scratch`` its folders. ``private_files``
uses locks instead, which work across namespaces; it reads the names that earlier versions gave.
"""

import os
from functools import cache
from pathlib import Path


def this_owner() -> str:
    """Returns this process's boot, process namespace, pid and start time, joined by hyphens; zeros
    where they are unknown."""
    return _named(os.getpid())


def parent_owner() -> str:
    """Returns the same for the process that started this one."""
    return _named(os.getppid())


def _named(pid: int) -> str:
    return "-".join((*_world(), str(pid), _started(pid) or "0"))


@cache
def _world() -> tuple[str, str]:
    """Returns the ids of this boot and of the process-id namespace: containers may share a
    temporary directory, and a process id of one is another process's in another."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        namespace = "".join(c for c in os.readlink("/proc/self/ns/pid") if c.isdigit())
    except OSError:
        return ("0", "0")
    return (boot, namespace)


def _started(pid: int) -> str | None:
    """Returns a process's start time in clock ticks; None where no such process lives, or ``/proc``
    is missing."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    except (OSError, IndexError):
        return None


def is_dead(owner: str) -> bool:
    """Returns whether the process that :func:`this_owner` named is certainly gone; False where that
    is unknown (another namespace, a name of another form)."""
    parts = owner.split("-")
    if len(parts) != 4 or not parts[2].isdigit():
        return False
    boot, namespace, pid, started = parts
    here = _world()
    if boot != here[0]:
        return boot != "0" and here[0] != "0"
    if namespace != here[1]:
        return False
    if started != "0":
        return _started(int(pid)) != started
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
