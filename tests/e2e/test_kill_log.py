"""The log of the kill matrix is readable and has no failed cell; a skip says where the code is no
longer what was played, or how many cells are missing."""

import subprocess
from pathlib import Path

import kill_log
import pytest
from kill_log import COMMAND, FAILED, KEPT, TREES, KillLog, MalformedError, trees_of
from kill_page import page
from kills import every_cell

HASHES = {name: f"{n:040x}" for n, name in enumerate(TREES, 1)}
NAMES = (
    "parquet-append/mid-part/child",
    "read/mid-part/program",
    "postgres/parquet-append/mid-part/server",
)


def whole() -> KillLog:
    log = KillLog(dict(HASHES))
    for name in NAMES:
        log.add(name, "next run", 21.4)
    return log


TEXT = whole().text(NAMES)


def test_the_whole_matrix_was_played_on_this_code() -> None:
    if not KEPT.exists():
        pytest.skip(f"the kill matrix was never played whole with a log: {COMMAND}")
    log = kill_log.parse(KEPT.read_text())
    assert log.failed() == []
    names = [it.name for it in every_cell()]
    trees = trees_of(kill_log.ROOT)
    if trees is None:
        pytest.skip("no checkout of git: which code this is cannot be said")
    others = kill_log.out_of_date(log, trees, names)
    if others:
        pytest.skip(f"the kill matrix is not that of this code: {'; '.join(others)}: {COMMAND}")
    assert log.text(names) == KEPT.read_text(), "its head does not count its cells"


def test_what_is_written_is_read() -> None:
    log = kill_log.parse(TEXT)
    assert log == whole() and log.seconds == dict.fromkeys(NAMES, 21)
    assert log.text(NAMES) == TEXT
    assert kill_log.out_of_date(log, HASHES, NAMES) == []


def test_the_head_says_what_came_of_each_store_and_target() -> None:
    log = whole()
    more = [f"new/point/{target}" for target in ("child", "program", "worker", "connector")]
    log.add(more[0], f"{FAILED} AssertionError('s0: rows twice: [1, 2]')", 3)
    log.add(more[1], f"{FAILED} AssertionError('s0: the state 40 is ahead: [1]')", 3)
    log.add(more[2], f"{FAILED} AssertionError(\"left running: {{1: 'java'}}\")", 3)
    head = [line for line in log.text([*NAMES, *more]).splitlines() if line.startswith("# ")]
    assert head == [
        "# 6 of 7 cells played, 3 failed, lost 1, doubled 1, left running 1, other 0",
        "# sqlite: 2 of 6 passed; killed: child 1 of 2, connector 0 of 1, program 1 of 2, "
        "worker 0 of 1",
        "# postgres: 1 of 1 passed; killed: server 1 of 1",
    ]


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        ("AssertionError('s1: rows are lost: [3]')", "lost"),
        ("AssertionError('half a generation')", "lost"),
        ("AssertionError('s0: twice, though acked before: [3]')", "doubled"),
        ("AssertionError('never struck (exit 0): a lane was lost')", "other"),
        ("AssertionError((1, None, 'a lane was lost'))", "other"),
        ("OSError('no space is left')", "other"),
    ],
)
def test_the_kind_of_a_fault_is_that_of_its_reason(reason: str, fault: str) -> None:
    assert kill_log.fault_of(f"{FAILED} {reason}") == fault


def test_a_log_is_gone_on_with_only_where_it_is_of_this_code(tmp_path: Path) -> None:
    path = tmp_path / "kill-matrix.txt"
    assert kill_log.kept(path, HASHES) == KillLog(HASHES)
    whole().keep(path, NAMES)
    assert kill_log.kept(path, HASHES) == whole()
    assert kill_log.kept(path, {**HASHES, "store": "f" * 40}).cells == {}
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_cell_that_failed_says_so_when_it_was_played_again() -> None:
    log = KillLog(dict(HASHES))
    log.add(NAMES[0], f"{FAILED} AssertionError('s0')", 3)
    assert log.failed() == [NAMES[0]]
    log.add(NAMES[0], "same run", 4)
    text = log.text(NAMES)
    assert log.failed() == [] and kill_log.parse(text) == log
    assert f"same run; played again after: {FAILED} AssertionError('s0') (4 s)" in text
    assert "0 failed, lost 0, doubled 0, left running 0, other 0; 1 played again" in text
    assert "| child (1) | same run (the second time) |" in page(log)


@pytest.mark.parametrize("name", TREES)
def test_a_tree_that_differs_is_named(name: str) -> None:
    other = {**HASHES, name: "f" * 40}
    (told,) = kill_log.out_of_date(kill_log.parse(TEXT), other, NAMES)
    assert told == f"{name} was {HASHES[name][:12]} and is ffffffffffff"


def test_cells_that_came_are_counted_and_those_that_went_named() -> None:
    told = kill_log.out_of_date(kill_log.parse(TEXT), HASHES, [*NAMES[1:], "new/cell/program"])
    assert told == ["1 of 3 cells were not played", f"{NAMES[0]} is no cell any more"]


@pytest.mark.parametrize("at", range(len(TREES)))
def test_a_log_without_a_tree_is_refused(at: int) -> None:
    lines = TEXT.splitlines(keepends=True)
    for there in ([], [f"{TREES[at]} HEAD\n"], [f"{TREES[at]}\n"]):
        with pytest.raises(MalformedError, match=f"no tree of {TREES[at]}"):
            kill_log.parse("".join([*lines[:at], *there, *lines[at + 1 :]]))


@pytest.mark.parametrize("bad", ["a/b/c", "a/b/c: next run", "a/b/c: (3 s)", "236 of 236 passed."])
def test_a_line_that_is_no_cell_is_refused(bad: str) -> None:
    with pytest.raises(MalformedError, match="no cell"):
        kill_log.parse(f"{TEXT}{bad}\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in TREES:
        folder = tmp_path / "src" / "penstock" / name
        folder.mkdir(parents=True)
        (folder / "contract.py").write_text(f"# {name}\n")
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def test_the_trees_are_gits_own_also_of_what_is_not_committed(checkout: Path) -> None:
    def committed() -> dict[str, str]:
        return {n: git(checkout, "rev-parse", f"HEAD:src/penstock/{n}") for n in TREES}

    assert trees_of(checkout) == committed()
    changed = checkout / "src" / "penstock" / "tables"
    (changed / "a.pyc").write_text("ignored")
    assert trees_of(checkout) == committed()
    (changed / "contract.py").write_text("# another\n")
    (changed / "new.py").touch()
    now = trees_of(checkout)
    assert now is not None
    assert {n for n in TREES if now[n] != committed()[n]} == {"tables"}
    objects = git(checkout, "count-objects")
    git(checkout, "add", ".")
    assert git(checkout, "count-objects") != objects  # nothing of it was there before
    git(checkout, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "more")
    assert now == committed()


def test_no_checkout_has_no_trees(tmp_path: Path) -> None:
    assert trees_of(tmp_path) is None
