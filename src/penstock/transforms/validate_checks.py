"""Rules as Arrow computations: for a column, which rows break one.

Built once per schema. A NULL breaks ``assert_not_null`` and no other rule. Regular expressions are
RE2's (no look-around, no back references; time linear in the text), found anywhere in the text
unless anchored. Bounds are made exact in the column's own type, so that no value is rounded to be
compared.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from penstock.codec.arrow import arrow_type
from penstock.codec.system_columns import ascending
from penstock.codec.untyped import ChunkedArray
from penstock.codec.untyped import compute as pc
from penstock.model.types import Field, Kind
from penstock.transforms.validate_rules import NOT_NULL, REGEX, UNIQUE, Bound, Rule

_TEXTS = (Kind.string, Kind.time, Kind.time_tz, Kind.json)
_NUMBERS = (Kind.integer, Kind.number, Kind.decimal)
_TIMES = (Kind.date, Kind.timestamp, Kind.timestamp_ntz)
_NESTED = (Kind.array, Kind.struct)
_CAST = "CAST it in a transform-sql before"
_EXACT = Context(prec=400)

Failing = Callable[[ChunkedArray], ChunkedArray]


@dataclass(frozen=True, slots=True)
class Check:
    """``failing``: booleans without NULL, one per row. ``says``: what is wrong with such a row,
    without its value."""

    rule: Rule
    field: Field
    says: str
    failing: Failing


def build(rule: Rule, field: Field) -> Check | str:
    """The check of a column, or what keeps the rule from fitting it."""
    kind, name = field.type.kind, rule.field
    if rule.kind == NOT_NULL:
        return Check(rule, field, f"{name} is null", pc.is_null)
    if rule.kind == UNIQUE:
        if kind in _NESTED:
            return _unfit(rule, kind, "compares no nested values")
        return Check(rule, field, f"{name} repeats an earlier row's value", _repeats)
    if rule.kind == REGEX:
        if kind not in _TEXTS:
            return _unfit(rule, kind, "works on text")
        try:
            _unmatched(rule.pattern)(pa.chunked_array([[""]]))
        except pa.ArrowInvalid as e:
            return f"{rule.place}: the pattern of '{name}' is none of RE2's: {_reason(e)}"
        return Check(rule, field, f"{name} does not match its pattern",
                     _unmatched(rule.pattern))  # fmt: skip
    return _range(rule, field)


def _unfit(rule: Rule, kind: Kind, why: str) -> str:
    return f"{rule.place}: '{rule.field}' is {kind.value}, and {rule.kind} {why}; {_CAST}"


def _repeats(column: ChunkedArray) -> ChunkedArray:
    rows = ascending(0, len(column))
    table = pa.table({"value": column, "row": rows})
    first = table.group_by("value").aggregate([("row", "min")])
    seen = pc.is_in(rows, value_set=first.column("row_min").combine_chunks())
    return pc.and_(pc.invert(seen), pc.is_valid(column))


def _unmatched(pattern: str) -> Failing:
    def failing(column: ChunkedArray) -> ChunkedArray:
        found = pc.match_substring_regex(column, pattern=pattern)
        return pc.fill_null(pc.invert(found), False)

    return failing


def _range(rule: Rule, field: Field) -> Check | str:
    kind = field.type.kind
    if kind not in _NUMBERS and kind not in _TIMES:
        return _unfit(rule, kind, "works on numbers, dates and timestamps")
    try:
        low = None if rule.minimum is None else _bound(rule.minimum, field, ROUND_CEILING)
        high = None if rule.maximum is None else _bound(rule.maximum, field, ROUND_FLOOR)
    except (ValueError, OverflowError, InvalidOperation) as e:
        return f"{rule.place}: '{rule.field}' is {kind.value}: {e}"
    if low is not None and high is not None and low > high:
        return f"{rule.place}: no value of '{rule.field}' is between min and max"
    limits = [
        *([] if low is None else [(pc.greater_equal, low)]),
        *([] if high is None else [(pc.less_equal, high)]),
    ]
    tests = [t for t in (_comparison(c, b, field) for c, b in limits) if t is not None]
    says = " and ".join(
        [
            *([] if rule.minimum is None else [f"at least {rule.minimum}"]),
            *([] if rule.maximum is None else [f"at most {rule.maximum}"]),
        ]
    )

    def failing(column: ChunkedArray) -> ChunkedArray:
        good = pc.is_valid(column)
        for test in tests:
            good = pc.and_(good, pc.fill_null(test(column), False))
        return pc.and_(pc.is_valid(column), pc.invert(good))

    return Check(rule, field, f"{rule.field} is not {says}", failing)


def _comparison(
    compare: Any, bound: Any, field: Field
) -> Callable[[ChunkedArray], ChunkedArray] | None:
    """None: every value of the type is on the right side of the bound."""
    if isinstance(bound, Decimal):
        least, most = _extremes(field)
        upper = compare is pc.less_equal
        if bound >= most if upper else bound <= least:
            return None
        if bound < least if upper else bound > most:
            return pc.is_null
        bound = int(bound) if field.type.kind is Kind.integer else bound
    scalar = pa.scalar(bound, arrow_type(field.type))
    return lambda column: compare(column, scalar)


def _extremes(field: Field) -> tuple[Decimal, Decimal]:
    if field.type.kind is Kind.integer:
        return Decimal(-(2**63)), Decimal(2**63 - 1)
    precision, scale = field.type.precision or 38, field.type.scale or 0
    most = _EXACT.subtract(Decimal(10) ** (precision - scale), Decimal(1).scaleb(-scale))
    return most.copy_negate(), most


def _bound(given: Bound, field: Field, rounding: str) -> Any:
    """The bound as the column's type has it: for a column of whole numbers 0.5 is 1 from below."""
    kind = field.type.kind
    if kind in _TIMES:
        return _moment(given, kind)
    if not isinstance(given, int | float):
        raise ValueError("its bounds are numbers")
    if math.isnan(given):
        raise ValueError("a bound is a number, not .nan")
    if kind is Kind.number:
        return float(given)
    if math.isinf(given):
        return Decimal(10) ** 60 * (1 if given > 0 else -1)
    scale = 0 if kind is Kind.integer else field.type.scale or 0
    return Decimal(str(given)).quantize(Decimal(1).scaleb(-scale), rounding, _EXACT)


def _moment(given: Bound, kind: Kind) -> date:
    text = given.isoformat() if isinstance(given, date) else given
    if not isinstance(text, str):
        raise ValueError("its bounds are dates, as '2024-01-31'")
    try:
        found = date.fromisoformat(text) if kind is Kind.date else datetime.fromisoformat(text)
    except ValueError:
        example = "2024-01-31" if kind is Kind.date else "2024-01-31 or 2024-01-31T12:00:00"
        raise ValueError(f"its bounds are written as {example}") from None
    if not isinstance(found, datetime):
        return found
    if kind is Kind.timestamp:
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    if found.tzinfo is not None:
        raise ValueError("its bounds have no time zone")
    return found


def _reason(error: Exception) -> str:
    return str(error).rpartition("Invalid regular expression: ")[2]
