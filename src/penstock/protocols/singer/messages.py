"""Declares Singer's wire structs: the messages of specification 0.3.0, ACTIVATE_VERSION and BATCH.

Field types are loose on purpose: a field of a wrong type must not make a whole line unreadable.
Types of messages are case-insensitive (specification, Output), so they are compared through
:func:`word`. Not here: the meaning of messages (``record_reader``, ``state``).
"""

from enum import StrEnum
from typing import Any

import msgspec


class MessageType(StrEnum):
    record = "RECORD"
    schema = "SCHEMA"
    state = "STATE"
    activate_version = "ACTIVATE_VERSION"
    batch = "BATCH"


class ReplicationMethod(StrEnum):
    full_table = "FULL_TABLE"
    incremental = "INCREMENTAL"
    log_based = "LOG_BASED"


class Inclusion(StrEnum):
    available = "available"
    automatic = "automatic"
    unsupported = "unsupported"


ABSENT = msgspec.Raw(b"null")  # the default of every Raw field: compare by identity


class Line(msgspec.Struct, gc=False):
    """Any message, with the fields of a RECORD: ``record`` stays bytes, a slice of its chunk.
    ``time_extracted``: RFC 3339 text."""

    type: str
    stream: Any = None
    record: msgspec.Raw = ABSENT
    version: Any = None
    time_extracted: Any = None


class MessageHead(msgspec.Struct, gc=False):
    """The type and the stream of any message."""

    type: str
    stream: Any = None


class Message(msgspec.Struct, gc=False):
    """Any message but a RECORD. ``schema``: JSON Schema; ``value``: a state, exactly as sent;
    ``encoding`` and ``manifest``: of a BATCH."""

    type: str
    stream: Any = None
    schema: msgspec.Raw = ABSENT
    key_properties: Any = None
    bookmark_properties: Any = None
    value: msgspec.Raw = ABSENT
    version: Any = None
    encoding: Any = None
    manifest: Any = None


class About(msgspec.Struct):
    """The output of ``--about --format=json``. ``settings``: JSON Schema of the configuration."""

    capabilities: list[Any] = []
    settings: dict[str, Any] = {}
    name: Any = None
    version: Any = None
    sdk_version: Any = None


def word(type_: str) -> str:
    """Returns a message's type in the spelling of :class:`MessageType`."""
    return type_.upper()
