"""Converts an Arrow table to a pandas DataFrame without changing a value.

By itself the conversion makes doubles of whole numbers with NULLs, which lose digits beyond 2^53,
in columns and in lists. Neighbour: ``reading`` returns the frame.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.codec.untyped import Table

if TYPE_CHECKING:
    import pandas


def exact_pandas(table: Table) -> "pandas.DataFrame":
    """Returns the table's rows. Whole numbers with NULLs become pandas' nullable types (``Int64``),
    lists of them become Python lists; all else is as Arrow converts it."""
    import pandas

    plain: Any = table.to_pandas()
    nullable = {
        getattr(pa, name.lower())(): getattr(pandas, f"{name}Dtype")()
        for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    }
    for index, column in enumerate(table.columns):
        if column.null_count and pa.types.is_integer(column.type):
            plain.isetitem(index, column.to_pandas(types_mapper=nullable.get))
        elif any(map(_lacks_integers, column.chunks)):
            plain.isetitem(index, pandas.Series(column.to_pylist(), dtype=object))
    return plain


def _lacks_integers(values: Any) -> bool:
    """Returns whether a list of whole numbers in these values has a NULL among them."""
    kind = values.type
    if pa.types.is_struct(kind):
        return any(_lacks_integers(values.field(index)) for index in range(kind.num_fields))
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return False
    items = values.flatten()
    return _lacks_integers(items) or (pa.types.is_integer(items.type) and items.null_count > 0)
