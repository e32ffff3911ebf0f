"""Decides whether packages without a wheel may be built from source, and confines the code that a
build runs.

A build, and often the query for a package's dependencies, runs code of its publisher. That code
gets the permissions that the user grants the connector itself, sees neither our environment
variables nor the settings and passwords of the package index, and has a cache of its own, since
other projects would trust the results of builds in the user's.

uv queries the index, downloads, checks hashes and installs; it runs code of packages only in
processes of its build Python. That Python is a stand-in: a script that enters the namespaces
(``runtimes.linux_sandbox``) and then becomes the Python. uv keeps the network and the passwords;
the code has neither. Considered and rejected: a relay into a namespace that holds uv too (the
passwords would be next to the code, and an index that takes uploads is a way out), and to download
everything first (the build dependencies of a package may be known only by running it, and may be
source themselves: that would be a second resolver). Before any build, a check ensures that uv
builds with the stand-in. Not here: the steps (``install``), running uv (``uv``).
"""

import contextlib
import email.parser
import functools
import marshal
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec

from penstock.config.sections import NetworkPermissions
from penstock.connectors import uv
from penstock.connectors.package_request import PackageRequest
from penstock.connectors.uv import Progress, Python, UvFailed
from penstock.errors import ConnectorError, Role
from penstock.runtimes.env import clean_environment
from penstock.runtimes.limits import (
    ENCLOSURE,
    Confinement,
    confinement,
    no_namespace,
    unenforceable,
)
from penstock.runtimes.linux_sandbox import StandIn

