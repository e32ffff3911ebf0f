"""Casts a column of JSON texts to a type exactly; a value that would lose something is a misfit.

Implements the rules of L9 for each value. Three steps, each for the values that the one before
left: one strict Arrow cast of the whole column; a cast of the values that a pattern proves safe,
after a vectorised clean-up; and Python, once per distinct value. Neighbours: ``codec.decode`` walks
nested columns and calls :func:`fit` for each leaf; ``codec.arrow`` decides which leaves keep their
quotes.

What fits (everything else is a misfit):

* string: any value; a number, boolean, object or array as its JSON text, digits untouched.
* boolean: true and false, also as the strings "true" and "false".
* integer, number, decimal: a JSON number, also inside a string. An integer may be written 1.0 or
  1e3; a decimal may not have more digits than its type, trailing zeros apart; a number is the
  nearest double and must be finite. One that a double cannot hold digit by digit
  (9007199254740993, 1e-400) is rounded, and entered in the change list. So are digits after the
  point beyond a decimal of all 38 digits, where 15 of the value are left, as many as a double
  keeps.
* date: YYYY-MM-DD, or midnight of it without an offset other than Z.
* timestamp: RFC 3339, also with a space for T, an offset +0500 or +05, without seconds or
  minutes, without an offset (then UTC), or a date alone (its midnight), a comma for the point, and
  after the offset the name of a zone (`+0000 UTC`, `+01:00[Europe/Paris]`). Digits after the
  microsecond are cut off, and counted.
* timestamp_ntz: the same without an offset, or with that of UTC (Z, UTC, +00:00), which is left
  out. With any other offset it is an instant and does not fit.
* Years 0001 to 9999, after the offset; so a " BC" value never fits: Spark cannot hold it.
* time, time_tz: HH:MM[:SS[.f]], second 60 included; an offset fits time_tz only. Kept as text.
* binary: base64 text in either alphabet, padded or not, white space ignored.
* number_text: any value. A JSON number is written in one form (1 for 1.0 and 1e0), so that equal
  numbers have equal texts, and others do not; everything else as a string.
* json: any JSON value. Numbers keep their digits; white space and escapes are normalised.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, Inexact
from decimal import InvalidOperation as InvalidDecimal
from typing import Any, NamedTuple

from penstock.codec.arrow import arrow_type
from penstock.codec.duckdb_call import run_query
from penstock.codec.json_text import data_of
from penstock.codec.untyped import Array, pa
from penstock.codec.untyped import compute as pc
from penstock.model.types import DataType, Kind

_YEAR = r"[1-8][0-9]{3}"
_DATE = (
    rf"{_YEAR}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|"
    r"(?:0[13578]|1[02])-31)"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_DATE_TIME = rf"{_DATE}[T ]{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,6}})?"
_OFFSET = r"(?:Z|[+-](?:0[0-9]|1[0-4]):?[0-5][0-9])"
_TIME = rf"{_CLOCK}(?::(?:[0-5][0-9]|60)(?:\.[0-9]+)?)?"

_SAFE: dict[Kind, str] = {
    Kind.boolean: r"^(?:true|false)$",
    Kind.integer: r"^-?(?:0|[1-9][0-9]{0,17})$",
    Kind.number: r"^-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,2})?$",
    Kind.date: rf"^{_DATE}$",
    Kind.timestamp: rf"^{_DATE_TIME}{_OFFSET}$",
    Kind.timestamp_ntz: rf"^{_DATE_TIME}$",
    Kind.time: rf"^{_TIME}$",
    Kind.time_tz: rf"^{_TIME}(?:[Zz]|[+-](?:0[0-9]|1[0-9]|2[0-3])(?::?[0-5][0-9])?)?$",
    Kind.binary: r'^"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"$',
}
_UNQUOTE = (r'^"(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"$', r"\1")
_TIDY: dict[Kind, tuple[tuple[str, str], ...]] = {
    Kind.boolean: ((r'^"(true|false)"$', r"\1"),),
    Kind.integer: (_UNQUOTE, (r"^(-?[0-9]+)\.0+$", r"\1")),
    Kind.number: (_UNQUOTE,),
    Kind.decimal: (_UNQUOTE,),
    Kind.date: ((r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]00:00:00(?:\.0+)?[Zz]?$", r"\1"),),
    Kind.timestamp: (
        (r"(\.[0-9]{6})[0-9]+", r"\1"),
        (r"^([0-9-]{10}[T ][0-9:]{5,8}(?:\.[0-9]{1,6})?)$", r"\1Z"),
    ),
    Kind.timestamp_ntz: (
        (r"(\.[0-9]{6})[0-9]+", r"\1"),
        (r"^([0-9-]{10}[T ][0-9:.]{5,15}) ?(?:Z|UTC|GMT|[+-]00(?::?00)?)$", r"\1"),
    ),
}
_ONE_FORM = r"^(?:0|-?[1-9][0-9]{0,36}|-?(?:0|[1-9][0-9]{0,18})\.[0-9]{0,17}[1-9])$"
_MOST_ZEROS = 36  # a number is written with an exponent where it has more places than these
_PLAIN_STRING = r'^"([^"\\]*)"$'
_BEYOND_MICROS = r"[.,][0-9]{6}0*[1-9]"
_WHOLE_NUMBER = r"^-?[0-9]{1,18}$"
_MOST_PLACES = 300
_LEAST_NORMAL = 2.2250738585072014e-308  # smaller doubles have fewer digits
_SAFE_DIGITS = 15  # a double keeps every number of so many digits
_MOST_DIGITS = 38  # of a decimal

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,9})?")
_LONG_EXPONENT = re.compile(r"-?[0.]*[1-9][0-9.]*[eE]-[0-9]{10,}")
_LOOSE_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?"
    r"\s?([Zz]|UTC|GMT|[+-]\d\d(?::?\d\d)?)?(?(6)(?: (?!BC)[A-Z]{1,5}|\[[\w+/-]+\])?))?",
    re.ASCII,
)
_NO_JSON = ("NaN", "Infinity", "-Infinity")
_OUTSIDE = re.compile(r'("(?:[^"\\]|\\.)*")|NaN|-?Infinity', re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_EXACT = Context(prec=80, traps=[Inexact, InvalidDecimal])
_WIDE = Context(prec=100_000)


class FittedColumn(NamedTuple):
    """The result of :func:`fit`. ``values``: the typed column. ``cast_failures``: positions (int64)
    of the values that did not fit; they are NULL there (a JSON text has null only in place of what
    JSON does not have). ``rounded``: positions of numbers whose double or decimal lacks some of
    their digits. None: there are none. ``cut``: how many timestamps lost digits after the
    microsecond, at the positions ``cut_at``."""

    values: Array
    cast_failures: Array | None = None
    rounded: Array | None = None
    cut: int = 0
    cut_at: Array | None = None


def fit(texts: Array, data_type: DataType) -> FittedColumn:
    """Casts ``texts``, a leaf extracted by ``codec.arrow.json_structure``, to ``data_type``."""
    if data_type.kind is Kind.number_text:
        return FittedColumn(_in_one_form(texts))
    typed = _cast(texts, data_type)
    if typed is None:
        return _fit_some(texts, data_type)
    return FittedColumn(
        typed, rounded=_rounded(texts, typed) if data_type.kind is Kind.number else None
    )


def _in_one_form(texts: Array) -> Array:
    """Returns JSON texts with numbers in one form, and strings without their quotes."""
    done = pc.match_substring_regex(texts, _ONE_FORM)
    if _every(done):
        return texts
    plain = pc.match_substring_regex(texts, _PLAIN_STRING)
    values = pc.replace_substring_regex(texts, _PLAIN_STRING, r"\1")
    odd = pc.fill_null(pc.invert(pc.or_(done, plain)), False)
    if not _some(odd):
        return values
    rest = texts.filter(odd).dictionary_encode()
    found = pa.array([_one_form(t) for t in rest.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(values, odd, found.take(rest.indices))


def _one_form(text: str) -> str:
    if text.startswith('"'):
        return json.loads(text)
    number = _exact(text)
    if not number:
        return text if number is None else "0"
    size = len(number.as_tuple().digits)
    number = number.normalize(Context(prec=size, Emax=MAX_EMAX, Emin=MIN_EMIN))
    places = number.adjusted() - len(number.as_tuple().digits) + 1
    plain = number.adjusted() <= _MOST_ZEROS and places >= -_MOST_ZEROS
    return f"{number:f}" if plain else f"{number:E}"


def _cast(texts: Array, data_type: DataType) -> Array | None:
    """Casts the whole column by Arrow; None if any value cannot be cast exactly in this way."""
    try:
        match data_type.kind:
            case Kind.string:
                return texts
            case Kind.json:
                return None if _some(pc.match_substring_regex(texts, "NaN|Infinity")) else texts
            case Kind.boolean:
                yes = pc.equal(texts, "true")
                return yes if _every(pc.or_(yes, pc.equal(texts, "false"))) else None
            case Kind.number:
                numbers = pc.cast(texts, pa.float64())
                return numbers if _every(pc.is_finite(numbers)) else None
            case Kind.time | Kind.time_tz | Kind.binary:
                if not _every(pc.match_substring_regex(texts, _SAFE[data_type.kind])):
                    return None
                return texts if data_type.kind is not Kind.binary else _unbase64(texts)
            case Kind.decimal:
                if not _few_digits(texts, data_type) and not _every(
                    pc.match_substring_regex(texts, _safe_pattern(data_type))
                ):
                    return None
                return pc.cast(texts, arrow_type(data_type))
            case Kind.date | Kind.timestamp | Kind.timestamp_ntz:
                times = pc.cast(texts, arrow_type(data_type))
                return times if _in_range(times) else None
            case _:
                return pc.cast(texts, arrow_type(data_type))
    except pa.ArrowInvalid:
        return None


def _fit_some(texts: Array, data_type: DataType) -> FittedColumn:
    kind = data_type.kind
    tidy = texts
    for pattern, replacement in _TIDY.get(kind, ()):
        tidy = pc.replace_substring_regex(tidy, pattern, replacement)
    if tidy is not texts and (typed := _cast(tidy, data_type)) is not None:
        return _with_losses(texts, tidy, typed, None, kind)
    safe = pc.fill_null(pc.match_substring_regex(tidy, _safe_pattern(data_type)), False)
    if kind is Kind.json:
        safe = pc.invert(safe)
    typed = _cast(pc.if_else(safe, tidy, pa.scalar(None, pa.string())), data_type)
    if typed is None:
        raise ValueError(f"a safe pattern let an unsafe {kind} through")
    odd = pc.and_(pc.is_valid(texts), pc.invert(safe))
    rest = texts.filter(odd).dictionary_encode()
    parse, distinct = _parser(data_type), rest.dictionary.to_pylist()
    values = [parse(t) for t in distinct]
    parsed = pa.array(values, arrow_type(data_type)).take(rest.indices)
    where = pc.indices_nonzero(odd).cast(pa.int64())
    lost = parsed.is_null()
    if kind is Kind.json:
        lost = pc.or_kleene(lost, pc.not_equal(parsed, pc.cast(rest, parsed.type)))
    cast_failures = where.filter(lost) if _some(lost) else None
    typed = pc.replace_with_mask(typed, odd, parsed)
    if kind is Kind.decimal:
        lossy = [v is not None and v != _exact(t) for t, v in zip(distinct, values, strict=True)]
        rounded = where.filter(pa.array(lossy, pa.bool_()).take(rest.indices))
        return FittedColumn(typed, cast_failures, rounded if len(rounded) else None)
    return _with_losses(texts, tidy, typed, cast_failures, kind)


def _with_losses(
    texts: Array, tidy: Array, typed: Array, cast_failures: Array | None, kind: Kind
) -> FittedColumn:
    """Returns the result with the digits that numbers and timestamps lost. ``tidy``: the texts
    after the clean-up, numbers without quotes."""
    if kind is Kind.number:
        return FittedColumn(typed, cast_failures, _rounded(tidy, typed))
    if kind not in (Kind.timestamp, Kind.timestamp_ntz):
        return FittedColumn(typed, cast_failures)
    beyond = pc.match_substring_regex(texts, _BEYOND_MICROS)
    return with_cut(typed, pc.and_(beyond, typed.is_valid()), cast_failures)


def with_cut(times: Array, cut: Array, cast_failures: Array | None = None) -> FittedColumn:
    """Returns the result for timestamps of which those in the mask ``cut`` lost digits after the
    microsecond."""
    count = pc.sum(cut).as_py() or 0
    at = pc.indices_nonzero(cut).cast(pa.int64()) if count else None
    return FittedColumn(times, cast_failures, cut=count, cut_at=at)


def _rounded(texts: Array, numbers: Array) -> Array | None:
    """Positions of numbers whose text has digits that the double lacks. Only texts longer than
    :data:`_SAFE_DIGITS` are checked, and doubles too small to have that many; most of the former
    equal Arrow's text of the double, or are whole numbers."""
    long, small = _rounded_long(texts, numbers), _rounded_small(texts, numbers)
    if long is None or small is None:
        return small if long is None else long
    return pc.unique(pa.concat_arrays([long, small]))


