"""Parses scalars: types plain YAML scalars, and reads sizes and durations.

Plain scalars follow YAML 1.2's core schema, narrowed to what JSON can hold, because a connector
gets its config as JSON. These stay text: dates, ``yes``/``no``, numbers with a leading zero
(``0123``), integers beyond 64 bits, ``.inf`` and ``.nan``. No digit is lost to rounding.
"""

import re

Plain = str | int | float | bool | None

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_BASED = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_LONGEST_NUMBER = 400

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")
_SIZE_UNITS = {"": 0, "b": 0, "kb": 1, "kib": 1, "mb": 2, "mib": 2, "gb": 3, "gib": 3, "tb": 4,
               "tib": 4}  # fmt: skip
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)\s*")
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

SIZE_FORMS = "a size such as 512mb, 2gb or a number of bytes"
DURATION_FORMS = "a duration such as 30s, 5m, 1h30m or a number of seconds"


def plain(text: str) -> Plain:
    """Returns the typed value of a plain YAML scalar. The text of a structure (``[1]``, ``a: b``)
    stays text: a scalar never becomes a list or a mapping."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if len(text) > _LONGEST_NUMBER:
        return text
    if _INT.fullmatch(text):
        return _fits_64_bits(int(text), text)
    if _BASED.fullmatch(text):
        return _fits_64_bits(int(text, 0), text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if abs(number) != float("inf") else text
    return text


def _fits_64_bits(number: int, text: str) -> int | str:
    return number if -(2**63) <= number < 2**64 else text


def parse_size(value: Plain) -> int | None:
    """Parses a size to bytes: ``512mb`` (units of 1024, any case) or a number of bytes; None where
    ``value`` is neither."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return int(value) if value >= 0 and value == int(value) else None
    match = _SIZE.fullmatch(value.strip().lower())
    if match is None or match[2] not in _SIZE_UNITS:
        return None
    size = float(match[1]) * 1024 ** _SIZE_UNITS[match[2]]
    if "." not in match[1]:
        size = int(match[1]) * 1024 ** _SIZE_UNITS[match[2]]
    return int(size) if size == int(size) else None


def parse_duration(value: Plain) -> float | None:
    """Parses a duration to seconds: ``30s``, ``1h30m`` or a number of seconds; None where ``value``
    is neither."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if value >= 0 else None
    text = value.strip().lower()
    if not re.fullmatch(rf"(?:{_DURATION.pattern})+", text):
        return None
    return sum(float(n) * _DURATION_UNITS[unit] for n, unit in _DURATION.findall(text))
