"""Builds the internal columns that every part has: sequence numbers, row ids, change lists.

Not here: their names (``model.types``) and Arrow types (``codec.arrow``). Neighbours:
``codec.decode`` and ``codec.columns`` add them to a part.
"""

import os
import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.codec.arrow import change_type
from penstock.codec.untyped import Array, pa
from penstock.codec.untyped import compute as pc
from penstock.model.types import ChangeWords

_given_changes = msgspec.json.Decoder(list[dict[str, Any]])
_PLACES = [b"%03x" % i for i in range(4096)]


def ascending(first: int, count: int) -> Array:
    """``first``, ``first`` + 1, ... as int64."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    return pc.add(pc.cumulative_sum(ones), pa.scalar(first - 1, pa.int64()))


def row_ids(count: int) -> Array:
    """``count`` ascending UUIDs (RFC 9562, version 7): the current milliseconds, random bits drawn
    anew for every 4,096 rows, and the row's index among these (section 6.2, method 2: a random
    number that grows by one). A random number for each row would cost a tenth of all decoding, here
    and in the part's size."""
    text = b"".join(_ids(min(len(_PLACES), count - at)) for at in range(0, count, len(_PLACES)))
    ends = pc.cumulative_sum(pa.repeat(pa.scalar(36, pa.int32()), count))
    ends = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.StringArray.from_buffers(count, ends.buffers()[1], pa.py_buffer(text))


def _ids(count: int) -> bytes:
    now, chance = time.time_ns() // 1_000_000, os.urandom(8).hex()
    variant = "89ab"[int(chance[0], 16) % 4]
    begin = f"{now >> 16:08x}-{now & 0xFFFF:04x}-7{chance[1:4]}-{variant}{chance[4:7]}-{chance[7:]}"
    return begin.encode() + begin.encode().join(_PLACES[:count])


def change_lists(
    rows: int,
    given: Mapping[int, bytes],
    cast_failures: Mapping[int, Sequence[str]],
    rounded: Mapping[int, Sequence[str]],
    words: ChangeWords,
) -> Array:
    """The change list of each row: the source's own changes (``given``: raw JSON arrays by row),
    then an entry per path that did not fit (``cast_failures``), then one per path of a rounded
    number. Empty, never NULL."""
    lengths = array("i", bytes(4 * (rows + 1)))
    entries: list[dict[str, Any]] = []
    for index in sorted(given.keys() | cast_failures.keys() | rounded.keys()):
        before = len(entries)
        entries += _parsed(given.get(index))
        for paths, change in ((cast_failures, words.change), (rounded, words.rounded)):
            entries += (
                {"field": path, "change": change, "reason": words.reason}
                for path in dict.fromkeys(paths.get(index, ()))
            )
        lengths[index + 1] = len(entries) - before
    ends = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(lengths)])
    return pa.ListArray.from_arrays(pc.cumulative_sum(ends), pa.array(entries, change_type()))


def _parsed(raw: bytes | None) -> list[dict[str, Any]]:
    """A source's own change list; empty where it cannot be read, so that the row is kept."""
    if raw is None:
        return []
    try:
        return [
            {k: None if e.get(k) is None else str(e[k]) for k in ("field", "change", "reason")}
            for e in _given_changes.decode(raw)
        ]
    except (msgspec.MsgspecError, UnicodeError):
        return []
