"""Decides which kind of field a property of a configuration gets, and which of its forms a value
has.

Pure. Neighbours: ``fields`` and ``posted`` both use it, so that what is shown is what is read.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, cast

from penstock.api.property_facts import PropertyFacts, SchemaProperty, properties_of, variants_of
from penstock.codec.schema_walk import parts
from penstock.config.secret_texts import MARKS_ONLY, names_a_secret

DEEPEST = 8
_SCALARS = ("string", "integer", "number")
_MARKS = f"#/{MARKS_ONLY}"
_VARIABLE = {"$ref": "#/$defs/Variable"}


class FieldKind(StrEnum):
    """``lines``: a list of scalars, one per line; ``choices``: a list of given values; ``items``: a
    list of objects; ``named``: a mapping of names to values; ``variant``: an object of one of
    several forms; ``json``: an editor of that part; ``elsewhere``: a secret that is not a scalar,
    edited in the file."""

    text = "text"
    long_text = "long_text"
    secret = "secret"
    number = "number"
    boolean = "boolean"
    choice = "choice"
    fixed = "fixed"
    hidden = "hidden"
    date = "date"
    time = "time"
    lines = "lines"
    choices = "choices"
    items = "items"
    named = "named"
    object = "object"
    variant = "variant"
    json = "json"
    elsewhere = "elsewhere"


class Shape:
    """A property with its kind. ``forms``: of a variant, the schemas of its forms; ``item``: of a
    list or a mapping of names, the shape of its elements. ``above``: the references around it; one
    that recurs in it is a cycle, which ends in an editor. ``loose``: a text that may also be a
    number or a truth value. ``free``: its names and values are not described."""

    def __init__(
        self, root: Any, property_: SchemaProperty, word: str | None, depth: int = 0,
        secret: bool = False, above: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        own = references(root, property_.schema)
        self.circular = bool(own & above)
        self.above = above | own
        self.facts = PropertyFacts(root, property_, word)
        self.facts.secret = self.facts.secret or secret
        self.forms: list[dict[str, Any]] = []
        self.item: Shape | None = None
        self.loose = self.free = False
        self.schema: Any = self.facts.node
        self.kind = self._kind(root, word, depth)

    def _kind(self, root: Any, word: str | None, depth: int) -> FieldKind:
        node, facts = self.facts.node, self.facts
        if node.get("airbyte_hidden") is True:
            return FieldKind.hidden
        if depth > DEEPEST or self.circular:
            return FieldKind.elsewhere if facts.secret else FieldKind.json
        branches = _branches(node)
        if branches is not None:
            found = self._of_branches(root, branches, word, depth)
            if found is not None:
                return found
        if facts.fixed is not None:
            return FieldKind.fixed
        kind = self._plain_kind(root, word, depth)
        if not facts.secret or kind in (FieldKind.object, FieldKind.items, FieldKind.secret):
            return kind
        return FieldKind.elsewhere

    def _of_branches(
        self, root: Any, branches: Sequence[Any], word: str | None, depth: int
    ) -> FieldKind | None:
        """Returns the kind of alternatives: forms of an object, or the first that is a scalar;
        None: the alternatives only require keys and do not change the kind."""
        node = self.facts.node
        own = {k: v for k, v in node.items() if k not in ("oneOf", "anyOf")}
        self.forms = variants_of(root, node)
        if len(self.forms) == len(branches) > 1:
            return FieldKind.variant
        if self.forms and (own.get("properties") or len(self.forms) == 1):
            only = own if own.get("properties") else self.forms[0]
            self.schema = only
            return FieldKind.object
        if not self.forms and own.get("type") not in (None, "object"):
            return None
        own.pop("$ref", None)  # its parts are in the node already
        if len(branches) == 1:
            property_ = SchemaProperty({**own, "allOf": [branches[0]]}, self.facts.required)
            only = Shape(root, property_, word, depth + 1, self.facts.secret, self.above)
            return self._as(only)
        shapes: list[Shape] = []
        for branch in branches:
            property_ = SchemaProperty({**own, "allOf": [branch]}, self.facts.required)
            shape = Shape(root, property_, word, depth + 3, self.facts.secret, self.above)
            if shape.kind not in (FieldKind.json, FieldKind.object, FieldKind.variant):
                shapes.append(shape)
        if not shapes:
            return FieldKind.elsewhere if self.facts.secret else FieldKind.json
        found, texts = shapes[0], [s for s in shapes if s.kind is FieldKind.text]
        if found.kind in (FieldKind.number, FieldKind.boolean, FieldKind.choice) and texts:
            texts[0].loose = found.kind is not FieldKind.choice
            found = texts[0]
        return self._as(found)

    def _as(self, other: "Shape") -> FieldKind:
        self.facts, self.item, self.schema = other.facts, other.item, other.schema
        self.above, self.forms = other.above, other.forms
        self.loose, self.free = other.loose, other.free
        return other.kind

    def _plain_kind(self, root: Any, word: str | None, depth: int) -> FieldKind:
        facts, node = self.facts, self.facts.node
        if facts.secret and facts.kind in _SCALARS:
            return FieldKind.secret
        if facts.choices:
            return FieldKind.choice
        match facts.kind:
            case "string":
                form = {"date": FieldKind.date, "date-time": FieldKind.time}.get(
                    str(node.get("format"))
                )
                return form or (
                    FieldKind.long_text if node.get("multiline") is True else FieldKind.text
                )
            case "integer" | "number" | "boolean" if "string" in (node.get("type") or ()):
                self.loose = True
                return FieldKind.text
            case "integer" | "number":
                return FieldKind.number
            case "boolean":
                return FieldKind.boolean
            case "array":
                return self._list_kind(root, word, depth)
            case "object" if properties_of(root, node):
                return FieldKind.object
            case "object":
                return self._named_kind(root, word, depth)
            case _:
                return FieldKind.json

    def _list_kind(self, root: Any, word: str | None, depth: int) -> FieldKind:
        items = self.facts.node.get("items")
        if not isinstance(items, dict):
            return FieldKind.json
        item = self._inner(root, items, word, depth)
        if self.facts.named_secret and item.kind is FieldKind.text:
            self.facts.secret = True
            item = self._inner(root, items, word, depth)
        match item.kind:
            case FieldKind.choice:
                return FieldKind.choices
            case FieldKind.text | FieldKind.number | FieldKind.date | FieldKind.time:
                return FieldKind.lines
            case FieldKind.fixed if item.facts.choices:
                return FieldKind.choices
            case FieldKind.object | FieldKind.variant | FieldKind.secret:
                return FieldKind.items
            case _:
                return FieldKind.json

    def _named_kind(self, root: Any, word: str | None, depth: int) -> FieldKind:
        node = self.facts.node
        values = node.get("additionalProperties", True)
        if node.get("patternProperties") or values is False:
            return FieldKind.json
        self.free = values is True or values == {}
        item = self._inner(root, {} if self.free else values, word, depth)
        shown = item.kind not in (FieldKind.json, FieldKind.elsewhere, FieldKind.hidden)
        return FieldKind.named if shown else FieldKind.json

    def value_of(self, name: str, word: str | None) -> SchemaProperty:
        """Returns the property of one name in a mapping of names."""
        if not self.free:
            return SchemaProperty(self.facts.node.get("additionalProperties"), True)
        secret = {word: True} if word and names_a_secret(name) else {}
        return SchemaProperty(secret, True)

    def _inner(self, root: Any, schema: Any, word: str | None, depth: int) -> "Shape":
        property_ = SchemaProperty(schema, True)
        self.item = Shape(root, property_, word, depth + 1, self.facts.secret, self.above)
        return self.item


def references(root: Any, schema: Any) -> frozenset[str]:
    """Lists the references that a schema consists of, by itself or by ``allOf``."""
    found = (node.get("$ref") for node in parts(root, [schema], ("allOf",)))
    return frozenset(each for each in found if isinstance(each, str) and each != _MARKS)


def _branches(node: dict[str, Any]) -> list[Any] | None:
    """Returns the alternatives of a property, without null and a variable, which any field may
    have."""
    for name in ("oneOf", "anyOf"):
        given = node.get(name)
        if isinstance(given, list):
            listed = [b for b in cast(list[Any], given) if isinstance(b, dict)]
            return [b for b in cast(list[dict[str, Any]], listed) if not _is_beside(b)]
    return None


def _is_beside(branch: dict[str, Any]) -> bool:
    return branch.get("type") == "null" or branch == _VARIABLE


def form_of(root: Any, forms: Sequence[dict[str, Any]], value: Any) -> int | None:
    """Returns the number of the form that a value has: by its constants, else by the names of its
    keys; None: no form matches."""
    if not isinstance(value, dict):
        return None
    given = cast(dict[str, Any], value)
    best, most = None, -1
    for number, form in enumerate(forms):
        listed = properties_of(root, form)
        fixed = [(n, PropertyFacts(root, p, "").fixed) for n, p in listed]
        matched = [(n, f) for n, f in fixed if f is not None and n in given]
        if any(given[n] != f for n, f in matched):
            continue
        score = 100 * len(matched) + sum(1 for n, _ in listed if n in given)
        if score > most:
            best, most = number, score
    return best


def first_form(root: Any, forms: Sequence[dict[str, Any]], default: Any) -> int:
    """Returns the number of the form that is offered first: that of the default, of which a
    connector may give only the constant."""
    if isinstance(default, dict):
        return form_of(root, forms, default) or 0
    for number, form in enumerate(forms):
        for _, each in properties_of(root, form):
            fixed = PropertyFacts(root, each, "").fixed
            if fixed is not None and fixed == default:
                return number
    return 0


def form_title(root: Any, form: dict[str, Any], number: int) -> str:
    """Returns the title of a form."""
    title = form.get("title")
    if title:
        return str(title)
    for _, each in properties_of(root, form):
        fixed = PropertyFacts(root, each, "").fixed
        if fixed is not None:
            return str(fixed)
    return f"form {number + 1}"
