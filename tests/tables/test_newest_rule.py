"""The one rule of the newest row (``tables.newest``), as DuckDB computes it, against the oracle."""

import datetime as dt
import math
import os
from decimal import Decimal
from typing import Any

import pytest
from newest_cases import (
    TEXTS,
    Case,
    Row,
    cases,
    newest_by_duckdb,
    oracle,
    replacing_by_duckdb,
)

from penstock.model.types import Kind

CASES = int(os.environ.get("NEWEST_CASES", "2000"))  # how many keys each test has
MANY = 20_000  # keys at a time


def day(number: int) -> dt.datetime:
    return dt.datetime(2024, 1, number, tzinfo=dt.UTC)


COLUMNS: dict[str, tuple[Kind, str, list[Any]]] = {
    "text": (Kind.string, "VARCHAR", TEXTS),
    "integer": (Kind.integer, "BIGINT", [None, 0, -1, 2**53 + 1, 2**53, 2**63 - 1]),
    "number": (Kind.number, "DOUBLE", [None, 0.0, -0.0, 1.5, math.inf, -math.inf, math.nan]),
    "decimal": (Kind.decimal, "DECIMAL(38,10)", [None, Decimal("1.1"), Decimal("-9"), Decimal(7)]),
    "timestamp": (Kind.timestamp, "TIMESTAMPTZ", [None, day(1), day(2), day(3)]),
    "date": (Kind.date, "DATE", [None, dt.date(2024, 1, 1), dt.date(1200, 2, 3)]),
    "boolean": (Kind.boolean, "BOOLEAN", [None, True, False]),
}


def agree(made: list[Case], kind: Kind, column: str, as_text: bool = False) -> None:
    wanted = {case.rows[0].key: oracle(case, as_text) for case in made}
    # the table's row first, as a merge that reads both has it
    both = [row for case in made for row in ([case.table] if case.table else []) + case.rows]
    found = newest_by_duckdb(both, kind, column, as_text)
    for case in made:
        fold = wanted[case.rows[0].key]
        assert found[case.rows[0].key] == (fold.row.seq, fold.mixed), (case, fold.row)
    # the load alone, then its winner and one bit against the table's row
    alone = newest_by_duckdb([row for case in made for row in case.rows], kind, column, as_text)
    pairs = [
        (case.rows[alone[key][0] - 1], alone[key][1], case.table)
        for case in made
        if case.table is not None and not case.late
        for key in [case.rows[0].key]
    ]
    replacing = replacing_by_duckdb(pairs, kind, column, as_text)
    for winner, _, _ in pairs:
        seq = winner.seq if replacing[winner.key] else 0
        assert seq == wanted[winner.key].row.seq, (made[winner.key], seq)


@pytest.mark.parametrize("name", [*COLUMNS])
def test_the_newest_row_is_the_oracle_s(name: str) -> None:
    kind, column, values = COLUMNS[name]
    share = CASES if name == "text" else max(200, CASES // 10)
    for seed, start in enumerate(range(0, share, MANY)):
        agree(cases(seed, min(MANY, share - start), values), kind, column)


def test_cursor_order_text_compares_all_text_by_its_bytes() -> None:
    agree(cases(7, 1000, [*TEXTS, "é", "z", "\U0001f600", "\uffff"]), Kind.string, "VARCHAR", True)


@pytest.mark.parametrize("seed", range(3))
def test_grouping_into_loads_changes_nothing(seed: int) -> None:
    """But for hard deletes, which leave no trace; without the bit, 5, a text, 3 would differ."""
    made = cases(seed, 1000, TEXTS, deletes=0.0)
    for case in made:
        whole = oracle(case).row
        table = case.table
        for row in case.rows:
            table = oracle(Case(table, [row])).row
        assert table == whole


WRONG_ONCE = {
    "07E1 was read as 70": (["99", "07E1"], 2),
    "fixed-width hex": (["0000000A", "00000010"], 2),
    "a day as digits after a time": (["20240501T100000Z", "20240502"], 2),
    "versions": (["1.9.0", "1.10"], 2),
    "ISO, then epoch": (["2024-05-01T10:00:00Z", "1714557601"], 2),
    "a whole number, then a fraction": (["5", "5.5"], 2),
    "days before months": (["31.12.2023", "01.01.2024"], 2),
    "offsets that differ": (["2024-05-01T11:00:00+02:00", "2024-05-01T10:00:00+00:00"], 2),
    "offsets that differ, the other way": (
        ["2024-05-01T10:00:00Z", "2024-05-01T11:00:00+02:00"],
        1,
    ),
    "a zero date": (["2024-05-01 10:00:00", "0000-00-00 00:00:00"], 2),
    "after a zero date": (["0000-00-00 00:00:00", "2024-05-01 10:00:00"], 2),
    "infinity": (["infinity", "2024-05-01 10:00:00+00"], 2),
    "leap second": (["2016-12-31T23:59:60Z", "2016-12-31T23:59:59.999Z"], 1),
    "after a leap second": (["2016-12-31T23:59:60.9Z", "2017-01-01T00:00:00Z"], 2),
    "24:00": (["2024-04-30T24:00:00Z", "2024-04-30T23:59:59Z"], 1),
    "24:00 is the next day's midnight": (["2024-05-01T00:00:00Z", "2024-04-30T24:00:00Z"], 2),
    "year 10000": (["10000-01-01T00:00:00Z", "9999-12-31T23:59:59Z"], 1),
    "nanoseconds": (["2024-05-01T10:00:00.000000002Z", "2024-05-01T10:00:00.000000001Z"], 1),
    "5, a text, 3": (["5", "x", "3"], 3),
    "long numbers": (["1" + "0" * 40, "9" * 40], 1),
    "negative numbers": (["-10", "-9"], 2),
    "none after some": (["5", None], 2),
}


@pytest.mark.parametrize("name", [*WRONG_ONCE])
def test_what_lost_updates_once(name: str) -> None:
    cursors, newest = WRONG_ONCE[name]
    case = Case(None, [Row(0, seq, cursor, False) for seq, cursor in enumerate(cursors, 1)])
    assert oracle(case).row.seq == newest
    agree([case], Kind.string, "VARCHAR")
    first, *rest = case.rows
    agree([Case(Row(0, 0, first.cursor, False), [r._replace(seq=r.seq - 1) for r in rest])],
          Kind.string, "VARCHAR")  # fmt: skip
