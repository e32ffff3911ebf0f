"""What is to be installed, and the packages that it may be. No I/O.

Neighbours: ``source`` makes a :class:`Wanted` of a reference, ``install`` has it built.
"""

import msgspec

from penstock.errors import SourceError

WHY = {
    "connector.not_found": "was not found",
    "connector.install_failed": "cannot be installed",
}
"""Errors after which another package of the same name is tried."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to install. ``reference``: as the user wrote it. ``package``: the index's name;
    ``alternatives``: what else it may be called there, in the order to try. ``scripts``: names its
    executable may have, best first. ``prefixes``: how connectors' names begin. ``constraints``:
    requirement lines that bound its dependencies, for an old connector that a newer one of them
    broke."""

    protocol: str
    reference: str
    name: str
    package: str
    version: str | None = None
    scripts: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ("source-", "destination-")

    @property
    def candidates(self) -> "list[Wanted]":
        """One for each package that it may be."""
        names = (self.package, *self.alternatives)
        return [msgspec.structs.replace(self, package=n, alternatives=()) for n in names]


def pin(wanted: Wanted) -> str:
    return wanted.package + (f"=={wanted.version}" if wanted.version else "")


def none_of(wanted: Wanted, failed: list[SourceError]) -> SourceError:
    """What to say when no candidate could be had: the first that exists tells most."""
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
