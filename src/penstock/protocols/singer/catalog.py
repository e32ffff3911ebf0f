"""Converts Singer's catalogs to the engine's ``Catalog``, and builds the catalog for a read. Pure.

A stream's name is its ``tap_stream_id``, which is unique and the key of bookmarks; ``stream`` is
its name in messages and may occur twice. Singer has no namespaces: taps that read databases put the
schema into the identity. An entry is kept unchanged (``Stream.raw``) and goes back to the tap with
its selection written into it. Not here: the choice of modes (``stream_config``), names in messages
(``stream_names``).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from penstock.errors import SourceError
from penstock.model.catalog import Catalog, ConfiguredStream, FieldPath, Stream, StreamId, SyncMode
from penstock.protocols.singer.catalog_metadata import (
    ROOT,
    Breadcrumb,
    Metadata,
    boolean,
    children,
    item_of,
    path_of,
    text,
    texts,
)
from penstock.protocols.singer.messages import Inclusion, ReplicationMethod

METHODS = {
    SyncMode.full_refresh: ReplicationMethod.full_table,
    SyncMode.incremental: ReplicationMethod.incremental,
    SyncMode.cdc: ReplicationMethod.log_based,
}
_MODES = {method.value: mode for mode, method in METHODS.items()}
_DATABASE = ("schema-name", "database-name", "is-view", "row-count")
_DEPTH = 64


def catalog_of(data: Any) -> Catalog:
    """Converts a catalog of decoded JSON. Notes entries that are skipped: those without a name, and
    the second of two with one name. Raises ``SourceError`` where it is not a catalog."""
    given = cast(dict[str, Any], data).get("streams") if isinstance(data, dict) else None
    if not isinstance(given, list):
        raise SourceError(
            "the catalog has no list `streams`",
            code="source.bad_catalog",
            hint="report this to the tap's maintainers",
        )
    entries = [e for e in cast(list[Any], given) if isinstance(e, dict)]
    any_selected = any(_selected(cast(dict[str, Any], e)) is True for e in entries)
    found: dict[StreamId, Stream] = {}
    notes: list[str] = []
    unnamed = 0
    for index, raw in enumerate(cast(list[Any], given)):
        stream = _stream(raw, any_selected)
        if stream is None:
            unnamed += 1
            notes.append(f"stream {index + 1} of the source's catalog is left out: it has no name")
        elif stream.id in found:
            notes.append(f"stream {stream.id} comes twice in the catalog; the first is taken")
        else:
            found[stream.id] = stream
    return Catalog(tuple(found.values()), unnamed=unnamed, notes=tuple(notes))


def _stream(raw: Any, any_selected: bool) -> Stream | None:
    entry = cast(dict[str, Any], raw) if isinstance(raw, dict) else {}
    name = text(entry.get("tap_stream_id")) or text(entry.get("stream"))
    if name is None:
        return None
    metadata = Metadata(entry)
    root = metadata.of(ROOT)
    given = entry.get("schema")
    schema = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    keys = texts(root.get("table-key-properties")) or texts(root.get("view-key-properties"))
    keys = keys or texts(entry.get("key_properties"))
    cursor = _default_cursor(entry, root, keys)
    selected = _selected(entry)
    return Stream(
        id=StreamId(None, name),
        json_schema=offered(schema, metadata),
        sync_modes=_sync_modes(entry, root),
        default_cursor_field=cursor,
        source_defined_primary_key=tuple((k,) for k in keys) or None,
        raw=entry,
        selected=not any_selected if selected is None else selected,
        record_name=None if (called := text(entry.get("stream"))) == name else called,
    )


def _selected(entry: dict[str, Any]) -> bool | None:
    """Returns whether the stream's entry selects or deselects it; None: neither."""
    metadata, schema = Metadata(entry), entry.get("schema")
    if metadata.inclusion(ROOT, schema) == Inclusion.unsupported:
        return False
    selected = metadata.own_selected(ROOT, schema)
    selected = boolean(entry.get("selected")) if selected is None else selected
    return boolean(metadata.of(ROOT).get("selected-by-default")) if selected is None else selected


def forced(stream: Stream) -> SyncMode | None:
    """Returns the sync mode that the tap requires (``forced-replication-method``); None: any."""
    root = Metadata(stream.raw).of(ROOT)
    return _MODES.get(text(root.get("forced-replication-method")) or "")


def preset(stream: Stream) -> SyncMode | None:
    """Returns the sync mode set in the catalog, by the tap or by whoever edited it; None: none."""
    root = Metadata(stream.raw).of(ROOT)
    method = text(root.get("replication-method")) or text(stream.raw.get("replication_method"))
    return forced(stream) or _MODES.get(method or "")


def valid_cursors(stream: Stream) -> tuple[str, ...]:
    return texts(Metadata(stream.raw).of(ROOT).get("valid-replication-keys"))


