"""What a source discovers, as the engine's catalog. Pure. Source: the protocol, sections 3.1 and 9.

Neighbours: ``rapidbyte.wire.schema`` (the types of columns), ``manifest`` (which modes there are).
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.model.catalog import Catalog, Stream, StreamId, SyncMode
from penstock.model.events import Log
from penstock.model.types import DataType
from penstock.protocols.contract import EventSink
from penstock.protocols.rapidbyte.declared.manifest import Manifest, mode_problems
from penstock.protocols.rapidbyte.wire import messages
from penstock.protocols.rapidbyte.wire.schema import discovered_schema, undiscovered_schema


def of(found: messages.DiscoveredCatalog) -> Catalog:
    return Catalog(tuple(_stream(s) for s in found.streams))


def named(catalog: Catalog, manifest: Manifest | None, log: EventSink) -> Catalog:
    """Without the sync modes that the manifest does not name, so that nothing is planned with
    them (section 9)."""
    if manifest is None:
        return catalog
    streams: list[Stream] = []
    for stream in catalog.streams:
        modes = [m.value for m in stream.sync_modes]
        able = tuple(
            m for m in stream.sync_modes
            if not mode_problems(manifest, "source", sync_modes=[m.value])
        )  # fmt: skip
        if len(able) < len(modes):
            for problem in mode_problems(manifest, "source", sync_modes=modes):
                log(Log("WARN", f"{stream.id}: {problem}"))
        streams.append(msgspec.structs.replace(stream, sync_modes=able or stream.sync_modes))
    return Catalog(tuple(streams))


def undiscovered(stream: StreamId, columns: Mapping[str, DataType | None]) -> Stream:
    """As ``ProtocolPackage.undiscovered``: the manifest says which modes there are."""
    return Stream(
        id=stream,
        json_schema=undiscovered_schema(columns),
        sync_modes=tuple(SyncMode),
        assumed=True,
    )


def _stream(found: messages.DiscoveredStream) -> Stream:
    known = {m.value: m for m in SyncMode}
    modes = tuple(known[m] for m in found.supported_sync_modes if m in known)
    cursor, key = found.source_defined_cursor, found.source_defined_primary_key
    return Stream(
        id=StreamId.of(None, found.name),
        json_schema=discovered_schema(found.schema),
        sync_modes=modes,
        default_cursor_field=(cursor,) if cursor else None,
        source_defined_primary_key=tuple((name,) for name in key) if key else None,
        raw=cast(dict[str, Any], msgspec.to_builtins(found)),
    )
