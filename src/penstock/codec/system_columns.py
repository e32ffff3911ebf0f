"""Builds the internal columns that every part has: sequence numbers and row ids.

Not here: their names (``model.types``), Arrow types (``codec.arrow``), change lists
(``codec.losses``). Neighbours:
``codec.decode`` and ``codec.columns`` add them to a part.
"""

import os
import time

from penstock.codec.untyped import Array, pa
from penstock.codec.untyped import compute as pc

_PLACES = [b"%03x" % i for i in range(4096)]


def ascending(first: int, count: int) -> Array:
    """Returns ``first``, ``first`` + 1, ... as int64."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    return pc.add(pc.cumulative_sum(ones), pa.scalar(first - 1, pa.int64()))


def row_ids(count: int) -> Array:
    """Returns ``count`` ascending UUIDs (RFC 9562, version 7): the current milliseconds, new random
    bits for every 4,096 rows, and the row's index among these (section 6.2, method 2: a random
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
