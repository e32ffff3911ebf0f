"""Keeps what the page of streams shows of a discovered catalog, packed: a catalog of 10,000 streams
as Python objects takes more memory than all else of the server.

Pure. Not here: which streams a file selects (``pages.streams``).
"""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, cast

import msgspec

from penstock.model.catalog import Stream, StreamId

_MOST_FIELDS = 300


class KnownStream(msgspec.Struct, frozen=True, array_like=True):
    """A stream that a source has. ``own_key``, ``own_cursor``: the source's, as text;
    ``fixed_cursor``: no other can be chosen; ``fields``: the first names."""

    namespace: str | None
    name: str
    sync_modes: list[str]
    own_key: str
    own_cursor: str
    fixed_cursor: bool
    fields: list[str]

    @property
    def id(self) -> StreamId:
        return StreamId(self.namespace, self.name)

    def may_have(self, field: str) -> bool:
        """Returns whether its schema has the field, or more fields than are kept here."""
        return field in self.fields or len(self.fields) == _MOST_FIELDS

    @staticmethod
    def of(stream: Stream) -> "KnownStream":
        """Describes a stream of a catalog."""
        given: Any = stream.json_schema
        properties = cast(Any, given).get("properties") if isinstance(given, dict) else None
        named = cast(dict[str, Any], properties) if isinstance(properties, dict) else {}
        return KnownStream(
            namespace=stream.id.namespace,
            name=stream.id.name,
            sync_modes=[mode.value for mode in stream.sync_modes],
            own_key=", ".join(".".join(p) for p in stream.source_defined_primary_key or ()),
            own_cursor=".".join(stream.default_cursor_field or ()),
            fixed_cursor=stream.source_defined_cursor is True,
            fields=sorted(named)[:_MOST_FIELDS],
        )


class KnownStreams:
    """The streams of a source, in the order of its catalog."""

    def __init__(self, streams: Iterable[Stream]) -> None:
        self._packed = [msgspec.msgpack.encode(KnownStream.of(s)) for s in streams]
        self._read = msgspec.msgpack.Decoder(KnownStream)

    def __len__(self) -> int:
        return len(self._packed)

    def __iter__(self) -> Iterator[KnownStream]:
        return map(self._read.decode, self._packed)

    def matching(self, words: str) -> list[KnownStream]:
        """Returns the streams whose name contains the words, or matches the pattern."""
        wanted = words.lower()
        pattern = wanted if "*" in wanted or "?" in wanted else f"*{wanted}*"
        return [s for s in self if fnmatchcase(str(s.id).lower(), pattern)]
