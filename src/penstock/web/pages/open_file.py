"""The page that takes a pipeline file which somebody has: its text becomes a file of the folder,
byte for byte but for the browser's line ends.

Nothing is run or read by it. Not here: a new file from connectors, and the form (``pages.edit``).
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import ConfigError
from penstock.web.file_edit import values_of
from penstock.web.site import Form, Site, at, go, one, shown_error

_NAME = "pipeline"


def show(site: Site, request: Request) -> Response:
    return site.page(request, "open_file.html", _values())


def _values(text: str = "", name: str = "", error: Any = None) -> dict[str, Any]:
    return {"nav": "new", "text": text, "name": name, "error": error}


def take(site: Site, request: Request, form: Form) -> Response:
    """Writes the file; one with faults too, which its page shows with their lines. A text that
    cannot be written is shown again, with the reason."""
    text, name = one(form, "text").replace("\r\n", "\n"), one(form, "name").strip()
    try:
        if not text.strip():
            raise ConfigError(
                "the text is empty", code="config.empty", hint="paste the text of a pipeline file"
            )
        file = site.workspace.new_name(name or _named(text))
        site.workspace.create(file, text if text.endswith("\n") else f"{text}\n")
    except ConfigError as e:
        values = _values(text, name, shown_error(e))
        return site.page(request, "open_file.html", values, 400)
    return go(at("p", file, "edit"), f"{file} is written.")


def _named(text: str) -> str:
    try:
        return str(values_of(text).get(_NAME) or _NAME)
    except ConfigError:  # the file's page shows the fault
        return _NAME


ROUTES = [("GET", "/open", show), ("POST", "/open", take)]
