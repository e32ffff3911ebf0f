"""``kills.py --all`` goes on with the log that is kept, where it is of today's code, and keeps each
cell that ended. The cells here are played by a worker that only answers."""

import sys
from collections.abc import Iterator
from pathlib import Path

import kill_log
import kills
import pytest
from kill_log import FAILED, TREES, KillLog

HASHES = {name: f"{n:040x}" for n, name in enumerate(TREES, 1)}
CELLS = [it for it in kills.every_cell() if it.name.endswith("singer-push/mid-push/program")]
CELLS += kills.cells_of_tables()[:4]
NAMES = [it.name for it in CELLS]
WORKER = """
import json, sys
for name in iter(sys.stdin.readline, ""):
    failed = name.strip() == sys.argv[1]
    end = "FAILED AssertionError('s0: rows twice: [1]')" if failed else "next run"
    print(json.dumps([end, 1.0, ""]), flush=True)
"""


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    kept = tmp_path / "kill-matrix.txt"
    monkeypatch.setattr(kill_log, "KEPT", kept)
    monkeypatch.setattr(kill_log, "trees_of", lambda root: HASHES)
    monkeypatch.setattr(
        kills, "every_cell", lambda store=None: [
            it for it in CELLS if store in (None, kill_log.store_of(it.name))
        ]
    )  # fmt: skip
    yield kept


def play(monkeypatch: pytest.MonkeyPatch, *words: str, fails: str = "") -> int:
    monkeypatch.setattr(kills, "_command", lambda asked: [sys.executable, "-c", WORKER, fails])
    monkeypatch.setattr(sys, "argv", ["kills.py", "--all", "--workers", "2", *words])
    return kills.main()


def test_what_is_missing_is_played_until_nothing_is(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(monkeypatch, "--minutes", "0") == 1
    assert not kept.exists()
    assert play(monkeypatch, "--store", "postgres") == 1
    assert [*kill_log.parse(kept.read_text()).cells] == [n for n in NAMES if "postgres/" in n]
    assert not kept.with_suffix(".md").exists()
    capsys.readouterr()
    assert play(monkeypatch) == 0
    assert f"{len(NAMES) - 1} of {len(NAMES)} cells are to be played" in capsys.readouterr().err
    log = kill_log.parse(kept.read_text())
    assert log.missing(NAMES) == [] and [*log.cells] == NAMES
    assert f"{len(NAMES)} of {len(NAMES)} cells passed" in kept.with_suffix(".md").read_text()
    assert play(monkeypatch) == 0
    assert f"0 of {len(NAMES)} cells are to be played" in capsys.readouterr().err


def test_other_code_begins_a_new_log(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = KillLog({**HASHES, "tables": "f" * 40})
    old.add(NAMES[0], "same run", 9)
    old.keep(kept, NAMES)
    assert play(monkeypatch) == 0
    assert kill_log.parse(kept.read_text()).cells == dict.fromkeys(NAMES, "next run")


def test_code_that_changes_ends_it_and_is_not_kept(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = iter([HASHES, HASHES])
    monkeypatch.setattr(kill_log, "trees_of", lambda root: next(looked, {}))
    assert play(monkeypatch) == 1
    log = kill_log.parse(kept.read_text())
    assert log.trees == HASHES and len(log.cells) == 1


def test_a_cell_that_failed_is_played_again_where_that_is_asked(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert play(monkeypatch, fails=NAMES[1]) == 1
    assert kill_log.parse(kept.read_text()).failed() == [NAMES[1]]
    assert "FAILED" in kept.with_suffix(".md").read_text()
    assert play(monkeypatch) == 1
    assert play(monkeypatch, "--failed") == 0
    found = kill_log.parse(kept.read_text()).cells[NAMES[1]]
    assert found.startswith("next run; played again after: FAILED ") and FAILED in found


def test_two_at_a_time_do_not_write_one_log(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with kill_log.alone(kept), pytest.raises(SystemExit) as ended:
        play(monkeypatch)
    assert ended.value.code == 2 and "another process plays its cells" in capsys.readouterr().err
    assert not kept.exists() and play(monkeypatch) == 0
