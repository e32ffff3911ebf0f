"""Builds the fields of a form from a connector's schema and a configuration.

No secret value is put into a field (L10). Pure. Neighbours: ``kinds`` decides the kinds, ``posted``
reads the form back, templates draw.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, cast

from markupsafe import Markup

from penstock.api.property_facts import SchemaProperty, properties_of
from penstock.web.forms.drawn import ABSENT, Drawing, FieldOption, code_of, label_of, text_of
from penstock.web.forms.kinds import FieldKind, Shape, first_form, form_of, form_title, references
from penstock.web.forms.rich_text import rich_text

Path = tuple[str, ...]
MOST_FIELDS = 3_000
_LONGEST_SCHEMA = 20_000


@dataclass(slots=True)
class FormField:
    """A field for a template. ``name``: of the input; ``value``: its text, never a secret's;
    ``default``: what the connector uses without a value; ``given``: a secret has a value;
    ``unset``: its variable that has no value yet; ``folded``: it is optional and has no value;
    ``turn``: changes with each item that is removed from a list above it, so that the browser keeps
    none of that item's inputs; ``lists_turn``: of a list; ``free``: a mapping of any names;
    ``key``: the last step of its path."""

    name: str
    label: str
    kind: str
    key: str = ""
    required: bool = False
    folded: bool = False
    group: str = ""
    help: Markup = field(default_factory=Markup)
    hint: str = ""
    value: str = ""
    default: str = ""
    checked: bool = False
    given: bool = False
    unset: str | None = None
    radio: bool = False
    long: bool = False
    free: bool = False
    turn: str = "0"
    lists_turn: str = "0"
    options: list[FieldOption] = field(default_factory=list[FieldOption])
    children: list["FormField"] = field(default_factory=list["FormField"])
    faults: list[str] = field(default_factory=list[str])
    schema: str = ""
    why: str = ""

    @property
    def id(self) -> str:
        letters = (c if c.isalnum() else f"_{ord(c):x}" for c in self.name)
        return "f-" + "".join(letters) + ("" if self.turn == "0" else f"-{self.turn}")


def input_name(prefix: str, path: Path) -> str:
    """Returns the name of the input at a path of a configuration."""
    return f"{prefix}:" + "/".join(p.replace("~", "~0").replace("/", "~1") for p in path)


class FormBuilder:
    """Builds the form of one part of a file. ``word``: marks secrets, as of a protocol package;
    ``known``: the variables that have values; ``faults``: by path, as deep as known; ``hidden``:
    texts that are secret; ``turns``: of lists, by the names of their inputs; ``unread``:
    typed JSON that is invalid, which its field shows."""

    def __init__(
        self,
        schema: Any,
        word: str | None,
        prefix: str,
        known: AbstractSet[str],
        faults: Mapping[Path, Sequence[str]] | None = None,
        hidden: AbstractSet[str] = frozenset(),
        turns: Mapping[str, str] | None = None,
        unread: Mapping[Path, str] | None = None,
    ) -> None:
        self._root, self._word, self._prefix = schema, word, prefix
        self._faults, self._turns, self._unread = dict(faults or {}), turns or {}, unread or {}
        self._drawing = Drawing(known, hidden)
        self._taken: set[Path] = set()
        self._left = MOST_FIELDS

    def fields(self, value: Mapping[str, Any]) -> list[FormField]:
        """Returns the fields of the configuration ``value``."""
        return self._object(self._root, value, (), 0, False, frozenset(("#",)), ABSENT, "0")

    def left_faults(self) -> list[str]:
        """Returns the faults that belong to no field."""
        return [
            ": ".join(filter(None, (".".join(path), fault)))
            for path, each in self._faults.items()
            if path not in self._taken
            for fault in each
        ]

    def _object(
        self, schema: Any, value: Mapping[str, Any], path: Path, depth: int, secret: bool,
        above: frozenset[str], default: Any, turn: str,
    ) -> list[FormField]:  # fmt: skip
        listed = sorted(properties_of(self._root, schema), key=_place)
        inside = above | references(self._root, schema)
        defaults = cast(dict[str, Any], default) if isinstance(default, dict) else {}
        made: list[FormField] = []
        for name, each in listed:
            shape = self._shape(each, depth, secret, inside)
            given = value.get(name, ABSENT)
            taken = defaults.get(name, shape.facts.node.get("default", ABSENT))
            made.append(self._field(name, shape, given, (*path, name), depth, taken, turn))
        return [each for each in made if each.kind != FieldKind.hidden]

    def _shape(self, of: SchemaProperty, depth: int, secret: bool, above: frozenset[str]) -> Shape:
        """Returns the shape of a property; beyond the maximum number of fields per page, that of an
        editor."""
        self._left -= 1
        deep = depth if self._left > 0 else 1_000
        return Shape(self._root, of, self._word, deep, secret, above)

    def _field(
        self, label: str, shape: Shape, value: Any, path: Path, depth: int, default: Any, turn: str
    ) -> FormField:
        node, required = shape.facts.node, shape.facts.required
        drawn = self._drawing.of(shape, value)
        made = FormField(
            name=input_name(self._prefix, path),
            label=str(node.get("title") or label),
            key=path[-1],
            kind=drawn.kind.value,
            required=required,
            group=str(node.get("group") or ""),
            help=rich_text(node.get("description")),
            hint=_hint(node),
            value=self._unread.get(path, drawn.text),
            checked=drawn.checked,
            unset=drawn.unset,
            radio=node.get("display_type") == "radio",
            options=drawn.options,
            turn=turn,
        )
        own = self._faults.get(path, ())
        if own:
            self._taken.add(path)
            made.faults = list(own)
        if drawn.kind not in (FieldKind.secret, FieldKind.elsewhere) and not shape.facts.secret:
            made.default = _default(default)
        self._fill(made, shape, drawn.kind, value, path, depth, default)
        made.folded = not (
            required
            or node.get("always_show") is True
            or (_has_value(value) and not (type(value) is type(default) and value == default))
            or _has_faults(made)
        )
        return made

    def _fill(
        self, made: FormField, shape: Shape, kind: FieldKind, value: Any, path: Path, depth: int,
        default: Any,
    ) -> None:  # fmt: skip
        facts, here = shape.facts, value is not ABSENT and value is not None
        match kind:
            case FieldKind.secret:
                made.given = here and made.unset is None
                made.long = _is_long(facts.node)
            case FieldKind.object:
                inner = cast(dict[str, Any], value) if here else {}
                made.default = ""
                made.children = self._object(
                    shape.schema, inner, path, depth + 1, facts.secret, shape.above, default,
                    made.turn,
                )  # fmt: skip
            case FieldKind.variant:
                self._variant(made, shape, value if here else ABSENT, path, depth, default)
            case FieldKind.items:
                self._items(made, shape, cast(list[Any], value) if here else [], path, depth)
            case FieldKind.named:
                self._named(made, shape, cast(dict[str, Any], value) if here else {}, path, depth)
            case FieldKind.json:
                made.schema = code_of(facts.node, indent=2)[:_LONGEST_SCHEMA]
                made.why = why_json(shape, value)
            case FieldKind.elsewhere | FieldKind.hidden:
                made.given = here
            case _:
                pass

    def _variant(
        self, made: FormField, shape: Shape, value: Any, path: Path, depth: int, default: Any
    ) -> None:
        facts = shape.facts
        number = None if value is ABSENT else form_of(self._root, shape.forms, value)
        made.options = [
            FieldOption(str(n), form_title(self._root, form, n), n == number)
            for n, form in enumerate(shape.forms)
        ]
        made.default = ""
        if default is not ABSENT:
            taken = first_form(self._root, shape.forms, default)
            made.default = made.options[taken].label
        if number is not None:
            form = shape.forms[number]
            made.children = self._object(
                form, cast(dict[str, Any], value), path, depth + 1, facts.secret, shape.above,
                default, made.turn,
            )  # fmt: skip
            if form.get("description") != facts.node.get("description"):
                made.help = made.help + Markup(" ") + rich_text(form.get("description"))

    def _items(
        self, made: FormField, shape: Shape, value: Sequence[Any], path: Path, depth: int
    ) -> None:
        items = SchemaProperty(shape.facts.node.get("items"), True)
        own = made.lists_turn = self._turns.get(made.name, "0")
        turn = made.turn if own == "0" else f"{made.turn}.{own}"
        for place, each in enumerate(value):
            inner = self._shape(items, depth + 1, shape.facts.secret, shape.above)
            child = self._field("", inner, each, (*path, str(place)), depth + 1, ABSENT, turn)
            child.label, child.folded = _name_of(each, place), False
            made.children.append(child)

    def _named(
        self, made: FormField, shape: Shape, value: Mapping[str, Any], path: Path, depth: int
    ) -> None:
        made.default, made.free = "", shape.free
        for name, each in value.items():
            values = shape.value_of(name, self._word)
            inner = self._shape(values, depth + 1, shape.facts.secret, shape.above)
            child = self._field(name, inner, each, (*path, name), depth + 1, ABSENT, made.turn)
            child.label, child.folded = name, False
            made.children.append(child)


def fallbacks(fields: Sequence[FormField]) -> list[FormField]:
    """Lists the fields, at any depth, that became a JSON editor or must be edited in the file."""
    found = [f for f in fields if f.kind in (FieldKind.json, FieldKind.elsewhere)]
    return found + [inner for f in fields for inner in fallbacks(f.children)]


def _place(named: tuple[str, SchemaProperty]) -> tuple[float, bool, str]:
    name, each = named
    order = each.schema.get("order")
    known = isinstance(order, int | float) and not isinstance(order, bool)
    return (order if known else float("inf"), not each.required, name)


def _has_faults(made: FormField) -> bool:
    return bool(made.faults) or any(_has_faults(inner) for inner in made.children)


def _has_value(value: Any) -> bool:
    return value is not ABSENT and value not in (None, {}, [])


def _is_long(node: Mapping[str, Any]) -> bool:
    """Returns whether a secret has several lines, which a single-line input would drop."""
    return node.get("multiline") is True or "-----BEGIN" in code_of(dict(node))


def _default(value: Any) -> str:
    """Returns a default as text; empty: it is missing or empty."""
    if value is ABSENT or value is None or value in ("", {}, []):
        return ""
    listed = cast(list[Any], value) if isinstance(value, list) else [value]
    return ", ".join(map(label_of, listed))[:200]


def _name_of(value: Any, place: int) -> str:
    """Returns the title of a list's item: its own name, if it has one."""
    own = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    name = next((own[k] for k in ("name", "use") if isinstance(own.get(k), str)), "")
    return f"{place + 1}. {name[:60]}" if name and "${" not in name else f"{place + 1}"


def _hint(node: Mapping[str, Any]) -> str:
    form = node.get("pattern_descriptor") or node.get("format") or ""
    listed = node.get("examples")
    given = cast(list[Any], listed) if isinstance(listed, list) else [listed] if listed else []
    shown = ", ".join(text_of(e) for e in given[:3])
    return "; ".join(filter(None, [str(form), f"for example {shown}" if shown else ""]))[:300]


def why_json(shape: Shape, value: Any) -> str:
    """Returns why a part has no field of its own."""
    node = shape.facts.node
    if value is not ABSENT and shape.kind is not FieldKind.json:
        return "the value is of another kind than the schema's"
    if shape.circular:
        return "the schema contains itself"
    if shape.facts.kind == "array":
        items = node.get("items")
        return "a list of lists or of free values" if isinstance(items, dict) else "a free list"
    if shape.facts.kind == "object" and not any(node.get(w) for w in ("oneOf", "anyOf")):
        return "an object whose keys the schema does not name"
    return "alternatives that are not objects, or too deep"
