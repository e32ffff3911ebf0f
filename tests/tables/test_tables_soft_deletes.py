"""A soft delete that has its key, mark and cursor alone keeps the columns of the row that it marks
(issue 35, B2; pipelinewise-target-snowflake#275: a delete with the key only emptied the row)."""

import functools
from pathlib import Path
from typing import Any

import pytest
from merge_cases import dedup
from read_back import rows_of
from tasks_here import LOCAL

from memory_tables import MemoryTables
from penstock.tables.contract import TableName
from penstock.tables.formats import open_table

pytestmark = pytest.mark.spark

COLUMNS = {"id": "integer", "at": "integer", "v": "string", "n": "integer", "gone": "string"}
HOW: dict[str, dict[str, Any]] = {
    "cursor": {"cursor": ("at",)},
    "arrival": {"cursor": ("at",), "arrival": True},
    "extraction": {},
}
Row = dict[str, Any]
ANN: Row = {"id": 1, "at": 1, "v": "Ann", "n": 10}
BOB: Row = {"id": 2, "at": 1, "v": "Bob", "n": 20}
BARE: Row = {"id": 1, "at": 2, "gone": "now"}
KEY_ONLY: Row = {"id": 1, "gone": "now"}


@pytest.fixture(params=["parquet", "delta"])
def put(request: pytest.FixtureRequest, tmp_path: Path, spark: Any, loads: Any) -> Any:
    tables = open_table(request.param, str(tmp_path / "lake"))
    numbers = iter(range(1, 99))

    def put(*rows: Row, **how: Any) -> list[tuple[Any, ...]]:
        load = dedup(loads, next(numbers), list(rows), COLUMNS, deleted="gone", **how)
        (done,) = tables.commit(spark, LOCAL, [load])
        assert not isinstance(done, Exception), done
        return sorted(rows_of(tables, *COLUMNS))

    return put


PAIRS = [("parquet", "cursor"), ("delta", "arrival"), ("parquet", "extraction")]
TURNED = [("delta", "cursor"), ("parquet", "arrival"), ("delta", "extraction")]


@pytest.mark.parametrize(("put", "how"), PAIRS, indirect=["put"])
def test_a_bare_delete_marks_the_row_of_an_earlier_load(put: Any, how: str) -> None:
    soft = functools.partial(put, deletes="soft", **HOW[how])
    soft(ANN, BOB)
    assert soft(KEY_ONLY) == [(1, 1, "Ann", 10, "now"), (2, 1, "Bob", 20, None)]
    assert soft({**ANN, "at": 3, "v": "Anna"})[0] == (1, 3, "Anna", 10, None), "it is back"


@pytest.mark.parametrize(("put", "how"), TURNED, indirect=["put"])
def test_a_bare_delete_marks_a_row_of_its_own_load(put: Any, how: str) -> None:
    soft = functools.partial(put, deletes="soft", **HOW[how])
    at = {} if how == "extraction" else {"at": 3}  # no cursor: it is a column like others
    seen = at.get("at", 2)
    assert soft({**ANN, "n": 9}, BOB, {**ANN, "at": 2}, {**KEY_ONLY, **at}) == [
        (1, seen, "Ann", 10, "now"),
        (2, 1, "Bob", 20, None),
    ]
    assert soft({**BOB, "at": 2, "v": "Bea"}, {"id": 2, "gone": "then", **at})[1] == (
        2, seen, "Bea", 20, "then",
    )  # fmt: skip


def test_a_delete_with_columns_brings_them_and_a_bare_one_of_nothing_is_a_marked_row(
    put: Any,
) -> None:
    soft = functools.partial(put, deletes="soft", cursor=("at",))
    assert soft(ANN, {**BARE, "id": 3}) == [(1, 1, "Ann", 10, None), (3, 2, None, None, "now")]
    columns, bare = {**BARE, "v": "gone"}, {**BARE, "id": 4}
    found = {row[0]: row for row in soft(columns, bare)}
    assert found[1] == (1, 2, "gone", None, "now"), "with columns"
    assert found[4] == (4, 2, None, None, "now"), "of nothing, into a table"


def test_a_hard_delete_removes_the_row(put: Any) -> None:
    put(ANN, BOB, cursor=("at",))
    assert [row[0] for row in put(KEY_ONLY, cursor=("at",))] == [2]


def test_tables_in_memory_do_the_same(loads: Any) -> None:
    import pyarrow.parquet as pq

    tables = MemoryTables(lambda path: pq.read_table(path).to_pylist())
    for number, rows in enumerate(([ANN, BOB], [KEY_ONLY]), 1):
        load = dedup(loads, number, rows, COLUMNS, deleted="gone", deletes="soft", cursor=("at",))
        tables.commit(None, LOCAL, [load])
    found = {row["id"]: row for row in tables.rows[TableName(None, "t")]}
    assert (found[1]["v"], found[1]["gone"], found[2]["gone"]) == ("Ann", "now", None)
