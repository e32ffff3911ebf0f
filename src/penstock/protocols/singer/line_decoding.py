"""Decodes a single line as a message, tolerating what only Python's ``json`` writes.

Pure. Not here: whole chunks (``record_reader``, which calls this for a chunk that it cannot decode
in one call).
"""

import msgspec

from penstock.protocols.singer.messages import ABSENT, Line
from penstock.protocols.stdio.json_lines import FAULTS, masked, unmasked

LINE = msgspec.json.Decoder(Line, float_hook=float)


def text_of(raw: msgspec.Raw) -> str | None:
    """Returns the text of a raw JSON value; None where it is not UTF-8, which decoding a message
    does not check."""
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError:
        return None


def decoded(raw: bytes) -> Line | None:
    """Decodes a line; None where it is not a message. White space before it is allowed."""
    if not raw.startswith(b"{"):
        raw = raw.lstrip()
        if not raw.startswith(b"{"):
            return None
    try:
        return LINE.decode(raw)
    except FAULTS:
        return None


def with_python_values(raw: bytes) -> tuple[Line, bytes] | None:
    """Decodes a message with values that only Python's ``json`` reads (NaN); the body of a RECORD
    stays as sent. Also returns the line with valid JSON in their place; None where the line has any
    other defect."""
    raw = raw.lstrip()
    cover = masked(raw) if raw.startswith(b"{") else None
    line = None if cover is None else decoded(cover)
    if cover is None or line is None:
        return None
    if line.record is not ABSENT:
        line.record = unmasked(raw, cover, line.record)
    return line, cover
