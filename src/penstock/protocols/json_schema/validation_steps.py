"""Counts the steps of validating a value against a JSON Schema before a validator takes them (L11).

A schema of 2 kB may combine branches (``oneOf``, ``$ref``) in 10^12 ways, which a validator walks
one by one. A schema nested thousands of levels deep overflows the validator's stack and ends the
process. Both are counted here in time that grows with schema times value. Not here: validation
(``config_check``, which calls this first), what a schema means. Neighbour: ``codec.schema_walk``,
whose walks meet every part once.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, cast

from penstock.codec.schema_walk import BRANCHES, CONDITIONS, referred

MOST_STEPS = 50_000  # about a second
"""The most pairs of a schema and a value to check. Real connectors need dozens to hundreds."""
DEEPEST = 200
"""The most levels of a schema or value; each object and each list is one."""

_IN_PLACE = (*CONDITIONS, "not")
_Pair = tuple[Any, Any]


def why_not_validated(schema: Any, value: Any) -> str | None:
    """Returns why a value cannot be validated within bounds, as the end of a sentence about the
    schema; None: it can."""
    if nested_deeper(schema, DEEPEST):
        return f"is nested more than {DEEPEST} levels deep"
    if nested_deeper(value, DEEPEST):
        return f"would check a value that is nested more than {DEEPEST} levels deep"
    steps = _Steps(schema).count(value)
    if steps is None:
        return "refers to itself without an end"
    return f"takes more than {MOST_STEPS:,} steps to check" if steps > MOST_STEPS else None


def nested_deeper(value: Any, levels: int) -> bool:
    """Returns whether a JSON value has more than ``levels`` levels of objects and lists. Does not
    recurse."""
    here = [value]
    for _ in range(levels + 1):
        below: list[Any] = []
        for each in here:
            if isinstance(each, dict):
                below += cast(dict[str, Any], each).values()
            elif isinstance(each, list):
                below += cast(list[Any], each)
        here = [each for each in below if isinstance(each, dict | list)]
        if not here:
            return False
    return True


class _Steps:
    """Counts for one schema. A pair is a schema and the value that it applies to."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._named: dict[str, list[Any]] = defaultdict(list)  # by the last word of their $id
        self._name(root)

    def count(self, value: Any) -> int | None:
        """Returns the steps, or more than :data:`MOST_STEPS` where they exceed it; None: infinite,
        since a schema leads to itself with the same value."""
        counted: dict[tuple[int, int], int] = {}
        under_way: set[tuple[int, int]] = set()
        todo: list[_Pair] = [(self._root, value)]
        while todo:
            if len(counted) > MOST_STEPS or len(todo) > MOST_STEPS:
                return MOST_STEPS + 1
            pair = todo[-1]
            key = _key(pair)
            if key in counted:
                todo.pop()
                continue
            below = list(self._below(*pair))
            missing = [each for each in below if _key(each) not in counted]
            if any(_key(each) in under_way or _key(each) == key for each in missing):
                return None
            if missing:
                under_way.add(key)
                todo += missing
                continue
            under_way.discard(key)
            counted[key] = 1 + sum(counted[_key(each)] for each in below)
            todo.pop()
        return counted[_key((self._root, value))]

    def _below(self, node: Any, value: Any) -> Iterator[_Pair]:
        """Yields the pairs that a validator visits for one pair."""
        if not isinstance(node, dict):
            return
        given = cast(dict[str, Any], node)
        if isinstance(reference := given.get("$ref"), str):
            for target in self._targets(reference):
                yield target, value
        for word in BRANCHES:
            for branch in _list(given.get(word)):
                yield branch, value
        for word in _IN_PLACE:
            if word in given:
                yield given[word], value
        if isinstance(value, dict):
            yield from _in_object(given, cast(dict[str, Any], value))
        elif isinstance(value, list):
            yield from _in_list(given, cast(list[Any], value))

    def _targets(self, reference: str) -> list[Any]:
        """Returns the possible targets of a reference; a document of another name is found by the
        last word of its ``$id``."""
        document, _, fragment = reference.partition("#")
        bases = [self._root] if not document else self._named[_last(document)]
        if not fragment:
            return bases
        if not fragment.startswith("/"):
            return self._named["#" + fragment]
        found = [referred(base, "#" + fragment) for base in bases]
        return [target for target in found if target is not None]

    def _name(self, root: Any) -> None:
        todo = [root]
        while todo:
            node = todo.pop()
            if isinstance(node, dict):
                given = cast(dict[str, Any], node)
                for word in ("$id", "id"):
                    if isinstance(name := given.get(word), str) and name:
                        self._named[_last(name)].append(given)
                todo += given.values()
            elif isinstance(node, list):
                todo += cast(list[Any], node)


def _in_object(given: dict[str, Any], value: dict[str, Any]) -> Iterator[_Pair]:
    known, patterns = _map(given.get("properties")), _map(given.get("patternProperties"))
    rest, names = given.get("additionalProperties"), given.get("propertyNames")
    for name, schema in _map(given.get("dependencies")).items():
        if name in value:
            yield schema, value
    for name, inner in value.items():
        if name in known:
            yield known[name], inner
        elif isinstance(rest, dict):
            yield rest, inner
        for schema in patterns.values():
            yield schema, inner
        if isinstance(names, dict):
            yield names, name


def _in_list(given: dict[str, Any], value: list[Any]) -> Iterator[_Pair]:
    items = given.get("items")
    each = [items, given.get("contains")] if not isinstance(items, list) else []
    for inner in value:
        for schema in each:
            if isinstance(schema, dict):
                yield schema, inner
    if isinstance(items, list):
        places = cast(list[Any], items)
        yield from zip(places, value, strict=False)
        for inner in value[len(places) :]:
            yield given.get("additionalItems"), inner


def _key(pair: _Pair) -> tuple[int, int]:
    return id(pair[0]), id(pair[1])


def _last(name: str) -> str:
    """Returns the last word of a URI, or a fragment that is a name (``#name``)."""
    document, hash_, fragment = name.partition("#")
    return hash_ + fragment if not document else document.rstrip("/").rpartition("/")[2]


def _list(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []


def _map(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
