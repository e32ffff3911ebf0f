"""Runs lanes, each reading one epoch: a connector in a process of its own (:class:`LaneProcess`),
or a query (``engine.query.query_reader``).

The process runs as a Spark job; dry runs use :func:`tasks.spark_job.here` in place of Spark, with
the same process. Neighbours: ``engine.sync.sync`` starts and polls; ``engine.channel.mailbox``
carries progress and cancellation.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.specs.lane import (
    LaneEnd,
    LaneJob,
    LaneQuestion,
    LaneReader,
    LaneResult,
    NewConfig,
    StreamAnswer,
    StreamJob,
)
from penstock.engine.specs.plan import ContinuedStream, LaneStart
from penstock.errors import LogError, PenstockError
from penstock.spark.error_text import JAVA_DIED
from penstock.tasks.spark_job import SubmittedJob
from penstock.tasks.submit import Submit

STOP_SECONDS = 60.0  # ten for the connector to end, the rest to seal what it sent
MODULE = "penstock.engine.worker.lane"

MakeJob = Callable[[LaneStart], LaneJob]
MakeStream = Callable[[ContinuedStream, int], StreamJob]
SaveConfig = Callable[[NewConfig], None]


class LaneProcess:
    """Implements ``engine.specs.lane.LaneReader``: the lane's own process runs its connector."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    def read(self, job: LaneJob) -> LaneResult:
        answer = self._submit(MODULE, msgspec.json.encode(job))
        return msgspec.json.decode(answer, type=LaneResult)


class Lanes:
    """Implements ``engine.sync.ports.LaneRunner``. ``save_config`` stores a configuration that a
    source changed (CONTROL)."""

    def __init__(
        self,
        reader: LaneReader,
        mailbox: Mailbox,
        make_job: MakeJob,
        make_stream: MakeStream,
        save_config: SaveConfig,
    ) -> None:
        self._reader, self._mailbox, self._save_config = reader, mailbox, save_config
        self._make_job, self._make_stream = make_job, make_stream

    def start(self, start: LaneStart) -> "_Handle":
        job = self._make_job(start)
        task = SubmittedJob(f"lane-{start.lane}", partial(self._reader.read, job))
        return _Handle(start, self._mailbox, task, self._make_stream, self._save_config)


class _Handle:
    """Implements ``engine.sync.ports.LaneHandle`` for one epoch."""

    def __init__(
        self,
        start: LaneStart,
        mailbox: Mailbox,
        task: SubmittedJob[LaneResult],
        make_stream: MakeStream,
        save_config: SaveConfig,
    ) -> None:
        self._start, self._mailbox, self._task = start, mailbox, task
        self._make_stream, self._save_config = make_stream, save_config
        self._answered = 0
        self._claim = mailbox.log_root / "epochs" / f"{start.epoch:08d}" / "CLAIM"
        self._cancelled_at: float | None = None

    def poll(self) -> LaneResult | None:
        """Returns the lane's result, or None while it runs. Gives up a lane that does not stop
        after a cancellation, or that gets no slot (``tasks.spark_job``): its epoch is closed, and
        what it writes later does not count (L4, L11)."""
        result = self._result()
        if result is not None:
            self._mailbox.take_configs(self._start.epoch, self._save_config)
        return result

    def _result(self) -> LaneResult | None:
        if (result := self._task.answer()) is not None:
            if result.stats.get("segments") and not self._claim.exists():
                return LaneResult(end=LaneEnd.lost, errors=[_not_seen(self._claim).as_dict()])
            return result
        if (lost := self._task.lost("source", self._claimed_by)) is not None:
            if lost.code == JAVA_DIED:
                raise lost  # without the JVM no task can start another process
            return LaneResult(end=LaneEnd.lost, errors=[lost.as_dict()])
        cancelled_at = self._cancelled_at
        if cancelled_at is not None and time.monotonic() - cancelled_at > STOP_SECONDS:
            return LaneResult(end=LaneEnd.cancelled)
        return None

    def _claimed_by(self) -> str | None:
        """Returns the process that had begun the epoch, as it named itself; None: unknown."""
        with suppress(OSError):
            return self._claim.read_text() or None
        return None

    def ask(self) -> LaneQuestion | None:
        self._mailbox.take_configs(self._start.epoch, self._save_config)
        return self._mailbox.ask(self._start.epoch, self._answered + 1)

    def answer(self, ask: LaneQuestion, answer: ContinuedStream | PenstockError | None) -> None:
        reply = StreamAnswer()
        if isinstance(answer, PenstockError):
            reply.error = answer.as_dict()
        elif answer is not None:
            reply.stream = self._make_stream(answer, self._start.lane)
        self._mailbox.put_answer(self._start.epoch, ask.number, msgspec.json.encode(reply))
        self._answered = ask.number

    def cancel(self) -> None:
        self._cancelled_at = self._cancelled_at or time.monotonic()
        self._mailbox.cancel()


def _not_seen(claim: Path) -> LogError:
    """Returns the error of a lane that sealed rows in a folder that only its worker sees."""
    return LogError(
        f"the worker that ran the source does not share the log's folder {claim.parent}: what it "
        "sealed there is not seen on this machine",
        code="log.not_shared",
        where=str(claim.parent),
        hint="`log.path` must be on storage that the driver and every worker share, under the same "
        "path (docs/cluster.md)",
    )
