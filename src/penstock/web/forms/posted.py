"""Reads a configuration back from what the browser sends of a form.

What a form has no field for keeps its value, and what the browser does not send too. A secret that
was typed is given apart, by its path. Pure. Neighbours: ``fields`` made the form, by the same
``kinds``.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from penstock.api.property_facts import SchemaProperty, properties_of
from penstock.web.yaml_text import variable
from penstock.web.forms.fields import Path, input_name
from penstock.web.forms.kinds import FieldKind, Shape, form_of

ABSENT: Any = object()
"""In the place of a value: there is none."""
_VARIABLE = re.compile(r"\$\{[^}]*\}")


class PostedForm:
    """Reads one end. ``given``: every input by its name; ``do``: a button of a list, ``add:NAME``
    or ``drop:NAME:PLACE``. ``secrets``: what was typed, by path; ``faults``: what is no JSON, no
    number."""

    def __init__(
        self, schema: Any, word: str | None, prefix: str, given: Mapping[str, Sequence[str]],
        do: str = "",
    ) -> None:  # fmt: skip
        self._root, self._word, self._prefix = schema, word, prefix
        self._given, self._do = given, do
        self.secrets: dict[Path, str] = {}
        self.faults: dict[Path, list[str]] = {}

    def read(self, current: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the configuration that the form has; ``current``: the one that it was made of."""
        return self._object(self._root, current, (), 0, False)

    def _object(
        self, schema: Any, current: Mapping[str, Any], path: Path, depth: int, secret: bool
    ) -> dict[str, Any]:
        made = dict(current)
        fixed: dict[str, Any] = {}
        for name, each in properties_of(self._root, schema):
            shape = Shape(self._root, each, self._word, depth, secret)
            if shape.kind is FieldKind.fixed:
                fixed[name] = shape.facts.fixed
                continue
            value = self._value(shape, current.get(name, ABSENT), (*path, name), depth)
            if value is ABSENT:
                made.pop(name, None)
            else:
                made[name] = value
        if made or depth == 0:  # an object that is there has its constants
            required = {n for n, p in properties_of(self._root, schema) if p.required}
            for name, value in fixed.items():
                if name in required or name in made:
                    made[name] = value
        return made

    def _value(self, shape: Shape, current: Any, path: Path, depth: int) -> Any:
        name = input_name(self._prefix, path)
        default = shape.facts.node.get("default", ABSENT)
        match shape.kind:
            case FieldKind.hidden | FieldKind.elsewhere:
                return current
            case FieldKind.secret:
                return self._secret(name, current, path)
            case FieldKind.object:
                inner = cast(dict[str, Any], current) if isinstance(current, dict) else {}
                made = self._object(shape.schema, inner, path, depth + 1, shape.facts.secret)
                return made if made or current is not ABSENT else ABSENT
            case FieldKind.variant:
                return self._variant(shape, name, current, path, depth)
            case FieldKind.items:
                return self._items(shape, name, current, path, depth)
            case FieldKind.boolean:
                if name not in self._given and f"{name}#here" not in self._given:
                    return current
                return self._kept(self._boolean(name, current), current, default)
            case FieldKind.choices | FieldKind.lines:
                if f"{name}#here" not in self._given:
                    return current
                return self._kept(self._list(shape, name, path), current, default)
            case _:
                if name not in self._given:
                    return current
                value = self._scalar(shape.kind, self._given[name][-1], path, current)
                return self._kept(value, current, default)

    def _kept(self, value: Any, current: Any, default: Any) -> Any:
        """What is absent, and shown as its default, stays absent."""
        unchanged = current is ABSENT and default is not ABSENT and value == default
        return ABSENT if unchanged and type(value) is type(default) else value

    def _secret(self, name: str, current: Any, path: Path) -> Any:
        typed = self._given.get(name, [""])[-1]
        if typed:
            self.secrets[path] = typed
            return "" if current is ABSENT else current
        return ABSENT if f"{name}#drop" in self._given else current

    def _boolean(self, name: str, current: Any) -> Any:
        """Of a box, a choice (``"true"``), or a text with a variable."""
        given = self._given.get(name, [])
        if f"{name}#here" in self._given:
            return bool(given)
        text = given[-1] if given else ""
        if text in ("true", "false"):
            return text == "true"
        if text == "" and isinstance(current, str):
            return current  # a variable without a value yet
        return variable(text) if text else ABSENT

    def _scalar(self, kind: FieldKind, text: str, path: Path, current: Any) -> Any:
        if text == "" or (kind is FieldKind.json and not text.strip()):
            unset = isinstance(current, str) and _VARIABLE.fullmatch(current) is not None
            return current if unset else ABSENT
        if kind is FieldKind.number:
            return self._number(text.strip(), path)
        if kind is FieldKind.choice:
            try:
                return json.loads(text)
            except ValueError:
                return text
        if kind is FieldKind.json:
            try:
                return json.loads(text)
            except ValueError as e:
                self.faults.setdefault(path, []).append(f"this is no JSON: {e}")
                return current
        return text.replace("\r\n", "\n")

    def _number(self, text: str, path: Path) -> Any:
        if _VARIABLE.fullmatch(text):
            return variable(text)
        try:
            return int(text)
        except ValueError:
            pass
        try:
            return float(text)
        except ValueError:
            self.faults.setdefault(path, []).append("this is no number")
            return text

    def _list(self, shape: Shape, name: str, path: Path) -> Any:
        given = self._given.get(name, [])
        if shape.kind is FieldKind.choices:
            return [json.loads(text) for text in given] or ABSENT
        lines = [line for text in given for line in text.splitlines() if line.strip()]
        item = shape.item.kind if shape.item is not None else FieldKind.text
        return [self._scalar(item, line, path, ABSENT) for line in lines] or ABSENT

    def _variant(self, shape: Shape, name: str, current: Any, path: Path, depth: int) -> Any:
        chosen = self._given.get(f"{name}#form")
        had = form_of(self._root, shape.forms, None if current is ABSENT else current)
        if chosen is None:
            return current
        if not chosen[-1].isdecimal() or int(chosen[-1]) >= len(shape.forms):
            return ABSENT
        number = int(chosen[-1])
        form = shape.forms[number]
        inner: dict[str, Any] = {}
        if isinstance(current, dict):
            given = cast(dict[str, Any], current)
            own = {n for n, _ in properties_of(self._root, form)}
            inner = {k: v for k, v in given.items() if number == had or k in own}
        made = self._object(form, inner, path, depth + 1, shape.facts.secret)
        for each, of in properties_of(self._root, form):
            fixed = Shape(self._root, of, self._word, depth + 1).facts.fixed
            if fixed is not None:  # what tells the forms apart
                made[each] = fixed
        return made

    def _items(self, shape: Shape, name: str, current: Any, path: Path, depth: int) -> Any:
        count = self._given.get(f"{name}#count", [""])[-1]
        if not count.isdecimal():
            return current
        had = cast(list[Any], current) if isinstance(current, list) else []
        items = SchemaProperty(shape.facts.node.get("items"), True)
        made: list[Any] = []
        for place in range(min(int(count), 10_000)):
            old = had[place] if place < len(had) else ABSENT
            inner = Shape(self._root, items, self._word, depth + 1, shape.facts.secret)
            value = self._value(inner, old, (*path, str(place)), depth + 1)
            made.append({} if value is ABSENT else value)
        if self._do == f"add:{name}":
            made.append({} if shape.item is None or shape.item.kind != FieldKind.secret else "")
        elif self._do.startswith(f"drop:{name}:"):
            place = self._do.rpartition(":")[2]
            if place.isdecimal() and int(place) < len(made):
                del made[int(place)]
        return made if made or current is not ABSENT else ABSENT
