"""One package a protocol, the same file names in each: ``messages`` (wire structs and nothing
else), ``source``, ``state``, ``schema``. ``contract`` says what the layers above may ask of any of
them."""

from importlib import import_module
from typing import cast

from penstock.errors import ConfigError
from penstock.protocols.contract import ProtocolPackage

KNOWN = ("airbyte", "singer", "rapidbyte")


def load(name: str) -> ProtocolPackage:
    """The package of a protocol, imported when first asked for."""
    if name not in KNOWN:
        raise ConfigError(
            f"unknown protocol {name!r}",
            code="config.unknown_protocol",
            hint=f"known protocols: {', '.join(KNOWN)}",
        )
    return cast(ProtocolPackage, import_module(f"penstock.protocols.{name}").PACKAGE)
