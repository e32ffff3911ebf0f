"""Configures, opens, shares and closes the one Spark session of a process.

If the user's program has a session already, of any kind, runs get one next to it on the same Spark
(``users_session``). Otherwise it is local by default; a cluster by ``PENSTOCK_SPARK_MASTER`` or the
pipeline file; a Spark Connect server by an ``sc://`` address. Spark prints nothing on the user's
terminal: its log is in the run's folder.

Every session has: UTC, ANSI SQL, case-insensitive names (like Delta; column names are cleaned to
differ in more than case), timestamps in microseconds and the proleptic Gregorian calendar in
Parquet, no UI.

Java maps Spark's classes from an archive if there is one (``class_archive``). A local JVM may stay
for the next run (``lent_session``). Not here: the JVM process (``jvm``), which Java (``java``),
which jars (``jars``), the user's session (``users_session``)."""

import atexit
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import platformdirs

from penstock.errors import ConfigError, PenstockError
from penstock.files import umask
from penstock.spark.certificates import proxy_options, trust_options
from penstock.spark.class_archive import use_options
from penstock.spark.error_text import summary
from penstock.spark.jars import find_jars, keep_jars
from penstock.spark.java import JavaHome, find_java
from penstock.spark.java_command import JavaOptions
from penstock.spark.java_user import is_known, user_options, user_variables
from penstock.spark.open_files import refuse_too_few
from penstock.spark.scratch import remove_left, session_scratch
from penstock.spark.sockets import ENABLED, remove_scratch
from penstock.spark.users_session import beside, leave, masters_differ, users_session
from penstock.unused_packages import OF_CONNECT, let_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.jvm import Jvm

MASTER_VARIABLE = "PENSTOCK_SPARK_MASTER"
START_SECONDS = 300.0  # a busy machine needs minutes for what takes seconds
RESOLVE_SECONDS = 600.0
DRIVER_MEMORY = "2g"
_DESCRIPTION = "spark.job.description"
LENT_SLOTS = 4  # at least, of a JVM that stays: two runs of one lane at the same time
_LOOPBACK = "127.0.0.1"
_KILLED_SECONDS = 10.0
SCRATCH_WAREHOUSE = "penstock-scratch-warehouse"  # tables there end with the JVM
_BLOCKS, _IVY = "blocks", "ivy"  # in the session's scratch folder
_JOINED = {  # settings that add up: ours first
    "spark.jars": ",",
    "spark.jars.excludes": ",",
    "spark.sql.extensions": ",",
}


class Needs(Protocol):
    """Defines what a table format needs of the session (``tables.contract.SessionNeeds``)."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Maven coordinates of jars."""
        ...

    @property
    def conf(self) -> dict[str, str]:
        """Settings of the session."""
        ...

    @property
    def trial(self) -> tuple[str, ...]:
        """SQL statements that make Java load the format's classes (``class_archive_build``)."""
        ...


def _go_on() -> None:
    """Does nothing: the default ``check``, which stops no start."""


class _Open:
    """Holds the process's open session and counts its users. ``packages`` None: the session is next
    to the user's, whose jars are unknown here."""

    def __init__(
        self,
        spark: "SparkSession",
        jvm: "Jvm | None",
        master: str,
        packages: frozenset[str] | None,
        folder: Path,
    ) -> None:
        self.spark = spark
        self.jvm = jvm
        self.master = master
        self.packages = packages
        self.folder = folder
        self.users = 1

    def refuse(self, needs: Needs, chosen: str) -> None:
        """Raises ``ConfigError`` if a run with these needs cannot join."""
        if self.packages is None:
            return
        lacks = sorted(set(needs.packages) - self.packages)
        both_local = local_slots(chosen) and local_slots(self.master)
        if not lacks and (self.master == chosen or both_local):
            return
        other = f"without {', '.join(lacks)}" if lacks else f"on {self.master}"
        raise ConfigError(
            f"another run of this process has Spark open {other}: this one needs "
            f"{', '.join(lacks) or chosen}",
            code="spark.other_session",
            hint="run them one after the other, or each in a process of its own",
        )


