"""Worker processes that are forked from one which has imported their code are what spawned ones
are; they are spawned where they would not be."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROBE = """
import json, os, sys, time
LOADED_BY = os.getpid()
def main():
    told = json.loads(sys.stdin.readline())
    answer = {
        "pid": os.getpid(), "session": os.getsid(0), "environ": dict(os.environ),
        "command": open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"),
        "shown": dict(e.split("=", 1) for e in open("/proc/self/environ").read().split("\\0") if e),
        "zone": time.tzname[0], "cwd": os.getcwd(), "forked": LOADED_BY != os.getpid(),
        "descriptors": [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                        if int(n) > 2 and os.path.exists(f"/proc/self/fd/{n}")],
    }
    print(json.dumps(answer), flush=True)
    if "signal" in told:
        os.kill(os.getpid(), told["signal"])
    if told.get("waits"):
        sys.stdin.read()
    sys.exit(told.get("code", 0))
"""
THREADS = (
    "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
)
DAEMON = """
import json, os, resource, sys
from penstock.tasks import fork_server
from penstock.tasks.child_process import environment
fork_server.start(environment(os.environb))
held = []
for line in sys.stdin:
    module, changes, told = json.loads(line)
    if "memory" in told:
        resource.setrlimit(resource.RLIMIT_AS, (told["memory"], resource.RLIM_INFINITY))
    environ = environment({**os.environb, **{k.encode(): v.encode() for k, v in changes.items()}})
    child = fork_server.fork(module, environ)
    if child is None:
        print(json.dumps(None), flush=True)
        continue
    child.stdin.write(json.dumps(told).encode() + b"\\n")
    child.stdin.flush()
    answer = json.loads(child.stdout.readline() or "{}")
    answer["asked"] = child.pid
    if told.get("waits"):
        held.append(child)
    else:
        answer["code"] = child.wait(20)
    print(json.dumps(answer), flush=True)
"""


class Daemon:
    """A process that asks for forks, as Spark's Python workers do."""

    def __init__(self, folder: Path) -> None:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(folder)])}
        self.process = subprocess.Popen(
            [sys.executable, "-c", DAEMON],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "errors").open("wb"),
            env=environ,
            text=True,
        )

    def ask(self, module: str = "probe", changes: dict[str, str] | None = None, **told: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([module, changes or {}, told]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=20)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "penstock").mkdir()  # beside the real one on the path that a child is given
    (tmp_path / "probe.py").write_text(textwrap.dedent(PROBE))
    (tmp_path / "threads.py").write_text(THREADS + PROBE)
    (tmp_path / "broken.py").write_text("raise ImportError('a part is missing')\n")
    started = Daemon(tmp_path)
    yield started
    started.end()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True


def until(what: str, held: Any) -> None:
    deadline = time.monotonic() + 20
    while not held():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def server_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def test_a_forked_process_is_what_a_spawned_one_is(daemon: Daemon) -> None:
    answer = daemon.ask(
        changes={"TZ": "XYZ-3", "OF_THE_JOB": "a\udce9b".encode("utf-8", "replace").decode()}
    )
    assert answer["forked"] and answer["pid"] == answer["asked"] == answer["session"]
    assert answer["command"] == [sys.executable, "-m", "penstock.tasks.child_start", "probe"]
    assert answer["shown"] == answer["environ"] and "OF_THE_JOB" in answer["shown"]
    assert answer["environ"]["PYTHONSAFEPATH"] == "1"
    assert (answer["zone"], answer["cwd"], answer["code"]) == ("XYZ", "/", 0)
    assert answer["descriptors"] == []
    again = daemon.ask()
    assert again["forked"] and again["pid"] != answer["pid"] and again["zone"] != "XYZ"
    assert "OF_THE_JOB" not in again["environ"]


def test_its_exit_code_and_signal_are_told(daemon: Daemon) -> None:
    assert daemon.ask(code=75)["code"] == 75
    assert daemon.ask(signal=signal.SIGKILL)["code"] == -signal.SIGKILL
    broken = daemon.ask("broken")
    assert broken["code"] == 1, "an import that fails is the process's"
    assert daemon.ask()["code"] == 0


def test_what_an_interpreter_reads_at_its_start_is_not_forked(daemon: Daemon) -> None:
    for name in ("PYTHONUTF8", "PYTHONPATH_", "LC_ALL", "LANG", "LD_PRELOAD", "PENSTOCK_FAILPOINT"):
        other = "" if name in os.environ else "C"
        assert daemon.ask(changes={name: other}) is None, name
    assert daemon.ask(changes={"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"})["forked"]


def test_a_task_with_a_limit_of_memory_spawns_what_inherits_it(daemon: Daemon) -> None:
    assert daemon.ask()["forked"]
    assert daemon.ask(memory=1 << 40) is None
    assert daemon.ask(memory=-1)["forked"]


def test_code_that_changed_and_code_that_starts_threads_is_not_forked(
    daemon: Daemon, tmp_path: Path
) -> None:
    assert daemon.ask()["forked"]
    (tmp_path / "probe.py").write_text("# of another version\n" + PROBE)
    assert daemon.ask() is None and daemon.ask() is None
    second = Daemon(tmp_path)
    try:
        assert second.ask()["forked"] and second.ask("threads") is None
    finally:
        second.end()


def test_where_the_server_died_its_process_has_no_answer_and_the_next_is_spawned(
    daemon: Daemon,
) -> None:
    held = daemon.ask(waits=True)
    os.kill(server_of(held["pid"]), signal.SIGKILL)
    assert daemon.ask() is None
    daemon.end()
    until("the process ends with its owner", lambda: gone(held["pid"]))


def test_l11_all_end_with_their_owner_also_one_that_is_stopped(daemon: Daemon) -> None:
    held = daemon.ask(waits=True)
    server = server_of(held["pid"])
    os.kill(held["pid"], signal.SIGSTOP)
    until(
        "it is stopped",
        lambda: "T" in Path(f"/proc/{held['pid']}/stat").read_text().rpartition(")")[2],
    )
    daemon.end()
    until("the stopped process wakes and ends", lambda: gone(held["pid"]))
    until("the server ends", lambda: gone(server))
