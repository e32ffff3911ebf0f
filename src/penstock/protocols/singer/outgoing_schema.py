"""Converts row schemas to the JSON Schema that Singer targets take (reference §1.6).

Draft 4 to 7: plain types with "null", formats, ``contentEncoding``; no ``$ref``, no boolean
schemas, no keyword for which a strict target would reject a value. Neighbours: ``outgoing`` sends
it; ``schema`` reads the schemas of taps, and reads this one back as the same types.
"""

from collections.abc import Collection
from typing import Any

from penstock.model.types import DataType, Field, Kind, RowSchema

DECIMAL_FORMAT = "x-singer.decimal"
"""Decimals are texts: ``multipleOf`` makes targets that check values through doubles refuse them
(reference §0.7), and a plain number lets others round them. Targets of the Singer SDK make a
DECIMAL(precision, scale) of this format; they do not know it without the ``x-``."""

_ANY = ["string", "number", "integer", "array", "object", "boolean", "null"]
_PLAIN: dict[Kind, dict[str, Any]] = {
    Kind.string: {"type": ["null", "string"]},
    Kind.number_text: {"type": ["null", "string"]},
    Kind.boolean: {"type": ["null", "boolean"]},
    Kind.integer: {"type": ["null", "integer"]},
    Kind.number: {"type": ["null", "number"]},
    Kind.date: {"type": ["null", "string"], "format": "date"},
    Kind.timestamp: {"type": ["null", "string"], "format": "date-time"},
    Kind.timestamp_ntz: {"type": ["null", "string"], "format": "date-time"},
    Kind.time: {"type": ["null", "string"], "format": "time"},
    Kind.time_tz: {"type": ["null", "string"], "format": "time"},
    Kind.binary: {"type": ["null", "string"], "contentEncoding": "base64"},
}


def json_schema(schema: RowSchema, required: Collection[str] = ()) -> dict[str, Any]:
    """Returns the JSON Schema of a stream's records, by the properties' original names.
    ``required``: properties that are never null."""
    properties = _properties(schema.fields)
    for name in properties.keys() & {*required}:
        types = [t for t in properties[name]["type"] if t != "null"]
        properties[name] = {**properties[name], "type": types}
    return {"type": "object", "properties": properties}


def _properties(fields: tuple[Field, ...]) -> dict[str, Any]:
    return {f.source: _property(f.type) for f in fields}


def _property(data_type: DataType) -> dict[str, Any]:
    match data_type.kind:
        case Kind.decimal:
            return {
                "type": ["null", "string"],
                "format": DECIMAL_FORMAT,
                "precision": data_type.precision or 38,
                "scale": data_type.scale or 0,
            }
        case Kind.array:
            return {
                "type": ["null", "array"],
                "items": _property(data_type.item or DataType(Kind.json)),
            }
        case Kind.struct:
            return {"type": ["null", "object"], "properties": _properties(data_type.fields)}
        case Kind.json:
            return {"type": list(_ANY)}
        case kind:
            return dict(_PLAIN[kind])