_lock = threading.RLock()
_current: _Open | None = None
_opening = False  # a session of ours, which is not the user's while it is half open


def choose_master(
    master: str | None, cores: int, lanes: int, environ: Mapping[str, str] = os.environ
) -> str:
    """Returns the pipeline file's master, else that of the user's own session, else the
    environment's, else a local one with a slot for each core, and at least one more than there are
    lanes (sources mostly wait; loads need a slot)."""
    if master is None and (users := _users()) is not None:
        return str(users.conf.get("spark.master", "local"))
    return master or environ.get(MASTER_VARIABLE) or f"local[{max(cores, lanes + 1)}]"


def _users() -> "SparkSession | None":
    """Returns the session that the user's program has open; None: it has none."""
    if _current is not None:
        return _current.spark if _current.packages is None else None
    return None if _opening else users_session()


def programs_session() -> "SparkSession | None":
    """Returns the session in which the user's program itself works; None: it has none, or Spark was
    started for runs."""
    with _lock:
        return None if is_ours() else users_session()


def open_session(
    needs: Needs,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    cores: int | None = None,
    lanes: int = 1,
    scratch_dir: Path,
    cache_dir: Path | None = None,
    stays_with: Path | None = None,
    staying: Needs | None = None,
    check: Callable[[], None] = _go_on,
) -> "SparkSession":
    """Opens the process's session, or shares the open one (its settings are then those of the first
    opening; the same master or both local, with these jars).

    ``scratch_dir``: for the log (``spark.log``) and Spark's temporary files; ``cache_dir``
    (default: the user's cache folder): for files that later starts reuse. Each opening must be
    followed by one :func:`close_session`; a session that is open at exit is closed then.
    ``stays_with``: permits a warm JVM, which an earlier run left, which concurrent runs share and
    which is left for the next one, as long as this folder exists. ``check``: called while waiting;
    if it raises, everything started is ended. Raises ``ConfigError``, and ``DestinationError`` if
    Maven does not provide a jar."""
    global _current, _opening
    chosen = choose_master(master, cores or os.cpu_count() or 1, lanes)
    with _lock:
        if _current is not None:
            _current.refuse(needs, chosen)
            _current.users += 1
            return _current.spark
        folder = scratch_dir.resolve()
        cache = (cache_dir or platformdirs.user_cache_path("penstock")).resolve()
        if (users := users_session()) is not None:
            masters_differ(users, master)
            spark = beside(users, needs, _merge(session_conf(), conf or {}))
            _current = _Open(spark, None, chosen, None, folder)
            return spark
        _opening = True
        try:
            if chosen.startswith("sc://"):
                spark, jvm = _connect(chosen, conf or {}), None
            else:
                shared = None
                if stays_with is not None and chosen.startswith("local"):
                    shared = _Shared(_master_for_many(chosen, master), lanes + 1, stays_with)
                    needs = staying or needs
                with _own_interrupt():
                    spark, jvm = _start(needs, chosen, conf or {}, folder, cache, shared, check)
            _current = _Open(spark, jvm, chosen, frozenset(needs.packages), folder)
        finally:
            _opening = False
        atexit.register(_close_now)
        return spark


def _master_for_many(chosen: str, asked: str | None) -> str:
    """Returns the master of a JVM that runs share: with more slots, if the user requested no
    number. ``asked``: the pipeline file's master."""
    slots = local_slots(chosen)
    if asked or os.environ.get(MASTER_VARIABLE) or slots is None:
        return chosen
    return f"local[{max(slots, LENT_SLOTS)}]"


def may_open_early(master: str | None, lanes: int) -> bool:
    """Returns whether a session with these would be on a Spark of this machine that nobody has open
    in this process."""
    with _lock:
        free = _current is None and users_session() is None
        return free and choose_master(master, os.cpu_count() or 1, lanes).startswith("local")


def let_be_active(spark: "SparkSession") -> None:
    """Makes a session that another thread opened the active one of this thread. Otherwise, Java
    code that requests the active session would get the newest of the whole JVM, which runs may
    share."""
    jvm: Any = spark.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
    java: Any = spark._jsparkSession  # pyright: ignore[reportPrivateUsage]
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(java)


