"""Writes, by Arrow, the files of a local table that a load changes: the rows that it gets, and the
remaining rows of files that lose some; or combines many small parts into few files. Parts of which
the table gets every row are linked if they match its layout. Runs in a Spark task without Spark.

Reads files and parts a batch at a time, while a thread writes the batch before. New files have the
form of parts in their table's layout (``codec.parquet_parts``), have about :data:`FILE_BYTES` at
most, and are durable on return. Nothing refers to them yet: the driver commits or removes them.
What Arrow would read differently from Spark is left to Spark (``NeedsSpark``). Neighbours:
``newest_rows`` selects the rows, ``old_files`` reads footers; ``merge_task`` calls this;
``delta.files`` and ``parquet.merge`` make the files part of their table."""

import secrets
from bisect import bisect_left
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.codec.arrow import arrow_type
from penstock.codec.parquet_parts import long_columns, table_file
from penstock.codec.table_rows import metadata, part_rows
from penstock.codec.untyped import Array, ArrowSchema, ArrowType, Table
from penstock.codec.untyped import compute as pc
from penstock.files import SHARED, private, sync, sync_file
from penstock.model.segments import PartRef
from penstock.tables.contract import TableLoad
from penstock.tables.files.linked_parts import linked
from penstock.tables.files.merge_job import MergeJob, MergeResult, NeedsSpark
from penstock.tables.files.newest_rows import NewestRows, RowSelection
from penstock.tables.files.old_files import file_of, opened, with_small_files
from penstock.tables.files.statistics import described_file
from penstock.tables.files.version_rows import EMPTY, NUMBER, VersionRows
from penstock.tables.history.columns import COLUMNS
from penstock.tables.load_columns import load_fields, metadata_columns

FILE_BYTES = 128 << 20
GROUP_BYTES = 32 << 20  # of a row group, in memory: one is written while the next is read
MOST_BYTES = 2 << 30  # of files that are rewritten; more is Spark's work
_BATCH_ROWS = 1 << 16
# types that other writers leave in a file and that are read without loss
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())


def merged(job: MergeJob) -> MergeResult:
    """Executes a job. Raises ``NeedsSpark``, ``OSError`` and Arrow's errors for a broken file; no
    new file is left then."""
    output = _Output(job)
    try:
        merge = _merge_versions if job.load.history else _merge
        done = _gather(job, output) if job.gathers else merge(job, output)
        output.close()
        if job.plain_folder and not output.files and len(done.removed) == len(job.old):
            output.begin_file()  # readers learn the columns from a file
            output.close()
        files = tuple(map(described_file, output.files))
    except BaseException:
        output.discard()
        raise
    return msgspec.structs.replace(done, files=files)


def _merge(job: MergeJob, output: "_Output") -> MergeResult:
    """Returns the result, without the new files."""
    load, folder = job.load, Path(job.old_folder)
    old = [file_of(folder / f.name, load) for f in job.old] if job.plain_folder else job.old
    with NewestRows(load, job.columns) as rows:
        outcome = rows.outcome([(folder / file.name, file.bounds) for file in old])
    lost = with_small_files(outcome.lost, old) if job.plain_folder else outcome.lost
    if sum(old[index].size for index in lost) > MOST_BYTES:
        raise NeedsSpark("the files that change are large")
    for index, numbers in lost.items():
        for rows in _left(folder / old[index].name, numbers, output.schema):
            output.add(rows)
    whole = not lost and sum(map(len, outcome.taken)) == load.load.rows
    if not (job.links and whole and output.link(load)):
        for rows in _taken(load, outcome):
            output.add(_as(rows, output.schema))
    return MergeResult(
        removed=(*lost,),
        written=outcome.written,
        superseded=outcome.superseded,
        mixed=outcome.mixed,
        unsure=outcome.unsure,
    )


def _merge_versions(job: MergeJob, output: "_Output") -> MergeResult:
    """Like :func:`_merge`, for a table that keeps every version of a key."""
    load, folder = job.load, Path(job.old_folder)
    old = [file_of(folder / f.name, load) for f in job.old] if job.plain_folder else job.old
    with VersionRows(load, job.columns) as rows:
        outcome = rows.versions([(folder / file.name, file.bounds) for file in old])
    lost = with_small_files(outcome.lost, old) if job.plain_folder else outcome.lost
    for index, numbers in lost.items():
        for rows in _left(folder / old[index].name, numbers, output.schema):
            output.add(rows)
    for index, versions in outcome.changed.items():
        path = folder / old[index].name
        with opened(path) as file:
            _refuse_unlike(path, file, output.schema)
            for start, rows in _batches(file):
                output.add(_as_versions(rows, start, versions, load, output.schema))
    for path, part, versions in zip(load.parts, load.load.parts, outcome.taken, strict=True):
        with opened(path) as file:
            for start, rows in _batches(file):
                table = _table_columns(rows, load, part)
                output.add(_as_versions(table, start, versions, load, output.schema))
    return MergeResult(removed=(*lost,), written=outcome.written, superseded=outcome.superseded)


