"""Many small loads in one Spark job: each load's parts become one file, without Spark's writer.

Spark's writer spends 30 to 50 ms a file on committer folders, checksum files and a ``chmod``
process each; Arrow in a plain task spends about one. Only for loads that need no cast and fit a
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
from penstock.model.types import CHANGES, EXTRACTED_AT, RAW_ID, Field, MetadataNames
from penstock.spark.types import struct_type
from penstock.tables.contract import TableLoad

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# what Spark's own files say: the columns' metadata, and (the version) that days before 1582 count
# in the proleptic Gregorian calendar, without which Spark refuses to read such a day
_SPARK_COLUMNS = "org.apache.spark.sql.parquet.row.metadata"
_SPARK_VERSION = "org.apache.spark.version"


class _File(msgspec.Struct, frozen=True):
    parts: tuple[str, ...]
    sync_id: int | None
    generation: int


class _Job(msgspec.Struct, frozen=True):
    """What the files of one job share. ``columns``: the data columns, in the table's order."""

    place: str
    columns: tuple[str, ...]
    metadata: MetadataNames | None
    described: dict[str, str]


def write_each(
    spark: "SparkSession", loads: Sequence[TableLoad], target: Sequence[Field], place: Path
) -> list[Path]:
    """Write each load into a file of its own in the new folder ``place``. Every load brings the
    ``target`` columns as they are (``load_frame.load_fields``).

    Raises ``DestinationError`` (``destination.rows_lost``) where a file has another number of rows
    than its load."""
    from pyspark.sql import functions as F

    place.mkdir()
    job = _Job(
        place=str(place),
        columns=tuple(f.name for f in loads[0].schema.fields),
        metadata=loads[0].metadata,
        described={
            _SPARK_COLUMNS: struct_type(tuple(target)).json(),
            _SPARK_VERSION: spark.version,
        },
    )
    asked = [
        (turn, msgspec.json.encode(_File(x.parts, x.sync_id, x.load.generation)).decode())
        for turn, x in enumerate(loads)
    ]
    write = F.udf(_writer(job), "bigint", useArrow=False).asNondeterministic()
    files = spark.createDataFrame(asked, "turn INT, file STRING")
    done = files.select("turn", write("turn", "file").alias("rows")).collect()
    written = {int(row[0]): int(row[1]) for row in done}
    for turn, load in enumerate(loads):
        if written.get(turn) != load.load.rows:
            raise DestinationError(
                f"a load of {load.load.rows} rows came out with {written.get(turn, 0)}",
                code="destination.rows_lost",
                where=load.table.name,
                hint="run again: the load is repeated as it stands",
            )
    return [place / _name(turn) for turn in range(len(loads))]


def _name(turn: int) -> str:
    return f"{turn:06d}.parquet"


def _writer(job: _Job) -> Callable[[int, str], int]:
    def write(turn: int, file: str) -> int:
        return _write(job, turn, msgspec.json.decode(file, type=_File))

    return write


def _write(job: _Job, turn: int, file: _File) -> int:
    """The task: one file; its rows."""
    import pyarrow.parquet as pq

    path = Path(job.place, _name(turn))
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    writer, count = None, 0
    for part in file.parts:
        table = _in_shape(pq.ParquetFile(part).read(), job, file)
        writer = writer or pq.ParquetWriter(draft, table.schema, store_schema=False)
        writer.write_table(table)
        count += table.num_rows
    if writer is None:
        return 0
    writer.add_key_value_metadata(job.described)
    writer.close()
    os.replace(draft, path)
    return count


def _in_shape(table: Any, job: _Job, file: _File) -> Any:
    """A part's Arrow table as the target's columns."""
    import pyarrow as pa

    columns: dict[str, Any] = {name: table.column(name) for name in job.columns}
    if job.metadata is not None:
        rows, names = table.num_rows, job.metadata
        lists = table.column(CHANGES).combine_chunks()
        if isinstance(lists, pa.ChunkedArray):
            lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
        changes: Any = pa.ListArray.from_arrays(lists.offsets, lists.values)  # absent: none
        sync: Any = pa.array([file.sync_id] * rows, pa.int64())
        columns[names.raw_id] = table.column(RAW_ID)
        columns[names.extracted_at] = table.column(EXTRACTED_AT)
        columns[names.meta] = pa.StructArray.from_arrays([sync, changes], ["sync_id", "changes"])
        columns[names.generation_id] = pa.array([file.generation] * rows, pa.int64())
    return pa.table(columns)
