"""Writes and parses types as text: ``decimal(10,2)``, ``array<integer>``, ``struct<a: string>``.

``plan -v`` prints a column's type in the form that a pipeline file accepts. Neighbours:
``model.types`` defines the types, ``config.converters`` reads them from a file.
"""

import re

from penstock.model.names import clean_columns
from penstock.model.types import DataType, Field, Kind

FORMS = (
    "a type such as integer, decimal(18,4), timestamp, json, array<string> or struct<city: string>"
)
SIMPLE = tuple(k.value for k in Kind if k not in (Kind.decimal, Kind.array, Kind.struct))
WORDS = (*SIMPLE, "decimal(18,4)", "array<string>", "struct<name: string>")
MEANT = {
    "bigint": "integer", "int": "integer", "int64": "integer", "long": "integer",
    "double": "number", "float": "number", "real": "number", "bool": "boolean",
    "text": "string", "varchar": "string", "str": "string", "datetime": "timestamp",
    "timestamptz": "timestamp", "timestamp_tz": "timestamp", "numeric": "decimal(18,4)",
    "decimal": "decimal(18,4)", "bytes": "binary", "bytea": "binary", "jsonb": "json",
    "object": "json", "variant": "json", "list": "array<string>", "array": "array<string>",
    "struct": "struct<name: string>",
}  # fmt: skip
"""Type names of databases and languages -> the type to suggest for them."""

_MAX_DIGITS = 38
_MAX_DEPTH = 32
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)")
_INNER = re.compile(r"(array|struct)\s*<(.*)>", re.DOTALL)


class UnknownType(ValueError):
    """Raised for text that is not a type. ``word``: the unknown word; None: the message explains
    what to write instead."""

    def __init__(self, word: str | None, text: str) -> None:
        super().__init__(text)
        self.word = word


def type_text(type_: DataType) -> str:
    """Returns the text of a type, as ``struct<a: string>``."""
    if type_.kind is Kind.decimal:
        return f"decimal({type_.precision},{type_.scale})"
    if type_.kind is Kind.array and type_.item is not None:
        return f"array<{type_text(type_.item)}>"
    if type_.kind is Kind.struct:
        inner = ", ".join(f"{f.name}: {type_text(f.type)}" for f in type_.fields)
        return f"struct<{inner}>"
    return type_.kind.value


def parse_type(text: str, depth: int = 0) -> DataType:
    """Parses the text of a type; field names of a struct are original names. ``depth``: the nesting
    level. Raises :class:`UnknownType`."""
    word = text.strip()
    if word in SIMPLE:
        return DataType(Kind(word))
    if (found := _DECIMAL.fullmatch(word)) is not None:
        precision, scale = int(found[1]), int(found[2])
        if not (1 <= precision <= _MAX_DIGITS and scale <= precision):
            raise UnknownType(word, f"a decimal has 1 to {_MAX_DIGITS} digits, {word} has not")
        return DataType(Kind.decimal, precision, scale)
    if (found := _INNER.fullmatch(word)) is not None and depth < _MAX_DEPTH:
        if found[1] == "array":
            return DataType(Kind.array, item=parse_type(found[2], depth + 1))
        return _struct(found[2], depth)
    raise UnknownType(word, f"'{word}' is not a type")


def _struct(text: str, depth: int) -> DataType:
    types: dict[str, DataType] = {}
    for part in _parts(text):
        name, colon, rest = part.partition(":")
        name = name.strip()
        if not colon or not name:
            raise UnknownType(None, f"'{part.strip()}' is not a field: write name: type")
        if name.casefold() in {n.casefold() for n in types}:
            raise UnknownType(None, f"the field '{name}' comes twice")
        types[name] = parse_type(rest, depth + 1)
    names = clean_columns(types)
    return DataType(Kind.struct, fields=tuple(Field(names[n], n, t) for n, t in types.items()))


def _parts(text: str) -> list[str]:
    """Splits at the commas outside of brackets."""
    parts, depth, start = list[str](), 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]
