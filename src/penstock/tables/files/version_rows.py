"""Decides which rows a local table with history gets by a load, and which of its own it loses.

Reads keys, cursors and ends of versions from parts and from the table's files, a file at a time,
and makes versions of them in its own DuckDB by ``tables.history.rule``. If arrival decides, it also
reads the rows' content, since a row equal to the one before makes no version. Runs in a Spark task.
Raises ``NeedsSpark`` for what cannot be compared here, and ``DestinationError`` for what a history
cannot hold. Not here: full rows, and files (``merged_files``)."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import msgspec
import pyarrow as pa

from penstock.codec.arrow import arrow_type
from penstock.codec.untyped import Array, ChunkedArray, Table
from penstock.codec.untyped import compute as pc
from penstock.model.segments import TableShape
from penstock.model.types import EXTRACTED_AT, Kind
from penstock.tables.contract import TableLoad
from penstock.tables.files.merge_job import Bounds, NeedsSpark
from penstock.tables.files.newest_rows import (
    NewestRows,
    asked,
    numbers,
    of_owner,
    plain,
    read_columns,
)
from penstock.tables.files.old_files import opened
from penstock.tables.history.columns import COLUMNS, CURRENT, END, START
from penstock.tables.history.rule import by_arrival, by_cursor
from penstock.tables.load_columns import load_fields
from penstock.tables.refused_histories import refused

NUMBER, EMPTY = "number", "empty"


class VersionSelection(msgspec.Struct, frozen=True):
    """``taken``: of each part, the rows that the table gets; ``changed``: by file index, rows that
    are written again with other ends. Both are tables of :data:`NUMBER`, ascending, the history
    columns and :data:`EMPTY`: the version has its key alone. ``lost``: the numbers of the rows that
    a file loses, changed ones included. ``written``: versions begun or ended by the load;
    ``superseded``: rows of the load that make no version."""

    taken: tuple[Table, ...]
    changed: dict[int, Table]
    lost: dict[int, Array]
    written: int
    superseded: int


class VersionRows(NewestRows):
    """Compares one load with the files of its table with history. A context manager, because it
    holds memory and a temporary folder."""

    def __init__(self, load: TableLoad, columns: Sequence[str]) -> None:
        super().__init__(load, columns)
        self._ends = next(f.type for f in load_fields(load) if f.name == START)
        self._by_arrival = load.arrival or not load.cursor
        self._closes = load.load.replaces and not load.replaces
        self._folder = tempfile.mkdtemp(prefix="penstock-history-")
        quoted = self._folder.replace("'", "''")
        self._duckdb.execute(f"SET temp_directory = '{quoted}'")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        shutil.rmtree(self._folder, ignore_errors=True)

    def versions(self, files: Sequence[tuple[Path, Bounds]]) -> VersionSelection:
        """Returns the selected versions. ``files``: the table's, with what is known of their
        keys."""
        try:
            return self._versions(files)
        except duckdb.OutOfMemoryException as failure:
            raise NeedsSpark("the load's keys do not fit the memory of a task") from failure

    def _versions(self, files: Sequence[tuple[Path, Bounds]]) -> VersionSelection:
        if self._load.parts:
            self._take_load()
        else:
            self._take_nothing()
        if self._cut and self._has("FROM part_rows WHERE sent IS NOT NULL"):
            raise refused(
                self._load.table.name,
                f"its cursor {'.'.join(self._load.cursor)} has more digits than its column "
                "(`types: {NAME: string}` keeps them)",
            )
        self._begin()
        for index, (file, bounds) in enumerate(files):
            if self._closes or self._meets(bounds):
                self._add_file(index, file)
        self._make()
        return self._found()

    # -- the load

    def _take_nothing(self) -> None:
        """Makes ``part_rows`` of a load without parts, which ends every version."""
        empty: Table = pa.schema(self._data_fields()).empty_table()
        columns: dict[str, Any] = {
            name: plain(empty[field.name], field.type.kind)
            for name, field in zip(self._key_names(), self._keys, strict=True)
        }
        cursor = self._cursor
        if cursor is not None:
            columns["cursor"] = plain(empty[cursor.name], cursor.type.kind)
        columns |= {n: pa.array([], pa.int64()) for n in ("part", "part_row", "seq", "extracted")}
        columns |= {"gone": pa.array([], pa.bool_()), "content": self._content(empty)}
        self._run_with(columns, "CREATE TABLE part_rows AS FROM given")

    def _also_compared(self, path: str, shape: TableShape | None) -> dict[str, ChunkedArray]:
        if not self._by_arrival:
            return {}
        at = EXTRACTED_AT if shape is None else shape.names.extracted_at
        rows = read_columns(path, [at, *(f.name for f in self._data_fields())])
        return {"extracted": plain(rows[at], Kind.timestamp), "content": self._content(rows)}

    def _data_fields(self) -> list[Any]:
        return [pa.field(f.name, arrow_type(f.type)) for f in load_fields(self._load)][
            : len(self._load.schema.fields)
        ]

    def _content(self, rows: Table) -> Any:
        """Returns what versions are compared by, as structs of nameless fields; a column that a
        file lacks is NULL."""
        have = set(rows.column_names)
        arrays: list[Any] = []
        for field in self._data_fields():
            column: Any = pa.nulls(rows.num_rows, field.type)
            if field.name in have:
                column = rows[field.name].cast(field.type).combine_chunks()
            arrays.append(column.chunk(0) if isinstance(column, pa.ChunkedArray) else column)
        names = [f"c{index}" for index in range(len(arrays))]
        made: Any = pa.chunked_array([pa.StructArray.from_arrays(arrays, names)])
        return made

    def _begin(self) -> None:
        """Makes ``events`` of the load's rows, in the order of their arrival, and ``winner``, their
        keys."""
        self._shown()
        keys = ", ".join(self._key_names())
        lanes = ("shown", "lane") if self._load.load.shards else ()
        came = ", ".join(f"{name} NULLS FIRST" for name in (*lanes, "seq", "part", "part_row"))
        compared = "extracted AS cursor, content" if self._by_arrival else "cursor"
        rows = f"(SELECT *, row_number() OVER (ORDER BY {came}) AS came FROM part_rows)"
        last = f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY came DESC) = 1"
        self._duckdb.execute(f"CREATE TABLE winner AS SELECT DISTINCT {keys} FROM part_rows")
        self._duckdb.execute(
            f"CREATE TABLE events AS SELECT {keys}, false AS old, CAST(part AS INTEGER) AS owner, "
            "CAST(part_row AS BIGINT) AS number, "
            f"CAST(came AS BIGINT) AS came, "
            f"gone, {compared} FROM {rows} {last if self._closes and self._by_arrival else ''}"
        )
        self._duckdb.execute("DROP TABLE part_rows")
        content = ", content" if self._by_arrival else ""
        self._duckdb.execute(
            f"CREATE TABLE met AS SELECT {keys}, owner, number, cursor AS starts, cursor AS ends, "
            f"gone AS live{content} FROM events LIMIT 0"
        )

    # -- the table's files

    def _add_file(self, index: int, file: Path) -> None:
        """Adds the versions of a file to ``met``: those of keys that the load has or, if the load
        ends the others, all."""
        data = [f.name for f in self._data_fields()] if self._by_arrival else []
        with opened(file) as content:
            have = set(content.schema_arrow.names)
        wanted = [*(f.name for f in self._keys), *COLUMNS]
        if not have.issuperset(wanted):
            raise NeedsSpark(f"{file} lacks a column")
        rows = read_columns(file, [*wanted, *(n for n in data if n in have)])
        columns = {
            name: plain(rows[field.name], field.type.kind)
            for name, field in zip(self._key_names(), self._keys, strict=True)
        }
        columns |= {
            "number": numbers(rows[CURRENT]),
            "starts": plain(rows[START], self._ends.kind),
            "ends": plain(rows[END], self._ends.kind),
            "live": rows[CURRENT],
        }
        if data:
            columns["content"] = self._content(rows)
        keys = ", ".join(f"t.{k}" for k in self._key_names())
        same = " AND ".join(f"t.{k} IS NOT DISTINCT FROM w.{k}" for k in self._key_names())
        found = "" if self._closes else f"WHERE EXISTS (FROM winner w WHERE {same})"
        kept = ", CASE WHEN live THEN content END" if data else ""
        self._run_with(
            columns,
            f"INSERT INTO met SELECT {keys}, {index}, number, starts, ends, live{kept} "
            f"FROM given t {found}",
        )

    # -- versions

    def _make(self) -> None:
        """Makes ``versions`` from the events of load and table."""
        query = self._by_arrival_of_all() if self._by_arrival else self._by_cursor_of_all()
        self._duckdb.execute(f"CREATE TABLE versions AS {query}")
        if self._by_arrival:
            return
        if self._has("FROM versions WHERE gone AND NOT old AND own IS NULL"):
            cursor = ".".join(self._load.cursor)
            raise refused(
                self._load.table.name, f"it has a delete without a comparable cursor {cursor}"
            )

    def _by_arrival_of_all(self) -> str:
        keys = ", ".join(self._key_names())
        self._duckdb.execute(
            f"INSERT INTO events BY NAME SELECT {keys}, true AS old, owner, number, 0 AS came, "
            "NOT live AS gone, CASE WHEN live THEN starts ELSE ends END AS cursor, content "
            f"FROM met QUALIFY row_number() OVER (PARTITION BY {keys} "
            "ORDER BY live DESC, ends DESC NULLS LAST) = 1"
        )
        if self._closes:
            # at the load's last time of extraction; without rows, at the last start in the table
            self._duckdb.execute(
                f"INSERT INTO events BY NAME SELECT {keys}, false AS old, -1 AS owner, "
                "-1 AS number, 9223372036854775807 AS came, true AS gone, "
                "coalesce((SELECT max(cursor) FROM events WHERE NOT old), "
                f"(SELECT max(starts) FROM met)) AS cursor FROM {self._others()}"
            )
        return by_arrival(self._key_names())

    def _by_cursor_of_all(self) -> str:
        keys = ", ".join(self._key_names())
        if self._closes and self._has(f"FROM {self._others()}"):
            raise refused(
                self._load.table.name,
                "its source sent the stream again and left out keys that are current, and does "
                "not show at which cursor they ended (with sync_mode: full_refresh they end when "
                "they were "
                "missed)",
            )
        self._duckdb.execute(
            f"INSERT INTO events BY NAME SELECT {keys}, true AS old, owner, number, 0 AS came, "
            "false AS gone, starts AS cursor FROM met "
            "WHERE ends IS NULL OR starts IS DISTINCT FROM ends"
        )
        self._duckdb.execute(
            f"INSERT INTO events BY NAME SELECT {keys}, true AS old, owner, number, "
            "-1 AS came, true AS gone, ends AS cursor FROM met WHERE ends IS NOT NULL"
        )
        return by_cursor(self._key_names(), self._order("cursor"))

    def _others(self) -> str:
        """Returns the current versions of keys that the load lacks, as a SQL source."""
        same = " AND ".join(f"m.{k} IS NOT DISTINCT FROM w.{k}" for k in self._key_names())
        return f"(FROM met m WHERE live AND NOT EXISTS (FROM winner w WHERE {same}))"

    def _has(self, rows: str) -> bool:
        found = asked(self._duckdb, f"SELECT EXISTS ({rows}) AS found")
        return bool(found["found"][0].as_py())

    def _found(self) -> VersionSelection:
        self._duckdb.execute(
            "CREATE TABLE outcome AS SELECT v.*, v.old AND v.kept AND CASE WHEN v.gone THEN "
            "m.starts IS NOT DISTINCT FROM m.ends ELSE v.ends IS NOT DISTINCT FROM m.ends AND "
            "m.live = v.live END AS stays FROM versions v LEFT JOIN met m "
            "ON v.old AND v.owner = m.owner AND v.number = m.number"
        )
        rows = "SELECT owner, number, starts, ends, live, gone FROM outcome WHERE kept AND "
        taken = asked(self._duckdb, f"{rows} NOT old ORDER BY owner, number")
        changed = asked(self._duckdb, f"{rows} old AND NOT stays ORDER BY owner, number, gone")
        # where arrival decides, versions before the last one of a key are no events
        touched = "NOT EXISTS (FROM outcome o WHERE o.old AND o.owner = m.owner AND "
        touched += "o.number = m.number AND o.stays)"
        only = "" if not self._by_arrival else (
            "AND EXISTS (FROM outcome o WHERE o.old AND NOT o.stays AND o.kept "
            "AND o.owner = m.owner AND o.number = m.number)"
        )  # fmt: skip
        lost = asked(
            self._duckdb,
            f"SELECT owner, number FROM met m WHERE {touched} {only} ORDER BY ALL",
        )
        counts = asked(
            self._duckdb,
            "SELECT count(*) FILTER (NOT old) AS written, "
            "count(*) FILTER (NOT old AND owner >= 0 AND NOT gone) AS rows, "
            "count(*) FILTER (NOT old AND owner >= 0) AS used FROM outcome",
        ).to_pylist()[0]
        if self._by_arrival:
            deletes = asked(self._duckdb, "SELECT count(*) AS n FROM events WHERE NOT old AND gone "
                            "AND owner >= 0")["n"][0].as_py()  # fmt: skip
            superseded = self._load.load.rows - deletes - counts["rows"]
        else:
            superseded = self._load.load.rows - counts["used"]
        owners: list[int] = pc.unique(changed["owner"]).to_pylist()
        losing: list[int] = pc.unique(lost["owner"]).to_pylist()
        return VersionSelection(
            taken=tuple(self._columns_of(taken, index) for index in range(len(self._load.parts))),
            changed={index: self._columns_of(changed, index) for index in owners},
            lost={index: of_owner(lost, "owner", index, "number") for index in losing},
            written=counts["written"],
            superseded=superseded,
        )

    def _columns_of(self, rows: Table, owner: int) -> Table:
        """Returns those of ``rows`` that belong to a part or file, as in
        :class:`VersionSelection`."""
        found = rows.filter(pc.equal(rows["owner"], owner))
        kind = arrow_type(self._ends)
        return pa.table(
            {
                NUMBER: found["number"],
                START: found["starts"].cast(kind),
                END: found["ends"].cast(kind),
                CURRENT: found["live"],
                EMPTY: found["gone"],
            }
        )
