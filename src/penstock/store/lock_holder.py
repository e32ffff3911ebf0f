"""Describes the process that has a pipeline's lease, and tells whether it is still alive.

Not here: the lease itself (``sql``, ``memory``). A process can be checked only from its own machine
and its own process-id namespace: two containers share a kernel and its boot id but not their
process ids, so :func:`boot` holds both. A holder that cannot be checked counts as alive until its
lease runs out.
"""

import getpass
import os
import platform
import sys
import uuid
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from penstock.store.contract import Holder


def this_holder(run: str, started_at: str | None = None) -> Holder:
    """Describes this process as the holder of a lease. ``started_at``: ISO 8601, UTC; None: now."""
    return Holder(
        name=f"{_user()}@{platform.node()}",
        pid=os.getpid(),
        boot=boot(),
        started_at=started_at or iso_time(datetime.now(UTC).timestamp()),
        run=run,
    )


@cache
def boot() -> str:
    """Identifies one boot of this machine and the process-id namespace; empty where the kernel does
    not show them."""
    if not sys.platform.startswith("linux"):
        return f"{platform.node()}:{uuid.getnode():x}"
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{kernel}:{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def start_mark(holder: Holder) -> str | None:
    """Returns the start time of the holder's process (clock ticks since boot), by which a reused
    process id is recognised; None where the process cannot be checked from here."""
    status = _stat(holder.pid) if _is_near(holder) else None
    return status[1] if status else None


def is_dead(holder: Holder, mark: str | None) -> bool:
    """Whether the holder's process is certainly gone. ``mark``: :func:`start_mark` of the holder
    when it took the lease; None: process ids alone are compared."""
    if not _is_near(holder):
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it is there, and another user's
    status = _stat(holder.pid)
    return status is not None and (status[0] in "ZX" or (mark is not None and status[1] != mark))


def iso_time(seconds: float) -> str:
    """Formats seconds since 1970 as ISO 8601 text, UTC, with milliseconds."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _is_near(holder: Holder) -> bool:
    return holder.pid > 0 and holder.boot == boot() != ""


def _stat(pid: int) -> tuple[str, str] | None:
    """Reads (state letter, start time in clock ticks since boot) of a process from ``/proc``
    (proc(5)); None where unreadable."""
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