def only_cursor(stream: Stream) -> FieldPath | None:
    """Returns the cursor of an incremental stream where none is named: the only one that the tap
    accepts."""
    possible = valid_cursors(stream)
    return (possible[0],) if len(possible) == 1 else None


def reads_tables(stream: Stream) -> bool:
    """Returns whether the stream is a database table: the tap then needs a replication key in its
    catalog."""
    return _of_database(Metadata(stream.raw).of(ROOT))


def _of_database(root: dict[str, Any]) -> bool:
    return any(key in root for key in _DATABASE)


def _default_cursor(
    entry: dict[str, Any], root: dict[str, Any], keys: tuple[str, ...]
) -> FieldPath | None:
    """Returns the cursor that the catalog names; else the only one that the tap accepts, which is
    its API's own. Excludes the columns of a database, which are only candidates, and columns of the
    primary key (``keys``): changed rows keep their key, and would not be read again."""
    key = text(root.get("replication-key")) or text(entry.get("replication_key"))
    if key is None:
        key = next(iter(texts(entry.get("bookmark_properties"))), None)
    possible = texts(root.get("valid-replication-keys"))
    if key is None and len(possible) == 1 and not _of_database(root) and possible[0] not in keys:
        key = possible[0]
    return None if key is None else (key,)


def _sync_modes(entry: dict[str, Any], root: dict[str, Any]) -> tuple[SyncMode, ...]:
    """Returns the sync modes of a stream: always full refresh, without its bookmark; and the one
    that the tap requires, else incremental, and cdc where a database is read."""
    only = _MODES.get(text(root.get("forced-replication-method")) or "")
    if only is not None:
        return tuple(dict.fromkeys([SyncMode.full_refresh, only]))
    method = text(root.get("replication-method")) or text(entry.get("replication_method"))
    modes = [SyncMode.full_refresh, SyncMode.incremental]
    if method == ReplicationMethod.log_based or _of_database(root):
        modes.append(SyncMode.cdc)
    return tuple(modes)


def offered(schema: dict[str, Any], metadata: Metadata) -> dict[str, Any]:
    """Returns the schema without fields that the tap never sends: unsupported ones, and nested ones
    that are deselected. The legacy keywords of selection are removed too."""
    return cast(dict[str, Any], _offered(schema, metadata, ROOT, 0))


def _offered(node: Any, metadata: Metadata, crumb: Breadcrumb, depth: int) -> Any:
    if not isinstance(node, dict) or depth > _DEPTH:
        return node
    schema = {
        k: v for k, v in cast(dict[str, Any], node).items() if k not in ("selected", "inclusion")
    }
    properties = schema.get("properties")
    if isinstance(properties, dict):
        kept: dict[str, Any] = {}
        for name, inner in cast(dict[str, Any], properties).items():
            field = (*crumb, "properties", name)
            sent = metadata.inclusion(field, inner) != Inclusion.unsupported
            if crumb:
                sent = metadata.selected(field, inner, True)
            if sent:
                kept[name] = _offered(inner, metadata, field, depth + 1)
        schema["properties"] = kept
    if isinstance(schema.get("items"), dict):
        schema["items"] = _offered(schema["items"], metadata, (*crumb, "items"), depth + 1)
    return schema


def deselected(stream: Stream) -> tuple[str, ...]:
    """Returns the top-level properties that the catalog deselects, except those that only a SCHEMA
    message announces."""
    metadata, schema = Metadata(stream.raw), stream.raw.get("schema")
    return tuple(
        name
        for crumb, name, node in children(schema, ROOT)
        if len(crumb) == 2 and not metadata.selected(crumb, node, True)
    )


def unselected(stream: Stream) -> tuple[FieldPath, ...]:
    """Returns the paths of all properties that the catalog deselects, in its schema or only in its
    metadata; lists on the way are passed over."""
    metadata, schema = Metadata(stream.raw), stream.raw.get("schema")
    found = dict.fromkeys(_unselected(metadata, schema, ROOT, 0))
    for crumb in metadata.deselected():
        found.setdefault(path_of(crumb))
    return tuple(path for path in found if path)


def _unselected(
    metadata: Metadata, schema: Any, crumb: Breadcrumb, depth: int
) -> Iterator[FieldPath]:
    for field, _, node in children(schema, crumb):
        if not metadata.selected(field, node, True):
            yield path_of(field)
        elif depth < _DEPTH:
            yield from _unselected(metadata, node, field, depth + 1)


# -- the catalog for a read


def selected_catalog(
    streams: Iterable[ConfiguredStream], unchosen: Iterable[Stream] = ()
) -> dict[str, Any]:
    """Returns the content of ``--catalog``: the tap's own entries, with these streams and fields
    selected and the others deselected."""
    chosen = [_chosen(s) for s in streams]
    return {"streams": [*chosen, *(_deselected(s) for s in unchosen)]}


