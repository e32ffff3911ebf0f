"""A table of before whose text key has rows of text and rows of JSON, since its source declared a
union for a while: a row that comes again replaces that of its key, whichever form that has (L9;
docs/reading-tables.md, "When a declared type changes"). By the files' merge and by Spark's."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from merge_cases import dedup
from tasks_here import LOCAL
from test_tables_merge_tasks import NO_SPARK, put

from penstock.tables.contract import TableName
from penstock.tables.delta import tables as delta
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.files.merge_job import NeedsSpark
from penstock.tables.parquet import tables as parquet
from penstock.tables.parquet.tables import ParquetTables

FORMATS = {"delta": DeltaTables, "parquet": ParquetTables}
COLUMNS = {"id": "string", "n": "integer", "at": "integer", "v": "string", "gone": "string"}
KEPT = ["id", "n", "at", "v"]
Row = tuple[Any, ...]  # a value of each column; a delete has all five


def load(loads: Any, number: int, rows: list[Row], form: str = "string", **how: Any) -> Any:
    columns = {**COLUMNS, "id": form}
    made = [dict(zip(columns, row, strict=False)) for row in rows]
    key = how.pop("primary_key", (("id",),))
    found = dedup(loads, number, made, columns, primary_key=key, cursor=("at",), deleted="gone")
    mixed = msgspec.structs.replace(found.load.disposition, mixed_keys=("id",))
    inner = msgspec.structs.replace(found.load, disposition=mixed)
    return msgspec.structs.replace(found, load=inner)


def rows(tables: Any) -> list[Row]:
    place = tables.location(TableName(None, "t"))
    if tables.name == "delta":
        found = DeltaTable(place).to_pyarrow_table(columns=KEPT)
    else:
        found = ds.dataset(place, format="parquet").to_table(columns=KEPT)
    return sorted(tuple(row.values()) for row in found.to_pylist())


HELD: list[Row] = [
    ('"A1"', 1, 5, "a"),  # written while the source declared a union
    ("A2", 1, 5, "b"),
    ('"A3"', 1, 5, "c"), ("A3", 1, 7, "c2"),  # doubled
    ("7", 1, 5, "d"), ('"8"', 1, 5, "e"),
    ('"q\\"t"', 1, 5, "f"),
    ('"no json', 1, 5, "g"),
    ('"Q1"', 1, 5, "i"), ('"Q2"', 1, 5, "j"),
]  # fmt: skip
TEXT: list[Row] = [
    ("A1", 1, 6, "a new"), ("A2", 1, 6, "b new"), ("A3", 1, 8, "c new"), ("7", 1, 6, "d new"),
    ("8", 1, 4, "e old"), ('q"t', 1, 6, "f new"), ('"no json', 1, 6, "g new"), ("B1", 1, 1, "h"),
    ("Q1", 1, 6, "plain"), ('"Q1"', 1, 6, "quoted"),
    ("Q2", 1, 6, "plain 2"), ('"Q2"', 1, 4, "older than the same in the table"),
]  # fmt: skip
AFTER_TEXT: list[Row] = [
    ("A1", 1, 6, "a new"), ("A2", 1, 6, "b new"), ("A3", 1, 8, "c new"), ("7", 1, 6, "d new"),
    ('q"t', 1, 6, "f new"), ('"no json', 1, 6, "g new"), ("B1", 1, 1, "h"),
    ("Q1", 1, 6, "plain"), ('"Q1"', 1, 6, "quoted"), ("Q2", 1, 6, "plain 2"), ('"Q2"', 1, 5, "j"),
]  # fmt: skip
JSON: list[Row] = [
    ('"A1"', 1, 6, "a new"), ('"A2"', 1, 6, "b new"), ('"A3"', 1, 8, "c new"), ("7", 1, 6, "d new"),
    ('"7"', 1, 6, "another key"), ("8", 1, 6, "and another"),
]  # fmt: skip
AFTER_JSON: list[Row] = [
    *JSON, ('"8"', 1, 5, "e"), ('"q\\"t"', 1, 5, "f"), ('"no json', 1, 5, "g"), ('"Q1"', 1, 5, "i"),
    ('"Q2"', 1, 5, "j"),
]  # fmt: skip


@pytest.fixture(params=[*FORMATS])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return FORMATS[request.param](str(tmp_path / "lake"))


@pytest.fixture(params=["files", pytest.param("spark", marks=pytest.mark.spark)])
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The session by which loads are merged; with ``spark``, Spark itself does."""
    if request.param == "files":
        return NO_SPARK

    def by_spark(*_: Any) -> Any:
        raise NeedsSpark("the test asks for it")

    monkeypatch.setattr(delta, "table_for", lambda *_: None)
    monkeypatch.setattr(parquet, "rewrite_job", by_spark)
    return request.getfixturevalue("spark")


def held(tables: Any, loads: Any, session: Any) -> None:
    """Makes the table with rows that two forms of a key have."""
    put(tables, load(loads, 1, HELD), LOCAL, session)
    assert rows(tables) == sorted(HELD)


def text_rows(found: list[Row]) -> list[tuple[str, str]]:
    """Each key as text, and its value: a row that stays may keep its form."""
    return sorted((key.strip('"') if key == '"8"' else key, v) for key, _, _, v in found)


def times(tables: Any, session: Any) -> int:
    """How often the rows come. Once where Spark merges into Delta, which plans for half a minute:
    the second time every key is found as it is."""
    return 1 if tables.name == "delta" and session is not NO_SPARK else 2


def test_L9_text_again_after_a_union(tables: Any, loads: Any, session: Any) -> None:
    """Keys that are sent with quotes beside the same without them, Q1 and Q2, stay apart."""
    held(tables, loads, session)
    for number in (2, 3)[: times(tables, session)]:
        done = put(tables, load(loads, number, TEXT), LOCAL, session)
        assert text_rows(rows(tables)) == text_rows([*AFTER_TEXT, ("8", 1, 5, "e")])
        assert number > 2 or done.superseded == 2, "8 and quoted Q2 are older than the table's"


def test_L9_a_union_after_text(tables: Any, loads: Any, session: Any) -> None:
    """7 and "7" are two keys of a union: which of them a text 7 was, nothing says."""
    held(tables, loads, session)
    for number in (2, 3)[: times(tables, session)]:
        put(tables, load(loads, number, JSON, "json"), LOCAL, session)
        assert rows(tables) == sorted(AFTER_JSON)


def test_L9_deletes_and_keys_of_two_columns(tables: Any, loads: Any, session: Any) -> None:
    key = (("id",), ("n",))
    first: list[Row] = [
        ('"A1"', 1, 5, "a"), ('"A1"', 2, 5, "b"), ("A2", 1, 5, "c"), ("A1", 2, 4, "b, twice"),
    ]  # fmt: skip
    put(tables, load(loads, 1, first, primary_key=key), LOCAL, session)
    new: list[Row] = [("A1", 1, 6, None, "2024-05-01"), ("A1", 2, 6, "b new"), ("A2", 2, 1, "d")]
    put(tables, load(loads, 2, new, primary_key=key), LOCAL, session)
    left = [("A1", 2, 6, "b new"), ("A2", 1, 5, "c"), ("A2", 2, 1, "d")]
    assert rows(tables) == left
