"""Encodes the rows of parts as frames that any v4 destination can take.

Columns have the names that tables show, or their own. A column from a component's frames keeps its
type, if the destination takes it. All other types are those of v4: instants are UTC without a zone,
lists and structs are JSON text by original names; decimals are Arrow's own, or text for a
destination that refuses them. Nothing is rounded. Not here: the JSON text of a value
(``codec.json_text``), which types come back (``codec.frame_types``).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.codec import frame_types, json_text
from penstock.codec.arrow import arrow_type
from penstock.codec.untyped import Array
from penstock.codec.untyped import compute as pc
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.rapidbyte.wire.arrow_ipc import frame_of, frames_of
from penstock.protocols.rapidbyte.wire.compression import Bytes

_LONGEST_TEXT = 64 << 20  # bytes converted to JSON at once, since their text exists twice


_TAKEN_BY_ALL = re.compile(r"int16|int32|float|timestamp\[us, .*", re.DOTALL)
"""Frame types that v4's own Postgres destination accepts too."""


class FrameEncoder:
    """Encodes one stream under one schema. ``limit``: bytes of a frame. ``narrow``: the destination
    refuses decimals, and all frame types but a few. ``names``: :func:`column_names` of the
    schema."""

    def __init__(
        self, schema: RowSchema, limit: int, *, narrow: bool, names: Mapping[str, str] | None = None
    ) -> None:
        self._fields, self._limit, self._narrow = schema.fields, limit, narrow
        self._names = column_names(schema) if names is None else names

    def of(self, batch: Any) -> Iterator[tuple[Bytes, int]]:
        """Encodes a ``pyarrow.RecordBatch`` of a part as frames of at most ``limit`` bytes, each
        with its number of rows. Raises ``Refusal`` (``RECORD_TOO_LARGE``)."""
        if batch.num_rows > 1 and batch.nbytes > _LONGEST_TEXT:
            middle = batch.num_rows // 2
            yield from self.of(batch.slice(0, middle))
            yield from self.of(batch.slice(middle))
            return
        columns = [self._column(batch.column(f.name), f) for f in self._fields]
        yield from frames_of(self._batch(columns), self._limit)

    def empty(self) -> Bytes:
        """Returns a frame without rows, which gives the destination the columns of an empty
        stream."""
        columns = [self._column(pa.nulls(0, arrow_type(f.type)), f) for f in self._fields]
        return frame_of(self._batch(columns))

    def _batch(self, columns: list[Array]) -> Any:
        """Returns a ``pyarrow.RecordBatch``. A column is non-null where its schema declares it, in
        every frame; but a column that contains a null anyway is declared nullable."""
        fields = [
            pa.field(self._names[f.source], c.type, nullable=f.nullable or c.null_count > 0)
            for f, c in zip(self._fields, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _column(self, column: Array, field: Field) -> Array:
        """Returns a column in its frame type, or in that of its kind where it has none or a value
        that does not fit."""
        data_type, sent = field.type, field.frame_type
        stored = arrow_type(data_type)
        if column.type != stored:
            column = pc.cast(column, stored)
        if sent is not None and (not self._narrow or _TAKEN_BY_ALL.fullmatch(sent)):
            found = frame_types.restored(column, sent)
            if found is not None:
                return found
        match data_type.kind:
            case Kind.array | Kind.struct:
                return _texts(column, data_type)
            case Kind.decimal if self._narrow:
                return _texts(column, data_type)
            case Kind.timestamp:  # stored as UTC, so the instant stays without the zone
                return column.cast(pa.timestamp("us"))
            case _:
                return column


def column_names(schema: RowSchema, *, original: bool = False) -> dict[str, str]:
    """Returns the names of columns at the destination, by their original names. ``original``: those
    names themselves."""
    return {f.source: f.source if original else f.name for f in schema.fields}


def _texts(column: Array, data_type: DataType) -> Array:
    texts = json_text.join_texts(json_text.pieces(column, data_type), len(column))
    if column.null_count == 0:
        return texts
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))
