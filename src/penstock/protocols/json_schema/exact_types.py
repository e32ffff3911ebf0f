"""Writes column types into the JSON Schema of a catalog without losing any, and reads them back.

A property has its type twice: as JSON Schema's ``type`` and ``format`` for readers, and exactly,
under ``data_type``. For sources with typed columns: Penstock makes their catalogs. Not here: a
source's own JSON Schema (``codec.json_schema``).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.codec.json_schema import SchemaDialect, data_type
from penstock.model.types import DataType, Kind

_EXACT = "data_type"
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
    Kind.number_text: {"type": "string"},
    Kind.json: {},
}


def object_schema(types: Mapping[str, DataType]) -> dict[str, Any]:
    """Builds the JSON Schema of records with these properties."""
    return {"type": "object", "properties": {n: property_schema(t) for n, t in types.items()}}


def property_schema(data_type: DataType) -> dict[str, Any]:
    """Builds the JSON Schema of a nullable property of this type."""
    words = dict(_WORDS[data_type.kind])
    if "type" in words:
        words["type"] = [words["type"], "null"]
    return {**words, _EXACT: msgspec.to_builtins(data_type)}


def exact_type(schema: Mapping[str, Any]) -> DataType:
    """Returns the type of one property: the exact one, else the one of its JSON Schema."""
    return _declared_type(schema) or read_type(schema)


def read_type(schema: Any) -> DataType:
    """Returns the type of a record or property whose JSON Schema may hold exact types."""
    return data_type(schema, _declared_type)


class ExactDialect(SchemaDialect):
    """Plain JSON Schema that may hold exact types."""

    def __init__(self) -> None:
        super().__init__(_declared_type)


def _declared_type(node: Mapping[str, Any]) -> DataType | None:
    return msgspec.convert(node[_EXACT], DataType) if _EXACT in node else None
