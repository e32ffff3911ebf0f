"""Converts Arrow values of any type to Python's; a value that Python cannot hold becomes its text.

Such values are nanoseconds, dates beyond the year 9999, and times in unknown time zones. For single
rows (a reject, a preview) and for JSON columns. Neighbour: ``codec.columns``.
"""

from collections.abc import Iterator
from typing import Any

from penstock.codec.untyped import Array, ArrowType, pa
from penstock.codec.untyped import compute as pc

_ROWS = 1024  # converted at once
_NANOS = 10**9


def python_values(array: Array) -> Iterator[Any]:
    """Yields the values as ``to_pylist`` would; timestamps with a zone in UTC, and text for what
    Python cannot hold."""
    odd = _odd(array.type)
    for begin in range(0, len(array), _ROWS):
        piece = array.slice(begin, _ROWS)
        yield from (_plain(piece) if odd else piece).to_pylist()


def written_out(array: Array) -> Array:
    """Expands a dictionary-encoded or run-end-encoded array to one value per row, for any type."""
    if pa.types.is_dictionary(array.type):
        return _taken(array.dictionary, array.indices)
    rows = array.offset + len(array)
    ends = pc.min_element_wise(array.run_ends.cast(pa.int64()), pa.scalar(rows, pa.int64()))
    runs = pa.LargeListArray.from_arrays(_offsets(ends), pa.nulls(rows))
    return _taken(array.values, pc.list_parent_indices(runs).slice(array.offset, len(array)))


def _taken(values: Array, indices: Array) -> Array:
    try:
        return values.take(indices)
    except pa.ArrowNotImplementedError:  # for views, and for types that contain them
        null = pa.nulls(1, values.type)
        each = [null if i is None else values.slice(i, 1) for i in indices.to_pylist()]
        return pa.concat_arrays(each) if each else values.slice(0, 0)


def _odd(kind: ArrowType) -> bool:
    """Returns whether ``to_pylist`` may fail for this type."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return not isinstance(kind, pa.UuidType)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _odd(kind.value_type)
    return types.is_temporal(kind) or any(_odd(kind.field(i).type) for i in range(kind.num_fields))


def _plain(array: Array) -> Array:
    kind, types = array.type, pa.types
    if not _odd(kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(array.storage)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _plain(written_out(array))
    if types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        inner = [_plain(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(inner, names=names, mask=pc.is_null(array))
    if types.is_map(kind):
        return _map(array)
    if types.is_union(kind):
        return _union(array)
    if types.is_nested(kind):
        return _list(array)
    return _temporal(array)


def _list(array: Array) -> Array:
    inner = _plain(array.flatten())
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    ends = _offsets(pc.cumulative_sum(lengths))
    return pa.LargeListArray.from_arrays(ends, inner, mask=pc.is_null(array))


def _offsets(ends: Array) -> Array:
    return pa.concat_arrays([pa.array([0], ends.type), ends])


def _map(array: Array) -> Array:
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return pa.MapArray.from_arrays(
        pc.subtract(array.offsets, first),
        _plain(array.keys.slice(first, last - first)),
        _plain(array.items.slice(first, last - first)),
        mask=pc.is_null(array),
    )


def _union(array: Array) -> Array:
    kind = array.type
    names = [kind.field(i).name for i in range(kind.num_fields)]
    inner = [_plain(array.field(i)) for i in range(kind.num_fields)]
    which = _apart(array, 1, pa.int8())
    if kind.mode == "sparse":
        return pa.UnionArray.from_sparse(which, inner, names, kind.type_codes)
    at = _apart(array, 2, pa.int32())
    return pa.UnionArray.from_dense(which, at, inner, names, kind.type_codes)


def _apart(array: Array, buffer: int, kind: ArrowType) -> Array:
    """Returns the numbers of a union's buffer for the rows of ``array``: PyArrow's own properties
    ignore the offset of a slice."""
    begin = array.offset
    whole = pa.Array.from_buffers(kind, begin + len(array), [None, array.buffers()[buffer]])
    return pa.array(whole.slice(begin).to_pylist(), kind)


def _temporal(array: Array) -> Array:
    kind, types = array.type, pa.types
    if types.is_interval(kind):
        return array
    zoned = types.is_timestamp(kind) and kind.tz is not None
    if zoned:
        array = array.cast(pa.timestamp(kind.unit, "UTC"))
    if getattr(kind, "unit", None) != "ns":
        try:
            array.to_pylist()
            return array
        except (OverflowError, ValueError):
            pass
    if types.is_duration(kind):
        return _durations(array)
    if zoned:
        array = array.cast(pa.timestamp(kind.unit))
    text = array.cast(pa.string())
    if not types.is_timestamp(kind):
        return text
    text = pc.replace_substring_regex(text, r"^([^ <]+) ", r"\1T")
    return pc.binary_join_element_wise(text, "Z" if zoned else "", "")


def _durations(array: Array) -> Array:
    """Durations as ISO 8601 texts in seconds (``PT1.5S``)."""
    count = {"s": 1, "ms": 1000, "us": 10**6, "ns": _NANOS}[array.type.unit]
    return pa.array([_seconds(n, count) for n in array.cast(pa.int64()).to_pylist()], pa.string())


def _seconds(number: int | None, count: int) -> str | None:
    if number is None:
        return None
    whole, rest = divmod(abs(number), count)
    fraction = f".{rest * (_NANOS // count):09d}".rstrip("0") if rest else ""
    return f"{'-' if number < 0 else ''}PT{whole}{fraction}S"
