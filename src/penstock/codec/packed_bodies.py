"""Packs the JSON bodies of a batch into few buffers, so that no record is a Python object, and
counts the bytes by which ``codec.key_accounting`` knows that every key was decoded.

Counts while it packs, since bodies are packed by the framing thread, which has time to spare while
others decode. So it imports neither PyArrow nor DuckDB. Not here: what the counts prove.
Neighbours: ``protocols/*`` pack the bodies that they frame, ``engine.worker.sealer`` joins batches,
``codec.bodies`` makes an Arrow column of the buffers without a copy per body.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, overload

from penstock.errors import Defect


def too_large(size: int) -> Defect:
    return Defect(f"a batch of {size} bytes cannot be decoded at once", code="codec.batch")


KEY, NULL = b'":', b'":nul'
"""The text of a key, and of a key with null, without white space. Values may contain it too."""

SPACED_KEY = re.compile(rb'"[ \t\r\n]+:')


class Piece:
    """Bodies end to end in ``data``. ``ends``: the offset at which each begins, and the end of the
    last; 32-bit, so at most 2 GiB. ``keys``, ``nulls``: how often :data:`KEY` and :data:`NULL`
    occur; ``spaced``: False if no key has white space before its colon."""

    __slots__ = ("data", "ends", "keys", "nulls", "spaced")

    def __init__(self, data: bytes, ends: "array[int]") -> None:
        self.data = data
        self.ends = ends
        self.keys = data.count(KEY)
        self.nulls = data.count(NULL)
        self.spaced = _may_have_spaced_keys(data)


def _may_have_spaced_keys(data: bytes) -> bool:
    """Looks for the last space first, which most data has nowhere, and only once for all keys."""
    if any(white in data for white in (b"\t", b"\r", b"\n")):  # only ever between tokens
        return SPACED_KEY.search(data) is not None
    return b" :" in data and (b'" :' in data or b'"  ' in data)


class Packed(Sequence[bytes]):
    """An immutable sequence of bodies; indexing copies one body out of its buffer."""

    __slots__ = ("_begins", "_count", "pieces")

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.pieces = tuple(pieces)
        *self._begins, self._count = accumulate((len(p.ends) - 1 for p in self.pieces), initial=0)

    @staticmethod
    def of(bodies: Sequence[Any]) -> "Packed":
        """Packs bodies (buffer-like) into one piece. Raises ``Defect`` above 2 GiB in all."""
        try:
            ends = array("i", accumulate(map(len, bodies), initial=0))
        except OverflowError:
            raise too_large(sum(map(len, bodies))) from None
        return Packed((Piece(b"".join(bodies), ends),))

    @staticmethod
    def joined(parts: Iterable["Packed"]) -> "Packed":
        """Concatenates ``parts`` without a copy."""
        return Packed(piece for part in parts for piece in part.pieces)

    @property
    def size(self) -> int:
        """Bytes of all bodies."""
        return sum(len(p.data) for p in self.pieces)

    def first_bytes(self) -> set[int]:
        """Returns the set of the bodies' first bytes. No body may be empty."""
        found: set[int] = set()
        for piece in self.pieces:
            if len(piece.ends) > 1:  # the 0 more makes a tuple even of one
                found.update(itemgetter(0, *piece.ends[:-1])(piece.data))
        return found

    def occurrences(self, text: bytes) -> int:
        """Returns how often ``text`` occurs in the bodies as they lie end to end."""
        return sum(p.data.count(text) for p in self.pieces)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        position = index + self._count if index < 0 else index
        if not 0 <= position < self._count:
            raise IndexError(index)
        number = bisect_right(self._begins, position) - 1
        piece, row = self.pieces[number], position - self._begins[number]
        return piece.data[piece.ends[row] : piece.ends[row + 1]]

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            begin = 0
            for end in piece.ends[1:]:
                yield piece.data[begin:end]
                begin = end
