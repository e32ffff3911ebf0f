"""Reverse ETL through transforms that leave rows out: what did not go out is not sent, and in
``mirror`` a row that leaves the filter is deleted (issue 35, B2)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from connector_sites import stub
from model_sites import ModelSite
from pipelines import Ran

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ACTIVE = "SELECT * FROM input WHERE active"
Row = tuple[int, bool | None, str | None]


def sql(query: str) -> dict[str, Any]:
    return {"use": "transform-sql", "config": {"query": query}}


def rules(*found: dict[str, Any]) -> dict[str, Any]:
    return {"use": "transform-validate", "config": {"rules": list(found)}}


class Model:
    """A model of rows (id, active, v), with the id as its key."""

    def __init__(self, site: ModelSite) -> None:
        self.site = site
        self.rows: list[Row] = []

    def send(self, mode: str, *transforms: dict[str, Any], **parts: Any) -> Ran:
        schema = [("id", "int64"), ("active", "bool"), ("v", "string")]
        rows = [{"id": i, "active": a, "v": v} for i, a, v in self.rows]
        self.site.give(*rows, schema=schema)
        defaults = {"mode": mode, "primary_key": [["id"]], **parts.pop("defaults", {})}
        query = parts.pop("query", "SELECT * FROM {users}")
        ran = self.site.read(query, defaults=defaults, transforms=[*transforms], **parts)
        assert ran.exit_code == 0, (ran.error, ran.notes)
        return ran

    def day(self, *rows: Row) -> "Model":
        self.rows = [*rows]
        return self

    def table(self) -> list[tuple[int, str | None]]:
        return [(row["id"], row["v"]) for row in self.site.rows("query", "id")]


@pytest.fixture
def model(tmp_path: Path, shared_spark: "SparkSession") -> Callable[..., Model]:
    del shared_spark
    made: list[Model] = []

    def make(format: str = "parquet") -> Model:
        made.append(Model(ModelSite(tmp_path / f"model-{len(made)}", format)))
        return made[-1]

    return make


MakeModel = Callable[..., Model]


def counted(ran: Ran) -> tuple[int, int, int, int]:
    """(read, committed, rejected, filtered)."""
    s = ran.stream("query")
    return s.read, s.committed, s.rejected, s.filtered


def test_a_row_that_leaves_the_filter_is_deleted(model: MakeModel) -> None:
    """drt#340. Whatever a day brings, the table has what passes the filter."""
    here = model()
    days: list[tuple[list[Row], list[int]]] = [
        ([(1, True, "a"), (2, True, "b"), (3, True, "c"), (4, False, "d")], [1, 2, 3]),
        ([(1, True, "a"), (2, False, "b"), (3, True, "c"), (4, False, "d")], [1, 3]),
        ([(1, True, "a"), (2, False, "x"), (4, True, "d")], [1, 4]),
        ([(1, True, "a"), (2, True, "x"), (4, None, "d")], [1, 2]),
        ([(1, True, "a"), (2, False, "x")], [1]),
        ([(1, True, "a")], [1]),
    ]
    for rows, wanted in days:
        here.day(*rows).send("mirror", sql(ACTIVE))
        assert [key for key, _ in here.table()] == wanted, rows
    assert counted(here.send("mirror", sql(ACTIVE))) == (0, 0, 0, 0), "nothing is as it was not"


def test_a_stricter_filter_deletes_and_a_laxer_one_sends(model: MakeModel) -> None:
    """Rows that did not change; none is sent again."""
    here = model()
    here.day((1, True, "a"), (2, True, "b"), (3, False, "c"))
    here.send("mirror", sql(ACTIVE))
    stricter = here.send("mirror", sql(f"{ACTIVE} AND v <> 'b'"))
    assert here.table() == [(1, "a")]
    assert stricter.stream("query").committed == 1, "the delete of 2 alone"
    laxer = here.send("mirror", sql("SELECT * FROM input WHERE v <> 'a'"))
    assert here.table() == [(2, "b"), (3, "c")]
    assert laxer.stream("query").committed == 3
    without = here.send("mirror")
    assert here.table() == [(1, "a"), (2, "b"), (3, "c")]
    assert counted(without) == (1, 1, 0, 0)


def test_a_filter_by_the_time_is_tried_each_day(model: MakeModel) -> None:
    here = model()
    filter = "SELECT * FROM input WHERE now() < CAST(v AS TIMESTAMP)"
    here.day((1, True, "2199-01-01"), (2, True, "2199-01-01"), (3, True, "2001-01-01"))
    here.send("mirror", sql(filter))
    assert [key for key, _ in here.table()] == [1, 2]
    again = here.send("mirror", sql(filter))
    assert again.stream("query").committed == 0, "what passes is not sent again"
    assert [key for key, _ in here.table()] == [1, 2]


