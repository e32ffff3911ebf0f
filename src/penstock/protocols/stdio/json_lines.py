"""What lines of JSON have in common whatever the protocol: is it one object a line, which text only
looks like noise, and what Python's json writes that JSON does not have.

Pure functions over bytes. Neighbours: ``protocols/*/lines.py`` decode messages; the decoder of
values (``codec``) knows what becomes of NaN.
"""

import re
from collections.abc import Iterable
from operator import itemgetter

import msgspec

from penstock.model.catalog import StreamId

FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
OPEN = ord("{")
FIRST = itemgetter(0)

_STREAM_MARK = re.compile(rb'"stream"\s*:\s*("(?:[^"\\]|\\.)*")')
# Floats that are no numbers, half a surrogate pair.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\bInfinity\b|\bNaN\b')
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
    rb"|\\."
)
_HALF = 6  # bytes of one escape


def split(data: bytes) -> list[bytes]:
    """Lines without their newlines; none for what follows the last newline if nothing does."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def one_a_line(lines: list[bytes], messages: int) -> bool:
    """Is every line exactly one of ``messages`` objects? ``decode_lines`` takes two values on a
    line and one over two lines; a protocol of lines does not."""
    return len(lines) == messages and all(lines) and set(map(FIRST, lines)) == {OPEN}


def is_json(raw: bytes) -> bool:
    try:
        msgspec.json.decode(raw)
    except FAULTS:
        return False
    return True


def streams_named(raw: bytes) -> set[str]:
    """Every word that stands as ``"stream": "..."`` in a broken line."""
    try:
        return {msgspec.json.decode(m, type=str) for m in _STREAM_MARK.findall(raw)}
    except FAULTS:
        return set()


def the_one(names: Iterable[str], known: Iterable[StreamId]) -> StreamId | None:
    """The one known stream that can be meant."""
    wanted = set(names)
    meant = [s for s in known if s.name in wanted]
    return meant[0] if len(meant) == 1 else None


def masked(raw: bytes) -> bytes | None:
    """The line as JSON, with values of the same length in the place of what only Python calls
    JSON, so that places stay what they are; None where it has nothing of that kind."""
    found = _TOKEN.sub(_mask, raw)
    return None if found == raw else found


def unmasked(raw: bytes, cover: bytes, body: bytes, key: bytes) -> bytes | None:
    """The text in ``raw`` of the object that is ``body`` in ``cover`` (of :func:`masked`), the
    value of the property ``key``. None where it cannot be found or is no object."""
    place = re.search(rb'"' + key + rb'"\s*:\s*(' + re.escape(body) + rb")", cover)
    if place is None or not body.startswith(b"{"):
        return None
    return raw[place.start(1) : place.end(1)]


def _mask(match: re.Match[bytes]) -> bytes:
    token = match.group()
    if token.startswith(b'"'):
        return _ESCAPE.sub(_mask_half, token) if b"\\u" in token else token
    return b"-" + b"1" * (len(token) - 1) if token.startswith(b"-") else b"1" * len(token)


def _mask_half(match: re.Match[bytes]) -> bytes:
    return match.group() if len(match.group()) != _HALF else b"\\u0000"