@contextmanager
def described(spark: "SparkSession", what: str) -> Generator[None]:
    """Gives the jobs that this thread starts in the block a description, which Spark's pages and
    its event log show. Spark Connect shows only the statement's own."""
    context: Any = getattr(spark, "sparkContext", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(what)
    try:
        yield
    finally:
        with suppress(Exception):  # of a JVM that died meanwhile: the job's own error counts
            context.setLocalProperty(_DESCRIPTION, before)


def discard_session(spark: "SparkSession") -> None:
    """Gives back a session in which nothing was done; kills a JVM of this run's own."""
    with _lock:
        if _current is None or _current.spark is not spark:
            return
        if _current.users == 1 and _current.jvm is not None and not _current.jvm.lent:
            _current.jvm.process.kill()
            _current.jvm.process.wait(_KILLED_SECONDS)
        close_session(spark)


def close_session(spark: "SparkSession", seconds: float = 20.0) -> None:
    """Gives the session back; the last user's call stops it within 20 seconds, and ends its JVM, or
    gives it back, within ``seconds`` more."""
    with _lock:
        if _current is None or _current.spark is not spark:
            return
        _current.users -= 1
        if _current.users <= 0:
            _close_now(seconds)


def _close_now(seconds: float = 20.0) -> None:
    global _current
    with _lock:
        closing, _current = _current, None
        atexit.unregister(_close_now)
        if closing is None:
            return
        if closing.packages is None:
            leave(closing.spark)
        elif closing.jvm is None:
            closing.spark.stop()
        else:
            closing.jvm.end(closing.spark.stop, seconds)
            remove_scratch(session_scratch(closing.folder))


class _Shared(NamedTuple):
    """Holds what a run needs from a JVM that runs share: its ``master``, how many slots the run
    needs, and the folder without which it ends."""

    master: str
    slots: int
    stays_with: Path


def _start(
    needs: Needs,
    master: str,
    conf: Mapping[str, str],
    folder: Path,
    cache: Path,
    shared: _Shared | None,
    check: Callable[[], None],
) -> "tuple[SparkSession, Jvm]":
    from penstock.spark.jvm import LOG, start_jvm

    refuse_too_few()
    java = find_java()
    found = find_jars(needs.packages, cache)
    remove_left(folder)
    scratch = session_scratch(folder)
    ivy = scratch / _IVY
    fetched: dict[str, str] = {}
    if found.missing:
        fetched = {"spark.jars.packages": ",".join(found.missing), "spark.jars.ivy": str(ivy)}
    # executors of a local master are in our JVM, which has the jars on its class path
    sent = "" if local_slots(master) else ",".join(map(str, found.files))
    merged = _merge(base_conf(master, scratch), {"spark.jars": sent, **fetched}, needs.conf, conf)
    wanted = JavaOptions(
        jars=found.files,
        options=(
            *(trust_options(cache) if java.packaged else ()),
            *proxy_options(),
            *user_options(cache),
        ),
        archive=tuple(use_options(java, found.files, cache)),
    )
    if shared is not None and not found.missing:
        lent = _borrow(needs, master, conf, java, wanted, folder / LOG, cache, shared, check)
        if lent is not None:
            return lent
    timeout = RESOLVE_SECONDS if found.missing else START_SECONDS
    environ = _environment(java, master)
    keep = partial(keep_jars, found.missing, ivy, cache)
    try:
        jvm = start_jvm(merged, environ, wanted, folder, scratch, timeout, check)
    except ConfigError:
        # Spark fetches the jars, and then opens a file before the user can be logged in by a name
        if not found.missing or is_known():
            raise
        keep()
        if find_jars(needs.packages, cache).missing:
            raise
        return _start(needs, master, conf, folder, cache, shared, check)
    return _first_session(jvm, merged, master, check, keep), jvm


def _borrow(
    needs: Needs,
    master: str,
    conf: Mapping[str, str],
    java: JavaHome,
    wanted: JavaOptions,
    log: Path,
    cache: Path,
    shared: _Shared,
    check: Callable[[], None],
) -> "tuple[SparkSession, Jvm] | None":
    """Opens a session in a JVM that runs share; None if the run must have its own."""
    from penstock.spark.lent_session import SessionPaths, borrow
    from penstock.spark.warm import Slots

    most = local_slots(shared.master) or 1
    # as many partitions as in a JVM of the run's own, whatever the slots
    parallel = {"spark.default.parallelism": str(local_slots(master) or 1)}
    return borrow(
        lambda scratch, *more: _merge(base_conf(shared.master, scratch), parallel, *more),
        needs.conf,
        conf,
        java,
        wanted,
        lambda given: _environment(java, master, given),
        SessionPaths(cache=cache, log=log, stays_with=shared.stays_with),
        Slots(min(shared.slots, most), most),
        check,
    )


def _first_session(
    jvm: "Jvm",
    settings: Mapping[str, str],
    master: str,
    check: Callable[[], None],
    keep: Callable[[], None],
) -> "SparkSession":
    """Opens the session of a JVM that was started, or ends that JVM. ``keep``: keeps the jars that
    it fetched, if any."""
    from pyspark.sql import SparkSession

    stopped: list[PenstockError] = []
    try:
        with jvm.killed_when(check, stopped):
            keep()
            spark = SparkSession.builder.getOrCreate()
            for name, value in settings.items():
                if name.startswith("spark.sql.") and spark.conf.isModifiable(name):
                    spark.conf.set(name, value)
        if stopped:
            raise stopped[0]
    except Exception as failure:
        said = summary(failure)  # calls the JVM
        jvm.end(lambda: None)
        if stopped:
            raise stopped[0] from None
        raise ConfigError(
            f"Spark did not start on {master}: {said}",
            code="spark.not_started",
            where=str(jvm.log),
            hint="check the master's address; `penstock doctor` checks Java and Spark",
        ) from failure
    return spark


@contextmanager
def _own_interrupt() -> Generator[None]:
    """Restores the SIGINT handler at the end of the block: PySpark replaces it by its own, which
    raises ``KeyboardInterrupt`` anywhere in the run."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _connect(address: str, conf: Mapping[str, str]) -> "SparkSession":
    let_in(*OF_CONNECT)
    from pyspark.sql import SparkSession

    try:
        builder = SparkSession.builder.remote(address)
        for name, value in {"spark.sql.session.timeZone": "UTC", **conf}.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except Exception as failure:
        raise ConfigError(
            f"no Spark Connect session at {address}: {summary(failure)}",
            code="spark.not_started",
            hint="check the address; the client needs the extra packages of pyspark[connect]",
        ) from failure


def base_conf(master: str, scratch: Path) -> dict[str, str]:
    """Returns Penstock's settings for a Spark on ``master``; settings of a table format or the user
    take precedence."""
    conf = session_conf() | {
        "spark.app.name": "penstock",
        "spark.master": master,
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.sql.warehouse.dir": str(scratch / SCRATCH_WAREHOUSE),
    }
    if master.startswith("local"):
        # Spark makes a fresh secret; without one any user of the machine may fetch blocks, and
        # send objects that are then deserialised
        conf["spark.authenticate"] = "true"
        conf["spark.network.crypto.enabled"] = "true"
        conf["spark.local.dir"] = str(scratch / _BLOCKS)
        conf["spark.python.daemon.module"] = "penstock.tasks.worker_daemon"
        conf[ENABLED] = "true"
        # Hadoop sets the mode of every file and folder that it makes, by a umask of its own
        conf["spark.hadoop.fs.permissions.umask-mode"] = f"{umask():03o}"
        # a heartbeat that meets the end of the session holds it up for one interval
        conf["spark.executor.heartbeatInterval"] = "2s"
        # adaptive execution joins small partitions; more would only cost start-up
        conf["spark.sql.shuffle.partitions"] = "8"
    if _is_loopback(master):
        conf |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return conf


def session_conf() -> dict[str, str]:
    """Returns the settings of SQL that every session of ours has."""
    return {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.caseSensitive": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    }


def local_slots(master: str) -> int | None:
    """Returns the number of tasks that a local master runs at once; None for a cluster, which may
    grow."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def is_cluster(master: str) -> bool:
    """Returns whether others started the master's processes, so that only they can have set Spark's
    authentication secret."""
    return not master.startswith("local")


def is_remote(master: str) -> bool:
    """Returns whether data that is sent to this master leaves the machine."""
    return not _is_loopback(master)


def _is_loopback(master: str) -> bool:
    return master.startswith(("local", f"spark://{_LOOPBACK}:", "spark://localhost:"))


def _environment(
    java: JavaHome, master: str, given: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Returns the JVM's environment, made from ``given``. Sets ``PYSPARK_PYTHON`` of this process
    to its Python before the JVM starts: otherwise workers are ``python3`` from PATH. On a cluster
    the user may set another."""
    if master.startswith("local") or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    own = {"JAVA_HOME": str(java.home), "PYTHONSAFEPATH": "1", **user_variables()}
    environ = {**given, **own, "PYSPARK_PYTHON": os.environ["PYSPARK_PYTHON"]}
    if _is_loopback(master):
        environ["SPARK_LOCAL_IP"] = _LOOPBACK
    return environ


def _merge(*layers: Mapping[str, str]) -> dict[str, str]:
    merged: dict[str, str] = {}
    for layer in layers:
        for name, value in layer.items():
            joint = _JOINED.get(name)
            earlier = merged.get(name) if joint else None
            merged[name] = (
                f"{earlier}{joint}{value}" if earlier and value else value or earlier or ""
            )
    return {name: value for name, value in merged.items() if value}


def java_death(seconds: float = 0.0) -> PenstockError | None:
    """Returns the error for the open session's JVM if it ended; None if it lives, or the session
    has none. ``seconds``: how long to wait for its end, after a failure that may be caused by
    it."""
    jvm = _current.jvm if _current is not None else None
    return None if jvm is None else jvm.death(seconds)


def kill_java() -> None:
    """Kills the open session's JVM, so that calls into it return; no-op if other runs of this
    process have the session, or if it has no JVM."""
    now = _current
    if now is not None and now.jvm is not None and now.users == 1:
        now.jvm.process.kill()


def setting(conf: Mapping[str, str], name: str) -> str | None:
    """Returns a setting of the pipeline file, in lower case; else that of the user's own
    session."""
    users = None if name in conf else _users()
    found = conf.get(name) if users is None else users.conf.get(name, None)
    return None if found is None else found.lower()


def is_ours() -> bool:
    """Returns whether the open session is on a Spark that was started, or connected to, for
    runs."""
    return _current is not None and _current.packages is not None


def stays() -> bool:
    """Returns whether the open session's JVM is left for the next run."""
    from penstock.spark.warm import JvmLease

    jvm = _current.jvm if _current is not None else None
    return jvm is not None and isinstance(jvm.process, JvmLease)


def how_started() -> Literal["warm", "cold"] | None:
    """Returns whether the open session's JVM was running already (``warm``) or was started for it
    (``cold``); None if there is no session, or it has no JVM (Spark Connect)."""
    from penstock.spark.warm import JvmLease

    jvm = _current.jvm if _current is not None else None
    if jvm is None:
        return None
    lease = jvm.process
    return "warm" if isinstance(lease, JvmLease) and not lease.first else "cold"


def jvm_peak_bytes() -> int:
    """Returns the peak of resident bytes of the open session's JVM, during this run if the JVM is
    warm; 0 if there is no JVM, or no ``/proc``."""
    jvm = _current.jvm if _current is not None else None
    if jvm is None:
        return 0
    try:
        status = Path(f"/proc/{jvm.process.pid}/status").read_text("ascii")
    except OSError:
        return 0
    peak = next((line for line in status.splitlines() if line.startswith("VmHWM:")), "")
    return int(peak.split()[1]) * 1024 if peak else 0
