"""Starts the JVM of a session, connects PySpark to it, and ends it; every wait is bounded (L11).

A run's own JVM (``start_jvm``) ends with the run; one that a keeper lends is given back
(``warm_jvm``). Not here: the process (``gateway``), its command line (``java_command``), the
settings (``session``).
"""

# pyright: reportPrivateUsage=false
# PySpark has no public way to attach a session to a JVM that it did not start.

import logging
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import IO, Any, NamedTuple, Protocol

import msgspec
from py4j.clientserver import JavaParameters
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.files import write_new
from penstock.runtimes.stopped import LOOK_SECONDS, StoppedProcess, is_stopped
from penstock.spark.error_text import died, start_failure, was_stopped
from penstock.spark.gateway import Address, address, spawn
from penstock.spark.java_command import JavaOptions, java_command
from penstock.spark.java_user import log_in
from penstock.spark.properties import properties_text
from penstock.spark.sockets import with_sockets

LOG = "spark.log"
_TEMPORARY = "java"  # the folder of Java's own temporary files
CLOSE_SECONDS = 20.0
_LOG_TAIL = 20_000
_WATCH_SECONDS = 0.1
STOPPED_SECONDS = (
    30.0  # a JVM that is stopped (SIGSTOP) for so long is killed: no call would return
)
_connecting = threading.Lock()


class Process(Protocol):
    """Defines the methods of ``subprocess.Popen`` that are used for a JVM's process, whether this
    process or a keeper started it."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


class Jvm:
    """Watches and ends a running JVM. ``log``: the file with all Java output. ``lent``: other runs
    use it too."""

    lent = False

    def __init__(self, process: Process, log: Path) -> None:
        self.process = process
        self.log = log
        self._was_stopped = False

    def end(self, stop: Callable[[], object], seconds: float = CLOSE_SECONDS) -> None:
        """Ends this run's use of the JVM. ``stop`` stops the session, within ``CLOSE_SECONDS``; the
        rest takes at most ``seconds``."""
        raise NotImplementedError

    def death(self, seconds: float) -> PenstockError | None:
        """Returns the error for a JVM that ended by itself, now or within so many seconds; None if
        it lives."""
        try:
            code = self.process.wait(seconds) if seconds else self.process.poll()
        except subprocess.TimeoutExpired:
            return None
        if code is not None and self._was_stopped:
            return was_stopped(STOPPED_SECONDS, str(self.log))
        return None if code is None else died(code, self.output_end(), str(self.log))

    def end_where_stopped(self) -> None:
        """Has a thread kill the JVM once it has been stopped for :data:`STOPPED_SECONDS`."""

        def look() -> None:
            watched = StoppedProcess(self.process.pid)
            while self.process.poll() is None:
                if watched.seconds() >= STOPPED_SECONDS:
                    self._was_stopped = True
                    self.process.kill()
                time.sleep(LOOK_SECONDS)

        threading.Thread(target=look, name="spark-stopped", daemon=True).start()

    def output_end(self) -> str:
        """Returns the end of Java's output."""
        return tail(self.log)

    @contextmanager
    def killed_when(
        self, check: Callable[[], None], raised: list[PenstockError]
    ) -> Generator[None]:
        """Calls ``check`` ten times a second in a thread; once it raises, appends the error to
        ``raised`` and kills the JVM, so that a call into it returns."""
        self.end_where_stopped()
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_WATCH_SECONDS):
                try:
                    check()
                except PenstockError as e:
                    raised.append(e)
                    self.process.kill()
                    return

        watcher = threading.Thread(target=watch, name="spark-watch", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


class OwnJvm(Jvm):
    """Ends a JVM that this run started, together with its session or with this process."""

    process: subprocess.Popen[bytes]

    def end(self, stop: Callable[[], object], seconds: float = CLOSE_SECONDS) -> None:
        """Runs ``stop``, then ends the process, and kills it after ``seconds``. Calls nothing in a
        JVM that is dead already, or stopped."""
        if is_stopped(self.process.pid):
            self.process.kill()
            self.process.wait()
        if self.process.poll() is not None:
            let_go()
            return
        stopper = threading.Thread(target=stop, name="spark-stop", daemon=True)
        stopper.start()
        stopper.join(CLOSE_SECONDS)
        if stopper.is_alive():
            let_go()
        elif (gateway := let_go()) is not None:
            gateway.shutdown()
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class GatewayStart(NamedTuple):
    """Holds the arguments of :func:`penstock.spark.gateway.spawn`, and the file ``answer`` to which
    the gateway writes its address."""

    command: list[str]
    environ: dict[str, str]
    folder: Path
    answer: Path


@contextmanager
def prepared(
    conf: Mapping[str, str],
    environ: Mapping[str, str],
    wanted: JavaOptions,
    folder: Path,
    scratch: Path,
) -> Generator[GatewayStart]:
    """Writes the settings to a file in ``folder``, which is private, and yields how to start a JVM
    with them; removes the file at the end of the block, when the JVM must have read it. Java's
    temporary files go to ``scratch``: a killed JVM leaves them behind."""
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = scratch / _TEMPORARY
    temporary.mkdir(exist_ok=True, mode=0o700)
    conf = with_sockets(conf, scratch)
    at = f"-Djava.io.tmpdir={temporary}"
    wanted = msgspec.structs.replace(wanted, options=(at, *wanted.options))
    name = secrets.token_hex(4)
    properties, answer = folder / f"conf-{name}.properties", folder / f"gateway-{name}"
    write_new(properties, properties_text(conf).encode())
    try:
        command, own = java_command(properties, conf, environ, wanted)
        own |= {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer), "SPARK_CONNECT_MODE": "0"}
        yield GatewayStart(command, own, folder, answer)
    finally:
        answer.unlink(missing_ok=True)
        properties.unlink(missing_ok=True)


