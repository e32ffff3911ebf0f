"""Checks by counting that every key of the bodies has its value in a column or is null.

Counting costs far less than reading keys. If the number of keys differs from the number of values
and nulls, a body has a key that is extra or duplicate, or a value of another type than the schema;
``codec.decode`` then finds out which. Bytes are counted without parsing: a key is a quote and a
colon. Text values may hold these bytes too, and then hold as many of them once decoded. Two ways to
write a body would hide keys, so bodies that use them are always named: white space before a colon,
and a quote or a colon in a text that is escaped by its number. A body may be suspected wrongly,
which costs time. A faulty body passes in one case only: a key comes again with null, and its batch
leaves out as many properties of the schema."""

from collections.abc import Iterator, Sequence

from penstock.codec.packed_bodies import KEY, NULL, SPACED_KEY, Packed
from penstock.codec.untyped import Array, pa
from penstock.codec.untyped import compute as pc
from penstock.model.types import DataType, Kind

Column = tuple[Array, DataType]

_SPACED_NULL = b'": nul'
_ESCAPE = r"\\u00(?:22|3[aA])"


def explained(bodies: Packed, columns: Sequence[Column]) -> bool:
    """Returns whether all keys of ``bodies`` are accounted for. ``columns``: all decoded columns,
    as texts (``codec.bodies``)."""
    if any(p.spaced for p in bodies.pieces):
        return False
    cells = [v for c, of in columns for v, _ in _values(c, of, None)]
    empty = sum(v.null_count for v in cells)
    missing = sum(p.keys for p in bodies.pieces) - sum(map(len, cells)) + empty
    null_keys = sum(p.nulls for p in bodies.pieces)
    if missing in (0, null_keys) and null_keys <= empty:
        return True
    # Text values (strings that hold JSON, and JSON columns) contain keys and nulls of their own.
    texts = [t for c, of in columns for t, _ in _texts(c, of, None)]
    in_texts = sum(_count(t, KEY) for t in texts)
    if in_texts and any(map(bodies.occurrences, (rb"\u0022", rb"\u003a", rb"\u003A"))):
        return False
    null_keys += bodies.occurrences(_SPACED_NULL) - sum(_nulls(t) for t in texts)
    return missing - in_texts == null_keys <= empty


def unexplained_rows(bodies: Array, columns: Sequence[Column]) -> Array:
    """Returns the row numbers (int64) of the bodies whose keys are not all accounted for.
    ``bodies``: a string column of them."""
    rows = len(bodies)
    keys, nulls = _per_text(bodies, KEY), _null_keys(bodies)
    odd = pc.match_substring_regex(bodies, SPACED_KEY.pattern.decode())
    valid = empty = pa.nulls(rows, pa.int32()).fill_null(0)
    escaped: Array | None = None
    for column, data_type in columns:
        for values, parents in _values(column, data_type, None):
            valid = pc.add(valid, _per_row(values.is_valid(), parents, rows))
            empty = pc.add(empty, _per_row(values.is_null(), parents, rows))
        for text, parents in _texts(column, data_type, None):
            if _count(text, KEY):
                held = _per_row(_per_text(text, KEY), parents, rows)
                keys = pc.subtract(keys, held)
                nulls = pc.subtract(nulls, _per_row(_null_keys(text), parents, rows))
                if escaped is None:
                    escaped = pc.match_substring_regex(bodies, _ESCAPE)
                odd = pc.or_(odd, pc.and_(escaped, pc.greater(held, 0)))
    odd = pc.or_(odd, pc.not_equal(pc.subtract(keys, nulls), valid))
    return pc.indices_nonzero(pc.or_(odd, pc.greater(nulls, empty))).cast(pa.int64())


def _null_keys(texts: Array) -> Array:
    """Returns the number of keys followed by null, per text."""
    return pc.add(_per_text(texts, NULL), _per_text(texts, _SPACED_NULL))


def _per_text(texts: Array, pattern: bytes) -> Array:
    """Returns how often ``pattern`` occurs, per text; 0 in NULL."""
    if not _count(texts, pattern):
        return pa.nulls(len(texts), pa.int32()).fill_null(0)
    return pc.fill_null(pc.count_substring(texts, pattern.decode()), 0)


def _per_row(counts: Array, parents: Array | None, rows: int) -> Array:
    """Sums ``counts`` of elements by row. ``parents``: the row of each element; None: element i is
    row i."""
    numbers = pc.cast(counts, pa.int32())
    if parents is None:
        return numbers
    summed = pa.table({"r": parents, "n": numbers}).group_by("r").aggregate([("n", "sum")])
    every = pc.indices_nonzero(pa.repeat(True, rows)).cast(pa.int64())
    index = pc.index_in(every, summed.column("r").combine_chunks())
    sums = summed.column("n_sum").combine_chunks().cast(pa.int32())
    return pc.fill_null(sums.take(index), 0)


def _values(
    column: Array, data_type: DataType, parents: Array | None, *, keyed: bool = True
) -> Iterator[tuple[Array, Array | None]]:
    """Yields the columns, nested ones too, whose values have one key each, with the row of each
    value (None: value i is in row i)."""
    if keyed:
        yield column, parents
    if data_type.kind is Kind.array and data_type.item is not None and _has_keys(data_type.item):
        yield from _values(column.flatten(), data_type.item, _parents(column, parents), keyed=False)
    elif data_type.kind is Kind.struct:
        for child, field in zip(column.flatten(), data_type.fields, strict=True):
            yield from _values(child, field.type, parents)


def _texts(
    column: Array, data_type: DataType, parents: Array | None
) -> Iterator[tuple[Array, Array | None]]:
    """Yields the leaves whose text may contain keys, with the row of each value."""
    match data_type.kind:
        case Kind.array if data_type.item is not None:
            yield from _texts(column.flatten(), data_type.item, _parents(column, parents))
        case Kind.struct:
            for child, field in zip(column.flatten(), data_type.fields, strict=True):
                yield from _texts(child, field.type, parents)
        case Kind.string | Kind.number_text | Kind.json:
            yield column, parents
        case _:
            return


def _parents(column: Array, above: Array | None) -> Array:
    own = pc.list_parent_indices(column).cast(pa.int64())
    return own if above is None else above.take(own)


def _has_keys(data_type: DataType) -> bool:
    if data_type.kind is Kind.array and data_type.item is not None:
        return _has_keys(data_type.item)
    return data_type.kind is Kind.struct


def _nulls(texts: Array) -> int:
    return _count(texts, NULL) + _count(texts, _SPACED_NULL)


def _count(texts: Array, pattern: bytes) -> int:
    """Returns how often ``pattern`` occurs in the bytes of a string column."""
    _, ends, data = texts.buffers()
    if data is None or len(texts) == 0:
        return 0
    bounds = pa.Array.from_buffers(pa.int32(), len(texts) + 1, [None, ends], offset=texts.offset)
    start, end = bounds[0].as_py(), bounds[-1].as_py()
    return data.slice(start, end - start).to_pybytes().count(pattern)
