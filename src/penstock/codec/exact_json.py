"""Decodes and encodes JSON data so that no number loses a digit.

For states and for undeclared fields of messages. Not here: records (``codec.decode``). Neighbours:
``protocols.stdio.wire_struct`` and the protocols' states use it.
"""

import math
from decimal import Context, Decimal
from typing import Any, cast

import msgspec

_DECODER = msgspec.json.Decoder(float_hook=Decimal)
_FLOATS = msgspec.json.Decoder(float_hook=float)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def exact(text: bytes | str | msgspec.Raw) -> Any:
    """Decodes JSON; a number with a point or an exponent becomes a ``Decimal`` with all its digits.
    Raises ``msgspec.DecodeError``."""
    return _DECODER.decode(text)


def floats(text: bytes | str | msgspec.Raw) -> Any:
    """Decodes JSON with ordinary floats; a number beyond them is an infinity. Raises
    ``msgspec.DecodeError``."""
    return _FLOATS.decode(text)


def exact_text(data: Any) -> bytes:
    """Encodes data as JSON; a ``Decimal`` is written as a number with all its digits."""
    return _ENCODER.encode(data)


def with_floats(data: Any) -> Any:
    """Returns decoded JSON data in which each ``Decimal`` is a float where a float has all of its
    digits."""
    if isinstance(data, dict):
        return {key: with_floats(value) for key, value in cast(dict[str, Any], data).items()}
    if isinstance(data, list):
        return [with_floats(value) for value in cast(list[Any], data)]
    if isinstance(data, Decimal):
        number = float(data)
        return number if Decimal(repr(number)) == data else data
    return data


def as_doubles(data: Any) -> Any:
    """Returns decoded JSON data in which each number is the nearest double, as in a program that
    keeps no more digits; a number beyond them is an infinity."""
    if isinstance(data, dict):
        return {key: as_doubles(value) for key, value in cast(dict[str, Any], data).items()}
    if isinstance(data, list):
        return [as_doubles(value) for value in cast(list[Any], data)]
    return _double(data) if _is_number(data) else data


def may_be_rounded(data: Any) -> bool:
    """Returns whether a program that keeps numbers as doubles may have written this decoded JSON
    data: each number is its nearest double, to as many digits as it has."""
    if isinstance(data, dict):
        return all(map(may_be_rounded, cast(dict[str, Any], data).values()))
    if isinstance(data, list):
        return all(map(may_be_rounded, cast(list[Any], data)))
    if not _is_number(data) or isinstance(data, float):
        return True
    double, number = _double(data), Decimal(data)
    if math.isinf(double):
        return False
    digits = "".join(map(str, number.as_tuple().digits)).strip("0")
    return Context(prec=len(digits) or 1).create_decimal(Decimal(double)) == number


def _is_number(data: Any) -> bool:
    return isinstance(data, int | float | Decimal) and not isinstance(data, bool)


def _double(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # of an int
        return math.inf if number > 0 else -math.inf
