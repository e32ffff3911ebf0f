"""Parses ``time_extracted`` of many records into epoch milliseconds, without a Python step for
each.

Neighbour: ``record_reader`` collects the texts. Source: specification, RECORD Message
(RFC 3339); also met: a space for T, no offset (then UTC), nanoseconds, anything at all.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.codec.untyped import compute as pc
from penstock.codec.untyped import pa

_FEW = 8
_DAY = r"(?:19[7-9]|[2-8][0-9]{2})[0-9]-[0-9]{2}-[0-9]{2}"  # from 1970 on: Arrow does not floor
_SAFE = rf"^{_DAY}T[0-9:]{{8}}(\.[0-9]{{1,6}})?(Z|[+-][0-9]{{2}}:[0-9]{{2}})$"
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI = timedelta(milliseconds=1)


def millis(texts: Sequence[Any], arrival: int) -> Sequence[int]:
    """Returns the epoch milliseconds of each text. ``arrival``, in milliseconds, replaces a missing
    text or one that is not a time."""
    try:
        distinct = set(texts)
    except TypeError:  # values that are neither text nor hashable
        return [_one(t, arrival) for t in texts]
    if len(distinct) * _FEW > len(texts):
        column = _column(texts)
        if column is not None:
            return column
    by_text = {t: _one(t, arrival) for t in distinct}
    return [by_text[t] for t in texts]


def _column(texts: Sequence[Any]) -> Sequence[int] | None:
    """Parses all texts at once; None where one is missing or of another form."""
    try:
        column = pa.array(texts, pa.string())
        if column.null_count or not pc.all(pc.match_substring_regex(column, _SAFE)).as_py():
            return None
        times = column.cast(pa.timestamp("us", "UTC"))
        return pc.divide(times.cast(pa.int64()), 1000).to_pylist()
    except pa.ArrowException:
        return None


def _one(text: Any, arrival: int) -> int:
    if not isinstance(text, str):
        return arrival
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        found = (moment - _EPOCH) // _MILLI
    except (ValueError, OverflowError):
        return arrival
    return found if _FIRST <= found <= _LAST else arrival
