"""Keeps one JVM between runs, and lends it to runs that share its slots: ``python -m
penstock.spark.keeper FOLDER``.

The keeper, a process, starts the JVM and ends it. A client connects to the socket in FOLDER and
sends one line of JSON, whose ``ask`` is:

- ``start`` (on stdin, the first run's connection): starts the JVM with a command and limits;
- ``lease``: requests the JVM and some of its ``slots``; the answer has the gateway's address, or
  ``wait`` if one will follow, or ``busy`` if too few slots are free;
- ``status``, ``stop``: for ``penstock spark``.

The connection on which the JVM was lent is the lease. Its lines are ``session`` (the tag of the
run's jobs), ``clean`` (may it empty what sessions share: only if no other run has the JVM, and then
nobody gets it before this lease has ended) and ``release``, which gives the JVM back. If the
connection ends without that line (the run was killed, or could not stop its jobs), the JVM ends at
once, so that no job outlives its run. If other runs have the JVM too, that run's jobs are cancelled
(``orphan_jobs``), the JVM is not lent again, and it ends with the last of them. An idle JVM ends
when no run requested it for ``idle`` seconds, a watched folder is gone, the machine's memory is
short, it has served :data:`MOST_RUNS` runs, or on ``stop``. A lock permits one keeper per folder.

Other users cannot connect: the folder belongs to the user alone, and the kernel identifies the
client's user. The JVM has the keeper's environment; a run's own variables come with its jobs.
Imports the standard library only. Not here: which folder, and what the command is (``warm``)."""

import fcntl
import json
import os
import select
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
from penstock.spark.sockets import remove_scratch

SOCKET, LOCK, LOG, OWN_LOG = "socket", "lock", "spark.log", "keeper.log"
MOST_RUNS = 200  # of one JVM, which bounds what leaks in it
LINE_BYTES = 1 << 22
_TICK_SECONDS, _START_TICK_SECONDS = 1.0, 0.03
_LINE_SECONDS = 2.0  # for a client to send its line
_START_SECONDS = 300.0
_CANCEL_SECONDS = 20.0
_END_SECONDS = 10.0


class Peer:
    """One end of a connection that carries lines of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._rest = b""

    def fileno(self) -> int:
        return self.connection.fileno()

    @property
    def has_line(self) -> bool:
        """Returns whether a further whole line is buffered."""
        return b"\n" in self._rest

    def say(self, message: dict[str, Any]) -> None:
        """Sends a line. Raises ``OSError``."""
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, Any] | None:
        """Receives the next line as a JSON object; None at the end of the connection, for a line
        that is not an object, or one longer than :data:`LINE_BYTES`. Raises ``OSError``, also after
        the socket's timeout."""
        while not self.has_line:
            piece = self.connection.recv(1 << 16)
            if not piece or len(self._rest) > LINE_BYTES:
                return None
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return message if isinstance(message, dict) else None

    def close(self) -> None:
        self.connection.close()


def same_user(peer: socket.socket) -> bool:
    """Returns whether the client's process is this user's, according to the kernel; True if the
    kernel does not show it (macOS), so that only the folder's mode protects."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] == os.geteuid()


def lock(folder: Path) -> int | None:
    """Takes the lock of ``folder`` and returns its descriptor, which holds the lock while it is
    open; None if another keeper has it."""
    for _ in range(5):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        with suppress(OSError):  # a keeper that ended meanwhile removed the folder
            if os.path.samestat(os.fstat(handle), os.stat(folder / LOCK)):
                return handle
        os.close(handle)
    return None


class _Lease:
    """A run that has the JVM, or waits for it. ``session``: the tag of its jobs, once it has a
    session. ``lent``: it got the gateway's address."""

    def __init__(self, peer: Peer, slots: int) -> None:
        self.peer, self.slots = peer, slots
        self.session: str | None = None
        self.lent = False


