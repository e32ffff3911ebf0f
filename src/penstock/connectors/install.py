"""Installs a connector's package into an environment of its own, once.

Steps: look the package up alone (its version, the Pythons it accepts), resolve all its dependencies
into exact pins with hashes (the lock), build the environment that is named by the lock's hash. A
complete environment is used without a request to the index, also for a name without a version. No
code of a package runs, unless the package has no wheel (``source_builds``). Neighbours:
``environments`` keeps the folders, ``uv`` runs uv, ``launch`` carries the result.
"""

import configparser
import contextlib
import email.parser
import hashlib
import platform
import re
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from penstock.config.protocol_spec import specs
from penstock.config.sections import Limits, Permissions
from penstock.connectors import npm, uv
from penstock.connectors.environments import (
    Environment,
    Installed,
    discard,
    discard_unfinished,
    installed,
    installed_of,
    locked,
    mark_ready,
    new_folder,
    package_folder,
)
from penstock.connectors.moved_dependencies import mending
from penstock.connectors.package_request import (
    WHY,
    PackageRequest,
    advice,
    none_of,
    pin,
    taken_for_granted,
)
from penstock.connectors.source_builds import (
    PKG_RESOURCES,
    BuildPolicy,
    builds_of,
    needs_build,
    refused,
    source_only,
)
from penstock.connectors.uv import Progress, Python, UvFailed
from penstock.errors import ConnectorError, Role, in_role

_NEWER = "3.99"
_OFFLINE = re.compile(
    r"error sending request|client error \(Connect\)|tcp connect error|dns error|Failed to fetch: "
)


class _Found(msgspec.Struct, frozen=True):
    """A package that was looked up. ``requirement``: this version exactly, for the lock.
    ``source``: it has no wheel."""

    package: str
    version: str
    requirement: str
    requires_python: str = ""
    source: bool = False


class _Lock(msgspec.Struct, frozen=True):
    """A lock file's text. ``sources``: packages without a wheel."""

    text: str
    sources: tuple[str, ...] = ()


def ensure(
    wanted: PackageRequest, connectors: Path, progress: Progress, *, upgrade: bool = False
) -> Installed:
    """Returns the installed environment, and builds it first if it is missing. ``upgrade``: query
    the index in any case. Raises the role's error (``connector.not_found``,
    ``connector.python_missing``, ``connector.install_failed``, ``connector.build_refused``,
    ``connector.no_executable``, ``connector.uv_missing``)."""
    with in_role(wanted.role):
        if specs()[wanted.protocol].registry == "npm":
            return npm.ensure(wanted, connectors.absolute(), progress, upgrade=upgrade)
        if wanted.as_before:
            return _any_of(wanted, connectors.absolute(), progress)
        return _named(wanted, connectors.absolute(), progress, upgrade=upgrade)


def _named(
    wanted: PackageRequest, connectors: Path, progress: Progress, *, upgrade: bool
) -> Installed:
    """Installs exactly the named package. Raises ``ConnectorError``, whose hint names packages that
    may be meant."""
    candidate, *others = wanted.candidates
    folder = package_folder(connectors, candidate.protocol, candidate.package)
    if not upgrade and (ready := _ready(candidate, folder)) is not None:
        return ready
    try:
        return _ensure(candidate, connectors, progress, upgrade=upgrade)
    except ConnectorError as e:
        if e.code == "connector.not_found":
            e.hint = _meant(wanted, others, connectors) or e.hint
        raise


def _meant(wanted: PackageRequest, others: list[PackageRequest], connectors: Path) -> str | None:
    """Returns a hint for a name that the index lacks: longer names that it has, or a similar known
    name. None: it has the name, without the version."""
    if wanted.version and _exists(
        msgspec.structs.replace(wanted.candidates[0], version=None), BuildPolicy(connectors)
    ):
        return None
    alone = [msgspec.structs.replace(other, version=None) for other in others]
    named = [o.package for o in alone if _exists(o, BuildPolicy(connectors))]
    if named:
        return f"did you mean {' or '.join(f'{wanted.protocol}:{name}' for name in named)} ?"
    if wanted.version:
        return None
    here = [e.name for e in installed(connectors) if e.environment.protocol == wanted.protocol]
    return advice(wanted.protocol, wanted.name, here)


