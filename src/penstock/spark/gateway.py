"""The JVM under a session: started, connected to, ended; every wait bounded.

It is started through Spark's own launcher with its output in a file (a user sees nothing of it),
in a process group of its own (Ctrl-C reaches us alone) and with our end of a pipe as its stdin:
Spark's gateway exits when that pipe ends, so the JVM dies with us even when we are SIGKILLed.
Not here: what is configured (``session``). Only this module and ``session`` reach below the session
API of Spark Connect.
"""

# pyright: reportPrivateUsage=false
# PySpark has no public way to attach a session to a JVM that it did not start.

import os
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway

from penstock.spark.failures import start_failure

CLOSE_SECONDS = 20.0
_LOG_TAIL = 20_000
_connecting = threading.Lock()


class Jvm:
    """A running gateway. ``log`` takes everything that Java prints."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    def end(self, stop: Callable[[], object], seconds: float = CLOSE_SECONDS) -> None:
        """Run ``stop``, then end the process within ``seconds``; by force after that."""
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


def start_jvm(
    conf: Mapping[str, str], environ: Mapping[str, str], folder: Path, timeout: float
) -> Jvm:
    """Start and connect. ``folder`` (private to this run) takes properties and log.

    Raises ``ConfigError`` (``spark.not_started``) or ``DestinationError``
    (``spark.jars_unresolved``) when Java ends or does not answer within ``timeout`` seconds.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    properties, answer, log = folder / "conf.properties", folder / "gateway", folder / "spark.log"
    answer.unlink(missing_ok=True)
    _write_private(properties, "".join(f"{_key(k)}={_value(v)}\n" for k, v in conf.items()))
    spark_home = Path(pyspark.__file__).parent
    command = [str(spark_home / "bin" / "spark-submit"), "--properties-file", str(properties)]
    command += ["--load-spark-defaults", "pyspark-shell"]
    own = {"SPARK_HOME": str(spark_home), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer)}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environ, **own, "SPARK_CONNECT_MODE": "0"},
            cwd=folder,
            process_group=0,
        )
    jvm = Jvm(process, log)
    try:
        _await(process, answer, timeout, log)
        _connect(answer)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        answer.unlink(missing_ok=True)
        properties.unlink(missing_ok=True)
    return jvm


def _await(process: subprocess.Popen[bytes], answer: Path, timeout: float, log: Path) -> None:
    deadline = time.monotonic() + timeout
    while not answer.is_file():
        ended, late = process.poll() is not None, time.monotonic() > deadline
        if ended or late:
            said = log.read_text(errors="replace")[-_LOG_TAIL:]
            raise start_failure(said, str(log), None if ended else timeout)
        time.sleep(0.03)


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


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


def _key(name: str) -> str:
    return "".join(f"\\{c}" if c in "\\ :=#!" else c for c in name)


def _value(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
