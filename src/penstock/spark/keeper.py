"""Keeps one JVM between runs, and lends it to one at a time: ``python -m penstock.spark.keeper
FOLDER``.

The keeper, a process, starts the JVM and ends it. A client connects to the socket in FOLDER and
sends one line of JSON, whose ``ask`` is:

- ``start`` (on stdin, the first run's connection): starts the JVM with a command and limits;
- ``lease``: asks for the JVM; the answer has the gateway's address, or ``busy`` where another run
  has it;
- ``status``, ``stop``: for ``penstock spark``.

The connection on which the JVM was lent is the lease. The line ``release`` on it gives the JVM
back; its end without that line (the run was killed, or could not stop its jobs) ends the JVM at
once, so that no job outlives its run. An idle JVM is ended when no run asked for it for ``idle``
seconds, a watched folder is gone, the machine's memory is short, it has served
:data:`MOST_RUNS` runs, or on ``stop``. A lock permits one keeper for a folder.

Other users cannot connect: the folder is the user's alone, and the kernel tells the client's user.
The JVM has the keeper's environment; a run's own variables come with its jobs. Imports the standard
library only. Not here: which folder, and what the command is (``warm``).
"""

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from penstock.files import private
from penstock.runtimes.machine import available_bytes
from penstock.spark.gateway import Address, address, spawn

SOCKET, LOCK, LOG, OWN_LOG = "socket", "lock", "spark.log", "keeper.log"
MOST_RUNS = 200  # of one JVM, which bounds what leaks in it
LINE_BYTES = 1 << 22
_TICK_SECONDS, _START_TICK_SECONDS = 1.0, 0.03
_LINE_SECONDS = 2.0  # for a client to send its line
_START_SECONDS = 300.0
_END_SECONDS = 10.0


def say(peer: socket.socket, message: dict[str, Any]) -> None:
    """Sends a line of JSON. Raises ``OSError``."""
    peer.sendall(json.dumps(message).encode() + b"\n")


def hear(peer: socket.socket) -> dict[str, Any] | None:
    """Receives the next line as a JSON object; None at the end of the connection, for a line that
    is no object, or one longer than :data:`LINE_BYTES`. Raises ``OSError``, also after the socket's
    timeout."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = peer.recv(1 << 16)
        if not piece or len(line) > LINE_BYTES:
            return None
        line += piece
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def same_user(peer: socket.socket) -> bool:
    """Whether the client's process is this user's, as the kernel tells; True where it does not
    (macOS), so that only the folder's mode protects."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] == os.geteuid()


def lock(folder: Path) -> int | None:
    """Takes the lock of ``folder`` and returns its descriptor, which holds the lock while it is
    open; None where another keeper has it."""
    for _ in range(5):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        with suppress(OSError):  # a keeper that ended meanwhile took the folder along
            if os.path.samestat(os.fstat(handle), os.stat(folder / LOCK)):
                return handle
        os.close(handle)
    return None


