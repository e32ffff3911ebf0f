"""The page of a pipeline's state: the current one, earlier ones, and changes, each with a
confirmation that describes its effect.
"""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.codec.exact_json import exact_text
from penstock.config.selectors import parse_stream
from penstock.engine.inspect import states
from penstock.engine.inspect.rewinds import rewind
from penstock.errors import ConfigError, PenstockError
from penstock.terminal import format as text
from penstock.web.site import Form, Site, at, file_of, go, one, page_of, shown_error

_SIZE = 50
_CHANGES = {
    "reset": "forgets where the next run would go on. It reads from the start; tables keep their "
    "rows.",
    "rewind": "moves the cursor. The next run reads from there again.",
    "set": "puts this state over the saved one. Streams that it does not name keep theirs.",
    "sealed": "gives up the rows that an earlier run sealed and that are not delivered: their "
    "source sends them again. Into a table it forgets the state too; tables keep their rows.",
    "import": "replaces the whole saved state by this one.",
}


def show(site: Site, request: Request) -> Response:
    file = file_of(request)
    pipeline = site.workspace.past(file)
    words = request.query_params.get("words", "").strip().lower()
    with site.opened(pipeline, must_exist=False) as known:
        ran = known.name in known.store.pipelines() and known.store.source_of(known.name)
        found = states.show(known) if ran else None
        past = states.history(known, None, 30) if ran else []
        elsewhere = known.elsewhere()
    streams = (found or {}).get("streams") or []
    matching = [s for s in streams if words in text.stream_name(s).lower()]
    number, first = page_of(request, _SIZE)
    values: dict[str, Any] = {
        "file": file,
        "found": found,
        "streams": [{**s, "text": _json(s["state"])} for s in matching[first : first + _SIZE]],
        "count": len(matching),
        "number": number,
        "pages": -(-len(matching) // _SIZE),
        "words": request.query_params.get("words", ""),
        "shared": None if not found or found["shared"] is None else _json(found["shared"]),
        "elsewhere": elsewhere,
        "waiting": (found or {}).get("waiting") or [],
        "past": [{**e, "text": _json(e["state"])[:400]} for e in past],
        "nav": "state",
    }
    return site.page(request, "state.html", values)


def ask(site: Site, request: Request, form: Form) -> Response:
    """Describes the effect of a change, and requests confirmation. A text that is no state is shown
    again, with the reason."""
    what = one(form, "what")
    if what not in _CHANGES:
        raise ConfigError("there is no such change", code="usage")
    file, named = file_of(request), one(form, "stream")
    error = None
    if what in ("set", "import"):
        try:
            states.read_state(one(form, "state"), "the state")
        except PenstockError as e:
            error = shown_error(e)
    with site.opened(site.workspace.past(file), must_exist=False) as known:
        found = states.show(known, parse_stream(named)) if named else {"streams": []}
    values = {
        "file": file,
        "now": [_json(each["state"]) for each in found["streams"]],
        "what": what,
        "does": _CHANGES[what],
        "stream": named,
        "to": one(form, "to"),
        "field": one(form, "field"),
        "state": one(form, "state"),
        "error": error,
        "nav": "state",
    }
    return site.page(request, "state_ask.html", values, 200 if error is None else 400)


def change(site: Site, request: Request, form: Form) -> Response:
    file, what = file_of(request), one(form, "what")
    pipeline = site.workspace.past(file)
    named = one(form, "stream")
    stream = parse_stream(named) if named else None
    notes: list[str] = []
    with site.opened(pipeline, must_exist=what in ("reset", "rewind")) as known:
        match what:
            case "reset":
                states.reset(known, stream)
            case "rewind" if stream is not None:
                moved = rewind(known, stream, one(form, "to"), one(form, "field") or None)
                notes = moved.get("notes", [])
            case "set":
                raw = states.read_state(one(form, "state"), "the state")
                states.update(known, raw, stream)
            case "sealed":
                states.give_up_waiting(pipeline, known)
            case "import":
                raw = states.read_state(one(form, "state"), "the state")
                states.replace(known, raw)
            case _:
                raise ConfigError("there is no such change", code="usage")
    done = f"Done: {what}{f' of {named}' if named else ''}."
    return go(at("p", file, "state"), " ".join((done, *(f"Note: {note}." for note in notes))))


def export(site: Site, request: Request) -> Response:
    file = file_of(request)
    with site.opened(site.workspace.past(file)) as known:
        found = states.export(known)
    name = f"{file.rpartition('.')[0]}-state.json"
    return Response(
        exact_text(found),
        media_type="application/json",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def _json(data: Any) -> str:
    return msgspec.json.format(exact_text(data), indent=2).decode()


ROUTES = [
    ("GET", "/p/{file}/state", show),
    ("POST", "/p/{file}/state/ask", ask),
    ("POST", "/p/{file}/state/change", change),
    ("GET", "/p/{file}/state/export", export),
]
