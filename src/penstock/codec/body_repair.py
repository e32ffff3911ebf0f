"""Repairs single JSON bodies in Python: the few that cannot be decoded by column unchanged.

Takes the last value of a duplicate key, replaces an array or object by null if the schema has
another type, and replaces what JSON does not have (NaN, Infinity, half a surrogate pair). A
repaired body is JSON again and is decoded by column with the others. Not here: whether a value fits
its type (``codec.values``). Neighbours: ``codec.decode`` calls :func:`mend`;
``codec.undeclared_json`` writes single values in the same way."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.codec.losses import ELEMENT
from penstock.model.catalog import FieldPath
from penstock.model.types import DataType, Field, Kind, RowSchema

MAX_DEPTH = 400  # levels of a body that is mended; Python's own stack ends not far beyond
NO_OBJECT = "not a JSON object"
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair, which UTF-8 does not have
_NO_TEXT = "not UTF-8"
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"


Failure = tuple[FieldPath, str]
"""A path of original names (``codec.losses``), and the text of its value."""


class Number(str):
    """The text of a JSON number, with all its digits."""


class _NoJson(str):
    """The word NaN, Infinity or -Infinity, which JSON does not have."""


@dataclass(slots=True)
class RepairedBody:
    """The result of :func:`mend`. ``body``: the repaired body; None if it cannot be a row;
    ``refused`` is then the reason. ``cast_failures``: the values that did not fit, each by its
    original path and its text: they are null in ``body``, or, in a JSON column, have null in place
    of a part."""

    body: bytes | None
    cast_failures: list[Failure] = field(default_factory=list[Failure])
    refused: str | None = None


def is_object(body: bytes) -> bool:
    """Returns whether a body is one object that :func:`mend` can read."""
    try:
        return isinstance(json.loads(body.decode()), dict)
    except (ValueError, RecursionError):
        return False


def mend(body: bytes, schema: RowSchema, aliases: Mapping[str, str]) -> RepairedBody:
    """Repairs one body. ``aliases``: top-level properties to rename, original name -> the name by
    which the decoder looks for it. Raises nothing: if repair is impossible, ``body`` is None."""
    try:
        found = json.loads(
            body.decode("utf-8"),
            parse_float=Number,
            parse_int=Number,
            parse_constant=_NoJson,
        )
        if not isinstance(found, dict):
            return RepairedBody(None, refused=NO_OBJECT)
        record = cast(dict[str, Any], found)
        cast_failures: list[Failure] = []
        for field in schema.fields:
            _check(record, field, (), cast_failures)
        for name, alias in aliases.items():
            if name in record:
                record[alias] = record.pop(name)
        return RepairedBody(_encode(record, 0).encode("utf-8"), cast_failures)
    except RecursionError:
        return RepairedBody(None, refused=TOO_DEEP)
    except UnicodeDecodeError:
        return RepairedBody(None, refused=_NO_TEXT)
    except ValueError:
        return RepairedBody(None, refused=NO_OBJECT)


def _check(
    record: dict[str, Any], field: Field, above: FieldPath, cast_failures: list[Failure]
) -> None:
    value = record.get(field.source)
    if value is not None:
        record[field.source] = _fitted(value, field.type, (*above, field.source), cast_failures)


def _fitted(value: Any, data_type: DataType, path: FieldPath, cast_failures: list[Failure]) -> Any:
    """Returns the value if its JSON type fits ``data_type``; else None (a JSON column keeps it),
    and appends its path and text to ``cast_failures``."""
    if value is None:
        return None
    if data_type.kind is Kind.array and isinstance(value, list):
        item = data_type.item or DataType(Kind.json)
        return [_fitted(v, item, (*path, ELEMENT), cast_failures) for v in cast(list[Any], value)]
    if data_type.kind is Kind.struct and isinstance(value, dict):
        inner = cast(dict[str, Any], value)
        for field in data_type.fields:
            _check(inner, field, path, cast_failures)
        return inner
    if data_type.kind not in (Kind.array, Kind.struct) and not _has_no_json(value, 0):
        return value
    cast_failures.append((path, _sent(value)))
    return value if data_type.kind is Kind.json and isinstance(value, list | dict) else None


def _has_no_json(value: Any, depth: int) -> bool:
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, _NoJson):
        return True
    if isinstance(value, str):
        return _HALF.search(value) is not None
    if isinstance(value, list):
        return any(_has_no_json(v, depth + 1) for v in cast(list[Any], value))
    if isinstance(value, dict):
        inner = cast(dict[str, Any], value)
        return any(_has_no_json(k, depth) or _has_no_json(v, depth + 1) for k, v in inner.items())
    return False


def _sent(value: Any) -> str:
    """Returns the value's JSON text as it was sent; for a text, the text itself. Writes half a
    surrogate pair as the letters of its escape."""
    text = str(value) if isinstance(value, str) else _encode(value, 0, sent=True)
    return _spelt(text)


def encoded(value: Any) -> str:
    """Returns the JSON text of a decoded value whose numbers are :class:`Number`."""
    return _encode(value, 0)


def _encode(value: Any, depth: int, *, sent: bool = False) -> str:
    """Returns the JSON text of ``value``; numbers with all their digits. What JSON does not have
    becomes null, also a text with half a surrogate pair; in the name of a property that half
    becomes the letters of its escape. After :func:`_fitted` only JSON columns and properties
    without a column still hold such values. ``sent``: what JSON does not have is kept unchanged."""
    if depth > MAX_DEPTH:
        raise RecursionError
    match value:
        case Number():
            return str(value)
        case dict():
            members = (
                f"{json.dumps(_spelt(k), ensure_ascii=False)}:{_encode(v, depth + 1, sent=sent)}"
                for k, v in cast(dict[str, Any], value).items()
            )
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join(_encode(v, depth + 1, sent=sent) for v in cast(list[Any], value))}]"
        case _NoJson():
            return str(value) if sent else "null"
        case str():
            lost = not sent and _HALF.search(value)
            return "null" if lost else json.dumps(value, ensure_ascii=False)
        case _:
            return json.dumps(value)


def _spelt(name: str) -> str:
    return _HALF.sub(lambda found: f"\\u{ord(found[0]):04x}", name)
