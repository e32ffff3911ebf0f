"""Starts ``penstock run`` (and ``rejects retry``) as a process of its own, as the command line
would, and finds it later.

The process is no child of the server and survives it. Its output goes to a folder of the home
(``ui/ID``, mode 0600), from which a later server shows it too. A run is stopped by the signal that
Ctrl-C sends, to the process that holds the pipeline's lock. Not here: how a run shows itself
(``engine.inspect.live``).
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec

from penstock.config.home import Home
from penstock.engine.inspect.pipelines import OpenPipeline
from penstock.errors import ConfigError
from penstock.files import make_folder, private, write_new

_ID = re.compile(r"[0-9a-f]{24}")
_TAIL = 64 << 10
_KEPT = 50
_PROC = Path("/proc")
# The shell ends at once, so that no process waits for the run.
_SHELL = '"$@" </dev/null >"$OUT" 2>"$ERR" & echo $!'


class StartedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A process that was started. ``file``: the pipeline file's name."""

    id: str
    file: str
    pid: int
    at: float


def launch(home: Home, path: Path, *options: str, verb: Sequence[str] = ("run",)) -> StartedRun:
    """Starts ``penstock run`` of a pipeline file, or another ``verb`` that runs it. Raises
    ``ConfigError``."""
    id_ = f"{int(time.time()):08x}{token_hex(8)}"
    folder = home.path / "ui" / id_
    make_folder(folder, 0o700)
    _forget_old(folder.parent)
    for name in ("out", "err"):
        private(folder / name, "xb").close()
    words = [sys.executable, "-m", "penstock", *verb, str(path), "--json"]
    words += ["--home", str(home.path), *options]
    environ = {**os.environ, "OUT": str(folder / "out"), "ERR": str(folder / "err")}
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", _SHELL, "sh", *words],
            env=environ, capture_output=True, text=True, start_new_session=True, timeout=30,
        )  # fmt: skip
        pid = int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as e:
        raise ConfigError(
            f"the run could not be started: {e}", code="ui.start",
            hint=f"start it in a terminal: penstock {' '.join(verb)} {path}",
        ) from None  # fmt: skip
    made = StartedRun(id=id_, file=path.name, pid=pid, at=time.time())
    write_new(folder / "launch.json", msgspec.json.encode(made))
    return made


def found(home: Home, id_: str) -> StartedRun | None:
    """Returns a launch, also of an earlier server; None: the id is unknown."""
    if _ID.fullmatch(id_) is None:
        return None
    try:
        raw = (home.path / "ui" / id_ / "launch.json").read_bytes()
        return msgspec.json.decode(raw, type=StartedRun)
    except (OSError, msgspec.DecodeError):
        return None


def lives(launched: StartedRun) -> bool:
    """Returns whether the process of a launch still runs and is the same."""
    words = _command(launched.pid)
    return words == "" or (words is not None and "penstock" in words and launched.file in words)


def _command(pid: int) -> str | None:
    """Returns the command of a process; empty: it is starting; None: it has ended."""
    own = _PROC / str(pid)
    with suppress(OSError, IndexError):
        words = (own / "cmdline").read_bytes().decode("utf-8", "replace")
        state = (own / "stat").read_text().rpartition(")")[2].split()[0]
        return None if state in "ZX" else words
    if _PROC.exists():
        return None
    words = ["ps", "-ww", "-o", "command=", "-p", str(pid)]  # macOS has no /proc
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(words, capture_output=True, text=True, timeout=10)
        return done.stdout if done.returncode == 0 else None
    return None


def outcome(home: Home, launched: StartedRun) -> tuple[dict[str, Any] | None, bool]:
    """Returns the answer of a launch, and whether one may still come. A process may answer and end
    at any moment, so whether it lives is found out before."""
    alive = lives(launched)
    given = answer(home, launched)
    return given, given is None and alive


def answer(home: Home, launched: StartedRun) -> dict[str, Any] | None:
    """Returns what the run printed: its report, or ``{"error"}``; None: nothing yet."""
    try:
        given = json.loads((home.path / "ui" / launched.id / "out").read_bytes())
    except (OSError, ValueError):
        return None
    return given if isinstance(given, dict) else None


def printed(home: Home, launched: StartedRun) -> list[str]:
    """Returns the last lines that the run printed besides its answer."""
    try:
        with (home.path / "ui" / launched.id / "err").open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            return file.read().decode("utf-8", "replace").splitlines()[-100:]
    except OSError:
        return []


def stop(known: OpenPipeline, run: str) -> bool:
    """Sends a run the signal of Ctrl-C. Returns whether its process was found: it must run on this
    machine and hold the pipeline's lock for this run."""
    lock = known.store.lock(known.name)
    if lock is None or lock.holder.run != run or lock.alive is not True:
        return False
    try:
        os.kill(lock.holder.pid, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _forget_old(folder: Path) -> None:
    old = sorted(p for p in folder.iterdir() if _ID.fullmatch(p.name))[:-_KEPT]
    for each in old:
        for file in each.iterdir():
            file.unlink(missing_ok=True)
        each.rmdir()
