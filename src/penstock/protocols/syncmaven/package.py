"""Assembles the roles of the protocol into ``PACKAGE``, for the layers above."""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from penstock.model.types import NEUTRAL_METADATA, ChangeWords
from penstock.protocols.connection import Connection
from penstock.protocols.contract import ManifestRole, RegistryNames, ShardRole
from penstock.protocols.stdio.connect import runtime_of
from penstock.protocols.syncmaven.destination import PROTOCOL, SyncmavenDestination
from penstock.protocols.syncmaven.enrichment import SyncmavenEnrichment
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.syncmaven.schema import SyncmavenSchema
from penstock.protocols.syncmaven.state import SyncmavenState
from penstock.runtimes.contract import ConnectionStats, Runtime, Start
from penstock.runtimes.masking import Masker
from penstock.store.keys import OpenKeys


class SyncmavenPackage(RegistryNames):
    """``ProtocolPackage`` of ``protocols.contract``."""

    name = PROTOCOL
    source = None
    destination = SyncmavenDestination()
    transform = SyncmavenEnrichment()
    manifest: ManifestRole | None = None
    sharding: ShardRole | None = None
    state = SyncmavenState()
    schema = SyncmavenSchema()
    metadata_names = NEUTRAL_METADATA
    change_words = ChangeWords()
    deleted_at_field: str | None = None
    log_cursor_prefix: str | None = None
    secret_word: str | None = None
    keeps_undeclared = False
    columnar = False
    undiscovered = None

    def connect(
        self,
        launch: Start,
        secrets: Masker,
        stats: ConnectionStats,
        *,
        stderr: Callable[[str], None] | None = None,
        keys: OpenKeys | None = None,
    ) -> Connection:
        def runtime_in(environment: Mapping[str, str]) -> Runtime:
            served = _served_port(environment) if _has_no_network(launch) else None
            return runtime_of(launch, secrets, stats, stderr, environment, served)

        host = Host(runtime_in, keys, secrets, lambda: _server_address(launch))
        return Connection(self, launch.role, host, secrets)


def _server_address(launch: Start) -> str | None:
    """Returns the address on which the server of its keys has to listen; None: the connector could
    not reach any."""
    if launch.image is None:
        return None if _has_no_network(launch) else "127.0.0.1"
    if not launch.image.shell:  # anyone with access to the engine would see the secret
        return None
    from penstock.runtimes.container.engine import find_engine
    from penstock.runtimes.container.host_address import host_address
    from penstock.runtimes.container.restrictions import enters_networks

    engine = find_engine()
    if _has_no_network(launch):
        return "127.0.0.1" if enters_networks(engine) else None
    return host_address(engine, launch.container.network)


def _served_port(environment: Mapping[str, str]) -> int | None:
    return urlsplit(environment["RPC_URL"]).port if "RPC_URL" in environment else None


def _has_no_network(launch: Start) -> bool:
    asked = launch.permissions.configured() if launch.permissions else {}
    return "network.allowed_hosts" in asked


PACKAGE = SyncmavenPackage()
