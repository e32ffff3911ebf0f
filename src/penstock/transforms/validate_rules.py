"""The rules of ``transform-validate`` as a pipeline file writes them.

Source: Rapidbyte v4's configuration. Each entry of ``rules`` names one or more rules; each rule
becomes one :class:`Rule` per column. Shapes only: whether a column exists and has a fitting type is
``validate_checks``'.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from penstock.config.did_you_mean import closest
from penstock.transforms.config_errors import kind_of, unknown_keys

NOT_NULL = "assert_not_null"
UNIQUE = "assert_unique"
REGEX = "assert_regex"
RANGE = "assert_range"
KNOWN = (NOT_NULL, UNIQUE, REGEX, RANGE)

Bound = int | float | str | date


@dataclass(frozen=True, slots=True)
class Rule:
    """``kind``: the key. ``place``: where it stands in the file. ``minimum``, ``maximum``:
    inclusive."""

    kind: str
    field: str
    place: str
    pattern: str = ""
    minimum: Bound | None = None
    maximum: Bound | None = None


def read_rules(config: Mapping[str, Any], place: str) -> tuple[list[Rule], list[str]]:
    """The rules, and the problems of those that are none."""
    problems = unknown_keys(config, ("rules",), place)
    entries = config.get("rules")
    if "rules" not in config:
        return [], problems or [f"{place} needs the key 'rules'"]
    if not isinstance(entries, list) or not entries:
        return [], [*problems, f"{place}.rules must be a list of rules, and not empty"]
    found: list[Rule] = []
    for index, entry in enumerate(entries):
        at = f"{place}.rules[{index}]"
        if not isinstance(entry, Mapping) or not entry:
            problems.append(f"{at} must be one of {', '.join(KNOWN)}, not {kind_of(entry)}")
            continue
        problems += unknown_keys(entry, KNOWN, at)
        for kind in (k for k in entry if k in KNOWN):
            for read in _READERS[kind](kind, entry[kind], f"{at}.{kind}"):
                if isinstance(read, Rule):
                    found.append(read)
                else:
                    problems.append(read)
    return found, problems


def _columns(kind: str, value: Any, place: str) -> Iterator[Rule | str]:
    """``email`` or ``[email, name]``: each column by itself."""
    names = value if isinstance(value, list) else [value]
    if not names:
        yield f"{place} names no column"
    for name in names:
        if isinstance(name, str) and name:
            yield Rule(kind, name, place)
        else:
            yield f"{place} must be a column or a list of columns, not {kind_of(name)}"


def _patterns(kind: str, value: Any, place: str) -> Iterator[Rule | str]:
    """``{field, pattern}``, a list of these, or ``{column: pattern}``."""
    if isinstance(value, list):
        if not value:
            yield f"{place} is an empty list"
        for index, item in enumerate(value):
            at = f"{place}[{index}]"
            if isinstance(item, list):
                yield f"{at} must be a mapping, not a list"
            else:
                yield from _patterns(kind, item, at)
        return
    if not isinstance(value, Mapping) or not value:
        yield f"{place} must be field and pattern, or columns with a pattern each"
        return
    if set(value) == {"field", "pattern"}:
        pairs = [(value["field"], value["pattern"])]
    else:
        near = closest("pattern", [str(k) for k in value if k != "field"])
        if "field" in value and near is not None:
            yield f"{place}: unknown key {near!r}; did you mean 'pattern'?"
            return
        pairs = list(value.items())
    for name, pattern in pairs:
        if not isinstance(name, str) or not name:
            yield f"{place}.field must be a column, not {kind_of(name)}"
        elif not isinstance(pattern, str):
            yield f"{place}: the pattern of '{name}' must be a text, not {kind_of(pattern)}"
        else:
            yield Rule(kind, name, place, pattern=pattern)


def _ranges(kind: str, value: Any, place: str) -> Iterator[Rule | str]:
    """``{field, min, max}`` with one bound at least, or a list of these."""
    if isinstance(value, list):
        if not value:
            yield f"{place} is an empty list"
        for index, item in enumerate(value):
            yield from _range(kind, item, f"{place}[{index}]")
    else:
        yield from _range(kind, value, place)


def _range(kind: str, value: Any, place: str) -> Iterator[Rule | str]:
    if not isinstance(value, Mapping):
        yield f"{place} must be field with min, max or both, not {kind_of(value)}"
        return
    faults = unknown_keys(value, ("field", "min", "max"), place)
    name = value.get("field")
    if not isinstance(name, str) or not name:
        faults.append(f"{place} needs the key 'field', a column")
    low, high = value.get("min"), value.get("max")
    if low is None and high is None and not faults:
        faults.append(f"{place} needs min, max or both")
    faults += [
        f"{place}.{key} must be a number or a date, not {kind_of(bound)}"
        for key, bound in (("min", low), ("max", high))
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, Bound))
    ]
    yield from faults or [Rule(kind, str(name), place, minimum=low, maximum=high)]


_READERS = {NOT_NULL: _columns, UNIQUE: _columns, REGEX: _patterns, RANGE: _ranges}