def _rounded_small(texts: Array, numbers: Array) -> Array | None:
    """Returns positions of numbers that are not zero and whose double is zero, or lacks some of
    their digits."""
    small = pc.less(pc.abs(numbers), _LEAST_NORMAL)
    if not _some(small) or not _may_be_small(texts):
        return None
    found = texts.filter(small).dictionary_encode()
    lossy = [_loses(t, least=0) for t in found.dictionary.to_pylist()]
    if not any(lossy):
        return None
    where = pc.indices_nonzero(pc.fill_null(small, False))
    return where.filter(pa.array(lossy, pa.bool_()).take(found.indices)).cast(pa.int64())


def _may_be_small(texts: Array) -> bool:
    """Returns whether any text may be a small number other than zero: it has many places, or a
    negative exponent."""
    if (pc.max(pc.binary_length(texts)).as_py() or 0) > _MOST_PLACES:
        return True
    data = data_of(texts).to_pybytes()
    return b"e-" in data or b"E-" in data


def _rounded_long(texts: Array, numbers: Array) -> Array | None:
    lengths = pc.binary_length(texts)
    if (pc.max(lengths).as_py() or 0) <= _SAFE_DIGITS:
        return None
    where = pc.indices_nonzero(pc.fill_null(pc.greater(lengths, _SAFE_DIGITS), False))
    long_texts, doubles = texts.take(where), numbers.take(where)
    other = pc.fill_null(pc.not_equal(long_texts, pc.cast(doubles, pa.string())), False)
    if not _some(other):
        return None
    where, long_texts, doubles = (
        where.filter(other),
        long_texts.filter(other),
        doubles.filter(other),
    )
    whole = pc.match_substring_regex(long_texts, _WHOLE_NUMBER)
    if _some(whole):
        exact = pc.cast(pc.if_else(whole, long_texts, "0"), pa.int64())
        back = pc.cast(pc.if_else(whole, doubles, 0.0), pa.int64(), safe=False)
        odd = pc.if_else(whole, pc.not_equal(exact, back), True)
        where, long_texts, whole = where.filter(odd), long_texts.filter(odd), whole.filter(odd)
    if not _every(whole):
        rest = long_texts.dictionary_encode()
        lossy = pa.array([_loses(t) for t in rest.dictionary.to_pylist()], pa.bool_())
        where = where.filter(lossy.take(rest.indices))
    return where.cast(pa.int64()) if len(where) else None


