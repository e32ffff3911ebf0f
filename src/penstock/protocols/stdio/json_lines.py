"""Splits and checks lines of JSON, whatever the protocol: one object a line, stream names in broken
lines, and the tokens that Python's ``json`` writes and JSON does not have (NaN, half surrogates).

Pure functions over bytes. Not here: messages (``protocols/*/record_reader.py``), the value that a
NaN becomes (``codec``).
"""

import mmap
import re
from collections.abc import Iterable
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.codec.exact_json import floats
from penstock.codec.untyped import pa
from penstock.model.catalog import StreamId

T = TypeVar("T")

FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
OPEN, CLOSE = ord("{"), ord("}")
FIRST = itemgetter(0)

_BREAK = re.compile(rb"\}[ \t\r]*\n\{")
_STREAM_MARK = re.compile(rb'"stream"\s*:\s*("(?:[^"\\]|\\.)*")')
# NaN and the infinities; `_ESCAPE` also finds half a surrogate pair.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\bInfinity\b|\bNaN\b')
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
    rb"|\\."
)
_LETTER = re.compile(rb"\\u00([46][1-9a-fA-F]|[57][0-9aA])")
_HALF = 6  # bytes of one escape


def split(data: bytes) -> list[bytes]:
    """Splits into lines without their newlines. Data that ends with a newline has no empty last
    line."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def one_a_line(data: bytes, messages: int) -> bool:
    """Returns whether each line is exactly one object, given that ``messages`` were decoded from
    all lines. msgspec's ``decode_lines`` also accepts two values on a line and one value over
    several lines: lines that begin with an object end with one, unless it continues on the next
    line."""
    begins, find, at = [0], data.find, 0
    while at := find(b"\n", at) + 1:
        begins.append(at)
    if begins[-1] == len(data):
        begins.pop()
    if len(begins) != messages or not begins or set(itemgetter(0, *begins)(data)) != {OPEN}:
        return False
    before = [begin - 2 for begin in begins[1:]]  # ends of all lines but the last
    ends = set(itemgetter(*before, before[0])(data)) if before else {CLOSE}
    if ends == {CLOSE}:
        return True
    return ends <= {CLOSE, *b" \t\r"} and len(before) == len(_BREAK.findall(data))


def is_json(raw: bytes) -> bool:
    try:
        floats(raw)
    except FAULTS:
        return False
    return True


def too_deep(raw: bytes) -> bool:
    """Returns whether it is JSON that is nested too deeply to be read: some 400 objects."""
    try:
        msgspec.json.decode(raw)
    except RecursionError:
        return True
    except FAULTS:
        return False
    return False


def line_in(file: Path, decoder: msgspec.json.Decoder[T]) -> T | None:
    """Decodes the line in a file, of any length, without a copy; None where ``decoder`` cannot read
    it. ``decoder`` must be without ``Raw`` parts."""
    with (
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as line,
        suppress(*FAULTS),
    ):
        return decoder.decode(line)
    return None


def with_letters(raw: bytes) -> bytes:
    """Returns the line with letters in place of their escapes (``\\u0041``), so that a pattern
    finds words in any spelling."""
    return _LETTER.sub(_letter, raw) if b"\\u00" in raw else raw


def streams_named(raw: bytes) -> set[str]:
    """Returns the values of every ``"stream": "..."`` in a line that is not JSON."""
    try:
        found = _STREAM_MARK.findall(with_letters(raw))
        return {msgspec.json.decode(m, type=str) for m in found}
    except FAULTS:
        return set()


def the_one(names: Iterable[str], known: Iterable[StreamId]) -> StreamId | None:
    """Returns the only known stream with one of these names; None: there is none, or more than
    one."""
    wanted = set(names)
    matches = [s for s in known if s.name in wanted]
    return matches[0] if len(matches) == 1 else None


def masked(raw: bytes) -> bytes | None:
    """Replaces the tokens that only Python's ``json`` reads by JSON of the same length, so that
    offsets stay: numbers by an empty list, which is never mistaken for a number. None where the
    line has no such token."""
    replaced = _TOKEN.sub(_mask, raw)
    return None if replaced == raw else replaced


def utf8_escapes(raw: bytes) -> bytes:
    """Replaces an escaped surrogate pair by its character, and half a pair by a question mark:
    JavaScript writes one where a text was cut inside a character, and UTF-8 cannot encode it."""
    return _ESCAPE.sub(_character, raw)


def unmasked(raw: bytes, cover: bytes, body: msgspec.Raw) -> msgspec.Raw:
    """Returns the original text of a value. ``cover``: the line after :func:`masked`; ``body``: the
    value decoded from it, a slice of ``cover``. Its address gives its position, since the same
    bytes may occur elsewhere in the line."""
    start = pa.py_buffer(body).address - pa.py_buffer(cover).address
    return msgspec.Raw(raw[start : start + len(memoryview(body))])


def _letter(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1].decode())


def _mask(match: re.Match[bytes]) -> bytes:
    token = match.group()
    if token.startswith(b'"'):
        return _ESCAPE.sub(_mask_half, token) if b"\\u" in token else token
    return b"[]".ljust(len(token))


def _mask_half(match: re.Match[bytes]) -> bytes:
    return match.group() if len(match.group()) != _HALF else b"\\u0000"


def _character(match: re.Match[bytes]) -> bytes:
    found = match.group()
    if len(found) == 2 * _HALF:
        return msgspec.json.decode(b'"' + found + b'"', type=str).encode()
    return b"?" if len(found) == _HALF else found
