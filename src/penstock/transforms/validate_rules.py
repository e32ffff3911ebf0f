"""Reads the rules of ``transform-validate`` from the pipeline file.

Source: Rapidbyte v4's configuration. Each entry of ``rules`` names one or more rules; each rule
becomes one :class:`Rule` per column. Not here: whether a column exists (``validate``) and has a
type that fits the rule (``validate_checks``).
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
RULE_KINDS = (NOT_NULL, UNIQUE, REGEX, RANGE)

Bound = int | float | str | date


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule on one column. ``kind``: one of :data:`RULE_KINDS`. ``path``: of the rule in the
    pipeline file. ``minimum``, ``maximum``: inclusive."""

    kind: str
    field: str
    path: str
    pattern: str = ""
    minimum: Bound | None = None
    maximum: Bound | None = None


def read_rules(config: Mapping[str, Any], path: str) -> tuple[list[Rule], list[str]]:
    """Reads the rules of ``config``; returns them, and a problem for each entry that is not one."""
    problems = unknown_keys(config, ("rules",), path)
    entries = config.get("rules")
    if "rules" not in config:
        return [], problems or [f"{path} needs the key 'rules'"]
    if not isinstance(entries, list) or not entries:
        return [], [*problems, f"{path}.rules must be a list of rules, and not empty"]
    rules: list[Rule] = []
    for index, entry in enumerate(entries):
        at = f"{path}.rules[{index}]"
        if not isinstance(entry, Mapping) or not entry:
            problems.append(f"{at} must be one of {', '.join(RULE_KINDS)}, not {kind_of(entry)}")
            continue
        problems += unknown_keys(entry, RULE_KINDS, at)
        for kind in (k for k in entry if k in RULE_KINDS):
            for rule in _READERS[kind](kind, entry[kind], f"{at}.{kind}"):
                if isinstance(rule, Rule):
                    rules.append(rule)
                else:
                    problems.append(rule)
    return rules, problems


def _columns(kind: str, value: Any, path: str) -> Iterator[Rule | str]:
    """Reads ``email`` or ``[email, name]``: a rule, or a problem, per column."""
    names = value if isinstance(value, list) else [value]
    if not names:
        yield f"{path} names no column"
    for name in names:
        if isinstance(name, str) and name:
            yield Rule(kind, name, path)
        else:
            yield f"{path} must be a column or a list of columns, not {kind_of(name)}"


def _patterns(kind: str, value: Any, path: str) -> Iterator[Rule | str]:
    """Reads ``{field, pattern}``, a list of these, or ``{column: pattern}``."""
    if isinstance(value, list):
        if not value:
            yield f"{path} is an empty list"
        for index, item in enumerate(value):
            at = f"{path}[{index}]"
            if isinstance(item, list):
                yield f"{at} must be a mapping, not a list"
            else:
                yield from _patterns(kind, item, at)
        return
    if not isinstance(value, Mapping) or not value:
        yield f"{path} must be field and pattern, or columns with a pattern each"
        return
    if set(value) == {"field", "pattern"}:
        pairs = [(value["field"], value["pattern"])]
    else:
        near = closest("pattern", [str(k) for k in value if k != "field"])
        if "field" in value and near is not None:
            yield f"{path}: unknown key {near!r}; did you mean 'pattern'?"
            return
        pairs = list(value.items())
    for name, pattern in pairs:
        if not isinstance(name, str) or not name:
            yield f"{path}.field must be a column, not {kind_of(name)}"
        elif not isinstance(pattern, str):
            yield f"{path}: the pattern of '{name}' must be a text, not {kind_of(pattern)}"
        else:
            yield Rule(kind, name, path, pattern=pattern)


def _ranges(kind: str, value: Any, path: str) -> Iterator[Rule | str]:
    """Reads ``{field, min, max}`` with at least one bound, or a list of these."""
    if isinstance(value, list):
        if not value:
            yield f"{path} is an empty list"
        for index, item in enumerate(value):
            yield from _range(kind, item, f"{path}[{index}]")
    else:
        yield from _range(kind, value, path)


def _range(kind: str, value: Any, path: str) -> Iterator[Rule | str]:
    if not isinstance(value, Mapping):
        yield f"{path} must be field with min, max or both, not {kind_of(value)}"
        return
    faults = unknown_keys(value, ("field", "min", "max"), path)
    name = value.get("field")
    if not isinstance(name, str) or not name:
        faults.append(f"{path} needs the key 'field', a column")
    low, high = value.get("min"), value.get("max")
    if low is None and high is None and not faults:
        faults.append(f"{path} needs min, max or both")
    faults += [
        f"{path}.{key} must be a number or a date, not {kind_of(bound)}"
        for key, bound in (("min", low), ("max", high))
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, Bound))
    ]
    yield from faults or [Rule(kind, str(name), path, minimum=low, maximum=high)]


_READERS = {NOT_NULL: _columns, UNIQUE: _columns, REGEX: _patterns, RANGE: _ranges}
