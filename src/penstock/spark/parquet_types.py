"""Finds the columns of Parquet files that differ: every column of each file, in the widest type.

Spark takes the columns of one file for those of all, or merges columns but no types. Its reader
widens values if it gets the wider type. Not here: whether a model consists of such files
(``model``)."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from penstock.spark.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

_INTEGERS = ("byte", "short", "integer", "long")
_DIGITS = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""Digits of a decimal for Parquet's integers (INT32, INT64), as Spark's reader requires."""
_MOST_DIGITS = 38


class TypesDiffer(ValueError):
    """Raised for a column whose types in two files have no common type."""


def widened(spark: "SparkSession", path: str) -> "DataFrame":
    """Reads all of the files in ``path``. Raises :class:`TypesDiffer`."""
    from pyspark.sql import types as T

    whole = spark.read.parquet(path)
    columns: dict[str, T.StructField] = {}
    first: dict[str, str] = {}
    empty: dict[frozenset[str], list[str]] = {}
    for file in sorted(whole.inputFiles()):
        nothing = _without_type(file)
        empty.setdefault(nothing, []).append(file)
        for field in spark.read.parquet(file).schema.fields:
            name = field.name.lower()
            if name in nothing:
                continue
            known = columns.get(name)
            kind = field.dataType if known is None else _widest(known.dataType, field.dataType)
            if kind is None:
                assert known is not None
                raise TypesDiffer(
                    f"the column '{field.name}' is {known.dataType.simpleString()[:80]} in "
                    f"{first[name]} and {field.dataType.simpleString()[:80]} in {file}, and no "
                    "type holds both: read the files apart, and CAST it"
                )
            columns[name] = T.StructField(known.name if known else field.name, kind)
            first.setdefault(name, file)
    # Those in the names of folders (day=2026-01-02), and those that have no type in any file.
    more = [field for field in whole.schema.fields if field.name.lower() not in columns]
    schema = T.StructType([*columns.values(), *more])
    if len(empty) == 1:
        return spark.read.schema(schema).parquet(path)
    root = {"basePath": path} if Path(path).is_dir() else {}
    found: DataFrame | None = None
    for nothing, files in empty.items():
        read = T.StructType([f for f in schema.fields if f.name.lower() not in nothing])
        rows = spark.read.options(**root).schema(read).parquet(*files)
        found = rows if found is None else found.unionByName(rows, allowMissingColumns=True)
    assert found is not None
    return found.select(*(quoted(field.name) for field in schema.fields))


def _without_type(file: str) -> frozenset[str]:
    """Returns the columns, in lower case, that have no value in a file and no type (Arrow's null):
    Spark takes them for integers. For remote files this is unknown."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not file.startswith("file:"):
        return frozenset()
    schema = pq.read_schema(unquote(urlsplit(file).path))
    return frozenset(field.name.lower() for field in schema if pa.types.is_null(field.type))


def _widest(one: "T.DataType", other: "T.DataType") -> "T.DataType | None":
    """Returns the narrowest type that holds every value of both exactly, and that the reader can
    return; None: there is none."""
    from pyspark.sql import types as T

    if one == other:
        return one
    if isinstance(one, T.StructType) and isinstance(other, T.StructType):
        return _of_structs(one, other)
    if isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        item = _widest(one.elementType, other.elementType)
        return None if item is None else T.ArrayType(item)
    if isinstance(one, T.MapType) and isinstance(other, T.MapType):
        value = _widest(one.valueType, other.valueType)
        return (
            None if value is None or one.keyType != other.keyType else T.MapType(one.keyType, value)
        )
    return _of_numbers(one, other)


def _of_structs(one: "T.StructType", other: "T.StructType") -> "T.StructType | None":
    from pyspark.sql import types as T

    fields = {field.name: field.dataType for field in one.fields}
    for field in other.fields:
        known = fields.get(field.name)
        kind = field.dataType if known is None else _widest(known, field.dataType)
        if kind is None:
            return None
        fields[field.name] = kind
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


def _of_numbers(one: "T.DataType", other: "T.DataType") -> "T.DataType | None":
    from pyspark.sql import types as T

    names = {one.typeName(), other.typeName()}
    if names <= {*_INTEGERS}:
        return max(one, other, key=lambda kind: _INTEGERS.index(kind.typeName()))
    if names <= {*_INTEGERS, "float", "double"} and "long" not in names:
        return T.DoubleType()
    whole, scale = 0, 0
    for kind in (one, other):
        digits = _DIGITS.get(kind.typeName())
        if isinstance(kind, T.DecimalType):
            whole, scale = max(whole, kind.precision - kind.scale), max(scale, kind.scale)
        elif digits is None:
            return None
        else:
            whole = max(whole, digits)
    return T.DecimalType(whole + scale, scale) if whole + scale <= _MOST_DIGITS else None
