"""Makes archives of Spark's classes, each in a separate process, the maker.

A Spark session runs some statements that runs use, and its Java lists the classes that it loads;
then a second Java writes these classes to the archive. ``make_soon`` is called at the end of a run
(``engine.run``): the maker has the lowest priority on the machine, runs alone, and is tried once in
24 hours. ``make_now`` is called for a waiting user (``engine.inspect.doctor``). A maker removes the
files that a killed one left. Seconds, free bytes and the number of archives are bounded. Not here:
where archives are (``class_archive``)."""

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec
import platformdirs

from penstock.errors import ConfigError, PenstockError
from penstock.runtimes.supervisor import PR_SET_PDEATHSIG
from penstock.runtimes.trusted_folders import unsafe
from penstock.spark.class_archive import SUFFIX, archive_path, trusted
from penstock.spark.jars import FOLDER_VARIABLE, find_jars
from penstock.spark.java import JavaHome, find_java
from penstock.spark.java_command import class_path
from penstock.spark.session import Needs, close_session, open_session

MAKE_SECONDS = 600.0  # it takes half a minute on an idle machine
KEPT = 6  # archives in the folder, which other installations of this user share
LEAST_FREE = 1_500_000_000  # bytes free on the disk and, in the background, of memory
TRY_AGAIN = 24 * 3600.0
_SHORT_LIVED = "-XX:TieredStopAtLevel=1"  # half the CPU of a Java that ends soon
_MAKING = "making-"
_TRIED = ".tried"
_KEPT_VARIABLES = (  # all that a maker needs: a run's environment may hold secrets
    "PATH", "HOME", "JAVA_HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH",
    "PYTHONPATH", FOLDER_VARIABLE,
)  # fmt: skip
_TRIAL = (
    "CREATE TEMPORARY VIEW penstock_rows AS SELECT id, id % 7 AS kind, string(id) AS text, "
    "try_cast(id AS decimal(18,4)) AS price, timestamp_seconds(id) AS at, "
    "date('2020-01-01') AS day, array(struct(id AS a, 'x' AS b)) AS many, double(id) AS real, "
    "id % 2 = 0 AS even "
    "FROM range(1000)",
    "INSERT OVERWRITE DIRECTORY '{place}/rows' USING parquet SELECT * FROM penstock_rows",
    "INSERT OVERWRITE DIRECTORY '{place}/more' USING parquet SELECT * FROM penstock_rows",
    "SELECT kind, count(*), max(text), min(id), sum(CASE WHEN even THEN 1 ELSE 0 END) "
    "FROM parquet.`{place}/rows` GROUP BY kind",
    "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY kind ORDER BY id DESC, at DESC) "
    "AS place FROM (SELECT * FROM parquet.`{place}/rows` UNION ALL SELECT * FROM "
    "parquet.`{place}/more`)) WHERE place = 1",
    "SELECT exists(many, m -> m.a > 5), transform(many, m -> m.b), coalesce(text, ''), "
    "to_json(many) FROM parquet.`{place}/rows` WHERE id > 10 LIMIT 5",
)


class ArchiveRequest(msgspec.Struct, frozen=True):
    """Holds a maker's arguments: the ``Needs`` of a session, and the cache folder. ``waited``: the
    process that started the maker waits for it, and the maker ends with that process."""

    packages: tuple[str, ...]
    conf: dict[str, str]
    trial: tuple[str, ...]
    cache: str
    waited: bool


def make_now(needs: Needs, cache_dir: Path | None = None) -> Path:
    """Makes the archive for a session's needs, and returns its path; it takes about half a minute
    and 150 MB. Raises ``ConfigError`` (``spark.no_archive``) if others can write the folder, the
    disk is full, or Java or Spark does not start."""
    cache = _cache(cache_dir)
    path = _path(needs, cache)
    _refuse_unsafe(path)
    with tempfile.TemporaryFile() as errors:
        process = _started(needs, cache, errors)
        try:
            process.wait(2 * MAKE_SECONDS + 30)
        finally:
            process.terminate()
            process.wait()
            if process.stdin is not None:  # it would end when this ends
                process.stdin.close()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()[-500:]
    if process.returncode or not trusted(path):
        raise _impossible(said or "it ended early")
    return path


def make_soon(
    needs: Needs, cache_dir: Path | None = None, environ: Mapping[str, str] = os.environ
) -> "subprocess.Popen[bytes] | None":
    """Starts a maker in the background and returns its process; None if the archive exists, a maker
    was started in the last 24 hours, others can write the folder, or the variable ``CI`` is set,
    since a machine of CI keeps no files. Raises nothing."""
    if environ.get("CI", "").lower() not in ("", "0", "false"):
        return None
    with suppress(PenstockError, OSError):
        cache = _cache(cache_dir)
        path = _path(needs, cache)
        if path.exists() or _tried(path) or unsafe(path.parent) is not None:
            return None
        process = _started(needs, cache)
        threading.Thread(target=process.wait, name="class-archive", daemon=True).start()
        return process
    return None


def _cache(named: Path | None) -> Path:
    return (named or platformdirs.user_cache_path("penstock")).resolve()


def _path(needs: Needs, cache: Path) -> Path:
    return archive_path(find_java(), find_jars(needs.packages, cache).files, cache)


def _tried(path: Path) -> bool:
    try:
        return abs(time.time() - path.with_suffix(_TRIED).stat().st_mtime) < TRY_AGAIN
    except OSError:
        return False


def _refuse_unsafe(path: Path) -> None:
    why_not = unsafe(path.parent)
    if why_not is not None:
        raise _impossible(why_not)


