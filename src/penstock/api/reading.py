"""Defines ``penstock.read``: the rows of a stream without a table of the user's.

A read is a normal run into a Parquet table, with the store, log and rejects of a home of its own
inside the user's (``READS``), so its rows are exactly those of a sync. The returned object reads
files, never a connector, so that Spark may read them again. A full read is removed when it is
closed or its object is collected; a later read removes what a killed program left. An incremental
read has a name: its state is kept, and its rows until they are taken. Not here: the run
(``verbs``), the table's files (``tables.parquet.folders``).
"""

import fcntl
import os
import shutil
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from penstock.api.answers import RejectedRow
from penstock.api.verbs import (
    Changes,
    PipelineKeywords,
    RunKeywords,
    explained,
    home_of,
    rejects,
    run,
    split,
)
from penstock.config.home import Home, folder_name
from penstock.config.packages import install
from penstock.errors import ConfigError, Locked
from penstock.model.report import Report, StreamReport

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

    from penstock.codec.untyped import Table
    from penstock.tables.parquet.folders import Marker

READS = "reads"
_ONCE, _NAMED = "once", "named"
_REMOVING_SECONDS = 10.0  # how long a new read waits for a process that removes folders
_KEPT_SECONDS = 60.0  # how long the log of a failed read stays; not how a live read is known
_PIPELINE, _ROWS, _LOCK = "read", "rows", "lock"


class Read:
    """The rows of one stream, as files. A context manager: :meth:`close` at the end of the block.

    ``report``: of the run. The rows of an incremental read are those that no earlier object has
    taken. Closing takes them; an exception in the ``with`` block, or dropping the object unclosed,
    leaves them for the next read of the name."""

    def __init__(self, place: "_Place", report: Report, stream: StreamReport) -> None:
        self._place, self.report, self._stream = place, report, stream
        self._table = Path(stream.table or "")
        self._spark: SparkSession | None = None
        self._files = table_files(self._table)
        self._finalize = weakref.finalize(self, place.leave)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._stream.committed} new rows"
        return f"<penstock.Read of {self._stream.name}: {state}>"

    @property
    def closed(self) -> bool:
        """Returns whether the object was closed."""
        return not self._finalize.alive

    @explained
    def arrow(self) -> "Table":
        """Returns the rows as an Arrow table."""
        import pyarrow as pa

        from penstock.codec.arrow import arrow_type

        files = self._open_files()
        if files:
            return joined(files)
        marker = self._marker()
        fields = marker.columns if marker is not None else ()
        return pa.schema([(f.name, arrow_type(f.type)) for f in fields]).empty_table()

    @explained
    def pandas(self) -> "pandas.DataFrame":
        """Returns the rows as a pandas DataFrame, each value as it was read: whole numbers with
        NULLs have pandas' nullable types. Raises ``ConfigError`` (``read.library``) without
        pandas."""
        _needs("pandas")
        from penstock.api.exact_frames import exact_pandas

        return exact_pandas(self.arrow())

    @explained
    def polars(self) -> "polars.DataFrame":
        """Returns the rows as a Polars DataFrame. Raises ``ConfigError`` (``read.library``) without
        Polars."""
        _needs("polars")
        import polars

        made = polars.from_arrow(self.arrow())
        assert isinstance(made, polars.DataFrame)
        return made

    @explained
    def spark(self) -> "DataFrame":
        """Returns a DataFrame that reads the files, in the program's Spark session; without one, in
        a session that stays open until the object is closed."""
        from penstock.spark.types import struct_type
        from penstock.tables.frame.load_frame import literal_path

        files = self._open_files()
        session = self._session()
        if files:
            return session.read.parquet(*map(literal_path, files))
        marker = self._marker()
        return session.createDataFrame([], struct_type(marker.columns if marker else ()))

    @explained
    def rejects(self) -> list[RejectedRow]:
        """Returns the rejected rows of this read, with the reason and the original bytes."""
        self._open_files()
        return rejects(_PIPELINE, run=self.report.run, home=self._place.home.path)

    def close(self, *, keep: bool = False) -> None:
        """Closes the object, and any Spark that it opened. Removes its files, which takes the rows
        of an incremental read. ``keep``: they are not taken, and come again with the next read.
        What :meth:`spark` returned cannot be computed afterwards."""
        if self.closed:
            return
        self._finalize.detach()
        try:
            self._end_spark()
            if self._place.named and not keep:
                for file in self._files:
                    os.unlink(file)
        finally:
            self._place.leave()

    @explained
    def __enter__(self) -> Self:
        self._open_files()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        del error, trace
        self.close(keep=kind is not None)

    def _open_files(self) -> list[str]:
        if self.closed:
            raise ConfigError(
                f"this read of {self._stream.name} is closed: its files are gone",
                code="read.closed",
                hint="use the rows before close(), or inside the `with` block",
            )
        return self._files

    def _marker(self) -> "Marker | None":
        from penstock.tables.parquet.folders import read_marker

        return read_marker(self._table)

    def _session(self) -> "SparkSession":
        from penstock.spark.session import open_session, programs_session
        from penstock.tables.contract import SessionNeeds

        if self._spark is not None:
            return self._spark
        if (own := programs_session()) is not None:
            return own
        self._spark = open_session(SessionNeeds(), scratch_dir=self._place.home.run("spark"))
        return self._spark

    def _end_spark(self) -> None:
        if self._spark is not None:
            from penstock.spark.session import close_session

            close_session(self._spark)
            self._spark = None


