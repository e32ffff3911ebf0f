"""Repairs a config schema that is not valid JSON Schema, so that its valid parts are checked.

A part with an obvious meaning is corrected (a bare ``"null"`` in ``anyOf`` becomes ``{"type":
"null"}``), and a wrong annotation is removed: neither costs a check. A keyword that cannot be read
is removed alone, with the keywords that would refuse more without it; its loss is reported. Not
here: validation (``config_check``, which calls this only for invalid schemas).
"""

from typing import Any, NoReturn, cast

import jsonschema_rs
import msgspec

from penstock.codec.schema_walk import referred

_TYPES = ("null", "boolean", "object", "array", "number", "integer", "string")
_MAPS = ("properties", "patternProperties", "definitions", "$defs", "dependencies")
_LISTS = ("anyOf", "oneOf", "allOf", "items")
_SINGLE = (
    "items", "additionalItems", "contains", "additionalProperties", "propertyNames", "not", "if",
    "then", "else",
)  # fmt: skip
_ANNOTATIONS = (
    "title", "description", "$comment", "default", "examples", "readOnly", "writeOnly", "format",
    "contentMediaType", "contentEncoding", "$schema", "$id",
)  # fmt: skip
_WITHOUT = {  # keywords that would refuse more, or other values, without the key
    "properties": ("additionalProperties",),
    "patternProperties": ("additionalProperties",),
    "items": ("additionalItems",),
    "if": ("then", "else"),
}
_NEGATIVE = ("oneOf", "not", "if", "then", "else")
_DEPTH = 64


class Repaired(msgspec.Struct):
    """A valid schema. ``meant``: faults that were repaired at no cost, one a line. ``lost``: faults
    that cost a check, one a line."""

    schema: Any
    meant: list[str]
    lost: list[str]


def repaired(schema: Any) -> Repaired:
    """Repairs an invalid schema. The result may still be invalid (a reference that leads to no
    schema at a place that is not walked); the caller compiles it."""
    result = Repaired(schema=schema, meant=[], lost=[])
    result.schema = _Repair(schema, result).schema(schema, ())
    if result.lost:
        result.schema = _positive(result.schema)
    return result


def no_remote(uri: str) -> NoReturn:
    """Refuses to fetch a schema."""
    raise ValueError(f"schemas are not fetched: {uri}")


