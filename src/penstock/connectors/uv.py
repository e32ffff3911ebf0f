"""Runs uv and finds this machine's Pythons, for ``install``; quotes uv's messages when it fails.

uv is the one shipped as a Python package; its cache and index settings are the user's own. It never
downloads a Python, and runs code of packages only under a confinement. Not here: the folders of
environments and when they are built (``install``).
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from penstock.errors import ConnectorError, Role
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.limits import Confinement
from penstock.runtimes.process import ProcessRuntime

Progress = Callable[[str], None]

_TOTAL = 1800.0
_QUOTED_LINES = 15
_INDEX = re.compile(
    r"UV_(?!PUBLISH|PYTHON|PROJECT|TOOL)|NETRC$|XDG_(CACHE|CONFIG|DATA)_HOME$|GIT_SSL_CAINFO$"
    r"|SSL_CERT_(FILE|DIR)$|REQUESTS_CA_BUNDLE$|CURL_CA_BUNDLE$"
    r"|(https?|all|no)_proxy$|(HTTPS?|ALL|NO)_PROXY$"
)
"""Variables that reach the package index: its settings, certificates, proxies."""
NOT_THEIRS = re.compile(r"(PENSTOCK|SPARK|PYSPARK|PYTHON|VIRTUAL_ENV|CONDA)")


class Python(msgspec.Struct, frozen=True):
    """A Python interpreter of this machine."""

    path: str
    version: tuple[int, int, int]

    @property
    def minor(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"


class UvFailed(Exception):
    """Raised where uv fails. ``words``: its messages, without warnings."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


def find_uv() -> str:
    """Returns uv's path. Raises ``ConnectorError`` (``connector.uv_missing``)."""
    import uv

    try:
        return uv.find_uv_bin()
    except FileNotFoundError:
        found = shutil.which("uv")
    if found is None:
        raise ConnectorError(
            "uv is not installed, and connectors cannot be built without it",
            code="connector.uv_missing",
            hint="pip install uv",
        )
    return found


def run_uv(
    progress: Progress,
    *arguments: str,
    confinement: Confinement | None = None,
    cache: Path | None = None,
    seconds: float | None = None,
    role: Role = "source",
) -> str:
    """Runs uv and returns its stdout. It runs in an empty directory, so that no project's settings
    apply, and dies with this process. ``confinement``: uv may build packages from source with the
    Python that it is given (``source_builds``), under this confinement, with ``cache`` in place of
    the user's, and with only the fixed environment of every connector and those of our variables
    that lead to the index; without it no code of a package runs. Raises :class:`UvFailed`, the
    error of ``role`` (``source.memory``)."""
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        if line and not line.startswith((" ", "warning:", "error:", "hint:")):
            progress(line)

    env = {
        k: v
        for k, v in os.environ.items()
        if (not NOT_THEIRS.match(k) if confinement is None else _INDEX.match(k))
    }
    env["UV_PYTHON_DOWNLOADS"] = "never"
    if cache is not None:
        env["UV_CACHE_DIR"] = str(cache)
    never = () if confinement is not None or arguments[0] != "pip" else ("--no-build",)
    bound = min(seconds or _TOTAL, _TOTAL)
    with tempfile.TemporaryDirectory(prefix="penstock-uv-") as folder:
        code, out = run_tool(
            [find_uv(), *arguments, *never, "--no-progress", "--color", "never"],
            env=env,
            cwd=Path(folder),
            hear=hear,
            confinement=confinement or Confinement(env_keys=()),
            seconds=bound,
            role=role,
        )
    if code != 0:
        what = f"no end after {bound:.0f} s" if code is None else f"exit code {code}"
        raise UvFailed(_words(lines) or what)
    return out


def run_tool(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    hear: Callable[[str], None],
    confinement: Confinement,
    seconds: float,
    role: Role = "source",
) -> tuple[int | None, str]:
    """Runs an installer and returns its exit code (None: it did not end in time) and its stdout; it
    dies with this process. ``hear``: receives the lines of its stderr. Raises the error of
    ``role``."""
    runtime = ProcessRuntime(
        list(command),
        env=dict(env),
        log_stderr=hear,
        cwd=str(cwd),
        confinement=confinement,
        role=role,
    )
    out = bytearray()
    deadline = time.monotonic() + seconds
    with runtime.open([], RunTimeouts(stop=5)) as channel:
        while data := channel.read(max(deadline - time.monotonic(), 0.0)):
            out += data
        code = channel.wait(5.0) if data is not None else None
    return code, out.decode(errors="replace")


def _words(lines: list[str]) -> str:
    """Returns the messages from the first error on; a warning is a line and its indented lines."""
    for number, line in enumerate(lines):
        if line.startswith("error:"):
            return "\n".join(lines[number:][-_QUOTED_LINES:])
    return "\n".join([s for s in lines if s.strip()][-_QUOTED_LINES:])


def our_python() -> Python:
    """Returns the base interpreter of the one that runs Penstock: a virtual environment's own could
    be deleted."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    return Python(os.path.realpath(base), sys.version_info[:3])


def other_pythons() -> list[Python]:
    """Returns the other minor versions of CPython on this machine, newest first."""
    try:
        listed = subprocess.run(
            [find_uv(), "python", "list", "--only-installed", "--output-format", "json"],
            capture_output=True,
            timeout=60,
            check=True,
        ).stdout
        entries = msgspec.json.decode(listed, type=list[_Listed])
    except (subprocess.SubprocessError, msgspec.DecodeError, OSError):
        return []
    found: dict[str, Python] = {}
    for e in entries:
        if e.implementation != "cpython" or e.variant != "default" or e.path is None:
            continue
        parts = e.version_parts
        python = Python(e.path, (parts.major, parts.minor, parts.patch))
        if python.version[:2] != sys.version_info[:2]:
            found.setdefault(python.minor, python)
    return sorted(found.values(), key=lambda p: p.version, reverse=True)


class _Parts(msgspec.Struct):
    major: int
    minor: int
    patch: int


class _Listed(msgspec.Struct):
    version_parts: _Parts
    implementation: str
    path: str | None = None
    variant: str = "default"


_CLAUSE = re.compile(r"\s*(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?\s*")


def satisfies(version: tuple[int, int, int], specifier: str) -> bool:
    """Returns whether a Python satisfies a Requires-Python (version specifiers of PEP 440). uv
    ignores upper bounds; old connectors rely on them. A clause that cannot be parsed counts as
    satisfied."""
    for clause in filter(str.strip, specifier.split(",")):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            continue
        operator, text, star = match.groups()
        wanted = tuple(map(int, text.split(".")))
        if not _holds(version, operator, wanted, star is not None):
            return False
    return True


def _holds(
    version: tuple[int, int, int], operator: str, wanted: tuple[int, ...], star: bool
) -> bool:
    padded = (*wanted, 0, 0)[:3]
    same = version[: len(wanted)] == wanted if star else version == padded
    return {
        "==": same,
        "!=": not same,
        ">=": version >= padded,
        ">": version > padded,
        "<=": version <= padded,
        "<": version < padded,
        "~=": version >= padded and version[: len(wanted) - 1] == wanted[:-1],
    }[operator]


def package_files(site_packages: Path, package: str) -> Path | None:
    """Returns the dist-info folder of a package; None: it is missing."""
    for folder in site_packages.glob("*.dist-info"):
        name = folder.name.removesuffix(".dist-info").rpartition("-")[0]
        if re.sub(r"[._-]+", "-", name).lower() == package:
            return folder
    return None
