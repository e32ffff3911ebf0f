"""Installs a connector's npm package into an environment of its own, once.

Works as ``install`` does for Python: the exact version is looked up, all dependencies are resolved
into a lock with their integrity hashes, and the folder, named by the lock's hash, is made with
``npm ci``, which checks them. No script of a package runs. npm's registry and credentials are the
user's own settings. Neighbours: ``install`` calls, ``environments`` keeps the folders.
"""

import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from penstock.connectors.environments import (
    Environment,
    Installed,
    discard,
    discard_unfinished,
    installed_of,
    locked,
    mark_ready,
    new_folder,
    package_folder,
)
from penstock.connectors.package_request import PackageRequest
from penstock.connectors.uv import NOT_THEIRS, Progress, run_tool
from penstock.errors import ConnectorError
from penstock.runtimes.limits import Confinement

_BOUND = 1800.0
_LOCK, _PACKAGE, _MODULES = "package-lock.json", "package.json", "node_modules"
_QUIET = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
_MAIN = "index.js"
_QUOTED_LINES = 15
_NOT_FOUND = ("E404", "ETARGET")


class _NpmFailed(Exception):
    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


def find_node() -> str:
    """Returns the path of Node.js. Raises ``ConnectorError`` (``connector.node_missing``)."""
    return _program("node")


def ensure(
    wanted: PackageRequest, connectors: Path, progress: Progress, *, upgrade: bool = False
) -> Installed:
    """Returns the installed environment, and makes it first if it is missing. ``upgrade``: query
    the registry in any case. Raises ``ConnectorError`` (``connector.node_missing``,
    ``connector.not_found``, ``connector.install_failed``, ``connector.no_executable``)."""
    find_node()
    folder = package_folder(connectors, wanted.protocol, wanted.package)
    if not upgrade and (ready := _ready(wanted, folder)) is not None:
        return ready
    with locked(folder, progress):
        if not upgrade and (ready := _ready(wanted, folder)) is not None:
            return ready
        discard_unfinished(folder)
        try:
            progress(f"looking up {wanted.package} at npm")
            version = _version(wanted)
            progress(f"resolving what {wanted.package} {version} needs")
            lock = _resolved(wanted.package, version)
            environment = Environment(
                protocol=wanted.protocol,
                package=wanted.package,
                version=version,
                key=_key(lock),
                lock=lock,
                python="",
                script="",
                folder=str(connectors),
                manager="npm",
            )
            for ready in installed_of(folder):
                if ready.environment.key == environment.key:
                    return ready
            return _build(wanted, environment, folder, progress)
        except _NpmFailed as e:
            raise _failed(wanted, e.words) from None


def rebuild(environment: Environment, wanted: PackageRequest) -> Installed:
    """Makes an environment from the same lock on a host that lacks it. Raises as :func:`ensure`."""
    folder = package_folder(Path(environment.folder), environment.protocol, environment.package)
    with locked(folder, _silent):
        for ready in installed_of(folder):
            if ready.environment.key == environment.key:
                return ready
        discard_unfinished(folder)
        try:
            return _build(wanted, environment, folder, _silent)
        except _NpmFailed as e:
            raise _failed(wanted, e.words) from None


def _silent(text: str) -> None:
    """Drops a line of progress."""


def _ready(wanted: PackageRequest, folder: Path) -> Installed | None:
    found = installed_of(folder)
    return next((e for e in found if wanted.version in (None, e.environment.version)), None)


def _version(wanted: PackageRequest) -> str:
    """Looks up the exact version."""
    asked = f"{wanted.package}@{wanted.version or 'latest'}"
    with tempfile.TemporaryDirectory(prefix="penstock-npm-") as scratch:
        said = _npm(Path(scratch), "view", asked, "version", "--json").strip()
    found = msgspec.json.decode(said) if said else None
    if not isinstance(found, str):
        raise _NpmFailed(f"ETARGET no version of {wanted.package} is {wanted.version}")
    return found