def _started(
    needs: Needs, cache: Path, errors: IO[bytes] | None = None
) -> "subprocess.Popen[bytes]":
    """Starts a maker. ``errors``: the file for its error message; with it the maker ends when this
    process does."""
    waited = errors is not None
    order = ArchiveRequest(needs.packages, dict(needs.conf), needs.trial, str(cache), waited)
    return subprocess.Popen(
        [sys.executable, "-m", __name__, msgspec.json.encode(order).decode()],
        stdin=subprocess.PIPE if waited else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors or subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env={k: v for k, v in os.environ.items() if k in _KEPT_VARIABLES},
    )


# -- in the maker


def _main(text: str) -> int:
    order = msgspec.json.decode(text, type=ArchiveRequest)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, _ended)
    if order.waited:
        threading.Thread(target=_end_with_owner, name="owner", daemon=True).start()
    else:
        _step_back()
    signal.alarm(int(MAKE_SECONDS))
    try:
        _make(order)
    except PenstockError as e:
        sys.stderr.write(e.message)
        return e.exit_code
    return 0


def _ended(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _end_with_owner() -> None:
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _step_back() -> None:
    """Gives this process the lowest priority on the machine."""
    os.nice(19)
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _make(order: ArchiveRequest) -> None:
    cache = Path(order.cache)
    java, jars = find_java(), find_jars(order.packages, cache).files
    path = archive_path(java, jars, cache)
    _refuse_unsafe(path)
    with _alone(path.parent, MAKE_SECONDS if order.waited else 0.0) as alone:
        if not alone or trusted(path):
            return
        path.with_suffix(_TRIED).touch(0o600)
        _drop_leftovers(path.parent)
        _refuse_tight(path.parent, memory=not order.waited)
        with tempfile.TemporaryDirectory(prefix=_MAKING, dir=path.parent) as folder:
            made = Path(folder) / "made.jsa"
            classes = Path(folder) / "classes"
            _list_classes(order, classes, Path(folder), cache)
            _write_down(java, jars, classes, made)
            made.chmod(0o600)
            made.replace(path)
        _drop_oldest(path.parent)


@contextmanager
def _alone(folder: Path, seconds: float) -> Generator[bool]:
    """Locks the folder against other makers; yields False if another one still has the lock after
    ``seconds``."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(folder / "lock", flags, 0o600)
    try:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    yield False
                    return
                time.sleep(0.2)
            else:
                yield True
                return
    finally:
        os.close(lock)


def _drop_leftovers(folder: Path) -> None:
    for left in folder.glob(f"{_MAKING}*"):
        shutil.rmtree(left, ignore_errors=True)


def _drop_oldest(folder: Path) -> None:
    archives = sorted(folder.glob(f"*{SUFFIX}"), key=lambda p: p.stat().st_mtime)
    for old in archives[:-KEPT]:
        old.unlink(missing_ok=True)
    for mark in folder.glob(f"*{_TRIED}"):
        if not _tried(mark):
            mark.unlink(missing_ok=True)


def _refuse_tight(folder: Path, *, memory: bool) -> None:
    if shutil.disk_usage(folder).free < LEAST_FREE:
        raise _impossible(f"less than {LEAST_FREE / 1e9:.1f} GB are free at {folder}")
    if memory and _free_memory() < LEAST_FREE:
        raise _impossible(f"less than {LEAST_FREE / 1e9:.1f} GB of memory are free")


def _free_memory() -> int:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return LEAST_FREE
    found = next((line for line in lines if line.startswith("MemAvailable:")), "")
    return int(found.split()[1]) * 1024 if found else LEAST_FREE


def _list_classes(order: ArchiveRequest, classes: Path, folder: Path, cache: Path) -> None:
    """Writes the list of classes that a session loads for the statements that loads and lanes have
    in common."""
    from pyspark.sql.functions import udf

    spark = open_session(
        order,
        master="local[2]",
        conf={
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"{_SHORT_LIVED} -XX:DumpLoadedClassList={classes}",
        },
        scratch_dir=folder / "scratch",
        cache_dir=cache,
    )
    try:
        for statement in (*_TRIAL, *order.trial):
            spark.sql(statement.replace("{place}", str(folder))).collect()
        shipped = udf(str, "string", useArrow=False).asNondeterministic()
        spark.range(0, 1, 1, 1).select(shipped("id")).collect()
        rows = spark.read.parquet(str(folder / "rows"))
        rows.groupBy("kind").count().write.mode("overwrite").parquet(str(folder / "counts"))
    finally:
        close_session(spark)


def _write_down(java: JavaHome, jars: Sequence[Path], classes: Path, made: Path) -> None:
    command = [
        str(java.home / "bin" / "java"),
        "-Xshare:dump",
        f"-XX:SharedClassListFile={classes}",
    ]
    command += [f"-XX:SharedArchiveFile={made}", "-Xlog:disable", "-Xlog:all=error:stderr", "-cp"]
    command += [os.pathsep.join(map(str, class_path(jars)))]
    done = subprocess.run(  # bounded by the maker's alarm
        command, stdin=subprocess.DEVNULL, capture_output=True, preexec_fn=_dies_with_us()
    )
    if done.returncode or not made.is_file():
        said = done.stderr.decode(errors="replace").strip()[-300:]
        raise _impossible(f"Java {java.version} at {java.home} wrote none: {said}")


def _dies_with_us() -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # loaded before the fork
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _impossible(why: str) -> ConfigError:
    return ConfigError(
        f"Spark's classes cannot be archived: {why}",
        code="spark.no_archive",
        hint="runs work without it; each start of Spark takes a few seconds longer",
    )


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
