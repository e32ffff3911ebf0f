"""Keeps columns as JSON text whose schema an earlier version could not read: a reference to a file
of known types, outside of the stream's schema.

Otherwise one column would hold rows of two forms, text in quotes and plain text, and a key in both
forms would never merge. Such a column gets its type where its table is replaced. Pure. Not here:
the types (``ProtocolPackage.schema``), what a table does with a changed type (``tables``).
Neighbour: ``engine.plan.prepare``.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from penstock.model.catalog import Catalog, DestinationSyncMode, Stream, StreamId
from penstock.model.types import Kind, RowSchema
from penstock.protocols.contract import SchemaRole
from penstock.store.remembered import UsedModes

_UNIONS = ("oneOf", "anyOf")


def referring(streams: Iterable[Stream], modes: Mapping[StreamId, UsedModes]) -> list[StreamId]:
    """Returns the streams with such references whose tables keep their rows. ``modes``: the modes
    of their last sync."""
    return [
        s.id
        for s in streams
        if (used := modes.get(s.id)) is not None
        and (used.history or not used.replaces)
        and used.destination_sync_mode is not DestinationSyncMode.overwrite
        and any(map(_refers_outside, _properties(s).values()))
    ]


def with_kept_json(
    catalog: Catalog, before: Mapping[StreamId, RowSchema], role: SchemaRole
) -> Catalog:
    """Returns the catalog in which such columns have any JSON value, and a note for each stream.
    ``before``: the newest stored schemas of :func:`referring` streams."""
    streams: list[Stream] = []
    notes: list[str] = []
    for stream in catalog.streams:
        schema = before.get(stream.id)
        kept = [] if schema is None else _kept(stream, schema, role)
        if kept:
            properties = {**_properties(stream), **{name: {} for name in kept}}
            own = {**stream.json_schema, "properties": properties}
            stream = msgspec.structs.replace(stream, json_schema=own)
            notes.append(
                f"stream {stream.id}: {', '.join(kept)}: JSON text in its table, as before, "
                "though the schema refers to a known type; `penstock run --recreate` gives the "
                "table the types"
            )
        streams.append(stream)
    if not notes:
        return catalog
    return msgspec.structs.replace(catalog, streams=tuple(streams), notes=(*catalog.notes, *notes))


def _kept(stream: Stream, before: RowSchema, role: SchemaRole) -> list[str]:
    properties = _properties(stream)
    was_json = (f.source for f in before.fields if f.type.kind is Kind.json)
    return [
        name
        for name in was_json
        if _refers_outside(schema := properties.get(name))
        and role.data_type(schema).kind is not Kind.json
    ]


def _properties(stream: Stream) -> dict[str, Any]:
    found = stream.json_schema.get("properties")
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _refers_outside(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    given = cast(dict[str, Any], schema)
    ref = given.get("$ref")
    if isinstance(ref, str):
        return not ref.startswith("#")
    branches = (given.get(word) for word in _UNIONS)
    listed = (cast(list[Any], b) for b in branches if isinstance(b, list))
    return any(_refers_outside(each) for branch in listed for each in branch)
