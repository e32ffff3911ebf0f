"""Runs the command line in a process that is forked from one which has imported it already: most of
what ``penstock runs`` costs is its imports, and tests call it hundreds of times.

One such process for each process of tests, of a single thread, without PyArrow (whose import starts
another), Spark or a database; it ends with the tests. What a child gets is what it would as a real
one: environment, working directory, three descriptors, umask, and an interpreter that ends by
itself; ``/proc`` shows its command and environment. A program of the tests may take the command
line's place. Not here: tests of the start itself; they start the script.
"""

import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO

from penstock.tasks import fork_server

SCRIPT = Path(sys.executable).with_name("penstock")
_LARGEST = 100_000  # bytes of an order: a packet of the socket
_OF_THE_START = ("PYTHON", "LC_", "LANG")
_FAILPOINT = "PENSTOCK_FAILPOINT"  # read at an import
_IMPORTED = (
    "penstock.cli.app",
    "penstock.connectors.source",
    "penstock.connectors.destination",
    "penstock.engine.inspect.plan_check",
    "penstock.engine.run.start",
    "penstock.spark.session",
    "pyspark.sql",
    "penstock.protocols.airbyte.package",
    "penstock.protocols.singer.package",
    "penstock.spark.lent_session",
    "penstock.store.database",
    "penstock.store.ledger",
    "penstock.tables.delta.tables",
    "penstock.tables.parquet.tables",
    "pyspark.sql.classic.dataframe",
    "sqlalchemy.dialects.sqlite",
    "typer._adapters",
    "jsonschema_rs",
    "pydantic",
    "rich.console",
    "penstock.web.app",
    "uvicorn",
)


# -- in the process of tests


def takes(arguments: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether these can be forked."""
    size = len(json.dumps([list(arguments), dict(env)])) + 5_000  # for the folder
    return sys.platform == "linux" and _FAILPOINT not in env and size < _LARGEST


def run(
    arguments: Sequence[str], *, stdin: bytes, cwd: Path, env: Mapping[str, str], timeout: float
) -> "subprocess.CompletedProcess[bytes]":
    """What ``subprocess.run([SCRIPT, *arguments], capture_output=True)`` does and raises."""
    if not takes(arguments, env):
        return subprocess.run(
            [str(SCRIPT), *arguments],
            input=stdin, capture_output=True, timeout=timeout, cwd=cwd, env=env,
        )  # fmt: skip
    order = json.dumps([list(arguments), str(cwd), dict(env), _umask()]).encode()
    deadline = time.monotonic() + timeout
    server = _server(_of_the_start(env))
    child_in, ours = os.pipe()
    (out, child_out), (err, child_err), (about, status) = os.pipe(), os.pipe(), os.pipe()
    try:
        socket.send_fds(server, [order], [child_in, child_out, child_err, status])
    finally:
        for fd in (child_in, child_out, child_err, status):
            os.close(fd)
    # As in ``communicate``, who keeps the pipes of a command that ended holds up its caller.
    found: dict[int, bytearray] = {fd: bytearray() for fd in (out, err, about)}
    threads = [threading.Thread(target=_write, args=(ours, stdin), daemon=True)]
    threads += [threading.Thread(target=_read, args=each, daemon=True) for each in found.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert found[about], "the process that forks the command line died"
    pid, *code = map(int, found[about].split())
    if any(thread.is_alive() for thread in threads):
        if not code:
            os.kill(pid, signal.SIGKILL)
        raise subprocess.TimeoutExpired([str(SCRIPT), *arguments], timeout)
    return subprocess.CompletedProcess(arguments, code[0], bytes(found[out]), bytes(found[err]))


class Started:
    """A command, or a program if its file is the first argument, that goes on: what tests
    need of ``subprocess.Popen``. ``stdout``: its text, where no files are given for both."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        files: tuple[IO[str], IO[str]] | None = None,
    ) -> None:
        order = json.dumps([list(arguments), str(cwd), dict(env), _umask()]).encode()
        out, child_out = os.pipe()
        self._about, status = os.pipe()
        outputs = [child_out, 2] if files is None else [file.fileno() for file in files]
        with open(os.devnull, "r+b") as null:
            fds = [null.fileno(), *outputs, status]
            socket.send_fds(_server(_of_the_start(env)), [order], fds)
        os.close(child_out)
        os.close(status)
        self.stdout = os.fdopen(out, encoding="utf-8")
        said = b""
        while not said.endswith(b" "):
            piece = os.read(self._about, 1)
            assert piece, "the process that forks the command line died"
            said += piece
        self.pid = int(said)
        self._code: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def wait(self, timeout: float) -> int:
        if self._code is None:
            if not select.select([self._about], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired([str(SCRIPT)], timeout)
            self._code = int(os.read(self._about, 100))
            os.close(self._about)
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def folder_of_script() -> Path:
    """A folder for ``PATH`` whose ``penstock`` does what the script does, run by a shell. It cannot
    be killed: who kills it leaves the command running."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    env = _of_the_start(os.environ)
    _server(env, folder / "socket")
    script = folder / "penstock"
    told = {"SOCKET": folder / "socket", "SCRIPT": SCRIPT, "ENV": dict(env)}
    names = "".join(f"{k} = {str(v) if isinstance(v, Path) else v!r}\n" for k, v in told.items())
    script.write_text(f"#!{sys.executable} -IS\n{names}{_SHIM}")
    script.chmod(0o700)
    return folder


_SHIM = f"""
import json, os, socket, sys

if ENV != {{k: v for k, v in os.environ.items() if k.startswith({_OF_THE_START})}} or (
    "{_FAILPOINT}" in os.environ
):
    os.execv(SCRIPT, [SCRIPT, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect(SOCKET)
about, status = os.pipe()
os.umask(mask := os.umask(0o077))
order = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ), mask]).encode()
socket.send_fds(server, [order], [0, 1, 2, status])
os.close(status)
found = b""
while piece := os.read(about, 100):
    found += piece
