"""Defines which values of the property that marks deletes mean that a row is gone.

A live mark is null, a word for no, zero, a zero date, or an empty text, list or object. Lanes judge
the value as the source sent it (``codec.delete_marks``), and give its column a value with the same
meaning. So tables, transforms and queries judge the stored value, by :data:`LIVE_TEXT` if it is
text. Not here: Arrow columns (``codec.delete_marks``), Spark's (``tables.frame.soft_deletes``)."""

import re
from typing import Any, cast

import msgspec

from penstock.model.types import DataType, Kind

SYSTEM_PREFIXES = ("_ab_cdc_", "_sdc_", "_rb_")
"""Prefixes of the properties that sources of change logs add to records. They are not data of the
row: a delete with only these has no values."""

# RE2, Java and Python read these alike; white space is Unicode's, plus characters without width
_WIDE_SPACE = "\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
_SPACE = rf"[\x09-\x0d\x20\x85\xa0{_WIDE_SPACE}]*"
_ZERO = r"[+-]?(?:0+[.,]?0*|[.,]0+)(?:e[+-]?[0-9]+)?|0x0+"
_ZERO_DATE = (
    r"(?:0000[-/.]?00[-/.]?00|00[-/.]00[-/.]0000)(?:[T ][0-9:.,]*)?(?: ?(?:Z|UTC|GMT|[+-][0-9:]+))?"
)
_NO = r"null|false|f|no?|off|none|nan|nat|nil|undefined"
_EMPTY = rf"\[{_SPACE}\]|\{{{_SPACE}\}}"
_NUMBER = r"[+-]?(?:[0-9]+[.,]?[0-9]*|[.,][0-9]+)(?:e[+-]?[0-9]+)?"


def _whole(values: str) -> str:
    """Returns the pattern of a text that is one of ``values``, between quotes or not."""
    return rf'(?i)^{_SPACE}"?{_SPACE}(?:{values}){_SPACE}"?{_SPACE}$'


LIVE_TEXT = _whole(f"|{_NO}|{_ZERO}|{_ZERO_DATE}|{_EMPTY}")
"""A pattern of delete marks that mean a live row, with or without the quotes of JSON text."""

GONE_TEXT = _whole(f"true|t|yes|y|on|{_NUMBER}")
"""A pattern of delete marks that mean a deleted row, except times. It matches zeros too: try
:data:`LIVE_TEXT` first."""

_LIVE = re.compile(LIVE_TEXT)
TIMES = frozenset({Kind.date, Kind.timestamp, Kind.timestamp_ntz, Kind.time, Kind.time_tz})


class DeleteMark(msgspec.Struct, frozen=True):
    """The property that marks deletes in a stream whose deletes are carried out. ``source``: its
    original name. ``of_time``: it is declared a date or a time, so that text of no known form means
    that the row is gone; otherwise such a record is a reject. ``null_if_live``: a live mark is sent
    as null, since the destination takes every other value for a delete."""

    source: str
    of_time: bool
    null_if_live: bool = False


def is_time(data_type: DataType) -> bool:
    """Returns whether a column is declared a date or a time."""
    return data_type.kind in TIMES


def marks_delete(value: Any) -> bool:
    """Returns whether a stored column value means that the row is gone."""
    if value is None or value != value:  # NaN
        return False
    if isinstance(value, str):
        return _LIVE.match(value) is None
    if isinstance(value, (bytes, list, tuple, dict)):
        return len(cast(Any, value)) > 0
    return bool(value) if isinstance(value, (bool, int, float)) else value != 0
