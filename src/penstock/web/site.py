"""What the pages share: the workspace, jobs, specifications, templates and figures.

Not here: what a page shows.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from penstock import __version__
from penstock.config.pipeline import Pipeline
from penstock.engine.inspect.pipelines import OpenPipeline, open_known
from penstock.errors import ConfigError, PenstockError
from penstock.protocols.json_schema.address_secrets import address_secrets
from penstock.terminal import format as text
from penstock.terminal.error_view import DescribedError
from penstock.terminal.output import Output
from penstock.web.connector_specs import ConnectorSpecs
from penstock.web.held_forms import HeldForms
from penstock.web.hidden_text import HiddenTexts
from penstock.web.jobs import Jobs
from penstock.web.workspace import Workspace

Form = Mapping[str, list[str]]
_NOTHING = {"where": None, "hint": None, "problems": [], "connector": None}


class Site:
    """One server's state: a restart loses nothing that is needed."""

    def __init__(self, workspace: Workspace) -> None:
        from jinja2 import Environment, PackageLoader, StrictUndefined

        self.workspace = workspace
        self.home = workspace.home
        self.jobs = Jobs()
        self.specs = ConnectorSpecs(self.home)
        self.catalogs: dict[str, Any] = {}
        self.hidden = HiddenTexts(self.specs)
        self.held = HeldForms()
        self.open_streams = 0
        self._templates = Environment(
            loader=PackageLoader("penstock.web"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        filters: dict[str, Any] = {
            "size": text.size,
            "seconds": text.seconds,
            "counted": text.counted,
            "stream_name": text.stream_name,
            "at": _time,
            "figure": _figure,
            "path": _quoted,
            "masked": masked,
            "place": self.place,
        }
        self._templates.filters.update(filters)

    def page(
        self, request: Request, template: str, values: Mapping[str, Any], status: int = 200
    ) -> Response:
        """Returns a page. ``values``: for its template. A browser that shows it gets no status of a
        user's fault (4xx), which it would write to its console as an error of the page."""
        if 400 <= status < 500 and request.headers.get("sec-fetch-mode") == "navigate":
            status = 200
        given = {
            "version": __version__,
            "folder": self.workspace.folder.name or "/",
            "here": request.url.path,
            "said": request.query_params.get("said"),
            "nav": "",
            "file": None,
            **values,
        }
        return HTMLResponse(self._templates.get_template(template).render(given), status)

    def place(self, value: object) -> str:
        """Returns an address without the secrets in it; a path in the folder from there on."""
        return masked(value).replace(f"{self.workspace.folder}{os.sep}", f".{os.sep}")

    def part(self, template: str, values: Mapping[str, Any]) -> str:
        """Returns a part of a page as text."""
        return self._templates.get_template(template).render(values)

    def fault(self, request: Request, error: PenstockError) -> Response:
        """Returns the page of an error."""
        status = {"config.not_found": 404, "config.unknown_run": 404, "ui.changed": 409}
        return self._failed(request, shown_error(error), status.get(error.code, 400))

    def failure(self, request: Request, error: Exception) -> Response:
        """Returns the page of an unexpected error: a fault of the machine (a full disk, missing
        rights), or a bug, whose trace is kept in a file."""
        output = Output(errors_dir=self.home.path / "errors")
        described = DescribedError.of(error, output)
        shown = {**_NOTHING, **described.error}
        shown["message"] = output.safe(str(shown["message"]))
        if described.trace_file is not None:
            shown["where"] = described.trace_file
        return self._failed(request, shown, 500)

    def _failed(self, request: Request, error: Mapping[str, Any], status: int) -> Response:
        """Returns the page of an error, or its part for a script, which shows it at the top of the
        page and keeps the rest."""
        values = {"title": "This did not work", "error": error}
        if not request.headers.get("hx-request"):
            return self.page(request, "error.html", values, status)
        part = self.page(request, "error_part.html", values)
        part.headers["hx-retarget"], part.headers["hx-reswap"] = "#trouble", "innerHTML show:top"
        return part

    @contextmanager
    def opened(self, what: Pipeline | str, *, must_exist: bool = True) -> Generator[OpenPipeline]:
        """Opens a pipeline's store."""
        with open_known(what, self.home, must_exist=must_exist) as known:
            yield known


def _time(value: object) -> Markup:
    """Returns an ISO time to the second, on one line."""
    shown = str(value or "")[:19].replace("T", " ")
    return Markup('<span class="at">{}</span>').format(shown)


def _figure(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def masked(value: object) -> str:
    """Returns an address without the secrets in it."""
    shown = str(value or "")
    for secret in address_secrets(shown):
        shown = shown.replace(secret, "***")
    return shown


def _quoted(value: object) -> str:
    return quote(str(value), safe="")


def shown_error(error: PenstockError, secrets: Any = ()) -> dict[str, Any]:
    """Returns an error for a template: ``message``, ``where``, ``hint``, ``problems``, ``code``."""
    output = Output()
    output.hide(secrets)
    problems = error.problems if isinstance(error, ConfigError) else []
    return {
        "code": error.code,
        "message": output.safe(error.message),
        "where": error.where and output.safe_line(error.where),
        "hint": error.hint and output.safe(error.hint),
        "problems": [output.safe_line(p) for p in problems] if len(problems) > 1 else [],
        "connector": error.connector and output.safe(str(error.connector.get("message") or "")),
    }


def go(address: str, said: str | None = None) -> Response:
    """Returns a redirect to a page, which shows ``said`` at its top."""
    more = "" if said is None else ("&" if "?" in address else "?") + urlencode({"said": said})
    return RedirectResponse(address + more, 303)


def at(*steps: str) -> str:
    """Returns an address of these steps."""
    return "/" + "/".join(quote(step, safe="") for step in steps)


def file_of(request: Request) -> str:
    """Returns the pipeline file that an address names."""
    return str(request.path_params["file"])


def one(form: Form, name: str, default: str = "") -> str:
    """Returns the last value of an input."""
    return (form.get(name) or [default])[-1]


def not_found() -> HTTPException:
    """Returns the error for a page that does not exist."""
    return HTTPException(404)


def page_of(request: Request, size: int) -> tuple[int, int]:
    """Returns the number of the page requested (from 0), and its first entry."""
    given = request.query_params.get("page", "0")
    number = min(int(given), 1_000_000) if given.isdecimal() and len(given) < 8 else 0
    return number, number * size
