"""Computes what a catalog gives to the source for the streams that a pipeline selects: schemas,
keys, cursors, modes, and for a Singer tap its catalog entries with their metadata.

Two catalogs that differ only in order, texts (descriptions, titles, examples) or row counts give
the same. Pure. Not here: the choice of streams (``engine.plan.stream_choice``). Neighbour:
``engine.plan.catalog_check`` compares.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.engine.plan.stream_choice import choose_streams
from penstock.model.catalog import Catalog, Stream

_TEXTS = frozenset({"description", "title", "examples", "example", "$comment", "documentation"})
_COUNTS = frozenset({"row-count", "row_count"})
_OF_NAMES = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Objects whose keys are names of the source, even those that ``_TEXTS`` has."""
_SETS = frozenset(
    {
        "type",
        "required",
        "enum",
        "anyOf",
        "oneOf",
        "allOf",
        "sync_modes",
        "supported_sync_modes",
        "source_defined_primary_key",
        "key_properties",
        "table-key-properties",
        "view-key-properties",
        "bookmark_properties",
        "valid-replication-keys",
        "metadata",
    }
)
"""Keys of lists whose order has no meaning."""
_PLAIN = (str, int, list)


def given(pipeline: Pipeline, catalog: Catalog, config_hash: str) -> str:
    """Returns a hash of what the catalog gives to the source. ``config_hash``: of the configuration
    under which it was discovered."""
    chosen, _ = choose_streams(pipeline, catalog, frozenset(), [])
    streams = sorted((s for s, _ in chosen), key=lambda s: s.id.key)
    whole = [config_hash, catalog.open, [_of_stream(s) for s in streams]]
    return hashlib.sha256(msgspec.json.encode(whole, order="sorted")).hexdigest()


def _of_stream(stream: Stream) -> Any:
    return _canonical(msgspec.json.decode(msgspec.json.encode(stream)))


def _canonical(value: Any) -> Any:
    """Returns JSON data without what does not count. Sorts lists whose order has no meaning. Does
    not recurse: a schema may be nested hundreds of levels deep."""
    whole: list[Any] = [None]
    unordered: list[list[Any]] = []  # a list comes before those in it
    waiting: list[_Part] = [_Part(value, whole, 0)]
    while waiting:
        part = waiting.pop()
        if isinstance(part.value, dict):
            found = cast(Mapping[str, Any], part.value)
            kept: dict[str, Any] = {}
            for key, each in found.items():
                if part.names or key not in _TEXTS | _COUNTS or not isinstance(each, _PLAIN):
                    names, free = not part.names and key in _OF_NAMES, key in _SETS
                    waiting.append(_Part(each, kept, key, names, free))
            part.put(kept)
        elif isinstance(part.value, list):
            items: list[Any] = [None] * len(cast(list[Any], part.value))
            waiting += (_Part(each, items, at) for at, each in enumerate(part.value))
            if part.unordered:
                unordered.append(items)
            part.put(items)
        else:
            part.put(part.value)
    for items in reversed(unordered):
        items.sort(key=lambda each: msgspec.json.encode(each, order="sorted"))
    return whole[0]


class _Part(NamedTuple):
    """A value to be copied into a container. ``names``: the object's keys are the source's own
    names; ``unordered``: the list's order has no meaning."""

    value: Any
    into: Any
    at: Any
    names: bool = False
    unordered: bool = False

    def put(self, copied: Any) -> None:
        self.into[self.at] = copied
