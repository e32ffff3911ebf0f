"""A Docker engine of the tests' own, on a machine without systemd: started in a folder of its own,
ended by its pid, and gone with whoever started it."""

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 30.0
_SET_DEATH_SIGNAL = 1


def missing() -> str | None:
    """Why no engine can be started here; None: one can."""
    if os.geteuid() != 0:
        return "an engine of the tests' own needs root"
    for name in ("dockerd", "docker", "busybox"):
        if shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            return f"{name} is not here (Debian: apt-get install docker.io iptables busybox-static)"
    return None


@contextmanager
def docker_engine(folder: Path) -> Generator[str]:
    """``DOCKER_HOST`` of an engine whose images and containers go with it."""
    host = f"unix://{folder}/docker.sock"
    folder.mkdir(parents=True, exist_ok=True)
    library = ctypes.CDLL(None)
    with open(folder / "dockerd.log", "wb") as log:
        daemon = subprocess.Popen(
            [
                *("dockerd", "-H", host, "--data-root", str(folder / "data")),
                *("--exec-root", str(folder / "exec"), "--pidfile", str(folder / "docker.pid")),
                *("--log-driver=none", "--storage-driver=overlay2", "--shutdown-timeout=3"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
            preexec_fn=lambda: library.prctl(_SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0),
        )
    try:
        _wait_for(daemon, host, folder / "dockerd.log")
        yield host
    finally:
        daemon.terminate()
        try:
            daemon.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(STOP_SECONDS)


def _wait_for(daemon: "subprocess.Popen[bytes]", host: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and daemon.poll() is None:
        asked = subprocess.run(
            ["docker", "version"], capture_output=True, env={**os.environ, "DOCKER_HOST": host}
        )
        if asked.returncode == 0:
            return
        time.sleep(0.1)
    raise RuntimeError(f"dockerd did not start: {log.read_text()[-2000:]}")
