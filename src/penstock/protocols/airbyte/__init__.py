"""The Airbyte protocol. ``PACKAGE`` is all that the layers above use.

``messages`` and ``enums`` (the wire), ``source`` (conversation), ``state``, ``schema``; beside
them what ``source`` is made of: ``conversation``, ``lines``, ``asides``, ``catalog``,
``configure``; and ``destination``: ``outgoing``, ``records``, ``replies``, ``acks``.
"""

from penstock.model.types import ChangeWords, MetadataNames
from penstock.protocols.airbyte.destination import AirbyteDestination
from penstock.protocols.airbyte.enums import ChangeKind, ChangeReason
from penstock.protocols.airbyte.schema import AirbyteSchema
from penstock.protocols.airbyte.source import DELETED_AT, PROTOCOL, SECRET_WORD, AirbyteSource
from penstock.protocols.airbyte.state import AirbyteState
from penstock.protocols.contract import DestinationRole, ManifestRole, ShardRole, TransformRole


class AirbytePackage:
    """``ProtocolPackage`` of ``protocols.contract``."""

    name = PROTOCOL
    source = AirbyteSource()
    destination: DestinationRole | None = AirbyteDestination()
    transform: TransformRole | None = None
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
    secret_word = SECRET_WORD

    prefixes = ("source-", "destination-")

    def command_name(self, name: str) -> str:
        return f"{PROTOCOL}-{name}"

    def package_names(self, name: str) -> tuple[str, ...]:
        return (self.command_name(name),)

    def script_names(self, name: str) -> tuple[str, ...]:
        return (self.command_name(name), name)


PACKAGE = AirbytePackage()
