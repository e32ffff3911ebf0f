"""Caches the catalog that an installed source's discovery returned, for a day.

One file for each configuration, beside the environment that returned it, so that another version or
another lock never finds it; mode 0600, since names of tables can be confidential. A cache: a file
that cannot be read or written only means that the source is asked.

Properties that records had and the catalog lacks mean that it may be outdated (:func:`drift`), but
many sources never declare them: they are not asked for that at each run. Not here: asking
(``source``), when a cached catalog is not enough (``engine.plan.prepare``).
"""

import time
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.files import replace
from penstock.model.catalog import Catalog

MAX_AGE = 86_400.0
MAX_LACKS = 10_000
_FORMAT = 2
_OUTDATED = 0.0
_FOLDER = "discovered"


class CachedCatalog(msgspec.Struct, frozen=True):
    """A cached catalog. ``at``: when the source returned it, in seconds since 1970. ``lacks``:
    properties that records had and that it lacked when the source had just returned it."""

    format: int
    at: float
    catalog: Catalog
    lacks: frozenset[str] = frozenset()


def load(environment: Path, key: str, now: float | None = None) -> CachedCatalog | None:
    """Returns the catalog cached under ``key`` (a hash of the configuration); None: there is none,
    or it is older than :data:`MAX_AGE`, or from the future."""
    found = _read(environment, key)
    if found is None:
        return None
    age = (time.time() if now is None else now) - found.at
    return found if 0 <= age <= MAX_AGE else None


def store(environment: Path, key: str, catalog: Catalog) -> None:
    """Caches a catalog. What it may lack goes over to it from one that :func:`drift` has called
    outdated."""
    before = _read(environment, key)
    outdated = before is not None and before.at == _OUTDATED
    lacks = before.lacks if before is not None and outdated else frozenset[str]()
    _write(environment, key, CachedCatalog(_FORMAT, time.time(), catalog, lacks))


def drift(environment: Path, key: str, undeclared: Set[str], *, asked: bool) -> bool:
    """Takes the properties that records had and the cached catalog lacks. Returns whether it is
    outdated, so that it is not loaded again: not where the source was ``asked`` for it in this run,
    nor where it is known to lack them all."""
    cached = _read(environment, key)
    if cached is None or undeclared <= cached.lacks:
        return False
    lacks = cached.lacks | undeclared
    if len(lacks) > MAX_LACKS:
        lacks = frozenset(undeclared)
    at = cached.at if asked else _OUTDATED
    _write(environment, key, msgspec.structs.replace(cached, at=at, lacks=lacks))
    return not asked


def forget(environment: Path, key: str) -> None:
    """Deletes a cached catalog."""
    with suppress(OSError):
        _file(environment, key).unlink(missing_ok=True)


def _read(environment: Path, key: str) -> CachedCatalog | None:
    try:
        found = msgspec.json.decode(_file(environment, key).read_bytes(), type=CachedCatalog)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    return found if found.format == _FORMAT else None


def _write(environment: Path, key: str, cached: CachedCatalog) -> None:
    file = _file(environment, key)
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, exist_ok=True)
        replace(file, msgspec.json.encode(cached))


def _file(environment: Path, key: str) -> Path:
    return environment / _FOLDER / f"{key}.json"
