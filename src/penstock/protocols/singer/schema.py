"""Reads the types of Singer's dialect of JSON Schema: decimals written as text. Also names the
property that marks deletes.

Not here: plain JSON Schema, with the differences of draft 4 (``codec.json_schema``). Source: the
Singer SDK's ``singer.decimal`` format, also met as ``x-singer.decimal``, with optional
``precision`` and ``scale`` next to it.
"""

from collections.abc import Mapping
from typing import Any, cast

from penstock.codec.json_schema import SchemaDialect
from penstock.model.types import DataType, Kind

DELETED_AT = "_sdc_deleted_at"
"""The top-level property of a delete's time; many taps add it to the SCHEMA only for log
replication."""
LOG_CURSORS = "_sdc_lsn"
"""The bookmark of taps that read a database's log (MeltanoLabs' tap for Postgres and others). A
SCHEMA does not show that the method is LOG_BASED."""

_FORMATS = ("singer.decimal", "x-singer.decimal")
_STANDS_ON = frozenset({"string", "number", "integer", "null"})
_PRECISION, _SCALE = 38, 18  # defaults: half of the digits


def annotated(schema: Mapping[str, Any]) -> DataType | None:
    """Returns the decimal type of an annotated schema, as annotated; None: it has no annotation.
    The hook of ``codec.json_schema``, which limits it to the digits that a decimal can have."""
    if schema.get("format") not in _FORMATS:
        return None
    given = schema.get("type", "string")
    names = set(map(str, cast(list[Any], given) if isinstance(given, list) else [given]))
    if not names <= _STANDS_ON:
        return None
    precision, scale = _digits(schema, "precision"), _digits(schema, "scale")
    precision = _PRECISION if precision is None else max(1, precision)
    scale = min(_SCALE if scale is None else scale, precision)
    return DataType(Kind.decimal, precision=precision, scale=scale)


def _digits(schema: Mapping[str, Any], word: str) -> int | None:
    value = schema.get(word)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class SingerSchema(SchemaDialect):
    """Reads column types (``SchemaRole`` of ``protocols.contract``)."""

    def __init__(self) -> None:
        super().__init__(annotated)
