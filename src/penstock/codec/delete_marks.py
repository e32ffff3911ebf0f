"""Judges the marks of deletes in a batch, and gives their column values with the same meaning.

A mark is judged by the value that the source sent (``model.delete_marks``), before the cast to its
column's type: the result of a cast decides nothing (L9). A delete whose mark does not fit the
column gets a value in its place: the extraction time, true, 1, an object or a list of nulls. Not
here: what each value means. Neighbours: ``codec.decode`` and ``codec.columns`` call :func:`judged`;
``transforms.deletes`` and ``tables.files`` call :func:`marked` on judged columns."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from penstock.codec.arrow import arrow_type
from penstock.codec.python_values import python_values
from penstock.codec.untyped import Array, pa
from penstock.codec.untyped import compute as pc
from penstock.codec.values import fit
from penstock.model.delete_marks import GONE_TEXT, LIVE_TEXT, TIMES, DeleteMark
from penstock.model.types import DataType, Kind

UNKNOWN_MARK = "the delete mark is not a time, a number or a word for deleted or present"


_NEAR_TIMES = (
    (r"^(\d{4})(\d\d)(\d\d)T", r"\1-\2-\3T"),  # ISO 8601's basic form
    (r"T(\d\d)(\d\d)(\d\d)?", r"T\1:\2:\3"),
    (r"T(\d\d):(\d\d):($|[^\d])", r"T\1:\2\3"),
    (r"[T ]24:00(?::00(?:[.,]0+)?)?", "T23:59"),
    (r":60(?:[.,]\d+)?", ":59"),  # a leap second
    (r"^\+?[1-9]\d{4,5}-", "9999-"),
)


class JudgedMarks(NamedTuple):
    """``values``: the column. Positions (int64; None: there are none): ``unknown``, of the rows to
    reject; ``filled``, of the deletes that got a value in place of one that did not fit;
    ``cleared``, of the live marks that are null in place of the value sent."""

    values: Array
    unknown: Array | None = None
    filled: Array | None = None
    cleared: Array | None = None


def marked(column: Any) -> Any:
    """Returns which rows of a column (an array or a chunked one) are deletes, without NULL."""
    types, kind = pa.types, column.type
    if types.is_boolean(kind):
        return pc.fill_null(column, False)
    if types.is_floating(kind):
        return pc.fill_null(pc.and_(pc.not_equal(column, 0.0), pc.invert(pc.is_nan(column))), False)
    if types.is_integer(kind) or types.is_decimal(kind):
        zero = Decimal(0) if types.is_decimal(kind) else 0
        return pc.fill_null(pc.not_equal(column, pa.scalar(zero, kind)), False)
    if types.is_string(kind) or types.is_large_string(kind):
        live = pc.match_substring_regex(column, LIVE_TEXT)
        return pc.fill_null(pc.invert(live), False)
    if types.is_binary(kind):
        return pc.fill_null(pc.greater(pc.binary_length(column), 0), False)
    if types.is_list(kind):
        return pc.fill_null(pc.greater(pc.list_value_length(column), 0), False)
    return pc.is_valid(column)


def with_repaired(given: Array, texts: Mapping[int, str]) -> Array:
    """Returns the marks ``given`` with those that a repair of their body removed (``body_repair``),
    by row: values that are not objects where the schema has one."""
    if not texts:
        return given
    found = _texts(given).to_pylist()
    for row, text in texts.items():
        found[row] = text
    return pa.array(found, pa.string())


def judged(
    mark: DeleteMark, given: Array, values: Array, data_type: DataType, times: Array
) -> JudgedMarks:
    """Judges a column. ``given``: as the source sent it, JSON texts or an Arrow array; ``values``:
    the same as ``data_type``; ``times``: when each row was extracted."""
    if given.null_count == len(given):
        return JudgedMarks(values)
    lost = pc.and_(pc.is_valid(given), pc.is_null(values))
    if data_type.kind in TIMES and not pc.any(lost).as_py():
        return JudgedMarks(values)  # every time is a delete
    texts = _texts(given).dictionary_encode()
    distinct = texts.dictionary
    live = pc.match_substring_regex(distinct, LIVE_TEXT)
    odd = pc.invert(pc.or_(live, pc.match_substring_regex(distinct, GONE_TEXT)))
    if mark.of_time:
        odd = pc.and_(odd, False)
    elif pc.any(odd).as_py():
        odd = pc.and_(odd, pc.is_null(_as_times(distinct)))
    live = pc.fill_null(live.take(texts.indices), True)
    odd = pc.fill_null(odd.take(texts.indices), False)
    stored = marked(values)
    fill = pc.and_(pc.invert(pc.or_(live, odd)), pc.invert(stored))
    filled = _positions(fill)
    if filled is not None:
        values = pc.if_else(fill, _fill(data_type, times), values)
    clear = pc.and_(live, pc.is_valid(values)) if mark.null_if_live else pc.and_(live, stored)
    cleared = _positions(clear)
    if cleared is not None:
        values = pc.if_else(clear, pa.scalar(None, values.type), values)
    return JudgedMarks(values, _positions(odd), filled, cleared)


def _positions(mask: Array) -> Array | None:
    found = pc.indices_nonzero(mask).cast(pa.int64())
    return found if len(found) else None


def _as_times(texts: Array) -> Array:
    """Returns the times that the texts are, NULL for others. An ISO 8601 time that no time column
    holds becomes one near it."""
    bare = pc.utf8_trim(texts, characters='" \t\n\r')
    for pattern, near in _NEAR_TIMES:
        bare = pc.replace_substring_regex(bare, pattern, near)
    return fit(bare, DataType(Kind.timestamp)).values


def _texts(given: Array) -> Array:
    """Returns the values as texts, an object or a list as its JSON; a JSON string with an escape is
    decoded."""
    if pa.types.is_string(given.type):
        escaped = pc.match_substring_regex(given, r'^".*\\.*"$')
        if not pc.any(escaped).as_py():
            return given
        read = [_read(text) for text in given.filter(escaped).to_pylist()]
        return pc.replace_with_mask(given, pc.fill_null(escaped, False), pa.array(read))
    if not pa.types.is_nested(given.type):
        try:
            return given.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # bytes that are not text
            return pa.array([None if v is None else str(v) for v in python_values(given)])
    found = [_bare(value) for value in python_values(given)]
    return pa.array([None if v is None else msgspec.json.encode(v, enc_hook=str).decode()
                     for v in found], pa.string())  # fmt: skip


def _read(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.MsgspecError:  # a text of a column of text
        return text


def _bare(value: Any) -> Any:
    """Returns an empty object for a struct without any value, since an Arrow struct lacks no
    field."""
    if isinstance(value, dict) and all(v is None for v in value.values()):  # pyright: ignore
        return {}
    return value


def _fill(data_type: DataType, times: Array) -> Any:
    """Returns the value of a delete whose mark does not fit its column."""
    target = arrow_type(data_type)
    match data_type.kind:
        case Kind.timestamp:
            return times
        case Kind.timestamp_ntz | Kind.date:
            return pc.local_timestamp(times).cast(target, safe=False)
        case Kind.time | Kind.time_tz:
            return pc.strftime(times, "%H:%M:%S")
        case Kind.boolean:
            return pa.scalar(True)
        case Kind.binary:
            return pa.scalar(b"\x01", target)
        case Kind.decimal:
            scale = data_type.scale or 0
            full = (data_type.precision or 38) <= scale  # no room for 1
            return pa.scalar(Decimal(1).scaleb(-scale if full else 0), target)
        case Kind.integer | Kind.number:
            return pa.scalar(1, target)
        case Kind.json:
            return pa.scalar("true", target)
        case Kind.struct:  # without any value
            return pa.scalar({}, target)
        case Kind.array:
            return pa.scalar([None], target)
        case _:
            return pa.scalar(None, target)
