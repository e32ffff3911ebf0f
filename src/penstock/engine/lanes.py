"""Lanes as Spark jobs: one single-task, non-barrier job an epoch, each from its own thread.

So one lane's failure does not cancel another, and a job needs one slot. The task only supervises a
process (``engine.task``); its answer is one row. A plain Python UDF ships it: Spark's
``mapInArrow`` wants pandas on the driver. Only the session API of Spark Connect is used.

:class:`ProcessLanes` runs the same process without Spark, for dry runs, which move no data.
Neighbours: ``engine.sync`` starts and polls; ``engine.mailbox`` carries progress and CANCEL.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.engine.epochs import LaneStart
from penstock.engine.job import LaneEnd, LaneJob, LaneResult, StreamAnswer, StreamJob
from penstock.engine.mailbox import Ask, Mailbox, NewConfig
from penstock.engine.sync import Planned
from penstock.engine.task import supervise
from penstock.errors import Defect, PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS = 600.0  # a cluster may have to find a free slot, or a machine, first
STOP_SECONDS = 60.0  # a connector has ten of them to end, and what it sent is sealed

MakeJob = Callable[[LaneStart], LaneJob]
MakeStream = Callable[[Planned], StreamJob]


class _Handle:
    """One epoch in a thread of its own."""

    def __init__(
        self, start: LaneStart, mailbox: Mailbox, run: Callable[[], bytes], make: MakeStream
    ) -> None:
        self._start, self._mailbox, self._run, self._make = start, mailbox, run, make
        self._answered = 0
        self._result: LaneResult | None = None
        self._given: Any = None
        self._began = time.monotonic()
        self._seen = False
        self._cancelled_at: float | None = None
        self._thread = threading.Thread(target=self._work, name=f"lane-{start.lane}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._result = msgspec.json.decode(self._run(), type=LaneResult)
        except Exception as e:  # Spark's and py4j's errors have no common base
            self._result = LaneResult(end=LaneEnd.lost, errors=[_lost(e).as_dict()])

    def poll(self) -> LaneResult | None:
        """A lane that does not start, or does not stop when told to, is given up: its epoch is
        closed, and what it may still do does not count (L4, L11)."""
        if self._result is not None:
            return self._result
        now = time.monotonic()
        if self._cancelled_at is not None and now - self._cancelled_at > STOP_SECONDS:
            return LaneResult(end=LaneEnd.cancelled)
        if not self._seen:
            self._seen = self._mailbox.progress(self._start.epoch) is not None
            if not self._seen and now - self._began > START_SECONDS:
                return LaneResult(end=LaneEnd.lost, errors=[_never_started().as_dict()])
        return None

    def new_config(self) -> NewConfig | None:
        """The newest one waiting; their files go when the next is asked for, that is, once the
        caller has stored what it got."""
        if self._given is not None:
            for path in self._given:
                path.unlink(missing_ok=True)
            self._given = None
        configs = list(self._mailbox.configs(self._start.epoch))
        if not configs:
            return None
        self._given = [path for path, _ in configs]
        return configs[-1][1]

    def ask(self) -> Ask | None:
        return self._mailbox.ask(self._start.epoch, self._answered + 1)

    def answer(self, ask: Ask, answer: Planned | PenstockError | None) -> None:
        told = StreamAnswer()
        if isinstance(answer, PenstockError):
            told.error = answer.as_dict()
        elif answer is not None:
            told.stream = self._make(answer)
        self._mailbox.put_answer(self._start.epoch, ask.number, msgspec.json.encode(told))
        self._answered = ask.number

    def cancel(self) -> None:
        self._cancelled_at = self._cancelled_at or time.monotonic()
        self._mailbox.cancel()


def _never_started() -> PenstockError:
    return Defect(
        f"Spark did not start the task that runs the source within {START_SECONDS:.0f} s",
        code="lane.not_started",
        hint="has the cluster a free slot, and a worker that is alive?",
    )


def _lost(cause: BaseException) -> PenstockError:
    if isinstance(cause, PenstockError):
        return cause
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    raised = [line for line in lines if line.startswith("penstock.errors.")]
    told = next((line for line in lines if "Error" in line or "lost" in line.lower()), "")
    if raised:
        told = raised[-1].partition(": ")[2]
    return Defect(
        f"the process that ran the source was lost with its Spark task: {told or repr(cause)}",
        code="lane.lost",
        hint="see the run's spark.log; what was sealed is kept",
    )


class SparkLanes:
    def __init__(
        self, spark: "SparkSession", mailbox: Mailbox, make_job: MakeJob, make_stream: MakeStream
    ) -> None:
        self._spark, self.mailbox = spark, mailbox
        self._make_job, self._make_stream = make_job, make_stream

    def start(self, start: LaneStart) -> _Handle:
        job = msgspec.json.encode(self._make_job(start))
        return _Handle(start, self.mailbox, lambda: self._run(job), self._make_stream)

    def _run(self, job: bytes) -> bytes:
        from pyspark.sql import functions as F

        def lane(_: int) -> str:
            from penstock.engine.task import supervise

            return supervise(job).decode()

        task = F.udf(lane, "string", useArrow=False).asNondeterministic()
        rows = self._spark.range(0, 1, 1, 1).select(task("id")).collect()
        return str(rows[0][0]).encode()


class ProcessLanes:
    def __init__(self, mailbox: Mailbox, make_job: MakeJob, make_stream: MakeStream) -> None:
        self.mailbox, self._make_job, self._make_stream = mailbox, make_job, make_stream

    def start(self, start: LaneStart) -> _Handle:
        job = msgspec.json.encode(self._make_job(start))
        return _Handle(start, self.mailbox, lambda: supervise(job), self._make_stream)
