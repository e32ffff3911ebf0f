"""Kills a process of a real run at a named place, for tests; does nothing without its variable.

``PENSTOCK_FAILPOINT=NAME[:NTH][@TARGET]`` sends SIGKILL once in a process's life, at the NTH
(default 1) call of :func:`reach` for NAME, or at the first later one at which TARGET exists:
``self`` (default), ``child`` (the lane's process), ``worker`` (Spark's Python worker, which waits
for the lane), ``connector`` (the children of the lane's process, without their supervisor),
``program`` (the driver); ``pusher``, ``push-worker`` and ``destination`` are ``child``, ``worker``
and ``connector`` of a push task. ``run:COMMAND`` runs a command, which kills what is no process of
the run, and waits for its end. ``PENSTOCK_FAILPOINT_ONCE=FILE`` gets the pids; while the file
exists nothing is killed. The names::

    lane's process  mid-part (a part is decoded, not sealed), after-seal, mid-transform (rows have
                    been emitted by a transform that is a connector)
    push task       mid-push (a part is fed), before-ack, after-ack (an ack is written)
    driver          after-intent, after-commit (the table has it, the ledger not), after-ledger;
                    after-order (a destination's order is written), before-settle, after-settle

The driver finds a task's processes on its own machine only, so with a local master.
"""

import os
import shlex
import signal
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path

from penstock.files import write_new

_wanted = os.environ.get("PENSTOCK_FAILPOINT", "")
_DRIVER = "PENSTOCK_FAILPOINT_DRIVER"
_LANE, _PUSH = b"penstock.engine.worker.lane", b"penstock.engine.worker.feeder"
_RUN = "run:"
_passed: Counter[str] = Counter()


def announce_driver() -> None:
    """Sets the driver's pid in the environment, which lanes inherit through Spark, for
    ``program``."""
    if _wanted:
        os.environ[_DRIVER] = str(os.getpid())


def reach(name: str) -> None:
    """Kills the target where this place is the failpoint that the environment names."""
    if _wanted and _wanted.split("@")[0].split(":")[0] == name:
        _strike(name)


def tasks_of(pid: int) -> list[int]:
    """Returns the pid of the Spark task that waits for a process, if that still runs. It may not
    have started it (``tasks.fork_server``), but holds the other end of its stdin."""
    stdin = _open_files(pid).get("0", "")
    if not stdin.startswith("pipe:"):  # others have a file or a terminal open too
        return []
    return [p for p in _everyone() if p != pid and stdin in _open_files(p).values()]


def _strike(name: str) -> None:
    global _wanted
    place, _, target = _wanted.partition("@")
    _passed[name] += 1
    if _passed[name] < int(place.partition(":")[2] or 1):
        return
    if target.startswith(_RUN):
        _wanted = ""
        if _first([]):
            subprocess.run(shlex.split(target.removeprefix(_RUN)), check=True, timeout=60)
        return
    pids = _pids(target or "self")
    if not pids:
        return
    _wanted = ""
    if _first(pids):
        for pid in pids:
            with suppress(ProcessLookupError):  # it has ended since the look-up
                os.kill(pid, signal.SIGKILL)


def _first(pids: list[int]) -> bool:
    once = os.environ.get("PENSTOCK_FAILPOINT_ONCE")
    if once:
        try:
            write_new(Path(once), " ".join(map(str, pids)).encode())
        except FileExistsError:
            return False
    return True


def _pids(target: str) -> list[int]:
    match target:
        case "child":
            return _ours(_LANE)
        case "pusher":
            return _ours(_PUSH)
        case "worker":
            return [task for pid in _ours(_LANE) for task in tasks_of(pid)]
        case "push-worker":
            return [task for pid in _ours(_PUSH) for task in tasks_of(pid)]
        case "program":
            return [int(os.environ[_DRIVER])]
        case "connector":
            return _run_by(_ours(_LANE))
        case "destination":
            return _run_by(_ours(_PUSH))
        case _:
            return [os.getpid()]


def _run_by(ours: list[int]) -> list[int]:
    """Returns the pids of these processes' connectors, without their supervisors."""
    return [pid for one in ours for s in _children(one) for pid in _descendants(s)]


def _ours(module: bytes) -> list[int]:
    """Returns the pids of the tasks' processes: this one, or in the driver those whose environment
    has the driver's pid, whichever process started their JVM."""
    if os.environ.get(_DRIVER) != str(os.getpid()):
        return [os.getpid()]
    mark = f"{_DRIVER}={os.getpid()}".encode()
    return [p for p in _everyone() if module in _command(p) and mark in _environ(p)]


def _descendants(pid: int) -> list[int]:
    return [d for child in _children(pid) for d in (*_descendants(child), child)]


def _children(pid: int) -> list[int]:
    return [p for p in _everyone() if _parent(p) == pid]


def _everyone() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def _open_files(pid: int) -> dict[str, str]:
    """Returns what the numbers of a process's open files stand for, those that it still has."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found[number] = os.readlink(f"/proc/{pid}/fd/{number}")
    return found


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0
