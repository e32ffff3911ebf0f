"""Proves that the driver sees the files that Spark's tasks write into a folder.

On a cluster each worker must have the folder from shared storage. If a worker has its own folder
under the same path, it writes files that nobody else sees, and Spark commits them all the same:
rows would be lost. So, if tasks may run on other machines (:func:`runs_elsewhere`), a task on each
free slot writes a file that the driver must see (:func:`refuse_unshared`), before rows are written.
That does not cover a worker that joins later, so the rows of the files that the driver sees are
counted, too (:func:`write_parquet`); ``tables.delta`` looks at the files of a commit. On a local
master none of this is done: its tasks are in our own JVM.

Not here: the log's own files, which lanes write (``engine.channel``)."""

import errno
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import DestinationError, LogError, PenstockError
from penstock.runtimes.worker_name import worker_namer
from penstock.spark.session import is_cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Whose = type[DestinationError | LogError]
"""Makes the error of a folder of a table or the log that is not shared."""

HINT = (
    "a cluster needs this folder on every worker, from storage that all share, under the same path "
    "(docs/cluster.md lists them): mount it there, then run again, which repeats what was read"
)
_CONTENT = b"penstock"
_ASKED = 1024  # rows of the job, in as many partitions as the cluster has cores


class Unshared(NamedTuple):
    """A worker that does not share a folder. ``lacks``: a clause that describes the evidence."""

    worker: str
    folder: Path
    lacks: str


def runs_elsewhere(spark: "SparkSession") -> bool:
    """Returns whether tasks of this session may run on another machine."""
    if "connect" in type(spark).__module__:
        return True
    return is_cluster(spark.conf.get("spark.master", "local") or "local")


def refuse_unshared(spark: "SparkSession", folders: Iterable[Path], error: Whose) -> None:
    """Raises ``error`` (``destination.not_shared``, ``log.not_shared``) naming the worker if one
    does not share these folders, or their nearest existing parents. Does nothing if tasks run on
    this machine."""
    if runs_elsewhere(spark):
        for found in unshared(spark, folders):
            raise not_shared(found, error)


def not_shared(found: Unshared, error: Whose) -> PenstockError:
    """Makes the error for a worker that does not share a folder."""
    return _refusal(
        f"worker {found.worker} does not share the folder {found.folder} with this machine: "
        f"{found.lacks}",
        found.folder,
        error,
    )


def _refusal(message: str, folder: Path, error: Whose) -> PenstockError:
    if error is LogError:
        return LogError(message, code="log.not_shared", where=str(folder), hint=HINT)
    return DestinationError(message, code="destination.not_shared", where=str(folder), hint=HINT)


def unshared(spark: "SparkSession", folders: Iterable[Path]) -> list[Unshared]:
    """Returns the workers of the session's free slots that do not share these folders (or their
    existing parents), each with the first that it lacks. Skips a folder that this process may not
    write. Leaves no file behind."""
    probes: dict[Path, Path] = {}
    try:
        for folder in folders:
            nearest = next(p for p in (folder, *folder.parents) if p.is_dir())
            if nearest not in probes:
                probe = nearest / f".penstock-probe-{secrets.token_hex(8)}"
                with suppress(OSError):
                    probe.mkdir()
                    probes[nearest] = probe
                    # who may write into the folder may write into the probe's: a worker's user
                    probe.chmod(stat.S_IMODE(probe.stat().st_mode) | nearest.stat().st_mode & 0o777)
        answers = _asked(spark, [str(probe) for probe in probes.values()]) if probes else []
        found: dict[str, Unshared] = {}
        for worker, written in answers:
            for (folder, probe), (name, number) in zip(probes.items(), written, strict=True):
                lacks = _lacks(probe / name, number)
                if lacks is not None:
                    found.setdefault(worker, Unshared(worker, folder, lacks))
        return sorted(found.values())
    finally:
        for probe in probes.values():
            shutil.rmtree(probe, ignore_errors=True)


def _lacks(file: Path, number: int) -> str | None:
    """Describes what is wrong with a probe's file; None: nothing. ``number``: the errno of the task
    that wrote it; 0: it was written."""
    if number == errno.ENOENT:
        return "it has another folder under this path, or none"
    if number:
        return f"it cannot write there ({os.strerror(number)})"
    with suppress(FileNotFoundError):
        if file.stat().st_size == len(_CONTENT):
            return None
    return "what it writes there is not seen here"


def _asked(spark: "SparkSession", probes: Sequence[str]) -> list[tuple[str, list[tuple[str, int]]]]:
    """Has a task on each free slot write a file into each of these folders. Returns for each task
    its worker, and for each folder the file's name and 0, or the errno."""
    from pyspark.sql import functions as F

    worker, content, done = worker_namer(), _CONTENT, list[str]()

    def probe(_: int) -> str:
        import json
        import os
        import uuid

        if done:  # this task has answered: the list is its own
            return ""
        written: list[tuple[str, int]] = []
        for folder in probes:
            name = uuid.uuid4().hex
            try:
                with open(os.path.join(folder, name), "xb") as file:
                    file.write(content)
                written.append((name, 0))
            except OSError as failure:
                written.append((name, failure.errno or 5))
        done.append("")
        return json.dumps([worker(), written])

    shipped = F.udf(probe, "string", useArrow=False).asNondeterministic()
    rows = spark.range(_ASKED).select(shipped("id")).collect()
    told = (json.loads(row[0]) for row in rows if row[0])
    return [(name, [(file, number) for file, number in written]) for name, written in told]


def write_parquet(rows: "DataFrame", folder: Path, error: Whose, by: str | None = None) -> None:
    """Writes rows as Parquet files into ``folder``, replacing its content, in subfolders ``by`` a
    column's value. Raises Spark's errors, and ``error`` (as :func:`refuse_unshared`) if this
    machine does not see all that the tasks wrote."""
    spark, counted = rows.sparkSession, None
    elsewhere = runs_elsewhere(spark)
    if elsewhere:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        refuse_unshared(spark, [folder], error)
        counted = Observation()
        rows = rows.observe(counted, F.count(F.lit(1)).alias("rows"))
    writer = rows.write.mode("overwrite")
    (writer.partitionBy(by) if by else writer).parquet(str(folder))
    if counted is None:
        return
    wrote = counted.get.get("rows")  # nothing where Spark saw that there is nothing to run
    seen = _rows_in(folder)
    if wrote is not None and seen != int(wrote):
        raise not_seen(spark, folder, f"{seen} of {wrote} rows that tasks wrote", error)


def not_seen(spark: "SparkSession", folder: Path, what: str, error: Whose) -> PenstockError:
    """Makes the error for files that tasks wrote into ``folder`` and that this machine does not
    see; looks for the worker that does not share it. ``what``: what this machine sees of them."""
    culprits = ", ".join(found.worker for found in found_now(spark, folder))
    who = f"worker {culprits} does not share it" if culprits else "a worker does not share it"
    return _refusal(f"this machine sees {what} into the folder {folder}: {who}", folder, error)


def found_now(spark: "SparkSession", folder: Path) -> list[Unshared]:
    """Returns :func:`unshared` of one folder, for an error's text: nothing if that fails."""
    with suppress(Exception):
        return unshared(spark, [folder])
    return []


def _rows_in(folder: Path) -> int:
    """Counts the rows of the Parquet files in a folder, by their footers."""
    import pyarrow.parquet as pq

    files = (p for p in folder.rglob("*.parquet") if p.name[0] not in "._")
    return sum(pq.read_metadata(file).num_rows for file in files)
