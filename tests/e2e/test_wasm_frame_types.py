"""A destination that compares frames with its table, as v4's Postgres destination does, goes on
with a table that v4 made: columns have the types of the source's frames."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from wasm_ends import INCREMENTAL, Ends, Heard, Peer, obedient
from wasm_sites import MANIFEST, StageEvent, component

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FATAL = {"category": 7, "retryable": False, "safe": False}  # a schema error
TYPES = {
    "int16": "smallint", "int32": "integer", "int64": "bigint", "float": "real",
    "double": "double precision", "string": "text", "timestamp[us]": "timestamp",
    "date32[day]": "date",
}  # fmt: skip


class Table:
    """What v4's Postgres destination makes of frames for a table that is there, under
    ``type_change: fail``. ``drifts``: columns whose type is another one; ``rows``: what it took."""

    def __init__(self, **columns: str) -> None:
        self.columns = columns
        self.drifts: list[tuple[str, str, str]] = []
        self.rows: list[dict[str, object]] = []

    def __call__(self, heard: Heard) -> str:
        if heard.kind == "B":
            policies = json.loads(heard.body)["policies"]
            assert policies["schema_evolution"]["type_change"] == "fail"
        if heard.kind != "F":
            return "k"
        frame = pa.ipc.open_stream(heard.body).read_all()
        frame.validate(full=True)
        for field in frame.schema:
            made, came = self.columns[field.name], TYPES.get(str(field.type), "text")
            if made != came:
                self.drifts.append((field.name, made, came))
        if self.drifts:
            return "f"
        self.rows += frame.to_pylist()
        return "c"


def frame(first: int, last: int) -> pa.Table:
    seqs = range(first, last + 1)
    return pa.table({
        "seq": pa.array(seqs, pa.int32()),
        "small": pa.array([n % 7 for n in seqs], pa.int16()),
        "price": pa.array([n / 10 for n in seqs], pa.float32()),
        "name": [f"N{n}" for n in seqs],
    })  # fmt: skip


COLUMNS = [("seq", "Int32"), ("small", "Int16"), ("price", "Float32"), ("name", "Utf8")]


@pytest.fixture
def ends(tmp_path: Path, shared_spark: "SparkSession") -> Iterator[Ends]:
    del shared_spark
    yield Ends(tmp_path / "ends", binary=component(MANIFEST), to=obedient())


def test_a_table_that_v4_made_is_gone_on_with(ends: Ends) -> None:
    """In the first run and in one that resumes; with transforms that leave the columns alone, one
    that renames one, and a number that is computed."""
    table = Table(seq="integer", tiny="smallint", price="real", name="text", twice="bigint")
    transforms = [
        {"use": "transform-validate", "config": {"rules": [{"assert_not_null": "seq"}]}},
        {
            "use": "transform-sql",
            "config": {
                "query": "SELECT seq, small AS tiny, price, name, seq + seq AS twice FROM input"
            },
        },
    ]
    sent: list[dict[str, object]] = []
    with Peer(table) as peer:
        for first in (1, 11):
            rows, told = frame(first, first + 9), StageEvent()
            script = {"s0": [told.frame(rows), f"at {first + 9}"]}
            ran = ends.sync(
                told.config(script, {"s0": COLUMNS}),
                {**peer.config, **FATAL},
                INCREMENTAL,
                destination={"schema_evolution": {"type_change": "fail"}},
                transforms=transforms,
            )
            assert ran.exit_code == 0, (ran.error, table.drifts)
            assert ran.counts("s0") == ("complete", 10, 10, 0)
            sent += rows.rename_columns(["seq", "tiny", "price", "name"]).to_pylist()
    assert table.drifts == []
    twice = [{**row, "twice": 2 * int(str(row["seq"]))} for row in sent]
    assert table.rows == twice, "and every value is what it was"
