"""A frame that a connector made, as a table: checked whole before anybody else looks into it.

A frame is a hostile guest's to write: offsets beyond their data, text that is no UTF-8, a few bytes
that claim to be gigabytes. What is wrong is one kind of ``Refusal`` (``FRAME_DECODE``), whatever
Arrow calls it. Not here: frames that are our own (``arrow_ipc``). Source: the protocol, section 6.
"""

import struct
from collections.abc import Generator
from contextlib import contextmanager

import msgspec
import pyarrow as pa

from penstock.codec.untyped import Array, ArrowField, ArrowSchema, ArrowType, Table
from penstock.codec.untyped import compute as pc
from penstock.protocols.rapidbyte.wire.compression import Bytes
from penstock.protocols.rapidbyte.wire.messages import refusal


class FrameBounds(msgspec.Struct, frozen=True, kw_only=True):
    """``frames`` alive at once; bytes of one and of all of them. ``pooled``: they count into the
    process's pool as well; not where they count into a memory limit of the instance's own."""

    frames: int = 1024
    frame_bytes: int = 512 << 20
    all_bytes: int = 1 << 30
    pooled: bool = True


MOST_ROWS = 16 << 20
MOST_BYTES = FrameBounds().frame_bytes
"""Of a frame once it is expanded: no more than an uncompressed one may have."""
_OBJECT = 16  # bytes, at least, for a value that becomes JSON one by one
_SHOWN = 400
_BROKEN = (
    pa.ArrowException, OSError, ValueError, LookupError, MemoryError, NotImplementedError,
    OverflowError, RecursionError, struct.error,
)  # fmt: skip


def table_of(frame: Bytes) -> tuple[Table, int]:
    """Its rows, which share its memory, and the bytes that they are once every dictionary and
    every run is written out. Raises ``Refusal`` (``FRAME_DECODE``): also for a name that two
    columns have, more than ``MOST_ROWS``, more than ``MOST_BYTES``."""
    with decoding(frame):
        _claims(frame)
        with pa.ipc.open_stream(pa.py_buffer(frame)) as reader:
            schema = reader.schema
            _names(schema)
            rows = size = 0
            batches: list[object] = []
            for batch in reader:
                rows += batch.num_rows
                if rows > MOST_ROWS:
                    raise ValueError(f"more than {MOST_ROWS} rows")
                batch.validate(full=True)
                size += max(batch.nbytes, sum(map(_weight, batch.columns)))
                if size > MOST_BYTES:
                    raise ValueError(f"its rows are more than {MOST_BYTES} bytes")
                batches.append(batch)
        return pa.Table.from_batches(batches, schema), max(size, len(frame))


@contextmanager
def decoding(frame: Bytes) -> Generator[None]:
    """Whatever is wrong with its data, as a ``Refusal``."""
    try:
        yield
    except _BROKEN as e:
        raise refusal(
            "frame",
            "FRAME_DECODE",
            f"a frame of {len(frame)} bytes is no sound Arrow IPC stream: {str(e)[:_SHOWN]}",
            scope="batch",
        ) from e


# -- names


def _names(schema: ArrowSchema) -> None:
    """Every name is read, which proves that it is text."""
    _distinct([field.name for field in schema], "")
    for field in schema:
        _inner_names(field.type, field.name)


def _inner_names(kind: ArrowType, path: str) -> None:
    if pa.types.is_timestamp(kind):
        _ = kind.tz
    if str(kind) in ("month_interval", "day_time_interval"):  # PyArrow has no arrays of these
        raise ValueError(f"column {path} has the type {kind}, which is not taken")
    inner = _inner(kind)
    if pa.types.is_struct(kind):
        _distinct([field.name for field in inner], f"{path}.")
    for field in inner:
        _inner_names(field.type, f"{path}.{field.name}")