def _resolved(package: str, version: str) -> str:
    """Returns the lock's text: every package with its integrity hash."""
    with tempfile.TemporaryDirectory(prefix="penstock-npm-") as scratch:
        folder = Path(scratch)
        (folder / _PACKAGE).write_bytes(_manifest(package, version))
        _npm(folder, "install", "--package-lock-only", "--ignore-scripts", *_QUIET)
        text = (folder / _LOCK).read_text("utf-8")
    packages: Mapping[str, Any] = msgspec.json.decode(text)["packages"]
    loose = [name for name, manifest in packages.items() if name and not manifest.get("integrity")]
    if loose:
        raise _NpmFailed(f"these have no integrity hash, so that they cannot be locked: {loose}")
    return text


def _manifest(package: str, version: str) -> bytes:
    content = {"name": "penstock-connector", "private": True, "dependencies": {package: version}}
    return msgspec.json.encode(content)


def _key(lock: str) -> str:
    basis = f"{lock}\n{platform.system()}\n{platform.machine()}"
    return hashlib.sha256(basis.encode()).hexdigest()[:12]


def _build(
    wanted: PackageRequest, environment: Environment, folder: Path, progress: Progress
) -> Installed:
    path = new_folder(folder, environment)
    try:
        (path / _LOCK).write_text(environment.lock, "utf-8")
        (path / _PACKAGE).write_bytes(_manifest(environment.package, environment.version))
        pins = len(msgspec.json.decode(environment.lock)["packages"]) - 1
        progress(f"installing {pins} packages for {wanted.name} {environment.version}")
        _npm(path, "ci", "--ignore-scripts", *_QUIET)
        script = _script(wanted, path)
        entry = Installed(
            name=wanted.name,
            environment=msgspec.structs.replace(environment, script=script),
            path=str(path),
            built_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )
        mark_ready(entry)
    except BaseException:
        discard(path)
        raise
    progress(f"{wanted.name} {environment.version} is ready")
    return entry


def _script(wanted: PackageRequest, path: Path) -> str:
    """Returns the file that Node.js runs, under ``path``: the package's ``main``."""
    own = Path(_MODULES) / wanted.package
    manifest = msgspec.json.decode((path / own / _PACKAGE).read_bytes())
    main = os.path.normpath(own / str(manifest.get("main") or _MAIN))
    for script in (main, f"{main}.js", f"{main}/{_MAIN}"):
        if (path / script).is_file() and Path(script).is_relative_to(own):
            return script
    raise ConnectorError(
        f"connector {wanted.reference!r}: package {wanted.package} has no file {main}",
        code="connector.no_executable",
        hint="its `main` is what a host runs; is it a connector?",
    )


def _npm(folder: Path, *arguments: str) -> str:
    """Runs npm in ``folder`` and returns its stdout; it dies with this process."""
    lines: list[str] = []
    env = {k: v for k, v in os.environ.items() if not NOT_THEIRS.match(k)}
    code, out = run_tool(
        [_program("npm"), *arguments],
        env=env,
        cwd=folder,
        hear=lines.append,
        confinement=Confinement(env_keys=()),
        seconds=_BOUND,
    )
    if code != 0:
        said = [re.sub(r"^npm (?:error|ERR!) ?(?:code )?", "", line) for line in lines]
        words = [line for line in said if line.strip() and "A complete log" not in line]
        what = f"no end after {_BOUND:.0f} s" if code is None else f"exit code {code}"
        raise _NpmFailed("\n".join(words[:_QUOTED_LINES]) or what)
    return out


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ConnectorError(
            f"a connector that is a package of npm needs Node.js, and `{name}` is not installed",
            code="connector.node_missing",
            hint="install Node.js 18 or newer, or run the connector's image: PROTOCOL:docker:IMAGE",
        )
    return found


def _failed(wanted: PackageRequest, words: str) -> ConnectorError:
    if any(code in words for code in _NOT_FOUND):
        version = f", version {wanted.version}" if wanted.version else ""
        return ConnectorError(
            f"connector {wanted.reference!r} was not found; tried package {wanted.package}{version}"
            f" of npm. Its answer:\n{words}",
            code="connector.not_found",
            hint=f"check the name; a local one is {wanted.protocol}:./path/to/executable",
        )
    return ConnectorError(
        f"connector {wanted.reference!r} could not be installed. Output of npm:\n{words}",
        code="connector.install_failed",
        hint="is the registry reachable? Its address and proxies are npm's own settings (.npmrc)",
    )
