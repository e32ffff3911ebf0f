"""Builds what a destination gets next to records: the configured catalog, states, stream statuses.
Pure.

The catalog's JSON schemas describe the sent rows: they are built from the row schemas of the parts,
in the protocol's types (protocol, Data Types). Not here: records (``record_encoder``), the write
(``destination``), matching echoes (``state_echoes``).
"""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.codec.exact_json import exact, exact_text
from penstock.codec.json_schema import data_type
from penstock.model.catalog import StreamId, SyncMode
from penstock.model.state import StateType, StoredState
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.airbyte.enums import MessageType, TraceType, WireStreamStatus
from penstock.protocols.airbyte.schema import annotated
from penstock.protocols.writing import WriteStream

WRAPPED = "penstock"
"""The key of a shared state that holds the text of a state of another protocol."""

_SIMPLE: dict[Kind, dict[str, Any]] = {
    Kind.string: {"type": "string"},
    Kind.number_text: {"type": "string"},
    Kind.boolean: {"type": "boolean"},
    Kind.integer: {"type": "integer"},
    Kind.number: {"type": "number"},
    Kind.date: {"type": "string", "format": "date"},
    Kind.timestamp: {
        "type": "string",
        "format": "date-time",
        "airbyte_type": "timestamp_with_timezone",
    },
    Kind.timestamp_ntz: {
        "type": "string",
        "format": "date-time",
        "airbyte_type": "timestamp_without_timezone",
    },
    Kind.time: {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
    Kind.time_tz: {"type": "string", "format": "time", "airbyte_type": "time_with_timezone"},
    Kind.binary: {"type": "string", "contentEncoding": "base64"},
}
_ANYTHING = ["null", "object", "array", "string", "number", "boolean"]
_HOLDS_JSON = (Kind.json, Kind.struct, Kind.array)
_DEFINITIONS = ("definitions", "$defs")


def catalog(streams: Sequence[WriteStream]) -> dict[str, Any]:
    """Returns the ConfiguredAirbyteCatalog for ``write --catalog``, as JSON data.

    ``overwrite`` is kept next to the generations: destinations with generations replace rows where
    the minimum equals the generation; the others read only this mode."""
    return {"streams": [_configured(s) for s in streams]}


def _configured(stream: WriteStream) -> dict[str, Any]:
    configured, raw = stream.configured, stream.configured.stream
    own: dict[str, Any] = {
        **descriptor(stream.target),
        "json_schema": json_schema(
            stream.schemas[stream.latest], raw.json_schema, stream.required(stream.latest)
        ),
        "supported_sync_modes": ["full_refresh", "incremental"],
        "source_defined_cursor": raw.source_defined_cursor,
        "is_resumable": raw.is_resumable,
    }
    if raw.default_cursor_field:
        own["default_cursor_field"] = list(raw.default_cursor_field)
    if raw.source_defined_primary_key:
        own["source_defined_primary_key"] = [list(p) for p in raw.source_defined_primary_key]
    full = configured.sync_mode is SyncMode.full_refresh
    entry: dict[str, Any] = {
        "stream": own,
        "sync_mode": "full_refresh" if full else "incremental",
        "destination_sync_mode": configured.destination_sync_mode.value,
    }
    if not (full or configured.cursor_field or raw.default_cursor_field):
        own["source_defined_cursor"] = True  # the source keeps its position itself
    if configured.cursor_field:
        entry["cursor_field"] = list(configured.cursor_field)
    if configured.primary_key:
        entry["primary_key"] = [list(path) for path in configured.primary_key]
    for name in ("generation_id", "minimum_generation_id", "sync_id"):
        value = getattr(configured, name)
        if value is not None:
            entry[name] = value
    return entry


def descriptor(target: StreamId) -> dict[str, Any]:
    """Returns ``{"name", "namespace"}``, without a namespace where there is none."""
    named = {"name": target.name}
    return named if target.namespace is None else {**named, "namespace": target.namespace}


# -- schemas


def json_schema(
    schema: RowSchema, original: Mapping[str, Any], required: Collection[str] = ()
) -> dict[str, Any]:
    """Returns the JSON schema of records with the columns of ``schema``. A column with JSON text
    keeps its property's original schema, unless that has one plain type and the pipeline sets json.
    Times that may lack a zone are plain strings: a destination makes NULL of values that do not fit
    ``time_with_timezone``. ``required``: properties that are never null; all others may be."""
    fields = _as_sent(schema.fields, _zoned(original))
    properties = _properties(fields, original)
    for field in fields:
        if field.source in required and field.type.kind is not Kind.json:
            of = properties[field.source]
            properties[field.source] = {**of, "type": of["type"][-1]}
    made: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": True,
        "properties": properties,
    }
    for word in _DEFINITIONS:
        if word in original:
            made[word] = original[word]
    return made


