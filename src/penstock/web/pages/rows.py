"""The pages of rejects (shown, filtered, downloaded) and of the first rows of a pipeline's
tables.
"""

import csv
import io
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.api.table_rows import first_rows
from penstock.codec.exact_json import exact_text
from penstock.config.selectors import parse_stream
from penstock.connectors.reference import parse_ref
from penstock.engine.inspect import runs as history
from penstock.errors import PenstockError
from penstock.web import launches
from penstock.web.connector_specs import settle
from penstock.web.site import Form, Site, at, file_of, go, one, page_of, shown_error

_SIZE = 50
_ROWS = 20
_BLOCK = 1000  # rejects
_KEYS = ("run", "stream", "reason", "field", "at", "bytes", "encoding", "key", "attempt")


def rejects(site: Site, request: Request) -> Response:
    number, first = page_of(request, _SIZE)
    asked = _asked(request)
    shown = [*islice(_found(site, file_of(request), asked), first, first + _SIZE + 1)]
    values: dict[str, Any] = {
        "file": file_of(request),
        "rejects": shown[:_SIZE],
        "more": len(shown) > _SIZE,
        "number": number,
        "asked": asked,
        "nav": "rejects",
    }
    return site.page(request, "rejects.html", values)


def _asked(request: Request) -> dict[str, str]:
    return {n: request.query_params.get(n, "").strip() for n in ("run", "stream", "reason")}


def _found(site: Site, file: str, asked: dict[str, str]) -> Iterator[dict[str, Any]]:
    pipeline = site.workspace.past(file)
    stream = parse_stream(asked["stream"]) if asked["stream"] else None
    with site.opened(pipeline, must_exist=False) as known:
        found = history.rejects(
            known.store, site.home, known.name, run=asked["run"] or None, stream=stream
        )
        for each in found:
            if asked["reason"].lower() in f"{each['reason']} {each['field'] or ''}".lower():
                yield each


def retry(site: Site, request: Request, form: Form) -> Response:
    """Starts ``penstock rejects retry`` for the rejects that the page shows."""
    from penstock.engine.inspect.plan_check import consents

    file = file_of(request)
    pipeline = site.workspace.pipeline(file)  # its faults are shown here
    settle(consents(pipeline, site.home), yes=False)
    options = [o for n in ("run", "stream") if one(form, n) for o in (f"--{n}", one(form, n))]
    options += ["--dry-run"] if one(form, "do") == "dry" else []
    path = site.workspace.path(file)
    launched = launches.launch(site.home, path, *options, verb=("rejects", "retry"))
    return go(at("launch", launched.id))


def download(site: Site, request: Request) -> Response:
    file, asked = file_of(request), _asked(request)
    as_csv = request.query_params.get("form") == "csv"
    site.workspace.path(file)
    name = f"{file.rpartition('.')[0]}-rejects.{'csv' if as_csv else 'json'}"
    lines = _csv(_found(site, file, asked)) if as_csv else _json(_found(site, file, asked))
    return StreamingResponse(
        lines,
        media_type="text/csv; charset=utf-8" if as_csv else "application/json",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def _csv(found: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """Yields the rejects as CSV, in blocks: the server hands each block to a thread."""
    rows = chain([_KEYS], ([_cell(each[key]) for key in _KEYS] for each in found))
    while block := [*islice(rows, _BLOCK)]:
        text = io.StringIO()
        csv.writer(text).writerows(block)
        yield text.getvalue().encode()


def _cell(value: Any) -> str:
    """Returns a cell that no spreadsheet interprets as a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _json(found: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """Yields the rejects as a JSON list, in blocks."""
    before = b"[\n"
    while block := b",\n".join(map(exact_text, islice(found, _BLOCK))):
        yield before + block
        before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"


def table(site: Site, request: Request) -> Response:
    """Shows the first rows of each table that the last run wrote, one at a time."""
    file = file_of(request)
    pipeline = site.workspace.past(file)
    format = parse_ref(pipeline.destination.use).format
    with site.opened(pipeline, must_exist=False) as known:
        runs = history.runs(known.store, site.home, known.name, 20)
    tables = {
        str(s["table"]): s for run in reversed(runs) for s in run["streams"] if s.get("table")
    }
    chosen = request.query_params.get("table") or next(iter(tables), None)
    shown, error = None, None
    if chosen in tables and format is not None:  # no other path is read
        try:
            shown = first_rows(format, str(chosen), _ROWS)
        except PenstockError as e:
            error = shown_error(e)
    values: dict[str, Any] = {
        "file": file, "tables": tables, "chosen": chosen, "shown": shown, "error": error,
        "format": format, "nav": "rows",
    }  # fmt: skip
    return site.page(request, "rows.html", values)


ROUTES = [
    ("GET", "/p/{file}/rejects", rejects),
    ("POST", "/p/{file}/rejects/retry", retry),
    ("GET", "/p/{file}/rejects/download", download),
    ("GET", "/p/{file}/rows", table),
]
