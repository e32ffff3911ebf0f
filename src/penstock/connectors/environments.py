"""Manages the folders of connector environments: their marker, their lock, their removal.

    CONNECTORS/PROTOCOL/PACKAGE/VERSION-KEY[-N]/   venv/  lock.txt  spec.json  READY

A virtual environment cannot be moved, so it is built in its final folder. ``READY``, written last,
marks it as complete; a folder without it is an interrupted build. Not here: how they are built
(``install``).
"""

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Literal

import msgspec

from penstock.errors import ConnectorError
from penstock.files import replace, sync_file_system


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """An installed package; enough to build the same one elsewhere. ``lock``: its exact pins with
    the hashes of their files. ``key``: derived from the lock and the ``python`` minor version, part
    of its folder's name. ``sources``: its packages that are built from source. ``url``: the
    package's address, where the user gave one. ``manager``: what installed it; with ``npm`` the
    lock has integrity hashes, no Python is used, and ``script`` is a file for Node.js."""

    protocol: str
    package: str
    version: str
    key: str
    lock: str
    python: str
    script: str
    folder: str
    sources: tuple[str, ...] = ()
    url: str | None = None
    manager: Literal["pip", "npm"] = "pip"


_READY = "READY"
_LOCK_BOUND = 3600.0


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """A complete environment. ``built_at``: ISO 8601, UTC. ``constraints``: those the user added
    when it was resolved. ``exact``: it was built when a name meant exactly that package; one that
    was built before may also have served a shorter name."""

    name: str
    environment: Environment
    path: str
    built_at: str
    constraints: tuple[str, ...] = ()
    exact: bool = False

    @property
    def executable(self) -> str:
        """Returns the path of the connector's script."""
        if self.environment.manager == "npm":
            return os.path.join(self.path, self.environment.script)
        return os.path.join(self.path, "venv", "bin", self.environment.script)


def package_folder(connectors: Path, protocol: str, package: str) -> Path:
    """Returns the folder of a package's environments."""
    return connectors / protocol / package.replace("/", "+")


def installed(connectors: Path) -> list[Installed]:
    """Returns every complete environment, by protocol, name and version (newest first)."""
    found = [e for folder in connectors.glob("*/*/") for e in installed_of(folder)]
    return sorted(found, key=lambda i: (i.environment.protocol, i.name))


def installed_of(folder: Path) -> list[Installed]:
    """Returns the complete environments of one package, newest version first, then newest build."""
    found = [e for marker in folder.glob(f"*/{_READY}") if (e := _read(marker)) is not None]
    found.sort(key=lambda i: i.built_at, reverse=True)
    found.sort(key=lambda i: version_key(i.environment.version), reverse=True)
    return found


def version_key(version: str) -> tuple[tuple[int, ...], bool]:
    """Returns the sort key of a version: by its release numbers, a final one after its
    pre-releases."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    release = tuple(map(int, match.group().split("."))) if match else ()
    return (release, re.search(r"[a-z]", version.partition("+")[0]) is None)


def new_folder(folder: Path, environment: Environment) -> Path:
    """Creates a folder under a name that no build has used: an interrupted build may still be
    writing for a moment."""
    number = 1
    while True:
        suffix = "" if number == 1 else f"-{number}"
        path = folder / f"{environment.version}-{environment.key}{suffix}"
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1


def mark_ready(entry: Installed) -> None:
    """Writes the marker of a complete environment, once its files are durable: uv and npm sync
    none."""
    body = msgspec.json.format(msgspec.json.encode(entry), indent=1)
    folder = Path(entry.path)
    sync_file_system(folder)
    replace(folder / _READY, body, durable=True, permissions=0o666)


def discard(path: Path) -> None:
    """Deletes an environment, its marker first, so that an interrupted removal leaves nothing that
    looks complete."""
    (path / _READY).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def discard_unfinished(folder: Path) -> None:
    """Deletes the folders of interrupted builds."""
    for path in folder.iterdir():
        if path.is_dir() and _read(path / _READY) is None:
            discard(path)


@contextlib.contextmanager
def locked(folder: Path, waiting: Callable[[str], None]) -> Generator[None]:
    """Holds a package's lock, so that one process at a time builds it; ``waiting`` is called once
    if another process holds it. Raises ``ConnectorError`` after an hour."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as e:
        raise ConnectorError(
            f"connectors cannot be installed under {folder}: {e}",
            code="connector.install_failed",
            hint="choose another place with --home or PENSTOCK_HOME",
        ) from e
    try:
        _take(fd, folder, waiting)
        yield
    finally:
        os.close(fd)


def _take(fd: int, folder: Path, waiting: Callable[[str], None]) -> None:
    deadline = time.monotonic() + _LOCK_BOUND
    announced = False
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ConnectorError(
                    f"another process has been building {folder.name} for an hour",
                    code="connector.install_failed",
                    hint=f"end it, or remove {folder}",
                ) from None
        if not announced:
            waiting(f"waiting: another process builds {folder.name}")
            announced = True
        time.sleep(0.1)


def _read(marker: Path) -> Installed | None:
    """Returns the environment of a marker; None: it is incomplete, was moved, or its Python is gone
    (npm has none)."""
    try:
        entry = msgspec.json.decode(marker.read_bytes(), type=Installed)
    except (OSError, msgspec.DecodeError):
        return None
    entry = msgspec.structs.replace(entry, path=str(marker.parent))
    python = marker.parent / "venv" / "bin" / "python"
    whole = entry.environment.manager == "npm" or os.path.exists(python)
    return entry if whole and os.path.exists(entry.executable) else None
