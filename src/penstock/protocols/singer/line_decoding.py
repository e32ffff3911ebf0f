"""A line on its own -> an envelope, where it is one in any way.

Pure. Neighbours: ``record_reader`` decodes whole chunks, and comes here for what no chunk could be.
"""

import msgspec

from penstock.protocols.singer.messages import Line, MessageType, word
from penstock.protocols.stdio.json_lines import FAULTS, masked, unmasked

LINE = msgspec.json.Decoder(Line)


def text_of(raw: msgspec.Raw) -> str | None:
    """None: not UTF-8, which the envelope does not ask for."""
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError:
        return None


def decoded(raw: bytes) -> Line | None:
    if not raw.startswith(b"{"):
        raw = raw.lstrip()
        if not raw.startswith(b"{"):
            return None
    try:
        return LINE.decode(raw)
    except FAULTS:
        return None


def with_python_values(raw: bytes) -> Line | None:
    """A RECORD that holds what only Python calls JSON: decoded around it, its body as it came. None
    where that is not all that is wrong with the line."""
    cover = masked(raw)
    line = None if cover is None else decoded(cover)
    if cover is None or line is None or word(line.type) != MessageType.record:
        return None
    body = unmasked(raw, cover, bytes(line.record), b"record")
    if body is None:
        return None
    line.record = msgspec.Raw(body)
    return line
