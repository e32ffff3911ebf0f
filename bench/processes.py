"""What the processes below one process use: PSS and CPU, by what they are. Linux only.

PSS (a page shared by n processes counts 1/n in each) is what can be summed without counting
anything twice. Roles: ``driver`` the root itself, ``jvm``, ``worker`` Spark's Python daemon and
workers, ``child`` a lane's process, ``supervisor`` the connector's parent, ``connector`` the rest.
"""

import os
import threading
import time
from dataclasses import dataclass, field

OURS = ("driver", "worker", "child", "push", "supervisor")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Usage:
    """Bytes and seconds. ``peak``: of the sum over our Python processes; ``at_peak``: by role at
    that moment; ``samples``: (seconds since the start, sum)."""

    peak: int = 0
    at_peak: dict[str, int] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    samples: list[tuple[float, int]] = field(default_factory=list)


class Sampler:
    """Samples a process tree until :meth:`stop`, in a thread."""

    def __init__(self, root: int, seconds: float = 0.25) -> None:
        self._root, self._seconds = root, seconds
        self._usage = Usage()
        self._cpu: dict[tuple[int, str], float] = {}
        self._roles: dict[int, str] = {}
        self._stop = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> Usage:
        self._stop.set()
        self._thread.join()
        for (_, role), seconds in self._cpu.items():
            self._usage.cpu[role] = self._usage.cpu.get(role, 0.0) + seconds
        return self._usage

    def _run(self) -> None:
        turn = 0
        while not self._stop.wait(self._seconds / 2):
            turn += 1
            self._sample(memory=turn % 2 == 0)

    def _sample(self, *, memory: bool) -> None:
        now: dict[str, int] = {}
        for pid in _tree(self._root):
            role = "driver" if pid == self._root else _role(pid) or self._roles.get(pid, "gone")
            self._roles[pid] = role
            self._cpu[pid, role] = max(self._cpu.get((pid, role), 0.0), _cpu(pid))
            if memory and role in OURS:
                now[role] = now.get(role, 0) + _pss(pid)
        if not memory:
            return
        total, usage = sum(now.values()), self._usage
        usage.samples.append((round(time.monotonic() - self._began, 2), total))
        for role, size in now.items():
            usage.peaks[role] = max(usage.peaks.get(role, 0), size)
        if total > usage.peak:
            usage.peak, usage.at_peak = total, now


def _tree(root: int) -> list[int]:
    below: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as f:
                    parent = int(f.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            below.setdefault(parent, []).append(int(entry))
    found, todo = [], [root]
    while todo:
        found.append(todo.pop())
        todo += below.get(found[-1], [])
    return found


def _role(pid: int) -> str | None:
    """None for a process that has ended: it has no command line any more."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            line = f.read()
    except OSError:
        return None
    if not line:
        return None
    marks = {
        b"penstock.tasks.worker_daemon": "worker",
        b"penstock.tasks.fork_server": "worker",
        b"pyspark.daemon": "worker",
        b"penstock.engine.worker.lane": "child",
        b"penstock.engine.worker.feeder": "push",
        b"supervisor.py": "supervisor",
    }
    role = next((r for mark, r in marks.items() if mark in line), None)
    if role is None:
        role = "jvm" if b"java" in line.split(b"\0")[0] else "connector"
    return role


def _pss(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as f:
            line = next((x for x in f if x.startswith(b"Pss:")), b"Pss: 0")
    except OSError:
        return 0
    return int(line.split()[1]) * 1024


def _cpu(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK
