"""Assembles the roles of the protocol into ``PACKAGE``, for the layers above."""

from collections.abc import Callable

from penstock.model.staged_rows import DELETED_AT
from penstock.model.types import NEUTRAL_METADATA, ChangeWords
from penstock.protocols.connection import Connection
from penstock.protocols.contract import DestinationRole, ManifestRole, RegistryNames, ShardRole
from penstock.protocols.spark.schema import SparkSchema
from penstock.protocols.spark.source import PROTOCOL, SparkSource
from penstock.protocols.spark.state import SparkState
from penstock.runtimes.contract import ConnectionStats, Start
from penstock.runtimes.masking import Masker
from penstock.store.keys import OpenKeys


class SparkPackage(RegistryNames):
    """``ProtocolPackage`` of ``protocols.contract``. It has no packages in a registry."""

    name = PROTOCOL
    source = SparkSource()
    destination: DestinationRole | None = None
    transform = None
    manifest: ManifestRole | None = None
    sharding: ShardRole | None = None
    state = SparkState()
    schema = SparkSchema()
    metadata_names = NEUTRAL_METADATA
    change_words = ChangeWords()
    deleted_at_field: str | None = DELETED_AT
    log_cursor_prefix: str | None = None
    secret_word: str | None = "secret"
    keeps_undeclared = False
    columnar = True
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
        del stderr, keys
        return Connection(_ROLES, launch.role, stats, secrets)


class _Roles:
    """``Conversations`` of ``protocols.connection``."""

    source = SparkPackage.source
    destination = None
    transform = None


_ROLES = _Roles()
PACKAGE = SparkPackage()
