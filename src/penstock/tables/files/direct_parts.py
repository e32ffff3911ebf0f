"""Says which parts a table can take as its own files, and links them into its folder.

A lane writes the parts of a stream that is only appended in the shape of its table
(:func:`layout`). A load publishes them without reading them where the table still has that shape
(:func:`fits`) and lies on the log's file system (:func:`linked`); else Spark reads and writes them.
Not here: how a load becomes visible (``parquet``, ``delta``). Neighbours: ``engine.plan.lane_jobs``
asks for layouts, ``codec.parquet_parts`` writes the files."""

import hashlib
import importlib.metadata
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.model.catalog import DestinationSyncMode
from penstock.model.segments import PartLayout, TableShape
from penstock.model.table_columns import metadata_fields, stored
from penstock.model.types import Field, MetadataNames, RowSchema
from penstock.spark.types import struct_type
from penstock.tables import folder_access
from penstock.tables.contract import TableLoad

SMALL_BYTES = 512 << 10  # parts that are smaller on average are written together
# keys of the metadata that Spark's own files have: the columns' metadata, and the version, without
# which Spark refuses to read days before 1582 (it tells that they are proleptic Gregorian)
SPARK_COLUMNS = "org.apache.spark.sql.parquet.row.metadata"
_SPARK_VERSION = "org.apache.spark.version"


def layout(
    schema: RowSchema, names: MetadataNames, sync_id: int | None, generation: int
) -> PartLayout:
    """The layout of parts that hold rows of ``schema`` in the shape of their table."""
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
    """The metadata of a file of a table with these columns, as Spark writes it."""
    return {
        SPARK_COLUMNS: struct_type(columns).json(),
        _SPARK_VERSION: importlib.metadata.version("pyspark"),
    }


def in_shape(load: TableLoad) -> bool:
    """Whether every part of ``load`` has the columns, types and metadata values that the load's
    rows have in a table."""
    parts, names = load.load.parts, load.policy.metadata
    if load.mode is DestinationSyncMode.append_dedup or names is None or not parts:
        return False
    wanted = layout(load.schema, names, load.sync_id, load.generation_id).shape
    return all(p.shape == wanted for p in parts)


def fits(load: TableLoad) -> bool:
    """Whether the parts of ``load`` are :func:`in_shape` and not too many for their size. A load of
    one part makes one file either way."""
    parts = load.load.parts
    if len(parts) > 1 and sum(p.size for p in parts) < SMALL_BYTES * len(parts):
        return False
    return in_shape(load)


def linked(load: TableLoad, folder: Path, stem: str = "") -> list[Path] | None:
    """Gives each part's file a second name in ``folder`` (``stem`` and a number), readable as other
    new files are and as new as they; the log keeps its own names, so that the load can be repeated.
    None where the file system, or the parts' owner, does not allow it: nothing is left then."""
    files = [folder / f"{stem}{index:05d}.parquet" for index in range(len(load.parts))]
    try:
        access = folder_access.of_new_file(folder / f".{stem}permissions")
        for part, file in zip(load.parts, files, strict=True):
            os.link(part, file)
            access.give(file)
            os.utime(file)  # what looks for files that no table has goes by their age
    except OSError:
        for file in files:
            with suppress(FileNotFoundError):
                file.unlink()
        return None
    return files
