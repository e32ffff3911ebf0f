"""Caches the catalog that an installed source's discovery returned, for a day.

One file for each configuration, beside the environment that returned it, so that another version or
another lock never finds it; mode 0600, since names of tables can be confidential. A cache: a file
that cannot be read or written only means that the source is asked. Not here: asking (``source``),
when a cached catalog is not enough (``engine.plan.prepare``).
"""

import time
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.files import replace
from penstock.model.catalog import Catalog

MAX_AGE = 86_400.0
_FORMAT = 2
_FOLDER = "discovered"


class CachedCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """A cached catalog. ``at``: when the source returned it, in seconds since 1970."""

    format: int
    at: float
    catalog: Catalog


def load(environment: Path, key: str, now: float | None = None) -> CachedCatalog | None:
    """Returns the catalog cached under ``key`` (a hash of the configuration); None: there is none,
    or it is older than :data:`MAX_AGE`, or from the future."""
    try:
        found = msgspec.json.decode(_file(environment, key).read_bytes(), type=CachedCatalog)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    age = (time.time() if now is None else now) - found.at
    return found if found.format == _FORMAT and 0 <= age <= MAX_AGE else None


def store(environment: Path, key: str, catalog: Catalog) -> None:
    """Caches a catalog."""
    cached = CachedCatalog(format=_FORMAT, at=time.time(), catalog=catalog)
    file = _file(environment, key)
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, exist_ok=True)
        replace(file, msgspec.json.encode(cached))


def forget(environment: Path, key: str) -> None:
    """Deletes a cached catalog."""
    with suppress(OSError):
        _file(environment, key).unlink(missing_ok=True)


def _file(environment: Path, key: str) -> Path:
    return environment / _FOLDER / f"{key}.json"