PKG_RESOURCES = "setuptools<80"
"""The last versions of setuptools that have all of ``pkg_resources``."""
_NEEDS_WHEELS = re.compile(
    r"Wheels are required for `([^`]+)`|Because (\S+?)(?:==\S+)? has no usable"
)
_ASKED = "import sys; print(sys.executable, sys.base_prefix, sys.base_exec_prefix, sep='\\n')"
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
_PLACES = ("NETRC", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
_SECONDS = 60.0


class BuildPolicy(msgspec.Struct, frozen=True):
    """How packages without a wheel may be built. ``confinement``: the confinement of builds; None:
    nothing may be built, because of ``why``. ``folder``: scratch, deleted at the end of
    :func:`builds_of`."""

    folder: Path
    confinement: Confinement | None = None
    why: str = ""
    seconds: float | None = None
    role: Role = "source"

    @property
    def cache(self) -> Path:
        """Returns uv's cache for builds."""
        return self.folder / "cache"

    def python(self, python: Python, progress: Progress) -> Python:
        """Returns the build Python for uv: a stand-in for the given one. On systems other than
        Linux, which cannot confine it, the Python itself. Raises ``ConnectorError``
        (``connector.build_refused``) where uv would build with another one."""
        if self.confinement is None or not sys.platform.startswith("linux"):
            return python
        folder = self.folder / f"python{python.minor}"
        stand_in = msgspec.structs.replace(python, path=str(folder / "bin" / "python3"))
        if not folder.exists():
            tried = self.folder / f"tried{python.minor}"
            try:
                self._make_stand_in(python, folder)
                make = ("venv", "--quiet", "--python", stand_in.path, str(tried))
                uv.run_uv(progress, *make, cache=self.cache)
            except (UvFailed, OSError, subprocess.SubprocessError) as e:
                raise _not_confined(python.path, str(e)) from None
            self._insist(str(tried / "bin" / "python"))
        return stand_in

    def _make_stand_in(self, python: Python, folder: Path) -> None:
        """Makes a prefix like the Python's own, with another executable."""
        asked = subprocess.run(
            [python.path, "-I", "-S", "-c", _ASKED],
            env=clean_environment(allowed=()),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        if asked.returncode != 0:
            raise UvFailed(f"{python.path} does not run: {asked.stderr.strip()[-500:]}")
        program, *prefixes = asked.stdout.splitlines()
        (folder / "bin").mkdir(parents=True)
        for entry in (e for p in prefixes for e in Path(p).iterdir() if e.name != "bin"):
            with contextlib.suppress(FileExistsError):
                (folder / entry.name).symlink_to(entry)
        home, empty = self.folder / "home", self.folder / "empty"
        home.mkdir(exist_ok=True)
        empty.mkdir(exist_ok=True)
        no_network = self.confinement is not None and self.confinement.no_network
        proxies = (*_PROXIES, *(p.upper() for p in _PROXIES)) if no_network else ()
        order: StandIn = (
            program,
            os.readlink("/proc/self/ns/user") if no_namespace() is None else "",
            no_network,
            _credentials(),
            str(empty),
            (*_PLACES, *proxies),
            {"HOME": str(home)},
        )
        (folder / "order").write_bytes(marshal.dumps(order))
        words = (uv.our_python().path, "-I", "-S", ENCLOSURE, str(folder / "order"))
        script = folder / "bin" / "python3"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$0" "$@"\n')
        script.chmod(0o755)

    def _insist(self, python: str) -> None:
        """Raises unless this is our stand-in, or a virtual environment's link to one."""
        if not sys.platform.startswith("linux"):
            return
        if not Path(python).resolve().is_relative_to(self.folder.resolve()):
            raise _not_confined(python, "uv uses another Python than the given one")

    def run(self, progress: Progress, *arguments: str) -> str:
        """Runs uv, which may build, with a Python from :meth:`python`. Provides an old setuptools
        to a source that needs it to build. Raises as ``run_uv``."""
        confined = self.confinement or Confinement()
        self._insist(arguments[arguments.index("--python") + 1])
        run = functools.partial(
            uv.run_uv,
            progress,
            confinement=msgspec.structs.replace(confined, no_network=False),
            cache=self.cache,
            seconds=self.seconds,
            role=self.role,
        )
        try:
            return run(*arguments)
        except UvFailed as e:
            if "pkg_resources" not in e.words:
                raise
            bound = self.folder / "build-constraints.txt"
            bound.write_text(f"{PKG_RESOURCES}\n")
            return run(*arguments, "--build-constraints", str(bound))

    def requires_python(self, package: str) -> str:
        """Returns the Requires-Python of the source that was unpacked last, from its PKG-INFO;
        empty: it declares none."""
        for source in self._sources(package):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                text = (source / "PKG-INFO").read_text("utf-8")
                return str(email.parser.Parser().parsestr(text, True)["Requires-Python"] or "")
        return ""

    def is_old(self, package: str) -> bool:
        """Returns whether the package has no ``pyproject.toml``: such packages import setuptools
        without declaring it."""
        return any(not (s / "pyproject.toml").exists() for s in self._sources(package))

    def _sources(self, package: str) -> list[Path]:
        """Returns the unpacked sources in uv's cache:
        sdists-vN/INDEX.../NAME/VERSION/REVISION/src."""
        folders = self.cache.glob(f"sdists-v*/**/{package}/*/*/src")
        return [f for f in folders if (f / "setup.py").exists() or (f / "pyproject.toml").exists()]


@contextlib.contextmanager
def builds_of(wanted: PackageRequest, folder: Path) -> Generator[BuildPolicy]:
    """Yields the builds of a package, with a scratch folder in ``folder`` that is deleted at the
    end."""
    with tempfile.TemporaryDirectory(prefix=".uv-", dir=folder) as scratch:
        yield _builds(wanted, Path(scratch).absolute())


def _builds(wanted: PackageRequest, folder: Path) -> BuildPolicy:
    if not wanted.builds:
        return BuildPolicy(
            folder, why="builds are not allowed here (--no-builds, or install.builds)"
        )
    permissions = wanted.permissions
    if permissions is not None and permissions.network is not None:
        # A build needs no network, even if the connector may use one: uv downloads for it.
        nothing = NetworkPermissions(allowed_hosts=())
        permissions = msgspec.structs.replace(permissions, network=nothing)
    if problems := unenforceable(permissions, wanted.limits):
        return BuildPolicy(folder, why="; ".join(problems))
    confined = confinement(permissions, wanted.limits)
    seconds = wanted.limits.timeout_seconds if wanted.limits else None
    # The connector's variables are not for its build.
    return BuildPolicy(
        folder, msgspec.structs.replace(confined, env_keys=()), "", seconds, wanted.role
    )


def _credentials() -> tuple[str, ...]:
    """Returns the files and folders that may hold passwords for package indexes and
    repositories."""
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    data = os.environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
    named = ("NETRC", "UV_CONFIG_FILE", "UV_CREDENTIALS_DIR", "PIP_CONFIG_FILE")
    places = (
        *(os.environ.get(name, "") for name in named),
        *(f"{home}/{name}" for name in (".netrc", ".pypirc", ".pip", ".git-credentials")),
        *(
            f"{f}/{n}"
            for f in {config, f"{home}/.config"}
            for n in ("uv", "pip", "git/credentials")
        ),
        *(f"{f}/uv/credentials" for f in {data, f"{home}/.local/share"}),
        *("/etc/uv", "/etc/xdg/uv", "/etc/xdg/pip", "/etc/pip.conf"),
    )
    return tuple(p for p in places if p and os.path.exists(p))


def needs_build(words: str) -> str | None:
    """Returns the package that has no wheel, from uv's message; None: the message reports something
    else."""
    found = _NEEDS_WHEELS.search(words)
    return next(filter(None, found.groups())) if found else None


def refused(wanted: PackageRequest, package: str, why: str) -> ConnectorError:
    """Returns the error for a package that would have to be built and may not be."""
    return ConnectorError(
        f"connector {wanted.reference!r}: {package} exists as source only, and a build runs its "
        f"code: {why}",
        code="connector.build_refused",
        hint="build it once where that is allowed (`penstock add`): an existing environment is "
        "used; or choose a version that has wheels",
    )


def _not_confined(python: str, why: str) -> ConnectorError:
    return ConnectorError(
        f"packages cannot be built with {python} here, as their code would not be confined: {why}",
        code="connector.build_refused",
        hint="--no-builds installs wheels alone; or use another Python, or another version of uv",
    )


def source_only(
    lock: str, python: Python, builds: BuildPolicy, progress: Progress, known: Sequence[str] = ()
) -> tuple[str, ...]:
    """Returns the packages of a lock that have no wheel, including ``known``. It queries uv, which
    names one at a time and runs no code."""
    found = list(known)
    while True:
        with tempfile.TemporaryDirectory(prefix="penstock-lock-") as scratch:
            rest = Path(scratch) / "lock.txt"
            rest.write_text(without(lock, found))
            dry = ("pip", "install", "--dry-run", "--quiet", "--no-deps", "--python", python.path)
            where = ("--target", f"{scratch}/packages", "--requirements", str(rest))
            try:
                uv.run_uv(progress, *dry, *where, cache=builds.cache)
            except UvFailed as e:
                name = needs_build(e.words)
                if name is None or name in found:
                    raise
                found.append(name)
                continue
            return tuple(sorted(found))


def without(lock: str, packages: list[str]) -> str:
    """Returns the lock without some packages; an entry's continuation lines are indented."""
    kept: list[str] = []
    dropping = False
    for line in lock.splitlines(keepends=True):
        if not line.startswith((" ", "\t")):
            dropping = re.split(r"[=@ \[;]", line, maxsplit=1)[0].strip().lower() in packages
        if not dropping:
            kept.append(line)
    return "".join(kept)
