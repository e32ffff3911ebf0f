"""Makes the PNG of a screenshot small: at most 256 colours, as a page of text needs no more."""

import struct
import zlib
from collections import Counter


def small(png: bytes) -> bytes:
    """Returns a PNG of the same picture with a palette. ``png``: 8 bits, RGB or RGBA."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    size = {2: 3, 6: 4}[kind]
    assert depth == 8
    rows = _rows(zlib.decompress(_chunks(png, b"IDAT")), width * size, height, size)
    pixels = [row[at : at + 3] for row in rows for at in range(0, len(row), size)]
    counted = Counter(pixels)
    palette = [colour for colour, _ in counted.most_common(256)]
    places = {colour: n for n, colour in enumerate(palette)}
    for colour in counted:
        if colour not in places:
            places[colour] = min(range(len(palette)), key=lambda n: _far(colour, palette[n]))
    lines = bytes(places[p] for p in pixels)
    data = b"".join(b"\0" + lines[y * width : (y + 1) * width] for y in range(height))
    return (
        png[:8]
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
        + _chunk(b"PLTE", b"".join(palette))
        + _chunk(b"IDAT", zlib.compress(data, 9))
        + _chunk(b"IEND", b"")
    )


def _far(one: bytes, other: bytes) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)


def _chunks(png: bytes, wanted: bytes) -> bytes:
    found, at = b"", 8
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        found += png[at + 8 : at + 8 + length] if kind == wanted else b""
        at += length + 12
    return found


def _rows(data: bytes, length: int, height: int, size: int) -> list[bytes]:
    """The rows of a picture, each without its filter."""
    before, rows = bytearray(length), list[bytes]()
    for y in range(height):
        start = y * (length + 1)
        kind, row = data[start], bytearray(data[start + 1 : start + 1 + length])
        for i in range(length):
            left = row[i - size] if i >= size else 0
            corner = before[i - size] if i >= size else 0
            match kind:
                case 1:
                    add = left
                case 2:
                    add = before[i]
                case 3:
                    add = (left + before[i]) // 2
                case 4:
                    guess = left + before[i] - corner
                    order = (left, before[i], corner)
                    add = min(order, key=lambda v: abs(guess - v))
                case _:
                    break
            row[i] = (row[i] + add) & 255
        rows.append(bytes(row))
        before = row
    return rows
