"""append_dedup: which row is the newest, on both formats: cursors of every kind, absent cursors,
equal ones, keys that are composite, nested and partly null, a delete beside its older record."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from read_back import rows_of
from tasks_here import LOCAL

from penstock.errors import PenstockError
from penstock.tables.contract import LoadResult, TableName
from penstock.tables.formats import open_table

pytestmark = pytest.mark.spark


@pytest.fixture(params=["parquet", "delta"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return open_table(request.param, str(tmp_path / "lake"))


def put(tables: Any, spark: Any, *loads: Any) -> list[LoadResult]:
    outcomes = tables.commit(spark, LOCAL, loads)
    for outcome in outcomes:
        if isinstance(outcome, PenstockError):
            raise outcome
    return outcomes


def rows(tables: Any, *columns: str, table: str = "t") -> list[Any]:
    return sorted(rows_of(tables, *columns, table=table), key=repr)


def at(second: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, 0, 0, second, tzinfo=dt.UTC)


CURSORS = {
    "string": ("2024-01-02T10:00:00Z", "2024-01-10 10:00:00+02:00", "2024-01-10T07:59:59.999Z"),
    "number in text": ("-9", "10", "9"),
    "number of 40 digits in text": ("9" * 29, " +0" + "9" * 40, "9" * 39 + "8 "),
    "negative number of 40 digits in text": ("-2" + "9" * 39, "-10" + "9" * 38, "-11" + "9" * 38),
    "number in JSON": ('{"at": 9}', '{"at": 1000}', '{"at": 999}'),
    "timestamp": (at(1), at(30), at(29)),
    "timestamp_ntz": tuple(at(s).replace(tzinfo=None) for s in (1, 30, 29)),
    "decimal": (Decimal("9.50"), Decimal("10.25"), Decimal("10.24")),
    "integer": (9, 10**15, 10**15 - 1),
    "number": (-1.5, 2e300, 1e300),
}


IN_DELTA = ("string", "number in JSON", "timestamp_ntz", "decimal")  # one order is for both formats


def test_a_cursor_of_every_type_decides_within_and_across_loads(
    tables: Any, spark: Any, loads: Any
) -> None:
    first, second = [], []
    kinds = IN_DELTA if tables.name == "delta" else tuple(CURSORS)
    for kind in kinds:
        low, high, middle = CURSORS[kind]
        type_of = (12, 2) if kind == "decimal" else kind if " " not in kind else "string"
        columns = {"id": "integer", "c": type_of, "v": "string"}
        rows_in = [
            [{"id": 1, "c": high, "v": "high"}, {"id": 1, "c": low, "v": "low"}],
            [
                {"id": 1, "c": middle, "v": "older than the table's"},
                {"id": 2, "c": low, "v": "low"},
                {"id": 2, "c": high, "v": "high"},
                {"id": 2, "c": middle, "v": "middle"},
            ],
        ]
        for number, (made, into) in enumerate(zip(rows_in, (first, second), strict=True), 1):
            into.append(
                loads.load(
                    number, made, columns, table=kind.replace(" ", "_"), mode="append_dedup",
                    cursor=("c", "at") if kind == "number in JSON" else ("c",),
                )
            )  # fmt: skip
    assert [r.written for r in put(tables, spark, *first)] == [1] * len(kinds)
    assert [r.written for r in put(tables, spark, *second)] == [1] * len(kinds)
    for kind in kinds:
        found = rows(tables, "id", "v", table=kind.replace(" ", "_"))
        assert found == [(1, "high"), (2, "high")], kind


def test_A7_under_cdc_the_later_change_wins_and_a_bare_delete_deletes(
    tables: Any, spark: Any, loads: Any
) -> None:
    """Whatever cursor and time of extraction say: of a log the order of arrival is the truth."""
    columns = {"id": "integer", "c": "integer", "v": "string", "gone": "string"}

    def load(number: int, *made: tuple[int, int | None, str | None, int]) -> Any:
        found = [
            {"id": i, "c": c, "v": f"{i}@{c}", "gone": gone, "@at": at(s)} for i, c, gone, s in made
        ]
        return loads.load(number, found, columns, mode="append_dedup", deleted="gone", arrival=True)

    put(
        tables,
        spark,
        load(1, (1, 9, None, 30), (1, 5, None, 20), (2, 1, None, 30), (3, 1, None, 9)),
    )
    assert rows(tables, "v") == [("1@5",), ("2@1",), ("3@1",)]
    put(
        tables,
        spark,
        load(2, (1, None, "x", 5), (2, 0, None, 5), (3, None, "x", 40), (3, 0, None, 5)),
    )
    assert rows(tables, "v") == [("2@0",), ("3@0",)]


def test_A7_a_delete_without_a_cursor_deletes_what_came_before_it(
    tables: Any, spark: Any, loads: Any
) -> None:
    columns = {"id": "integer", "c": "integer", "v": "string", "gone": "string"}

    def load(number: int, *made: tuple[int, int | None, str | None]) -> Any:
        found = [{"id": i, "c": c, "v": f"{i}@{c}", "gone": gone} for i, c, gone in made]
        return loads.load(
            number, found, columns, mode="append_dedup", cursor=("c",), deleted="gone"
        )

    put(
        tables,
        spark,
        load(1, (1, 9, None), (2, 9, None), (3, 4, None), (3, None, "x"), (3, 3, None)),
    )
    assert rows(tables, "v") == [("1@9",), ("2@9",)]
    put(tables, spark, load(2, (1, None, "x"), (2, None, "x"), (2, 10, None)))
    assert rows(tables, "v") == [("2@10",)]


@pytest.mark.parametrize(
    ("tables", "kind"),
    [("parquet", "integer"), ("delta", "text in place of a number")],
    indirect=["tables"],
)
def test_A7_what_the_table_has_gives_a_delete_without_a_cursor_its_rank(
    tables: Any, spark: Any, loads: Any, kind: str
) -> None:
    """Beside other rows of its key, which are older than the table's row or newer."""
    columns = {"id": "integer", "part": "string", "c": "integer", "v": "string", "gone": "string"}
    if kind != "integer":
        columns["c"] = "string"

    def load(number: int, *made: tuple[int, int | None, str | None, int]) -> Any:
        found = []
        for i, c, gone, second in made:
            cursor = c if kind == "integer" or c is None else str(c)
            row = {"id": i, "part": None if i % 2 else "a", "c": cursor, "v": f"{i}@{c}"}
            found.append({**row, "gone": gone, "@at": at(second)})
        how: Any = {"cursor": ("c",), "deleted": "gone", "primary_key": (("id",), ("part",))}
        return loads.load(number, found, columns, mode="append_dedup", **how)

    put(tables, spark, load(1, *((i, 9, None, 1) for i in range(1, 8))))
    outcome = put(
        tables,
        spark,
        load(
            2,
            (1, None, "x", 20), (1, 3, None, 20),  # an older row after the delete
            (2, 3, None, 30), (2, None, "x", 20),  # and before it, extracted later
            (3, None, "x", 20), (3, 10, None, 20),  # newer than what was deleted: back again
            (4, 10, None, 20), (4, None, "x", 20), (4, 9, None, 20),
            (5, None, "x", 20),
            (6, 3, None, 20), (6, 4, None, 20),  # no delete
            (8, None, "x", 20), (8, 3, None, 20),  # of a key that the table lacks
        ),
    )  # fmt: skip
    assert rows(tables, "v") == [("3@10",), ("6@9",), ("7@9",), ("8@3",)]
    assert outcome[0].written == 6
    names = spark.read.format(tables.name).load(tables.location(TableName(None, "t"))).columns
    assert not {n for n in names if n.startswith(("_penstock_k", "_penstock_o"))}


