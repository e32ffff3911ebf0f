"""Runs the process of a Spark task that merges loads into files of their tables.

Reads a ``MergeTaskJob`` from stdin, writes a ``MergeTaskResult`` to stdout. Commits nothing: a task
that Spark runs twice leaves files with other names. Imports no Spark. Neighbours: ``tasks`` starts
it, ``merged_files`` does the work, ``load_tasks`` reads the result."""

import os
import threading
from typing import Any, NoReturn

from penstock.errors import PenstockError
from penstock.tables.files.merge_job import (
    MergeJob,
    MergeResult,
    MergeTaskJob,
    MergeTaskResult,
    NeedsSpark,
)
from penstock.tasks.child_main import carry_out

PRELOADED = ("penstock.tables.files.merged_files", "penstock.tables.files.version_rows")
"""Modules that :func:`run` imports: ``tasks.fork_server`` has them loaded."""


def run(job: MergeTaskJob, orphaned: threading.Event) -> MergeTaskResult:
    """Runs the merges of a job one after the other; one that fails does not stop the others."""
    os.umask(job.umask)
    results: list[MergeResult] = []
    for merge in job.merges:
        if orphaned.is_set():
            break
        results.append(_result(merge))
    return MergeTaskResult((*results,))


def _result(job: MergeJob) -> MergeResult:
    from penstock.tables.files.merged_files import merged

    try:
        return merged(job)
    except NeedsSpark as reason:
        return MergeResult(needs_spark=str(reason))
    except MemoryError:
        return MergeResult(needs_spark="its files do not fit the memory of a task")
    except PenstockError as error:
        return MergeResult(error=error.as_dict())
    except OSError as error:
        if error.errno is None:
            return MergeResult(failure=str(error))
        name = error.filename if isinstance(error.filename, str) else None
        return MergeResult(os_error=(error.errno, error.strerror or str(error), name))
    except Exception as error:  # of Arrow or DuckDB: a broken file
        return MergeResult(failure=f"{type(error).__name__}: {error}")


def failed(error: dict[str, Any]) -> MergeTaskResult:
    """Makes the result of a task that failed as a whole."""
    return MergeTaskResult(error=error)


def main() -> NoReturn:
    """Runs the job on stdin (``tasks.child_main``)."""
    carry_out(MergeTaskJob, run, failed)
