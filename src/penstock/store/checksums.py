"""Adds a checksum to JSON text that the store keeps, and checks it when the text is read.

The checksum is in the same value as the text, so that no statement writes one without the other: a
line of 32 blanks after the JSON, a space for each 0 and a tab for each 1 of the CRC-32. JSON
parsers ignore blanks after the text, so earlier versions of Penstock read such a value unchanged;
the values that they write have no checksum, which is accepted. The CRC covers the text, byte for
byte, and ``about``, which identifies the value. Connector keys, which are not JSON, have the
checksum in bytes that no UTF-8 text has. Not here: what follows from damage (``damage``)."""

import re
import zlib

_BLANKS = re.compile(r"\n([ \t]{32})\Z")
_NEARLY = re.compile(r"\n[^\n]{32}\Z")
_MARK = b"\xff"  # never a byte of UTF-8 text
_TAIL = 1 + 4
_TO_BLANKS, _TO_BITS = str.maketrans("01", " \t"), str.maketrans(" \t", "01")


class Mismatch(ValueError):
    """Raised for a value that does not have the checksum that was stored with it."""


def sealed(text: str, about: str) -> str:
    """Returns JSON text with its checksum."""
    return f"{text}\n{f'{_crc(text, about):032b}'.translate(_TO_BLANKS)}"


def is_sealed(value: str) -> bool:
    """Returns whether a stored value has a checksum; values of earlier versions of Penstock have
    none."""
    return _BLANKS.search(value, max(0, len(value) - 33)) is not None


def opened(value: str, about: str) -> str:
    """Returns the JSON text of a stored value. Raises :class:`Mismatch`."""
    if not is_sealed(value):
        tail = value[-32:]
        if _NEARLY.search(value, max(0, len(value) - 33)) and _blanks(tail) >= 24:
            raise Mismatch(about)
        return value
    text = value[:-33]
    if int(value[-32:].translate(_TO_BITS), 2) != _crc(text, about):
        raise Mismatch(about)
    return text


def sealed_bytes(text: bytes, about: str) -> bytes:
    """Returns UTF-8 text with its checksum."""
    crc = zlib.crc32(text, zlib.crc32(about.encode("utf-8", "surrogatepass")))
    return text + _MARK + crc.to_bytes(4, "big")


def opened_bytes(value: bytes, about: str) -> bytes:
    """Returns the UTF-8 text of a stored value. Raises :class:`Mismatch`."""
    if value[-_TAIL : -_TAIL + 1] != _MARK:
        if _MARK in value:
            raise Mismatch(about)
        return value
    text = value[:-_TAIL]
    if sealed_bytes(text, about) != value:
        raise Mismatch(about)
    return text


def _blanks(text: str) -> int:
    return sum(character in " \t" for character in text)


def _crc(text: str, about: str) -> int:
    start = zlib.crc32(about.encode("utf-8", "surrogatepass"))
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), start)