def zoneless_times(schema: RowSchema, original: Mapping[str, Any]) -> list[str]:
    """Returns the properties with times in them that are sent as plain strings."""
    sent = _as_sent(schema.fields, _zoned(original))
    return [f.source for f, s in zip(schema.fields, sent, strict=True) if f.type != s.type]


def _zoned(original: Any) -> DataType:
    """Returns the types of a schema in which a time has a zone only where ``airbyte_type`` declares
    it."""
    return data_type(original, _annotated)


def _annotated(schema: Mapping[str, Any]) -> DataType | None:
    found = annotated(schema)
    bare = found is None and schema.get("format") == "time"
    return DataType(Kind.string) if bare else found


def _as_sent(fields: Sequence[Field], declared: DataType | None) -> tuple[Field, ...]:
    known = {} if declared is None else {f.source: f.type for f in declared.fields}
    return tuple(Field(f.name, f.source, _type_sent(f.type, known.get(f.source))) for f in fields)


def _type_sent(given: DataType, declared: DataType | None) -> DataType:
    match given.kind:
        case Kind.time_tz if declared != given:
            return DataType(Kind.string)
        case Kind.array if given.item is not None:
            item = _type_sent(given.item, None if declared is None else declared.item)
            return DataType(Kind.array, item=item)
        case Kind.struct:
            return DataType(Kind.struct, fields=_as_sent(given.fields, declared))
        case _:
            return given


def _properties(fields: Sequence[Field], original: Any) -> dict[str, Any]:
    known = _inside(original, "properties")
    return {f.source: _property(f.type, _inside(known, f.source)) for f in fields}


def _property(of: DataType, original: Any) -> dict[str, Any]:
    match of.kind:
        case Kind.json:
            known = cast(dict[str, Any], original) if isinstance(original, dict) else {}
            fits = known and data_type(known, annotated).kind in _HOLDS_JSON
            return known if fits else {"type": _ANYTHING}
        case Kind.decimal:
            made: dict[str, Any] = {"type": "number" if of.scale else "integer"}
        case Kind.array:
            item = of.item or DataType(Kind.json)
            made = {"type": "array", "items": _property(item, _inside(original, "items"))}
        case Kind.struct:
            made = {
                "type": "object",
                "additionalProperties": True,
                "properties": _properties(of.fields, original),
            }
        case kind:
            made = _SIMPLE[kind]
    return {**made, "type": ["null", made["type"]]}


def _inside(schema: Any, word: str) -> Any:
    return cast(dict[str, Any], schema).get(word) if isinstance(schema, dict) else None


# -- states and statuses


def state(saved: StoredState, source: str, target: StreamId | None, seq: int, rows: int) -> Any:
    """Returns the AirbyteStateMessage for a saved state, as JSON data: the source's own as sent,
    with the stream's name at the destination, our ``id`` and count. A state of another protocol
    becomes text inside. A typed state has both ``type`` and the protocol page's ``state_type``: a
    destination that misses the one it reads takes the state for V1. ``rows``: sent since the
    scope's last."""
    message: dict[str, Any]
    if source == "airbyte":
        message = cast(dict[str, Any], exact(saved.blob))
        kind = saved.scope.type
        if saved.scope.type is StateType.stream and target is not None:
            sent = message["stream"]["stream_descriptor"]
            if StreamId(sent.get("namespace"), sent["name"]) != target:
                message["stream"] = {**message["stream"], "stream_descriptor": descriptor(target)}
    elif target is not None:
        body = {"stream_descriptor": descriptor(target), "stream_state": {WRAPPED: saved.blob}}
        kind, message = StateType.stream, {"stream": body}
    else:
        body = {"shared_state": {WRAPPED: saved.blob}, "stream_states": []}
        kind, message = StateType.global_, {"global": body}
    for word in ("type", "state_type"):
        if kind is not StateType.legacy and message.get(word) is None:
            message[word] = kind.value
    stats = message.get("sourceStats")
    known = cast(dict[str, Any], stats) if isinstance(stats, dict) else {}
    message["sourceStats"] = {**known, "recordCount": float(rows)}
    message["id"] = seq
    return message


def state_line(message: Mapping[str, Any]) -> bytes:
    return exact_text({"type": MessageType.state.value, "state": message}) + b"\n"


def status_line(target: StreamId, status: WireStreamStatus) -> bytes:
    """Encodes a stream status. COMPLETE: from now on the destination may replace an older
    generation. INCOMPLETE: it must not, and keeps what it got; without a status some destinations
    drop what they have not written."""
    trace = {
        "type": TraceType.stream_status.value,
        "emitted_at": time.time_ns() // 1_000_000,
        "stream_status": {"stream_descriptor": descriptor(target), "status": status.value},
    }
    return msgspec.json.encode({"type": MessageType.trace.value, "trace": trace}) + b"\n"
