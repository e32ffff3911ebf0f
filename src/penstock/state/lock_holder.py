"""Who holds a pipeline, and whether that process is still there.

Not here: the lease itself (``sql``, ``memory``). A process is judged only from its own machine and
its own process-id space: two containers share a kernel and its boot id but not their process ids,
so both are part of :func:`boot`. Whoever cannot be judged is held to be alive until its lease runs
out.
"""

import getpass
import os
import platform
import sys
import uuid
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from penstock.state.contract import Holder


def this_holder(run: str, started_at: str | None = None) -> Holder:
    """This process as the holder of a lease. ``started_at``: ISO 8601, UTC; None: now."""
    return Holder(
        name=f"{_user()}@{platform.node()}",
        pid=os.getpid(),
        boot=boot(),
        started_at=started_at or iso_time(datetime.now(UTC).timestamp()),
        run=run,
    )


@cache
def boot() -> str:
    """One boot of one machine and one space of process ids; empty where that cannot be told."""
    if not sys.platform.startswith("linux"):
        return f"{platform.node()}:{uuid.getnode():x}"
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{kernel}:{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def start_mark(holder: Holder) -> str | None:
    """When the kernel started the holder's process, to recognise a process id that was given again;
    None where that cannot be told from here."""
    status = _stat(holder.pid) if _is_near(holder) else None
    return status[1] if status else None


def is_dead(holder: Holder, mark: str | None) -> bool:
    """True where this holder's process is certainly gone. ``mark``: its :func:`start_mark`."""
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
    """Seconds since 1970 as ISO 8601 text, UTC, with milliseconds."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _is_near(holder: Holder) -> bool:
    return holder.pid > 0 and holder.boot == boot() != ""


def _stat(pid: int) -> tuple[str, str] | None:
    """(state letter, start time in clock ticks since boot) of proc(5); None where unreadable."""
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
