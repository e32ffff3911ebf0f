"""Parts of a stream with keys in their table's shape (issue 37, part 5): a load of which the table
gets every row is its parts, written once; any other keeps the newest row of each key, whichever way
it takes (L3, L9)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from merge_cases import dedup
from shaped import inodes, shaped
from tasks_here import LOCAL

from penstock.tables.contract import LoadResult, LoadWay, TableName
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.files import direct_parts, linked_parts
from penstock.tables.parquet.tables import ParquetTables

T = TableName(None, "t")
NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))
FORMATS = {"delta": DeltaTables, "parquet": ParquetTables}
COLUMNS = {"id": "integer", "v": "string", "c": "integer"}


@pytest.fixture(params=[*FORMATS])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return FORMATS[request.param](str(tmp_path / "lake [1] +% é"))


@pytest.fixture(autouse=True)
def no_part_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_parts, "SMALL_BYTES", 0)


def row(id: int | None, v: str, c: int | None = None) -> dict[str, Any]:
    return {"id": id, "v": v, "c": c}


def files(tables: Any) -> list[str]:
    place = tables.location(T)
    if tables.name == "delta":
        named = pa.table(DeltaTable(place).get_add_actions())["path"].to_pylist()
        return sorted(f"{place}/{name}" for name in named)
    return sorted(map(str, Path(place).glob("*.parquet")))


def content(tables: Any) -> list[tuple[Any, ...]]:
    found = (r for f in files(tables) for r in pq.read_table(f).to_pylist())
    return sorted((r["id"], r["v"], r["_meta"]["sync_id"], r["_generation_id"]) for r in found)


def put(tables: Any, load: Any, spark: Any = NO_SPARK) -> LoadResult:
    (found,) = tables.commit(spark, LOCAL, [load])
    assert isinstance(found, LoadResult), found
    return found


def test_a_load_of_new_keys_is_its_parts_written_once(tables: Any, loads: Any) -> None:
    rows = [[row(1, "a"), row(2, "b")], [row(3, "c")]]
    first = shaped(dedup(loads, 1, rows, COLUMNS))
    done = put(tables, first)
    assert done == LoadResult(3) and done.way is LoadWay.merge
    assert inodes(files(tables)) == inodes(first.parts)
    assert content(tables) == [(1, "a", 7, 3), (2, "b", 7, 3), (3, "c", 7, 3)]
    assert put(tables, first) == LoadResult(0, repeated=True)


def test_later_new_keys_are_written_once_too(tables: Any, loads: Any) -> None:
    first = shaped(dedup(loads, 1, [row(1, "a"), row(5, "b")], COLUMNS))
    later = shaped(dedup(loads, 2, [row(2, "c"), row(9, "d")], COLUMNS))
    assert [put(tables, first), put(tables, later)] == [LoadResult(2), LoadResult(2)]
    assert inodes(files(tables)) == inodes([*first.parts, *later.parts])


@pytest.mark.parametrize(
    ("cursor", "wins"), [((), {1: "third", 2: "b2"}), (("c",), {1: "first", 2: "b2"})]
)
def test_of_a_key_that_comes_twice_the_newest_row_stays_L9(
    tables: Any, loads: Any, cursor: Any, wins: dict[int, str]
) -> None:
    """Within a part and over parts, the last of which lies first in the load."""
    rows = [
        [row(1, "first", 9), row(2, "b1", 1), row(2, "b2", 1)],
        [row(1, "second", 5)],
        [row(1, "third", 5), row(3, "c")],
    ]
    load = shaped(dedup(loads, 1, rows, COLUMNS, cursor=cursor))
    parts = (load.load.parts[2], *load.load.parts[:2])
    inner = msgspec.structs.replace(load.load, parts=parts)
    load = msgspec.structs.replace(load, load=inner, parts=(load.parts[2], *load.parts[:2]))
    assert put(tables, load) == LoadResult(3, superseded=3)
    assert {i: v for i, v, *_ in content(tables)} == {**wins, 3: "c"}
    assert not inodes(files(tables)) & inodes(load.parts)


def test_keys_that_the_table_has_are_merged_L3(tables: Any, loads: Any) -> None:
    put(tables, shaped(dedup(loads, 1, [row(1, "a"), row(2, "b")], COLUMNS)))
    later = shaped(dedup(loads, 2, [row(2, "new"), row(3, "c")], COLUMNS), generation=3)
    assert put(tables, later) == LoadResult(2)
    assert [(i, v) for i, v, *_ in content(tables)] == [(1, "a"), (2, "new"), (3, "c")]


def test_parts_of_before_and_in_shape_join_in_the_order_of_their_rows_L9(
    tables: Any, loads: Any
) -> None:
    """A home of yesterday sealed parts with internal columns; today's come in the table's shape."""
    load = dedup(loads, 1, [[row(1, "old"), row(2, "b")], [row(1, "new")]], COLUMNS)
    mixed = shaped(load)
    for turn in (0, 1):  # which of the two has the shape
        refs = [load.load.parts[0], mixed.load.parts[1]]
        paths = [load.parts[0], mixed.parts[1]]
        if turn:
            refs = [mixed.load.parts[0], load.load.parts[1]]
            paths = [mixed.parts[0], load.parts[1]]
        inner = msgspec.structs.replace(
            load.load, parts=(*reversed(refs),), number=turn + 1, follows=turn
        )
        put(tables, msgspec.structs.replace(load, load=inner, parts=(*reversed(paths),)))
        assert [(i, v) for i, v, *_ in content(tables)] == [(1, "new"), (2, "b")]


def test_a_file_system_without_links_gets_the_rows_written_again(
    tables: Any, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    load = shaped(dedup(loads, 1, [row(1, "a"), row(2, "b")], COLUMNS))
    links = SimpleNamespace(link=refused, utime=linked_parts.os.utime)
    monkeypatch.setattr(linked_parts, "os", links)
    assert put(tables, load) == LoadResult(2)
    monkeypatch.undo()
    assert not inodes(files(tables)) & inodes(load.parts)
    assert [(i, v) for i, v, *_ in content(tables)] == [(1, "a"), (2, "b")]


def test_readers_find_the_bounds_of_linked_keys_in_the_log(loads: Any, tmp_path: Path) -> None:
    tables = DeltaTables(str(tmp_path / "lake"))
    put(tables, shaped(dedup(loads, 1, [[row(1, "a"), row(4, "b")], [row(7, "c")]], COLUMNS)))
    found = pa.table(DeltaTable(tables.location(T)).get_add_actions(flatten=True)).to_pylist()
    assert sorted((r["min.id"], r["max.id"]) for r in found) == [(1, 4), (7, 7)]


@pytest.mark.spark
@pytest.mark.parametrize("cursor", [(), ("c",)])
def test_spark_keeps_the_newest_row_of_parts_in_shape_L9(
    tables: Any, spark: Any, loads: Any, cursor: Any
) -> None:
    """A key of floating point, which no task compares; the parts lie in another order."""
    columns = {"id": "number", "v": "string", "c": "integer"}
    rows = [[row(1, "first", 9), row(2, "x", 1), row(2, "y", 1)], [row(1, "last", 5)]]
    load = shaped(dedup(loads, 1, rows, columns, cursor=cursor))
    inner = msgspec.structs.replace(load.load, parts=load.load.parts[::-1])
    load = msgspec.structs.replace(load, load=inner, parts=load.parts[::-1])
    assert put(tables, load, spark).superseded == 2
    assert [(i, v) for i, v, *_ in content(tables)] == [
        (1, "first" if cursor else "last"),
        (2, "y"),
    ]
