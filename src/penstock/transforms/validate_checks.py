"""Computes by Arrow which rows of a column break a rule of ``transform-validate``.

A check is built once per rule and schema. A NULL breaks ``assert_not_null`` and no other rule, and
the first row of a value is unique; Rapidbyte v4 has other rules (:func:`build_check`). Regular
expressions are RE2's (no look-around, no back references; time linear in the text) and match
anywhere in the text unless anchored. Bounds are converted exactly to the column's type, so that no
value is rounded for a comparison. Not here: reading rules (``validate_rules``), rejects
(``validate``)."""

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

_TEXTS = (Kind.string, Kind.number_text, Kind.time, Kind.time_tz, Kind.json)
_NUMBERS = (Kind.integer, Kind.number, Kind.decimal)
_TIMES = (Kind.date, Kind.timestamp, Kind.timestamp_ntz)
_NESTED = (Kind.array, Kind.struct)
_CAST = "CAST it in a transform-sql before"
_EXACT = Context(prec=400)

Failing = Callable[[ChunkedArray], ChunkedArray]


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """One rule on one column. ``failing`` maps the column to booleans without NULL, one per row:
    the row breaks the rule. ``message``: what is wrong with such a row, without its value."""

    rule: Rule
    field: Field
    message: str
    failing: Failing


def build_check(rule: Rule, field: Field, *, v4: bool = False) -> RuleCheck | str:
    """Builds the check of ``rule`` on ``field``, or returns the problem that prevents it. ``v4``:
    by Rapidbyte v4's rules. A NULL then breaks ``assert_regex`` and ``assert_range`` too, an
    infinite number ``assert_range``, and a value that comes several times, NULL included, breaks
    ``assert_unique`` in each of its rows."""
    kind, name = field.type.kind, rule.field
    if rule.kind == NOT_NULL:
        return RuleCheck(rule, field, f"{name} is null", pc.is_null)
    if rule.kind == UNIQUE:
        if kind in _NESTED:
            return _unfit(rule, kind, "compares no nested values")
        if v4:
            return RuleCheck(rule, field, f"{name} has the value of another row", _shared)
        return RuleCheck(rule, field, f"{name} repeats an earlier row's value", _repeats)
    if rule.kind == REGEX:
        if kind not in _TEXTS:
            return _unfit(rule, kind, "works on text")
        try:
            _unmatched(rule.pattern, v4)(pa.chunked_array([[""]]))
        except pa.ArrowInvalid as e:
            return f"{rule.path}: the pattern of '{name}' is not one of RE2's: {_reason(e)}"
        return RuleCheck(rule, field, f"{name} {_or_null(v4)}does not match its pattern",
                     _unmatched(rule.pattern, v4))  # fmt: skip
    return _range(rule, field, v4)


def _unfit(rule: Rule, kind: Kind, why: str) -> str:
    return f"{rule.path}: '{rule.field}' is {kind.value}, and {rule.kind} {why}; {_CAST}"


def _repeats(column: ChunkedArray) -> ChunkedArray:
    rows = ascending(0, len(column))
    table = pa.table({"value": column, "row": rows})
    first = table.group_by("value").aggregate([("row", "min")])
    seen = pc.is_in(rows, value_set=first.column("row_min").combine_chunks())
    return pc.and_(pc.invert(seen), pc.is_valid(column))


def _shared(column: ChunkedArray) -> ChunkedArray:
    rows = ascending(0, len(column))
    table = pa.table({"value": column, "row": rows})
    groups = table.group_by("value").aggregate([("row", "min"), ("row", "max")])
    first, last = groups.column("row_min"), groups.column("row_max")
    single = first.filter(pc.equal(first, last)).combine_chunks()
    return pc.invert(pc.is_in(pa.chunked_array([rows]), value_set=single))


def _or_null(v4: bool) -> str:
    return "is null or " if v4 else ""


def _unmatched(pattern: str, v4: bool) -> Failing:
    def failing(column: ChunkedArray) -> ChunkedArray:
        matched = pc.match_substring_regex(column, pattern=pattern)
        return pc.fill_null(pc.invert(matched), v4)

    return failing


def _range(rule: Rule, field: Field, v4: bool) -> RuleCheck | str:
    kind = field.type.kind
    if kind not in _NUMBERS and kind not in _TIMES:
        return _unfit(rule, kind, "works on numbers, dates and timestamps")
    try:
        low = None if rule.minimum is None else _bound(rule.minimum, field, ROUND_CEILING)
        high = None if rule.maximum is None else _bound(rule.maximum, field, ROUND_FLOOR)
    except (ValueError, OverflowError, InvalidOperation) as e:
        return f"{rule.path}: '{rule.field}' is {kind.value}: {e}"
    if low is not None and high is not None and low > high:
        return f"{rule.path}: no value of '{rule.field}' is between min and max"
    limits = [
        *([] if low is None else [(pc.greater_equal, low)]),
        *([] if high is None else [(pc.less_equal, high)]),
    ]
    tests = [t for t in (_comparison(c, b, field) for c, b in limits) if t is not None]
    if v4 and kind is Kind.number:
        tests.append(pc.is_finite)
    message = " and ".join(
        [
            *([] if rule.minimum is None else [f"at least {rule.minimum}"]),
            *([] if rule.maximum is None else [f"at most {rule.maximum}"]),
        ]
    )

    def failing(column: ChunkedArray) -> ChunkedArray:
        good = pc.is_valid(column)
        for test in tests:
            good = pc.and_(good, pc.fill_null(test(column), False))
        return pc.invert(good) if v4 else pc.and_(pc.is_valid(column), pc.invert(good))

    return RuleCheck(rule, field, f"{rule.field} {_or_null(v4)}is not {message}", failing)


def _comparison(
    compare: Any, bound: Any, field: Field
) -> Callable[[ChunkedArray], ChunkedArray] | None:
    """Returns a test of a column against a bound; None if every value of the type passes it."""
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
    """Returns the bound in the column's type, rounded into the range: for a column of integers a
    minimum of 0.5 is 1. Raises ``ValueError``."""
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
        moment = date.fromisoformat(text) if kind is Kind.date else datetime.fromisoformat(text)
    except ValueError:
        example = "2024-01-31" if kind is Kind.date else "2024-01-31 or 2024-01-31T12:00:00"
        raise ValueError(f"its bounds are written as {example}") from None
    if not isinstance(moment, datetime):
        return moment
    if kind is Kind.timestamp:
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if moment.tzinfo is not None:
        raise ValueError("its bounds have no time zone")
    return moment


def _reason(error: Exception) -> str:
    return str(error).rpartition("Invalid regular expression: ")[2]
