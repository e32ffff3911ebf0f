"""Builds the fields of a form from a connector's schema and a configuration.

No value of a secret gets into a field (L10). Pure. Neighbours: ``kinds`` decides the kinds,
``posted`` reads the form back, templates draw.
"""

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, cast

from markupsafe import Markup

from penstock.api.property_facts import SchemaProperty, properties_of
from penstock.web.forms.kinds import FieldKind, Shape, first_form, form_of, form_title
from penstock.web.forms.rich_text import rich_text
from penstock.web.secret_file import variable_in

Path = tuple[str, ...]


@dataclass(slots=True)
class FieldOption:
    """A value to choose, as it is sent."""

    value: str
    label: str
    chosen: bool


@dataclass(slots=True)
class FormField:
    """A field as a template draws it. ``name``: of the input; ``value``: text of it, never a
    secret's; ``given``: a secret has a value; ``unset``: the variable that has none yet;
    ``folded``: it is optional and as the connector takes it by itself."""

    name: str
    label: str
    kind: str
    required: bool = False
    folded: bool = False
    group: str = ""
    help: Markup = field(default_factory=Markup)
    hint: str = ""
    value: str = ""
    checked: bool = False
    given: bool = False
    unset: str | None = None
    radio: bool = False
    options: list[FieldOption] = field(default_factory=list[FieldOption])
    children: list["FormField"] = field(default_factory=list["FormField"])
    faults: list[str] = field(default_factory=list[str])
    schema: str = ""

    @property
    def id(self) -> str:
        return "f-" + "".join(c if c.isalnum() else f"_{ord(c):x}" for c in self.name)


def input_name(prefix: str, path: Path) -> str:
    """Returns the name of the input at a path of a configuration."""
    return f"{prefix}:" + "/".join(p.replace("~", "~0").replace("/", "~1") for p in path)


