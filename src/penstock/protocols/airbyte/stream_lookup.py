"""Resolves a name and a namespace in a source's message or state to a stream.

The protocol names a stream by both. A namespace ``""`` and no namespace are two streams only where
the source has both (``catalog.names_apart``): else either spelling means its only one, whose id has
no namespace. Sources of Airbyte's Python CDK write a stream's namespace in the catalog, in states
and in statuses, and leave it out of records (6.61 and 7.39: ``utils/record_helper.py``). So a
message without a namespace means the one configured stream of its name, unless the catalog has that
name without a namespace too. Pure. Not here: handling records of other streams (``record_reader``).
"""

from collections.abc import Iterable

from penstock.model.catalog import StreamId


def apart(streams: Iterable[StreamId]) -> frozenset[StreamId]:
    """Returns the source's streams with namespace ``""`` that it also has with no namespace."""
    return frozenset(stream for stream in streams if stream.namespace == "")


def meant_by(namespace: str | None, name: str, apart: frozenset[StreamId]) -> StreamId:
    """Returns the id of the stream that a source calls so. ``apart``: of :func:`apart`."""
    spelled = StreamId(namespace, name)
    return spelled if spelled in apart else StreamId.of(namespace, name)


class StreamLookup:
    """The streams of one read. ``configured``: those that are read; ``others``: the catalog's
    streams that are not."""

    def __init__(self, configured: Iterable[StreamId], others: Iterable[StreamId]) -> None:
        self.configured = frozenset(configured)
        self._others = frozenset(others)
        self._apart = apart(self.configured | self._others)
        self._named: dict[str, list[StreamId]] = {}
        self._resolved: dict[tuple[str | None, str], tuple[StreamId, bool]] = {}
        for stream in sorted(self.configured):
            self._named.setdefault(stream.name, []).append(stream)
        self._bare = {
            name: streams[0]
            for name, streams in self._named.items()
            if len(streams) == 1 and StreamId(None, name) not in self.configured | self._others
        }

    def resolved(self, namespace: str | None, name: str) -> tuple[StreamId, bool]:
        """Returns the configured stream that a message means, and whether the message omits the
        stream's namespace. Where it means none, or more than one, returns the id of another stream
        with this name and namespace."""
        found = self._resolved.get((namespace, name))
        if found is None:
            meant = meant_by(namespace, name, self._apart)
            bare = None if meant.namespace is not None else self._bare.get(name)
            found = self._resolved[namespace, name] = bare or meant, bare is not None
        return found

    def of(self, stream: StreamId) -> StreamId:
        """Returns the stream meant by an id as a message spells it."""
        return self.resolved(stream.namespace, stream.name)[0]

    def candidates(self, stream: StreamId) -> list[StreamId]:
        """Returns the configured streams that an id that is not configured may mean: those of its
        name, unless it is another stream of the catalog with a namespace."""
        other = stream.namespace is not None and stream in self._others
        return [] if other else self._named.get(stream.name, [])

    def is_ambiguous(self, stream: StreamId) -> bool:
        """Returns whether an id that is not configured means one of several configured streams."""
        unnamed = stream.namespace is None and stream not in self._others
        return unnamed and len(self._named.get(stream.name, ())) > 1
