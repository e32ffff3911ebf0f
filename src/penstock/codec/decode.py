"""Decodes raw JSON bodies into the rows of a part: typed columns, change lists, row ids, rejects.

Works by column (L9): DuckDB extracts every leaf as exact text, Arrow casts the texts strictly, and
a count of keys (``codec.key_accounting``) proves that no property was missed. Only exceptions cost
more: a value that does not cast (``codec.values``), a property that the schema lacks and that was
not met before (``codec.undeclared``), and a body with duplicate keys or another structure
(``codec.bodies`` finds them, ``codec.body_repair`` repairs them one by one). Properties that the
schema lacks go into one column (``codec.undeclared_json``), or are left out. A value that does not
fit its type is called a misfit. Not here: messages of a protocol; the words of a change list are
parameters. Neighbours: ``engine.worker.row_decoding`` calls it, ``codec.parquet_parts`` writes its
table, ``codec.columns`` decodes Arrow columns in the same way."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.codec import bodies as shape
from penstock.codec import duckdb_call, key_accounting
from penstock.codec.arrow import arrow_type, part_schema, proved
from penstock.codec.body_repair import NO_OBJECT, TOO_DEEP, Failure, is_object, mend
from penstock.codec.delete_marks import UNKNOWN_MARK, JudgedMarks, judged, with_repaired
from penstock.codec.losses import ELEMENT, Loss, Losses, Mask, counts, dotted
from penstock.codec.packed_bodies import Packed
from penstock.codec.system_columns import ascending, row_ids
from penstock.codec.undeclared import KeysAt, Undeclared, UndeclaredProperties
from penstock.codec.undeclared_json import UndeclaredValues
from penstock.codec.untyped import Array, ArrowSchema, Table, pa
from penstock.codec.untyped import compute as pc
from penstock.codec.values import fit
from penstock.errors import Defect
from penstock.model.catalog import FieldPath
from penstock.model.delete_marks import DeleteMark
from penstock.model.types import (
    EXTRA,
    WHOLE_RECORD,
    ChangeWords,
    DataType,
    Field,
    Kind,
    MissingColumns,
    RowSchema,
    UndeclaredPolicy,
)
from penstock.short_texts import shown

NULL_KEY = "primary key is null"
INEXACT_KEY = "the column of the primary key cannot hold this value exactly"


@dataclass(slots=True)
class RowReject:
    """A body that was rejected instead of decoded. ``index``: its index among the bodies.
    ``field``: the dotted path of the field at fault, if there is one."""

    index: int
    reason: str
    field: str | None = None


@dataclass(slots=True)
class DecodedBatch:
    """A decoded batch. ``table``: in exactly the part schema, a row per body that was not rejected,
    in order. By field, how many values (in rows not rejected) are NULL because they did not fit
    (``nulled``) and how many numbers lost digits (``rounded``); ``cut``: how many timestamps lost
    digits after the microsecond, ``listed``: how many of these have an entry. ``extra_fields``: for
    each property that the schema lacks, by dotted path (``user.email``, ``items[].qty``), how many
    records had it with a value other than null; ``user.*`` stands for all those of one object that
    are too many to be named. ``kept``: the same for those in the column ``EXTRA``. ``incomplete``:
    the columns (original names) whose objects have such properties. ``missing``: the columns that
    must be added, or properties of this batch that are to be kept are lost; None: there are none.
    ``filled_marks``, ``cleared_marks``: how many delete marks got another value
    (``codec.delete_marks``)."""

    table: Table
    rejects: list[RowReject] = field(default_factory=list[RowReject])
    nulled: Mapping[str, int] = field(default_factory=dict[str, int])
    rounded: Mapping[str, int] = field(default_factory=dict[str, int])
    cut: Mapping[str, int] = field(default_factory=dict[str, int])
    extra_fields: Mapping[str, int] = field(default_factory=dict[str, int])
    kept: Mapping[str, int] = field(default_factory=dict[str, int])
    incomplete: frozenset[str] = frozenset()
    listed: Mapping[str, int] = field(default_factory=dict[str, int])
    missing: MissingColumns | None = None
    filled_marks: Mapping[str, int] = field(default_factory=dict[str, int])
    cleared_marks: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def cast_failures(self) -> int:
        return sum(self.nulled.values())


def warm() -> None:
    """Loads what the first decode needs (some 50 ms once per process); callable from any thread."""
    duckdb_call.warm()


class RowDecoder:
    """Decodes batches of one stream by one schema. One thread at a time.

    ``strict``: a row with a misfit is rejected, instead of getting NULL and a change entry.
    ``key``: paths of original names; a row in which any of them is null or missing is rejected.
    ``words``: the texts of a misfit's entry in the change list. ``ignored``: paths of properties
    that were deselected (lists on the way are skipped), which do not count as extra fields and are
    never kept. ``exact``: paths of key columns; a row is rejected if the column of one of them does
    not hold its value exactly (L9). ``whole``: the column ``WHOLE_RECORD`` takes the record as JSON
    text, so that no field is extra. ``undeclared``: what to do with others; ``closed``: paths of
    objects whose extra fields are dropped in any case. ``mark``: the property that marks deletes,
    if it gets a column whether it is declared or not. ``deletes``: how marks of deletes are judged.
    ``texts``: entries have the source's text; ``mask`` hides what no entry may show; ``cursor``:
    the path of the cursor, which gets an entry if it is cut."""

    def __init__(
        self,
        schema: RowSchema,
        *,
        strict: bool = False,
        key: tuple[FieldPath, ...] = (),
        words: ChangeWords | None = None,
        ignored: Collection[FieldPath] = (),
        exact: tuple[FieldPath, ...] = (),
        whole: bool = False,
        undeclared: UndeclaredPolicy = UndeclaredPolicy.drop,
        closed: Collection[FieldPath] = (),
        mark: str | None = None,
        deletes: DeleteMark | None = None,
        texts: bool = False,
        cursor: FieldPath = (),
        mask: Mask | None = None,
    ) -> None:
        def losses() -> Losses:
            return Losses(texts=texts, cursor=cursor, mask=mask, exact=exact)

        def plan(*fields: Field) -> _Plan:
            own = RowSchema(fields)
            aliases = _aliases(own)
            replace = msgspec.structs.replace
            columns = [replace(f, source=aliases.get(f.source, f.source)) for f in fields]
            read = UndeclaredProperties(columns, ignored)
            return _Plan(
                schema=own,
                part_schema=part_schema(schema),
                strict=strict,
                key=key,
                exact=exact,
                words=words or ChangeWords(),
                deletes=deletes,
                aliases=aliases,
                read=read,
                texts=shape.TextExtractor(read.fields),
                losses=losses,
                values=UndeclaredValues(
                    read, schema, UndeclaredPolicy.drop if whole else undeclared, closed, mark
                ),
            )

        names = [f.source for f in schema.fields]
        self._at = names.index(WHOLE_RECORD) if whole else 0
        self._record = plan(schema.fields[self._at]) if whole else None
        columns = [f.name for f in schema.fields]
        self._extra = columns.index(EXTRA) if EXTRA in columns else None
        apart = {*names[self._at : self._at + whole]}
        self._plan = plan(*(f for f in schema.fields if f.source not in apart and f.name != EXTRA))

    def decode(
        self,
        bodies: Sequence[Any],
        first_seq: int,
        extracted_at_ms: Sequence[int],
        changes: Mapping[int, bytes] | None = None,
    ) -> DecodedBatch:
        """Decodes one batch. ``bodies``: JSON objects, bytes-like, at most 2 GiB in all (12 MB is a
        good size). ``first_seq``: the number of the first body; a rejected body uses up its number.
        ``extracted_at_ms``: epoch milliseconds, one per body. ``changes``: the source's own change
        lists, raw JSON arrays of {field, change, reason}, by index; they precede the decoder's
        entries. No content of a body makes it raise; raises ``Defect`` above 2 GiB."""
        if self._record is None:
            batch, columns = _decoded(self._plan, bodies, extracted_at_ms)
        else:
            wrapped = [b'{"%b":%b}' % (WHOLE_RECORD.encode(), bytes(body)) for body in bodies]
            batch, columns = _decoded(self._record, wrapped, extracted_at_ms)
            if self._plan.schema.fields:
                beside, others = _decoded(self._plan, bodies, extracted_at_ms)
                batch.take_faults(beside)
                columns = [*others[: self._at], *columns, *others[self._at :]]
            else:
                batch.reject_more_than_one(bodies)
        if self._extra is not None:
            columns.insert(self._extra, batch.extra_column())
        return batch.finish(columns, first_seq, extracted_at_ms, changes or {})


@dataclass(slots=True, kw_only=True)
class _Plan:
    """The settings that all batches share. ``read``: what is read from each record, the schema's
    columns first."""

    schema: RowSchema
    part_schema: ArrowSchema
    strict: bool
    key: tuple[FieldPath, ...]
    exact: tuple[FieldPath, ...]
    words: ChangeWords
    deletes: DeleteMark | None
    aliases: dict[str, str]
    read: UndeclaredProperties
    texts: shape.TextExtractor
    losses: Callable[[], Losses]
    values: UndeclaredValues

    def learn(self, names: Mapping[FieldPath, Sequence[str]]) -> bool:
        """Reads the undeclared properties ``names`` too from now on; returns whether any is new."""
        if not self.read.learn(names):
            return False
        self.texts = shape.TextExtractor(self.read.fields)
        return True


class _Batch:
    """The work of one :meth:`RowDecoder.decode`: the bodies, their faults, their columns."""

    def __init__(self, plan: _Plan, raw: Sequence[Any]) -> None:
        self._of = plan
        self._raw = raw
        self._packed = raw if isinstance(raw, Packed) else Packed.of(raw)
        self._bodies = shape.column(self._packed)
        self._mended: dict[int, bytes] = {}
        self._rejects: dict[int, RowReject] = {}
        self._repaired: dict[int, list[Failure]] = {}
        self._losses = plan.losses()
        self._extra: list[Undeclared] = []
        self._unreadable: list[int] = []  # rows with properties that are not read by column
        self._read: list[Array] = []  # the texts of all that is read
        self._keys: dict[str, Array] = {}  # by path, of the bodies that are looked into

    def columns(self) -> list[Array]:
        of = self._of
        self._mend(range(len(self._raw)) if of.aliases else _list(shape.no_objects(self._bodies)))
        texts = self._texts()
        unexplained: Array | None = self._unexplained(texts)
        if unexplained is not None:
            if of.learn(of.read.strangers(self._keys_of(unexplained))):
                texts = self._texts()
                unexplained = self._unexplained(texts)
            if unexplained is not None:
                self._extra = of.read.rest(self._keys_of(unexplained))
                if self._extra:
                    self._unreadable = _list(unexplained)
        suspects = self._suspects(texts, unexplained)
        if suspects and self._mend(suspects):
            texts = self._texts()
        self._extra += of.read.counted(texts)
        self._read = texts
        typed: list[Array] = []
        for column, known in zip(texts, of.schema.fields, strict=False):
            typed.append(self._typed(column, known.type, (known.source,), _same))
        self._losses.add_repaired(self._repaired, of.schema.fields)
        return typed

    def extra_column(self) -> Array:
        """Returns the column ``EXTRA``: NULL in every row where nothing is kept."""
        of, rows = self._of, len(self._raw)
        found = of.values.column(self._read, rows)
        if not self._unreadable:
            return found
        texts: dict[int, str | None] = {}
        for index in self._unreadable:
            try:
                texts[index] = of.values.of_body(bytes(self._packed[index]))
            except RecursionError:
                texts[index] = None
                self._rejects.setdefault(index, RowReject(index, TOO_DEEP))
        places = pa.array([i in texts for i in range(rows)])
        return pc.replace_with_mask(found, places, pa.array(texts.values(), pa.string()))

    def take_faults(self, other: "_Batch") -> None:
        """Adds what ``other``, which decodes other columns of the same rows, has found. It adds no
        extra fields: the whole record contains them."""
        for index, reject in other._rejects.items():
            self._rejects.setdefault(index, reject)
        self._losses.take(other._losses)

    def reject_more_than_one(self, values: Sequence[Any]) -> None:
        """Rejects those of ``values``, each of which belongs to one property of a body, that are
        not a single object: ``{"a":1},"b":2`` is two properties there."""
        if self._mended or len(self._of.read.fields) > len(self._of.schema.fields):
            for index in _list(shape.malformed(shape.column(Packed.of(values)))):
                if not is_object(bytes(values[index])):
                    self._rejects.setdefault(index, RowReject(index, NO_OBJECT))

    def judge_marks(self, columns: list[Array], extracted_at_ms: Sequence[int]) -> None:
        """Judges the marks of deletes among ``columns``, and puts the judged column there."""
        mark, fields = self._of.deletes, self._of.schema.fields
        if mark is None:
            return
        place = next((i for i, f in enumerate(fields) if f.source == mark.source), None)
        if place is None:
            return
        own = (mark.source,)
        repaired = {r: t for r, lost in self._repaired.items() for p, t in lost if p == own}
        sent = with_repaired(self._read[place], repaired)
        if sent.null_count == len(self._raw):
            return
        times = extraction_times(extracted_at_ms)
        found = judged(mark, sent, columns[place], fields[place].type, times)
        columns[place] = found.values
        note_marks(found, mark, self._rejects, self._losses)

    def reject_keys(self, columns: list[Array]) -> None:
        """Rejects the rows whose key is NULL or not held exactly."""
        for reject in inexact_keys(self._of.exact, self._losses):
            self._rejects.setdefault(reject.index, reject)
        found = {path: self._at(path, columns) for path in self._of.key}
        for reject in null_keys(found):
            self._rejects.setdefault(reject.index, reject)

    def finish(
        self,
        columns: list[Array],
        first_seq: int,
        extracted_at_ms: Sequence[int],
        changes: Mapping[int, bytes],
    ) -> DecodedBatch:
        of, rows = self._of, len(self._raw)
        if of.strict:
            self._rejects = strict_rejects(self._losses, of.words, of.deletes) | self._rejects
        table = pa.Table.from_arrays(
            [
                *columns,
                ascending(first_seq, rows),
                row_ids(rows),
                extraction_times(extracted_at_ms),
                self._losses.change_lists(rows, changes, of.words),
            ],
            schema=of.part_schema,
        )
        if self._rejects:
            keep = pa.array([i not in self._rejects for i in range(rows)])
            table = table.filter(keep)
        table = proved(table)
        kept, dropped = of.values.kept(self._extra)
        return DecodedBatch(
            table,
            [self._rejects[i] for i in sorted(self._rejects)],
            counts(self._losses.missed, self._rejects),
            counts(self._losses.rounded, self._rejects),
            self._losses.cut,
            {e.label: e.records for e in dropped},
            {e.label: e.records for e in kept},
            frozenset(e.at[0] for e in dropped if e.at),
            counts(self._losses.shortened, self._rejects),
            of.values.missing(self._extra),
            counts(self._losses.filled, self._rejects),
            counts(self._losses.cleared, self._rejects),
        )

    def _mend(self, rows: Sequence[int]) -> bool:
        """Repairs the bodies ``rows``; returns True if the column of bodies was packed again."""
        before = len(self._mended)
        for index in rows:
            mended = mend(bytes(self._raw[index]), self._of.schema, self._of.aliases)
            if mended.refused is not None:
                self._rejects[index] = RowReject(index, mended.refused)
            if mended.cast_failures:
                self._repaired[index] = mended.cast_failures
            self._mended[index] = mended.body if mended.body is not None else b"{}"
        if len(self._mended) == before:
            return False
        self._packed = Packed.of([self._mended.get(i, b) for i, b in enumerate(self._raw)])
        self._bodies = shape.column(self._packed)
        return True

    def _texts(self) -> list[Array]:
        try:
            return self._of.texts.of(self._bodies)
        except shape.Malformed as first:
            self._mend(_list(shape.malformed(self._bodies)))
            try:
                return self._of.texts.of(self._bodies)
            except shape.Malformed:
                raise Defect(f"cannot decode: {first}", code="codec.decode") from first

    def _unexplained(self, texts: list[Array]) -> Array | None:
        """Returns the row numbers of the bodies that have a key whose value is neither decoded nor
        null; None if there is no such body."""
        self._keys = {}
        columns = [(t, f.type) for t, f in zip(texts, self._of.read.fields, strict=True)]
        if key_accounting.explained(self._packed, columns):
            return None
        rows = key_accounting.unexplained_rows(self._bodies, columns)
        return rows if len(rows) else None

    def _keys_of(self, rows: Array) -> KeysAt:
        """Returns the keys of the unexplained bodies ``rows`` at a path."""

        def keys_at(path: str) -> Array:
            if path not in self._keys:
                self._keys[path] = shape.keys(self._bodies.take(rows), path)
            return self._keys[path]

        return keys_at

    def _suspects(self, texts: list[Array], unexplained: Array | None) -> list[int]:
        """Returns the row numbers of the bodies to repair."""
        found = self._doubles("$", unexplained)
        for column, known in zip(texts, self._of.read.fields, strict=True):
            path = shape.step("$", known.source)
            found |= self._wrong_types(column, known.type, path, _same, unexplained)
        return sorted(found - self._mended.keys())

    def _wrong_types(
        self,
        column: Array,
        data_type: DataType,
        path: str,
        rows: shape.Rows,
        unexplained: Array | None,
    ) -> set[int]:
        """Returns the rows with another value where an array or object is expected, or with a key
        twice."""
        if data_type.kind is Kind.array:
            item = data_type.item or DataType(Kind.json)
            suspects = rows(shape.no_values(column)) if "[*]" in path else unexplained
            found = self._of_another_type(suspects, path, "ARRAY")
            inner = shape.below(column, rows)
            return found | self._wrong_types(
                column.flatten(), item, f"{path}[*]", inner, unexplained
            )
        if data_type.kind is not Kind.struct:
            return set()
        found = self._of_another_type(rows(shape.all_null(column)), path, "OBJECT")
        found |= self._doubles(path, unexplained)
        for child, known in zip(column.flatten(), data_type.fields, strict=True):
            below = shape.step(path, known.source)
            found |= self._wrong_types(child, known.type, below, rows, unexplained)
        return found

    def _doubles(self, path: str, rows: Array | None) -> set[int]:
        if rows is None:
            return set()
        doubles = shape.rows_with_doubles(self._keys_of(rows)(path))
        return set(_list(rows.take(doubles)))

    def _of_another_type(self, rows: Array | None, path: str, wanted: str) -> set[int]:
        if rows is None or not len(rows):
            return set()
        suspects = pc.unique(rows)
        wrong = shape.rows_of_another_type(self._bodies.take(suspects), path, wanted)
        return set(_list(suspects.take(wrong)))

    def _typed(
        self, column: Array, data_type: DataType, path: FieldPath, rows: shape.Rows
    ) -> Array:
        arrow = arrow_type(data_type)
        if data_type.kind is Kind.array:
            item = data_type.item or DataType(Kind.json)
            values = self._typed(column.values, item, (*path, ELEMENT), shape.below(column, rows))
            return pa.Array.from_buffers(
                arrow, len(column), column.buffers()[:2], column.null_count, children=[values]
            )
        if data_type.kind is Kind.struct:
            children = [
                self._typed(child, known.type, (*path, known.source), rows)
                for child, known in zip(column.flatten(), data_type.fields, strict=False)
            ]
            return pa.Array.from_buffers(
                arrow, len(column), column.buffers()[:1], column.null_count, children=children
            )
        found = fit(column, data_type)
        self._losses.note(found, path, rows, column.take)
        if data_type.kind is Kind.number and self._losses.is_key(path):
            self._losses.note_key(column, found.values, path, rows)
        return found.values

    def _at(self, path: FieldPath, columns: list[Array]) -> Array | None:
        """Returns the column at a path of original names; None if the schema has none."""
        level, found = self._of.schema.fields, None
        for i, name in enumerate(path):
            place = next((j for j, f in enumerate(level) if f.source == name), None)
            if place is None:
                return None
            found = columns[place] if found is None else found.flatten()[place]
            if i + 1 < len(path):
                level = level[place].type.fields
        return found


def _decoded(
    plan: _Plan, bodies: Sequence[Any], times: Sequence[int]
) -> tuple[_Batch, list[Array]]:
    batch = _Batch(plan, bodies)
    columns = batch.columns()
    batch.judge_marks(columns, times)
    batch.reject_keys(columns)
    return batch, columns


def null_keys(columns: Mapping[FieldPath, Array | None]) -> list[RowReject]:
    """Returns rejects for the rows that are NULL in any of the key ``columns``, in order; ``field``
    lists the null ones, dotted. No rejects if a key has no column (None)."""
    missing: dict[int, list[str]] = {}
    for path, column in columns.items():
        if column is None:
            return []
        if column.null_count or pa.types.is_null(column.type):
            for index in _list(pc.indices_nonzero(pc.is_null(column))):
                missing.setdefault(index, []).append(".".join(path))
    return [RowReject(i, NULL_KEY, ", ".join(missing[i])) for i in sorted(missing)]


def inexact_keys(key: Sequence[FieldPath], losses: Losses) -> list[RowReject]:
    """Returns rejects for the rows in which a path of ``key``, or an object around it, lost
    something; ``field`` is the first such path."""
    paths = {path[:end] for path in key for end in range(1, len(path) + 1)}
    found = losses.rows_of(paths) if paths else {}
    return [RowReject(index, _inexact(path), dotted(path)) for index, path in found.items()]


def _inexact(path: FieldPath) -> str:
    """Returns the reason of a reject, with a hint at a column type that holds the value."""
    again = "`penstock run --recreate` writes the table again, with today's types"
    if len(path) != 1:
        return f"{INEXACT_KEY} ({again})"
    return (
        f"{INEXACT_KEY} (with `types: {{ {shown(path[0])}: string }}` for the stream its column is "
        f"text, which holds every value; {again})"
    )


def extraction_times(millis: Sequence[int]) -> Array:
    """Converts epoch milliseconds to the times of :data:`EXTRACTED_AT`."""
    return pc.multiply(pa.array(millis, pa.int64()), 1000).cast(pa.timestamp("us", tz="UTC"))


def note_marks(
    found: JudgedMarks, mark: DeleteMark, rejects: dict[int, RowReject], losses: Losses
) -> None:
    """Records what judging the marks of deletes found."""
    if found.unknown is not None:
        for index in _list(found.unknown):
            rejects.setdefault(index, RowReject(index, UNKNOWN_MARK, mark.source))
    for positions, noted in ((found.filled, losses.filled), (found.cleared, losses.cleared)):
        if positions is not None:
            noted.append(Loss((mark.source,), positions, None))


def strict_rejects(
    losses: Losses, words: ChangeWords, deletes: DeleteMark | None
) -> dict[int, RowReject]:
    """Returns a reject for each row that lost something, with the first such field (strict mode).
    Marks of deletes do not count: they were judged by the value that was sent."""
    found = losses.first_fields(() if deletes is None else (deletes.source,))
    return {i: RowReject(i, words.reason, dotted(path)) for i, path in found.items()}


def _aliases(schema: RowSchema) -> dict[str, str]:
    """Returns aliases for the properties whose names DuckDB cannot look for: empty ones, and those
    with U+0000."""
    awkward = [f.source for f in schema.fields if not f.source or "\0" in f.source]
    taken = {f.source.casefold() for f in schema.fields}
    free = (n for i in range(len(taken) + 1) if (n := f"penstock.alias.{i}") not in taken)
    return dict(zip(awkward, free, strict=False))


def _same(positions: Array) -> Array:
    return positions


def _list(positions: Array) -> list[int]:
    return positions.to_pylist()
