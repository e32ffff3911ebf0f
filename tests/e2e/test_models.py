"""A query, a table or files of Spark as a source (issue 12, part 5): every row once, each type as
it is, through transforms, rejects and states like the rows of any connector."""

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connector_sites import Push
from model_sites import ModelSite
from pipelines import Site

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]
UTC = datetime.UTC


@pytest.fixture
def models(tmp_path: Path, shared_spark: "SparkSession") -> Callable[..., ModelSite]:
    del shared_spark
    made: list[ModelSite] = []

    def make(format: str = "parquet") -> ModelSite:
        made.append(ModelSite(tmp_path / f"model-{len(made)}", format))
        return made[-1]

    return make


MakeModels = Callable[..., ModelSite]
TYPES = """
SELECT CAST(id AS INT) AS id,
       CAST(id * 1.25 AS DECIMAL(20, 4)) AS price,
       CAST('99999999999999999999999999999999999.999' AS DECIMAL(38, 3)) AS big,
       TIMESTAMP '2026-01-02 03:04:05.123456' AS at,
       TIMESTAMP_NTZ '2026-01-02 03:04:05.654321' AS wall,
       DATE '1582-10-15' AS day,
       CAST('abc' AS BINARY) AS bytes,
       named_struct('a', 1, 'b', array('x', NULL)) AS nested,
       array(named_struct('n', CAST(1.5 AS DECIMAL(5, 2)))) AS list,
       map('k', id) AS pairs,
       map('t', TIMESTAMP '2026-01-02 03:04:05.123456') AS times,
       map('t', TIMESTAMP_NTZ '2026-01-02 03:04:05.654321') AS walls,
       parse_json('{"v": [1, null]}') AS variant,
       CAST(NULL AS STRING) AS empty,
       CAST(0.5 AS FLOAT) AS half,
       id = 1 AS truth,
       NULL AS nothing,
       INTERVAL '1' DAY AS gap,
       'Zoë\u2028"' AS `odd name`
FROM range(1, 4)
"""


def test_every_type_of_spark_comes_as_it_is(models: MakeModels) -> None:
    here = models()
    ran = here.read(TYPES)
    assert ran.counts("query") == ("complete", 3, 3, 0)
    rows = here.rows("query", "id")
    assert [row["id"] for row in rows] == [1, 2, 3]
    first = rows[0]
    assert (first["price"], first["big"]) == (
        Decimal("1.2500"), Decimal("99999999999999999999999999999999999.999"),
    )  # fmt: skip
    assert first["at"].astimezone(UTC) == datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, UTC)
    assert first["wall"] == datetime.datetime(2026, 1, 2, 3, 4, 5, 654321)
    assert first["day"] == datetime.date(1582, 10, 15)
    assert (first["bytes"], first["half"], first["truth"]) == (b"abc", 0.5, True)
    assert first["nested"] == {"a": 1, "b": ["x", None]}
    assert first["list"] == [{"n": Decimal("1.50")}]
    assert json.loads(first["pairs"]) == {"k": 1}
    assert json.loads(first["times"]) == {"t": "2026-01-02T03:04:05.123456Z"}
    assert json.loads(first["walls"]) == {"t": "2026-01-02T03:04:05.654321"}
    assert json.loads(first["variant"]) == {"v": [1, None]}
    assert (first["empty"], first["nothing"]) == (None, None)
    assert first["odd_name"] == 'Zoë\u2028"' and "1" in first["gap"]
    assert ran.guarantee == "exactly-once" and not here.rejects()


def test_a_dry_run_says_how_many_rows_would_be_sent_and_shows_five(models: MakeModels) -> None:
    here = models()
    ran = here.read("SELECT id, 'a' AS text FROM range(1000)", dry_run=True)
    assert ran.noted("query: 1,000 rows would be sent")
    shown = [json.loads(n.partition(": row: ")[2]) for n in ran.notes if ": row: " in n]
    assert len({row["id"] for row in shown} & set(range(1000))) == 5
    assert {row["text"] for row in shown} == {"a"}
    assert not here.tables() and not here.saved()


def test_a_full_read_replaces_the_table_and_leaves_nothing_staged(models: MakeModels) -> None:
    here = models("delta")
    for last in (5, 3):
        ran = here.read(f"SELECT id AS seq FROM range({last})")
        assert ran.counts("query") == ("complete", last, last, 0)
        assert here.seqs("query") == list(range(last))
    assert not list(here.home.path.rglob("model"))


def test_a_column_that_changes_its_case_is_noted(models: MakeModels) -> None:
    here = models()
    assert not here.read("SELECT id AS seq FROM range(2)").notes
    assert here.read("SELECT id AS SEQ FROM range(2)").noted("the column seq is SEQ now")
    assert not here.read("SELECT id AS SEQ FROM range(2)").notes


