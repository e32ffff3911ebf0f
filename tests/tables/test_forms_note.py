"""The note that a key had cursors of two forms means the same whichever way the rows came: within a
load and with the table's row, and not for a delete without a cursor (issue 38, 1)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from merge_cases import dedup
from tasks_here import LOCAL

from penstock.tables.contract import LoadResult
from penstock.tables.formats import open_table

NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))  # settings, and no row by Spark
# of the key 1: the loads' rows, (cursor, gone) each; in which load it has two forms
CASES: dict[str, tuple[list[list[tuple[Any, bool]]], list[bool]]] = {
    "one form": ([[(1, False), (2, False)], [(3, False)]], [False, False]),
    "none, then a number in its load": ([[(None, False), (5, False)]], [True]),
    "none in the table": ([[(None, False)], [(5, False)]], [False, True]),
    "none after the table's": ([[(5, False)], [(None, False)]], [False, True]),
    "a delete without a cursor, then a number": ([[(None, True), (5, False)]], [False]),
    "such a delete of the table's row": ([[(5, False)], [(None, True)]], [False, False]),
    "such a delete and a number after the table's": (
        [[(5, False)], [(None, True), (6, False)]],
        [False, False],
    ),
}


def noted(spark: Any, tables: Any, loads: Any, case: str, key: str) -> list[bool]:
    found = list[bool]()
    columns = {"k": key, "c": "integer", "gone": "boolean"}
    for number, rows in enumerate(CASES[case][0], 1):
        made = [{"k": 1, "c": cursor, "gone": gone} for cursor, gone in rows]
        how: Any = {"primary_key": (("k",),), "cursor": ("c",), "deleted": "gone"}
        done = tables.commit(spark, LOCAL, [dedup(loads, number, made, columns, **how)])[0]
        assert isinstance(done, LoadResult), done
        found.append(any("two forms" in note for note in done.notes))
    return found


BY_SPARK = "such a delete and a number after the table's"


@pytest.mark.parametrize("format", ["delta", "parquet"])
@pytest.mark.parametrize("case", [case for case in CASES if case != BY_SPARK])
def test_forms_are_noted_by_tasks(format: str, case: str, tmp_path: Path, loads: Any) -> None:
    tables = open_table(format, str(tmp_path / "lake"))
    assert noted(NO_SPARK, tables, loads, case, "integer") == CASES[case][1]


@pytest.mark.spark
@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_forms_are_noted_by_spark(format: str, tmp_path: Path, loads: Any, spark: Any) -> None:
    found = {}
    for number, case in enumerate(CASES):
        tables = open_table(format, str(tmp_path / f"lake{number}"))
        found[case] = noted(spark, tables, loads, case, "number")  # no key for tasks
    assert found == {case: wanted for case, (_, wanted) in CASES.items()}