class FormBuilder:
    """Builds the form of one end. ``word``: marks secrets, as of a protocol package; ``known``: the
    variables that have values; ``faults``: by path, the innermost that is known."""

    def __init__(
        self,
        schema: Any,
        word: str | None,
        prefix: str,
        known: AbstractSet[str],
        faults: Mapping[Path, Sequence[str]] | None = None,
    ) -> None:
        self._root, self._word, self._prefix = schema, word, prefix
        self._known, self._faults = known, dict(faults or {})
        self._taken: set[Path] = set()

    def fields(self, value: Mapping[str, Any]) -> list[FormField]:
        """Returns the fields of the configuration ``value``."""
        return self._object(self._root, value, (), 0, False)

    def left_faults(self) -> list[str]:
        """Returns the faults that stand beside no field."""
        return [f for path, each in self._faults.items() if path not in self._taken for f in each]

    def _object(
        self, schema: Any, value: Mapping[str, Any], path: Path, depth: int, secret: bool
    ) -> list[FormField]:
        listed = sorted(properties_of(self._root, schema), key=_place)
        made = [
            self._field(name, each, value.get(name), (*path, name), depth, secret)
            for name, each in listed
        ]
        return [each for each in made if each.kind != FieldKind.hidden]

    def _field(
        self, label: str, of: SchemaProperty, value: Any, path: Path, depth: int, secret: bool
    ) -> FormField:
        shape = Shape(self._root, of, self._word, depth, secret)
        node = shape.facts.node
        made = FormField(
            name=input_name(self._prefix, path),
            label=str(node.get("title") or label),
            kind=shape.kind.value,
            required=of.required,
            group=str(node.get("group") or ""),
            help=rich_text(node.get("description")),
            hint=_hint(node),
        )
        own = self._faults.get(path, ())
        if own:
            self._taken.add(path)
            made.faults = list(own)
        default = node.get("default")
        shown = default if value is None else value
        variable = variable_in(value)
        if variable is not None and variable not in self._known:
            made.unset, shown = variable, None
        self._fill(made, shape, shown, value, path, depth)
        given = value is not None and value != default and not _is_empty(value)
        seen = of.required or node.get("always_show") is True or given or _has_faults(made)
        made.folded = not seen
        return made

    def _fill(
        self, made: FormField, shape: Shape, shown: Any, value: Any, path: Path, depth: int
    ) -> None:
        facts = shape.facts
        match shape.kind:
            case FieldKind.secret:
                made.given = value is not None and made.unset is None
            case FieldKind.boolean:
                self._boolean(made, facts.required or "default" in facts.node, shown)
            case FieldKind.choice:
                made.options = _options(facts.choices, [shown])
                if shown is not None and not any(o.chosen for o in made.options):
                    made.options.insert(0, FieldOption(json.dumps(shown), str(shown), True))
                made.radio = facts.node.get("display_type") == "radio"
            case FieldKind.choices:
                item = shape.item
                listed = cast(list[Any], shown) if isinstance(shown, list) else []
                made.options = _options(item.facts.choices if item else (), listed)
            case FieldKind.lines:
                listed = cast(list[Any], shown) if isinstance(shown, list) else []
                made.value = "\n".join(_text(v) for v in listed)
            case FieldKind.object:
                inner = cast(dict[str, Any], shown) if isinstance(shown, dict) else {}
                made.children = self._object(shape.schema, inner, path, depth + 1, facts.secret)
            case FieldKind.variant:
                self._variant(made, shape, shown, path, depth)
            case FieldKind.items:
                self._items(made, shape, shown, path, depth)
            case FieldKind.json:
                made.value = "" if shown is None else json.dumps(shown, indent=2)
                made.schema = json.dumps(facts.node, indent=2)[:20_000]
            case FieldKind.fixed:
                made.value = _text(facts.fixed)
            case FieldKind.elsewhere | FieldKind.hidden:
                made.given = value is not None
            case _:
                made.value = _text(shown)

    def _boolean(self, made: FormField, two: bool, shown: Any) -> None:
        """A box, or three choices where a value may be absent; a variable stays one."""
        if isinstance(shown, str) or made.unset:
            made.kind, made.value = FieldKind.text.value, shown or ""
            return
        made.checked = shown is True
        if not two:
            made.kind = FieldKind.choice.value
            made.options = _options((True, False), [shown])

    def _variant(self, made: FormField, shape: Shape, shown: Any, path: Path, depth: int) -> None:
        facts = shape.facts
        number = form_of(self._root, shape.forms, shown)
        if number is None and facts.required:
            number = first_form(self._root, shape.forms, facts.node.get("default"))
        made.options = [
            FieldOption(str(n), form_title(self._root, form, n), n == number)
            for n, form in enumerate(shape.forms)
        ]
        made.radio = facts.node.get("display_type") == "radio"
        if number is not None:
            inner = cast(dict[str, Any], shown) if isinstance(shown, dict) else {}
            form = shape.forms[number]
            made.children = self._object(form, inner, path, depth + 1, facts.secret)
            if form.get("description") != facts.node.get("description"):
                made.help = made.help + Markup(" ") + rich_text(form.get("description"))

    def _items(self, made: FormField, shape: Shape, shown: Any, path: Path, depth: int) -> None:
        listed = cast(list[Any], shown) if isinstance(shown, list) else []
        items = SchemaProperty(shape.facts.node.get("items"), True)
        for place, each in enumerate(listed):
            label = f"{place + 1}"
            inner = self._field(
                label, items, each, (*path, str(place)), depth + 1, shape.facts.secret
            )
            inner.label = label
            made.children.append(inner)


def fallbacks(fields: Sequence[FormField]) -> list[FormField]:
    """Lists the fields, at any depth, that have become a JSON editor or must be edited in the
    file."""
    found = [f for f in fields if f.kind in (FieldKind.json, FieldKind.elsewhere)]
    return found + [inner for f in fields for inner in fallbacks(f.children)]


def _place(named: tuple[str, SchemaProperty]) -> tuple[float, bool, str]:
    name, each = named
    order = each.schema.get("order")
    known = isinstance(order, int | float) and not isinstance(order, bool)
    return (order if known else float("inf"), not each.required, name)


def _has_faults(made: FormField) -> bool:
    return bool(made.faults) or any(_has_faults(inner) for inner in made.children)


def _is_empty(value: Any) -> bool:
    return value in ({}, [], "")


def _hint(node: Mapping[str, Any]) -> str:
    form = node.get("pattern_descriptor") or node.get("format") or ""
    listed = node.get("examples")
    given = cast(list[Any], listed) if isinstance(listed, list) else [listed] if listed else []
    shown = ", ".join(_text(e) for e in given[:3])
    return "; ".join(filter(None, [str(form), f"for example {shown}" if shown else ""]))[:300]


def _options(choices: Sequence[Any], chosen: Sequence[Any]) -> list[FieldOption]:
    return [FieldOption(json.dumps(c), _label(c), c in chosen) for c in choices]


def _label(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else _text(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
