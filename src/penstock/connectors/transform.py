"""Queries a transform connector or an enrichment, and plans with it: the facade of the transform
role.

Not here: applying (``engine.worker.transforms.connector`` does that over ``launch.connect``),
built-in transforms (``transforms``).
"""

from typing import Any

from penstock.config.protocol_spec import spec_of, specs
from penstock.connectors.connector import RunnableConnector
from penstock.connectors.reference import ConnectorRef, RefKind
from penstock.errors import ConfigError
from penstock.protocols.contract import ProtocolPackage
from penstock.protocols.transforming import TransformRequest


class TransformConnector(RunnableConnector):
    """A transform that can be run; see ``RunnableConnector``. Methods raise ``SourceError``."""

    ROLE = "transform"

    @classmethod
    def takes(cls, ref: ConnectorRef, protocol: ProtocolPackage) -> None:
        if ref.kind is not RefKind.component:
            raise not_a_transform(
                ref, f"it is a {ref.kind.value}", enriches=spec_of(protocol.name).enriches
            )
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


class EnrichmentConnector(TransformConnector):
    """A connector that answers row by row, in the transform role; see ``TransformConnector``."""

    SPEC_FILE = "enrichment-spec.json"  # a package may hold several roles

    @classmethod
    def takes(cls, ref: ConnectorRef, protocol: ProtocolPackage) -> None:
        if not spec_of(protocol.name).enriches:
            raise _not_an_enrichment(ref, f"the {protocol.name} protocol has none")

    @classmethod
    def stranger(cls, ref: ConnectorRef) -> ConfigError:
        return _not_an_enrichment(ref, f"it is a {ref.kind.value}")


def _not_an_enrichment(ref: ConnectorRef, why: str) -> ConfigError:
    names = " or ".join(f"{s.name}:./EXECUTABLE" for s in specs().values() if s.enriches)
    return ConfigError(
        f"{ref.text!r} is not an enrichment: {why}",
        code="connector.not_an_enrichment",
        hint=f"an enrichment is {names}; what works on batches or tables goes under `transforms`",
    )


def not_a_transform(ref: ConnectorRef, why: str, *, enriches: bool = False) -> ConfigError:
    """Returns the error for a reference that is not a transform. ``enriches``: its protocol has
    enrichments."""
    return ConfigError(
        f"{ref.text!r} is not a transform: {why}",
        code="connector.not_a_transform",
        hint="what answers record by record goes under `enrichments`"
        if enriches
        else "a transform is transform-sql, transform-validate, spark-sql or a WebAssembly "
        "component, such as ./file.wasm",
    )
