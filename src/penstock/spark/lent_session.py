"""Opens a session in a warm JVM, one that stays between runs, if the run's settings permit it.

The settings at a JVM's start are the same for all its runs and part of its key: Penstock's, those
of the table format, memory, slots, Java options, an environment without variables of a single run.
SQL settings of a pipeline file are set in the run's own session. A run that needs more (other jars,
catalogs, credentials for Hadoop, Spark's own configuration files or variables) gets its own JVM.
Not here: finding the JVM (``warm``), the session in it (``warm_jvm``), a run's own JVM
(``session``)."""

import os
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from penstock.errors import Defect, PenstockError
from penstock.runtimes.env import clean_environment
from penstock.spark import warm
from penstock.spark.java import JavaHome
from penstock.spark.java_command import JavaOptions, spark_home
from penstock.spark.jvm import prepared
from penstock.spark.warm_jvm import ATTACH_SECONDS, WarmJvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS = 300.0
RELEASE_SECONDS = 2.0  # how long a stopped run lets a JVM live that ran before it
_AT_START = ("spark.driver.memory", "spark.driver.maxResultSize", "spark.memory.fraction",
             "spark.memory.storageFraction")  # fmt: skip
_OF_ALL_SESSIONS = ("spark.sql.catalog", "spark.sql.extensions", "spark.sql.hive.",
                    "spark.sql.warehouse.", "spark.sql.artifact.")  # fmt: skip
_FOR_MANY = {
    "spark.python.worker.reuse": "false",  # no Python worker serves tasks of two runs
    # else each session's Python workers are forked by a daemon of its own, which stays
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.scheduler.mode": "FAIR",  # between the pools of runs
    # as PySpark sets them where it makes the context
    "spark.rdd.compress": "True",
    "spark.serializer.objectStreamReset": "100",
}
_GIVES_MEMORY_BACK = "-XX:G1PeriodicGCInterval=30000"  # while it is idle; milliseconds
_JAVA_READS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "LD_LIBRARY_PATH",
               "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME")  # fmt: skip
_STEERS = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "HIVE_")
_HARMLESS = ("SPARK_HOME", "HADOOP_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON",
             "SPARK_LOCAL_IP", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")  # fmt: skip


class Settings(Protocol):
    """Makes the settings of a JVM's start."""

    def __call__(self, scratch: Path, *more: Mapping[str, str]) -> dict[str, str]:
        """Returns Penstock's settings for a JVM whose temporary files go to ``scratch``, with
        ``more`` over them."""
        ...


class SessionPaths(NamedTuple):
    """Holds the paths of a borrowed session. ``log``: the run's file for what Java prints.
    ``stays_with``: the folder without which the JVM is ended."""

    cache: Path
    log: Path
    stays_with: Path


def borrow(
    settings: Settings,
    format_conf: Mapping[str, str],
    conf: Mapping[str, str],
    java: JavaHome,
    wanted: JavaOptions,
    environment: Callable[[Mapping[str, str]], dict[str, str]],
    place: SessionPaths,
    slots: warm.Slots,
    check: Callable[[], None],
) -> "tuple[SparkSession, WarmJvm] | None":
    """Opens a session in a warm JVM, and starts the JVM if there is none. ``conf``: settings of the
    pipeline file. ``environment``: completes the variables for a JVM's start. ``slots``: of the run
    and of the JVM. ``check``: called while waiting; it may raise. Returns None if the run must have
    its own JVM."""
    at_start = {name: value for name, value in conf.items() if name in _AT_START}
    later = {name: value for name, value in conf.items() if name not in at_start}
    if not all(map(_can_be_set, later)) or any(map(_steers_spark, os.environ)):
        return None
    if (spark_home() / "conf").is_dir():
        return None
    environ = environment(_kept_environment())
    wanted = msgspec.structs.replace(wanted, options=(*wanted.options, _GIVES_MEMORY_BACK))

    def at(folder: Path) -> dict[str, str]:
        return settings(folder, _FOR_MANY, format_conf, at_start)

    @contextmanager
    def start(folder: Path) -> Generator[warm.KeeperStart]:
        with prepared(at(folder), environ, wanted, folder, folder) as how:
            yield warm.KeeperStart(how.command, how.environ, how.answer)

    root = warm.folder_of_all(place.cache)
    conf_at_start = at(Path())
    key = warm.key_of(
        root,
        {
            "java": (java.home, java.version),
            "spark": (spark_home(), metadata.version("pyspark")),
            "python": (sys.executable, sys.version),
            "jars": wanted.jars,
            "options": wanted.options,
            "conf": conf_at_start,
            "environ": {k: v for k, v in environ.items() if k != "PATH"},
        },
    )
    if key is None:
        return None
    about = {
        "master": conf_at_start["spark.master"],
        "java": java.version,
        "jars": [p.name for p in wanted.jars],
    }
    terms = warm.terms(place.stays_with, about)
    lease = warm.lease(root, key, start, terms, slots, check, START_SECONDS)
    return None if lease is None else _opened(WarmJvm(lease, place.log), later, check)


def _opened(
    jvm: WarmJvm, conf: Mapping[str, str], check: Callable[[], None]
) -> "tuple[SparkSession, WarmJvm] | None":
    stopped: list[PenstockError] = []
    spark: SparkSession | None = None
    patient = check if jvm.process.first else _after(RELEASE_SECONDS, check)
    try:
        with jvm.killed_when(_within(ATTACH_SECONDS, patient), stopped):
            spark = jvm.attach()
            if fits := all(map(spark.conf.isModifiable, conf)):
                for name, value in conf.items():
                    spark.conf.set(name, value)
    except Exception:  # whatever PySpark and py4j raise: the run then starts a JVM of its own
        jvm.process.kill()
        fits = False
    if spark is not None and fits and not stopped:
        return spark, jvm
    jvm.end(lambda: None)
    check()  # raises where the user stopped the run, so that no other JVM is started
    return None


def _after(seconds: float, check: Callable[[], None]) -> Callable[[], None]:
    begins = time.monotonic() + seconds

    def checked() -> None:
        if time.monotonic() > begins:
            check()

    return checked


def _within(seconds: float, check: Callable[[], None]) -> Callable[[], None]:
    deadline = time.monotonic() + seconds

    def checked() -> None:
        check()
        if time.monotonic() > deadline:
            raise Defect("a JVM that stayed does not answer")

    return checked


def _can_be_set(name: str) -> bool:
    """Returns whether a setting may be set in a running session, by its name; Spark checks it
    later."""
    return name.startswith("spark.sql.") and not name.startswith(_OF_ALL_SESSIONS)


def _steers_spark(variable: str) -> bool:
    """Returns whether Spark or Hadoop reads a variable at its start, so that a warm JVM, which
    lacks it, would behave differently."""
    return variable.startswith(_STEERS) and variable not in _HARMLESS


def _kept_environment() -> dict[str, str]:
    """Returns the variables that a warm JVM gets from the run that starts it: none that belong to
    one run alone."""
    known = {n: os.environ[n] for n in _JAVA_READS if n in os.environ}
    return clean_environment(known, allowed=())
