"""What a power cut leaves of a table is rebuilt together with the ledger, or refused with the ways
out (L3): damaged markers of Parquet tables, damaged commits of Delta tables."""

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from shaped import shaped
from tasks_here import LOCAL

from penstock.errors import DestinationError
from penstock.model.segments import PlannedOn
from penstock.tables import disks
from penstock.tables.contract import LoadResult, TableName
from penstock.tables.delta import repair as delta_repair
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.parquet import folders as parquet_folders
from penstock.tables.parquet import publish as parquet_publish
from penstock.tables.parquet.tables import ParquetTables

T = TableName(None, "t")
NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))
DAMAGE = {"empty": b"", "zeros": b"\0" * 300, "cut off": b'{"columns":[{"name":"i'}


class Died(BaseException):
    """What a machine without power does: nothing after it runs."""


def dies(*_: Any, **__: Any) -> None:
    raise Died


def numbered(load: Any, follows: int | None, **more: Any) -> Any:
    token = f"t{load.load.number}"
    inner = msgspec.structs.replace(load.load, follows=follows, token=token, **more)
    return msgspec.structs.replace(load, load=inner)


# -- Parquet: the marker


@pytest.fixture
def tables(tmp_path: Path) -> ParquetTables:
    return ParquetTables(str(tmp_path / "lake"))


def ids(tables: ParquetTables) -> list[int]:
    return sorted(ds.dataset(tables.location(T), format="parquet").to_table()["id"].to_pylist())


def marker_of(tables: Any) -> Path:
    return Path(tables.location(T), parquet_folders.MARKER)


def appended(tables: ParquetTables, loads: Any, *numbers: int) -> None:
    for number in numbers:
        load = numbered(shaped(loads.load(number, [{"id": number}])), number - 1)
        assert tables.commit(NO_SPARK, LOCAL, [load]) == [LoadResult(1)]


def refused(outcome: Any) -> str:
    assert isinstance(outcome, DestinationError), outcome
    assert outcome.code == "destination.marker_damaged" and "--recreate" in (outcome.hint or "")
    return str(outcome)


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("applied", ["before", "files", "marker"])
def test_l3_a_marker_that_came_back_damaged_is_rebuilt_and_the_open_load_repeated(
    tables: Any, loads: Any, monkeypatch: pytest.MonkeyPatch, content: bytes, applied: str
) -> None:
    appended(tables, loads, 1, 2)
    third = numbered(shaped(loads.load(3, [{"id": 3}, {"id": 4}])), 2)
    if applied == "files":
        with monkeypatch.context() as patch, pytest.raises(Died):
            patch.setattr(parquet_publish, "_appear", dies)
            tables.commit(NO_SPARK, LOCAL, [third])
    elif applied == "marker":
        tables.commit(NO_SPARK, LOCAL, [third])
    marker_of(tables).write_bytes(content)
    (done,) = tables.commit(NO_SPARK, LOCAL, [third])
    assert done.written == 2 and not done.repeated
    assert "marker of table t was damaged" in done.notes[0]
    assert ids(tables) == [1, 2, 3, 4]
    assert tables.commit(NO_SPARK, LOCAL, [third]) == [LoadResult(0, repeated=True)]
    fourth = numbered(shaped(loads.load(4, [{"id": 5}])), 3)
    assert tables.commit(NO_SPARK, LOCAL, [fourth]) == [LoadResult(1)]
    assert ids(tables) == [1, 2, 3, 4, 5]


def test_l3_a_new_table_whose_marker_came_back_empty_is_as_new(tables: Any, loads: Any) -> None:
    first = numbered(shaped(loads.load(1, [{"id": 1}])), 0)
    tables.commit(NO_SPARK, LOCAL, [first])
    marker_of(tables).write_bytes(b"")
    (done,) = tables.commit(NO_SPARK, LOCAL, [first])
    assert done.written == 1 and ids(tables) == [1]


