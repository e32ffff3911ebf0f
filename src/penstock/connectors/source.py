"""The facade of the source role: a reference becomes something one can ask.

Not here: reading (``engine`` and ``protocols/*`` do that over ``launch.runtime_for``), building
(``install``). Config is validated against the connector's own schema before the connector is asked,
and its secrets are masked in every answer, error and line (L10).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.config.sections import Limits, Permissions
from penstock.connectors.components import component_launch
from penstock.connectors.connector import (
    Connector,
    describe_installed,
    held,
    installed_launch,
    local_launch,
    silent,
)
from penstock.connectors.install import ensure
from penstock.connectors.reference import ConnectorRef, RefKind, parse_ref
from penstock.connectors.uv_tool import Progress
from penstock.connectors.wanted import Wanted
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog
from penstock.protocols import load
from penstock.protocols.contract import EventSink, ProtocolPackage, SourceRole
from penstock.runtimes.contract import Timeouts

__all__ = [
    "DISCOVER_TIMEOUTS",
    "SourceConnector",
    "describe_installed",
    "quiet",
    "resolve_source",
    "silent",
    "wanted",
]

DISCOVER_TIMEOUTS = Timeouts(total=3600.0)


def quiet(text: str) -> None:
    """Progress that nobody watches."""


class SourceConnector(Connector):
    """A source that can be run; see ``Connector``. Methods raise ``SourceError``."""

    def _role(self) -> SourceRole:
        return self.protocol.source

    def discover(self, config: dict[str, Any], timeouts: Timeouts = DISCOVER_TIMEOUTS) -> Catalog:
        """Raises ``ConfigError`` (config does not fit), ``SourceError``."""
        self.validate(config)
        return self._answer(
            self.secrets(config),
            lambda runtime, log: self._role().discover(runtime, config, timeouts, log),
        )[1]


def resolve_source(
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
) -> SourceConnector:
    """A source, its environment built first if need be. ``connectors``: where environments lie.
    ``upgrade``, ``constraints``: see ``install``. ``env_keys``: variables of ours it is given.
    ``base``: where relative paths count from and local commands run (default: here).
    ``extra_secrets``: see ``SourceConnector``. ``permissions``, ``limits``: it is asked whatever it
    is asked under these. ``settings``: see ``Component``.
    Raises ``ConfigError`` (no such form; not a source connector), ``SourceError``."""
    ref = parse_ref(ref) if isinstance(ref, str) else ref
    if ref.protocol is None:
        raise ConfigError(
            f"{ref.text!r} is not a source connector ({ref.kind.value})",
            code="connector.not_a_source",
            hint="a source is PROTOCOL:NAME, PROTOCOL:./executable or a command",
        )
    protocol = load(ref.protocol)
    here = (base or Path.cwd()).absolute()
    if ref.kind is RefKind.package:
        _must_be_source(ref, protocol)
        entry = ensure(wanted(ref, protocol, constraints), connectors, progress, upgrade=upgrade)
        launch = installed_launch(protocol, entry, here, env_keys)
    elif ref.kind is RefKind.component:
        entry = None
        launch = component_launch(ref, here, connectors, settings or {})
    else:
        entry = None
        launch = local_launch(ref, protocol, here, env_keys)
    launch = held(launch, permissions, limits)
    return SourceConnector(ref, protocol, launch, entry=entry, log=log, extra_secrets=extra_secrets)


def _must_be_source(ref: ConnectorRef, protocol: ProtocolPackage) -> None:
    """Raises ``ConfigError`` for a name that says that it is something else."""
    name, own = ref.name or "", protocol.prefixes
    if name.startswith(own[1:]) and not name.startswith(own[0]):
        raise ConfigError(
            f"{ref.text!r} is not a source connector, by its name",
            code="connector.not_a_source",
            hint=f"a {protocol.name} source is called {protocol.name}:{own[0]}NAME",
        )


def wanted(ref: ConnectorRef, protocol: ProtocolPackage, constraints: Sequence[str] = ()) -> Wanted:
    """What ``install`` is asked for by a reference of kind package."""
    name = ref.name or ""
    packages = protocol.package_names(name)
    return Wanted(
        protocol=protocol.name,
        reference=ref.text,
        name=name,
        package=packages[0],
        alternatives=packages[1:],
        version=ref.version,
        scripts=protocol.script_names(name),
        prefixes=protocol.prefixes,
        constraints=tuple(constraints),
    )
