"""The page of a source's streams: which are read, and how, from the file's ``streams``.

A table of what discovery found, paged and searched by the server; a save changes only what the page
shows. Not here: the default modes of a stream (``penstock plan`` shows them).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from penstock.api.table_rows import cell_text
from penstock.config.pipeline import StreamOptions
from penstock.errors import ConfigError
from penstock.model.catalog import StreamId
from penstock.web.connector_specs import settle
from penstock.web.file_edit import edited, values_of
from penstock.web.jobs import Job, JobObserver, done_by
from penstock.web.known_streams import KnownStream, KnownStreams
from penstock.web.site import Form, Site, at, file_of, go, one, page_of

_SIZE = 50
_UNKNOWN = 5  # unknown columns that the answer of a save names
_DESTINATION_MODES = ("append", "append_dedup", "overwrite")
_ROWS = 20
_STREAMS = ("source", "streams")
_ALL = "*"  # the entry for every stream
Entry = dict[str, Any]


def show(site: Site, request: Request) -> Response:
    file = file_of(request)
    read = site.workspace.text(file)
    found = _known(site, file)
    words = request.query_params.get("words", "").strip()
    matching = [] if found is None else found.matching(words)
    number, first = page_of(request, _SIZE)
    chosen = _Chosen.of(values_of(read.text))
    values: dict[str, Any] = {
        "file": file,
        "mark": read.mark,
        "known": found is not None,
        "every": chosen.every,
        "count": len(matching),
        "all": 0 if found is None else len(found),
        "rows": [_row(s, chosen) for s in matching[first : first + _SIZE]],
        "number": number,
        "pages": -(-len(matching) // _SIZE),
        "words": words,
        "modes": _DESTINATION_MODES,
        "excluded": chosen.excluded,
        "nav": "streams",
    }
    return site.page(request, "streams.html", values)


def discover(site: Site, request: Request, form: Form) -> Response:
    del form
    return start_discover(site, file_of(request))


def start_discover(site: Site, file: str) -> Response:
    """Starts the discovery of a pipeline file's source, and redirects to its streams."""
    return go(site.jobs.address(_discovery(site, file)))


def _discovery(site: Site, file: str) -> Job:
    from penstock.engine.inspect.plan_check import consents, discover_pipeline

    pipeline = site.workspace.pipeline(file)

    def work(observer: JobObserver) -> None:
        observer.hide(pipeline.secret_values)
        settle(consents(pipeline, site.home), yes=False)
        catalog = discover_pipeline(pipeline, site.home, observer=observer)
        site.catalogs[f"streams {file}"] = KnownStreams(catalog.streams)

    return site.jobs.start(f"Finding the streams of {file}", at("p", file, "streams"), work)


def _known(site: Site, file: str) -> KnownStreams | None:
    return site.catalogs.get(f"streams {file}")


class _Chosen:
    """The streams that the file selects: ``streams`` (None: every one) and ``exclude``. An entry
    applies to a stream by the same rule as in a run."""

    def __init__(self, listed: list[Any] | None, excluded: list[str]) -> None:
        self.listed, self.excluded = listed, excluded
        self.every = listed is None or _ALL in listed
        self._names: dict[str, list[int]] = {}
        self._patterns: list[tuple[StreamOptions, int]] = []
        for place, entry in enumerate(self.listed or ()):
            name = str(_entry(entry).get("name"))
            if "*" in name or "?" in name:
                self._patterns.append((_options(_entry(entry)), place))
            else:
                self._names.setdefault(name, []).append(place)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "_Chosen":
        """Reads what a file selects."""
        source = values.get("source")
        given = cast(dict[str, Any], source) if isinstance(source, dict) else {}
        listed, excluded = given.get("streams"), given.get("exclude")
        return cls(
            cast(list[Any], listed) if isinstance(listed, list) else None,
            [*map(str, cast(list[Any], excluded))] if isinstance(excluded, list) else [],
        )

    def switched(self, every: bool, found: KnownStreams) -> "_Chosen":
        """Returns the same selection as a list: with an entry for all streams, or one for each."""
        listed = self.listed
        if every and not self.every:
            own = [e for e in listed or () if _entry(e).keys() != {"name"}]
            listed = [_ALL, *own]
        elif every:
            listed = [_ALL] if listed is None else listed
        elif self.every:
            kept = [s.id for s in found if not self.leaves_out(s.id)]
            listed = [_short(self._own(id_)) for id_ in kept]
        return _Chosen(listed, self.excluded)

    def _own(self, id_: StreamId) -> Entry:
        entry = self.entry(self.place(id_))
        if not entry or _options(entry).is_pattern:
            return {**{k: v for k, v in entry.items() if k != "namespace"}, "name": str(id_)}
        return entry

    def place(self, stream: StreamId) -> int | None:
        """Returns the number of the entry that applies to the stream."""
        named = {n for t in (stream.name, str(stream)) for n in self._names.get(t, ())}
        fits = [(o, n) for n in named if (o := self._at(n)).matches(stream)]
        fits = fits or [(o, n) for o, n in self._patterns if o.matches(stream)]
        best = max(fits, key=lambda f: (bool(f[0].namespace), len(f[0].name)), default=None)
        return None if best is None else best[1]

    def takes_by_pattern(self, stream: StreamId, besides: int) -> bool:
        """Returns whether a pattern at another place applies to the stream."""
        return any(n != besides and o.matches(stream) for o, n in self._patterns)

    def entry(self, place: int | None) -> Entry:
        """Returns an entry as a mapping."""
        return {} if place is None else _entry((self.listed or [])[place])

    def leaves_out(self, stream: StreamId) -> bool:
        """Returns whether ``exclude`` names the stream."""
        return _leaves_out(self.excluded, stream)

    def _at(self, place: int) -> StreamOptions:
        return _options(self.entry(place))


