"""Decides which parts a table can take as its own files.

A lane writes parts in the layout of their table (:func:`layout`) if the rows of a stream are only
appended, or most likely have new keys. A load publishes them without rewriting if the table still
has that layout (:func:`fits`; with keys :func:`fits_where_whole`) and is on the log's file system
(``linked_parts``); otherwise they are read and written. Not here: how a load becomes visible
(``parquet``, ``delta``). Neighbours: ``engine.plan.lane_jobs`` requests layouts,
``codec.parquet_parts`` writes the files."""

import hashlib
import importlib.metadata

import msgspec

from penstock.model.catalog import DestinationSyncMode
from penstock.model.segments import PartLayout, TableShape
from penstock.model.table_columns import metadata_fields, stored
from penstock.model.types import Field, MetadataNames, RowSchema
from penstock.spark.types import struct_type
from penstock.tables.contract import TableLoad

SMALL_BYTES = 512 << 10  # parts that are smaller on average are written together
# keys of the metadata that Spark's own files have: the columns' metadata, and the version, without
# which Spark refuses to read days before 1582 (it marks them as proleptic Gregorian)
SPARK_COLUMNS = "org.apache.spark.sql.parquet.row.metadata"
_SPARK_VERSION = "org.apache.spark.version"


def layout(
    schema: RowSchema, names: MetadataNames, sync_id: int | None, generation: int
) -> PartLayout:
    """Returns the layout of parts that hold rows of ``schema`` in the columns of their table."""
    columns = (*(Field(f.name, f.source, stored(f.type)) for f in schema.fields),)
    about = described((*columns, *metadata_fields(names)))
    content = [about[SPARK_COLUMNS], names, sync_id, generation]
    digest = hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]
    return PartLayout(
        shape=TableShape(names, digest),
        columns=tuple(f.name for f in columns),
        sync_id=sync_id,
        generation=generation,
        described=about,
    )


def described(columns: tuple[Field, ...]) -> dict[str, str]:
    """Returns the metadata that Spark writes into a file of a table with these columns."""
    return {
        SPARK_COLUMNS: struct_type(columns).json(),
        _SPARK_VERSION: importlib.metadata.version("pyspark"),
    }


def in_shape(load: TableLoad) -> bool:
    """Returns whether every part of ``load``, which has no keys, has the columns, types and
    metadata values that the load's rows have in a table."""
    return load.mode is not DestinationSyncMode.append_dedup and _have_shape(load)


def fits(load: TableLoad) -> bool:
    """Returns whether the parts of ``load`` are :func:`in_shape` and not too many for their size. A
    load of one part makes one file either way."""
    return _few(load) and in_shape(load)


def fits_where_whole(load: TableLoad) -> bool:
    """Like :func:`fits`, for a load with keys of which the table takes every row."""
    keyed = load.mode is DestinationSyncMode.append_dedup and not load.history
    return keyed and _few(load) and _have_shape(load)


def _have_shape(load: TableLoad) -> bool:
    parts, names = load.load.parts, load.policy.metadata
    if names is None or not parts:
        return False
    wanted = layout(load.schema, names, load.sync_id, load.generation_id).shape
    return all(p.shape == wanted for p in parts)


def _few(load: TableLoad) -> bool:
    parts = load.load.parts
    return len(parts) < 2 or sum(p.size for p in parts) >= SMALL_BYTES * len(parts)
