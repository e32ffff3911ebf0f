"""Column types of the protocol and of Arrow, as the JSON Schema that catalogs hold, and back.

A property says its type twice: in JSON Schema's words for people, and exactly, as ``data_type``.
What a connector declares is a hint (its SDK sends decimals and JSON as text): the frames decide,
and :func:`retold` says how. Source: the protocol's ``ColumnSchema``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.codec import columns, json_schema
from penstock.codec.untyped import ArrowSchema
from penstock.model.types import DataType, Field, Kind
from penstock.protocols.rapidbyte.wire.messages import ColumnSchema

_EXACT = "data_type"
_UNKNOWN = "unknown"  # a property whose type nobody has told
_INTEGERS = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32")
_DECLARED: dict[str, DataType] = {
    "Boolean": DataType(Kind.boolean),
    **dict.fromkeys(_INTEGERS, DataType(Kind.integer)),
    "UInt64": DataType(Kind.decimal, 20, 0),
    **dict.fromkeys(("Float16", "Float32", "Float64"), DataType(Kind.number)),
    **dict.fromkeys(("Binary", "LargeBinary"), DataType(Kind.binary)),
    **dict.fromkeys(("Date32", "Date64"), DataType(Kind.date)),
    **dict.fromkeys(
        ("TimestampMillis", "TimestampMicros", "TimestampNanos"), DataType(Kind.timestamp_ntz)
    ),
    "Json": DataType(Kind.json),
}
_TEXT = DataType(Kind.string)  # Utf8, LargeUtf8, Decimal128 (text, says the SDK), what is unknown
_WORDS: dict[Kind, dict[str, Any]] = {
    Kind.boolean: {"type": "boolean"},
    Kind.integer: {"type": "integer"},
    Kind.number: {"type": "number"},
    Kind.decimal: {"type": "number"},
    Kind.date: {"type": "string", "format": "date"},
    Kind.timestamp: {"type": "string", "format": "date-time"},
    Kind.timestamp_ntz: {"type": "string", "format": "date-time"},
    Kind.time: {"type": "string", "format": "time"},
    Kind.time_tz: {"type": "string", "format": "time"},
    Kind.binary: {"type": "string", "contentEncoding": "base64"},
    Kind.array: {"type": "array"},
    Kind.struct: {"type": "object"},
    Kind.string: {"type": "string"},
    Kind.json: {},
}


def declared(schema: Sequence[ColumnSchema]) -> dict[str, Any]:
    """The JSON Schema of a stream as discovered."""
    return _object({c.name: _DECLARED.get(c.data_type, _TEXT) for c in schema})


def assumed(columns: Mapping[str, DataType | None]) -> dict[str, Any]:
    """The JSON Schema of a stream that nobody told of. None: its type shows with the frames."""
    known = {n: {_UNKNOWN: True} if t is None else _property(t) for n, t in columns.items()}
    return {"type": "object", "properties": known}


def retold(known: Mapping[str, Any], frames: ArrowSchema) -> dict[str, Any] | None:
    """The JSON Schema with which frames of this Arrow schema fit; None: they fit ``known``."""
    properties = known.get("properties", {})
    types = {name: _exact(p) for name, p in properties.items() if _UNKNOWN not in p}
    found = {f.name: columns.data_type(f.type) for f in frames}
    new = {name: t for name, t in found.items() if not _carries(types.get(name), t)}
    return _object({**types, **new}) if new else None


def _carries(known: DataType | None, comes: DataType) -> bool:
    """Text carries JSON; all else must be what it was said to be."""
    return known == comes or (
        known is not None and known.kind is Kind.json and comes.kind is Kind.string
    )


def _object(types: Mapping[str, DataType]) -> dict[str, Any]:
    return {"type": "object", "properties": {n: _property(t) for n, t in types.items()}}


def _property(data_type: DataType) -> dict[str, Any]:
    words = dict(_WORDS[data_type.kind])
    if "type" in words:
        words["type"] = [words["type"], "null"]
    return {**words, _EXACT: msgspec.to_builtins(data_type)}


def _exact(schema: Mapping[str, Any]) -> DataType:
    return msgspec.convert(schema[_EXACT], DataType) if _EXACT in schema else _read(schema)


def _read(schema: Any) -> DataType:
    def hook(given: Mapping[str, Any]) -> DataType | None:
        return msgspec.convert(given[_EXACT], DataType) if _EXACT in given else None

    return json_schema.data_type(schema, hook)


class RapidbyteSchema:
    """``SchemaRole`` of ``protocols.contract``."""

    def data_type(self, schema: Any) -> DataType:
        return _read(schema)


def names(schema: Mapping[str, Any]) -> list[Field]:
    """Its columns, as fields by their own names."""
    properties = cast(dict[str, Any], schema.get("properties") or {})
    return [Field(name, name, _read(p)) for name, p in properties.items()]
