"""Reads CSV and JSON files as rows of typed columns, in Spark's tasks (models such as
``spark:./x.csv``).

Spark cuts the files into lines, and its tasks decode them (``codec.file_rows``): Spark's own reader
takes a backslash for an escape, gives NULL for ``""``, drops fields of ragged rows, and makes a row
of NULLs from a line that is not JSON. Large files are read in pieces, by several tasks. If a line
of any file has an odd number of quotes, a quoted field may continue in the next line, and each file
is read by one task, in order. The driver gets headers and possible types; it sees no row.

Not here: what happens to the rows (``engine.query.file_rows``). Neighbours: ``file_tasks`` runs in
the tasks, ``model`` reads all other models."""

import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from penstock.codec.csv_lines import CsvDialect, goes_on, header_names, other_separator
from penstock.codec.file_rows import CsvRows, CsvTexts, CsvTypes, FileRows, JsonRows
from penstock.errors import ConfigError
from penstock.model.staged_rows import BROKEN, GIVEN, LINE, MISFITS
from penstock.model.types import DataType, Field, Kind
from penstock.short_texts import shown
from penstock.spark.file_tasks import Header, Make
from penstock.spark.model import Model, columns, failing, fault
from penstock.spark.query import silence, spark_words
from penstock.spark.types import ddl, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CORRUPT = "penstock_corrupt"
_MOST_NAMES = 10  # of columns in an error
_BATCH_BYTES = str(64 << 20)
_BATCH_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
_JSON = {
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "lineSep": "\n",
}


