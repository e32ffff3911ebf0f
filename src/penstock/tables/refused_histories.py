"""Refuses loads that a table with history cannot take, and histories of tables that are not ours.

Imports no Spark. Neighbours: ``history.columns`` names the columns, the formats ask before a load
is committed."""

from collections.abc import Sequence

from penstock.errors import DestinationError, SchemaError
from penstock.model.types import Field
from penstock.tables.contract import TableLoad
from penstock.tables.history.columns import OURS, has_history
from penstock.tables.load_columns import load_fields, load_history

RECREATE = (
    "set `history` as it was, write to another table, or have `penstock run --recreate` make the "
    "table again: its rows, and all versions of them, are replaced by what the source has now"
)


def refuse_other(load: TableLoad, old: Sequence[Field]) -> None:
    """Raises ``SchemaError`` (``schema.history``) where ``load`` does not go with a table of the
    columns ``old`` (empty: there is none)."""
    why = None if load.replaces else other(load_history(load), old)
    if why is not None:
        raise SchemaError(
            f"table {load.table.name} {why}",
            code="schema.history",
            where=load.table.name,
            hint=f"`penstock state reset` discards this load; then {RECREATE}",
        )


def other(wanted: Sequence[Field], old: Sequence[Field]) -> str | None:
    """Returns why a stream with the history columns ``wanted`` (empty: without history) does not go
    with a table of the columns ``old``, as a clause: the one has a history and the other has not,
    or their versions begin at something else. None where it does."""
    if not old or not (wanted or has_history(old)):
        return None
    if not wanted:
        return "has a history of its rows, and the stream is configured without one"
    have = {f.name: f for f in old}
    if not any(f.name in have for f in wanted):
        return "was written without history, and the stream is configured with one"
    for field in wanted:
        found = have.get(field.name)
        if found is None or not found.source.startswith(OURS):
            return f"has no column {field.name} of a history that Penstock keeps"
        if found.source != field.source or found.type != field.type:
            return f"has versions {_by(found)}, and the stream's begin {_by(field)}"
    return None


def _by(field: Field) -> str:
    cursor = field.source.partition(":")[2]
    return f"at their cursor {cursor}" if cursor else "at their time of extraction"


def not_merged(
    load: TableLoad, old: Sequence[Field] | None, reason: str | None
) -> DestinationError:
    """The error of a load into a history that only Spark could write. ``old``: the table's columns;
    ``reason``: why, None where they are not those of the load."""
    return refused(load.table.name, reason or _difference(old or (), load_fields(load)))


def refused(table: str, reason: str) -> DestinationError:
    """The error of a load that a history has no place for, and why."""
    return DestinationError(
        f"table {table} keeps a history, and this load cannot be merged into it: {reason}",
        code="destination.history",
        where=table,
        hint="nothing was written, and the rows stay in the log. `penstock state reset` discards "
        "this load; then `penstock run --recreate` reads the stream from the start and makes the "
        "table again (docs/history.md says what a history cannot do yet)",
    )


def _difference(old: Sequence[Field], new: Sequence[Field]) -> str:
    have, want = ({f.name: f.type for f in fields} for fields in (old, new))
    for what, names in (
        ("are new", [n for n in want if n not in have]),
        ("are no longer delivered", [n for n in have if n not in want]),
        ("have another type", [n for n in want if n in have and want[n] != have[n]]),
    ):
        if names and have:
            return f"its columns {', '.join(names)} {what}"
    return "the table is one that only Spark can write"
