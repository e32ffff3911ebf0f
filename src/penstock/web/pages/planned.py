"""The pages of check and plan: the connectors' own messages, and what a run would change in each
table.
"""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.answers import Plan
from penstock.api.table_changes import table_changes
from penstock.engine.inspect import runs as history
from penstock.errors import PenstockError
from penstock.web.connector_specs import settle
from penstock.web.jobs import JobObserver
from penstock.web.site import Form, Site, at, file_of, go, one, page_of, shown_error

_SIZE = 50


def check(site: Site, request: Request, form: Form) -> Response:
    del form
    return start_check(site, file_of(request))


def start_check(site: Site, file: str) -> Response:
    """Starts the check of a pipeline file, and redirects to its page."""
    from penstock.engine.inspect.plan_check import check_pipeline, consents

    pipeline = site.workspace.pipeline(file)

    def work(observer: JobObserver) -> None:
        observer.hide(pipeline.secret_values)
        settle(consents(pipeline, site.home), yes=False)
        try:
            result = check_pipeline(pipeline, site.home, observer=observer)
            answer = {
                "succeeded": result.succeeded,
                "message": observer.safe(result.message or ""),
                "end": result.end,
                "error": None,
            }
        except PenstockError as e:
            error = shown_error(e, pipeline.secret_values)
            answer = {"succeeded": False, "message": "", "end": None, "error": error}
        site.catalogs[f"check {file}"] = {**answer, "lines": list(observer.lines)}

    job = site.jobs.start(f"Checking {file}", at("p", file, "check"), work)
    return go(site.jobs.address(job))


def checked(site: Site, request: Request) -> Response:
    file = file_of(request)
    site.workspace.path(file)
    values = {"file": file, "answer": site.catalogs.get(f"check {file}"), "nav": "check"}
    return site.page(request, "check.html", values)


def plan(site: Site, request: Request, form: Form) -> Response:
    from penstock.engine.inspect.plan_check import consents, plan_pipeline

    file = file_of(request)
    pipeline = site.workspace.pipeline(file)

    def work(observer: JobObserver) -> None:
        observer.hide(pipeline.secret_values)
        if one(form, "yes") == "yes":
            settle(consents(pipeline, site.home), yes=True)
        answer = plan_pipeline(pipeline, site.home, observer=observer)
        found = msgspec.convert(answer, Plan)
        with site.opened(pipeline, must_exist=False) as known:
            past = history.runs(known.store, site.home, known.name, 1)
        tables = table_changes(pipeline, found, past[0] if past else None)
        site.catalogs[f"plan {file}"] = {"plan": found, "tables": tables}

    job = site.jobs.start(f"Planning {file}", at("p", file, "plan"), work)
    return go(site.jobs.address(job))


def planned(site: Site, request: Request) -> Response:
    file = file_of(request)
    site.workspace.path(file)
    found = site.catalogs.get(f"plan {file}")
    number, first = page_of(request, _SIZE)
    tables = found["tables"] if found else []
    values: dict[str, Any] = {
        "file": file,
        "plan": found and found["plan"],
        "tables": tables[first : first + _SIZE],
        "count": len(tables),
        "number": number,
        "pages": -(-len(tables) // _SIZE),
        "nav": "plan",
    }
    return site.page(request, "plan.html", values)


ROUTES = [
    ("POST", "/p/{file}/check", check),
    ("GET", "/p/{file}/check", checked),
    ("POST", "/p/{file}/plan", plan),
    ("GET", "/p/{file}/plan", planned),
]
