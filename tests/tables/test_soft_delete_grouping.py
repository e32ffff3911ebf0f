"""Soft deletes: how the rows of a key are grouped into loads changes nothing of what their table
has in the end (issue 38, 1), whichever way they come: files, Spark, both formats."""

import random
from pathlib import Path
from typing import Any

import pytest
from merge_cases import dedup
from read_back import rows_of
from tasks_here import LOCAL

from newest_oracle import OTHER, Folded, order_of
from penstock.tables.files.merge_job import NeedsSpark
from penstock.tables.files.newest_rows import NewestRows
from penstock.tables.formats import open_table

KEYS, LOADS = 300, 2
OWN = {"v": "string", "n": "integer"}
STREAMS: dict[str, tuple[dict[str, Any], list[Any], dict[str, Any]]] = {
    "numbers": ({"at": "integer", **OWN}, [None, 1, 2, 3], {"cursor": ("at",)}),
    "texts": (
        {"at": "string", **OWN},
        [None, "9", "10", "2024-05-01T10:00:00Z", "x"],
        {"cursor": ("at",)},
    ),
    "no columns of its own": ({"at": "integer"}, [None, 1, 2, 3], {"cursor": ("at",)}),
    "arrival": ({"at": "integer", **OWN}, [None, 1, 2], {"cursor": ("at",), "arrival": True}),
    "no cursor": ({"_ab_cdc_lsn": "integer", **OWN}, [None, 1, 2], {}),
}
Row = dict[str, Any]


def sequence(chance: random.Random, key: int, columns: dict[str, Any], values: list[Any]) -> Any:
    at = next(iter(columns))
    for turn in range(chance.choice([1, 2, 3, 4, 6])):
        bare = chance.random() < 0.5
        row = {"id": key, at: chance.choice(values), "gone": None}
        if chance.random() < 0.5:
            row["gone"] = f"gone {turn}"
        else:
            bare = False
        if "v" in columns:
            row |= {"v": None if bare else f"v{turn}", "n": None if bare else turn}
        yield row


def stored(rows: list[Row], how: dict[str, Any]) -> Row:
    """What docs/incremental.md says."""

    def order(row: Row) -> Any:
        if how.get("arrival") or not how.get("cursor"):
            return OTHER
        return None if row["gone"] and row["at"] is None else order_of(row["at"])

    def keeps(row: Row, there: Row) -> Row:
        if not row["gone"]:
            return row
        kept = ["at"] if order(row) is None else []
        if row.get("v") is None:
            kept = [*row]
        return {n: there[n] if v is None and n in kept else v for n, v in row.items()}

    fold = Folded()
    for row in rows:
        fold.add(row, order(row), keeps)
    return fold.stored


@pytest.mark.spark
@pytest.mark.parametrize(
    ("format", "streams"),
    [("parquet", [*STREAMS]), ("delta", ["texts", "no columns of its own", "arrival"])],
    ids=["parquet", "delta"],
)
def test_grouping_into_loads_changes_nothing_under_soft_deletes(
    format: str, streams: list[str], tmp_path: Path, spark: Any, loads: Any
) -> None:
    """Of numbers as a cursor, and of no cursor, Spark makes the same for both formats; only how a
    row is written differs."""
    tables = open_table(format, str(tmp_path / "lake"))
    chance, wanted, batches = random.Random(38), {}, []
    for number, (columns, values, how) in enumerate(STREAMS[name] for name in streams):
        groups: list[list[Row]] = [[] for _ in range(LOADS)]
        wanted[f"t{number}"] = kept = []
        for key in range(KEYS):
            rows = [*sequence(chance, key, columns, values)]
            kept.append(tuple(stored(rows, how).values()))
            for row, load in zip(rows, sorted(chance.choices(range(LOADS), k=len(rows))),
                                 strict=True):  # fmt: skip
                groups[load].append(row)
        batches.append((f"t{number}", groups, {"id": "integer", "gone": "string", **columns}, how))
    for load in range(LOADS):
        made = [
            dedup(loads, load + 1, groups[load], columns, table=table, deleted="gone",
                  deletes="soft", **how)
            for table, groups, columns, how in batches
        ]  # fmt: skip
        outcomes = tables.commit(spark, LOCAL, made)
        assert not [done for done in outcomes if isinstance(done, Exception)]
    for (table, _, _, _), name in zip(batches, streams, strict=True):
        names = list(STREAMS[name][0])
        found = sorted(rows_of(tables, "id", names[0], "gone", *names[1:], table=table))
        differ = [(k, w) for k, w in zip(found, wanted[table], strict=True) if k != w]
        assert not differ, (name, differ[:3])


LIVE: Row = {"id": 1, "at": 5, "v": "Ann"}
DELETES: dict[str, tuple[Row, bool]] = {
    "bare": ({"id": 2, "at": 6, "gone": "x"}, True),
    "bare, without a cursor": ({"id": 2, "gone": "x"}, True),
    "without a cursor": ({"id": 2, "v": "Bob", "gone": "x"}, True),
    "whole": ({"id": 2, "at": 6, "v": "Bob", "gone": "x"}, False),
}


@pytest.mark.parametrize("kind", [*DELETES])
@pytest.mark.parametrize("own", [True, False], ids=["own columns", "columns of the table alone"])
def test_tasks_leave_deletes_to_spark_that_keep_what_is_there(
    loads: Any, kind: str, own: bool
) -> None:
    row, keeps = DELETES[kind]
    columns = {
        "id": "integer",
        "at": "integer",
        "gone": "string",
        **({"v": "string"} if own else {}),
    }
    load = dedup(loads, 1, [LIVE, row], columns, cursor=("at",), deleted="gone", deletes="soft")
    with NewestRows(load, ["id", "at", "gone", "v"]) as rows:
        if keeps or not own:
            with pytest.raises(NeedsSpark):
                rows.outcome([])
        else:
            assert rows.outcome([]).written == 2


def test_tasks_compare_deletes_of_a_table_that_has_no_more_to_keep(loads: Any) -> None:
    columns = {"id": "integer", "at": "integer", "gone": "string"}
    how: Any = {"cursor": ("at",), "deleted": "gone", "deletes": "soft"}
    rows: list[Row] = [{"id": 1, "at": 5}, {"id": 1, "at": 6, "gone": "x"}]
    with NewestRows(dedup(loads, 1, rows, columns, **how), [*columns]) as newest:
        assert newest.outcome([]).superseded == 1
    rows[1] = {"id": 1, "gone": "x"}
    load = dedup(loads, 2, rows, columns, **how)
    with NewestRows(load, [*columns]) as newest, pytest.raises(NeedsSpark):
        newest.outcome([])
