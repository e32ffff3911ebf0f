"""Keeps compiled Python code in the user's cache where it may not be written next to the source.

Container images often set ``PYTHONDONTWRITEBYTECODE`` and hold no compiled code: each process of a
run (driver, lanes, Spark's Python workers) then compiles all that it imports, at every start. Code
that others could write is never loaded: the folder must be one that only this user writes to.
Imports the standard library only. Neighbours: ``cli``, ``tasks.child_start`` and
``tasks.worker_daemon`` call :func:`keep` before they import anything large."""

import os
import sys
from collections.abc import Mapping
from importlib.util import cache_from_source
from pathlib import Path

from penstock.runtimes.trusted_folders import unsafe

_FOLDER = ("penstock", "bytecode")
_FIXED = 315_705_600  # until 1980-01-03: times that image builds give to every file


def keep(environ: Mapping[str, str] = os.environ) -> None:
    """Makes this process write and read compiled code in a folder of the user's cache, or of
    Penstock's home. Does nothing where Python may write next to the source, where this package is
    compiled already, where no folder is safe, and where the sources have no modification times of
    their own: code of an older image would be mistaken for theirs."""
    if not sys.dont_write_bytecode or sys.pycache_prefix or os.path.exists(_compiled()):
        return
    if os.stat(__file__).st_mtime < _FIXED:
        return
    for folder in _folders(environ):
        if unsafe(folder) is None:
            # the path that was checked: a link in a given one may lead elsewhere later
            sys.pycache_prefix = str(folder.resolve())
            sys.dont_write_bytecode = False
            return


def _compiled() -> str:
    return cache_from_source(__file__)


def _folders(environ: Mapping[str, str]) -> list[Path]:
    """Returns the possible folders, best first. A relative path does not count."""
    cache, user = environ.get("XDG_CACHE_HOME"), environ.get("HOME")
    found = [cache] if cache else [os.path.join(user, ".cache")] if user else []
    if home := environ.get("PENSTOCK_HOME"):
        found.append(os.path.join(home, "cache"))
    return [Path(path, *_FOLDER) for path in found if os.path.isabs(path)]
