"""Defines the types that a table keeps for a stream's columns, and its metadata columns.

Times of day, JSON and numbers as text are text in every table. Not here: names in Spark
(``spark.types``), the columns of one load (``tables.load_columns``)."""

from penstock.model.types import DataType, Field, Kind, MetadataNames

STRING, INTEGER, TIMESTAMP = DataType(Kind.string), DataType(Kind.integer), DataType(Kind.timestamp)
CHANGE_LIST = DataType(
    Kind.array,
    item=DataType(
        Kind.struct, fields=tuple(Field(n, n, STRING) for n in ("field", "change", "reason"))
    ),
)
META = DataType(
    Kind.struct,
    fields=(Field("sync_id", "sync_id", INTEGER), Field("changes", "changes", CHANGE_LIST)),
)


def metadata_fields(names: MetadataNames) -> tuple[Field, ...]:
    """Returns the metadata columns of a table under these names, in their order."""
    columns = {
        names.raw_id: STRING,
        names.extracted_at: TIMESTAMP,
        names.meta: META,
        names.generation_id: INTEGER,
    }
    return tuple(Field(name, name, kind) for name, kind in columns.items())


def stored(kind: DataType) -> DataType:
    """Returns the type that a table keeps for ``kind``: time, time_tz, number_text and json become
    string, also inside arrays and structs."""
    if kind.kind in (Kind.time, Kind.time_tz, Kind.number_text, Kind.json):
        return STRING
    if kind.kind is Kind.array and kind.item is not None:
        return DataType(Kind.array, item=stored(kind.item))
    if kind.kind is Kind.struct:
        fields = tuple(Field(f.name, f.source, stored(f.type)) for f in kind.fields)
        return DataType(Kind.struct, fields=fields)
    return kind
