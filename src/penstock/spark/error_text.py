"""Converts failures of Spark, Py4J and the JVM to errors of ``penstock.errors``, with hints.

Every exception of Py4J or PySpark that a user could see is converted here. Not here: errors of a
user's query (``query``). ``session``, ``jvm`` and ``tables`` call it.
"""

import errno
import re
import resource
import signal

from penstock.errors import ConfigError, DestinationError, PenstockError
from penstock.spark.open_files import too_few

JAVA_DIED = "spark.java_died"
SPARK_FAILED = "destination.spark_failed"
WRITE_FAILED = "destination.write_failed"
_STACK = re.compile(r"\n\s*(?:at [\w.$/]+\(|JVM stacktrace:|== |\.\.\. \d+ more)")
_UNRESOLVED = re.compile(r"unresolved dependency: ([^:\s]+)#([^;\s]+);([^:\s]+)")
_CAUSE = re.compile(r"Caused by: (?:[\w.$]+\.)?(\w+): (.+)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # of a terminal; delta-rs colours its causes
_DISK_FULL = "No space left on device"
_NO_FILES = "Too many open files"
_JARS_HINT = "give the files in a folder named by PENSTOCK_JARS, or let this machine reach Maven"
_STORAGE_HINT = "Its folder must be on storage that takes new files, renames and hard links"
_OTHER_DISK_HINT = (
    "Its folder is a link to, or a mount of, another file system than the lake's (a Btrfs "
    "subvolume is one too): a lake of Parquet tables has to be on one file system. Move the folder "
    "back to its place in the lake, or move, link or mount the lake as a whole, then run again"
)


def summary(failure: BaseException, limit: int = 600) -> str:
    """Returns an exception's message and innermost cause without stack traces, at most ``limit``
    characters."""
    text = _COLOUR.sub("", str(failure))
    cause = _CAUSE.findall(text)
    text = _STACK.split(text, maxsplit=1)[0].strip()
    if text.startswith("An error occurred while calling"):
        text = text.partition("\n")[2].lstrip(": ").strip() or text
    if cause and cause[-1][1][:80] not in text:
        text = f"{text} (caused by {cause[-1][0]}: {cause[-1][1]})"
    return text[:limit]


def table_failure(failure: BaseException, table: str) -> PenstockError:
    """Makes the error for a failed Spark job that was to change ``table``; returns a
    ``PenstockError`` unchanged."""
    if isinstance(failure, PenstockError):
        return failure
    if (dead := silent(failure)) is not None:
        return dead
    text = str(failure)
    if _DISK_FULL in text:
        return DestinationError(
            f"the disk that holds table {table} is full",
            code="destination.disk_full",
            where=table,
            hint="make room and run again: what is sealed is loaded first",
        )
    if "DATA_SOURCE_NOT_FOUND" in text or "Failed to find the data source" in text:
        return ConfigError(
            f"Spark lacks the jar of table {table}'s format: {summary(failure)}",
            code="spark.jars_missing",
            where=table,
            hint=_JARS_HINT,
        )
    if isinstance(failure, FileNotFoundError):
        return DestinationError(
            f"a file of table {table} is missing: {' '.join(summary(failure).split())}",
            code=WRITE_FAILED,
            where=table,
            hint="nothing was loaded: the load is recorded and repeated next time. Restore the "
            "file from a copy; without a copy, move the table's folder away, and `penstock run "
            "--recreate` reads its streams from the start",
        )
    if not _is_of_spark(failure):
        return DestinationError(
            f"table {table} could not be written: {' '.join(summary(failure).split())}",
            code=WRITE_FAILED,
            where=table,
            hint="nothing is lost: the load is recorded and repeated next time. "
            + (_OTHER_DISK_HINT if _is_elsewhere(failure) else _STORAGE_HINT),
        )
    return DestinationError(
        f"Spark could not write table {table}: {summary(failure)}",
        code=SPARK_FAILED,
        where=table,
        hint="the run's Spark log has the whole trace; run again to repeat the load",
    )


def _is_elsewhere(failure: BaseException) -> bool:
    """Returns whether a file could not be moved into a table's folder because it is on another file
    system."""
    return isinstance(failure, OSError) and failure.errno in (errno.EXDEV, errno.EBUSY)


def _is_of_spark(failure: BaseException) -> bool:
    """Returns whether Spark or its Java failed, rather than a library of the driver or one of its
    files."""
    of_java = type(failure).__module__.partition(".")[0] in ("pyspark", "py4j")
    return of_java or isinstance(failure, EOFError)


def died(code: int, log_tail: str, log: str) -> PenstockError:
    """Makes the error for a JVM that ended in the middle of a run. ``code``: its exit code
    (negative: killed by that signal). ``log_tail``: the end of its output; ``log``: the path of
    that file."""
    how = f"exit code {code}"
    if code < 0:
        how = f"killed by {signal.Signals(-code).name}"
    memory = "java.lang.OutOfMemoryError" in log_tail
    if memory:
        how += ", it ran out of memory"
    elif code == -signal.SIGKILL:
        how += ", as when a machine runs out of memory"
    return DestinationError(
        f"Spark's Java process died ({how})",
        code=JAVA_DIED,
        where=log,
        hint="nothing is lost: what is sealed is loaded first by the next run. "
        + (
            "Give Spark more memory (`spark: {conf: {spark.driver.memory: 4g}}`)"
            if memory
            else "Where memory is short give it less (`spark: {conf: {spark.driver.memory: 1g}}`), "
            "or the machine more; the log named here has Java's output"
        ),
    )


def was_stopped(seconds: float, log: str) -> PenstockError:
    """Makes the error for a JVM that was stopped (SIGSTOP), so that no call into it returned, and
    was killed after so many ``seconds``. ``log``: the path of its output."""
    return DestinationError(
        f"Spark's Java process was stopped (SIGSTOP) for {seconds:.0f} s, and the run ended it",
        code=JAVA_DIED,
        where=log,
        hint="find out what stops processes on this machine, then run again: nothing is lost, and "
        "what is sealed is loaded first",
    )


def silent(failure: BaseException) -> PenstockError | None:
    """Makes the error for a JVM that took no call, or broke one off, if the failure of a call shows
    that; None: it shows something else. Its death may not be known yet."""
    module = type(failure).__module__
    broken = module.startswith("py4j") and "Network" in type(failure).__name__
    if not broken and not isinstance(failure, ConnectionError):
        return None
    return DestinationError(
        f"Spark's Java process does not answer: {summary(failure) or type(failure).__name__}",
        code=JAVA_DIED,
        hint="nothing is lost: run again, and what is sealed is loaded first; the run's spark.log "
        "has Java's output",
    )


def start_failure(log_tail: str, log: str, waited: float | None = None) -> PenstockError:
    """Makes the error for a JVM whose gateway did not get ready, from its output. ``waited``: the
    seconds waited for a JVM that still runs; None: it ended."""
    if _NO_FILES in log_tail:
        return too_few(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    unresolved = _UNRESOLVED.findall(log_tail)
    if unresolved or "unresolved dependency" in log_tail:
        names = ", ".join(dict.fromkeys(":".join(parts) for parts in unresolved)) or "a jar"
        reason = " (the server's certificate is not trusted)" if "PKIX" in log_tail else ""
        return DestinationError(
            f"Spark could not fetch {names} from Maven{reason}",
            code="spark.jars_unresolved",
            where=log,
            hint=_JARS_HINT,
        )
    lines = [line.strip() for line in log_tail.splitlines() if line.strip()]
    said = next((line for line in lines if "Exception" in line or "Error" in line), "")
    said = said or "it printed nothing"
    if waited is not None:  # nothing of the configuration is known to be wrong
        return DestinationError(
            f"Spark's Java process was not ready after {waited:.0f} s: {said}"[:600],
            code="spark.not_started",
            where=log,
            hint="run again: the machine may have been busy (`penstock doctor` checks Java and "
            "Spark; the log named here has Java's output)",
        )
    return ConfigError(
        f"Spark's Java process ended before it was ready: {said}"[:600],
        code="spark.not_started",
        where=log,
        hint="`penstock doctor` checks Java and Spark; the log named here has Java's output",
    )
