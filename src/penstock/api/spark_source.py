"""Defines Spark's format ``penstock``: ``spark.read.format("penstock")`` and
``df.write.format("penstock")``, by Spark's Python Data Source API, and :func:`register`.

Spark creates a :class:`PenstockSource` in a separate Python process that its JVM starts and that
has no session. ``load()`` requests the schema, once: the rows land then, in files of a folder of
their own (``staging``). Spark then pickles the object, so that every plan of the frame has these
files; tasks, their retries and speculative copies read only files, never a connector. A write's
tasks write files; the commit, in a process of the same kind, takes the files of the attempts that
Spark counted and runs :func:`penstock.write`. A folder names the JVM as its owner; a later load or
save removes it once that JVM has ended. Not here: the runs (``reading``, ``writing``).
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never
from uuid import uuid4

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from penstock.api.staging import staging_folder
from penstock.api.verbs import Changes, PipelineKeywords, explained
from penstock.config.did_you_mean import hint
from penstock.config.home import Home
from penstock.config.user_folders import provide
from penstock.errors import ConfigError, PenstockError
from penstock.runtimes.owner import parent_owner

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_PARTS, _ROWS = "parts", "rows"
_CHANGES = ("config", "max_rejected")
_HOW = ("env_file", "yes", "home")
_READ = ("source", "stream", *_CHANGES, *_HOW)
_WRITE = ("destination", "stream", "mode", "primary_key", "name", *_CHANGES, *_HOW)


@explained
def register(spark: "SparkSession") -> None:
    """Registers the format ``penstock`` in a session. The workers on this machine then use this
    Python, unless ``PYSPARK_PYTHON`` names another. Spark finds the format without this call only
    where the ``PYSPARK_PYTHON`` that it was started with has Penstock. Raises ``ConfigError``
    (``spark.stopped``)."""
    from penstock.spark.workers_python import use_this_python

    use_this_python(spark)
    try:
        spark.dataSource.register(PenstockSource)
    except Exception as failure:  # py4j's and gRPC's errors have no common base
        raise ConfigError(
            "this Spark session takes no format: was it stopped?",
            code="spark.stopped",
            hint="open a session, and register the format in it",
        ) from failure


class PenstockSource(DataSource):
    """A source or a destination with the options that Spark was given."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._files: list[str] | None = None

    @classmethod
    def name(cls) -> str:
        """Returns the format's name."""
        return "penstock"

    @explained
    def schema(self) -> "StructType":
        """Lands the rows and returns their types, those of a sync's table. Spark calls it once for
        each ``load()``. Raises ``PenstockError``."""
        from penstock.api.reading import landed, table_files
        from penstock.spark.types import struct_type
        from penstock.tables.parquet.folders import read_marker

        source, stream, changes, how = _parsed_options(self.options, _READ, "source")
        changes["sync_mode"], changes["destination_sync_mode"] = "full_refresh", "overwrite"
        home = _folder(self.options)
        try:
            _, found = landed(home, source, stream, changes, how)
            table = Path(found.table or "")
            marker = read_marker(table)
            self._files = table_files(table)
        except BaseException:
            shutil.rmtree(home.path, ignore_errors=True)
            raise
        self.options = {}  # a pickled plan has no secrets
        return struct_type(marker.columns if marker else ())

    @explained
    def reader(self, schema: "StructType") -> "_Reader":
        """Returns the reader of the files that :meth:`schema` made. Raises ``ConfigError``
        (``spark.schema``) where a schema was given to Spark."""
        if self._files is None:
            raise ConfigError(
                "the format penstock takes no schema: the columns have the types that a sync gives",
                code="spark.schema",
                hint="leave out .schema(...), and cast the columns of what load() returns",
            )
        return _Reader(self._files, schema)

    @explained
    def writer(self, schema: "StructType", overwrite: bool) -> "_Writer":
        """Returns the writer that stages and then delivers the rows. Raises ``ConfigError`` for
        wrong options, and for columns that Spark does not pass to Python unchanged."""
        from penstock.spark.model import unfit

        for field in schema.fields:
            if unfit(field.dataType, inside=field.dataType.simpleString() != "void"):
                raise ConfigError(
                    f"the column {field.name!r} is {field.dataType.simpleString()[:80]}",
                    code="spark.type",
                    hint="CAST it to another type, or give the DataFrame to penstock.write",
                )
        destination, stream, changes, how = _parsed_options(self.options, _WRITE, "destination")
        if overwrite:
            if changes.get("mode", "overwrite") != "overwrite":
                raise ConfigError(
                    f"mode('overwrite') and option mode={changes.get('mode')} contradict each"
                    " other",
                    code="spark.option",
                    hint="write mode('append') with the option",
                )
            changes["mode"] = "overwrite"
        return _Writer(_folder(self.options), schema, destination, stream, changes, how)

    def streamReader(self, schema: "StructType") -> Never:
        """Raises ``ConfigError`` (``spark.streaming``)."""
        _no_stream("readStream", "penstock.read(..., incremental=True, name=...)")

    def streamWriter(self, schema: "StructType", overwrite: bool) -> Never:
        """Raises ``ConfigError`` (``spark.streaming``)."""
        _no_stream("writeStream", "foreachBatch with penstock.write(..., mode='upsert')")


