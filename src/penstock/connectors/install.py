"""A package's name -> an environment of its own, built once.

Steps: look the package up alone (its version, the Pythons it accepts), resolve everything it needs
into exact pins (the lock), build the environment that bears the lock's hash. What is ready is used
without asking the index, also for a name without a version. Neighbours: ``environments`` keeps the
folders, ``uv_tool`` runs uv, ``launch`` carries the result.
"""

import configparser
import contextlib
import email.parser
import hashlib
import platform
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from penstock.connectors import uv_tool
from penstock.connectors.environments import (
    Installed,
    discard,
    discard_unfinished,
    installed_of,
    locked,
    mark_ready,
    new_folder,
    package_folder,
)
from penstock.connectors.launch import Environment
from penstock.connectors.uv_tool import Progress, Python, UvFailed
from penstock.connectors.wanted import WHY, Wanted, none_of, pin
from penstock.errors import SourceError

_NEWER = "3.99"


class _Found(msgspec.Struct, frozen=True):
    version: str
    requires_python: str


def ensure(
    wanted: Wanted, connectors: Path, progress: Progress, *, upgrade: bool = False
) -> Installed:
    """The installed one, built first if need be. ``upgrade``: ask the index even so. Raises
    ``SourceError`` (``connector.not_found``, ``connector.python_missing``,
    ``connector.install_failed``, ``connector.no_executable``, ``connector.uv_missing``)."""
    connectors = connectors.absolute()
    candidates = wanted.candidates
    for candidate in candidates if not upgrade else ():
        folder = package_folder(connectors, candidate.protocol, candidate.package)
        if (ready := _ready(candidate, folder)) is not None:
            return ready
    failed: list[SourceError] = []
    for candidate in candidates:
        try:
            return _ensure(candidate, connectors, progress, upgrade=upgrade)
        except SourceError as e:
            if e.code not in ("connector.not_found", "connector.install_failed"):
                raise
            if candidate.package != candidates[-1].package:
                progress(f"{candidate.package} {WHY[e.code]}; trying another package of that name")
            failed.append(e)
    raise none_of(wanted, failed)


def _ensure(wanted: Wanted, connectors: Path, progress: Progress, *, upgrade: bool) -> Installed:
    """One package of that name. Raises as :func:`ensure` does."""
    folder = package_folder(connectors, wanted.protocol, wanted.package)
    with locked(folder, progress):
        if not upgrade and (ready := _ready(wanted, folder)) is not None:
            return ready
        discard_unfinished(folder)
        try:
            progress(f"looking up {pin(wanted)}")
            found = _look_up(wanted, progress)
            python = _choose_python(wanted, found)
            progress(f"resolving what {wanted.package} {found.version} needs")
            lock = _resolve(wanted, found, python, progress)
            environment = _environment(wanted, found.version, python, lock, connectors)
            for ready in installed_of(folder):
                if ready.environment.key == environment.key:
                    return ready
            return _build(wanted, environment, python, folder, progress)
        except SourceError:
            with contextlib.suppress(OSError):
                if not any(folder.glob("*/")):
                    (folder / ".lock").unlink()
                    folder.rmdir()
            raise


def remove(wanted: Wanted, connectors: Path, progress: Progress) -> list[Installed]:
    """Drop the environments of a name, or of one version of it; what was dropped."""
    dropped: list[Installed] = []
    for candidate in wanted.candidates:
        folder = package_folder(connectors.absolute(), candidate.protocol, candidate.package)
        if not folder.is_dir():
            continue
        with locked(folder, progress):
            found = [
                e
                for e in installed_of(folder)
                if wanted.version in (None, e.environment.version)
                and (candidate.package == wanted.package or e.name == wanted.name)
            ]
            for entry in found:
                discard(Path(entry.path))
            discard_unfinished(folder)
            dropped += found
    return dropped


def rebuild(environment: Environment) -> str:
    """On a host that lacks it: the same pins, no resolution. Its executable."""
    connectors = Path(environment.folder)
    folder = package_folder(connectors, environment.protocol, environment.package)
    wanted = Wanted(
        protocol=environment.protocol,
        reference=f"{environment.package} {environment.version}",
        name=environment.package,
        package=environment.package,
        version=environment.version,
        scripts=(environment.script,),
    )
    with locked(folder, _silent):
        for ready in installed_of(folder):
            if ready.environment.key == environment.key:
                return ready.executable
        discard_unfinished(folder)
        python = next((p for p in _pythons() if p.minor == environment.python), None)
        if python is None:
            raise _no_python(wanted, environment.version, f"=={environment.python}.*")
        return _build(wanted, environment, python, folder, _silent).executable


