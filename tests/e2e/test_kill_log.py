"""The log of the last whole kill matrix is readable and has no failed cell; a skip says where the
code is no longer what was played."""

import io
import subprocess
from dataclasses import replace
from pathlib import Path

import kill_log
import kills
import pytest
from kill_log import COMMAND, FAILED, KEPT, TREES, KillLog, MalformedError, trees_of
from kills import cell, every_cell, play

HASHES = {name: f"{n:040x}" for n, name in enumerate(TREES, 1)}
NAMES = ("parquet-append/mid-part/child", "read/mid-part/program")
TEXT = kill_log.head(HASHES) + "".join(kill_log.line(name, "next run", 21.4) for name in NAMES)


def test_the_whole_matrix_was_played_on_this_code() -> None:
    if not KEPT.exists():
        pytest.skip(f"the kill matrix was never played whole with a log: {COMMAND}")
    log = kill_log.parse(KEPT.read_text())
    assert [name for name, end in log.cells.items() if end.startswith(FAILED)] == []
    trees = trees_of(kill_log.ROOT)
    if trees is None:
        pytest.skip("no checkout of git: which code this is cannot be said")
    others = kill_log.out_of_date(log, trees, [it.name for it in every_cell()])
    if others:
        pytest.skip(f"the kill matrix was played on other code: {'; '.join(others)}: {COMMAND}")


def test_what_is_written_is_read() -> None:
    log = kill_log.parse(TEXT)
    assert log == KillLog(HASHES, dict.fromkeys(NAMES, "next run"))
    assert kill_log.out_of_date(log, HASHES, NAMES) == []


@pytest.mark.parametrize("name", TREES)
def test_a_tree_that_differs_is_named(name: str) -> None:
    other = {**HASHES, name: "f" * 40}
    (told,) = kill_log.out_of_date(kill_log.parse(TEXT), other, NAMES)
    assert told == f"{name} was {HASHES[name][:12]} and is ffffffffffff"


def test_cells_that_came_or_went_are_named() -> None:
    told = kill_log.out_of_date(kill_log.parse(TEXT), HASHES, [NAMES[0], "new/cell/program"])
    assert told == ["new/cell/program was not played", f"{NAMES[1]} is no cell any more"]


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


def test_a_cell_that_fails_is_a_line_of_the_log_and_the_others_are_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = cell(NAMES[0]), replace(cell(NAMES[0]), target="program")

    def run(it: object, folder: Path, *, warm: bool) -> str:
        if it is first:
            raise AssertionError("s0: rows twice\n[1, 2]")
        return "next run"

    monkeypatch.setattr(kills, "_run", run)
    log = io.StringIO(kill_log.head(HASHES))
    log.seek(0, io.SEEK_END)
    ends = play([first, second], 2, log)
    found = kill_log.parse(log.getvalue()).cells
    assert found == {name: " ".join(end.split()) for name, end in ends.items()}
    assert found[first.name].startswith(f"{FAILED} ") and found[second.name] == "next run"
