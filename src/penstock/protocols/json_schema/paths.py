"""Walks a JSON Schema by property names: which paths exist.

Pure. Not here: types (``codec.json_schema``), a configuration's values (``config_check``).
"""

from collections.abc import Iterator
from typing import Any, cast

from penstock.codec.schema_walk import BRANCHES, parts
from penstock.model.catalog import FieldPath

_NULL = {"type": "null"}
_DEPTH = 16  # levels of a schema that are searched: its references may form a cycle
_MOST = 20_000  # schemas searched: references can fan out exponentially


def exists(schema: Any, path: FieldPath) -> bool:
    """Returns whether the path leads to a declared property, or into an object of unknown shape."""
    return bool(_at(schema, path))


def closed(schema: Any) -> bool:
    """Returns whether records have only the properties that the schema declares."""
    return isinstance(schema, dict) and schema.get("additionalProperties") is False


def closed_objects(schema: Any) -> Iterator[FieldPath]:
    """Yields the paths of the objects with only the properties that the schema declares; lists on
    the way are passed over. The nearest first, from at most :data:`_MOST` schemas."""
    here: list[tuple[Any, FieldPath]] = [(schema, ())]
    left = _MOST
    for _ in range(_DEPTH):
        below: list[tuple[Any, FieldPath]] = []
        for node, at in here[:left]:
            shapes = list(_shapes(schema, node))
            if any(closed(shape) and not shape.get("patternProperties") for shape in shapes):
                yield at
            below += [inner for shape in shapes for inner in _below(shape, at)]
        left -= len(here)
        here = below
        if left <= 0 or not here:
            return


def _below(shape: dict[str, Any], at: FieldPath) -> Iterator[tuple[Any, FieldPath]]:
    properties = shape.get("properties")
    if isinstance(properties, dict):
        for name, inner in cast(dict[str, Any], properties).items():
            yield inner, (*at, name)
    if "items" in shape:
        items = shape["items"]
        for item in cast(list[Any], items) if isinstance(items, list) else [items]:
            yield item, at


def names_of(schema: Any, path: FieldPath = ()) -> list[str]:
    """Returns the properties declared at a path; without one, the top-level ones."""
    shapes = (shape for node in _at(schema, path) for shape in _shapes(schema, node))
    return [n for s in shapes for n in cast(dict[str, Any], s.get("properties") or {})]


def _at(schema: Any, path: FieldPath) -> list[Any]:
    """Returns every subschema the path may lead to; ``{}`` inside an object of unknown shape."""
    found: list[Any] = [schema]
    for name in path:
        children = [child for node in found for child in _children(schema, node, name)]
        found = [*{id(child): child for child in children}.values()]
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
    """Yields the parts that describe the value, not those that only list alternatives."""
    for part in parts(root, [node]):
        combines = "$ref" in part or any(part.get(word) for word in BRANCHES)
        if ("properties" in part or not combines) and (part is node or part != _NULL):
            yield part


def _may_be_object(shape: dict[str, Any]) -> bool:
    kind = shape.get("type")
    return kind is None or kind == "object" or (isinstance(kind, list) and "object" in kind)
