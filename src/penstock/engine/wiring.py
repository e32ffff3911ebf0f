"""A sync put together from its parts: which delivery, which lanes, which twins.

Neighbours: ``engine.run`` opens what is given here and runs what comes out.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.engine.accounting import Accounting
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.channel.spark_job import Submit, here, on_spark
from penstock.engine.deliver.connector_delivery import PushDelivery
from penstock.engine.deliver.delivery import Delivery, Gate, Loader, TableDelivery, Verdicts
from penstock.engine.deliver.feeder_runner import PushTask
from penstock.engine.deliver.stream_queries import Queries
from penstock.engine.deliver.table_loader import NoLoader, TableLoader
from penstock.engine.deliver.unacked import SentMarks
from penstock.engine.log.kept_rejects import RejectsKeeper
from penstock.engine.log.log import FileLog
from penstock.engine.plan.endpoints import DESTINATION, SOURCE, Destination, Source
from penstock.engine.plan.feeder_jobs import push_job, write_streams
from penstock.engine.plan.lane_jobs import make_job, sync_plan
from penstock.engine.plan.prepare import Prepared, evolution
from penstock.engine.plan.replan import Planner
from penstock.engine.run_monitor import Watch
from penstock.engine.specs.lane import NewConfig
from penstock.engine.specs.plan import PlannedStream
from penstock.engine.sync.lane_runner import Lanes
from penstock.engine.sync.sync import Sync
from penstock.model.catalog import StreamId
from penstock.model.segments import Shape
from penstock.protocols.contract import WriteStream
from penstock.state.contract import Lease, Store
from penstock.tables.contract import Deletes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SaveConfig = Callable[[str, NewConfig], None]
"""(role, the connector's new configuration)."""


class Assembly:
    """``rejects``: the folder where users query them; None: nothing is kept (a dry run)."""

    def __init__(
        self,
        pipeline: Pipeline,
        prepared: Prepared,
        lease: Lease,
        store: Store,
        log: FileLog,
        mailbox: Mailbox,
        watch: Watch,
        accounting: Accounting,
        *,
        run: str,
        rejects: Path | None,
        limit: int | None,
    ) -> None:
        self._pipeline, self._prepared, self._lease = pipeline, prepared, lease
        self._store, self._log, self._mailbox = store, log, mailbox
        self._watch, self._accounting = watch, accounting
        self._run, self._limit = run, limit
        self._keeper = RejectsKeeper(log.root, rejects, accounting.note)
        self._verdicts = Verdicts()
        self._states = prepared.states

    def sync(self, spark: "SparkSession | None", save: SaveConfig) -> Sync:
        """``spark`` None: a dry run. Raises ``ConfigError`` where Spark cannot read a query."""
        source: Source = self._prepared.source
        queries = None if spark is None else self._queries(spark)
        if queries is not None:
            self._prepared.plan = msgspec.structs.replace(
                self._prepared.plan, streams=queries.settle_all(self._prepared.plan.streams)
            )
        submit = here if spark is None else on_spark(spark, self._mailbox.folder)
        planner = Planner(
            self._pipeline,
            self._prepared,
            self._store,
            self._lease,
            self._added,
            (lambda planned: planned) if queries is None else queries.settle,
        )
        lanes = Lanes(
            submit,
            self._mailbox,
            lambda start: make_job(
                self._pipeline,
                self._prepared,
                start,
                run=self._run,
                log_root=str(self._log.root),
                limit=self._limit,
                dry=spark is None,
                mail_key=self._mailbox.key,
            ),
            planner.job,
        )
        return Sync(
            sync_plan(self._pipeline, self._prepared),
            lease=self._lease,
            store=self._store,
            log=self._log,
            delivery=self._delivery(spark, queries, submit, save),
            keep_rejects=self._keeper.keep,
            runner=lanes,
            planner=planner,
            states=self._states,
            observer=self._watch,
            time=self._watch,
            verdicts=self._verdicts,
            save_config=lambda new: source.change_config(new, lambda n: save(SOURCE, n)),
        )

    def _added(self, stream: PlannedStream) -> None:
        self._accounting.place(stream, self._prepared.place)

    def _queries(self, spark: "SparkSession") -> Queries | None:
        if not self._prepared.queries:
            return None
        return Queries(
            self._prepared.queries,
            spark,
            store=self._store,
            lease=self._lease,
            pipeline=self._pipeline.pipeline,
            metadata=self._prepared.metadata,
            folder=self._log.root / "answers",
            note=self._accounting.note,
        )

    def _delivery(
        self,
        spark: "SparkSession | None",
        queries: Queries | None,
        submit: Submit,
        save: SaveConfig,
    ) -> Delivery:
        gate = Gate(
            self._pipeline.pipeline,
            self._log,
            self._store,
            self._states,
            self._watch,
            self._verdicts,
        )
        place = self._prepared.place
        if spark is not None and isinstance(place, Destination):
            return PushDelivery(
                lease=self._lease,
                store=self._store,
                sent=SentMarks(self._log.root / "sent.json"),
                feeder=self._feeder(submit, place, save),
                keep_rejects=self._keeper.keep_files,
                gate=gate,
                states=self._states,
                observer=self._watch,
                verdicts=self._verdicts,
            )
        return TableDelivery(
            self._pipeline.pipeline,
            lease=self._lease,
            store=self._store,
            loader=NoLoader() if spark is None else self._loader(spark, queries),
            gate=gate,
            states=self._states,
            observer=self._watch,
            verdicts=self._verdicts,
        )

    def _loader(self, spark: "SparkSession", queries: Queries | None) -> Loader:
        return TableLoader(
            table=self._prepared.place,
            spark=spark,
            log=self._log,
            store=self._store,
            pipeline=self._pipeline.pipeline,
            schemas=self._prepared.schemas,
            metadata=self._prepared.metadata,
            evolution=evolution(self._pipeline),
            deletes=Deletes(self._pipeline.destination.deletes),
            change_words=self._prepared.source.package.change_words,
            note=self._accounting.note,
            timed=self._add_load_time,
            queries=queries,
            clock=time.monotonic,
        )

    def _add_load_time(self, seconds: float) -> None:
        self._accounting.time.load += seconds

    def _feeder(self, submit: Submit, destination: Destination, save: SaveConfig) -> PushTask:
        prepared = self._prepared

        def streams(filled: Mapping[StreamId, Shape]) -> dict[StreamId, WriteStream]:
            pipeline = self._pipeline.pipeline
            return write_streams(destination, prepared, self._store, pipeline, filled)

        return PushTask(
            submit,
            self._log.root,
            self._run,
            make_job=lambda number, streams, attempt: push_job(
                self._pipeline,
                destination,
                prepared.source.package.name,
                run=self._run,
                number=number,
                log_root=str(self._log.root),
                streams=streams,
                attempt=attempt,
                keys=prepared.keys,
                mail_key=self._mailbox.key,
            ),
            mail_key=self._mailbox.key,
            keyed=prepared.keys is not None,
            streams=streams,
            told_once=destination.connector.role.told_once,
            save_config=lambda new: destination.change_config(new, lambda n: save(DESTINATION, n)),
            started=self._watch.push_started,
        )