class _Reader(DataSourceReader):
    """Reads Parquet files: a partition is one file."""

    def __init__(self, files: list[str], schema: "StructType") -> None:
        self._files, self._schema = files, schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(file) for file in self._files]

    def read(self, partition: InputPartition | None) -> "Iterator[Any]":
        """Yields a file's rows, by blocks. ``partition`` None: Spark passes it for a table without
        partitions."""
        import pyarrow.parquet as pq
        from pyspark.sql.pandas.types import to_arrow_schema

        if partition is None:
            return
        wanted = to_arrow_schema(self._schema)
        try:
            file = pq.ParquetFile(partition.value)
        except FileNotFoundError:
            raise _gone(partition.value) from None
        with file:
            for batch in file.iter_batches():
                yield batch.select(wanted.names).cast(wanted)


class _Written(WriterCommitMessage):
    """The file of one attempt of a task; None: it had no rows."""

    def __init__(self, file: str | None) -> None:
        self.file = file


class _Writer(DataSourceArrowWriter):
    """Stages the rows in files and delivers them at the commit."""

    def __init__(
        self, home: Home, schema: "StructType", destination: str, stream: str, changes: Changes,
        how: PipelineKeywords,
    ) -> None:  # fmt: skip
        self._folder, self._schema = home.path, schema
        self._destination, self._stream, self._changes, self._how = (
            destination, stream, changes, how,
        )  # fmt: skip
        (self._folder / _PARTS).mkdir(mode=0o700)
        (self._folder / _ROWS).mkdir(mode=0o700)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> _Written:  # type: ignore[override]
        """Writes one attempt's rows into a file of its own."""
        import pyarrow.parquet as pq

        first = next(iterator, None)
        if first is None:
            return _Written(None)
        name = f"{uuid4().hex}.parquet"
        with pq.ParquetWriter(self._folder / _PARTS / name, first.schema) as out:
            out.write_batch(first)
            for batch in iterator:
                out.write_batch(batch)
        return _Written(name)

    @explained
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delivers the rows of the attempts that Spark counted. Raises ``PenstockError``."""
        from penstock.api.writing import ParquetRows, write

        rows = self._folder / _ROWS
        for message in messages:
            assert isinstance(message, _Written), "Spark commits with a message of every task"
            if message.file is not None:
                (self._folder / _PARTS / message.file).rename(rows / message.file)
        if not any(rows.iterdir()):
            self._write_none(rows / "none.parquet")
        keywords: Any = {**self._changes, **self._how}
        write(ParquetRows(rows), self._destination, self._stream, **keywords)
        shutil.rmtree(self._folder, ignore_errors=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Removes what the tasks wrote."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write_none(self, file: Path) -> None:
        import pyarrow.parquet as pq
        from pyspark.sql.pandas.types import to_arrow_schema

        pq.write_table(to_arrow_schema(self._schema).empty_table(), file)


def _parsed_options(
    options: Mapping[str, str], known: Sequence[str], end: str
) -> tuple[str, str, Changes, PipelineKeywords]:
    """Returns connector, stream and keywords from Spark's options. Raises ``ConfigError``
    (``spark.option``), which quotes no value (L10)."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in known:
            raise ConfigError(
                f"the format penstock has no option {name!r} here",
                code="spark.option",
                hint=hint(name, known),
            )
    for name in (end, "stream"):
        if not given.get(name):
            raise ConfigError(
                f"the option {name!r} is missing",
                code="spark.option",
                hint=f".option({name!r}, ...)",
            )
    yes = given.pop("yes", "false").lower()
    if yes not in ("true", "false"):
        raise ConfigError("the option 'yes' is true or false", code="spark.option")
    connector, stream = given.pop(end), given.pop("stream")
    how: dict[str, Any] = {name: given.pop(name) for name in _HOW if name in given}
    how |= {"yes": yes == "true", "progress": False}
    changes: Any = given
    return connector, stream, changes, PipelineKeywords(**how)


def _folder(options: Mapping[str, str]) -> Home:
    """Makes a folder that is removed after this Spark has ended."""
    outer = Home(options.get("home"))
    provide(outer.lasting)
    return staging_folder(outer, parent_owner())


def _gone(file: str) -> PenstockError:
    return ConfigError(
        f"rows of this DataFrame are gone: {file} is not there",
        code="read.closed",
        hint="load() again; on a cluster PENSTOCK_HOME must be a folder that all machines share",
    )


def _no_stream(what: str, instead: str) -> Never:
    raise ConfigError(
        f"the format penstock has no {what}: Spark may read the rows of an offset again, and a "
        "connector may then send other rows",
        code="spark.streaming",
        hint=f"use {instead}",
    )