class _Repair:
    def __init__(self, root: Any, result: Repaired) -> None:
        self._root, self._result = root, result

    def schema(self, node: Any, path: tuple[str, ...]) -> Any:
        """Returns the schema of a node; None: it is not a schema and has no obvious meaning."""
        if isinstance(node, bool):
            return node
        if isinstance(node, str) and node in _TYPES:
            self._result.meant.append(f"{_place(path)}: a bare {node!r} stands for its type")
            return {"type": node}
        if not isinstance(node, dict) or len(path) > _DEPTH:
            return None
        given = cast(dict[str, Any], node)
        kept = {word: self._keyword(word, value, (*path, word)) for word, value in given.items()}
        gone = {word for word, value in kept.items() if value is _GONE}
        also = {other for word in gone for other in _WITHOUT.get(word, ())}
        return {word: value for word, value in kept.items() if word not in gone | also}

    def _keyword(self, word: str, value: Any, path: tuple[str, ...]) -> Any:
        """Returns a keyword's value; ``_GONE``: it cannot be read."""
        if word in _MAPS and isinstance(value, dict):
            return self._map(word, cast(dict[str, Any], value), path)
        if word in _LISTS and isinstance(value, list) and value:
            return self._list(word, cast(list[Any], value), path)
        if word in _SINGLE:
            found = self.schema(value, path)
            return self._lose(path, value) if found is None else found
        if word == "type":
            value = self._types(value, path)
        if word == "required":
            value = self._names(value, path)
        if word == "$ref":
            found = referred(self._root, value) if isinstance(value, str) else None
            return self._lose(path, value) if found is None else value
        if _compiles({word: value}):
            return value
        if word in _ANNOTATIONS:
            self._result.meant.append(f"{_place(path)}: is no {word}, and checks nothing")
            return _GONE
        return self._lose(path, value)

    def _map(self, word: str, given: dict[str, Any], path: tuple[str, ...]) -> Any:
        kept: dict[str, Any] = {}
        for name, inner in given.items():
            if word == "dependencies" and isinstance(inner, list):
                kept[name] = inner if _compiles({word: {name: inner}}) else _GONE
            elif word == "patternProperties" and not _compiles({word: {name: {}}}):
                kept[name] = _GONE
            else:
                found = self.schema(inner, (*path, name))
                kept[name] = _GONE if found is None else found
            if kept[name] is _GONE:
                self._lose((*path, name), inner)
        if word == "patternProperties" and _GONE in kept.values():
            return _GONE  # the keys that it matched are unknown
        anything = cast(dict[str, Any], {})  # a named property still allows what it allowed
        return {name: anything if v is _GONE else v for name, v in kept.items()}

    def _list(self, word: str, given: list[Any], path: tuple[str, ...]) -> Any:
        found = [self.schema(inner, (*path, str(n))) for n, inner in enumerate(given)]
        faulty = [n for n, inner in enumerate(found) if inner is None]
        for n in faulty:
            self._lose((*path, str(n)), given[n])
        if word == "allOf":
            return [inner for inner in found if inner is not None]
        if word == "items":
            return [{} if inner is None else inner for inner in found]
        return _GONE if faulty else found  # the lost branch may allow any value

    def _types(self, value: Any, path: tuple[str, ...]) -> Any:
        """Writes a null in a list of types as its name."""
        if isinstance(value, list) and None in value:
            self._result.meant.append(f"{_place(path)}: a bare null stands for its name")
            words = ["null" if v is None else v for v in cast(list[Any], value)]
            return list(dict.fromkeys(words)) if all(isinstance(w, str) for w in words) else words
        if value is None:
            self._result.meant.append(f"{_place(path)}: a bare null stands for its name")
            return "null"
        return value

    def _names(self, value: Any, path: tuple[str, ...]) -> Any:
        """Writes each required name once, and no names for ``required: false`` of draft 3."""
        once = value
        if value is False:
            once = []
        elif isinstance(value, list) and all(isinstance(name, str) for name in value):
            once = list(dict.fromkeys(cast(list[str], value)))
        if once != value:
            self._result.meant.append(f"{_place(path)}: is no list of different names")
        return once

    def _lose(self, path: tuple[str, ...], value: Any) -> Any:
        self._result.lost.append(f"{_place(path)} ({str(value)[:40]})")
        return _GONE


_GONE = object()


def _compiles(schema: dict[str, Any]) -> bool:
    try:
        jsonschema_rs.Draft7Validator(schema, validate_formats=False, retriever=no_remote)
    except (jsonschema_rs.ValidationError, ValueError):
        return False
    return True


def _positive(node: Any) -> Any:
    """Removes what would refuse a value because another part of the schema allows too much:
    ``oneOf`` becomes ``anyOf``, and ``not`` and conditions are removed."""
    if not isinstance(node, dict):
        return node
    given = cast(dict[str, Any], node)
    kept = {w: _positive_value(w, v) for w, v in given.items() if w not in _NEGATIVE}
    if isinstance(given.get("oneOf"), list):
        either: dict[str, Any] = {"anyOf": _positive_value("oneOf", given["oneOf"])}
        if "anyOf" in kept:
            kept["allOf"] = [*kept.get("allOf", ()), either]
        else:
            kept |= either
    return kept


def _positive_value(word: str, value: Any) -> Any:
    if word in _MAPS and isinstance(value, dict):
        return {name: _positive(inner) for name, inner in cast(dict[str, Any], value).items()}
    if word in _LISTS and isinstance(value, list):
        return [_positive(inner) for inner in cast(list[Any], value)]
    return _positive(value) if word in _SINGLE else value


def _place(path: tuple[str, ...]) -> str:
    return ".".join(path) or "its root"
