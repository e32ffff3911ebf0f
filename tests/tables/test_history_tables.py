"""A table keeps every version of a key (``tables.history``): the versions of random histories are
those of the oracle, however rows are grouped into loads, in both formats."""

import datetime as dt
import os
import random
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import msgspec
import pytest
from deltalake import DeltaTable
from history_oracle import Row, Version, by_arrival, by_cursor, gone
from newest_cases import TEXTS
from shaped import shaped
from tasks_here import LOCAL

from penstock.errors import PenstockError
from penstock.tables.contract import LoadResult, TableName
from penstock.tables.delta import files as delta_files
from penstock.tables.delta import tables as delta_tables
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.parquet import tables as parquet_tables
from penstock.tables.parquet.folders import read_marker
from penstock.tables.parquet.tables import ParquetTables

CASES = int(os.environ.get("HISTORY_CASES", "1000"))  # keys of each property test
T = TableName(None, "t")
NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))  # settings, and no row by Spark


@pytest.fixture(params=["delta", "parquet"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = {"delta": DeltaTables, "parquet": ParquetTables}[request.param]
    return made(str(tmp_path / "lake [1] +% é"))


def numbered(load: Any, *, history: bool = True, replaces: bool = False, **shape: Any) -> Any:
    number = load.load.number
    given = msgspec.structs.replace(load.load.disposition, history=history, **shape)
    inner = msgspec.structs.replace(
        load.load, follows=number - 1, token=f"t{number}", disposition=given, replaces=replaces
    )
    return msgspec.structs.replace(load, load=inner)


def commit(tables: Any, *loads: Any) -> list[LoadResult]:
    done = tables.commit(NO_SPARK, LOCAL, loads)
    assert all(isinstance(x, LoadResult) for x in done), done
    return done


def stored(tables: Any) -> list[dict[str, Any]]:
    folder = Path(tables.location(T))
    if isinstance(tables, DeltaTables):
        return DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    files = [str(f) for f in folder.glob("*.parquet")]
    return duckdb.read_parquet(files).to_arrow_table().to_pylist()


def versions(tables: Any) -> dict[int, list[Version]]:
    found: dict[int, list[Version]] = {}
    rows = stored(tables)
    for row in rows:
        one = Version(row["__START_AT"], row["__END_AT"], row["is_current"], row["v"])
        found.setdefault(row["id"], []).append(one)
    return found


def ordered(found: list[Version]) -> list[Version]:
    return sorted(found, key=lambda v: (str(v.start), str(v.end), v.current, str(v.value)))


COLUMNS = {"id": "integer", "at": "integer", "v": "string", "_gone": "boolean"}


def rows_of(rows: list[Row]) -> list[dict[str, Any]]:
    return [
        {"id": r.key, "at": r.cursor, "v": r.value, "_gone": True if r.gone else None} for r in rows
    ]


def test_one_key_s_life(tables: Any, loads: Any) -> None:
    def load(number: int, *rows: Row) -> LoadResult:
        one = loads.load(
            number, rows_of([*rows]), COLUMNS, mode="append_dedup", cursor=("at",), deleted="_gone"
        )
        done = commit(tables, numbered(one))[0]
        assert commit(tables, numbered(one)) == [LoadResult(0, repeated=True)]
        return done

    load(1, Row(1, 10, "a"), Row(2, 10, "x"))
    load(2, Row(1, 30, "c"))
    assert versions(tables)[1] == [Version(10, 30, False, "a"), Version(30, None, True, "c")]
    load(3, Row(1, 20, "b"))  # late
    assert ordered(versions(tables)[1]) == [
        Version(10, 20, False, "a"),
        Version(20, 30, False, "b"),
        Version(30, None, True, "c"),
    ]
    load(4, Row(1, 40, None, gone=True))
    load(5, Row(1, 50, "d"))  # reborn
    assert ordered(versions(tables)[1]) == [
        Version(10, 20, False, "a"),
        Version(20, 30, False, "b"),
        Version(30, 40, False, "c"),
        Version(50, None, True, "d"),
    ]
    assert versions(tables)[2] == [Version(10, None, True, "x")]


def history(chance: random.Random, key: int) -> list[Row]:
    cursors = [1, 2, 3, 4, 5, None] if chance.random() < 0.4 else [1, 2, 3, 4, 5]
    made: list[Row] = []
    for number in range(chance.randint(1, 7)):
        cursor = chance.choice(cursors)
        deletes = cursor is not None and chance.random() < 0.25
        value = None if deletes else f"{key}-{number}"
        made.append(Row(key, cursor, value, deletes))
    return made


@pytest.mark.dear
@pytest.mark.parametrize("seed", range(3))
def test_versions_are_the_oracle_s_in_any_grouping(tables: Any, loads: Any, seed: int) -> None:
    chance = random.Random(seed)
    lives = {key: history(chance, key) for key in range(CASES // 3)}
    groups: list[list[Row]] = [[] for _ in range(5)]
    for rows in lives.values():
        places = sorted(chance.randrange(5) for _ in rows)
        for place, row in zip(places, rows, strict=True):
            groups[place].append(row)
    for number, group in enumerate(groups, 1):
        one = loads.load(
            number, rows_of(group), COLUMNS, mode="append_dedup", cursor=("at",), deleted="_gone"
        )
        commit(tables, numbered(one))
    found = versions(tables)
    for key, rows in lives.items():
        wanted = by_cursor(rows)
        assert ordered(found.get(key, [])) == ordered(wanted), rows
        assert sum(v.current for v in wanted) <= 1


@pytest.mark.dear
@pytest.mark.parametrize("seed", range(2))
def test_text_cursors_of_every_form_are_the_oracle_s(tables: Any, loads: Any, seed: int) -> None:
    chance = random.Random(seed)
    lives = {
        key: [
            Row(key, cursor, f"{key}-{number}")
            for number, cursor in enumerate(chance.choices(few, k=chance.randint(1, 6)))
        ]
        for key in range(CASES // 3)
        if (few := chance.sample(TEXTS, chance.choice([2, 3, 5])))
    }
    columns = {**COLUMNS, "at": "string"}
    for number in range(3):
        group = [row for rows in lives.values() for row in rows[number * 2 : number * 2 + 2]]
        one = loads.load(number + 1, rows_of(group), columns, mode="append_dedup", cursor=("at",))
        commit(tables, numbered(one))
    found = versions(tables)
    for key, rows in lives.items():
        assert ordered(found[key]) == ordered(by_cursor(rows)), rows


def at(tick: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=tick)


def by_ticks(found: list[Version]) -> list[Version]:
    def tick(when: Any) -> Any:
        return None if when is None else int((when - at(0)).total_seconds())

    return [v._replace(start=tick(v.start), end=tick(v.end)) for v in found]


@pytest.mark.dear
@pytest.mark.parametrize("seed", range(3))
def test_where_arrival_decides_versions_are_the_oracle_s(
    tables: Any, loads: Any, seed: int
) -> None:
    chance = random.Random(seed)
    lives: dict[int, list[Row]] = {}
    for number in range(1, 6):
        group: list[Row] = []
        for key in range(CASES // 3):
            for _ in range(chance.choice([0, 0, 1, 2])):
                deletes = chance.random() < 0.25
                value = None if deletes else chance.choice("abc")
                group.append(Row(key, None, value, deletes, number * 10 + chance.randint(-15, 9)))
        chance.shuffle(group)
        for row in group:
            lives.setdefault(row.key, []).append(row)
        given = [{**r, "@at": at(row.at)} for r, row in zip(rows_of(group), group, strict=True)]
        one = loads.load(number, given, COLUMNS, mode="append_dedup", deleted="_gone", arrival=True)
        commit(tables, numbered(one))
    found = versions(tables)
    assert set(found) <= set(lives)
    for key, rows in lives.items():
        wanted = by_arrival(rows)
        assert ordered(by_ticks(found.get(key, []))) == ordered(wanted), rows


@pytest.mark.dear
@pytest.mark.parametrize("seed", range(3))
def test_a_complete_refresh_ends_what_is_gone(tables: Any, loads: Any, seed: int) -> None:
    chance = random.Random(seed)
    lives: dict[int, list[Version]] = {key: [] for key in range(CASES // 3)}
    for number in range(1, 6):
        kept = [key for key in lives if chance.random() < 0.7]
        group = [Row(k, None, chance.choice("ab"), False, number * 10 + k % 3) for k in kept]
        given = [{**r, "@at": at(row.at)} for r, row in zip(rows_of(group), group, strict=True)]
        one = loads.load(number, given, COLUMNS, mode="append_dedup", arrival=True)
        commit(tables, numbered(one, replaces=True))
        last = max(row.at for row in group)
        rows = {row.key: row for row in group}
        for key, before in lives.items():
            has = rows.get(key)
            lives[key] = by_arrival([has], before=before) if has else gone(before, last)
        current = {k: v.value for k, found in versions(tables).items() for v in found if v.current}
        assert current == {row.key: row.value for row in group}
    found = versions(tables)
    for key, wanted in lives.items():
        assert ordered(by_ticks(found.get(key, []))) == ordered(wanted)


def test_a_refresh_without_rows_ends_every_version(tables: Any, loads: Any) -> None:
    one = loads.load(1, [{"id": 1, "v": "a"}], mode="append_dedup", arrival=True)
    commit(tables, numbered(one, replaces=True))
    two = loads.load(2, [], mode="append_dedup", arrival=True)
    assert commit(tables, numbered(two, replaces=True))[0].written == 1
    (row,) = stored(tables)
    assert not row["is_current"] and row["__END_AT"] == row["__START_AT"] and row["v"] == "a"


def test_recreate_begins_the_history_again(tables: Any, loads: Any) -> None:
    def load(number: int, cursor: int, **more: Any) -> None:
        rows = [{"id": 1, "at": cursor, "v": "a"}]
        one = loads.load(number, rows, COLUMNS, mode="append_dedup", cursor=("at",))
        commit(tables, numbered(one, **more))

    load(1, 1)
    load(2, 2)
    assert len(stored(tables)) == 2
    load(3, 3, replaces=True, refreshes=True)
    assert versions(tables) == {1: [Version(3, None, True, "a")]}


def test_parts_in_their_table_s_shape_make_versions(tables: Any, loads: Any) -> None:
    for number in (1, 2):
        rows = [{"id": 1, "at": number, "v": f"{number}"}]
        one = loads.load(number, rows, COLUMNS, mode="append_dedup", cursor=("at",))
        commit(tables, numbered(shaped(one)))
    wanted = [Version(1, 2, False, "1"), Version(2, None, True, "2")]
    assert ordered(versions(tables)[1]) == wanted


def refused(tables: Any, load: Any) -> PenstockError:
    (error,) = tables.commit(NO_SPARK, LOCAL, [load])
    assert isinstance(error, PenstockError), error
    return error


def test_a_table_without_history_gets_none_and_the_other_way(tables: Any, loads: Any) -> None:
    def load(number: int, **more: Any) -> Any:
        rows = [{"id": 1, "at": number, "v": "a"}]
        one = loads.load(number, rows, COLUMNS, mode="append_dedup", cursor=("at",))
        return numbered(one, **more)

    commit(tables, load(1))
    error = refused(tables, load(2, cursor=(), arrival=True))
    assert error.code == "schema.history"
    assert "at their cursor at, and the stream's begin at their time of extraction" in str(error)
    assert len(stored(tables)) == 1


def test_a_delete_without_a_cursor_is_refused(tables: Any, loads: Any) -> None:
    rows = rows_of([Row(1, 1, "a"), Row(1, None, None, gone=True)])
    one = loads.load(1, rows, COLUMNS, mode="append_dedup", cursor=("at",), deleted="_gone")
    error = refused(tables, numbered(one))
    assert error.code == "destination.history" and "without a comparable cursor at" in str(error)


def test_times_and_texts_keep_their_types(tables: Any, loads: Any) -> None:
    for kind, one, other in (
        ("timestamp", at(1), at(2)),
        ("timestamp_ntz", dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)),
        ("date", dt.date(2024, 1, 1), dt.date(2024, 1, 2)),
        ("number", 1.5, 2.5),
        ((38, 3), Decimal("1.500"), Decimal("2.500")),
    ):
        name = TableName(None, f"of_{kind if isinstance(kind, str) else 'decimal'}")
        rows = [{"id": 1, "at": one, "v": "a"}, {"id": 1, "at": other, "v": "b"}]
        load = loads.load(
            1, rows, {**COLUMNS, "at": kind}, table=name, mode="append_dedup", cursor=("at",)
        )
        commit(tables, numbered(load))
        folder = Path(tables.location(name))
        found = duckdb.read_parquet([str(f) for f in folder.glob("*.parquet")]).to_arrow_table()
        kinds = {found.schema.field(n).type for n in ("at", "__START_AT", "__END_AT")}
        assert len(kinds) == 1
        ends = {(r["__START_AT"], r["__END_AT"]) for r in found.to_pylist()}
        assert ends == {(one, other), (other, None)}


def test_a_generation_by_cursor_ends_no_key_at_a_cursor_that_nobody_knows(
    tables: Any, loads: Any
) -> None:
    """As a Singer tap that sends ACTIVATE_VERSION for an incremental stream."""

    def load(number: int, *rows: Row) -> Any:
        one = loads.load(number, rows_of([*rows]), COLUMNS, mode="append_dedup", cursor=("at",))
        return numbered(one, replaces=True)

    commit(tables, load(1, Row(1, 1, "a"), Row(2, 1, "x")))
    commit(tables, load(2, Row(1, 3, "c"), Row(1, 2, "b"), Row(2, 1, "x")))
    wanted = [Version(1, 2, False, "a"), Version(2, 3, False, "b"), Version(3, None, True, "c")]
    assert ordered(versions(tables)[1]) == wanted
    error = refused(tables, load(3, Row(1, 4, "d")))
    assert error.code == "destination.history" and "left out keys" in str(error)
    assert ordered(versions(tables)[1]) == wanted


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_load_that_died_is_repeated_exactly_L3(
    tables: Any, loads: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class Died(BaseException):
        pass

    def dies(*_: Any, **__: Any) -> None:
        raise Died

    def load(number: int, *rows: Row) -> Any:
        one = loads.load(number, rows_of([*rows]), COLUMNS, mode="append_dedup", cursor=("at",))
        return numbered(one)

    delta = isinstance(tables, DeltaTables)
    module = delta_tables if delta else parquet_tables
    name = "sync_file_system"
    if step == "before":
        module, name = (delta_files.DeltaFiles, "commit") if delta else (module, "replace_folder")
    commit(tables, load(1, Row(1, 1, "a")))
    second = load(2, Row(1, 3, "c"), Row(1, 2, "b"))
    with monkeypatch.context() as patch:
        if step == "after" and not delta:
            calls = iter(range(9))
            patch.setattr(module, name, lambda *_: dies() if next(calls) else None)
        else:
            patch.setattr(module, name, dies)
        with pytest.raises(Died):
            tables.commit(NO_SPARK, LOCAL, [second])
    (done,) = commit(tables, second)
    assert done.repeated == (step == "after")
    assert ordered(versions(tables)[1]) == [
        Version(1, 2, False, "a"),
        Version(2, 3, False, "b"),
        Version(3, None, True, "c"),
    ]


@pytest.mark.parametrize("arrival", [False, True])
def test_l3_a_history_whose_marker_was_lost_goes_on(
    tmp_path: Path, loads: Any, arrival: bool
) -> None:
    """Its marker is rebuilt: of which key it has the versions, and what orders them."""
    tables = ParquetTables(str(tmp_path / "lake"))

    def load(number: int, *rows: Row) -> Any:
        cursor = () if arrival else ("at",)
        one = loads.load(
            number, rows_of([*rows]), COLUMNS, mode="append_dedup", cursor=cursor, arrival=arrival
        )
        return numbered(one)

    commit(tables, load(1, Row(1, 1, "a"), Row(2, 1, "x")))
    commit(tables, load(2, Row(1, 2, "b")))
    marker = Path(tables.location(T), "_penstock.json")
    before = read_marker(marker.parent)
    assert before is not None
    marker.write_bytes(b"")
    (done,) = commit(tables, load(3, Row(1, 3, "c")))
    assert "was damaged" in done.notes[0]
    after = read_marker(marker.parent)
    assert after is not None and (after.columns, after.keyed) == (before.columns, before.keyed)
    found = versions(tables)
    assert [(v.value, v.current) for v in ordered(found[1])] == [
        ("a", False), ("b", False), ("c", True),
    ]  # fmt: skip
    assert [v.value for v in found[2]] == ["x"]


def test_l3_a_history_whose_marker_was_lost_is_refused_under_another_key(
    tmp_path: Path, loads: Any
) -> None:
    tables = ParquetTables(str(tmp_path / "lake"))

    def load(number: int, key: str, *rows: Row) -> Any:
        one = loads.load(
            number, rows_of([*rows]), COLUMNS, mode="append_dedup", cursor=("at",),
            primary_key=((key,),),
        )  # fmt: skip
        return numbered(one)

    commit(tables, load(1, "id", Row(1, 1, "a"), Row(2, 1, "a")))
    Path(tables.location(T), "_penstock.json").write_bytes(b"")
    (error,) = tables.commit(NO_SPARK, LOCAL, [load(2, "v", Row(3, 2, "a"))])
    assert isinstance(error, PenstockError) and error.code == "destination.history"
    assert len(stored(tables)) == 2
