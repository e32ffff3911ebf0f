"""A real Postgres for tests: a private cluster that no other program reaches.

It is made from the distribution's own binaries in a temporary folder, listens on a Unix socket only
and belongs to an unprivileged user, because Postgres refuses to run as root.
"""

import glob
import os
import pwd
import shutil
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import pytest

START_SECONDS = 60


def binaries_folder() -> str:
    found = glob.glob("/usr/lib/postgresql/*/bin/postgres")
    path = max(found, key=lambda p: float(p.split("/")[4]), default=shutil.which("postgres"))
    if path is None or not Path(path).with_name("initdb").exists():
        reason = "no Postgres server binaries here (Debian: apt-get install postgresql)"
        if os.environ.get("PENSTOCK_REQUIRE_POSTGRES") == "1":
            pytest.fail(f"PENSTOCK_REQUIRE_POSTGRES=1, yet there are {reason}")
        pytest.skip(reason)
    return str(Path(path).parent)


def unprivileged_user() -> pwd.struct_passwd:
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.skip("Postgres refuses root, and there is no other user to run it as")


@contextmanager
def running_cluster() -> Iterator[str]:
    """The folder of a running cluster's socket; its superuser is ``penstock``, without password."""
    binaries, user = binaries_folder(), unprivileged_user()
    folder = tempfile.mkdtemp(prefix="penstock-pg-")
    os.chown(folder, user.pw_uid, user.pw_gid)
    become = {} if os.geteuid() else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": folder,
        "fsync": "off",
        "shared_buffers": "16MB",
        "max_connections": "60",
    }
    data = f"{folder}/data"
    initdb = [f"{binaries}/initdb", "-D", data, "-U", "penstock", "-A", "trust", "-E", "UTF8"]
    subprocess.run(
        [*initdb, "--no-sync", "--locale=C"],
        check=True,
        capture_output=True,
        cwd=folder,
        timeout=START_SECONDS,
        **become,
    )
    with open(f"{data}/postgresql.auto.conf", "a") as file:
        file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
    server = start_again(folder, wait=False)
    try:
        _await(server, folder)
        yield folder
    finally:
        _end(server, folder)
        shutil.rmtree(folder, ignore_errors=True)


def start_again(folder: str, *, wait: bool = True) -> subprocess.Popen[bytes]:
    """Starts the cluster's server, which is not running."""
    user = unprivileged_user()
    become = {} if os.geteuid() else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    with open(f"{folder}/log", "ab") as log:
        server = subprocess.Popen(
            [f"{binaries_folder()}/postgres", "-D", f"{folder}/data"],
            env={"PATH": os.environ["PATH"]},  # the server is no process of a run that killed it
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            **become,
        )
    if wait:
        _await(server, folder)
    return server


def restart(folder: str, mode: str = "fast") -> None:
    """As an administrator does: ``pg_ctl restart``."""
    user = unprivileged_user()
    become = {} if os.geteuid() else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    command = [f"{binaries_folder()}/pg_ctl", "restart", "-D", f"{folder}/data", "-m", mode]
    subprocess.run(
        [*command, "-w", "-l", f"{folder}/data/restarted.log"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=folder,
        timeout=START_SECONDS,
        **become,
    )


def postmaster(folder: str) -> int:
    """The process id of the running server."""
    return int(Path(folder, "data", "postmaster.pid").read_text().split("\n")[0])


def server_processes(folder: str) -> list[int]:
    """The server's processes, the first one first."""
    parent = postmaster(folder)
    return [parent, *(pid for pid in _every_pid() if _parent(pid) == parent)]


def sessions(folder: str, like: str = "penstock:%") -> list[int]:
    """The process ids of the sessions of programs with such names."""
    import psycopg

    query = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s"
    with psycopg.connect(f"host={folder} user=penstock dbname=postgres") as conn:
        return [pid for (pid,) in conn.execute(query, (like,))]


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """SIGSTOP, and SIGCONT at the end."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def kill_server(folder: str) -> None:
    """SIGKILL of all its processes; no server is left, and :func:`start_again` recovers."""
    pids = server_processes(folder)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(map(_is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    # the id may still be that of a zombie, which looks alive to the next server
    for lock in ("data/postmaster.pid", ".s.PGSQL.5432.lock"):
        Path(folder, lock).unlink(missing_ok=True)


def _end(server: subprocess.Popen[bytes], folder: str) -> None:
    """Without a checkpoint: it is all removed. The server may be another than the first one."""
    with suppress(OSError, ValueError):
        pid = postmaster(folder)
        if _is_alive(pid):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + 20
        while _is_alive(pid) and time.monotonic() < deadline:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.02)
    server.kill()
    server.wait(20)


def _every_pid() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def _status(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["Z", "0"]


def _parent(pid: int) -> int:
    return int(_status(pid)[1])


def _is_alive(pid: int) -> bool:
    return _status(pid)[0] not in "ZX"


def _await(server: subprocess.Popen[bytes], folder: str) -> None:
    import psycopg

    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(f"host={folder} user=penstock dbname=postgres").close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"Postgres did not start:\n{Path(folder, 'log').read_text()}")
            time.sleep(0.05)


@contextmanager
def tcp_port(folder: str) -> Iterator[int]:
    """A port on loopback that leads to the cluster's socket, for clients that insist on one."""
    handler = type("ToCluster", (_Forward,), {"folder": folder})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join(10)


class LossyPort:
    """A port on loopback that leads to the cluster's socket, and loses bytes when it is told to:
    the sockets of both sides stay open."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lost = threading.Event()
        self._answers_lost_after: bytes | None = None
        self.answer_lost = threading.Event()  # the server has done the word
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @contextmanager
    def losing(self) -> Iterator[None]:
        """Loses every byte of both directions."""
        self._lost.set()
        try:
            yield
        finally:
            self._lost.clear()

    def lose_answers_after(self, word: bytes) -> None:
        """Once: what a connection that sends ``word`` would be answered from then on is lost; the
        server gets the word."""
        self._answers_lost_after = word
        self.answer_lost.clear()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                threading.Thread(target=self._lead, args=(here,), daemon=True).start()

    def _lead(self, here: socket.socket) -> None:
        mute = threading.Event()
        with here, socket.socket(socket.AF_UNIX) as there:
            try:
                there.connect(f"{self._folder}/.s.PGSQL.5432")
            except OSError:
                return
            back = threading.Thread(target=self._pass, args=(there, here, mute, True), daemon=True)
            back.start()
            self._pass(here, there, mute, False)
            back.join(60)

    def _pass(
        self, here: socket.socket, there: socket.socket, mute: threading.Event, answers: bool
    ) -> None:
        with suppress(OSError):
            while block := here.recv(1 << 16):
                word = self._answers_lost_after
                if not answers and word is not None and word in block:
                    self._answers_lost_after = None
                    mute.set()
                if answers and mute.is_set():
                    self.answer_lost.set()
                elif not self._lost.is_set():
                    there.sendall(block)
            there.shutdown(socket.SHUT_WR)


class _Forward(socketserver.BaseRequestHandler):
    folder: ClassVar[str]

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as there:
            there.connect(f"{self.folder}/.s.PGSQL.5432")
            back = threading.Thread(target=_copy, args=(there, self.request), daemon=True)
            back.start()
            _copy(self.request, there)
            back.join(60)


def _copy(here: socket.socket, there: socket.socket) -> None:
    with suppress(OSError):
        while block := here.recv(1 << 16):
            there.sendall(block)
        there.shutdown(socket.SHUT_WR)
