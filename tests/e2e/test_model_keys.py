"""Reverse ETL: a key whose column has another type than when rows were sent. A type of a frame
follows from its values, so that the same keys come in another one on another day."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from model_sites import ModelSite
from pipelines import Ran

from penstock.engine.query import model_diff

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


class Mirrored:
    """A model of two columns, mirrored under its first one, ``id``."""

    def __init__(self, site: ModelSite) -> None:
        self.site = site

    def send(self, keys: pa.Array, *values: str, mode: str = "mirror", **config: Any) -> Ran:
        pq.write_table(pa.table({"id": keys, "v": pa.array(values, pa.string())}), self.site.users)
        defaults = {"mode": mode, "primary_key": [["id"]]}
        return self.site.read("SELECT * FROM {users}", defaults=defaults, config=config)

    def table(self) -> dict[Any, str]:
        return {row["id"]: row["v"] for row in self.site.rows("query", "id")}


@pytest.fixture
def mirrored(tmp_path: Path, shared_spark: "SparkSession") -> Callable[..., Mirrored]:
    del shared_spark
    made: list[Mirrored] = []

    def make(format: str = "parquet") -> Mirrored:
        made.append(Mirrored(ModelSite(tmp_path / f"mirrored-{len(made)}", format)))
        return made[-1]

    return make


Make = Callable[..., Mirrored]


def decimals(precision: int, scale: int, *values: str) -> pa.Array:
    return pa.array([Decimal(v) for v in values], pa.decimal128(precision, scale))


@pytest.mark.parametrize(
    ("keys", "later", "format"),
    [
        (
            pa.array([1, 2]),
            pa.array([1.0]),
            "delta",
        ),  # where one is missing, pandas makes them floats
        (decimals(2, 1, "1.0", "2.0"), decimals(1, 0, "1"), "delta"),
        (decimals(1, 0, "1", "2"), decimals(3, 2, "1.00"), "parquet"),
        (pa.array([1, 2], pa.int32()), pa.array([1], pa.int64()), "delta"),
        (pa.array([1, 2]), decimals(38, 0, "1"), "parquet"),
    ],
    ids=["to floats and back", "narrower", "other scale", "wider", "to decimals"],
)
def test_rows_that_are_gone_are_removed_though_the_keys_type_changed(
    mirrored: Make, keys: pa.Array, later: pa.Array, format: str
) -> None:
    here = mirrored(format)
    here.send(keys, "a", "b")
    ran = here.send(later, "a")
    assert ran.noted("rows 0 added, 0 changed, 1 removed, 1 as before, 0 refused")
    assert here.table() == {1: "a"}
    assert here.send(keys, "a", "b").noted("1 added, 0 changed, 0 removed, 1 as before")
    assert here.table() == {1: "a", 2: "b"}


@pytest.mark.parametrize(
    ("keys", "later"),
    [
        (decimals(1, 0, "1", "2"), decimals(2, 0, "1", "10")),
        (pa.array([1, 2], pa.int32()), pa.array([1, 2**40])),
    ],
    ids=["more digits", "more bits"],
)
def test_keys_that_the_old_type_cannot_hold_widen_what_was_sent(
    mirrored: Make, keys: pa.Array, later: pa.Array
) -> None:
    here = mirrored()
    here.send(keys, "a", "b")
    ran = here.send(later, "a", "c")
    assert ran.noted("rows 1 added, 0 changed, 1 removed, 1 as before, 0 refused")
    assert here.table() == {1: "a", later[1].as_py(): "c"}
    assert here.send(later, "a", "c").noted("0 added, 0 changed, 0 removed, 2 as before")
    assert Path(here.site.saved()["query"]["sets"][0][0]).name == "table"


def test_L9_a_key_that_its_column_cannot_hold_is_rejected_and_the_rest_goes_on(
    mirrored: Make,
) -> None:
    """What was sent is widened; the table's column keeps its type until ``--recreate``."""
    here = mirrored()
    here.send(pa.array([1, 2]), "a", "b")
    ran = here.send(pa.array([1, 2.5]), "a", "c")
    assert ran.noted("rows 1 added, 0 changed, 1 removed, 1 as before, 0 refused")
    assert (ran.report.streams[0].rejected, here.table()) == (1, {1: "a"})
    [reject] = here.site.rejects()
    assert "--recreate" in reject["reason"] and "2.5" in str(reject), reject


def test_keys_that_neither_type_holds_are_other_keys(mirrored: Make) -> None:
    """L9: 2^53 + 1 is no floating-point number; nothing is removed by a rounded one."""
    here = mirrored()
    here.send(pa.array([1, 2**53 + 1]), "a", "b")
    ran = here.send(pa.array([1.5, 2.0**53]), "c", "d")
    assert ran.noted("a column of its primary key has another type now")
    assert ran.noted("rows 2 added, 0 changed, 0 removed")


@pytest.mark.parametrize(
    ("keys", "empty"),
    [
        (pa.array([1, 2]), pa.null()),
        (pa.array(["x", "y"]), pa.float64()),
        (pa.array([1, 2]), pa.int64()),
    ],
    ids=["number null", "text double", "number as before"],
)
def test_a_model_without_rows_is_empty_whatever_its_keys_type(
    mirrored: Make, keys: pa.Array, empty: pa.DataType
) -> None:
    """A frame without rows has no types: it is no other key, and removes nothing unasked (L6)."""
    here = mirrored()
    here.send(keys, "a", "b")
    refused = here.send(pa.array([], empty))
    assert refused.exit_code != 0 and refused.error["code"] == "source.empty_model"
    assert len(here.table()) == 2
    assert here.send(pa.array([], empty), allow_empty=True).noted("2 removed")
    assert here.table() == {}


def test_many_sets_and_other_types_are_written_as_one(
    mirrored: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_diff, "MOST_SETS", 1)
    here = mirrored()
    for value in ("a", "b", "c"):
        here.send(pa.array([1, 2]), value, "x")
    assert [Path(s).name for s, _ in here.site.saved()["query"]["sets"]] == ["table", "changes"]
    assert here.table() == {1: "c", 2: "x"}
    assert not here.send(pa.array([1, 2]), "c", "x").stream("query").read
    (snapshots,) = here.site.home.path.glob("**/snapshots/*")
    assert len(list(snapshots.iterdir())) <= 2, "old sets are removed by the next run"
    assert here.send(pa.array([1.0, 2.5]), "c", "y").noted("1 added, 0 changed, 1 removed, 1 as")
    assert here.send(pa.array([1]), "d").noted("0 added, 1 changed, 1 removed, 0 as before")
    assert here.table() == {1: "d"}
