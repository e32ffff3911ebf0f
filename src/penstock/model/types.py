"""The type lattice between JSON Schema, Arrow, DuckDB, Spark and tables.

Shapes only: conversions live with their neighbour (``codec.json_schema`` reads JSON Schema,
``codec.arrow`` gives Arrow and DuckDB types, ``spark.types`` gives Spark's DDL).
"""

from collections.abc import Collection
from enum import StrEnum

import msgspec

from penstock.model.catalog import FieldPath


class Kind(StrEnum):
    string = "string"
    boolean = "boolean"
    integer = "integer"  # 64 bits
    number = "number"  # IEEE double
    decimal = "decimal"  # precision, scale; decimal(38,0) for integers beyond 64 bits
    date = "date"
    timestamp = "timestamp"  # an instant, microseconds, UTC
    timestamp_ntz = "timestamp_ntz"  # wall clock, microseconds
    time = "time"  # kept as its text, validated: Spark 4.1 has no portable TIME
    time_tz = "time_tz"
    binary = "binary"  # base64 text on the wire
    array = "array"  # item
    struct = "struct"  # fields
    json = "json"  # unions, objects of unknown shape: JSON text, every digit kept


class DataType(msgspec.Struct, frozen=True):
    kind: Kind
    precision: int | None = None
    scale: int | None = None
    item: "DataType | None" = None
    fields: "tuple[Field, ...]" = ()


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """``name``: the column's cleaned name; ``source``: the property's original name.
    ``nullable`` False: every row under this schema was proved to have a value there (L9). Told of
    columns only; a nested field is nullable whatever its source says."""

    name: str
    source: str
    type: DataType
    nullable: bool = True


class RowSchema(msgspec.Struct, frozen=True):
    """The columns of one stream. ``version`` is given by the store and grows with every change."""

    fields: tuple[Field, ...]
    version: int = 0

    @property
    def required(self) -> frozenset[str]:
        """Original names of the columns that are never null."""
        return frozenset(f.source for f in self.fields if not f.nullable)

    def with_required(self, sources: Collection[str]) -> "RowSchema":
        """The same columns, of which these (original names), and no other, are never null."""
        wanted = frozenset(f.source for f in self.fields) & frozenset(sources)
        if wanted == self.required:
            return self
        replace = msgspec.structs.replace
        fields = tuple(replace(f, nullable=f.source not in wanted) for f in self.fields)
        return replace(self, fields=fields)


# Columns that every part carries beside the data. Tables rename or drop them.
SEQ = "_penstock_seq"  # int64: epoch << 40 | arrival number; grows with arrival over all epochs
RAW_ID = "_penstock_id"  # string: UUID, given once when the record is decoded
EXTRACTED_AT = "_penstock_extracted_at"  # timestamp[us, UTC]
CHANGES = "_penstock_changes"  # list<struct<field: string, change: string, reason: string>>
SEQ_EPOCH_SHIFT = 40


class MetadataNames(msgspec.Struct, frozen=True):
    """The table's names for the row metadata. ``meta`` is struct<sync_id: bigint, changes:
    array>."""

    raw_id: str
    extracted_at: str
    meta: str
    generation_id: str


class ChangeWords(msgspec.Struct, frozen=True):
    """What an entry of a change list says of a value that is NULL because it did not fit its type,
    and of a number that lost digits (``rounded``, with the same reason).
    A protocol that has words of its own gives them (``ProtocolPackage.change_words``)."""

    change: str = "NULLED"
    reason: str = "TYPE_MISFIT"
    rounded: str = "TRUNCATED"


NEUTRAL_METADATA = MetadataNames(
    "_penstock_id", "_penstock_extracted_at", "_penstock_meta", "_penstock_generation_id"
)


def cleaned_path(path: FieldPath, schema: RowSchema) -> FieldPath:
    """A path of properties as a path of columns; empty where no typed column is at its end."""
    fields, cleaned = schema.fields, list[str]()
    for index, step in enumerate(path):
        field = next((f for f in fields if f.source == step), None)
        if field is None:
            return ()
        cleaned.append(field.name)
        last = index == len(path) - 1
        if last and field.type.kind in (Kind.struct, Kind.array):
            return ()
        if not last and field.type.kind is not Kind.struct:
            return ()
        fields = field.type.fields
    return tuple(cleaned)
