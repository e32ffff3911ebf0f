"""Writes the rows of a load, by Spark, as parts that have the columns of its table.

Only tasks of ours merge into a table with history; if the load has other columns or types than the
table, Spark casts its rows first. Neighbours: ``load_frame`` casts, the formats merge the parts."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import DestinationError
from penstock.model.segments import PartRef
from penstock.model.types import Field, RowSchema
from penstock.spark.shared_folders import write_parquet
from penstock.tables.contract import TableLoad
from penstock.tables.frame import load_frame
from penstock.tables.load_columns import metadata_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cast_parts(
    spark: "SparkSession", load: TableLoad, target: tuple[Field, ...], folder: Path
) -> TableLoad:
    """Writes parts into ``folder`` and returns ``load`` with them. ``target``: the table's columns.
    Raises ``SchemaError`` if a key does not fit its column (``load_frame.refuse_lost_keys``)."""
    system = metadata_columns(load)
    data = tuple(f for f in target if f.name not in system)
    rows = load_frame.read_parts(spark, load)
    load_frame.refuse_lost_keys(rows, load, target)
    write_parquet(load_frame.part_rows_as(rows, load, data), folder, DestinationError)
    paths = [str(path) for path in sorted(folder.glob("*.parquet"))]
    inner = msgspec.structs.replace(load.load, parts=tuple(map(_part, paths)))
    schema = RowSchema(data, load.schema.version)
    return msgspec.structs.replace(load, load=inner, parts=tuple(paths), schema=schema)


def _part(path: str) -> PartRef:
    import pyarrow.parquet as pq

    return PartRef(path, pq.read_metadata(path).num_rows, 0, Path(path).stat().st_size, 0)
