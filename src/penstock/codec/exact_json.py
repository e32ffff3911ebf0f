"""Decodes and encodes JSON data so that no number loses a digit.

For states and for undeclared fields of messages. Not here: records (``codec.decode``). Neighbours:
``protocols.stdio.wire_struct`` and the protocols' states use it.
"""

from decimal import Decimal
from typing import Any

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
