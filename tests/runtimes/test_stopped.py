"""L11: processes that are stopped (SIGSTOP), found and woken by real signals."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from penstock.runtimes import stopped
from penstock.runtimes.stopped import StoppedProcess, is_stopped, kill, this_process

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]
SAYS = "from penstock.runtimes.stopped import this_process; print(this_process(), flush=True); "


@pytest.fixture
def child() -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(SLEEPS) as process:
        yield process
        process.kill()


def until(wanted: bool, pid: int) -> bool:
    deadline = time.monotonic() + 10
    while is_stopped(pid) is not wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_stopped(pid) is wanted


def test_a_stopped_process_is_seen_and_one_that_goes_on_is_not(
    child: "subprocess.Popen[bytes]",
) -> None:
    now = [0.0]
    watched = StoppedProcess(child.pid, lambda: now[0])
    assert until(False, child.pid) and watched.seconds() == 0
    os.kill(child.pid, signal.SIGSTOP)
    assert until(True, child.pid)
    now[0] += 1
    assert watched.seconds() == 1
    now[0] += 1000  # the watcher itself was stopped
    assert watched.seconds() == 1 + stopped.LOOK_SECONDS
    os.kill(child.pid, signal.SIGCONT)
    assert until(False, child.pid) and watched.seconds() == 0
    child.kill()
    child.wait()
    assert not is_stopped(child.pid)


def test_a_named_process_is_killed_though_it_is_stopped_and_no_other_is() -> None:
    command = [sys.executable, "-c", SAYS + "import time; time.sleep(60)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        machine, _, began = name.rpartition(" ")
        for other in (
            "",
            name + "1",
            f"{machine} {int(began) - 1}",
            f"x{name}",
            this_process()[:9],
        ):
            kill(other)
        os.kill(process.pid, signal.SIGSTOP)
        assert until(True, process.pid)
        kill(name)
        assert process.wait(10) == -signal.SIGKILL


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="death signals are Linux's")
def test_l11_a_stopped_process_goes_on_when_its_parent_dies() -> None:
    inner = (
        "from penstock.runtimes.stopped import wake_with_parent; wake_with_parent(); "
        "import os, signal; print(os.getpid(), flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    )
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert until(True, pid)
        parent.kill()
        assert until(False, pid)
