"""Assembles the roles of the protocol into ``PACKAGE``, for the layers above."""

from collections.abc import Callable

from penstock.model.types import NEUTRAL_METADATA, ChangeWords, MetadataNames
from penstock.protocols.connection import Connection
from penstock.protocols.contract import ManifestRole, RegistryNames, ShardRole
from penstock.protocols.singer.command_line import SECRET_WORD
from penstock.protocols.singer.destination import SingerTarget
from penstock.protocols.singer.schema import DELETED_AT, LOG_CURSORS, SingerSchema
from penstock.protocols.singer.source import PROTOCOL, SingerSource
from penstock.protocols.singer.spec import SPEC
from penstock.protocols.singer.state import SingerState
from penstock.protocols.stdio.connect import connect_lines
from penstock.runtimes.contract import ConnectionStats, Start
from penstock.runtimes.masking import Masker
from penstock.store.keys import OpenKeys

_FAMILIES = ("meltanolabs-", "pipelinewise-")
"""Publishers of forks of taps and targets under their own names."""


class SingerPackage(RegistryNames):
    """``ProtocolPackage`` of ``protocols.contract``."""

    name = PROTOCOL
    source = SingerSource()
    destination = SingerTarget()
    transform = None
    manifest: ManifestRole | None = None
    sharding: ShardRole | None = None
    state = SingerState()
    schema = SingerSchema()
    # Singer's own names where it has one for that meaning, else the neutral ones.
    metadata_names = MetadataNames(
        raw_id=NEUTRAL_METADATA.raw_id,
        extracted_at="_sdc_extracted_at",
        meta=NEUTRAL_METADATA.meta,
        generation_id="_sdc_table_version",
    )
    change_words = ChangeWords()
    deleted_at_field: str | None = DELETED_AT
    log_cursor_prefix: str | None = LOG_CURSORS
    secret_word: str | None = SECRET_WORD
    keeps_undeclared = True
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

    def package_names(self, name: str) -> tuple[str, ...]:
        """Returns the name itself; a bare ``tap-x`` may also be a fork published under a longer
        name."""
        if not name.startswith(SPEC.prefixes):
            return (name,)
        return (name, *(f"{family}{name}" for family in _FAMILIES))

    def script_names(self, name: str) -> tuple[str, ...]:
        """Returns both names: ``meltanolabs-tap-x`` has the script ``tap-x``."""
        places = [name.find(f"-{p}") + 1 for p in SPEC.prefixes if f"-{p}" in name]
        return (name, *(name[place:] for place in places))


PACKAGE = SingerPackage()
