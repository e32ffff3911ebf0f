"""Reads a lane that is a model: has Spark stage its rows, then a lane's process read them.

A model (``spark:``) has no connector that a lane could run, and a lane has no Spark. So a Spark job
writes the rows of an epoch into the epoch's folder of the log. The epoch's lane reads them like the
output of a connector: under the epoch's CLAIM (L4), through transforms, rejects and the sealer, so
that whatever follows is the same. Spark may run the query's tasks more than once; the output of a
failed task is not part of the rows.

Where a database runs the query, the lane reads the rows from there itself. Rows that are compared
with the rows sent before, and those of a dry run, are first written to files by a task of its own
(``engine.worker.database_files``), which Spark reads.

Not here: the query (``spark.model``), when lanes begin (``engine.run.lane_runner``). Neighbours:
``engine.plan.model_source`` makes it, ``engine.worker.staged_source`` reads what is staged.
"""

import shutil
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.databases.postgres import describe
from penstock.engine.channel.mailbox import Mailbox, Progress
from penstock.engine.query.file_rows import stage_files
from penstock.engine.query.model_diff import ModelDiff
from penstock.engine.specs.database_fetch import FetchJob, FetchResult
from penstock.engine.specs.lane import LaneEnd, LaneJob, LaneReader, LaneResult, StreamJob
from penstock.errors import PenstockError, StateError
from penstock.model.catalog import ConfiguredStream, SyncMode
from penstock.model.database_query import DatabaseRead
from penstock.model.staged_rows import StagedRows, cursor_state
from penstock.model.state import StoredState
from penstock.model.types import DataType, Field
from penstock.spark.model import (
    Model,
    by_position,
    columns,
    cursor_value,
    frame,
    highest,
    write,
)
from penstock.tasks.storage import storage
from penstock.tasks.submit import Submit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WATCH_SECONDS = 0.5
FOLDER, FETCHED = "model", "fetched"  # in the epoch's
_FETCH = "penstock.engine.worker.database_files"


