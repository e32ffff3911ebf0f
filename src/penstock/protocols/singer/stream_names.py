"""Which stream a message belongs to, and what has been told of it.

Messages call a stream by its ``tap_stream_id`` or by ``stream``, which may be the same for two;
some taps put the database schema before it. States call it by these too, or by its table.
Neighbours: ``catalog`` decides identities, ``record_reader`` asks for every run of messages.
"""

from collections.abc import Iterable
from typing import Any, cast

from penstock.model.catalog import ConfiguredStream, FieldPath, Stream, StreamId
from penstock.model.events import Schema
from penstock.model.types import DataType, Kind
from penstock.protocols.json_schema.paths import exists
from penstock.protocols.singer.catalog import offered
from penstock.protocols.singer.catalog_metadata import ROOT, Metadata, text, texts
from penstock.protocols.singer.schema import SingerSchema

_DIALECT = SingerSchema()


class Ambiguous(Exception):
    """A name that several configured streams may mean."""


class Names:
    """``unchosen``: the other streams of the catalog. ``open_``: a name that is not configured is
    a stream of its own."""

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
        """None: not configured. Raises :class:`Ambiguous`."""
        found = self._known.get(name)
        if found is None:
            meant = self._aliases.get(name, set())
            if len(meant) > 1:
                listed = ", ".join(sorted(s.name for s in meant))
                raise Ambiguous(f"messages of {name!r} may belong to {listed}")
            if not meant and not self._open:
                return None
            found = next(iter(meant)) if meant else StreamId(None, name)
            self._known[name] = found
        return found

    def unchosen(self, name: str) -> tuple[StreamId, ...]:
        """Streams that are not configured and may be meant by the name."""
        own = tuple(s.id for s in self._unchosen if s.id.name == name)
        return own or tuple(s.id for s in self._unchosen if name in _aliases(s))


def names_in_states(stream: Stream) -> set[str]:
    """By which a tap's state may call the stream: as its messages do, and by its table."""
    raw, root = stream.raw, Metadata(stream.raw).of(ROOT)
    table = text(root.get("table-name")) or text(raw.get("table_name"))
    return _aliases(stream) | _with_schema(stream, table)


def _aliases(stream: Stream) -> set[str]:
    raw = stream.raw
    alias = text(raw.get("stream_alias"))
    return _with_schema(stream, text(raw.get("stream"))) | ({alias} if alias else set())


def _with_schema(stream: Stream, name: str | None) -> set[str]:
    """The name, and with the database schema before it."""
    if name is None:
        return set()
    space = text(Metadata(stream.raw).of(ROOT).get("schema-name"))
    spaced = {f"{space}_{name}", f"{space}-{name}", f"{space}.{name}"} if space else set[str]()
    return {name, *spaced}


class Told:
    """What a stream's schema and key are held to be; a SCHEMA that says no more is a no-op.

    Only what matters for columns and keys is compared: annotations, order and fields that are
    missing (a tap sends the selected ones) are no difference; what the catalog says never comes is
    left out."""

    def __init__(self, configured: ConfiguredStream | None) -> None:
        self._columns: frozenset[str] | None = None
        self._row: DataType | None = None
        self._key: tuple[str, ...] | None = None
        self._cursor: FieldPath | None = None
        self._metadata = Metadata({} if configured is None else configured.stream.raw)
        if configured is not None:
            self._row = _DIALECT.data_type(configured.stream.json_schema)
            if configured.columns is not None:
                self._columns = frozenset(configured.columns)
            own = configured.stream.source_defined_primary_key or ()
            self._key = tuple(p[0] for p in own)
            chosen = configured.cursor_field or configured.stream.default_cursor_field
            self._cursor = chosen or None

    def schemaless(self, stream: StreamId) -> Schema | None:
        """The event before a stream's first record where nothing was ever told of it."""
        if self._row is not None:
            return None
        self._row = _DIALECT.data_type({})
        return Schema(stream, {})

    def tell(self, stream: StreamId, schema: Any, keys: Any, bookmarks: Any) -> Schema | None:
        """The event where this differs from what was told before."""
        given = cast(dict[str, Any], schema) if isinstance(schema, dict) else {}
        given = offered(given, self._metadata)
        row = _DIALECT.data_type(given)
        key = None if keys is None else tuple(k for k in texts(keys) if exists(given, (k,)))
        same_key = key is None or set(key) == set(self._key or ())
        named = next(((b,) for b in texts(bookmarks) if exists(given, (b,))), None)
        cursor = self._cursor or named  # what the catalog says holds
        if self._row is not None and same_key and cursor == self._cursor and self._fits(row):
            return None
        self._row, self._cursor = row, cursor
        self._key = self._key if key is None else key
        primary = None if key is None else tuple((k,) for k in key)
        return Schema(stream, given, primary, cursor)

    def _fits(self, row: DataType) -> bool:
        """A schema without properties says nothing of those that are known."""
        known = self._row
        if known is None:
            return False
        if row.kind is not Kind.struct:
            return row.kind is known.kind or known.kind is Kind.struct
        fields = [f for f in row.fields if self._columns is None or f.source in self._columns]
        return _says_no_more(DataType(Kind.struct, fields=tuple(fields)), known)


def _says_no_more(new: DataType, known: DataType) -> bool:
    """True where every value of ``new`` has its place, and its meaning, in ``known``."""
    if new.kind is Kind.struct and known.kind is Kind.struct:
        by_name = {f.source: f.type for f in known.fields}
        return all(
            f.source in by_name and _says_no_more(f.type, by_name[f.source]) for f in new.fields
        )
    if new.kind is Kind.array and known.kind is Kind.array and new.item and known.item:
        return _says_no_more(new.item, known.item)
    return new == known


def strangers(schema: Any, names: Any) -> list[str]:
    """Those of ``names`` that are no property of the schema."""
    return [n for n in texts(names) if not exists(schema, (n,))]
