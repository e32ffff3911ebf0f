"""Many small loads in one Spark job: one Parquet file each, written by the job's Python tasks.

Spark's own writer spends 30 to 50 ms a file on committer folders, checksum files and a ``chmod``
process each; Arrow's writer spends about one. A file appears by rename and holds all rows of its
load, so that a task that Spark runs twice writes the same file again. Only for loads that fit a
task's memory together; ``parquet`` decides which, and publishes the files.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import DestinationError
from penstock.model.types import Field
from penstock.spark.types import struct_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_ROWS = "_penstock_rows"
# what Spark's own files say: the columns' metadata, and (the version) that days before 1582 count
# in the proleptic Gregorian calendar, without which Spark refuses to read such a day
_SPARK_COLUMNS = "org.apache.spark.sql.parquet.row.metadata"
_SPARK_VERSION = "org.apache.spark.version"


def write_each(
    rows: "DataFrame", owner: str, target: Sequence[Field], wanted: Sequence[int], place: Path
) -> list[Path]:
    """Write the ``rows`` of each load (integer column ``owner``: its place in ``wanted``) into one
    file in the new folder ``place``. ``wanted``: how many rows each load has.

    Raises ``DestinationError`` (``destination.rows_lost``) where a load came out with another
    number of rows than that."""
    place.mkdir()
    described = {
        _SPARK_COLUMNS: struct_type(tuple(target)).json(),
        _SPARK_VERSION: rows.sparkSession.version,
    }
    task = _writer(str(place), owner, [f.name for f in target], described)
    sorted_rows = rows.repartition(owner).sortWithinPartitions(owner)
    done = sorted_rows.mapInArrow(task, f"{owner} INT, {_ROWS} BIGINT").collect()
    written = {int(turn): int(count) for turn, count in done}
    for turn, count in enumerate(wanted):
        if written.get(turn, 0) != count:
            raise DestinationError(
                f"a load of {count} rows came out with {written.get(turn, 0)}",
                code="destination.rows_lost",
                where=str(place),
                hint="run again: the load is repeated as it stands",
            )
    return [place / _name(turn) for turn in range(len(wanted))]


def _name(turn: int) -> str:
    return f"{turn:06d}.parquet"


def _writer(
    place: str, owner: str, columns: list[str], described: dict[str, str]
) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """The task: batches sorted by ``owner`` become one file for each value of it."""

    def write(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        counts: dict[int, int] = {}
        current: _File | None = None
        for batch in batches:
            for turn, rows in _runs(batch, owner):
                if current is None or current.turn != turn:
                    if current is not None:
                        current.finish()
                    current = _File(Path(place), turn, rows.schema, columns, described)
                current.write(rows)
                counts[turn] = counts.get(turn, 0) + rows.num_rows
        if current is not None:
            current.finish()
        yield pa.RecordBatch.from_arrays(
            [pa.array(list(counts), pa.int32()), pa.array(list(counts.values()), pa.int64())],
            names=[owner, _ROWS],
        )

    return write


def _runs(batch: "pa.RecordBatch", owner: str) -> "Iterator[tuple[int, pa.RecordBatch]]":
    """Slices of a batch with one value of its sorted column ``owner`` each."""
    import pyarrow.compute as pc

    counted = pc.value_counts(batch.column(owner)).to_pylist()
    start = 0
    for entry in counted:
        yield int(entry["values"]), batch.slice(start, int(entry["counts"]))
        start += int(entry["counts"])


class _File:
    """One load's file while its rows arrive."""

    def __init__(
        self,
        place: Path,
        turn: int,
        schema: "pa.Schema",
        columns: list[str],
        described: dict[str, str],
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.turn = turn
        self.columns = columns
        self.path = place / _name(turn)
        self.draft = place / f".{self.path.name}.{secrets.token_hex(4)}"
        self.schema = pa.schema([schema.field(n) for n in columns], metadata=described)
        self.writer = pq.ParquetWriter(self.draft, self.schema, store_schema=False)

    def write(self, rows: "pa.RecordBatch") -> None:
        self.writer.write_batch(rows.select(self.columns).replace_schema_metadata(None))

    def finish(self) -> None:
        self.writer.close()
        os.replace(self.draft, self.path)