@explained
def read(
    source: str, stream: str, *, incremental: bool = False, **given: Unpack[RunKeywords]
) -> Read:
    """Reads one stream of a source: a full refresh, with the rows that a sync would put into a
    table. ``incremental``: only what is new since the last read of this ``name``, whose state is
    kept. Other keywords as for ``run``. Raises ``PenstockError``; ``Locked`` where the name is
    being read, or one of its objects is open."""
    changes, how = split(given)
    name = changes.pop("name", None)
    if incremental and not name:
        raise ConfigError(
            "an incremental read needs a name, under which its state is kept",
            code="read.name",
            hint="write read(..., incremental=True, name='users')",
        )
    place = _Place(home_of(how), name if incremental else None)
    changes.setdefault("sync_mode", "incremental" if incremental else "full_refresh")
    changes.setdefault("destination_sync_mode", "append" if incremental else "overwrite")
    try:
        return Read(place, *landed(place.home, source, stream, changes, how))
    except BaseException:
        place.let_go()  # a log and rejects stay until a later read removes them
        raise


def landed(
    home: Home, source: str, stream: str, changes: Changes, how: PipelineKeywords
) -> tuple[Report, StreamReport]:
    """Runs a source into a table in ``home``, which belongs to the read. Returns the report, and
    the stream's report, whose ``table`` is the folder. Raises ``PenstockError``."""
    keywords: Any = {**changes, **how, "streams": [stream], "home": home, "name": _PIPELINE}
    report = run(source, f"parquet:{home.path / _ROWS}", **keywords)
    return report, next(s for s in report.streams if s.table is not None)


class _Place:
    """The folder of a read, held by this process until :meth:`leave`. ``named``: the folder is
    kept."""

    def __init__(self, outer: Home, name: str | None) -> None:
        self.named = name is not None
        kind = _NAMED if self.named else _ONCE
        if name is None:
            from penstock.engine.run.start import new_run_id

            _remove_left(outer)
            name = new_run_id().lower()
        self._process = os.getpid()
        with _making(outer):
            self.home = outer.within(READS, kind, folder_name(name))
            self.folder = self.home.path
            self._lock = _locked(self.folder)
        if self._lock is None:
            raise Locked(
                f"the read {name!r} is running, or one of its objects is open",
                hint="close the object, or give the read another name",
            )

    def let_go(self) -> None:
        """Releases the lock on the folder."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def leave(self) -> None:
        """Removes the folder of an unnamed read, and releases the lock. Does nothing in a forked
        process: the object is the parent's."""
        if os.getpid() != self._process:
            return
        if not self.named:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.let_go()


def _locked(folder: Path) -> int | None:
    """Locks a read's folder; the lock ends with the process. None: another process holds it."""
    file = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


@contextmanager
def _making(outer: Home) -> Generator[None]:
    """Makes and locks a folder. Nobody removes folders between the two steps."""
    lock = os.open(outer.within(READS).path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        until = time.monotonic() + _REMOVING_SECONDS
        while time.monotonic() < until:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                break
            time.sleep(0.05)
        yield
    finally:
        os.close(lock)


def _remove_left(outer: Home) -> None:
    """Removes unnamed reads that no process holds: of programs that were killed, or failed a while
    ago. Does nothing while another read is being made; the next read removes them."""
    lock = _locked(outer.within(READS).path)
    if lock is None:
        return
    try:
        for folder in (outer.path / READS / _ONCE).glob("*/"):
            with suppress(OSError):
                if abs(time.time() - folder.stat().st_mtime) < _KEPT_SECONDS:
                    continue
                held = _locked(folder)
                if held is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(held)
    finally:
        os.close(lock)


def _needs(library: str) -> None:
    """Raises ``ConfigError`` (``read.library``) where a library that the user chose is missing."""
    if find_spec(library) is None:
        raise ConfigError(
            f"{library} is not installed in this environment",
            code="read.library",
            hint=f"{install(library)}, or take the rows by .arrow() or .spark()",
        )


def joined(files: list[str]) -> "Table":
    """Returns the rows of Parquet files of one table. Files of different runs may order their
    columns differently."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pq.ParquetFile(file).read() for file in files]
    return pa.concat_tables(tables, promote_options="default")


def table_files(table: Path) -> list[str]:
    """Returns the paths of the files of a read's table; an empty list where it has no rows."""
    from penstock.tables.parquet.folders import finished_files, read_marker

    marker = read_marker(table)
    return [] if marker is None else finished_files(table, marker)
