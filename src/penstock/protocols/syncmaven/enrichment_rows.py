"""Encodes tables as requests, and builds tables from the answers.

An answer's row is taken as a difference to the sent row. A column that comes back equal keeps its
value and its type, whatever JSON can express. A changed or added column is decoded, and a value
that does not fit its column makes the answer faulty. Not here: processes (``enrichment_session``),
the order of answers (``enrichment_run``).
"""

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from penstock.codec.arrow import SOURCE_KEY, arrow_type
from penstock.codec.columns import data_type, json_field
from penstock.codec.decode import RowDecoder
from penstock.codec.json_lines_encoder import LineEncoder, Slot
from penstock.codec.json_text import EXACT
from penstock.codec.untyped import Array, Table, pa
from penstock.codec.untyped import compute as pc
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.syncmaven.enrichment_cache import Patch
from penstock.protocols.syncmaven.messages import REQUEST_END, REQUEST_START

_EDGES = len(REQUEST_START), len(REQUEST_END) + 1
_DEPTH = 100  # of objects and lists whose parts are compared one by one


@dataclass(slots=True)
class Requests:
    """The rows of one table. ``lines``: a request for each; ``rows``: the sent rows, decoded."""

    table: Table
    fields: list[Field]
    lines: list[bytes]
    rows: list[dict[str, Any]]

    def body(self, index: int) -> bytes:
        """Returns a sent row as JSON."""
        before, after = _EDGES
        return self.lines[index][before:-after]


@dataclass(slots=True)
class UnansweredRow:
    """A row without an answer that fits. ``index``: of the row; ``field``: its faulty property."""

    index: int
    reason: str
    field: str | None = None


@dataclass(slots=True)
class EnrichmentResult:
    """The result for some rows: a table, and the rows that are not in it."""

    table: Table
    faults: list[UnansweredRow] = field(default_factory=list[UnansweredRow])


class EnrichedRows:
    """Converts the rows of one stream in one run. ``given``, ``made``: the planned schemas before
    and after; ``declared``: types of properties that the enrichment adds."""

    def __init__(
        self, given: RowSchema | None, made: RowSchema | None, declared: dict[str, DataType]
    ) -> None:
        self._given = {f.name: f for f in (given.fields if given is not None else ())}
        sources = {f.source for f in self._given.values()}
        before = made.fields if made is not None else ()
        self._added = {f.source: f.type for f in before if f.source not in sources}
        self._added |= {n: t for n, t in declared.items() if n not in sources}
        self._inferred: set[str] = set()
        self._decoders: dict[RowSchema, RowDecoder] = {}
        self._encoders: dict[RowSchema, LineEncoder] = {}

    def requests(self, table: Table) -> Requests:
        """Returns the requests for the rows of a table that the transform is fed."""
        fields = [self._field(f) for f in table.schema]
        schema = RowSchema(tuple(fields))
        encoder = self._encoders.get(schema)
        if encoder is None:
            template = [REQUEST_START, Slot.data, REQUEST_END]
            encoder = LineEncoder(schema, template, decimals_as_text=True)
            self._encoders[schema] = encoder
        lines: list[bytes] = []
        for batch in table.combine_chunks().to_batches():
            lines += [line + b"\n" for line in bytes(encoder.encode(batch)).split(b"\n")[:-1]]
        before, after = _EDGES
        rows = [msgspec.json.decode(line[before:-after]) for line in lines]
        return Requests(table, fields, lines, rows)

    def made(
        self, asked: Requests, begin: int, answers: Sequence[list[Patch] | UnansweredRow]
    ) -> EnrichmentResult:
        """Returns the table of the answers to the rows from ``begin`` on. A fault among them is
        added to the result, without a row in the table."""
        faults: dict[int, UnansweredRow] = {}
        at: list[int] = []
        patches: list[Patch] = []
        for index, answer in enumerate(answers, begin):
            if isinstance(answer, UnansweredRow):
                faults[index] = answer
            else:
                at += [index] * len(answer)
                patches += answer
        sources = {f.source for f in asked.fields}
        self._learn(sources, patches)
        schema = self._schema(asked)
        while True:
            decoded = self._decoder(schema).decode(
                [msgspec.json.encode(p) for p in patches], 0, [0] * len(patches)
            )
            if not decoded.rejects:
                break
            for reject in decoded.rejects:
                index = at[reject.index]
                reason = f"its answer does not fit: {reject.reason}"
                faults.setdefault(index, UnansweredRow(index, reason, reject.field))
            kept = [n for n, index in enumerate(at) if index not in faults]
            at, patches = [at[n] for n in kept], [patches[n] for n in kept]
        table = self._table(asked, schema, at, patches, decoded.table)
        return EnrichmentResult(table, [faults[n] for n in sorted(faults)])

    # -- schemas

    def _field(self, arrow: Any) -> Field:
        """Returns a column's field: the planned one, if the plan has it with this type."""
        planned = self._given.get(arrow.name)
        if planned is not None and arrow_type(planned.type) == arrow.type:
            return planned
        source_name = (arrow.metadata or {}).get(SOURCE_KEY)
        source = arrow.name if source_name is None else source_name.decode("utf-8", "surrogatepass")
        return Field(arrow.name, source, data_type(arrow.type))

    def _learn(self, sources: set[str], patches: Sequence[Patch]) -> None:
        """Adds new properties, with the type of their first value."""
        for patch in patches:
            for name, value in patch.items():
                if name in sources or value is None:
                    continue
                known = self._added.get(name)
                if known is None:
                    self._added[name] = _type_of(value)
                    self._inferred.add(name)
                elif name in self._inferred and known.kind is Kind.integer:
                    wider = isinstance(value, float) and not value.is_integer()
                    self._added[name] = DataType(Kind.number) if wider else known

    def _schema(self, asked: Requests) -> RowSchema:
        sources, names = {f.source for f in asked.fields}, {f.name for f in asked.fields}
        added: list[Field] = []
        for source, type_ in self._added.items():
            if source in sources:
                continue
            name = source
            while name in names:  # a column's cleaned name may be another property's own
                name += "_"
            names.add(name)
            added.append(Field(name, source, type_))
        return RowSchema((*asked.fields, *added))

    def _decoder(self, schema: RowSchema) -> RowDecoder:
        found = self._decoders.get(schema)
        if found is None:
            found = self._decoders[schema] = RowDecoder(schema, strict=True)
        return found

    # -- columns

    def _table(
        self,
        asked: Requests,
        schema: RowSchema,
        at: Sequence[int],
        patches: Sequence[Patch],
        decoded: Table,
    ) -> Table:
        sent = asked.table.take(pa.array(at, pa.int64())).combine_chunks()
        changed = {name for patch in patches for name in patch}
        columns: list[Array] = []
        fields: list[Any] = []
        for number, one in enumerate(schema.fields):
            column = decoded.column(one.name).combine_chunks()
            if number < len(asked.fields):
                fields.append(asked.table.schema.field(number).with_nullable(True))
                own = sent.column(number).combine_chunks()
                if one.source not in changed:
                    columns.append(own)
                    continue
                mask = pa.array([one.source in patch for patch in patches], pa.bool_())
                columns.append(pc.if_else(mask, column, own))
            else:
                fields.append(json_field(pa.field(one.name, arrow_type(one.type)), one.type))
                columns.append(column)
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def outlined(columns: Any, declared: dict[str, DataType]) -> Any:
    """Returns the output columns (pyarrow.Schema), as far as they are declared."""
    known = {
        (f.metadata or {}).get(SOURCE_KEY, f.name.encode()).decode("utf-8", "surrogatepass")
        for f in columns
    } | set(columns.names)
    added = [
        json_field(pa.field(name, arrow_type(type_)), type_)
        for name, type_ in declared.items()
        if name not in known
    ]
    return pa.schema([*columns, *added])


