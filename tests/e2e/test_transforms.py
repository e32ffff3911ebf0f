"""Transforms between any source and any destination (issue 5, part 12; "SQL Transform" of the
protocol): what they make is what is loaded or pushed, and every source record is accounted for.

Sources are the Airbyte stub and the scripted component; every run is held against L8 by
``pipelines.Site.run``.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from connector_sites import Push
from pipelines import NAME, Ran, Site, changes_of
from wasm_sites import MANIFEST, StageEvent, WasmSite, component, numbered

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]
FULL = list(range(1, 101))
ONE = {"streams": 1}
DEDUP = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
APPEND = {"sync_mode": "incremental", "destination_sync_mode": "append"}


@pytest.fixture
def wasm(tmp_path: Path, shared_spark: "SparkSession") -> Callable[..., WasmSite]:
    del shared_spark
    made: list[WasmSite] = []

    def make(format: str = "parquet") -> WasmSite:
        folder = tmp_path / f"wasm-{len(made)}"
        made.append(WasmSite(folder, format, binary=component(MANIFEST)))
        return made[-1]

    return make


def sql(query: str) -> dict[str, Any]:
    return {"use": "transform-sql", "config": {"query": query}}


def validate(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"use": "transform-validate", "config": {"rules": list(rules)}}


def counted(ran: Ran, stream: str = "s0") -> tuple[str, int, int, int, int]:
    """(status, read, committed, rejected, filtered)."""
    s = ran.stream(stream)
    return s.status, s.read, s.committed, s.rejected, s.filtered


def series(ran: Ran, stream: str = "s0") -> dict[str, Any]:
    return {
        point["name"]: point["total"]
        for told in ran.report.metrics
        if told["stream"] == stream
        for point in told["series"]
        if "total" in point
    }


def refused(here: Site, **parts: Any) -> list[str]:
    """The problems of a pipeline that cannot run; nothing was read."""
    with pytest.raises(ConfigError) as raised:
        here.run(**parts)
    answer = here.cli("plan", str(here.write(**parts)), "--json")
    assert (answer.code, answer.json["problems"]) == (2, raised.value.problems), answer.err
    assert here.tables() == []
    return raised.value.problems


# -- transform-sql


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_l8_what_a_query_leaves_out_is_filtered(site: MakeSite, format: str) -> None:
    here = site(format, **ONE)
    query = "SELECT id, seq, upper(name) AS name, amount + 1 AS more FROM input WHERE seq % 2 = 0"
    first = here.run(transforms=[sql(query)], defaults=APPEND)
    assert first.exit_code == 0, first.error
    assert counted(first) == ("complete", 100, 50, 0, 50)
    rows = here.rows("s0")
    assert [row["seq"] for row in rows] == FULL[1::2]
    assert {n for n in rows[0] if not n.startswith("_")} == {"id", "seq", "name", "more"}
    assert rows[0]["name"] == rows[0]["name"].upper()
    assert here.saved() == {"s0": {"seq": 100}}, "the state is the source's, of all its records"
    second = here.run({"records": 120}, transforms=[sql(query)], defaults=APPEND)
    assert counted(second) == ("complete", 20, 10, 0, 10)
    assert here.seqs("s0") == list(range(2, 121, 2))


def test_change_lists_and_times_go_with_their_rows(site: MakeSite) -> None:
    """L9, through a query that leaves rows out and turns their order."""
    plain = site(scenario="changes", **ONE)
    plain.run()
    wanted = {row["seq"]: changes_of(row) for row in plain.rows("s0")}
    assert any(wanted.values())
    here = site(scenario="changes", **ONE)
    query = "SELECT seq, id, name AS called FROM input WHERE seq % 5 = 0 ORDER BY seq DESC"
    ran = here.run(transforms=[sql(query)])
    assert counted(ran) == ("complete", 100, 20, 0, 80), ran.error
    assert {row["seq"]: changes_of(row) for row in here.rows("s0")} == {
        seq: changes for seq, changes in wanted.items() if seq % 5 == 0
    }


def test_a_join_that_finds_nothing_loads_nothing_and_loses_nothing(site: MakeSite) -> None:
    here = site(**ONE)
    query = (
        "SELECT a.seq, a.id FROM input a JOIN (SELECT seq FROM input WHERE seq < 0) b "
        "ON a.seq = b.seq"
    )
    ran = here.run(transforms=[sql(query)])
    status, read, committed, rejected, filtered = counted(ran)
    assert (status, read, rejected) == ("complete", 100, 0), ran.error
    assert committed + filtered == 100
    assert ran.stream("s0").written == 0
    assert here.seqs("s0") == []


def test_a_query_that_groups_makes_fewer_rows_than_it_read(site: MakeSite) -> None:
    """Per batch, as v4 documents it; what was read is committed."""
    here = site(**ONE)
    ran = here.run(transforms=[sql("SELECT count(*) AS seq, sum(seq) AS total FROM input")])
    assert ran.stream("s0").read == ran.stream("s0").committed == 100
    rows = here.rows("s0")
    assert sum(row["seq"] for row in rows) == 100
    assert sum(row["total"] for row in rows) == sum(FULL)


def test_transforms_are_done_in_their_order(site: MakeSite) -> None:
    here = site(**ONE)
    chain = [
        sql("SELECT seq, id, seq * 2 AS twice FROM input WHERE seq <= 50"),
        validate({"assert_range": {"field": "twice", "max": 80}}),
        sql("SELECT seq, twice + 1 AS odd FROM input"),
    ]
    ran = here.run(transforms=chain)
    assert counted(ran) == ("complete", 100, 40, 10, 50), ran.error
    assert [(r["seq"], r["odd"]) for r in here.rows("s0")] == [(n, 2 * n + 1) for n in FULL[:40]]


def test_a_batch_that_a_query_cannot_compute_ends_its_stream(site: MakeSite) -> None:
    """L1: no state moves past it. The error gives the query and not the value."""
    here = site(**ONE)
    bad = "SELECT seq, id, CAST(name AS BIGINT) AS n FROM input"
    ran = here.run(transforms=[sql(bad)], defaults=APPEND)
    assert (ran.exit_code, ran.error["code"]) == (4, "transform.failed")
    assert "CAST(name AS BIGINT)" in ran.error["message"]
    assert "s0-" not in ran.error["message"]
    assert here.saved() == {}
    assert here.seqs("s0") == []
    good = here.run(transforms=[sql("SELECT seq, id FROM input")], defaults=APPEND)
    assert counted(good) == ("complete", 100, 100, 0, 0), good.error


# -- refused at plan


def test_an_unknown_column_is_a_problem_of_each_stream(site: MakeSite) -> None:
    here = site()
    problems = refused(here, transforms=[sql("SELECT seq, emial FROM input")])
    assert len(problems) == 2
    assert all("emial" in p for p in problems)
    assert "s0" in problems[0]
    assert "transforms[0].config.query" in problems[0]
    assert here.journal() == [], "nothing was read"


def test_a_dedup_key_that_a_query_renames_away_is_refused(site: MakeSite) -> None:
    here = site(**ONE)
    query = "SELECT id AS key, seq, name FROM input"
    problems = refused(here, transforms=[sql(query)], defaults=DEDUP)
    assert len(problems) == 1
    for text in ("s0", "primary key", "id", "after its transforms"):
        assert text in problems[0]
    ran = here.run(transforms=[sql("SELECT id, seq FROM input WHERE seq > 10")], defaults=DEDUP)
    assert counted(ran) == ("complete", 100, 90, 0, 10), ran.error


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (sql("SELECT 1 AS one"), "does not read the table input"),
        (sql("DROP TABLE input"), "refused"),
        (sql("COPY input TO '/tmp/x.csv'"), "refused"),
        (sql("SELECT * FROM '/etc/passwd'"), "transforms[0]"),
        (sql(" "), "query is empty"),
        ({"use": "transform-sql", "config": {"sql": "SELECT 1"}}, "unknown key 'sql'"),
        (validate({"assert_not_null": "nmae"}), "there is no column 'nmae'"),
        (validate({"assert_regex": {"field": "name", "pattern": "("}}), "pattern"),
        (validate({"assert_range": {"field": "name", "min": 1}}), "name"),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value)[:20],
)
def test_what_is_no_transform_is_refused(
    site: MakeSite, transform: dict[str, Any], words: str
) -> None:
    here = site(**ONE)
    problems = refused(here, transforms=[transform])
    assert any(words in p for p in problems), problems


# -- transform-validate

RULES = (
    {"assert_not_null": "name"},
    {"assert_range": {"field": "seq", "max": 90}},
)


@pytest.mark.parametrize("how", ["dlq", "skip", "fail"])
def test_rows_that_break_a_rule(site: MakeSite, how: str) -> None:
    """``on_data_error`` decides; the counts are in the report's metrics."""
    here = site(**ONE)
    ran = here.run(
        transforms=[validate(*RULES)], destination={"on_data_error": how}, defaults=APPEND
    )
    if how == "fail":
        assert (ran.exit_code, ran.error["code"]) == (4, "transform.validation_failed")
        assert "assert_range on seq" in ran.error["message"]
        assert ran.stream("s0").committed == len(here.seqs("s0"))
        return
    put_aside = (10, 0) if how == "dlq" else (0, 10)
    assert counted(ran) == ("complete", 100, 90, *put_aside), ran.error
    assert here.seqs("s0") == FULL[:90]
    assert here.saved() == {"s0": {"seq": 100}}
    counts = series(ran)
    assert counts["validation_rows_valid_total"] == 90
    assert counts["validation_rows_invalid_total"] == 10
    (failures,) = (n for name, n in counts.items() if name.startswith("validation_failures_total"))
    assert failures == 10
    rejects = here.rejects()
    assert len(rejects) == put_aside[0]
    if rejects:
        assert {(r["stream"], r["field"]) for r in rejects} == {("s0", "seq")}
        assert all("assert_range" in r["reason"] for r in rejects)
        assert sorted(json.loads(r["bytes"])["seq"] for r in rejects) == FULL[90:]
        assert json.loads(rejects[0]["bytes"])["name"].startswith("s0-")


