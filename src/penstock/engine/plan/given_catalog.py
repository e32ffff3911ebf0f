"""Says what a catalog gives to the source for the streams that a pipeline selects: schemas, keys,
cursors, modes, and for a Singer tap its catalog entries with their metadata.

Two catalogs that differ in order, texts (descriptions, titles, examples) or row counts give the
same. Pure. Not here: the choice of streams (``engine.plan.stream_choice``). Neighbour:
``engine.plan.catalog_check`` compares.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.engine.plan.stream_choice import choose_streams
from penstock.model.catalog import Catalog, Stream

_TEXTS = frozenset({"description", "title", "examples", "example", "$comment", "documentation"})
_COUNTS = frozenset({"row-count", "row_count"})
_OF_NAMES = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Their keys are names of the source's, which may be those of texts."""
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
"""Lists whose order means nothing."""


def given(pipeline: Pipeline, catalog: Catalog, config_hash: str) -> str:
    """Returns a hash of what the catalog gives to the source. ``config_hash``: of the configuration
    under which it was discovered."""
    chosen, _ = choose_streams(pipeline, catalog, frozenset(), [])
    streams = sorted((s for s, _ in chosen), key=lambda s: s.id.key)
    whole = [config_hash, catalog.open, [_of_stream(s) for s in streams]]
    return hashlib.sha256(msgspec.json.encode(whole, order="sorted")).hexdigest()


def _of_stream(stream: Stream) -> Any:
    return _canonical(msgspec.json.decode(msgspec.json.encode(stream)))


def _canonical(value: Any, *, names: bool = False, unordered: bool = False) -> Any:
    """``names``: the keys of the object are names of the source's; ``unordered``: the order of the
    list means nothing."""
    if isinstance(value, dict):
        found = cast(Mapping[str, Any], value)
        return {
            key: _canonical(each, names=not names and key in _OF_NAMES, unordered=key in _SETS)
            for key, each in found.items()
            if names or key not in _TEXTS | _COUNTS or not isinstance(each, str | int | list)
        }
    if isinstance(value, list):
        items = [_canonical(each) for each in cast(list[Any], value)]
        if unordered:
            items.sort(key=lambda each: msgspec.json.encode(each, order="sorted"))
        return items
    return value