sys.exit(int(found.split()[1]))
"""


def _of_the_start(env: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((k, v) for k, v in env.items() if k.startswith(_OF_THE_START))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _write(fd: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(fd, "wb") as pipe:
        pipe.write(data)


def _read(fd: int, into: bytearray) -> None:
    with open(fd, "rb", buffering=0) as pipe:
        while piece := pipe.read(1 << 16):
            into += piece


@cache
def _server(environ: frozenset[tuple[str, str]], path: Path | None = None) -> socket.socket:
    """A process whose interpreter started with these variables. ``path``: where it listens too."""
    others = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if path is not None:
        others.bind(str(path))
        others.listen()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, others:
        fds = [theirs.fileno(), others.fileno()]
        subprocess.Popen(
            [sys.executable, __file__, *map(str, fds), "_" * 3_000],  # room for other arguments
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**dict(environ), "_": "_" * 10_000},
        )
    return ours


# -- in the process that forks


def serve(tests: socket.socket, others: socket.socket) -> None:
    """Forks for each order of the tests, and of scripts that connect to ``others``; returns in the
    child. Ends this process where the tests are gone."""
    from penstock.cli import VERBS
    from penstock.unused_packages import OF_CONNECT, leave_out

    leave_out(*OF_CONNECT)
    for name in (*_IMPORTED, *(f"penstock.cli.{verb.module}" for verb in VERBS.values())):
        import_module(name)
    assert os.listdir("/proc/self/task") == [str(os.getpid())], "threads do not survive a fork"
    gc.freeze()  # else a child's first collection copies all of it
    children: dict[int, tuple[int, int]] = {}
    connections = [tests]
    accepting = [others] if others.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) else []
    while True:
        for ready in select.select([*accepting, *connections, *children], [], [])[0]:
            if ready is others:
                connections.append(others.accept()[0])
                continue
            if ready in children:
                pid, status = children.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(ready)
                with contextlib.suppress(BrokenPipeError), open(status, "w") as pipe:
                    pipe.write(str(code))
                continue
            order, fds, *_ = socket.recv_fds(ready, 2 * _LARGEST, 4)
            if not order:
                if ready is tests:
                    os._exit(0)
                connections.remove(ready)
                ready.close()
                continue
            if (pid := os.fork()) == 0:
                for connection in (others, *connections):
                    connection.close()
                for fd in (*children, *(status for _, status in children.values()), fds[3]):
                    os.close(fd)
                _become(json.loads(order), fds[:3])
                return
            for fd in fds[:3]:
                os.close(fd)
            os.write(fds[3], f"{pid} ".encode())
            children[os.pidfd_open(pid)] = pid, fds[3]


def is_program(arguments: Sequence[str]) -> bool:
    return bool(arguments) and arguments[0].endswith(".py") and os.path.isabs(arguments[0])


def _become(order: tuple[list[str], str, dict[str, str], int], fds: list[int]) -> None:
    arguments, folder, env, umask = order
    if not is_program(arguments):
        arguments = [str(SCRIPT), *arguments]
    for fd, given in enumerate(fds):
        os.dup2(given, fd)
        os.close(given)
    os.chdir(folder)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(env)
    fork_server.show([sys.executable, *arguments])
    sys.argv = arguments


if __name__ == "__main__":
    sys.path[0] = str(SCRIPT.parent)
    serve(*(socket.socket(fileno=int(fd)) for fd in sys.argv[1:3]))
    if is_program(sys.argv):
        sys.path[0] = os.path.dirname(sys.argv[0])
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        from penstock.cli import command

        sys.exit(command())
