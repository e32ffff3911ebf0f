"""Decides, without Spark, which rows of a load a local table gets, and which of its own it loses.

Reads the keys and what orders rows (cursor, extraction time, arrival) from parts and from the
table's files, a file at a time, and compares them in a DuckDB of its own, as ``load_frame.newest``
and the MERGE of ``delta`` do in Spark. What the two might compare differently is left to Spark
(:class:`NeedsSpark`): keys of floating point, keys and cursors inside structs, cursors of free
text. Not here: rows in full, and files (``merged_files``).
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.codec.untyped import Array, ChunkedArray, Table
from penstock.codec.untyped import compute as pc
from penstock.model.catalog import FieldPath
from penstock.model.types import EXTRACTED_AT, SEQ, Field, Kind
from penstock.tables.contract import Deletes, TableLoad
from penstock.tables.files.merge_job import Bounds, NeedsSpark
from penstock.tables.load_columns import load_fields, own_columns

MEMORY = "1GB"  # of DuckDB; a load that needs more is Spark's
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
# texts whose order is the same for Spark's comparison and for a plain one
_TIME_TEXT = r"^\d{4}-\d{2}-\d{2}"
_NUMBER_TEXT = r"^[+-]?\d{1,28}(\.\d{1,10})?$"


class RowSelection(msgspec.Struct, frozen=True):
    """``taken``: of each part, the numbers of its rows that the table gets. ``lost``: of each of
    the table's files that loses rows, by its index, their numbers. ``written``: rows inserted,
    updated and deleted."""

    taken: tuple[Array, ...]
    lost: dict[int, Array]
    written: int


class NewestRows:
    """Compares one load with the files of its table. A context manager, which holds memory."""

    def __init__(self, load: TableLoad) -> None:
        self._load = load
        fields = {f.name: f for f in load_fields(load)}
        self._keys = [fields[path[0]] for path in load.primary_key]
        self._cursor = _compared(load.cursor, fields) if not load.arrival else None
        self._text: str | None = None  # the form of the cursor's texts, once one was met
        self._numbers = (
            False  # whether the texts of the load are numbers, so that all are compared so
        )
        deleted = load.deleted_column
        self._deleted = deleted if deleted in fields else None
        names = load.policy.metadata
        self._at = None if names is None or load.arrival else names.extracted_at
        self._duckdb = duckdb.connect(
            ":memory:", config={"memory_limit": MEMORY, "autoinstall_known_extensions": "false"}
        )
        self._duckdb.execute("SET temp_directory = ''; SET enable_progress_bar = false")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._duckdb.close()

    def outcome(self, files: Sequence[tuple[Path, Bounds]]) -> RowSelection:
        """``files``: the table's, with what is known of their keys. Raises :class:`NeedsSpark`."""
        try:
            self._take_load()
            for index, (file, bounds) in enumerate(files):
                if self._meets(bounds):
                    self._compare(index, file)
            return self._settled(len(self._load.parts))
        except duckdb.OutOfMemoryException as failure:
            raise NeedsSpark("the load's keys do not fit the memory") from failure

    # -- the load

    def _take_load(self) -> None:
        """Makes the table ``winner``: one row per key of the load."""
        if self._cursor is not None and self._cursor.type.kind is Kind.string:
            for path in self._load.parts:  # all have one form before any is compared
                self._texts(_read(path, [self._cursor.name])[self._cursor.name])
            self._numbers = self._text == _NUMBER_TEXT
        for index, path in enumerate(self._load.parts):
            rows = _read(path, [*self._names(), EXTRACTED_AT, SEQ, self._deleted])
            if self._deleted is not None:
                self._leave_bare(path, rows[self._deleted])
            columns = self._compared_columns(rows, EXTRACTED_AT, self._deleted)
            self._put(index, {**columns, "seq": rows[SEQ]})
        keys = ", ".join(self._key_names())
        cursor = "cursor"
        if self._cursor is not None and self._deleted is not None:
            cursor = (
                f"CASE WHEN bare THEN max(cursor) OVER (PARTITION BY {keys} ORDER BY seq ASC NULLS "
                "FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) ELSE cursor END"
            )
        order = (
            [] if self._load.arrival else ["ordered DESC NULLS LAST", "extracted DESC NULLS LAST"]
        )
        order.append("seq DESC NULLS LAST")
        self._duckdb.execute(
            f"CREATE TABLE many AS SELECT {keys} FROM part_rows GROUP BY ALL HAVING count(*) > 1"
        )
        same = " AND ".join(f"r.{k} IS NOT DISTINCT FROM m.{k}" for k in self._key_names())
        self._duckdb.execute(
            f"CREATE TABLE winner AS SELECT * EXCLUDE (seq), false AS late FROM part_rows r "
            f"WHERE NOT EXISTS (FROM many m WHERE {same}) UNION ALL SELECT * EXCLUDE (seq, ordered)"
            f" FROM (SELECT *, bool_or(bare) OVER (PARTITION BY {keys}) AS late, "
            f"{cursor} AS ordered FROM part_rows r WHERE EXISTS (FROM many m WHERE {same})) "
            f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {', '.join(order)}) = 1"
        )
        self._duckdb.execute("DROP TABLE part_rows; DROP TABLE many")
        self._duckdb.execute(
            "CREATE TABLE met (file INTEGER, file_row BIGINT, part INTEGER, part_row BIGINT, "
            "newer BOOLEAN)"
        )

    def _leave_bare(self, path: str, mark: ChunkedArray) -> None:
        """Raises :class:`NeedsSpark` where a part has a soft delete that keeps columns of the
        table's row."""
        names = [f.name for f in self._load.schema.fields]
        own = own_columns(self._load, names)
        if not own or mark.null_count == len(mark):
            return
        deletes = _read(path, own).filter(pc.is_valid(mark))
        empty: Any = functools.reduce(pc.and_, (pc.is_null(column) for column in deletes.columns))
        if pc.any(empty).as_py():
            raise NeedsSpark("a soft delete keeps the columns of the table's row")

    def _names(self) -> list[str]:
        cursor = [] if self._cursor is None else [self._cursor.name]
        return [*(f.name for f in self._keys), *cursor]

    def _key_names(self) -> list[str]:
        return [f"key{index}" for index in range(len(self._keys))]

    def _compared_columns(
        self, table: Table, at: str | None, deleted: str | None
    ) -> dict[str, ChunkedArray]:
        """What the rows of a file are compared by, under names of its own."""
        count = table.num_rows
        columns = {
            name: _plain(table[field.name], field.type.kind)
            for name, field in zip(self._key_names(), self._keys, strict=True)
        }
        nothing = pa.chunked_array([pa.nulls(count, pa.int64())])
        columns["extracted"] = nothing if at is None else _plain(table[at], Kind.timestamp)
        gone: Any = pa.chunked_array([pa.repeat(pa.scalar(False), count)])
        columns["gone"] = gone if deleted is None else pc.is_valid(table[deleted])
        columns["cursor"], columns["bare"] = nothing, gone
        if self._cursor is not None:
            cursor = table[self._cursor.name]
            columns["bare"] = pc.and_(columns["gone"], pc.is_null(cursor))
            columns["cursor"] = self._ordered(_plain(cursor, self._cursor.type.kind))
        return columns

    def _ordered(self, cursor: ChunkedArray) -> ChunkedArray:
        """The cursor as what DuckDB orders as Spark does (``load_frame.cursor_sql``)."""
        if not pa.types.is_string(cursor.type):
            return cursor
        texts = self._texts(cursor)
        return texts.cast(pa.decimal128(38, 10)) if self._numbers else texts

    def _texts(self, cursor: ChunkedArray) -> ChunkedArray:
        """The cursor's texts, with NULL for blank ones. Raises :class:`NeedsSpark` where they have
        not all one of the known forms."""
        blank = pc.equal(pc.utf8_trim(cursor, " "), "")
        texts = pc.if_else(blank, pa.scalar(None, pa.string()), cursor)
        if texts.null_count < len(texts):
            form = next((f for f in (_TIME_TEXT, _NUMBER_TEXT) if _all_match(texts, f)), None)
            if form is None or self._text not in (None, form):
                raise NeedsSpark("the cursor is free text")
            self._text = form
        return texts

    def _put(self, index: int, columns: dict[str, ChunkedArray]) -> None:
        owner: Any = pa.repeat(pa.scalar(index, pa.int32()), len(columns["seq"]))
        make = "INSERT INTO part_rows" if index else "CREATE TABLE part_rows AS"
        self._run_with(
            {"part": owner, "part_row": _numbers(owner), **columns}, f"{make} FROM given"
        )

    def _run_with(self, given: dict[str, Any], sql: str) -> None:
        """Runs a statement over the columns ``given``."""
        rows: Any = pa.table(given)
        self._duckdb.register("given", rows)
        try:
            self._duckdb.execute(sql)
        finally:
            self._duckdb.unregister("given")

    # -- the table's files

    def _meets(self, bounds: Bounds) -> bool:
        """Whether a file may have a row of a key of the load."""
        tests: list[str] = []
        values: list[Any] = []
        for name, field in zip(self._key_names(), self._keys, strict=True):
            low, high = bounds.get(field.name, (None, None))
            if low is None or high is None or field.type.kind not in (Kind.integer, Kind.string):
                continue
            # the file may also have NULL, of which its bounds say nothing
            tests.append(f"({name} IS NULL OR {name} BETWEEN ? AND ?)")
            values += [low, high]
        if not tests:
            return True
        found = self._duckdb.execute(
            f"SELECT EXISTS (FROM winner WHERE {' AND '.join(tests)})", values
        ).fetchall()
        return bool(found[0][0])

    def _compare(self, index: int, file: Path) -> None:
        """Adds the rows of a file whose keys the load has to the table ``met``."""
        columns = self._compared_columns(_read(file, [*self._names(), self._at]), self._at, None)
        same = " AND ".join(f"t.{k} IS NOT DISTINCT FROM s.{k}" for k in self._key_names())
        self._run_with(
            {"number": _numbers(columns["extracted"]), **columns},
            f"INSERT INTO met SELECT {index}, t.number, s.part, s.part_row, "
            f"coalesce({self._newer_sql()}, false) FROM given t JOIN winner s ON {same}",
        )

    def _newer_sql(self) -> str:
        """As ``delta``'s: the load's row ``s`` is not older than the table's row ``t``."""
        if self._load.arrival:
            return "true"
        tie = "true" if self._at is None else "(t.extracted IS NULL OR s.extracted >= t.extracted)"
        if self._cursor is None:
            return tie
        return (
            "s.cursor > t.cursor OR (t.cursor IS NULL AND s.cursor IS NOT NULL) "
            f"OR (s.cursor IS NOT DISTINCT FROM t.cursor AND {tie}) OR (s.bare AND {tie})"
        )

    # -- what follows

    def _settled(self, parts: int) -> RowSelection:
        """Raises :class:`NeedsSpark` where the table has several rows of a key of the load, or one
        beside a delete without a cursor and other rows (``load_frame.newest_beside``)."""
        ask = functools.partial(_asked, self._duckdb)
        twice = ask("SELECT count(*) - count(DISTINCT (part, part_row)) AS n FROM met")
        if twice["n"][0].as_py():
            raise NeedsSpark("the table has several rows of a key")
        late = ask(
            "SELECT EXISTS (FROM winner JOIN met USING (part, part_row) WHERE late) AS found"
        )
        if late["found"][0].as_py():
            raise NeedsSpark("a delete without a cursor is ranked by the table's row")
        hard = self._load.policy.deletes is Deletes.hard and self._deleted is not None
        stays = "NOT s.gone" if hard else "true"
        taken = ask(
            f"SELECT s.part, s.part_row FROM winner s LEFT JOIN met m USING (part, part_row) "
            f"WHERE {stays} AND (m.part IS NULL OR m.newer) ORDER BY ALL"
        )
        lost = ask("SELECT file, file_row FROM met WHERE newer ORDER BY ALL")
        deleted = ask(
            f"SELECT count(*) AS n FROM winner s JOIN met m USING (part, part_row) "
            f"WHERE m.newer AND NOT ({stays})"
        )
        return RowSelection(
            taken=tuple(_of(taken, "part", index, "part_row") for index in range(parts)),
            lost={
                index: _of(lost, "file", index, "file_row")
                for index in pc.unique(lost["file"]).to_pylist()
            },
            written=taken.num_rows + int(deleted["n"][0].as_py()),
        )


