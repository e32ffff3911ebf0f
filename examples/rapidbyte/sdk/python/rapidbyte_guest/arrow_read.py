"""Columns from an Arrow IPC stream, without any library.

Types that the protocol names and that have a plain layout; another (nested, dictionary) is
an error that names the column. A zone of timestamps is dropped: the values are UTC whatever it is.
Bodies are not compressed: the host never does that to what a guest sees. Sources: Arrow's columnar
format, Message.fbs and Schema.fbs. Neighbours: ``arrow`` (types), ``arrow_write`` (the way there).
"""

import struct
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any

from rapidbyte_guest.arrow import TYPES, WIDE, Column, layout_of, scale_of

_SCHEMA, _BATCH = 1, 3
_SIGNED, _DAY = 1, 1
_BY_LAYOUT = {(t.tag, *(v for _, v in sorted(t.fields.values()))): n for n, t in TYPES.items()}


class NotReadable(ValueError):
    """It is no Arrow stream, or has a type that is not read here."""


class _Table:
    """A flatbuffers table: fields by slot."""

    def __init__(self, data: memoryview, at: int) -> None:
        self.data, self.at = data, at
        self._vtable = at - struct.unpack_from("<i", data, at)[0]
        self._size = struct.unpack_from("<H", data, self._vtable)[0]

    def place(self, slot: int) -> int:
        """0: it is absent."""
        entry = 4 + 2 * slot
        if entry >= self._size:
            return 0
        distance = struct.unpack_from("<H", self.data, self._vtable + entry)[0]
        return self.at + distance if distance else 0

    def scalar(self, slot: int, form: str, otherwise: int = 0) -> int:
        place = self.place(slot)
        return struct.unpack_from("<" + form, self.data, place)[0] if place else otherwise

    def follow(self, slot: int) -> int:
        place = self.place(slot)
        return place + struct.unpack_from("<I", self.data, place)[0] if place else 0

    def table(self, slot: int) -> "_Table":
        where = self.follow(slot)
        if not where:
            raise NotReadable("a part of its metadata is missing")
        return _Table(self.data, where)

    def text(self, slot: int) -> str:
        where = self.follow(slot)
        return bytes(self._counted(where, 1)).decode() if where else ""

    def tables(self, slot: int) -> list["_Table"]:
        where = self.follow(slot)
        if not where:
            return []
        count = struct.unpack_from("<I", self.data, where)[0]
        places = range(where + 4, where + 4 + 4 * count, 4)
        return [_Table(self.data, p + struct.unpack_from("<I", self.data, p)[0]) for p in places]

    def pairs(self, slot: int) -> list[tuple[int, int]]:
        """A vector of structs of two 64-bit numbers."""
        where = self.follow(slot)
        return list(struct.iter_unpack("<qq", self._counted(where, 16))) if where else []

    def _counted(self, where: int, size: int) -> memoryview:
        count = struct.unpack_from("<I", self.data, where)[0]
        return self.data[where + 4 : where + 4 + count * size]


def batches(stream: bytes) -> Iterator[list[Column]]:
    """Each record batch of the stream. Raises :class:`NotReadable`."""
    try:
        yield from _batches(memoryview(stream))
    except (struct.error, UnicodeDecodeError, IndexError) as e:
        raise NotReadable(f"this is no Arrow stream: {e}") from e


def _batches(data: memoryview) -> Iterator[list[Column]]:
    at = 0
    fields: list[tuple[str, str]] = []
    while at < len(data):
        marker, size = struct.unpack_from("<Ii", data, at)
        if marker != 0xFFFFFFFF:
            raise NotReadable("a message does not begin with its marker")
        if size == 0:
            return
        message = _Table(data, at + 8 + struct.unpack_from("<I", data, at + 8)[0])
        begin = at + 8 + size
        at = begin + message.scalar(3, "q")
        if at > len(data):
            raise NotReadable("it ends in the middle of a message")
        kind, header = message.scalar(1, "B"), message.table(2)
        if kind == _SCHEMA:
            fields = [(field.text(0), _type_of(field)) for field in header.tables(1)]
        elif kind == _BATCH:
            yield _columns(fields, header, data[begin:at])
        else:
            raise NotReadable("it has dictionaries, which are not read here")


def _type_of(field: _Table) -> str:
    tag = field.scalar(2, "B")
    kind = field.table(3)
    parts: tuple[int, ...] = ()
    if tag == 2:
        parts = (kind.scalar(1, "B"), kind.scalar(0, "i"))
    elif tag in (3, 10):
        parts = (kind.scalar(0, "h"),)
    elif tag == 7 and kind.scalar(2, "i", 128) == 128:
        return f"decimal128({kind.scalar(0, 'i')},{kind.scalar(1, 'i')})"
    elif tag == 8:
        parts = (kind.scalar(0, "h", _DAY),)
    found = _BY_LAYOUT.get((tag, *parts))
    if found is None or field.place(4):
        raise NotReadable(f"column {field.text(0)} has a type that is not read here (tag {tag})")
    return found


def _columns(fields: list[tuple[str, str]], header: _Table, body: memoryview) -> list[Column]:
    if header.place(3):
        raise NotReadable("its body is compressed")
    rows = header.scalar(0, "q")
    counts, places = header.pairs(1), iter(header.pairs(2))

    def buffer() -> memoryview:
        offset, length = next(places)
        if offset + length > len(body):
            raise NotReadable("a buffer lies beyond its message")
        return body[offset : offset + length]

    out: list[Column] = []
    for (name, kind), (_, nulls) in zip(fields, counts, strict=True):
        values: list[Any] = [None] * rows
        if kind != "null":
            valid = buffer()
            values = _values(kind, rows, buffer)
            if nulls:
                kept = _from_bits(valid, rows)
                values = [v if k else None for v, k in zip(values, kept, strict=True)]
        out.append(Column(name, kind, values))
    return out


def _from_bits(raw: memoryview, rows: int) -> list[bool]:
    digits = format(int.from_bytes(raw, "little"), f"0{rows}b") if rows else ""
    return [digit == "1" for digit in digits[: -rows - 1 : -1]]


def _values(kind: str, rows: int, buffer: Any) -> list[Any]:
    layout = layout_of(kind)
    if (scale := scale_of(kind)) is not None:
        raw = bytes(buffer()[: rows * 16])
        whole = [
            int.from_bytes(raw[i : i + 16], "little", signed=True) for i in range(0, len(raw), 16)
        ]
        return [Decimal(v).scaleb(-scale, WIDE) for v in whole]
    if layout.code is not None:
        width = struct.calcsize(layout.code)
        return buffer()[: rows * width].cast(layout.code).tolist()
    if layout.offsets is None:
        return _from_bits(buffer(), rows)
    width = struct.calcsize(layout.offsets)
    ends = buffer()[: (rows + 1) * width].cast(layout.offsets).tolist()
    raw = bytes(buffer())
    if not kind.endswith("utf8"):
        return [raw[a:b] for a, b in pairwise(ends)]
    if raw.isascii():  # one decoding for all
        text = raw.decode()
        return [text[a:b] for a, b in pairwise(ends)]
    # What lies under a null may be anything.
    return [raw[a:b].decode(errors="replace") for a, b in pairwise(ends)]
