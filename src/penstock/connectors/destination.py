"""Queries a destination connector, and plans with it: the facade of the destination role.

Not here: writing (``engine.worker.feeder`` does that over ``launch.connect``), building
(``install``), tables that Spark writes (``tables``). Errors are ``DestinationError``, also where
its environment cannot be built.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.connectors.connector import RunnableConnector
from penstock.connectors.reference import ConnectorRef
from penstock.errors import ConfigError
from penstock.model.catalog import ConnectorSpec
from penstock.protocols.contract import DestinationRole, ProtocolPackage
from penstock.protocols.writing import WriteStream
from penstock.runtimes.contract import RunTimeouts


class DestinationConnector(RunnableConnector):
    """A destination that can be run; see ``RunnableConnector``. Methods raise
    ``DestinationError``."""

    ROLE = "destination"
    SPEC_FILE = "destination-spec.json"  # a package may hold both roles

    _configured: tuple[dict[str, Any], ConnectorSpec] | None = None

    @classmethod
    def takes(cls, ref: ConnectorRef, protocol: ProtocolPackage) -> None:
        role_of(protocol, ref)

    @property
    def role(self) -> DestinationRole:
        """Returns the protocol's rules for destinations."""
        return role_of(self.protocol, self.ref)

    def problems(
        self, streams: Sequence[WriteStream], config: dict[str, Any], timeouts: RunTimeouts
    ) -> list[str]:
        """Returns the reasons why it cannot take these streams, a sentence each. If its spec does
        not show them, it is queried once with its configuration. Raises ``DestinationError`` where
        it does not answer."""
        return self.role.problems(self._spec_for(streams, config, timeouts), streams)

    def _spec_for(
        self, streams: Sequence[WriteStream], config: dict[str, Any], timeouts: RunTimeouts
    ) -> ConnectorSpec:
        spec = self.spec()
        if not streams or not self.role.depends_on_config(spec, streams):
            return spec
        if self._configured is None or self._configured[0] != config:
            with self._asked(self.secrets(config)) as connection:
                found = connection.configured_spec(spec, config, timeouts, self._log)
            self._configured = (config, found)
        return self._configured[1]

    def own_stream(self, stream: WriteStream) -> str | None:
        """Returns which of its own streams a stream is written to, by its last answer; None: the
        one with the target's name."""
        spec = self.spec() if self._configured is None else self._configured[1]
        return self.role.own_stream(spec, stream)

    def fidelity(
        self,
        source_protocol: str,
        streams: Sequence[WriteStream],
        options: Mapping[str, Any],
        config: dict[str, Any],
        timeouts: RunTimeouts,
    ) -> list[str]:
        """Returns the types and values that it narrows or loses, a sentence each. ``options``: the
        protocol's own keys that the user set (``WriteRequest.options``). It is queried as in
        :meth:`problems`."""
        spec = self._spec_for(streams, config, timeouts)
        return self.role.fidelity(spec, source_protocol, streams, options)


def role_of(protocol: ProtocolPackage, ref: ConnectorRef) -> DestinationRole:
    """Returns the protocol's rules for destinations. Raises ``ConfigError``
    (``connector.not_a_destination``)."""
    if protocol.destination is None:
        raise ConfigError(
            f"{ref.text!r} is not a destination connector: the {protocol.name} protocol has none",
            code="connector.not_a_destination",
            hint="use a destination of another protocol, or a table",
        )
    return protocol.destination
