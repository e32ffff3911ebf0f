"""Defines the spec that each protocol's folder declares, and finds the specs.

``penstock/protocols/NAME/spec.py`` holds ``SPEC``, a :class:`ProtocolSpec`; other packages there
are not protocols. The type is defined in this layer, below the protocols, since the pipeline file
accepts the keys that they declare; their folders are found by their location in the installed
package, not imported by name. A spec must be quick to import. Not here: what a protocol does
(``protocols.contract``, loaded by ``protocols.load``).
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
import msgspec.inspect as mi

from penstock.config.folder_specs import specs_in
from penstock.config.sections import Section
from penstock.errors import ConfigError

EndpointRole = Literal["source", "destination"]
ROOT = "penstock.protocols"


class ManifestFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Manifest files that declare a source, which a shared package runs. ``endings``: of such a
    file's name; ``package`` and ``script``: of the environment that all of them share; ``wrapper``:
    the module of the protocol's folder that the environment's Python runs, with the file as its
    first argument."""

    endings: tuple[str, ...]
    package: str
    script: str
    wrapper: str


class ServeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How Penstock acts as a connector of the protocol (``penstock serve``); the folder's ``serve``
    module writes the messages to the host (``hosts.TargetHost``, ``hosts.DestinationHost``).
    ``on_data_error``: the default of that key. ``appends``: rows are appended by default to tables
    of a format that merges at the end only, since no state could be acked before. ``every_state``:
    every received state is returned, with the counts of its records; else only the newest of each
    scope that a load covers."""

    verb: Literal["target", "destination"]
    on_data_error: Literal["fail", "dlq"]
    appends: bool = False
    every_state: bool = False


class ProtocolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol's names, keys and options, for config and help.

    ``roles``: those that its connectors have. ``source`` and ``destination``: the nouns for its
    connectors in messages. ``sources``, ``destinations``, ``transforms``: the prefixes of connector
    names. ``own_names``: a connector is a package of exactly its name, with any prefix.
    ``registry``: where connectors are installed from by their names; ``variables``: the environment
    variables of an installed one. ``known``: well-known packages, ``images``: connectors that exist
    as container images only and that the index of connectors lacks, each with an alternative, in
    the ``image_folder`` of the public registry; all for suggestions only, other names run too.
    ``components``: its connectors are WebAssembly components, which have no protocol prefix and are
    found by ``find`` (name, environment, home folder; raises ``ConfigError``). ``queries``: its
    sources are queries, tables or files that Spark reads, named behind the protocol's name; no
    process runs. ``catalog_file``: a source takes ``source.catalog``. ``retried``: a clause with
    the reason why ``attempts`` and ``backoff`` apply; None: they do not. ``has_streams``: its
    destinations have streams of their own, so that ``destination.stream``, ``options`` and
    ``mapping`` apply. ``enriches``: it has connectors that answer row by row, for ``enrichments``.
    ``keeps_keys``: its connectors may keep keys of their own in the state store (``store.keys``),
    which their workers must reach. ``project_folders``: a project folder of the protocol's own host
    has at least one of these; the protocol's ``project`` module reads it (``config.project``).
    ``source_keys``, ``destination_keys``: the protocol's own keys of the pipeline file; a key of
    one name means the same in all protocols. Values that differ from the default are passed as
    ``ReadRequest.abilities`` and ``WriteRequest.options``."""

    name: str
    source: str = ""
    destination: str = ""
    roles: tuple[EndpointRole, ...] = ("source", "destination")
    sources: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    own_names: bool = False
    registry: Literal["pypi", "npm"] = "pypi"
    variables: Mapping[str, str] = {}
    known: tuple[str, ...] = ()
    images: Mapping[str, str | None] = {}
    image_folder: str = ""
    components: bool = False
    queries: bool = False
    find: Callable[[str, Mapping[str, str], Path], Path] | None = None
    manifests: ManifestFiles | None = None
    catalog_file: bool = False
    has_streams: bool = False
    enriches: bool = False
    keeps_keys: bool = False
    project_folders: tuple[str, ...] = ()
    retried: str | None = None
    source_keys: type[Section] | None = None
    destination_keys: type[Section] | None = None
    served: ServeSpec | None = None

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Returns the prefixes of connector names, those of sources first."""
        return (*self.sources, *self.destinations)

    def called(self, role: EndpointRole) -> str:
        """Returns the noun for a connector of ``role``, as ``a Singer tap (use: singer:NAME)``."""
        word = self.source if role == "source" else self.destination
        return f"{word} (use: {self.name}:NAME)"

    def keys(self, role: EndpointRole) -> type[Section] | None:
        """Returns the protocol's own keys in the section of ``role``, or None."""
        return self.source_keys if role == "source" else self.destination_keys


@cache
def specs() -> Mapping[str, ProtocolSpec]:
    """Returns all protocols by name: those whose connectors are processes, components, queries."""
    found: list[ProtocolSpec] = specs_in(ROOT)
    return {s.name: s for s in sorted(found, key=lambda s: (s.queries, s.components, s.name))}


def spec_of(name: str) -> ProtocolSpec:
    """Returns the spec of the protocol ``name``. Raises ``ConfigError``
    (``config.unknown_protocol``)."""
    found = specs().get(name)
    if found is None:
        raise ConfigError(
            f"unknown protocol {name!r}",
            code="config.unknown_protocol",
            hint=f"known protocols: {', '.join(specs())}",
        )
    return found


_type_info = cache(mi.type_info)


def keys_of(role: EndpointRole) -> dict[str, mi.Field]:
    """Returns the keys that protocols add to the section of ``role``, by name."""
    found: dict[str, mi.Field] = {}
    for spec in specs().values():
        declared = spec.keys(role)
        if declared is not None:
            info = _type_info(declared)
            assert isinstance(info, mi.StructType)
            found.update((f.encode_name, f) for f in info.fields)
    return found
