"""Walks a JSON Schema by the names of properties: which paths lead somewhere.

Pure. Not here: types (``codec.json_schema``), a configuration's values (``config_check``).
"""

from collections.abc import Iterator
from typing import Any, cast

from penstock.codec.schema_walk import BRANCHES, parts
from penstock.model.catalog import FieldPath

_NULL = {"type": "null"}
_DEPTH = 16  # levels of a schema that are looked into: its references may form a circle


def exists(schema: Any, path: FieldPath) -> bool:
    """True where the path leads to a declared property, or into an object of unknown shape."""
    return bool(_at(schema, path))


def closed(schema: Any) -> bool:
    """Whether records have no other properties than those that the schema declares."""
    return isinstance(schema, dict) and schema.get("additionalProperties") is False


def closed_objects(schema: Any) -> Iterator[FieldPath]:
    """The paths of the objects that have no other properties than those that the schema declares;
    lists on the way are passed over."""
    yield from _closed_below(schema, schema, (), _DEPTH)


def _closed_below(root: Any, node: Any, at: FieldPath, depth: int) -> Iterator[FieldPath]:
    if depth == 0:
        return
    shapes = list(_shapes(root, node))
    if any(closed(shape) and not shape.get("patternProperties") for shape in shapes):
        yield at
    for shape in shapes:
        properties = shape.get("properties")
        if isinstance(properties, dict):
            for name, inner in cast(dict[str, Any], properties).items():
                yield from _closed_below(root, inner, (*at, name), depth - 1)
        if "items" in shape:
            items = shape["items"]
            for item in cast(list[Any], items) if isinstance(items, list) else [items]:
                yield from _closed_below(root, item, at, depth - 1)


def names_of(schema: Any, path: FieldPath = ()) -> list[str]:
    """The properties that are declared there; of a schema its top-level ones."""
    shapes = (shape for node in _at(schema, path) for shape in _shapes(schema, node))
    return [n for s in shapes for n in cast(dict[str, Any], s.get("properties") or {})]


def _at(schema: Any, path: FieldPath) -> list[Any]:
    """Every subschema the path may lead to; ``{}`` inside an object of unknown shape."""
    found: list[Any] = [schema]
    for name in path:
        found = [child for node in found for child in _children(schema, node, name)]
    return found


def _children(root: Any, node: Any, name: str) -> Iterator[Any]:
    open_shape = True
    for shape in _shapes(root, node):
        properties = shape.get("properties")
        if isinstance(properties, dict) and properties:
            open_shape = False
            if name in properties:
                yield cast(dict[str, Any], properties)[name]
        elif not _may_be_object(shape):
            open_shape = False
    if open_shape:
        yield {}


def _shapes(root: Any, node: Any) -> Iterator[dict[str, Any]]:
    """Those parts that say what it is, and not only that it is one of several."""
    for part in parts(root, [node]):
        combines = "$ref" in part or any(part.get(word) for word in BRANCHES)
        if ("properties" in part or not combines) and (part is node or part != _NULL):
            yield part


def _may_be_object(shape: dict[str, Any]) -> bool:
    kind = shape.get("type")
    return kind is None or kind == "object" or (isinstance(kind, list) and "object" in kind)
