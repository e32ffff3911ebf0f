"""The pages of runs: all of the home or of one pipeline; one run with its report, its log and its
retry.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.config.pipeline import Pipeline
from penstock.engine.inspect import live
from penstock.engine.inspect import runs as history
from penstock.store.open import open_store
from penstock.web.charts import line_of_runs, time_bar
from penstock.web.site import Site, file_of, page_of

_SIZE = 50
_LINES = 2000
_SHOWN = 300
LEVELS = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")


def all_runs(site: Site, request: Request) -> Response:
    number, first = page_of(request, _SIZE)
    store = open_store(site.home.state_url())
    try:
        found = history.runs(store, site.home, None, first + _SIZE + 1)
    finally:
        store.close()
    return _listed(site, request, found[first:], number, None)


def runs_of_file(site: Site, request: Request) -> Response:
    number, first = page_of(request, _SIZE)
    pipeline = site.workspace.past(file_of(request))
    with site.opened(pipeline, must_exist=False) as known:
        found = history.runs(known.store, site.home, known.name, first + _SIZE + 1)
    return _listed(site, request, found[first:], number, file_of(request))


def _listed(
    site: Site, request: Request, found: list[dict[str, Any]], number: int, file: str | None
) -> Response:
    values: dict[str, Any] = {
        "runs": found[:_SIZE],
        "more": len(found) > _SIZE,
        "number": number,
        "file": file,
        "line": line_of_runs(found[:20]) if file else "",
        "nav": "runs",
    }
    return site.page(request, "runs.html", values)


def what_of(site: Site, request: Request) -> Pipeline | str | None:
    """Returns the pipeline whose store has the run: of the file in the address; None: any pipeline,
    in the home's own store."""
    file = request.query_params.get("file")
    return None if not file else site.workspace.past(file)


def report_of(site: Site, what: Pipeline | str | None, run: str, lines: int) -> dict[str, Any]:
    """Returns the report of a run with the last lines of its log. Raises ``ConfigError``."""
    if what is None:
        store = open_store(site.home.state_url())
        try:
            return history.one_run(store, site.home, None, run, lines)
        finally:
            store.close()
    with site.opened(what) as known:
        return history.one_run(known.store, site.home, known.name, run, lines)


def one_run(site: Site, request: Request) -> Response:
    run = str(request.path_params["run"])
    what = what_of(site, request)
    report = report_of(site, what, run, _LINES)
    return site.page(request, "run.html", run_values(site, request, report, what))


def run_values(
    site: Site, request: Request, report: dict[str, Any], what: Pipeline | str | None
) -> dict[str, Any]:
    """Returns the values for a run's page."""
    level = request.query_params.get("level", "INFO")
    words = request.query_params.get("words", "").strip()
    running = report["status"] == "running"
    found = (
        live.progress(site.home, what or str(report["pipeline"]), report["run"])
        if running
        else None
    )
    streams = report["streams"] or (found or {}).get("streams") or []
    number, first = page_of(request, _SIZE)
    return {
        "run": report,
        "running": running,
        "live": found,
        "streams": streams[first : first + _SIZE],
        "found": len(streams),
        "number": number,
        "pages": -(-len(streams) // _SIZE),
        "total": {
            name: sum(int(s.get(name) or 0) for s in streams)
            for name in ("read", "written", "rejected", "bytes", "states", "sealed")
        },
        "states": (found or {}).get("states"),
        "times": time_bar((found or {}).get("time") or report.get("time")),
        "phase": (found or {}).get("phase"),
        "lines": _filtered(report.get("log_lines") or [], level, words),
        "level": level,
        "levels": LEVELS,
        "words": words,
        "file": request.query_params.get("file") or None,
        "owner": site_file(site, str(report["pipeline"])),
        "nav": "runs",
    }


def site_file(site: Site, pipeline: str) -> str | None:
    """Returns the folder's file of a pipeline; None: no file defines it."""
    guess = f"{pipeline}.yaml"
    names = site.workspace.names()
    ordered = sorted(names, key=lambda name: name != guess)[:200]
    return next((n for n in ordered if site.workspace.read(n).name == pipeline), None)


def _filtered(lines: list[dict[str, Any]], level: str, words: str) -> list[dict[str, Any]]:
    wanted = LEVELS[: LEVELS.index(level) + 1] if level in LEVELS else LEVELS
    found = [
        line
        for line in lines
        if line["level"] in wanted and words.lower() in str(line["message"]).lower()
    ]
    return found[-_SHOWN:]


ROUTES = [
    ("GET", "/runs", all_runs),
    ("GET", "/runs/{run}", one_run),
    ("GET", "/p/{file}/runs", runs_of_file),
]
