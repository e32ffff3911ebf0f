"""Runs a pipeline's queries over whole streams (``spark-sql``) at each load.

Before the source is started, Spark analyses them for each planned stream: errors are raised then,
and keys and cursor are mapped to columns of the result. At a load, the result is written as parts
next to the log, which replace the load's own; the code that commits a load does not depend on
queries. These parts may be deleted at any time: a repeated load (L3) runs the query again, as the
pipeline file then has it, so that a query that fails on the rows can be fixed.

Neighbours: ``transforms.spark_sql`` reads the pipeline file, ``spark.query`` calls Spark,
``engine.deliver.table_loader`` commits.
"""

import secrets
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.engine.deliver.session import SyncSession
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError, PenstockError
from penstock.model.catalog import DestinationSyncMode, FieldPath, StreamId, default_cursor
from penstock.model.segments import PartRef, WriteDisposition
from penstock.model.types import SEQ, Field, MetadataNames, RowSchema, cleaned_path
from penstock.spark.error_text import table_failure
from penstock.spark.query import CODE, Query, QueryColumns, answer, write
from penstock.store.remembered import Remembered
from penstock.tables.contract import TableLoad
from penstock.tables.frame.load_frame import read_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARALLEL_LOADS = 4


class Queries:
    """The queries of one run. ``folder``: for the result's parts; leftovers of another run in it
    are deleted."""

    def __init__(
        self,
        session: SyncSession,
        queries: Sequence[Query],
        spark: "SparkSession",
        metadata: MetadataNames | None,
        folder: Path,
    ) -> None:
        self._session, self._queries, self._spark = session, queries, spark
        self._note = session.observer.note
        self._reserved = () if metadata is None else msgspec.structs.astuple(metadata)
        self._folder, self._loads = folder, Counter[StreamId]()
        self.drop()

    # -- before the first record

    def settle_all(self, streams: Sequence[PlannedStream]) -> tuple[PlannedStream, ...]:
        """Calls :meth:`settle` for each stream. Raises ``ConfigError`` with the problems of every
        stream whose columns are known before its rows."""
        settled: list[PlannedStream] = []
        failed: list[tuple[StreamId, ConfigError]] = []
        for stream in streams:
            try:
                settled.append(self.settle(stream))
            except ConfigError as e:
                if stream.chain is None or not stream.chain.made:
                    failed.append((stream.id, e))
                    continue
                settled.append(stream)
                self._note(
                    f"stream {stream.id}: {e.message}; the columns of a connector's transform are "
                    "known only with its rows: Spark checks the query again then"
                )
        if failed:
            raise _together(failed)
        return tuple(settled)

    def settle(self, stream: PlannedStream) -> PlannedStream:
        """Returns the stream with key, cursor and deletes mapped to columns of the query's result.
        Saves the columns' names. Raises ``ConfigError``."""
        found = answer(
            self._spark,
            self._queries,
            stream.schema,
            taken=self._names(stream.id),
            reserved=self._reserved,
        )
        self._remember(stream.id, found)
        if stream.disposition.mode is not DestinationSyncMode.append_dedup:
            return stream
        return msgspec.structs.replace(stream, disposition=self._disposition(stream, found.schema))

    def _disposition(self, stream: PlannedStream, schema: RowSchema) -> WriteDisposition:
        disposition, configured = stream.disposition, stream.configured
        key = tuple(map(_path, configured.primary_key, disposition.primary_key, repeat(schema)))
        missing = [".".join(p) for p, k in zip(configured.primary_key, key, strict=True) if not k]
        gives = ", ".join(f.name for f in schema.fields)
        if missing:
            raise ConfigError(
                f"the primary key {', '.join(missing)} is not a typed column of spark-sql's result",
                code=CODE,
                where=self._queries[-1].where,
                hint=f"select it, or use append or overwrite; the query gives {gives}",
            )
        named = () if disposition.arrival else default_cursor(configured)
        cursor = _path(named, disposition.cursor, schema)
        if named and not cursor:
            self._note(
                f"stream {stream.id}: spark-sql gives no cursor {'.'.join(named)}: of two rows of "
                "a key the one that was loaded last is the newer"
            )
        kept = any(f.name == disposition.deleted_column for f in schema.fields)
        return msgspec.structs.replace(
            disposition,
            primary_key=key,
            cursor=cursor,
            deleted_column=disposition.deleted_column if kept else None,
        )

    # -- at a load

    def answered(self, loads: Sequence[TableLoad]) -> list[TableLoad | PenstockError]:
        """Returns each load with the parts and columns of the query's result in place of its own,
        or the query's error."""
        for load in loads:
            self._loads[load.stream] += 1
            if self._loads[load.stream] == 2:
                self._note(
                    f"stream {load.stream}: its rows are loaded in several parts; spark-sql is "
                    "exact within each part"
                )
        with ThreadPoolExecutor(PARALLEL_LOADS, "penstock-query") as pool:
            return list(pool.map(self._answered, loads))

    def drop(self) -> None:
        """Deletes the result's parts, after their loads were committed or failed."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answered(self, load: TableLoad) -> TableLoad | PenstockError:
        folder = self._folder / f"{load.load.number:012d}-{secrets.token_hex(4)}"
        try:
            rows = read_parts(self._spark, load)
            if load.mode is DestinationSyncMode.append_dedup:
                rows = rows.orderBy(SEQ)  # Spark reads the largest part first
            found = write(
                self._spark,
                self._queries,
                rows,
                load.schema,
                str(folder),
                taken=self._names(load.stream),
                reserved=self._reserved,
            )
            self._remember(load.stream, found)
            parts = tuple(part for p in sorted(folder.glob("*.parquet")) if (part := _part(p)).rows)
        except PenstockError as e:
            return e
        except Exception as failure:
            return table_failure(failure, load.table.name)
        return msgspec.structs.replace(
            load,
            load=msgspec.structs.replace(load.load, parts=parts),
            parts=tuple(part.path for part in parts),
            schema=found.schema,
        )

    # -- names

    def _names(self, stream: StreamId) -> Mapping[str, str]:
        known = self._session.store.remembered(self._session.pipeline, [stream])
        return known.answer_columns.get(stream, {})

    def _remember(self, stream: StreamId, found: QueryColumns) -> None:
        more = Remembered(answer_columns={stream: found.names})
        self._session.store.remember(self._session.lease, more)


def _path(original: FieldPath, planned: FieldPath, schema: RowSchema) -> FieldPath:
    """Returns the result's column for a property: by the property's original name, else by its
    cleaned column name."""
    found = cleaned_path(original, schema)
    if not found and len(planned) == 1:
        named = RowSchema(tuple(Field(f.name, f.name, f.type) for f in schema.fields))
        found = cleaned_path(planned, named)
    return found


def _part(path: Path) -> PartRef:
    import pyarrow.parquet as pq

    size, rows = path.stat().st_size, pq.ParquetFile(path).metadata.num_rows
    return PartRef(str(path), rows, size, size, crc=0)


def _together(failed: Sequence[tuple[StreamId, ConfigError]]) -> ConfigError:
    """Joins the errors of several streams into one, each problem once."""
    affected: dict[str, list[StreamId]] = {}
    for stream, error in failed:
        for problem in error.problems or [error.message]:
            affected.setdefault(problem, []).append(stream)
    problems = [
        f"{problem} (stream {', '.join(map(str, ids))})" for problem, ids in affected.items()
    ]
    first = failed[0][1]
    return ConfigError(
        problems[0]
        if len(problems) == 1
        else f"{len(problems)} faults in spark-sql: " + "; ".join(problems),
        code=first.code,
        where=first.where,
        problems=problems,
        hint=first.hint,
        stream=str(failed[0][0]) if len(failed) == 1 else None,
    )
