"""The whole tree dies: with its owner, with its patience, with its channel (L11)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from held_folders import held_by
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.process import ProcessRuntime

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="process trees are walked on Linux only"
)

# Writes "NAME PID" lines: itself, a grandchild in its group, and a daemon that left it
# (double fork, own session, no inherited output).
FAMILY = """
import os, signal, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def say(name):
    with open(sys.argv[1], "a") as f:
        f.write(f"{name} {os.getpid()}\\n")
if os.fork() == 0:
    say("grandchild")
    time.sleep(300)
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        say("daemon")
        time.sleep(300)
    os._exit(0)
say("connector")
print("ready", flush=True)
if "leave" not in sys.argv:
    time.sleep(300)
"""


def family(tmp_path: Path, names: int = 3) -> dict[str, int]:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            lines = (tmp_path / "pids").read_text().splitlines()
        except FileNotFoundError:
            lines = []
        if len(lines) == names:
            return {line.split()[0]: int(line.split()[1]) for line in lines}
        time.sleep(0.01)
    raise AssertionError("the connector did not start")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone_within(pids: dict[str, int], seconds: float) -> dict[str, int]:
    """Who is still there after so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(alive(p) for p in pids.values()):
        time.sleep(0.01)
    return {name: pid for name, pid in pids.items() if alive(pid)}


def runtime(tmp_path: Path, *words: str) -> ProcessRuntime:
    script = tmp_path / "family.py"
    script.write_text(FAMILY)
    return ProcessRuntime([sys.executable, "-S", str(script), str(tmp_path / "pids"), *words])


OWNER = """
import sys, time
from penstock.runtimes.contract import PrivateFile, RunTimeouts
from penstock.runtimes.process import ProcessRuntime
command = sys.argv[1:]
channel = ProcessRuntime(command).open([PrivateFile("config.json", b"{}")], RunTimeouts(stop=30))
print(channel.read(20), flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("word", ["polite", "stubborn"])
def test_l11_killed_owner_takes_connector_grandchild_and_daemon_along(
    tmp_path: Path, word: str
) -> None:
    """SIGKILL of the owner; the whole tree is gone within 2 s, even who ignores SIGTERM."""
    script = tmp_path / "family.py"
    script.write_text(FAMILY)
    command = [sys.executable, "-S", str(script), str(tmp_path / "pids"), word]
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, *command], stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        assert "ready" in owner.stdout.readline()
        pids = family(tmp_path)
        (folder,) = held_by(owner.pid)
        owner.send_signal(signal.SIGKILL)
        owner.wait(5)
        assert gone_within(pids, 2.0) == {}
        deadline = time.monotonic() + 2
        while folder.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not folder.exists(), "L10: the argument files go with it"
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()


def test_l11_killed_owner_with_its_lifeline_inherited_elsewhere(tmp_path: Path) -> None:
    """A fork of the owner that outlives it keeps the lifeline open; the tree dies all the same."""
    script = tmp_path / "family.py"
    script.write_text(FAMILY)
    command = [sys.executable, "-S", str(script), str(tmp_path / "pids")]
    forking = OWNER.replace(
        "time.sleep(300)",
        "import os\nif os.fork() == 0:\n    time.sleep(5)\n    os._exit(0)\ntime.sleep(300)",
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", forking, *command], stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        assert "ready" in owner.stdout.readline()
        pids = family(tmp_path)
        time.sleep(0.2)
        owner.kill()
        owner.wait(5)
        assert gone_within(pids, 2.0) == {}
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()


def test_l11_killed_supervisor_takes_the_connector_along(tmp_path: Path) -> None:
    with runtime(tmp_path).open([], RunTimeouts(stop=1)) as channel:
        assert channel.read(20) == b"ready\n"
        pids = family(tmp_path)
        supervisor = int(
            Path(f"/proc/{pids['connector']}/stat").read_text().rpartition(")")[2].split()[1]
        )
        os.kill(supervisor, signal.SIGKILL)
        assert channel.wait(5) == -signal.SIGKILL
        channel.stop()
        assert gone_within({k: pids[k] for k in ("connector", "grandchild")}, 2.0) == {}
    os.kill(pids["daemon"], signal.SIGKILL)  # nobody was left who could find it


def test_stop_kills_who_ignores_sigterm_after_its_patience(tmp_path: Path) -> None:
    with runtime(tmp_path, "stubborn").open([], RunTimeouts(stop=0.5)) as channel:
        assert channel.read(20) == b"ready\n"
        pids = family(tmp_path)
        began = time.monotonic()
        channel.stop()
        took = time.monotonic() - began
        assert channel.wait(0) == -signal.SIGKILL
        assert gone_within(pids, 0.0) == {}
        assert 0.5 <= took < 15
        channel.stop()
        assert channel.read(0) == b""


def test_stop_is_quick_where_sigterm_is_heard(tmp_path: Path) -> None:
    with runtime(tmp_path).open([], RunTimeouts(stop=20)) as channel:
        assert channel.read(20) == b"ready\n"
        pids = family(tmp_path)
        began = time.monotonic()
        channel.stop()
        assert time.monotonic() - began < 15  # of 20
        assert channel.wait(0) == -signal.SIGTERM
        assert gone_within(pids, 0.0) == {}


def test_leaving_the_channel_ends_a_daemon_of_a_connector_that_already_exited(
    tmp_path: Path,
) -> None:
    with runtime(tmp_path, "leave").open([], RunTimeouts(stop=1)) as channel:
        assert channel.read(20) == b"ready\n"
        assert channel.wait(10) == 0
        pids = family(tmp_path)
        assert alive(pids["daemon"])
    assert gone_within(pids, 0.0) == {}


def test_stdout_held_open_by_a_leftover_ends_once_it_is_silent(tmp_path: Path) -> None:
    """The connector exits 0 while its grandchild keeps stdout: reading ends, bounded."""
    with runtime(tmp_path, "leave").open([], RunTimeouts(stop=1)) as channel:
        assert channel.read(20) == b"ready\n"
        began = time.monotonic()
        while (data := channel.read(0.5)) is None and time.monotonic() - began < 15:
            pass
        assert data == b""
        assert channel.wait(0) == 0


def test_leftover_that_still_writes_is_heard_to_the_end() -> None:
    """A filter behind the connector finishes after it: nothing it writes may be lost (L8)."""
    late = "(for i in 1 2 3; do sleep 0.7; echo late $i; done) & echo first"
    with ProcessRuntime(["sh", "-c", late]).open([], RunTimeouts(stop=1)) as channel:
        out = b""
        while data := channel.read(10):
            out += data
    assert out == b"first\nlate 1\nlate 2\nlate 3\n"


def test_stop_drains_who_flushes_on_sigterm() -> None:
    """A connector that writes megabytes when told to stop is not blocked by its full pipe."""
    code = (
        "import os, signal, sys, time\n"
        "def end(*_):\n    sys.stdout.write('x' * 8_000_000); sys.stdout.flush(); sys.exit(5)\n"
        "signal.signal(signal.SIGTERM, end)\nos.write(1, b'ready\\n')\ntime.sleep(300)\n"
    )
    with ProcessRuntime([sys.executable, "-S", "-c", code]).open(
        [], RunTimeouts(stop=20)
    ) as channel:
        assert channel.read(20) == b"ready\n"
        began = time.monotonic()
        channel.stop()
        assert time.monotonic() - began < 10
        assert channel.wait(0) == 5