@pytest.mark.parametrize("how", ["dlq", "skip", "fail"])
def test_a_bad_record_of_an_airbyte_source(site: MakeSite, how: str) -> None:
    """``on_data_error`` holds for what no record is, without any transform."""
    here = site(**ONE)
    steps: list[dict[str, Any]] = [
        {"records": {"stream": "s0", "from": 1, "to": 50}},
        {"line": '{"type": "RECORD", "record": {"stream": "s0", "data": 7, "emitted_at": 1}}'},
        {"records": {"stream": "s0", "from": 51, "to": 60}},
        {"state": {"stream": "s0", "state": {"seq": 60}}},
        {"status": {"stream": "s0", "status": "COMPLETE"}},
    ]
    ran = here.run({"steps": steps}, destination={"on_data_error": how}, defaults=APPEND)
    if how == "fail":
        assert ran.exit_code == 4
        assert ran.error["code"] == "source.data"
        assert here.saved() == {}
        return
    put_aside = (1, 0) if how == "dlq" else (0, 1)
    assert counted(ran) == ("complete", 61, 60, *put_aside), ran.error
    assert len(here.rejects()) == put_aside[0]


# -- after a component


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_after_a_component_columns_stay_columns(wasm: Callable[..., WasmSite], format: str) -> None:
    """The same transforms; rejects are the rows as JSON."""
    here = wasm(format)
    told = StageEvent()
    script = {"s0": [told.rows(1, 60), "at 60", told.rows(61, 100), "at 100"]}
    chain = [
        validate({"assert_range": {"field": "seq", "max": 95}}),
        sql("SELECT seq, lower(name) AS name FROM input WHERE seq % 2 = 1"),
    ]
    ran = here.run(config=told.config(script), transforms=chain, defaults=APPEND)
    assert ran.exit_code == 0, ran.error
    assert counted(ran) == ("complete", 100, 48, 5, 47)
    assert [(r["seq"], r["name"]) for r in here.rows("s0")] == [
        (n, f"n{n}") for n in range(1, 96, 2)
    ]
    assert sorted(json.loads(r["bytes"])["seq"] for r in here.rejects()) == FULL[95:]
    assert json.loads(here.rejects()[0]["bytes"])["name"].startswith("N")
    assert here.cursors() == {"s0": "100"}
    assert series(ran)["validation_rows_invalid_total"] == 5


