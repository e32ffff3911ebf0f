"""L11: what ends a run from outside."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.run import stoppable


@pytest.fixture(autouse=True)
def hangups_are_not_ignored() -> Iterator[None]:
    """Also where the tests were started by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_L11_a_signal_asks_the_run_to_stop(number: signal.Signals) -> None:
    asked: list[int] = []
    before = signal.getsignal(number)
    with stoppable(lambda: asked.append(1)):
        os.kill(os.getpid(), number)
        deadline = time.monotonic() + 5
        while not asked and time.monotonic() < deadline:
            time.sleep(0.01)
    assert asked == [1] and signal.getsignal(number) == before


def test_L11_a_hangup_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        asked: list[int] = []
        with stoppable(lambda: asked.append(1)):
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.05)
        assert asked == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_L11_after_a_hangup_nothing_is_written_to_the_terminal_that_is_gone(tmp_path: Path) -> None:
    """The terminal is closed under a run: it stops as asked, and no write of its fails."""
    done = tmp_path / "done"
    program = (
        "import sys, time, pathlib\n"
        "from penstock.cli.run import stoppable\n"
        "asked = []\n"
        "with stoppable(lambda: asked.append(1)):\n"
        "    print('ready', flush=True)\n"
        "    while not asked: time.sleep(0.01)\n"
        "    time.sleep(0.2)\n"
        "    print('on stdout', flush=True)\n"
        "    print('on stderr', file=sys.stderr, flush=True)\n"
        f"    pathlib.Path({str(done)!r}).write_text('whole')\n"
    )
    ours, theirs = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while not said.endswith(b"\n"):  # a terminal may give a line in two pieces
        said += os.read(ours, 100)
    assert said.split() == [b"ready"]
    os.close(ours)
    os.kill(child.pid, signal.SIGHUP)
    assert child.wait(20) == 0
    assert done.read_text() == "whole"


@pytest.mark.parametrize("reads", [True, False], ids=["reads", "unread"])
def test_L11_a_run_that_does_not_stop_is_ended(reads: bool) -> None:
    """One SIGTERM ends it with exit code 7, also where nobody reads its stderr, which is full."""
    program = (
        "import os, sys, time\n"
        "from penstock.cli import run\n"
        "run.END_SECONDS = 1.0\n"
        f"if not {reads}:\n"
        "    os.set_blocking(2, False)\n"
        "    try:\n"
        "        while True: os.write(2, b'x' * 4096)\n"
        "    except BlockingIOError: os.set_blocking(2, True)\n"
        "with run.stoppable(lambda: None):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(120)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    child.terminate()
    try:
        assert child.wait(30) == 7
    finally:
        child.kill()
        child.communicate()