def _silent(text: str) -> None:
    """Where nobody watches."""


def _ready(wanted: Wanted, folder: Path) -> Installed | None:
    for entry in installed_of(folder):
        version_fits = wanted.version in (None, entry.environment.version)
        if version_fits and entry.constraints == tuple(sorted(wanted.constraints)):
            return entry
    return None


# -- look up


def _pythons() -> Iterator[Python]:
    """Ours first; the others are looked for only when it does not do."""
    yield uv_tool.our_python()
    yield from uv_tool.other_pythons()


def _look_up(wanted: Wanted, progress: Progress) -> _Found:
    """The package alone. Asked first as a Python that is newer than any bound: an older one would
    be given an older version of the connector without a word. A package that holds machine code has
    nothing for that Python, and is asked for again with ours."""
    ours = ("--python", uv_tool.our_python().path)
    with tempfile.TemporaryDirectory(prefix="penstock-lookup-") as scratch:
        target = Path(scratch) / "package"
        install = ("pip", "install", "--quiet", "--no-deps", "--target", str(target), *ours)
        try:
            uv_tool.run_uv(progress, *install, "--python-version", _NEWER, pin(wanted))
        except UvFailed as first:
            if _is_missing(first.words):
                raise _look_up_failed(wanted, first.words) from None
            try:
                uv_tool.run_uv(progress, *install, pin(wanted))
            except UvFailed as e:
                raise _look_up_failed(wanted, e.words) from None
        info = uv_tool.package_files(target, wanted.package)
        if info is None:
            raise _failed(wanted, "the index gave a package of another name")
        metadata = email.parser.Parser().parsestr((info / "METADATA").read_text("utf-8"), True)
    return _Found(str(metadata["Version"]), str(metadata["Requires-Python"] or ""))


def _is_missing(words: str) -> bool:
    return "was not found in" in words and "network was disabled" not in words


def _look_up_failed(wanted: Wanted, words: str) -> SourceError:
    missing = _is_missing(words)
    no_version = "there is no version of" in words or " available and you require" in words
    if not (missing or no_version):
        return _failed(wanted, words)
    tried = f"package {wanted.package}"
    if no_version:
        tried += f", version {wanted.version}"
        newest = _exists(msgspec.structs.replace(wanted, version=None))
        hint = f"the newest version is {newest}" if newest else "leave the version out"
    else:
        hint = f"check the name; a local one is {wanted.protocol}:./path/to/executable"
        for prefix in wanted.prefixes:
            if wanted.name.startswith(wanted.prefixes):
                break
            name = f"{prefix}{wanted.name}"
            package = wanted.package.removesuffix(wanted.name) + name
            if _exists(msgspec.structs.replace(wanted, package=package, version=None)):
                hint = f"did you mean {wanted.protocol}:{name} ?"
                break
    return SourceError(
        f"connector {wanted.reference!r} was not found; tried {tried}. The index's answer:\n"
        f"{words}",
        code="connector.not_found",
        hint=hint,
    )


def _exists(wanted: Wanted) -> str | None:
    """The newest version of a package, or None."""
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-lookup-") as scratch:
            request = Path(scratch) / "request.txt"
            request.write_text(pin(wanted) + "\n")
            answer = uv_tool.run_uv(
                _silent,
                *("pip", "compile", "--quiet", "--no-deps", "--no-annotate", "--no-header"),
                *("--python", uv_tool.our_python().path, str(request)),
            )
    except UvFailed:
        return None
    return answer.strip().rpartition("==")[2] or None


def _choose_python(wanted: Wanted, found: _Found) -> Python:
    for python in _pythons():
        if uv_tool.satisfies(python.version, found.requires_python):
            return python
    raise _no_python(wanted, found.version, found.requires_python)


def _no_python(wanted: Wanted, version: str, requires: str) -> SourceError:
    here = ", ".join(p.minor for p in _pythons())
    return SourceError(
        f"connector {wanted.reference!r} ({wanted.package} {version}) needs Python {requires}; "
        f"here: {here}",
        code="connector.python_missing",
        hint="install such a Python, or choose another version of the connector",
    )


