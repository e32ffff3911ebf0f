"""Plays cells of the kill matrix in several processes at the same time: each plays one cell after
the other, with a Spark that stays between its cells (``warm_spark``).

A worker reads the name of a cell, a line, from its stdin, and answers with a line of JSON:
``[end, seconds, folder]``; ``folder`` is what a failed cell left, else empty. It ends after the
cell under way when its stdin does, so also when whoever started it was killed. Not here: the cells
(``kills``), the log (``kill_log``).
"""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from e2e_harness import end_all
from kill_log import FAILED

ENDED_SECONDS = 60.0
"""For a worker to end its Spark."""


@dataclass(frozen=True)
class Played:
    cell: str
    end: str
    seconds: float
    folder: str = ""


Ended = Callable[[Played], bool]
"""Called for each cell, one at a time; gives whether to go on."""


# -- in a worker


def serve(
    play_one: Callable[[str, Path], str], names: TextIO = sys.stdin, answers: TextIO = sys.stdout
) -> None:
    """Plays the cells whose names come, until no more come. ``play_one``: a cell in a folder."""
    root = Path(tempfile.mkdtemp(prefix="penstock-kills-"))
    failed = False
    for name in iter(names.readline, ""):
        played = attempt(name.strip(), root, play_one)
        failed |= bool(played.folder)
        answers.write(json.dumps([played.end, played.seconds, played.folder]) + "\n")
        answers.flush()
    if not failed:
        shutil.rmtree(root, ignore_errors=True)


def attempt(name: str, root: Path, play_one: Callable[[str, Path], str]) -> Played:
    """One that cannot be played leaves the others theirs."""
    folder = Path(tempfile.mkdtemp(prefix="cell-", dir=root))
    began = time.monotonic()
    try:
        end = play_one(name, folder)
    except Exception as e:
        return Played(name, f"{FAILED} {e!r}", time.monotonic() - began, str(folder))
    finally:
        end_all()
    _clear(folder)
    return Played(name, end, time.monotonic() - began)


def _clear(folder: Path) -> None:
    """Leaves the home, empty: a Spark that stays goes with the home of the run that started it."""
    for there in [*folder.iterdir(), *(folder / "home").glob("*")]:
        if there == folder / "home":
            continue
        if there.is_dir() and not there.is_symlink():
            shutil.rmtree(there, ignore_errors=True)
        else:
            there.unlink()


# -- who starts them


class Worker:
    """A worker's process. It is in a session of its own: Ctrl-C is not for it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def play(self, cell: str) -> Played:
        """Raises ``ChildProcessError`` where the worker dies over it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        began = time.monotonic()
        try:
            self._process.stdin.write(f"{cell}\n")
            self._process.stdin.flush()
            end, seconds, folder = json.loads(self._process.stdout.readline() or "null")
        except (OSError, TypeError, ValueError) as e:
            after = f"after {time.monotonic() - began:.0f} s"
            raise ChildProcessError(f"the worker that played it ended {after}: {e!r}") from e
        return Played(cell, end, seconds, folder)

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(ENDED_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Workers:
    """Plays ``cells`` in ``number`` processes of ``command``. No cell is begun
    after ``seconds``."""

    def __init__(
        self,
        cells: Sequence[str],
        number: int,
        command: Sequence[str],
        ended: Ended,
        seconds: float | None = None,
    ) -> None:
        self._waiting, self._command, self._ended = deque(cells), command, ended
        self._until = None if seconds is None else time.monotonic() + seconds
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []
        self._stopped = False
        self._number = min(number, len(cells))
        self._left = threading.Semaphore(0)

    def play(self) -> None:
        """Raises what ``ended`` raises. Ctrl-C: ends after the cells under way; a second one leaves
        these to their workers."""
        left = 0
        for _ in range(self._number):
            threading.Thread(target=self._serve, daemon=True).start()
        while left < self._number:  # Python 3.11 takes a thread for ended whose join is interrupted
            try:
                left += self._left.acquire(timeout=0.5)
            except KeyboardInterrupt:
                if self._stopped:
                    raise
                self._stopped = True
                self._waiting.clear()
                print("ends after the cells under way", file=sys.stderr)
        if self._errors:
            raise self._errors[0]

    def _serve(self) -> None:
        worker: Worker | None = None
        try:
            while (cell := self._next()) is not None:
                worker = worker or Worker(self._command)
                try:
                    played = worker.play(cell)
                except ChildProcessError as e:
                    played = Played(cell, f"{FAILED} {e}", 0)
                    worker.end()
                    worker = None
                with self._lock:
                    if not self._ended(played):
                        self._waiting.clear()
        except BaseException as e:  # of ended: raised by play
            self._waiting.clear()
            self._errors.append(e)
        finally:
            if worker is not None:
                worker.end()
            self._left.release()

    def _next(self) -> str | None:
        if self._until is not None and time.monotonic() >= self._until:
            return None
        try:
            return self._waiting.popleft()
        except IndexError:
            return None
