"""JSON data in which no number loses a digit, and back.

For states and for fields that nobody declared; records are ``codec.decode``'s. Neighbours:
``protocols.stdio.wire_struct`` and the protocols' states.
"""

from decimal import Decimal
from typing import Any

import msgspec

_DECODER = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def exact(text: bytes | str | msgspec.Raw) -> Any:
    """JSON data in which no number loses a digit. Raises ``msgspec.DecodeError``."""
    return _DECODER.decode(text)


def exact_text(data: Any) -> bytes:
    """The opposite of :func:`exact`."""
    return _ENCODER.encode(data)
