"""Converts Airbyte's catalogs to the engine's ``Catalog``, and builds the configured catalog of a
read. Pure.

A stream's own object is kept unchanged (``Stream.raw``), so that unknown fields go back to the
source. Not here: the choice of modes (``stream_config``).
"""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from penstock.errors import SourceError
from penstock.model.catalog import Catalog, ConfiguredStream, Stream, StreamId, SyncMode
from penstock.model.events import Event, LogEvent, SkippedItems
from penstock.protocols.airbyte.messages import AirbyteStream
from penstock.protocols.stdio import wire_struct

_MODES = {m.value: m for m in (SyncMode.full_refresh, SyncMode.incremental)}


def catalog_of(data: Any) -> tuple[Catalog, list[Event]]:
    """Converts an AirbyteCatalog of decoded JSON. Returns it with events about streams that are
    left out: malformed ones, and the second of two with one name. Raises ``SourceError`` where it
    is not a catalog."""
    given = cast(dict[str, Any], data).get("streams") if isinstance(data, dict) else None
    if not isinstance(given, list):
        raise SourceError(
            "the source's CATALOG has no list `streams`",
            code="source.bad_catalog",
            hint="report this to the connector's maintainers",
        )
    found: dict[StreamId, Stream] = {}
    odd: list[Event] = []
    for index, raw in enumerate(cast(list[Any], given)):
        try:
            stream = _stream(raw)
        except wire_struct.WireError as e:
            odd += _odd("malformed_stream", f"stream {index + 1} of the catalog is left out: {e}")
            continue
        if stream.id in found:
            odd += _odd("repeated_stream", f"stream {stream.id} comes twice; the first is taken")
            continue
        found[stream.id] = stream
    return Catalog(tuple(found.values())), odd


def _odd(what: str, text: str) -> Iterator[Event]:
    yield SkippedItems(what)
    yield LogEvent("WARN", text)


def _stream(raw: Any) -> Stream:
    own = wire_struct.from_data(AirbyteStream, raw)
    modes = [_MODES[m] for m in own.supported_sync_modes or () if m in _MODES]
    key = own.source_defined_primary_key
    return Stream(
        id=StreamId.of(own.namespace, own.name),
        json_schema=own.json_schema,
        sync_modes=tuple(dict.fromkeys([SyncMode.full_refresh, *modes])),
        source_defined_cursor=bool(own.source_defined_cursor),
        default_cursor_field=tuple(own.default_cursor_field) if own.default_cursor_field else None,
        source_defined_primary_key=tuple(tuple(p) for p in key if p) if key else None,
        is_resumable=bool(own.is_resumable),
        raw=raw,
    )


def configured_catalog(streams: Iterable[ConfiguredStream]) -> dict[str, Any]:
    """The ConfiguredAirbyteCatalog that ``read --catalog`` gets, as JSON data."""
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
    """The source's own stream object; its schema has the selected properties only, and those that
    key and cursor begin with."""
    raw = {"name": stream.id.name, "json_schema": stream.stream.json_schema, **stream.stream.raw}
    if stream.id.namespace is not None:
        raw.setdefault("namespace", stream.id.namespace)
    raw.setdefault("supported_sync_modes", [m.value for m in stream.stream.sync_modes])
    schema = cast(dict[str, Any], raw["json_schema"])
    if stream.columns is None or not isinstance(schema.get("properties"), dict):
        return raw
    kept = {*stream.columns, *(p[0] for p in (*stream.primary_key, stream.cursor_field) if p)}
    properties = {k: v for k, v in schema["properties"].items() if k in kept}
    return {**raw, "json_schema": {**schema, "properties": properties}}
