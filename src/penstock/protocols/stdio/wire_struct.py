"""Decodes and encodes wire structs that keep the fields they do not declare: typed fields plus the
unknown ones.

Numbers of unknown fields keep all their digits (``codec.exact_json``). Not here: the structs of a
protocol (``protocols/*/messages.py``); the hot path, which decodes light msgspec structs directly.
"""

from functools import cache
from typing import Any, TypeVar, cast, get_args

import msgspec
from msgspec.structs import FieldInfo

from penstock.codec.exact_json import exact, exact_text, floats


class Wire(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base of a wire struct. ``unknown`` holds the keys of the object that the struct does not
    declare, and declared ones that were given with their default value (an explicit null)."""

    unknown: dict[str, Any] = msgspec.field(default_factory=dict, name="(unknown)")


W = TypeVar("W", bound=Wire)


class WireError(ValueError):
    """Raised for text that is not JSON or does not fit the struct; the message has the path."""


def decode(kind: type[W], text: bytes | str | msgspec.Raw) -> W:
    """Decodes a struct from one JSON object. Raises :class:`WireError`."""
    try:
        data = exact(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise WireError(f"not one JSON value: {e}") from None
    return from_data(kind, data)


def from_data(kind: type[W], data: Any) -> W:
    """Builds a struct from decoded JSON data, which is shared, not copied. Raises
    :class:`WireError`."""
    try:
        value = msgspec.convert(data, kind)
    except msgspec.ValidationError as e:
        raise WireError(str(e)) from None
    _keep_unknown(value, data)
    return value


def lenient(kind: type[W], data: Any) -> tuple[W, list[str]]:
    """As :func:`from_data`, but an optional field that does not fit counts as absent, here and in
    the structs inside. Returns the struct, and for each such field its name and fault. Raises
    :class:`WireError` where a required field is missing or does not fit."""
    try:
        return from_data(kind, data), []
    except WireError:
        faults: list[str] = []
        return from_data(kind, _fitting(kind, data, faults)), faults


def _fitting(kind: type[Wire], data: Any, faults: list[str]) -> Any:
    """Returns the data without optional fields that do not fit; adds those to ``faults``."""
    if not isinstance(data, dict):
        return data
    kept = dict(cast(dict[str, Any], data))
    for field in _fields(kind):
        name = field.encode_name
        if name not in kept:
            continue
        value, inside = kept[name], _struct_in(field.type)
        if inside is not None and isinstance(value, list):
            kept[name] = [_fitting(inside, item, faults) for item in cast(list[Any], value)]
        elif inside is not None:
            kept[name] = _fitting(inside, value, faults)
        if not field.required:
            try:
                msgspec.convert(kept[name], field.type)
            except msgspec.ValidationError as e:
                faults.append(f"{name}: {e}")
                del kept[name]
    return kept


@cache
def _struct_in(of: Any) -> type[Wire] | None:
    """Returns the struct of a field: itself, optional, or in a list."""
    if isinstance(of, type) and issubclass(of, Wire):
        return of
    return next(filter(None, map(_struct_in, get_args(of))), None)


def to_data(value: Any) -> Any:
    """Returns the JSON data of a struct with its unknown fields. Declared fields override unknown
    ones."""
    if isinstance(value, Wire):
        declared: dict[str, Any] = {}
        for field in _fields(type(value)):
            current = getattr(value, field.name)
            if field.required or current != _default(field):
                declared[field.encode_name] = to_data(current)
        return {**value.unknown, **declared}
    if isinstance(value, list):
        return [to_data(v) for v in cast(list[Any], value)]
    return value


def encode(value: Wire) -> bytes:
    """Encodes a struct as one JSON object, without a newline."""
    return exact_text(to_data(value))


@cache
def _fields(kind: type[Wire]) -> tuple[FieldInfo, ...]:
    return tuple(f for f in msgspec.structs.fields(kind) if f.name != "unknown")


def _default(field: FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _keep_unknown(value: Wire, data: dict[str, Any]) -> None:
    """Fills ``unknown`` of a struct and of those in it from the data that it was decoded from."""
    declared: set[str] = set()
    for field in _fields(type(value)):
        name = field.encode_name
        if name not in data:
            continue
        current = getattr(value, field.name)
        if field.required or current != _default(field):
            declared.add(name)
        if isinstance(current, Wire):
            _keep_unknown(current, data[name])
        elif isinstance(current, list):
            for item, raw in zip(cast(list[Any], current), data[name], strict=True):
                if isinstance(item, Wire):
                    _keep_unknown(item, raw)
    if len(declared) != len(data):
        value.unknown = {k: v for k, v in data.items() if k not in declared}


def plain(value: Wire) -> dict[str, Any]:
    """Returns the JSON data of a struct with ordinary floats in place of exact numbers."""
    return floats(encode(value))
