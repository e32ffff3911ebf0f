"""Verifies whole parts in Spark's tasks (L13): implements ``engine.deliver.part_checks.PartCheck``
by a Spark job.

One job verifies the parts of all loads that are ready together, so that a small load costs one
task. Many bytes are spread over at most as many tasks as Spark has cores. Each part's path is the
one that the load then reads, links or merges. Neighbours: ``tasks.sealed_files`` has the comparison
that the tasks run, ``engine.run.wiring`` makes it.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.deliver.in_thread import InThread
from penstock.engine.deliver.part_checks import Damaged, RunningCheck
from penstock.engine.log.log import part_error
from penstock.errors import LogError, PenstockError
from penstock.model.segments import PartRef
from penstock.runtimes.worker_name import worker_namer
from penstock.spark.session import described, java_death
from penstock.spark.shared_folders import runs_elsewhere
from penstock.tasks.job_file import not_shared
from penstock.tasks.sealed_files import DIFFERS, Finding, checker
from penstock.tasks.spark_job import DEATH_SECONDS, why_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES = 64 << 20  # that one task reads, unless one task reads all


class CheckInTasks:
    """Verifies by a Spark job. ``root``: the log's folder, which every worker
    shares."""

    def __init__(self, spark: "SparkSession", root: Path) -> None:
        self._spark, self._root = spark, root

    def begin(self, parts: Sequence[PartRef]) -> RunningCheck:
        return InThread("check", lambda: self._damaged(parts))

    def _damaged(self, parts: Sequence[PartRef]) -> Damaged:
        """Raises the error of a lost job, in the form of a lost lane's error."""
        shares = _shares(parts)
        try:
            with described(self._spark, f"penstock verifies {len(parts)} parts"):
                answers = _answers(self._spark, str(self._root), shares)
        except PenstockError:
            raise
        except Exception as e:  # Spark's and py4j's errors have no common base
            raise java_death(DEATH_SECONDS) or why_lost(e, "check of parts") from e
        damaged: dict[str, LogError] = {}
        for worker, share, findings in answers:
            for index, what, number in findings:
                part = shares[share][index]
                damaged[part.path] = self._error(part, (what, number), worker)
        return damaged

    def _error(self, part: PartRef, finding: Finding, worker: str) -> LogError:
        """Returns the error of a part. A file that exists on this machine but that a task cannot
        read is one that its worker does not share."""
        path = self._root / part.path
        if finding[0] != DIFFERS and runs_elsewhere(self._spark) and os.path.exists(path):
            error = not_shared(str(path), "it does not see the log's folder")
            error.message = f"worker {worker} cannot verify the log's parts: {error.message}"
            return error
        return part_error(self._root, part, finding)


def _shares(parts: Sequence[PartRef]) -> list[list[PartRef]]:
    """Cuts the parts into shares of about :data:`TASK_BYTES`."""
    shares: list[list[PartRef]] = [[]]
    size = 0
    for part in parts:
        if size >= TASK_BYTES:
            shares.append([])
            size = 0
        shares[-1].append(part)
        size += part.size
    return shares


def _answers(
    spark: "SparkSession", root: str, shares: Sequence[Sequence[PartRef]]
) -> list[tuple[str, int, list[tuple[int, str, int]]]]:
    """Runs the job. Returns, for each share with damage: its worker, its number, and for each
    damaged part its number in the share and what was found."""
    from pyspark.sql import functions as F

    asked = [[(part.path, part.size, part.crc) for part in share] for share in shares]
    shipped = F.udf(_task(root, asked), "string", useArrow=False).asNondeterministic()
    # without a number of partitions Spark makes as many as it has cores
    rows = spark.range(0, len(shares)) if len(shares) > 1 else spark.range(0, 1, 1, 1)
    return [json.loads(row[0]) for row in rows.select(shipped("id")).collect() if row[0]]


def _task(root: str, asked: Sequence[Sequence[tuple[str, int, int]]]) -> Callable[[int], str]:
    """Returns the function that a task runs for the number of a share: its answer is JSON, or empty
    where the share is whole. It uses the standard library alone."""
    check, worker = checker(), worker_namer()

    def task(number: int) -> str:
        import json
        import os

        found: list[tuple[int, str, int]] = []
        for index, (path, size, crc) in enumerate(asked[number]):
            finding = check(os.path.join(root, path), size, crc)
            if finding is not None:
                found.append((index, *finding))
        return json.dumps([worker(), number, found]) if found else ""

    return task
