"""Converts column types of the protocol and of Arrow into the JSON Schema that catalogs hold, and
back.

A stream of changes (cdc) has two more columns, which no catalog lists: ``OPERATION`` is the
connector's; ``DELETED_AT`` is added to its frames, since the engine recognises a delete by such a
column.

The catalog has the exact types (``json_schema.exact_types``). A connector's declared types are
hints (its SDK sends decimals and JSON as text): the frames decide, and :func:`changed_schema`
compares. Not here: the values (``codec.columns``). Source: the protocol's ``ColumnSchema``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from penstock.codec import columns
from penstock.codec.untyped import ArrowSchema, pa
from penstock.model.types import DataType, Field, Kind
from penstock.protocols.json_schema.exact_types import (
    ExactDialect,
    exact_type,
    object_schema,
    property_schema,
    read_type,
)
from penstock.protocols.rapidbyte.wire.messages import ColumnSchema

OPERATION = "_rb_op"  # insert, update or delete (v4's Postgres source)
DELETED_AT = "_rb_deleted_at"
_CHANGE = {OPERATION: DataType(Kind.string), DELETED_AT: DataType(Kind.timestamp)}

_UNKNOWN = "unknown"  # a property without a type from the connector or the pipeline
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
_TEXT = DataType(Kind.string)  # Utf8, LargeUtf8, Decimal128 (the SDK sends text), any other name


def discovered_schema(schema: Sequence[ColumnSchema]) -> dict[str, Any]:
    """Builds the JSON Schema of a stream from its discovered columns."""
    return object_schema({c.name: _DECLARED.get(c.data_type, _TEXT) for c in schema})


def undiscovered_schema(columns: Mapping[str, DataType | None]) -> dict[str, Any]:
    """Builds the JSON Schema of a stream that was not discovered, from the columns that the
    pipeline names. The frames decide a type that is None."""
    properties = {
        n: {_UNKNOWN: True} if t is None else property_schema(t) for n, t in columns.items()
    }
    return {"type": "object", "properties": properties}


def change_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Builds the JSON Schema of a stream's changes from that of its rows."""
    known = cast(dict[str, Any], schema.get("properties") or {})
    added = {name: property_schema(t) for name, t in _CHANGE.items() if name not in known}
    return {**schema, "properties": {**known, **added}}


def changed_schema(
    current: Mapping[str, Any], frames: ArrowSchema, *, removing: bool = False
) -> dict[str, Any] | None:
    """Compares frames with a stream's JSON Schema. Returns the schema after the change, which
    allows no other columns; None where the frames fit ``current``. A column that can hold only NULL
    (Arrow's ``null``) fits every type. ``removing``: the stream no longer has the columns that the
    frames lack."""
    properties = current.get("properties", {})
    types = {name: exact_type(p) for name, p in properties.items() if _UNKNOWN not in p}
    gone = types.keys() - _CHANGE.keys() - set(frames.names) if removing else set[str]()
    types = {name: t for name, t in types.items() if name not in gone}
    told = (f for f in frames if f.name not in types or not pa.types.is_null(f.type))
    frame_types = {f.name: columns.data_type(f.type) for f in told}
    new = {name: t for name, t in frame_types.items() if not _carries(types.get(name), t)}
    if not new and not gone:
        return None
    return {**object_schema({**types, **new}), "additionalProperties": False}


def typed_later(current: Mapping[str, Any], frames: Sequence[ArrowSchema]) -> ArrowSchema | None:
    """Gives the first frame's columns of Arrow's ``null`` type the types that they have in later
    frames. Returns its schema then; None where such a column has no type, neither in ``frames`` nor
    in the stream's JSON Schema ``current``."""
    properties = current.get("properties", {})
    unknown = {
        f.name
        for f in frames[0]
        if pa.types.is_null(f.type) and _UNKNOWN in properties.get(f.name, {_UNKNOWN: True})
    }
    if not unknown:
        return frames[0]
    types: dict[str, Any] = {}
    for field in (f for frame in frames for f in frame if f.name in unknown):
        if not pa.types.is_null(field.type):
            types.setdefault(field.name, field)
    if types.keys() != unknown:
        return None
    return pa.schema([types.get(f.name, f) for f in frames[0]])


def _carries(declared: DataType | None, actual: DataType) -> bool:
    """Returns whether a column of type ``actual`` fits the declared one: text fits JSON, all else
    must be equal."""
    return declared == actual or (
        declared is not None and declared.kind is Kind.json and actual.kind is Kind.string
    )


class RapidbyteSchema(ExactDialect):
    """Reads column types out of a catalog's JSON Schema (``SchemaRole`` of
    ``protocols.contract``)."""


def schema_fields(schema: Mapping[str, Any]) -> list[Field]:
    """Returns the columns of a stream's JSON Schema as fields, each under its own name."""
    properties = cast(dict[str, Any], schema.get("properties") or {})
    return [Field(name, name, read_type(p)) for name, p in properties.items()]
