"""The pages to find a connector, by the index that ``penstock search`` uses, with the facts that
are known before it is installed.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.api.roles import AskedRole
from penstock.engine.inspect.found_connectors import describe, find, instead
from penstock.errors import PenstockError
from penstock.web.site import Site, shown_error

_SIZE = 40


def search(site: Site, request: Request) -> Response:
    words = request.query_params.get("words", "").strip()
    role = request.query_params.get("role", "")
    into = request.query_params.get("source", "")
    found, error, others = None, None, list[str]()
    if words:
        asked = AskedRole(role).value if role in ("source", "destination") else None
        try:
            found = find(words.split(), asked, _SIZE)
        except PenstockError as e:
            error = shown_error(e)
            if e.code == "connector.none_found":
                others = instead(words.split(), asked)
    values: dict[str, Any] = {
        "words": words, "role": role, "result": found, "error": error, "source": into,
        "others": others, "nav": "find",
    }  # fmt: skip
    return site.page(request, "find.html", values)


def info(site: Site, request: Request) -> Response:
    found, others = describe(request.query_params.get("connector", ""))
    values = {"connector": found, "others": others[:_SIZE], "nav": "find"}
    return site.page(request, "info.html", values)


ROUTES = [("GET", "/find", search), ("GET", "/find/connector", info)]
