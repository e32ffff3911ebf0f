"""Finds the parts of a JSON Schema that describe one value: behind ``$ref``, in combined branches.

Knows where schemas are inside schemas, but not their meaning. Every part comes once, so that
circular references end and fanned-out ones cost no more than the document. Neighbours:
``codec.json_schema`` (types), ``protocols.json_schema`` (paths of properties, configurations)."""

from collections.abc import Iterable
from typing import Any, cast

BRANCHES = ("oneOf", "anyOf", "allOf")
CONDITIONS = ("if", "then", "else")


def referred(root: Any, reference: str) -> Any:
    """Returns the target of a reference into the document ``root``; None if there is none, or it is
    outside."""
    if not reference.startswith("#"):
        return None
    target = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            place = int(name) if name.isdecimal() and len(name) < 9 else -1
            target = dict(enumerate(cast(list[Any], target))).get(place)
        else:
            target = cast(dict[str, Any], target).get(name) if isinstance(target, dict) else None
    return target


def parts(
    root: Any, nodes: Iterable[Any], branches: tuple[str, ...] = BRANCHES
) -> list[dict[str, Any]]:
    """Returns ``nodes``, what they refer to, and what they combine under the words ``branches``, in
    the order of the document."""
    found: dict[int, dict[str, Any]] = {}
    waiting = [*nodes][::-1]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict) or id(cast(object, node)) in found:
            continue
        here = cast(dict[str, Any], node)
        found[id(here)] = here
        reference = here.get("$ref")
        inner = [referred(root, reference)] if isinstance(reference, str) else []
        for given in map(here.get, branches):
            inner += cast(list[Any], given) if isinstance(given, list) else [given]
        waiting += reversed(inner)
    return [*found.values()]
