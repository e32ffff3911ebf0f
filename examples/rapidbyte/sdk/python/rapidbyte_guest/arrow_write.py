"""An Arrow IPC stream (schema, one record batch, end) from columns, without any library.

Flatbuffers are built by hand, from their end to their beginning. Sources: Arrow's columnar format,
Message.fbs and Schema.fbs. Neighbours: ``arrow`` (types), ``arrow_read`` (the way back).
"""

import struct
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from rapidbyte_guest.arrow import WIDE, Column, layout_of, scale_of

_CONTINUE = b"\xff\xff\xff\xff"
_END = _CONTINUE + b"\0\0\0\0"
_SCHEMA, _BATCH = 1, 3
_VERSION = 4
"""Of the metadata: V5."""


class _Builder:
    """Offsets count from the end, which stands still while the beginning grows."""

    def __init__(self) -> None:
        self.data = bytearray()

    def _pad(self, size: int, extra: int = 0) -> None:
        self.data[:0] = b"\0" * (-(len(self.data) + extra) % size)

    def scalar(self, form: str, value: int) -> None:
        self._pad(struct.calcsize("<" + form))
        self.data[:0] = struct.pack("<" + form, value)

    def offset(self, target: int) -> None:
        self._pad(4)
        self.data[:0] = struct.pack("<I", len(self.data) + 4 - target)

    def string(self, text: str) -> int:
        raw = text.encode()
        self._pad(4, len(raw) + 1)
        self.data[:0] = struct.pack("<I", len(raw)) + raw + b"\0"
        return len(self.data)

    def offsets(self, targets: Sequence[int]) -> int:
        self._pad(4, 4 * len(targets))
        for target in reversed(targets):
            self.offset(target)
        self.data[:0] = struct.pack("<I", len(targets))
        return len(self.data)

    def structs(self, raw: bytes, count: int) -> int:
        self._pad(8, len(raw))
        self.data[:0] = struct.pack("<I", count) + raw
        return len(self.data)

    def table(self, fields: dict[int, tuple[str, int]]) -> int:
        """``fields``: slot -> (struct form, or "O" for an offset; value)."""
        start, places = len(self.data), dict[int, int]()
        for slot, (form, value) in fields.items():
            self.offset(value) if form == "O" else self.scalar(form, value)
            places[slot] = len(self.data)
        self._pad(4)
        self.data[:0] = b"\0\0\0\0"
        table = len(self.data)
        slots = max(fields, default=-1) + 1
        entries = [table - places[i] if i in places else 0 for i in range(slots)]
        self.data[:0] = struct.pack(f"<HH{slots}H", 4 + 2 * slots, table - start, *entries)
        at = len(self.data) - table
        self.data[at : at + 4] = struct.pack("<i", len(self.data) - table)
        return table


def _message(tag: int, header: Callable[[_Builder], int], body: int) -> bytes:
    builder = _Builder()
    where = header(builder)
    root = builder.table({1: ("B", tag), 0: ("h", _VERSION), 2: ("O", where), 3: ("q", body)})
    builder.data[:0] = b"\0" * (-(len(builder.data) + 4) % 8)
    builder.offset(root)
    return _CONTINUE + struct.pack("<i", len(builder.data)) + bytes(builder.data)


@lru_cache
def _schema(described: tuple[tuple[str, str], ...]) -> bytes:
    def header(builder: _Builder) -> int:
        fields: list[int] = []
        for name, kind in described:
            layout = layout_of(kind)
            named, typed = builder.string(name), builder.table(dict(layout.fields))
            none = builder.offsets([])
            fields.append(
                builder.table(
                    {1: ("B", 1), 2: ("B", layout.tag), 0: ("O", named), 3: ("O", typed),
                     5: ("O", none)}
                )
            )  # fmt: skip
        return builder.table({1: ("O", builder.offsets(fields))})

    return _message(_SCHEMA, header, 0)


def _bits(values: Sequence[Any]) -> bytes:
    if not values:
        return b""
    digits = bytes([49 if value else 48 for value in reversed(values)])
    return int(digits, 2).to_bytes((len(values) + 7) // 8, "little")


def _buffers(kind: str, values: Sequence[Any], nulls: int) -> list[bytes]:
    """After the validity."""
    layout = layout_of(kind)
    if layout.code is not None:
        zero = 0.0 if layout.code in "fd" else 0
        filled = [zero if v is None else v for v in values] if nulls else values
        return [array(layout.code, filled).tobytes()]
    if (scale := scale_of(kind)) is not None:
        whole = [0 if v is None else int(v.scaleb(scale, WIDE)) for v in values]
        return [b"".join([v.to_bytes(16, "little", signed=True) for v in whole])]
    if layout.offsets is None:
        return [_bits(values)]
    text = kind.endswith("utf8")
    pieces = [b"" if v is None else v.encode() if text else v for v in values]
    ends, end = array(layout.offsets, [0]), 0
    for piece in pieces:
        end += len(piece)
        ends.append(end)
    return [ends.tobytes(), b"".join(pieces)]


def encode(columns: Sequence[Column]) -> bytes:
    """One batch as one stream; all fields nullable. Raises what Python raises for a value that is
    not of its column's type (``TypeError``, ``OverflowError``, ``AttributeError``)."""
    rows = len(columns[0].values)
    body, places, nodes = bytearray(), bytearray(), bytearray()
    for name, kind, values in columns:
        if len(values) != rows:
            raise ValueError(f"column {name} has {len(values)} values, not {rows}")
        nulls = rows if kind == "null" else values.count(None)
        nodes += struct.pack("<qq", rows, nulls)
        if kind == "null":
            continue
        valid = _bits([v is not None for v in values]) if nulls else b""
        for raw in (valid, *_buffers(kind, values, nulls)):
            places += struct.pack("<qq", len(body), len(raw))
            body += raw
            body += b"\0" * (-len(raw) % 8)

    def header(builder: _Builder) -> int:
        buffers = builder.structs(bytes(places), len(places) // 16)
        counts = builder.structs(bytes(nodes), len(columns))
        return builder.table({0: ("q", rows), 1: ("O", counts), 2: ("O", buffers)})

    schema = _schema(tuple((c.name, c.type) for c in columns))
    return b"".join((schema, _message(_BATCH, header, len(body)), body, _END))
