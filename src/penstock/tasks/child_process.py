"""Starts a worker process from inside a Spark task, waits for it, and returns its answer.

Does no work after a fork of Spark's: the Python worker that calls this may have run anything, and
neither DuckDB nor wasmtime survives that. So a process does everything that begins fresh, spawned
or forked by one that only imports (``tasks.fork_server``). Imports only the standard library and
msgspec. On one machine the process gets the driver's environment, which is sent with the job: the
JVM and its Python workers may be older than this run.

A stopped process (SIGSTOP) would never answer and never notice that its owner is gone: it is killed
after :data:`STOPPED_SECONDS`. For the Spark task itself, which may be stopped too, a thread
rewrites a file, a sign of life that the driver watches (``tasks.spark_job``).

Neighbours: ``tasks.spark_job`` ships the call; ``engine.worker.lane`` and ``engine.worker.feeder``
are the processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from penstock.errors import Defect, LogError
from penstock.files import write_new
from penstock.model.variables import OF_SPARK
from penstock.runtimes.stopped import LOOK_SECONDS, StoppedProcess, this_process, wake_with_parent
from penstock.tasks import child_start, fork_server
from penstock.tasks.fork_server import Environment, ForkedProcess

CLAIMED = 75  # the child's exit code when another process ran this epoch first
STOPPED_SECONDS = 60.0  # a process that is stopped for so long is killed
BEAT_SECONDS = 5.0  # between two signs of life
_OF_SPARK = tuple(map(str.encode, OF_SPARK))


def packed(job: bytes, environ: Environment | None) -> bytes:
    """Encodes a job with the environment of its process; None: the environment of the Spark
    task."""
    return msgspec.msgpack.encode((job, None if environ is None else dict(environ)))


def supervise_packed(module: str, content: bytes, alive: str) -> bytes:
    """Decodes the result of :func:`packed` and calls :func:`supervise` in a Spark task. ``alive``:
    the file of its signs of life."""
    job, environ = msgspec.msgpack.decode(content, type=tuple[bytes, dict[bytes, bytes] | None])
    wake_with_parent()
    with _signs_of_life(alive):
        return supervise(module, job, environ)


def supervise(module: str, job: bytes, environ: Environment | None = None) -> bytes:
    """Runs a module (``tasks.child_start``), writes ``job`` (``LaneJob``, ``PushJob`` as
    JSON) to its stdin, and returns the answer that it writes to stdout as JSON. ``environ``: see
    :func:`packed`.

    Raises ``LogError`` (``log.claimed``) when the same job ran before, ``Defect`` (``lane.lost``)
    when the process ended without an answer; both make the Spark task fail, and the driver open a
    new epoch. The process stops by itself when the Spark task's process dies: its stdin ends."""
    env = environment(os.environb if environ is None else environ)
    child = fork_server.fork(module, env) or _spawn(module, env)
    watch = _Watch(child)
    try:
        if child.stdin is None or child.stdout is None:
            raise Defect(f"{module} has no pipes")
        try:
            child.stdin.write(msgspec.msgpack.encode(len(job)) + job)
            child.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once: its exit code below shows why
        result = child.stdout.read()
        code = child.wait(timeout=60)
    finally:
        watch.end()
        _end(child)
    if watch.killed:
        raise Defect(
            f"{module} was stopped (SIGSTOP) for {STOPPED_SECONDS:.0f} s on "
            f"{os.uname().nodename}, and was killed",
            code="lane.lost",
        )
    if code == CLAIMED:
        raise LogError("this job has run already", code="log.claimed")
    if code != 0 or not result:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise Defect(f"{module} ended without a result ({how})", code="lane.lost")
    return result


def _spawn(module: str, env: Environment) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", child_start.__name__, module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
        env=env,
    )


class _Watch:
    """Kills a child, and what it started, once it has been stopped for :data:`STOPPED_SECONDS`."""

    def __init__(self, child: "subprocess.Popen[bytes] | ForkedProcess") -> None:
        self.killed = False
        self._child, self._over = child, threading.Event()
        threading.Thread(target=self._look, name="stopped", daemon=True).start()

    def end(self) -> None:
        """Ends the watch; nothing is killed after it."""
        self._over.set()

    def _look(self) -> None:
        watched = StoppedProcess(self._child.pid)
        while not self._over.wait(LOOK_SECONDS):
            if watched.seconds() >= STOPPED_SECONDS:
                self.killed = True
                with suppress(ProcessLookupError):
                    os.killpg(self._child.pid, signal.SIGKILL)
                return


@contextmanager
def _signs_of_life(path: str) -> Generator[None]:
    """Rewrites a file every few seconds while the block runs: a number and this process's name, in
    place, since a full disk takes no new file. Writes nothing if the folder is not writable; the
    driver then waits without signs of life."""
    over, name = threading.Event(), this_process().encode()

    def sign(number: int) -> bytes:
        return b"%020d %s" % (number, name)

    def beat() -> None:
        number = 0
        while True:
            number += 1
            with suppress(OSError), open(path, "r+b") as file:
                file.write(sign(number))
            if over.wait(BEAT_SECONDS):
                return

    with suppress(OSError):
        write_new(Path(path), sign(0))
    threading.Thread(target=beat, name="alive", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def environment(given: Environment) -> dict[bytes, bytes]:
    """Returns a worker process's environment: without Spark's own variables, with this package's
    folder in ``PYTHONPATH``, and with Arrow on the system's allocator unless it names another: of a
    lane that decodes, Arrow's own keeps 50 MB more at the same speed (docs/benchmarks.md)."""
    kept = {k: v for k, v in given.items() if not k.startswith(_OF_SPARK)}
    paths = [p for p in sys.path if p and os.path.isdir(os.path.join(p, "penstock"))]
    if paths:
        kept[b"PYTHONPATH"] = os.fsencode(os.pathsep.join(paths))
    kept[b"PYTHONSAFEPATH"] = b"1"
    kept.setdefault(b"ARROW_DEFAULT_MEMORY_POOL", b"system")
    return kept


def _end(child: "subprocess.Popen[bytes] | ForkedProcess") -> None:
    if child.stdin is not None:
        child.stdin.close()
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(timeout=10)
