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
    found, error, others, own = None, None, list[str](), list[str]()
    if words:
        asked = AskedRole(role).value if role in ("source", "destination") else None
        try:
            found = find(words.split(), asked, _SIZE)
        except PenstockError as e:
            error = shown_error(e)
            if e.code == "connector.none_found":
                others = instead(words.split(), asked)
        own = _references(words) if found is None or not found.hits else []
    values: dict[str, Any] = {
        "own": own, "words": words, "role": role, "result": found, "error": error, "source": into,
        "others": others, "nav": "find",
    }  # fmt: skip
    return site.page(request, "find.html", values)


def _references(words: str) -> list[str]:
    """Returns references to a program, component or image of one's own that the words name."""
    if words.endswith(".wasm"):
        return [f"rapidbyte:{words}"]
    protocols = ("airbyte", "singer", "syncmaven")
    if words.startswith(("/", "./", "../")):
        return [f"{p}:{words}" for p in protocols]
    image = "/" in words and " " not in words
    return [f"{p}:docker:{words}" for p in protocols] if image else []


def info(site: Site, request: Request) -> Response:
    found, others = describe(request.query_params.get("connector", ""))
    values = {"connector": found, "others": others[:_SIZE], "nav": "find"}
    return site.page(request, "info.html", values)


ROUTES = [("GET", "/find", search), ("GET", "/find/connector", info)]
