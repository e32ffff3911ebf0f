"""Cursors that their column holds with fewer digits (nanoseconds, numbers above 2^53) are compared
exactly by the source's text in the change list, within a load and with the table's row (issue 38,
2), however rows are grouped into loads."""

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from merge_cases import dedup
from shaped import shaped
from tasks_here import LOCAL

from penstock.model.types import MetadataNames
from penstock.tables.contract import LoadResult, TableName
from penstock.tables.files.cut_cursors import CutCursors
from penstock.tables.formats import open_table

NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))  # settings, and no row by Spark
FRACTIONS = ("123456", "123456001", "1234560011", "123456999", "123457", "123457000000001")
TIMES = [f"2024-05-01T10:00:00.{digits}Z" for digits in FRACTIONS]
OLD_TIMES = ["1969-12-31T23:59:59.9999991Z", "1969-12-31T23:59:59.999999Z"]
NUMBERS = ["9007199254740992", "9007199254740993", "9007199254740991", "-9007199254740993",
           "-9007199254740995", "1152921504606846977", "1152921504606846976", "7"]  # fmt: skip
KINDS: dict[str, list[str]] = {
    "timestamp": [*TIMES, *OLD_TIMES],
    "timestamp_ntz": [text.removesuffix("Z").replace("T", " ") for text in TIMES],
    "number": NUMBERS,
}
T = TableName(None, "t")


def exact(kind: str, text: str) -> Any:
    if kind == "number":
        return Decimal(text)
    whole, fraction = text.removesuffix("Z").replace(" ", "T").split(".")
    return dt.datetime.fromisoformat(whole), Decimal("0." + fraction)


def column(kind: str, text: str) -> tuple[Any, Any]:
    """The value that the column has, and the change list."""
    if kind == "number":
        value: Any = float(text)
        cut = Decimal(value) != Decimal(text)
    else:
        whole, _, fraction = text.removesuffix("Z").partition(".")
        value = dt.datetime.fromisoformat(f"{whole}.{fraction[:6].ljust(6, '0')}")
        value = value.replace(tzinfo=dt.UTC if kind == "timestamp" else None)
        cut = len(fraction.rstrip("0")) > 6
    entry = {"field": "c", "change": "TRUNCATED", "reason": f"TYPE_MISFIT: {text}"}
    other = {"field": "a", "change": "NULLED", "reason": "TYPE_MISFIT: 1: 2"}
    return value, [other, entry] if cut else None


def made(loads: Any, number: int, kind: str, rows: list[tuple[int, int, str]], key: str) -> Any:
    found = [column(kind, text) for _, _, text in rows]
    data = [{"k": k, "v": v, "c": c} for (k, v, _), (c, _) in zip(rows, found, strict=True)]
    columns = {"k": key, "v": "integer", "c": kind}
    how: Any = {"primary_key": (("k",),), "cursor": ("c",), "changes": [c for _, c in found]}
    return dedup(loads, number, data, columns, **how)


def shown(tables: Any) -> dict[int, int]:
    place = tables.location(T)
    if tables.name == "delta":
        rows = DeltaTable(place).to_pyarrow_table(columns=["k", "v"]).to_pylist()
    else:
        rows = ds.dataset(place, format="parquet").to_table(columns=["k", "v"]).to_pylist()
    return {row["k"]: row["v"] for row in rows}


def newest_in_any_grouping(
    spark: Any,
    tables: Any,
    loads: Any,
    kind: str,
    seed: int,
    keys: int,
    key: str,
    in_shape: bool = False,
) -> None:
    chance, wanted = random.Random(seed), dict[int, tuple[Any, int]]()
    groups: list[list[tuple[int, int, str]]] = [[], [], []]
    for k in range(keys):
        turns = sorted(chance.choices(range(3), k=chance.choice([1, 2, 3, 5])))
        for v, load in enumerate(turns):
            text = chance.choice(KINDS[kind])
            groups[load].append((k, v, text))
            if k not in wanted or exact(kind, text) >= wanted[k][0]:
                wanted[k] = exact(kind, text), v
    for number, rows in enumerate(groups, 1):
        load = made(loads, number, kind, rows, key)
        load = shaped(load) if in_shape else load
        done = tables.commit(spark, LOCAL, [load])[0]
        assert isinstance(done, LoadResult), done
    found = shown(tables)
    differ = {k: (found.get(k), *want) for k, want in wanted.items() if found.get(k) != want[1]}
    assert not differ and len(found) == keys


@pytest.mark.parametrize("in_shape", [False, True], ids=["internal", "in shape"])
@pytest.mark.parametrize(
    ("format", "kind"),
    [("delta", "timestamp"), ("delta", "number"), *(("parquet", kind) for kind in KINDS)],
)
def test_cut_cursors_are_exact_by_tasks(
    format: str, kind: str, in_shape: bool, tmp_path: Path, loads: Any
) -> None:
    tables = open_table(format, str(tmp_path / "lake"))
    newest_in_any_grouping(NO_SPARK, tables, loads, kind, 38, 80, "integer", in_shape)