def _loses(text: str, least: int = _SAFE_DIGITS) -> bool:
    """Returns whether the nearest double, written with as many digits, differs from ``text``.
    ``least``: the digits that it has in any case."""
    number = _exact(text)
    if number is None or not number:
        return number is None and _LONG_EXPONENT.fullmatch(text) is not None
    if not float(number):
        return True
    number = number.normalize(_WIDE)
    digits = len(number.as_tuple().digits)
    if digits <= least:
        return False
    unit = Decimal(1).scaleb(number.adjusted() - digits + 1, _WIDE)
    apart = _WIDE.subtract(number, Decimal(float(number)))
    return _WIDE.multiply(abs(apart), Decimal(2)) > unit


def inexact_doubles(texts: Array, numbers: Array) -> Array | None:
    """Returns positions of numbers that differ from the one that their double represents as a key:
    a whole double of 64 bits represents that integer, any other the number of its shortest text. So
    no two kept numbers have the same double (9007199254740993; 0.10000000000000000555 and 0.1).
    ``texts``: JSON texts, whose doubles are ``numbers``; None: there are no such positions."""
    doubtful = pc.greater(pc.binary_length(texts), _SAFE_DIGITS)
    doubtful = pc.or_(doubtful, pc.less(pc.abs(numbers), _LEAST_NORMAL))
    doubtful = pc.and_(doubtful, pc.not_equal(texts, pc.cast(numbers, pa.string())))
    doubtful = pc.fill_null(doubtful, False)
    if not _some(doubtful):
        return None
    found = texts.filter(doubtful).dictionary_encode()
    odd = pa.array([not _is_its_double(t) for t in found.dictionary.to_pylist()], pa.bool_())
    where = pc.indices_nonzero(doubtful).cast(pa.int64()).filter(odd.take(found.indices))
    return where if len(where) else None