def _any_of(wanted: PackageRequest, connectors: Path, progress: Progress) -> Installed:
    """Returns what a name meant before names were exact: the first candidate with an environment
    from then, else the first one that can be installed. Raises ``ConnectorError``."""
    candidates = wanted.candidates
    for candidate in candidates:
        folder = package_folder(connectors, candidate.protocol, candidate.package)
        ready = _ready(candidate, folder)
        if ready is not None and not all(entry.exact for entry in installed_of(folder)):
            return ready
    failed: list[ConnectorError] = []
    for candidate in candidates:
        try:
            return _ensure(candidate, connectors, progress, upgrade=False)
        except ConnectorError as e:
            if e.code not in ("connector.not_found", "connector.install_failed"):
                raise
            if candidate.package != candidates[-1].package:
                progress(f"{candidate.package} {WHY[e.code]}; trying another package of that name")
            failed.append(e)
    error = none_of(wanted, failed)
    if error.code == "connector.not_found" and not wanted.version:
        here = [e.name for e in installed(connectors) if e.environment.protocol == wanted.protocol]
        error.hint = advice(wanted.protocol, wanted.name, here) or error.hint
    raise error


def _ensure(
    wanted: PackageRequest, connectors: Path, progress: Progress, *, upgrade: bool
) -> Installed:
    """Installs one candidate. Raises as :func:`ensure` does."""
    folder = package_folder(connectors, wanted.protocol, wanted.package)
    with locked(folder, progress):
        if not upgrade and (ready := _ready(wanted, folder)) is not None:
            return ready
        discard_unfinished(folder)
        try:
            with builds_of(wanted, folder) as builds:
                progress(f"looking up {pin(wanted)}")
                found = _look_up(wanted, builds, progress)
                wanted = msgspec.structs.replace(wanted, package=found.package)
                python, lock = _settle(wanted, found, builds, progress)
                environment = _environment(wanted, found.version, python, lock, connectors)
                for ready in installed_of(folder):
                    if ready.environment.key == environment.key:
                        return ready
                return _build(wanted, environment, python, folder, builds, progress)
        except ConnectorError:
            with contextlib.suppress(OSError):
                if not any(folder.glob("*/")):
                    (folder / ".lock").unlink()
                    folder.rmdir()
            raise


def remove(wanted: PackageRequest, connectors: Path, progress: Progress) -> list[Installed]:
    """Deletes the environments of a name, or of one of its versions. Returns those deleted."""
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
                and wanted.url in (None, e.environment.url)
                and (candidate.package == wanted.package or e.name == wanted.name)
            ]
            for entry in found:
                discard(Path(entry.path))
            discard_unfinished(folder)
            dropped += found
    return dropped


def rebuild(
    environment: Environment,
    permissions: Permissions | None = None,
    limits: Limits | None = None,
    *,
    builds: bool = True,
    role: Role = "source",
) -> str:
    """Builds an environment on a host that lacks it, with the same pins, checked by hash, without a
    resolution; packages without a wheel are built under the same permissions and limits, if that is
    allowed. Returns its executable. Raises the role's error."""
    connectors = Path(environment.folder)
    folder = package_folder(connectors, environment.protocol, environment.package)
    wanted = PackageRequest(
        protocol=environment.protocol,
        reference=f"{environment.package} {environment.version}",
        name=environment.package,
        package=environment.package,
        version=environment.version,
        scripts=(environment.script,),
        url=environment.url,
        builds=builds,
        permissions=permissions,
        limits=limits,
        role=role,
    )
    if environment.manager == "npm":
        with in_role(role):
            return npm.rebuild(environment, wanted).executable
    with in_role(role), locked(folder, _silent):
        for ready in installed_of(folder):
            if ready.environment.key == environment.key:
                return ready.executable
        discard_unfinished(folder)
        python = next((p for p in _pythons() if p.minor == environment.python), None)
        if python is None:
            raise _no_python(wanted, environment.version, f"=={environment.python}.*")
        with builds_of(wanted, folder) as policy:
            return _build(wanted, environment, python, folder, policy, _silent).executable


def _silent(text: str) -> None:
    """Drops a line of progress."""


def _ready(wanted: PackageRequest, folder: Path) -> Installed | None:
    for entry in installed_of(folder):
        version_fits = wanted.version in (None, entry.environment.version)
        if entry.environment.url != wanted.url:
            continue
        if version_fits and entry.constraints == tuple(sorted(wanted.constraints)):
            return entry
    return None


# -- look up


