"""The facade of the transform role: a reference becomes something one can ask, and plan with.

Not here: applying (``engine.worker.transforms.connector`` does that over ``launch.runtime_for``),
built-in transforms (``transforms``).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.config.sections import Limits, Permissions
from penstock.connectors.component_files import component_launch
from penstock.connectors.connector import Connector, held, silent
from penstock.connectors.reference import ConnectorRef, RefKind
from penstock.errors import ConfigError
from penstock.protocols import load
from penstock.protocols.contract import (
    EventSink,
    ProtocolPackage,
    TransformRequest,
    TransformRole,
)


class TransformConnector(Connector):
    """A transform that can be run; see ``Connector``. Methods raise ``SourceError``."""

    @property
    def role(self) -> TransformRole:
        return role_of(self.protocol, self.ref)

    def _role(self) -> TransformRole:
        return self.role

    def outline(self, request: TransformRequest, columns: Any) -> Any | None:
        """See ``TransformRole.outline``."""
        self._consented()
        return self._answer(
            self.secrets(request.config),
            lambda runtime, log: self.role.outline(runtime, request, columns),
        )[1]


def role_of(protocol: ProtocolPackage, ref: ConnectorRef) -> TransformRole:
    """Raises ``ConfigError`` (``connector.not_a_transform``)."""
    if protocol.transform is None:
        raise not_a_transform(ref, f"the {protocol.name} protocol has none")
    return protocol.transform


def not_a_transform(ref: ConnectorRef, why: str) -> ConfigError:
    return ConfigError(
        f"{ref.text!r} is not a transform: {why}",
        code="connector.not_a_transform",
        hint="a transform is transform-sql, transform-validate, spark-sql or a WebAssembly "
        "component, such as ./file.wasm",
    )


def resolve_transform(
    ref: ConnectorRef,
    connectors: Path,
    *,
    log: EventSink = silent,
    base: Path | None = None,
    extra_secrets: Sequence[str] = (),
    permissions: Permissions | None = None,
    limits: Limits | None = None,
    settings: Mapping[str, Any] | None = None,
) -> TransformConnector:
    """Parameters as in ``resolve_source``. Raises ``ConfigError`` (no transform, no such file)."""
    if ref.kind is not RefKind.component or ref.protocol is None:
        raise not_a_transform(ref, f"it is a {ref.kind.value}")
    protocol = load(ref.protocol)
    role_of(protocol, ref)
    here = (base or Path.cwd()).absolute()
    launch = component_launch(ref, here, connectors, settings or {})
    launch = held(launch, "transform", permissions, limits)
    return TransformConnector(ref, protocol, launch, log=log, extra_secrets=extra_secrets)
