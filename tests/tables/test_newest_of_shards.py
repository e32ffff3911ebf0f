"""The rows of a stream that is read in shards: between lanes the highest extraction time that a
lane has shown up to a row decides, then the lane, then the sequence (issue 38, 1)."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from merge_cases import at, dedup
from tasks_here import LOCAL

from memory_tables import MemoryTables
from penstock.model.types import SEQ_EPOCH_SHIFT
from penstock.tables.contract import LoadResult, TableLoad, TableName
from penstock.tables.formats import open_table

NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))  # settings, and no row by Spark
SHARDS = ((4, 1), (5, 0), (7, 1))  # lane 1 began, died and was begun again
T = TableName(None, "t")


def row(key: int, epoch: int, number: int, second: int, cursor: int | None = None) -> Any:
    seq = (epoch << SEQ_EPOCH_SHIFT) + number
    return {"k": key, "v": f"{epoch}/{number}", "c": cursor, "@seq": seq, "@at": at(second)}


def of_shards(loads: Any, number: int, rows: list[Any], key: str = "integer") -> TableLoad:
    columns, how = {"k": key, "v": "string", "c": "integer"}, {"primary_key": (("k",),)}
    load = dedup(loads, number, rows, columns, cursor=("c",), **how)
    return msgspec.structs.replace(load, load=msgspec.structs.replace(load.load, shards=SHARDS))


def shown(tables: Any) -> dict[int, str]:
    rows = ds.dataset(tables.location(T), format="parquet").to_table(columns=["k", "v"])
    return {row["k"]: row["v"] for row in rows.to_pylist()}


def test_the_lane_s_highest_extraction_time_decides(tmp_path: Path, loads: Any) -> None:
    rows = [
        row(1, 4, 1, 30), row(1, 5, 1, 20),  # extracted later, in the epoch that began first
        row(2, 5, 2, 40), row(2, 5, 3, 1),  # of one lane: whenever it was extracted
        row(3, 4, 2, 9), row(3, 5, 4, 35),  # lane 1 had shown 30, lane 0 40
        row(4, 5, 5, 2), row(4, 7, 1, 2),  # lane 0 had shown 40, lane 1 100
        row(5, 5, 6, 99, 7), row(5, 4, 3, 1, 8),  # the higher cursor wins all the same
        row(6, 4, 4, 100), row(6, 5, 7, 100),  # of equal ones the higher lane is later
    ]  # fmt: skip
    tables = open_table("parquet", str(tmp_path / "lake"))
    assert isinstance(tables.commit(NO_SPARK, LOCAL, [of_shards(loads, 1, rows)])[0], LoadResult)
    assert shown(tables) == {1: "4/1", 2: "5/3", 3: "5/4", 4: "7/1", 5: "4/3", 6: "4/4"}


def compare(spark: Any, loads: Any, tables: Any, key: str) -> None:
    """With tables in memory, which sort in plain Python."""
    chance = random.Random(38)
    memory = MemoryTables(lambda path: pq.read_table(path).to_pylist())
    for number in (1, 2):
        numbers = {epoch: 0 for epoch, _ in SHARDS}
        rows = list[Any]()
        for _ in range(400):
            epoch = chance.choice([*numbers])
            numbers[epoch] += chance.choice([1, 40_000])  # in several blocks
            cursor = chance.choice([None, 1, 1, 2])
            rows.append(
                row(chance.randrange(60), epoch, numbers[epoch], chance.randrange(300), cursor)
            )
        load = of_shards(loads, number, rows, key)
        assert isinstance(tables.commit(spark, LOCAL, [load])[0], LoadResult)
        assert isinstance(memory.commit(None, None, [load])[0], LoadResult)
        assert shown(tables) == {row["k"]: row["v"] for row in memory.rows[T]}


def test_lanes_are_ordered_by_tasks(tmp_path: Path, loads: Any) -> None:
    compare(NO_SPARK, loads, open_table("parquet", str(tmp_path / "lake")), "integer")


@pytest.mark.spark
def test_lanes_are_ordered_by_spark(tmp_path: Path, loads: Any, spark: Any) -> None:
    compare(spark, loads, open_table("parquet", str(tmp_path / "lake")), "number")