def test_insert_sends_a_row_once_it_passes(model: MakeModel) -> None:
    """Filtered, or rejected by a rule: it never went out, so that it is new when it passes."""
    here = model()
    chain = [sql(ACTIVE), rules({"assert_not_null": "v"})]
    here.day((1, True, "a"), (2, False, "b"), (3, True, None))
    assert counted(here.send("insert", *chain)) == (3, 1, 1, 1)
    assert counted(here.send("insert", *chain)) == (0, 0, 0, 0), "none of them has changed"
    here.day((1, True, "changed"), (2, True, "b"), (3, True, "c"))
    assert counted(here.send("insert", *chain)) == (2, 2, 0, 0)
    assert here.table() == [(1, "a"), (2, "b"), (3, "c")]
    assert counted(here.send("insert", *chain)) == (0, 0, 0, 0)


def test_insert_sends_what_a_filter_left_out_under_another_filter(model: MakeModel) -> None:
    here = model()
    here.day((1, True, "a"), (2, False, "b"))
    here.send("insert", sql(ACTIVE))
    assert counted(here.send("insert", sql("SELECT * FROM input"))) == (1, 1, 0, 0)
    assert here.table() == [(1, "a"), (2, "b")]
    assert counted(here.send("insert", sql("SELECT * FROM input"))) == (0, 0, 0, 0)


@pytest.mark.parametrize("mode", ["upsert", "update"])
def test_what_was_left_out_is_sent_when_it_passes(model: MakeModel, mode: str) -> None:
    """A change of a row that changes again; a new row, under another filter."""
    here = model()
    here.day((1, True, "a"), (2, True, "b"), (3, False, "z")).send(mode, sql(ACTIVE))
    here.day((1, True, "a"), (2, False, "c"), (3, False, "z")).send(mode, sql(ACTIVE))
    assert here.table() == [(1, "a"), (2, "b")], "only mirror removes"
    here.day((1, True, "a"), (2, True, "c"), (3, False, "z"))
    passes = here.send(mode, sql(ACTIVE))
    assert here.table() == [(1, "a"), (2, "c")]
    assert counted(passes) == (1, 1, 0, 0)
    other = here.send(mode, sql("SELECT * FROM input"))
    assert counted(other) == (1, 1, 0, 0), "3 alone"
    assert here.table() == [(1, "a"), (2, "c"), (3, "z")]


def test_a_rule_that_rejects_a_change_keeps_the_row_of_mirror(model: MakeModel) -> None:
    """A reject is no row that is gone; its removal passes the rule later."""
    here = model("delta")
    rule, all_of_them = rules({"assert_not_null": "v"}), {"max_rejected": "100%"}
    here.day((1, True, "a"), (2, True, "b")).send("mirror", rule)
    here.day((1, True, "a"), (2, True, None))
    assert counted(here.send("mirror", rule, defaults=all_of_them)) == (1, 0, 1, 0)
    assert here.table() == [(1, "a"), (2, "b")]
    assert counted(here.send("mirror", rule)) == (0, 0, 0, 0)
    here.day((1, True, "a"))
    assert counted(here.send("mirror", rule)) == (1, 1, 0, 0)
    assert here.table() == [(1, "a")]


KNOWS_REMOVALS = {
    "type": "object",
    "properties": {"_ab_cdc_deleted_at": {"type": ["string", "null"], "format": "date-time"}},
}


def test_a_connector_is_sent_the_removal_with_its_key_alone(model: MakeModel) -> None:
    here = model()
    sink = here.site.folder / "sink.jsonl"
    told = {"sink": str(sink), "row_type": KNOWS_REMOVALS}
    to = {"use": f"syncmaven:{stub('stub_syncmaven.py', json.dumps(told))}", "config": {}}

    def sent() -> list[dict[str, Any]]:
        sink.unlink(missing_ok=True)
        here.send("mirror", sql(ACTIVE), destination=to)
        lines = sink.read_text().splitlines() if sink.exists() else []
        rows = [m["payload"]["row"] for m in map(json.loads, lines) if m["type"] == "row"]
        return sorted(rows, key=lambda row: row["id"])

    here.day((1, True, "a"), (2, True, "b"), (3, False, "c"))
    assert [row["id"] for row in sent()] == [1, 2]
    here.day((1, True, "a"), (2, False, "b"))
    (gone,) = sent()
    assert gone["id"] == 2 and gone["_ab_cdc_deleted_at"]
    assert gone.get("v") is None and gone.get("active") is None
    assert sent() == []


def test_a_query_that_cannot_let_deletes_pass_is_noted(model: MakeModel) -> None:
    here = model()
    grouped = "SELECT id, max(v) AS v, max(_ab_cdc_deleted_at) AS _ab_cdc_deleted_at FROM input"
    here.day((1, True, "a"))
    ran = here.send("mirror", sql(f"{grouped} GROUP BY id"))
    ran.noted("a row with _ab_cdc_deleted_at deletes the row of its key")
    ran.noted("counts as sent")
    plain = here.send("mirror", sql(ACTIVE))
    assert not [n for n in plain.notes if "deletes the row of its key" in n]