def test_columns_that_are_never_null_stay_so(models: MakeModels) -> None:
    """L9: proved, not believed."""
    here = models()
    here.read("SELECT id, 'a' AS text, nullif(id, 9) AS maybe FROM range(3)")
    with here.store() as store:
        from penstock.model.catalog import StreamId

        schema = store.newest_schemas("e2e", [StreamId(None, "query")])
    (found,) = schema.values()
    assert found.required == {"id", "text"}


def test_rows_pass_transforms_and_keys_that_are_null_are_rejects(models: MakeModels) -> None:
    here = models()
    batch = {"use": "transform-sql", "config": {"query": "SELECT id, n * 2 AS n FROM input"}}
    ran = here.read(
        "SELECT nullif(id, 2) AS id, id AS n FROM range(5)",
        transforms=[batch],
        defaults={"mode": "full_refresh_overwrite_deduped", "primary_key": [["id"]]},
    )
    assert ran.counts("query") == ("complete", 5, 4, 1)
    assert [(r["id"], r["n"]) for r in here.rows("query", "id")] == [(0, 0), (1, 2), (3, 6), (4, 8)]
    (reject,) = here.rejects()
    assert reject["stream"] == "query" and "id" in reject["reason"] + (reject["field"] or "")


def test_a_connector_is_fed_a_models_rows(models: MakeModels) -> None:
    """L1, into any destination connector."""
    here = models()
    push = Push(here, "singer")
    ran = here.read(
        "SELECT id AS seq FROM range(1000)", destination={"use": push.destination(), "config": {}},
    )  # fmt: skip
    assert ran.counts("query") == ("complete", 1000, 1000, 0), ran.error
    assert ran.stream("query").target == "e2e"  # the pipeline's name, not `query`


def test_the_cursor_is_bound_and_moves_with_what_is_committed(models: MakeModels) -> None:
    here = models()
    query = "SELECT * FROM {users} WHERE :cursor IS NULL OR at > :cursor"
    keys = {"defaults": {"cursor_field": "at", "primary_key": [["id"]]}}
    when = [datetime.datetime(2026, 1, 1, h, 0, 0, 1, UTC) for h in range(4)]
    here.give(*({"id": i, "at": when[i]} for i in range(3)))
    assert here.read(query, **keys).counts("query") == ("complete", 3, 3, 0)
    assert here.saved()["query"]["cursor"] == "2026-01-01T02:00:00.000001Z"
    assert here.read(query, **keys).counts("query") == ("complete", 0, 0, 0)
    here.give(*({"id": i, "at": when[i]} for i in range(4)))
    assert here.read(query, **keys).counts("query") == ("complete", 1, 1, 0)
    assert [row["id"] for row in here.rows("query", "id")] == [0, 1, 2, 3]
    again = here.read(query, full_refresh=True, **keys)
    assert again.counts("query") == ("complete", 4, 4, 0)
    assert [row["id"] for row in here.rows("query", "id")] == [0, 1, 2, 3]


def test_a_cursor_of_floating_point_numbers_passes_no_row_over(models: MakeModels) -> None:
    """0.7 as a FLOAT is less than 0.7 as a DOUBLE, and NaN is more than any number."""
    here = models()
    floats = "SELECT id, CAST(at AS FLOAT) AS at FROM {users}"
    query = f"SELECT * FROM ({floats}) WHERE :cursor IS NULL OR at >= :cursor"
    keys = {"defaults": {"cursor_field": "at", "primary_key": [["id"]]}}
    here.give({"id": 1, "at": 0.7}, {"id": 2, "at": float("nan")})
    assert here.read(query, **keys).counts("query") == ("complete", 2, 2, 0)
    here.give({"id": 1, "at": 0.7}, {"id": 3, "at": 0.7}, {"id": 4, "at": 0.8})
    assert here.read(query, **keys).counts("query") == ("complete", 3, 3, 0)


def test_a_strict_comparison_of_floating_point_numbers_may_repeat_rows(models: MakeModels) -> None:
    """NaN is above every saved cursor and is none itself: its row comes in each run."""
    here = models()
    query = "SELECT id, at FROM {users} WHERE :cursor IS NULL OR at > :cursor"
    append = {"defaults": {"cursor_field": "at", "mode": "incremental_append"}}
    given = [{"id": 1, "at": 0.5}, {"id": 2, "at": float("nan")}]
    for ids in ([1, 2], [1, 2, 2, 3]):
        here.give(*given)
        assert here.read(query, **append).guarantee == "at-least-once"
        assert [row["id"] for row in here.rows("query", "id")] == ids
        given.append({"id": 3, "at": 0.7})


