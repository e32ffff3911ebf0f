"""L9: a retried reject replaces a table's row only by a higher cursor of the same form
(docs/rejects.md)."""

import duckdb
import pytest

from penstock.model.types import Kind
from penstock.tables.newest import DUCKDB, order_of, replaces

Value = str | int | None


def newer(row: Value, table: Value, kind: Kind) -> bool:
    """Whether a retried row with the one cursor replaces a table's row with the other."""
    ours, theirs = (order_of(side, kind, DUCKDB, prefix=f"{side}_") for side in ("ours", "theirs"))
    sql_type = "BIGINT" if kind is Kind.integer else "VARCHAR"
    rows = f"(SELECT CAST($1 AS {sql_type}) AS ours, CAST($2 AS {sql_type}) AS theirs)"
    for name, sql in (*ours.steps, *theirs.steps):
        rows = f"(SELECT *, {sql} AS {name} FROM {rows})"
    asked = f"SELECT {replaces(ours, theirs, retried=True)} FROM {rows}"
    (found,) = duckdb.connect().execute(asked, [row, table]).fetchall()
    assert found[0] is not None
    return bool(found[0])


@pytest.mark.parametrize(
    ("row", "table", "kind", "wins"),
    [
        (5, 4, Kind.integer, True),
        (5, 5, Kind.integer, False),
        (4, 5, Kind.integer, False),
        (None, 5, Kind.integer, False),
        (5, None, Kind.integer, False),
        (None, None, Kind.integer, False),
        ("10", "9", Kind.string, True),
        ("9", "10", Kind.string, False),
        ("9", "9", Kind.string, False),
        ("-9", "-10", Kind.string, True),
        ("2024-05-01T10:00:01Z", "2024-05-01T10:00:00Z", Kind.string, True),
        ("2024-05-01T12:00:00+02:00", "2024-05-01T10:00:00Z", Kind.string, False),
        ("2024-05-01T10:00:00.001Z", "2024-05-01T10:00:00Z", Kind.string, True),
        ("2024-05-01T10:00:00", "2023-05-01T10:00:00Z", Kind.string, False),  # two forms
        ("1714557600", "2023-05-01T10:00:00Z", Kind.string, False),
        ("b", "a", Kind.string, False),  # text has no order
        ("1.9.0", "1.8.0", Kind.string, False),
        (None, "a", Kind.string, False),
    ],
)
def test_only_a_higher_cursor_of_the_same_form_wins(
    row: Value, table: Value, kind: Kind, wins: bool
) -> None:
    assert newer(row, table, kind) is wins
