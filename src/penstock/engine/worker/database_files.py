"""Writes the rows of a query that a database runs as Parquet files, in the process of a Spark task.

Reads a ``FetchJob`` from stdin, writes a ``FetchResult`` to stdout. A task that Spark runs twice
writes another folder. Not here: rows that a lane reads itself (``database_source``). Neighbours:
``databases`` reads the rows, ``engine.query.query_reader`` has Spark read the files.
"""

import threading
import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

from penstock.codec.untyped import Table, pa
from penstock.databases.postgres import ResultColumn
from penstock.databases.postgres_rows import DatabaseRows, arrow_of
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.specs.database_fetch import FetchJob, FetchResult
from penstock.errors import SourceError
from penstock.tasks.child_main import carry_out
from penstock.tasks.storage import storage

_FILE_BYTES = 256 << 20  # of rows in one file
_LOOK_SECONDS = 0.5


def run(job: FetchJob, orphaned: threading.Event) -> FetchResult:
    """Reads the query once. Raises what ``DatabaseRows.tables`` raises, and ``SourceError``
    (``source.stopped``) where the run is over."""
    folder = Path(job.folder) / uuid.uuid4().hex
    rows = DatabaseRows(job.read, _LOOK_SECONDS)
    with storage(folder, "write to"), closing(rows.tables()) as tables:
        folder.mkdir(mode=0o700, parents=True)
        _write(_while_wanted(tables, job, orphaned), rows, folder)
    return FetchResult(folder=str(folder), fields=tuple(c.field for c in rows.columns))


def _while_wanted(
    tables: Generator[Table | None], job: FetchJob, orphaned: threading.Event
) -> Generator[Table]:
    box = Mailbox(Path(job.log_root), job.run)
    watch, looked = box.lease_watch(time.monotonic), 0.0
    for table in tables:
        if time.monotonic() - looked >= _LOOK_SECONDS:
            looked = time.monotonic()
            if orphaned.is_set() or box.cancelled() or watch.expired():
                raise SourceError("the run that needs the rows is over", code="source.stopped")
        if table is not None:
            yield table


def _write(tables: Generator[Table], rows: DatabaseRows, folder: Path) -> None:
    """Writes the rows as one or more files."""
    import pyarrow.parquet as pq

    number, size, writer = 0, 0, None
    try:
        for table in tables:
            if writer is None or size > _FILE_BYTES:
                if writer is not None:
                    writer.close()
                writer = pq.ParquetWriter(_file(folder, number), _schema(rows.columns))
                number, size = number + 1, 0
            writer.write_table(table.rename_columns(_names(rows.columns)))
            size += table.nbytes
        if writer is None:
            writer = pq.ParquetWriter(_file(folder, number), _schema(rows.columns))
    finally:
        if writer is not None:
            writer.close()


def _file(folder: Path, number: int) -> str:
    return str(folder / f"part-{number:05d}.parquet")


def _names(columns: Sequence[ResultColumn]) -> list[str]:
    return [f"c{i}" for i in range(len(columns))]


def _schema(columns: Sequence[ResultColumn]) -> Any:
    kinds = (arrow_of(c.field.type) for c in columns)
    return pa.schema(list(zip(_names(columns), kinds, strict=True)))


def main() -> NoReturn:
    """Runs the job on stdin (``tasks.child_main``)."""
    carry_out(FetchJob, run, lambda e: FetchResult(error=e))
