"""Encodes the rows of a part as JSON lines, by column: the opposite of ``codec.decode``.

Every column becomes a column of JSON texts, and one join puts the texts of a row, with the literal
text of a template around them, into a line. No Python object is made per record. Not here: the
messages of a protocol (``protocols`` pass their templates), how a value is written
(``codec.json_text``). ``bench/encode.py`` compares this way with others.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any

from penstock.codec import json_text
from penstock.codec.arrow import arrow_type
from penstock.codec.json_text import Buffer, Text, WrittenAs
from penstock.codec.put_back import PutBack
from penstock.codec.untyped import Array, pa
from penstock.codec.untyped import compute as pc
from penstock.errors import DestinationError
from penstock.model.types import CHANGES, EXTRACTED_AT, DataType, Field, Kind, Origin, RowSchema

RecordBatch = Any  # pyarrow.RecordBatch

BLOCK_BYTES = 64 << 20  # of columns encoded at once: their text is in memory twice

_CHANGES = DataType(
    Kind.array,
    item=DataType(
        Kind.struct,
        fields=tuple(Field(n, n, DataType(Kind.string)) for n in ("field", "change", "reason")),
    ),
)


class Slot(Enum):
    """A placeholder in a template. ``data``: the record, an object. ``extracted_ms``: epoch
    milliseconds, a number. ``extracted_text``: RFC 3339 in UTC, quoted. ``changes``: an array of
    {field, change, reason}."""

    data = "data"
    extracted_ms = "extracted_ms"
    extracted_text = "extracted_text"
    changes = "changes"


class LineEncoder:
    """Encodes the batches of one stream under one schema. One thread at a time.

    ``template``: the parts of a line in order, literal JSON text and slots; the newline is added.
    ``decimals_as_text``: decimals in quotes, for protocols that require them; or only those of the
    named columns, by original names. ``omit_nulls``: columns, by their original names, whose NULLs
    are left out. ``casts``: columns, by their original names, whose values are written in another
    form if that loses nothing. ``zoned``: times without a zone are written as times in UTC.
    ``as_it_came``: undeclared properties are put back into their record (the column ``EXTRA``), and
    a record that was kept whole is written unchanged; else they are columns like others.

    A record has every property of the schema, under its original name and in the schema's order,
    those that may be left out last; NULL is null (a part does not distinguish missing from null).
    Values are written by ``codec.json_text``: equal values have equal texts, whatever the other
    columns hold."""

    def __init__(
        self,
        schema: RowSchema,
        template: Sequence[str | Slot],
        *,
        decimals_as_text: bool | Collection[str] = False,
        omit_nulls: Collection[str] = (),
        casts: Mapping[str, WrittenAs] = MappingProxyType({}),
        zoned: bool = False,
        as_it_came: bool = False,
    ) -> None:
        self._template = [*template, "\n"]
        whole = next((f for f in schema.fields if f.origin is Origin.record), None)
        self._whole = whole.name if as_it_came and whole is not None else None
        self._extra = PutBack(schema) if as_it_came and schema.extra is not None else None
        fields = schema.fields if self._extra is None else schema.properties.fields
        self._columns = [_Column(f, decimals_as_text, casts.get(f.source), zoned) for f in fields]
        self._kept = [c for c in self._columns if c.source not in omit_nulls]
        self._omitted = [c for c in self._columns if c.source in omit_nulls]

    def encode(self, batch: RecordBatch) -> Buffer:
        """Returns all lines of ``batch``, whose columns are those of ``codec.arrow.part_schema``.

        Raises ``DestinationError`` (``codec.line_too_long``) for a row of 2 GiB or more of text."""
        if batch.num_rows == 0:
            return pa.py_buffer(b"")
        if batch.num_rows > 1 and batch.nbytes > BLOCK_BYTES:
            return self._halves(batch)
        try:
            return json_text.data_of(self._lines(batch))
        except pa.ArrowCapacityError as e:
            too_long = str(e)
        if batch.num_rows > 1:
            return self._halves(batch)
        raise DestinationError(
            f"a row cannot be written as one line of JSON: {too_long}",
            code="codec.line_too_long",
            hint="leave its largest column out with `columns`",
        )

    def _halves(self, batch: RecordBatch) -> Buffer:
        middle = batch.num_rows // 2
        first, second = self.encode(batch.slice(0, middle)), self.encode(batch.slice(middle))
        return pa.py_buffer(b"".join((first, second)))

    def _lines(self, batch: RecordBatch) -> Array:
        pieces: list[Text] = []
        for part in self._template:
            match part:
                case str():
                    pieces.append(part)
                case Slot.data:
                    pieces += self._data(batch)
                case Slot.extracted_ms:
                    at = pc.cast(batch.column(EXTRACTED_AT), pa.int64())
                    pieces.append(pc.cast(pc.divide(at, 1000), pa.string()))
                case Slot.extracted_text:
                    at = batch.column(EXTRACTED_AT)
                    pieces += json_text.pieces(at, DataType(Kind.timestamp))
                case Slot.changes:
                    pieces += json_text.pieces(batch.column(CHANGES), _CHANGES)
        return json_text.join_texts(pieces, batch.num_rows)

    def _data(self, batch: RecordBatch) -> list[Text]:
        if self._whole is not None:
            return json_text.pieces(batch.column(self._whole), DataType(Kind.json))
        pieces = self._declared(batch)
        return pieces if self._extra is None else self._extra.into(pieces, batch)

    def _declared(self, batch: RecordBatch) -> list[Text]:
        pieces: list[Text] = []
        for one in self._kept:
            pieces.append(("," if pieces else "{") + one.key)
            pieces += one.texts(batch)
        more = [self._where_valid(one, batch) for one in self._omitted]
        if more and not pieces:
            tail = json_text.join_texts([text for texts in more for text in texts], batch.num_rows)
            return ["{", pc.utf8_slice_codeunits(tail, 1), "}"]  # without the first comma
        pieces += [text for texts in more for text in texts]
        return [*pieces, "}" if pieces else "{}"]

    @staticmethod
    def _where_valid(one: "_Column", batch: RecordBatch) -> list[Text]:
        """Returns the property with the comma before it; nothing in rows where it is NULL."""
        texts: list[Text] = ["," + one.key, *one.texts(batch)]
        column = batch.column(one.name)
        if column.null_count == 0:
            return texts
        whole = json_text.join_texts(texts, batch.num_rows)
        return [pc.if_else(column.is_valid(), whole, pa.scalar("", pa.string()))]


class _Column:
    """One property of the records. ``key``: its name as JSON, with the colon."""

    def __init__(
        self,
        field: Field,
        decimals_as_text: bool | Collection[str],
        cast: WrittenAs | None,
        zoned: bool,
    ) -> None:
        self._cast: WrittenAs | None = cast
        self._zoned = zoned
        self.source, self.name = field.source, field.name
        self.key = json_text.name(field.source) + ":"
        self._type, self._arrow = field.type, arrow_type(field.type)
        all_alike = isinstance(decimals_as_text, bool)
        self._quoted = decimals_as_text if all_alike else field.source in decimals_as_text

    def texts(self, batch: RecordBatch) -> list[Text]:
        column = batch.column(self.name)
        if column.type != self._arrow:
            column = pc.cast(column, self._arrow)
        if self._cast is not None:
            return json_text.pieces_as(column, self._type, self._cast, zoned=self._zoned)
        return json_text.pieces(column, self._type, quoted=self._quoted, zoned=self._zoned)
