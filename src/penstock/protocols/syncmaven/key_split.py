"""Divides the rows of a stream among processes by the hash of the primary key, so that all rows of
a key go to one process, in their order.

Works on whole batches: DuckDB hashes the columns of the key, Arrow takes the rows. Not here: the
processes (``sessions``), when they end (``outgoing``, ``writer``).
"""

from collections.abc import Iterator
from typing import Any

from penstock.codec.duckdb_call import run_query
from penstock.codec.untyped import compute as pc
from penstock.codec.untyped import pa
from penstock.model.catalog import FieldPath
from penstock.model.types import DataType, Field, RowSchema, cleaned_path


class KeySplit:
    """``key``: paths of the primary key, by original names. ``parts``: processes, numbered from
    0."""

    def __init__(self, key: tuple[FieldPath, ...], parts: int) -> None:
        self._key, self._parts = key, parts

    def types(self, schema: RowSchema) -> tuple[DataType, ...]:
        """Returns the types of the key's columns: equal keys have equal hashes as long as these are
        the same. Empty: the rows cannot be divided, since there is no primary key, or it has a
        column that is not a scalar column of the rows."""
        paths = [cleaned_path(path, schema) for path in self._key]
        if not all(paths):
            return ()
        return tuple(_type_of(path, schema.fields) for path in paths)

    def divided(self, schema: RowSchema, batch: Any) -> Iterator[tuple[int, Any]]:
        """Yields (part, its rows in their order) of a record batch (pyarrow), for each part with
        rows. ``schema``: one that has :meth:`types`."""
        keys = [_column_of(cleaned_path(path, schema), batch) for path in self._key]
        column = pa.StructArray.from_arrays(keys, [f"k{index}" for index in range(len(keys))])
        found = run_query(f"SELECT hash(b) % {self._parts} AS part FROM bodies", column)["part"]
        for part in range(self._parts):
            rows = batch.filter(pc.equal(found, part))
            if rows.num_rows:
                yield part, rows


def _type_of(path: FieldPath, fields: tuple[Field, ...]) -> DataType:
    found = next(f.type for f in fields if f.name == path[0])
    return _type_of(path[1:], found.fields) if path[1:] else found


def _column_of(path: FieldPath, batch: Any) -> Any:
    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if path[1:] else column
