"""The ``config`` of a built-in transform: its keys, and all its faults in one error.

Shapes only; what a key means is its transform's business. Values are quoted where a fault is in a
key's name or kind, never where they could come from a variable.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.config.did_you_mean import hint
from penstock.errors import ConfigError

CODE = "config.transform"


def unknown_keys(given: Mapping[Any, Any], known: Iterable[str], place: str) -> list[str]:
    """A problem for each key that is not known."""
    names = list(known)
    return [
        f"{place}: unknown key {str(key)!r}; {hint(str(key), names, 'known keys')}"
        for key in given
        if key not in names
    ]


def kind_of(value: Any) -> str:
    """What a value is, in the words of a pipeline file."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, Mapping):
        return "a mapping"
    return "text" if isinstance(value, str) else "a list" if isinstance(value, list) else "a value"


def query_of(config: Mapping[str, Any], use: str, where: str, advice: str) -> str:
    """The one key of a transform that is a query. Raises ``ConfigError``."""
    place = f"{where}.config"
    problems = unknown_keys(config, ("query",), place)
    text = config.get("query")
    if "query" not in config:
        problems = problems or [f"{place} needs the key 'query'"]
    elif not isinstance(text, str):
        problems.append(f"{place}.query must be a text, not {kind_of(text)}")
    elif not text.strip():
        problems.append(f"{place}.query is empty")
    if problems:
        raise faulty(problems, use, where, advice=advice)
    return str(text)


def joined(faults: Sequence[ConfigError]) -> ConfigError:
    """One error of what is wrong with several transforms, or with one."""
    if len(faults) == 1:
        return faults[0]
    problems = list(dict.fromkeys(p for e in faults for p in e.problems or [e.message]))
    hints = dict.fromkeys(e.hint for e in faults if e.hint)
    return ConfigError(
        f"{len(problems)} faults in the transforms",
        problems=problems,
        where="transforms",
        code=CODE,
        hint="; ".join(hints) or None,
    )


def faulty(
    problems: list[str], use: str, where: str, *, advice: str, code: str = CODE
) -> ConfigError:
    """The error of one transform, whose problems all begin with their place."""
    told = list(dict.fromkeys(problems))
    message = told[0] if len(told) == 1 else f"{len(told)} faults in {use} ({where})"
    return ConfigError(message, problems=told, where=where, code=code, hint=advice)
