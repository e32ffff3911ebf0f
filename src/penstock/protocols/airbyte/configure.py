"""Which modes, cursor and key a stream is synced with: the protocol's rules and the user's wishes.

Pure. Not here: generations and full lists of streams (``engine.plan``). Sources: protocol,
"Logic for resolving the Cursor Field", ConfiguredAirbyteStream, Source and Destination Sync Modes.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, TypeVar, cast

from penstock.config import suggest
from penstock.errors import ConfigError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    SyncMode,
)
from penstock.protocols.contract import StreamWish

_Mode = TypeVar("_Mode", bound=StrEnum)


def configure(stream: Stream, wish: StreamWish, deleted_at: str) -> ConfiguredStream:
    """The configured stream. ``deleted_at``: the property that marks deletes, kept under
    append_dedup whatever ``columns`` says. Raises ``ConfigError``."""
    sync_mode = _sync_mode(stream, wish)
    default = (
        DestinationSyncMode.append
        if sync_mode is SyncMode.incremental
        else DestinationSyncMode.overwrite
    )
    mode = _word(stream, "destination_sync_mode", wish.destination_sync_mode, DestinationSyncMode)
    mode = mode or default
    cursor = resolve_cursor(stream, sync_mode, wish.cursor_field)
    key = _primary_key(stream, wish, needed=mode is DestinationSyncMode.append_dedup)
    kept = [*key, cursor]
    if mode is DestinationSyncMode.append_dedup and exists(stream.json_schema, (deleted_at,)):
        kept.append((deleted_at,))
    return ConfiguredStream(
        stream=stream,
        sync_mode=sync_mode,
        destination_sync_mode=mode,
        cursor_field=cursor,
        primary_key=key,
        columns=_columns(stream, wish.columns, kept),
    )


def resolve_cursor(stream: Stream, sync_mode: SyncMode, wished: FieldPath | None) -> FieldPath:
    """The cursor's path. Five outcomes: not needed (full_refresh: empty), source-defined (cannot be
    overridden; empty where the source names no field of the schema), the user's, the source's
    default, and none of them: ``ConfigError``."""
    default = stream.default_cursor_field
    if sync_mode is SyncMode.full_refresh:
        return ()
    if stream.source_defined_cursor:
        return default if default and exists(stream.json_schema, default) else ()
    if wished:
        _must_exist(stream, "cursor_field", wished)
        return wished
    if default:
        _must_exist(stream, "default_cursor_field", default)
        return default
    raise ConfigError(
        f"stream {stream.id}: incremental needs a cursor, and the source defines none",
        code="config.cursor_missing",
        hint="set cursor_field to the property that grows with every change"
        f" ({_listed(_names(stream.json_schema, stream.json_schema))}), or use full_refresh",
        stream=str(stream.id),
    )


def _sync_mode(stream: Stream, wish: StreamWish) -> SyncMode:
    wished = _word(stream, "sync_mode", wish.sync_mode, SyncMode)
    if wished is None:
        if SyncMode.incremental in stream.sync_modes:
            try:
                resolve_cursor(stream, SyncMode.incremental, wish.cursor_field)
            except ConfigError:
                if wish.cursor_field:
                    raise
                return SyncMode.full_refresh
            return SyncMode.incremental
        return SyncMode.full_refresh
    if wished is not SyncMode.full_refresh and wished not in stream.sync_modes:
        offered = ", ".join(dict.fromkeys([SyncMode.full_refresh, *stream.sync_modes]))
        raise ConfigError(
            f"stream {stream.id} does not support sync_mode {wished.value}",
            code="config.sync_mode",
            hint=f"it supports: {offered}",
            stream=str(stream.id),
        )
    return wished


def _primary_key(stream: Stream, wish: StreamWish, *, needed: bool) -> tuple[FieldPath, ...]:
    """The source's key where it defines one, else the user's. Raises ``ConfigError``."""
    own, wished = stream.source_defined_primary_key or (), wish.primary_key or ()
    if own:
        if wished and set(wished) != set(own):
            raise ConfigError(
                f"stream {stream.id}: the source defines its primary key as {_paths(own)};"
                f" {_paths(wished)} cannot replace it",
                code="config.primary_key",
                hint="leave primary_key out",
                stream=str(stream.id),
            )
        if needed:
            for path in own:
                _must_exist(stream, "source_defined_primary_key", path)
        return own
    for path in wished:
        _must_exist(stream, "primary_key", path)
    if needed and not wished:
        raise ConfigError(
            f"stream {stream.id}: append_dedup needs a primary key, and the source defines none",
            code="config.primary_key_missing",
            hint="set primary_key (a list of paths, for example [[id]]), or use append",
            stream=str(stream.id),
        )
    return wished


def _columns(
    stream: Stream, wished: tuple[str, ...] | None, kept: Iterable[FieldPath]
) -> tuple[str, ...] | None:
    """The selection, with the columns that key, cursor and deletes need."""
    if wished is None:
        return None
    for name in wished:
        _must_exist(stream, "columns", (name,))
    return tuple(dict.fromkeys([*wished, *(path[0] for path in kept if path)]))


def _word(stream: Stream, field: str, word: str | None, kind: type[_Mode]) -> _Mode | None:
    if word is None:
        return None
    try:
        return kind(word)
    except ValueError:
        raise ConfigError(
            f"stream {stream.id}: {field} {word!r} is unknown",
            code="config.unknown_mode",
            hint=suggest.hint(word, [m.value for m in kind]),
            stream=str(stream.id),
        ) from None


def _must_exist(stream: Stream, field: str, path: FieldPath) -> None:
    schema = stream.json_schema
    for depth in range(1, len(path) + 1):
        if exists(schema, path[:depth]):
            continue
        parents = list(_at(schema, path[: depth - 1]))
        known = sorted({n for p in parents for n in _names(schema, p)})
        raise ConfigError(
            f"stream {stream.id}: {field} {_path(path)} is not in the stream's schema"
            f" ({path[depth - 1]!r} is unknown)",
            code="config.unknown_field",
            hint=suggest.hint(path[depth - 1], known, "its properties"),
            stream=str(stream.id),
        )


# -- walking a JSON Schema by property names

_BRANCHES = ("oneOf", "anyOf", "allOf")


def exists(schema: Any, path: FieldPath) -> bool:
    """True where the path leads to a declared property, or into an object of unknown shape."""
    return any(True for _ in _at(schema, path))


def _at(schema: Any, path: FieldPath) -> Iterator[Any]:
    """Every subschema the path may lead to; ``{}`` inside an object of unknown shape."""
    found: list[Any] = [schema]
    for name in path:
        found = [child for node in found for child in _children(schema, node, name)]
    yield from found


def _children(root: Any, node: Any, name: str) -> Iterator[Any]:
    open_shape = True
    for shape in _shapes(root, node, 0):
        properties = shape.get("properties")
        if isinstance(properties, dict) and properties:
            open_shape = False
            if name in properties:
                yield cast(dict[str, Any], properties)[name]
        elif not _may_be_object(shape):
            open_shape = False
    if open_shape:
        yield {}


def _names(root: Any, node: Any) -> list[str]:
    shapes = _shapes(root, node, 0)
    return [n for s in shapes for n in cast(dict[str, Any], s.get("properties") or {})]


def _may_be_object(shape: dict[str, Any]) -> bool:
    kind = shape.get("type")
    return kind is None or kind == "object" or (isinstance(kind, list) and "object" in kind)


def _shapes(root: Any, node: Any, depth: int) -> Iterator[dict[str, Any]]:
    """The node, what it refers to inside the document, and the branches it combines."""
    if not isinstance(node, dict) or depth > 16:
        return
    here = cast(dict[str, Any], node)
    reference = here.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target = root
        for step in reference[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            target = cast(dict[str, Any], target).get(step) if isinstance(target, dict) else None
        yield from _shapes(root, target, depth + 1)
        return
    branches = [b for word in _BRANCHES for b in cast(list[Any], here.get(word) or ())]
    if "properties" in here or not branches:
        yield here
    for branch in branches:
        if branch != {"type": "null"}:
            yield from _shapes(root, branch, depth + 1)


def _path(path: FieldPath) -> str:
    return ".".join(path)


def _paths(paths: Iterable[FieldPath]) -> str:
    return "[" + ", ".join(_path(p) for p in paths) + "]"


def _listed(names: list[str]) -> str:
    shown = names[:12]
    return "one of: " + ", ".join(shown) + (", ..." if len(names) > 12 else "")