def _pythons() -> Iterator[Python]:
    """Yields the Python that runs Penstock first; the others are searched only when it does not
    fit."""
    yield uv.our_python()
    yield from uv.other_pythons()


def _look_up(wanted: PackageRequest, builds: BuildPolicy, progress: Progress) -> _Found:
    """Looks up the package alone. The first request is for a Python newer than any bound: for an
    older one uv would silently select an older version of the connector. A package with machine
    code has nothing for that Python, and is requested again with the Python that runs Penstock."""
    if wanted.url is not None:
        return _look_at(wanted, builds, progress)
    version = _newest(wanted, builds, progress)
    wanted = msgspec.structs.replace(wanted, version=version)
    ours = ("--python", uv.our_python().path)
    with tempfile.TemporaryDirectory(prefix="penstock-lookup-") as scratch:
        target = Path(scratch) / "package"
        install = ("pip", "install", "--quiet", "--no-deps", "--target", str(target), *ours)
        try:
            uv.run_uv(progress, *install, "--python-version", _NEWER, pin(wanted))
        except UvFailed:
            try:
                uv.run_uv(progress, *install, pin(wanted))
            except UvFailed as e:
                if needs_build(e.words) is None:
                    raise _look_up_failed(wanted, e.words, builds) from None
                return _Found(wanted.package, version, pin(wanted), source=True)
        info = uv.package_files(target, wanted.package)
        if info is None:
            raise _failed(wanted, "the index gave a package of another name")
        metadata = email.parser.Parser().parsestr((info / "METADATA").read_text("utf-8"), True)
    version, requires = str(metadata["Version"]), str(metadata["Requires-Python"] or "")
    return _Found(wanted.package, version, f"{wanted.package}=={version}", requires)


def _look_at(wanted: PackageRequest, builds: BuildPolicy, progress: Progress) -> _Found:
    """Looks up a package at a URL, whose name is known only once it is downloaded. The version of a
    repository is its commit, else a hash of the URL."""
    source = not (wanted.url or "").partition("#")[0].endswith(".whl")
    if source and builds.confinement is None:
        raise refused(wanted, wanted.package, builds.why)
    try:
        answer = _answer_of_compile(wanted, builds, progress).strip()
    except UvFailed as e:
        raise _failed(wanted, e.words) from None
    name, _, place = answer.partition(" @ ")
    commit = re.search(r"@([0-9a-f]{12})[0-9a-f]{28}\b", place)
    version = commit[1] if commit else hashlib.sha256(place.encode()).hexdigest()[:12]
    package = re.sub(r"[._-]+", "-", name.partition("[")[0]).lower()
    return _Found(package, version, answer, source=source)


def _newest(wanted: PackageRequest, builds: BuildPolicy, progress: Progress) -> str:
    """Returns the newest version that can be installed on this machine."""
    try:
        return _ask_newest(wanted, builds, progress, "--python-version", _NEWER)
    except UvFailed as first:
        if _is_missing(first.words):
            raise _look_up_failed(wanted, first.words, builds) from None
    try:
        return _ask_newest(wanted, builds, progress)
    except UvFailed as e:
        package = needs_build(e.words)
        if package is not None and builds.confinement is None:
            raise refused(wanted, package, builds.why) from None
        raise _look_up_failed(wanted, e.words, builds) from None


def _ask_newest(wanted: PackageRequest, builds: BuildPolicy, progress: Progress, *more: str) -> str:
    """Returns the newest version in the package's index entry; builds nothing. Raises
    ``UvFailed``."""
    return _answer_of_compile(wanted, builds, progress, *more).strip().rpartition("==")[2]


def _answer_of_compile(
    wanted: PackageRequest, builds: BuildPolicy, progress: Progress, *more: str
) -> str:
    """Returns the one line of ``uv pip compile --no-deps`` for the package."""
    with tempfile.TemporaryDirectory(prefix="penstock-lookup-") as scratch:
        request = Path(scratch) / "request.txt"
        request.write_text(pin(wanted) + "\n")
        run = uv.run_uv if builds.confinement is None else builds.run
        python = builds.python(uv.our_python(), progress)
        return run(
            progress,
            *("pip", "compile", "--quiet", "--no-deps", "--no-annotate", "--no-header"),
            *("--python", python.path, str(request), *more),
        )


def _is_missing(words: str) -> bool:
    return "was not found in" in words and "network was disabled" not in words


