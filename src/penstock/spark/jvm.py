"""The JVM under a session: started, connected to, ended; every wait bounded.

One that is this run's own (``start_jvm``) ends with it; one that a keeper lends is given back
(``warm_jvm``).
Not here: its process (``gateway``), its command line (``java_command``), what is configured
(``session``). Only these modules reach below the session API of Spark Connect.
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
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.files import write_new
from penstock.spark.error_text import died, start_failure
from penstock.spark.gateway import Address, address, spawn
from penstock.spark.java_command import Wanted, java_command
from penstock.spark.properties import properties_text

LOG = "spark.log"
CLOSE_SECONDS = 20.0
_LOG_TAIL = 20_000
_WATCH_SECONDS = 0.1
_connecting = threading.Lock()


class Process(Protocol):
    """What is asked of a JVM's process, whoever started it (``subprocess.Popen``)."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


class Jvm:
    """A running gateway. ``log`` takes everything that Java prints."""

    def __init__(self, process: Process, log: Path) -> None:
        self.process = process
        self.log = log

    def end(self, stop: Callable[[], object], seconds: float = CLOSE_SECONDS) -> None:
        """Run ``stop``, then let go of it, within ``seconds`` and those that ``stop`` may take."""
        raise NotImplementedError

    def death(self, seconds: float) -> PenstockError | None:
        """Why it ended by itself, within so many seconds; None: it did not."""
        try:
            code = self.process.wait(seconds) if seconds else self.process.poll()
        except subprocess.TimeoutExpired:
            return None
        return None if code is None else died(code, self.said(), str(self.log))

    def said(self) -> str:
        """The end of what Java printed."""
        return tail(self.log)

    @contextmanager
    def killed_when(
        self, check: Callable[[], None], raised: list[PenstockError]
    ) -> Generator[None]:
        """Kill it once ``check`` raises, which goes to ``raised``: calls into it then end."""
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
    """This run's alone: it ends with the session, or with this process."""

    process: subprocess.Popen[bytes]

    def end(self, stop: Callable[[], object], seconds: float = CLOSE_SECONDS) -> None:
        """Run ``stop``, then end the process within ``seconds``; by force after that. One that is
        dead already is not talked to."""
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


class Start(NamedTuple):
    """How to start a JVM: what :func:`penstock.spark.gateway.spawn` wants, and where its gateway
    answers."""

    command: list[str]
    environ: dict[str, str]
    folder: Path
    answer: Path


@contextmanager
def prepared(
    conf: Mapping[str, str], environ: Mapping[str, str], wanted: Wanted, folder: Path
) -> Generator[Start]:
    """``folder`` is private; the settings lie there until the JVM has read them."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = secrets.token_hex(4)
    properties, answer = folder / f"conf-{name}.properties", folder / f"gateway-{name}"
    write_new(properties, properties_text(conf).encode())
    try:
        command, own = java_command(properties, conf, environ, wanted)
        own |= {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer), "SPARK_CONNECT_MODE": "0"}
        yield Start(command, own, folder, answer)
    finally:
        answer.unlink(missing_ok=True)
        properties.unlink(missing_ok=True)


def start_jvm(
    conf: Mapping[str, str],
    environ: Mapping[str, str],
    wanted: Wanted,
    folder: Path,
    timeout: float,
    check: Callable[[], None],
) -> OwnJvm:
    """Start and connect. ``folder`` (private to this run) takes properties and log. ``check`` is
    called meanwhile, and may raise.

    Raises ``ConfigError`` (``spark.not_started``) or ``DestinationError``
    (``spark.jars_unresolved``) when Java ends or does not answer within ``timeout`` seconds.
    """
    silence_py4j()
    log = folder / LOG
    with prepared(conf, environ, wanted, folder) as start:
        process = spawn(start.command, start.environ, folder, log)
        try:
            connect(_await(process, start.answer, timeout, log, check))
        except BaseException:
            process.kill()
            process.wait()
            raise
    return OwnJvm(process, log)


def silence_py4j() -> None:
    """Of a JVM that died py4j logs traces, some of them as the root logger; the error that follows
    is told."""
    logger = logging.getLogger("py4j")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logging.getLogger().addFilter(_not_py4j)


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
    """The end of what Java printed."""
    with suppress(OSError), log.open("rb") as file:
        return end_of(file)
    return ""


def end_of(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL))
    return file.read().decode(errors="replace")


def connect(to: Address) -> None:
    """Hand port and secret to PySpark in the way it takes them from a gateway it did not start."""
    with _connecting:
        os.environ["PYSPARK_GATEWAY_PORT"] = str(to.port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = to.secret
        try:
            SparkContext._ensure_initialized(gateway=launch_gateway())
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def let_go() -> Any:
    """PySpark forgets the JVM, so that another can be connected to. Gives its gateway."""
    gateway = SparkContext._gateway
    SparkContext._gateway, SparkContext._jvm = None, None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    return gateway