def _is_its_double(text: str) -> bool:
    number = _exact(text)
    if number is None:  # an exponent of ten digits: zero, unless the number is
        return _LONG_EXPONENT.fullmatch(text.strip('"')) is None
    double = float(number)
    whole = double.is_integer() and abs(double) < 1 << 63
    return number == (int(double) if whole else Decimal(repr(double)))


def _few_digits(texts: Array, data_type: DataType) -> bool:
    """Returns whether no text has so many digits before its point that Arrow's cast to a decimal,
    which misses some overflows of 128 bits, may give another number."""
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > _MOST_DIGITS - (data_type.scale or 0):
        return False
    data = data_of(texts).to_pybytes()
    return b"e" not in data and b"E" not in data


def _safe_pattern(data_type: DataType) -> str:
    if data_type.kind is Kind.json:
        return "NaN|Infinity"
    if data_type.kind is not Kind.decimal:
        return _SAFE[data_type.kind]
    precision, scale = data_type.precision or _MOST_DIGITS, data_type.scale or 0
    digits = precision - scale
    whole = f"(?:0|[1-9][0-9]{{0,{digits - 1}}})" if digits else "0"
    return rf"^-?{whole}(?:\.[0-9]{{1,{scale}}})?$" if scale else rf"^-?{whole}$"