@pytest.mark.spark
@pytest.mark.parametrize(("format", "kind"), [("delta", "timestamp"), ("parquet", "number")])
def test_cut_cursors_are_exact_by_spark(
    format: str, kind: str, tmp_path: Path, loads: Any, spark: Any
) -> None:
    tables = open_table(format, str(tmp_path / "lake"))
    newest_in_any_grouping(spark, tables, loads, kind, 39, 80, "number")  # no key for tasks


def test_a_row_without_its_text_gives_way_and_is_noted(tmp_path: Path, loads: Any) -> None:
    """Rows that were written before the text was kept."""
    tables = open_table("delta", str(tmp_path / "lake"))
    columns = {"k": "integer", "v": "integer", "c": "timestamp"}
    how: Any = {"primary_key": (("k",),), "cursor": ("c",)}
    at, _ = column("timestamp", TIMES[3])
    old = dedup(loads, 1, [{"k": 1, "v": 0, "c": at}, {"k": 2, "v": 0, "c": at}], columns, **how)
    assert tables.commit(NO_SPARK, LOCAL, [old])[0].notes == ()
    done = tables.commit(
        NO_SPARK, LOCAL, [made(loads, 2, "timestamp", [(1, 1, TIMES[1])], "integer")]
    )[0]
    assert shown(tables) == {1: 1, 2: 0}
    assert "a row has equal ones without the source's text" in done.notes[0]
    done = tables.commit(
        NO_SPARK, LOCAL, [made(loads, 3, "timestamp", [(1, 2, TIMES[0])], "integer")]
    )[0]
    assert shown(tables) == {1: 1, 2: 0}
    assert done.notes == ()


def test_no_change_list_is_read_where_no_cursor_was_cut(
    tmp_path: Path, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a change list is read")

    monkeypatch.setattr(CutCursors, "_texts", refuse)
    tables = open_table("parquet", str(tmp_path / "lake"))
    for number in (1, 2):
        rows = [(1, number, TIMES[0]), (1, 7, TIMES[0])]
        assert isinstance(
            tables.commit(NO_SPARK, LOCAL, [made(loads, number, "timestamp", rows, "integer")])[0],
            LoadResult,
        )


def one_load(spark: Any, tables: Any, loads: Any, key: str) -> Any:
    """Rows of one load into a table without metadata columns, of which the newest comes first."""
    texts = [TIMES[3], TIMES[1], TIMES[2], TIMES[0]]
    found = [column("timestamp", text) for text in texts]
    data = [{"k": 1, "v": v, "c": value} for v, (value, _) in enumerate(found)]
    columns = {"k": key, "v": "integer", "c": "timestamp"}
    how: Any = {"primary_key": (("k",),), "cursor": ("c",), "metadata": None}
    load = dedup(loads, 1, data, columns, changes=[lists for _, lists in found], **how)
    assert isinstance(tables.commit(spark, LOCAL, [load])[0], LoadResult)
    assert shown(tables) == {1: 0}
    at, lists = column("timestamp", TIMES[1])
    later = dedup(loads, 2, [{"k": 1, "v": 9, "c": at}], columns, changes=[lists], **how)
    return tables.commit(spark, LOCAL, [later])[0]


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_L8_a_load_without_metadata_columns_keeps_the_newest_row_by_tasks(
    format: str, tmp_path: Path, loads: Any
) -> None:
    tables = open_table(format, str(tmp_path / "lake"))
    done = one_load(NO_SPARK, tables, loads, "integer")
    assert shown(tables) == {1: 9}  # of the table's row nothing is known, and that is noted
    assert "a row has equal ones without the source's text" in done.notes[0]


@pytest.mark.spark
@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_L8_a_load_without_metadata_columns_keeps_the_newest_row_by_spark(
    format: str, tmp_path: Path, loads: Any, spark: Any
) -> None:
    tables = open_table(format, str(tmp_path / "lake"))
    one_load(spark, tables, loads, "number")  # no key for tasks
    assert shown(tables) == {1: 9}


def test_L8_parts_in_a_shape_with_other_metadata_columns_are_compared_exactly(
    tmp_path: Path, loads: Any
) -> None:
    """The pipeline's metadata_columns changed after the parts were sealed."""
    other = MetadataNames("_x_id", "_x_at", "_x_meta", "_x_generation")
    tables = open_table("delta", str(tmp_path / "lake"))
    rows = [(1, 0, TIMES[3]), (1, 1, TIMES[1])]
    load = shaped(made(loads, 1, "timestamp", rows, "integer"), names=other)
    done = tables.commit(NO_SPARK, LOCAL, [load])[0]
    assert isinstance(done, LoadResult), done
    assert shown(tables) == {1: 0}
