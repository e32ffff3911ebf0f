"""``engine.plan.replan``: how a stream goes on whose source sends a schema while it is read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.config.load import parse_pipeline
from penstock.engine.plan.replan import Planner
from penstock.engine.plan.stream_plan import StreamRules
from penstock.engine.plan.streams import plan_streams
from penstock.engine.specs.lane import LaneQuestion
from penstock.errors import SchemaError
from penstock.model.catalog import Catalog, Stream, StreamId
from penstock.model.events import TransformColumns
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols import load
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.store.remembered import Remembered
from penstock.tables.formats import open_table
from penstock.transforms.contract import TransformJob

USERS = StreamId(None, "users")


def schema(**properties: str) -> dict[str, Any]:
    return {"type": "object", "properties": {n: {"type": t} for n, t in properties.items()}}


def planner(
    tmp_path: Path, discovered: dict[str, Any], *, shards: int = 1, transforms: Any = ()
) -> Planner:
    text = "pipeline: p\nsource: { use: singer:x, defaults: { mode: mirror } }\n"
    pipeline = parse_pipeline(text + "destination: { use: 'parquet:./lake' }\n", {})
    place = open_table("parquet", str(tmp_path / "lake"), {})
    rules = StreamRules(
        package=load("singer"), destination=place, earlier=Remembered(), metadata=None, sync_id=1,
        transforms=transforms,
    )  # fmt: skip
    catalog = Catalog((Stream(id=USERS, json_schema=discovered),))
    plan = plan_streams(pipeline, catalog, rules, known=set(), states=(), cores=1)
    streams = tuple(msgspec.structs.replace(s, shards=shards) for s in plan.streams)
    prepared: Any = SimpleNamespace(
        pipeline=pipeline,
        destination=place,
        rules=rules,
        plan=msgspec.structs.replace(plan, streams=streams),
        by_id=lambda: {s.id: s for s in prepared.plan.streams},
    )
    store = MemoryStore()
    lease = store.acquire("p", this_holder("r"), 60)
    return Planner(prepared, store, lease, lambda text: None)


def types(planner: Planner, sent: dict[str, Any], *, fresh: bool, **more: Any) -> dict[str, str]:
    ask = LaneQuestion(number=1, stream=USERS, json_schema=sent, fresh=fresh, **more)
    planned = planner.plan(ask, 0, filling=True)
    assert planned is not None
    return {f.source: f.type.kind.value for f in planned.schema.fields}


def test_L6_types_before_the_first_row_hold_for_a_refresh(tmp_path: Path) -> None:
    made = planner(tmp_path, schema(id="integer", old="string"))
    assert types(made, schema(id="string"), fresh=True) == {"id": "string", "old": "string"}


@pytest.mark.parametrize(("shards", "fresh"), [(1, False), (2, True)], ids=["rows", "shards"])
def test_L6_types_of_rows_do_not_change_in_a_refresh(
    tmp_path: Path, shards: int, fresh: bool
) -> None:
    """Of a stream that is read in shards another lane may have sealed rows."""
    made = planner(tmp_path, schema(id="integer"), shards=shards)
    with pytest.raises(SchemaError) as caught:
        types(made, schema(id="string"), fresh=fresh)
    assert caught.value.code == "schema.changed"


@pytest.mark.parametrize("fresh", [True, False], ids=["first rows", "after others"])
def test_L6_columns_of_a_transform_s_earlier_rows_stay_in_a_refresh(
    tmp_path: Path, fresh: bool
) -> None:
    """The first rows of an epoch may lack a column that those of an earlier epoch have: the driver
    then says that the question is not fresh."""
    launch = {"protocol": "rapidbyte", "role": "transform", "component": {"path": "x"}}
    transform = TransformJob(
        use="./x.wasm", config={}, where="transforms[0]", place="transform:0", launch=launch
    )
    made = planner(tmp_path, schema(id="integer", name="string"), transforms=(transform,))
    showed = TransformColumns(0, RowSchema((Field("id", "id", DataType(Kind.integer)),)))
    found = types(made, {}, fresh=fresh, showed=showed)
    assert found == ({"id": "integer"} if fresh else {"id": "integer", "name": "string"})
