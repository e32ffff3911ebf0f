"""Reads the index of connectors that ships with Penstock.

The file is one gzip of a JSON document (:class:`ConnectorIndex`), read once per process, on first
use. Not here: ranking (``search``), writing (``scripts/connector_index.py``).
"""

import gzip
import zlib
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from penstock.config.protocol_spec import EndpointRole
from penstock.errors import ConfigError

FILE = Path(__file__).with_name("connectors.json.gz")
FORMAT = 1
Need = Literal["package", "git", "image", "build"]
"""How a connector is obtained: a package of the index, a repository, a container image, or a build
of the user's."""


class Setting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A property of a connector's configuration. ``name``: dots lead into objects. ``kind``: the
    hub's word (``string``, ``password``, ``options``, ...). ``label``: None where it equals the
    name. ``options``: its possible values."""

    name: str
    kind: str = "string"
    label: str | None = None
    secret: bool = False
    default: Any = None
    options: list[Any] = []


class IndexedConnector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the index.

    ``connector``: the reference to write; None: nothing installs it (``needs`` is ``build``).
    ``also``: other references of the same connector. ``extras``: requirements that its hub installs
    with the package. ``variant``: who maintains it, where several share a name. ``maintenance``,
    ``quality``: the hub's words; None: no hub lists it. ``default``: the hub's choice among the
    variants. ``required``: groups of settings of which one must be given in full. ``version``,
    ``month`` (YYYY-MM): of the package's newest release when the index was made."""

    protocol: str
    role: EndpointRole
    name: str
    connector: str | None = None
    needs: Need = "package"
    also: list[str] = []
    extras: list[str] = []
    label: str | None = None
    variant: str | None = None
    maintenance: str | None = None
    quality: str | None = None
    default: bool = False
    repository: str | None = None
    keywords: list[str] = []
    capabilities: list[str] = []
    settings: list[Setting] = []
    required: list[list[str]] = []
    version: str | None = None
    month: str | None = None

    @property
    def references(self) -> tuple[str, ...]:
        """Returns all references that name it, the best first."""
        return (*([self.connector] if self.connector else ()), *self.also)

    @property
    def title(self) -> str:
        """Returns the name of the system it connects to."""
        return self.label or self.name


class ConnectorIndex(msgspec.Struct, frozen=True):
    """The index's document. ``count``: how many connectors were written."""

    format: int
    count: int
    connectors: list[IndexedConnector]


@cache
def indexed() -> tuple[IndexedConnector, ...]:
    """Returns the connectors of the index. Raises ``ConfigError`` (``connector.index``) where the
    file is missing or damaged."""
    return read(FILE)


def read(path: Path) -> tuple[IndexedConnector, ...]:
    """Reads an index. Raises ``ConfigError`` (``connector.index``)."""
    try:
        catalog = msgspec.json.decode(gzip.decompress(path.read_bytes()), type=ConnectorIndex)
    except OSError as e:
        raise _damaged(path, e.strerror or str(e)) from None
    except (EOFError, zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise _damaged(path, str(e)) from None
    if catalog.format != FORMAT or catalog.count != len(catalog.connectors):
        raise _damaged(path, f"format {catalog.format}, {len(catalog.connectors)} connectors")
    return tuple(catalog.connectors)


def _damaged(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"the index of connectors cannot be read ({path}: {why})",
        code="connector.index",
        hint="install Penstock again, as docs/install.md shows; connectors run without the index",
    )
