"""Describes the process that holds a pipeline's lock, and checks whether it is still alive.

A process can be checked only from its own machine and its own process-id namespace: two containers
share a kernel and its boot id but not their process ids, so :func:`boot` holds both. The process
certainly lives only if its start time equals the one stored with the lock, since process ids are
reused. No clock is read for this. Not here: the lock itself (``sql``, ``memory``), waiting for it
(``pipeline_lock``)."""

import getpass
import os
import platform
import sys
import uuid
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from penstock.store.contract import Holder

_FIRST_TIME_NAMESPACE = "time:[4026531834]"  # include/linux/proc_ns.h, PROC_TIME_INIT_INO


def this_holder(run: str, started_at: str | None = None) -> Holder:
    """Describes this process as the holder of a lock. ``started_at``: ISO 8601, UTC; None: now."""
    return Holder(
        name=f"{_user()}@{platform.node()}",
        pid=os.getpid(),
        boot=boot(),
        started_at=started_at or iso_time(datetime.now(UTC).timestamp()),
        run=run,
    )


@cache
def boot() -> str:
    """Identifies one boot of this machine, the process-id namespace, and a time namespace other
    than the first one, in which start times are counted differently (time_namespaces(7)); empty if
    the kernel does not show them."""
    if not sys.platform.startswith("linux"):
        return f"{platform.node()}:{uuid.getnode():x}"
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        own = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    try:
        times = os.readlink("/proc/self/ns/time")
    except OSError:  # before Linux 5.6
        times = _FIRST_TIME_NAMESPACE
    return f"{kernel}:{own}" + ("" if times == _FIRST_TIME_NAMESPACE else f":{times}")


def start_mark(holder: Holder) -> str | None:
    """Returns the start time of the holder's process (clock ticks since boot), by which a reused
    process id is recognised; None if the process cannot be checked from here."""
    status = _stat(holder.pid) if _is_near(holder) else None
    return status[1] if status else None


def is_alive(holder: Holder, mark: str | None) -> bool | None:
    """Returns whether the holder's process lives; None: that cannot be checked from here. ``mark``:
    :func:`start_mark` of the holder when it took the lock; None: only an ended process is
    recognised, since its id may belong to another by now."""
    if not _is_near(holder):
        return None
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it exists, as another user's process
    status = _stat(holder.pid)
    if status is None:
        return None
    if status[0] in "ZX":
        return False
    return None if mark is None else status[1] == mark


def iso_time(seconds: float) -> str:
    """Formats seconds since 1970 as ISO 8601 text, UTC, with milliseconds."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _is_near(holder: Holder) -> bool:
    return holder.pid > 0 and holder.boot == boot() != ""


def _stat(pid: int) -> tuple[str, str] | None:
    """Reads (state letter, start time in clock ticks since boot) of a process from ``/proc``
    (proc(5)); None if unreadable."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the command's name may hold anything
    return fields[0], fields[19]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as containers have
        return str(os.getuid())
