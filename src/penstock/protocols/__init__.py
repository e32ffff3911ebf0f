"""One folder a protocol, the same file names in each: ``spec`` (names, patterns, keys; light),
``package`` (its roles, loaded when it is used), ``messages`` (wire structs and nothing else),
``source``, ``state``, ``schema``. ``contract`` shows what the layers above may ask of any of them,
``connection`` how they talk to a connector; ``reading``, ``writing`` and ``transforming`` hold the
requests and answers. A new folder needs no edit elsewhere: ``config.protocol_spec`` finds it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from penstock.config.protocol_spec import ROOT, spec_of
from penstock.config.removable_packages import need

if TYPE_CHECKING:
    from penstock.config.project import ReadProject
    from penstock.protocols.contract import ProtocolPackage


def load(name: str) -> "ProtocolPackage":
    """The roles of a protocol, imported when first requested. Raises ``ConfigError``."""
    spec = spec_of(name)
    if spec.components:
        need("wasmtime")
    return cast("ProtocolPackage", import_module(f"{ROOT}.{spec.name}.package").PACKAGE)


def serving(name: str) -> Any:
    """What a host of this protocol hears of us: ``hosts.TargetHost`` or
    ``hosts.DestinationHost``, as its spec says. Raises ``ConfigError``."""
    return import_module(f"{ROOT}.{spec_of(name).name}.serve")


def project_reader(name: str) -> "ReadProject":
    """The function that reads a project folder of this protocol's own host. Raises
    ``ConfigError``."""
    module = import_module(f"{ROOT}.{spec_of(name).name}.project")
    return cast("ReadProject", module.read_project)
