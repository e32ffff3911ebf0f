"""What the rules of every protocol share when a user chooses how a stream is synced: words, paths
of properties, columns.

Pure. Not here: which modes, cursor and key a protocol allows (``protocols/*/configure.py``).
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, TypeVar, cast

from penstock.config import suggest
from penstock.errors import ConfigError
from penstock.model.catalog import FieldPath, Stream

_Mode = TypeVar("_Mode", bound=StrEnum)


def columns(
    stream: Stream, wished: tuple[str, ...] | None, kept: Iterable[FieldPath]
) -> tuple[str, ...] | None:
    """The selection, with the columns that key, cursor and deletes need."""
    if wished is None:
        return None
    for name in wished:
        must_exist(stream, "columns", (name,))
    return tuple(dict.fromkeys([*wished, *(path[0] for path in kept if path)]))


def word(stream: Stream, field: str, given: str | None, kind: type[_Mode]) -> _Mode | None:
    if given is None:
        return None
    try:
        return kind(given)
    except ValueError:
        raise ConfigError(
            f"stream {stream.id}: {field} {given!r} is unknown",
            code="config.unknown_mode",
            hint=suggest.hint(given, [m.value for m in kind]),
            stream=str(stream.id),
        ) from None


def must_exist(stream: Stream, field: str, path: FieldPath) -> None:
    schema = stream.json_schema
    for depth in range(1, len(path) + 1):
        if exists(schema, path[:depth]):
            continue
        parents = list(_at(schema, path[: depth - 1]))
        known = sorted({n for p in parents for n in _names(schema, p)})
        raise ConfigError(
            f"stream {stream.id}: {field} {path_text(path)} is not in the stream's schema"
            f" ({path[depth - 1]!r} is unknown)",
            code="config.unknown_field",
            hint=suggest.hint(path[depth - 1], known, "its properties"),
            stream=str(stream.id),
        )


# -- walking a JSON Schema by property names

_BRANCHES = ("oneOf", "anyOf", "allOf")


def exists(schema: Any, path: FieldPath) -> bool:
    """True where the path leads to a declared property, or into an object of unknown shape."""
    return any(True for _ in _at(schema, path))


def _at(schema: Any, path: FieldPath) -> Iterator[Any]:
    """Every subschema the path may lead to; ``{}`` inside an object of unknown shape."""
    found: list[Any] = [schema]
    for name in path:
        found = [child for node in found for child in _children(schema, node, name)]
    yield from found


def _children(root: Any, node: Any, name: str) -> Iterator[Any]:
    open_shape = True
    for shape in _shapes(root, node, 0):
        properties = shape.get("properties")
        if isinstance(properties, dict) and properties:
            open_shape = False
            if name in properties:
                yield cast(dict[str, Any], properties)[name]
        elif not _may_be_object(shape):
            open_shape = False
    if open_shape:
        yield {}


def _names(root: Any, node: Any) -> list[str]:
    shapes = _shapes(root, node, 0)
    return [n for s in shapes for n in cast(dict[str, Any], s.get("properties") or {})]


def names_of(schema: Any) -> list[str]:
    """The top-level properties of a schema."""
    return _names(schema, schema)


def _may_be_object(shape: dict[str, Any]) -> bool:
    kind = shape.get("type")
    return kind is None or kind == "object" or (isinstance(kind, list) and "object" in kind)


def _shapes(root: Any, node: Any, depth: int) -> Iterator[dict[str, Any]]:
    """The node, what it refers to inside the document, and the branches it combines."""
    if not isinstance(node, dict) or depth > 16:
        return
    here = cast(dict[str, Any], node)
    reference = here.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target = root
        for step in reference[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            target = cast(dict[str, Any], target).get(step) if isinstance(target, dict) else None
        yield from _shapes(root, target, depth + 1)
        return
    branches = [b for word in _BRANCHES for b in cast(list[Any], here.get(word) or ())]
    if "properties" in here or not branches:
        yield here
    for branch in branches:
        if branch != {"type": "null"}:
            yield from _shapes(root, branch, depth + 1)


def path_text(path: FieldPath) -> str:
    return ".".join(path)


def paths(paths: Iterable[FieldPath]) -> str:
    return "[" + ", ".join(path_text(p) for p in paths) + "]"


def listed(names: list[str]) -> str:
    shown = names[:12]
    return "one of: " + ", ".join(shown) + (", ..." if len(names) > 12 else "")
