"""Declares ``PACKAGE``, the Rapidbyte protocol for the layers above. Neighbours: ``source``,
``destination``, ``state``, ``rapidbyte.wire.schema``."""

from collections.abc import Callable

from penstock.model.types import NEUTRAL_METADATA, ChangeWords
from penstock.protocols.connection import Connection
from penstock.protocols.contract import ManifestRole, RegistryNames, ShardRole
from penstock.protocols.rapidbyte.declared.catalog import undiscovered
from penstock.protocols.rapidbyte.declared.sharding import RapidbyteShards
from penstock.protocols.rapidbyte.destination import RapidbyteDestination
from penstock.protocols.rapidbyte.guest.component import RapidbyteManifest, runtime_of
from penstock.protocols.rapidbyte.source import RapidbyteSource
from penstock.protocols.rapidbyte.state import RapidbyteState
from penstock.protocols.rapidbyte.transform import RapidbyteTransform
from penstock.protocols.rapidbyte.wire.schema import DELETED_AT, RapidbyteSchema
from penstock.runtimes.contract import ConnectionStats, Start
from penstock.runtimes.masking import Masker
from penstock.store.keys import OpenKeys


class RapidbytePackage(RegistryNames):
    """``ProtocolPackage`` of ``protocols.contract``. Its connectors are files, never packages."""

    name = "rapidbyte"
    source = RapidbyteSource()
    destination = RapidbyteDestination()
    transform = RapidbyteTransform()
    manifest: ManifestRole | None = RapidbyteManifest()
    sharding: ShardRole | None = RapidbyteShards()
    state = RapidbyteState()
    schema = RapidbyteSchema()
    metadata_names = NEUTRAL_METADATA
    change_words = ChangeWords()
    deleted_at_field: str | None = DELETED_AT
    log_cursor_prefix: str | None = None
    secret_word: str | None = "x-secret"
    keeps_undeclared = False
    columnar = True
    undiscovered = staticmethod(undiscovered)

    def connect(
        self,
        launch: Start,
        secrets: Masker,
        stats: ConnectionStats,
        *,
        stderr: Callable[[str], None] | None = None,
        keys: OpenKeys | None = None,
    ) -> Connection:
        runtime = runtime_of(launch, secrets, stats, stderr, keys)
        return Connection(self, launch.role, runtime, secrets)


PACKAGE = RapidbytePackage()
