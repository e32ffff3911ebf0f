"""The page of a source's streams: which are read, and how, as the file's ``streams`` says.

A table of what discovery found, paged and searched by the server; what the page shows is what a
save changes. Not here: which modes a stream gets by itself (``penstock plan`` says it).
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from penstock.api.answers import DiscoveredStream
from penstock.engine.inspect.plan_check import (
    consents,
    discover_pipeline,
    preview_pipeline,
)
from penstock.model.catalog import StreamId
from penstock.web.connector_specs import settle
from penstock.web.file_edit import edited, values_of
from penstock.web.jobs import JobObserver
from penstock.web.site import Form, Site, at, file_of, go, one, page_of

_SIZE = 50
_DESTINATION_MODES = ("append", "append_dedup", "overwrite")
_ROWS = 20
Entry = dict[str, Any]


def show(site: Site, request: Request) -> Response:
    file = file_of(request)
    read = site.workspace.text(file)
    found: list[DiscoveredStream] | None = site.catalogs.get(f"streams {file}")
    words = request.query_params.get("words", "").strip()
    matching = _matching(found or (), words)
    number, first = page_of(request, _SIZE)
    listed = _listed(values_of(read.text))
    entries = None if listed is None else _Entries(listed)
    values: dict[str, Any] = {
        "file": file,
        "mark": read.mark,
        "known": found is not None,
        "every": listed is None,
        "count": len(matching),
        "all": len(found or ()),
        "rows": [_row(s, entries) for s in matching[first : first + _SIZE]],
        "number": number,
        "pages": -(-len(matching) // _SIZE),
        "words": words,
        "modes": _DESTINATION_MODES,
        "nav": "streams",
    }
    return site.page(request, "streams.html", values)


def discover(site: Site, request: Request, form: Form) -> Response:
    del form
    return start_discover(site, file_of(request))


def start_discover(site: Site, file: str) -> Response:
    """Starts the discovery of a pipeline file's source, and goes on to its streams."""
    pipeline = site.workspace.pipeline(file)

    def work(observer: JobObserver) -> None:
        observer.hide(pipeline.secret_values)
        settle(consents(pipeline, site.home), yes=False)
        catalog = discover_pipeline(pipeline, site.home, observer=observer)
        site.catalogs[f"streams {file}"] = [*map(DiscoveredStream.of, catalog.streams)]

    job = site.jobs.start(f"Finding the streams of {file}", at("p", file, "streams"), work)
    return go(site.jobs.address(job))


def _matching(found: Sequence[DiscoveredStream], words: str) -> list[DiscoveredStream]:
    """The streams whose name has the words, or fits the pattern."""
    wanted = words.lower()
    pattern = wanted if "*" in wanted or "?" in wanted else f"*{wanted}*"
    return [s for s in found if fnmatchcase(_name(s).lower(), pattern)]


def _name(stream: DiscoveredStream) -> str:
    return str(StreamId(stream.namespace, stream.name))


def _listed(values: Mapping[str, Any]) -> list[Entry] | None:
    """The entries of the file's ``streams``; None: every stream is read."""
    source = values.get("source")
    given = cast(dict[str, Any], source).get("streams") if isinstance(source, dict) else None
    if not isinstance(given, list):
        return None
    entries = cast(list[Any], given)
    return [cast(Entry, e) if isinstance(e, dict) else {"name": str(e)} for e in entries]


class _Entries:
    """The entries of a file's ``streams``, of which there may be thousands, by their names."""

    def __init__(self, listed: Sequence[Entry]) -> None:
        self._names: dict[str, Entry] = {}
        self._patterns: list[tuple[str, Entry]] = []
        for entry in listed:
            name = str(entry.get("name"))
            if "*" in name or "?" in name:
                self._patterns.append((name, entry))
            else:
                self._names.setdefault(name, entry)

    def of(self, stream: DiscoveredStream) -> Entry | None:
        """Returns the entry that names the stream, else a pattern that it fits."""
        names = (_name(stream), stream.name)
        own = next((e for n in names if (e := self._names.get(n)) and _in(stream, e)), None)
        fits = (e for p, e in self._patterns if any(fnmatchcase(n, p) for n in names))
        return own or next(fits, None)


def _in(stream: DiscoveredStream, entry: Entry) -> bool:
    return entry.get("namespace") in (None, stream.namespace)


def _row(stream: DiscoveredStream, entries: _Entries | None) -> dict[str, Any]:
    entry = None if entries is None else entries.of(stream)
    own = entry or {}
    schema = stream.json_schema if isinstance(stream.json_schema, dict) else {}
    fields = sorted(cast(dict[str, Any], cast(Any, schema).get("properties") or {}))
    key = own.get("primary_key")
    return {
        "id": _name(stream),
        "name": stream.name,
        "namespace": stream.namespace,
        "chosen": entries is None or entry is not None,
        "sync_modes": stream.sync_modes,
        "sync_mode": own.get("sync_mode") or "",
        "destination_sync_mode": own.get("destination_sync_mode") or "",
        "mode": own.get("mode"),
        "key": _key_text(key),
        "own_key": ", ".join(".".join(p) for p in stream.source_defined_primary_key or ()),
        "cursor": _field_text(own.get("cursor_field")),
        "own_cursor": ".".join(stream.default_cursor_field or ()),
        "fixed_cursor": stream.source_defined_cursor is True,
        "fields": fields[:300],
    }


