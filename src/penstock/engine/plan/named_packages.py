"""Decides which package of the index a pipeline's reference means, and what is stored of it.

A name is exactly that package. Before names were exact, ``singer:tap-x`` could also be a package
under a longer name (``meltanolabs-tap-x``): a pipeline that ran then keeps the package that it had,
whatever it is called (L1), and a pipeline that is new has the named one on every machine. Not here:
installing (``connectors.install``). Neighbour: ``engine.plan.prepare`` stores what a run used.
"""

from collections.abc import Iterable
from typing import TypedDict

from penstock.connectors.connector import RunnableConnector
from penstock.connectors.reference import ConnectorRef, RefKind, parse_ref
from penstock.errors import ConfigError
from penstock.store.contract import Store

_EXACT = "names"  # a row that each run stores, also one without packages; no reference is so called


class MeantPackage(TypedDict, total=False):
    """Options of ``connectors.resolve``."""

    package: str
    as_before: bool


def meant(store: Store, pipeline: str, use: str) -> MeantPackage:
    """Returns which package the reference ``use`` means in this pipeline; empty: that of its
    name."""
    ref = parse_ref(use)
    if ref.kind is not RefKind.package or ref.url is not None:
        return {}
    known = store.remembered(pipeline, ()).packages
    if _key(ref) in known:
        return {"package": known[_key(ref)]}
    return {} if known or store.source_of(pipeline) is None else {"as_before": True}


def used(connectors: Iterable[RunnableConnector]) -> dict[str, str]:
    """Returns what is stored of the packages that a run uses (``Remembered.packages``)."""
    found = {_EXACT: "exact"}
    for connector in connectors:
        if connector.package is not None:
            found[_key(connector.ref)] = connector.package
    return found


def other_name(store: Store, pipeline: str, before: str, now: ConnectorRef) -> bool:
    """Whether ``before``, a reference, and ``now`` are two names of one package in this
    pipeline."""
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
