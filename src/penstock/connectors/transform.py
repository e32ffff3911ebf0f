"""Asks a transform connector, and plans with it: the facade of the transform role.

Not here: applying (``engine.worker.transforms.connector`` does that over ``launch.connect``),
built-in transforms (``transforms``).
"""

from typing import Any

from penstock.connectors.connector import Connector
from penstock.connectors.reference import ConnectorRef, RefKind
from penstock.errors import ConfigError
from penstock.protocols.contract import ProtocolPackage, TransformRequest


class TransformConnector(Connector):
    """A transform that can be run; see ``Connector``. Methods raise ``SourceError``."""

    ROLE = "transform"

    @classmethod
    def takes(cls, ref: ConnectorRef, protocol: ProtocolPackage) -> None:
        if ref.kind is not RefKind.component:
            raise cls.stranger(ref)
        if protocol.transform is None:
            raise not_a_transform(ref, f"the {protocol.name} protocol has none")

    @classmethod
    def stranger(cls, ref: ConnectorRef) -> ConfigError:
        return not_a_transform(ref, f"it is a {ref.kind.value}")

    def outline(self, request: TransformRequest, columns: Any) -> Any | None:
        """Returns the output columns for these input columns; see
        ``TransformConversation.outline``."""
        self._consented()
        with self._asked(self.secrets(request.config)) as connection:
            return connection.outline(request, columns)


def not_a_transform(ref: ConnectorRef, why: str) -> ConfigError:
    """Returns the error for a reference that is not a transform."""
    return ConfigError(
        f"{ref.text!r} is not a transform: {why}",
        code="connector.not_a_transform",
        hint="a transform is transform-sql, transform-validate, spark-sql or a WebAssembly "
        "component, such as ./file.wasm",
    )