def _compared(path: FieldPath, fields: dict[str, Field]) -> Field | None:
    return fields.get(path[0]) if path else None


def _asked(connection: duckdb.DuckDBPyConnection, sql: str) -> Table:
    return connection.sql(sql).to_arrow_table()


def _of(rows: Table, owner: str, index: int, number: str) -> Array:
    found: Any = rows.filter(pc.equal(rows[owner], index))[number]
    return found.combine_chunks()


def opened(path: Path | str) -> pq.ParquetFile:
    """A part or a table's file, whose times are read as Spark reads them. Raises
    :class:`NeedsSpark` where they are not: files of old versions of Spark have another calendar."""
    file = pq.ParquetFile(path, pre_buffer=False)  # which would hold what was read
    about = file.metadata
    keys = about.metadata or {}
    version = keys.get(b"org.apache.spark.version", b"")
    old = version[:2] in (b"1.", b"2.") or any(k in keys for k in _OTHER_CALENDAR)
    columns = (about.schema.column(index) for index in range(len(about.schema)))
    if old or any(column.physical_type == "INT96" for column in columns):
        file.close()
        raise NeedsSpark(f"{path} has times of an old form")
    return file


def _read(path: Path | str, columns: Sequence[str | None]) -> Table:
    """The columns of a file, of those that have a name. Raises :class:`NeedsSpark` where it lacks
    one."""
    wanted = dict.fromkeys(c for c in columns if c is not None)
    with opened(path) as file:
        if not wanted.keys() <= set(file.schema_arrow.names):
            raise NeedsSpark(f"{path} lacks a column")
        return file.read(columns=[*wanted])


def _numbers(column: Any) -> Array:
    """0, 1, 2 and so on, one for each row of ``column``."""
    made: Any = pa.arange(0, len(column))
    return made


def _all_match(texts: ChunkedArray, form: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, form)).as_py())


def _plain(column: ChunkedArray, kind: Kind) -> ChunkedArray:
    """Times as whole numbers, which are compared alike everywhere; texts and bytes in one of their
    several types: other writers leave the type that they used in a file, and it is read so."""
    if kind in (Kind.string, Kind.binary):
        return column.cast(pa.string() if kind is Kind.string else pa.binary())
    if kind in (Kind.timestamp, Kind.timestamp_ntz):
        unit = pa.timestamp("us", tz=column.type.tz)
        return column.cast(unit).cast(pa.int64())
    return column.cast(pa.int32()) if kind is Kind.date else column