class Keeper:
    """Starts a JVM, lends it, and ends it (:meth:`run`, called once). ``first``: the connection of
    the first run. ``wanted``: its line ``start``."""

    def __init__(self, folder: Path, first: Peer, wanted: dict[str, Any]) -> None:
        self._folder, self._wanted = folder, wanted
        self._leases = [_Lease(first, int(wanted["slots"]))]
        self._cleaning: _Lease | None = None  # nobody else gets the JVM before it has ended
        self._since = self._began = time.monotonic()  # since: it became idle, or busy
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
            for lease in self._leases:
                with suppress(OSError):
                    lease.peer.say({"died": code})
            return False
        if self._ready is None:
            return bool(self._leases) and time.monotonic() - self._began < _START_SECONDS
        return bool(self._leases) or not self._may_go()

    def _may_go(self) -> bool:
        """Returns whether to end the idle JVM."""
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
        peers = {lease.peer: lease for lease in self._leases}
        tick = _START_TICK_SECONDS if self._ready is None else _TICK_SECONDS
        ready, _, _ = select.select([*peers, self._woken, self._listener], [], [], tick)
        if self._ready is None and (found := address(self._answer)) is not None:
            self._ready = found
        for peer, lease in peers.items():
            if peer in ready and lease in self._leases:
                self._hear_lease(lease)
        if self._listener in ready:
            self._admit()
        self._lend()

    def _lend(self) -> None:
        """Gives the gateway's address to waiting runs, once the gateway is ready and no run
        cleans."""
        if self._ready is None or self._cleaning is not None:
            return
        grant = {"port": self._ready.port, "secret": self._ready.secret, "pid": self._java.pid}
        for lease in self._leases:
            if not lease.lent:
                lease.lent = True
                with suppress(OSError):  # the next step sees that the connection has ended
                    others = len(self._leases) - 1
                    lease.peer.say({"lease": grant, "slots": lease.slots, "beside": others})

    def _hear_lease(self, lease: _Lease) -> None:
        while True:
            message = None
            with suppress(OSError):
                message = lease.peer.hear()
            if message is None or message.get("release"):
                self._ended(lease, well=message is not None)
                return
            if isinstance(tag := message.get("session"), str):
                lease.session = tag
            if message.get("clean"):
                alone = self._leases == [lease]
                self._cleaning = lease if alone else None
                with suppress(OSError):
                    lease.peer.say({"alone": alone})
            if not lease.peer.has_line:
                return

    def _ended(self, lease: _Lease, *, well: bool) -> None:
        lease.peer.close()
        self._leases.remove(lease)
        self._runs += 1
        if self._cleaning is lease:
            self._cleaning = None
        if not well and (lease.lent or not self._leases):
            self._lend_no_more()
            if self._leases and lease.session is not None:
                threading.Thread(
                    target=self._cancel_jobs, args=(lease.session,), daemon=True
                ).start()
        if not self._leases:
            self._since = time.monotonic()
            if well:
                self._forget_log()
            else:
                self._java.kill()

    def _lend_no_more(self) -> None:
        self._leaving = True
        for lease in [one for one in self._leases if not one.lent]:
            self._leases.remove(lease)
            with suppress(OSError):
                lease.peer.say({"busy": True})
            lease.peer.close()

    def _cancel_jobs(self, session: str) -> None:
        """Cancels the jobs of a run that has ended; if that fails, ends the JVM."""
        assert self._ready is not None
        told = {"port": self._ready.port, "secret": self._ready.secret, "session": session}
        command = [sys.executable, "-m", "penstock.spark.orphan_jobs"]
        try:
            done = subprocess.run(
                command,
                input=json.dumps(told).encode(),
                stdout=subprocess.DEVNULL,
                timeout=_CANCEL_SECONDS,
                check=False,
            )
            cancelled = done.returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            cancelled = False
        if not cancelled:
            self._java.kill()

    def _forget_log(self) -> None:
        """Empties the log of Java's output: the runs that ended have copied it."""
        with suppress(OSError):
            os.truncate(self._folder / LOG, 0)

    # -- those who connect

    def _admit(self) -> None:
        with suppress(OSError):
            connection, _ = self._listener.accept()
            connection.settimeout(_LINE_SECONDS)
            peer = Peer(connection)
            kept = False
            try:
                if same_user(connection):
                    kept = self._serve(peer, peer.hear() or {})
            finally:
                if not kept:
                    peer.close()

    def _serve(self, peer: Peer, request: dict[str, Any]) -> bool:
        """Answers a client's line; returns whether its connection is a lease now."""
        match request.get("ask"):
            case "lease":
                slots = request.get("slots")
                if not isinstance(slots, int) or slots < 1:
                    return False  # an exception would end the keeper under its runs
                if not self._has_room(slots):
                    peer.say({"busy": True})
                    return False
                if not self._leases:
                    self._forget_log()
                    self._since = time.monotonic()
                if self._ready is None or self._cleaning is not None:
                    peer.say({"wait": True})
                self._leases.append(_Lease(peer, slots))
                return True
            case "status":
                peer.say(self._status())
            case "stop":
                status = self._status()
                self._leaving = True
                peer.say(status)
            case _:
                pass
        return False

    def _has_room(self, slots: int) -> bool:
        taken = sum(lease.slots for lease in self._leases)
        return (
            not self._leaving
            and self._java.poll() is None
            and self._runs + len(self._leases) < MOST_RUNS
            and taken + slots <= int(self._wanted["most_slots"])
        )

    def _status(self) -> dict[str, Any]:
        state = "starting" if self._ready is None else "busy" if self._leases else "idle"
        if self._leaving and not self._leases:
            state = "ending"
        since = round(time.monotonic() - self._since, 1)
        return {
            **self._wanted["about"],
            "state": state,
            "pid": self._java.pid,
            "keeper": os.getpid(),
            "used_by": len(self._leases),
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
        for lease in self._leases:
            lease.peer.close()
        if self._java.stdin is not None:
            with suppress(OSError):
                self._java.stdin.close()
        try:
            self._java.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._java.kill()
            self._java.wait()
        if self._in_place():
            remove_scratch(self._folder)


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
    connection = socket.socket(fileno=os.dup(0))
    first = Peer(connection)
    lock_fd = lock(folder)
    if lock_fd is None:
        first.say({"busy": True})
        return 0
    with private(folder / OWN_LOG, "ab") as log:  # for a stack trace of the keeper
        os.dup2(log.fileno(), 2)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _ended)
    connection.settimeout(_LINE_SECONDS)
    wanted = first.hear()
    if wanted is None or wanted.get("ask") != "start":
        return 1
    Keeper(folder, first, wanted).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
