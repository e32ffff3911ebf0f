"""Parses and checks the limit on a stream's rejected records, past which none of its rows are
loaded (L8, L9).

Neighbours: ``config`` reads the limit from a file or an option, ``engine.deliver.reject_limits``
applies it.
"""

import re

import msgspec

FORMS = "a whole number of records, or a percentage such as 5%"
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%")
_ALL = 100.0


class MaxRejected(msgspec.Struct, frozen=True):
    """The limit of one stream. ``count``: records; ``percent``: of the records read; both None: all
    but one. Under every limit at least one record must be accepted, except under ``100%``."""

    count: int | None = None
    percent: float | None = None

    @staticmethod
    def parse(given: int | str) -> "MaxRejected":
        """Parses one of :data:`FORMS`. Raises ``ValueError``."""
        text = str(given).strip()
        if re.fullmatch(r"[0-9]{1,18}", text):
            return MaxRejected(count=int(text))
        match = _PERCENT.fullmatch(text)
        if match is None or float(match[1]) > _ALL:
            raise ValueError(FORMS)
        return MaxRejected(percent=float(match[1]))

    def exceeded(self, read: int, rejected: int, filtered: int = 0) -> bool:
        """Returns whether ``rejected`` of ``read`` records pass the limit. ``filtered``: how many
        of ``read`` transforms dropped."""
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