def _parser(data_type: DataType) -> Callable[[str], Any]:
    match data_type.kind:
        case Kind.boolean:
            return {'"true"': True, '"false"': False, "true": True, "false": False}.get
        case Kind.integer:
            return _integer
        case Kind.number:
            return _double
        case Kind.decimal:
            scale = data_type.scale or 0
            whole = (data_type.precision or _MOST_DIGITS) - scale
            return lambda text: _decimal(text, whole, scale)
        case Kind.date:
            return _date
        case Kind.timestamp:
            return lambda text: _timestamp(text, zoned=True)
        case Kind.timestamp_ntz:
            return lambda text: _timestamp(text, zoned=False)
        case Kind.binary:
            return _binary
        case Kind.json:
            return _json
        case _:
            return lambda text: None


def _exact(text: str) -> Decimal | None:
    """Returns the number in a JSON text, also inside a string; None if there is none."""
    bare = text[1:-1] if text.startswith('"') else text
    return Decimal(bare) if _JSON_NUMBER.fullmatch(bare) else None


def _integer(text: str) -> int | None:
    number = _exact(text)
    if number is None or number.adjusted() > 18 or number != number.to_integral_value():
        return None
    return int(number) if -(1 << 63) <= number < 1 << 63 else None


def _double(text: str) -> float | None:
    number = _exact(text)
    bare = text.strip('"')
    if number is None:
        return float(bare) if _LONG_EXPONENT.fullmatch(bare) else None
    value = float(number)
    return value if abs(value) != float("inf") else None