def _as_versions(
    rows: Table, start: int, versions: Table, load: TableLoad, schema: ArrowSchema
) -> Table:
    """Returns those of ``rows`` (``start``: the number of the first) that are ``versions``
    (``version_rows.VersionSelection``), in the columns of ``schema``."""
    given = versions[NUMBER].combine_chunks()
    first = _between(given, start, start + rows.num_rows)
    low = len(_between(given, 0, start))
    here = versions.slice(low, len(first))
    taken = rows.take(pc.subtract(here[NUMBER], start))
    for name in COLUMNS:
        taken = _with_column(taken, name, here[name])
    empty = here[EMPTY]
    if pc.any(empty).as_py():
        kept = {path[0] for path in load.primary_key} | metadata_columns(load)
        for name in taken.column_names:
            if name not in kept:
                nothing: Any = pa.scalar(None, taken[name].type)
                taken = _with_column(taken, name, pc.if_else(empty, nothing, taken[name]))
    return _as(taken, schema)


def _with_column(rows: Table, name: str, column: Any) -> Table:
    index = rows.schema.get_field_index(name)
    if index < 0:
        return rows.append_column(name, column)
    return rows.set_column(index, name, column)


def _gather(job: MergeJob, output: "_Output") -> MergeResult:
    """Writes the rows of parts in their table's layout. Returns the same as :func:`_merge`."""
    if sum(part.size for part in job.load.load.parts) > MOST_BYTES:
        raise NeedsSpark("the parts are large")
    for path in job.load.parts:
        with opened(path) as file:
            for _, rows in _batches(file):
                output.add(_as(rows, output.schema))
    return MergeResult(written=job.load.load.rows)


def _left(path: Path, lost: Array, schema: ArrowSchema) -> Iterator[Table]:
    """Returns the rows of a file of the table without the rows ``lost``, in the columns of
    ``schema``."""
    with opened(path) as file:
        _refuse_unlike(path, file, schema)
        for start, rows in _batches(file):
            numbers: Any = pa.arange(start, start + rows.num_rows)
            gone = pc.is_in(numbers, value_set=_between(lost, start, start + rows.num_rows))
            yield _as(rows, schema).filter(pc.invert(gone))


def _refuse_unlike(path: Path, file: pq.ParquetFile, schema: ArrowSchema) -> None:
    """Raises ``NeedsSpark`` if a file's columns are not those of ``schema``."""
    have = {f.name: f.type for f in file.schema_arrow}
    if not all(_alike(have.get(f.name, f.type), f.type) for f in schema):
        raise NeedsSpark(f"{path} has columns of other types")


def _taken(load: TableLoad, outcome: RowSelection) -> Iterator[Table]:
    """Returns the rows of the load that the table gets, in the table's columns."""
    for path, part, taken in zip(load.parts, load.load.parts, outcome.taken, strict=True):
        with opened(path) as file:
            for start, rows in _batches(file):
                found = _between(taken, start, start + rows.num_rows)
                if not len(found):
                    continue
                if len(found) < rows.num_rows:  # else all of them, which need no copy
                    rows = rows.take(pc.subtract(found, start))
                yield _table_columns(rows, load, part)


def _table_columns(rows: Table, load: TableLoad, part: PartRef) -> Table:
    """Returns rows of a part in the table's columns."""
    names = load.policy.metadata
    if part.shape is not None:
        rows = part_rows(rows, part.shape.names)
    columns = {f.name: rows.column(f.name) for f in load.schema.fields}
    if names is not None:
        columns |= metadata(rows, names, load.sync_id, load.generation_id)
    return pa.table(columns)


