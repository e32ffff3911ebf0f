"""Finds the configured stream that a source's message is about, by the message's name and
namespace.

The protocol names a stream by both. Sources of Airbyte's Python CDK write a stream's namespace in
the catalog, in states and in statuses, and leave it out of records (6.61 and 7.39:
``utils/record_helper.py``). So a message without a namespace is about the one configured stream of
its name, unless the catalog has that name without a namespace too. Pure. Not here: what becomes of
records of other streams (``record_reader``).
"""

from collections.abc import Iterable

from penstock.model.catalog import StreamId


class StreamLookup:
    """The streams of one read. ``configured``: those that are read; ``others``: the catalog's
    streams that are not."""

    def __init__(self, configured: Iterable[StreamId], others: Iterable[StreamId]) -> None:
        self.configured = frozenset(configured)
        self._others = frozenset(others)
        self._named: dict[str, list[StreamId]] = {}
        for stream in sorted(self.configured):
            self._named.setdefault(stream.name, []).append(stream)
        self._bare = {
            name: streams[0]
            for name, streams in self._named.items()
            if len(streams) == 1 and StreamId(None, name) not in self.configured | self._others
        }

    def bare(self, name: str) -> StreamId | None:
        """The configured stream, of a namespace, that this name means without one."""
        return self._bare.get(name)

    def of(self, stream: StreamId) -> StreamId:
        """The configured stream that is meant; the same id where none is, or more than one."""
        meant = None if stream.namespace else self._bare.get(stream.name)
        return stream if meant is None else meant

    def candidates(self, stream: StreamId) -> list[StreamId]:
        """The configured streams that may be meant by an id that is not configured: those of its
        name, unless it is another stream of the catalog with a namespace."""
        other = stream.namespace is not None and stream in self._others
        return [] if other else self._named.get(stream.name, [])

    def is_ambiguous(self, stream: StreamId) -> bool:
        """Whether an id that is not configured means one of several configured streams."""
        unnamed = stream.namespace is None and stream not in self._others
        return unnamed and len(self._named.get(stream.name, ())) > 1
