"""Decodes and encodes JSON data so that no number loses a digit.

For states and for undeclared fields of messages. Not here: records (``codec.decode``). Neighbours:
``protocols.stdio.wire_struct`` and the protocols' states use it.
"""

from decimal import Decimal
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
