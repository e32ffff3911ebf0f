"""Describes a package to install, and the names under which it may be in the package index. No I/O,
except that a hint may read the index of connectors (``catalog``).

Neighbours: ``resolve`` makes a :class:`PackageRequest` from a reference, ``install`` builds it.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches

import msgspec

from penstock.config.protocol_spec import specs
from penstock.config.sections import Limits, Permissions
from penstock.errors import ConnectorError, Role

WHY = {
    "connector.not_found": "was not found",
    "connector.install_failed": "cannot be installed",
}
"""Errors after which another package of the same name is tried."""


class PackageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A package to install. ``reference``: as the user wrote it. ``package``: the index's name;
    ``alternatives``: other names that it may have there, in the order to try. ``scripts``: names
    that its executable may have, best first. ``prefixes``: how connectors' names begin.
    ``constraints``: requirement lines that bound its dependencies, for an old connector that a
    newer dependency broke. ``url``: the package's address, in place of the index. ``builds``:
    packages without a wheel may be built, under ``permissions`` and ``limits``, which are the
    connector's own. ``role``: of the connector. ``as_before``: the pipeline ran when a name could
    also mean one of ``alternatives``; the request keeps that meaning."""

    protocol: str
    reference: str
    name: str
    package: str
    version: str | None = None
    scripts: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    url: str | None = None
    builds: bool = True
    permissions: Permissions | None = None
    limits: Limits | None = None
    role: Role = "source"
    as_before: bool = False

    @property
    def candidates(self) -> "list[PackageRequest]":
        """Returns one request for each package that it may be."""
        names = (self.package, *self.alternatives)
        return [msgspec.structs.replace(self, package=n, alternatives=()) for n in names]


def taken_for_granted(wanted: PackageRequest) -> list[str]:
    """Returns the constraints that must also be installed: old packages import ``pkg_resources``,
    which is part of setuptools, without declaring it."""
    return [c for c in wanted.constraints if re.match(r"setuptools\b", c.strip())]


def pin(wanted: PackageRequest) -> str:
    """Returns the requirement line of a package: its URL, or its name with its version."""
    if wanted.url is not None:
        return wanted.url
    return wanted.package + (f"=={wanted.version}" if wanted.version else "")


def advice(protocol: str, name: str, installed: Iterable[str]) -> str | None:
    """Returns a hint for ``PROTOCOL:NAME``, which the package index lacks; None without a similar
    known name. ``installed``: names of that protocol's installed connectors."""
    from penstock.connectors.catalog import suggest  # only this hint reads the index

    spec = specs()[protocol]
    if name in spec.images:
        listed = f"{protocol}:docker:{spec.image_folder}{name}"
        instead = spec.images[name]
    else:
        listed = suggest.listed_as(protocol, name)
        instead = suggest.package_instead(protocol, name)
    if listed is not None:
        kind = "a container image" if ":docker:" in listed else "a repository"
        other = f"; {instead} does the same as a package" if instead else ""
        return f"it exists as {kind}: {listed}{other}"
    known = [*installed, *spec.images, *suggest.names(protocol)]
    close = get_close_matches(name, known, 1, cutoff=0.75)
    if not close or close[0] == name:
        return None
    return f"did you mean {suggest.listed_as(protocol, close[0]) or f'{protocol}:{close[0]}'} ?"


def none_of(wanted: PackageRequest, failed: list[ConnectorError]) -> ConnectorError:
    """Returns the error where no candidate could be installed: of the first candidate that
    exists."""
    found = [e for e in failed if e.code == "connector.install_failed"]
    error = (found or failed)[0]
    if len(failed) > 1:
        tried = ", ".join(
            f"{pin(c)} ({WHY[e.code]})" for c, e in zip(wanted.candidates, failed, strict=True)
        )
        if not found:
            error.message = f"connector {wanted.reference!r} was not found; tried packages: {tried}"
        else:
            error.message += f"\nTried packages: {tried}"
    return error
