"""Writes many small loads as Parquet files in one Spark job, one file per load, by Arrow.

Spark's writer spends 30 to 50 ms a file on committer folders, checksum files and a ``chmod``
process each; Arrow in a plain task spends about 1 ms. Only for loads that need no cast and fit a
task's memory; ``parquet`` decides which, and publishes the files. A file appears by rename and
holds the whole load, so that a task that Spark runs twice writes the same file again.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import DestinationError
from penstock.model.types import Field, MetadataNames
from penstock.spark.shared_folders import not_seen, refuse_unshared, runs_elsewhere
from penstock.tables.contract import TableLoad
from penstock.tables.files.direct_parts import described

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _File(msgspec.Struct, frozen=True):
    """Describes one file to write: its load's parts, each with the names of its metadata columns if
    it is in a table's layout, and the load's sync id and generation."""

    parts: tuple[tuple[str, MetadataNames | None], ...]
    sync_id: int | None
    generation: int


class _Job(msgspec.Struct, frozen=True):
    """Holds settings that all files of one job share. ``folder``: where they are written;
    ``columns``: the data columns, in the table's order; ``described``: the metadata of each
    file."""

    folder: str
    columns: tuple[str, ...]
    metadata: MetadataNames | None
    described: dict[str, str]


def write_each(
    spark: "SparkSession", loads: Sequence[TableLoad], target: Sequence[Field], folder: Path
) -> list[Path]:
    """Writes each load into a separate file in ``folder``, which is created; returns the files in
    the order of ``loads``. Every load must have exactly the ``target`` columns
    (``load_columns.load_fields``).

    Raises ``DestinationError`` (``destination.rows_lost``) if a file has another number of rows
    than its load."""
    from pyspark.sql import functions as F

    folder.mkdir()
    refuse_unshared(spark, [folder], DestinationError)
    job = _Job(
        folder=str(folder),
        columns=tuple(f.name for f in loads[0].schema.fields),
        metadata=loads[0].policy.metadata,
        described=described(tuple(target)),
    )
    requests = [
        (index, msgspec.json.encode(_File(_parts(x), x.sync_id, x.generation_id)).decode())
        for index, x in enumerate(loads)
    ]
    write = F.udf(_writer(job), "bigint", useArrow=False).asNondeterministic()
    files = spark.createDataFrame(requests, "index INT, file STRING")
    done = files.select("index", write("index", "file").alias("rows")).collect()
    written = {int(row[0]): int(row[1]) for row in done}
    for index, load in enumerate(loads):
        if written.get(index) != load.load.rows:
            raise DestinationError(
                f"a load of {load.load.rows} rows came out with {written.get(index, 0)}",
                code="destination.rows_lost",
                where=load.table.name,
                hint="run again: the same load is repeated",
            )
    files = [folder / _name(index) for index in range(len(loads))]
    if runs_elsewhere(spark) and (unseen := [f for f in files if not f.is_file()]):
        what = f"{len(files) - len(unseen)} of {len(files)} files that tasks wrote"
        raise not_seen(spark, folder, what, DestinationError)
    return files


def _parts(load: TableLoad) -> tuple[tuple[str, MetadataNames | None], ...]:
    pairs = zip(load.parts, load.load.parts, strict=True)
    return tuple((path, part.shape.names if part.shape else None) for path, part in pairs)


def _name(index: int) -> str:
    return f"{index:06d}.parquet"


def _writer(job: _Job) -> Callable[[int, str], int]:
    def write(index: int, file: str) -> int:
        return _write(job, index, msgspec.json.decode(file, type=_File))

    return write


def _write(job: _Job, index: int, file: _File) -> int:
    """Writes one file, inside a Spark task; returns its number of rows."""
    import pyarrow.parquet as pq

    from penstock.codec.table_rows import part_rows

    path = Path(job.folder, _name(index))
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    writer, count = None, 0
    for part, names in file.parts:
        rows = pq.ParquetFile(part).read()
        table = _table_columns(part_rows(rows, names) if names else rows, job, file)
        writer = writer or pq.ParquetWriter(draft, table.schema, store_schema=False)
        writer.write_table(table)
        count += table.num_rows
    if writer is None:
        return 0
    writer.add_key_value_metadata(job.described)
    writer.close()
    os.replace(draft, path)
    return count


def _table_columns(rows: Any, job: _Job, file: _File) -> Any:
    """Builds the table's columns, data then metadata, from a part's rows."""
    import pyarrow as pa

    from penstock.codec.table_rows import metadata

    columns: dict[str, Any] = {name: rows.column(name) for name in job.columns}
    if job.metadata is not None:
        columns |= metadata(rows, job.metadata, file.sync_id, file.generation)
    return pa.table(columns)
