"""Raw JSON bodies to the rows of a part: typed columns, change lists, row ids, rejects.

The columnar way (L9): DuckDB gives every leaf as exact text, Arrow casts the texts strictly, and a
count of keys shows that nothing was overlooked. Only what stands out costs more: a value that does
not cast (``codec.values``), a body that has extra or double keys or another shape (``codec.bodies``
names them, ``codec.repair`` mends them one by one). Knows no protocol; the words of a change are
parameters. Neighbours: ``engine`` calls it, ``codec.parts`` writes what it gives.
"""

import os
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from penstock.codec import bodies as shape
from penstock.codec import duck
from penstock.codec.arrow import CHANGE_TYPE, arrow_type, part_schema
from penstock.codec.repair import NOT_AN_OBJECT, mend
from penstock.codec.untyped import Array, ArrowSchema, Table
from penstock.codec.untyped import compute as pc
from penstock.codec.values import fit
from penstock.errors import Defect
from penstock.model.catalog import FieldPath
from penstock.model.types import DataType, Kind, RowSchema

NULL_KEY = "primary key is null"

_changes = msgspec.json.Decoder(list[dict[str, Any]])


@dataclass(slots=True)
class RowReject:
    """A body that became no row. ``index``: its place among the bodies. ``field``: dotted path."""

    index: int
    reason: str
    field: str | None = None


@dataclass(slots=True)
class Decoded:
    """``table``: exactly the part schema, a row per body that was not rejected, in order.
    ``misfits``: values that are NULL because they did not fit. ``extra_fields``: how many records
    had each top-level property that the schema lacks."""

    table: Table
    rejects: list[RowReject] = field(default_factory=list[RowReject])
    misfits: int = 0
    extra_fields: dict[str, int] = field(default_factory=dict[str, int])


def warm() -> None:
    """Load what the first decode needs (about a second once per process), from any thread."""
    duck.warm()


