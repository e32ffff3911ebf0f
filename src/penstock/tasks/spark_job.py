"""Runs a worker process as a Spark job: one single-task, non-barrier job, from its own thread.

So one job's failure does not cancel another, and a job needs one slot. The task only supervises a
process (``tasks.child_process``); its answer is one row. A plain Python UDF ships it, since Spark's
``mapInArrow`` requires pandas on the driver. Only the session API of Spark Connect is used. Spark
never gets the job itself, which holds passwords (``tasks.job_file``). A task whose signs of life
end is given up, and killed if it is on this machine, together with what it started (L11). So is one
that gets no slot; a run's tasks may wait for each other for as long as one of them works, since
none depends on one that waits. Neighbours: ``engine.run.lane_runner`` and
``engine.deliver.feeder_runner`` submit."""

import functools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import ConfigError, Defect, PenstockError
from penstock.runtimes.stopped import kill
from penstock.runtimes.worker_name import worker_namer
from penstock.tasks.child_process import packed, supervise
from penstock.tasks.job_file import put_job, remove_job
from penstock.tasks.storage import storage
from penstock.tasks.submit import Submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A = TypeVar("A")

_WORKER = re.compile(r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \((\S+) executor (\S+?)\)")
_RAISED = "penstock-task-raised "  # before JSON, in Spark's message about a task: _raised
_OTHER_PENSTOCK = "penstock-task-has "  # before the version that a worker has
_NO_PENSTOCK = "No module named 'penstock'"
_OTHER_PYTHON = "PYTHON_VERSION_MISMATCH"
_PYTHON_HINT = (
    "set PYSPARK_PYTHON to a Python that has it, on every worker, before Spark starts; this "
    f"program's is {sys.executable}"
)
DEATH_SECONDS = 2.0  # in which a JVM that stopped answering turns out to be dead
START_SECONDS = 600.0  # for a slot; a cluster may have to find a machine first
SILENT_SECONDS = 60.0  # without a sign of life after the first, after which a task is given up
_LOOK_SECONDS = 2.0


def on_spark(spark: "SparkSession", folder: Path, local: bool) -> Submit:
    """Returns a :data:`~penstock.tasks.submit.Submit` that runs processes in Spark tasks.
    ``folder``: the run's folder in the log, which every worker reaches. ``local``: workers are on
    this machine, and the process gets the driver's environment. The function raises the JVM's
    cause of death where a task was lost with it, and :class:`NoSlot`."""
    working = set[Path]()

    def submit(module: str, job: bytes) -> bytes:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        from penstock.spark.session import described, java_death

        with storage(folder, "write to"):
            path, pad, mac = key = put_job(folder, packed(job, os.environb if local else None))
        alive = f"{path}.alive"
        wanted = None if local else _version()
        worker, raised, other = worker_namer(), _RAISED, _OTHER_PENSTOCK

        def work() -> str:
            if wanted is not None:
                from importlib.metadata import distributions

                found = next((d.version for d in distributions(name="penstock")), wanted)
                if found != wanted:
                    raise RuntimeError(f"{other}{found} ")
            from penstock.tasks.child_process import supervise_packed
            from penstock.tasks.job_file import JobKey, take_job

            return supervise_packed(module, take_job(JobKey(path, pad, mac)), alive).decode()

        def collected() -> bytes:
            shipped = F.udf(task, "string", useArrow=False).asNondeterministic()
            name = f"{module.rpartition('.')[2]} ({threading.current_thread().name})"
            with described(spark, f"penstock runs {name}"):
                rows = spark.range(0, 1, 1, 1).select(shipped("id")).collect()
            return str(rows[0][0]).encode()

        def task(_: int) -> str:  # it uses the standard library alone until Penstock is proved
            try:
                return work()
            except Exception as e:
                import json

                as_dict = getattr(e, "as_dict", None)  # of a PenstockError
                described = {"worker": worker(), "error": as_dict and as_dict(), "words": repr(e)}
                raise RuntimeError(raised + json.dumps(described)) from e

        try:
            return _while_alive(collected, Path(alive), module, working)
        except Exception as e:
            ours = isinstance(e, PySparkException | PenstockError | NoSlot)
            if not ours and (death := java_death(DEATH_SECONDS)) is not None:
                raise death from None
            raise
        finally:
            remove_job(key)
            Path(alive).unlink(missing_ok=True)

    return submit


@functools.cache
def _version() -> str | None:
    """This program's version of Penstock; None: it came without (an archive on the path)."""
    return next((found.version for found in distributions(name="penstock")), None)


class NoSlot(Exception):
    """Raised for a task that Spark did not start, while no other task of the run worked. If Spark
    starts it later, it finds no job and ends."""


def _while_alive(
    collected: Callable[[], bytes], alive: Path, module: str, working: set[Path]
) -> bytes:
    """Calls ``collected`` in a separate thread and returns its result or raises its error. If there
    is no new sign of life in ``alive`` for :data:`SILENT_SECONDS` after the first one, kills the
    task if it runs on this machine, and raises ``lane.lost``: on another machine it may go on, but
    nothing that it writes counts. If there is no first sign for :data:`START_SECONDS` in which none
    of ``working``, the run's tasks that have begun, was there, raises :class:`NoSlot`. Time in
    which this process itself was stopped does not count."""
    answer, failed = list[bytes](), list[Exception]()

    def work() -> None:
        try:
            answer.append(collected())
        except Exception as e:  # Spark's and py4j's errors have no common base
            failed.append(e)

    thread = threading.Thread(target=work, name=threading.current_thread().name, daemon=True)
    thread.start()
    seen, silence, looked_at = b"", 0.0, time.monotonic()
    try:
        while thread.is_alive() and silence < (SILENT_SECONDS if seen else START_SECONDS):
            thread.join(_LOOK_SECONDS)
            before, looked_at = looked_at, time.monotonic()
            sign = _content(alive)
            silence += min(looked_at - before, _LOOK_SECONDS)
            if sign:
                working.add(alive)
            if sign != seen or not (sign or working <= {alive}):
                seen, silence = sign, 0.0
        began = alive in working
    finally:
        working.discard(alive)
    if thread.is_alive() and not began:
        raise NoSlot
    if thread.is_alive():
        kill(seen.partition(b" ")[2].decode())
        raise Defect(
            f"the Spark task of {module} gave no sign of life for {SILENT_SECONDS:.0f} s: its "
            "Python worker was stopped, or its machine does not answer",
            code="lane.lost",
            hint="see the run's spark.log; what was sealed is kept",
        )
    if failed:
        raise failed[0]
    return answer[0]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def here(module: str, job: bytes) -> bytes:
    """Runs the same process without Spark, for dry runs, which move no data."""
    return supervise(module, job)


class SubmittedJob(Generic[A]):
    """Runs ``submit`` in a thread of its own, which returns the answer of a job once that ended;
    :meth:`answer` and :meth:`lost` show how far it is."""

    def __init__(self, name: str, submit: Callable[[], A]) -> None:
        self._answer: A | None = None
        self._lost: BaseException | None = None

        def work() -> None:
            try:
                self._answer = submit()
            except Exception as e:  # Spark's and py4j's errors have no common base
                self._lost = e

        threading.Thread(target=work, name=name, daemon=True).start()

    def answer(self) -> A | None:
        """Returns the job's answer; None: it is running, or was lost."""
        return self._answer

    def lost(
        self, what: str, claimed_by: Callable[[], str | None] = lambda: None
    ) -> PenstockError | None:
        """Returns the error that rules out an answer, or None: it names the worker, if Spark does,
        and what it lacks. ``what`` names the process in the message. ``claimed_by`` names the one
        that had begun the job, if another found it begun."""
        cause = self._lost
        return None if cause is None else why_lost(cause, what, claimed_by)


def why_lost(
    cause: BaseException, what: str, claimed_by: Callable[[], str | None] = lambda: None
) -> PenstockError:
    """Makes the error for a job whose submission raised ``cause``; arguments as in
    :meth:`SubmittedJob.lost`."""
    if isinstance(cause, PenstockError):
        return cause
    if isinstance(cause, NoSlot):
        return _no_slot(what)
    text = str(cause)
    raised = _raised(text)
    worker = f"worker {raised['worker']}" if raised else _named_by_spark(text, cause)
    if _NO_PENSTOCK in text:
        return ConfigError(
            f"{worker} runs a Python that has no Penstock",
            code="spark.no_penstock",
            hint=_PYTHON_HINT,
        )
    if _OTHER_PYTHON in text:
        return ConfigError(
            f"{worker} runs another Python than this program's {sys.version.split()[0]}: Spark "
            "needs the same minor version",
            code="spark.other_python",
            hint=_PYTHON_HINT,
        )
    if _OTHER_PENSTOCK in text:
        its = text.rpartition(_OTHER_PENSTOCK)[2].split()[0]
        return ConfigError(
            f"{worker} has Penstock {its}, and this program {_version()}",
            code="spark.other_penstock",
            hint="install the same version on every worker: " + _PYTHON_HINT,
        )
    if not raised or raised["error"] is None:
        words = raised["words"] if raised else _reason(text, cause)
        return _process_lost(what, worker, words)
    error = PenstockError.from_dict(raised["error"])
    if error.code == "log.claimed":
        begun = claimed_by()
        if begun is not None:  # Spark began it a second time, on a worker that is well
            return _process_lost(what, f"worker {begun}", "it ended without an answer")
        return _process_lost(what, worker, error.message)
    if error.code == "lane.lost":
        return _process_lost(what, worker, error.message)
    error.message = f"{worker} cannot run the {what}: {error.message}"
    return error


def _raised(text: str) -> dict[str, Any] | None:
    """Returns what the last failed task reported: its ``worker``, the exception's ``words``, and
    the ``error`` as data, if it is one of ours. None: Spark lost the task."""
    _, found, rest = text.rpartition(_RAISED)
    with suppress(ValueError):
        return json.JSONDecoder().raw_decode(rest)[0] if found else None
    return None


def _named_by_spark(text: str, cause: BaseException) -> str:
    trace = getattr(cause, "_stackTrace", None) or getattr(cause, "_stacktrace", None)
    found = _WORKER.findall(f"{text}\n{trace}")
    return f"worker {found[-1][0]} (executor {found[-1][1]})" if found else "a worker"


def _reason(text: str, cause: BaseException) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((x for x in lines if "Error" in x or "lost" in x.lower()), "") or repr(cause)


def _no_slot(what: str) -> ConfigError:
    return ConfigError(
        f"Spark did not start the {what}'s task within {START_SECONDS:.0f} s: no slot was free",
        code="spark.no_slot",
        hint="see which jobs hold Spark's slots and whether the cluster has a live worker, free a "
        "slot or give Spark more (`spark.master`, `PENSTOCK_SPARK_MASTER='local[4]'`), then run "
        "again: what was sealed is kept",
    )


def _process_lost(what: str, worker: str, reason: str) -> Defect:
    return Defect(
        f"the process that ran the {what} was lost with its Spark task on {worker}: {reason}",
        code="lane.lost",
        hint="see the run's spark.log; what was sealed is kept",
    )
