"""A model that is mirrored: after any sequence of its answers, whatever the day on which the kept
sets are joined, the target has what the query gives (L1 of models; issue 35, B1).

Columns go and come back, with the same type or another one; values become NULL; rows go and come
back. Two targets are kept: one whose rows are replaced (a table), and one that keeps the columns
which a row lacks (many connectors).
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq
import pytest

from penstock.engine.query import model_diff
from penstock.engine.query.model_diff import ModelDiff
from penstock.engine.specs.lane import LaneJob, LaneStream, StreamJob
from penstock.model.catalog import (
    Change,
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.segments import WriteDisposition
from penstock.model.staged_rows import KIND, SEND, StagedRows
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import RowSchema
from penstock.spark.model import Model, columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ID = StreamId(None, "m")
DEDUP = DestinationSyncMode.append_dedup
MIRROR = (Change.added, Change.changed, Change.removed)
Rows = dict[str, dict[str, Any]]
Columns = dict[str, str]


class Mirror:
    """A model that is compared each day, and the two targets of what was sent."""

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.states: tuple[StoredState, ...] = ()
        self.replaced: Rows = {}
        self.merged: Rows = {}
        self.epoch = 0

    def send(self, rows: Rows, types: Columns) -> int:
        """Compares and sends the model's answer; returns how many rows were sent."""
        self.epoch += 1
        names = ["id", *types]
        schema = ", ".join(["id string", *(f"{n} {t}" for n, t in types.items())])
        data = [(key, *(row.get(n) for n in types)) for key, row in rows.items()]
        frame = self.spark.createDataFrame(data, schema)
        model = Model(name="m", query="SELECT 1")
        diff = ModelDiff(self.spark, model, self.folder / "snapshots", saved=list, allow_empty=True)
        staged = diff.stage(self._lane(), frame, columns(frame, model), self.epoch)
        states = [*staged.states, *([staged.last] if staged.last is not None else [])]
        if states:
            self.states = (StoredState(StateScope(StateType.stream, ID), states[-1]),)
        return self._taken(staged, names)

    def _lane(self) -> LaneJob:
        configured = ConfiguredStream(
            stream=Stream(id=ID, json_schema={}, compared=True),
            sync_mode=SyncMode.incremental,
            destination_sync_mode=DEDUP,
            primary_key=(("id",),),
            sends=MIRROR,
        )
        lane = LaneStream(
            stream=ID,
            disposition=WriteDisposition(mode=DEDUP, primary_key=(("id",),)),
            schema_version=1,
            generation=0,
            fills_generation=False,
        )
        return LaneJob(
            run="r", lane=0, epoch=self.epoch, log_root=str(self.folder), protocol="spark",
            launch={}, config={}, config_hash="", states=self.states,
            streams=(StreamJob(configured=configured, lane=lane, schema=RowSchema(())),),
        )  # fmt: skip

    def _taken(self, staged: StagedRows, names: Sequence[str]) -> int:
        sent = 0
        for path in staged.files:
            for row in pq.read_table(path).to_pylist():
                if not row[SEND]:
                    continue
                sent += 1
                values = {name: row[f"c{index}"] for index, name in enumerate(names)}
                key = values["id"]
                if row[KIND] == Change.removed:
                    self.replaced.pop(key, None)
                    self.merged.pop(key, None)
                    continue
                self.replaced[key] = values
                self.merged[key] = {**self.merged.get(key, {}), **values}
        return sent

    def assert_equals(self, rows: Rows, types: Columns, day: object) -> None:
        for what, target in (("replaced", self.replaced), ("merged", self.merged)):
            assert target.keys() == rows.keys(), (day, what)
            for key, row in rows.items():
                wanted = {name: row.get(name) for name in types}
                found = {name: target[key].get(name) for name in types}
                assert found == wanted, (day, what, key)


def values_of(type_: str, chance: random.Random) -> Any:
    if chance.random() < 0.4:
        return None
    return chance.choice([1, 2]) if type_ == "int" else chance.choice(["1", "2"])


@pytest.mark.dear
@pytest.mark.parametrize(("seed", "most"), [(0, 1), (2, 3)])
def test_L1_a_target_equals_the_query_whatever_the_day_of_joining(
    shared_spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    seed: int,
) -> None:
    monkeypatch.setattr(model_diff, "MOST_SETS", most)
    chance, here = random.Random(seed * 10 + most), Mirror(shared_spark, tmp_path)
    rows: Rows = {f"k{n}": {} for n in range(24)}
    types: Columns = {"a": "string", "b": "string"}
    for day in range(8):
        for name in ("a", "b"):
            had = types.pop(name, None)
            if chance.random() < 0.7:
                types[name] = had or chance.choice(["string", "int"])
                if chance.random() < 0.2:
                    types[name] = chance.choice(["string", "int"])
                if types[name] != had:  # every value is one of the type
                    for row in rows.values():
                        row[name] = values_of(types[name], chance)
        for key in (f"k{n}" for n in range(24)):
            if chance.random() < 0.1:
                rows.pop(key, None)
            elif key not in rows or chance.random() < 0.2:
                rows[key] = {n: values_of(t, chance) for n, t in types.items()}
        here.send(rows, types)
        here.assert_equals(rows, types, (seed, most, day, types))
    assert here.send(rows, types) == 0, "what is as before is not sent"


def test_a_column_that_is_gone_for_days_comes_back(
    shared_spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """drt#686: stale rows at the destination. The value that comes back is none, the one that was
    there, and another one."""
    monkeypatch.setattr(model_diff, "MOST_SETS", 1)
    here = Mirror(shared_spark, tmp_path)
    backs = {"none": None, "same": "three", "other": "four"}
    had: Rows = {key: {"n": "three"} for key in backs}
    here.send({**had, "d": {"n": "4", "s": "a"}}, {"n": "string", "s": "string"})
    for day in range(3):
        gone: Rows = {key: {} for key in backs}
        here.send({**gone, "d": {"s": f"v{day}"}}, {"s": "string"})
    last: Rows = {key: {"n": back} for key, back in backs.items()}
    last["d"] = {"n": None, "s": "v2"}
    here.send(last, {"n": "string", "s": "string"})
    here.assert_equals(last, {"n": "string", "s": "string"}, "back")


def test_a_value_that_becomes_NULL_in_another_type_on_the_day_of_joining(
    shared_spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_diff, "MOST_SETS", 1)
    here = Mirror(shared_spark, tmp_path)
    for day in range(2):
        here.send({"C": {"n": "three"}, "d": {"n": str(day)}}, {"n": "string"})
    here.send({"C": {"n": None}, "d": {"n": 1}}, {"n": "int"})
    here.assert_equals({"C": {"n": None}, "d": {"n": 1}}, {"n": "int"}, "int")


def test_states_name_sets_by_epoch(shared_spark: "SparkSession", tmp_path: Path) -> None:
    here = Mirror(shared_spark, tmp_path)
    here.send({"C": {"n": "three"}}, {"n": "string"})
    saved = msgspec.json.decode(here.states[0].blob)
    assert saved["sets"] == [["00000001/changes", 1]]
