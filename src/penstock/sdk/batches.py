"""Passes rows to a writer in batches, waits when it is rate-limited, and counts.

Each row is counted once: as written, skipped or failed. Not here: how the counters are sent to the
host (``syncmaven``).
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.sdk.connector import Halt, StreamWriter
from penstock.sdk.rate_limit import Backoff, RateLimitError
from penstock.sdk.schema import convert

log = logging.getLogger("penstock.sdk")

_REASONS = 20  # reasons logged in full; all are counted
_T = TypeVar("_T")


@dataclass
class Counters:
    received: int = 0
    skipped: int = 0
    success: int = 0
    failed: int = 0


class Batches:
    """One sync of a stream. Raises ``Halt`` where it cannot continue."""

    def __init__(self, writer: StreamWriter, backoff: Backoff) -> None:
        self._writer, self._backoff = writer, backoff
        self._rows: list[Any] = []
        self._said = 0
        self.counters = Counters()

    def row(self, raw: Any) -> None:
        counters, writer = self.counters, self._writer
        counters.received += 1
        try:
            self._rows.append(convert(raw, writer.row))
        except ValueError as e:
            counters.failed += 1
            self._say(f"row {counters.received} does not fit: {e}")
            return
        if len(self._rows) >= writer.batch_size:
            self._flush()

    def end(self) -> Counters:
        self._flush()
        patiently(self._writer.close, self._backoff)
        failures, skipped = self._counts()
        self.counters.success -= min(self.counters.success, failures + skipped)
        return self.counters

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        counters = self.counters

        def attempt() -> None:
            self._writer.take_counts()  # from an earlier attempt
            self._writer.write(rows)

        try:
            patiently(attempt, self._backoff)
        except Halt:
            raise
        except Exception as e:
            self._writer.take_counts()
            counters.failed += len(rows)
            log.error("%d rows failed: %s: %s", len(rows), type(e).__name__, e)
            log.debug("where they failed", exc_info=True)
            return
        counters.success += max(0, len(rows) - sum(self._counts()))

    def _counts(self) -> tuple[int, int]:
        failures, skipped = self._writer.take_counts()
        self.counters.failed += len(failures)
        self.counters.skipped += len(skipped)
        for reason in failures:
            self._say(f"a row was rejected: {reason}")
        for reason in skipped:
            log.debug("a row was skipped: %s", reason)
        return len(failures), len(skipped)

    def _say(self, text: str) -> None:
        self._said += 1
        if self._said <= _REASONS:
            log.error(text)
        elif self._said == _REASONS + 1:
            log.error("further rows that failed are only counted")


def patiently(call: Callable[[], _T], backoff: Backoff) -> _T:
    """Repeats the call after each rate limit. Raises ``Halt`` when that has lasted too long."""
    waits = backoff.waits()
    while True:
        try:
            return call()
        except RateLimitError as e:
            wait = waits.after(e)
            if wait is None:
                raise Halt(f"rate limited for longer than {backoff.total:g} s: {e}") from e
            log.warning("rate limited, trying again in %.1f s: %s", wait, e)
            time.sleep(wait)
