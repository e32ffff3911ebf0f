"""Checks the keys of a built-in transform's ``config`` and reports all its faults in one error.

Checks names and kinds of keys only; each transform checks what they mean. An error quotes key
names and kinds of values, never a value, which could come from a variable (L10).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.config.did_you_mean import hint
from penstock.errors import ConfigError

CODE = "config.transform"


def unknown_keys(given: Mapping[Any, Any], known: Iterable[str], path: str) -> list[str]:
    """Returns a problem for each key that is not in ``known``. ``path``: of the mapping, in the
    pipeline file."""
    names = list(known)
    return [
        f"{path}: unknown key {str(key)!r}; {hint(str(key), names, 'known keys')}"
        for key in given
        if key not in names
    ]


def kind_of(value: Any) -> str:
    """Returns the kind of a YAML value, for an error message ("a list")."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, Mapping):
        return "a mapping"
    return "text" if isinstance(value, str) else "a list" if isinstance(value, list) else "a value"


def read_query(config: Mapping[str, Any], use: str, where: str, advice: str) -> str:
    """Reads ``query``, the only key of such a transform's config. Raises ``ConfigError``."""
    path = f"{where}.config"
    problems = unknown_keys(config, ("query",), path)
    text = config.get("query")
    if "query" not in config:
        problems = problems or [f"{path} needs the key 'query'"]
    elif not isinstance(text, str):
        problems.append(f"{path}.query must be a text, not {kind_of(text)}")
    elif not text.strip():
        problems.append(f"{path}.query is empty")
    if problems:
        raise transform_error(problems, use, where, advice=advice)
    return str(text)


def join_errors(faults: Sequence[ConfigError]) -> ConfigError:
    """Joins the errors of several transforms into one; a single error is returned as it is."""
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


def transform_error(
    problems: list[str], use: str, where: str, *, advice: str, code: str = CODE
) -> ConfigError:
    """Builds the error of one transform. Each problem must begin with its path in the file."""
    unique = list(dict.fromkeys(problems))
    message = unique[0] if len(unique) == 1 else f"{len(unique)} faults in {use} ({where})"
    return ConfigError(message, problems=unique, where=where, code=code, hint=advice)
