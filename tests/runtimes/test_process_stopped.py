"""L11: a connector, or its supervisor, that is stopped by SIGSTOP is killed as any other."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from penstock.runtimes import process
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.process import ProcessRuntime
from penstock.runtimes.stopped import is_stopped

pytestmark = pytest.mark.dear

TREE = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
print(os.getpid(), child.pid, os.getppid(), flush=True)
time.sleep(120)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("stopped", ["connector", "child", "supervisor", "all"])
def test_l11_a_stopped_tree_ends_with_its_channel(
    stopped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_KILL_MARGIN", 2.0)
    limits = RunTimeouts(start=60, heartbeat=60, total=None, stop=0.5)
    channel = ProcessRuntime([sys.executable, "-c", TREE]).open((), limits)
    said = b""
    while not said.endswith(b"\n"):
        said += channel.read(60) or b""
    connector, child, supervisor = map(int, said.split())
    pids = {"connector": [connector], "child": [child], "supervisor": [supervisor]}
    for pid in pids.get(stopped, [supervisor, connector, child]):
        os.kill(pid, signal.SIGSTOP)
        while not is_stopped(pid):
            time.sleep(0.01)
    began = time.monotonic()
    channel.close()
    assert time.monotonic() - began < 20
    deadline = time.monotonic() + 5
    while left := [p for p in (connector, child, supervisor) if Path(f"/proc/{p}").exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
