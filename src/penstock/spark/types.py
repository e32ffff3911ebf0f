"""Converts column types of ``model.types`` to Spark's, and Spark's schemas back.

Gives ``StructType`` for reading parts and writing tables, DDL text for SQL, and the ``RowSchema``
of a table that Spark read. Kinds that Spark has no type for (time, time_tz, number_text, json)
become STRING. Not here: the order of types (``model.types``), what a table keeps
(``model.table_columns``), casts (``tables.frame.casts``). :func:`json_text` makes JSON of a nested
column.
"""

from typing import TYPE_CHECKING

from penstock.model.table_columns import CHANGE_LIST, INTEGER, STRING, TIMESTAMP
from penstock.model.types import (
    CHANGES,
    EXTRACTED_AT,
    RAW_ID,
    SEQ,
    DataType,
    Field,
    Kind,
    RowSchema,
)

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql import types as T

SOURCE_NAME = "penstock.source"  # key of a column's metadata: the property's original name

INTERNAL = (
    Field(SEQ, SEQ, INTEGER),
    Field(RAW_ID, RAW_ID, STRING),
    Field(EXTRACTED_AT, EXTRACTED_AT, TIMESTAMP),
    Field(CHANGES, CHANGES, CHANGE_LIST),
)

_DDL = {
    Kind.string: "STRING",
    Kind.boolean: "BOOLEAN",
    Kind.integer: "BIGINT",
    Kind.number: "DOUBLE",
    Kind.date: "DATE",
    Kind.timestamp: "TIMESTAMP",
    Kind.timestamp_ntz: "TIMESTAMP_NTZ",
    Kind.time: "STRING",
    Kind.time_tz: "STRING",
    Kind.binary: "BINARY",
    Kind.number_text: "STRING",
    Kind.json: "STRING",
}
_WHOLE = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}


def ddl(kind: DataType) -> str:
    """Returns the name of a type in Spark SQL."""
    if kind.kind is Kind.decimal:
        return f"DECIMAL({kind.precision or 38},{kind.scale or 0})"
    if kind.kind is Kind.array:
        return f"ARRAY<{ddl(kind.item or STRING)}>"
    if kind.kind is Kind.struct:
        return f"STRUCT<{', '.join(f'{quoted(f.name)}: {ddl(f.type)}' for f in kind.fields)}>"
    return _DDL[kind.kind]


def json_text(column: "Column") -> "Column":
    """Converts a map, struct, array or variant to JSON text without loss: with NULL fields, and
    times to the microsecond, of which Spark by itself writes three digits."""
    from pyspark.sql import functions as F

    return F.to_json(column, _WHOLE)


def quoted(name: str) -> str:
    """Quotes an identifier for Spark SQL, whatever characters it has."""
    return f"`{name.replace('`', '``')}`"


def spark_type(kind: DataType) -> "T.DataType":
    """Converts a type to Spark's."""
    from pyspark.sql import types as T

    if kind.kind is Kind.decimal:
        return T.DecimalType(kind.precision or 38, kind.scale or 0)
    if kind.kind is Kind.array:
        return T.ArrayType(spark_type(kind.item or STRING))
    if kind.kind is Kind.struct:
        return struct_type(kind.fields)
    simple: dict[Kind, type[T.DataType]] = {
        Kind.boolean: T.BooleanType,
        Kind.integer: T.LongType,
        Kind.number: T.DoubleType,
        Kind.date: T.DateType,
        Kind.timestamp: T.TimestampType,
        Kind.timestamp_ntz: T.TimestampNTZType,
        Kind.binary: T.BinaryType,
    }
    return simple.get(kind.kind, T.StringType)()


def struct_type(fields: tuple[Field, ...]) -> "T.StructType":
    """Converts fields to a Spark schema: all nullable, with their original names as metadata
    (:data:`SOURCE_NAME`)."""
    from pyspark.sql import types as T

    return T.StructType(
        [T.StructField(f.name, spark_type(f.type), True, {SOURCE_NAME: f.source}) for f in fields]
    )


def part_schema(schema: RowSchema) -> "T.StructType":
    """Returns the Spark schema of a part file: the columns of ``schema`` and the internal ones."""
    return struct_type((*schema.fields, *INTERNAL))


def row_schema(struct: "T.StructType") -> RowSchema:
    """Converts the Spark schema of a table to its columns. Spark types without a kind of their own
    become the nearest one (see :func:`data_type`)."""
    return RowSchema(
        tuple(
            Field(f.name, (f.metadata or {}).get(SOURCE_NAME, f.name), data_type(f.dataType))
            for f in struct.fields
        )
    )


def data_type(kind: "T.DataType") -> DataType:
    """Converts a Spark type: smaller integers become 64 bits, float becomes double, maps, variants
    and other types become string."""
    from pyspark.sql import types as T

    if isinstance(kind, T.DecimalType):
        return DataType(Kind.decimal, precision=kind.precision, scale=kind.scale)
    if isinstance(kind, T.ArrayType):
        return DataType(Kind.array, item=data_type(kind.elementType))
    if isinstance(kind, T.StructType):
        return DataType(Kind.struct, fields=row_schema(kind).fields)
    names = {
        "boolean": Kind.boolean,
        "tinyint": Kind.integer,
        "smallint": Kind.integer,
        "int": Kind.integer,
        "bigint": Kind.integer,
        "float": Kind.number,
        "double": Kind.number,
        "date": Kind.date,
        "timestamp": Kind.timestamp,
        "timestamp_ntz": Kind.timestamp_ntz,
        "binary": Kind.binary,
    }
    return DataType(names.get(kind.simpleString(), Kind.string))
