"""Assembles the roles of the protocol into ``PACKAGE``, for the layers above."""

from collections.abc import Callable, Mapping

import msgspec

from penstock.model.types import NEUTRAL_METADATA, ChangeWords
from penstock.protocols.contract import Connection, ManifestRole, ShardRole
from penstock.protocols.syncmaven.destination import PROTOCOL, SyncmavenDestination
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.syncmaven.schema import SyncmavenSchema
from penstock.protocols.syncmaven.state import SyncmavenState
from penstock.runtimes.contract import ConnectionStats, Runtime, Start
from penstock.runtimes.limits import confinement
from penstock.runtimes.masking import Masker
from penstock.runtimes.metered import MeteredRuntime
from penstock.runtimes.process import ProcessRuntime
from penstock.store.keys import OpenKeys


class SyncmavenPackage:
    """``ProtocolPackage`` of ``protocols.contract``."""

    name = PROTOCOL
    source = None
    destination = SyncmavenDestination()
    transform = None
    manifest: ManifestRole | None = None
    sharding: ShardRole | None = None
    state = SyncmavenState()
    schema = SyncmavenSchema()
    metadata_names = NEUTRAL_METADATA
    change_words = ChangeWords()
    deleted_at_field: str | None = None
    secret_word = "x-secret"
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
        offline = confinement(launch.permissions, launch.limits).no_network

        def runtime_in(environment: Mapping[str, str]) -> Runtime:
            told = msgspec.structs.replace(launch, env={**launch.env, **environment})
            return MeteredRuntime(ProcessRuntime.of(told, secrets, stderr), stats)

        # without a network it could not reach the server
        host = Host(runtime_in, None if offline else keys, secrets)
        return Connection(self, launch.role, host, secrets)

    def command_name(self, name: str) -> str:
        return name

    def package_names(self, name: str) -> tuple[str, ...]:
        return (name,)

    def script_names(self, name: str) -> tuple[str, ...]:
        return (name,)


PACKAGE = SyncmavenPackage()
