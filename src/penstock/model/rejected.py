"""How many records of a stream may be rejected before nothing of it goes on (L8, L9).

Reads and compares, nothing else. Neighbours: ``config`` reads it from a file or an option,
``engine.deliver.reject_limits`` asks it.
"""

import re

import msgspec

FORMS = "a whole number of records, or a percentage such as 5%"
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%")
_ALL = 100.0


class MaxRejected(msgspec.Struct, frozen=True):
    """``count``: records; ``percent``: of those that were read; both None: all but one. However
    many may be rejected, one record that came must be taken; only ``100%`` lets none be."""

    count: int | None = None
    percent: float | None = None

    @staticmethod
    def parse(given: int | str) -> "MaxRejected":
        """Raises ``ValueError``: it is none of :data:`FORMS`."""
        text = str(given).strip()
        if re.fullmatch(r"[0-9]{1,18}", text):
            return MaxRejected(count=int(text))
        found = _PERCENT.fullmatch(text)
        if found is None or float(found[1]) > _ALL:
            raise ValueError(FORMS)
        return MaxRejected(percent=float(found[1]))

    def exceeded(self, read: int, rejected: int, filtered: int = 0) -> bool:
        """``filtered``: of the records that were read, those that nobody wanted."""
        if not rejected or self.percent == _ALL:
            return False
        if rejected >= read - filtered:
            return True
        if self.count is not None:
            return rejected > self.count
        return self.percent is not None and rejected * _ALL > self.percent * read

    def __str__(self) -> str:
        if self.count is not None:
            return str(self.count)
        return "unlimited" if self.percent is None else f"{self.percent:g}%"
