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
    options = [part for k, v in settings.items() for part in ("-c", f"{k}={v}")]
    with open(f"{folder}/log", "wb") as log:
        server = subprocess.Popen(
            [f"{binaries}/postgres", "-D", data, *options],
            stdout=log,
            stderr=log,
            cwd=folder,
            **become,
        )
    try:
        _await(server, folder)
        yield folder
    finally:
        server.send_signal(signal.SIGQUIT)  # without a checkpoint: it is all removed
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


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