def patch_of(sent: dict[str, Any], row: dict[str, Any], kept: Collection[str] = ()) -> Patch:
    """Returns how an answer's row differs from the sent row. ``kept``: properties that are not
    removed by omission."""
    merged = {n: _merged(sent[n], v) if n in sent else v for n, v in row.items()}
    changed = {n: v for n, v in merged.items() if n not in sent or v is not sent[n]}
    gone = {n: None for n, v in sent.items() if n not in row and n not in kept and v is not None}
    return changed | gone


def _merged(sent: Any, came: Any, depth: int = 0) -> Any:
    """Returns a value that came back, with the sent digits in each part that is unchanged: ``sent``
    itself, where all of it is. Items of lists are compared by position."""
    if isinstance(sent, dict) and isinstance(came, dict) and depth < _DEPTH:
        before, after = cast(dict[str, Any], sent), cast(dict[str, Any], came)
        inner = {
            n: _merged(before[n], v, depth + 1) if n in before else v for n, v in after.items()
        }
        kept = before.keys() == inner.keys() and all(before[n] is v for n, v in inner.items())
        return sent if kept else inner
    if isinstance(sent, list) and isinstance(came, list) and depth < _DEPTH:
        first, then = cast(list[Any], sent), cast(list[Any], came)
        items = [_merged(a, b, depth + 1) for a, b in zip(first, then, strict=False)]
        kept = len(first) == len(then) and all(map(operator.is_, first, items))
        return sent if kept else [*items, *then[len(first) :]]
    return sent if _same(sent, came) else came


def _same(sent: Any, came: Any) -> bool:
    """Returns whether two values are equal, or the same number for a connector that has only
    doubles."""
    if isinstance(sent, bool) or isinstance(came, bool):
        return sent is came
    if sent == came:
        return True
    if type(sent) is not int or abs(sent) <= EXACT or type(came) not in (int, float):
        return False
    try:
        return float(sent) == float(came)
    except OverflowError:
        return False


def _type_of(value: Any) -> DataType:
    match value:
        case bool():
            return DataType(Kind.boolean)
        case int():
            return DataType(Kind.integer)
        case float():
            return DataType(Kind.number)
        case str():
            return DataType(Kind.string)
        case _:
            return DataType(Kind.json)
