"""The application: its routes, its templates, and how a page is answered.

Each module of ``pages`` lists its routes. A ``PenstockError`` gets a page of its own with what
happened, where and what to do next. Not here: access control (``security``).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from penstock.config.home import Home
from penstock.errors import PenstockError
from penstock.web.pages import (
    edit,
    find,
    history,
    home,
    live,
    machine,
    open_file,
    planned,
    rows,
    saved_state,
)
from penstock.web.security import Gate, GuardedApp
from penstock.web.site import Site
from penstock.web.workspace import Workspace

_HERE = Path(__file__).parent
_PAGES = (home, find, edit, open_file, planned, live, history, rows, saved_state, machine)


def application(folder: Path, home_: Home, gate: Gate) -> ASGIApp:
    """Returns the application for the pipeline files of a folder."""
    site = Site(Workspace(folder, home_))
    routes: list[Route | Mount] = []
    for page in _PAGES:
        routes += [
            Route(path, _answering(site, body), methods=[method])
            for method, path, body in page.ROUTES
        ]
    routes.append(Mount("/static", StaticFiles(directory=_HERE / "static")))
    routes.append(Route("/favicon.ico", _no_icon))
    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: lambda request, error: _not_found(site, request, error),
            Exception: site.failure,
        },
    )
    return GuardedApp(app, gate)


def _answering(site: Site, body: Any) -> Any:
    """Returns the endpoint of a page. Starlette runs it in a thread, after a form was read."""

    async def endpoint(request: Request) -> Response:
        from anyio.to_thread import run_sync

        def answer() -> Response:
            try:
                return (
                    body(site, request, form) if request.method == "POST" else body(site, request)
                )
            except PenstockError as error:
                return site.fault(request, error)

        try:
            form = await _form(request) if request.method == "POST" else {}
            if getattr(body, "is_stream", False):
                return body(site, request)
            return await run_sync(answer)
        except HTTPException:
            raise
        except Exception as error:  # any other error gets a page too
            return await run_sync(site.failure, request, error)

    return endpoint


def _no_icon(request: Request) -> Response:
    """Answers the icon's default address, which browsers request for documents that are not
    pages."""
    del request
    return Response(status_code=204)


async def _form(request: Request) -> dict[str, list[str]]:
    """Returns the inputs of a form by name."""
    from urllib.parse import parse_qs

    raw = (await request.body()).decode("utf-8", "replace")
    return parse_qs(raw, keep_blank_values=True, max_num_fields=100_000)


def _not_found(site: Site, request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    values: Mapping[str, Any] = {
        "title": "There is no such page" if status == 404 else "This cannot be answered",
        "error": None,
    }
    return site.page(request, "error.html", values, status=status)
