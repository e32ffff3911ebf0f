"""Airbyte's dialect of JSON Schema: what ``airbyte_type`` adds to the generic reader.

Not here: everything that plain JSON Schema says (``codec.json_schema``). Source: protocol, Data
Types (the supported-data-types table). A date-time without annotation is with time zone.
"""

from collections.abc import Mapping
from typing import Any, cast

from penstock.codec import json_schema
from penstock.model.types import DataType, Kind

_TEXT = frozenset({"string"})
_NUMERIC = frozenset({"string", "number", "integer"})

# airbyte_type -> the JSON types it may stand on, and what it makes of them. Big numbers came as
# strings in older connectors; nine digits after the point, for want of any bound in the schema.
_TYPES: dict[str, tuple[frozenset[str], DataType]] = {
    "timestamp_with_timezone": (_TEXT, DataType(Kind.timestamp)),
    "timestamp_without_timezone": (_TEXT, DataType(Kind.timestamp_ntz)),
    "time_with_timezone": (_TEXT, DataType(Kind.time_tz)),
    "time_without_timezone": (_TEXT, DataType(Kind.time)),
    "integer": (_NUMERIC, DataType(Kind.integer)),
    "big_integer": (_NUMERIC, DataType(Kind.decimal, precision=38, scale=0)),
    "big_number": (_NUMERIC, DataType(Kind.decimal, precision=38, scale=9)),
}


def annotated(schema: Mapping[str, Any]) -> DataType | None:
    """The hook for ``codec.json_schema``: the type where ``airbyte_type`` decides it. An annotation
    on another JSON type than its own, or on a union, decides nothing."""
    word = schema.get("airbyte_type")
    rule = _TYPES.get(word) if isinstance(word, str) else None
    if rule is None:
        return None
    given = schema.get("type", "string")
    names = set(cast(list[Any], given) if isinstance(given, list) else [given]) - {"null"}
    return rule[1] if names and names <= rule[0] else None


class AirbyteSchema:
    """``SchemaRole`` of ``protocols.contract``."""

    def data_type(self, schema: Any) -> DataType:
        return json_schema.data_type(schema, annotated)
