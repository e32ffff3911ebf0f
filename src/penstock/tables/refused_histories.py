"""Refuses loads that a table with history cannot take, and histories in tables that are not ours.

Imports no Spark. Neighbours: ``history.columns`` names the columns; the formats call this before a
load is committed."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import DestinationError, SchemaError
from penstock.model.type_words import type_text
from penstock.model.types import Field
from penstock.tables.contract import TableLoad
from penstock.tables.history.columns import COLUMNS, OURS, has_history
from penstock.tables.load_columns import load_fields, load_history
from penstock.tables.wider_types import widened

ENDS = (
    "`penstock run --yes` ends the history: current rows stay, and all other versions are deleted; "
    "or set `history` as it was, or write to another table"
)
RECREATE = (
    "set `history` as it was, write to another table, or have `penstock run --recreate` make the "
    "table again: its rows, and all versions of them, are replaced by what the source has now"
)


_OF_OTHERS = (
    "write to another table; or, if the rows are this stream's own and its home was lost, have "
    "`penstock state reset` discard this load and take the table as it is, and run again"
)
_TYPES = "have `types:` give the cursor the column's type; or "


class Unlike(NamedTuple):
    """Why a stream does not match a table, as a clause, and what to do."""

    why: str
    hint: str


def refuse_other(load: TableLoad, old: Sequence[Field], number: int | None) -> None:
    """Raises ``SchemaError`` (``schema.history``) if ``load`` does not match a table with the
    columns ``old`` (empty: there is none) that :func:`turns` does not convert. ``number``: that of
    the table's last load of its key. A history has the rows of one stream: a refresh ends the
    versions that it lacks."""
    given, own = load.load.disposition, _is_own(load, number)
    anew = load.replaces and (given.refreshes or (given.ends_history and own))
    if not old or anew:
        return
    found = other(load_history(load), old)
    if not own and (load.history or has_history(old)):
        found = Unlike("has rows that another pipeline, or another stream, wrote", _OF_OTHERS)
    if found is None:
        return
    hint = found.hint
    if hint != _OF_OTHERS:
        hint = f"`penstock state reset` discards this load; then {hint}"
    raise SchemaError(
        f"table {load.table.name} {found.why}",
        code="schema.history",
        where=load.table.name,
        hint=hint,
    )


def _is_own(load: TableLoad, number: int | None) -> bool:
    """Returns whether the table has a load of this key, or the ledger does not rule one out."""
    return load.load.follows != 0 or bool(number)


def turns(load: TableLoad, old: Sequence[Field], number: int | None) -> bool:
    """Returns whether a table with the columns ``old`` becomes one of versions, or of rows, before
    ``load`` is committed. It must be the stream's own and lack a load of this number. ``number``:
    as for :func:`refuse_other`."""
    given = load.load.disposition
    asked = load.history or given.ends_history
    if not old or not asked or load.replaces or has_history(old) == load.history:
        return False
    if not _is_own(load, number) or (number or 0) >= load.load.number:
        return False
    return not load.history or not any(f.name in COLUMNS for f in old)


def other(wanted: Sequence[Field], old: Sequence[Field]) -> Unlike | None:
    """Returns why a stream with the history columns ``wanted`` (empty: without history) does not
    match a table with the columns ``old``: one has a history and the other has none, or their
    versions begin at something else. None if it matches."""
    if not old or not (wanted or has_history(old)):
        return None
    if not wanted:
        return Unlike("has a history of its rows, and the stream is configured without one", ENDS)
    have = {f.name: f for f in old}
    if not any(f.name in have for f in wanted):
        return Unlike(
            "was written without history, and the stream is configured with one", RECREATE
        )
    for field in wanted:
        found = have.get(field.name)
        if found is None or not found.source.startswith(OURS):
            return Unlike(f"has no column {field.name} of a history that Penstock keeps", RECREATE)
        if found.source != field.source:
            return Unlike(
                f"has versions {_by(found)}, and the stream's begin {_by(field)}", RECREATE
            )
        wider = widened(found.type, field.type)
        if widened(field.type, wider) != wider:
            return _of_types(found, field)
    return None


def _of_types(found: Field, field: Field) -> Unlike:
    was, now = type_text(found.type), type_text(field.type)
    return Unlike(
        f"has versions {_by(found)} of type {was}, and the stream's is of type {now}, which that "
        "column cannot become",
        f"{_TYPES}{RECREATE}",
    )


def refuse_narrow(load: TableLoad, target: Sequence[Field]) -> None:
    """Raises ``DestinationError`` if the column of versions, in a table that has the columns
    ``target`` with the load, cannot hold the load's cursors."""
    have = {f.name: f.type for f in target}
    for field in load_history(load):
        kept = have.get(field.name)
        if kept is None or widened(field.type, kept) != kept:
            was = "absent" if kept is None else type_text(kept)
            raise refused(
                load.table.name,
                f"its cursors are of type {type_text(field.type)}, and {field.name} stays {was}",
            )


def _by(field: Field) -> str:
    cursor = field.source.partition(":")[2]
    return f"at their cursor {cursor}" if cursor else "at their time of extraction"


def not_merged(
    load: TableLoad, old: Sequence[Field] | None, reason: str | None
) -> DestinationError:
    """Makes the error for a load into a history that only Spark could write. ``old``: the table's
    columns; ``reason``: why; None if they differ from the load's."""
    return refused(load.table.name, reason or _difference(old or (), load_fields(load)))


def refused(table: str, reason: str) -> DestinationError:
    """Makes the error for a load that a history cannot hold, with the reason."""
    return DestinationError(
        f"table {table} keeps a history, and this load cannot be merged into it: {reason}",
        code="destination.history",
        where=table,
        hint="nothing was written, and the rows stay in the log. `penstock state reset` discards "
        "this load; then `penstock run --recreate` reads the stream from the start and makes the "
        "table again (docs/history.md lists what a history cannot do yet)",
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
