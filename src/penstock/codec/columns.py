"""Decodes records that a source sends as Arrow columns into the rows of a part.

Has the same result and the same rule for a value that does not fit its type (L9) as
``codec.decode``, which decodes JSON. A column that has its type already is not copied. Neighbours:
``protocols`` wrap Arrow tables in :class:`Columns`; ``engine.worker.row_decoding`` calls the
decoder."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, overload

import msgspec

from penstock.codec import duckdb_call
from penstock.codec.arrow import (
    arrow_type,
    frame_types_of,
    part_schema,
    proved,
    required,
    with_frame_types,
)
from penstock.codec.decode import (
    DecodedBatch,
    RowReject,
    extraction_times,
    inexact_keys,
    note_marks,
    null_keys,
    strict_rejects,
)
from penstock.codec.delete_marks import judged
from penstock.codec.losses import ELEMENT, Loss, Losses, Mask, counts, dotted
from penstock.codec.python_values import python_values, written_out
from penstock.codec.system_columns import ascending, row_ids
from penstock.codec.untyped import Array, ArrowField, ArrowSchema, ArrowType, Table, pa
from penstock.codec.untyped import compute as pc
from penstock.codec.values import FittedColumn, fit, in_years, with_cut
from penstock.model.catalog import FieldPath
from penstock.model.delete_marks import DeleteMark
from penstock.model.types import ChangeWords, DataType, Field, Kind, RowSchema

KIND_KEY = b"penstock.kind"  # field metadata: text of this kind, if Arrow's type does not show it
_DIGITS = 38
_FROM_TEXT = {
    Kind.boolean, Kind.integer, Kind.number, Kind.decimal, Kind.date, Kind.timestamp,
    Kind.timestamp_ntz, Kind.binary,
}  # fmt: skip
_CAST_BY_ARROW = {(Kind.integer, Kind.number), (Kind.timestamp_ntz, Kind.timestamp)}
_NUMBERS = {Kind.integer, Kind.number, Kind.decimal}
_AS_TEXT = {Kind.string, Kind.number_text}
_DATED = {Kind.date, Kind.timestamp, Kind.timestamp_ntz}
_TRUTH = r"^(?:[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"
_JSON_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,9})?$"
_POINTS = ((r"^(-?)(\.[0-9]+)$", r"\10\2"), (r"^(-?[0-9]+)\.$", r"\1"))
Rows = Callable[[Array], Array]


class Columns(Sequence[bytes]):
    """The rows of an Arrow table as the bodies of a ``Batch``. ``columns[i]`` encodes one row as
    JSON; a slice (step 1) shares the table."""

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
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        row = self.table.slice(position, 1)
        record = {name: next(python_values(column.combine_chunks()))
                 for name, column in zip(row.column_names, row.columns, strict=True)}  # fmt: skip
        return msgspec.json.encode(record, enc_hook=str)

    def __iter__(self) -> Iterator[bytes]:
        return (self[i] for i in range(len(self)))


def data_type(arrow: ArrowType) -> DataType:
    """Returns the narrowest type of ``model.types`` that holds every value of ``arrow``; text
    (string or json) if there is none."""
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
    """Returns the schema of Arrow columns, under their own names (not cleaned)."""
    return RowSchema(tuple(Field(f.name, f.name, _kind(f)) for f in arrow))


def json_field(field: ArrowField, data_type: DataType) -> ArrowField:
    """Returns ``field`` with a mark that :func:`row_schema` reads, if ``data_type`` is JSON."""
    marked = data_type.kind is Kind.json
    return field.with_metadata({KIND_KEY: Kind.json.value.encode()}) if marked else field


def _kind(field: ArrowField) -> DataType:
    json = (field.metadata or {}).get(KIND_KEY) == Kind.json.value.encode()
    return DataType(Kind.json) if json else data_type(field.type)


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


class _Losses(Losses):
    """Collects what a decode lost, and fields without a place. ``extra``: for each field that the
    schema lacks, how many rows have a value; ``incomplete``: the columns that lack such fields
    inside. ``ignored``: paths that are not counted. ``column``: the current one."""

    def __init__(
        self,
        ignored: Collection[FieldPath],
        *,
        texts: bool = False,
        cursor: FieldPath = (),
        mask: Mask | None = None,
        exact: Collection[FieldPath] = (),
    ) -> None:
        super().__init__(texts=texts, cursor=cursor, mask=mask, exact=exact)
        self.extra: dict[str, int] = {}
        self.incomplete: set[str] = set()
        self.column = ""
        self._ignored = frozenset(ignored)

    def leave_out(self, path: FieldPath, rows: int, inside: str = "") -> None:
        """Counts the rows that have a value in a column without a place. ``path``: the column's;
        ``inside``: the schema's column around it."""
        if rows and tuple(step for step in path if step != ELEMENT) not in self._ignored:
            name = dotted(path)
            self.extra[name] = self.extra.get(name, 0) + rows
            self.incomplete |= {inside} if inside else set()


