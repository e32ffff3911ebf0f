"""Determines whether a connector of the index can run on this machine, before anything is
installed.

Every run needs a Python and a Java; a package needs uv, a repository git too, an image a container
engine. These are the checks of ``doctor``. Each is made once, and only where a connector needs it:
a search for packages must not wait for an engine that does not answer. Not here: whether a package
accepts this Python or an image this processor, which only its installation shows.
"""

import shutil
from collections.abc import Callable, Mapping

from penstock.connectors import uv
from penstock.connectors.catalog.index import IndexedConnector, Need
from penstock.engine.inspect.machine_checks import DoctorCheck, guarded, java_check, python_check
from penstock.runtimes.container.engine import find_engine


class ThisMachine:
    """What this machine has, as far as it was checked."""

    def __init__(self) -> None:
        self._made: dict[str, DoctorCheck] = {}

    def lacks(self, connector: IndexedConnector) -> list[DoctorCheck]:
        """Returns the checks that fail for a connector; empty: it runs here."""
        names = ("python", "java", *_NEEDED[connector.needs])
        return [check for check in map(self._check, names) if not check.ok]

    def _check(self, name: str) -> DoctorCheck:
        if name not in self._made:
            self._made[name] = guarded(name, _CHECKS[name])
        return self._made[name]


def _uv() -> DoctorCheck:
    return DoctorCheck(name="uv", ok=True, detail=uv.find_uv())


def _git() -> DoctorCheck:
    found = shutil.which("git")
    if found is None:
        return DoctorCheck(
            name="git",
            ok=False,
            detail="git is not installed, and a connector without a package comes from a "
            "repository",
            fix="install git",
        )
    return DoctorCheck(name="git", ok=True, detail=found)


def _containers() -> DoctorCheck:
    engine = find_engine()
    return DoctorCheck(name="containers", ok=True, detail=f"{engine.kind} {engine.version}")


def _build() -> DoctorCheck:
    return DoctorCheck(
        name="build",
        ok=False,
        detail="it is published neither as a package nor as an image",
        fix="build it as its repository describes, and name its executable: PROTOCOL:./executable",
    )


_NEEDED: Mapping[Need, tuple[str, ...]] = {
    "package": ("uv",),
    "git": ("uv", "git"),
    "image": ("containers",),
    "build": ("build",),
}
_CHECKS: Mapping[str, Callable[[], DoctorCheck]] = {
    "python": python_check,
    "java": java_check,
    "uv": _uv,
    "git": _git,
    "containers": _containers,
    "build": _build,
}
