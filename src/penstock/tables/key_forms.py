"""Compares keys of which a table has rows as text (``A1``) and rows as JSON (``"A1"``), as SQL for
DuckDB and for Spark.

An earlier version of Penstock wrote a text column as JSON while its source declared a union. A load
has one of the forms; a table's row in either form counts as the same key unless a row of the load
has exactly its text. JSON other than a quoted text (``7``) is alike in both forms, so of a union's
keys 7 and "7" a text 7 means the first. Imports neither engine. Neighbours: ``files.newest_rows``,
``frame.other_forms`` use it; ``engine.plan.earlier_modes`` finds the columns."""

from penstock.model.types import Kind
from penstock.tables.contract import TableLoad
from penstock.tables.newest import TEXTS, SqlDialect

WON_IN_PART = (
    "DELETE FROM met USING (SELECT part, part_row FROM met WHERE NOT newer) o "
    "WHERE newer AND met.part = o.part AND met.part_row = o.part_row"
)
"""DuckDB's statement for ``files.newest_rows``: a row replaces every row of its key, or no row."""


def mixed_keys(load: TableLoad) -> dict[str, bool]:
    """Returns the columns of the load's key that have two forms in the table, each with whether the
    load has JSON."""
    names, key = load.load.disposition.mixed_keys, {path[0] for path in load.primary_key}
    return {
        f.name: f.type.kind is Kind.json
        for f in load.schema.fields
        if f.name in names and f.name in key and f.type.kind in TEXTS
    }


def of_table(sql: str, dialect: SqlDialect, *, json: bool) -> str:
    """Returns an expression for a key ``sql`` of the table that equals that of :func:`of_load` for
    the same key."""
    if not json:
        return f"coalesce({dialect.text_of_json(sql)}, {sql})"
    text = f"CASE WHEN NOT {dialect.is_json(sql)} THEN {sql} ELSE {dialect.text_of_json(sql)} END"
    return f"coalesce('T' || ({text}), 'J' || {sql})"


def of_load(sql: str, dialect: SqlDialect, *, json: bool) -> str:
    """Like :func:`of_table`, for a key of the load."""
    if not json:
        return sql
    return f"coalesce('T' || ({dialect.text_of_json(sql)}), 'J' || {sql})"


def either_form(columns: str, joined: str, same: str, in_one_form: str) -> str:
    """Returns a DuckDB source: ``columns`` of the table's rows ``t`` (with their ``number``) and
    the load's ``s``, ``joined`` if they are the ``same`` unchanged, else if they are the same in
    one form."""
    return (
        f"(SELECT * EXCLUDE exact FROM (SELECT {columns}, 1 AS exact FROM {joined} ON {same} "
        f"UNION ALL SELECT {columns}, 0 FROM {joined} ON {in_one_form}) QUALIFY row_number() "
        "OVER (PARTITION BY number ORDER BY exact DESC, part, part_row) = 1)"
    )