@pytest.mark.parametrize("value", ["'; DROP TABLE it's; --", "ü\\"])
def test_a_cursor_of_text_is_never_part_of_the_query(models: MakeModels, value: str) -> None:
    here = models()
    query = "SELECT * FROM {users} WHERE :cursor IS NULL OR name > :cursor"
    keys = {"defaults": {"cursor_field": "name", "destination_sync_mode": "append"}}
    here.give({"name": value})
    assert here.read(query, **keys).counts("query")[1] == 1
    assert here.read(query, **keys).counts("query")[1] == 0


def test_a_fault_of_the_query_is_in_sparks_words_with_its_line(models: MakeModels) -> None:
    here = models()
    with pytest.raises(ConfigError) as told:
        here.read("SELECT id,\n       nme\nFROM range(3)")
    assert told.value.code == "source.query" and "`nme`" in told.value.message
    assert "line 2, pos 7" in told.value.message


def test_a_query_that_fails_on_its_rows_changes_nothing(models: MakeModels) -> None:
    """L6: the table keeps its rows."""
    here = models()
    here.read("SELECT id AS seq FROM range(3)")
    ran = here.read("SELECT 10 DIV (id - 3) AS seq FROM range(5)")
    assert ran.exit_code != 0 and ran.error["code"] == "source.query_failed"
    assert "zero" in ran.error["message"].lower()
    assert here.seqs("query") == [0, 1, 2]


def test_a_dry_run_keeps_nothing(models: MakeModels) -> None:
    here = models()
    ran = here.read("SELECT id AS seq FROM range(100)", limit=7)
    assert ran.stream("query").read == 7
    assert here.tables() == []


def test_plan_starts_no_jvm_and_knows_the_columns_of_the_last_run(models: MakeModels) -> None:
    here = models()
    here.give({"id": 1})
    use = f"spark:SELECT * FROM parquet.`{here.users}`"
    path = str(here.write(use=use))
    first = here.cli("plan", path, "--json", JAVA_HOME="/nowhere").json
    assert first["problems"] == []
    assert any("Spark reads the query when the pipeline runs" in n for n in first["notes"])
    here.run(use=use)
    second = here.cli("plan", path, "--json", JAVA_HOME="/nowhere").json
    assert [c["name"] for c in second["streams"][0]["columns"]] == ["id"]


@pytest.mark.parametrize(
    "transform",
    [
        {"use": "transform-sql", "config": {"query": "SELECT id FROM input WHERE active"}},
        {"use": "transform-validate", "config": {"rules": [{"assert_not_null": "active"}]}},
    ],
)
def test_B5_plan_of_a_new_model_with_a_transform_is_a_note(
    models: MakeModels, transform: dict[str, Any]
) -> None:
    here = models()
    here.give({"id": 1, "active": True}, {"id": 2, "active": False})
    parts = {
        "use": f"spark:SELECT * FROM parquet.`{here.users}`",
        "transforms": [transform],
        "defaults": {"primary_key": [["id"]], "mode": "upsert"},
    }
    path = str(here.write(**parts))
    first = here.cli("plan", path, "--json", JAVA_HOME="/nowhere")
    assert first.code == 0 and first.json["problems"] == []
    assert any("its transforms are planned then" in n for n in first.json["notes"])
    assert here.run(**parts).status == "succeeded"
    second = here.cli("plan", path, "--json", JAVA_HOME="/nowhere")
    assert second.code == 0, second.json
    assert "id" in [c["name"] for c in second.json["streams"][0]["columns"]]
    assert any("those of the last run" in n for n in second.json["notes"])


def test_files_and_tables_are_sources_by_their_names(
    models: MakeModels, shared_spark: "SparkSession"
) -> None:
    here = models()
    (here.folder / "people.csv").write_text('id,name\n1,Ann\n2,"O\'Neil, Bob"\n')
    ran = here.run(use=f"spark:{here.folder}/people.csv")
    assert ran.counts("people") == ("complete", 2, 2, 0)
    assert [r["name"] for r in here.rows("people", "id")] == ["Ann", "O'Neil, Bob"]
    shared_spark.range(4).createOrReplaceTempView("some_view")
    other = models()
    assert other.run(use="spark:some_view").counts("some_view")[1] == 4
    shared_spark.catalog.dropTempView("some_view")


def parts(here: ModelSite, *tables: dict[str, pa.Array]) -> str:
    """A folder with one Parquet file for each of the tables, in the order of their names."""
    folder = here.folder / "parts"
    folder.mkdir()
    for index, table in enumerate(tables):
        pq.write_table(pa.table(table), folder / f"{index}.parquet")
    return f"spark:{folder}"


