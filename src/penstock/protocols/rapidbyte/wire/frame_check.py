"""Decodes and validates a frame that a connector made: Arrow IPC bytes in, an Arrow table out.

The connector may be hostile: offsets beyond their data, text that is not UTF-8, a few bytes that
expand to gigabytes. Every defect raises ``Refusal`` with the code ``FRAME_DECODE``, whichever
exception Arrow uses for it. Not here: frames that Penstock made (``arrow_ipc``), extension types
(``extension_types``). Source: the protocol, section 6.
"""

import struct
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import pyarrow as pa

from penstock.codec.untyped import Array, ArrowField, ArrowSchema, ArrowType, Table
from penstock.codec.untyped import compute as pc
from penstock.protocols.rapidbyte.wire.compression import Bytes
from penstock.protocols.rapidbyte.wire.extension_types import stored, stored_schema
from penstock.protocols.rapidbyte.wire.messages import refusal


class FrameBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds the frames of one component instance: how many at once, bytes of one, bytes of all.
    ``pooled``: they also count in the pool of the process; False where the instance has its own
    memory limit, in which they count."""

    frames: int = 1024
    frame_bytes: int = 512 << 20
    all_bytes: int = 1 << 30
    pooled: bool = True


_FLAT = frozenset(
    kind.id
    for kind in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
        pa.uint32(), pa.uint64(), pa.float32(), pa.float64(), pa.date32(), pa.date64(),
        pa.timestamp("us"), pa.time32("s"), pa.time64("us"), pa.decimal128(1), pa.string(),
        pa.large_string(), pa.binary(), pa.large_binary(),
    )
)  # fmt: skip
"""Ids of the types whose values have their own buffers, with at least one bit each."""
MAX_ROWS = 16 << 20
MAX_BYTES = FrameBounds().frame_bytes
"""The most bytes of a frame's rows once decompressed and expanded: the bound of an uncompressed
frame."""
_OBJECT = 16  # minimum bytes of a value that is written as JSON by itself
_PIECE = 1 << 20  # bytes checked in one step
_LARGEST_SCALE = {32: 9, 64: 18, 128: 38, 256: 76}
"""The largest scale, by the bits of a decimal type, that has a Python value."""
_SHOWN = 400  # characters of Arrow's message
_BROKEN = (
    pa.ArrowException, OSError, ValueError, LookupError, MemoryError, NotImplementedError,
    OverflowError, RecursionError, struct.error,
)  # fmt: skip


def decode_frame(frame: Bytes) -> tuple[Table, int]:
    """Decodes a frame. Returns its rows, which share the frame's memory and have no extension types
    (a ``uuid`` is its 16 bytes, as for hosts that do not know the name), and an upper bound of
    their bytes after dictionaries and runs are expanded. Raises ``Refusal`` (``FRAME_DECODE``): an
    unsound frame, data behind the end of its stream, two columns of one name, more than
    ``MAX_ROWS`` rows or ``MAX_BYTES`` bytes."""
    with frame_errors(frame):
        _check_declared_sizes(frame)
        source = pa.BufferReader(pa.py_buffer(frame))
        with pa.ipc.open_stream(source) as reader:
            given = reader.schema
            schema = stored_schema(given)
            _check_names(schema)
            rows = size = 0
            batches: list[object] = []
            for read in reader:
                batch = read if schema is given else stored(read, schema)
                rows += batch.num_rows
                if rows > MAX_ROWS:
                    raise ValueError(f"more than {MAX_ROWS} rows")
                batch.validate(full=True)
                size += max(batch.get_total_buffer_size(), _checked_size(batch))
                if size > MAX_BYTES:
                    raise ValueError(f"its rows are more than {MAX_BYTES} bytes")
                batches.append(batch)
            _check_rest(frame, source.tell())
        return pa.Table.from_batches(batches, schema), max(size, len(frame))


def _checked_size(batch: Any) -> int:
    """Returns the bytes of a batch after expansion. Raises ``ArrowInvalid``
    (:func:`_check_null_views`)."""
    if all(kind.id in _FLAT for kind in batch.schema.types):
        return cast(int, batch.nbytes)
    for column in batch.columns:
        _check_null_views(column)
    return sum(map(_expanded_bytes, batch.columns))


@contextmanager
def frame_errors(frame: Bytes) -> Generator[None]:
    """Turns every exception that bad Arrow data causes in the block into a ``Refusal``
    (``FRAME_DECODE``)."""
    try:
        yield
    except _BROKEN as e:
        raise refusal(
            "frame",
            "FRAME_DECODE",
            f"a frame of {len(frame)} bytes is not a sound Arrow IPC stream: {str(e)[:_SHOWN]}",
            scope="batch",
        ) from e


def _check_rest(frame: Bytes, end: int) -> None:
    """Checks that only zeros follow the end of the stream: Arrow leaves the rest unread, so that
    the rows of a second stream would be lost silently (L8). Raises ``ValueError``."""
    rest = memoryview(frame).cast("B")[end:]
    pieces = (rest[at : at + _PIECE] for at in range(0, len(rest), _PIECE))
    if any(piece.tobytes().strip(b"\0") for piece in pieces):
        raise ValueError(f"{len(rest)} bytes follow the end of its stream: a frame holds one")


# -- names


def _check_names(schema: ArrowSchema) -> None:
    """Checks column names, at every depth. Reading a name proves that it is UTF-8. Raises
    ``ValueError``."""
    _check_distinct([field.name for field in schema], "")
    for field in schema:
        _check_inner_names(field.type, field.name)


def _check_inner_names(kind: ArrowType, path: str) -> None:
    if pa.types.is_timestamp(kind):
        _ = kind.tz
    if pa.types.is_decimal(kind) and abs(kind.scale) > _LARGEST_SCALE[kind.bit_width]:
        raise ValueError(f"column {path} has the type {kind}: such a scale is not taken")
    if str(kind) in ("month_interval", "day_time_interval"):  # PyArrow has no arrays of these
        raise ValueError(f"column {path} has the type {kind}, which is not taken")
    inner = _inner(kind)
    if pa.types.is_struct(kind):
        _check_distinct([field.name for field in inner], f"{path}.")
    for field in inner:
        _check_inner_names(field.type, f"{path}.{field.name}")


def _inner(kind: ArrowType) -> list[ArrowField]:
    if pa.types.is_dictionary(kind):
        return _inner(kind.value_type)
    return [kind.field(i) for i in range(kind.num_fields)]


def _check_distinct(names: list[str], path: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"two of its columns are named {f'{path}{twice}'!r}")


# -- what Arrow's validation leaves out


def _check_null_views(array: Array) -> None:
    """Checks the views of null values, at every depth: Arrow's validation skips them, but its casts
    follow them, out of the frame. Raises ``ArrowInvalid``."""
    kind, types = array.type, pa.types
    if kind.id in _FLAT:
        return
    if types.is_string_view(kind) or types.is_binary_view(kind):
        if array.null_count:
            parts = [None, *array.buffers()[1:]]
            pa.Array.from_buffers(
                pa.binary_view(), len(array), parts, offset=array.offset
            ).validate(full=True)
        return
    for inner in _inner_arrays(array):
        _check_null_views(inner)


def _inner_arrays(array: Array) -> list[Array]:
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        return [array.dictionary]
    if types.is_map(kind):
        return [array.keys, array.items]
    if types.is_struct(kind) or types.is_union(kind):
        return [array.field(i) for i in range(kind.num_fields)]
    return [array.values] if kind.num_fields else []


# -- the size of its rows after expansion


def _expanded_bytes(array: Array, each: int = 0) -> int:
    """Estimates the bytes of a valid array after expansion, at least ``each`` per value. Exact for
    common types, an upper bound for run-end-encoded, list-view and union arrays. A buffer that
    several columns name counts for each of them, since each column is converted by itself; a value
    that takes no bytes (null, an empty struct) counts as one."""
    kind, types = array.type, pa.types
    if not len(array):
        return 0
    if kind.id in _FLAT:
        return max(array.nbytes, len(array) * each)
    if types.is_dictionary(kind):
        return max(_dictionary_bytes(array), len(array) * each)
    if types.is_run_end_encoded(kind):
        return len(array) * max(_largest_value(array.values), each)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return (pc.sum(_view_lengths(array)).as_py() or 0) + len(array) * each
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        taken = pc.sum(pc.list_value_length(array)).as_py() or 0
        return taken * max(_largest_value(array.values), each, 1)
    if types.is_map(kind):
        inside = _expanded_bytes(array.keys, _OBJECT) + _expanded_bytes(array.items, _OBJECT)
        return max(inside, len(array) * max(each, 1))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return max(_expanded_bytes(array.values, max(each, 1)), len(array) * max(each, 1))
    if types.is_union(kind):
        inner = [array.field(i) for i in range(kind.num_fields)]
        apart = sum(_expanded_bytes(child, _OBJECT) for child in inner)
        return max(apart, len(array) * max(map(_largest_value, inner), default=0))
    if types.is_struct(kind):
        inner = [array.field(i) for i in range(kind.num_fields)]
        return max(sum(_expanded_bytes(child, each) for child in inner), len(array) * max(each, 1))
    return max(array.nbytes or len(array), len(array) * each)


def _dictionary_bytes(array: Array) -> int:
    values = array.dictionary
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        return pc.sum(pc.binary_length(values).take(array.indices)).as_py() or 0
    return len(array) * _largest_value(values)


def _largest_value(values: Array) -> int:
    """Returns an upper bound of the bytes of any one value."""
    kind, types = values.type, pa.types
    if not len(values):
        return 0
    if types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        return -(-kind.bit_width // 8)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return pc.max(_view_lengths(values)).as_py() or 0
    binary = types.is_binary(kind) or types.is_large_binary(kind)
    if binary or types.is_string(kind) or types.is_large_string(kind):
        return pc.max(pc.binary_length(values)).as_py() or 0
    return max(values.get_total_buffer_size(), _expanded_bytes(values, 1))


def _view_lengths(array: Array) -> Array:
    """Returns the lengths of the values of a string-view or binary-view array. A view is 16 bytes,
    of which the first four are the length."""
    quarters = pa.Array.from_buffers(
        pa.int32(), 4 * len(array), [None, array.buffers()[1]], offset=4 * array.offset
    )
    lengths = pc.list_element(pa.FixedSizeListArray.from_arrays(quarters, 4), 0)
    return pc.if_else(pc.is_valid(array), lengths, pa.scalar(0, pa.int32()))


# -- the sizes that its messages declare, checked before Arrow allocates them

_DICTIONARY, _RECORDS = 2, 3  # MessageHeader
_V5 = 4  # MetadataVersion
_OLD_COMPRESSION = b"ARROW:experimental_compression"
"""Metadata that marks a message of version 4 as compressed; Arrow 0.17 wrote it and Arrow still
reads it."""


def _check_declared_sizes(frame: Bytes) -> None:
    """Sums the decompressed sizes that compressed buffers declare, since Arrow allocates what they
    declare. Raises ``ValueError`` above ``MAX_BYTES``. Source: Arrow's Message.fbs."""
    claimed = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(frame)):
        head = memoryview(message.metadata).cast("B")
        table = struct.unpack_from("<I", head)[0]
        kind = _field_offset(head, table, 1)
        header = _target_offset(head, table, 2)
        if kind is None or header is None or head[kind] not in (_DICTIONARY, _RECORDS):
            continue
        records = _target_offset(head, header, 1) if head[kind] == _DICTIONARY else header
        if records is None or not _compressed(head, table, records):
            continue
        claimed += _decompressed_bytes(head, records, memoryview(message.body).cast("B"))
        if claimed > MAX_BYTES:
            raise ValueError(f"uncompressed it claims to be more than {MAX_BYTES} bytes")


