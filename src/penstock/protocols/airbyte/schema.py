"""Reads the types of Airbyte's dialect of JSON Schema: the annotation ``airbyte_type``.

Also reads its references to ``WellKnownTypes``, whose numbers are texts. Not here: plain JSON
Schema (``codec.json_schema``). Source: protocol, Data Types (the supported-data-types table). A
date-time without annotation has a time zone.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from penstock.codec.json_schema import SchemaDialect
from penstock.model.types import DataType, Kind

_TEXT = frozenset({"string"})
_NUMERIC = frozenset({"string", "number", "integer"})

# airbyte_type -> the JSON types that it may annotate, and the column type. Older connectors send
# big numbers as strings. The scale of big numbers is 9, since the schema gives none.
_TYPES: dict[str, tuple[frozenset[str], DataType]] = {
    "timestamp_with_timezone": (_TEXT, DataType(Kind.timestamp)),
    "timestamp_without_timezone": (_TEXT, DataType(Kind.timestamp_ntz)),
    "time_with_timezone": (_TEXT, DataType(Kind.time_tz)),
    "time_without_timezone": (_TEXT, DataType(Kind.time)),
    "integer": (_NUMERIC, DataType(Kind.integer)),
    "big_integer": (_NUMERIC, DataType(Kind.decimal, precision=38, scale=0)),
    "big_number": (_NUMERIC, DataType(Kind.decimal, precision=38, scale=9)),
}

_WELL_KNOWN = re.compile(
    r"(?:^|/)well_?known_?types(?:\.json|\.ya?ml)?#/(?:definitions|\$defs)/(\w+)", re.IGNORECASE
)
_DEFINED = {
    "String": Kind.string,
    "BinaryData": Kind.binary,
    "Boolean": Kind.boolean,
    "Integer": Kind.integer,
    "Number": Kind.number,
    "Date": Kind.date,
    "TimestampWithTimezone": Kind.timestamp,
    "TimestampWithoutTimezone": Kind.timestamp_ntz,
    "TimeWithTimezone": Kind.time_tz,
    "TimeWithoutTimezone": Kind.time,
}


def annotated(schema: Mapping[str, Any]) -> DataType | None:
    """Returns the column type of an annotated schema. None: the annotation is missing, or does not
    fit the JSON type or the union. A reference to a well-known type is that type. The hook of
    ``codec.json_schema``."""
    ref = schema.get("$ref")
    if isinstance(ref, str) and (known := _WELL_KNOWN.search(ref)) is not None:
        kind = _DEFINED.get(known[1])
        return None if kind is None else DataType(kind)
    word = schema.get("airbyte_type")
    rule = _TYPES.get(word) if isinstance(word, str) else None
    if rule is None:
        return None
    given = schema.get("type", "string")
    names = set(cast(list[Any], given) if isinstance(given, list) else [given]) - {"null"}
    return rule[1] if names and names <= rule[0] else None


class AirbyteSchema(SchemaDialect):
    """Reads column types (``SchemaRole`` of ``protocols.contract``)."""

    def __init__(self) -> None:
        super().__init__(annotated)
