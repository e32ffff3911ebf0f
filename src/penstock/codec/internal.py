"""The columns that every part carries beside the data: numbers, row ids, change lists.

Their names and types are ``model.types``' and ``codec.arrow``'s; ``codec.decode`` puts them in.
"""

import os
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from penstock.codec.arrow import CHANGE_TYPE
from penstock.codec.untyped import Array
from penstock.codec.untyped import compute as pc

_given_changes = msgspec.json.Decoder(list[dict[str, Any]])
_VARIANT = bytes.maketrans(b"0123456789abcdef", b"89ab" * 4)


def ascending(first: int, count: int) -> Array:
    """``first``, ``first`` + 1, ... as int64."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    return pc.add(pc.cumulative_sum(ones), pa.scalar(first - 1, pa.int64()))


def row_ids(count: int) -> Array:
    """Random UUIDs (RFC 9562, version 4), made as columns of hexadecimal digits."""
    digits = os.urandom(16 * count).hex().encode()
    text = bytearray(b"-" * (36 * count))
    places = [p for p in range(36) if p not in (8, 13, 18, 23)]
    for digit, place in enumerate(places):
        text[place::36] = digits[digit::32]
    text[14::36] = b"4" * count
    text[19::36] = digits[16::32].translate(_VARIANT)
    ends = array("i", range(0, 36 * count + 1, 36))
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(text))


def change_lists(
    rows: int,
    given: Mapping[int, bytes],
    misfits: Mapping[int, Sequence[str]],
    change: str,
    reason: str,
) -> Array:
    """A list per row: the source's own changes (raw JSON arrays by row), then one per path that
    did not fit. Empty, never NULL."""
    lengths = array("i", bytes(4 * (rows + 1)))
    entries: list[dict[str, Any]] = []
    for index in sorted(given.keys() | misfits.keys()):
        before = len(entries)
        entries += _parsed(given.get(index))
        entries += (
            {"field": path, "change": change, "reason": reason}
            for path in dict.fromkeys(misfits.get(index, ()))
        )
        lengths[index + 1] = len(entries) - before
    ends = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(lengths)])
    return pa.ListArray.from_arrays(pc.cumulative_sum(ends), pa.array(entries, CHANGE_TYPE))


def _parsed(raw: bytes | None) -> list[dict[str, Any]]:
    """A source's own list; one that has another shape is no reason to lose the row."""
    if raw is None:
        return []
    try:
        return [
            {k: None if e.get(k) is None else str(e[k]) for k in ("field", "change", "reason")}
            for e in _given_changes.decode(raw)
        ]
    except (msgspec.MsgspecError, UnicodeError):
        return []
