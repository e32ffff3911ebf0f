"""Decides whether one cursor is later than another, where their form shows it: numbers, times, and
numbers that are texts.

Pure. A source may order texts of other forms in its own way, so their order is not known.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:?[0-9]{2}(?::?[0-9]{2})?)(?:[.,]([0-9]+))?)?"
    r" ?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_ZONES = timedelta(hours=14)
"""The largest distance of a clock from UTC."""


def is_later(new: object, old: object) -> bool | None:
    """Returns whether ``new`` is later than ``old``; None: their order is not known."""
    if new == old:
        return False
    if isinstance(new, int | Decimal) and isinstance(old, int | Decimal):
        return new > old
    if not (isinstance(new, str) and isinstance(old, str)):
        return None
    if _NUMBER.fullmatch(new) and _NUMBER.fullmatch(old):
        as_numbers = Decimal(new) > Decimal(old)
        return as_numbers if as_numbers is (new > old) else None
    return _is_later_time(new, old)


def _is_later_time(new: str, old: str) -> bool | None:
    found, other = _moment(new), _moment(old)
    if found is None or other is None:
        return None
    (at, fraction, zoned), (other_at, other_fraction, other_zoned) = found, other
    if zoned is not other_zoned and abs(at - other_at) <= _ZONES:
        return None
    return (at, fraction) > (other_at, other_fraction)


def _moment(text: str) -> tuple[datetime, str, bool] | None:
    """Returns the whole second (of a time without a zone: as if in UTC), the digits of its
    fraction, and whether the text names a zone."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, zone = match.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{clock or '00:00'}{zone or '+00:00'}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return at, (fraction or "").rstrip("0"), zone is not None
