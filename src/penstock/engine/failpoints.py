"""Named places where a test may kill a process of a real run; nothing without its variable.

``PENSTOCK_FAILPOINT=NAME[:NTH][@TARGET]`` sends SIGKILL at the NTH passing (default 1) of a place to
TARGET: ``self`` (default), ``worker`` (who started this lane's process: Spark's Python worker),
``connector`` (the lane's connector), ``program`` (the driver). ``PENSTOCK_FAILPOINT_ONCE=FILE`` is
created when it strikes, and it strikes only once. The places::

    lane's process   mid-part (a part is decoded, not sealed), after-seal
    driver           after-intent, after-commit (the table has it, the ledger does not), after-ledger
"""

import os
import signal
from collections import Counter
from pathlib import Path

_WANTED = os.environ.get("PENSTOCK_FAILPOINT", "")
_passed: Counter[str] = Counter()


def announce_driver() -> None:
    """Let the lanes of this run know whom ``program`` means; inherited through Spark."""
    if _WANTED:
        os.environ["PENSTOCK_FAILPOINT_DRIVER"] = str(os.getpid())


def reach(name: str) -> None:
    if _WANTED and _WANTED.split("@")[0].split(":")[0] == name:
        _strike(name)


def _strike(name: str) -> None:
    place, _, target = _WANTED.partition("@")
    nth = int(place.partition(":")[2] or 1)
    _passed[name] += 1
    once = os.environ.get("PENSTOCK_FAILPOINT_ONCE")
    if _passed[name] != nth:
        return
    if once:
        try:
            os.close(os.open(once, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
    for pid in _pids(target or "self"):
        os.kill(pid, signal.SIGKILL)


def _pids(target: str) -> list[int]:
    match target:
        case "worker":
            return [os.getppid()]
        case "program":
            return [int(os.environ["PENSTOCK_FAILPOINT_DRIVER"])]
        case "connector":
            return _descendants(os.getpid())
        case _:
            return [os.getpid()]


def _descendants(pid: int) -> list[int]:
    children = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    mine = [c for c in children if _parent(c) == pid]
    return [d for c in mine for d in (*_descendants(c), c)]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0