def _batches(file: pq.ParquetFile) -> Iterator[tuple[int, Table]]:
    """Yields (the number of its first row, rows). Takes few rows at a time if they are large. The
    reader is dropped before the last batch is yielded, so that no page of it is held while that
    batch is used."""
    about = file.metadata
    size = sum(about.row_group(index).total_byte_size for index in range(about.num_row_groups))
    at_once = max(1, min(_BATCH_ROWS, GROUP_BYTES * about.num_rows // max(1, size)))
    batches = file.iter_batches(batch_size=at_once)
    start = 0
    while taken := [pa.Table.from_batches([batch]) for batch in islice(batches, 1)]:
        count = taken[0].num_rows
        if start + count == about.num_rows:
            batches = iter(())
        yield start, taken.pop()  # the caller's alone: they may be large
        start += count


def _between(numbers: Array, low: int, high: int) -> Array:
    """Returns those of ascending ``numbers`` from ``low`` to before ``high``."""
    if not len(numbers):
        return numbers
    values = memoryview(numbers.buffers()[1]).cast("q")[
        numbers.offset : numbers.offset + len(numbers)
    ]
    first = bisect_left(values, low)
    return numbers.slice(first, bisect_left(values, high) - first)


def _as(rows: Table, schema: ArrowSchema) -> Table:
    """Returns ``rows`` with the columns of ``schema``; missing ones are NULL."""
    have = set(rows.column_names)
    columns: list[Any] = [
        rows.column(field.name).cast(field.type)
        if field.name in have
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _alike(have: ArrowType, want: ArrowType) -> bool:
    """Returns whether a cast from one type to the other keeps every value."""
    kinds = pa.types
    if kinds.is_string(want) or kinds.is_binary(want):
        return have in _TEXTS if kinds.is_string(want) else have in _BYTES
    if kinds.is_timestamp(have) and kinds.is_timestamp(want):
        return (have.tz is None) == (want.tz is None) and have.unit in ("ms", "us")
    if kinds.is_list(have) and kinds.is_list(want):
        return _alike(have.value_type, want.value_type)
    if kinds.is_struct(have) and kinds.is_struct(want):
        return [f.name for f in have] == [f.name for f in want] and all(
            _alike(h.type, w.type) for h, w in zip(have, want, strict=True)
        )
    return bool(have.equals(want))


class _Output:
    """Collects new files of a table. ``files``: those that were begun."""

    def __init__(self, job: MergeJob) -> None:
        types = {f.name: arrow_type(f.type) for f in load_fields(job.load)}
        self.schema: ArrowSchema = pa.schema([pa.field(name, types[name]) for name in job.columns])
        self.files: list[Path] = []
        self._folder, self._described = Path(job.folder), job.described
        self._stem = f"{job.stem}{secrets.token_hex(8)}-"  # another one where the task runs twice
        self._pending: list[Table] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None
        self._long: set[str] = set()  # columns of which the file has no statistics
        self._thread = ThreadPoolExecutor(1, "write")
        self._writing: Future[None] | None = None

    def begin_file(self) -> tuple[IO[bytes], pq.ParquetWriter]:
        """Returns the file that is being written; begins a new one if there is none."""
        if self._file is None or self._writer is None:
            path = self._folder / f"{self._stem}{len(self.files):05d}.parquet"
            self._file = private(path, "xb", permissions=SHARED)
            self.files.append(path)
            self._writer = table_file(self._file, self.schema, self._long)
        return self._file, self._writer

    def link(self, load: TableLoad) -> bool:
        """Links the load's parts as new files. False: the file system does not allow it."""
        files = linked(load, self._folder, self._stem)
        self.files += files or ()
        return files is not None

    def add(self, rows: Table) -> None:
        if not rows.num_rows:
            return
        self._pending.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= GROUP_BYTES:
            self._write()

    def close(self) -> None:
        self._write()
        self._wait()
        self._thread.shutdown()
        self._end_file()
        sync(self._folder)

    def discard(self) -> None:
        """Removes what was written."""
        self._thread.shutdown()
        if self._file is not None:
            self._file.close()
        for file in self.files:
            with suppress(OSError):
                file.unlink()

    def _write(self) -> None:
        """Starts writing the buffered rows, once the rows before them are written."""
        self._wait()
        if self._pending:
            group = pa.concat_tables(self._pending)
            self._pending, self._bytes = [], 0
            self._writing = self._thread.submit(self._write_group, group)

    def _wait(self) -> None:
        """Waits for the last write; raises its error."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _write_group(self, group: Table) -> None:
        long = long_columns(group)
        if not long <= self._long:
            self._end_file()
            self._long |= long
        file, writer = self.begin_file()
        writer.write_table(group, row_group_size=max(1, group.num_rows))
        if file.tell() >= FILE_BYTES:
            self._end_file()

    def _end_file(self) -> None:
        if self._file is None or self._writer is None:
            return
        self._writer.add_key_value_metadata(self._described)
        self._writer.close()
        sync_file(self._file)
        self._file.close()
        self._file = self._writer = None
