"""append_dedup, a full refresh and appends of small parts into a Parquet table without Spark: the
same rows as Spark makes of the same loads, one exchange of folders each, repeated exactly (L2, L3,
L6); and left to Spark where the table or the load asks for more."""

import os
import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from merge_cases import CASES, at, dedup, numbered
from read_back import rows_of
from shaped import inodes, shaped
from tasks_here import LOCAL, by_spark

from penstock.errors import DestinationError, PenstockError
from penstock.tables import conflicts
from penstock.tables.contract import LoadResult, TableName
from penstock.tables.files import merged_files, old_files
from penstock.tables.files.merge_job import NeedsSpark
from penstock.tables.load_columns import load_fields
from penstock.tables.parquet import merge as parquet_merge
from penstock.tables.parquet import tables as parquet
from penstock.tables.parquet.tables import ParquetTables

T = TableName(None, "t")
NO_SPARK: Any = None  # a load that reads or writes a row by Spark fails with it


class Died(BaseException):
    """What a killed process does: nothing after it runs."""


def dies(*_: Any, **__: Any) -> None:
    raise Died


@pytest.fixture
def tables(tmp_path: Path) -> ParquetTables:
    return ParquetTables(str(tmp_path / "lake [1] +% é"))


def put(tables: ParquetTables, load: Any, spark: Any = NO_SPARK) -> LoadResult:
    outcome = tables.commit(spark, LOCAL, [load])[0]
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


def files(tables: ParquetTables) -> list[Path]:
    return sorted(Path(tables.location(T)).glob("*.parquet"))


def rows(tables: ParquetTables, *columns: str) -> list[Any]:
    return sorted(rows_of(tables, *columns), key=repr)


def leave_to_spark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(parquet._Wave, "_merged", lambda *_: None)


# -- as Spark does it