class _Survey(msgspec.Struct, frozen=True):
    """What is known about files before they are decoded. ``headers``: the columns of each CSV file,
    by its URL. ``whole``: a field may have line breaks, so each file is read by one task.
    ``advice``: which other separator the headers suggest."""

    headers: dict[str, tuple[str, ...]]
    whole: bool = False
    advice: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the columns of all files, in the order in which they are met."""
        return tuple(dict.fromkeys(n for names in self.headers.values() for n in names))


def _survey(lines: "DataFrame", model: Model) -> _Survey:
    """Reads the headers of CSV files, and finds whether fields may have line breaks. Raises
    ``ConfigError``, ``SourceError``."""
    from pyspark.sql import functions as F

    assert model.text is not None
    if model.text.kind != "csv":
        return _Survey({})
    text, dialect = F.col("value"), model.text.dialect
    odd = (F.octet_length(text) - F.octet_length(F.replace(text, F.lit('"'), F.lit("")))) % 2 == 1
    if dialect.escape:  # which may have taken the meaning from a quote
        odd = odd | (text.contains(dialect.escape) & text.contains('"'))
    found = (
        lines.filter(~text.isin("", "\r"))
        .groupBy("file")
        .agg(
            F.min_by("line", F.struct("start", "id")).alias("header"),
            F.max(odd).alias("odd"),
        )
        .orderBy("file")
    )
    rows = _collected(found, model)
    headers = {row["file"]: bytes(row["header"]) for row in rows}
    if any(goes_on(header, dialect) for header in headers.values()):
        headers |= _long_headers(lines, dialect, model)
    names: dict[str, tuple[str, ...]] = {}
    for file, header in headers.items():
        named = header_names(header, dialect)
        if isinstance(named, str):
            raise fault(model, [f"the header of {unquote(file)} cannot be read: {named}"])
        names[file] = named
    return _Survey(names, any(row["odd"] for row in rows), _separator_advice(headers, dialect))


def _separator_advice(headers: Mapping[str, bytes], dialect: CsvDialect) -> str | None:
    for file, header in headers.items():
        other = other_separator(header, dialect)
        if other is not None:
            used, other = (
                msgspec.json.encode(each).decode() for each in (dialect.separator, other)
            )
            return (
                f"the header of {shown(_name(file))} has {other} more often than {used}; if {other}"
                f" separates its fields, give the source `config: {{separator: {other}}}`"
            )
    return None


def file_columns(
    spark: "SparkSession", model: Model, known: Mapping[str, DataType]
) -> tuple[tuple[Field, ...], str | None]:
    """Returns the columns of text files, and advice where their headers suggest another separator.
    ``known``: types that are kept, by name. Any other column gets the type that holds all its
    values exactly. Raises ``ConfigError``, ``SourceError``."""
    lines = _lines(spark, model)
    found = _survey(lines, model)
    return _columns(spark, model, known, lines, found), found.advice


def read_files(
    spark: "SparkSession", model: Model, known: Mapping[str, DataType]
) -> "tuple[DataFrame, tuple[Field, ...], bool]":
    """Returns the rows of text files as columns ``c0``, ``c1``, ... and the columns of
    ``model.staged_rows`` for rows of text files; what :func:`file_columns` returns; and whether any
    file has the header that CSV begins with. Raises ``ConfigError``, ``SourceError``."""
    from pyspark.sql import functions as F

    assert model.text is not None
    lines = _lines(spark, model)
    found = _survey(lines, model)
    fields = _columns(spark, model, known, lines, found)
    types = [field.type for field in fields]
    own = {GIVEN: "ARRAY<STRING>", MISFITS: "ARRAY<INT>", BROKEN: "STRING", LINE: "BINARY"}
    inner = {f"c{index}": ddl(kind) for index, kind in enumerate(types)} | own
    row = ", ".join(f"{name}: {kind}" for name, kind in inner.items())
    read = _udf(
        _reading(_making(model, found, fields), found.whole, types), f"ARRAY<STRUCT<{row}>>"
    )
    rows = (
        _in_order(lines, found.whole)
        .select(read("line", "file", "start").alias("rows"))
        .select(F.explode("rows").alias("row"))
        .filter(F.col("row").isNotNull())
        .select("row.*")
    )
    return rows, fields, bool(found.headers) or model.text.kind != "csv"


def _columns(
    spark: "SparkSession",
    model: Model,
    known: Mapping[str, DataType],
    lines: "DataFrame",
    found: _Survey,
) -> tuple[Field, ...]:
    assert model.text is not None
    if model.text.kind == "csv":
        types = _csv_types(model, known, lines, found)
    else:
        types = _json_types(spark, model, known)
    types = types or dict(known)
    if not types:
        raise fault(
            model, ["it has no columns: no line of the files is a record"], _one_line(model)
        )
    folded = [name.lower() for name in types]
    if twice := [name for name in types if folded.count(name.lower()) > 1]:
        raise _by_case(model, twice)
    return tuple(Field(name, name, by_source(kind)) for name, kind in types.items())


def _one_line(model: Model) -> str | None:
    """Returns a hint for a JSON document that spans several lines: without its line breaks, which
    no JSON text holds, it is one line."""
    assert model.text is not None
    path = Path(model.path)
    if model.text.kind != "json" or not path.is_file():
        return None
    packed = path.suffix == ".gz"
    name = path.with_suffix("").stem if packed else path.stem
    made, given = path.with_name(f"{name}.lines.jsonl"), shlex.quote(model.path)
    read = f"gzip -dc {given} | tr -d '\\r\\n'" if packed else f"tr -d '\\r\\n' < {given}"
    return (
        "JSON files have one record, or one array of records, a line; if it is a document over"
        f" several lines, `{read} > {shlex.quote(str(made))}` makes it one line: read"
        f" spark:{made}"
    )


def _by_case(model: Model, names: Sequence[str]) -> ConfigError:
    """Makes the error for columns, or fields of objects (no ``names``), that differ by case alone,
    with a query that reads each by its own name."""
    assert model.text is not None
    if model.text.kind != "json":
        hint = "rename one of them in the header of the file"
    else:
        taken = ", ".join(
            f"get_json_object(value, {_literal(f'$[{_literal(shown(name))}]')}) AS "
            + quoted(f"{shown(name)}_{number}")
            for number, name in enumerate(names or ("NAME",), 1)
        )
        hint = (
            "rename one of them, or read the lines by a query, which gives each a name of its own: "
            f"SELECT {taken} FROM text.{quoted(model.path)}"
        )
    which = f"the columns {', '.join(map(shown, names))}" if names else "fields of its objects"
    return fault(model, [f"{which} differ by case alone"], hint)


def _literal(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{inner}'"


def _same_but_case(spark: "SparkSession", model: Model) -> list[str]:
    """Returns the names in the records of JSON files that differ only by case from another one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = F.explode(F.json_object_keys("value")).alias("name")
    names = spark.read.text(model.path).select(keys).distinct()
    alike = Window.partitionBy(F.lower("name"))
    twice = names.withColumn("alike", F.count("*").over(alike)).filter("alike > 1")
    return sorted(row["name"] for row in _collected(twice.select("name").limit(_MOST_NAMES), model))


