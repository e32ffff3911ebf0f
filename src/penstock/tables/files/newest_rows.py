"""Decides, without Spark, which rows of a load a local table gets, and which of its own it loses.

Reads the keys and what orders rows (cursor, arrival) from parts and from the table's files, a file
at a time, and compares them in its own DuckDB by the rule of ``tables.newest``, as
``load_frame.newest`` and the MERGE of ``delta`` do in Spark. Left to Spark (:class:`NeedsSpark`):
floating-point keys, keys and cursors inside structs. Not here: full rows, and files
(``merged_files``)."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import msgspec
import pyarrow as pa

from penstock.codec.delete_marks import marked
from penstock.codec.untyped import Array, ChunkedArray, Table
from penstock.codec.untyped import compute as pc
from penstock.model.catalog import FieldPath
from penstock.model.segments import CursorOrder, TableShape
from penstock.model.types import EXTRACTED_AT, SEQ, Field, Kind
from penstock.tables.contract import Deletes, TableLoad
from penstock.tables.files.cut_cursors import CutCursors
from penstock.tables.files.merge_job import Bounds, NeedsSpark
from penstock.tables.files.old_files import opened
from penstock.tables.key_forms import WON_IN_PART, either_form, mixed_keys, of_load, of_table
from penstock.tables.load_columns import (
    has_soft_deletes,
    kept_columns,
    load_fields,
    own_columns,
)
from penstock.tables.newest import (
    DUCKDB,
    MAY_BE_CUT,
    NO_ORDER,
    TEXTS,
    Order,
    exactly,
    fold,
    lane_sql,
    one_form,
    order_of,
    replaces,
)

MEMORY = "1GB"  # of DuckDB; a load that needs more is Spark's


class RowSelection(msgspec.Struct, frozen=True):
    """``taken``: of each part, the numbers of its rows that the table gets. ``lost``: for each of
    the table's files that loses rows, by its index, their numbers. ``written``: rows inserted,
    updated and deleted; ``superseded``: rows of the load that are older than another; ``mixed``:
    keys whose rows have cursors of two forms; ``unsure``: rows of the table whose cursor equals one
    that was cut, and which may have been cut themselves."""

    taken: tuple[Array, ...]
    lost: dict[int, Array]
    written: int
    superseded: int
    mixed: int
    unsure: int


class NewestRows:
    """Compares one load with the files of its table, which has ``columns``. A context manager,
    because it holds memory."""

    def __init__(self, load: TableLoad, columns: Sequence[str]) -> None:
        self._load, self._columns = load, columns
        fields = {f.name: f for f in load_fields(load)}
        self._keys = [fields[path[0]] for path in load.primary_key]
        self._mixed = mixed_keys(load)  # columns of the key, with whether the load has JSON
        self._cursor = _compared(load.cursor, fields) if not load.arrival else None
        kind = None if self._cursor is None else self._cursor.type.kind
        self._cuts = CutCursors.of(load) if kind in MAY_BE_CUT else None
        self._cut = False  # the load has cursors that were cut
        deleted = load.deleted_column
        self._deleted = deleted if deleted in fields else None
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
        """Returns the selected rows. ``files``: the table's, with what is known of their keys.
        Raises :class:`NeedsSpark`."""
        try:
            self._take_load()
            if not files and not self._several():
                return self._whole()
            self._choose()
            for index, (file, bounds) in enumerate(files):
                if self._meets(bounds):
                    self._compare(index, file)
            return self._settled(len(self._load.parts))
        except duckdb.OutOfMemoryException as failure:
            raise NeedsSpark("the load's keys do not fit the memory") from failure

    # -- the load

    def _take_load(self) -> None:
        """Makes the tables ``part_rows`` and ``many`` (keys that several of its rows have)."""
        loaded = [*zip(self._load.parts, self._load.load.parts, strict=True)]
        cuts = self._cuts
        self._cut = cuts is not None and any(
            cuts.in_part(path, part.shape) for path, part in loaded
        )
        for index, (path, part) in enumerate(loaded):
            shape = part.shape
            staged = [] if shape is not None else [SEQ]
            at = EXTRACTED_AT if shape is None else shape.names.extracted_at
            of_shards = [at] if self._load.load.shards else []
            rows = read_columns(path, [*self._names(), *staged, *of_shards, self._deleted])
            if self._deleted is not None:
                self._leave_keeping(path, rows[self._deleted])
            columns = self._compared_columns(rows, self._deleted)
            if cuts is not None and self._cut:
                columns["sent"] = cuts.of_part(path, shape)
            for name in of_shards:
                columns["extracted"] = plain(rows[name], Kind.timestamp)
            columns |= self._also_compared(path, shape)
            seq = rows[SEQ] if shape is None else numbers(columns["gone"], part.first or 0)
            self._put(index, {**columns, "seq": seq})
        keys = ", ".join(self._key_names())
        self._duckdb.execute(
            f"CREATE TABLE many AS SELECT {keys} FROM part_rows GROUP BY ALL HAVING count(*) > 1"
        )

    def _also_compared(self, path: str, shape: TableShape | None) -> dict[str, ChunkedArray]:
        """Returns more columns of a part's rows that are compared."""
        return {}

    def _several(self) -> bool:
        """Returns whether a key comes twice, or rows may be deletes."""
        found = asked(self._duckdb, "SELECT EXISTS (FROM many) AS found")
        return self._deleted is not None or bool(found["found"][0].as_py())

    def _whole(self) -> RowSelection:
        """Returns the outcome for a new table, which gets every row."""
        parts = self._load.load.parts
        every: list[Any] = [pa.arange(0, part.rows) for part in parts]
        rows = self._load.load.rows
        return RowSelection((*every,), {}, written=rows, superseded=0, mixed=0, unsure=0)

    def _choose(self) -> None:
        """Makes the table ``winner``: one row per key of the load."""
        keys = ", ".join(self._key_names())
        same = " AND ".join(f"r.{k} IS NOT DISTINCT FROM m.{k}" for k in self._key_names())
        self._shown()
        several = f"(SELECT r.* FROM part_rows r WHERE EXISTS (FROM many m WHERE {same}))"
        several, first, two = self._ordered(several, keys)
        sent = "sent" if self._cut else "CAST(NULL AS VARCHAR) AS sent"
        kept = f"{keys}, part, part_row, cursor, gone, bare, {sent}"
        self._duckdb.execute(
            f"CREATE TABLE winner AS SELECT {kept}, false AS late, false AS two FROM part_rows r "
            f"WHERE NOT EXISTS (FROM many m WHERE {same}) UNION ALL SELECT {kept}, "
            f"bool_or(bare) OVER (PARTITION BY {keys}), {two} FROM {several} "
            f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {first}) = 1"
        )
        self._duckdb.execute("DROP TABLE part_rows; DROP TABLE many; DROP TABLE IF EXISTS ordered")
        self._duckdb.execute(
            "CREATE TABLE met (file INTEGER, file_row BIGINT, part INTEGER, part_row BIGINT, "
            "newer BOOLEAN, mixed BOOLEAN, unsure BOOLEAN)"
        )

    def _shown(self) -> None:
        """Adds what orders the rows of several lanes, for a stream that is read in shards."""
        shards = self._load.load.shards
        if shards:
            lane = lane_sql(shards, "seq", DUCKDB)
            self._duckdb.execute(
                "CREATE TABLE of_lanes AS SELECT *, max(extracted) OVER (PARTITION BY lane "
                "ORDER BY seq ROWS UNBOUNDED PRECEDING) AS shown "
                f"FROM (SELECT *, {lane} AS lane FROM part_rows)"
                "; DROP TABLE part_rows; ALTER TABLE of_lanes RENAME TO part_rows"
            )

    def _ordered(self, rows: str, keys: str) -> tuple[str, str, str]:
        """Orders ``rows``, whose keys have several: returns the rows, how they are ordered, the
        newest first, and whether those of a key have two forms. Most loads have one form only,
        which needs no comparison with neighbouring rows."""
        lanes = ("shown", "lane") if self._load.load.shards else ()
        arrival = (*lanes, "seq", "part", "part_row")
        if self._cursor is None:
            folded = fold(keys, arrival, None, DUCKDB)
            return _staged(rows, folded.stages), _by(folded.order), folded.two_forms
        order = self._order("cursor", sent="sent" if self._cut else None)
        steps = [{name: sql} for name, sql in order.steps]
        names = ", ".join((*self._key_names(), *arrival, "cursor", "gone", "bare"))
        self._duckdb.execute(
            f"CREATE TABLE ordered AS SELECT {names}{', sent' if self._cut else ''}, "
            f"{order.form} AS form, {order.major} AS major, {order.minor} AS minor "
            f"FROM {_staged(rows, steps)}"
        )
        found = asked(
            self._duckdb,
            "SELECT count(DISTINCT form) AS forms, coalesce(bool_or(bare), false) AS bare "
            "FROM ordered",
        ).to_pylist()[0]
        order = Order("form", "major", "minor")
        if found["forms"] < 2 and not found["bare"]:
            return "ordered", _by(one_form(arrival, order)), "false"
        folded = fold(keys, arrival, order, DUCKDB, bare="bare" if found["bare"] else "false")
        return _staged("ordered", folded.stages), _by(folded.order), folded.two_forms

    def _order(
        self, column: str, prefix: str = "", *, sent: str | None = None, known: str = "true"
    ) -> Order:
        """Returns the order of a cursor column. ``sent``, ``known``: as in ``newest.exactly``;
        None: no cursor was cut."""
        if self._cursor is None:
            return NO_ORDER
        as_text = self._load.cursor_order is CursorOrder.text
        kind = self._cursor.type.kind
        order = order_of(column, kind, DUCKDB, as_text=as_text, prefix=prefix)
        return order if sent is None else exactly(order, column, kind, sent, DUCKDB, known=known)

    def _leave_keeping(self, path: str, mark: ChunkedArray) -> None:
        """Raises :class:`NeedsSpark` if a part has a soft delete that keeps columns of the table's
        row (``frame.soft_deletes``)."""
        load = self._load
        names = [f.name for f in load_fields(load)]
        if not has_soft_deletes(load, names) or mark.null_count == len(mark):
            return
        own, kept = own_columns(load, names), kept_columns(load, load_fields(load))
        deletes = read_columns(path, [*own, *kept, self._deleted]).filter(marked(mark))
        keeping: Any = pa.repeat(pa.scalar(True), deletes.num_rows)
        for name in own:
            keeping = pc.and_(keeping, pc.is_null(deletes[name]))
        if not own_columns(load, self._columns):  # the table has no more to keep
            lacks = (pc.is_null(deletes[name]) for name in kept)
            keeping = pc.and_(keeping, functools.reduce(pc.or_, lacks, pa.scalar(False)))
        if self._cursor is not None:
            keeping = pc.or_(keeping, pc.is_null(deletes[self._cursor.name]))
        if pc.any(keeping).as_py():
            raise NeedsSpark("a soft delete keeps the columns of the table's row")

    def _names(self) -> list[str]:
        cursor = [] if self._cursor is None else [self._cursor.name]
        return [*(f.name for f in self._keys), *cursor]

    def _key_names(self) -> list[str]:
        return [f"key{index}" for index in range(len(self._keys))]

    def _compared_columns(self, table: Table, deleted: str | None) -> dict[str, ChunkedArray]:
        """Returns the columns by which a file's rows are compared, under separate names."""
        count = table.num_rows
        columns = {
            name: plain(table[field.name], field.type.kind)
            for name, field in zip(self._key_names(), self._keys, strict=True)
        }
        gone: Any = pa.chunked_array([pa.repeat(pa.scalar(False), count)])
        columns["gone"] = gone if deleted is None else marked(table[deleted])
        columns["bare"] = gone
        columns["cursor"] = pa.chunked_array([pa.nulls(count, pa.int64())])
        if self._cursor is not None:
            cursor = table[self._cursor.name]
            columns["bare"] = pc.and_(columns["gone"], pc.is_null(cursor))
            columns["cursor"] = plain(cursor, self._cursor.type.kind)
        return columns

    def _put(self, index: int, columns: dict[str, ChunkedArray]) -> None:
        owner: Any = pa.repeat(pa.scalar(index, pa.int32()), len(columns["seq"]))
        make = "INSERT INTO part_rows" if index else "CREATE TABLE part_rows AS"
        self._run_with({"part": owner, "part_row": numbers(owner), **columns}, f"{make} FROM given")

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
        """Returns whether a file may have a row of a key of the load."""
        tests: list[str] = []
        values: list[Any] = []
        for name, field in zip(self._key_names(), self._keys, strict=True):
            low, high = bounds.get(field.name, (None, None))
            if low is None or high is None or field.type.kind not in (Kind.integer, Kind.string):
                continue
            if field.name in self._mixed:
                continue
            # the file may also have NULL, which its bounds do not show
            tests.append(f"({name} IS NULL OR {name} BETWEEN ? AND ?)")
            values += [low, high]
        if not tests:
            return True
        found = self._duckdb.execute(
            f"SELECT EXISTS (FROM winner WHERE {' AND '.join(tests)})", values
        ).fetchall()
        return bool(found[0][0])

    def _compare(self, index: int, file: Path) -> None:
        """Adds to the table ``met`` the rows of a file whose keys the load has."""
        columns = self._compared_columns(read_columns(file, self._names()), None)
        cut = self._cuts is not None and (self._cut or self._cuts.in_table(file))
        if self._cuts is not None and cut:
            columns["sent"] = self._cuts.of_table(file)
        sent = "s.sent AS ours_sent, t.sent AS theirs_sent, " if cut else ""
        same = " AND ".join(f"t.{k} IS NOT DISTINCT FROM s.{k}" for k in self._key_names())
        found = f"t.number, s.part, s.part_row, s.two, s.bare, {sent}s.cursor AS ours, "
        both = f"(SELECT {found}t.cursor AS theirs FROM given t JOIN winner s ON {same})"
        if self._mixed:
            found += "t.cursor AS theirs"
            both = either_form(found, "given t JOIN winner s", same, self._same_in_one_form())
        newer = "false" if self._load.retried else "true"
        mixed, unsure, steps = "false", "false", ()
        if self._cursor is not None:
            ours = self._order("ours", "s_", sent="ours_sent" if cut else None)
            theirs = "theirs_sent" if cut else None
            theirs = self._order("theirs", "t_", sent=theirs, known="false")
            retried = self._load.retried
            newer = replaces(ours, theirs, two_forms="two", bare="bare", retried=retried)
            mixed = f"two OR (NOT bare AND {ours.form} <> {theirs.form})"
            steps = (*ours.steps, *theirs.steps)
            if cut:
                unsure = "ours = theirs AND ours_sent IS NOT NULL AND theirs_sent IS NULL"
        rows = _staged(both, [{name: sql} for name, sql in steps])
        self._run_with(
            {"number": numbers(columns["gone"]), **columns},
            f"INSERT INTO met SELECT {index}, number, part, part_row, {newer}, {mixed}, {unsure} "
            f"FROM {rows}",
        )

    def _same_in_one_form(self) -> str:
        """Returns a condition: the table's row ``t`` has the key of the load's row ``s``, in either
        form of the columns that have two."""
        same: list[str] = []
        for name, field in zip(self._key_names(), self._keys, strict=True):
            json = self._mixed.get(field.name)
            theirs, ours = f"t.{name}", f"s.{name}"
            if json is not None:
                theirs, ours = of_table(theirs, DUCKDB, json=json), of_load(ours, DUCKDB, json=json)
            same.append(f"{theirs} IS NOT DISTINCT FROM {ours}")
        return " AND ".join(same)

    # -- what follows

    def _settled(self, parts: int) -> RowSelection:
        """Raises :class:`NeedsSpark` if the table has several rows of a key of the load, or one row
        of a key that has a delete without a cursor and other rows
        (``load_frame.newest_beside``)."""
        ask = functools.partial(asked, self._duckdb)
        twice = ask("SELECT count(*) - count(DISTINCT (part, part_row)) AS n FROM met")
        if twice["n"][0].as_py() and not self._mixed:
            raise NeedsSpark("the table has several rows of a key")
        late = ask(
            "SELECT EXISTS (FROM winner JOIN met USING (part, part_row) WHERE late) AS found"
        )
        if late["found"][0].as_py():
            raise NeedsSpark("a delete without a cursor is ranked by the table's row")
        if self._mixed:
            self._duckdb.execute(WON_IN_PART)
        hard = self._load.policy.deletes is Deletes.hard and self._deleted is not None
        stays = "NOT s.gone" if hard else "true"
        taken = ask(
            f"SELECT {'DISTINCT' if self._mixed else ''} s.part, s.part_row "
            f"FROM winner s LEFT JOIN met m USING (part, part_row) "
            f"WHERE {stays} AND (m.part IS NULL OR m.newer) ORDER BY ALL"
        )
        lost = ask("SELECT file, file_row FROM met WHERE newer ORDER BY ALL")
        deleted = ask(
            f"SELECT count(*) AS n FROM winner s JOIN met m USING (part, part_row) "
            f"WHERE m.newer AND NOT ({stays})"
        )
        counts = ask(
            "SELECT (SELECT count(*) FROM met WHERE NOT newer) AS older, (SELECT count(*) FROM "
            "winner) AS keys, (SELECT count(*) FROM winner s LEFT JOIN met m USING (part, part_row)"
            " WHERE s.two OR m.mixed) AS mixed, (SELECT count(*) FROM met WHERE unsure) AS unsure"
        ).to_pylist()[0]
        return RowSelection(
            superseded=self._load.load.rows - counts["keys"] + counts["older"],
            mixed=counts["mixed"],
            unsure=counts["unsure"],
            taken=tuple(of_owner(taken, "part", index, "part_row") for index in range(parts)),
            lost={
                index: of_owner(lost, "file", index, "file_row")
                for index in pc.unique(lost["file"]).to_pylist()
            },
            written=taken.num_rows + int(deleted["n"][0].as_py()),
        )


