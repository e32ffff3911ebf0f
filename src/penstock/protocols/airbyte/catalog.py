"""Converts Airbyte's catalogs to the engine's ``Catalog``, and builds the configured catalog for a
read. Pure.

A stream's own object is kept unchanged (``Stream.raw``), so that unknown fields go back to the
source. A stream is dropped only for a missing name. Not here: the choice of modes
(``stream_config``).
"""

from collections.abc import Collection, Iterable
from typing import Any, cast

from penstock.errors import SourceError
from penstock.model.catalog import Catalog, ConfiguredStream, Stream, StreamId, SyncMode
from penstock.protocols.airbyte.messages import AirbyteStream
from penstock.protocols.stdio import wire_struct

# In lower case; the protocol page's text also writes FULL_REFRESH and INCREMENTAL.
_MODES = {m.value: m for m in (SyncMode.full_refresh, SyncMode.incremental)}


def catalog_of(data: Any) -> Catalog:
    """Converts an AirbyteCatalog of decoded JSON. Notes skipped streams (those without a name, and
    the second of two with one name) and malformed fields. Raises ``SourceError`` where it is not a
    catalog."""
    given = cast(dict[str, Any], data).get("streams") if isinstance(data, dict) else None
    if not isinstance(given, list):
        raise SourceError(
            "the source's CATALOG has no list `streams`",
            code="source.bad_catalog",
            hint="report this to the connector's maintainers",
        )
    found: dict[StreamId, Stream] = {}
    notes: list[str] = []
    unnamed = 0
    entries = cast(list[Any], given)
    apart = names_apart(entries)
    for index, raw in enumerate(entries):
        try:
            stream, faults = stream_of(raw, apart)
        except wire_struct.WireError as e:
            unnamed += 1
            notes.append(f"stream {index + 1} of the source's catalog is left out: {e}")
            continue
        if stream.id in found:
            notes.append(f"stream {stream.id} comes twice in the catalog; the first is taken")
            continue
        found[stream.id] = stream
        notes += faults
    return Catalog(tuple(found.values()), unnamed=unnamed, notes=tuple(notes))


def names_apart(entries: Iterable[Any]) -> frozenset[str]:
    """Returns the names that AirbyteStreams have both with namespace ``""`` and with none: those
    are two streams each (protocol, StreamDescriptor). A single one's id has no namespace, whatever
    its spelling, since sources write either for "none"."""
    spellings: dict[str, set[bool]] = {}
    for entry in entries:
        given = cast(dict[str, Any], entry) if isinstance(entry, dict) else {}
        name, namespace = given.get("name"), given.get("namespace")
        if isinstance(name, str) and namespace in (None, ""):
            spellings.setdefault(name, set()).add(namespace is None)
    return frozenset(name for name, found in spellings.items() if len(found) > 1)


def stream_of(raw: Any, apart: Collection[str] = ()) -> tuple[Stream, list[str]]:
    """Converts an AirbyteStream. ``apart``: of :func:`names_apart`. A field other than its name
    that cannot be read counts as absent. A path that is a text counts as a path of one, and
    ``schema``, which the specification writes in one place, as ``json_schema``. Also returns a note
    of each. Raises ``WireError`` without a name."""
    given, paths = _with_paths(raw)
    schema = _schema_in(given)
    if schema is not None:
        given = {**given, "json_schema": schema}
    own, faults = wire_struct.lenient(AirbyteStream, given)
    spelled = StreamId(own.namespace, own.name)
    id = spelled if own.name in apart else StreamId.of(own.namespace, own.name)
    modes = [_MODES[m] for m in map(str.lower, own.supported_sync_modes or ()) if m in _MODES]
    key = own.source_defined_primary_key
    stream = Stream(
        id=id,
        json_schema=own.json_schema,
        sync_modes=tuple(dict.fromkeys([SyncMode.full_refresh, *modes])),
        source_defined_cursor=bool(own.source_defined_cursor),
        default_cursor_field=tuple(own.default_cursor_field) if own.default_cursor_field else None,
        source_defined_primary_key=tuple(tuple(p) for p in key if p) if key else None,
        is_resumable=bool(own.is_resumable),
        raw=raw,
    )
    notes = [
        f"stream {id}: its catalog gives {name} as text; it is read as paths" for name in paths
    ]
    if schema is not None:
        notes.append(f"stream {id}: its catalog has `schema`, which is read as `json_schema`")
    notes += [f"stream {id}: its catalog's {fault}; it counts as not given" for fault in faults]
    return stream, notes


def _schema_in(given: Any) -> dict[str, Any] | None:
    """Returns the schema of a stream that has it under ``schema`` (specification, Discover)."""
    if not isinstance(given, dict) or "json_schema" in given:
        return None
    schema = cast(dict[str, Any], given).get("schema")
    return cast(dict[str, Any], schema) if isinstance(schema, dict) else None


def _with_paths(raw: Any) -> tuple[Any, list[str]]:
    """Returns the stream with lists in place of texts as paths, and the names of those fields."""
    if not isinstance(raw, dict):
        return raw, []
    given = cast(dict[str, Any], raw)
    changed: dict[str, Any] = {}
    cursor, key = given.get("default_cursor_field"), given.get("source_defined_primary_key")
    if isinstance(cursor, str):
        changed["default_cursor_field"] = [cursor]
    key = [key] if isinstance(key, str) else key
    if isinstance(key, list):
        paths = [[p] if isinstance(p, str) else p for p in cast(list[Any], key)]
        if paths != given["source_defined_primary_key"]:
            changed["source_defined_primary_key"] = paths
    return {**given, **changed}, list(changed)


def configured_catalog(streams: Iterable[ConfiguredStream]) -> dict[str, Any]:
    """Returns the ConfiguredAirbyteCatalog for ``read --catalog``, as JSON data."""
    return {"streams": [_configured(s) for s in streams]}


def _configured(stream: ConfiguredStream) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "stream": _pruned(stream),
        "sync_mode": stream.sync_mode.value,
        "destination_sync_mode": stream.destination_sync_mode.value,
    }
    if stream.cursor_field:
        entry["cursor_field"] = list(stream.cursor_field)
    if stream.primary_key:
        entry["primary_key"] = [list(path) for path in stream.primary_key]
    for name in ("generation_id", "minimum_generation_id", "sync_id"):
        value = getattr(stream, name)
        if value is not None:
            entry[name] = value
    return entry


def _pruned(stream: ConfiguredStream) -> dict[str, Any]:
    """Returns the source's own stream object; its schema has only the selected properties, and the
    first properties of key and cursor."""
    raw = {"name": stream.id.name, "json_schema": stream.stream.json_schema, **stream.stream.raw}
    if stream.id.namespace is not None:
        raw.setdefault("namespace", stream.id.namespace)
    raw.setdefault("supported_sync_modes", [m.value for m in stream.stream.sync_modes])
    if not isinstance(raw["json_schema"], dict):
        raw["json_schema"] = stream.stream.json_schema
    schema = cast(dict[str, Any], raw["json_schema"])
    if stream.columns is None or not isinstance(schema.get("properties"), dict):
        return raw
    kept = {*stream.columns, *(p[0] for p in (*stream.primary_key, stream.cursor_field) if p)}
    properties = {k: v for k, v in schema["properties"].items() if k in kept}
    pruned = {**schema, "properties": properties}
    if _schema_in(stream.stream.raw) is not None:
        raw["schema"] = pruned
    return {**raw, "json_schema": pruned}
