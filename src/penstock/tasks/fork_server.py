"""Forks worker processes from one process that has imported their code: an interpreter and its
imports take 0.3 s of processor time, a fork takes 0.01 s.

There is one server for each of Spark's Python daemons on this machine (``tasks.worker_daemon``
starts it). It runs nothing but imports, so that no thread and no lock is lost by a fork, and it
imports a module, and what that names in ``PRELOADED``, when it is first asked for. A forked process
gets what a spawned one gets: environment, stdin and stdout, a session of its own, its name in
``/proc``; it wakes when the Spark task that asked for it dies (``runtimes.stopped``). The server
ends with the daemon and its workers.

Nothing is forked, and the caller spawns, where the interpreter would have started otherwise with
the environment of the job, where the task has another limit of memory (Spark sets one by
``spark.executor.pyspark.memory``), where a file of the imported code has changed since, and where
an import started threads. Linux only. Neighbours: ``tasks.child_process`` calls :func:`fork`,
``tasks.child_start`` spawns."""

import ctypes
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import BinaryIO

import msgspec

from penstock.runtimes.stopped import wake_with_parent
from penstock.tasks import child_start

Environment = Mapping[bytes, bytes]

_LARGEST = 150_000  # bytes of an order; a socket takes 200 kB at once
_PATIENCE_SECONDS = 30.0  # for an order to be taken and its process to begin
_OF_THE_START = (
    *(b"PYTHON", b"LC_", b"LANG", b"LD_", b"GLIBC_", b"MALLOC_", b"ARROW_", b"JEMALLOC"),
    *(b"MIMALLOC", b"LOCPATH", b"OPENSSL_", b"FAKETIME", b"PENSTOCK_FAILPOINT"),
)
_OF_SPARK_ALONE = (b"PYTHONHASHSEED", b"PYTHONUNBUFFERED")  # Spark sets them for its own workers
_HARMLESS_THREADS = {"jemalloc_bg_thd"}  # Arrow's; its library restores it in a forked process
_NAMED_SECONDS = 1.0  # in which a new thread of a library has got its name
_ROOM = "_" * 100  # in the command, and _MORE_ROOM in the environment: both are overwritten
_MORE_ROOM = 10_000

_server: socket.socket | None = None  # in the daemon, and in the workers that it forks
_environment: dict[bytes, bytes] = {}  # of the server
_memory = resource.getrlimit(resource.RLIMIT_AS)  # of the server


# -- in Spark's Python daemon and its workers


def start(environ: Environment) -> None:
    """Starts the server of this process and of those that it forks. ``environ``: what a worker
    process gets here (``child_process.environment``)."""
    global _server, _environment
    if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
        return
    kept = {k: v for k, v in environ.items() if k not in _OF_SPARK_ALONE}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno()), _ROOM],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={**kept, b"_": b"_" * _MORE_ROOM},
        )
    ours.settimeout(_PATIENCE_SECONDS)
    _server, _environment = ours, _of_the_start(kept)


class ForkedProcess:
    """A process that the server forked: what :mod:`tasks.child_process` needs of
    ``subprocess.Popen``."""

    def __init__(self, pid: int, stdin: BinaryIO, stdout: BinaryIO, status: int) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._status, self._code = status, None

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None: it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float) -> int:
        """Waits for the exit code. It is that of SIGKILL where the server died, which alone could
        know it. Raises ``subprocess.TimeoutExpired``."""
        if self._code is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            self._code = int(os.read(self._status, 100) or -signal.SIGKILL)
            os.close(self._status)
        return self._code


def fork(module: str, environ: Environment) -> ForkedProcess | None:
    """Lets the server fork a process that runs the ``main`` function of ``module``; None: it is to
    be spawned."""
    if _server is None or _of_the_start(environ) != _environment:
        return None
    if resource.getrlimit(resource.RLIMIT_AS) != _memory:
        return None
    order = msgspec.msgpack.encode((module, dict(environ)))
    if len(order) > _LARGEST:
        return None
    (stdin, write), (read, stdout), (about, status) = os.pipe(), os.pipe(), os.pipe()
    try:
        socket.send_fds(_server, [order], [stdin, stdout, status])
    except OSError:
        order = b""
    for fd in (stdin, stdout, status):
        os.close(fd)
    began = order and select.select([about], [], [], _PATIENCE_SECONDS)[0]
    pid = os.read(about, 8) if began else b""
    if len(pid) < 8:
        for fd in (write, read, about):
            os.close(fd)  # a process that begins too late finds no job, and ends
        return None
    return ForkedProcess(int(pid), os.fdopen(write, "wb"), os.fdopen(read, "rb"), about)


def _of_the_start(environ: Environment) -> dict[bytes, bytes]:
    """Returns the variables that an interpreter and its libraries read when they start."""
    kept = ((k, v) for k, v in environ.items() if k not in _OF_SPARK_ALONE)
    return {k: v for k, v in kept if k.startswith(_OF_THE_START)}


