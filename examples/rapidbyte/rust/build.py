"""Build the Rust connectors with one command: ``python build.py``.

Needs cargo and rustup (https://rustup.rs); fetches the target ``wasm32-wasip2`` where it is
missing. The components are left in ``dist/``. ``--quick`` builds them without optimization, in half
the time: they do the same, slower. Not here: a cache by what they are built from
(``tests/examples/rust_guests.py``).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = "wasm32-wasip2"
PACKAGES = {"source-postgres": "source_postgres", "dest-postgres": "dest_postgres"}


class CannotBuild(Exception):
    """What is missing on this machine, or what cargo said."""


def build(into: Path, work: Path = HERE / "target", *, quick: bool = False) -> dict[str, Path]:
    """Crate to component. ``work``: where cargo keeps what it compiled."""
    if missing := unavailable():
        raise CannotBuild(missing)
    profile = "quick" if quick else "release"
    options = "--locked", "--profile", profile, "--target", TARGET, "--target-dir", str(work)
    run("cargo", "build", *options)
    into.mkdir(parents=True, exist_ok=True)
    made: dict[str, Path] = {}
    for package, name in PACKAGES.items():
        made[package] = into / f"{name}.wasm"
        shutil.copyfile(work / TARGET / profile / f"{package}.wasm", made[package])
    return made


def unavailable() -> str | None:
    """Why nothing can be built here; the target is fetched where it is not there yet."""
    for tool in ("cargo", "rustup"):
        if found(tool) is None:
            return f"{tool} is not installed (https://rustup.rs)"
    try:
        if TARGET not in run("rustup", "target", "list", "--installed").split():
            run("rustup", "target", "add", TARGET)
    except CannotBuild as e:
        return f"the target {TARGET} cannot be had: {e}"
    return None


def found(tool: str) -> str | None:
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    return shutil.which(tool) or shutil.which(tool, path=str(home / "bin"))


def run(tool: str, *arguments: str) -> str:
    command = [found(tool) or tool, *arguments]
    try:
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=1800)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise CannotBuild(str(e)) from e
    if done.returncode != 0:
        raise CannotBuild(f"{' '.join(command)}: {done.stderr.strip()[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    try:
        for path in build(HERE / "dist", quick="--quick" in sys.argv[1:]).values():
            sys.stdout.write(f"{path}  {path.stat().st_size / 1e6:.1f} MB\n")
    except CannotBuild as e:
        sys.exit(str(e))
