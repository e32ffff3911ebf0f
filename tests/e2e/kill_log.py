"""The kept log of the kill matrix (``docs/kill-matrix.txt``): the trees of the code that is played,
as git names them, what came of all of it, then a line for each cell: how it came back, or why it
failed.

``kills.py --all`` plays the cells that it has not for today's trees, and keeps it when each has
ended; other trees begin a new one. ``test_kill_log.py`` says when the code is no longer that of the
log, and how many cells are missing.
"""

import fcntl
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "kill-matrix.txt"
TREES = ("engine", "tables", "store")
COMMAND = "python tests/e2e/kills.py --all"
FAILED = "FAILED"
POSTGRES = "postgres/"
"""What the name of a cell whose store is on Postgres begins with."""
STORES = ("sqlite", "postgres")
_HASH_DIGITS = (40, 64)


AGAIN = "; played again after: "
_NOTE = "# "
_REASON_LENGTH = 100
_FAULTS = {  # what the reason of a failed cell says, by what came of the kill
    "left running": ("left running:",),
    "doubled": ("twice", "repeats"),
    "lost": ("lost", "ahead", "half a generation", "half of a write"),
}


@dataclass
class KillLog:
    """``cells``: how each came back. ``seconds``: how long each took."""

    trees: dict[str, str]
    cells: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, int] = field(default_factory=dict)

    def add(self, cell: str, end: str, seconds: float) -> None:
        """A cell that failed before says so for as long as the log is kept."""
        before = self.cells.get(cell)
        again = "" if before is None else f"{AGAIN}{before}"
        self.cells[cell] = " ".join((end + again).split())
        self.seconds[cell] = round(seconds)

    def failed(self) -> list[str]:
        return [cell for cell, end in self.cells.items() if end.startswith(FAILED)]

    def missing(self, cells: Iterable[str]) -> list[str]:
        return [cell for cell in cells if cell not in self.cells]

    def text(self, cells: Sequence[str]) -> str:
        """``cells``: every one there is, in the matrix's order."""
        return "".join(
            [
                *(f"{name} {tree}\n" for name, tree in self.trees.items()),
                *(f"{_NOTE}{note}\n" for note in self._notes(cells)),
                *(
                    f"{cell}: {self.cells[cell]} ({self.seconds[cell]} s)\n"
                    for cell in cells
                    if cell in self.cells
                ),
            ]
        )

    def keep(self, path: Path, cells: Sequence[str]) -> None:
        """Writes all of it or nothing."""
        new = path.with_suffix(".part")
        new.write_text(self.text(cells))
        new.replace(path)

    def _notes(self, cells: Sequence[str]) -> list[str]:
        faults = Counter(fault_of(self.cells[cell]) for cell in self.failed())
        named = "".join(f", {fault} {faults[fault]}" for fault in (*reversed(_FAULTS), "other"))
        played = len(cells) - len(self.missing(cells))
        again = sum(AGAIN in end for end in self.cells.values())
        whole = f"{played} of {len(cells)} cells played, {len(self.failed())} failed{named}"
        whole += f"; {again} played again after they failed" if again else ""
        return [whole, *(self._note(store, cells) for store in STORES)]

    def _note(self, store: str, cells: Sequence[str]) -> str:
        of_store = [cell for cell in cells if store_of(cell) == store]
        there = Counter(map(target_of, of_store))
        passed = Counter(
            target_of(cell) for cell in of_store if cell in self.cells and cell not in self.failed()
        )
        targets = ", ".join(f"{name} {passed[name]} of {n}" for name, n in sorted(there.items()))
        return f"{store}: {passed.total()} of {len(of_store)} passed; killed: {targets}"


def store_of(cell: str) -> str:
    return "postgres" if cell.startswith(POSTGRES) else "sqlite"


def target_of(cell: str) -> str:
    return cell.rpartition("/")[2]


def fault_of(end: str) -> str:
    """What came of a kill: the kind of the reason that a failed cell gives, which begins with it;
    what the run printed may follow."""
    reason = end.removeprefix(f"{FAILED} AssertionError(")[:_REASON_LENGTH]
    if reason[:1] not in ("'", '"') or reason[1:].startswith("never struck"):
        return "other"
    return next((f for f, words in _FAULTS.items() if any(w in reason for w in words)), "other")


class MalformedError(Exception):
    """Of a log: which line, or what is missing."""


class InUseError(Exception):
    """Of a log: somebody else adds to it."""


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Nobody else adds to the log meanwhile. Raises :class:`InUseError`."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise InUseError(f"{path}: another process plays its cells") from e
        yield
    finally:
        os.close(folder)


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


def parse(text: str) -> KillLog:
    lines = text.splitlines()
    found = KillLog({})
    for name, said in zip(TREES, [*lines, *[""] * len(TREES)], strict=False):
        words = said.split(" ")
        if len(words) != 2 or words[0] != name or not _is_hash(words[1]):
            raise MalformedError(f"no tree of {name}: {said!r}")
        found.trees[name] = words[1]
    for said in lines[len(TREES) :]:
        if said.startswith(_NOTE):
            continue
        cell, colon, rest = said.partition(": ")
        end, bracket, seconds = rest.rpartition(" (")
        if not (colon and bracket and end and seconds.removesuffix(" s)").isdigit()):
            raise MalformedError(f"no cell: {said!r}")
        found.cells[cell], found.seconds[cell] = end, int(seconds.removesuffix(" s)"))
    return found


def kept(path: Path, trees: dict[str, str]) -> KillLog:
    """The log to go on with: that of the file, where it is of these trees."""
    if path.exists() and (found := parse(path.read_text())).trees == trees:
        return found
    return KillLog(dict(trees))


def out_of_date(log: KillLog, trees: dict[str, str], cells: Iterable[str]) -> list[str]:
    """What is no longer as it was when the matrix was played; failed cells apart."""
    today = [*cells]
    missing = log.missing(today)
    return [
        *(
            f"{name} was {log.trees[name][:12]} and is {tree[:12]}"
            for name, tree in trees.items()
            if tree != log.trees[name]
        ),
        *([f"{len(missing)} of {len(today)} cells were not played"] if missing else []),
        *(f"{cell} is no cell any more" for cell in sorted(log.cells.keys() - {*today})),
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
