"""Rows of many keys with cursors of every form, and what the rule makes of them in DuckDB."""

import random
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import duckdb

from newest_oracle import OTHER, Folded, folded, order_of
from penstock.model.types import Kind
from penstock.tables.newest import DUCKDB, fold, replaces
from penstock.tables.newest import order_of as order_sql

NUMBERS = [
    *("5", "9", "10", "-3", "-10", "007", "+7", "0", "-0", " 8 "),
    *("9" * 40, "1" + "0" * 40, "-" + "9" * 39),
]
TIMES = [
    *("2024-05-01T10:00:00Z", "2024-05-01 10:00:00.5+00:00", "2024-05-01T12:00:00+02:00"),
    *("2024-05-01T10:00:00.25z", "2024-05-01T09:59:60Z", "2024-04-30T24:00Z"),
    *("10000-01-01T00:00:00Z", "20240501T100001Z", "-0001-03-01T00:00:00Z"),
    "2024-05-01T10:00:00,123456789123-0130",
    *("2999-12-31T23:00:00Z", "3000-01-01T00:00:00+01:00", "0999-12-31T23:59Z"),
    *("1000-01-01T00:59+01", "3000-02-29T00:00Z", "1000-02-28T23:59:60Z"),
]
CLOCKS = [
    *("2024-05-01T10:00:00", "2024-05-01 10:00", "2024-02-29 23:59:60.5", "2024-03-01T00:00"),
    *("10000-01-01 00:00:00", "20240501T1000"),
]
OTHERS = [
    *("07E1", "1.10", "1.9.0", "5.5", "31.12.2023", "2024-05-01", "0000-00-00 00:00:00"),
    *("infinity", "2023-02-29T00:00:00Z", "0x0A", "", "  ", "NaN", "2024-05-01T25:00:00Z"),
    *("2024-W01-1T00:00", "2024-05-01T10:00:00+24:00", "5\n", "2024-05-01T10:00:00Z\n"),
    *("\u0665", "24:00:00"),
]
JSON = ['"2024-05-01T10:00:00Z"', '"2024-05-02T10:00:00Z"', '"7"', '"', '"1.9.0"']
TEXTS: list[str | None] = [*NUMBERS, *TIMES, *CLOCKS, *OTHERS, *JSON, None]


class Row(NamedTuple):
    key: int
    seq: int
    cursor: Any
    gone: bool


class Case(NamedTuple):
    """A key: its row in the table, if any, and those of the load."""

    table: Row | None
    rows: list[Row]

    @property
    def late(self) -> bool:
        """Whether the table's row decides the rank of a delete without a cursor."""
        bare = any(row.gone and row.cursor is None for row in self.rows)
        return bare and len(self.rows) > 1 and self.table is not None


def cases(seed: int, count: int, values: list[Any], deletes: float = 0.2) -> list[Case]:
    chance, made = random.Random(seed), list[Case]()
    for key in range(count):
        few = chance.sample(values, min(len(values), chance.choice([2, 3, 5])))
        rows = [
            Row(key, seq, chance.choice(few), chance.random() < deletes)
            for seq in range(1, chance.choice([1, 1, 2, 3, 6]) + 1)
        ]
        table = Row(key, 0, chance.choice(few), False) if chance.random() < 0.6 else None
        made.append(Case(table, rows))
    return made


def oracle(case: Case, as_text: bool = False) -> Folded:
    """The fold of a case: its row has the sequence number 0 where the table's row stays."""

    def order(row: Row) -> Any:
        bare = row.gone and row.cursor is None
        return None if bare else order_of(row.cursor, as_text=as_text)

    table = None if case.table is None else (case.table, order(case.table) or OTHER)
    return folded(table, ((row, order(row)) for row in case.rows))


def staged(rows: str, stages: Iterable[Mapping[str, str]]) -> str:
    for stage in stages:
        rows = f"(SELECT *, {', '.join(f'{sql} AS {n}' for n, sql in stage.items())} FROM {rows})"
    return rows


def newest_by_duckdb(
    rows: Iterable[Row], kind: Kind, column: str, as_text: bool = False
) -> dict[int, tuple[int, bool]]:
    """For each key the sequence number of its newest row and whether two forms were met."""
    with duckdb.connect() as db:
        _fill(db, "part_rows", rows, column)
        order = order_sql("cursor", kind, DUCKDB, as_text=as_text)
        folded = fold("key", ["seq"], order, DUCKDB, bare="(gone AND cursor IS NULL)")
        first = ", ".join(f"{n} {'DESC' if down else 'ASC'} NULLS LAST" for n, down in folded.order)
        found = db.sql(
            f"SELECT key, seq, {folded.two_forms} FROM {staged('part_rows', folded.stages)} "
            f"QUALIFY row_number() OVER (PARTITION BY key ORDER BY {first}) = 1"
        ).fetchall()
    return {key: (seq, two) for key, seq, two in found}


def replacing_by_duckdb(
    pairs: Iterable[tuple[Row, bool, Row]], kind: Kind, column: str, as_text: bool = False
) -> dict[int, bool]:
    """Of (a load's winner, whether its key had two forms, the table's row): whether it replaces."""
    ours, theirs, both = [], [], []
    for row, two, table in pairs:
        ours.append(row)
        theirs.append(table)
        both.append((row.key, two))
    with duckdb.connect() as db:
        _fill(db, "s", ours, column)
        _fill(db, "t", theirs, column)
        db.execute("CREATE TABLE forms (key BIGINT, two BOOLEAN)")
        _insert(db, "forms", both)
        one = order_sql("ours", kind, DUCKDB, as_text=as_text, prefix="s_")
        other = order_sql("theirs", kind, DUCKDB, as_text=as_text, prefix="t_")
        newer = replaces(one, other, two_forms="two", bare="(gone AND ours IS NULL)")
        rows = (
            "(SELECT s.key, s.gone, s.cursor AS ours, t.cursor AS theirs, two "
            "FROM s JOIN t USING (key) JOIN forms USING (key))"
        )
        steps = [{name: sql} for name, sql in (*one.steps, *other.steps)]
        return dict(db.sql(f"SELECT key, {newer} FROM {staged(rows, steps)}").fetchall())


def _fill(db: Any, name: str, rows: Iterable[Row], column: str) -> None:
    db.execute(f"CREATE TABLE {name} (key BIGINT, seq BIGINT, cursor {column}, gone BOOLEAN)")
    _insert(db, name, [tuple(row) for row in rows])


def _insert(db: Any, name: str, rows: list[Any]) -> None:
    import pyarrow as pa

    if rows:
        schema = db.sql(f"FROM {name} LIMIT 0").to_arrow_table().schema
        columns = [
            pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)
        ]
        given = pa.table(columns, schema=schema)
        db.register("given", given)
        db.execute(f"INSERT INTO {name} FROM given")
        db.unregister("given")