class ColumnDecoder:
    """Decodes batches of Arrow columns of one stream. Parameters as in ``codec.decode.RowDecoder``.
    Columns are found by their original names. A column that is declared non-null and holds no NULL
    is non-null in the part, and a column keeps its frame type. ``texts``: original names of JSON
    columns whose values are texts, not JSON yet."""

    def __init__(
        self,
        schema: RowSchema,
        *,
        strict: bool = False,
        key: tuple[FieldPath, ...] = (),
        words: ChangeWords | None = None,
        ignored: Collection[FieldPath] = (),
        deletes: DeleteMark | None = None,
        texts: bool = False,
        cursor: FieldPath = (),
        mask: Mask | None = None,
        exact: tuple[FieldPath, ...] = (),
        json_texts: Collection[str] = (),
    ) -> None:
        self._texts = frozenset(json_texts)
        self._asked: Any = {
            "texts": texts, "cursor": cursor, "mask": mask, "exact": exact,
        }  # fmt: skip
        self._exact = exact
        self._schema, self._strict, self._key = schema, strict, key
        self._deletes = deletes
        self._words = words or ChangeWords()
        self._ignored = ignored
        self._part = part_schema(schema)

    def decode(
        self,
        rows: Columns,
        first_seq: int,
        extracted_at_ms: Sequence[int],
        changes: Mapping[int, bytes],
    ) -> DecodedBatch:
        """Like ``RowDecoder.decode``, for ``rows`` in place of bodies."""
        table, count = rows.table, len(rows)
        losses = _Losses(self._ignored, **self._asked)
        columns = [self._cast(field, table, losses) for field in self._schema.fields]
        known = {f.source for f in self._schema.fields}
        for name, column in zip(table.column_names, table.columns, strict=True):
            if name not in known:
                losses.leave_out((name,), count - column.null_count)
        times = extraction_times(extracted_at_ms)
        unknown: dict[int, RowReject] = {}
        if self._deletes is not None:
            for place, field in enumerate(self._schema.fields):
                if field.source == self._deletes.source and (given := _chunks(table, field.source)):
                    sent = _whole(given)
                    found = judged(self._deletes, sent, columns[place], field.type, times)
                    columns[place] = found.values
                    note_marks(found, self._deletes, unknown, losses)
        keys = {path: self._at(path, columns) for path in self._key}
        found = (*null_keys(keys), *inexact_keys(self._exact, losses))
        rejects = {**unknown, **{r.index: r for r in found}}
        if self._strict:
            rejects = strict_rejects(losses, self._words, self._deletes) | rejects
        part = pa.Table.from_arrays(
            [
                *columns,
                ascending(first_seq, count),
                row_ids(count),
                times,
                losses.change_lists(count, changes, self._words),
            ],
            schema=self._part,
        )
        if rejects:
            part = part.filter(pa.array([i not in rejects for i in range(count)]))
        declared = required(table)
        part = proved(part, [f.name for f in self._schema.fields if f.source in declared])
        sent = frame_types_of(table.schema)
        sent = {f.name: sent[f.source] for f in self._schema.fields if f.source in sent}
        part = with_frame_types(part, sent)
        return DecodedBatch(
            part,
            [rejects[i] for i in sorted(rejects)],
            counts(losses.missed, rejects),
            counts(losses.rounded, rejects),
            losses.cut,
            losses.extra,
            incomplete=frozenset(losses.incomplete),
            filled_marks=counts(losses.filled, rejects),
            cleared_marks=counts(losses.cleared, rejects),
            listed=counts(losses.shortened, rejects),
        )

    def _cast(self, field: Field, table: Table, losses: "_Losses") -> Array:
        """Returns a field's column in its type; nulls if the table lacks it. Values that do not fit
        go into ``losses``."""
        losses.column = field.source
        made, at = list[Array](), 0
        for chunk in _chunks(table, field.source):
            if field.source in self._texts:
                chunk = _as_json(chunk)
            made.append(_fitted(chunk, field.type, (field.source,), losses, _behind(at)))
            at += len(chunk)
        made = made or [pa.nulls(table.num_rows, arrow_type(field.type))]
        return made[0] if len(made) == 1 else pa.concat_arrays(made)

    def _at(self, path: FieldPath, columns: list[Array]) -> Array | None:
        level, column = self._schema.fields, None
        for step in path:
            index = next((i for i, f in enumerate(level) if f.source == step), None)
            if index is None:
                return None
            column = columns[index] if column is None else column.flatten()[index]
            level = level[index].type.fields
        return column


