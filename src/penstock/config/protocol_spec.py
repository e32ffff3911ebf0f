"""Declares what a protocol's folder says of itself, and finds the folders.

``penstock/protocols/NAME/spec.py`` holds ``SPEC``, a :class:`ProtocolSpec`; a package there without
such a module is no protocol. The folders are plug-ins of the layers below them as well: the
pipeline file takes the keys that they declare, so the type stands here and they are found by their
place, wherever the package was installed. Not here: what a protocol does (``protocols.contract``,
loaded by ``protocols.load``). A spec imports nothing that costs time.
"""

import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Literal

import msgspec
import msgspec.inspect as mi

from penstock.config.sections import Section
from penstock.errors import ConfigError

EndpointRole = Literal["source", "destination"]
ROOT = "penstock.protocols"


class ManifestFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files that declare a source and run in a package made for them. ``endings``: of such a file;
    ``package`` and ``script``: of the environment that all of them share; ``wrapper``: the module
    in the folder that the environment's Python runs, with the file as its first argument."""

    endings: tuple[str, ...]
    package: str
    script: str
    wrapper: str


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """Penstock as a connector of the protocol (``penstock serve``); the folder's ``serve`` module
    words what its host hears (``contract.TargetHost``, ``contract.DestinationHost``).
    ``on_data_error``: where the host's configuration is silent. ``appends``: tables into which rows
    are appended by default, because a merge would hold back the states to the end."""

    verb: Literal["target", "destination"]
    on_data_error: Literal["fail", "dlq"]
    appends: tuple[str, ...] = ()


class ProtocolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol, as far as names, keys and help need it. ``source`` and ``destination``: what its
    connectors are called in a sentence. ``sources``, ``destinations``, ``transforms``: how their
    names begin. ``own_names``: they are packages by their own name, whatever that begins with.
    ``known``: well-known packages, ``images``: connectors that exist as container images only, each
    with what does the same; both for did-you-mean, a name that is missing runs all the same.
    ``components``: its connectors are WebAssembly components, found by ``find`` (name, environment,
    home folder; raises ``ConfigError``) and known by a bare name. ``catalog_file``: a source takes
    ``source.catalog``. ``retried``: why ``attempts`` and ``backoff`` mean something to it.
    ``source_keys``, ``destination_keys``: keys of its own in the pipeline file; one name means one
    thing in all protocols. Their values reach it where they differ from the default, as
    ``ReadRequest.abilities`` and ``WriteRequest.options``."""

    name: str
    source: str
    destination: str
    sources: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    own_names: bool = False
    known: tuple[str, ...] = ()
    images: Mapping[str, str | None] = {}
    components: bool = False
    find: Callable[[str, Mapping[str, str], Path], Path] | None = None
    manifests: ManifestFiles | None = None
    catalog_file: bool = False
    retried: str | None = None
    source_keys: type[Section] | None = None
    destination_keys: type[Section] | None = None
    served: Served | None = None

    @property
    def prefixes(self) -> tuple[str, ...]:
        """How the names of sources and destinations begin, a source's first."""
        return (*self.sources, *self.destinations)

    def called(self, role: EndpointRole) -> str:
        """``a Singer tap (use: singer:NAME)``."""
        word = self.source if role == "source" else self.destination
        return f"{word} (use: {self.name}:NAME)"

    def keys(self, role: EndpointRole) -> type[Section] | None:
        return self.source_keys if role == "source" else self.destination_keys


@cache
def specs() -> Mapping[str, ProtocolSpec]:
    """Every protocol by name: those whose connectors are processes first, each kind by name."""
    found: list[ProtocolSpec] = []
    for folder in pkgutil.iter_modules(import_module(ROOT).__path__):
        module = f"{ROOT}.{folder.name}"
        package = PathFinder.find_spec(module, import_module(ROOT).__path__)
        places = package.submodule_search_locations if package is not None else None
        if places is not None and PathFinder.find_spec(f"{module}.spec", places) is not None:
            found.append(import_module(f"{module}.spec").SPEC)
    return {s.name: s for s in sorted(found, key=lambda s: (s.components, s.name))}


def spec_of(name: str) -> ProtocolSpec:
    """Raises ``ConfigError`` (``config.unknown_protocol``)."""
    found = specs().get(name)
    if found is None:
        raise ConfigError(
            f"unknown protocol {name!r}",
            code="config.unknown_protocol",
            hint=f"known protocols: {', '.join(specs())}",
        )
    return found


def keys_of(role: EndpointRole) -> dict[str, mi.Field]:
    """The keys that protocols add to the section of this role, by name."""
    found: dict[str, mi.Field] = {}
    for spec in specs().values():
        declared = spec.keys(role)
        if declared is not None:
            info = mi.type_info(declared)
            assert isinstance(info, mi.StructType)
            found.update((f.encode_name, f) for f in info.fields)
    return found
