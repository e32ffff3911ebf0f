"""Writes values as YAML that the pipeline file's reader reads back unchanged, types included.

A text is quoted unless it is one word. Pure. Neighbour: ``file_edit`` inserts the text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from penstock.config.scalars import plain

_WORD = re.compile(r"[A-Za-z_./][\w./@*:-]*", re.ASCII)
_YAML_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
_UNPRINTED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ue000-\uf8ff\ufffe\uffff\ud800-\udfff]")
_REFERENCE = re.compile(r"\$\{[A-Za-z_]\w*(:-[^{}\n\"']*)?\}", re.ASCII)
_INDENT = 2


class PlainText(str):
    """An unquoted text in the file: a variable in place of a number."""


def variable(value: str) -> str:
    """Returns a reference to a variable, written in place of a number or a truth value."""
    return PlainText(value) if _REFERENCE.fullmatch(value) else value


def same(one: Any, other: Any) -> bool:
    """Returns whether two values are equal, types included; the order of keys is free."""
    if isinstance(one, dict) and isinstance(other, dict):
        first, second = cast(dict[str, Any], one), cast(dict[str, Any], other)
        return first.keys() == second.keys() and all(same(v, second[k]) for k, v in first.items())
    if isinstance(one, list) and isinstance(other, list):
        had, given = cast(list[Any], one), cast(list[Any], other)
        return len(had) == len(given) and all(map(same, had, given))
    if isinstance(one, str) and isinstance(other, str):
        return str(one) == str(other)
    return type(one) is type(other) and one == other


def in_line(value: Any) -> str:
    """Returns a value on one line."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case PlainText():
            return str(value)
        case str():
            return _word(value)
        case int() | float():
            return repr(value)
        case Mapping():
            given = cast(Mapping[str, Any], value)
            return "{" + ", ".join(f"{_word(k)}: {in_line(v)}" for k, v in given.items()) + "}"
        case _:
            return "[" + ", ".join(map(in_line, cast(Sequence[Any], value))) + "]"


class BlockWriter:
    """Writes values over several lines. ``literal``: a text of several lines may be a literal
    block."""

    def __init__(self, literal: bool) -> None:
        self._literal = literal

    def block(self, value: Any, column: int) -> str:
        """Returns the lines of a mapping or a list, which begin in a column."""
        before = " " * column
        if isinstance(value, Mapping):
            given = cast(Mapping[str, Any], value)
            lines = [f"{_word(k)}:{self._after(v, column + _INDENT)}" for k, v in given.items()]
        else:
            lines = [self._dashed(v, column) for v in cast(Sequence[Any], value)]
        return "\n".join(before + line for line in lines)

    def inner(self, value: Any, column: int) -> str:
        """Returns a value after its key or dash: on that line, or after a line break on lines that
        begin in a column."""
        if isinstance(value, Mapping) and value:
            return "\n" + self.block(value, column)
        if isinstance(value, list):
            listed = cast(list[Any], value)
            if any(isinstance(v, dict | list) for v in listed):
                return "\n" + self.block(listed, column)
        if self._literal and isinstance(value, str) and _is_long(value):
            return "|\n" + "\n".join(" " * column + line for line in value.splitlines())
        return in_line(value)

    def _after(self, value: Any, column: int) -> str:
        text = self.inner(value, column)
        return text if text.startswith("\n") else f" {text}"

    def _dashed(self, value: Any, column: int) -> str:
        if isinstance(value, Mapping) and value:
            return "- " + self.block(value, column + _INDENT).lstrip(" ")
        return f"-{self._after(value, column + _INDENT)}"


def _is_long(text: str) -> bool:
    """Returns whether a text is best written as a literal block, which ends in a line break."""
    if "\n" not in text or not text.endswith("\n"):
        return False
    lines = text[:-1].split("\n")
    return all(line and line.isprintable() and line == line.strip() for line in lines)


def _word(text: str) -> str:
    is_word = _WORD.fullmatch(text) and text.lower() not in _YAML_WORDS and text[-1] != ":"
    if is_word and plain(text) == text:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTED.sub(lambda m: f"\\u{ord(m[0]):04x}", quoted)
