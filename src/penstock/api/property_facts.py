"""Reads what a connector's configuration schema declares of one property: its kind, choices, title,
whether it is required or a secret, and which forms an object may have.

Follows ``$ref`` and ``allOf``. No I/O. Neighbours: ``new_file`` writes the text of a pipeline file
by it, ``penstock.web.forms`` builds the fields of a form.
"""

import re
from typing import Any, NamedTuple, cast

from penstock.codec.schema_walk import parts
from penstock.config.secret_texts import MARKS_ONLY

_BY_NAME = "penstock-by-name"
PUBLIC = re.compile(r"(?:_url|_uri|_type|_method|_mode|_endpoint)$")
"""Names of properties that never hold a secret, even if the name looks like it."""


class SchemaProperty(NamedTuple):
    """A property of an object, as its schema has it."""

    schema: Any
    required: bool


class PropertyFacts:
    """What the schema declares of one property."""

    def __init__(self, root: Any, property_: "SchemaProperty", secret_word: str | None) -> None:
        nodes = parts(root, [property_.schema], ("allOf",))
        marks = cast(dict[str, Any], root).get(MARKS_ONLY) if isinstance(root, dict) else None
        self.node: dict[str, Any] = {}
        for node in reversed(nodes):
            if node is not marks:
                self.node.update(node)
        self.required = property_.required
        self.choices: tuple[Any, ...] = tuple(self.node.get("enum") or ())
        self.kind = _kind(self.node)
        self.named_secret = any(_BY_NAME in node for node in nodes)
        """Whether its name is that of a secret, also of a list of them."""
        if secret_word is None:
            shown = self.choices or not self.node.keys().isdisjoint(("const", "default"))
            marked = self.kind == "string" and not shown
        else:
            marked = any(node.get(secret_word) is True for node in nodes)
            text = self.kind == "string" and not self.choices and not self.node.get("default")
            marked = marked or (text and self.named_secret)
        self.secret = marked or any(node.get("writeOnly") is True for node in nodes)

    @property
    def fixed(self) -> Any:
        """Returns the only value that it can have; None: there are several."""
        if "const" in self.node:
            return self.node["const"]
        return self.choices[0] if len(self.choices) == 1 else None

    @property
    def help(self) -> str:
        """Returns its title and its description, without tags."""
        title, text = (str(self.node.get(key) or "") for key in ("title", "description"))
        text = " ".join(re.sub(r"<[^<>]*>", "", text).split())
        return f"{title}: {text}" if title and text else title or text


def properties_of(root: Any, schema: Any) -> list[tuple[str, SchemaProperty]]:
    """Returns the properties of an object: required ones first, each in the connector's order
    (``order``, which Airbyte's connectors give), then in the document's."""
    found: dict[str, Any] = {}
    required: set[str] = set()
    nodes = parts(root, [schema], ("allOf",))
    for node in nodes:
        inner = node.get("properties")
        if isinstance(inner, dict):
            for name, each in cast(dict[str, Any], inner).items():
                found.setdefault(name, each)
        required |= {str(name) for name in cast(list[Any], node.get("required") or [])}
    listed = [
        (n, SchemaProperty(_with_marks(root, n, s, nodes), n in required))
        for n, s in found.items()
        if isinstance(s, dict)
    ]
    return sorted(listed, key=lambda each: (not each[1].required, _order(each[1].schema)))


def _with_marks(
    root: Any, name: str, schema: dict[str, Any], nodes: list[dict[str, Any]]
) -> dict[str, Any]:
    """Returns the schema of a property, with what name patterns and rules for all other names add.
    A mark that Penstock sets by name alone (``MARKS_ONLY``) is a guess, which names such as
    ``base_url`` and ``auth_type`` refute."""
    marks = cast(dict[str, Any], root).get(MARKS_ONLY) if isinstance(root, dict) else None
    more: list[Any] = []
    for node in nodes:
        given = node.get("patternProperties")
        patterns = cast(dict[str, Any], given) if isinstance(given, dict) else {}
        fitting = [each for pattern, each in patterns.items() if _fits(pattern, name)]
        if node is marks and fitting:
            fitting = [] if PUBLIC.search(name) else [{_BY_NAME: True}]
        rest = node.get("additionalProperties")
        if not fitting and name not in (node.get("properties") or ()) and isinstance(rest, dict):
            fitting = [rest]
        more += fitting
    if not more:
        return schema
    branches = schema.get("allOf")
    own = cast(list[Any], branches) if isinstance(branches, list) else []
    return {**schema, "allOf": [*own, *more]}


def _fits(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return True  # unknown whether it marks a secret


def _order(schema: dict[str, Any]) -> float:
    order = schema.get("order")
    return order if isinstance(order, (int, float)) else float("inf")


def _kind(node: dict[str, Any]) -> str:
    kinds = node.get("type")
    listed = cast(list[Any], kinds) if isinstance(kinds, list) else [kinds]
    named = [str(kind) for kind in listed if kind not in (None, "null")]
    if named:
        return named[0]
    return "object" if "properties" in node else "array" if "items" in node else "string"


def variants_of(root: Any, node: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the forms that an object may have: itself, or each of its alternatives with its own
    properties. Returns None where it is no object, or nothing is known of its properties."""
    for word in ("oneOf", "anyOf"):
        branches = node.get(word)
        if isinstance(branches, list):
            own = {key: value for key, value in node.items() if key != word}
            listed = cast(list[Any], branches)
            merged = [{**own, "allOf": [branch]} for branch in listed]
            named = [m for m in merged if properties_of(root, m)]
            for m in named:
                nodes = parts(root, m["allOf"], ("allOf",))
                title = next((n["title"] for n in nodes if "title" in n), None)
                m.pop("title", None)
                m.update({"title": title} if title else {})
            return named
    return [node] if properties_of(root, node) else []
