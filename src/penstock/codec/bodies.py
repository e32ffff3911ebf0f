"""Makes an Arrow column of packed JSON bodies and queries it by DuckDB: texts, keys, JSON types.

All functions take the whole column of bodies, and return positions or row numbers as int64 arrays.
Not here: the value of one column (``codec.values``), repairing one body (``codec.body_repair``).
Neighbours: ``codec.decode`` combines the results.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.codec.arrow import json_structure
from penstock.codec.duckdb_call import RAW_NUMBERS, input_errors, run_query
from penstock.codec.packed_bodies import Packed, too_large
from penstock.codec.untyped import Array, ChunkedArray, pa
from penstock.codec.untyped import compute as pc
from penstock.model.types import Field

Rows = Callable[[Array], Array]
"""Maps positions in a (nested) column to row numbers, both int64."""

_MAX_BYTES = (1 << 31) - 1  # 32-bit offsets


class Malformed(Exception):
    """Raised if at least one body is not JSON."""


def column(bodies: Packed) -> Array:
    """Returns one string column of the bodies, without checking their UTF-8: DuckDB's parser does
    that.

    Raises ``Defect`` above 2 GiB in all."""
    if bodies.size > _MAX_BYTES:
        raise too_large(bodies.size)
    columns = [
        pa.StringArray.from_buffers(len(p.ends) - 1, pa.py_buffer(p.ends), pa.py_buffer(p.data))
        for p in bodies.pieces
    ]
    return (
        columns[0] if len(columns) == 1 else pa.concat_arrays([pa.nulls(0, pa.string()), *columns])
    )


class TextExtractor:
    """Extracts the texts of columns from bodies, by a query that is built once.

    ``fields``: the properties to look for, by their original names. DuckDB ignores case when it
    compares the names in one structure, so clashing names go to several structures."""

    def __init__(self, fields: Sequence[Field]) -> None:
        groups: list[dict[str, Any]] = []
        folded: list[set[str]] = []
        self._places: list[tuple[int, int]] = []
        for field in fields:
            key = field.source.casefold()
            group = next((i for i, used in enumerate(folded) if key not in used), len(groups))
            if group == len(groups):
                groups.append({})
                folded.append(set())
            self._places.append((group, len(groups[group])))
            groups[group][field.source] = json_structure(field.type)
            folded[group].add(key)
        texts: list[str] = []
        for i, (group, used) in enumerate(zip(groups, folded, strict=True)):
            group[_free_name(used)] = RAW_NUMBERS
            structure = msgspec.json.encode(group).decode().replace("'", "''")
            texts.append(f"from_json(b, '{structure}') AS s{i}")
        self._sql = f"SELECT {', '.join(texts)} FROM bodies" if texts else None

    def of(self, bodies: Array) -> list[Array]:
        """Returns the texts of each column; nested ones as lists and structs of text. A text is
        NULL if the value is null or missing, or is not a list where one is expected; a value that
        is not an object where one is expected gives a struct of NULLs. Of a duplicate key the first
        value counts. Raises :class:`Malformed`."""
        if self._sql is None:
            return []
        try:
            result = run_query(self._sql, bodies)
        except input_errors() as e:
            raise Malformed(str(e)) from None
        groups = [_whole(c).flatten() for c in result.columns]
        return [groups[g][i] for g, i in self._places]


def malformed(bodies: Array) -> Array:
    """Returns the row numbers of the bodies that are not JSON."""
    result = run_query("SELECT json_valid(b) AS ok FROM bodies", bodies)
    return _positions(pc.invert(pc.fill_null(_whole(result.column(0)), False)))


def no_objects(bodies: Array) -> Array:
    """Returns the row numbers of the bodies that do not begin with ``{``."""
    begins = pc.starts_with(bodies, "{")
    return _positions(pc.invert(begins)) if pc.all(begins).as_py() is False else nothing()


def keys(bodies: Array, path: str) -> Array:
    """Returns the keys of the object at ``path``, a list per row."""
    sql = f"SELECT json_keys(b, {_quote(path)}) AS k FROM bodies"
    result = run_query(sql, bodies)
    return _whole(result.column(0))


def rows_with_doubles(found: Array) -> Array:
    """Returns the row numbers of the lists in which a key comes twice. ``found``: the result of
    :func:`keys`."""
    rows = pc.list_parent_indices(found).cast(pa.int64())
    if pa.types.is_list(found.type.value_type):  # the path has [*]: a list per element
        return pc.unique(rows.take(rows_with_doubles(found.flatten())))
    names = found.flatten().dictionary_encode()
    width = pa.scalar(max(1, len(names.dictionary)), pa.int64())
    pairs = pc.add(pc.multiply(rows, width), names.indices.cast(pa.int64()))
    if pc.count_distinct(pairs).as_py() == len(pairs):
        return nothing()
    counted = pc.value_counts(pairs)
    twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    return pc.unique(pc.divide(twice, width))


def rows_of_another_type(bodies: Array, path: str, wanted: str) -> Array:
    """Returns the row numbers of the bodies whose value at ``path`` is neither null nor of the JSON
    type ``wanted`` (ARRAY or OBJECT); with ``[*]`` in the path, at least one of the values."""
    result = run_query(f"SELECT json_type(b, {_quote(path)}) AS t FROM bodies", bodies)
    types, rows = _whole(result.column(0)), None
    if pa.types.is_list(types.type):
        rows, types = pc.list_parent_indices(types).cast(pa.int64()), types.flatten()
    wrong = pc.invert(pc.is_in(types, pa.array([wanted, "NULL", None], pa.string())))
    found = _positions(wrong)
    return found if rows is None else pc.unique(rows.take(found))


def step(path: str, name: str) -> str:
    """Returns the path of a property below ``path``."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'{path}."{escaped}"'


def all_null(column: Array) -> Array:
    """Positions of the non-null structs whose fields are all null."""
    children = column.flatten()
    mask = column.is_valid()
    for child in children:
        if child.null_count == column.null_count:
            return nothing()
        mask = pc.and_(mask, child.is_null())
    return _positions(mask)


def no_values(column: Array) -> Array:
    """Positions of the null values."""
    return _positions(column.is_null()) if column.null_count else nothing()


def below(column: Array, rows: Rows) -> Rows:
    """Returns the mapping to row numbers for the elements of a list column (in the order of
    ``flatten``). ``rows``: the mapping for the column itself."""
    return lambda positions: rows(pc.list_parent_indices(column).cast(pa.int64()).take(positions))


def _whole(column: ChunkedArray) -> Array:
    chunks = column.chunks
    if len(chunks) == 1 and chunks[0].offset == 0:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _positions(mask: Array) -> Array:
    return pc.indices_nonzero(mask).cast(pa.int64())


def nothing() -> Array:
    """Returns an empty array of positions."""
    return pa.array([], pa.int64())


def _quote(path: str) -> str:
    return "'" + path.replace("'", "''") + "'"


def _free_name(used: set[str]) -> str:
    name = "penstock"
    while name in used:
        name += "_"
    return name
