"""The facade of the destination role: a reference becomes something one can ask, and plan for.

Not here: writing (``engine.push_child`` and ``protocols/*`` do that over ``launch.runtime_for``),
building (``install``), tables that Spark writes (``tables``). Whatever fails here is a
destination's failure, also where an environment cannot be built.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.config.sections import Limits, Permissions
from penstock.connectors.components import component_launch
from penstock.connectors.connector import Connector, held, installed_launch, local_launch, silent
from penstock.connectors.install import ensure
from penstock.connectors.reference import ConnectorRef, RefKind, parse_ref
from penstock.connectors.source import quiet, wanted
from penstock.connectors.uv_tool import Progress
from penstock.errors import ConfigError, SourceError
from penstock.protocols import load
from penstock.protocols.contract import (
    DestinationRole,
    EventSink,
    ProtocolPackage,
    WriteStream,
)
from penstock.protocols.feeding import of_destination


class DestinationConnector(Connector):
    """A destination that can be run; see ``Connector``. Methods raise ``DestinationError``."""

    SPEC_FILE = "destination-spec.json"  # a package may hold both roles

    @property
    def role(self) -> DestinationRole:
        return role_of(self.protocol, self.ref)

    def _role(self) -> DestinationRole:
        return self.role

    def problems(self, streams: Sequence[WriteStream]) -> list[str]:
        """Why it cannot take these streams, each a sentence."""
        return self.role.problems(self.spec(), streams)

    def fidelity(self, source_protocol: str, streams: Sequence[WriteStream]) -> list[str]:
        """What narrows or is lost on the way, each a sentence."""
        return self.role.fidelity(source_protocol, streams)


def role_of(protocol: ProtocolPackage, ref: ConnectorRef) -> DestinationRole:
    """Raises ``ConfigError`` (``connector.not_a_destination``)."""
    if protocol.destination is None:
        raise ConfigError(
            f"{ref.text!r} is not a destination connector: the {protocol.name} protocol has none",
            code="connector.not_a_destination",
            hint="use a destination of another protocol, or a table",
        )
    return protocol.destination


def resolve_destination(
    ref: ConnectorRef | str,
    connectors: Path,
    *,
    log: EventSink = silent,
    progress: Progress = quiet,
    upgrade: bool = False,
    constraints: Sequence[str] = (),
    env_keys: Sequence[str] = (),
    base: Path | None = None,
    extra_secrets: Sequence[str] = (),
    permissions: Permissions | None = None,
    limits: Limits | None = None,
    settings: Mapping[str, Any] | None = None,
) -> DestinationConnector:
    """A destination, its environment built first if need be; parameters as in ``resolve_source``.
    Raises ``ConfigError`` (no such form; not a destination connector), ``DestinationError``."""
    ref = parse_ref(ref) if isinstance(ref, str) else ref
    if ref.protocol is None:
        raise ConfigError(
            f"{ref.text!r} is not a destination connector ({ref.kind.value})",
            code="connector.not_a_destination",
            hint="a destination connector is PROTOCOL:NAME, PROTOCOL:./executable or a command",
        )
    protocol = load(ref.protocol)
    role_of(protocol, ref)
    here = (base or Path.cwd()).absolute()
    if ref.kind is RefKind.package:
        _must_be_destination(ref, protocol)
        try:
            entry = ensure(
                wanted(ref, protocol, constraints), connectors, progress, upgrade=upgrade
            )
        except SourceError as e:
            raise of_destination(e) from None
        launch = installed_launch(protocol, entry, here, env_keys)
    elif ref.kind is RefKind.component:
        entry = None
        launch = component_launch(ref, here, connectors, settings or {})
    else:
        entry = None
        launch = local_launch(ref, protocol, here, env_keys)
    launch = held(launch, permissions, limits)
    return DestinationConnector(
        ref, protocol, launch, entry=entry, log=log, extra_secrets=extra_secrets
    )


def _must_be_destination(ref: ConnectorRef, protocol: ProtocolPackage) -> None:
    """Raises ``ConfigError`` for a name that says that it is a source."""
    name, (source, *others) = ref.name or "", protocol.prefixes
    if name.startswith(source) and not name.startswith(tuple(others)):
        raise ConfigError(
            f"{ref.text!r} is not a destination connector, by its name",
            code="connector.not_a_destination",
            hint=f"a {protocol.name} destination is called {protocol.name}:{others[0]}NAME",
        )
