"""Maps the types of ``model.types`` to Arrow's and DuckDB's, and builds the Arrow schema of a part.

Kinds that are kept as text (string, number_text, time, time_tz, json) are strings in both. Not
here: values (``codec.decode``). Neighbours: ``spark.types`` maps the same types to Spark's."""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

from penstock.codec.untyped import ArrowField, ArrowSchema, ArrowType, Table, pa
from penstock.model.types import (
    CHANGES,
    EXTRACTED_AT,
    RAW_ID,
    SEQ,
    DataType,
    Kind,
    RowSchema,
)

SOURCE_KEY = b"penstock.source"  # field metadata: the property's original name
FRAME_KEY = b"penstock.frame_type"  # field metadata: the column's type in its source's frames

_ARROW: dict[Kind, Callable[[], ArrowType]] = {
    Kind.string: lambda: pa.string(),
    Kind.boolean: lambda: pa.bool_(),
    Kind.integer: lambda: pa.int64(),
    Kind.number: lambda: pa.float64(),
    Kind.date: lambda: pa.date32(),
    Kind.timestamp: lambda: pa.timestamp("us", tz="UTC"),
    Kind.timestamp_ntz: lambda: pa.timestamp("us"),
    Kind.time: lambda: pa.string(),
    Kind.time_tz: lambda: pa.string(),
    Kind.binary: lambda: pa.binary(),
    Kind.number_text: lambda: pa.string(),
    Kind.json: lambda: pa.string(),
}

_DUCKDB: dict[Kind, str] = {
    Kind.string: "VARCHAR",
    Kind.boolean: "BOOLEAN",
    Kind.integer: "BIGINT",
    Kind.number: "DOUBLE",
    Kind.date: "DATE",
    Kind.timestamp: "TIMESTAMPTZ",
    Kind.timestamp_ntz: "TIMESTAMP",
    Kind.time: "VARCHAR",
    Kind.time_tz: "VARCHAR",
    Kind.binary: "BLOB",
    Kind.number_text: "VARCHAR",
    Kind.json: "VARCHAR",
}

# These kinds are extracted as JSON, which distinguishes 3 from "3".
_KEEPS_QUOTES = frozenset({
    Kind.boolean, Kind.integer, Kind.number, Kind.decimal, Kind.binary, Kind.number_text, Kind.json,
})  # fmt: skip


def arrow_type(data_type: DataType) -> ArrowType:
    """Returns the Arrow type of ``data_type``. Nested fields have their cleaned names and, as
    metadata ``penstock.source``, the original ones."""
    match data_type.kind:
        case Kind.decimal:
            return pa.decimal128(data_type.precision or 38, data_type.scale or 0)
        case Kind.array:
            return pa.list_(arrow_type(_item(data_type)))
        case Kind.struct:
            return pa.struct(
                [_field(f.name, f.source, arrow_type(f.type)) for f in data_type.fields]
            )
        case kind:
            return _ARROW[kind]()


def duckdb_type(data_type: DataType) -> str:
    """Returns the name of ``data_type`` in DuckDB's SQL."""
    match data_type.kind:
        case Kind.decimal:
            return f"DECIMAL({data_type.precision or 38},{data_type.scale or 0})"
        case Kind.array:
            return f"{duckdb_type(_item(data_type))}[]"
        case Kind.struct:
            inner = ", ".join(
                f'"{f.name.replace(chr(34), chr(34) * 2)}" {duckdb_type(f.type)}'
                for f in data_type.fields
            )
            return f"STRUCT({inner})"
        case kind:
            return _DUCKDB[kind]


def json_structure(data_type: DataType) -> Any:
    """Returns the structure argument of DuckDB's ``from_json`` for ``data_type``, by original
    names. Every leaf is text: VARCHAR, or JSON where ``3`` and ``"3"`` must stay apart."""
    match data_type.kind:
        case Kind.array:
            return [json_structure(_item(data_type))]
        case Kind.struct:
            return {f.source: json_structure(f.type) for f in data_type.fields}
        case kind:
            return "JSON" if kind in _KEEPS_QUOTES else "VARCHAR"


def part_schema(schema: RowSchema) -> ArrowSchema:
    """Returns the Arrow schema of a part: the columns of ``schema`` by cleaned name, then SEQ,
    RAW_ID, EXTRACTED_AT and CHANGES of ``model.types``."""
    columns = [
        _field(f.name, f.source, arrow_type(f.type)).with_nullable(f.nullable)
        for f in schema.fields
    ]
    return pa.schema([*columns, *internal_fields()])


@cache
def internal_fields() -> tuple[ArrowField, ...]:
    """Returns the fields of SEQ, RAW_ID, EXTRACTED_AT and CHANGES."""
    return (
        pa.field(SEQ, pa.int64()),
        pa.field(RAW_ID, pa.string()),
        pa.field(EXTRACTED_AT, pa.timestamp("us", tz="UTC")),
        pa.field(CHANGES, pa.list_(change_type())),
    )


@cache
def change_type() -> ArrowType:
    """Returns the type of an entry in a change list."""
    return pa.struct([pa.field(name, pa.string()) for name in ("field", "change", "reason")])


def proved(table: Table, declared: Collection[str] = ()) -> Table:
    """Returns ``table`` with non-nullable fields for those columns that are declared so, by their
    own field or by name in ``declared``, and hold no null; all other fields are nullable (L9)."""
    names = {f.name for f in table.schema if not f.nullable} | {*declared}
    if not names:
        return table
    fields = [
        f.with_nullable(f.name not in names or column.null_count > 0)
        for f, column in zip(table.schema, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(
        table.columns, schema=pa.schema(fields, metadata=table.schema.metadata)
    )


def required(table: Table) -> frozenset[str]:
    """Returns the names of the columns that are declared non-nullable and hold no null."""
    pairs = zip(table.schema, table.columns, strict=True)
    return frozenset(f.name for f, column in pairs if not f.nullable and not column.null_count)


def frame_types_of(schema: ArrowSchema) -> dict[str, str]:
    """Returns the frame types (``codec.frame_types``) that fields of ``schema`` carry, by
    column."""
    marks = ((f.name, (f.metadata or {}).get(FRAME_KEY)) for f in schema)
    return {name: mark.decode() for name, mark in marks if mark is not None}


def with_frame_types(table: Table, types: Mapping[str, str]) -> Table:
    """Returns ``table`` with exactly these frame types on its fields."""
    if types == frame_types_of(table.schema):
        return table
    fields: list[ArrowField] = []
    for field in table.schema:
        metadata = {k: v for k, v in (field.metadata or {}).items() if k != FRAME_KEY}
        if field.name in types:
            metadata[FRAME_KEY] = types[field.name].encode()
        fields.append(field.with_metadata(metadata or None))
    schema = pa.schema(fields, metadata=table.schema.metadata)
    return pa.Table.from_arrays(table.columns, schema=schema)


def _item(data_type: DataType) -> DataType:
    return data_type.item or DataType(Kind.json)


def _field(name: str, source: str, arrow: ArrowType) -> ArrowField:
    # UTF-8 has no surrogates, which a JSON property name may hold.
    return pa.field(name, arrow, metadata={SOURCE_KEY: source.encode("utf-8", "surrogatepass")})
