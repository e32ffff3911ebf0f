"""Makes an environment that has Penstock's wheel, for tests of the package as its users get it.

PySpark is linked from the environment of the tests: its package is a source archive that an
installer may build anew each time (20 s, and 1.4 GB that stay in the installer's cache).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from importlib.metadata import distribution
from pathlib import Path

from uv import find_uv_bin

ROOT = Path(__file__).parents[1]


def environment_with_penstock(place: Path, *packages: str) -> str:
    """Installs a wheel of this checkout and ``packages`` below ``place``; returns the Python."""
    wheel, python = _wheel(place), _environment(place, "pyspark", "py4j")
    _uv("pip", "install", "--python", python, wheel, *packages)
    return python


def environment_from_lock(place: Path, lock: Path, linked: Collection[str], *packages: str) -> str:
    """Installs a wheel of this checkout, exactly what ``lock`` says and ``packages`` below
    ``place``; returns the Python. ``linked``: taken from the environment of the tests instead."""
    wheel, python = _wheel(place), _environment(place, *linked)
    lines = lock.read_text().splitlines()
    kept = [line for line in lines if line.partition("==")[0] not in linked]
    (place / lock.name).write_text("\n".join(kept))
    only = ["--python", python, "--no-deps"]
    _uv("pip", "install", *only, "-r", str(place / lock.name), wheel, *packages)
    return python


def _wheel(place: Path) -> str:
    # as `uv build` does: the source archive, and the wheel out of the archive
    _uv("build", "--out-dir", str(place / "wheels"), str(ROOT))
    (wheel,) = (place / "wheels").glob("*.whl")
    return str(wheel)


def _environment(place: Path, *linked: str) -> str:
    environment = place / "environment"
    _uv("venv", "--python", sys.executable, str(environment))
    (installed,) = environment.glob("lib/python*/site-packages")
    for name in linked:
        _link(name, installed)
    return str(environment / "bin" / "python")


def _link(name: str, installed: Path) -> None:
    files = distribution(name).files
    assert files is not None
    for file in files:
        target = installed / file
        if not target.resolve().is_relative_to(installed):
            continue  # a script of bin
        target.parent.mkdir(parents=True, exist_ok=True)
        source = Path(str(file.locate()))
        try:
            os.link(source, target)
        except OSError:  # another file system
            shutil.copy2(source, target)


def _uv(*words: str) -> None:
    done = subprocess.run(
        [find_uv_bin(), *words[:1], "--quiet", *words[1:]],
        capture_output=True, text=True, timeout=500, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