def _leaves_out(excluded: Sequence[str], stream: StreamId) -> bool:
    return any(StreamOptions(name=name).matches(stream) for name in excluded)


def _entry(given: Any) -> Entry:
    return cast(Entry, given) if isinstance(given, dict) else {"name": str(given)}


def _options(entry: Entry) -> StreamOptions:
    namespace = entry.get("namespace")
    own = None if namespace is None else str(namespace)
    return StreamOptions(name=str(entry.get("name")), namespace=own)


def _row(stream: KnownStream, chosen: _Chosen) -> dict[str, Any]:
    place = chosen.place(stream.id)
    own = chosen.entry(place)
    shown = _shown(own)
    listed = chosen.listed is None or place is not None
    return {
        "id": str(stream.id),
        "chosen": listed and not chosen.leaves_out(stream.id),
        "sync_modes": _with(stream.sync_modes, shown["sync_mode"]),
        "destination_sync_modes": _with(_DESTINATION_MODES, shown["destination_sync_mode"]),
        "mode": own.get("mode"),
        **shown,
        "own_key": stream.own_key,
        "own_cursor": stream.own_cursor,
        "fixed_cursor": stream.fixed_cursor,
        "fields": stream.fields,
        "any_columns": _names(own.get("columns")) is not None,
    }


def _shown(entry: Entry) -> dict[str, str]:
    """Returns the settings of an entry as values of the page's inputs."""
    return {
        "sync_mode": str(entry.get("sync_mode") or ""),
        "destination_sync_mode": str(entry.get("destination_sync_mode") or ""),
        "key": _key_text(entry.get("primary_key")),
        "cursor": _field_text(entry.get("cursor_field")),
        "columns": ", ".join(_names(entry.get("columns")) or ()),
    }


def _with(modes: Sequence[str], own: str) -> list[str]:
    """Returns the modes to choose from, with the one that the file has."""
    return [*modes, *([own] if own and own not in modes else [])]


def _key_text(key: Any) -> str:
    listed = cast(list[Any], key) if isinstance(key, list) else [key] if key else []
    return ", ".join(_field_text(part) for part in listed)


def _names(columns: Any) -> list[str] | None:
    """Returns an entry's columns as an input of the page has them. None: the input cannot hold
    them (a path that is a list, a name with a comma)."""
    listed = cast(list[Any], columns) if isinstance(columns, list) else []
    names = [str(each) for each in listed]
    fits = all(isinstance(e, str) and "," not in e and e.strip() == e for e in listed)
    return names if fits and (listed or columns is None) else None


def _field_text(given: Any) -> str:
    return ".".join(map(str, cast(list[Any], given))) if isinstance(given, list) else given or ""