@pytest.mark.parametrize("glob", ["", "/*.parquet"])
def test_a_folder_has_the_columns_of_all_its_files(models: MakeModels, glob: str) -> None:
    """A column that only a later file has is no less there than the others."""
    here = models()
    use = parts(
        here,
        {"id": pa.array([1]), "name": pa.array(["a"])},
        {"email": pa.array(["b@x"]), "id": pa.array([2]), "name": pa.array(["b"])},
        {"id": pa.array([3]), "gone": pa.array([0.5])},
    )
    ran = here.run(use=use + glob, config={"stream": "parts"})
    assert ran.counts("parts") == ("complete", 3, 3, 0)
    columns = ("id", "name", "email", "gone")
    assert [tuple(row[c] for c in columns) for row in here.rows("parts", "id")] == [
        (1, "a", None, None), (2, "b", "b@x", None), (3, None, None, 0.5),
    ]  # fmt: skip


PAIRS: dict[str, tuple[pa.Array, pa.Array]] = {  # values of a column in two files
    "integers": (pa.array([1], pa.int32()), pa.array([2**40], pa.int64())),
    "floats": (pa.array([1.5], pa.float32()), pa.array([0.1], pa.float64())),
    "integer_and_float": (pa.array([7], pa.int16()), pa.array([0.1], pa.float64())),
    "decimals": (
        pa.array([Decimal("1.5")], pa.decimal128(3, 1)),
        pa.array([Decimal("12345678.25")], pa.decimal128(20, 2)),
    ),
    "integer_and_decimal": (
        pa.array([5], pa.int32()),
        pa.array([Decimal("1.5")], pa.decimal128(20, 1)),
    ),
    "no_text": (pa.nulls(1), pa.array(["x"])),
    "no_number": (pa.nulls(1), pa.array([0.5])),
    "no_list": (pa.nulls(1), pa.array([[1]])),
}


@pytest.mark.parametrize("order", [1, -1])
def test_a_column_of_a_folder_has_the_widest_type_of_its_files(
    models: MakeModels, order: int
) -> None:
    """Of a column in which a file has no value, Arrow writes that it has no type."""
    here = models()
    one, other = ({name: pair[at] for name, pair in PAIRS.items()} for at in (0, 1))
    tables = [{"id": pa.array([1]), **one}, {**other, "id": pa.array([2])}]
    ran = here.run(use=parts(here, *tables[::order]))
    assert ran.counts("parts") == ("complete", 2, 2, 0)
    first, second = here.rows("parts", "id")
    for name, (narrow, wide) in PAIRS.items():
        assert (first[name], second[name]) == (narrow[0].as_py(), wide[0].as_py()), name


def test_types_without_a_common_one_are_named_with_their_file(models: MakeModels) -> None:
    here = models()
    use = parts(here, {"id": pa.array([1])}, {"id": pa.array([2**60])}, {"id": pa.array(["x"])})
    with pytest.raises(ConfigError) as told:
        here.run(use=use)
    assert told.value.code == "source.query"
    assert "'id'" in told.value.message and "2.parquet" in told.value.message


def test_times_of_nanoseconds_are_refused_with_the_setting_that_reads_them(
    models: MakeModels,
) -> None:
    here = models()
    use = parts(
        here, {"id": pa.array([1]), "at": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns"))}
    )
    with pytest.raises(ConfigError) as told:
        here.run(use=use)
    assert told.value.code == "source.query" and "nanosAsLong" in told.value.message


def test_files_that_cannot_be_read_are_a_fault_of_the_query(models: MakeModels) -> None:
    """L6, and no dead end: the message names the file, and the table keeps its rows."""
    here = models()
    use = parts(here, {"v": pa.array([1], pa.int32())})
    assert here.run(use=use).counts("parts")[1] == 1
    pq.write_table(pa.table({"v": pa.array(["x"])}), here.folder / "parts" / "1.parquet")
    query = f"spark:SELECT * FROM parquet.`{here.folder}/parts`"
    ran = here.run(use=query, config={"stream": "parts"})
    assert (ran.exit_code, ran.error["code"]) == (4, "source.query_failed")
    assert "parquet" in ran.error["message"] and " at org." not in ran.error["message"]
    assert len(here.rows("parts", "v")) == 1


def test_relative_paths_count_from_where_penstock_was_started(
    models: MakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = models()
    here.give({"id": 1}, {"id": 2})
    monkeypatch.chdir(here.folder)
    assert here.run(use="spark:SELECT * FROM parquet.`./users.parquet`").counts("query")[1] == 2


def test_the_command_line_runs_a_query(quiet: Site) -> None:
    done = quiet.cli(
        "run", "spark:SELECT id, upper('a') AS a FROM range(10)", "parquet:./out",
        "--config", '{"stream": "numbers"}', "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.json["streams"][0]["committed"] == 10
    found = duckdb.sql(f"SELECT count(*) FROM '{quiet.folder}/out/numbers/*.parquet'").fetchall()
    assert found == [(10,)]