def by_source(kind: DataType) -> DataType:
    """Returns the type with nested fields under their original names."""
    if kind.kind is Kind.array and kind.item is not None:
        return DataType(Kind.array, item=by_source(kind.item))
    if kind.kind is Kind.struct:
        inner = (Field(f.source, f.source, by_source(f.type)) for f in kind.fields)
        return DataType(Kind.struct, fields=tuple(inner))
    return kind


# -- types


def _csv_types(
    model: Model, known: Mapping[str, DataType], lines: "DataFrame", found: _Survey
) -> dict[str, DataType]:
    assert model.text is not None
    names = found.names
    asked = [number for number, name in enumerate(names) if name not in known]
    types = dict(known)
    if asked:
        fields = [Field(name, name, DataType(Kind.string)) for name in names]
        places, dialect, width = _places(found, fields), model.text.dialect, len(names)

        def make(file: str, begins: bool) -> CsvTexts:
            return CsvTexts(dialect, places.get(file, ()), width, header=begins)

        look = _udf(_looking(make, found.whole, asked), "STRING")
        seen = _in_order(lines, found.whole).select(look("line", "file", "start").alias("found"))
        every = CsvTypes(asked)
        for row in _collected(seen.filter("found IS NOT NULL"), model):
            every.merge(msgspec.json.decode(row["found"], type=dict[int, list[int]]))
        types |= {names[number]: kind for number, kind in every.types().items()}
    return {name: types[name] for name in names}


def _json_types(
    spark: "SparkSession", model: Model, known: Mapping[str, DataType]
) -> dict[str, DataType]:
    """Returns the types that Spark infers; known types stay."""
    _refuse_partitions(spark.read.text(model.path).columns[1:], model)
    from pyspark.errors import AnalysisException

    with failing(model):
        try:
            rows = spark.read.options(**_JSON).json(model.path).drop(_CORRUPT)
            found = rows.columns
        except AnalysisException as failure:
            if failure.getCondition() != "COLUMN_ALREADY_EXISTS":
                raise
            raise _by_case(model, _same_but_case(spark, model)) from None
        if not found:
            return {}
    inferred = {f.source: f.type for f in columns(rows, model)}
    return {
        name: _merged(known[name], kind) if name in known else _roomy(kind)
        for name, kind in inferred.items()
    }


def _merged(known: DataType, found: DataType) -> DataType:
    """Returns the known type, with the new fields of objects."""
    if known.kind is not found.kind:
        return known
    if known.kind is Kind.array and known.item is not None and found.item is not None:
        return DataType(Kind.array, item=_merged(known.item, found.item))
    if known.kind is not Kind.struct:
        return known
    new = {f.source: f for f in found.fields}
    fields = [
        Field(
            f.source, f.source, _merged(f.type, new[f.source].type) if f.source in new else f.type
        )
        for f in known.fields
    ]
    had = {f.source for f in known.fields}
    fields += [
        Field(f.source, f.source, _roomy(f.type)) for f in found.fields if f.source not in had
    ]
    return DataType(Kind.struct, fields=tuple(fields))


def _roomy(kind: DataType) -> DataType:
    """Returns the type of a new column, with room for all digits if integers are beyond 64 bits, so
    that it stays when longer ones come."""
    if kind.kind is Kind.decimal and not kind.scale:
        return DataType(Kind.decimal, 38, 0)
    if kind.kind is Kind.array and kind.item is not None:
        return DataType(Kind.array, item=_roomy(kind.item))
    if kind.kind is Kind.struct:
        fields = (Field(f.source, f.source, _roomy(f.type)) for f in kind.fields)
        return DataType(Kind.struct, fields=tuple(fields))
    return kind


# -- lines


