"""Records that come as Arrow columns: their types as ours, and their rows as a part has them.

The columnar twin of ``codec.decode``, which reads JSON: the same answer, the same rule for a value
that does not fit (L9). A column that has its type already is not copied. Neighbours: ``protocols``
wrap what they are given in :class:`Columns`; ``engine.decoding`` asks for rows.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import msgspec
import pyarrow as pa

from penstock.codec import duck
from penstock.codec.arrow import arrow_type, part_schema
from penstock.codec.decode import NULL_KEY, Decoded, RowReject
from penstock.codec.internal import ascending, change_lists, row_ids
from penstock.codec.plain import python_values, written_out
from penstock.codec.untyped import Array, ArrowSchema, ArrowType, Table
from penstock.codec.untyped import compute as pc
from penstock.model.catalog import FieldPath
from penstock.model.types import ChangeWords, DataType, Field, Kind, RowSchema

_DIGITS = 38
Rows = Callable[[Array], Array]


class Columns(Sequence[bytes]):
    """What a ``Batch`` carries in place of JSON bodies; one row as JSON when it is asked for."""

    __slots__ = ("table",)

    def __init__(self, table: Table) -> None:
        self.table = table

    @staticmethod
    def joined(parts: "Iterable[Columns]") -> "Columns":
        return Columns(pa.concat_tables([p.table for p in parts], promote_options="permissive"))

    def __len__(self) -> int:
        return self.table.num_rows

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> "Columns": ...
    def __getitem__(self, index: int | slice) -> "bytes | Columns":
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            if step != 1:
                raise ValueError("rows that stand side by side only")
            return Columns(self.table.slice(begin, max(end - begin, 0)))
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        row = self.table.slice(place, 1)
        found = {name: next(python_values(column.combine_chunks()))
                 for name, column in zip(row.column_names, row.columns, strict=True)}  # fmt: skip
        return msgspec.json.encode(found, enc_hook=str)

    def __iter__(self) -> Iterator[bytes]:
        return (self[i] for i in range(len(self)))


def data_type(arrow: ArrowType) -> DataType:
    """The narrowest of our types that takes every value; what has none is text."""
    types = pa.types
    if types.is_dictionary(arrow) or types.is_run_end_encoded(arrow):
        return data_type(arrow.value_type)
    if types.is_boolean(arrow):
        return DataType(Kind.boolean)
    if types.is_uint64(arrow):
        return DataType(Kind.decimal, 20, 0)
    if types.is_integer(arrow):
        return DataType(Kind.integer)
    if types.is_floating(arrow):
        return DataType(Kind.number)
    if types.is_decimal(arrow) and arrow.precision <= _DIGITS and arrow.scale >= 0:
        return DataType(Kind.decimal, arrow.precision, arrow.scale)
    if types.is_date(arrow):
        return DataType(Kind.date)
    if types.is_timestamp(arrow):
        return DataType(Kind.timestamp_ntz if arrow.tz is None else Kind.timestamp)
    if types.is_time(arrow):
        return DataType(Kind.time)
    if _is_binary(arrow):
        return DataType(Kind.binary)
    if types.is_map(arrow):
        return DataType(Kind.json)
    if types.is_struct(arrow) and arrow.num_fields:
        inner = (arrow.field(i) for i in range(arrow.num_fields))
        return DataType(
            Kind.struct, fields=tuple(Field(f.name, f.name, data_type(f.type)) for f in inner)
        )
    if _is_list(arrow):
        return DataType(Kind.array, item=data_type(arrow.value_type))
    return DataType(Kind.json if types.is_nested(arrow) else Kind.string)


def row_schema(arrow: ArrowSchema) -> RowSchema:
    """Columns by their names as they stand."""
    return RowSchema(tuple(Field(f.name, f.name, data_type(f.type)) for f in arrow))


def _is_list(arrow: ArrowType) -> bool:
    types = pa.types
    return (
        types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow)
        or types.is_list_view(arrow) or types.is_large_list_view(arrow)
    )  # fmt: skip


def _is_binary(arrow: ArrowType) -> bool:
    types = pa.types
    return (
        types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_binary_view(arrow)
        or types.is_fixed_size_binary(arrow)
    )  # fmt: skip


class ColumnDecoder:
    """``codec.decode.RowDecoder`` for columns; parameters as there. Columns are looked for by their
    original names."""

    def __init__(
        self,
        schema: RowSchema,
        *,
        strict: bool = False,
        key: tuple[FieldPath, ...] = (),
        words: ChangeWords | None = None,
        ignored: Collection[str] = (),
    ) -> None:
        self._schema, self._strict, self._key = schema, strict, key
        self._words = words or ChangeWords()
        self._known = {*(f.source for f in schema.fields), *ignored}
        self._part = part_schema(schema)

    def decode(
        self,
        rows: Columns,
        first_seq: int,
        extracted_at_ms: Sequence[int],
        changes: Mapping[int, bytes],
    ) -> Decoded:
        """As ``RowDecoder.decode``."""
        table, count = rows.table.combine_chunks(), len(rows)
        misfits: dict[int, list[str]] = {}
        columns: list[Array] = []
        for known in self._schema.fields:
            given = _column(table, known.source)
            target = arrow_type(known.type)
            if given is None:
                columns.append(pa.nulls(count, target))
                continue
            columns.append(_fitted(given, known.type, known.source, misfits, _same))
        rejects = self._null_keys(columns, count)
        if self._strict:
            for index, paths in misfits.items():
                rejects.setdefault(index, RowReject(index, self._words.reason, paths[0]))
        times = pc.multiply(pa.array(extracted_at_ms, pa.int64()), 1000)
        part = pa.Table.from_arrays(
            [
                *columns,
                ascending(first_seq, count),
                row_ids(count),
                times.cast(pa.timestamp("us", tz="UTC")),
                change_lists(count, changes, misfits, self._words.change, self._words.reason),
            ],
            schema=self._part,
        )
        if rejects:
            part = part.filter(pa.array([i not in rejects for i in range(count)]))
        lost = sum(len(p) for i, p in misfits.items() if i not in rejects)
        return Decoded(part, [rejects[i] for i in sorted(rejects)], lost, self._extra(table))

    def _extra(self, table: Table) -> dict[str, int]:
        names = (n for n in table.column_names if n not in self._known)
        counts = {n: table.num_rows - (_column(table, n) or table).null_count for n in names}
        return {name: count for name, count in counts.items() if count}

    def _null_keys(self, columns: list[Array], count: int) -> dict[int, RowReject]:
        found = [self._at(path, columns) for path in self._key]
        if not found or any(c is None for c in found):
            return {}
        missing = pa.repeat(pa.scalar(True), count)
        for column in found:
            missing = pc.and_(missing, pc.is_null(column))
        name = ", ".join(".".join(path) for path in self._key)
        return {i: RowReject(i, NULL_KEY, name) for i in pc.indices_nonzero(missing).to_pylist()}

    def _at(self, path: FieldPath, columns: list[Array]) -> Array | None:
        level, found = self._schema.fields, None
        for step in path:
            place = next((j for j, f in enumerate(level) if f.source == step), None)
            if place is None:
                return None
            found = columns[place] if found is None else found.flatten()[place]
            level = level[place].type.fields
        return found


def _column(table: Table, name: str) -> Array | None:
    """One array; None where the table has no such column. The first of several."""
    place = next((i for i, n in enumerate(table.column_names) if n == name), None)
    if place is None:
        return None
    chunks = table.column(place).chunks
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.nulls(0, table.schema.field(place).type)


def _fitted(
    given: Array, wanted: DataType, path: str, misfits: dict[int, list[str]], rows: Rows
) -> Array:
    """The column in its type. ``rows``: the row numbers of positions in it."""
    target = arrow_type(wanted)
    types = pa.types
    if types.is_dictionary(given.type) or types.is_run_end_encoded(given.type):
        given = written_out(given)
    if wanted.kind is Kind.struct and types.is_struct(given.type):
        return _struct(given, wanted, path, misfits, rows)
    if wanted.kind is Kind.array and _is_list(given.type):
        return _list(given, wanted, path, misfits, rows)
    if wanted.kind is Kind.json and not _is_text(given.type):
        texts = [None if v is None else _json(v) for v in python_values(given)]
        return pa.array(texts, pa.string())
    found = _cast(given, target)
    if wanted.kind is Kind.json:
        valid = duck.ask("SELECT json_valid(b) AS ok FROM bodies", found).column(0)
        found = pc.if_else(valid.combine_chunks(), found, pa.scalar(None, pa.string()))
    if found.null_count > given.null_count:
        lost = pc.indices_nonzero(pc.and_(pc.is_valid(given), pc.is_null(found)))
        for index in rows(lost.cast(pa.int64())).to_pylist():
            misfits.setdefault(index, []).append(path)
    return found


def _cast(given: Array, target: ArrowType) -> Array:
    """Value by value where the whole does not cast; what loses something is NULL."""
    if given.type == target:
        return given
    try:
        return pc.cast(given, target)
    except pa.ArrowNotImplementedError:
        return pa.nulls(len(given), target)
    except pa.ArrowInvalid:
        distinct = given.dictionary_encode()
        values = distinct.dictionary
        each = [_one(values.slice(i, 1), target) for i in range(len(values))]
        return pa.concat_arrays(each).take(distinct.indices)


def _one(value: Array, target: ArrowType) -> Array:
    try:
        return pc.cast(value, target)
    except pa.ArrowInvalid:
        return pa.nulls(1, target)


def _struct(
    given: Array, wanted: DataType, path: str, misfits: dict[int, list[str]], rows: Rows
) -> Array:
    names = [given.type.field(i).name for i in range(given.type.num_fields)]
    children: list[Array] = []
    for known in wanted.fields:
        below = f"{path}.{known.source}"
        if known.source not in names:
            children.append(pa.nulls(len(given), arrow_type(known.type)))
            continue
        child = given.flatten()[names.index(known.source)]
        children.append(_fitted(child, known.type, below, misfits, rows))
    target = arrow_type(wanted)
    fields = [target.field(i) for i in range(target.num_fields)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pc.is_null(given))


def _list(
    given: Array, wanted: DataType, path: str, misfits: dict[int, list[str]], rows: Rows
) -> Array:
    item = wanted.item or DataType(Kind.json)
    lengths = pc.fill_null(pc.list_value_length(given), 0).cast(pa.int32())
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    inner = given.flatten()
    # Of views that share values PyArrow does not tell the parents: of these lists it does.
    parents = pc.list_parent_indices(pa.ListArray.from_arrays(ends, pa.nulls(len(inner))))
    values = _fitted(inner, item, f"{path}[]", misfits, lambda at: rows(parents.take(at)))
    return pa.ListArray.from_arrays(ends, values, type=arrow_type(wanted), mask=pc.is_null(given))


def _is_text(arrow: ArrowType) -> bool:
    types = pa.types
    return types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow)


def _json(value: Any) -> str:
    """A map as an object; as pairs where its keys cannot be names."""
    pairs = isinstance(value, list) and value and isinstance(value[0], tuple)
    try:
        return msgspec.json.encode(dict(value) if pairs else value, enc_hook=str).decode()
    except TypeError:
        return msgspec.json.encode(value, enc_hook=str).decode()


def _same(positions: Array) -> Array:
    return positions
