"""Defines which type holds the values of two types: the one rule by which columns become wider.

Imports no Spark. Neighbours: ``frame.schema_evolution`` computes a table's columns with it;
``refused_histories`` checks whether the columns of versions can hold a cursor."""

from penstock.model.types import DataType, Kind

MOST_DIGITS = 38  # of a decimal
_INT64_DIGITS = 19


def widened(old: DataType, new: DataType) -> DataType:
    """Returns the type that holds every ``old`` value and as many ``new`` ones as possible; ``old``
    if no wider type exists."""
    numeric = (Kind.integer, Kind.decimal)
    if old.kind in numeric and new.kind is Kind.number:
        return new
    if old.kind in numeric and new.kind in numeric:
        whole = max(whole_digits(old), whole_digits(new))
        scale = max(old.scale or 0, new.scale or 0)
        if old.kind is Kind.integer and new.kind is Kind.integer:
            return old
        if whole + scale > MOST_DIGITS:
            return old
        return DataType(Kind.decimal, precision=whole + scale, scale=scale)
    if old.kind is Kind.date and new.kind is Kind.timestamp_ntz:
        return new
    return old


def whole_digits(kind: DataType, *, most: bool = True) -> int:
    """Returns the number of digits before the point in an integer or a decimal: those that a value
    has at ``most``, else those that every value may have."""
    if kind.kind is Kind.integer:
        return _INT64_DIGITS if most else _INT64_DIGITS - 1
    return (kind.precision or MOST_DIGITS) - (kind.scale or 0)
