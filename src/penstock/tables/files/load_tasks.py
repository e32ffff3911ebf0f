"""Submits merges as processes of Spark tasks, and waits for their results.

Small merges of one call share a task, since starting its process costs more than they do; each
other merge has its own task, and at most ``LoadTasks.at_once`` run at the same time. A lost task
leaves files that nothing refers to; Spark then writes the load (``NeedsSpark``). Not here: what a
merge does (``merge_task``), commits (the formats)."""

import hashlib
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import DestinationError, PenstockError
from penstock.files import umask
from penstock.model.segments import Load
from penstock.spark.shared_folders import not_seen, refuse_unshared
from penstock.tables.contract import LoadResult, LoadTasks, TableLoad
from penstock.tables.files.merge_job import (
    MergeFailed,
    MergeJob,
    MergeResult,
    MergeTaskJob,
    MergeTaskResult,
    NeedsSpark,
    NewFile,
)
from penstock.tasks.spark_job import why_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODULE = "penstock.tables.files.merge_task"
_WHAT = "merge"
TOGETHER_BYTES = 16 << 20  # that the merges of one task may read, where it has several

Pending = Future[MergeResult]
"""The result of a merge. Raises ``NeedsSpark``, ``OSError``, ``PenstockError``, ``MergeFailed``."""


class MergeTasks:
    """Runs the merges of one commit call. ``spark`` finds workers that do not share a table's
    folder."""

    def __init__(self, spark: "SparkSession", tasks: LoadTasks) -> None:
        self.tasks = tasks
        self._spark = spark
        self._free = threading.BoundedSemaphore(max(1, tasks.at_once))

    def stem(self, load: Load) -> str:
        """Returns the beginning of the names of new files: the load's key and number, the run's
        lease."""
        key = hashlib.sha256(load.key.encode()).hexdigest()[:8]
        return f"{key}-{load.number}-{re.sub(r'[^0-9A-Za-z]', '', self.tasks.token)}-"

    def start(self, jobs: Sequence[MergeJob]) -> list[Pending]:
        """Submits jobs. Their results come in any order."""
        pending = [Pending() for _ in jobs]
        for group in _groups(jobs):
            pairs = [(jobs[index], pending[index]) for index in group]
            # no pool: a program that ends does not wait for its daemon threads
            threading.Thread(target=self._run, args=(pairs,), name="merge", daemon=True).start()
        return pending

    def _run(self, pairs: Sequence[tuple[MergeJob, Pending]]) -> None:
        """Sets each result, or why there is none: the caller waits for it without a timeout."""
        try:
            with self._free:
                results = self._results([job for job, _ in pairs])
            outcomes = [
                _failure(result) or self._unseen(Path(job.folder), result.files) or result
                for (job, _), result in zip(pairs, results, strict=True)
            ]
        except BaseException as failure:
            outcomes = [failure] * len(pairs)
        for (_, pending), outcome in zip(pairs, outcomes, strict=True):
            if isinstance(outcome, MergeResult):
                pending.set_result(outcome)
            else:
                pending.set_exception(outcome)

    def _results(self, jobs: Sequence[MergeJob]) -> Sequence[MergeResult]:
        if self.tasks.elsewhere:
            folders = {Path(job.folder) for job in jobs}
            refuse_unshared(self._spark, sorted(folders), DestinationError)
        job = msgspec.json.encode(MergeTaskJob((*jobs,), umask()))
        try:
            answer = self.tasks.submit(_MODULE, job)
        except Exception as cause:  # Spark's and py4j's errors have no common base
            error = why_lost(cause, _WHAT)
            if error.code == "lane.lost":
                raise NeedsSpark(error.message) from cause
            raise error from cause
        result = msgspec.json.decode(answer, type=MergeTaskResult)
        if result.error is not None:
            raise PenstockError.from_dict(result.error)
        return result.results

    def _unseen(self, folder: Path, files: Sequence[NewFile]) -> PenstockError | None:
        """Makes the error (``destination.not_shared``) if this machine does not see the files that
        a task wrote, or sees them in another size: a worker joined that does not share the
        folder."""
        unseen = [file for file in files if _size(folder / file.name) != file.size]
        if not unseen:
            return None
        what = f"{len(files) - len(unseen)} of {len(files)} files that a task wrote"
        return not_seen(self._spark, folder, what, DestinationError)


def _groups(jobs: Sequence[MergeJob]) -> Iterator[list[int]]:
    """Returns the indexes of each task's jobs."""
    together: list[int] = []
    size = 0
    for index, job in enumerate(jobs):
        if job.size > TOGETHER_BYTES:
            yield [index]
            continue
        if together and size + job.size > TOGETHER_BYTES:
            yield together
            together, size = [], 0
        together.append(index)
        size += job.size
    if together:
        yield together


def _failure(result: MergeResult) -> Exception | None:
    if result.needs_spark is not None:
        return NeedsSpark(result.needs_spark)
    if result.error is not None:
        return PenstockError.from_dict(result.error)
    if result.os_error is not None:
        return OSError(*result.os_error)
    return None if result.failure is None else MergeFailed(result.failure)


def merged_result(load: TableLoad, result: MergeResult) -> LoadResult:
    """Makes the result of a load whose files a task of ours wrote."""
    notes = (forms_note(load),) if result.mixed else ()
    if result.unsure:
        notes = (*notes, _unsure_note(load, result.unsure))
    return LoadResult(result.written, superseded=result.superseded, notes=notes)


def forms_note(load: TableLoad) -> str:
    """Makes a line for the report: keys of the load had cursors of two forms
    (``tables.newest``)."""
    return (
        f"cursors {'.'.join(load.cursor)} of one key have two forms in table {load.table.name} "
        "(numbers, times with an offset, times without one, all else): between two forms the row "
        "that came later is kept (docs/incremental.md)"
    )


def _unsure_note(load: TableLoad, count: int) -> str:
    """Makes a line for the report: cursors that were cut equal those of ``count`` rows of the
    table, whose full values are unknown."""
    rows = f"{count:,} rows have" if count > 1 else "a row has"
    return (
        f"cursors {'.'.join(load.cursor)} have more digits than their column in table "
        f"{load.table.name}, where {rows} equal ones without the source's text: of these the row "
        "that came later is kept (docs/incremental.md)"
    )


def merge_note(load: TableLoad, reason: str) -> str:
    """Makes a line for the report, once for all loads of a table: why Spark, and no task of ours,
    wrote them."""
    return f"a Spark query, not a task, wrote loads into table {load.table.name}: {reason}"


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