@pytest.mark.parametrize("mode", ["append_dedup", "overwrite"])
def test_l3_a_rewritten_table_is_rebuilt_where_its_files_name_the_last_committed_load(
    tables: Any, loads: Any, mode: str
) -> None:
    replaces = mode == "overwrite"
    for number in (1, 2):
        load = loads.load(number, [{"id": 1}, {"id": number}], mode=mode, replaces=replaces)
        made = shaped(load) if replaces else load
        assert isinstance(
            tables.commit(NO_SPARK, LOCAL, [numbered(made, number - 1)])[0], LoadResult
        )
    marker_of(tables).write_bytes(b"")
    third = numbered(shaped(loads.load(3, [{"id": 7}])), 2)
    (done,) = tables.commit(NO_SPARK, LOCAL, [third])
    assert isinstance(done, LoadResult) and ids(tables) == sorted([1, 2, 7])


def test_l3_a_rewrite_that_the_ledger_does_not_prove_is_refused(tables: Any, loads: Any) -> None:
    """That of the open load, or one whose name an earlier version drew by lot."""
    appended(tables, loads, 1)
    second = numbered(loads.load(2, [{"id": 1}], mode="append_dedup"), 1)
    folder = Path(tables.location(T))
    whole = {p.name: p.read_bytes() for p in folder.iterdir()}
    for token in (parquet_folders.rewrite_token("birth/t", 2), "0123abcd"):
        shutil.rmtree(folder)
        folder.mkdir()
        for name, content in whole.items():
            name = f"t-{token}-00000.parquet" if name.endswith("parquet") else name
            (folder / name).write_bytes(b"" if name == parquet_folders.MARKER else content)
        before = sorted(folder.iterdir())
        assert "does not prove" in refused(tables.commit(NO_SPARK, LOCAL, [second])[0])
        assert sorted(folder.iterdir()) == before and not marker_of(tables).read_bytes()


def test_l3_what_was_rewritten_with_another_pipelines_rows_proves_nothing(
    tables: Any, loads: Any
) -> None:
    appended(tables, loads, 1)
    theirs = numbered(shaped(loads.load(1, [{"id": 9}], key="theirs/t")), 0)
    assert tables.commit(NO_SPARK, LOCAL, [theirs]) == [LoadResult(1)]
    replaced = numbered(shaped(loads.load(2, [{"id": 5}], mode="overwrite", replaces=True)), 1)
    assert tables.commit(NO_SPARK, LOCAL, [replaced])[0].written == 1
    marker_of(tables).write_bytes(b"")
    third = numbered(shaped(loads.load(3, [{"id": 6}])), 2)
    assert "does not prove" in refused(tables.commit(NO_SPARK, LOCAL, [third])[0])


@pytest.mark.parametrize("replaces", [False, True])
def test_l3_another_pipelines_files_are_never_taken_for_ones_own(
    tables: Any, loads: Any, replaces: bool
) -> None:
    appended(tables, loads, 1)
    theirs = numbered(shaped(loads.load(1, [{"id": 9}], key="theirs/t")), 0)
    tables.commit(NO_SPARK, LOCAL, [theirs])
    marker_of(tables).write_bytes(b"")
    mode = "overwrite" if replaces else "append"
    second = numbered(shaped(loads.load(2, [{"id": 2}], mode=mode, replaces=replaces)), 1)
    assert "another pipeline" in refused(tables.commit(NO_SPARK, LOCAL, [second])[0])
    assert ids(tables) == [1, 9]


def test_l3_a_ledger_that_does_not_know_the_table_proves_nothing(tables: Any, loads: Any) -> None:
    appended(tables, loads, 1, 2)
    marker_of(tables).write_bytes(b"")
    unknown = numbered(shaped(loads.load(3, [{"id": 3}])), None)
    assert "lacks the table's last load" in refused(tables.commit(NO_SPARK, LOCAL, [unknown])[0])
    ahead = numbered(shaped(loads.load(8, [{"id": 3}])), 7)  # a copied or restored home
    assert "no file in it is of load 7" in refused(tables.commit(NO_SPARK, LOCAL, [ahead])[0])


def test_l3_the_way_out_is_one_a_refresh_replaces_all_rows(tables: Any, loads: Any) -> None:
    appended(tables, loads, 1, 2)
    marker_of(tables).write_bytes(b"")
    again = numbered(shaped(loads.load(3, [{"id": 3}], mode="append", replaces=True)), None)
    (done,) = tables.commit(NO_SPARK, LOCAL, [again])
    assert done.written == 1 and ids(tables) == [3]


