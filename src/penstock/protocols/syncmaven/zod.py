"""Recognises Zod schemas that a connector serialized directly (``JSON.stringify(schema)``), in
place of JSON Schema. The page permits a Zod schema; in JSON it has no readable rules: Zod 3 has a
function in place of an object's fields, which JSON omits.

Not here: reading a spec (``messages``). Source: the protocol page, ``spec``; Zod 3 and 4.
"""

from typing import Any, cast


def unreadable(what: str) -> str:
    """Returns the note about an unreadable schema. ``what``: who describes what."""
    return (
        f"{what} by a Zod schema that was written out as JSON, whose rules cannot be read: any "
        "value is taken; let the connector write JSON Schema (z.toJSONSchema(schema, { target: "
        "'draft-7' }) of Zod 4, or the package zod-to-json-schema)"
    )


def is_zod(schema: dict[str, Any]) -> bool:
    """Returns whether this is a serialized Zod schema, or the fields of one (``schema.shape``)."""
    fields = [_is_one(value) for value in schema.values()]
    return _is_one(schema) or (bool(fields) and all(fields))


def _is_one(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    given = cast(dict[str, Any], value)
    old, new = given.get("_def"), given.get("def")  # of Zod 3, and of Zod 4
    if isinstance(old, dict):
        return str(cast(dict[str, Any], old).get("typeName")).startswith("Zod")
    if isinstance(new, dict):
        kind = cast(dict[str, Any], new).get("type")
        return isinstance(kind, str) and kind == given.get("type")
    return False
