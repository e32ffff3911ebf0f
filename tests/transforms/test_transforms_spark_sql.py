"""spark-sql: what its config may say, and what Spark makes of a query before and at a load."""

import random
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.codec.arrow import arrow_type
from penstock.errors import ConfigError, DestinationError
from penstock.model.types import (
    CHANGES,
    EXTRACTED_AT,
    RAW_ID,
    SEQ,
    DataType,
    Field,
    Kind,
    RowSchema,
)
from penstock.spark.query import Query, QueryColumns, answer, write
from penstock.spark.types import part_schema
from penstock.transforms.spark_sql import queries
from penstock.transforms.spark_tokens import TokenKind, tokenize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TransformSection(msgspec.Struct):
    use: str
    config: dict[str, Any]


def sections(*texts: Any, use: str = "spark-sql") -> list[TransformSection]:
    return [TransformSection(use, {"query": text}) for text in texts]


def refused(*entries: TransformSection) -> ConfigError:
    with pytest.raises(ConfigError) as found:
        queries(entries)
    return found.value


# -- what the pipeline file says, without a JVM


def test_queries_come_in_the_order_of_the_list() -> None:
    entries = [
        TransformSection("transform-sql", {"query": "SELECT 1"}),
        *sections("SELECT * FROM input", "  (SELECT count(*) AS n\nFROM input) ; -- end\n"),
    ]
    assert [q.where for q in queries(entries)] == [
        "transforms[1].config.query",
        "transforms[2].config.query",
    ]
    assert queries(entries)[1].text.startswith("(SELECT")
    assert ";" not in queries(entries)[1].text
    assert queries([]) == ()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "needs the key 'query'"),
        ({"query": 3}, "must be a text, not a number"),
        ({"query": " "}, "is empty"),
        ({"qery": "SELECT 1"}, "did you mean 'query'"),
    ],
)
def test_a_config_that_is_none(config: dict[str, Any], words: str) -> None:
    error = refused(TransformSection("spark-sql", config))
    assert error.code == "config.transform" and words in error.message
    assert error.where == "transforms[0]" and error.hint and "SELECT" in error.hint


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("DROP TABLE input", "not a query (DROP)"),
        ("/* SELECT */ insert INTO x SELECT * FROM input", "not a query (INSERT)"),
        ("-- SELECT\nCREATE TABLE x AS SELECT * FROM input", "not a query (CREATE)"),
        ("SET a = 1", "not a query (SET)"),
        ("EXPLAIN SELECT * FROM input", "not a query (EXPLAIN)"),
        ("SELECT * FROM input; SELECT 1", "several statements"),
        ("SELECT 'input' AS a -- input", "does not read the table input"),
        ("SELECT inputs FROM other", "does not read the table input"),
        ("MAP id USING 'cat' FROM input", "not a query (MAP)"),
        ("`SELECT` id FROM input", "not a query (`)"),
        ("-- nothing", "not a query ()"),
        ("SELECT * FROM input;;", "several statements"),
    ],
)
def test_what_is_no_query_of_input_is_refused_without_spark(query: str, words: str) -> None:
    error = refused(*sections(query))
    assert error.code == "transform.query" and words in error.message, error.message
    assert error.where == "transforms[0].config.query"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ';' AS a, `x;y` FROM input",
        "SELECT r'\\' AS a, \"it;\" AS b FROM input",
        "WITH x AS (SELECT 1) SELECT * FROM INPUT",
        "FROM `input` |> WHERE id > 1",
        "TABLE input",
        "SELECT sum(id) AS `a--b`, 1 AS `/*` FROM input",
        "SELECT 'it''s -- ; /*' AS a FROM input",
        "SELECT /*+ BROADCAST(x) */ * FROM input JOIN x USING (id)",
        "SELECT transform(array(id), x -> x + 1) AS map, reflect FROM input",
        "SELECT 'reflect(1)', '$1', 's3://' AS `identifier(` -- reflect(1) USING 'x'\nFROM input",
    ],
)
def test_what_may_be_a_query_is_left_to_spark(query: str) -> None:
    assert queries(sections(query))[0].text == query


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT * FROM input; -- done; really", "SELECT * FROM input"),
        ("SELECT * FROM input -- done \\\n; more", "SELECT * FROM input"),
        ("SELECT ';' AS `;` FROM input ; /* ; */\n", "SELECT ';' AS `;` FROM input"),
    ],
)
def test_a_query_ends_with_its_last_word(query: str, text: str) -> None:
    assert queries(sections(query))[0].text == text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT TRANSFORM(id) USING 'sh -c id' FROM input", "run a program"),
        ('SELECT tran\u017fform(id) /* x */ u\u017fing "sh" FROM input', "run a program"),
        ("WITH x AS (FROM input MAP id USING r'sh' AS (a)) TABLE x", "run a program"),
        ("SELECT * FROM (FROM input REDUCE id USING 'sh')", "run a program"),
        ("SELECT reflect('java.lang.System', 'getenv', 'PATH') FROM input", "reflect calls"),
        ("SELECT `Reflect` -- x\n ('a', 'b') FROM input", "reflect calls"),
        ("SELECT \"reflect\"('a', 'b') FROM input", "reflect calls"),
        ("SELECT builtin.try_reflect('a', 'b') FROM input", "try_reflect calls"),
        ("FROM input |> EXTEND JAVA_METHOD('a', 'b')", "java_method calls"),
        ("SELECT IDENTIFIER('ref' || 'lect')('a', 'b') FROM input", "IDENTIFIER(...) hides"),
        ("SELECT '${env:HOME}' AS home FROM input", "variables of this machine"),
        ("SELECT 1 /* /*+ */ , reflect('a', 'b') FROM input -- */", "comment inside a comment"),
        ("SELECT $$ ' $$, reflect('a', 'b'), ' FROM input", "outside of quotes"),
        ("SELECT 1 AS a://b-- , reflect('a', 'b') FROM input", "a:// outside of quotes"),
        ("SELECT 1 -- \\\n ' \n, reflect('a', 'b') FROM input -- '", "reflect calls"),
        ("SELECT * FROM input /* , reflect(", "does not end"),
    ],
)
def test_what_reaches_out_of_the_query_is_refused_without_spark(query: str, words: str) -> None:
    """A pipeline file may be another's: no programs, no methods of the JVM, no environment."""
    error = refused(*sections(query))
    assert error.code == "transform.query" and words in error.message, error.message


