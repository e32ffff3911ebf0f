"""Puts a sync together from its parts, as the only composition root: delivery, lanes, twins.

Neighbour: ``engine.run`` opens what is passed in and runs the result.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.deliver.connector_delivery import PushDelivery
from penstock.engine.deliver.delivery import Delivery, TableDelivery
from penstock.engine.deliver.feeder_runner import PushTask
from penstock.engine.deliver.part_checks import CheckSizes, PartCheck
from penstock.engine.deliver.session import SyncSession
from penstock.engine.deliver.stream_queries import Queries
from penstock.engine.deliver.table_loader import NoLoader, TableLoader
from penstock.engine.deliver.unacked import SentMarks
from penstock.engine.plan.destination_endpoint import DestinationEndpoint
from penstock.engine.plan.endpoint import DESTINATION, SOURCE
from penstock.engine.plan.feeder_jobs import FeederJobs
from penstock.engine.plan.lane_jobs import LaneJobs, sync_plan
from penstock.engine.plan.prepare import Prepared, evolution
from penstock.engine.plan.replan import Planner
from penstock.engine.run.lane_runner import LaneProcess, Lanes
from penstock.engine.run.monitor import RunMonitor
from penstock.engine.run.part_tasks import CheckInTasks
from penstock.engine.run.reject_retry import RejectRetry
from penstock.engine.specs.lane import LaneReader, NewConfig
from penstock.engine.sync.ports import Discovery
from penstock.engine.sync.sync import SyncRun
from penstock.runtimes.masking import Masker
from penstock.spark.session import choose_master, is_cluster, local_slots
from penstock.tables.contract import Deletes, LoadTasks, TableFormat, TablePolicy
from penstock.tasks.spark_job import here, on_spark
from penstock.tasks.submit import Submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGES_AT_ONCE = 4  # at most, on a cluster, where the number of free cores is not known
SaveConfig = Callable[[str, NewConfig], None]
"""(role, the connector's new configuration)."""


class RunParts:
    """The parts of one run's sync. ``limit``: records per stream, of ``--limit``. ``save``: stores
    a configuration that a connector changed (CONTROL)."""

    def __init__(
        self,
        prepared: Prepared,
        session: SyncSession,
        mailbox: Mailbox,
        monitor: RunMonitor,
        save: SaveConfig,
        limit: int | None,
    ) -> None:
        self._prepared, self._session, self._mailbox = prepared, session, mailbox
        self._monitor, self._save, self._limit = monitor, save, limit

    def sync(
        self,
        spark: "SparkSession | None",
        discovery: Discovery | None = None,
        retry: RejectRetry | None = None,
    ) -> SyncRun:
        """Builds the sync. ``spark`` None: a dry run. ``discovery``: confirms the sync's catalog.
        ``retry``: rejects that are read in place of the source. Raises ``ConfigError`` where Spark
        cannot analyse a query."""
        prepared, session = self._prepared, self._session
        queries = None if spark is None else self._queries(spark)
        if queries is not None:
            streams = queries.settle_all(prepared.plan.streams)
            prepared.plan = msgspec.structs.replace(prepared.plan, streams=streams)
        local = not is_cluster(choose_master(prepared.pipeline.spark.master, 1, 1))
        submit = here if spark is None else on_spark(spark, self._mailbox.folder, local)
        jobs = LaneJobs(
            prepared,
            self._mailbox,
            limit=self._limit,
            dry=spark is None,
            retried=retry and retry.files,
        )
        reader = self._reader(submit) if retry is None else LaneProcess(submit)
        return SyncRun(
            sync_plan(prepared),
            session,
            self._delivery(spark, queries, submit),
            Lanes(reader, self._mailbox, jobs.job, jobs.continued, self._save_source),
            Planner(
                prepared,
                session.store,
                session.lease,
                self._monitor.note,
                queries and queries.settle,
            ),
            self._monitor,
            discovery,
            retry,
        )

    def _reader(self, submit: Submit) -> LaneReader:
        prepared, session = self._prepared, self._session
        return prepared.source.reader(
            LaneProcess(submit),
            self._mailbox,
            prepared.plan.streams,
            prepared.rules,
            prepared.destination.form(),
            lambda: session.store.states(session.pipeline),
            submit,
        )

    def _save_source(self, new: NewConfig) -> None:
        self._prepared.source.change_config(new, lambda n: self._save(SOURCE, n))

    def _queries(self, spark: "SparkSession") -> Queries | None:
        if not self._prepared.queries:
            return None
        return Queries(
            self._session,
            self._prepared.queries,
            spark,
            self._prepared.rules.metadata,
            self._mailbox.log_root / "answers",
        )

    def _delivery(
        self, spark: "SparkSession | None", queries: Queries | None, submit: Submit
    ) -> Delivery:
        session = self._session
        if spark is None:
            return TableDelivery(session, NoLoader())
        sent = self._mailbox.log_root / "sent.json"
        return self._prepared.destination.delivery(
            tables=lambda table: TableDelivery(
                session, self._loader(spark, table, queries, submit), self._check(spark)
            ),
            connector=lambda end: PushDelivery(
                session,
                self._feeder(submit, end),
                SentMarks(sent),
                self._check(None),
            ),
        )

    def _check(self, spark: "SparkSession | None") -> PartCheck:
        """Returns how parts are verified before delivery. ``spark`` None: to a connector."""
        root = self._mailbox.log_root
        return CheckSizes(root) if spark is None else CheckInTasks(spark, root)

    def _loader(
        self,
        spark: "SparkSession",
        table: TableFormat,
        queries: Queries | None,
        submit: Submit,
    ) -> TableLoader:
        prepared, session = self._prepared, self._session
        cores = os.cpu_count() or 1
        master = choose_master(prepared.pipeline.spark.master, cores, 1)
        slots = local_slots(master)
        tasks = LoadTasks(
            submit,
            at_once=MERGES_AT_ONCE if slots is None else min(cores, slots),
            token=session.lease.token,
            elsewhere=is_cluster(master),
            prove_lease=session.prove_lease,
        )
        policy = TablePolicy(
            metadata=prepared.rules.metadata,
            evolution=evolution(prepared.pipeline),
            deletes=Deletes(prepared.pipeline.destination.deletes),
            change_words=prepared.source.package.change_words,
            longest_text=Masker(prepared.secrets()).longest_without,
        )
        return TableLoader(session, table, spark, tasks, policy, prepared.plan.streams, queries)

    def _feeder(self, submit: Submit, destination: DestinationEndpoint) -> PushTask:
        jobs = FeederJobs(self._prepared, destination, self._session.store, self._mailbox)
        return PushTask(
            submit,
            self._mailbox,
            make_job=jobs.job,
            describe=jobs.streams,
            describe_once=destination.connector.role.described_once,
            keyed=self._prepared.keys is not None,
            save_config=lambda new: destination.change_config(
                new, lambda n: self._save(DESTINATION, n)
            ),
            gave_result=lambda: jobs.gave_result(self._session.lease),
            started=self._monitor.push_started,
        )