def _compressed(head: memoryview, message: int, records: int) -> bool:
    if _field_offset(head, records, 3) is not None:
        return True
    version = _field_offset(head, message, 0)
    old = version is None or struct.unpack_from("<h", head, version)[0] < _V5
    return old and _OLD_COMPRESSION in head.tobytes()


def _decompressed_bytes(head: memoryview, records: int, body: memoryview) -> int:
    """Returns the decompressed bytes that the buffers of one record batch declare."""
    buffers = _target_offset(head, records, 2)
    if buffers is None:
        return 0
    total, count = 0, struct.unpack_from("<I", head, buffers)[0]
    for offset, length in struct.iter_unpack("<qq", head[buffers + 4 : buffers + 4 + 16 * count]):
        if length >= 8:
            size = struct.unpack_from("<q", body, offset)[0]
            total += length if size < 0 else size  # -1: this buffer is not compressed
    return total


def _field_offset(head: memoryview, table: int, slot: int) -> int | None:
    """Returns the offset of a field of a flatbuffer table; None: the table lacks the field."""
    vtable = table - struct.unpack_from("<i", head, table)[0]
    entry = 4 + 2 * slot
    if entry >= struct.unpack_from("<H", head, vtable)[0]:
        return None
    return table + offset if (offset := struct.unpack_from("<H", head, vtable + entry)[0]) else None


def _target_offset(head: memoryview, table: int, slot: int) -> int | None:
    """Returns the offset of the table or vector that a field refers to; None: there is no such
    field."""
    offset = _field_offset(head, table, slot)
    return None if offset is None else offset + struct.unpack_from("<I", head, offset)[0]
