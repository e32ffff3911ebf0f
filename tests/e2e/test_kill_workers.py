"""Cells of the kill matrix are played in several processes: what each answers is kept, a cell that
fails or a worker that dies leaves the others theirs, and no cell begins too late."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import kill_workers
import pytest
from kill_log import FAILED
from kill_workers import Played, Workers, attempt, serve

HERE = Path(__file__).parent
WORKER = """
import json, os, sys
for name in iter(sys.stdin.readline, ""):
    if name == "dies\\n":
        os.kill(os.getpid(), 9)
    print(json.dumps([f"by {os.getpid()}", 1.0, ""]), flush=True)
"""
COMMAND = [sys.executable, "-c", WORKER]


def play(cells: list[str], number: int, seconds: float | None = None) -> dict[str, str]:
    ends: dict[str, str] = {}

    def ended(played: Played) -> bool:
        ends[played.cell] = played.end
        return played.cell != "last"

    Workers(cells, number, COMMAND, ended, seconds).play()
    return ends


def test_each_cell_is_played_once_by_one_of_the_workers() -> None:
    cells = [f"c{n}" for n in range(40)]
    ends = play(cells, 3)
    assert sorted(ends) == sorted(cells)
    assert 1 <= len(set(ends.values())) <= 3 and all(end.startswith("by ") for end in ends.values())


def test_a_worker_that_dies_fails_its_cell_and_another_goes_on() -> None:
    ends = play(["a", "dies", "b"], 1)
    assert ends["dies"].startswith(f"{FAILED} the worker that played it ended after")
    assert ends["a"].startswith("by ") and ends["b"].startswith("by ") and ends["a"] != ends["b"]


def test_no_cell_is_begun_after_the_time_or_once_a_cell_says_so() -> None:
    assert play(["a", "b"], 1, seconds=0) == {}
    assert list(play(["a", "last", "b"], 1)) == ["a", "last"]


def test_what_keeps_a_cell_may_fail() -> None:
    def ended(played: Played) -> bool:
        raise OSError("no space is left")

    with pytest.raises(OSError, match="no space"):
        Workers(["a", "b"], 2, COMMAND, ended).play()


def test_a_cell_that_fails_leaves_its_folder_and_one_that_passes_its_home(tmp_path: Path) -> None:
    """A Spark that stays ends with the home of the run that started it."""

    def one(name: str, folder: Path) -> str:
        for inner in ("home/runs", "lake"):
            (folder / inner).mkdir(parents=True)
            (folder / inner / "file").touch()
        (folder / "link").symlink_to(tmp_path)
        if name == "bad":
            raise AssertionError("s0: rows twice")
        return "next run"

    good, bad = (attempt(name, tmp_path, one) for name in ("good", "bad"))
    assert good == Played("good", "next run", good.seconds)
    assert bad.end == f"{FAILED} AssertionError('s0: rows twice')"
    assert (Path(bad.folder) / "lake" / "file").exists()
    (kept,) = (p for p in tmp_path.glob("cell-*") if p != Path(bad.folder))
    assert [str(p.relative_to(kept)) for p in kept.rglob("*")] == ["home"]


def test_a_worker_answers_a_line_for_each_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_workers.tempfile, "tempdir", str(tmp_path))
    answers = io.StringIO()
    serve(
        lambda name, folder: f"{name} in {folder.parent.parent == tmp_path}",
        io.StringIO("a\nb\n"),
        answers,
    )
    ends = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [(end, folder) for end, _, folder in ends] == [("a in True", ""), ("b in True", "")]
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_after_the_cells_under_way(tmp_path: Path) -> None:
    worker = "import sys, time\nfor _ in iter(sys.stdin.readline, ''):\n"
    worker += ' time.sleep(2)\n print(\'["next run", 2, ""]\', flush=True)\n'
    program = (
        "import sys\n"
        f"sys.path[:0] = [{str(HERE)!r}]\n"
        "from kill_workers import Workers\n"
        f"command = [sys.executable, '-c', {worker!r}]\n"
        "def ended(played):\n print(played.cell, played.end, flush=True)\n return True\n"
        "print('begins', flush=True)\n"
        "Workers(['a', 'b', 'c'], 1, command, ended).play()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert running.stdout is not None and running.stdout.readline() == "begins\n"
    time.sleep(1)
    os.kill(running.pid, signal.SIGINT)
    out, told = running.communicate(timeout=60)
    assert running.returncode == 0, told
    assert out == "a next run\n" and "after the cells under way" in told