# -- resolve and build


def _resolve(wanted: Wanted, found: _Found, python: Python, progress: Progress) -> str:
    """The lock: exact pins, one a line."""
    with tempfile.TemporaryDirectory(prefix="penstock-lock-") as scratch:
        request = Path(scratch) / "request.txt"
        request.write_text(f"{wanted.package}=={found.version}\n")
        bounds: list[str] = []
        if wanted.constraints:
            constraints = Path(scratch) / "constraints.txt"
            constraints.write_text("\n".join(wanted.constraints) + "\n")
            bounds = ["--constraints", str(constraints)]
        lock = Path(scratch) / "lock.txt"
        try:
            uv_tool.run_uv(
                progress,
                *("pip", "compile", "--no-annotate", "--no-header", "--output-file", str(lock)),
                *(*bounds, "--python", python.path, str(request)),
            )
        except UvFailed as e:
            raise _failed(wanted, e.words) from None
        return lock.read_text("utf-8")


def _environment(
    wanted: Wanted, version: str, python: Python, lock: str, connectors: Path
) -> Environment:
    basis = f"{lock}\n{python.minor}\n{platform.system()}\n{platform.machine()}"
    return Environment(
        protocol=wanted.protocol,
        package=wanted.package,
        version=version,
        key=hashlib.sha256(basis.encode()).hexdigest()[:12],
        lock=lock,
        python=python.minor,
        script="",
        folder=str(connectors),
    )


def _build(
    wanted: Wanted, environment: Environment, python: Python, folder: Path, progress: Progress
) -> Installed:
    path = new_folder(folder, environment)
    try:
        venv = path / "venv"
        lock = path / "lock.txt"
        lock.write_text(environment.lock)
        pins = sum(1 for line in environment.lock.splitlines() if "==" in line)
        progress(f"installing {pins} packages for {wanted.name} {environment.version}")
        uv_tool.run_uv(progress, "venv", "--quiet", "--python", python.path, str(venv))
        uv_tool.run_uv(
            progress,
            *("pip", "install", "--no-deps", "--python", str(venv / "bin" / "python")),
            *("--requirements", str(lock)),
        )
        entry = Installed(
            name=wanted.name,
            environment=msgspec.structs.replace(environment, script=_script(wanted, venv)),
            path=str(path),
            built_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            constraints=tuple(sorted(wanted.constraints)),
        )
        mark_ready(entry)
    except UvFailed as e:
        discard(path)
        raise _failed(wanted, e.words) from None
    except BaseException:
        discard(path)
        raise
    progress(f"{wanted.name} {environment.version} is ready")
    return entry


def _script(wanted: Wanted, venv: Path) -> str:
    """The console script that is the connector."""
    names: list[str] = []
    for site in venv.glob("lib/python*/site-packages"):
        info = uv_tool.package_files(site, wanted.package)
        if info is not None and (info / "entry_points.txt").exists():
            points: Any = configparser.ConfigParser(delimiters=("=",), interpolation=None)
            points.optionxform = str
            points.read(info / "entry_points.txt", "utf-8")
            if points.has_section("console_scripts"):
                names = list(points["console_scripts"])
    for name in wanted.scripts:
        if name in names:
            return name
    likely = [n for n in names if n.startswith(wanted.prefixes)] if len(names) > 1 else names
    if len(likely) == 1:
        return likely[0]
    raise SourceError(
        f"connector {wanted.reference!r}: package {wanted.package} has no executable that is it "
        f"(its scripts: {', '.join(names) or 'none'})",
        code="connector.no_executable",
        hint=f"looked for: {', '.join(wanted.scripts)}; is it a connector?",
    )


def _failed(wanted: Wanted, words: str) -> SourceError:
    offline = any(w in words.lower() for w in ("error sending request", "dns error", "connect"))
    hint = (
        "is the network reachable? Proxies and certificates are taken from the environment"
        if offline
        else "if a dependency is at fault, bound it with a constraint, or try another version"
    )
    return SourceError(
        f"connector {wanted.reference!r} could not be installed. uv's words:\n{words}",
        code="connector.install_failed",
        hint=hint,
    )
