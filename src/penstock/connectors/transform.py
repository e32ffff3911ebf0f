"""The facade of the transform role: a reference becomes something one can ask, and plan with.

Not here: applying (``engine.worker.transforms.connector`` does that over ``launch.runtime_for``),
built-in transforms (``transforms``).
"""

from typing import Any

from penstock.connectors.connector import Connector
from penstock.connectors.reference import ConnectorRef, RefKind
from penstock.errors import ConfigError
from penstock.protocols.contract import ProtocolPackage, TransformRequest, TransformRole


class TransformConnector(Connector):
    """A transform that can be run; see ``Connector``. Methods raise ``SourceError``."""

    ROLE = "transform"

    @classmethod
    def takes(cls, ref: ConnectorRef, protocol: ProtocolPackage) -> None:
        if ref.kind is not RefKind.component:
            raise cls.stranger(ref)
        role_of(protocol, ref)

    @classmethod
    def stranger(cls, ref: ConnectorRef) -> ConfigError:
        return not_a_transform(ref, f"it is a {ref.kind.value}")

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