def _key_text(key: Any) -> str:
    listed = cast(list[Any], key) if isinstance(key, list) else [key] if key else []
    return ", ".join(_field_text(part) for part in listed)


def _field_text(given: Any) -> str:
    return ".".join(map(str, cast(list[Any], given))) if isinstance(given, list) else given or ""


def save(site: Site, request: Request, form: Form) -> Response:
    file = file_of(request)
    mark = one(form, "mark")
    site.workspace.refuse_change(file, mark)
    text = site.workspace.text(file).text
    found: list[DiscoveredStream] = site.catalogs.get(f"streams {file}") or []
    words = one(form, "words")
    back = f"{at('p', file, 'streams')}?words={words}&page={one(form, 'page', '0')}"
    if one(form, "which") == "every" and one(form, "do") == "save":
        site.workspace.save(file, edited(text, {("source", "streams"): None}), mark)
        return go(back, "Every stream is read.")
    listed = _listed(values_of(text))
    named = _Entries(listed or ())
    entries: dict[str, Entry | None] = {
        _name(s): {"name": _name(s)} if listed is None else _own(s, named) for s in found
    }
    if one(form, "do") == "bulk":
        changed = _bulk(_matching(found, words), entries, form)
    else:
        changed = _rows(found, entries, form)
    used = {id(e) for s in found if (e := named.of(s)) is not None}
    kept = [e for e in listed or () if id(e) not in used]
    made = [*kept, *(e for e in entries.values() if e is not None)]
    if not made:
        return go(back, "Choose at least one stream; nothing is saved.")
    short = [e["name"] if e.keys() == {"name"} else e for e in made]
    site.workspace.save(file, edited(text, {("source", "streams"): short}), mark)
    return go(back, f"{changed} streams are saved; {len(made)} are read.")


def _own(stream: DiscoveredStream, named: _Entries) -> Entry | None:
    entry = named.of(stream)
    return None if entry is None else {**entry, "name": _name(stream)}


def _rows(found: Sequence[DiscoveredStream], entries: dict[str, Entry | None], form: Form) -> int:
    """Takes what the rows of the page say; returns how many there are."""
    shown = set(form.get("row", []))
    chosen = set(form.get("chosen", []))
    for stream in found:
        name = _name(stream)
        if name not in shown:
            continue
        if name not in chosen:
            entries[name] = None
            continue
        entry = dict(entries[name] or {"name": _name(stream)})
        for key in ("sync_mode", "destination_sync_mode"):
            _take(entry, key, one(form, f"{key} {name}"))
        _take(entry, "cursor_field", _path(one(form, f"cursor {name}")))
        _take(entry, "primary_key", _paths(one(form, f"key {name}")))
        entries[name] = entry
    return len(shown)


def _bulk(
    matching: Sequence[DiscoveredStream], entries: dict[str, Entry | None], form: Form
) -> int:
    """Changes every stream that the search finds, on all pages."""
    for stream in matching:
        name = _name(stream)
        if one(form, "bulk_chosen") == "no":
            entries[name] = None
            continue
        if entries[name] is None and one(form, "bulk_chosen") != "yes":
            continue
        entry = dict(entries[name] or {"name": _name(stream)})
        mode = one(form, "bulk_sync_mode")
        if mode in stream.sync_modes:
            entry["sync_mode"] = mode
        if one(form, "bulk_destination_sync_mode") in _DESTINATION_MODES:
            entry["destination_sync_mode"] = one(form, "bulk_destination_sync_mode")
        entries[name] = entry
    return len(matching)


def _take(entry: Entry, key: str, value: Any) -> None:
    if value:
        entry[key] = value
    else:
        entry.pop(key, None)


def _path(text: str) -> Any:
    parts = [part.strip() for part in text.split(".") if part.strip()]
    return parts[0] if len(parts) == 1 else parts


def _paths(text: str) -> Any:
    listed = [_path(part) for part in text.split(",") if part.strip()]
    return listed[0] if len(listed) == 1 and isinstance(listed[0], str) else listed


def preview(site: Site, request: Request, form: Form) -> Response:
    """Reads the first rows of one stream; nothing is saved."""
    file, stream = file_of(request), one(form, "stream")
    pipeline = site.workspace.pipeline(file)

    def work(observer: JobObserver) -> None:
        observer.hide(pipeline.secret_values)
        settle(consents(pipeline, site.home), yes=False)
        answer = preview_pipeline(pipeline, site.home, stream, _ROWS, observer=observer)
        site.catalogs[f"preview {file}"] = {"stream": stream, **answer}

    job = site.jobs.start(f"Reading {stream}", at("p", file, "preview"), work)
    return go(site.jobs.address(job))


def previewed(site: Site, request: Request) -> Response:
    file = file_of(request)
    site.workspace.path(file)
    found: dict[str, Any] | None = site.catalogs.get(f"preview {file}")
    rows: list[dict[str, Any]] = (found or {}).get("rows") or []
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = {
        "file": file, "found": found, "columns": names, "nav": "streams",
        "rows": [["" if row.get(n) is None else str(row[n])[:500] for n in names] for row in rows],
    }  # fmt: skip
    return site.page(request, "preview.html", values)


ROUTES = [
    ("GET", "/p/{file}/streams", show),
    ("POST", "/p/{file}/streams", save),
    ("POST", "/p/{file}/discover", discover),
    ("POST", "/p/{file}/preview", preview),
    ("GET", "/p/{file}/preview", previewed),
]