def _entry(stream: Stream) -> dict[str, Any]:
    entry = _copied(stream.raw)
    entry.setdefault("tap_stream_id", stream.id.name)
    entry.setdefault("stream", stream.id.name)
    entry.setdefault("schema", stream.json_schema)
    return entry


def _copied(entry: dict[str, Any]) -> dict[str, Any]:
    """Copies JSON data, however deeply it is nested."""
    copies: dict[str, Any] = {}
    waiting: list[tuple[Any, Any]] = [(entry, copies)]
    while waiting:
        given, copied = waiting.pop()
        pairs = given.items() if isinstance(given, dict) else enumerate(given)
        for place, value in cast(Iterable[tuple[Any, Any]], pairs):
            if isinstance(value, dict | list):
                empty: Any = {} if isinstance(value, dict) else [None] * len(cast(list[Any], value))
                waiting.append((value, empty))
                value = empty
            copied[place] = value
    return copies


def _deselected(stream: Stream) -> dict[str, Any]:
    entry = _entry(stream)
    _set_metadata(entry, ROOT, {"selected": False})
    entry["selected"] = False
    if isinstance(entry["schema"], dict):
        entry["schema"]["selected"] = False
    return entry


def _chosen(configured: ConfiguredStream) -> dict[str, Any]:
    entry = _entry(configured.stream)
    metadata = Metadata(entry)
    legacy = _is_legacy(entry)
    root: dict[str, Any] = {"selected": True}
    entry["selected"] = True
    if not configured.source_decides:
        method = METHODS[forced(configured.stream) or configured.sync_mode]
        root["replication-method"] = entry["replication_method"] = method.value
    if configured.cursor_field and configured.sync_mode is SyncMode.incremental:
        root["replication-key"] = entry["replication_key"] = configured.cursor_field[0]
    own = configured.stream.source_defined_primary_key
    key = [path[0] for path in configured.primary_key if len(path) == 1]
    if key and len(key) == len(configured.primary_key) and not own:  # Singer's keys are top-level
        root["view-key-properties"] = entry["key_properties"] = key
    _set_metadata(entry, ROOT, root)
    schema = entry["schema"]
    if legacy and isinstance(schema, dict):
        schema["selected"] = True
    fields = list(children(schema, ROOT))
    chosen = configured.selected(name for _, name, _ in fields)
    chosen |= {p[0] for p in (*configured.primary_key, configured.cursor_field) if p}
    for crumb, name, node in fields:
        inclusion = metadata.inclusion(crumb, node)
        wanted = inclusion == Inclusion.automatic or name in chosen
        within = [path[1:] for path in configured.nested if path[0] == name]
        _select(entry, metadata, crumb, node, wanted, legacy, within)
    return entry


def _select(
    entry: dict[str, Any],
    metadata: Metadata,
    crumb: Breadcrumb,
    node: Any,
    on: bool,
    legacy: bool,
    within: Sequence[FieldPath] = (),
) -> None:
    """Writes the selection of a field and of every field in it. ``within``: paths from the field to
    the only wanted parts, plus automatic ones; empty: what the catalog selects."""
    on = on and metadata.inclusion(crumb, node) != Inclusion.unsupported
    _set_metadata(entry, crumb, {"selected": on})
    inside: list[tuple[Breadcrumb, Any, bool, list[FieldPath]]] = []
    for inner, name, schema in children(node, crumb):
        below = [path[1:] for path in within if path[0] == name]
        selected = metadata.selected(inner, schema, on)
        if within and metadata.inclusion(inner, schema) != Inclusion.automatic:
            selected = on and bool(below)
        inside.append((inner, schema, selected, [] if () in below else below))
    if legacy and isinstance(node, dict):
        node["selected"] = on
    for inner, schema, selected, below in inside:
        _select(entry, metadata, inner, schema, selected, legacy, below)


def _is_legacy(entry: dict[str, Any]) -> bool:
    """Returns whether an entry has its selection inside its schema, or nowhere yet."""
    schema = entry.get("schema")
    inside = isinstance(schema, dict) and not schema.keys().isdisjoint({"selected", "inclusion"})
    return inside or not entry.get("metadata")


def _set_metadata(entry: dict[str, Any], crumb: Breadcrumb, words: dict[str, Any]) -> None:
    given = entry.get("metadata")
    items = cast(list[Any], given) if isinstance(given, list) else []
    entry["metadata"] = items
    marked = False
    for item in items:
        found = item_of(item)
        if found is not None and found[0] == crumb:
            found[1].update(words)
            marked = True
    if not marked:
        items.append({"breadcrumb": list(crumb), "metadata": words})