def test_a_batch_transform_after_it_is_refused_with_every_other_fault() -> None:
    error = refused(
        *sections(None, "DELETE FROM input"), *sections("SELECT 1", use="transform-sql")
    )
    assert len(error.problems) == 3
    assert "transforms[2].use: transform-sql comes after a spark-sql" in error.problems


def test_nothing_of_it_loads_pyspark() -> None:
    code = (
        "import sys; from penstock.transforms.spark_sql import queries; queries([]);"
        "import penstock.engine.deliver.stream_queries, penstock.engine.deliver.table_loader;"
        "sys.exit(any(m in sys.modules for m in ('pyspark', 'py4j')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


# -- what Spark says of it

GIVEN = RowSchema(
    (
        Field("id", "id", DataType(Kind.integer)),
        Field("full_name", "full name", DataType(Kind.string)),
        Field("amount", "amount", DataType(Kind.decimal, precision=10, scale=2)),
        Field("at", "at", DataType(Kind.timestamp)),
        Field("doc", "doc", DataType(Kind.json)),
    )
)


def asked(
    spark: "SparkSession",
    *texts: str,
    taken: Mapping[str, str] = {},
    reserved: tuple[str, ...] = (),
) -> QueryColumns:
    return answer(spark, queries(sections(*texts)), GIVEN, taken=taken, reserved=reserved)


def columns(found: QueryColumns) -> list[tuple[str, str, str]]:
    return [(f.name, f.source, f.type.kind.value) for f in found.schema.fields]


@pytest.mark.spark
def test_columns_have_our_types_and_keep_the_names_of_their_properties(
    shared_spark: "SparkSession",
) -> None:
    text = (
        "SELECT id, full_name, lower(full_name) AS short, full_name AS name, 1 AS one, "
        "CAST(1 AS FLOAT) AS f, NULL AS nothing, date(at) AS day, count(*) OVER () AS `n n`, "
        "array(CAST(1 AS TINYINT)) AS few FROM input"
    )
    assert columns(asked(shared_spark, text)) == [
        ("id", "id", "integer"),
        ("full_name", "full name", "string"),
        ("short", "short", "string"),
        ("name", "name", "string"),
        ("one", "one", "integer"),
        ("f", "f", "number"),
        ("nothing", "nothing", "string"),
        ("day", "day", "date"),
        ("n_n", "n n", "integer"),
        ("few", "few", "array"),
    ]


@pytest.mark.spark
def test_a_query_reads_the_answer_of_the_one_before(shared_spark: "SparkSession") -> None:
    first = "SELECT date(at) AS day, sum(amount) FROM input GROUP BY date(at)"
    found = asked(shared_spark, first, "SELECT max(`sum_amount_`) AS top FROM input")
    assert columns(found) == [("top", "top", "decimal")]
    assert found.schema.fields[0].type.precision == 20


@pytest.mark.spark
def test_names_that_were_given_stay_and_those_of_the_table_are_not_given(
    shared_spark: "SparkSession",
) -> None:
    text = "SELECT id AS `a b`, id AS _raw, id AS _penstock_id FROM input"
    found = asked(shared_spark, text, taken={"a b": "kept"}, reserved=("_raw",))
    names = [f.name for f in found.schema.fields]
    assert names[0] == "kept" and names[1].startswith("_raw_")
    assert names[2].startswith("_penstock_id_")
    assert found.names == dict(zip(("a b", "_raw", "_penstock_id"), names, strict=True))
    again = asked(shared_spark, text, taken=found.names, reserved=("_raw",))
    assert again == found


@pytest.mark.spark
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT nme FROM input", "`nme` cannot be resolved"),
        ("SELECT id,\n  nme\nFROM input", "(line 2, pos 2)"),
        ("SELECT id FROM input GROUP YB id", "(line 1, pos"),
        ("SELECT id FROM (SELECT * FROM input", "Syntax error at or near end of input"),
        ("SELECT id, count(*) FROM input", "GROUP BY"),
        ("SELECT * FROM input JOIN other USING (id)", "`other` cannot be found"),
        ("SELECT 1 AS input", "does not read the table input"),
        ("WITH input AS (SELECT 1 AS a) SELECT a FROM input", "does not read the table input"),
        ("SELECT id + at AS x FROM input", '"TIMESTAMP") (line 1, pos 7)'),
        ("SELECT nothing_like(id) FROM input", "nothing_like"),
        ("SELECT id, at AS id FROM input", "'id' comes 2 times"),
        ("SELECT map('a', id) AS m FROM input", "a type of no table; CAST"),
        ("SELECT array(INTERVAL 1 DAY) AS m FROM input", "a type of no table; CAST"),
        ("SELECT id FROM input WHERE id = :id", "parameter"),
        ("WITH x AS (SELECT * FROM input) INSERT INTO y SELECT * FROM x", "Syntax error"),
    ],
)
def test_a_query_that_spark_cannot_read_is_told_in_one_line(
    shared_spark: "SparkSession", capfd: pytest.CaptureFixture[str], query: str, words: str
) -> None:
    with pytest.raises(ConfigError) as found:
        asked(shared_spark, query)
    error = found.value
    assert error.code == "transform.query" and words in error.message, error.message
    for noise in ("\n", "org.apache", "SQLSTATE", "Project [", "_penstock_input", "missing ')'"):
        assert noise not in error.message
    assert error.hint == "the columns of input are: id, full_name, amount, at, doc"
    assert error.exit_code == 2 and error.problems == [error.message]
    assert capfd.readouterr() == ("", "")
    assert not [t for t in shared_spark.catalog.listTables() if "penstock" in t.name]


