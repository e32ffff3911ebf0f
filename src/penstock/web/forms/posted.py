"""Reads a configuration back from what the browser sends of a form.

A value whose field comes back unchanged keeps its type and text; so does a value that has no field.
A default is written only if it was chosen, a constant only into an object that has changed. A typed
secret is returned separately, by its path. Pure. Neighbours: ``fields`` made the form, by the same
``kinds`` and ``drawn``.
"""

import json
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import deepcopy
from datetime import date
from difflib import SequenceMatcher
from typing import Any, cast

from penstock.api.property_facts import SchemaProperty, properties_of
from penstock.web.forms.drawn import ABSENT, Drawing, Drawn, lines_of, text_of
from penstock.web.forms.fields import MOST_FIELDS, Path, input_name
from penstock.web.forms.kinds import FieldKind, Shape, form_of, references
from penstock.web.yaml_text import same, variable

_VARIABLE = re.compile(r"\$\{[^}]*\}")
_WHOLE = re.compile(r"[-+]?[0-9]{1,400}", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?![0-9])", re.ASCII)
_MOST_ITEMS = 100_000


class PostedForm:
    """Reads one part of a file. ``given``: every input by its name; ``do``: a button of a list:
    ``add:NAME``, ``drop:NAME:PLACE``. ``secrets``: typed ones, by path; ``faults``: invalid JSON,
    numbers and days; ``unread``: the typed JSON that is invalid, by path; ``turns``: of lists."""

    def __init__(
        self, schema: Any, word: str | None, prefix: str, given: Mapping[str, Sequence[str]],
        do: str = "", *, known: AbstractSet[str] = frozenset(),
        hidden: AbstractSet[str] = frozenset(),
    ) -> None:  # fmt: skip
        self._root, self._word, self._prefix = schema, word, prefix
        self._given, self._do = given, do
        self._drawing = Drawing(known, hidden)
        self._left = MOST_FIELDS
        self.secrets: dict[Path, str] = {}
        self.faults: dict[Path, list[str]] = {}
        self.unread: dict[Path, str] = {}
        self.turns: dict[str, str] = {}

    def read(self, current: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the configuration that the form has; ``current``: the one that it was built
        from."""
        top = frozenset(("#",))
        return deepcopy(self._object(self._root, dict(current), (), 0, False, top))

    def _object(
        self, schema: Any, current: dict[str, Any], path: Path, depth: int, secret: bool,
        above: frozenset[str],
    ) -> dict[str, Any]:  # fmt: skip
        made, typed = dict(current), len(self.secrets)
        fixed: dict[str, Any] = {}
        inside = above | references(self._root, schema)
        for name, each in properties_of(self._root, schema):
            shape = self._shape(each, depth, secret, inside)
            if shape.kind is FieldKind.fixed:
                if shape.facts.required:
                    fixed[name] = shape.facts.fixed
                continue
            value = self._value(shape, current.get(name, ABSENT), (*path, name), depth)
            if value is ABSENT:
                made.pop(name, None)
            else:
                made[name] = value
        if same(made, current) and len(self.secrets) == typed:
            return current
        return {**made, **{k: v for k, v in fixed.items() if k not in made}} if made else made

    def _shape(self, of: SchemaProperty, depth: int, secret: bool, above: frozenset[str]) -> Shape:
        self._left -= 1
        deep = depth if self._left > 0 else 1_000
        return Shape(self._root, of, self._word, deep, secret, above)

    def _value(self, shape: Shape, current: Any, path: Path, depth: int) -> Any:
        name = input_name(self._prefix, path)
        drawn = self._drawing.of(shape, current)
        match drawn.kind:
            case FieldKind.hidden | FieldKind.elsewhere | FieldKind.fixed:
                return current
            case FieldKind.secret:
                return self._secret(name, current, path)
            case FieldKind.object:
                return self._inner(shape, current, path, depth)
            case FieldKind.variant:
                return self._variant(shape, name, current, path, depth)
            case FieldKind.items:
                return self._items(shape, name, current, path, depth)
            case FieldKind.named:
                return self._named(shape, name, current, path, depth)
            case _ if drawn.is_sent(name, self._given):
                return current
            case FieldKind.boolean:
                return bool(self._given.get(name))
            case FieldKind.choices:
                chosen = [json.loads(text) for text in self._given.get(name, [])]
                return chosen or ([] if shape.facts.required else ABSENT)
            case FieldKind.lines:
                return self._lines(shape, drawn, current, self._given[name][-1], path)
            case _:
                text = self._given[name][-1]
                found = _structure(text) if shape.free else None
                if found is not None and drawn.kind is not FieldKind.json:
                    return found
                return self._scalar(drawn.kind, text, path, current, shape.loose)

    def _inner(self, shape: Shape, current: Any, path: Path, depth: int) -> Any:
        inner = cast(dict[str, Any], current) if isinstance(current, dict) else {}
        secret = shape.facts.secret
        made = self._object(shape.schema, inner, path, depth + 1, secret, shape.above)
        if made is inner:
            return current
        return made if made or shape.facts.required else ABSENT

    def _secret(self, name: str, current: Any, path: Path) -> Any:
        typed = lines_of(self._given.get(name, [""])[-1])
        if typed:
            self.secrets[path] = typed
            return "" if current is ABSENT else current
        return ABSENT if f"{name}#drop" in self._given else current

    def _scalar(
        self, kind: FieldKind, text: str, path: Path, current: Any, loose: bool = False
    ) -> Any:
        text = lines_of(text)
        if text == "" or (kind is not FieldKind.long_text and not text.strip()):
            unset = isinstance(current, str) and _VARIABLE.fullmatch(current) is not None
            return current if unset and kind is not FieldKind.choice else ABSENT
        if kind is FieldKind.number or kind is FieldKind.boolean:
            return self._number(text.strip(), path)
        if kind is FieldKind.choice:
            return _choice(text)
        if kind is FieldKind.date or kind is FieldKind.time:
            return self._day(text.strip(), path)
        if kind is FieldKind.json:
            try:
                return json.loads(text)
            except ValueError as e:
                self.faults.setdefault(path, []).append(f"this is not JSON: {e}")
                self.unread[path] = text
                return current
        if loose and not isinstance(current, str) and text in ("true", "false"):
            return text == "true"
        if loose and not isinstance(current, str) and _NUMBER.fullmatch(text):
            return self._number(text, path)
        return variable(text) if loose else text

    def _number(self, text: str, path: Path) -> Any:
        if _VARIABLE.fullmatch(text) or text in ("true", "false"):
            return variable(text)
        if _WHOLE.fullmatch(text) and -(2**63) <= int(text) < 2**64:
            return int(text)
        real = _NUMBER.fullmatch(text) and not _WHOLE.fullmatch(text)
        if real and abs(float(text)) != float("inf"):
            return float(text)
        self.faults.setdefault(path, []).append("this is not a number, or too large")
        return text

    def _day(self, text: str, path: Path) -> str:
        """A connector may take other words (``now``); what has a day's form must be one."""
        if (day := _DAY.match(text)) is not None:
            try:
                date.fromisoformat(day[0])
            except ValueError as e:
                self.faults.setdefault(path, []).append(f"this is not a day of the calendar: {e}")
        return text

    def _lines(self, shape: Shape, drawn: Drawn, current: Any, text: str, path: Path) -> Any:
        """Returns the items of a list, one per line; items whose lines are unchanged stay."""
        had = cast(list[Any], current) if isinstance(current, list) else []
        old, new = drawn.text.split("\n") if had else [], lines_of(text).split("\n")
        kind = shape.item.kind if shape.item is not None else FieldKind.text
        loose = shape.item.loose if shape.item is not None else False
        made: list[Any] = []
        for word, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if word == "equal":
                made += had[a:b]
            else:
                lines = [line for line in new[c:d] if line.strip()]
                made += [self._scalar(kind, line, path, ABSENT, loose) for line in lines]
        return made or ([] if shape.facts.required and had else ABSENT)

    def _variant(self, shape: Shape, name: str, current: Any, path: Path, depth: int) -> Any:
        sent = self._given.get(f"{name}#form")
        had = form_of(self._root, shape.forms, None if current is ABSENT else current)
        if sent is None or sent[-1] == ("" if had is None else str(had)):
            if had is None:
                return current
            number = had
        elif not sent[-1].isdecimal() or int(sent[-1]) >= len(shape.forms):
            return ABSENT
        else:
            number = int(sent[-1])
        form, inner = shape.forms[number], cast(dict[str, Any], {})
        if isinstance(current, dict):
            given = cast(dict[str, Any], current)
            own = {n for n, _ in properties_of(self._root, form)}
            inner = given if number == had else {k: v for k, v in given.items() if k in own}
        made = self._object(form, inner, path, depth + 1, shape.facts.secret, shape.above)
        if number == had:
            return current if made is inner else made
        made = dict(made)
        for each, of in properties_of(self._root, form):
            fixed = Shape(self._root, of, self._word, depth + 1).facts.fixed
            if fixed is not None and (of.required or "const" in of.schema):
                made[each] = fixed  # distinguishes the forms
        return made

    def _items(self, shape: Shape, name: str, current: Any, path: Path, depth: int) -> Any:
        count = self._given.get(f"{name}#count", [""])[-1]
        if not count.isdecimal():
            return current
        had = cast(list[Any], current) if isinstance(current, list) else []
        items = SchemaProperty(shape.facts.node.get("items"), True)
        typed = len(self.secrets)
        made: list[Any] = []
        for place in range(min(int(count), _MOST_ITEMS)):
            old = had[place] if place < len(had) else ABSENT
            inner = self._shape(items, depth + 1, shape.facts.secret, shape.above)
            value = self._value(inner, old, (*path, str(place)), depth + 1)
            made.append(_empty(shape) if value is ABSENT else value)
        turn = self._given.get(f"{name}#turn", ["0"])[-1]
        if self._do == f"add:{name}":
            made.append(_empty(shape))
        elif self._do.startswith(f"drop:{name}:"):
            place = self._do.rpartition(":")[2]
            if place.isdecimal() and int(place) < len(made):
                del made[int(place)]
                self._drop_secrets(path, int(place))
                turn = str(int(turn) + 1) if turn.isdecimal() else "1"
        self.turns[name] = turn
        if same(made, had) and len(self.secrets) == typed:
            return current
        return made if made or shape.facts.required else ABSENT

    def _drop_secrets(self, path: Path, place: int) -> None:
        """Drops the secrets typed into a removed item; the later ones move up."""
        had, n = self.secrets, len(path)
        self.secrets = {}
        for each, text in had.items():
            if each[:n] == path and int(each[n]) == place:
                continue
            moved = each[:n] == path and int(each[n]) > place
            to = (*path, str(int(each[n]) - 1), *each[n + 1 :]) if moved else each
            self.secrets[to] = text

    def _named(self, shape: Shape, name: str, current: Any, path: Path, depth: int) -> Any:
        if f"{name}#here" not in self._given:
            return current
        had = cast(dict[str, Any], current) if isinstance(current, dict) else {}
        keys = [*self._given.get(f"{name}#keys", [])]
        pasted: dict[str, Any] = {}
        for new in filter(str.strip, self._given.get(f"{name}#new", [])):
            found = _structure(new) if shape.free else None
            pasted |= cast(dict[str, Any], found) if isinstance(found, dict) else {new.strip(): ""}
        typed = len(self.secrets)
        made: dict[str, Any] = {}
        for key in dict.fromkeys(keys):
            if self._do == f"drop:{name}:{key}":
                continue
            values = shape.value_of(key, self._word)
            inner = self._shape(values, depth + 1, shape.facts.secret, shape.above)
            inner.loose = inner.free = shape.free
            value = self._value(inner, had.get(key, ABSENT), (*path, key), depth + 1)
            made[key] = _empty(shape) if value is ABSENT else value
        for key, value in pasted.items():
            made.setdefault(key, value if shape.free else _empty(shape))
        if same(made, had) and len(self.secrets) == typed:
            return current
        return made if made or shape.facts.required else ABSENT


def _empty(shape: Shape) -> Any:
    """Returns the initial value of an item."""
    match None if shape.item is None else shape.item.kind:
        case FieldKind.object | FieldKind.variant | FieldKind.named | None:
            return {}
        case FieldKind.items | FieldKind.lines | FieldKind.choices:
            return []
        case FieldKind.number:
            return 0
        case FieldKind.boolean:
            return False
        case FieldKind.choice:
            return shape.item.facts.choices[0] if shape.item is not None else ""
        case _:
            return ""


def _structure(text: str) -> Any:
    """Parses a mapping or a list typed as JSON; None: the text is neither."""
    try:
        return json.loads(text) if text.strip()[:1] in ("{", "[") else None
    except ValueError:
        return None


def _choice(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text_of(text)
