"""Finds the file of a WebAssembly component that a reference names, and makes its launch.

Compiles and runs nothing. Neighbours: ``resolve`` calls it; ``protocols.rapidbyte`` runs the
launch.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.config.protocol_spec import spec_of, specs
from penstock.connectors.launch import Launch
from penstock.connectors.reference import ConnectorRef
from penstock.errors import ConfigError
from penstock.runtimes.contract import Component
from penstock.runtimes.wasm.component import digest_of


def component_launch(
    ref: ConnectorRef, here: Path, connectors: Path, settings: Mapping[str, Any]
) -> Launch:
    """Returns the launch of a component. ``here``: the folder that relative paths start from.
    ``connectors``: the folder of environments; compiled code and the user's consents are kept next
    to it. Raises ``ConfigError`` (``connector.not_found``)."""
    path = _file(ref, here)
    try:
        content = path.read_bytes()
    except OSError as e:
        raise ConfigError(
            f"connector {ref.text!r} cannot be read: {path}: {e.strerror}",
            code="connector.not_found",
            hint="give the path of a .wasm file",
        ) from None
    return Launch(
        protocol=ref.protocol or "",
        component=Component(
            path=str(path),
            digest=digest_of(content),
            cache=str(connectors.absolute().parent / "compiled"),
            settings=dict(settings),
            agreements=str(connectors.absolute().parent / "agreed"),
        ),
    )


def _file(ref: ConnectorRef, here: Path) -> Path:
    if ref.command:
        return (here / Path(ref.command[0]).expanduser()).resolve()
    spec = spec_of(ref.protocol or "")
    assert spec.find is not None
    try:
        return spec.find(ref.name or "", os.environ, Path.home()).resolve()
    except ConfigError as e:
        name = (ref.name or "").rpartition("/")[2]
        if ref.text.startswith(f"{spec.name}:"):
            raise
        others = " or ".join(f"{s.name}:{name}" for s in specs().values() if not s.components)
        raise ConfigError(
            e.message,
            code=e.code,
            hint=f"{e.hint}; for a connector of another protocol name it: {others}",
        ) from None
