"""Waits when a service reports too many calls, and gives up in the end."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


class RateLimitError(Exception):
    """The service refused temporarily. ``retry_after``: seconds; else the header ``retry-after`` of
    ``headers``, in seconds or as a date; else the back-off decides."""

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        if retry_after is None and headers is not None:
            given = next((v for k, v in headers.items() if k.lower() == "retry-after"), None)
            retry_after = None if given is None else _seconds(given)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Backoff:
    """``first``: seconds of the first wait; each next one is twice as long, up to ``longest``.
    ``total``: the most seconds of waiting for one call; a longer requested wait is not made."""

    first: float = 1.0
    longest: float = 60.0
    total: float = 600.0

    def waits(self) -> "Waits":
        return Waits(self)


class Waits:
    """The waits of one call."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff, self._left = backoff, backoff.total
        self._next = self._doubling()

    def after(self, error: RateLimitError) -> float | None:
        """Returns the seconds to wait before the next try; None: the total is used up."""
        wait = next(self._next) if error.retry_after is None else max(0.1, error.retry_after)
        if wait > self._left:
            return None
        self._left -= wait
        return wait

    def _doubling(self) -> Iterator[float]:
        wait = max(0.01, self._backoff.first)
        while True:
            yield min(wait, self._backoff.longest)
            wait *= 2


def _seconds(header: str) -> float | None:
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return None