@pytest.mark.spark
@pytest.mark.parametrize("case", CASES)
def test_a_merge_without_spark_makes_the_rows_that_spark_makes(
    tmp_path: Path, spark: Any, loads: Any, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    columns, row, how = CASES[case]
    chance = random.Random(case)
    ours, theirs = ParquetTables(str(tmp_path / "arrow")), ParquetTables(str(tmp_path / "spark"))
    first_by_spark = case in ("cursor", "no cursor")  # then the merge reads Spark's files
    for number in (1, 2):
        parts = [[row(chance) for _ in range(25)] for _ in range(2)]
        load = dedup(loads, number, parts, columns, **how)
        with monkeypatch.context() as patch:
            leave_to_spark(patch)
            expected = put(theirs, load, spark)
            if number == 1 and first_by_spark:
                put(ours, load, spark)
        if number > 1 or not first_by_spark:
            done = put(ours, load, spark)
            ranked_by_table = case == "times as text" and number == 2  # deletes without a cursor
            assert (by_spark(done, "ranked by") if ranked_by_table else done) == expected
        found, wanted = (spark.read.parquet(t.location(T)) for t in (ours, theirs))
        assert found.dtypes == wanted.dtypes
        assert [f.metadata for f in found.schema] == [f.metadata for f in wanted.schema]
        made, right = (sorted(map(repr, rows_of(t))) for t in (ours, theirs))
        assert made == right
        assert right, "nothing was compared"


@pytest.mark.spark
def test_a_late_delete_without_a_cursor_is_ranked_as_spark_ranks_it(
    tmp_path: Path, spark: Any, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's row gives the delete its cursor, which is older than the load's other row."""
    columns = {"id": "integer", "c": "integer", "gone": "timestamp"}
    how: Any = {"cursor": ("c",), "deleted": "gone"}
    first = dedup(loads, 1, [{"id": 1, "c": 5, "@at": at(3)}], columns, **how)
    both = [{"id": 1, "c": 1, "@at": at(10)}, {"id": 1, "gone": at(1), "@at": at(5)}]
    second = dedup(loads, 2, both, columns, **how)
    found = []
    for name in ("arrow", "spark"):
        tables = ParquetTables(str(tmp_path / name))
        with monkeypatch.context() as patch:
            if name == "spark":
                leave_to_spark(patch)
            found.append([put(tables, load, spark) for load in (first, second)])
        assert rows(tables, "id") == []
    assert found[1] == [LoadResult(1), LoadResult(1, superseded=1)]
    assert [found[0][0], by_spark(found[0][1], "ranked by")] == found[1]


# -- one exchange, repeated


def test_a_merge_writes_only_the_files_of_its_keys_anew_L2_L3(
    tables: ParquetTables, loads: Any
) -> None:
    low = [{"id": i, "v": "old"} for i in range(10)]
    high = [{"id": i, "v": "old"} for i in range(100, 110)]
    put(tables, dedup(loads, 1, low))
    untouched = inodes(files(tables))
    put(tables, dedup(loads, 2, high))
    assert untouched < inodes(files(tables))
    load = dedup(loads, 3, [{"id": 105, "v": "new"}, {"id": 200, "v": "new"}])
    assert put(tables, load) == LoadResult(2)
    assert put(tables, load) == LoadResult(0, repeated=True)
    assert untouched < inodes(files(tables)) and len(files(tables)) == 2
    assert rows(tables, "id", "v") == sorted(
        [(i, "old") for i in (*range(10), *range(100, 110)) if i != 105]
        + [(105, "new"), (200, "new")],
        key=repr,
    )
    umask = os.umask(0)
    os.umask(umask)
    assert all(f.stat().st_mode & 0o777 == 0o666 & ~umask for f in files(tables))
    assert not list(Path(tables.location(T)).parent.glob(".penstock/*.staging"))


@pytest.mark.parametrize(
    "step", ["half_written", "link", "name_rewritten", "draft_marker", "replace_folder", "put"]
)
@pytest.mark.parametrize("number", [1, 2])
def test_a_merge_that_died_between_its_steps_is_repeated_exactly_L3_L6(
    tables: ParquetTables, loads: Any, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    before = []
    if number == 2:
        put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}, {"id": 2, "v": "old"}]))
        if step == "link":
            put(tables, dedup(loads, 1, [{"id": 9, "v": "old"}], key="other"))
            before = [(9, "old")]
    elif step == "link":
        return  # a first load links nothing
    content = rows(tables, "id", "v") if number == 2 else None
    load = dedup(loads, number, [{"id": 2, "v": "new"}, {"id": 3, "v": "new"}])
    with monkeypatch.context() as patch:
        if step == "half_written":
            patch.setattr(merged_files._Output, "discard", lambda _: None)
            patch.setattr(merged_files, "sync_file", dies)
        elif step == "link":
            patch.setattr(os, "link", dies)
        elif step == "put":
            real = parquet.replace_folder
            patch.setattr(parquet, "replace_folder", lambda *given: (real(*given), dies()))
        else:
            patch.setattr(parquet, step, dies)
        with pytest.raises(Died):
            put(tables, load)
    if step != "put":
        assert (rows(tables, "id", "v") if number == 2 else None) == content
    repeated = LoadResult(0, repeated=True) if step == "put" else LoadResult(2)
    assert put(tables, load) == repeated
    before += [(1, "old")] if number == 2 else []
    assert rows(tables, "id", "v") == sorted([*before, (2, "new"), (3, "new")], key=repr)


def test_a_merge_beside_another_writer_is_a_conflict_not_a_loss(
    tables: ParquetTables, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}]))
    fill, others = parquet.fill, [dedup(loads, 1, [{"id": 2, "v": "theirs"}], key="other")]

    def disturbed(*given: Any) -> Any:
        written = fill(*given)
        if others:
            put(ParquetTables(str(Path(tables.location(T)).parent)), others.pop())
        return written

    monkeypatch.setattr(parquet, "fill", disturbed)
    mine = dedup(loads, 2, [{"id": 1, "v": "new"}])
    with monkeypatch.context() as patch, pytest.raises(DestinationError) as caught:
        patch.setattr(conflicts, "CONFLICT_TRIES", 1)
        put(tables, mine)
    assert caught.value.code == "destination.conflict"
    assert rows(tables, "id", "v") == [(1, "old"), (2, "theirs")]
    others.append(dedup(loads, 2, [{"id": 3, "v": "theirs"}], key="other"))
    assert put(tables, mine).notes == ("another writer changed table t: committed at try 2",)
    assert rows(tables, "id", "v") == [(1, "new"), (2, "theirs"), (3, "theirs")]


@pytest.mark.parametrize("name", ["theirs.parquet", "day=1/theirs.parquet", "_delta_log/0.json"])
def test_what_another_program_put_into_the_folder_does_not_go_with_it_L8(
    tables: ParquetTables, loads: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}]))
    theirs = Path(tables.location(T), name)
    theirs.parent.mkdir(exist_ok=True)
    Path(tables.location(T), "_SUCCESS").touch()  # which nobody misses
    real = parquet.fill

    def meanwhile(*given: Any) -> Any:
        theirs.write_bytes(b"rows")
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(parquet, "fill", meanwhile)
        for mine in (
            dedup(loads, 2, [{"id": 1, "v": "new"}]),
            numbered(loads.load(2, [], mode="overwrite", replaces=True), 1),
        ):
            outcome = tables.commit(NO_SPARK, LOCAL, [mine])[0]
            assert isinstance(outcome, DestinationError)
            assert outcome.code == "destination.not_ours" and name.split("/")[0] in outcome.message
            assert theirs.read_bytes() == b"rows"
    theirs.unlink()
    if theirs.parent.name != "t":
        theirs.parent.rmdir()
    assert put(tables, dedup(loads, 2, [{"id": 1, "v": "new"}])) == LoadResult(1)
    assert rows(tables, "id", "v") == [(1, "new")]


def test_a_load_that_only_deletes_leaves_a_table_with_its_columns(
    tables: ParquetTables, loads: Any
) -> None:
    columns = {"id": "integer", "gone": "timestamp"}
    gone = [{"id": 1, "gone": at(1)}]
    assert put(tables, dedup(loads, 1, gone, columns, deleted="gone")) == LoadResult(0)
    there = [{"id": 1, "gone": None}]
    assert put(tables, dedup(loads, 2, there, columns, deleted="gone")) == LoadResult(1)
    assert put(tables, dedup(loads, 3, gone, columns, deleted="gone")) == LoadResult(1)
    (empty,) = files(tables)
    found = pq.read_schema(empty)
    assert found.names[:2] == ["id", "gone"] and rows(tables, "id") == []
    assert b"org.apache.spark.version" in pq.read_metadata(empty).metadata


def test_many_small_files_are_written_together(
    tables: ParquetTables, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_files, "MOST_SMALL_FILES", 3)
    counts: list[int] = []
    for number in range(1, 9):
        put(tables, dedup(loads, number, [{"id": number, "v": "x"}]))
        counts.append(len(files(tables)))
    assert counts == [1, 2, 3, 4, 1, 2, 3, 4]
    assert rows(tables, "id") == [(n,) for n in range(1, 9)]


# -- rows that replace a table, appends of small parts


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_many_small_parts_become_one_file_L2_L3(
    tables: ParquetTables, loads: Any, mode: str
) -> None:
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
    assert len(files(tables)) == len(kept)


def test_a_refresh_without_rows_leaves_a_table_with_its_columns_L6(
    tables: ParquetTables, loads: Any
) -> None:
    put(tables, numbered(shaped(loads.load(1, [{"id": 1}], mode="overwrite", replaces=True)), 0))
    empty = numbered(loads.load(2, [], mode="overwrite", replaces=True), 1)
    assert put(tables, empty) == LoadResult(0)
    assert put(tables, empty) == LoadResult(0, repeated=True)
    assert rows(tables, "id", "v", "_raw_id") == [] and len(files(tables)) == 1


def test_a_merge_that_replaces_the_table_keeps_one_row_per_key(
    tables: ParquetTables, loads: Any
) -> None:
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}, {"id": 2, "v": "old"}]))
    again = dedup(loads, 2, [{"id": 2, "v": "a"}, {"id": 2, "v": "b"}], replaces=True)
    assert put(tables, again) == LoadResult(1, superseded=1)
    assert rows(tables, "id", "v") == [(2, "b")]


# -- what is left to Spark


def filled(tables: ParquetTables, load: Any, tmp_path: Path) -> int | None:
    """What a merge of ``load`` writes without Spark; None: Spark has to."""
    folder, staged, staging = Path(tables.location(T)), tmp_path / "staged", tmp_path / "staging"
    staged.mkdir()
    staging.mkdir()
    columns, marker = [f.name for f in load_fields(load)], parquet.read_marker(folder)
    try:
        job = parquet_merge.rewrite_job(load, marker, folder, columns, staging, "stem-")
        return parquet_merge.fill(job, merged_files.merged(job), staged)
    except NeedsSpark:
        assert not list(staged.iterdir())
        return None


@pytest.mark.parametrize("what", ["appended", "another key", "soft before", "link", "new column"])
def test_tables_that_ask_for_more_are_left_to_spark(
    tables: ParquetTables, loads: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    columns = {"id": "integer", "v": "string", "gone": "timestamp"}
    how: Any = {"deleted": "gone"}
    seed = [{"id": 1, "v": "a"}, {"id": 2, "v": "b", "gone": at(1)}]
    first = dedup(loads, 1, seed, columns, deletes="soft", **how)
    if what == "appended":
        first = numbered(shaped(loads.load(1, [{"id": 1}, {"id": 1}], columns)), 0)
    elif what == "another key":
        first = dedup(loads, 1, seed[:1], columns, primary_key=(("v",),), **how)
    elif what in ("link", "new column"):
        first = dedup(loads, 1, seed[:1], columns, **how)
    put(tables, first)
    if what == "link":

        def refused(*_: Any, **__: Any) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refused)
    load = dedup(loads, 2, [{"id": 3, "v": "c"}], columns, **how)
    if what == "new column":
        wider = dedup(loads, 2, [{"id": 3, "w": 1}], {**columns, "w": "integer"}, **how)
        with pytest.raises(PenstockError):
            put(tables, wider)  # without a session
    else:
        assert filled(tables, load, tmp_path) is None


def test_a_table_that_was_appended_to_has_one_row_a_key_only_once_a_merge_saw_to_it(
    tables: ParquetTables, loads: Any
) -> None:
    put(tables, dedup(loads, 1, [{"id": 1, "v": "a"}]))
    marker = parquet.read_marker(Path(tables.location(T)))
    assert marker is not None and marker.keyed == (("id",),)
    put(tables, numbered(shaped(loads.load(1, [{"id": 1}], key="other")), 0))
    marker = parquet.read_marker(Path(tables.location(T)))
    assert marker is not None and marker.keyed == ()
    assert len(rows(tables, "id")) == 2


def test_a_marker_of_an_earlier_version_says_nothing_of_keys(tables: ParquetTables) -> None:
    folder = Path(tables.location(T))
    folder.mkdir(parents=True)
    (folder / "_penstock.json").write_bytes(b'{"columns":[],"applied":{"a":1},"version":1}')
    marker = parquet.read_marker(folder)
    assert marker is not None and marker.keyed == () and "keyed" in msgspec.to_builtins(marker)
