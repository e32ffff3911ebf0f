"""The in-memory twin: the same rules as the real formats (L3, append_dedup), in microseconds."""

import time
from typing import Any

import pytest

from memory_tables import MemoryTables
from penstock.errors import LeaseLost
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import Load, WriteDisposition
from penstock.model.types import EXTRACTED_AT, SEQ, RowSchema
from penstock.tables.contract import LoadResult, TableAhead, TableLoad, TableName


def load(number: int, part: str, mode: str = "append", **more: Any) -> TableLoad:
    keep = {k: more.pop(k) for k in ("replaces",) if k in more}
    disposition = WriteDisposition(
        mode=DestinationSyncMode(mode), primary_key=(("id",),), cursor=("c",), **more
    )
    inner = Load(
        key="k",
        number=number,
        stream=StreamId(None, "t"),
        disposition=disposition,
        segments=(),
        parts=(),
        schema_version=1,
        generation=1,
        **keep,
    )
    return TableLoad(load=inner, table=TableName(None, "t"), parts=(part,), schema=RowSchema(()))


def row(seq: int, id: int, c: Any, **more: Any) -> dict[str, Any]:
    return {SEQ: seq, EXTRACTED_AT: seq, "id": id, "c": c, **more}


def rows_of(tables: MemoryTables) -> list[tuple[Any, ...]]:
    return sorted((r["id"], r["c"], r[SEQ]) for r in tables.rows.get(TableName(None, "t"), []))


def test_append_replace_and_repetition_L3() -> None:
    parts = {"a": [row(1, 1, 1), row(2, 1, 1)], "b": [row(3, 2, 1)]}
    tables = MemoryTables(parts.__getitem__)
    assert tables.commit(None, None, [load(1, "a")]) == [LoadResult(2)]
    assert tables.commit(None, None, [load(1, "a")]) == [LoadResult(0, repeated=True)]
    (other,) = tables.commit(None, None, [load(0, "b")])
    assert isinstance(other, TableAhead)
    assert tables.commit(None, None, [load(2, "b", "overwrite", replaces=True)]) == [LoadResult(1)]
    assert rows_of(tables) == [(2, 1, 3)]


@pytest.mark.parametrize(
    ("older", "newer"),
    [("9", "10"), ("-10", "-9"), (" 9", "10 "), ("2024-01-09T00:00:00Z", "2024-01-10T00:00:00Z"),
     ("2024-01-10T01:00:00+02:00", "2024-01-10T00:00:00Z")],
)  # fmt: skip
def test_A7_text_that_is_a_number_or_a_time_compares_by_its_value(older: str, newer: str) -> None:
    parts = {"a": [row(1, 1, newer), row(2, 1, older)], "b": [row(3, 1, older)]}
    tables = MemoryTables(parts.__getitem__)
    tables.commit(None, None, [load(n, p, "append_dedup") for n, p in enumerate("ab")])
    assert rows_of(tables) == [(1, newer, 1)]


def test_A7_under_cdc_arrival_decides_and_a_bare_delete_deletes() -> None:
    parts = {
        "a": [row(1, 1, 9), row(2, 1, 5), row(3, 2, 1), row(4, 3, 1)],
        "b": [row(5, 1, None, gone="x"), row(6, 2, 0), row(7, 3, None, gone="x"), row(8, 3, 0)],
    }
    tables = MemoryTables(parts.__getitem__)
    tables.commit(
        None,
        None,
        [
            load(n, p, "append_dedup", deleted_column="gone", arrival=True)
            for n, p in enumerate("ab")
        ],
    )
    assert rows_of(tables) == [(2, 0, 6), (3, 0, 8)]


def test_A7_a_delete_without_a_cursor_deletes_what_came_before_it() -> None:
    parts = {
        "a": [row(1, 1, 9), row(2, 2, 9), row(3, 3, 4), row(4, 3, None, gone="x"), row(5, 3, 3)],
        "b": [row(6, 1, None, gone="x"), row(7, 2, None, gone="x"), row(8, 2, 10)],
    }
    tables = MemoryTables(parts.__getitem__)
    tables.commit(
        None, None, [load(n, p, "append_dedup", deleted_column="gone") for n, p in enumerate("ab")]
    )
    assert rows_of(tables) == [(2, 10, 8)]


def test_newest_per_key_and_deletes() -> None:
    parts = {
        "a": [row(1, 1, 5), row(2, 1, 4), row(3, 2, None), row(4, 3, 1), row(5, 3, 1)],
        "b": [row(6, 1, 4), row(7, 2, None), row(8, 3, 0, gone="x"), row(9, 4, 1, gone="x")],
        "c": [row(10, 3, 2, gone="x")],
    }
    tables = MemoryTables(parts.__getitem__)
    outcomes = tables.commit(
        None, None, [load(n, p, "append_dedup", deleted_column="gone") for n, p in enumerate("abc")]
    )
    assert [o.written for o in outcomes if isinstance(o, LoadResult)] == [3, 1, 1]
    assert rows_of(tables) == [(1, 5, 1), (2, None, 7)]


def test_steps_surround_the_commit() -> None:
    stop = {"at": ""}

    def on_step(step: str) -> None:
        if step == stop["at"]:
            raise KeyboardInterrupt

    tables = MemoryTables(lambda part: [row(1, 1, 1)], on_step)
    for at, rows in (("table.commit.before", 0), ("table.commit.after", 1)):
        stop["at"] = at
        with pytest.raises(KeyboardInterrupt):
            tables.commit(None, None, [load(1, "a")])
        assert len(rows_of(tables)) == rows


def test_an_error_of_ours_is_the_load_s_outcome() -> None:
    def on_step(step: str) -> None:
        raise LeaseLost("gone")

    outcomes = MemoryTables(lambda part: [], on_step).commit(None, None, [load(1, "a")])
    assert isinstance(outcomes[0], LeaseLost)


def test_a_commit_takes_microseconds() -> None:
    tables = MemoryTables(lambda part: [row(1, 1, 1)])
    started = time.perf_counter()
    for number in range(1000):
        tables.commit(None, None, [load(number, "a", "append_dedup")])
    assert time.perf_counter() - started < 10


def test_rows_of_the_table_without_the_key_are_kept_each() -> None:
    parts = {"a": [row(1, None, 1), row(2, None, 1)], "b": [row(3, 7, 1)]}  # type: ignore[arg-type]
    tables = MemoryTables(parts.__getitem__)
    tables.commit(None, None, [load(1, "a")])
    assert tables.commit(None, None, [load(2, "b", "append_dedup")]) == [LoadResult(1)]
    found = [(r["id"], r[SEQ]) for r in tables.rows[TableName(None, "t")]]
    assert found == [(None, 1), (None, 2), (7, 3)]
