"""Reads a catalog entry's metadata, and its legacy form inside the schema: inclusion and selection.

Pure. A breadcrumb stays a tuple, because names contain dots and spaces. Neighbours: ``catalog``
reads and writes entries with it. Source: the discovery and field selection guides of singer-io's
getting-started documents, and the rule that the Singer SDK and Meltano agree on.
"""

from collections.abc import Iterator
from typing import Any, cast

from penstock.protocols.singer.messages import Inclusion

Breadcrumb = tuple[str, ...]
ROOT: Breadcrumb = ()

_DEPTH = 64


def boolean(value: Any) -> bool | None:
    """Returns a boolean, also from the text ``true`` or ``false``, as in the documents' example;
    else None."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def text(value: Any) -> str | None:
    """Returns a non-empty text, else None: real taps write ``""`` for "not set"."""
    return value if isinstance(value, str) and value else None


def texts(value: Any) -> tuple[str, ...]:
    """Returns the texts of a list, or of a single text in place of a list."""
    if isinstance(value, str):
        return (value,) if value else ()
    given = cast(list[Any], value) if isinstance(value, list) else []
    return tuple(v for v in given if isinstance(v, str) and v)


class Metadata:
    """The metadata of a catalog entry by breadcrumb. Of two items with one breadcrumb the later
    keys win."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self._by: dict[Breadcrumb, dict[str, Any]] = {}
        given = entry.get("metadata")
        for item in cast(list[Any], given) if isinstance(given, list) else []:
            found = item_of(item)
            if found is not None:
                crumb, words = found
                self._by[crumb] = {**self._by.get(crumb, {}), **words}

    def of(self, crumb: Breadcrumb) -> dict[str, Any]:
        return self._by.get(crumb, {})

    def inclusion(self, crumb: Breadcrumb, node: Any) -> str | None:
        return text(self.of(crumb).get("inclusion")) or text(_word(node, "inclusion"))

    def own_selected(self, crumb: Breadcrumb, node: Any) -> bool | None:
        """Returns ``selected``, from the metadata or inside the schema (legacy); None: it is not
        set."""
        found = boolean(self.of(crumb).get("selected"))
        return boolean(_word(node, "selected")) if found is None else found

    def selected(self, crumb: Breadcrumb, node: Any, parent: bool) -> bool:
        """Returns whether a field is selected. ``parent``: whether its parent is. Unsupported:
        never; automatic: always; else ``selected``, the tap's default, the parent, in this
        order."""
        inclusion = self.inclusion(crumb, node)
        if not parent or inclusion == Inclusion.unsupported:
            return False
        if inclusion == Inclusion.automatic:
            return True
        found = self.own_selected(crumb, node)
        if found is None:
            found = boolean(self.of(crumb).get("selected-by-default"))
        return parent if found is None else found

    def deselected(self) -> list[Breadcrumb]:
        """Returns the breadcrumbs of properties whose metadata deselects them."""
        return [c for c in self._by if c and not self.selected(c, None, True)]


def path_of(crumb: Breadcrumb) -> tuple[str, ...]:
    """Returns the names of properties in a breadcrumb. (A property may be called
    ``properties``.)"""
    names: list[str] = []
    at = 0
    while at < len(crumb):
        if crumb[at] == "properties" and at + 1 < len(crumb):
            names.append(crumb[at + 1])
            at += 1
        at += 1
    return tuple(names)


def item_of(item: Any) -> tuple[Breadcrumb, dict[str, Any]] | None:
    """Returns (breadcrumb, metadata) of an item of a metadata list; None for anything else."""
    if not isinstance(item, dict):
        return None
    given = cast(dict[str, Any], item)
    crumb, words = given.get("breadcrumb"), given.get("metadata")
    if not isinstance(crumb, list) or not isinstance(words, dict):
        return None
    return tuple(map(str, cast(list[Any], crumb))), cast(dict[str, Any], words)


def children(node: Any, crumb: Breadcrumb, depth: int = 0) -> Iterator[tuple[Breadcrumb, str, Any]]:
    """Yields (breadcrumb, name, schema) of the properties of an object, or of the objects in an
    array."""
    if not isinstance(node, dict) or depth > _DEPTH:
        return
    schema = cast(dict[str, Any], node)
    properties = schema.get("properties")
    for name, inner in cast(
        dict[str, Any], properties if isinstance(properties, dict) else {}
    ).items():
        yield (*crumb, "properties", name), name, inner
    yield from children(schema.get("items"), (*crumb, "items"), depth + 1)


def _word(node: Any, key: str) -> Any:
    return cast(dict[str, Any], node).get(key) if isinstance(node, dict) else None
