"""A connector's own state: keys in three scopes, and what they may be.

Not here: where they are kept (``state.keys``, the port that hosts call). Source: the protocol,
section 4.3.
"""

from enum import IntEnum

from penstock.protocols.rapidbyte.wire.messages import refusal
from penstock.state.keys import Place

LONGEST_KEY = 1024  # bytes


class Scope(IntEnum):
    pipeline = 0
    stream = 1
    instance = 2


def place(scope: int, key: str, *, stream: str, instance: str) -> Place:
    """Raises ``Refusal`` (``INVALID_SCOPE``, ``KEY_TOO_LONG``)."""
    if scope not in tuple(Scope):
        raise refusal("config", "INVALID_SCOPE", f"invalid state scope: {scope}")
    if len(key.encode()) > LONGEST_KEY:
        raise refusal("config", "KEY_TOO_LONG", f"a key has at most {LONGEST_KEY} bytes")
    kind = Scope(scope)
    owner = {Scope.pipeline: "", Scope.stream: stream, Scope.instance: instance}[kind]
    return Place(kind.name, owner, key)