def _look_up_failed(wanted: PackageRequest, words: str, builds: BuildPolicy) -> ConnectorError:
    missing = _is_missing(words)
    no_version = "there is no version of" in words or " available and you require" in words
    if not (missing or no_version):
        return _failed(wanted, words)
    where = f"connector {wanted.reference!r} was not found: the index of packages has no"
    if no_version:
        message = f"{where} version {wanted.version} of {wanted.package}. Its answer:\n{words}"
        newest = _exists(msgspec.structs.replace(wanted, version=None), builds)
        hint = f"the newest version is {newest}" if newest else "leave the version out"
    else:
        message = f"{where} package {wanted.package}"
        hint = f"check the name; a local one is {wanted.protocol}:./path/to/executable"
        for prefix in wanted.prefixes:
            if wanted.name.startswith(wanted.prefixes):
                break
            name = f"{prefix}{wanted.name}"
            package = wanted.package.removesuffix(wanted.name) + name
            other = msgspec.structs.replace(wanted, package=package, version=None)
            if _exists(other, builds):
                hint = f"did you mean {wanted.protocol}:{name} ?"
                break
    return ConnectorError(message, code="connector.not_found", hint=hint)


def _exists(wanted: PackageRequest, builds: BuildPolicy) -> str | None:
    """Returns the newest version of a package, or None."""
    try:
        return _ask_newest(wanted, builds, _silent) or None
    except UvFailed:
        return None


def _settle(
    wanted: PackageRequest, found: _Found, builds: BuildPolicy, progress: Progress
) -> tuple[Python, _Lock]:
    """Returns the Python and the lock. Which Pythons a source package accepts is known only once it
    is unpacked."""
    python = _choose_python(wanted, found)
    progress(f"resolving what {wanted.package} {found.version} needs")
    lock = _resolve(wanted, found, python, builds, progress)
    if found.source:
        requires = builds.requires_python(wanted.package)
        chosen = _choose_python(wanted, msgspec.structs.replace(found, requires_python=requires))
        if chosen != python:
            python, lock = chosen, _resolve(wanted, found, chosen, builds, progress)
    return python, lock


def _choose_python(wanted: PackageRequest, found: _Found) -> Python:
    for python in _pythons():
        if uv.satisfies(python.version, found.requires_python):
            return python
    raise _no_python(wanted, found.version, found.requires_python)


def _no_python(wanted: PackageRequest, version: str, requires: str) -> ConnectorError:
    here = ", ".join(p.minor for p in _pythons())
    return ConnectorError(
        f"connector {wanted.reference!r} ({wanted.package} {version}) needs Python {requires}; "
        f"here: {here}",
        code="connector.python_missing",
        hint="install such a Python, or choose another version of the connector",
    )


# -- resolve and build


def _resolve(
    wanted: PackageRequest, found: _Found, python: Python, builds: BuildPolicy, progress: Progress
) -> _Lock:
    """Resolves the dependencies, from wheels alone where that is possible, which runs no code."""
    package = wanted.package
    if not found.source:
        try:
            return _Lock(_compile(uv.run_uv, wanted, found, python, progress))
        except UvFailed as e:
            needed = needs_build(e.words)
            if needed is None:
                raise _failed(wanted, e.words) from None
            package = needed
    if builds.confinement is None:
        raise refused(wanted, package, builds.why)
    try:
        confined = builds.python(python, progress)
        lock = _compile(builds.run, wanted, found, confined, progress)
        known = [package] if found.source else []
        sources = source_only(lock, python, builds, progress, known)
        if "setuptools==" not in lock and any(map(builds.is_old, sources)):
            with contextlib.suppress(UvFailed):
                lock = _compile(builds.run, wanted, found, confined, progress, PKG_RESOURCES)
    except UvFailed as e:
        raise _failed(wanted, e.words) from None
    return _Lock(lock, sources)