def test_of_equal_or_absent_cursors_the_later_row_wins_whenever_it_was_extracted(
    tables: Any, spark: Any, loads: Any
) -> None:
    columns = {"id": "integer", "c": "integer", "v": "string"}

    def load(number: int, *made: tuple[int, int | None, str, int]) -> Any:
        found = [{"id": i, "c": c, "v": v, "@at": at(s)} for i, c, v, s in made]
        return loads.load(number, found, columns, mode="append_dedup", cursor=("c",))

    first = load(
        1,
        (1, 5, "extracted later", 9),
        (1, 5, "arrives later", 8),
        (2, 5, "first", 7),
        (2, 5, "same moment: arrival", 7),
        (3, None, "extracted later", 9),
        (3, None, "arrives later", 8),
        (4, None, "absent", 9),
        (4, 0, "present", 1),
        (5, 5, "present", 5),
    )
    assert put(tables, spark, first)[0].written == 5
    second = load(
        2,
        (1, 5, "extracted before the table's", 1),
        (2, 4, "older", 50),
        (3, None, "extracted earlier still", 1),
        (4, None, "absent", 1),
        (6, 1, "older", 1),
        (6, 2, "newer", 1),
    )
    (done,) = put(tables, spark, second)
    assert (done.written, done.superseded) == (4, 2)
    assert "two forms" in done.notes[0]  # of key 4: none after a number
    assert rows(tables, "id", "v") == [
        (1, "extracted before the table's"),
        (2, "same moment: arrival"),
        (3, "extracted earlier still"),
        (4, "absent"),
        (5, "present"),
        (6, "newer"),
    ]