@pytest.mark.spark
def test_tokens_are_those_of_sparks_own_lexer(shared_spark: "SparkSession") -> None:
    """What were a comment or a text to us and code to Spark would hide code."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm  # pyright: ignore[reportPrivateUsage]
    parser, streams = jvm.org.apache.spark.sql.catalyst.parser, jvm.org.antlr.v4.runtime.CharStreams

    def sparks(query: str) -> list[tuple[str, str]]:
        lexer = parser.SqlBaseLexer(parser.UpperCaseCharStream(streams.fromString(query)))
        lexer.removeErrorListeners()
        names = lexer.getVocabulary()
        found = lexer.getAllTokens()
        tokens = [found.get(i) for i in range(found.size())]
        return [
            (names.getSymbolicName(t.getType()), t.getText()) for t in tokens if t.getChannel() == 0
        ]

    bits = [
        "'", '"', "`", "\\", "\n", "\r", "--", "/*", "*/", "/*+", "r'", 'R"', "a", "xr", "(", ")",
        " ", "''", "$", "://", "s3://x", "1", "1.5", "1e5", "1E+5", "2E+1D", "1.bd", "@", "\t",
        "\u017f", "\u00e9", "\u00a0", "\u2003", ";", "-", "/", "*", "+", "=>", "#",
    ]  # fmt: skip
    chance = random.Random(5)
    compared = 0
    for _ in range(1500):
        query = "".join(chance.choice(bits) for _ in range(chance.randint(2, 9)))
        found, problem = tokenize(query)
        theirs = [] if problem else sparks(query)
        if problem or any(kind == "UNRECOGNIZED" for kind, _ in theirs):
            continue  # refused, or no SQL
        compared += 1
        assert "".join(t.text for t in found) == "".join(text for _, text in theirs), query
        quoted = [t.text for t in found if t.kind in (TokenKind.text, TokenKind.quoted)]
        kinds = ("STRING_LITERAL", "DOUBLEQUOTED_STRING", "BACKQUOTED_IDENTIFIER")
        assert quoted == [text for kind, text in theirs if kind in kinds], query
    assert compared > 200


# -- at a load


def part(folder: Path, ids: list[int], at: int) -> str:
    """A part file of GIVEN, with the internal columns."""
    stamp = datetime.fromtimestamp(at, UTC)
    data = {
        "id": ids,
        "full_name": [f"n{i % 3}" for i in ids],
        "amount": [None] * len(ids),
        "at": [stamp] * len(ids),
        "doc": ["{}"] * len(ids),
    }
    arrays = [pa.array(data[f.name], arrow_type(f.type)) for f in GIVEN.fields]
    lists = pa.list_(pa.struct([(n, pa.string()) for n in ("field", "change", "reason")]))
    table = pa.table(arrays, names=[f.name for f in GIVEN.fields])
    table = table.append_column(SEQ, pa.array(ids, pa.int64()))
    table = table.append_column(RAW_ID, pa.array([f"u{i}" for i in ids]))
    table = table.append_column(
        EXTRACTED_AT, pa.array([stamp] * len(ids), pa.timestamp("us", "UTC"))
    )
    table = table.append_column(CHANGES, pa.array([[] for _ in ids], lists))
    path = folder / f"part [{at}].parquet"
    pq.write_table(table, path)
    return str(path).replace("[", "\\[").replace("]", "\\]")


def input_of(spark: "SparkSession", parts: list[str]) -> "DataFrame":
    if not parts:
        return spark.createDataFrame([], part_schema(GIVEN))
    return spark.read.schema(part_schema(GIVEN)).parquet(*parts)


def written(
    spark: "SparkSession", folder: Path, text: str, parts: list[str]
) -> list[dict[str, Any]]:
    given = input_of(spark, parts)
    to = folder / f"out-{threading.get_ident()}-{len(list(folder.glob('out*')))}"
    write(spark, queries(sections(text)), given, GIVEN, str(to), taken={}, reserved=())
    rows = [r for p in sorted(to.glob("*.parquet")) for r in pq.read_table(p).to_pylist()]
    return sorted(rows, key=lambda r: r[SEQ])


@pytest.mark.spark
def test_the_answer_is_over_all_parts_and_is_a_part_itself(
    shared_spark: "SparkSession", tmp_path: Path
) -> None:
    parts = [part(tmp_path, list(range(10)), 1000), part(tmp_path, list(range(5, 20)), 2000)]
    text = "SELECT full_name, count(DISTINCT id) AS n FROM input GROUP BY full_name ORDER BY 1 DESC"
    rows = written(shared_spark, tmp_path, text, parts)
    assert [(r["full_name"], r["n"]) for r in rows] == [("n2", 6), ("n1", 7), ("n0", 7)]
    assert {r[EXTRACTED_AT] for r in rows} == {datetime.fromtimestamp(2000, UTC)}
    assert len({r[RAW_ID] for r in rows}) == 3 and len({r[SEQ] for r in rows}) == 3
    assert all(r[CHANGES] == [] for r in rows)


@pytest.mark.spark
def test_nothing_read_is_an_empty_input(shared_spark: "SparkSession", tmp_path: Path) -> None:
    before = datetime.now(UTC)
    rows = written(shared_spark, tmp_path, "SELECT count(*) AS n FROM input", [])
    assert [r["n"] for r in rows] == [0] and rows[0][EXTRACTED_AT] >= before.replace(microsecond=0)


@pytest.mark.spark
def test_loads_side_by_side_read_their_own_input(
    shared_spark: "SparkSession", tmp_path: Path
) -> None:
    parts = {n: part(tmp_path, list(range(n)), 1000 + n) for n in (3, 5, 8)}
    found: dict[int, int] = {}

    def count(n: int) -> None:
        text = "SELECT count(*) AS n FROM input"
        found[n] = written(shared_spark, tmp_path, text, [parts[n]])[0]["n"]

    threads = [threading.Thread(target=count, args=(n,)) for n in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {3: 3, 5: 5, 8: 8}


@pytest.mark.spark
def test_a_query_that_fails_on_rows_is_told_without_their_values(
    shared_spark: "SparkSession", tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "SELECT CAST(concat('s3cret', full_name) AS INT) AS a FROM input"
    given = input_of(shared_spark, [part(tmp_path, [1], 1)])
    with pytest.raises(DestinationError) as found:
        write(
            shared_spark, [Query(text, "here")], given, GIVEN,
            str(tmp_path / "out"), taken={}, reserved=(),
        )  # fmt: skip
    error = found.value
    assert error.code == "transform.failed" and error.where == "here"
    assert text in error.message and "\n" not in error.message
    assert "s3cretn1" not in str(error.as_dict()) and "org.apache" not in error.message
    assert "cast" in error.message.lower()
    del capfd
