"""Decides how a value is shown in its field, and what the browser then sends for it.

``fields`` shows values by it; ``posted`` compares the sent value with it, so that an untouched
value keeps its type and its text. A value that its field cannot show gets an editor. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.web.forms.kinds import FieldKind, Shape
from penstock.web.secret_file import variable_in

ABSENT: Any = object()
"""Stands for a missing value."""
_SCALARS = (str, int, float, bool)
Given = Mapping[str, Sequence[str]]


@dataclass(slots=True)
class FieldOption:
    """A value to choose, as it is sent."""

    value: str
    label: str
    chosen: bool


@dataclass(slots=True)
class Drawn:
    """A value in its field. ``text``: never a secret's; ``unset``: the variable that it refers to,
    which has no value yet."""

    kind: FieldKind
    text: str = ""
    options: list[FieldOption] = field(default_factory=list[FieldOption])
    checked: bool = False
    unset: str | None = None

    def is_sent(self, name: str, given: Given) -> bool:
        """Returns whether the browser sent the field unchanged, or not at all."""
        here = f"{name}#here" in given
        sent = [lines_of(text) for text in given.get(name, [])]
        match self.kind:
            case FieldKind.boolean:
                return not here or bool(sent) == self.checked
            case FieldKind.choices:
                return not here or sent == [o.value for o in self.options if o.chosen]
            case FieldKind.choice:
                chosen = [o.value for o in self.options if o.chosen] or [""]
                return name not in given or sent == chosen
            case _:
                return name not in given or sent[-1:] == [lines_of(self.text)]


class Drawing:
    """Draws the values of one form. ``known``: the variables that have values; ``hidden``: texts
    that are secret anywhere."""

    def __init__(self, known: AbstractSet[str], hidden: AbstractSet[str]) -> None:
        self._known = known
        self._hidden = {text for text in hidden if len(text) > 3 and variable_in(text) is None}

    def of(self, shape: Shape, value: Any) -> Drawn:
        """Draws a value; ``ABSENT`` and None: the field is empty."""
        absent = value is ABSENT or value is None
        kind = shape.kind if absent else self.kind_of(shape, value)
        name = None if absent else variable_in(value)
        unset = name if name is not None and name not in self._known else None
        shown = ABSENT if absent or unset is not None else value
        return _drawn(shape, kind, shown, unset)

    def kind_of(self, shape: Shape, value: Any) -> FieldKind:
        """Returns the kind of field for a value: the shape's, unless that cannot show the value, or
        the value has a secret where the schema names none."""
        kind = shape.kind
        if kind in (FieldKind.secret, FieldKind.hidden, FieldKind.elsewhere, FieldKind.fixed):
            scalar = kind is not FieldKind.secret or isinstance(value, _SCALARS)
            return kind if scalar else FieldKind.elsewhere
        outer = (FieldKind.object, FieldKind.variant, FieldKind.items, FieldKind.named)
        if kind not in outer and isinstance(value, _SCALARS) and self._hides(value):
            return FieldKind.secret
        fitting = kind if kind is FieldKind.json else _fitting(kind, value)
        if fitting in (FieldKind.json, FieldKind.lines) and self._hides(value):
            return FieldKind.elsewhere
        return fitting

    def _hides(self, value: Any) -> bool:
        if isinstance(value, dict):
            given = cast(dict[str, Any], value)
            return any(self._hides(each) for each in given.values())
        if isinstance(value, list):
            return any(self._hides(each) for each in cast(list[Any], value))
        text = str(value)
        return any(hidden in text for hidden in self._hidden)


def _fitting(kind: FieldKind, value: Any) -> FieldKind:
    match kind:
        case FieldKind.object | FieldKind.variant | FieldKind.named:
            fits = isinstance(value, dict)
        case FieldKind.items:
            fits = isinstance(value, list)
        case FieldKind.choices | FieldKind.lines:
            fits = isinstance(value, list) and all(map(_is_line, cast(list[Any], value)))
        case FieldKind.text if isinstance(value, str) and ("\n" in value or "\r" in value):
            return FieldKind.long_text
        case FieldKind.boolean if not isinstance(value, bool):
            return FieldKind.text if isinstance(value, _SCALARS) else FieldKind.json
        case _:
            fits = isinstance(value, _SCALARS)
    return kind if fits else FieldKind.json


def _is_line(value: Any) -> bool:
    if isinstance(value, str):
        return len(value.splitlines()) == 1 and value.strip() != ""
    return isinstance(value, _SCALARS)


def _drawn(shape: Shape, kind: FieldKind, shown: Any, unset: str | None) -> Drawn:
    facts = shape.facts
    made = Drawn(kind, unset=unset)
    listed = cast(list[Any], shown) if isinstance(shown, list) else []
    match kind:
        case FieldKind.boolean if unset is not None:
            made.kind = FieldKind.text
        case FieldKind.boolean if facts.required and shown is not ABSENT:
            made.checked = shown is True
        case FieldKind.boolean:
            made.kind = FieldKind.choice
            made.options = _options((True, False), [shown])
        case FieldKind.choice:
            made.options = _options(facts.choices, [shown])
            if shown is not ABSENT and not any(o.chosen for o in made.options):
                made.options.insert(0, FieldOption(code_of(shown), text_of(shown), True))
        case FieldKind.choices:
            choices = [*(shape.item.facts.choices if shape.item else ())]
            choices += [v for v in listed if not any(_is(v, c) for c in choices)]
            made.options = _options(choices, listed)
        case FieldKind.lines:
            made.text = "\n".join(map(text_of, listed))
        case FieldKind.json:
            made.text = "" if shown is ABSENT else code_of(shown, indent=2)
        case FieldKind.fixed:
            made.text = text_of(facts.fixed)
        case FieldKind.secret | FieldKind.elsewhere | FieldKind.hidden:
            pass
        case FieldKind.object | FieldKind.variant | FieldKind.items | FieldKind.named:
            pass
        case _:
            made.text = "" if shown is ABSENT else text_of(shown)
    return made


def _options(choices: Sequence[Any], chosen: Sequence[Any]) -> list[FieldOption]:
    return [
        FieldOption(code_of(c), label_of(c), any(_is(c, each) for each in chosen)) for c in choices
    ]


def _is(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def code_of(value: Any, indent: int | None = None) -> str:
    """Returns a value as JSON."""
    return json.dumps(value, indent=indent, ensure_ascii=False, default=str)


def label_of(value: Any) -> str:
    """Returns a value as a label."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else text_of(value)


def text_of(value: Any) -> str:
    """Returns a value as the text of an input."""
    if value is None or value is ABSENT:
        return ""
    return value if isinstance(value, str) else code_of(value)


def lines_of(text: str) -> str:
    """Returns a text with the line breaks of files in place of those of forms."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
