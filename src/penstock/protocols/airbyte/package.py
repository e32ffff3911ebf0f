"""Assembles the roles of the protocol into ``PACKAGE``, for the layers above."""

from collections.abc import Callable

from penstock.model.types import ChangeWords, MetadataNames
from penstock.protocols.airbyte.destination import AirbyteDestination
from penstock.protocols.airbyte.enums import ChangeKind, ChangeReason
from penstock.protocols.airbyte.questions import PROTOCOL
from penstock.protocols.airbyte.schema import AirbyteSchema
from penstock.protocols.airbyte.source import (
    DELETED_AT,
    LOG_CURSORS,
    SECRET_WORD,
    AirbyteSource,
)
from penstock.protocols.airbyte.state import AirbyteState
from penstock.protocols.connection import Connection
from penstock.protocols.contract import ManifestRole, RegistryNames, ShardRole
from penstock.protocols.stdio.connect import connect_lines
from penstock.runtimes.contract import ConnectionStats, Start
from penstock.runtimes.masking import Masker
from penstock.store.keys import OpenKeys


class AirbytePackage(RegistryNames):
    """``ProtocolPackage`` of ``protocols.contract``."""

    name = PROTOCOL
    source = AirbyteSource()
    destination = AirbyteDestination()
    transform = None
    manifest: ManifestRole | None = None
    sharding: ShardRole | None = None
    state = AirbyteState()
    schema = AirbyteSchema()
    metadata_names = MetadataNames(
        raw_id="_airbyte_raw_id",
        extracted_at="_airbyte_extracted_at",
        meta="_airbyte_meta",
        generation_id="_airbyte_generation_id",
    )
    change_words = ChangeWords(ChangeKind.nulled.value, ChangeReason.destination_typecast.value)
    deleted_at_field: str | None = DELETED_AT
    log_cursor_prefix: str | None = LOG_CURSORS
    secret_word: str | None = SECRET_WORD

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
        return connect_lines(self, launch, secrets, stats, stderr)

    def command_name(self, name: str) -> str:
        return f"{PROTOCOL}-{name}"

    def script_names(self, name: str) -> tuple[str, ...]:
        return (self.command_name(name), name)


PACKAGE = AirbytePackage()
