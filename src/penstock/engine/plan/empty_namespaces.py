"""Keeps a stream under the namespace ``""`` apart from one of its name under none.

A source that has both has two streams (``model.catalog.StreamId``); one that has either has one,
without a namespace. Pure. Not here: which of them a message means (``protocols.airbyte``).
Neighbours: ``engine.plan.prepare`` and ``engine.plan.streams``.
"""

from collections.abc import Iterable, Set

import msgspec

from penstock.model.catalog import Catalog, Stream, StreamId


def with_earlier_ids(catalog: Catalog, known: Set[StreamId]) -> Catalog:
    """Returns the catalog in which a stream under ``""`` keeps the id that it had beside one under
    none, which the source has no longer. ``known``: streams synced before."""
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
    """Returns a note for each stream that gets an id and a table of its own, where until now its
    rows and those of another stream came under one id."""
    return [
        f"stream {stream}: the source has it in the namespace '' and {stream.name} in none: these"
        f" are two streams, which were one until now. {stream} is read from its start, into a table"
        f" of its own; the table of {stream.name} may hold rows of both"
        for stream in sorted(streams)
        if stream.namespace == "" and stream not in known and StreamId(None, stream.name) in known
    ]
