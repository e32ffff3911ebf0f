"""Feeds a destination connector by a Spark job of its own: the driver's side of a conversation.

Neighbours: ``engine.deliver.connector_delivery`` decides what is fed, ``engine.worker.feeder`` is
the process, ``engine.channel.feeder_mail`` carries orders and acks. A job without a free slot waits
for the end of the lanes, which do not depend on it, and then within a bound
(``tasks.spark_job.START_SECONDS``).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from penstock.engine.channel.feeder_mail import PushMail
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.deliver.connector_delivery import JoinsBy, how_it_joins
from penstock.engine.specs.feeder import AckedSegments, FeedOrder, PushEnd, PushJob, PushResult
from penstock.engine.specs.lane import NewConfig
from penstock.model.catalog import StreamId
from penstock.model.segments import WriteDisposition
from penstock.protocols.writing import WriteStream
from penstock.spark.error_text import JAVA_DIED
from penstock.store.contract import LoadIntent
from penstock.store.keys import push_task
from penstock.tasks.spark_job import SubmittedJob
from penstock.tasks.submit import Submit

MODULE = "penstock.engine.worker.feeder"

DescribeStreams = Callable[[Mapping[StreamId, WriteDisposition]], dict[StreamId, WriteStream]]
"""(streams with rows -> their write dispositions) -> the descriptions of all the plan's streams."""

MakeJob = Callable[[int, tuple[WriteStream, ...], int], PushJob]
"""(number, streams, attempt) -> the job."""


class PushTask:
    """Implements ``engine.deliver.connector_delivery.Feeder``. ``mailbox``: the run's.
    ``describe_once``: the destination can be given streams and schemas only when it starts.
    ``keyed``: it may keep connector keys. ``started`` is called with the path of each
    conversation's log, ``gave_result`` where the destination gave a result, before what it acked is
    settled."""

    def __init__(
        self,
        submit: Submit,
        mailbox: Mailbox,
        *,
        make_job: MakeJob,
        describe: DescribeStreams,
        describe_once: bool,
        keyed: bool,
        save_config: Callable[[NewConfig], None],
        started: Callable[[Path], None],
        gave_result: Callable[[], None] = lambda: None,
    ) -> None:
        self._submit, self._mailbox, self._make_job = submit, mailbox, make_job
        self._describe, self._describe_once = describe, describe_once
        self._save_config, self._started = save_config, started
        self._gave_result = gave_result
        self._number, self._keyed = 0, keyed

    def keys_task(self) -> str | None:
        return push_task(self._mailbox.run, self._number + 1) if self._keyed else None

    def start(self, streams: Mapping[StreamId, WriteDisposition], attempt: int) -> "_Conversation":
        self._number += 1
        described = self._describe(streams)
        mail = PushMail(self._mailbox.log_root, self._mailbox.run, self._number, self._mailbox.key)
        mail.create()
        job = msgspec.json.encode(self._make_job(self._number, tuple(described.values()), attempt))
        self._started(mail.log_path(self._number))
        return _Conversation(
            mail,
            self._mailbox,
            SubmittedJob("push", partial(self._submit, MODULE, job)),
            described,
            self._describe,
            self._save_config,
            self._gave_result,
            describe_once=self._describe_once,
        )

    def cancelled(self) -> bool:
        return self._mailbox.cancelled()


class _Conversation:
    """Implements ``engine.deliver.connector_delivery.Conversation``."""

    def __init__(
        self,
        mail: PushMail,
        run: Mailbox,
        task: SubmittedJob[bytes],
        described: dict[StreamId, WriteStream],
        describe: DescribeStreams,
        save_config: Callable[[NewConfig], None],
        gave_result: Callable[[], None],
        *,
        describe_once: bool,
    ) -> None:
        self._mail, self._run, self._task, self._described = mail, run, task, described
        self._describe, self._describe_once = describe, describe_once
        self._save_config, self._gave_result = save_config, gave_result
        self._known_ways: dict[StreamId, JoinsBy] = {}  # of loads that were compared

    def takes(self, loads: Sequence[LoadIntent]) -> bool:
        begun = (load.disposition.anew and load.stream in self._described for load in loads)
        if any(begun) or any(map(self._joins_otherwise, loads)):
            return False
        return not (self._describe_once and self._lacks(loads))

    def changes(self, loads: Sequence[LoadIntent]) -> FeedOrder:
        lacking = self._lacks(loads)
        dispositions = {load.stream: load.disposition for load in loads if load.stream in lacking}
        described = self._describe(dispositions) if lacking else {}
        streams = {s: described[s] for s in lacking}
        self._described.update(streams)
        return FeedOrder(streams=tuple(streams.values()))

    def _joins_otherwise(self, load: LoadIntent) -> bool:
        """Whether the destination was given another mode or primary key for the load's stream: a
        source may have sent them since."""
        described, way = self._described.get(load.stream), how_it_joins(load)
        if described is None or self._known_ways.get(load.stream) == way:
            return False
        now = self._describe({load.stream: load.disposition})[load.stream].configured
        if (now.destination_sync_mode, now.primary_key) != (
            described.configured.destination_sync_mode,
            described.configured.primary_key,
        ):
            return True
        self._known_ways[load.stream] = way
        return False

    def _lacks(self, loads: Sequence[LoadIntent]) -> list[StreamId]:
        """Returns the streams whose description, or whose schema version in the load, the
        destination does not have."""
        found = {
            load.stream
            for load in loads
            if load.stream not in self._described
            or load.schema_version not in self._described[load.stream].schemas
        }
        return sorted(found)

    def order(self, order: FeedOrder) -> None:
        self._mail.order(order)

    def acks(self) -> list[AckedSegments]:
        acks = self._mail.acks()
        if any(acked.gives_results for acked in acks):
            self._gave_result()
        return acks

    def poll(self) -> PushResult | None:
        answer = self._task.answer()
        self._mail.take_configs(self._mail.number, self._save_config)  # after the last one too
        if answer is not None:
            result = msgspec.json.decode(answer, type=PushResult)
            if result.gives_results:
                self._gave_result()
            return result
        if (lost := self._task.lost("destination")) is not None:
            if lost.code == JAVA_DIED:
                raise lost  # without the JVM no task can start another process
            return PushResult(end=PushEnd.lost, errors=[lost.as_dict()])
        return None

    def cancel(self) -> None:
        self._run.cancel()
