"""A standalone Spark cluster on loopback: one master, workers of one core each, from the classes
that the pip package brings. Ended with everything that it started. Its ports ask for a secret,
which no command line bears; ``conf`` is what a session needs for it.

Executors run in folders below the cluster's own; their Java is the one that a session would use.
The last worker does not share :attr:`Cluster.alone` with the others: it has a file system of its
own there, in a mount namespace, with a Python that lacks Penstock (:attr:`Cluster.python`).
"""

import functools
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import platformdirs
import pyspark

from penstock.spark.class_archive import use_options
from penstock.spark.java import find_java
from penstock.spark.java_command import class_path

SPARK_HOME = Path(pyspark.__file__).parent
REGISTER_SECONDS = 90.0
_OF_EXECUTORS = "spark.executor.extra"
PLAIN_PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info[1]}"


@functools.cache
def mapped_classes() -> dict[str, str]:
    """Settings by which executors map Spark's classes from the archive that a driver uses, if there
    is one: they start sooner."""
    options = use_options(find_java(), (), platformdirs.user_cache_path("penstock"))
    if not options:
        return {}
    return {
        f"{_OF_EXECUTORS}ClassPath": os.pathsep.join(map(str, class_path())),
        f"{_OF_EXECUTORS}JavaOptions": shlex.join(options),
    }


@functools.cache
def namespaces() -> tuple[str, ...]:
    """The options of ``unshare`` for a mount namespace; empty where this machine gives none."""
    for options in (("-m",), ("-r", "-m")):
        command = ["unshare", *options, "sh", "-c", "mount -t tmpfs none /mnt"]
        with suppress(FileNotFoundError):
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return options
    return ()


class Cluster:
    """``hosts``: the addresses of its workers, on loopback; Spark runs a task a second time at once
    only on another host."""

    def __init__(self, folder: Path, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")) -> None:
        self.folder = folder
        self.address = ""
        self.conf = {
            "spark.executor.memory": "1g",
            "spark.authenticate": "true",
            "spark.authenticate.secret": secrets.token_hex(16),
            "spark.network.crypto.enabled": "true",
            **mapped_classes(),
        }
        self._hosts = hosts
        self.alone = folder / "alone"
        self.python = self.alone / "python"
        self.only_last = {"spark.executor.memory": "1600m"}  # an executor that only it has room for
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.alone.mkdir()
        self.python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        self.python.chmod(0o755)
        self._properties = self.folder / "cluster.properties"
        self._properties.touch(0o600)
        self._properties.write_text("".join(f"{k} {v}\n" for k, v in self.conf.items()))
        try:
            master = self._start("master", "master.Master", "--port", "0")
            port = self._found(master, r"'sparkMaster' on port (\d+)")
            self.address = f"spark://127.0.0.1:{port}"
            for number, host in enumerate(self._hosts):
                place = str(self.folder / f"work-{number}")
                last = number == len(self._hosts) - 1
                memory = "1700m" if last else "1500m"
                arguments = ["--cores", "1", "--memory", memory, "--work-dir", place]
                self._start(
                    f"worker-{number}",
                    "worker.Worker",
                    *arguments,
                    self.address,
                    host=host,
                    before=self._unshared() if last else (),
                )
            for number in range(len(self._hosts)):
                self._found(self.folder / f"worker-{number}.log", r"(Successfully registered)")
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)

    def _unshared(self) -> Sequence[str]:
        """A command before that of a worker, which gets another folder at :attr:`alone`."""
        if not namespaces():
            return ()
        python = f'#!/bin/sh\nexec {PLAIN_PYTHON} "$@"\n'
        script = (
            'mount -t tmpfs none "$0" && printf %s "$1" > "$0/python" && chmod 755 "$0/python" '
            '&& shift && exec "$@"'
        )
        return ("unshare", *namespaces(), "sh", "-c", script, str(self.alone), python)

    def pid_of(self, number: int) -> int:
        """The process of a worker, by its number."""
        return self._processes[1 + number].pid

    def _start(
        self,
        name: str,
        role: str,
        *arguments: str,
        host: str = "127.0.0.1",
        before: Sequence[str] = (),
    ) -> Path:
        java, mapped = find_java(), mapped_classes()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "SPARK_"))}
        log = self.folder / f"{name}.log"
        command: list[Any] = [*before, SPARK_HOME / "bin" / "spark-class"]
        command += [f"org.apache.spark.deploy.{role}", "--host", host, "--webui-port", "0"]
        command += ["--properties-file", str(self._properties)]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.folder,
                start_new_session=True,
                env={
                    **kept,
                    "JAVA_HOME": str(java.home),
                    "SPARK_HOME": str(SPARK_HOME),
                    "SPARK_LOCAL_IP": host,
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_CLASSPATH": mapped.get(f"{_OF_EXECUTORS}ClassPath", ""),
                    "SPARK_DAEMON_JAVA_OPTS": mapped.get(f"{_OF_EXECUTORS}JavaOptions", ""),
                    "SPARK_NO_DAEMONIZE": "1",
                },
            )
        self._processes.append(process)
        return log

    def _found(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + REGISTER_SECONDS
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.1)
        raise AssertionError(f"{log.name}: {log.read_text(errors='replace')[-2000:]}")