def save(site: Site, request: Request, form: Form) -> Response:
    file = file_of(request)
    mark = one(form, "mark")
    site.workspace.refuse_change(file, mark)
    text = site.workspace.text(file).text
    words = one(form, "words")
    query = urlencode({"words": words, "page": one(form, "page", "0")})
    back = f"{at('p', file, 'streams')}?{query}"
    chosen = _Chosen.of(values_of(text))
    every = one(form, "which", "every" if chosen.every else "chosen") == "every"
    if not _known(site, file):  # the page was made before this server was started
        done_by(_discovery(site, file))
    if not (found := _known(site, file)):
        return go(back, "The source has no streams; nothing is saved.")
    edit = _Edit(chosen.switched(every, found), found)
    if one(form, "do") == "bulk":
        wanted = [(s, _bulk(s, form)) for s in found.matching(words)]
    else:
        shown = set(form.get("row", ()))
        wanted = [(s, _posted(str(s.id), form)) for s in found if str(s.id) in shown]
    unknown: list[str] = []
    for stream, want in wanted:
        if every and not chosen.every:  # boxes of streams that the file did not name
            want.pop("chosen", None)
        if edit.take(stream, want):
            unknown += [f"{stream.id} has no column {name}." for name in _unknown(stream, want)]
    changes = edit.changes(chosen)
    if changes.get(_STREAMS) == []:
        return go(back, "Choose at least one stream; nothing is saved.")
    if changes:
        site.workspace.save(file, edited(text, changes), mark)
    done = f"{edit.changed} of {len(wanted)} streams are changed; {edit.read()} are read."
    return go(back, " ".join((done, *unknown[:_UNKNOWN])))


Wanted = dict[str, Any]
"""The posted choices of a stream: ``chosen``, and settings by their inputs. Absent settings
stay."""


def _posted(name: str, form: Form) -> Wanted:
    """Returns the changes in one row of the page."""
    made: Wanted = {"chosen": name in form.get("chosen", ())}
    for key in ("sync_mode", "destination_sync_mode", "key", "cursor", "columns"):
        if f"{key} {name}" in form:
            made[key] = one(form, f"{key} {name}").strip()
    return made


def _unknown(stream: KnownStream, want: Wanted) -> list[str]:
    """Returns the names in the choices of a stream that its schema does not have; empty where the
    schema names no columns."""
    if not stream.fields:
        return []
    words = [part for key in ("key", "cursor", "columns") for part in want.get(key, "").split(",")]
    names = [word.strip().removeprefix("!").partition(".")[0] for word in words if word.strip()]
    return [name for name in names if not stream.may_have(name) and not {*name} & {"*", "?"}]


def _bulk(stream: KnownStream, form: Form) -> Wanted:
    """Returns the changes for each stream that the search finds, on all pages: what its catalog
    allows of them."""
    made: Wanted = {}
    if one(form, "bulk_chosen") in ("yes", "no"):
        made["chosen"] = one(form, "bulk_chosen") == "yes"
    if one(form, "bulk_sync_mode") in stream.sync_modes:
        made["sync_mode"] = one(form, "bulk_sync_mode")
    if one(form, "bulk_destination_sync_mode") in _DESTINATION_MODES:
        made["destination_sync_mode"] = one(form, "bulk_destination_sync_mode")
    key, cursor = (one(form, f"bulk_{name}").strip() for name in ("key", "cursor"))
    if key and not stream.own_key and all(stream.may_have(p.strip()) for p in key.split(",")):
        made["key"] = key
    chosen = cursor and not stream.fixed_cursor and "incremental" in stream.sync_modes
    if chosen and stream.may_have(cursor):
        made["cursor"] = cursor
    return made