def test_l3_a_file_that_cannot_be_read_is_named(tables: Any, loads: Any) -> None:
    appended(tables, loads, 1, 2)
    marker_of(tables).write_bytes(b"")
    file = next(Path(tables.location(T)).glob("*-000000000001-*.parquet"))
    file.write_bytes(b"")
    third = numbered(shaped(loads.load(3, [{"id": 3}])), 2)
    assert file.name in refused(tables.commit(NO_SPARK, LOCAL, [third])[0])


def test_a_marker_of_another_program_is_not_taken_for_a_damaged_one(
    tables: Any, loads: Any
) -> None:
    appended(tables, loads, 1)
    marker_of(tables).write_bytes(b'{"theirs": true}')
    (outcome,) = tables.commit(NO_SPARK, LOCAL, [numbered(shaped(loads.load(2, [{"id": 2}])), 1)])
    assert isinstance(outcome, DestinationError) and outcome.code == "destination.not_ours"


# -- Delta: the last commit


@pytest.fixture
def delta(tmp_path: Path) -> DeltaTables:
    return DeltaTables(str(tmp_path / "lake"))


def delta_ids(tables: DeltaTables) -> list[int]:
    table = DeltaTable(tables.location(T))
    return sorted(table.to_pyarrow_table(columns=["id"])["id"].to_pylist())


def commit_file(tables: DeltaTables, version: int) -> Path:
    return Path(tables.location(T), "_delta_log", f"{version:020d}.json")


def of_last_boot(tables: DeltaTables) -> None:
    """Makes every file of the table older than this boot."""
    then = (disks.booted_at() or 0) - 3600
    for path in Path(tables.location(T)).rglob("*"):
        os.utime(path, (then, then))


def planned(loads: Any, number: int, version: int | None, boot: str = "before") -> Any:
    on = None if version is None else PlannedOn(version, boot)
    return numbered(shaped(loads.load(number, [{"id": number}])), number - 1, planned=on)


def damaged(tables: DeltaTables, version: int, how: str) -> None:
    path = commit_file(tables, version)
    actions = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    file = path.parent.parent / next(a["add"]["path"] for a in actions if "add" in a)
    if how == "empty":
        path.write_bytes(b"")
    elif how == "cut off":
        path.write_bytes(path.read_bytes()[:-60])
    elif how == "cut off after a line":
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    elif how == "data missing":
        file.unlink()
    else:
        other = file.with_name("other")  # the log has the same inode
        other.write_bytes(b"")
        other.replace(file)


@pytest.mark.parametrize(
    "how", ["empty", "cut off", "cut off after a line", "data missing", "data empty"]
)
@pytest.mark.parametrize("first", [True, False])
def test_l3_a_last_commit_lost_in_a_power_cut_is_given_up_and_its_load_repeated(
    delta: Any, loads: Any, first: bool, how: str
) -> None:
    version = 0 if first else 1
    if not first:
        assert delta.commit(NO_SPARK, LOCAL, [planned(loads, 1, -1)]) == [LoadResult(1)]
    load = planned(loads, version + 1, version - 1)
    assert delta.commit(NO_SPARK, LOCAL, [load]) == [LoadResult(1)]
    damaged(delta, version, how)
    of_last_boot(delta)
    (done,) = delta.commit(NO_SPARK, LOCAL, [load])
    assert done.written == 1 and not done.repeated and "lost in a power cut" in done.notes[0]
    assert delta_ids(delta) == [1] if first else [1, 2]
    assert delta.commit(NO_SPARK, LOCAL, [load]) == [LoadResult(0, repeated=True)]


def test_l3_a_first_commit_of_a_ledger_before_is_known_by_its_number(
    delta: Any, loads: Any
) -> None:
    load = planned(loads, 1, None)
    delta.commit(NO_SPARK, LOCAL, [load])
    damaged(delta, 0, "empty")
    of_last_boot(delta)
    assert delta.commit(NO_SPARK, LOCAL, [load])[0].written == 1 and delta_ids(delta) == [1]


