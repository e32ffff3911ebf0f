"""The JVM under a session: started, connected to, ended; every wait bounded.

It is started with its output in a file (a user sees nothing of it), in a process group of its own
(Ctrl-C reaches us alone) and with our end of a pipe as its stdin: Spark's gateway exits when that
pipe ends, so the JVM dies with us even when we are SIGKILLed.
Not here: its command line (``java_command``), what is configured (``session``). Only this module
and ``session`` reach below the session API of Spark Connect.
"""

# pyright: reportPrivateUsage=false
# PySpark has no public way to attach a session to a JVM that it did not start.

import logging
import os
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.files import PRIVATE, private, write_new
from penstock.spark.error_text import died, start_failure
from penstock.spark.java_command import Wanted, java_command
from penstock.spark.properties import properties_text

CLOSE_SECONDS = 20.0
_LOG_TAIL = 20_000
_WATCH_SECONDS = 0.1
_connecting = threading.Lock()


class Jvm:
    """A running gateway. ``log`` takes everything that Java prints."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    def end(self, stop: Callable[[], object], seconds: float = CLOSE_SECONDS) -> None:
        """Run ``stop``, then end the process within ``seconds``; by force after that. One that is
        dead already is not talked to."""
        if self.process.poll() is not None:
            SparkContext._gateway, SparkContext._jvm = None, None
            SparkContext._active_spark_context = None
            SparkSession._instantiatedSession = None
            return
        stopper = threading.Thread(target=stop, name="spark-stop", daemon=True)
        stopper.start()
        stopper.join(CLOSE_SECONDS)
        gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
        if gateway is not None and not stopper.is_alive():
            gateway.shutdown()
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def death(self, seconds: float) -> PenstockError | None:
        """Why it ended by itself, within so many seconds; None: it did not."""
        try:
            code = self.process.wait(seconds) if seconds else self.process.poll()
        except subprocess.TimeoutExpired:
            return None
        return None if code is None else died(code, _tail(self.log), str(self.log))

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


def start_jvm(
    conf: Mapping[str, str],
    environ: Mapping[str, str],
    wanted: Wanted,
    folder: Path,
    timeout: float,
    check: Callable[[], None],
) -> Jvm:
    """Start and connect. ``folder`` (private to this run) takes properties and log. ``check`` is
    called meanwhile, and may raise.

    Raises ``ConfigError`` (``spark.not_started``) or ``DestinationError``
    (``spark.jars_unresolved``) when Java ends or does not answer within ``timeout`` seconds.
    """
    silence_py4j()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    properties, answer, log = folder / "conf.properties", folder / "gateway", folder / "spark.log"
    answer.unlink(missing_ok=True)
    properties.unlink(missing_ok=True)
    write_new(properties, properties_text(conf).encode())
    command, own = java_command(properties, conf, environ, wanted)
    own |= {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer), "SPARK_CONNECT_MODE": "0"}
    with private(log, "ab") as output:
        os.fchmod(output.fileno(), PRIVATE)  # whatever the mode of one that was there
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=own,
            cwd=folder,
            process_group=0,
        )
    jvm = Jvm(process, log)
    try:
        _await(process, answer, timeout, log, check)
        _connect(answer)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        answer.unlink(missing_ok=True)
        properties.unlink(missing_ok=True)
    return jvm


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
    process: subprocess.Popen[bytes],
    answer: Path,
    timeout: float,
    log: Path,
    check: Callable[[], None],
) -> None:
    deadline = time.monotonic() + timeout
    while not answer.is_file():
        check()
        ended, late = process.poll() is not None, time.monotonic() > deadline
        if ended or late:
            raise start_failure(_tail(log), str(log), None if ended else timeout)
        time.sleep(0.03)


def _tail(log: Path) -> str:
    """The end of what Java printed."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL))
        return file.read().decode(errors="replace")
    return ""


def _connect(answer: Path) -> None:
    """Hand port and secret to PySpark in the way it takes them from a gateway it did not start."""
    raw = answer.read_bytes()
    port, length = struct.unpack(">ii", raw[:8])
    with _connecting:
        os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = raw[8 : 8 + length].decode()
        try:
            SparkContext._ensure_initialized(gateway=launch_gateway())
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
