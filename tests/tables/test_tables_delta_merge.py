"""append_dedup and overwrite into a plain local Delta table by file actions: the same rows as Spark
makes of the same loads, one commit each, repeated exactly (L2, L3); and left to Spark where Arrow
and DuckDB might compare otherwise."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from merge_cases import CASES, at, dedup, numbered
from read_back import arrow_table, rows_of
from shaped import shaped
from tasks_here import LOCAL, by_spark

from penstock.errors import PenstockError
from penstock.tables.contract import LoadResult, TableName
from penstock.tables.delta import files as delta_files
from penstock.tables.delta import tables as delta
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.files import direct_parts, merged_files, newest_rows
from penstock.tables.files.merge_job import NeedsSpark

T = TableName(None, "t")
NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))  # settings, and no row by Spark


class Died(BaseException):
    """What a killed process does: nothing after it runs."""


def dies(*_: Any, **__: Any) -> None:
    raise Died


@pytest.fixture
def tables(tmp_path: Path) -> DeltaTables:
    return DeltaTables(str(tmp_path / "lake [1] +% é"))


def put(tables: DeltaTables, load: Any, spark: Any = NO_SPARK) -> LoadResult:
    outcome = tables.commit(spark, LOCAL, [load])[0]
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


def rows(tables: DeltaTables, *columns: str) -> list[Any]:
    return sorted(rows_of(tables, *columns), key=repr)


def log(tables: DeltaTables, version: int) -> list[dict[str, Any]]:
    path = Path(tables.location(T), "_delta_log", f"{version:020d}.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


def live(tables: DeltaTables) -> set[str]:
    return {Path(f).name for f in DeltaTable(tables.location(T)).file_uris()}


# -- as Spark does it


@pytest.mark.spark
@pytest.mark.parametrize("case", ["cursor", "soft", "arrival", "times as text"])
def test_a_merge_by_file_actions_makes_the_rows_that_spark_makes(
    tmp_path: Path, spark: Any, loads: Any, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """The other cases differ in how rows are compared, which is the same for Parquet
    (``test_tables_parquet_merge``)."""
    columns, row, how = CASES[case]
    chance = random.Random(case)
    ours, theirs = DeltaTables(str(tmp_path / "files")), DeltaTables(str(tmp_path / "spark"))
    first_by_spark = case == "cursor"  # then the merge reads Spark's files
    for number in (1, 2):
        parts = [[row(chance) for _ in range(25)] for _ in range(2)]
        load = dedup(loads, number, parts, columns, **how)
        with monkeypatch.context() as patch:
            patch.setattr(delta, "table_for", lambda *_: None)
            expected = put(theirs, load, spark)
            if number == 1 and first_by_spark:
                put(ours, load, spark)
        if number > 1 or not first_by_spark:
            ranked_by_table = case == "times as text" and number == 2  # deletes without a cursor
            done = put(ours, load, spark if ranked_by_table else NO_SPARK)
            assert (by_spark(done, "ranked by") if ranked_by_table else done) == expected
        shown = arrow_table(ours).column_names
        found, wanted = (sorted(map(repr, rows_of(t, *shown))) for t in (ours, theirs))
        assert found == wanted
        assert found, "nothing was compared"


# -- one commit, repeated


def test_a_merge_is_one_commit_that_replaces_the_files_of_its_keys_only_L2_L3(
    tables: DeltaTables, loads: Any
) -> None:
    low = [{"id": i, "v": "old"} for i in range(10)]
    high = [{"id": i, "v": "old"} for i in range(100, 110)]
    put(tables, dedup(loads, 1, low))
    untouched = live(tables)
    put(tables, dedup(loads, 2, high))
    replaced = live(tables) - untouched
    load = dedup(loads, 3, [{"id": 105, "v": "new"}, {"id": 200, "v": "new"}])
    assert put(tables, load) == LoadResult(2)
    assert put(tables, load) == LoadResult(0, repeated=True)
    assert untouched < live(tables) and not replaced & live(tables)
    commit = log(tables, 2)
    assert {a["remove"]["path"] for a in commit if "remove" in a} == replaced
    assert all(a[kind]["dataChange"] for a in commit for kind in ("add", "remove") if kind in a)
    txn = next(a["txn"] for a in commit if "txn" in a)
    assert (txn["appId"], txn["version"]) == (load.load.key, 3)
    info = commit[0]["commitInfo"]
    assert json.loads(info["userMetadata"])["number"] == 3 and info["isBlindAppend"] is False
    assert rows(tables, "id", "v") == sorted(
        [(i, "old") for i in (*range(10), *range(100, 110)) if i != 105]
        + [(105, "new"), (200, "new")],
        key=repr,
    )


@pytest.mark.parametrize("step", ["half_written", "written", "committed"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_merge_that_died_between_its_steps_is_repeated_exactly_L3(
    tables: DeltaTables, loads: Any, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    if number == 2:
        put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}, {"id": 2, "v": "old"}]))
    load = dedup(loads, number, [{"id": 2, "v": "new"}, {"id": 3, "v": "new"}])
    with monkeypatch.context() as patch:
        if step == "half_written":
            patch.setattr(merged_files._Output, "discard", lambda _: None)
            patch.setattr(merged_files, "sync_file", dies)
        elif step == "written":
            patch.setattr(delta_files.DeltaFiles, "commit", dies)
        else:
            patch.setattr(delta, "sync_file_system", dies)
        with pytest.raises(Died):
            put(tables, load)
    repeated = LoadResult(0, repeated=True) if step == "committed" else LoadResult(2)
    assert put(tables, load) == repeated
    before = [(1, "old")] if number == 2 else []
    assert rows(tables, "id", "v") == [*before, (2, "new"), (3, "new")]


def test_a_merge_beside_another_writer_reads_the_table_again(
    tables: DeltaTables, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}]))
    merged, others = merged_files.merged, [{"id": 2, "v": "theirs", "@at": at(0)}]

    def disturbed(job: Any) -> Any:
        found = merged(job)
        if others:
            other = loads.load(1, [others.pop()], key="other", mode="append_dedup")
            put(DeltaTables(str(Path(tables.location(T)).parent)), other)
        return found

    monkeypatch.setattr(merged_files, "merged", disturbed)
    done = put(tables, dedup(loads, 2, [{"id": 1, "v": "new"}, {"id": 2, "v": "ours"}]))
    assert done.written == 2 and "another writer" in done.notes[0]
    assert rows(tables, "id", "v") == [(1, "new"), (2, "ours")]


def test_a_merge_that_fails_leaves_no_file(
    tables: DeltaTables, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}]))
    before = {f.name for f in Path(tables.location(T)).iterdir()}

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(merged_files, "sync_file", full)
    with pytest.raises(PenstockError, match="is full"):
        put(tables, dedup(loads, 2, [{"id": 1, "v": "new"}]))
    assert {f.name for f in Path(tables.location(T)).iterdir()} == before


def test_new_files_are_cut_at_their_greatest_size(
    tables: DeltaTables, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tables, dedup(loads, 1, [{"id": i, "v": "old"} for i in range(50)]))
    monkeypatch.setattr(merged_files, "_BATCH_ROWS", 7)
    monkeypatch.setattr(merged_files, "GROUP_BYTES", 100)
    monkeypatch.setattr(merged_files, "FILE_BYTES", 1)
    put(tables, dedup(loads, 2, [{"id": i, "v": "new"} for i in range(40, 60)]))
    assert len(live(tables)) > 3
    assert rows(tables, "id", "v") == sorted(
        [(i, "old" if i < 40 else "new") for i in range(60)], key=repr
    )
    for name in live(tables):
        file = Path(tables.location(T), name)
        assert b"org.apache.spark.version" in pq.read_metadata(file).metadata


def test_a_load_that_only_deletes_leaves_an_empty_table(tables: DeltaTables, loads: Any) -> None:
    columns = {"id": "integer", "gone": "timestamp"}
    gone = [{"id": 1, "gone": at(1)}]
    assert put(tables, dedup(loads, 1, gone, columns, deleted="gone")) == LoadResult(0)
    assert rows(tables, "id") == []
    there = [{"id": 1, "gone": None}]
    assert put(tables, dedup(loads, 2, there, columns, deleted="gone")) == LoadResult(1)
    assert put(tables, dedup(loads, 3, gone, columns, deleted="gone")) == LoadResult(1)
    assert rows(tables, "id") == [] and DeltaTable(tables.location(T)).version() == 2


# -- rows that replace a table


def test_an_overwrite_is_one_commit_of_its_parts_L2_L3(
    tables: DeltaTables, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_parts, "SMALL_BYTES", 0)
    for number, ids in ((1, [1, 2]), (2, [3])):
        groups = [[{"id": i}] for i in ids]
        load = loads.load(number, groups, mode="overwrite", replaces=True)
        assert put(tables, numbered(shaped(load), number - 1)) == LoadResult(len(ids))
    assert rows(tables, "id") == [(3,)]
    removed = [a["remove"]["path"] for a in log(tables, 1) if "remove" in a]
    assert len(removed) == 2 and log(tables, 1)[0]["commitInfo"]["isBlindAppend"] is False


def test_a_merge_that_replaces_the_table_keeps_one_row_per_key(
    tables: DeltaTables, loads: Any
) -> None:
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}, {"id": 2, "v": "old"}]))
    again = dedup(loads, 2, [{"id": 2, "v": "a"}, {"id": 2, "v": "b"}], replaces=True)
    assert put(tables, again) == LoadResult(1, superseded=1)
    assert rows(tables, "id", "v") == [(2, "b")]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_many_small_parts_become_one_file_L2_L3(tables: DeltaTables, loads: Any, mode: str) -> None:
    columns = {"id": "integer", "l": [{"x": "integer", "y": ["string"]}], "t": "timestamp"}
    for number in (1, 2):
        groups = [[{"id": 10 * number + i, "l": [None, {"x": i, "y": ["é"]}], "t": at(i)}]
                  for i in range(3)]  # fmt: skip
        load = loads.load(number, groups, columns, mode=mode, replaces=mode == "overwrite")
        load = numbered(shaped(load), number - 1)
        assert put(tables, load) == LoadResult(3)
        assert put(tables, load) == LoadResult(0, repeated=True)
    kept = (1, 2) if mode == "append" else (2,)
    assert rows(tables, "id", "l", "t") == sorted(
        [(10 * n + i, [None, {"x": i, "y": ["é"]}], at(i)) for n in kept for i in range(3)],
        key=repr,
    )
    assert len(live(tables)) == len(kept)


# -- what is left to Spark


def staged(tables: DeltaTables, load: Any) -> Any:
    """What a task makes of the load; None: it is left to Spark."""
    table = delta_files.table_for(Path(tables.location(T)), load, True)
    try:
        return table and merged_files.merged(table.job("stem-"))
    except NeedsSpark:
        return None


@pytest.mark.parametrize(
    ("columns", "row", "how"),
    [
        ({"id": "number"}, {"id": 1.5}, {}),
        ({"id": {"x": "integer"}}, {"id": {"x": 1}}, {"primary_key": (("id", "x"),)}),
        ({"id": "integer", "c": {"x": "integer"}}, {"id": 1, "c": {"x": 1}},
         {"cursor": ("c", "x")}),
    ],
    ids=str,
)  # fmt: skip
def test_what_might_be_compared_otherwise_is_left_to_spark(
    tables: DeltaTables, loads: Any, columns: Any, row: Any, how: Any
) -> None:
    load = dedup(loads, 1, [row], columns, **how)
    assert staged(tables, load) is None
    assert not list(Path(tables.location(T)).glob("*.parquet"))


def test_of_two_forms_of_a_cursor_the_later_row_wins(tables: DeltaTables, loads: Any) -> None:
    columns, how = {"id": "integer", "c": "string"}, {"cursor": ("c",)}
    first = [[{"id": 1, "c": "2024-05-01T10:00:00Z"}], [{"id": 1, "c": "1e5"}]]
    done = put(tables, dedup(loads, 1, first, columns, **how))
    assert (done.written, done.superseded) == (1, 1) and "two forms" in done.notes[0]
    later = [{"id": 1, "c": " 7"}, {"id": 1, "c": "x"}, {"id": 1, "c": "5"}]
    assert put(tables, dedup(loads, 2, later, columns, **how)).superseded == 2
    assert rows(tables, "id", "c") == [(1, "5")]


@pytest.mark.parametrize("text", ["7", "2024-01-01"])
def test_a_load_without_any_cursor_meets_a_table_whose_cursors_are_text(
    tables: DeltaTables, loads: Any, text: str
) -> None:
    columns = {"id": "integer", "c": "string", "gone": "timestamp"}
    how = {"cursor": ("c",), "deleted": "gone"}
    put(tables, dedup(loads, 1, [{"id": i, "c": text} for i in (1, 2)], columns, **how))
    without = [{"id": 1, "c": None, "gone": at(99)}, {"id": 2, "c": " "}, {"id": 3, "c": None}]
    assert put(tables, dedup(loads, 2, without, columns, **how)).written == 3
    assert rows(tables, "id", "c") == [(2, " "), (3, None)]


def test_a_table_with_two_rows_of_a_key_is_left_to_spark(tmp_path: Path, loads: Any) -> None:
    tables = DeltaTables(str(tmp_path / "lake"))
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}, {"id": 2, "v": "old"}]))
    place = tables.location(T)
    write_deltalake(place, DeltaTable(place).to_pyarrow_table(), mode="append")
    assert staged(tables, dedup(loads, 2, [{"id": 1, "v": "new"}])) is None
    assert staged(tables, dedup(loads, 2, [{"id": 3, "v": "new"}])) is not None


def test_a_table_that_only_grows_is_left_to_spark(tables: DeltaTables, loads: Any) -> None:
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}]))
    DeltaTable(tables.location(T)).alter.set_table_properties({"delta.appendOnly": "true"})
    assert staged(tables, dedup(loads, 2, [{"id": 1, "v": "new"}])) is None


def test_a_load_whose_keys_do_not_fit_the_memory_is_left_to_spark(
    tables: DeltaTables, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_rows, "MEMORY", "1MB")
    load = dedup(loads, 1, [{"id": f"{i:0999}"} for i in range(9000)], {"id": "string"})
    assert staged(tables, load) is None


def test_files_of_an_old_calendar_are_left_to_spark(tables: DeltaTables, loads: Any) -> None:
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}]))
    (name,) = live(tables)
    file = Path(tables.location(T), name)
    old = pq.read_table(file)
    keys = {**(old.schema.metadata or {}), b"org.apache.spark.legacyDateTime": b""}
    pq.write_table(old.replace_schema_metadata(keys), file)
    assert staged(tables, dedup(loads, 2, [{"id": 1, "v": "new"}])) is None


def test_texts_as_another_writer_leaves_them_are_compared_and_kept(
    tmp_path: Path, loads: Any
) -> None:
    tables = DeltaTables(str(tmp_path / "lake"))
    columns, how = {"id": "string", "c": "string", "b": "binary"}, {"cursor": ("c",)}

    def row(key: str, day: int) -> dict[str, Any]:
        return {"id": key, "c": f"2024-01-{day:02d}T00:00", "b": b"%d" % day}

    first = [row("a", 2), row("é", 2), row("gone", 2)]
    put(tables, dedup(loads, 1, first, columns, **how))
    DeltaTable(tables.location(T)).delete("id = 'gone'")
    (name,) = live(tables)
    found = pq.read_schema(Path(tables.location(T), name))
    assert {str(found.field(c).type) for c in columns} == {"string_view", "binary_view"}
    load = dedup(loads, 2, [row("a", 3), row("é", 1), row("d", 1)], columns, **how)
    assert put(tables, load) == LoadResult(2, superseded=1)
    assert rows(tables, *columns) == [
        ("a", "2024-01-03T00:00", b"3"),
        ("d", "2024-01-01T00:00", b"1"),
        ("é", "2024-01-02T00:00", b"2"),
    ]


def test_a_key_named_as_a_field_of_an_object_is_not_looked_for_by_the_field_s_bounds_L3(
    tables: DeltaTables, loads: Any
) -> None:
    """Other programs' statistics tell the bounds of fields too."""
    columns = {"a.b": "integer", "a": {"b": "integer"}, "v": "string"}
    how = {"primary_key": (("a.b",),)}
    for number, key in enumerate((5, 6), start=1):
        row = {"a.b": key, "a": {"b": 100}, "v": "old"}
        put(tables, dedup(loads, number, [row], columns, **how))
    DeltaTable(tables.location(T)).optimize.compact()
    put(tables, dedup(loads, 3, [{"a.b": 5, "a": {"b": 100}, "v": "new"}], columns, **how))
    assert [v for (v,) in rows(tables, "v")] == ["new", "old"]