def _compile(
    run: Callable[..., str],
    wanted: PackageRequest,
    found: _Found,
    python: Python,
    progress: Progress,
    *more: str,
) -> str:
    """Returns exact pins with the hashes of their files, one package an entry. ``more``:
    requirements besides the package. Raises ``UvFailed``."""
    with tempfile.TemporaryDirectory(prefix="penstock-lock-") as scratch:
        request = Path(scratch) / "request.txt"
        asked = (found.requirement, *taken_for_granted(wanted), *more)
        request.write_text("".join(f"{line}\n" for line in asked))
        lock = Path(scratch) / "lock.txt"

        def compiled(*bounds: str) -> str:
            run(
                progress,
                *("pip", "compile", "--generate-hashes", "--no-annotate", "--no-header"),
                *("--output-file", str(lock), *bounds, "--python", python.path, str(request)),
            )
            return lock.read_text("utf-8")

        if not wanted.constraints:
            return compiled()
        constraints = Path(scratch) / "constraints.txt"
        constraints.write_text("\n".join(wanted.constraints) + "\n")
        try:
            return compiled("--constraints", str(constraints))
        except UvFailed as e:
            if "No solution found" not in e.words or needs_build(e.words) is not None:
                raise
            return _in_place_of_pins(compiled, constraints, e, progress)


def _in_place_of_pins(
    compiled: Callable[..., str], constraints: Path, contradiction: UvFailed, progress: Progress
) -> str:
    """Resolves with the constraints in place of what packages request: an old connector may pin
    exactly the dependency that no longer works. Raises ``UvFailed``."""
    progress("a package's own pin contradicts the constraints, which replace it")
    try:
        return compiled("--overrides", str(constraints))
    except UvFailed as e:
        if needs_build(e.words) is not None:
            raise
        raise contradiction from None


def _environment(
    wanted: PackageRequest, version: str, python: Python, lock: _Lock, connectors: Path
) -> Environment:
    basis = f"{lock.text}\n{python.minor}\n{platform.system()}\n{platform.machine()}"
    return Environment(
        protocol=wanted.protocol,
        package=wanted.package,
        version=version,
        url=wanted.url,
        key=hashlib.sha256(basis.encode()).hexdigest()[:12],
        lock=lock.text,
        sources=lock.sources,
        python=python.minor,
        script="",
        folder=str(connectors),
    )


def _build(
    wanted: PackageRequest,
    environment: Environment,
    python: Python,
    folder: Path,
    builds: BuildPolicy,
    progress: Progress,
) -> Installed:
    if environment.sources and builds.confinement is None:
        raise refused(wanted, ", ".join(environment.sources), builds.why)
    path = new_folder(folder, environment)
    try:
        venv = path / "venv"
        lock = path / "lock.txt"
        lock.write_text(environment.lock)
        pins = sum(1 for line in environment.lock.splitlines() if "==" in line)
        progress(f"installing {pins} packages for {wanted.name} {environment.version}")
        make = ("venv", "--quiet", "--allow-existing", str(venv), "--python")
        install = ("pip", "install", "--no-deps", "--python", str(venv / "bin" / "python"))
        if environment.sources:
            progress(f"building from source: {', '.join(environment.sources)}")
            uv.run_uv(progress, *make, builds.python(python, progress).path)
            builds.run(progress, *install, "--requirements", str(lock))
            uv.run_uv(progress, *make, python.path)  # the stand-in is only for the build
        else:
            uv.run_uv(progress, *make, python.path)
            uv.run_uv(progress, *install, "--requirements", str(lock))
        entry = Installed(
            name=wanted.name,
            environment=msgspec.structs.replace(environment, script=_script(wanted, venv)),
            path=str(path),
            built_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            constraints=tuple(sorted(wanted.constraints)),
            exact=not wanted.as_before,
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


def _script(wanted: PackageRequest, venv: Path) -> str:
    """Returns the name of the console script that is the connector."""
    names: list[str] = []
    for site in venv.glob("lib/python*/site-packages"):
        info = uv.package_files(site, wanted.package)
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
    raise ConnectorError(
        f"connector {wanted.reference!r}: package {wanted.package} has no connector executable "
        f"(its scripts: {', '.join(names) or 'none'})",
        code="connector.no_executable",
        hint=f"looked for: {', '.join(wanted.scripts)}; is it a connector?",
    )


def _failed(wanted: PackageRequest, words: str) -> ConnectorError:
    if (hint := mending(words, wanted.reference, given=wanted.constraints)) is None:
        # What a build printed is not uv's: a compiler names files that are called connect.c.
        offline = _OFFLINE.search(re.split(r"\[std(?:err|out)\]", words)[0]) is not None
        hint = (
            "is the network reachable? Proxies and certificates are taken from the environment"
            if offline
            else "if a dependency is at fault, bound it with --constraint, or try another version"
        )
    return ConnectorError(
        f"connector {wanted.reference!r} could not be installed. Output of uv:\n{words}",
        code="connector.install_failed",
        hint=hint,
    )
