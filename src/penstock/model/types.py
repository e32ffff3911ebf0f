"""Defines the types of columns, to which JSON Schema, Arrow, DuckDB, Spark and tables are mapped.

Not here: the mappings and conversions (``codec.json_schema`` reads JSON Schema, ``codec.arrow``
maps to Arrow and DuckDB, ``spark.types`` to Spark's DDL)."""

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from penstock.model.catalog import FieldPath


class Kind(StrEnum):
    """The kind of a type; decimal, array and struct have parameters (:class:`DataType`)."""

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
    number_text = (
        "number_text"  # kept as text: a number of any size in one form, other text as sent
    )
    json = "json"  # unions, objects without known properties: JSON text, every digit kept


class DataType(msgspec.Struct, frozen=True):
    """A type. ``precision``, ``scale``: of a decimal; ``item``: of an array; ``fields``: of a
    struct."""

    kind: Kind
    precision: int | None = None
    scale: int | None = None
    item: "DataType | None" = None
    fields: "tuple[Field, ...]" = ()


class Origin(StrEnum):
    """The origin of a column that the stream's schema does not declare. ``record``: the whole
    record (:data:`WHOLE_RECORD`). ``undeclared``: a property that records had; or all that have no
    column (:data:`EXTRA`)."""

    record = "record"
    undeclared = "undeclared"


class UndeclaredPolicy(StrEnum):
    """What to do with properties of records that the schema does not declare: keep them in the
    column :data:`EXTRA`, give them columns of their own (those inside objects go to :data:`EXTRA`),
    or leave them out."""

    keep = "keep"
    columns = "columns"
    drop = "drop"


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column or a nested field. ``name``: its cleaned name; ``source``: the property's original
    name. ``nullable`` False: every row under this schema was proved to have a value (L9).
    ``frame_type``: the column's Arrow type in the frames of its source (``codec.frame_types``);
    None: that of its kind. ``origin`` None: the schema declares it. These three are set for columns
    only, nested fields are always nullable."""

    name: str
    source: str
    type: DataType
    nullable: bool = True
    frame_type: str | None = None
    origin: Origin | None = None


class RowSchema(msgspec.Struct, frozen=True):
    """The columns of one stream. ``version`` is given by the store and grows with every change."""

    fields: tuple[Field, ...]
    version: int = 0

    @property
    def required(self) -> frozenset[str]:
        """Original names of the columns that are never null."""
        return frozenset(f.source for f in self.fields if not f.nullable)

    @property
    def extra(self) -> "Field | None":
        """The column :data:`EXTRA`; None: there is none."""
        return next((f for f in self.fields if f.name == EXTRA), None)

    @property
    def properties(self) -> "RowSchema":
        """Returns this schema without the columns that hold several properties of a record:
        :data:`EXTRA` and the whole record."""
        single = (f for f in self.fields if f.name != EXTRA and f.origin is not Origin.record)
        return RowSchema(tuple(single), self.version)

    def with_required(self, sources: Collection[str]) -> "RowSchema":
        """Returns this schema with exactly the columns ``sources`` (original names)
        non-nullable."""
        wanted = frozenset(f.source for f in self.fields) & frozenset(sources)
        if wanted == self.required:
            return self
        replace = msgspec.structs.replace
        fields = tuple(replace(f, nullable=f.source not in wanted) for f in self.fields)
        return replace(self, fields=fields)

    @property
    def frame_types(self) -> dict[str, str]:
        """The frame types of the columns that have one, by original name."""
        return {f.source: f.frame_type for f in self.fields if f.frame_type is not None}

    def with_frame_types(self, types: Mapping[str, str]) -> "RowSchema":
        """This schema with exactly these frame types (by original name)."""
        replace = msgspec.structs.replace
        fields = tuple(replace(f, frame_type=types.get(f.source)) for f in self.fields)
        return self if fields == self.fields else replace(self, fields=fields)


class MissingColumns(msgspec.Struct, frozen=True):
    """The columns that a schema lacks and that records need, so that their undeclared properties
    are kept. ``names``: top-level properties that get columns of their own; ``extra``:
    :data:`EXTRA`."""

    names: tuple[str, ...]
    extra: bool


WHOLE_RECORD = "record"
"""Original name of the column with a whole record as JSON text, for a stream whose schema does not
declare every property (``model.catalog.Stream.partial``)."""

EXTRA = "_penstock_extra"
"""Name of the column with a record's undeclared properties: a JSON object in which nested ones keep
their place; NULL in a row without any. No property's column has this name (``model.names``)."""

# The internal columns of every part. Tables rename or drop them.
SEQ = "_penstock_seq"  # int64: epoch << 40 | arrival number; grows with arrival over all epochs
RAW_ID = "_penstock_id"  # string: UUID, given once when the record is decoded
EXTRACTED_AT = "_penstock_extracted_at"  # timestamp[us, UTC]
CHANGES = "_penstock_changes"  # list<struct<field: string, change: string, reason: string>>
SEQ_EPOCH_SHIFT = 40


class MetadataNames(msgspec.Struct, frozen=True):
    """A table's names of its metadata columns. ``meta`` is struct<sync_id: bigint, changes:
    array>."""

    raw_id: str
    extracted_at: str
    meta: str
    generation_id: str


MAX_REASON_TEXT = 1024  # bytes of a value's text in an entry's reason
REASON_CUT = "\u2026"  # ends a text that was longer


class ChangeWords(msgspec.Struct, frozen=True):
    """The texts of a change list's entries (L9): ``change`` and ``reason`` for a value that is NULL
    because it did not fit its type; ``rounded``, with the same reason, for a number or a cursor
    that lost digits. In a table the value's text follows the reason's word: ``WORD: text``. A
    protocol may define its own (``ProtocolPackage.change_words``)."""

    change: str = "NULLED"
    reason: str = "TYPE_MISFIT"
    rounded: str = "TRUNCATED"


NEUTRAL_METADATA = MetadataNames(
    "_penstock_id", "_penstock_extracted_at", "_penstock_meta", "_penstock_generation_id"
)


def cleaned_path(path: FieldPath, schema: RowSchema) -> FieldPath:
    """Translates a path of original names to column names; empty if the path does not end at a
    scalar field."""
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