def test_a_schema_that_changes_while_it_is_read_goes_through_the_query(
    wasm: Callable[..., WasmSite],
) -> None:
    here = wasm("delta")
    told = StageEvent()
    wider = numbered(51, 100, extra=pa.array([0.5] * 50))
    script = {"s0": [told.rows(1, 50), "at 50", told.frame(wider), "at 100"]}
    ran = here.run(
        config=told.config(script),
        transforms=[sql("SELECT *, seq * 10 AS ten FROM input WHERE seq <> 7")],
        defaults=APPEND,
    )
    assert ran.exit_code == 0, ran.error
    assert counted(ran) == ("complete", 100, 99, 0, 1)
    rows = here.rows("s0")
    assert [row["seq"] for row in rows] == [n for n in FULL if n != 7]
    assert [row["extra"] for row in rows] == [None] * 49 + [0.5] * 50
    assert [row["ten"] for row in rows] == [10 * row["seq"] for row in rows]


def test_a_new_schema_that_a_query_cannot_take_is_an_error_of_its_stream(
    wasm: Callable[..., WasmSite],
) -> None:
    """What had been covered before stays (L7)."""
    here = wasm()
    told = StageEvent()
    texts = pa.table({"seq": pa.array(range(51, 61), pa.int64()), "name": pa.array([[1]] * 10)})
    script = {"s0": [told.rows(1, 50), "at 50", told.frame(texts), "at 60"]}
    ran = here.run(
        config=told.config(script),
        transforms=[sql("SELECT seq, upper(name) AS name FROM input")],
        defaults=APPEND,
    )
    assert ran.exit_code != 0
    assert "upper" in json.dumps(ran.error)
    assert here.cursors() == {"s0": "50"}
    assert here.seqs("s0") == FULL[:50]


