"""Converts a discovered catalog of the protocol into the engine's ``Catalog``, restricted to the
sync modes in the manifest. Pure. Source: the protocol, sections 3.1 and 9.

Neighbours: ``rapidbyte.wire.schema`` (the types of columns), ``manifest`` (the available modes).
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.model.catalog import Catalog, Stream, StreamId, SyncMode
from penstock.model.events import LogEvent
from penstock.model.types import DataType
from penstock.protocols.connection import EventSink
from penstock.protocols.rapidbyte.declared.manifest import ComponentManifest, mode_problems
from penstock.protocols.rapidbyte.wire import messages
from penstock.protocols.rapidbyte.wire.schema import discovered_schema, undiscovered_schema


def converted(discovered: messages.DiscoveredCatalog) -> Catalog:
    """Converts a discovered catalog. Sync modes unknown to the engine are omitted. Of several
    streams with one name the first is taken: a run requests a stream only by its name, so that each
    would be read as the same rows."""
    found: dict[StreamId, Stream] = {}
    notes: list[str] = []
    for each in discovered.streams:
        stream = _stream(each)
        if found.setdefault(stream.id, stream) is not stream:
            notes.append(f"stream {stream.id} comes twice in the catalog; the first is taken")
    return Catalog(tuple(found.values()), notes=tuple(notes))


def restricted(catalog: Catalog, manifest: ComponentManifest | None, log: EventSink) -> Catalog:
    """Removes the sync modes that the manifest does not name, so that no plan uses them (section
    9), and logs a warning for each. A stream that would have none left keeps its own."""
    if manifest is None:
        return catalog
    streams: list[Stream] = []
    for stream in catalog.streams:
        modes = [m.value for m in stream.sync_modes]
        supported = tuple(
            m for m in stream.sync_modes
            if not mode_problems(manifest, "source", sync_modes=[m.value])
        )  # fmt: skip
        if len(supported) < len(modes):
            for problem in mode_problems(manifest, "source", sync_modes=modes):
                log(LogEvent("WARN", f"{stream.id}: {problem}"))
        streams.append(msgspec.structs.replace(stream, sync_modes=supported or stream.sync_modes))
    return msgspec.structs.replace(catalog, streams=tuple(streams))


def undiscovered(stream: StreamId, columns: Mapping[str, DataType | None]) -> Stream:
    """Returns the stream of a source that discovers none (``ProtocolPackage.undiscovered``). It has
    every sync mode; the manifest decides which of them are usable."""
    return Stream(
        id=stream,
        json_schema=undiscovered_schema(columns),
        sync_modes=tuple(SyncMode),
        assumed=True,
    )


def _stream(discovered: messages.WireDiscoveredStream) -> Stream:
    by_name = {m.value: m for m in SyncMode}
    modes = tuple(by_name[m] for m in discovered.supported_sync_modes if m in by_name)
    cursor, key = discovered.source_defined_cursor, discovered.source_defined_primary_key
    return Stream(
        id=StreamId.of(None, discovered.name),
        json_schema=discovered_schema(discovered.schema),
        sync_modes=modes,
        default_cursor_field=(cursor,) if cursor else None,
        source_defined_primary_key=tuple((name,) for name in key) if key else None,
        raw=cast(dict[str, Any], msgspec.to_builtins(discovered)),
    )
