"""A table begins a history with the rows that it has, or ends it and keeps current ones, in a
commit of its own before the load's (docs/history.md); and it keeps the rows of one stream alone.
The versions are those of the oracle."""

import datetime as dt
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from history_oracle import Row, Version, by_cursor
from tasks_here import LOCAL
from test_history_tables import (
    COLUMNS,
    NO_SPARK,
    T,
    at,
    by_ticks,
    commit,
    history,
    numbered,
    ordered,
    refused,
    rows_of,
    stored,
    tables,
    versions,
)

from penstock.errors import PenstockError
from penstock.model.types import ChangeWords
from penstock.tables.contract import LoadResult
from penstock.tables.delta import tables as delta_tables
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.parquet import tables as parquet_tables
from penstock.tables.parquet.folders import MARKER
from penstock.tables.refused_histories import turns

__all__ = ["tables"]
SPARK = (pytest.mark.spark, pytest.mark.dear)


def put(spark: Any, tables: Any, load: Any) -> LoadResult:
    (done,) = tables.commit(spark, LOCAL, [load])
    assert isinstance(done, LoadResult), (done, getattr(done, "hint", None))
    return done


def plain(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((r["id"], r["at"], r["v"]) for r in found)


def deduped(loads: Any, number: int, rows: list[Row], **more: Any) -> Any:
    given = {"mode": "append_dedup", "cursor": ("at",), "deleted": "_gone", **more}
    return loads.load(number, rows_of(rows), COLUMNS, **given)


def history_of(tables: Any) -> Any:
    return tables.columns_of(T)


# -- the table is another stream's


def test_a_history_has_the_rows_of_one_stream(tables: Any, loads: Any) -> None:
    commit(tables, numbered(deduped(loads, 1, [Row(1, 1, "a"), Row(2, 1, "x")])))
    before = stored(tables)
    joins = numbered(deduped(loads, 1, [Row(1, 9, "z")], key="other/t"))
    error = refused(tables, joins)
    assert "another pipeline, or another stream" in str(error) and "state reset" in str(error.hint)
    # a refresh of the other one would end what it lacks
    closes = loads.load(1, [{"id": 3, "v": "n"}], mode="append_dedup", arrival=True, key="other/t")
    assert refused(tables, numbered(closes, replaces=True)).code == "schema.history"
    assert stored(tables) == before
    # nor does another one end it, with `--yes` or without
    ends = numbered(
        deduped(loads, 1, [Row(1, 9, "z")], key="other/t"), history=False, ends_history=True
    )
    assert turns(ends, history_of(tables), None) is False
    # what the user takes as it is, goes on
    inner = msgspec.structs.replace(joins.load, follows=None, number=7)
    commit(tables, msgspec.structs.replace(joins, load=inner))
    assert len(versions(tables)[1]) == 2


@pytest.mark.spark
@pytest.mark.dear
def test_no_overwrite_replaces_a_history(tables: Any, loads: Any, spark: Any) -> None:
    commit(tables, numbered(deduped(loads, 1, [Row(1, 1, "a")])))
    before = stored(tables)
    whole = loads.load(1, [{"id": 3, "v": "n"}], mode="overwrite", replaces=True, key="other/t")
    (error,) = tables.commit(spark, LOCAL, [numbered(whole, history=False, replaces=True)])
    assert isinstance(error, PenstockError) and error.code == "schema.history"
    assert stored(tables) == before


# -- a marker that came back damaged


def test_a_rebuilt_marker_is_that_of_a_history(loads: Any, tmp_path: Path) -> None:
    lake = parquet_tables.ParquetTables(str(tmp_path / "lake"))
    commit(lake, numbered(deduped(loads, 1, [Row(1, 1, "a")])))
    (Path(lake.location(T)) / MARKER).write_bytes(b"")
    commit(lake, numbered(deduped(loads, 2, [Row(1, 2, "b")])))
    assert ordered(versions(lake)[1]) == [Version(1, 2, False, "a"), Version(2, None, True, "b")]


# -- cursors that the column cuts


@pytest.mark.parametrize("metadata", [True, False])
def test_a_cursor_that_its_column_cuts_loses_no_version(
    tables: Any, loads: Any, metadata: bool
) -> None:
    words = ChangeWords()
    texts = [f"2024-01-01T00:00:01.000001{nanos}Z" for nanos in (100, 500)]
    changes = [
        [{"field": "at", "change": words.rounded, "reason": f"{words.reason}: {text}"}]
        for text in texts
    ]
    cut = at(1) + dt.timedelta(microseconds=1)
    rows = [{"id": 1, "at": cut, "v": "a"}, {"id": 1, "at": cut, "v": "b"}]
    more = {} if metadata else {"metadata": None}
    one = loads.load(
        1, rows, {**COLUMNS, "at": "timestamp"}, mode="append_dedup", cursor=("at",),
        changes=changes, **more,
    )  # fmt: skip
    error = refused(tables, numbered(one))
    assert error.code == "destination.history" and "more digits than its column" in str(error)


# -- begin and end


@pytest.mark.spark
@pytest.mark.dear
@pytest.mark.parametrize(
    ("tables", "metadata"), [("parquet", True), ("delta", False)], indirect=["tables"]
)
def test_rows_become_the_first_versions(
    tables: Any, loads: Any, spark: Any, metadata: bool
) -> None:
    chance = random.Random(5)
    more: dict[str, Any] = {} if metadata else {"metadata": None}
    lives = {key: history(chance, key) for key in range(200)}
    first = [
        next(r for r in rows if not r.gone)
        for rows in lives.values()
        if any(not r.gone for r in rows)
    ]
    commit(tables, numbered(deduped(loads, 1, first, **more), history=False))
    rest = [r for rows in lives.values() for r in rows if r not in first]
    put(spark, tables, numbered(deduped(loads, 2, rest, **more)))
    found = versions(tables)
    for key, rows in lives.items():
        begins = [r for r in first if r.key == key]
        wanted = by_cursor([*begins, *(r for r in rows if r not in begins)])
        assert ordered(found.get(key, [])) == ordered(wanted), rows
    commit(tables, numbered(deduped(loads, 3, [Row(1, 99, "later")], **more)))  # without Spark


@pytest.mark.spark
@pytest.mark.dear
def test_where_arrival_decides_rows_begin_when_they_were_extracted(
    tables: Any, loads: Any, spark: Any
) -> None:
    def load(number: int, tick: int, value: str, **more: Any) -> Any:
        rows = [{"id": 1, "v": value, "@at": at(tick)}, {"id": 2, "v": "x", "@at": at(tick)}]
        one = loads.load(number, rows, mode="append_dedup", arrival=True)
        return numbered(one, **more)

    commit(tables, load(1, 5, "a", history=False))
    put(spark, tables, load(2, 9, "b", replaces=True))
    assert ordered(by_ticks(versions(tables)[1])) == [
        Version(5, 9, False, "a"),
        Version(9, None, True, "b"),
    ]
    assert by_ticks(versions(tables)[2]) == [Version(5, None, True, "x")]


@pytest.mark.spark
@pytest.mark.dear
@pytest.mark.parametrize(
    ("tables", "mode"), [("delta", "append_dedup"), ("parquet", "append")], indirect=["tables"]
)
def test_a_history_that_ends_keeps_current_rows(
    tables: Any, loads: Any, spark: Any, mode: str
) -> None:
    commit(tables, numbered(deduped(loads, 1, [Row(1, 1, "a"), Row(2, 1, "x"), Row(3, 1, "y")])))
    commit(tables, numbered(deduped(loads, 2, [Row(1, 2, "b"), Row(3, 2, None, gone=True)])))
    after = deduped(loads, 3, [Row(4, 3, "n")], mode=mode)
    error = tables.commit(spark, LOCAL, [numbered(after, history=False)])[0]
    assert error.code == "schema.history" and "run --yes" in error.hint
    put(spark, tables, numbered(after, history=False, ends_history=True))
    assert plain(stored(tables)) == [(1, 2, "b"), (2, 1, "x"), (4, 3, "n")]
    assert "is_current" not in stored(tables)[0]
    if mode == "append_dedup":  # and the other way again
        put(spark, tables, numbered(deduped(loads, 4, [Row(1, 5, "c")])))
        wanted = [Version(2, 5, False, "b"), Version(5, None, True, "c")]
        assert ordered(versions(tables)[1]) == wanted


@pytest.mark.spark
@pytest.mark.dear
def test_a_table_that_cannot_be_first_versions_is_left_as_it_is(
    tables: Any, loads: Any, spark: Any
) -> None:
    twice = deduped(loads, 1, [Row(1, 1, "a"), Row(1, 2, "b")], mode="append")
    commit_any = tables.commit(spark, LOCAL, [numbered(twice, history=False)])
    assert isinstance(commit_any[0], LoadResult)
    before = stored(tables)
    (error,) = tables.commit(spark, LOCAL, [numbered(deduped(loads, 2, [Row(1, 3, "c")]))])
    assert error.code == "destination.history" and "several rows of a key id" in str(error)
    assert stored(tables) == before


@pytest.mark.spark
@pytest.mark.dear
@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("step", ["before the turn", "after the turn", "after the load"])
def test_a_turn_that_died_is_repeated_exactly_L3(
    tables: Any, loads: Any, spark: Any, monkeypatch: pytest.MonkeyPatch, step: str, begins: bool
) -> None:
    class Died(BaseException):
        pass

    commit(
        tables, numbered(deduped(loads, 1, [Row(1, 1, "a"), Row(2, 1, "x")]), history=not begins)
    )
    ends = {} if begins else {"ends_history": True}
    second = numbered(deduped(loads, 2, [Row(1, 3, "c")]), history=begins, **ends)
    delta = isinstance(tables, DeltaTables)
    with monkeypatch.context() as patch:
        dies_at(patch, delta, step, Died)
        with pytest.raises(Died):
            tables.commit(spark, LOCAL, [second])
    assert put(spark, tables, second).repeated == (step == "after the load")
    if begins:
        wanted = [Version(1, 3, False, "a"), Version(3, None, True, "c")]
        assert ordered(versions(tables)[1]) == wanted and len(versions(tables)[2]) == 1
    else:
        assert plain(stored(tables)) == [(1, 3, "c"), (2, 1, "x")]


def dies_at(patch: pytest.MonkeyPatch, delta: bool, step: str, died: type[BaseException]) -> None:
    """Dies at the first or second time that a folder is exchanged, or that files are made durable
    after a commit."""
    module: Any = delta_tables if delta else parquet_tables
    calls = iter(range(9))
    if delta:
        name = "sync_file_system"  # after a commit; before the turn: its commit is not made
        if step == "before the turn":
            name = "turned"
        last = 1 if step == "after the load" else 0
    else:
        name = "replace_folder"
        last = {"before the turn": 0, "after the turn": 1, "after the load": 9}[step]
        if step == "after the load":
            name, last = "sync_file_system", 2
    real = getattr(module, name)

    def counted(*given: Any, **more: Any) -> Any:
        if next(calls) >= last:
            raise died
        return real(*given, **more)

    patch.setattr(module, name, counted)


# -- cursors that become wider


@pytest.mark.spark
@pytest.mark.dear
@pytest.mark.parametrize(
    ("tables", "was", "now", "first", "second"),
    [
        ("parquet", "integer", "number", 1, 2.5),
        ("delta", "integer", (20, 2), 1, "2.50"),
    ],
    indirect=["tables"],
)
def test_versions_keep_their_ends_where_the_cursor_becomes_wider(
    tables: Any, loads: Any, spark: Any, was: Any, now: Any, first: Any, second: Any
) -> None:
    from decimal import Decimal

    second = Decimal(second) if isinstance(second, str) else second

    def load(number: int, kind: Any, cursor: Any, value: str) -> Any:
        rows = [{"id": 1, "at": cursor, "v": value}]
        one = loads.load(number, rows, {**COLUMNS, "at": kind}, mode="append_dedup", cursor=("at",))
        return numbered(one)

    commit(tables, load(1, was, first, "a"))
    put(spark, tables, load(2, now, second, "b"))
    found = ordered(versions(tables)[1])
    assert sorted(map(tuple, found), key=lambda v: v[3]) == [
        (first, second, False, "a"),
        (second, None, True, "b"),
    ]
    # a source that says again what it said before goes on
    put(spark, tables, load(3, now, second, "c"))
    assert [v.value for v in versions(tables)[1] if v.current] == ["c"]


def test_a_cursor_that_the_column_cannot_become_names_the_way_out(tables: Any, loads: Any) -> None:
    def load(number: int, kind: str, cursor: Any) -> Any:
        rows = [{"id": 1, "at": cursor, "v": "a"}]
        one = loads.load(number, rows, {**COLUMNS, "at": kind}, mode="append_dedup", cursor=("at",))
        return numbered(one)

    commit(tables, load(1, "integer", 1))
    (error,) = tables.commit(NO_SPARK, LOCAL, [load(2, "string", "x")])
    assert "of type integer, and the stream's is of type string" in str(error)
    assert "`types:`" in error.hint and "--recreate" in error.hint


# -- made anew


@pytest.mark.spark
@pytest.mark.dear
def test_a_history_made_anew_has_no_partitions(loads: Any, spark: Any, tmp_path: Path) -> None:
    lake = DeltaTables(str(tmp_path / "lake"))
    folder = lake.location(T)
    frame = spark.createDataFrame([(1, "a")], "id BIGINT, v STRING")
    frame.write.format("delta").partitionBy("v").save(folder)
    first = numbered(deduped(loads, 1, [Row(1, 1, "a")]), replaces=True, refreshes=True)
    put(spark, lake, first)
    commit(lake, numbered(deduped(loads, 2, [Row(1, 2, "b")])))  # by tasks
    assert len(versions(lake)[1]) == 2


@pytest.mark.spark
@pytest.mark.dear
def test_a_table_with_settings_is_not_made_a_history(
    loads: Any, spark: Any, tmp_path: Path
) -> None:
    lake = DeltaTables(str(tmp_path / "lake"))
    folder = lake.location(T)
    spark.createDataFrame([(1, "a")], "id BIGINT, v STRING").write.format("delta").option(
        "delta.enableChangeDataFeed", "true"
    ).save(folder)
    first = numbered(deduped(loads, 1, [Row(1, 1, "a")]), replaces=True, refreshes=True)
    (error,) = lake.commit(spark, LOCAL, [first])
    assert error.code == "destination.history" and "settings that only Spark can write" in str(
        error
    )
