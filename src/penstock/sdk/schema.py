"""Makes JSON Schemas from types, and values of those types from JSON data.

The schemas are draft 7, with ``$schema`` and without keywords unknown to draft 7, which hosts
refuse.
"""

from typing import Any, cast

import msgspec

from penstock.sdk.connector import TypeOrSchema

DRAFT = "http://json-schema.org/draft-07/schema#"

_KEYWORDS = frozenset(
    {
        "$ref",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "readOnly",
        "writeOnly",
        "type",
        "enum",
        "const",
        "multipleOf",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "items",
        "additionalItems",
        "maxItems",
        "minItems",
        "uniqueItems",
        "contains",
        "maxProperties",
        "minProperties",
        "required",
        "properties",
        "patternProperties",
        "additionalProperties",
        "dependencies",
        "propertyNames",
        "if",
        "then",
        "else",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "format",
        "contentMediaType",
        "contentEncoding",
        "definitions",
    }
)
_MAPS = frozenset({"properties", "patternProperties", "definitions"})
_DATA = frozenset({"default", "examples", "enum", "const", "required"})


def json_schema(kind: TypeOrSchema) -> dict[str, Any]:
    """Returns the type's schema. Raises ``TypeError`` for a type without one, and for a schema of
    another draft."""
    if kind is None:
        return {"$schema": DRAFT, "type": "object", "properties": {}, "additionalProperties": True}
    if isinstance(kind, dict):
        if kind.get("$schema", DRAFT).rstrip("#") != DRAFT.rstrip("#"):
            raise TypeError(f"a schema must be of draft 7 ({DRAFT}), not {kind['$schema']}")
        return {**kind, "$schema": DRAFT}
    (root,), parts = msgspec.json.schema_components((kind,), ref_template="#/definitions/{name}")
    if "$ref" in root:  # hosts read the root's own type
        root = parts[root["$ref"].rpartition("/")[2]]
    found = {**root, "definitions": parts} if _refers(root) else root
    return {"$schema": DRAFT, **_draft_7(found)}


def convert(value: Any, kind: TypeOrSchema) -> Any:
    """Converts JSON data to ``kind``; returns it unchanged where that is not a type. Raises
    ``ValueError``."""
    if kind is None or isinstance(kind, dict):
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
        return cast(dict[str, Any], value)
    return msgspec.convert(value, kind)


def _refers(schema: Any) -> bool:
    if isinstance(schema, dict):
        parts = cast(dict[str, Any], schema)
        return "$ref" in parts or any(_refers(part) for part in parts.values())
    return isinstance(schema, list) and any(_refers(part) for part in cast(list[Any], schema))


def _draft_7(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_draft_7(part) for part in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    given = cast(dict[str, Any], schema)
    if "prefixItems" in given:  # the draft 7 name
        rest = {k: v for k, v in given.items() if k != "prefixItems"}
        given = {**rest, "items": given["prefixItems"], "additionalItems": given.get("items", True)}
    found: dict[str, Any] = {}
    for word, part in given.items():
        if word in _MAPS:
            found[word] = {name: _draft_7(of) for name, of in part.items()}
        elif word in _DATA:
            found[word] = part
        elif word in _KEYWORDS:
            found[word] = _draft_7(part)
    return found