def _lines(spark: "SparkSession", model: Model) -> "DataFrame":
    """Returns the lines of the files, with their file (its URL), the begin of their piece, and a
    number that grows within the piece."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    silence()
    try:
        read = spark.read.option("lineSep", "\n").text(model.path)
        _refuse_partitions(read.columns[1:], model)
    except PySparkException as failure:
        raise fault(model, [spark_words(failure, "")]) from None
    if spark.conf.isModifiable(_BATCH_SETTING):
        spark.conf.set(_BATCH_SETTING, _BATCH_BYTES)
    return read.select(
        "value",
        F.col("value").cast("binary").alias("line"),
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("start"),
        F.monotonically_increasing_id().alias("id"),
    )


def _refuse_partitions(names: Sequence[str], model: Model) -> None:
    """Raises ``ConfigError`` if folders are columns (``day=1``)."""
    if names:
        raise fault(
            model,
            [
                f"its folders are columns ({', '.join(names)}): read it by a query, "
                f"SELECT * FROM {model.format}.{quoted(model.path)}"
            ],
        )


def _in_order(lines: "DataFrame", whole: bool) -> "DataFrame":
    """Returns the lines as they are decoded: in pieces of files, or each file in one task."""
    if not whole:
        return lines
    return lines.drop("value").repartition("file").sortWithinPartitions("file", "start", "id")


def _collected(rows: "DataFrame", model: Model) -> "list[Any]":
    with failing(model):
        return rows.collect()


def _long_headers(lines: "DataFrame", dialect: CsvDialect, model: Model) -> dict[str, bytes]:
    """Returns the headers of files, if one contains a line break."""
    from pyspark.sql import functions as F

    def make(file: str, begins: bool) -> Any:
        del file
        return Header(dialect, begins)

    first = _udf(_reading(make, True, None), "ARRAY<BINARY>")
    found = _in_order(lines, True).select("file", first("line", "file", "start").alias("all"))
    rows = found.select("file", F.explode("all").alias("header")).filter("header IS NOT NULL")
    return {row["file"]: bytes(row["header"]) for row in _collected(rows, model)}


def _places(found: _Survey, fields: Sequence[Field]) -> dict[str, tuple[int, ...]]:
    """Returns, for each file and field of its lines, the number of the column; -1: there is
    none."""
    at = {field.source: number for number, field in enumerate(fields)}
    return {
        file: tuple(at.get(name, -1) for name in names) for file, names in found.headers.items()
    }


def _making(model: Model, found: _Survey, fields: Sequence[Field]) -> Make:
    """Returns what makes the reader of each file, in the tasks."""
    assert model.text is not None
    columns_of_rows = tuple(fields)
    if model.text.kind != "csv":
        return lambda file, begins: JsonRows(columns_of_rows, _name(file))
    places, dialect = _places(found, fields), model.text.dialect
    types = [field.type for field in fields]

    def make(file: str, begins: bool) -> FileRows:
        return CsvRows(dialect, places.get(file, ()), types, header=begins, file=_name(file))

    return make


def _name(file: str) -> str:
    return unquote(file.rpartition("/")[2])


def _reading(make: Make, whole: bool, types: Sequence[DataType] | None) -> Callable[..., Any]:
    """Returns what Spark runs in its tasks; it is shipped with what it names, and no module."""

    def read(batches: Any) -> Iterator[Any]:
        from penstock.spark.file_tasks import read_lines

        return read_lines(batches, make, whole, types)

    return read


def _looking(make: Make, whole: bool, asked: Sequence[int]) -> Callable[..., Any]:
    """Like :func:`_reading`, to find the types of the columns ``asked``."""

    def look(batches: Any) -> Iterator[Any]:
        from penstock.spark.file_tasks import look_at_lines

        return look_at_lines(batches, make, whole, asked)

    return look


def _udf(function: Callable[..., Any], returns: str) -> Any:
    from pyspark.sql.functions import ArrowUDFType, arrow_udf

    with warnings.catch_warnings():  # it prefers type hints
        warnings.simplefilter("ignore")
        made: Any = arrow_udf(function, returns, ArrowUDFType.SCALAR_ITER)
    return made.asNondeterministic()
