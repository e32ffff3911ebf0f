"""Keeps the catalog that an installed source's last discovery returned, so that the next read can
begin with it while that run's discovery is under way.

One file per configuration, in the folder of the environment that returned it, so that another
version or another lock never finds it; mode 0600, since names of tables can be confidential. If a
file cannot be read or written, the source is discovered first. Not here: whether a kept catalog may
be used (``engine.plan.source_endpoint``), whether it is still valid
(``engine.plan.catalog_check``).
"""

from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.files import replace
from penstock.model.catalog import Catalog

_FORMAT = 3
_FOLDER = "discovered"


class KeptCatalog(msgspec.Struct, frozen=True):
    """A kept catalog. ``first``: a read during a discovery failed, so the source is discovered
    before it is read."""

    format: int
    catalog: Catalog
    first: bool = False


def load(environment: Path, key: str) -> KeptCatalog | None:
    """Returns the catalog kept under ``key`` (a hash of the configuration); None: none is kept."""
    try:
        found = msgspec.json.decode(_file(environment, key).read_bytes(), type=KeptCatalog)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    return found if found.format == _FORMAT else None


def store(environment: Path, key: str, catalog: Catalog, *, first: bool = False) -> None:
    """Keeps a catalog. A ``first`` that is set stays set."""
    before = load(environment, key)
    first |= before is not None and before.first
    file = _file(environment, key)
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, exist_ok=True)
        replace(file, msgspec.json.encode(KeptCatalog(_FORMAT, catalog, first)))


def _file(environment: Path, key: str) -> Path:
    return environment / _FOLDER / f"{key}.json"