def _chunks(table: Table, name: str) -> list[Array]:
    """Returns the column ``name`` as one array, the first if several have the name; none if no
    column has it. As several arrays if it contains dictionaries, which Arrow cannot combine."""
    index = next((i for i, n in enumerate(table.column_names) if n == name), None)
    if index is None:
        return []
    column = table.column(index)
    if column.num_chunks < 2 or _has_dictionary(column.type):
        return column.chunks
    return [pa.concat_arrays(column.chunks)]


def _whole(chunks: list[Array]) -> Array:
    """Returns one array of all chunks, without dictionaries."""
    types = pa.types
    made = [
        written_out(c) if types.is_dictionary(c.type) or types.is_run_end_encoded(c.type) else c
        for c in chunks
    ]
    return made[0] if len(made) == 1 else pa.concat_arrays(made)


def _has_dictionary(arrow: ArrowType) -> bool:
    if pa.types.is_dictionary(arrow):
        return True
    return any(_has_dictionary(arrow.field(i).type) for i in range(arrow.num_fields))


def _fitted(given: Array, wanted: DataType, path: FieldPath, losses: _Losses, rows: Rows) -> Array:
    """Casts a column to ``wanted`` and puts what it lost into ``losses``. ``rows`` maps positions
    in the column to row numbers."""
    types = pa.types
    if types.is_dictionary(given.type) or types.is_run_end_encoded(given.type):
        given = written_out(given)
    if wanted.kind is Kind.struct and types.is_struct(given.type):
        return _struct(given, wanted, path, losses, rows)
    if wanted.kind is Kind.array and _is_list(given.type):
        return _list(given, wanted, path, losses, rows)
    nested = wanted.kind in _AS_TEXT and types.is_nested(given.type)
    if nested or (wanted.kind is Kind.json and not _is_text(given.type)):
        entries = types.is_map(given.type)
        texts = [None if v is None else _json(v, entries) for v in python_values(given)]
        return pa.array(texts, pa.string())
    cast = _cast(given, wanted)
    values = cast.values
    if wanted.kind in _DATED:
        values = in_years(values)
    if wanted.kind is Kind.json:
        valid = duckdb_call.run_query("SELECT json_valid(b) AS ok FROM bodies", values).column(0)
        values = pc.if_else(valid.combine_chunks(), values, pa.scalar(None, pa.string()))
    lost = None
    if values.null_count > given.null_count:
        lost = pc.indices_nonzero(pc.and_(pc.is_valid(given), pc.is_null(values))).cast(pa.int64())
    found = FittedColumn(values, lost, cast.rounded, cast.cut, cast.cut_at)
    losses.note(found, path, rows, lambda places: _sent(_taken(given, places)))
    typed = types.is_floating(given.type) or types.is_nested(given.type)
    if wanted.kind is Kind.number and not typed and losses.is_key(path):
        texts = _as_text(given, wanted.kind)
        losses.note_key(given.cast(pa.string()) if texts is None else texts, values, path, rows)
    return values


