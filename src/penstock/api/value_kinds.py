"""Compares the kinds of the values that Python dicts have for a column, over all rows.

PyArrow would change mixed values silently: a time mixed with dates becomes a date, text mixed with
bytes becomes bytes, a time without a zone mixed with others counts as UTC, and pandas' times lose
their nanoseconds. Here each column, and each field of an object or list in it, has one kind, or
whole numbers mixed with other numbers; else ``ConfigError`` (``write.rows``) names both kinds and
the row. The same holds for columns of Python objects in a pandas frame. Not here: Arrow's types
(``handed_rows``).
"""

import datetime
import numbers
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

from penstock.errors import ConfigError

_WHOLE, _TIME = "a whole number", "a time"
_TOGETHER = ({_WHOLE, "a number"}, {_WHOLE, "a decimal"})
_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (numbers.Integral, _WHOLE),
    (Decimal, "a decimal"),
    (numbers.Real, "a number"),
    (str, "text"),
    (bytes, "bytes"),
    (bytearray, "bytes"),
    (datetime.datetime, _TIME),
    (datetime.date, "a date"),
    (Mapping, "an object"),
    (list, "a list"),
    (tuple, "a list"),
    (set, "a list"),
    (frozenset, "a list"),
)
_OF_NUMPY = {"bool": "true or false", "bool_": "true or false", "ndarray": "a list"}
_MISSING = {"NaTType": "NaT", "NAType": "NA"}  # of pandas
_EXPECTED = "a row is a dict of column names and values"
_AS_DICTS = "give dicts, as dict(row), dataclasses.asdict(row) or model.model_dump(), or tables"
_ONE_KIND = "give the column values of one type, as str(value); NULL is None"
_NULL = "NULL is None: give the frame itself, or df.astype(object).where(df.notna(), None)"
MICROSECONDS = "cast the column: times have microseconds at most, and nothing is rounded"

_Path = tuple[str, ...]


def unfit(why: object, hint: str = MICROSECONDS) -> ConfigError:
    """Returns the error for rows that no file can hold unchanged."""
    return ConfigError(f"the rows cannot be written: {why}", code="write.rows", hint=hint)


def no_row(row: Any, number: int, expected: str = _EXPECTED) -> ConfigError:
    """Returns the error for an object that is not a row. ``expected``: what would be one."""
    return unfit(f"row {number} is {_named(type(row))}: {expected}", _AS_DICTS)


class ValueKinds:
    """The kinds of the values of each column so far."""

    def __init__(self) -> None:
        self._known: dict[_Path, set[str]] = {}

    def of_frame(self, name: str, values: list[Any], before: int) -> None:
        """Compares Python objects of a pandas column, in which NaN, NaT and NA are NULL."""
        at = range(before + 1, before + len(values) + 1)
        self._compare(_with_nulls(values), (name,), at)

    def columns(self, rows: list[Any], before: int) -> dict[str, list[Any]]:
        """Returns the values of each column that these rows have, None where a row has none.
        ``before``: how many rows came earlier. Raises ``ConfigError``."""
        for number, row in enumerate(rows, before + 1):
            if not isinstance(row, Mapping):
                raise no_row(row, number)
            if not row:
                raise unfit(f"row {number} has no columns: {_EXPECTED}", "leave the row out")
        names = dict.fromkeys(chain.from_iterable(rows))
        self._refuse_names(names, ())
        columns: dict[str, list[Any]] = {}
        for name in names:
            columns[name] = [row.get(name) for row in rows]
            self._compare(columns[name], (name,), range(before + 1, before + len(rows) + 1))
        return columns

    def _compare(self, values: list[Any], path: _Path, at: Sequence[int]) -> None:
        """``at``: the number of each value's row."""
        types = set(map(type, values)) - {type(None)}
        kinds = {_kind(each) for each in types}
        if not kinds.isdisjoint(_MISSING.values()):
            raise _missing(values, path, at)
        if _TIME in kinds:
            _refuse_nanoseconds(values, path, at)
            kinds = kinds - {_TIME} | {
                _zoned(v) for v in values if isinstance(v, datetime.datetime)
            }
        known = self._known.setdefault(path, set())
        new = kinds - known
        known |= kinds
        if new and len(known) > 1 and not any(known <= pair for pair in _TOGETHER):
            raise _differ(values, path, at, sorted(known))
        if "an object" in kinds:
            self._inside_objects(values, path, at)
        if "a list" in kinds:
            pairs = [(v, n) for v, n in zip(values, at, strict=True) if v is not None]
            pairs = [(_to_compare(v), n) for v, n in pairs]
            inner = [*chain.from_iterable(v for v, _ in pairs)]
            self._compare(inner, (*path, "[]"), [n for v, n in pairs for _ in v])

    def _inside_objects(self, values: list[Any], path: _Path, at: Sequence[int]) -> None:
        pairs = [(v, n) for v, n in zip(values, at, strict=True) if v is not None]
        names = dict.fromkeys(chain.from_iterable(v for v, _ in pairs))
        self._refuse_names(names, path)
        for name in names:
            having = [(v[name], n) for v, n in pairs if name in v]
            self._compare([v for v, _ in having], (*path, name), [n for _, n in having])

    def _refuse_names(self, names: Iterable[Any], path: _Path) -> None:
        for name in names:
            if not isinstance(name, str):
                where = f"an object in {'.'.join(path)!r} has the field" if path else "a row has"
                raise unfit(f"{where} {name!r}, and names are text", "make the names text")


