"""The kept log of the last whole kill matrix (``docs/kill-matrix.txt``): the trees of the code that
it ran on, as git names them, then a line for each cell: how it came back, or why it failed.

``kills.py --all`` writes it, line by line, in place of the one before only when every cell was
played; ``test_kill_log.py`` says when the code is no longer that of the log.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "kill-matrix.txt"
TREES = ("engine", "tables", "store")
COMMAND = "python tests/e2e/kills.py --all"
FAILED = "FAILED"
_HASH_DIGITS = (40, 64)


@dataclass
class KillLog:
    trees: dict[str, str]
    cells: dict[str, str] = field(default_factory=dict)


class MalformedError(Exception):
    """Of a log: which line, or what is missing."""


def trees_of(root: Path) -> dict[str, str] | None:
    """What git calls the trees of ``TREES`` as they lie in ``root``, committed or not (what it
    ignores apart); None where ``root`` is no checkout that git reads. Nothing is left in the
    repository."""
    try:
        objects = root / _git(root, "rev-parse", "--git-path", "objects")
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    with tempfile.TemporaryDirectory() as scratch:
        aside = {
            "GIT_INDEX_FILE": f"{scratch}/index",
            "GIT_OBJECT_DIRECTORY": scratch,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects),
        }
        folders = {name: f"src/penstock/{name}" for name in TREES}
        _git(root, "add", "--", *folders.values(), **aside)
        return {
            name: _git(root, "write-tree", f"--prefix={folder}/", **aside)
            for name, folder in folders.items()
        }


def head(trees: dict[str, str]) -> str:
    return "".join(f"{name} {tree}\n" for name, tree in trees.items())


def line(cell: str, end: str, seconds: float) -> str:
    return f"{cell}: {' '.join(end.split())} ({seconds:.0f} s)\n"


def parse(text: str) -> KillLog:
    lines = text.splitlines()
    found = KillLog({})
    for name, said in zip(TREES, [*lines, *[""] * len(TREES)], strict=False):
        words = said.split(" ")
        if len(words) != 2 or words[0] != name or not _is_hash(words[1]):
            raise MalformedError(f"no tree of {name}: {said!r}")
        found.trees[name] = words[1]
    for said in lines[len(TREES) :]:
        cell, colon, rest = said.partition(": ")
        end, bracket, seconds = rest.rpartition(" (")
        if not (colon and bracket and end and seconds.removesuffix(" s)").isdigit()):
            raise MalformedError(f"no cell: {said!r}")
        found.cells[cell] = end
    return found


def out_of_date(log: KillLog, trees: dict[str, str], cells: Iterable[str]) -> list[str]:
    """What is no longer as it was when the matrix was played; failed cells apart."""
    today = {*cells}
    return [
        *(
            f"{name} was {log.trees[name][:12]} and is {tree[:12]}"
            for name, tree in trees.items()
            if tree != log.trees[name]
        ),
        *(f"{cell} was not played" for cell in sorted(today - log.cells.keys())),
        *(f"{cell} is no cell any more" for cell in sorted(log.cells.keys() - today)),
    ]


def _is_hash(text: str) -> bool:
    return len(text) in _HASH_DIGITS and all(c in "0123456789abcdef" for c in text)


def _git(root: Path, *arguments: str, **environ: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=root,
        env={**os.environ, **environ},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip()