def _written_since(tables: Any, _: pytest.MonkeyPatch) -> None:
    os.utime(commit_file(tables, 1))


def _shared_disk(_: Any, patch: pytest.MonkeyPatch) -> None:
    lines = re.sub(f" - ({'|'.join(disks._LOCAL)}) ", " - nfs4 ", disks._MOUNTS.read_text())
    mounts = Path(os.environ["PYTEST_MOUNTS"])
    mounts.write_text(lines)
    patch.setattr(disks, "_MOUNTS", mounts)


def _later_version(tables: Any, _: pytest.MonkeyPatch) -> None:
    shutil.copy(commit_file(tables, 0), commit_file(tables, 2))
    os.utime(commit_file(tables, 2), (1, 1))


def _checkpoint(tables: Any, _: pytest.MonkeyPatch) -> None:
    file = commit_file(tables, 1)
    file.with_name(f"{file.stem}.checkpoint.parquet").write_bytes(b"PAR1")


REASONS: dict[str, tuple[Callable[[Any, pytest.MonkeyPatch], None], Any, str]] = {
    "written since": (_written_since, PlannedOn(0, "before"), "since this machine was started"),
    "a shared disk": (_shared_disk, PlannedOn(0, "before"), "another machine"),
    "a later version": (_later_version, PlannedOn(0, "before"), "later version"),
    "a checkpoint": (_checkpoint, PlannedOn(0, "before"), "checkpoint"),
    "another version": (lambda *_: None, PlannedOn(7, "before"), "on version 7"),
    "this boot": (lambda *_: None, PlannedOn(0, disks.boot()), "planned since"),
    "no plan": (lambda *_: None, None, "lacks the"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_l3_an_empty_commit_that_may_be_another_writers_stays_and_the_command_is_named(
    delta: Any, loads: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str
) -> None:
    monkeypatch.setenv("PYTEST_MOUNTS", str(tmp_path / "mounts"))
    delta.commit(NO_SPARK, LOCAL, [planned(loads, 1, -1)])
    delta.commit(NO_SPARK, LOCAL, [planned(loads, 2, 0)])
    damaged(delta, 1, "empty")
    of_last_boot(delta)
    arrange, plan, words = REASONS[reason]
    arrange(delta, monkeypatch)
    load = numbered(shaped(loads.load(2, [{"id": 2}])), 1, planned=plan)
    last = max(Path(delta.location(T), "_delta_log").glob("*.json"))
    if reason == "a later version":
        last.write_bytes(b"")
        damaged(delta, 0, "data missing")
    (outcome,) = delta.commit(NO_SPARK, LOCAL, [load])
    assert isinstance(outcome, DestinationError), outcome
    assert outcome.code == "destination.commit_damaged"
    if reason != "a later version":
        assert words in str(outcome)
    assert f"mv {last}" in (outcome.hint or "") and last.stat().st_size == 0


def test_l3_a_commit_under_a_later_one_whose_rows_did_not_come_back_is_not_taken_for_done(
    delta: Any, loads: Any
) -> None:
    load = planned(loads, 1, -1)
    delta.commit(NO_SPARK, LOCAL, [load])
    theirs = numbered(shaped(loads.load(1, [{"id": 9}], key="theirs/t")), 0)
    assert delta.commit(NO_SPARK, LOCAL, [theirs]) == [LoadResult(1)]
    damaged(delta, 0, "data missing")
    of_last_boot(delta)
    (outcome,) = delta.commit(NO_SPARK, LOCAL, [load])
    assert isinstance(outcome, DestinationError) and outcome.code == "destination.commit_damaged"
    assert "later version" in str(outcome)


LOST: dict[str, Callable[[Path], None]] = {
    "is empty": lambda commit: commit.write_bytes(b"") and None,
    "is missing": Path.unlink,
    "ends in the middle of a line": lambda commit: os.truncate(commit, commit.stat().st_size - 60),
}


@pytest.mark.parametrize("planned_at", ["before", "now"])
@pytest.mark.parametrize("damage", LOST)
def test_l3_a_table_with_a_damaged_commit_in_the_middle_takes_no_load(
    delta: Any, loads: Any, damage: str, planned_at: str
) -> None:
    """Readers take an empty commit for one without rows: the load after it went well, and ten rows
    of the table were gone."""
    boot = disks.boot() if planned_at == "now" else "before"
    for number in (1, 2, 3):
        delta.commit(NO_SPARK, LOCAL, [planned(loads, number, number - 2, boot)])
    commit = commit_file(delta, 1)
    LOST[damage](commit)
    (outcome,) = delta.commit(NO_SPARK, LOCAL, [planned(loads, 4, 2, boot)])
    assert isinstance(outcome, DestinationError), outcome
    assert outcome.code == "destination.commit_damaged" and outcome.where == str(commit)
    assert f"version 1 of the Delta table in {delta.location(T)} {damage}" in str(outcome)
    assert f"mv {delta.location(T)}" in str(outcome.hint) and "--recreate" in str(outcome.hint)
    assert not commit_file(delta, 3).exists()


def test_l3_commits_below_a_checkpoint_are_not_needed(delta: Any, loads: Any) -> None:
    for number in (1, 2):
        delta.commit(NO_SPARK, LOCAL, [planned(loads, number, number - 2, disks.boot())])
    DeltaTable(delta.location(T)).create_checkpoint()
    commit_file(delta, 0).unlink()
    assert delta.commit(NO_SPARK, LOCAL, [planned(loads, 3, 1, disks.boot())]) == [LoadResult(1)]
    assert delta_ids(delta) == [1, 2, 3]


def test_l3_empty_checkpoints_and_checksums_of_the_boot_before_are_removed(
    delta: Any, loads: Any
) -> None:
    delta.commit(NO_SPARK, LOCAL, [planned(loads, 1, -1)])
    log = Path(delta.location(T), "_delta_log")
    derived = [
        log / n for n in ("_last_checkpoint", f"{0:020d}.checkpoint.parquet", f"{0:020d}.crc")
    ]
    for path in derived:
        path.write_bytes(b"")
    of_last_boot(delta)
    assert delta.commit(NO_SPARK, LOCAL, [planned(loads, 2, 0)]) == [LoadResult(1)]
    assert not any(path.exists() and not path.stat().st_size for path in derived)
    assert delta_ids(delta) == [1, 2]


def test_a_clock_that_was_set_makes_no_file_older_than_the_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells the time of the boot by the clock of now."""
    file = tmp_path / "commit"
    file.write_bytes(b"")
    assert not disks.older_than_boot(file)
    os.utime(file, (1, 1))
    assert disks.older_than_boot(file)
    file.write_bytes(b"")  # now, and then the clock is set a year ahead
    told = tmp_path / "stat"
    told.write_text(f"cpu 1 2\nbtime {int(time.time()) + 365 * 86400}\n")
    monkeypatch.setattr(disks, "_STAT", told)
    assert not disks.older_than_boot(file)
    told.write_text("cpu 1 2\n")
    os.utime(file, (1, 1))
    assert not disks.older_than_boot(file)


def test_a_disk_is_known_by_the_innermost_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    place = tmp_path / "a b" / "t"
    place.mkdir(parents=True)
    lines = ["20 1 8:1 / / rw - nfs4 host:/ rw"]
    monkeypatch.setattr(disks, "_MOUNTS", mounts)
    mounts.write_text("\n".join(lines))
    assert not disks.on_own_disk(place)
    escaped = str(tmp_path / "a b").replace(" ", "\\040")
    lines.append(f"21 20 8:2 / {escaped} rw,relatime shared:1 - ext4 /dev/sdb1 rw")
    mounts.write_text("\n".join(lines))
    assert disks.on_own_disk(place)
    lines.append(f"22 20 8:2 / {escaped} rw - cifs //host rw")
    mounts.write_text("\n".join(lines))
    assert not disks.on_own_disk(place)


def test_delta_repair_reads_the_newest_version(delta: Any, loads: Any) -> None:
    folder = Path(delta.location(T))
    assert delta_repair.planned_on(folder).version == -1
    delta.commit(NO_SPARK, LOCAL, [planned(loads, 1, -1)])
    assert delta_repair.planned_on(folder) == PlannedOn(0, disks.boot())