def _decimal(text: str, whole: int, scale: int) -> Decimal | None:
    number = _exact(text)
    if number is None or (number and number.adjusted() >= whole):
        return None
    try:
        return number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except (Inexact, InvalidDecimal):
        return _rounded_decimal(number, scale) if scale and whole + scale == _MOST_DIGITS else None


def _rounded_decimal(number: Decimal, scale: int) -> Decimal | None:
    """Returns the number without its digits after ``scale``; None if too few are left."""
    rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_EVEN, _WIDE)
    return rounded if _SAFE_DIGITS <= len(rounded.as_tuple().digits) <= _MOST_DIGITS else None


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if len(text) == 10 and text[4] == "-" else None
    except ValueError:
        return None


def _timestamp(text: str, *, zoned: bool) -> int | None:
    """Microseconds since 1970: of the instant (``zoned``), or of the wall clock."""
    match = _LOOSE_TIMESTAMP.fullmatch(text.strip())
    if match is None:
        return None
    day, hour, minute, second, fraction, offset = match.groups()
    try:
        shift = _shift(offset)
        if shift and not zoned:
            return None
        at = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC)
        clock = at.replace(hour=int(hour or 0), minute=int(minute or 0), second=int(second or 0))
        value = clock.replace(microsecond=int((fraction or "")[:6].ljust(6, "0"))) - shift
    except (ValueError, OverflowError):
        return None
    return (value - _EPOCH) // _MICRO


def _shift(offset: str | None) -> timedelta:
    if not offset or offset[0] not in "+-":
        return timedelta()
    digits = offset[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError(offset)
    shift = timedelta(hours=hours, minutes=minutes)
    return -shift if offset[0] == "-" else shift


def _binary(text: str) -> bytes | None:
    if not text.startswith('"'):
        return None
    try:
        bare = "".join(json.loads(text).split()).replace("-", "+").replace("_", "/").rstrip("=")
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None


def _json(text: str) -> str | None:
    """Returns ``text`` with NaN and Infinity, which JSON does not have, replaced by null outside
    strings; None if it is only one of these words."""
    return None if text in _NO_JSON else _OUTSIDE.sub(lambda m: m[1] or "null", text)


def _unbase64(texts: Array) -> Array:
    result = run_query("SELECT from_base64(b[2:-2]) AS b FROM bodies", texts)
    return result.column(0).combine_chunks().cast(pa.binary())


def in_years(times: Array) -> Array:
    """Returns dates or timestamps (days or microseconds) with NULL in place of those outside the
    years 1 to 9999, such as Postgres's ``infinity``."""
    if _in_range(times):
        return times
    low, high, numbers = _years(times)
    inside = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return pc.if_else(inside, times, pa.scalar(None, times.type))


def _in_range(times: Array) -> bool:
    """Returns whether all dates or timestamps are in the years 1 to 9999."""
    low, high, numbers = _years(times)
    ends = pc.min_max(numbers)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    return least is None or (least >= low and most <= high)


def _years(times: Array) -> tuple[int, int, Array]:
    """Returns the first and the last number of the years 1 to 9999, and ``times`` as numbers."""
    days = pa.types.is_date32(times.type)
    unit = timedelta(days=1) if days else _MICRO
    numbers = pc.cast(times, pa.int32() if days else pa.int64())
    return (_FIRST - _EPOCH) // unit, (_LAST - _EPOCH) // unit, numbers


def _every(mask: Array) -> bool:
    return pc.all(mask).as_py() is not False


def _some(mask: Array) -> bool:
    return pc.any(mask).as_py() is True
