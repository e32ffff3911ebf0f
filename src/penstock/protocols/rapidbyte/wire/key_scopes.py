"""Validates the scope and the name of a key of a connector's own state, and returns its owner.

Not here: storing keys (``store.keys``, the port that hosts call). Source: the protocol, section
4.3.
"""

from enum import IntEnum

from penstock.protocols.rapidbyte.wire.messages import refusal
from penstock.store.keys import KeyAddress

LONGEST_KEY = 1024  # bytes


class Scope(IntEnum):
    """Who shares a key: the whole pipeline, one of its streams, one position in the pipeline."""

    pipeline = 0
    stream = 1
    instance = 2


def key_place(scope: int, key: str, *, stream: str, instance: str) -> KeyAddress:
    """Returns the address of a key in the store. ``stream``, ``instance``: the owners of keys of
    those two scopes. Raises ``Refusal`` (``INVALID_SCOPE``, ``KEY_TOO_LONG``)."""
    if scope not in tuple(Scope):
        raise refusal("config", "INVALID_SCOPE", f"invalid state scope: {scope}")
    if len(key.encode()) > LONGEST_KEY:
        raise refusal("config", "KEY_TOO_LONG", f"a key has at most {LONGEST_KEY} bytes")
    kind = Scope(scope)
    owner = {Scope.pipeline: "", Scope.stream: stream, Scope.instance: instance}[kind]
    return KeyAddress(kind.name, owner, key)