class QueryReader:
    """Implements ``engine.specs.lane.LaneReader`` for a model: stages its rows, and has ``lanes``,
    which reads lanes in processes of their own, read them. ``submit``: runs a Penstock process in a
    task."""

    def __init__(
        self,
        spark: "SparkSession",
        model: Model,
        diff: ModelDiff,
        mailbox: Mailbox,
        lanes: LaneReader,
        submit: Submit,
    ) -> None:
        self._spark, self._model, self._diff = spark, model, diff
        self._mailbox, self._lanes, self._submit = mailbox, lanes, submit

    def read(self, job: LaneJob) -> LaneResult:
        """Reads the epoch, as in ``LaneReader``. A failure of the query is the lane's result."""
        folder = Path(job.log_root) / "epochs" / f"{job.epoch:08d}" / FOLDER
        # For those who wait for the lane, it has started.
        self._mailbox.put_progress(job.epoch, Progress())
        began = time.monotonic()
        if self._model.database is not None and not (job.dry or job.streams[0].configured.sends):
            return self._from_database(job)
        try:
            with self._stopped_with_the_run(job.epoch), storage(folder, "write to"):
                folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                staged = self._staged(job, folder)
        except PenstockError as e:
            return self._failed(job, e)
        finally:
            shutil.rmtree(folder.with_name(FETCHED), ignore_errors=True)
        seconds = time.monotonic() - began
        streams = _anew(job) if self._diff.anew else job.streams
        given = msgspec.structs.replace(job, config={}, streams=streams, staged=staged)
        try:
            result = self._lanes.read(given)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._diff.sent()
        result.stats["stage"] = seconds
        result.unsent = [(job.streams[0].id, self._diff.unsent)]
        result.notes = [*self._diff.notes, *result.notes]
        self._diff.notes = []
        return result

    def _failed(self, job: LaneJob, error: PenstockError) -> LaneResult:
        end = LaneEnd.cancelled if self._mailbox.cancelled() else LaneEnd.failed
        error.stream = error.stream or str(job.streams[0].id)
        return LaneResult(end=end, errors=[error.as_dict()])

    def _from_database(self, job: LaneJob) -> LaneResult:
        """Has the lane read the rows from the database itself."""
        stream = job.streams[0].configured
        incremental = stream.sync_mode is SyncMode.incremental
        state = next((s for s in job.states if s.scope.stream == stream.id), None)
        try:
            read = self._read_of(stream, state if incremental else None, job.limit)
        except PenstockError as e:
            return self._failed(job, e)
        follows = stream.cursor_field[0] if incremental else None
        last = None if incremental else self._diff.forgotten(stream)
        read = msgspec.structs.replace(read, follows=follows, last=last)
        result = self._lanes.read(msgspec.structs.replace(job, config={}, queried=read))
        result.notes = [*self._diff.notes, *result.notes]
        self._diff.notes = []
        return result

    def _read_of(
        self, stream: ConfiguredStream, state: StoredState | None, limit: int | None
    ) -> DatabaseRead:
        """Returns the read of the query from the saved cursor on."""
        query, cursor = self._model.database, None
        assert query is not None
        if state is not None:
            text, _ = _bound(state, stream, tuple(c.field for c in describe(query)))
            cursor = stream.cursor_field[0], text
        at = int(time.time() * 1000)
        return DatabaseRead(query=query, cursor=cursor, limit=limit, at=at)

    def _staged(self, lane: LaneJob, folder: Path) -> StagedRows:
        stream = lane.streams[0].configured
        state = next((s for s in lane.states if s.scope.stream == stream.id), None)
        at = int(time.time() * 1000)
        if self._model.text is not None:
            return stage_files(self._spark, self._model, self._diff, lane, folder, at)
        read = self._fetched if self._model.database is not None else self._analysed
        incremental = stream.sync_mode is SyncMode.incremental and not stream.sends
        limit = None if stream.sends else lane.limit
        rows, fields = read(folder, stream, state if incremental else None, limit)
        if stream.sends:
            self._diff.clean(lane)
            return self._diff.stage(lane, rows, fields, at)
        files = write(rows.select(*by_position(rows)), folder, self._model)
        if lane.dry and files:
            staged = self._spark.read.parquet(*files)
            self._diff.notes.append(f"{stream.id}: {staged.count():,} rows would be sent")
            self._diff.show(stream.id, staged, [f.source for f in fields])
        last = None
        if incremental:
            last = self._next_state(folder, files, stream, fields)
        elif not lane.dry:
            last = self._diff.forgotten(stream)
        return StagedRows(
            files=files,
            columns=tuple(f.source for f in fields),
            required=tuple(f.source for f in fields if not f.nullable),
            last=last,
            at=at,
        )

    def _analysed(
        self, folder: Path, stream: ConfiguredStream, state: StoredState | None, limit: int | None
    ) -> "tuple[DataFrame, tuple[Field, ...]]":
        """Returns the rows of a query that Spark runs, from the saved cursor on, and their
        columns."""
        del folder
        rows = frame(self._spark, self._model)
        fields = columns(rows, self._model)
        if state is not None:
            _, bound = _bound(state, stream, fields)
            rows = frame(self._spark, self._model, bound)
        return rows if limit is None else rows.limit(limit), fields

    def _fetched(
        self, folder: Path, stream: ConfiguredStream, state: StoredState | None, limit: int | None
    ) -> "tuple[DataFrame, tuple[Field, ...]]":
        """Does the same as :meth:`_analysed` for a query that a database runs: its rows are written
        to files first."""
        from pyspark.sql import functions as F

        job = FetchJob(
            run=self._mailbox.run,
            log_root=str(self._mailbox.log_root),
            folder=str(folder.with_name(FETCHED)),
            read=self._read_of(stream, state, limit),
        )
        answer = self._submit(_FETCH, msgspec.json.encode(job))
        result = msgspec.json.decode(answer, type=FetchResult)
        if result.error is not None:
            raise PenstockError.from_dict(result.error)
        rows = self._spark.read.parquet(result.folder)
        named = (F.col(f"c{i}").alias(f.name) for i, f in enumerate(result.fields))
        return rows.select(*named), result.fields

    def _next_state(
        self,
        folder: Path,
        files: tuple[str, ...],
        stream: ConfiguredStream,
        fields: tuple[Field, ...],
    ) -> str | None:
        """Returns the highest cursor of the staged rows; None where no row has one: the state
        stays."""
        if not files:
            return None
        index, kind = _column(stream.cursor_field[0], fields)
        staged = self._spark.read.parquet(str(folder))
        found = highest(staged, f"c{index}", kind, self._model)
        if found is None:
            return None
        return cursor_state(stream.id, stream.cursor_field[0], found)

    @contextmanager
    def _stopped_with_the_run(self, epoch: int) -> Generator[None]:
        """Ends the query when the run is cancelled, since it may run for hours (L11)."""
        tag, done = f"penstock-model-{self._mailbox.run}-{epoch}", threading.Event()

        def watch() -> None:
            while not done.wait(WATCH_SECONDS):
                if self._mailbox.cancelled():
                    self._spark.interruptTag(tag)

        thread = threading.Thread(target=watch, name=tag, daemon=True)
        thread.start()
        self._spark.addTag(tag)
        try:
            yield
        finally:
            done.set()
            self._spark.removeTag(tag)
            thread.join()


def _column(name: str, fields: tuple[Field, ...]) -> tuple[int, DataType]:
    index = next(i for i, f in enumerate(fields) if f.source == name)
    return index, fields[index].type


def _bound(
    state: StoredState, stream: ConfiguredStream, fields: tuple[Field, ...]
) -> tuple[str, Any]:
    """Returns the saved cursor for binding: its text, and its value. Raises ``StateError``."""
    saved = msgspec.json.decode(state.blob)
    name = stream.cursor_field[0]
    if saved.get("cursor_field") != name:
        raise StateError(
            f"the saved state of {stream.id} has the cursor {saved.get('cursor_field')!r}, and "
            f"the pipeline now has {name!r}",
            code="state.other_cursor",
            stream=str(stream.id),
            hint="`penstock state reset` or --full-refresh reads everything again",
        )
    text = str(saved.get("cursor"))
    try:
        return text, cursor_value(text, _column(name, fields)[1])
    except (ValueError, ArithmeticError) as e:
        raise StateError(
            f"the saved cursor of {stream.id} does not fit the column {name}: {e}",
            code="state.invalid",
            stream=str(stream.id),
            hint="`penstock state reset` or --full-refresh reads everything again",
        ) from None


def _anew(lane: LaneJob) -> tuple[StreamJob, ...]:
    """Returns the lane's streams, marked to send every row again."""
    change = msgspec.structs.replace
    return tuple(
        change(s, lane=change(s.lane, disposition=change(s.lane.disposition, anew=True)))
        for s in lane.streams
    )
