"""Loads of one row per key that need no Spark, in random sequences, against the oracle of the
newest row: keys and cursors of every kind and form, composite keys, equal and absent cursors, older
rows that come later, deletes, each load given twice (L3)."""

import datetime as dt
import math
import random
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import newest_cases
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from merge_cases import at, dedup, some
from tasks_here import LOCAL

from newest_oracle import OTHER, Folded, order_of
from penstock.model.segments import CursorOrder
from penstock.model.types import EXTRACTED_AT, RAW_ID
from penstock.tables.contract import LoadResult, TableName
from penstock.tables.files import old_files
from penstock.tables.formats import open_table

NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))  # settings, and no row by Spark
T = TableName(None, "t")
X = "x" * 31  # statistics of texts are cut after 32 characters
KINDS: dict[Any, list[Any]] = {
    "string": ["a", "A", "é", "e\u0301", "", " ", "a\0", "a\0b", X + "ya", X + "yb", "y" * 5000,
               X + "\U0010ffff" * 2, X + "\uffff", X + "\U00010000"],
    "integer": [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)],
    "boolean": [True, False],
    "date": [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(1899, 12, 31), dt.date(9999, 12, 31)],
    "timestamp": [dt.datetime(1, 1, 1, tzinfo=dt.UTC), at(0.000001), at(0),
                  dt.datetime(1899, 12, 31, 23, 59, 59, 999999, dt.UTC)],
    (38, 10): [Decimal("9" * 28 + ".9999999999"), Decimal("-0.0000000001"), Decimal(0)],
    "binary": [b"", b"\0", b"\0\xff", b"\xff" * 40],
}  # fmt: skip
CURSORS: dict[str, tuple[Any, list[Any]]] = {
    **{str(kind): (kind, values) for kind, values in KINDS.items()},
    "number": ("number", [0.0, -0.0, -1.5, math.inf, -math.inf, math.nan]),
    "texts": ("string", [*newest_cases.TEXTS[:-1]]),
    "json": ("json", ["1", '"a"', '{"at": 1}', "10"]),
}


def given(load: Any) -> list[dict[str, Any]]:
    """A load's rows in the order of their arrival, as the table shows them."""
    rows = [row for path in load.parts for row in pq.read_table(path).to_pylist()]
    return [{**r, "_raw_id": r[RAW_ID], "_extracted_at": r[EXTRACTED_AT]} for r in rows]


def shown(tables: Any) -> list[dict[str, Any]]:
    place = tables.location(T)
    if tables.name == "delta":
        return DeltaTable(place).to_pyarrow_table().to_pylist()
    return ds.dataset(place, format="parquet").to_table().to_pylist()


@pytest.mark.parametrize("format", ["delta", "parquet"])
@pytest.mark.parametrize("seed", range(6))
def test_the_newest_row_of_each_key_is_kept_L3(
    tmp_path: Path, loads: Any, monkeypatch: pytest.MonkeyPatch, format: str, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(old_files, "MOST_SMALL_FILES", chance.choice([0, 1, 8]))
    keys = {f"k{i}": chance.choice([*KINDS]) for i in range(chance.choice([1, 1, 2]))}
    kept = {
        name: chance.sample(KINDS[kind], min(3, len(KINDS[kind]))) for name, kind in keys.items()
    }
    name = chance.choice([*CURSORS])
    columns = {**keys, "c": CURSORS[name][0], "gone": "timestamp"}
    arrival, hard = chance.random() < 0.2, chance.random() < 0.5
    how: dict[str, Any] = {
        "primary_key": tuple((key,) for key in keys),
        "cursor": chance.choice([(), ("c",)]),
        "deleted": "gone",
        "deletes": "hard" if hard else "soft",
        "arrival": arrival,
    }

    def row() -> dict[str, Any]:
        made = {key: some(chance, *kept[key]) for key in keys}
        made |= {"c": some(chance, *CURSORS[name][1]), "@at": at(chance.randrange(3))}
        # One without columns of its own keeps those of its row (test_tables_soft_deletes).
        if chance.random() < 0.2 and made["c"] is not None:
            made["gone"] = at(9)
        return made

    text_order = chance.random() < 0.2
    how["cursor_order"] = CursorOrder.text if text_order else CursorOrder.by_value

    def order(row: dict[str, Any]) -> Any:
        return OTHER if arrival or not how["cursor"] else order_of(row["c"], as_text=text_order)

    tables, table = open_table(format, str(tmp_path / "lake")), dict[Any, Folded]()
    for number in range(1, 5):
        parts = [[row() for _ in range(chance.choice([1, 3, 20]))] for _ in range(2)]
        load = dedup(loads, number, parts, columns, replaces=chance.random() < 0.1, **how)
        if load.load.replaces:
            table = {}
        fresh = given(load)
        for new in fresh:
            key = tuple(new[k] for k in keys)
            table.setdefault(key, Folded()).add(new, order(new))
        outcome = tables.commit(NO_SPARK, LOCAL, [load])[0]
        assert isinstance(outcome, LoadResult)
        taken = sum(any(fold.row is new for new in fresh) for fold in table.values())
        assert outcome.superseded == load.load.rows - taken
        if hard:
            table = {key: one for key, one in table.items() if one.row["gone"] is None}
        assert tables.commit(NO_SPARK, LOCAL, [load]) == [LoadResult(0, repeated=True)]
        seen = ("_raw_id", "_extracted_at", "gone", "c", *keys)
        assert sorted(repr([r[n] for n in seen]) for r in shown(tables)) == sorted(
            repr([fold.row[n] for n in seen]) for fold in table.values()
        )
