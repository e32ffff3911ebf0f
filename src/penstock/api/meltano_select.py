"""Turns the selection of a Meltano extractor (``select``, ``metadata``) into the streams of a
pipeline file.

Pure. Nothing is read that Meltano leaves out. A stream whose columns cannot be expressed is left
out whole, with a note. Not here: whose ``select`` counts (``meltano_project``). Source: Meltano's
plugin extras; how it applies the rules to a catalog: all that selects before all that excludes, a
part of an object selects the object, and ``*`` spans levels.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from penstock.api.meltano_settings import as_list, mapping

_METHODS = {"INCREMENTAL": "incremental", "FULL_TABLE": "full_refresh", "LOG_BASED": "cdc"}
_EVERY = ("*", "*.*")
_NONE = ""  # a key of a stream that is left out whole


def selection(tap: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Returns ``streams``, ``exclude`` and ``defaults`` of a source, from ``select`` and
    ``metadata``."""
    about = {str(key): mapping(each) for key, each in mapping(tap.get("metadata")).items()}
    excluded: dict[str, None] = {}
    streams = _streams(tap, about, excluded, notes)
    defaults: dict[str, Any] = {}
    for pattern, each in about.items():
        its = _metadata(pattern, each, excluded, notes)
        if pattern in _EVERY:
            defaults = its
            continue
        meant = [entry for name, entry in streams.items() if fnmatchcase(name, pattern)]
        for entry in meant:
            entry.update(its)
        if its and not meant:
            notes.append(f"metadata of {pattern}, which is not selected")
    found: dict[str, Any] = {}
    if set(streams) != {"*"} or len(streams["*"]) > 1:
        listed = [entry if len(entry) > 1 else entry["name"] for entry in streams.values()]
        found["streams"] = listed
    if excluded:
        found["exclude"] = [*excluded]
    if defaults:
        found["defaults"] = defaults
    return found


def _streams(
    tap: Mapping[str, Any],
    about: Mapping[str, Mapping[str, Any]],
    excluded: dict[str, None],
    notes: list[str],
) -> dict[str, dict[str, Any]]:
    """Returns the streams and patterns of streams that are selected or have metadata, with the
    columns of each. Adds to ``excluded`` the streams that are left out whole."""
    wanted: list[tuple[str, str]] = []
    unwanted: list[tuple[str, str]] = []
    for pattern in [str(p) for p in as_list(tap.get("select"))] or ["*.*"]:
        entity, column = _split(pattern.removeprefix("!"))
        if not pattern.startswith("!"):
            wanted.append((entity, column))
        elif _whole(column) == "*":
            excluded[entity] = None
        else:
            unwanted.append((entity, _whole(column)))
    unwanted += [
        (entity, str(column))
        for entity, each in about.items()
        for column, its in each.items()
        if mapping(its).get("selected") is False
    ]
    streams = {entity: _stream(entity, wanted, notes) for entity, _ in wanted}
    for entity in dict.fromkeys((*about, *(e for e, _ in unwanted))):
        apart = entity not in _EVERY and not any(fnmatchcase(name, entity) for name in streams)
        if apart and any(fnmatchcase(entity, name) for name in streams):
            streams[entity] = _stream(entity, wanted, notes)
    for entity, column in unwanted:
        for name in [name for name in streams if fnmatchcase(name, entity)]:
            _leave_out(column, streams[name], notes)
    for name, entry in streams.items():
        if entry.pop(_NONE, False):
            entry.pop("columns", None)
            excluded[name] = None
    return streams


def _stream(name: str, wanted: Sequence[tuple[str, str]], notes: list[str]) -> dict[str, Any]:
    """Returns a stream, or a pattern of streams, with the columns of all matching selections."""
    listed = dict.fromkeys(_whole(column) for entity, column in wanted if fnmatchcase(name, entity))
    if "*" in listed:
        return {"name": name}
    odd = [column for column in listed if "[" in column]
    columns = [column for column in listed if column not in odd]
    if odd:
        notes.append(
            f"columns of the stream {name} by a pattern, {', '.join(odd)}: "
            + ("list those that you want" if columns else "take it out of `exclude` and list them")
        )
    return {"name": name, "columns": columns} | ({} if columns else {_NONE: True})


def _leave_out(column: str, entry: dict[str, Any], notes: list[str]) -> None:
    """Leaves a column out of a stream, or the whole stream where no column remains or none can be
    expressed."""
    listed = entry.get("columns")
    if "[" in column:
        notes.append(
            f"the stream {entry['name']}, of which Meltano leaves out {column}: write it into its"
            " columns (`!NAME`), and take the stream out of `exclude`"
        )
        entry[_NONE] = True
    elif listed is None:
        entry["columns"] = [f"!{column}"]
    else:
        kept = [c for c in listed if c.startswith("!") or not fnmatchcase(c, column)]
        wide = any(c[0] == "!" or "*" in c or "?" in c or _inside(column, c) for c in kept)
        entry["columns"] = [*kept, *([f"!{column}"] if wide else [])]
        if not kept:
            entry[_NONE] = True


def _inside(column: str, of: str) -> bool:
    """Returns whether the column, or what its pattern matches, may be a part of the object
    ``of``."""
    steps, outer = column.split("."), of.split(".")
    return len(steps) > len(outer) and all(map(fnmatchcase, outer, steps))


def _whole(column: str) -> str:
    """Returns the object that ``address.*`` selects whole, at any level."""
    while column.endswith(".*"):
        column = column.removesuffix(".*")
    return column


def _metadata(
    pattern: str, each: Mapping[str, Any], excluded: dict[str, None], notes: list[str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in each.items():
        method = _METHODS.get(str(value).upper())
        if key in ("replication-method", "forced-replication-method") and method:
            found["sync_mode"] = method
        elif key == "replication-key" and isinstance(value, str):
            found["cursor_field"] = [value] if "." in value else value
        elif key in ("table-key-properties", "view-key-properties") and value:
            found["primary_key"] = [str(v) for v in as_list(value)]
        elif key == "selected" and value is False:
            excluded[pattern] = None
        elif key != "selected" and mapping(value) != {"selected": False}:
            notes.append(f"metadata of {pattern}: {key}")
    return found


def _split(pattern: str) -> tuple[str, str]:
    """Splits ``stream.column``; ``\\.`` is a dot in the stream's name."""
    entity, _, column = re.sub(r"\\\.", "\0", pattern).partition(".")
    return entity.replace("\0", "."), column.replace("\0", ".") or "*"
