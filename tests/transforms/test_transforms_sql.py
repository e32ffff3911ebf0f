"""transform-sql over real DataFusion: what is planned, what comes out, what is refused."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from datafusion import SessionContext

from penstock.codec.arrow import arrow_type, frame_types_of, with_frame_types
from penstock.config.sections import Limits
from penstock.errors import ConfigError, SourceError
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.transforms.contract import BatchTransform, TransformResult
from penstock.transforms.open import open_transform

T = TypeVar("T")
TYPES = {
    "id": DataType(Kind.integer),
    "name": DataType(Kind.string),
    "Big": DataType(Kind.number),
    "active": DataType(Kind.boolean),
    "at": DataType(Kind.timestamp),
    "payload": DataType(Kind.json),
    "opens": DataType(Kind.time),
    "tags": DataType(Kind.array, item=DataType(Kind.string)),
    "home": DataType(
        Kind.struct, fields=(Field("zip_code", "zip code", DataType(Kind.string)),)
    ),
}  # fmt: skip
SCHEMA = RowSchema(tuple(Field(name, name, kind) for name, kind in TYPES.items()))
AT = datetime(2024, 1, 2, tzinfo=UTC)


def table(rows: int = 4, chunk: int = 3) -> pa.Table:
    """Rows 0, 1, ...: id falls, so that an order by it shows; in several chunks."""
    found = pa.table(
        {
            "id": pa.array([rows - i for i in range(rows)], pa.int64()),
            "name": pa.array([None if i % 3 == 2 else f"n{i}" for i in range(rows)], pa.string()),
            "Big": pa.array([i / 2 for i in range(rows)], pa.float64()),
            "active": pa.array([i % 2 == 0 for i in range(rows)]),
            "at": pa.array([AT] * rows, pa.timestamp("us", tz="UTC")),
            "payload": pa.array(['{"a": 1.10}'] * rows, pa.string()),
            "opens": pa.array(["08:00:00"] * rows, pa.string()),
            "tags": pa.array([["a", "b"][: i % 3] for i in range(rows)], pa.list_(pa.string())),
            "home": pa.array([{"zip_code": "1"}] * rows, arrow_type(TYPES["home"])),
        },
        schema=pa.schema([pa.field(n, arrow_type(t)) for n, t in TYPES.items()]),
    )
    return pa.Table.from_batches(found.to_batches(max_chunksize=chunk), found.schema)


def sql(query: object) -> BatchTransform:
    return open_transform("transform-sql", {"query": query}, where="transforms[0]")


def applied(query: str, batch: pa.Table | None = None) -> TransformResult:
    transform = sql(query)
    planned = transform.output(SCHEMA)
    found = transform.apply(table() if batch is None else batch)
    assert found.table.schema.names == [f.name for f in planned.fields]
    assert found.table.schema.types == [arrow_type(f.type) for f in planned.fields]
    found.table.validate(full=True)
    return found


def refused(query: str, schema: RowSchema = SCHEMA) -> str:
    with pytest.raises(ConfigError) as raised:
        sql(query).output(schema)
    assert raised.value.code == "transform.query"
    assert raised.value.where == "transforms[0].config.query"
    assert raised.value.hint is not None
    whatever = raised.value.hint.startswith("config takes query")
    assert whatever or "columns of input are: id, name, " in raised.value.hint
    return "\n".join(raised.value.problems)


def test_the_example_of_the_specification() -> None:
    query = "SELECT id, UPPER(name) AS name, id + 1 AS next FROM input WHERE active = true"
    found = applied(query)
    assert found.table.to_pydict() == {"id": [4, 2], "name": ["N0", None], "next": [5, 3]}
    assert found.rejects == [] and found.counts == {}


def test_rows_keep_their_order_over_chunks_and_datafusions_own_batches() -> None:
    rows = 1_000_000
    batch = pa.table({"id": pa.array(range(rows), pa.int64())})
    transform = sql("SELECT id FROM input WHERE regexp_like(CAST(id AS TEXT), '[02468]$')")
    transform.output(RowSchema(SCHEMA.fields[:1]))
    batch = pa.Table.from_batches(batch.to_batches(max_chunksize=7_001))
    assert (
        transform.apply(batch)
        .table["id"]
        .combine_chunks()
        .equals(pa.array(range(0, rows, 2), pa.int64()))
    )


def test_an_empty_batch_and_one_without_chunks_come_out_empty() -> None:
    empty = table(0)
    assert empty.to_batches() == []
    for query in ("SELECT id FROM input", "SELECT DISTINCT name FROM input"):
        assert applied(query, empty).table.num_rows == 0


# -- types
def test_what_comes_out_has_the_planned_types_whatever_datafusion_computes_in() -> None:
    found = applied(
        """SELECT CAST(id AS INT) AS i, arrow_cast(id, 'UInt64') AS u, count(*) OVER () AS n,
        arrow_cast(name, 'Dictionary(Int32, Utf8)') AS d, arrow_cast(name, 'Utf8View') AS v,
        arrow_cast(at, 'Timestamp(Nanosecond, Some("+02:00"))') AS z,
        CAST(id AS DECIMAL(9, 2)) AS m, NULL AS nothing, make_array(CAST(id AS INT)) AS l,
        now() AS t, CAST('2024-01-02' AS TIMESTAMP) AS w
        FROM input"""
    )
    kinds = {f.name: str(f.type) for f in found.table.schema}
    assert kinds == {
        "i": "int64", "u": "decimal128(20, 0)", "n": "int64", "d": "string", "v": "string",
        "z": "timestamp[us, tz=UTC]", "m": "decimal128(9, 2)", "nothing": "string",
        "l": "list<item: int64>", "t": "timestamp[us, tz=UTC]", "w": "timestamp[us]",
    }  # fmt: skip
    first = found.table.slice(0, 1).to_pylist()[0]
    assert (first["i"], first["u"], first["d"], first["v"]) == (4, Decimal(4), "n0", "n0")
    assert first["z"] == AT and first["m"] == Decimal("4.00") and first["l"] == [4]


def test_a_type_that_no_column_has_is_refused_at_plan() -> None:
    problems = refused("SELECT map(['a'], [id]) AS m, interval '1 day' AS d FROM input")
    assert "the column 'm' is map<" in problems and "the column 'd' is month_day_nano" in problems


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("SELECT payload, opens FROM input", ["json", "time"]),
        ("SELECT p, opens FROM (SELECT i.payload AS p, * FROM input i) x ORDER BY id LIMIT 2",
         ["json", "time"]),
        ("WITH a AS (SELECT payload AS b, opens FROM input WHERE id > 1) SELECT b, opens FROM a",
         ["json", "time"]),
        ("SELECT upper(payload) AS payload, substr(opens, 1) AS opens FROM input",
         ["string", "string"]),
        ("SELECT name AS payload, payload AS opens FROM input", ["string", "json"]),
        ("SELECT payload, count(*) AS n FROM input GROUP BY payload", ["string", "integer"]),
        ("SELECT a.payload, b.opens FROM input a JOIN input b ON a.id = b.id",
         ["string", "string"]),
        ("SELECT payload FROM input UNION ALL SELECT name FROM input", ["string"]),
    ],
)  # fmt: skip
def test_only_an_untouched_column_keeps_what_arrow_cannot_say(query: str, kinds: list[str]) -> None:
    assert [f.type.kind.value for f in sql(query).output(SCHEMA).fields] == kinds


def test_an_untouched_column_keeps_its_original_names() -> None:
    schema = RowSchema((Field("user_name", "user name", DataType(Kind.string)), *SCHEMA.fields))
    kept = sql("SELECT user_name, home, user_name AS other FROM input").output(schema).fields
    assert [(f.name, f.source) for f in kept] == [
        ("user_name", "user name"), ("home", "home"), ("other", "other"),
    ]  # fmt: skip
    assert kept[1].type == TYPES["home"]
    clash = sql('SELECT user_name, upper(name) AS "user name" FROM input').output(schema).fields
    assert len({f.source for f in clash}) == len({f.name for f in clash}) == 2


def test_output_names_are_names_that_every_table_can_carry() -> None:
    found = applied('SELECT id + 1, upper(name), id AS "ID", id, id AS _penstock_seq FROM input')
    names = found.table.schema.names
    assert names[0] == "input.id_+_Int64_1_" and names[1] == "upper_input.name_"
    assert {names[2][:2], names[3][:2]} == {"ID", "id"} and len({n.casefold() for n in names}) == 5
    assert not any(n.startswith("_penstock_") and len(n) == len("_penstock_seq") for n in names)


# -- which rows come from where
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM input",
        "SELECT id FROM input WHERE id < 7 ORDER BY id",
        "SELECT lower(i.name) AS n, id FROM input i WHERE i.id > 2 ORDER BY name DESC, id",
        "SELECT n, id FROM (SELECT id, id % 3 AS n FROM input) s WHERE n > 0 ORDER BY n, id DESC",
        "SELECT id FROM input WHERE id > (SELECT avg(id) FROM input) ORDER BY 1",
        "SELECT id FROM input WHERE EXISTS (SELECT 1 FROM input j WHERE j.id = input.id + 4)",
        "SELECT id, (SELECT max(k.name) FROM input k WHERE k.id = input.id) AS m FROM input",
        'SELECT "My I".id AS "ID" FROM input AS "My I" WHERE "My I"."Big" > 2 ORDER BY "ID"',
        "WITH a AS (SELECT * FROM input), input AS (SELECT id, name AS o FROM a WHERE id > 1) "
        "SELECT input.id, o FROM input ORDER BY id DESC",
        "SELECT x.k AS id FROM (SELECT id AS k FROM input AS input WHERE input.id > 3) x",
        "SELECT public.input.id FROM public.input ORDER BY datafusion.public.input.id",
        "SELECT id FROM input x(id, b, c, d, e, f, g, h, i) WHERE b IS NULL",
        "SELECT id FROM input ORDER BY id DESC LIMIT 2",
        "SELECT id FROM (SELECT id FROM input OFFSET 3) x ORDER BY id DESC LIMIT 4 OFFSET 1",
    ],
)
def test_origin_names_the_row_where_rows_are_kept(query: str) -> None:
    batch = table(11)
    found = applied(query, batch)
    assert found.origin is not None and found.origin.type == pa.int64()
    ids = found.table.column("id" if "id" in found.table.schema.names else 0).to_pylist()
    assert ids and batch["id"].take(found.origin).to_pylist() == ids
    assert "_penstock_row" not in found.table.schema.names


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT id FROM input",
        "SELECT count(*) AS n FROM input",
        "SELECT name, max(id) AS m FROM input GROUP BY name",
        "SELECT id, row_number() OVER (ORDER BY id) AS r FROM input",
        "SELECT id, unnest(tags) AS tag FROM input",
        "SELECT id FROM input UNION ALL SELECT id FROM input",
        "SELECT a.id FROM input a CROSS JOIN generate_series(1, 2) g",
        "SELECT id FROM input ORDER BY id LIMIT 1 + 1",
        "SELECT id FROM input ORDER BY id LIMIT NULL",
    ],
)
def test_origin_is_unknown_where_rows_are_made(query: str) -> None:
    assert applied(query, table(11)).origin is None


@pytest.mark.parametrize(
    "order", ["2 DESC", "name, id", "name DESC", "name NULLS FIRST, id", "name DESC NULLS LAST, id"]
)
def test_a_plan_with_numbered_rows_gives_the_same_table(order: str) -> None:
    query = f'SELECT name, "Big" * 2 AS b FROM input i WHERE id > 2 ORDER BY {order}'
    once = applied(query, table(50)).table
    context = SessionContext()
    context.register_record_batches("input", [table(50).to_batches()])
    assert context.sql(query).to_arrow_table().to_pydict() == once.to_pydict()


# -- refused
@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 AS a",
        "SELECT 'FROM input' AS a -- FROM input",
        "/* FROM input */ VALUES (1)",
        "SELECT 'x\nTableScan: input\n' AS a",
        "WITH input AS (SELECT 1 AS a) SELECT a FROM input",
        "WITH x AS (SELECT * FROM input) SELECT 1 AS a",
        "WITH RECURSIVE input AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM input WHERE n < 5) "
        "SELECT n FROM input",
        "SELECT * FROM generate_series(1, 3) AS input",
    ],
)
def test_a_query_that_does_not_read_input_is_refused(query: str) -> None:
    assert "does not read the table input" in refused(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT (SELECT max(id) FROM input) AS m",
        "SELECT 1 AS a WHERE 1 IN (SELECT id FROM input)",
        "SELECT coalesce((SELECT max(id) FROM input), 1) + 1 AS a",
        "SELECT id FROM INPUT",
        "WITH x AS (SELECT id FROM input) SELECT id FROM x;",
        "WITH RECURSIVE r AS (SELECT id FROM input UNION ALL SELECT id + 9 FROM r WHERE id < 9) "
        "SELECT id FROM r",
    ],
)
def test_a_query_that_reads_input_anywhere_is_taken(query: str) -> None:
    assert applied(query).table.num_rows > 0


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("CREATE TABLE x AS SELECT * FROM input", "makes or drops something (CreateMemoryTable)"),
        ("CREATE VIEW v AS SELECT * FROM input", "CreateView"),
        ("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{file}'", "CreateExternalTable"),
        ("DROP TABLE input", "DropTable"),
        ("SELECT id INTO x FROM input", "CreateMemoryTable"),
        ("INSERT INTO input SELECT * FROM input", "writes (Insert"),
        ("UPDATE input SET id = 1", "writes (Update"),
        ("DELETE FROM input", "writes (Delete"),
        ("COPY input TO '{new}'", "writes (COPY"),
        ("COPY (SELECT * FROM input) TO '{new}'", "writes (COPY"),
        ("SET datafusion.execution.batch_size = 1", "not a query (SetVariable)"),
        ("PREPARE p AS SELECT * FROM input", "not a query (Prepare)"),
        ("EXECUTE p", "not a query (Execute)"),
        ("START TRANSACTION", "not a query (TransactionStart)"),
        ("EXPLAIN SELECT * FROM input", "not a query (EXPLAIN)"),
        ("EXPLAIN ANALYZE SELECT * FROM input", "not a query (EXPLAIN)"),
        ("DESCRIBE input", "not a query (DESCRIBE)"),
        ("SHOW TABLES", "not a query (SHOW)"),
        ("SHOW ALL", "not a query (SHOW)"),
        ("SELECT * FROM input; SELECT * FROM input", "several statements"),
        ("SELECT * FROM input; DROP TABLE input", "several statements"),
        ("-- nothing", "no statement at all"),
        ("SELECT * FROM information_schema.tables", "the table 'information_schema.tables'"),
        ("SELECT i.id FROM input i, '{file}' f", "no files"),
        ("SELECT * FROM '{file}'", "the table '{file}'; a query reads the table input only"),
        ("SELECT * FROM read_csv('{file}')", "the table function 'read_csv'"),
        ("SELECT * FROM read_parquet('{file}')", "the table function 'read_parquet'"),
    ],
)
def test_what_is_no_query_over_input_is_refused_and_done_nothing_of(
    query: str, words: str, tmp_path: Path
) -> None:
    file, new = tmp_path / "x.csv", tmp_path / "new.csv"
    file.write_text("a\n1\n")
    problems = refused(query.format(file=file, new=new))
    assert "refused: " in problems and words.format(file=file) in problems
    assert os.listdir(tmp_path) == ["x.csv"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT nmae FROM input", "Did you mean 'input.name'?"),
        ("SELECT big FROM input", 'input."Big"'),
        ("SELEC id FROM input", "found: SELEC at Line: 1"),
        ("SELECT id, id FROM input", "Projections require unique expression names"),
        ("SELECT name + 1 AS x FROM input", "Cannot coerce arithmetic expression"),
        ("SELECT nosuch(id) AS x FROM input", "nosuch"),
        ("SELECT $1 AS x FROM input", "Placeholder '$1'"),
        ("SELECT a.id, b.id FROM input a JOIN input b ON a.id = b.id", "'id' comes 2 times"),
        ('SELECT id AS "" FROM input', "column 1 has no name"),
        ("FROM input", "selects no column"),
    ],
)
def test_a_fault_of_a_query_is_told_at_plan_with_the_columns(query: str, words: str) -> None:
    assert words in refused(query)


@pytest.mark.parametrize(
    "query", ["SELEC id FROM input", "SELECT 1", "SELECT * FROM '/x.csv'", "DROP TABLE input"]
)
def test_a_fault_of_every_stream_is_told_before_any_columns_are_known(query: str) -> None:
    with pytest.raises(ConfigError) as raised:
        sql(query)
    assert raised.value.code == "transform.query"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "needs the key 'query'"),
        ({"qeury": "SELECT * FROM input"}, "unknown key 'qeury'; did you mean 'query'?"),
        ({"query": "SELECT 1", "table": "x"}, "unknown key 'table'"),
        ({"query": " \n"}, "query is empty"),
        ({"query": None}, "must be a text, not nothing"),
        ({"query": ["SELECT 1"]}, "must be a text, not a list"),
    ],
)
def test_a_config_that_is_none_is_refused(config: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        open_transform("transform-sql", config, where="transforms[3]")
    assert raised.value.where == "transforms[3]" and raised.value.code == "config.transform"
    assert words in "\n".join(raised.value.problems)


def test_an_unknown_transform_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'transform-sql'"):
        open_transform("transform-sq", {}, where="transforms[0]")


# -- at run time
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT CAST(name AS INT) AS a FROM input", "does not fit the type Int32"),
        ("SELECT to_timestamp(name) AS a FROM input", "does not fit the type"),
        ("SELECT CAST(id * 1234567890123 AS INT) AS a FROM input", "does not fit the type Int32"),
        ("SELECT id / (id - id) AS a FROM input", "a division by zero"),
        ("SELECT regexp_like(name, name || '(') AS a FROM input", "regular expression"),
        ("SELECT (SELECT id FROM input) AS a FROM input", "scalar subquery gave several rows"),
        ("SELECT factorial(id * 30) AS a FROM input", "too large"),
        ("SELECT chr(0 - id) AS a FROM input", "of DataFusion"),
    ],
)
def test_what_fails_on_a_batch_is_told_with_the_query_and_without_its_values(
    query: str, words: str
) -> None:
    transform = sql(query)
    transform.output(SCHEMA)
    batch = table().set_column(1, "name", pa.array(["s3cret-name"] * 4))
    batch = batch.set_column(0, "id", pa.array([777001, 777002, 777003, 777004], pa.int64()))
    with pytest.raises(SourceError) as raised:
        transform.apply(batch)
    error = raised.value
    assert error.code == "transform.failed" and error.where == "transforms[0].config.query"
    assert words in error.message and query in error.message and error.hint
    seen = str(error.as_dict()) + repr(error.__cause__)
    assert "s3cret" not in seen and "777" not in seen and "123456" not in seen.replace(query, "")


def test_a_batch_after_one_that_failed_is_done_right() -> None:
    transform = sql("SELECT CAST(name AS INT) AS a FROM input")
    transform.output(SCHEMA)
    with pytest.raises(SourceError):
        transform.apply(table())
    good = table().set_column(1, "name", pa.array(["1", "2", None, "4"]))
    assert transform.apply(good).table["a"].to_pylist() == [1, 2, None, 4]


def test_a_schema_that_grew_is_planned_anew() -> None:
    transform = sql("SELECT * FROM input")
    transform.output(SCHEMA)
    grown = transform.output(
        RowSchema((*SCHEMA.fields, Field("more", "more", DataType(Kind.string))))
    )
    batch = table().append_column("more", pa.array(["x"] * 4))
    assert transform.apply(batch).table["more"].to_pylist() == ["x"] * 4
    assert grown.fields[-1].name == "more"


def test_datafusion_is_loaded_for_a_query_only() -> None:
    code = (
        "import sys; from penstock.transforms.open import open_transform; "
        "open_transform('transform-validate', {'rules': [{'assert_unique': 'x'}]}, where='t'); "
        "sys.exit('datafusion' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


# -- nullability


def flags(done: TransformResult) -> dict[str, bool]:
    return {f.name: f.nullable for f in done.table.schema}


def declared(*names: str) -> pa.Table:
    """:func:`table`, of which these are declared non-null."""
    found = table()
    fields = [f.with_nullable(f.name not in names) for f in found.schema]
    return pa.Table.from_arrays(found.columns, schema=pa.schema(fields))


def test_l9_what_a_query_leaves_as_it_is_stays_non_null() -> None:
    query = 'SELECT id AS key, name, upper(name) AS up, "Big" + 1 AS more FROM input WHERE id > 1'
    assert flags(applied(query, declared("id", "Big"))) == {
        "key": False, "name": True, "up": True, "more": True
    }  # fmt: skip
    assert flags(applied("SELECT id FROM input", table())) == {"id": True}, "not for having no null"


def test_l9_what_the_query_makes_is_non_null_where_datafusion_knows_it() -> None:
    done = applied("SELECT 1 AS one, count(*) AS n, max(id) AS m FROM input", declared("id"))
    assert flags(done) == {"one": False, "n": False, "m": True}
    named = applied("SELECT coalesce(name, '') AS name FROM input", table())
    assert flags(named) == {"name": False} and named.table.column("name").null_count == 0


def test_l9_what_a_batch_declares_decides_not_whether_a_query_runs() -> None:
    query = "SELECT id FROM input UNION ALL SELECT CAST(NULL AS BIGINT) AS id FROM input"
    done = applied(query, declared("id"))
    assert flags(done) == {"id": True} and done.table.column("id").null_count == 4


def test_what_a_query_leaves_as_it_is_keeps_its_frame_type_and_a_cast_has_its_own() -> None:
    """Numbers are computed with 64 bits: no sum of two int32 wraps at 32."""
    sent = with_frame_types(table(), {"id": "int32", "Big": "int16", "name": "large_string"})
    query = (
        'SELECT id AS key, name, upper(name) AS up, "Big" + id AS more, CAST(id AS INT) AS small,'
        " CAST(id AS REAL) AS real FROM input WHERE id > 0 ORDER BY id"
    )
    done = applied(query, sent)
    assert frame_types_of(done.table.schema) == {
        "key": "int32", "name": "large_string", "small": "int32", "real": "float"
    }  # fmt: skip
    assert done.table.schema.field("small").type == pa.int64(), "as the plan has it"


# -- bounds (issue 9; L10, L11)

_ENDLESS = "SELECT count(*) AS n FROM generate_series(1, 4000000000000) s CROSS JOIN input"


def bounded(query: str, **limits: int) -> BatchTransform:
    limit_section = Limits(**limits)
    return open_transform(
        "transform-sql", {"query": query}, where="transforms[0]", limits=limit_section
    )


def batch_of(rows: int) -> tuple[RowSchema, pa.Table]:
    schema = RowSchema((Field("id", "id", DataType(Kind.integer)),))
    return schema, pa.table({"id": pa.array(range(rows), pa.int64())})


class Told(Exception):
    pass


def told() -> None:
    raise Told


def answer(work: Callable[[], object], to: Connection) -> None:
    to.send(work())


def in_a_process(work: Callable[[], T]) -> T:
    """What ``work`` returns, in a process that ends with it: a query that is given up runs on."""
    process = get_context("spawn")
    ours, theirs = process.Pipe()
    child = process.Process(target=answer, args=(work, theirs))
    child.start()
    theirs.close()
    try:
        assert ours.poll(60)
        return ours.recv()
    finally:
        child.kill()
        child.join()


def given_up_by_time() -> tuple[float, str | None, str, str | None]:
    schema, batch = batch_of(10)
    made = bounded(_ENDLESS, timeout_seconds=1)
    made.output(schema)
    began = time.monotonic()
    with pytest.raises(SourceError) as caught:
        made.apply(batch)
    error = caught.value
    return time.monotonic() - began, error.code, error.message, error.hint


def given_up_when_told() -> float:
    schema, batch = batch_of(10)
    made = open_transform("transform-sql", {"query": _ENDLESS}, where="transforms[0]", tick=told)
    made.output(schema)
    began = time.monotonic()
    with pytest.raises(Told):
        made.apply(batch)
    return time.monotonic() - began


def test_a_query_without_an_end_is_given_up() -> None:
    seconds, code, message, hint = in_a_process(given_up_by_time)
    assert seconds < 20
    assert code == "transform.failed"
    assert "took longer than 1 s" in message
    assert "limits.timeout_seconds" in (hint or "")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.id, b.id AS other FROM input a CROSS JOIN input b",  # what comes out
        "SELECT a.id FROM input a, input b, input c ORDER BY a.id + b.id * c.id LIMIT 4000000",
    ],
)
def test_a_query_that_grows_beyond_its_memory_fails_the_batch(query: str) -> None:
    schema, batch = batch_of(2000)
    made = bounded(query, max_memory=16 << 20, timeout_seconds=60)
    made.output(schema)
    with pytest.raises(SourceError) as caught:
        made.apply(batch)
    assert f"needs more than {16 << 20} bytes of memory" in caught.value.message
    assert "limits.max_memory" in (caught.value.hint or "")
    small = bounded("SELECT sum(id) AS n FROM input", max_memory=16 << 20)
    small.output(schema)
    assert small.apply(batch).table.column("n").to_pylist() == [1999000]


def test_a_query_ends_where_its_lane_is_told_to() -> None:
    """Ctrl-C, a lost lease: whoever works is asked every second."""
    assert in_a_process(given_up_when_told) < 20