class RowDecoder:
    """Decodes batches of one stream by one schema. One thread at a time.

    ``strict``: a row with a misfit is rejected instead. ``key``: paths of original names; a row in
    which all of them are null or missing is rejected. ``change`` and ``reason``: what a misfit's
    entry in the change list says. ``ignored``: top-level properties that are known and unwanted, so
    no extra fields. ``threads``: of DuckDB, for the whole process.
    """

    def __init__(
        self,
        schema: RowSchema,
        *,
        strict: bool = False,
        key: tuple[FieldPath, ...] = (),
        change: str = "NULLED",
        reason: str = "DESTINATION_TYPECAST_ERROR",
        ignored: Collection[str] = (),
        threads: int | None = None,
    ) -> None:
        aliases = _aliases(schema)
        sources = [aliases.get(f.source, f.source) for f in schema.fields]
        self._plan = _Plan(
            schema=schema,
            part_schema=part_schema(schema),
            strict=strict,
            key=key,
            change=change,
            reason=reason,
            aliases=aliases,
            sources=sources,
            known=frozenset(sources) | frozenset(ignored),
            shape=shape.Shape(schema, sources),
        )
        if threads is not None:
            duck.configure(threads)

    def decode(
        self,
        bodies: Sequence[Any],
        first_seq: int,
        extracted_at_ms: Sequence[int],
        changes: Mapping[int, bytes] | None = None,
    ) -> Decoded:
        """``bodies``: JSON objects, bytes-like, at most 2 GiB in all (16 MB is a good size).
        ``first_seq``: of the first body; a rejected one keeps its number. ``extracted_at_ms``:
        epoch milliseconds, same length. ``changes``: the source's own change lists, raw JSON
        arrays of {field, change, reason}, by index; they come before ours. No body makes it
        raise."""
        batch = _Batch(self._plan, bodies)
        columns = batch.columns()
        batch.reject_null_keys(columns)
        return batch.finish(columns, first_seq, extracted_at_ms, changes or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is the same for every batch. ``sources``: the name to look for, per column."""

    schema: RowSchema
    part_schema: ArrowSchema
    strict: bool
    key: tuple[FieldPath, ...]
    change: str
    reason: str
    aliases: dict[str, str]
    sources: list[str]
    known: frozenset[str]
    shape: shape.Shape


class _Batch:
    """One call's work: bodies, what was found wrong with them, and their columns."""

    def __init__(self, plan: _Plan, raw: Sequence[Any]) -> None:
        self._of = plan
        self._raw = raw
        self._bodies = shape.pack(raw)
        self._mended: dict[int, bytes] = {}
        self._rejects: dict[int, RowReject] = {}
        self._misfits: dict[int, list[str]] = {}
        self._extra: dict[str, int] = {}

    def columns(self) -> list[Array]:
        of = self._of
        self._mend(range(len(self._raw)) if of.aliases else _list(shape.no_objects(self._bodies)))
        texts = self._texts()
        suspects = self._suspects(texts)
        if suspects and self._mend(suspects):
            texts = self._texts()
        typed: list[Array] = []
        for column, known in zip(texts, of.schema.fields, strict=True):
            typed.append(self._typed(column, known.type, known.source, _same))
        return typed

    def reject_null_keys(self, columns: list[Array]) -> None:
        key = self._of.key
        if not key:
            return
        found = [self._at(path, columns) for path in key]
        missing = pa.scalar(True)
        for column in found:
            if column is None:
                return
            missing = pc.and_(missing, column.is_null())
        if pc.any(missing).as_py():
            name = ", ".join(".".join(path) for path in key)
            for index in _list(pc.indices_nonzero(missing)):
                self._rejects.setdefault(index, RowReject(index, NULL_KEY, name))

    def finish(
        self,
        columns: list[Array],
        first_seq: int,
        extracted_at_ms: Sequence[int],
        changes: Mapping[int, bytes],
    ) -> Decoded:
        of, rows = self._of, len(self._raw)
        if of.strict:
            for index, paths in self._misfits.items():
                self._rejects.setdefault(index, RowReject(index, of.reason, paths[0]))
        times = pc.multiply(pa.array(extracted_at_ms, pa.int64()), 1000)
        table = pa.Table.from_arrays(
            [
                *columns,
                _ascending(first_seq, rows),
                _row_ids(rows),
                times.cast(pa.timestamp("us", tz="UTC")),
                self._change_lists(changes),
            ],
            schema=of.part_schema,
        )
        if self._rejects:
            keep = pa.array([i not in self._rejects for i in range(rows)])
            table = table.filter(keep)
        misfits = sum(len(p) for i, p in self._misfits.items() if i not in self._rejects)
        rejects = [self._rejects[i] for i in sorted(self._rejects)]
        return Decoded(table, rejects, misfits, self._extra)

    def _mend(self, rows: Sequence[int]) -> bool:
        """Mend these bodies; True where any of them is not the same any more."""
        before = len(self._mended)
        for index in rows:
            mended = mend(bytes(self._raw[index]), self._of.schema, self._of.aliases)
            if mended.body is None:
                self._rejects[index] = RowReject(index, NOT_AN_OBJECT)
            if mended.misfits:
                self._misfits[index] = mended.misfits
            self._mended[index] = mended.body if mended.body is not None else b"{}"
        if len(self._mended) == before:
            return False
        self._bodies = shape.pack([self._mended.get(i, b) for i, b in enumerate(self._raw)])
        return True

    def _texts(self) -> list[Array]:
        try:
            return self._of.shape.texts(self._bodies)
        except shape.Malformed as first:
            self._mend(_list(shape.malformed(self._bodies)))
            try:
                return self._of.shape.texts(self._bodies)
            except shape.Malformed:
                raise Defect(f"cannot decode: {first}", code="codec.decode") from first

    def _suspects(self, texts: list[Array]) -> list[int]:
        """Rows to mend; counts extra fields on the way."""
        fields = self._of.schema.fields
        explained = shape.keys_explained(self._bodies, texts, self._of.schema)
        found: set[int] = set()
        if not explained:
            names = shape.keys(self._bodies, "$")
            self._extra = self._extras(names)
            found.update(_list(shape.rows_with_doubles(names)))
        for column, known, source in zip(texts, fields, self._of.sources, strict=True):
            path = shape.step("$", source)
            found.update(self._wrong_shapes(column, known.type, path, _same, explained))
        return sorted(found - self._mended.keys())

    def _extras(self, names: Array) -> dict[str, int]:
        counted = pc.value_counts(names.flatten())
        pairs = zip(
            counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True
        )
        return {name: count for name, count in pairs if name not in self._of.known}

    def _wrong_shapes(
        self, column: Array, data_type: DataType, path: str, rows: shape.Rows, explained: bool
    ) -> set[int]:
        """Rows in which another shape than an array or an object came, or a key comes twice."""
        if data_type.kind is Kind.array:
            item = data_type.item or DataType(Kind.json)
            nested = "[*]" in path
            nulls = shape.no_values(column) if nested or not explained else shape.nothing()
            found = self._of_another_type(rows(nulls), path, "ARRAY")
            inner = shape.below(column, rows)
            return found | self._wrong_shapes(
                column.flatten(), item, f"{path}[*]", inner, explained
            )
        if data_type.kind is not Kind.struct:
            return set()
        found = self._of_another_type(rows(shape.all_null(column)), path, "OBJECT")
        if not explained:
            found |= set(_list(shape.rows_with_doubles(shape.keys(self._bodies, path))))
        for child, known in zip(column.flatten(), data_type.fields, strict=True):
            below = shape.step(path, known.source)
            found |= self._wrong_shapes(child, known.type, below, rows, explained)
        return found

    def _of_another_type(self, rows: Array, path: str, wanted: str) -> set[int]:
        if not len(rows):
            return set()
        rows = pc.unique(rows)
        wrong = shape.rows_of_another_type(self._bodies.take(rows), path, wanted)
        return set(_list(rows.take(wrong)))

    def _typed(self, column: Array, data_type: DataType, path: str, rows: shape.Rows) -> Array:
        arrow = arrow_type(data_type)
        if data_type.kind is Kind.array:
            item = data_type.item or DataType(Kind.json)
            values = self._typed(column.values, item, f"{path}[]", shape.below(column, rows))
            return pa.Array.from_buffers(
                arrow, len(column), column.buffers()[:2], column.null_count, children=[values]
            )
        if data_type.kind is Kind.struct:
            children = [
                self._typed(child, known.type, f"{path}.{known.source}", rows)
                for child, known in zip(column.flatten(), data_type.fields, strict=True)
            ]
            return pa.Array.from_buffers(
                arrow, len(column), column.buffers()[:1], column.null_count, children=children
            )
        typed, misfits = fit(column, data_type)
        if misfits is not None:
            for index in _list(rows(misfits)):
                self._misfits.setdefault(index, []).append(path)
        return typed

    def _at(self, path: FieldPath, columns: list[Array]) -> Array | None:
        """The column that a path of original names leads to; None where the schema has none."""
        level, found = self._of.schema.fields, None
        for i, name in enumerate(path):
            place = next((j for j, f in enumerate(level) if f.source == name), None)
            if place is None:
                return None
            found = columns[place] if found is None else found.flatten()[place]
            if i + 1 < len(path):
                level = level[place].type.fields
        return found

    def _change_lists(self, given: Mapping[int, bytes]) -> Array:
        of, lengths = self._of, array("i", bytes(4 * (len(self._raw) + 1)))
        entries: list[dict[str, Any]] = []
        for index in sorted(given.keys() | self._misfits.keys()):
            before = len(entries)
            entries += _given(given.get(index))
            entries += (
                {"field": path, "change": of.change, "reason": of.reason}
                for path in dict.fromkeys(self._misfits.get(index, ()))
            )
            lengths[index + 1] = len(entries) - before
        ends = pc.cumulative_sum(
            pa.Array.from_buffers(pa.int32(), len(lengths), [None, pa.py_buffer(lengths)])
        )
        return pa.ListArray.from_arrays(ends, pa.array(entries, CHANGE_TYPE))


def _given(raw: bytes | None) -> list[dict[str, Any]]:
    """A source's own list; one that has another shape is no reason to lose the row."""
    if raw is None:
        return []
    try:
        return [
            {k: None if e.get(k) is None else str(e[k]) for k in ("field", "change", "reason")}
            for e in _changes.decode(raw)
        ]
    except (msgspec.MsgspecError, UnicodeError):
        return []


def _aliases(schema: RowSchema) -> dict[str, str]:
    """Other names for properties that DuckDB cannot look for."""
    awkward = [f.source for f in schema.fields if not f.source or "\0" in f.source]
    taken = {f.source.casefold() for f in schema.fields}
    free = (n for i in range(len(taken) + 1) if (n := f"penstock.alias.{i}") not in taken)
    return dict(zip(awkward, free, strict=False))


def _ascending(first: int, count: int) -> Array:
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    return pc.add(pc.cumulative_sum(ones), pa.scalar(first - 1, pa.int64()))


def _row_ids(count: int) -> Array:
    """Random UUIDs (RFC 9562, version 4), made as columns of hexadecimal digits."""
    digits = os.urandom(16 * count).hex().encode()
    text = bytearray(b"-" * (36 * count))
    places = [p for p in range(36) if p not in (8, 13, 18, 23)]
    for digit, place in enumerate(places):
        text[place::36] = digits[digit::32]
    text[14::36] = b"4" * count
    text[19::36] = digits[16::32].translate(_VARIANT)
    ends = array("i", range(0, 36 * count + 1, 36))
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(text))


_VARIANT = bytes.maketrans(b"0123456789abcdef", b"89ab" * 4)


def _same(positions: Array) -> Array:
    return positions


def _list(positions: Array) -> list[int]:
    return positions.to_pylist()
