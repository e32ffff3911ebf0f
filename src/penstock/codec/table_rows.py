"""Builds the columns of a table from the rows of a part, and back, in Arrow.

A table has the stream's columns, then its metadata columns; a part has the stream's columns, then
the internal ones of ``model.types``, or is written in its table's layout at once. Not here: casts,
which Spark does (``tables.frame.load_frame``). Neighbours: ``codec.parquet_parts`` writes parts,
``tables.files.small_loads`` combines many into files, ``engine.worker.feed`` reads them."""

from typing import Any

import msgspec
import pyarrow as pa

from penstock.codec.arrow import internal_fields
from penstock.codec.untyped import Array, Table
from penstock.codec.untyped import compute as pc
from penstock.model.segments import PartLayout
from penstock.model.types import CHANGES, EXTRACTED_AT, RAW_ID, SEQ, MetadataNames


def table_rows(rows: Table, layout: PartLayout) -> Table:
    """Returns the table's columns of a part's ``rows``, which have the internal ones. All are
    nullable."""
    columns = {name: rows.column(name) for name in layout.columns}
    names = layout.shape.names
    return pa.table(columns | metadata(rows, names, layout.sync_id, layout.generation))


def metadata(
    rows: Table, names: MetadataNames, sync_id: int | None, generation: int
) -> dict[str, Array]:
    """Returns the metadata columns of a part's ``rows``, which have the internal ones."""
    count = rows.num_rows
    lists = rows.column(CHANGES).combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
    # without the null bitmap, so that an absent list becomes an empty one
    changes: Any = pa.ListArray.from_arrays(lists.offsets, lists.values)
    sync: Any = pa.repeat(pa.scalar(sync_id, pa.int64()), count)
    return {
        names.raw_id: rows.column(RAW_ID),
        names.extracted_at: rows.column(EXTRACTED_AT),
        names.meta: pa.StructArray.from_arrays([sync, changes], ["sync_id", "changes"]),
        names.generation_id: pa.repeat(pa.scalar(generation, pa.int64()), count),
    }


def part_rows(rows: Any, names: MetadataNames) -> Any:
    """Returns the rows (table or record batch) of a part in its table's layout, with the internal
    columns in place of the metadata columns. They have no sequence numbers (``PartRef.first`` has
    them)."""
    changes = pc.struct_field(rows.column(names.meta), "changes")
    internal: dict[str, Any] = {
        SEQ: pa.nulls(rows.num_rows, pa.int64()),
        RAW_ID: rows.column(names.raw_id),
        EXTRACTED_AT: rows.column(names.extracted_at),
        CHANGES: pc.cast(changes, internal_fields()[-1].type),
    }
    given = msgspec.structs.astuple(names)
    fields: list[Any] = [f for f in rows.schema if f.name not in given]
    arrays = [rows.column(f.name) for f in fields] + [internal[f.name] for f in internal_fields()]
    return type(rows).from_arrays(arrays, schema=pa.schema([*fields, *internal_fields()]))
