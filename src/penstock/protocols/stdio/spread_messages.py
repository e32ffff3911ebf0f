"""Gathers the lines of one JSON object that a connector spreads over several lines.

Protocol pages print answers in this form, and so do connectors written from them. Bounded: if the
lines do not form an object, they are returned unchanged. Not here: the handling of the object
(Airbyte forbids it: ``record_reader`` drops or rejects it, ``probe`` reads it; Syncmaven's
``reply_reader`` reads it).
"""

import re

MOST_BYTES = 64 * 1024 * 1024
PART = "part_of_a_message_spread_over_lines"
"""``SkippedItems.what`` of each such line."""

# Text and JSON5 comments may hold brackets that do not count.
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
_TEXT_5 = re.compile(_TEXT.pattern + rb"|'(?:[^'\\]|\\.)*'|//.*|/\*.*?\*/")
# How a line inside a JSON value begins; a log line mostly begins differently.
_BEGIN = rb'["{}\[\],:0-9-]|true\b|false\b|null\b|$'
_PART = re.compile(rb"\s*(?:" + _BEGIN + rb")")
_PART_5 = re.compile(rb"\s*(?:" + _BEGIN + rb"|'|//|/\*|[\w$]+\s*:)")


class SpreadMessage:
    """Holds the lines of an object that has begun and not ended. ``lines``: without their newlines;
    empty: none has begun. ``json5``: its names may be unquoted, and comments may occur."""

    def __init__(self, *, json5: bool = False) -> None:
        self.lines: list[bytes] = []
        self._text, self._part = (_TEXT_5, _PART_5) if json5 else (_TEXT, _PART)
        self._depth = self._size = 0

    def begins(self, line: bytes) -> bool:
        """Takes a line that is not JSON if an object begins in it and does not end."""
        start = line.lstrip()
        likely = start.startswith(b"{") and self._part.match(start, 1)
        depth = self._change(line) if likely else None
        if not depth or depth < 0:
            return False
        self.lines, self._depth, self._size = [line], depth, len(line)
        return True

    def goes_on(self, line: bytes) -> bool:
        """Takes the next line if it may be a part of the object."""
        depth = self._change(line) if self._part.match(line) else None
        if depth is None or self._depth + depth < 0 or self._size + len(line) > MOST_BYTES:
            return False
        self.lines.append(line)
        self._depth += depth
        self._size += len(line)
        return True

    def ended(self) -> bool:
        """Returns whether the object has ended: its text is that of :meth:`release`."""
        return bool(self.lines) and self._depth == 0

    def release(self) -> list[bytes]:
        """Returns the lines and forgets them."""
        lines, self.lines = self.lines, []
        return lines

    def _change(self, line: bytes) -> int | None:
        """Returns how many more objects and lists begin in a line than end; None: a text does not
        end in it."""
        bare = self._text.sub(b"", line)
        if b'"' in bare:
            return None
        return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")