class Keeper:
    """Starts a JVM, lends it, and ends it (:meth:`run`, called once). ``first``: the connection of
    the first run. ``wanted``: its line ``start``."""

    def __init__(self, folder: Path, first: socket.socket, wanted: dict[str, Any]) -> None:
        self._folder, self._wanted = folder, wanted
        self._lease: socket.socket | None = first
        self._since = time.monotonic()  # when it became idle, or busy
        self._runs, self._leaving = 0, False
        self._ready: Address | None = None
        self._identity = os.stat(folder)
        self._listener = socket.socket(socket.AF_UNIX)
        with suppress(FileNotFoundError):
            os.unlink(folder / SOCKET)
        os.chdir(folder)  # a socket's path is short
        mask = os.umask(0o177)
        self._listener.bind(SOCKET)
        os.umask(mask)
        self._listener.listen(16)
        self._woken, self._wake = os.pipe()
        self._answer = Path(str(wanted["answer"]))
        self._java = spawn(wanted["command"], os.environ, folder, folder / LOG)
        threading.Thread(target=self._await_death, daemon=True).start()

    def run(self) -> None:
        """Serves clients until the JVM has ended or is to be ended; then ends it and removes the
        folder."""
        try:
            while self._goes_on():
                self._step()
        finally:
            self._end()

    def _await_death(self) -> None:
        self._java.wait()
        os.write(self._wake, b"x")

    # -- one step

    def _goes_on(self) -> bool:
        if (code := self._java.poll()) is not None:
            if self._lease is not None:
                with suppress(OSError):
                    say(self._lease, {"died": code})
            return False
        if self._ready is None:
            return time.monotonic() - self._since < _START_SECONDS and not self._leaving
        return self._lease is not None or not self._may_go()

    def _may_go(self) -> bool:
        """Whether the JVM, which is idle, is to be ended."""
        return (
            self._leaving
            or self._runs >= MOST_RUNS
            or time.monotonic() - self._since > float(self._wanted["idle"])
            or available_bytes() < int(self._wanted["memory"])
            or not all(os.path.isdir(p) for p in self._wanted["watched"])
            or not self._in_place()
        )

    def _in_place(self) -> bool:
        with suppress(OSError):
            return os.path.samestat(self._identity, os.stat(self._folder))
        return False

    def _step(self) -> None:
        lease = [] if self._lease is None else [self._lease]
        tick = _START_TICK_SECONDS if self._ready is None else _TICK_SECONDS
        ready, _, _ = select.select([*lease, self._woken, self._listener], [], [], tick)
        if self._ready is None and (found := address(self._answer)) is not None:
            self._ready = found
            self._grant()
        if self._lease is not None and self._lease in ready:
            self._hear_lease(self._lease)
        if self._listener in ready:
            self._admit()

    def _grant(self) -> None:
        """Sends the gateway's address to the run that has the lease, once the gateway is ready."""
        if self._lease is None or self._ready is None:
            return
        grant = {"port": self._ready.port, "secret": self._ready.secret, "pid": self._java.pid}
        with suppress(OSError):  # the next step sees that the connection has ended
            say(self._lease, {"lease": grant})

    def _hear_lease(self, lease: socket.socket) -> None:
        message = None
        with suppress(OSError):
            message = hear(lease)
        lease.close()
        self._lease, self._since = None, time.monotonic()
        self._runs += 1
        if message is None or not message.get("release"):
            self._leaving = True
            self._java.kill()
        else:
            self._forget_log()

    def _forget_log(self) -> None:
        """Empties the log of what Java printed: the run that ended has copied it."""
        with suppress(OSError):
            os.truncate(self._folder / LOG, 0)

    # -- those who connect

    def _admit(self) -> None:
        with suppress(OSError):
            peer, _ = self._listener.accept()
            peer.settimeout(_LINE_SECONDS)
            kept = False
            try:
                if same_user(peer):
                    kept = self._serve(peer, hear(peer) or {})
            finally:
                if not kept:
                    peer.close()

    def _serve(self, peer: socket.socket, request: dict[str, Any]) -> bool:
        """Answers a client's line; returns whether its connection is the lease now."""
        match request.get("ask"):
            case "lease":
                if self._lease is not None or self._leaving or self._java.poll() is not None:
                    say(peer, {"busy": True})
                    return False
                self._forget_log()
                self._lease, self._since = peer, time.monotonic()
                self._grant()
                return True
            case "status":
                say(peer, self._status())
            case "stop":
                status = self._status()
                self._leaving = True
                say(peer, status)
            case _:
                pass
        return False

    def _status(self) -> dict[str, Any]:
        state = "starting" if self._ready is None else "busy" if self._lease else "idle"
        if self._leaving and self._lease is None:
            state = "ending"
        since = round(time.monotonic() - self._since, 1)
        return {
            **self._wanted["about"],
            "state": state,
            "pid": self._java.pid,
            "keeper": os.getpid(),
            "runs": self._runs,
            "seconds": since,
            "idle_seconds": float(self._wanted["idle"]),
            "memory_bytes": _resident(self._java.pid),
        }

    # -- the end

    def _end(self) -> None:
        self._listener.close()
        with suppress(OSError):
            os.unlink(self._folder / SOCKET)
        if self._lease is not None:
            self._lease.close()
        if self._java.stdin is not None:
            with suppress(OSError):
                self._java.stdin.close()
        try:
            self._java.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._java.kill()
            self._java.wait()
        if self._in_place():
            shutil.rmtree(self._folder, ignore_errors=True)


def _resident(pid: int) -> int:
    with suppress(OSError, IndexError, ValueError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def _ended(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise SystemExit(0)


def main(folder: Path) -> int:
    """Runs the keeper of ``folder`` until its JVM is ended; returns the exit code."""
    first = socket.socket(fileno=os.dup(0))
    lock_fd = lock(folder)
    if lock_fd is None:
        say(first, {"busy": True})
        return 0
    with private(folder / OWN_LOG, "ab") as log:  # for a stack trace of the keeper
        os.dup2(log.fileno(), 2)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _ended)
    first.settimeout(_LINE_SECONDS)
    wanted = hear(first)
    if wanted is None or wanted.get("ask") != "start":
        return 1
    Keeper(folder, first, wanted).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