def _kind(kind: type) -> str:
    if kind is type(None):
        return ""
    found = next((word for each, word in _KINDS if issubclass(kind, each)), None)
    package = kind.__module__.partition(".")[0]
    if found is None and package == "numpy":
        found = _OF_NUMPY.get(kind.__name__)
    if package == "pandas":  # NaT is a datetime
        found = _MISSING.get(kind.__name__, found)
    return found or _named(kind)


def _to_compare(values: Any) -> Any:
    """Returns the values of a list; of a NumPy array, whose values share a type, the first one."""
    return values if _array_kind(values) in (None, "O") else values[:1]


def _array_kind(value: Any) -> str | None:
    """Returns NumPy's letter for the type of an array's values; None: it is no array."""
    return getattr(getattr(value, "dtype", None), "kind", None)


def _with_nulls(value: Any) -> Any:
    """Returns the value with None for what pandas treats as NULL, also inside lists and objects."""
    if isinstance(value, (list, tuple)) or _array_kind(value) == "O":
        return [_with_nulls(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _with_nulls(inner) for name, inner in value.items()}
    missing = type(value).__name__ in _MISSING or (isinstance(value, float) and value != value)
    return None if missing else value


def _missing(values: list[Any], path: _Path, at: Sequence[int]) -> ConfigError:
    word, number = next(
        (_kind(type(v)), n)
        for v, n in zip(values, at, strict=True)
        if _kind(type(v)) in _MISSING.values()
    )
    return unfit(f"the column {_column(path)!r} has pandas' {word} (row {number})", _NULL)


def _refuse_nanoseconds(values: list[Any], path: _Path, at: Sequence[int]) -> None:
    for value, number in zip(values, at, strict=True):
        if getattr(value, "nanosecond", 0):
            raise unfit(
                f"the column {_column(path)!r} has a time with nanoseconds: {value} (row {number})",
                MICROSECONDS,
            )


def _column(path: _Path) -> str:
    return ".".join(path).replace(".[]", "[]")


def _zoned(value: Any) -> str:
    return f"{_TIME} {'without' if value.tzinfo is None else 'with'} a zone"


def _named(kind: type) -> str:
    article = "an" if kind.__name__[:1].lower() in "aeiou" else "a"
    return f"{article} {kind.__name__}"


def _differ(values: list[Any], path: _Path, at: Sequence[int], known: list[str]) -> ConfigError:
    """Returns the error, which names the first row of this block that has each kind."""
    rows: dict[str, int] = {}
    for value, number in zip(values, at, strict=True):
        kind = _kind(type(value))
        rows.setdefault(_zoned(value) if kind == _TIME else kind, number)
    says = [f"{kind} (row {rows[kind]})" if kind in rows else kind for kind in known]
    return unfit(
        f"the column {_column(path)!r} has values of two types: {' and '.join(says)}", _ONE_KIND
    )
