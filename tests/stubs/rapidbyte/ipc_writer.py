"""An Arrow IPC stream (schema, one record batch, end) without any library, for guests written in
Python: int64, double, utf8 and bool columns, nullable. Flatbuffers are built by hand, from their
end to their beginning."""

import struct

_TYPES = {  # union tag of the type in Schema.fbs, and the fields of its table
    "int64": (2, {0: ("i", 64), 1: ("B", 1)}),
    "double": (3, {0: ("h", 2)}),
    "utf8": (5, {}),
    "bool": (6, {}),
}
_CONTINUE = b"\xff\xff\xff\xff"
_END = _CONTINUE + b"\0\0\0\0"


class _Builder:
    def __init__(self):
        self.data = bytearray()
        self.align = 1

    def _prepare(self, size, extra=0):
        self.align = max(self.align, size)
        self.data[:0] = b"\0" * (-(len(self.data) + extra) % size)

    def scalar(self, form, value):
        self._prepare(struct.calcsize("<" + form))
        self.data[:0] = struct.pack("<" + form, value)

    def offset(self, target):
        self._prepare(4)
        self.data[:0] = struct.pack("<I", len(self.data) + 4 - target)

    def string(self, text):
        raw = text.encode()
        self._prepare(4, len(raw) + 1)
        self.data[:0] = struct.pack("<I", len(raw)) + raw + b"\0"
        return len(self.data)

    def offsets(self, targets):
        self._prepare(4, 4 * len(targets))
        for target in reversed(targets):
            self.offset(target)
        self.data[:0] = struct.pack("<I", len(targets))
        return len(self.data)

    def structs(self, raw, count):
        self._prepare(4, len(raw))
        self._prepare(8, len(raw))
        self.data[:0] = struct.pack("<I", count) + raw
        return len(self.data)

    def table(self, fields):
        """``fields``: slot -> (struct form, or "O" for an offset; value)."""
        start, places = len(self.data), {}
        small_first = sorted(
            fields.items(), key=lambda kv: struct.calcsize(kv[1][0].replace("O", "I"))
        )
        for slot, (form, value) in small_first:
            self.offset(value) if form == "O" else self.scalar(form, value)
            places[slot] = len(self.data)
        self._prepare(4)
        self.data[:0] = b"\0\0\0\0"
        table = len(self.data)
        slots = max(fields, default=-1) + 1
        entries = [table - places[i] if i in places else 0 for i in range(slots)]
        self.data[:0] = struct.pack(f"<HH{slots}H", 4 + 2 * slots, table - start, *entries)
        at = len(self.data) - table
        self.data[at : at + 4] = struct.pack("<i", len(self.data) - table)
        return table

    def finish(self, root):
        self._prepare(max(self.align, 4), 4)
        self.offset(root)
        return bytes(self.data)


def _message(tag, header, body_size):
    builder = _Builder()
    root = builder.table(
        {0: ("h", 4), 1: ("B", tag), 2: ("O", header(builder)), 3: ("q", body_size)}
    )
    raw = builder.finish(root)
    raw += b"\0" * (-len(raw) % 8)
    return _CONTINUE + struct.pack("<i", len(raw)) + raw


def _bits(values):
    values = [bool(v) for v in values]
    values += [False] * (-len(values) % 8)
    return bytes(sum(1 << j for j in range(8) if values[i + j]) for i in range(0, len(values), 8))


def _buffers(kind, values):
    if kind == "int64":
        return [struct.pack(f"<{len(values)}q", *(v or 0 for v in values))]
    if kind == "double":
        return [struct.pack(f"<{len(values)}d", *(v or 0.0 for v in values))]
    if kind == "bool":
        return [_bits(values)]
    raw, offsets = [b"" if v is None else v.encode() for v in values], [0]
    for piece in raw:
        offsets.append(offsets[-1] + len(piece))
    return [struct.pack(f"<{len(offsets)}i", *offsets), b"".join(raw)]


def encode(columns):
    """``columns``: (name, type, values)."""
    rows = len(columns[0][2])

    def schema(builder):
        fields = []
        for name, kind, _ in columns:
            tag, inner = _TYPES[kind]
            named, typed, none = builder.string(name), builder.table(inner), builder.offsets([])
            fields.append(
                builder.table(
                    {0: ("O", named), 1: ("B", 1), 2: ("B", tag), 3: ("O", typed), 5: ("O", none)}
                )
            )
        return builder.table({1: ("O", builder.offsets(fields))})

    body, places, nodes = bytearray(), [], []
    for _, kind, values in columns:
        nulls = sum(v is None for v in values)
        nodes.append((rows, nulls))
        valid = _bits([v is not None for v in values]) if nulls else b""
        for raw in (valid, *_buffers(kind, values)):
            places.append((len(body), len(raw)))
            body += raw + b"\0" * (-len(raw) % 8)

    def batch(builder):
        buffers = builder.structs(b"".join(struct.pack("<qq", *p) for p in places), len(places))
        counts = builder.structs(b"".join(struct.pack("<qq", *n) for n in nodes), len(nodes))
        return builder.table({0: ("q", rows), 1: ("O", counts), 2: ("O", buffers)})

    return _message(1, schema, 0) + _message(3, batch, len(body)) + bytes(body) + _END