def _cast(given: Array, wanted: DataType) -> FittedColumn:
    """Casts a column, value by value if the whole column does not cast. A value that would lose
    something is NULL, except for digits after the microsecond and digits of numbers (L9). A column
    of another kind is decoded from its values' text."""
    types, target = pa.types, arrow_type(wanted)
    if given.type == target:
        return FittedColumn(given)
    if wanted.kind in _FROM_TEXT and (texts := _as_text(given, wanted.kind)) is not None:
        return fit(texts, wanted)
    if types.is_timestamp(target) and types.is_timestamp(given.type) and given.type.unit == "ns":
        nanos = given.view(pa.timestamp("ns"))
        floor = pc.floor_temporal(nanos, unit="microsecond")
        return with_cut(_exactly(floor.view(given.type), target), pc.not_equal(floor, nanos))
    if types.is_timestamp(target) and _is_text(given.type):
        return fit(given.cast(pa.string()), wanted)
    if wanted.kind is Kind.number_text and data_type(given.type).kind in _NUMBERS:
        return fit(given.cast(pa.string()), wanted)
    if wanted.kind is Kind.number and types.is_decimal(given.type):
        return fit(given.cast(pa.string()), wanted)
    try:
        return FittedColumn(pc.cast(given, target))
    except pa.ArrowInvalid:
        if wanted.kind is Kind.number and types.is_integer(given.type):
            return fit(given.cast(pa.string()), wanted)
    except pa.ArrowNotImplementedError:
        pass
    return FittedColumn(_exactly(given, target))


def _as_text(given: Array, wanted: Kind) -> Array | None:
    """Returns the values as JSON texts, for kinds where Arrow's own cast has other rules (an
    integer taken as microseconds, half a day cut off, text taken as bytes); None if Arrow's cast is
    right."""
    types, kind = pa.types, data_type(given.type).kind
    if wanted is kind or (kind, wanted) in _CAST_BY_ARROW:
        return None
    if types.is_nested(given.type) or types.is_null(given.type) or _is_binary(given.type):
        return None
    texts = given.cast(pa.string())
    if kind is not Kind.string:
        return texts
    if wanted is Kind.binary:
        return pc.binary_join_element_wise('"', texts, '"', "")
    return _written_as_json(texts, wanted)


def _written_as_json(texts: Array, wanted: Kind) -> Array:
    """Converts boolean and number texts from people and files to JSON: ``TRUE`` and ``.5``. A
    number that JSON does not have (``01234``, ``+49``, ``0x1F``: Arrow would read them all, and
    lose their original form) becomes a text, which does not fit."""
    if wanted is Kind.boolean:
        return pc.if_else(_matches(texts, _TRUTH), pc.utf8_lower(texts), texts)
    if wanted in (Kind.number, Kind.decimal):
        for pattern, replacement in _POINTS:
            texts = pc.replace_substring_regex(texts, pattern, replacement)
    if wanted not in (Kind.integer, Kind.number, Kind.decimal):
        return texts
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    return pc.if_else(_matches(texts, _JSON_NUMBER), texts, quoted)


def _matches(texts: Array, pattern: str) -> Array:
    return pc.match_substring_regex(texts, pattern)


def fit_text(texts: Array, wanted: DataType) -> FittedColumn:
    """Casts a column of texts to ``wanted`` as :class:`ColumnDecoder` does."""
    if wanted.kind is Kind.string:
        return FittedColumn(texts)
    losses = _Losses(())
    values = _fitted(texts, wanted, (), losses, _behind(0))
    cut = losses.cut.get("", 0)
    return FittedColumn(values, _rows_of(losses.nulled), _rows_of(losses.rounded), cut)


