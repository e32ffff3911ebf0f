"""Names the columns of a load's rows: all of them, metadata columns, and what a bare delete lacks.

Imports no Spark, since the tasks that merge files use it. Neighbours: ``load_frame`` makes the rows
in Spark, ``newest_rows`` compares them without it, ``soft_deletes`` fills bare deletes."""

from collections.abc import Sequence

from penstock.model.delete_marks import SYSTEM_PREFIXES
from penstock.model.table_columns import metadata_fields, stored
from penstock.model.types import Field
from penstock.tables.contract import Deletes, TableLoad
from penstock.tables.history.columns import history_fields


def load_fields(load: TableLoad) -> tuple[Field, ...]:
    """Returns the columns of the load's rows: data columns, metadata columns, those of a
    history."""
    data = tuple(Field(f.name, f.source, stored(f.type)) for f in load.schema.fields)
    metadata = metadata_fields(load.policy.metadata) if load.policy.metadata else ()
    return (*data, *metadata, *load_history(load))


def load_history(load: TableLoad) -> tuple[Field, ...]:
    """Returns the history columns of the load's rows; none if its table keeps no history."""
    if not load.history:
        return ()
    return history_fields(load.schema, () if load.arrival else load.cursor)


def metadata_columns(load: TableLoad) -> frozenset[str]:
    """Returns the names of the load's columns that its stream does not have: metadata columns and
    those of a history."""
    metadata = metadata_fields(load.policy.metadata) if load.policy.metadata else ()
    return frozenset(f.name for f in (*metadata, *load_history(load)))


def has_soft_deletes(load: TableLoad, names: Sequence[str]) -> bool:
    """Returns whether rows with the columns ``names`` may be soft deletes."""
    return load.policy.deletes is Deletes.soft and load.deleted_column in names


def own_columns(load: TableLoad, names: Sequence[str]) -> tuple[str, ...]:
    """Returns those of the columns ``names`` that a bare delete lacks: all but key, cursor, mark,
    metadata and those of the source's change log. None if deletes are not soft, or the rows have no
    mark."""
    mark = load.deleted_column
    if mark is None or not has_soft_deletes(load, names):
        return ()
    metadata = load.policy.metadata
    system = () if metadata is None else (f.name for f in metadata_fields(metadata))
    log = (f.name for f in load.schema.fields if f.source.startswith(SYSTEM_PREFIXES))
    bare = {mark, *(path[0] for path in load.primary_key), *cursors(load), *log, *system}
    return tuple(name for name in names if name not in bare)


def kept_columns(load: TableLoad, fields: Sequence[Field]) -> tuple[str, ...]:
    """Returns the columns that a bare delete may have, and that keep their value if it lacks them:
    cursors, and those of the source's change log."""
    names = [f.name for f in fields]
    away = {load.deleted_column, *(path[0] for path in load.primary_key)}
    away |= {*own_columns(load, names), *metadata_columns(load)}
    return tuple(name for name in names if name not in away)


def cursors(load: TableLoad) -> tuple[str, ...]:
    """Returns the columns of the load by which rows are ordered: its cursor, and that of
    deletes."""
    return (*load.cursor[:1], *load.load.disposition.delete_cursor[:1])


def cut_cursor(load: TableLoad) -> str | None:
    """Returns the name, in change lists, of the cursor that orders the load's rows. None: change
    lists have no entry for it, since it is nested."""
    if load.arrival or len(load.cursor) != 1:
        return None
    return next((f.source for f in load.schema.fields if f.name == load.cursor[0]), None)
