"""Groups the protocols: one folder for each, with the same file names. ``spec`` has the names,
patterns and keys (light); ``package`` has the roles, loaded on use; ``messages`` has only the wire
structs; then ``source``, ``state``, ``schema``. ``contract`` declares the interface for the layers
above, ``connection`` how they talk to a connector; ``reading``, ``writing`` and ``transforming``
hold the requests and answers. A new folder needs no edit elsewhere: ``config.protocol_spec`` finds
it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from penstock.config.protocol_spec import ROOT, spec_of
from penstock.config.removable_packages import need

if TYPE_CHECKING:
    from penstock.config.project import ReadProject
    from penstock.protocols.contract import ProtocolPackage


def load(name: str) -> "ProtocolPackage":
    """Returns the roles of a protocol, imported on the first request. Raises ``ConfigError``."""
    spec = spec_of(name)
    if spec.components:
        need("wasmtime")
    return cast("ProtocolPackage", import_module(f"{ROOT}.{spec.name}.package").PACKAGE)


def serving(name: str) -> Any:
    """Returns what builds our output for a host of this protocol: ``hosts.TargetHost`` or
    ``hosts.DestinationHost``, as its spec declares. Raises ``ConfigError``."""
    return import_module(f"{ROOT}.{spec_of(name).name}.serve")


def project_reader(name: str) -> "ReadProject":
    """Returns the function that reads a project folder of this protocol's own host. Raises
    ``ConfigError``."""
    module = import_module(f"{ROOT}.{spec_of(name).name}.project")
    return cast("ReadProject", module.read_project)
