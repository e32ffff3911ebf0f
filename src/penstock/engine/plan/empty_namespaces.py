"""Keeps a stream under the namespace ``""`` apart from a stream of the same name without namespace.

A source that has both has two streams (``model.catalog.StreamId``). A source that has one of them
has one stream, without a namespace. Pure. Not here: which of them a message means
(``protocols.airbyte``). Neighbours: ``engine.plan.prepare`` and ``engine.plan.streams``.
"""

from collections.abc import Iterable, Set

import msgspec

from penstock.model.catalog import Catalog, Stream, StreamId


def with_earlier_ids(catalog: Catalog, known: Set[StreamId]) -> Catalog:
    """Returns the catalog. A stream under ``""`` keeps its earlier id where the source no longer
    has the stream of the same name without namespace. ``known``: streams synced before."""
    if not any(stream.namespace == "" for stream in known):
        return catalog
    streams = tuple(
        msgspec.structs.replace(s, id=StreamId("", s.id.name)) if _is_other(s, known) else s
        for s in catalog.streams
    )
    return msgspec.structs.replace(catalog, streams=streams)


def _is_other(stream: Stream, known: Set[StreamId]) -> bool:
    spelled = stream.raw.get("namespace")
    return stream.id.namespace is None and spelled == "" and StreamId("", stream.id.name) in known


def separated(streams: Iterable[StreamId], known: Set[StreamId]) -> list[str]:
    """Returns a note for each stream that gets its own id and table, where its rows and those of
    another stream have shared one id until now."""
    return [
        f"stream {stream}: the source has it in the namespace '' and {stream.name} in none: these"
        f" are two streams, which were one until now. {stream} is read from its start, into a table"
        f" of its own; the table of {stream.name} may hold rows of both"
        for stream in sorted(streams)
        if stream.namespace == "" and stream not in known and StreamId(None, stream.name) in known
    ]
