"""Finds the stream of a message by its name, and tracks each stream's current schema, key and
cursor.

Messages name a stream by its ``tap_stream_id`` or by ``stream``, which two streams may share; some
taps put the database schema before it. States use these names too, or the table's. Neighbours:
``catalog`` decides identities; ``record_reader`` calls this for every run of messages.
"""

from collections.abc import Iterable
from typing import Any, cast

from penstock.model.catalog import ConfiguredStream, FieldPath, Stream, StreamId
from penstock.model.events import Schema
from penstock.model.types import DataType, Kind
from penstock.protocols.json_schema.paths import closed, exists
from penstock.protocols.singer.catalog import offered
from penstock.protocols.singer.catalog_metadata import ROOT, Metadata, text, texts
from penstock.protocols.singer.schema import DELETED_AT, SingerSchema

_DIALECT = SingerSchema()


class Ambiguous(Exception):
    """Raised for a name that several configured streams share."""


class StreamNames:
    """Maps the names of one read to its streams. ``unchosen``: streams of the catalog that are not
    configured. ``open_``: an unknown name is a new stream."""

    def __init__(
        self,
        streams: Iterable[ConfiguredStream],
        unchosen: Iterable[Stream] = (),
        *,
        open_: bool,
    ) -> None:
        self._open = open_
        self._unchosen = tuple(unchosen)
        self._known: dict[str, StreamId] = {}
        self._aliases: dict[str, set[StreamId]] = {}
        for configured in streams:
            self._known[configured.id.name] = configured.id
            for alias in _aliases(configured.stream):
                self._aliases.setdefault(alias, set()).add(configured.id)

    def of(self, name: str) -> StreamId | None:
        """Returns the configured stream with a name; None: there is none. Raises
        :class:`Ambiguous`."""
        stream = self._known.get(name)
        if stream is None:
            candidates = self._aliases.get(name, set())
            if len(candidates) > 1:
                listed = ", ".join(sorted(s.name for s in candidates))
                raise Ambiguous(f"messages of {name!r} may belong to {listed}")
            if not candidates and not self._open:
                return None
            stream = next(iter(candidates)) if candidates else StreamId(None, name)
            self._known[name] = stream
        return stream

    def unchosen(self, name: str) -> tuple[StreamId, ...]:
        """Returns the streams with this name that are not configured."""
        own = tuple(s.id for s in self._unchosen if s.id.name == name)
        return own or tuple(s.id for s in self._unchosen if name in _aliases(s))


def names_in_states(stream: Stream) -> set[str]:
    """Returns the names that a tap's state may use for the stream: those of messages, and its
    table's."""
    raw, root = stream.raw, Metadata(stream.raw).of(ROOT)
    table = text(root.get("table-name")) or text(raw.get("table_name"))
    return _aliases(stream) | _with_schema(stream, table)


def _aliases(stream: Stream) -> set[str]:
    raw = stream.raw
    alias = text(raw.get("stream_alias"))
    return _with_schema(stream, text(raw.get("stream"))) | ({alias} if alias else set())


def _with_schema(stream: Stream, name: str | None) -> set[str]:
    """Returns the name alone, and with the database schema before it."""
    if name is None:
        return set()
    space = text(Metadata(stream.raw).of(ROOT).get("schema-name"))
    spaced = {f"{space}_{name}", f"{space}-{name}", f"{space}.{name}"} if space else set[str]()
    return {name, *spaced}


class KnownSchema:
    """The current schema, key and cursor of a stream. A SCHEMA message that adds nothing to them
    gives no event.

    Only columns and keys are compared: annotations, order and missing fields (a tap sends the
    selected ones) make no difference; fields that are not selected are left out, except the one
    that marks deletes."""

    def __init__(self, configured: ConfiguredStream | None) -> None:
        self._configured = configured
        self._row: DataType | None = None
        self._key: tuple[str, ...] | None = None
        self._cursor: FieldPath | None = None
        self._partial = False  # a schema without properties came first (``Stream.partial``)
        self._metadata = Metadata({} if configured is None else configured.stream.raw)
        if configured is not None:
            self._row = _DIALECT.data_type(configured.stream.json_schema)
            self._partial = configured.stream.partial or self._row.kind is not Kind.struct
            own = configured.stream.source_defined_primary_key or ()
            self._key = tuple(p[0] for p in own)
            chosen = configured.cursor_field or configured.stream.default_cursor_field
            self._cursor = chosen or None

    def schemaless(self, stream: StreamId) -> Schema | None:
        """Returns the event that precedes the first record of a stream with an unknown schema;
        None: the schema is known."""
        if self._row is not None:
            return None
        self._row, self._partial = _DIALECT.data_type({}), True
        return Schema(stream, {})

    @property
    def partial(self) -> bool:
        """Returns whether records may have any properties: no schema declares them
        (``Stream.partial``)."""
        return self._partial

    def missing(self, schema: Any, names: Any) -> list[str]:
        """Returns the ``names`` that are not properties of records under the schema."""
        if self._partial and not closed(schema):
            return []
        return [n for n in texts(names) if not exists(schema, (n,))]

    def update(self, stream: StreamId, schema: Any, keys: Any, bookmarks: Any) -> Schema | None:
        """Takes a SCHEMA message. Returns the event of a change; None: it changes nothing. The key
        is whole, even where the schema lacks a part: rows must not be merged by the rest."""
        given = cast(dict[str, Any], schema) if isinstance(schema, dict) else {}
        given = offered(given, self._metadata)
        row = _DIALECT.data_type(given)
        first = self._row is None and row.kind is not Kind.struct
        self._partial = (self._partial or first) and not closed(given)
        key = None if keys is None else texts(keys)
        same_key = key is None or set(key) == set(self._key or ())
        lacking = self.missing(given, bookmarks)
        named = next(((b,) for b in texts(bookmarks) if b not in lacking), None)
        cursor = self._cursor or named  # the catalog's cursor wins
        if self._row is not None and same_key and cursor == self._cursor and self._fits(row):
            return None
        self._row, self._cursor = row, cursor
        self._key = self._key if key is None else key
        primary = None if key is None else tuple((k,) for k in key)
        return Schema(stream, given, primary, cursor)

    def _fits(self, row: DataType) -> bool:
        """Returns whether a new row type adds nothing. One without properties does not change known
        columns."""
        known = self._row
        if known is None:
            return False
        if row.kind is not Kind.struct:
            return row.kind is known.kind or known.kind is Kind.struct
        fields = row.fields
        if self._configured is not None:
            kept = {DELETED_AT, *self._configured.selected(f.source for f in fields)}
            fields = tuple(f for f in fields if f.source in kept)
        return _says_no_more(DataType(Kind.struct, fields=fields), known)


def _says_no_more(new: DataType, known: DataType) -> bool:
    """Returns whether every value of type ``new`` fits ``known`` with the same meaning."""
    if new.kind is Kind.struct and known.kind is Kind.struct:
        by_name = {f.source: f.type for f in known.fields}
        return all(
            f.source in by_name and _says_no_more(f.type, by_name[f.source]) for f in new.fields
        )
    if new.kind is Kind.array and known.kind is Kind.array and new.item and known.item:
        return _says_no_more(new.item, known.item)
    return new == known