def test_a_failed_attempt_leaves_no_transformed_row_behind(
    wasm: Callable[..., WasmSite],
) -> None:
    here = wasm()
    told = StageEvent()
    script = {"s0": [told.rows(1, 50), "at 50", told.rows(51, 60), "fail 5 GONE 0 0 -1 -1"]}
    ran = here.run(
        config=told.config(script),
        transforms=[sql("SELECT seq FROM input WHERE seq % 2 = 0")],
        defaults=APPEND,
    )
    assert ran.exit_code == 4
    assert here.seqs("s0") == FULL[1:50:2]
    assert ran.stream("s0").committed == 25


# -- into a connector


@pytest.mark.parametrize("source", ["airbyte", "component"])
def test_a_target_is_given_what_the_transforms_made(
    site: MakeSite, wasm: Callable[..., WasmSite], source: str
) -> None:
    told = StageEvent()
    if source == "airbyte":
        there = Push(site(**ONE), "singer")
        parts: dict[str, Any] = {}
    else:
        there = Push(wasm(), "singer")
        rows = numbered(1, 100, id=pa.array(FULL, pa.int64()))
        columns = {"s0": [("seq", "Int64"), ("name", "Utf8"), ("id", "Int64")]}
        parts = {"use": there.site.connector()}
        script = {"s0": [told.frame(rows), "at 100"]}
        document = there.site.document

        def with_config(*args: Any, **kw: Any) -> dict[str, Any]:
            made = document(*args, **kw)
            made["source"]["config"] = told.config(script, columns)
            return made

        there.site.document = with_config  # type: ignore[method-assign]
    chain = [
        validate({"assert_range": {"field": "seq", "max": 95}}),
        sql("SELECT id, seq, upper(name) AS loud FROM input WHERE seq % 2 = 0"),
    ]
    ran = there.run(transforms=chain, **parts)
    assert ran.exit_code == 0, ran.error
    assert counted(ran) == ("complete", 100, 47, 5, 48)
    (run,) = there.runs()
    assert run.seqs("s0") == list(range(2, 96, 2))
    assert all(set(r) == {"id", "seq", "loud"} for r in map(_users, run.records("s0")))
    (schema,) = run.lines_of("SCHEMA")[:1]
    assert "loud" in schema["schema"]["properties"]
    assert "name" not in schema["schema"]["properties"]
    assert len(there.site.rejects()) == 5
    with there.site.store() as store:
        assert store.states(NAME), "acked, so saved"


def _users(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if not name.startswith("_")}
