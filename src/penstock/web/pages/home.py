"""The first page: the folder's pipelines, their last runs, what needs attention; and the pages of
jobs.
"""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from penstock.config.pipeline import Pipeline
from penstock.engine.inspect import runs as history
from penstock.store.contract import Store
from penstock.store.open import open_store
from penstock.web.charts import line_of_runs
from penstock.web.connector_specs import is_table
from penstock.web.jobs import Job
from penstock.web.site import Site, go, page_of, shown_error
from penstock.web.workspace import FolderFile

_SIZE = 24
_RUNS = 20


def pipelines(site: Site, request: Request) -> Response:
    names = site.workspace.names()
    number, first = page_of(request, _SIZE)
    files = [site.workspace.read(name) for name in names[first : first + _SIZE]]
    store = open_store(site.home.state_url())
    try:
        cards = [_card(site, store, each) for each in files]
        there = {each.name for each in files}
        others = list(_others(store, there)) if len(names) <= _SIZE else []
    finally:
        store.close()
    values: dict[str, Any] = {
        "cards": cards,
        "others": others,
        "found": len(names),
        "number": number,
        "pages": -(-len(names) // _SIZE),
        "nav": "home",
    }
    return site.page(request, "home.html", values)


def _others(store: Store, there: Collection[str | None]) -> Iterator[str]:
    """Yields the names of other pipelines whose streams are known: a run of a misspelt connector
    leaves a name and nothing else."""
    names = (name for name in store.pipelines() if name not in there and store.known_streams(name))
    return islice(names, _SIZE)


def _card(site: Site, store: Store, each: FolderFile) -> dict[str, Any]:
    fault = None if each.fault is None else shown_error(each.fault)
    if each.pipeline is None:
        return {"file": each.file, "name": each.file, "fault": fault, "last": None, "line": ""}
    state = each.pipeline.state
    default = site.home.state_url(state) == site.home.state_url()
    runs = history.runs(store, site.home, each.pipeline.pipeline, _RUNS) if default else []
    last = next((run for run in runs if not _refused(run)), runs[0] if runs else None)
    return {
        "file": each.file,
        "name": each.pipeline.pipeline,
        "source": each.pipeline.source.use,
        "destination": _destination(each.pipeline),
        "fault": fault,
        "rejected": sum(s["rejected"] for s in last["streams"]) if last else 0,
        "last": last,
        "elsewhere": not default,
        "line": line_of_runs(runs),
    }


def _refused(run: dict[str, Any]) -> bool:
    """Returns whether the run did not begin, as another one went on."""
    error = run.get("error")
    return isinstance(error, dict) and cast(dict[str, Any], error).get("code") == "state.locked"


def _destination(pipeline: Pipeline) -> str:
    """Returns the address of a destination, a table's with its path."""
    use, path = pipeline.destination.use, pipeline.destination.config.get("path")
    return f"{use}:{path}" if is_table(use) and isinstance(path, str) else use


def job(site: Site, request: Request) -> Response:
    """Shows a job, or redirects to the page of its answer."""
    found = site.jobs.get(str(request.path_params["id"]))
    done = found is not None and found.ended and found.error is None
    return go(found.then) if found is not None and done else _job(site, request, "job.html", found)


def job_part(site: Site, request: Request) -> Response:
    found = site.jobs.get(str(request.path_params["id"]))
    if found is not None and found.ended and found.error is None:
        return HTMLResponse("", headers={"HX-Redirect": found.then})
    return _job(site, request, "job_part.html", found)


def _job(site: Site, request: Request, template: str, found: Job | None) -> Response:
    """``found`` None: the job of an earlier server, or one of long ago."""
    failed = None if found is None else found.error
    secrets = () if found is None else found.observer.secrets
    error = None if failed is None else shown_error(failed, secrets)
    return site.page(request, template, {"job": found, "error": error})


ROUTES = [
    ("GET", "/", pipelines),
    ("GET", "/jobs/{id}", job),
    ("GET", "/jobs/{id}/part", job_part),
]
