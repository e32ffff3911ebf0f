"""Names the columns of a table with history.

A table with history has one row per version of a key: :data:`START` and :data:`END` are the range
in which it was true, :data:`CURRENT` whether it still is. Both ends have the type of the stream's
cursor, or of the time of extraction if the rows come in their own order. The column's source name
records which, so that a table is recognised as ours. Imports no Spark. Not here: which versions
exist (``history.rule``), tables that are refused (``tables.refused_histories``)."""

from collections.abc import Iterable

from penstock.model.catalog import FieldPath
from penstock.model.table_columns import TIMESTAMP, stored
from penstock.model.types import DataType, Field, Kind, RowSchema

START, END, CURRENT = "__START_AT", "__END_AT", "is_current"
COLUMNS = (START, END, CURRENT)
OURS = "penstock.history"  # the source name of the columns; after a colon, what orders versions


def history_fields(schema: RowSchema, cursor: FieldPath) -> tuple[Field, ...]:
    """Returns the history columns of a table whose rows have ``schema``. ``cursor``: one of its
    columns, or empty if versions begin at their time of extraction."""
    kind, by = TIMESTAMP, OURS
    if cursor:
        kind = next(stored(f.type) for f in schema.fields if f.name == cursor[0])
        by = f"{OURS}:{cursor[0]}"
    ends = (Field(START, by, kind), Field(END, by, kind))
    return (*ends, Field(CURRENT, OURS, DataType(Kind.boolean)))


def has_history(columns: Iterable[Field]) -> bool:
    """Returns whether a table with these columns has a history that Penstock keeps."""
    return any(f.name == CURRENT and f.source == OURS for f in columns)
