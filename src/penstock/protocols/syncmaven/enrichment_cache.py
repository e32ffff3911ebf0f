"""Keeps an enrichment's answers in the state store, so that rows with the same key are not sent
again while an answer is valid.

An answer is stored as the difference between its rows and the sent row, so that columns outside the
key come from the current row. Entries become durable with the rows that they were made for. Not
here: applying a difference (``enrichment_rows``). Neighbours: ``store.keys`` is the port.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.protocols.transforming import EnrichmentUse
from penstock.store.keys import PATH, KeyAddress, KeyPort

MOST_BYTES = 256 << 10
"""The most bytes of a cached answer; a longer one is not cached."""
_SWEPT = "swept"

Patch = dict[str, Any]
"""Properties in which an answer's row differs from the sent row; None: the answer's row lacks
one."""


class _Entry(msgspec.Struct):
    at: float
    rows: list[Patch]


class AnswerCache:
    """``columns``: of the key, by original names; empty: all. ``now``: seconds since 1970. Calls
    raise ``StateError``."""

    def __init__(
        self,
        keys: KeyPort,
        enriching: EnrichmentUse,
        columns: Sequence[str],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._keys, self._columns, self._now = keys, tuple(columns), now
        self._seconds = enriching.cache_seconds or 0.0
        parts = [enriching.use, enriching.options, self._columns]
        self._owner = f"enrichment cache {_digest(parts)}"

    def key(self, row: dict[str, Any]) -> str | None:
        """Returns the entry's key for a row; None: the row has no such key, so it is always
        sent."""
        values = [row.get(name) for name in self._columns] if self._columns else row
        return None if self._columns and None in values else _digest(values)

    def get(self, key: str) -> list[Patch] | None:
        """Returns the answer, while it is valid."""
        found = self._keys.get(self._place(key))
        if found is None:
            return None
        entry = msgspec.json.decode(found, type=_Entry)
        return entry.rows if self._now() - entry.at < self._seconds else None

    def put(self, key: str, rows: list[Patch]) -> None:
        """Keeps an answer, unless it is too long."""
        value = msgspec.json.encode(_Entry(self._now(), rows))
        if len(value) <= MOST_BYTES:
            self._keys.put(self._place(key), value.decode())

    def drop(self, key: str) -> None:
        """Deletes an answer that proved useless."""
        self._keys.delete(self._place(key))

    def sweep(self) -> int:
        """Deletes expired answers, once in an answer's lifetime; returns how many."""
        mark = self._place(_SWEPT)
        last = self._keys.get(mark)
        if last is None:
            self._keys.put(mark, repr(self._now()))
        if last is None or self._now() - float(last) < self._seconds:
            return 0
        gone, after = 0, None
        while page := self._keys.page_under(self._place(""), after):
            after = page[-1][0]
            for key, value in page:
                if key == _SWEPT:
                    continue
                entry = msgspec.json.decode(value, type=_Entry)
                if self._now() - entry.at >= self._seconds:
                    gone += self._keys.delete(self._place(key))
        self._keys.put(mark, repr(self._now()))
        return gone

    def _place(self, key: str) -> KeyAddress:
        return KeyAddress(PATH, self._owner, key)


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
