"""Gathers the lines of one JSON object that a connector spreads over several lines.

The protocol forbids that (Interface Invariants), but its pages print answers so, and connectors
written from them do. Bounded: what is no such object is given back as the lines that it was. Not
here: what becomes of it (``record_reader`` drops or rejects it, ``probe`` reads it).
"""

import re

from penstock.protocols.airbyte.enums import MessageType

MOST_BYTES = 64 * 1024 * 1024
PART = "part_of_a_message_spread_over_lines"
"""``SkippedItems.what`` of each such line."""

TYPES = frozenset(MessageType.__members__.values())

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
# How a line within a JSON value begins; a line of a log mostly begins otherwise.
_PART = re.compile(rb'\s*(?:["{}\[\],:0-9-]|true\b|false\b|null\b|$)')


class SpreadMessage:
    """The lines of an object that has begun and not ended. ``lines``: without their newlines;
    empty: none has begun."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._depth = self._size = 0

    def begins(self, line: bytes) -> bool:
        """Takes a line that is not JSON where an object begins in it and does not end."""
        depth = _depth(line) if line.lstrip().startswith(b"{") else None
        if not depth or depth < 0:
            return False
        self.lines, self._depth, self._size = [line], depth, len(line)
        return True

    def goes_on(self, line: bytes) -> bool:
        """Takes the next line where it may be a part of the object."""
        depth = _depth(line) if _PART.match(line) else None
        if depth is None or self._depth + depth < 0 or self._size + len(line) > MOST_BYTES:
            return False
        self.lines.append(line)
        self._depth += depth
        self._size += len(line)
        return True

    def ended(self) -> bool:
        """Whether the object has ended: its text is that of :meth:`release`."""
        return bool(self.lines) and self._depth == 0

    def release(self) -> list[bytes]:
        """Returns the lines, and holds none any more."""
        lines, self.lines = self.lines, []
        return lines


def _depth(line: bytes) -> int | None:
    """How many objects and lists more begin in a line than end; None: a text does not end in it."""
    bare = _TEXT.sub(b"", line)
    if b'"' in bare:
        return None
    return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")