def test_keys_composite_nested_and_partly_null_are_told_apart(
    tables: Any, spark: Any, loads: Any
) -> None:
    columns = {"k": {"a": "integer", "deep": {"b": "string"}}, "part": "integer", "v": "string"}
    key = (("part",), ("k", "deep", "b"))

    def load(number: int, *made: tuple[int | None, str | None, str]) -> Any:
        found = [{"k": {"a": 1, "deep": {"b": b}}, "part": p, "v": v} for p, b, v in made]
        if number == 2:
            found.append({"k": None, "part": 7, "v": "struct absent"})
        return loads.load(number, found, columns, mode="append_dedup", primary_key=key)

    put(tables, spark, load(1, (1, "x", "a"), (1, None, "b"), (None, "x", "c"), (1, None, "b2")))
    assert rows(tables, "v") == [("a",), ("b2",), ("c",)]
    put(tables, spark, load(2, (1, None, "b3"), (None, "x", "c2"), (7, None, "struct of nulls")))
    assert rows(tables, "v") == [("a",), ("b3",), ("c2",), ("struct absent",)]


def test_rows_of_the_table_without_the_key_are_kept_each(
    tables: Any, spark: Any, loads: Any
) -> None:
    """The source names another key: the rows that are there have no value of it."""
    columns = {"id": "integer", "code": "string", "v": "string"}
    old = [{"id": i, "v": f"{i}"} for i in range(3)]
    put(tables, spark, loads.load(1, old, columns, mode="append_dedup"))
    for number, key in ((2, (("code",),)), (3, (("v",), ("code",))), (4, (("code",),))):
        made = [{"id": 1, "code": code, "v": "new"} for code in ("a", "b")]
        load = loads.load(number, made, columns, mode="append_dedup", primary_key=key)
        assert put(tables, spark, load)[0].written == 2
        assert rows(tables, "code", "v") == [
            ("a", "new"), ("b", "new"), (None, "0"), (None, "1"), (None, "2")
        ]  # fmt: skip


def test_a_delete_takes_the_older_records_of_its_own_load(
    tables: Any, spark: Any, loads: Any
) -> None:
    columns = {"id": "integer", "c": "integer", "v": "string", "gone": "string"}

    def load(number: int, *made: tuple[int, int, str | None]) -> Any:
        found = [{"id": i, "c": c, "v": f"{i}@{c}", "gone": g} for i, c, g in made]
        return loads.load(
            number, found, columns, mode="append_dedup", cursor=("c",), deleted="gone"
        )

    first = load(
        1,
        (1, 2, "deleted"),
        (1, 1, None),  # older, arrives after its delete
        (2, 1, None),
        (2, 2, "deleted"),
        (3, 1, "deleted"),
        (3, 2, None),  # back again
    )
    assert put(tables, spark, first)[0].written == 1
    assert rows(tables, "v") == [("3@2",)]
    second = load(
        2,
        (3, 4, "deleted"),
        (3, 3, None),  # older, in the load of its delete
        (1, 1, None),  # older, after it: there is no tombstone
        (4, 2, "deleted"),
        (4, 1, None),
    )
    assert put(tables, spark, second)[0].written == 2
    assert rows(tables, "v") == [("1@1",)]
    assert put(tables, spark, second) == [LoadResult(0, repeated=True)]
    assert rows(tables, "v") == [("1@1",)]