class _Edit:
    """Collects the changes of ``streams`` and ``exclude``: untouched entries stay as in the file,
    patterns too. ``changed``: the number of changed streams."""

    def __init__(self, chosen: _Chosen, found: KnownStreams) -> None:
        self._had, self._found = chosen, found
        self._places = {s.id: chosen.place(s.id) for s in found}
        self._users = Counter(p for p in self._places.values() if p is not None)
        self._new: dict[StreamId, Entry | None] = {}  # None: the stream is left out
        self._excluded = [*chosen.excluded]
        self.changed = 0

    def take(self, stream: KnownStream, want: Wanted) -> bool:
        """Takes the choices of a stream. Returns whether they change it."""
        id_ = stream.id
        place = self._places[id_]
        entry = self._had.entry(place)
        listed = self._had.listed is None or place is not None
        was = listed and not self._had.leaves_out(id_)
        is_chosen = want.get("chosen", was)
        shown = _shown(entry)
        new = {k: v for k, v in want.items() if k in shown and v != shown[k]}
        if is_chosen == was and not (new and is_chosen):
            return False
        self.changed += 1
        if not is_chosen:
            self._new[id_] = None
            return True
        if self._had.leaves_out(id_):
            self._include(stream)
        if new or not listed:
            self._new[id_] = _changed(entry, stream, new)
        return True

    def _include(self, stream: KnownStream) -> None:
        own = {stream.name, str(stream.id)}
        self._excluded = [name for name in self._excluded if name not in own]
        if _leaves_out(self._excluded, stream.id):
            raise ConfigError(
                f"a pattern of source.exclude leaves out {stream.id!s}", code="ui.text",
                hint="change `exclude` in the text of the file",
            )  # fmt: skip

    def changes(self, file: _Chosen) -> dict[tuple[str, ...], Any]:
        """Returns the changes to the file."""
        made: dict[tuple[str, ...], Any] = {}
        listed = self._listed(self._had.listed or [])
        wanted = None if listed == [_ALL] else listed
        if wanted != file.listed and not (file.listed == listed == [_ALL]):
            made[_STREAMS] = wanted
        if self._excluded != file.excluded:
            made["source", "exclude"] = self._excluded or None
        return made

    def _listed(self, listed: list[Any]) -> list[Any]:
        """Returns the entries of the file with the changes. An entry that applies to other streams
        too is kept: a changed stream gets an entry of its own, or is excluded."""
        own: dict[int, Any] = {}
        added: list[Any] = []
        for id_, entry in self._new.items():
            place = self._places[id_]
            alone = place is not None and self._users[place] == 1
            alone = alone and not _options(self._had.entry(place)).is_pattern
            if alone and place is not None:
                if entry is None and self._had.takes_by_pattern(id_, place):
                    self._excluded.append(str(id_))  # its entry stays, with its settings
                else:
                    own[place] = entry
            elif entry is not None:
                added.append(_short(entry))
            elif place is not None:
                self._excluded.append(str(id_))
        kept = [own.get(n, e) for n, e in enumerate(listed) if own.get(n, e) is not None]
        return [*kept, *added]

    def read(self) -> int:
        """Returns how many streams are read."""
        count = 0
        for id_, place in self._places.items():
            had = self._had.listed is None or place is not None
            was = had and not _leaves_out(self._excluded, id_)
            count += (id_ in self._new and self._new[id_] is not None) or (
                was and id_ not in self._new
            )
        return count


def _changed(entry: Entry, stream: KnownStream, new: Mapping[str, str]) -> Entry:
    """Returns an entry for this stream alone with new settings."""
    own = {"name": str(stream.id)} if not entry or _options(entry).is_pattern else {}
    made = {**{k: v for k, v in entry.items() if not own or k != "namespace"}, **own}
    for key, text in new.items():
        name = {"key": "primary_key", "cursor": "cursor_field"}.get(key, key)
        value: Any = text
        if key == "key":
            value = _paths(text)
        elif key == "cursor":
            value = _path(text)
        elif key == "columns":
            value = [part.strip() for part in text.split(",") if part.strip()]
        if value:
            made[name] = value
        else:
            made.pop(name, None)
    return made


def _short(entry: Entry) -> Any:
    return entry["name"] if entry.keys() == {"name"} else entry


def _path(text: str) -> Any:
    parts = [part.strip() for part in text.split(".") if part.strip()]
    return parts[0] if len(parts) == 1 else parts


def _paths(text: str) -> Any:
    listed = [_path(part) for part in text.split(",") if part.strip()]
    return listed[0] if len(listed) == 1 and isinstance(listed[0], str) else listed


def preview(site: Site, request: Request, form: Form) -> Response:
    """Reads the first rows of one stream; nothing is saved."""
    from penstock.engine.inspect.plan_check import consents, preview_pipeline

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
        "rows": [[cell_text(row.get(n)) for n in names] for row in rows],
    }  # fmt: skip
    return site.page(request, "preview.html", values)


ROUTES = [
    ("GET", "/p/{file}/streams", show),
    ("POST", "/p/{file}/streams", save),
    ("POST", "/p/{file}/discover", discover),
    ("POST", "/p/{file}/preview", preview),
    ("GET", "/p/{file}/preview", previewed),
]
