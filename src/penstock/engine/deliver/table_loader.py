"""Commits loads of the ledger into tables, whose rows Spark's tasks handle (L3, L13).

Adds what the ledger does not keep (paths, names, schemas, policies) and translates failures. Spark
works in a thread of its own, one call at a time, so that the driver can watch its lanes meanwhile.
Neighbours: ``engine.deliver.delivery`` decides, ``tables`` commits.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.engine.deliver.delivery import FinishedCommits, RunningCommits
from penstock.engine.deliver.in_thread import InThread
from penstock.engine.deliver.session import SyncSession
from penstock.engine.deliver.stream_queries import Queries
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import DestinationError, PenstockError
from penstock.model.catalog import StreamId
from penstock.model.names import clean_tables, split_table
from penstock.model.segments import Load, PlannedOn
from penstock.model.types import RowSchema
from penstock.spark.error_text import JAVA_DIED, SPARK_FAILED, WRITE_FAILED
from penstock.spark.session import described, java_death
from penstock.tables.contract import (
    LoadResult,
    LoadTasks,
    TableFormat,
    TableLoad,
    TableName,
    TablePolicy,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BY_DEATH = (SPARK_FAILED, WRITE_FAILED, JAVA_DIED)  # errors that the death of Java may cause
_NAMED = 5  # tables, in the description of a load's jobs
DEATH_SECONDS = 2.0  # time for a JVM that stopped answering to be seen as dead


class TableLoader:
    """Implements ``engine.deliver.delivery.Loader`` for tables. ``tasks``: runs the processes that
    merge. ``policy``: of every load. ``streams``: as this run plans them; for others the store has
    the schemas. ``queries``: their result is committed in place of a load's rows; None: there are
    no queries."""

    def __init__(
        self,
        session: SyncSession,
        table: TableFormat,
        spark: "SparkSession",
        tasks: LoadTasks,
        policy: TablePolicy,
        streams: Iterable[PlannedStream],
        queries: Queries | None,
    ) -> None:
        self._session, self._table, self._spark, self._tasks = session, table, spark, tasks
        self._policy, self._queries = policy, queries
        self._schemas = {s.id: {s.schema.version: s.schema} for s in streams}
        self._names: Mapping[str, str] = {}

    def begin(self, loads: Sequence[Load]) -> RunningCommits:
        real = {
            index: self._table_load(load) for index, load in enumerate(loads) if load.reaches_table
        }
        if not real:
            return FinishedCommits([LoadResult(0) for _ in loads])
        return InThread("load", lambda: self._results(len(loads), real))

    def planned_on(self, stream: StreamId) -> PlannedOn | None:
        return self._table.planned_on(self.table_name(stream))

    def _results(
        self, count: int, real: Mapping[int, TableLoad]
    ) -> list[LoadResult | PenstockError]:
        began = time.monotonic()
        results = dict(zip(real, self._answered_and_committed(list(real.values())), strict=True))
        self._session.observer.load_seconds(time.monotonic() - began)
        return [results.get(i, LoadResult(0)) for i in range(count)]

    def _answered_and_committed(
        self, loads: Sequence[TableLoad]
    ) -> list[LoadResult | PenstockError]:
        if self._queries is None:
            return self._commit(loads)
        answered = self._queries.answered(loads)
        try:
            committed = iter(self._commit([x for x in answered if isinstance(x, TableLoad)]))
            return [x if isinstance(x, PenstockError) else next(committed) for x in answered]
        finally:
            self._queries.drop()

    def _commit(self, loads: Sequence[TableLoad]) -> list[LoadResult | PenstockError]:
        if not loads:
            return []
        try:
            names = ", ".join(f"{x.table.name} ({x.load.number})" for x in loads[:_NAMED])
            with described(self._spark, f"penstock loads {names}"):
                outcomes = self._table.commit(self._spark, self._tasks, loads)
        except PenstockError as e:
            return [e] * len(loads)
        if any(isinstance(x, DestinationError) and x.code in _BY_DEATH for x in outcomes):
            death = java_death(DEATH_SECONDS)
            if death is not None:
                raise death  # the next run repeats all loads, also those that were committed
        for load, outcome in zip(loads, outcomes, strict=True):
            if isinstance(outcome, DestinationError) and outcome.hint is None:
                outcome.hint = "nothing is lost: the load is recorded and repeated next time"
            if isinstance(outcome, PenstockError):
                outcome.stream = str(load.stream)
        return outcomes

    def _table_load(self, load: Load) -> TableLoad:
        return TableLoad(
            load=load,
            table=self.table_name(load.stream),
            parts=tuple(self._session.log.absolute(p) for p in load.parts),
            schema=self._schema(load),
            policy=self._policy,
        )

    def table_name(self, stream: StreamId) -> TableName:
        """Returns the name of a stream's table, from the store."""
        if stream.key not in self._names:
            session = self._session
            self._names = session.store.remembered(session.pipeline, ()).tables.tables
        cleaned = self._names.get(stream.key) or clean_tables([stream], self._names)[stream.key]
        return TableName(*split_table(cleaned))

    def _schema(self, load: Load) -> RowSchema:
        if (
            load.stream not in self._schemas
            or load.schema_version not in self._schemas[load.stream]
        ):
            session = self._session
            self._schemas[load.stream] = session.store.schemas(session.pipeline, load.stream)
        return self._schemas[load.stream][load.schema_version]


class NoLoader:
    """Commits nothing, in a dry run."""

    def planned_on(self, stream: StreamId) -> PlannedOn | None:
        return None

    def begin(self, loads: Sequence[Load]) -> FinishedCommits:
        return FinishedCommits([LoadResult(0) for _ in loads])
