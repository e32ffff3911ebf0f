"""Changes values in the text of a pipeline file; comments, order and quotes of the rest stay.

Not here: what a file may say (``config``), which value a form has (``forms``).
"""

import io
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any, cast

from penstock.errors import ConfigError

_PLAIN = re.compile(r"[A-Za-z_./][\w./@*:-]*")
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
_OFFSET = re.compile(r"(?m)^( *)[\w-]+:[^\n]*\n\1  +- ")
_REFERENCE = re.compile(r"\$\{[A-Za-z_]\w*\}")

Steps = tuple[str, ...]


def values_of(text: str) -> dict[str, Any]:
    """Returns the file's values as plain data, variables unresolved. Raises ``ConfigError``
    (``config.yaml``)."""
    return deepcopy(_values_of(text))


@lru_cache(maxsize=8)
def _values_of(text: str) -> dict[str, Any]:
    """Kept, as a file of 10,000 streams takes seconds to read."""
    loaded = _load(text)[1]
    return cast(dict[str, Any], _plain(loaded)) if isinstance(loaded, dict) else {}


def edited(text: str, changes: Mapping[Steps, Any]) -> str:
    """Returns the text with other values at these places; None: without the key. A mapping becomes
    what is given, key by key. Raises ``ConfigError`` (``config.yaml``)."""
    yaml, root = _load(text)
    if not isinstance(root, dict):
        raise ConfigError("a pipeline file is a mapping of keys to values", code="config.yaml")
    for steps, value in changes.items():
        at: Any = root
        for step in steps[:-1]:
            if not isinstance(at.get(step), dict):
                at[step] = _new({})
            at = at[step]
        if value is None:
            at.pop(steps[-1], None)
        else:
            _set(at, steps[-1], value, raw=())
    out = io.StringIO()
    yaml.dump(root, out)
    return out.getvalue()


def _load(text: str) -> tuple[Any, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 4096  # type: ignore[assignment]
    if _OFFSET.search(text):
        yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        return yaml, yaml.load(text)
    except YAMLError as e:
        mark = e.problem_mark if isinstance(e, MarkedYAMLError) else None
        problem = e.problem if isinstance(e, MarkedYAMLError) else str(e)
        where = None if mark is None else f"line {mark.line + 1}"
        raise ConfigError(
            f"this is no YAML{'' if where is None else f', {where}'}: {problem}",
            code="config.yaml",
            where=where,
        ) from None


def _set(at: Any, key: Any, value: Any, raw: tuple[()]) -> None:
    """Sets a value, and leaves what is equal as it is written."""
    old = at[key] if isinstance(at, list) or key in at else None
    if isinstance(old, dict) and isinstance(value, Mapping):
        given = cast(Mapping[str, Any], value)
        known = cast(dict[str, Any], old)
        for name in [name for name in known if name not in given]:
            del known[name]
        for name, inner in given.items():
            _set(known, name, inner, raw)
    elif isinstance(old, list) and isinstance(value, Sequence) and not isinstance(value, str):
        listed = cast(list[Any], old)
        items = cast(Sequence[Any], value)
        del listed[len(items) :]
        for place, inner in enumerate(items):
            if place < len(listed):
                _set(listed, place, inner, raw)
            else:
                listed.append(_new(inner))
    elif not (_plain(old) == value and type(_plain(old)) is type(value)) or key not in _keys(at):
        at[key] = _new(value)


def _keys(at: Any) -> Any:
    return range(len(cast(list[Any], at))) if isinstance(at, list) else at


def _new(value: Any) -> Any:
    """A value as it is written: a text in quotes, unless it is one word or a variable."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    if isinstance(value, Mapping):
        return CommentedMap({k: _new(v) for k, v in cast(Mapping[str, Any], value).items()})
    if isinstance(value, list | tuple):
        listed = CommentedSeq([_new(v) for v in cast(Sequence[Any], value)])
        if all(not isinstance(v, dict | list) for v in listed):
            listed.fa.set_flow_style()
        return listed
    if isinstance(value, PlainText):
        return str(value)
    if isinstance(value, str):
        if "\n" in value and value.endswith("\n") and value.isprintable() is False:
            lines = value.splitlines()
            if all(line.isprintable() and line == line.strip() for line in lines):
                return LiteralScalarString(value)
        one_word = _PLAIN.fullmatch(value) and value.lower() not in _WORDS and value[-1] != ":"
        return value if one_word else DoubleQuotedScalarString(value)
    return value


class PlainText(str):
    """A text that stands in the file without quotes: a variable in the place of a number."""


def variable(value: str) -> str:
    """Returns a reference to a variable as it stands in the place of a number or a truth value."""
    return PlainText(value) if _REFERENCE.fullmatch(value) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in cast(dict[Any, Any], value).items()}
    if isinstance(value, list):
        return [_plain(v) for v in cast(list[Any], value)]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value)
