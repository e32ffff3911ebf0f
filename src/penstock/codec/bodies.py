"""JSON bodies as one Arrow column, and what DuckDB can say of them: texts, keys, value types.

A body is looked at as a whole here; a single value is ``codec.values``' business, a body that needs
mending ``codec.body_repair``'s. Neighbours: ``codec.decode`` puts the answers together.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from penstock.codec.arrow import json_structure
from penstock.codec.duckdb_call import RAW_NUMBERS, ask, refuses
from penstock.codec.packed_bodies import Packed, too_much
from penstock.codec.untyped import Array, ChunkedArray
from penstock.codec.untyped import compute as pc
from penstock.model.types import DataType, Kind, RowSchema

Rows = Callable[[Array], Array]
"""Positions in a (nested) column to row numbers, both int64."""

_MAX_BYTES = (1 << 31) - 1  # 32-bit offsets
_NO_BODY = pa.array([], pa.string())


class Malformed(Exception):
    """Some body is not JSON."""


def pack(bodies: Sequence[Any]) -> Array:
    """Bodies (buffer-like) in one string column. Their UTF-8 is not checked here: the parser does.

    Raises ``Defect`` above 2 GiB in all."""
    packed = bodies if isinstance(bodies, Packed) else Packed.of(bodies)
    if packed.size > _MAX_BYTES:
        raise too_much(packed.size)
    columns = [
        pa.StringArray.from_buffers(len(p.ends) - 1, pa.py_buffer(p.ends), pa.py_buffer(p.data))
        for p in packed.pieces
    ]
    return columns[0] if len(columns) == 1 else pa.concat_arrays([_NO_BODY, *columns])


class Texts:
    """The question that gives the texts of a schema's columns, made once per schema.

    ``sources``: the property names to look for, one per column of ``schema``, in its order.
    ``beside``: further top-level properties, whose JSON text is asked for. DuckDB compares the
    names of one structure without case, so names that clash go to several.
    """

    def __init__(
        self, schema: RowSchema, sources: Sequence[str], beside: Sequence[str] = ()
    ) -> None:
        groups: list[dict[str, Any]] = []
        folded: list[set[str]] = []
        self._places: list[tuple[int, int]] = []
        kinds = [f.type for f in schema.fields] + [DataType(Kind.json)] * len(beside)
        for data_type, source in zip(kinds, (*sources, *beside), strict=True):
            key = source.casefold()
            group = next((i for i, used in enumerate(folded) if key not in used), len(groups))
            if group == len(groups):
                groups.append({})
                folded.append(set())
            self._places.append((group, len(groups[group])))
            groups[group][source] = json_structure(data_type)
            folded[group].add(key)
        texts: list[str] = []
        for i, (group, used) in enumerate(zip(groups, folded, strict=True)):
            group[_free_name(used)] = RAW_NUMBERS
            structure = msgspec.json.encode(group).decode().replace("'", "''")
            texts.append(f"from_json(b, '{structure}') AS s{i}")
        self._sql = f"SELECT {', '.join(texts)} FROM bodies" if texts else None

    def of(self, bodies: Array) -> list[Array]:
        """Per column, and then per property beside, its values as text: lists and structs of text
        where nested. NULL where null, missing, or where a list or an object was expected and
        something else came (for an object then a struct of NULLs). Of a key that comes twice the
        first counts. Raises :class:`Malformed`."""
        if self._sql is None:
            return []
        try:
            answer = ask(self._sql, bodies)
        except refuses() as e:
            raise Malformed(str(e)) from None
        groups = [_whole(c).flatten() for c in answer.columns]
        return [groups[g][i] for g, i in self._places]


def malformed(bodies: Array) -> Array:
    """Row numbers of what the parser refuses."""
    answer = ask("SELECT json_valid(b) AS ok FROM bodies", bodies)
    return _positions(pc.invert(pc.fill_null(_whole(answer.column(0)), False)))


def no_objects(bodies: Array) -> Array:
    """Row numbers of what does not begin like an object."""
    begins = pc.starts_with(bodies, "{")
    return _positions(pc.invert(begins)) if pc.all(begins).as_py() is False else nothing()


def keys(bodies: Array, path: str) -> Array:
    """The keys of the object at ``path``, a list per row."""
    sql = f"SELECT json_keys(b, {_quote(path)}) AS k FROM bodies"
    answer = ask(sql, bodies)
    return _whole(answer.column(0))


def rows_with_doubles(found: Array) -> Array:
    """Row numbers of the lists (of :func:`keys`) in which a key comes twice."""
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
    """Row numbers where the value at ``path`` (any of them, where it has ``[*]``) is neither null
    nor of the JSON type ``wanted`` (ARRAY or OBJECT)."""
    answer = ask(f"SELECT json_type(b, {_quote(path)}) AS t FROM bodies", bodies)
    types, rows = _whole(answer.column(0)), None
    if pa.types.is_list(types.type):
        rows, types = pc.list_parent_indices(types).cast(pa.int64()), types.flatten()
    wrong = pc.invert(pc.is_in(types, pa.array([wanted, "NULL", None], pa.string())))
    found = _positions(wrong)
    return found if rows is None else pc.unique(rows.take(found))


def step(path: str, name: str) -> str:
    """The path of a property below ``path``."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'{path}."{escaped}"'


def all_null(column: Array) -> Array:
    """Positions of structs, themselves not null, in which nothing is."""
    children = column.flatten()
    mask = column.is_valid()
    for child in children:
        if child.null_count == column.null_count:
            return nothing()
        mask = pc.and_(mask, child.is_null())
    return _positions(mask)


def no_values(column: Array) -> Array:
    """Positions of what is null."""
    return _positions(column.is_null()) if column.null_count else nothing()


def below(column: Array, rows: Rows) -> Rows:
    """The row numbers of a list column's elements (as ``flatten`` gives them)."""
    return lambda positions: rows(pc.list_parent_indices(column).cast(pa.int64()).take(positions))


def _whole(column: ChunkedArray) -> Array:
    chunks = column.chunks
    if len(chunks) == 1 and chunks[0].offset == 0:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _positions(mask: Array) -> Array:
    return pc.indices_nonzero(mask).cast(pa.int64())


def nothing() -> Array:
    """No positions."""
    return pa.array([], pa.int64())


def _quote(path: str) -> str:
    return "'" + path.replace("'", "''") + "'"


def _free_name(used: set[str]) -> str:
    name = "penstock"
    while name in used:
        name += "_"
    return name
