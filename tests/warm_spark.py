"""Lends a Spark that stays to the runs that tests start as processes: one Java for each set of jars
and each process of tests, which ends with these tests.

What every start uses again (jars, Java's classes, packages) stays the user's. Not here: the session
of runs in the tests' own process (``conftest``).
"""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import platformdirs

from penstock.spark.warm import folder_of_all, stop

IDLE_SECONDS = "900"
_OURS = "penstock"
_KEPT = ("jars", "classes", "java")
_lent: list[Path] = []


def environ() -> dict[str, str]:
    """For a process that may have it."""
    return {
        "PENSTOCK_DAEMON": "1",
        "PENSTOCK_DAEMON_IDLE": IDLE_SECONDS,
        "XDG_CACHE_HOME": str(_cache()),
    }


def folder_of_keepers() -> Path:
    return folder_of_all(_cache() / _OURS)


def cache_in(folder: Path) -> Path:
    """A cache folder in which Spark may stay; all else in it is the user's."""
    users = platformdirs.user_cache_path(_OURS)
    for name in _KEPT:
        (users / name).mkdir(parents=True, exist_ok=True)
    (users.parent / "uv").mkdir(exist_ok=True)
    ours = folder / _OURS
    ours.mkdir(mode=0o700, parents=True, exist_ok=True)
    for real in (*(users / n for n in _KEPT), *(p for p in users.parent.iterdir() if p != users)):
        link = (ours if real.parent == users else folder) / real.name
        if not link.is_symlink():
            link.symlink_to(real)
    return folder


@cache
def _cache() -> Path:
    folder = cache_in(Path(tempfile.mkdtemp(prefix="penstock-tests-")))
    _lent.append(folder)
    atexit.register(end_all)
    return folder


def end_in(folder: Path) -> None:
    """Ends the Spark that stays in a folder of :func:`cache_in`."""
    stop(folder_of_all(folder / _OURS))


def end_all() -> None:
    while _lent:
        folder = _lent.pop()
        end_in(folder)
        shutil.rmtree(folder, ignore_errors=True)


def as_environment(**more: str) -> dict[str, str]:
    """Ours without what steers Penstock, then ``environ()``, then ``more``."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    return {**kept, **environ(), **more}