# -- in the server


class _Server:
    """``orders``: the socket that they come from."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._listening = True
        self._children = dict[int, tuple[int, int]]()  # by pidfd: id, and the pipe for its code
        self._files = dict[str, tuple[int, int]]()  # size and time of the files of all imports
        self._poll = select.poll()
        self._poll.register(orders, select.POLLIN)

    def module(self) -> str:
        """Forks for each order. Returns in a forked process only: the module that it runs. This
        process ends when nobody is left who could send an order, and no child."""
        while self._listening or self._children:
            for fd, _ in self._poll.poll():
                if fd == self._orders.fileno():
                    if module := self._fork():
                        return module
                elif fd in self._children:
                    self._ended(fd)
                else:
                    self._wake_child_of(fd)
        os._exit(0)

    def _fork(self) -> str | None:
        order, fds, *_ = socket.recv_fds(self._orders, _LARGEST + 1, 3)
        if not order:
            self._end()
            return None
        module, environ = msgspec.msgpack.decode(order, type=tuple[str, dict[bytes, bytes]])
        if not self._ready(module):
            self._end()
        elif (pid := os.fork()) == 0:
            self._orders.close()
            for pidfd, (_, status) in self._children.items():
                os.close(pidfd)
                os.close(status)
            _become(module, environ, fds)
            return module
        else:
            status = fds.pop()
            pidfd = os.pidfd_open(pid)
            self._children[pidfd] = pid, status
            self._poll.register(pidfd, select.POLLIN)
            self._poll.register(status, 0)  # reports that its reader is gone
        for fd in fds:
            os.close(fd)
        return None

    def _end(self) -> None:
        self._listening = False
        self._poll.unregister(self._orders)
        self._orders.close()

    def _ended(self, pidfd: int) -> None:
        pid, status = self._children.pop(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        for fd in (pidfd, status):
            with suppress(KeyError):
                self._poll.unregister(fd)
        with suppress(BrokenPipeError):
            os.write(status, str(code).encode())
        os.close(status)
        os.close(pidfd)

    def _wake_child_of(self, status: int) -> None:
        with suppress(KeyError):  # it ended in the same round
            self._poll.unregister(status)
        for pid in (pid for pid, its in self._children.values() if its == status):
            os.kill(pid, signal.SIGCONT)

    def _ready(self, module: str) -> bool:
        """Imports a module; returns whether processes that run it may be forked."""
        with suppress(Exception):  # the forked process meets it too, and shows it
            for name in getattr(import_module(module), "PRELOADED", ()):
                import_module(name)
        if not _alone():
            return False
        for loaded in list(sys.modules.values()):
            path = getattr(loaded, "__file__", None)
            if path is None:
                continue
            try:
                found = os.stat(path)
            except OSError:
                return False
            now = found.st_size, found.st_mtime_ns
            if self._files.setdefault(path, now) != now:
                return False
        return True


def _alone() -> bool:
    """Returns whether this process has no thread that a fork would lose."""
    names, deadline = _other_threads(), time.monotonic() + _NAMED_SECONDS
    while not names <= _HARMLESS_THREADS and time.monotonic() < deadline:
        time.sleep(0.01)
        names = _other_threads()
    return names <= _HARMLESS_THREADS


def _other_threads() -> set[str]:
    names = set[str]()
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            with suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:
                names.add(file.read().strip())
    return names


def _become(module: str, environ: dict[bytes, bytes], fds: list[int]) -> None:
    os.setsid()
    stdin, stdout, status = fds
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    for fd in (stdin, stdout):
        os.close(fd)
    wake_with_parent()
    os.environb.clear()
    os.environb.update(environ)
    time.tzset()
    show([sys.executable, "-m", child_start.__name__, module])
    os.write(status, b"%8d" % os.getpid())
    os.close(status)


def show(arguments: Sequence[str]) -> None:
    """Makes these and the environment what ``ps`` and ``/proc`` show of this process, in the place
    of the server's, whose strings nothing uses any more. What does not fit is not shown."""
    with open("/proc/self/stat", "rb") as file:
        ends = list(map(int, file.read().rpartition(b") ")[2].split()[45:49]))
    environ = [b"%s=%s" % each for each in os.environb.items()]
    command = list(map(os.fsencode, arguments))
    for strings, first, end in ((command, *ends[:2]), (environ, *ends[2:])):
        shown = b"".join(string + b"\0" for string in strings)
        if first and len(shown) <= end - first:
            ctypes.memmove(first, shown.ljust(end - first, b"\0"), end - first)


if __name__ == "__main__":
    child_start.prepare()
    # Python 3.12 and later warn of each fork beside a thread, also of a harmless one
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    child_start.run(_Server(socket.socket(fileno=int(sys.argv[1]))).module())
