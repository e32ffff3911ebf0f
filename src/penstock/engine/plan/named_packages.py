"""Decides which package of the index a pipeline's reference means, and what the store keeps of
this.

A name means exactly that package. Before names were exact, ``singer:tap-x`` could also be a package
under a longer name (``meltanolabs-tap-x``). A pipeline that ran then keeps its package, whatever
its name (L1); a new pipeline gets the named one on every machine. Not here: installing
(``connectors.install``). Neighbour: ``engine.plan.prepare`` stores what a run used.
"""

from collections.abc import Iterable
from typing import TypedDict

from penstock.connectors.connector import RunnableConnector
from penstock.connectors.reference import ConnectorRef, RefKind, parse_ref
from penstock.errors import ConfigError
from penstock.store.contract import Store

_EXACT = "names"  # a row that each run stores, even without packages; no reference has this name


class MeantPackage(TypedDict, total=False):
    """Options of ``connectors.resolve``."""

    package: str
    as_before: bool


def meant(store: Store, pipeline: str, use: str) -> MeantPackage:
    """Returns the package that the reference ``use`` means in this pipeline; empty: the package of
    that name."""
    ref = parse_ref(use)
    if ref.kind is not RefKind.package or ref.url is not None:
        return {}
    known = store.remembered(pipeline, ()).packages
    if _key(ref) in known:
        return {"package": known[_key(ref)]}
    return {} if known or store.source_of(pipeline) is None else {"as_before": True}


def used(connectors: Iterable[RunnableConnector]) -> dict[str, str]:
    """Returns what is stored about the packages that a run uses (``Remembered.packages``)."""
    found = {_EXACT: "exact"}
    for connector in connectors:
        if connector.package is not None:
            found[_key(connector.ref)] = connector.package
    return found


def other_name(store: Store, pipeline: str, before: str, now: ConnectorRef) -> bool:
    """Whether the references ``before`` and ``now`` name the same package in this pipeline."""
    try:
        old = parse_ref(before)
    except ConfigError:
        return False
    packages = store.remembered(pipeline, ()).packages
    if old.protocol != now.protocol or None in (old.name, now.name) or old.url or now.url:
        return False
    return packages.get(_key(old), old.name) == packages.get(_key(now), now.name)


def _key(ref: ConnectorRef) -> str:
    return f"{ref.protocol}:{ref.name}"
