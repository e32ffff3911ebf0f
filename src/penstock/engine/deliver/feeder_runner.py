"""A destination connector fed by a Spark job of its own: the driver's end of a conversation.

Neighbours: ``engine.deliver.connector_delivery`` decides what is fed, ``engine.worker.feeder`` is
the process, ``engine.channel.feeder_mail`` carries orders and acks. A job that finds no free slot
waits for the lanes to end: nothing they do depends on it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from penstock.engine.channel.feeder_mail import PushMail
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.channel.spark_job import Submit, Submitted
from penstock.engine.specs.feeder import Acked, Order, PushEnd, PushJob, PushResult
from penstock.engine.specs.lane import NewConfig
from penstock.model.catalog import StreamId
from penstock.model.segments import Shape
from penstock.protocols.contract import WriteStream
from penstock.spark.error_text import JAVA_DIED
from penstock.state.contract import LoadIntent
from penstock.state.keys import push_task

MODULE = "penstock.engine.worker.feeder"

DescribeStreams = Callable[[Mapping[StreamId, Shape]], dict[StreamId, WriteStream]]
"""Streams that have rows, with how they join -> these, and what a destination is told beside
them."""

MakeJob = Callable[[int, tuple[WriteStream, ...], int], PushJob]
"""(number, streams, attempt) -> the job."""


class PushTask:
    """``engine.deliver.connector_delivery.Feeder``. ``told_once``: the destination learns of
    streams and schemas when it starts, and never again."""

    def __init__(
        self,
        submit: Submit,
        log_root: Path,
        run: str,
        *,
        make_job: MakeJob,
        streams: DescribeStreams,
        told_once: bool,
        save_config: Callable[[NewConfig], None],
        started: Callable[[Path], None],
        mail_key: bytes,
        keyed: bool = False,
    ) -> None:
        self._submit, self._root, self._run, self._make_job = submit, log_root, run, make_job
        self._streams, self._told_once = streams, told_once
        self._save, self._started, self._mail_key = save_config, started, mail_key
        self._number, self._keyed = 0, keyed

    def keys_task(self) -> str | None:
        return push_task(self._run, self._number + 1) if self._keyed else None

    def start(self, streams: Mapping[StreamId, Shape], attempt: int) -> "_Conversation":
        self._number += 1
        told = self._streams(streams)
        mail = PushMail(self._root, self._run, self._number, self._mail_key)
        mail.create()
        job = msgspec.json.encode(self._make_job(self._number, tuple(told.values()), attempt))
        self._started(mail.log_path(self._number))
        task = Submitted("push", self._submit, MODULE, job)
        return _Conversation(
            mail,
            Mailbox(self._root, self._run),
            task,
            told,
            self._streams,
            told_once=self._told_once,
        )

    def cancelled(self) -> bool:
        return Mailbox(self._root, self._run).cancelled()

    def save_config(self, config: NewConfig) -> None:
        self._save(config)


class _Conversation:
    """``engine.deliver.connector_delivery.Conversation``."""

    def __init__(
        self,
        mail: PushMail,
        run: Mailbox,
        task: Submitted,
        told: dict[StreamId, WriteStream],
        streams: DescribeStreams,
        *,
        told_once: bool,
    ) -> None:
        self._mail, self._run, self._task, self._told = mail, run, task, told
        self._streams, self._told_once = streams, told_once
        self._given: list[Path] = []

    def takes(self, loads: Sequence[LoadIntent]) -> bool:
        return not (self._told_once and self._lacks(loads))

    def changes(self, loads: Sequence[LoadIntent]) -> Order:
        lacking = self._lacks(loads)
        shapes = {load.stream: load.shape for load in loads if load.stream in lacking}
        described = self._streams(shapes) if lacking else {}
        streams = {s: described[s] for s in lacking}
        self._told.update(streams)
        return Order(streams=tuple(streams.values()))

    def _lacks(self, loads: Sequence[LoadIntent]) -> list[StreamId]:
        """Streams of which the destination was not told what these rows need."""
        found = {
            load.stream
            for load in loads
            if load.stream not in self._told
            or load.schema_version not in self._told[load.stream].schemas
        }
        return sorted(found)

    def order(self, order: Order) -> None:
        self._mail.order(order)

    def acks(self) -> list[Acked]:
        return self._mail.acks()

    def new_config(self) -> NewConfig | None:
        """As ``engine.sync.lane_runner``: files go once the caller has stored what it got."""
        for path in self._given:
            path.unlink(missing_ok=True)
        configs = list(self._mail.configs())
        self._given = [path for path, _ in configs]
        return configs[-1][1] if configs else None

    def poll(self) -> PushResult | None:
        if (answer := self._task.answer()) is not None:
            return msgspec.json.decode(answer, type=PushResult)
        if (lost := self._task.lost("destination")) is not None:
            if lost.code == JAVA_DIED:
                raise lost  # no new process can be begun
            return PushResult(end=PushEnd.lost, errors=[lost.as_dict()])
        return None

    def cancel(self) -> None:
        self._run.cancel()