def _rows_of(losses: Sequence[Loss]) -> Array | None:
    return pc.unique(pa.concat_arrays([loss.rows for loss in losses])) if losses else None


def _taken(given: Array, places: Array) -> Array:
    """Returns the values at ``places``, at least one. Arrow cannot take from views, also inside
    lists."""
    if pa.types.is_string_view(given.type):
        given = given.cast(pa.string())
    elif pa.types.is_binary_view(given.type):
        given = given.cast(pa.binary())
    try:
        return given.take(places)
    except pa.ArrowNotImplementedError:
        return pa.concat_arrays([given.slice(i, 1) for i in places.to_pylist()])


def _sent(given: Array) -> Array:
    """Returns values as texts: in Arrow's form; binary and nested ones as JSON."""
    if not (pa.types.is_nested(given.type) or _is_binary(given.type)):
        with suppress(pa.ArrowNotImplementedError):
            return given.cast(pa.string())
    texts = [None if v is None else _json(v, False) for v in python_values(given)]
    return pa.array(texts, pa.string())


def _exactly(given: Array, target: ArrowType) -> Array:
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


def _struct(given: Array, wanted: DataType, path: FieldPath, losses: _Losses, rows: Rows) -> Array:
    names = [given.type.field(i).name for i in range(given.type.num_fields)]
    sent, children = given.flatten(), list[Array]()
    for field in wanted.fields:
        below = (*path, field.source)
        if field.source not in names:
            children.append(pa.nulls(len(given), arrow_type(field.type)))
            continue
        child = sent[names.index(field.source)]
        children.append(_fitted(child, field.type, below, losses, rows))
    known = {field.source for field in wanted.fields}
    for name, child in zip(names, sent, strict=True):
        if name not in known:
            found = rows(pc.indices_nonzero(child.is_valid()).cast(pa.int64()))
            losses.leave_out((*path, name), pc.count_distinct(found).as_py(), losses.column)
    target = arrow_type(wanted)
    fields = [target.field(i) for i in range(target.num_fields)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pc.is_null(given))


def _list(given: Array, wanted: DataType, path: FieldPath, losses: _Losses, rows: Rows) -> Array:
    item = wanted.item or DataType(Kind.json)
    lengths = pc.fill_null(pc.list_value_length(given), 0).cast(pa.int32())
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    inner = given.flatten()
    # PyArrow gives no parents for list views that share values, so equivalent lists are built.
    parents = pc.list_parent_indices(pa.ListArray.from_arrays(ends, pa.nulls(len(inner))))
    values = _fitted(inner, item, (*path, ELEMENT), losses, lambda at: rows(parents.take(at)))
    return pa.ListArray.from_arrays(ends, values, type=arrow_type(wanted), mask=pc.is_null(given))


def _is_text(arrow: ArrowType) -> bool:
    types = pa.types
    return types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow)


def _json(value: Any, entries: bool) -> str:
    """Returns the JSON text of a value; a map becomes an object, or pairs if a key cannot be a name
    or comes twice. ``entries``: the value is a map, even without entries."""
    if entries or (isinstance(value, list) and value and type(value[0]) is tuple):
        with suppress(TypeError):
            named: dict[Any, Any] = dict(value)
            if len(named) == len(value):
                return msgspec.json.encode(named, enc_hook=str).decode()
    return msgspec.json.encode(value, enc_hook=str).decode()


def _as_json(texts: Array) -> Array:
    """Texts as JSON strings; a column of another type unchanged."""
    if pa.types.is_dictionary(texts.type) or pa.types.is_run_end_encoded(texts.type):
        texts = written_out(texts)
    if not _is_text(texts.type):
        return texts
    quoted = duckdb_call.run_query("SELECT to_json(b)::VARCHAR AS b FROM bodies", texts).column(0)
    return pc.if_else(pc.is_valid(texts), quoted.combine_chunks(), None)


def _behind(rows: int) -> Rows:
    """Returns the row numbers of positions in a column that follows so many rows."""
    return lambda positions: pc.add(positions, rows) if rows else positions