def _compared(path: FieldPath, fields: dict[str, Field]) -> Field | None:
    return fields.get(path[0]) if path else None


def asked(connection: duckdb.DuckDBPyConnection, sql: str) -> Table:
    return connection.sql(sql).to_arrow_table()


def of_owner(rows: Table, owner: str, index: int, number: str) -> Array:
    found: Any = rows.filter(pc.equal(rows[owner], index))[number]
    return found.combine_chunks()


def read_columns(path: Path | str, columns: Sequence[str | None]) -> Table:
    """Reads those columns of a file that have a name. Raises :class:`NeedsSpark` if it lacks
    one."""
    wanted = dict.fromkeys(c for c in columns if c is not None)
    with opened(path) as file:
        if not wanted.keys() <= set(file.schema_arrow.names):
            raise NeedsSpark(f"{path} lacks a column")
        return file.read(columns=[*wanted])


def numbers(column: Any, first: int = 0) -> Array:
    """Returns ``first`` and the numbers after it, one for each row of ``column``."""
    made: Any = pa.arange(first, first + len(column))
    return made


def _by(order: Sequence[tuple[str, bool]]) -> str:
    """Returns the SQL of ``Fold.order``."""
    return ", ".join(f"{name} {'DESC' if falls else 'ASC'} NULLS LAST" for name, falls in order)


def _staged(rows: str, stages: Iterable[Mapping[str, str]]) -> str:
    """Returns a SQL source: ``rows`` with the columns of ``stages``, each of which may use those
    before."""
    for stage in stages:
        added = ", ".join(f"{sql} AS {name}" for name, sql in stage.items())
        rows = f"(SELECT *, {added} FROM {rows})"
    return rows


def plain(column: ChunkedArray, kind: Kind) -> ChunkedArray:
    """Returns times as integers, which compare alike everywhere, and texts and bytes in one type: a
    file keeps the string type of its writer, and is read with it."""
    if kind in TEXTS or kind is Kind.binary:
        return column.cast(pa.binary() if kind is Kind.binary else pa.string())
    if kind in (Kind.timestamp, Kind.timestamp_ntz):
        unit = pa.timestamp("us", tz=column.type.tz)
        return column.cast(unit).cast(pa.int64())
    return column.cast(pa.int32()) if kind is Kind.date else column
