"""Opens parts and a table's files, reads their footers, and chooses the small files of a Parquet
table that a merge combines. Runs in a Spark task without Spark.

Neighbours: ``merged_files`` merges, ``parquet.merge`` puts the result into the table's folder."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.codec.untyped import Array, ArrowSchema, ArrowType, Table
from penstock.model.delete_marks import marks_delete
from penstock.tables.contract import Deletes, TableLoad
from penstock.tables.files.merge_job import Bounds, NeedsSpark, TableFile
from penstock.tables.load_columns import load_fields

MOST_SMALL_FILES = 8  # that a merge leaves as they are
SMALL_FILE_BYTES = 16 << 20
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


class PlainFile(pq.ParquetFile):
    """A file of which texts, bytes and dictionaries are read as plain columns. Other writers, such
    as delta-rs, leave views in it, which most functions of Arrow do not take."""

    @property
    def schema_arrow(self) -> ArrowSchema:
        schema: ArrowSchema = super().schema_arrow
        made = _plain_schema(schema)
        return schema if made is None else made

    def read(self, *words: Any, **how: Any) -> Table:
        found: Table = super().read(*words, **how)
        wanted = _plain_schema(found.schema)
        return found if wanted is None else found.cast(wanted)

    def iter_batches(self, *words: Any, **how: Any) -> Iterator[Any]:
        for batch in super().iter_batches(*words, **how):
            wanted = _plain_schema(batch.schema)
            if wanted is not None:
                columns = [c.cast(f.type) for c, f in zip(batch.columns, wanted, strict=True)]
                batch = pa.RecordBatch.from_arrays(columns, schema=wanted)
            yield batch


def _plain_schema(schema: ArrowSchema) -> ArrowSchema | None:
    """Returns the schema with plain types; None: it has no others."""
    types = [_plain(f.type) for f in schema]
    if all(made is f.type or made.equals(f.type) for made, f in zip(types, schema, strict=True)):
        return None
    return pa.schema([f.with_type(made) for f, made in zip(schema, types, strict=True)])


def _plain(kind: ArrowType) -> ArrowType:
    """Returns a type without views and dictionaries, also inside nested types."""
    types: Any = pa.types
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([f.with_type(_plain(f.type)) for f in kind])
    return kind


def opened(path: Path | str) -> pq.ParquetFile:
    """Opens a part or a table's file, with times read as Spark reads them, and columns as plain
    ones (:class:`PlainFile`). Raises :class:`NeedsSpark` if times are not: files of old Spark
    versions use another calendar."""
    file = PlainFile(path, pre_buffer=False)  # which would hold what was read
    about = file.metadata
    keys = about.metadata or {}
    version = keys.get(b"org.apache.spark.version", b"")
    old = version[:2] in (b"1.", b"2.") or any(k in keys for k in _OTHER_CALENDAR)
    columns = (about.schema.column(index) for index in range(len(about.schema)))
    if old or any(column.physical_type == "INT96" for column in columns):
        file.close()
        raise NeedsSpark(f"{path} has times of an old form")
    return file


def with_small_files(lost: dict[int, Array], old: Sequence[TableFile]) -> dict[int, Array]:
    """Adds the small ones of the files ``old`` to those that are rewritten (``lost``: the numbers
    of the rows that each loses) if there are many, so that a table that gets a few rows per sync
    has few files."""
    small = [
        index
        for index, file in enumerate(old)
        if index not in lost and file.size < SMALL_FILE_BYTES
    ]
    if len(small) <= MOST_SMALL_FILES:
        return lost
    least = sorted(small, key=lambda index: old[index].size)[: 4 * MOST_SMALL_FILES]
    nothing = pa.array([], pa.int64())
    return {**lost, **dict.fromkeys(least, nothing)}


def file_of(path: Path, load: TableLoad) -> TableFile:
    """Reads the footer of a table's file. Raises ``NeedsSpark`` if a hard delete may have to remove
    one of its rows."""
    footer = pq.read_metadata(path)
    fields = {f.name for f in load_fields(load)}
    if load.policy.deletes is Deletes.hard and load.deleted_column in fields:
        found = _leaf(footer, str(load.deleted_column))
        if found is None or any(s.num_values and not _all_live(s) for s in found):
            raise NeedsSpark(f"{path} may have rows that are deleted")
    bounds: Bounds = {}
    for key in load.primary_key:
        found = _leaf(footer, key[0]) or []
        valued = [s for s in found if s.num_values]
        if valued and all(s.has_min_max for s in valued):
            bounds[key[0]] = min(s.min for s in valued), max(s.max for s in valued)
    return TableFile(path.name, path.stat().st_size, bounds)


def _all_live(found: Any) -> bool:
    """Returns whether statistics prove that no value of a row group marks a delete."""
    return found.has_min_max and found.min == found.max and not marks_delete(found.min)


def _leaf(footer: Any, column: str) -> list[Any] | None:
    """Returns the statistics of a column by row group; None if one lacks them, or the column is
    nested."""
    names = [footer.schema.column(index).path for index in range(len(footer.schema))]
    if names.count(column) != 1:  # a nested one may have the same path
        return None
    index = names.index(column)
    groups = (footer.row_group(group) for group in range(footer.num_row_groups))
    found = [group.column(index).statistics for group in groups]
    return found if all(s is not None and s.has_null_count for s in found) else None