def _inner(kind: ArrowType) -> list[ArrowField]:
    if isinstance(kind, pa.BaseExtensionType):
        return _inner(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _inner(kind.value_type)
    return [kind.field(i) for i in range(kind.num_fields)]


def _distinct(names: list[str], path: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"two of its columns are named {f'{path}{twice}'!r}")


# -- what its rows are, written out


def _weight(array: Array, each: int = 0) -> int:
    """Of a valid array, with ``each`` for a value at least. A bound from above where values are
    shared in a way that is seldom met."""
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _weight(array.storage, each)
    if types.is_dictionary(kind):
        return max(_dictionary(array), len(array) * each)
    if types.is_run_end_encoded(kind):
        return len(array) * max(_heaviest(array.values), each)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return (pc.sum(_view_lengths(array)).as_py() or 0) + len(array) * each
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        taken = pc.sum(pc.list_value_length(array)).as_py() or 0
        return taken * max(_heaviest(array.values), each, 1)
    if types.is_map(kind):
        return _weight(array.keys, _OBJECT) + _weight(array.items, _OBJECT)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _weight(array.values, max(each, 1))
    if types.is_union(kind):
        inner = [array.field(i) for i in range(kind.num_fields)]
        apart = sum(_weight(child, _OBJECT) for child in inner)
        return max(apart, len(array) * max(map(_heaviest, inner), default=0))
    if types.is_struct(kind):
        inner = [array.field(i) for i in range(kind.num_fields)]
        return max(sum(_weight(child, each) for child in inner), len(array) * each)
    return len(array) * each  # beside its buffers, which ``nbytes`` counts


def _dictionary(array: Array) -> int:
    values = array.dictionary
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        return pc.sum(pc.binary_length(values).take(array.indices)).as_py() or 0
    return len(array) * _heaviest(values)


def _heaviest(values: Array) -> int:
    """No value of it is more."""
    kind, types = values.type, pa.types
    if types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        return -(-kind.bit_width // 8)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return pc.max(_view_lengths(values)).as_py() or 0
    binary = types.is_binary(kind) or types.is_large_binary(kind)
    if binary or types.is_string(kind) or types.is_large_string(kind):
        return pc.max(pc.binary_length(values)).as_py() or 0
    return max(values.nbytes, _weight(values, 1))


def _view_lengths(array: Array) -> Array:
    """A view is 16 bytes, and its first four are its length."""
    quarters = pa.Array.from_buffers(
        pa.int32(), 4 * len(array), [None, array.buffers()[1]], offset=4 * array.offset
    )
    lengths = pc.list_element(pa.FixedSizeListArray.from_arrays(quarters, 4), 0)
    return pc.if_else(pc.is_valid(array), lengths, pa.scalar(0, pa.int32()))


# -- what its messages claim, before anything is made of it

_DICTIONARY, _RECORDS = 2, 3  # MessageHeader


def _claims(frame: Bytes) -> None:
    """Compressed buffers say how much they will be, and Arrow makes room for that: it is summed up
    before. Source: Arrow's Message.fbs."""
    claimed = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(frame)):
        head = memoryview(message.metadata).cast("B")
        table = struct.unpack_from("<I", head)[0]
        kind = _field(head, table, 1)
        header = _below(head, table, 2)
        if kind is None or header is None or head[kind] not in (_DICTIONARY, _RECORDS):
            continue
        records = _below(head, header, 1) if head[kind] == _DICTIONARY else header
        if records is None or _field(head, records, 3) is None:
            continue  # not compressed
        claimed += _expanded(head, records, memoryview(message.body).cast("B"))
        if claimed > MOST_BYTES:
            raise ValueError(f"uncompressed it claims to be more than {MOST_BYTES} bytes")


def _expanded(head: memoryview, records: int, body: memoryview) -> int:
    buffers = _below(head, records, 2)
    if buffers is None:
        return 0
    total, count = 0, struct.unpack_from("<I", head, buffers)[0]
    for offset, length in struct.iter_unpack("<qq", head[buffers + 4 : buffers + 4 + 16 * count]):
        if length >= 8:
            size = struct.unpack_from("<q", body, offset)[0]
            total += length if size < 0 else size  # -1: it is not compressed
    return total


def _field(head: memoryview, table: int, slot: int) -> int | None:
    """Where a flatbuffer's table has the field; None: it has not."""
    vtable = table - struct.unpack_from("<i", head, table)[0]
    at = 4 + 2 * slot
    if at >= struct.unpack_from("<H", head, vtable)[0]:
        return None
    return table + found if (found := struct.unpack_from("<H", head, vtable + at)[0]) else None


def _below(head: memoryview, table: int, slot: int) -> int | None:
    """Where the table or vector begins that a field refers to."""
    at = _field(head, table, slot)
    return None if at is None else at + struct.unpack_from("<I", head, at)[0]
