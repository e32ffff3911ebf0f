"""Lets deletes pass built-in transforms, if deletes are carried out.

A delete mark means that the row of its key is gone. If a filter or a rule stopped the delete, the
row would stay at the destination for ever. So it passes with its key, mark and cursor alone; all
other columns are NULL. Neighbours: ``chain`` applies it after each transform."""

from collections.abc import Set

import msgspec

from penstock.codec.delete_marks import marked as marks
from penstock.codec.untyped import Array, Table, pa
from penstock.codec.untyped import compute as pc
from penstock.model.segments import WriteDisposition
from penstock.transforms.contract import TransformResult


class DeleteColumns(msgspec.Struct, frozen=True):
    """The columns that a delete keeps, by ``Field.name``. ``mark``: the one that marks deletes
    (``model.delete_marks``); ``key``: those of the primary key; ``cursor``: that of the cursor, if
    there is one."""

    mark: str
    key: frozenset[str]
    cursor: frozenset[str] = frozenset()

    @property
    def needed(self) -> frozenset[str]:
        """Returns the columns without which there is no delete."""
        return self.key | {self.mark}


def delete_columns(disposition: WriteDisposition) -> DeleteColumns | None:
    """Returns the columns of a stream's deletes; None: deletes are not carried out, because rows
    are only appended or have no mark."""
    if disposition.deleted_column is None:
        return None
    cursor = disposition.cursor or disposition.delete_cursor
    return DeleteColumns(
        disposition.deleted_column,
        frozenset(path[0] for path in disposition.primary_key),
        frozenset(cursor[:1]),
    )


def marked(table: Table, columns: DeleteColumns) -> Array | None:
    """Returns which rows are deletes; None: there are none."""
    if columns.mark not in table.column_names:
        return None
    mark = table.column(columns.mark)
    if mark.null_count == len(mark):
        return None
    found = marks(mark).combine_chunks()
    return found if pc.any(found).as_py() else None


def with_lost(done: TransformResult, given: Table, deletes: Array, kept: Set[str]) -> None:
    """Adds to ``done``, the result of a transform on ``given``, those of the rows ``deletes``
    (booleans) that the transform lost, with only the columns ``kept``, in the order of ``given``.
    The origin of its rows must be known."""
    lost = pc.indices_nonzero(deletes).cast(pa.int64())
    lost = lost.filter(pc.invert(pc.is_in(lost, value_set=done.origin)))
    if len(lost):
        rows = bare(given.take(lost), done.table, kept)
        done.table, done.origin = in_order(done.table, done.origin, rows, lost)


def bare(rows: Table, like: Table, kept: Set[str]) -> Table:
    """Returns ``rows`` with the columns of ``like``, all NULL except ``kept``."""
    columns = [
        rows.column(f.name).cast(f.type) if f.name in kept else pa.nulls(rows.num_rows, f.type)
        for f in like.schema
    ]
    fields = [f.with_nullable(f.nullable or f.name not in kept) for f in like.schema]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, like.schema.metadata))


def in_order(table: Table, origin: Array, more: Table, origins: Array) -> tuple[Table, Array]:
    """Returns the rows of both tables, and their origins, in the order of the origins: the newest
    row of a key may be the one that came last."""
    loose = pa.Table.from_arrays(table.columns, schema=more.schema)
    both = pa.concat_arrays([origin.cast(pa.int64()), origins])
    order = pc.sort_indices(both)
    return pa.concat_tables([loose, more]).take(order), both.take(order)
