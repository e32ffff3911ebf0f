"""Runs a worker process as a Spark job: one single-task, non-barrier job, from its own thread.

So one job's failure does not cancel another, and a job needs one slot. The task only supervises a
process (``engine.channel.child_process``); its answer is one row. A plain Python UDF ships it,
since Spark's ``mapInArrow`` requires pandas on the driver. Only the session API of Spark Connect is
used. The job itself, which holds passwords, is not given to Spark (``engine.channel.job_file``).
Neighbours: ``engine.sync.lane_runner`` and ``engine.deliver.feeder_runner`` submit.
"""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.channel.child_process import packed, supervise
from penstock.engine.channel.job_file import put_job, remove_job
from penstock.engine.log.log import storage
from penstock.errors import ConfigError, Defect, PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Submit = Callable[[str, bytes], bytes]
"""(module of the process, its job) -> its answer, after its end. Raises why it was lost."""


_NO_PENSTOCK = "No module named 'penstock'"
DEATH_SECONDS = 2.0  # in which a JVM that stopped answering is seen to be dead


def on_spark(spark: "SparkSession", folder: Path, local: bool) -> Submit:
    """Returns a :data:`Submit` that runs processes in Spark tasks. ``folder``: the run's folder in
    the log, which every worker reaches. ``local``: workers are on this machine, and the process
    gets the driver's environment. The function raises the JVM's cause of death where a task was
    lost with it."""

    def submit(module: str, job: bytes) -> bytes:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        from penstock.spark.session import java_death

        with storage(folder, "write to"):
            path, pad, mac = key = put_job(folder, packed(job, os.environb if local else None))

        def task(_: int) -> str:
            from penstock.engine.channel.child_process import supervise_packed
            from penstock.engine.channel.job_file import JobKey, take_job

            return supervise_packed(module, take_job(JobKey(path, pad, mac))).decode()

        try:
            shipped = F.udf(task, "string", useArrow=False).asNondeterministic()
            rows = spark.range(0, 1, 1, 1).select(shipped("id")).collect()
        except Exception as e:
            death = None if isinstance(e, PySparkException) else java_death(DEATH_SECONDS)
            if death is not None:
                raise death from None
            raise
        finally:
            remove_job(key)
        return str(rows[0][0]).encode()

    return submit


def here(module: str, job: bytes) -> bytes:
    """Runs the same process without Spark, for dry runs, which move no data."""
    return supervise(module, job)


class SubmittedJob:
    """Submits a job in a thread of its own; :meth:`answer` and :meth:`lost` tell how far it is."""

    def __init__(self, name: str, submit: Submit, module: str, job: bytes) -> None:
        self._answer: bytes | None = None
        self._lost: BaseException | None = None

        def work() -> None:
            try:
                self._answer = submit(module, job)
            except Exception as e:  # Spark's and py4j's errors have no common base
                self._lost = e

        threading.Thread(target=work, name=name, daemon=True).start()

    def answer(self) -> bytes | None:
        """Returns the process's answer; None: it is running, or was lost."""
        return self._answer

    def lost(self, what: str) -> PenstockError | None:
        """Returns the error because of which no answer will be returned, or None; ``what`` names
        the process in the message."""
        cause = self._lost
        if cause is None or isinstance(cause, PenstockError):
            return cause
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        if any(_NO_PENSTOCK in line for line in lines):
            return ConfigError(
                "Spark's workers run a Python that has no Penstock",
                code="spark.no_penstock",
                hint="set PYSPARK_PYTHON to a Python that has it, on every worker, before Spark "
                f"starts; this program's is {sys.executable}",
            )
        raised = [line for line in lines if line.startswith("penstock.errors.")]
        reason = next((line for line in lines if "Error" in line or "lost" in line.lower()), "")
        if raised:
            reason = raised[-1].partition(": ")[2]
        return Defect(
            f"the process that ran the {what} was lost with its Spark task: "
            f"{reason or repr(cause)}",
            code="lane.lost",
            hint="see the run's spark.log; what was sealed is kept",
        )