def start_jvm(
    conf: Mapping[str, str],
    environ: Mapping[str, str],
    wanted: JavaOptions,
    folder: Path,
    scratch: Path,
    timeout: float,
    check: Callable[[], None],
) -> OwnJvm:
    """Starts a JVM and connects PySpark to it. ``folder``: private to this run, for settings and
    log; ``scratch``: for temporary files. ``check``: called while waiting; it may raise to stop the
    start.

    Raises ``ConfigError`` (``spark.not_started``) or ``DestinationError``
    (``spark.jars_unresolved``) if Java ends or does not answer within ``timeout`` seconds."""
    silence_dead_java()
    log = folder / LOG
    with prepared(conf, environ, wanted, folder, scratch) as start:
        process = spawn(start.command, start.environ, folder, log)
        try:
            connect(_await(process, start.answer, timeout, log, check))
        except BaseException:
            process.kill()
            process.wait()
            raise
    return OwnJvm(process, log)


def silence_dead_java() -> None:
    """Suppresses the stack traces that py4j logs for a JVM that died, some of them by the root
    logger, and the one that PySpark's server of accumulators prints; the error that follows is
    reported instead."""
    from pyspark import accumulators

    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _ignore  # pyright: ignore[reportAttributeAccessIssue]
    logger = logging.getLogger("py4j")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logging.getLogger().addFilter(_not_py4j)


def _ignore(server: object, request: object, client_address: object) -> None:
    del server, request, client_address


def _not_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _await(
    process: "subprocess.Popen[bytes]",
    answer: Path,
    timeout: float,
    log: Path,
    check: Callable[[], None],
) -> Address:
    deadline = time.monotonic() + timeout
    while (found := address(answer)) is None:
        check()
        ended, late = process.poll() is not None, time.monotonic() > deadline
        if ended or late:
            raise start_failure(tail(log), str(log), None if ended else timeout)
        time.sleep(0.03)
    return found


def tail(log: Path) -> str:
    """Returns the end of a log file, at most 20,000 bytes; empty if it cannot be read."""
    with suppress(OSError), log.open("rb") as file:
        return end_of(file)
    return ""


def end_of(file: IO[bytes]) -> str:
    """Returns the end of an open file as text, at most 20,000 bytes."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL))
    return file.read().decode(errors="replace")


def connect(to: Address, seconds: float | None = None) -> None:
    """Connects PySpark to a gateway. ``seconds``: how long a call into the JVM waits for its
    answer, until :func:`wait_for_calls`. PySpark expects port and secret of a gateway that it did
    not start in environment variables, which a process that another thread starts would inherit; so
    its function gets a separate environment."""
    given = {"PYSPARK_GATEWAY_PORT": str(to.port), "PYSPARK_GATEWAY_SECRET": to.secret}
    of_its_own = {
        "os": SimpleNamespace(environ={**os.environ, **given}),
        "JavaParameters": partial(JavaParameters, read_timeout=seconds),
    }
    launch = FunctionType(
        launch_gateway.__code__,
        {**launch_gateway.__globals__, **of_its_own},
        argdefs=launch_gateway.__defaults__,
    )
    with _connecting:
        SparkContext._ensure_initialized(gateway=launch())
    log_in(SparkContext._jvm)


def wait_for_calls() -> None:
    """Makes calls into the JVM wait as long as they take."""
    gateway: Any = SparkContext._gateway
    gateway.java_parameters.read_timeout = None
    for connection in list(gateway._gateway_client.deque):
        connection.socket.settimeout(None)


def let_go() -> Any:
    """Disconnects PySpark from the JVM, so that it can connect to another; returns the gateway."""
    gateway = SparkContext._gateway
    SparkContext._gateway, SparkContext._jvm = None, None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    return gateway
