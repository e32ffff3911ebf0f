"""Which columns are never null, and which types they have in their source's frames: what rows show
of it in a lane, and what the driver makes of that (L9)."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.codec.arrow import with_frame_types
from penstock.codec.columns import Columns
from penstock.codec.decode import NULL_KEY
from penstock.config.load import parse_pipeline
from penstock.connectors.reference import parse_ref
from penstock.engine.log.memory import MemoryLog
from penstock.engine.log.rejects import decode_rejects
from penstock.engine.plan.destination import TableDestination
from penstock.engine.plan.prepare import Prepared, remember
from penstock.engine.plan.replan import Planner
from penstock.engine.plan.stream_plan import StreamRules
from penstock.engine.plan.streams import plan_streams
from penstock.engine.specs.lane import LaneJob, LaneQuestion, LaneStream, StreamAnswer, StreamJob
from penstock.engine.specs.plan import PlannedStream
from penstock.engine.worker.lane_events import LaneEvents
from penstock.engine.worker.row_decoding import StreamDecoders
from penstock.engine.worker.sealer import Sealer
from penstock.errors import SchemaError
from penstock.model.catalog import Catalog, Stream, StreamId, SyncMode
from penstock.model.events import Batch
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols import load as load_protocol
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.store.remembered import Remembered
from penstock.tables.formats import open_table

A = StreamId(None, "a")
INTEGER, TEXT = DataType(Kind.integer), DataType(Kind.string)
SCHEMA = RowSchema((Field("id", "ID", INTEGER), Field("x", "x", INTEGER), Field("y", "y", TEXT)), 1)
I32 = {"ID": "int32"}
FILE = """
version: "1.0"
pipeline: p
source: {use: ./x.wasm, defaults: {destination_sync_mode: %s}}
destination: {use: parquet, config: {path: /nowhere}%s}
"""


def rows(
    *ids: int | None,
    required: Sequence[str] = (),
    x: Sequence[int | None] = (),
    types: Mapping[str, str] | None = None,
    without: str | None = None,
) -> Batch:
    """``types``: of columns in their frames."""
    fields = [
        pa.field("ID", pa.int64(), nullable="ID" not in required),
        pa.field("x", pa.int64(), nullable="x" not in required),
        pa.field("y", pa.string(), nullable="y" not in required),
        pa.field("z", pa.string(), nullable=False),
    ]
    columns = [[*ids], [*(x or ids)], ["t"] * len(ids), ["t"] * len(ids)]
    table = with_frame_types(pa.table(columns, schema=pa.schema(fields)), types or {})
    if without is not None:
        table = table.drop_columns([without])
    return Batch(A, Columns(table), [0] * len(ids), size=len(ids))


class Lane(LaneEvents):
    """What it asks is answered at once, as ``engine.plan.replan`` would. ``asked``: all of it."""

    def __init__(self, schema: RowSchema = SCHEMA, *, key: bool = False) -> None:
        self.asked: list[LaneQuestion] = []
        keys: tuple[tuple[str, ...], ...] = (("ID",),) if key else ()
        (known,) = plan(dedup=key).streams
        disposition, configured = known.disposition, known.configured
        lane = LaneStream(
            stream=A,
            disposition=disposition,
            schema_version=1,
            generation=0,
            fills_generation=False,
        )
        self.job = StreamJob(configured=configured, lane=lane, schema=schema, key=keys)
        whole = LaneJob(
            run="r", lane=0, epoch=1, log_root="/", protocol="rapidbyte", launch={}, config={},
            config_hash="", streams=(self.job,),
        )  # fmt: skip
        streams = StreamDecoders(whole)
        mailbox: Any = SimpleNamespace(put_ask=self._heard, answer=lambda *_: self._answer)
        super().__init__(whole, mailbox, SimpleNamespace(lost=0), streams, lambda _: None)  # type: ignore[arg-type]
        self.log = MemoryLog()
        self.sealer = Sealer(
            self.log, epoch=1, lane=0, streams=[lane], decode=streams.decode, clock=lambda: 0.0
        )

    def _heard(self, epoch: int, ask: LaneQuestion) -> None:
        assert ask.required is not None
        self.asked.append(ask)
        version = len(self.asked) + 1
        keys = {path[0] for path in self.job.key}
        schema = self.job.schema.with_required({*ask.required, *keys})
        fields = schema.with_frame_types(ask.frame_types).fields
        self.job = msgspec.structs.replace(
            self.job,
            schema=RowSchema(fields, version),
            lane=msgspec.structs.replace(self.job.lane, schema_version=version),
        )
        self._answer = msgspec.json.encode(StreamAnswer(stream=self.job))

    def took(self, *batches: Batch) -> "Lane":
        for batch in batches:
            self.take(batch, self.sealer)
        self.sealer.finish(clean=True)
        return self

    def parts(self) -> list[tuple[int, list[int | None], list[str]]]:
        """(schema version, its ids, columns that the part says are non-null), in order."""
        found: list[tuple[int, list[int | None], list[str]]] = []
        for segment in self.log.segments():
            for one in segment.slices:
                for table in (self.log.parts[p.path] for p in one.parts):
                    sure = [f.name for f in table.schema if not f.nullable]
                    found.append((one.schema_version, table.column("id").to_pylist(), sure))
        return found


def test_the_first_rows_say_which_columns_are_never_null() -> None:
    lane = Lane().took(rows(1, 2, required=["x", "y"]), rows(3, required=["ID", "x", "y"]))
    assert [(a.required, a.lost) for a in lane.asked] == [(("x", "y"), ())]
    assert lane.parts() == [(2, [1, 2, 3], ["x", "y"])], "later ones can only take back"


def test_what_is_as_planned_is_not_asked() -> None:
    before = SCHEMA.with_required({"x"})
    assert Lane(before).took(rows(1, required=["x"]), rows(2, required=["x"])).asked == []
    assert Lane().took(rows(1), rows(2)).asked == []


@pytest.mark.parametrize("lies", [False, True], ids=["declared", "declared otherwise"])
def test_a_null_ends_it_for_the_rows_that_come_and_not_for_those_before(lies: bool) -> None:
    holes = rows(3, 4, x=[3, None], required=["x", "y"] if lies else ["y"])
    lane = Lane().took(rows(1, 2, required=["x", "y"]), holes, rows(5, required=["x", "y"]))
    assert [(a.required, a.lost) for a in lane.asked] == [(("x", "y"), ()), (("y",), ("x",))]
    first, second = lane.parts()
    assert first == (2, [1, 2], ["x", "y"])
    assert second[:2] == (3, [3, 4, 5]) and "x" not in second[2]


def test_json_shows_nothing_but_keys() -> None:
    """A claim of rows that came as columns is taken back, and not as a change of the source's."""
    bodies = [b'{"ID":1,"x":1}', b'{"x":2}', b'{"ID":3,"x":null}']
    lane = Lane(SCHEMA.with_required({"ID", "x"}), key=True).took(Batch(A, bodies, [0] * 3))
    assert [(a.required, a.lost) for a in lane.asked] == [((), ())]
    assert lane.parts() == [(2, [1, 3], ["id"])]


def test_a_null_key_is_a_reject_with_its_bytes() -> None:
    lane = Lane(SCHEMA.with_required({"ID"}), key=True).took(rows(1, None, 3, required=["y"]))
    assert [a.required for a in lane.asked] == [("y",)], "keys are not asked for"
    assert lane.parts() == [(2, [1, 3], ["id", "y"])]
    (file,) = lane.log.rejects.values()
    (line,) = decode_rejects(file)
    assert (line.reason, line.field) == (NULL_KEY, "ID")
    assert msgspec.json.decode(line.body) == {"ID": None, "x": None, "y": "t", "z": "t"}
    (segment,) = lane.log.segments()
    assert (segment.slices[0].read, segment.slices[0].rejected) == (3, 1)


@pytest.mark.parametrize("key", [True, False], ids=["the key", "no key"])
def test_the_first_rows_say_which_types_their_frames_have(key: bool) -> None:
    lane = Lane(key=key).took(rows(1, types={"ID": "int32", "z": "int8"}), rows(2, types=I32))
    assert [a.frame_types for a in lane.asked] == [I32], "of columns that are planned"
    assert lane.job.schema.fields[0].frame_type == "int32"
    before = SCHEMA.with_frame_types(I32)
    assert Lane(before).took(rows(1, types=I32), rows(2, types=I32)).asked == []


def test_frames_of_another_type_end_it_for_the_rows_that_come_and_not_for_those_before() -> None:
    both = {**I32, "x": "int16"}
    lane = Lane().took(rows(1, types=both), rows(2, types=I32), rows(3, types=both))
    assert [a.frame_types for a in lane.asked] == [both, I32]
    assert [(v, ids) for v, ids, _ in lane.parts()] == [(2, [1]), (3, [2, 3])]


def test_a_column_that_frames_lack_keeps_its_type() -> None:
    """Its rows are null, which fits every type."""
    before = SCHEMA.with_frame_types({"x": "int16"})
    assert Lane(before).took(rows(1, without="x"), rows(2, x=[5])).asked[0].frame_types == {}
    assert Lane(before).took(rows(1, without="x")).asked == []


def test_json_has_the_types_of_kinds() -> None:
    lane = Lane(SCHEMA.with_frame_types({"x": "int16"})).took(Batch(A, [b'{"x":1}'], [0]))
    assert [a.frame_types for a in lane.asked] == [{}]


# -- the driver

RULES = StreamRules(
    package=load_protocol("rapidbyte"), destination=open_table("parquet", "/nowhere", {}),
    earlier=Remembered(), metadata=None, sync_id=1,
)  # fmt: skip


def pipeline(*, dedup: bool = False, more: str = "") -> Any:
    mode = "append_dedup" if dedup else "append"
    return parse_pipeline(FILE % (mode, more), {})


def plan(*, dedup: bool = False, more: str = "") -> Any:
    properties = {"ID": {"type": "integer"}, "x": {"type": "integer"}, "y": {"type": "string"}}
    stream = Stream(
        id=A, json_schema={"type": "object", "properties": properties},
        sync_modes=(SyncMode.full_refresh, SyncMode.incremental),
        source_defined_primary_key=(("ID",),), default_cursor_field=("x",),
    )  # fmt: skip
    file = pipeline(dedup=dedup, more=more)
    return plan_streams(file, Catalog((stream,)), RULES, known=set(), states=(), cores=1)


class Driver:
    """One run's plan, remembered, and what the planner makes of it."""

    def __init__(self, store: MemoryStore, *, dedup: bool = False, more: str = "") -> None:
        self.store = store
        package = RULES.package
        connector = SimpleNamespace(protocol=package, ref=parse_ref("./x.wasm"), package=None)
        self.prepared = Prepared(
            pipeline=pipeline(dedup=dedup, more=more),
            source=SimpleNamespace(connector=connector, package=package, typed={}),  # type: ignore[arg-type]
            destination=TableDestination(RULES.destination),  # type: ignore[arg-type]
            catalog=Catalog(()),
            plan=plan(dedup=dedup, more=more),
            rules=RULES,
            states=package.state,
        )
        self.lease = store.acquire("p", this_holder("r"), 600)
        remember(self.prepared, store, self.lease)
        self.planner = Planner(self.prepared, store, self.lease, lambda text: None)

    @property
    def planned(self) -> PlannedStream:
        (stream,) = self.prepared.plan.streams
        return stream

    def told(self, *required: str, lost: tuple[str, ...] = (), **types: str) -> int:
        """The schema version under which the stream goes on. ``types``: of its frames."""
        ask = LaneQuestion(number=1, stream=A, required=required, lost=lost, frame_types=types)
        found = self.planner.plan(ask, 0, filling=False)
        assert found is not None
        return found.schema.version

    def over(self) -> None:
        self.store.release(self.lease)


def test_a_run_begins_with_what_the_last_rows_had() -> None:
    """No version comes and goes with every run."""
    store = MemoryStore()
    first = Driver(store, dedup=True)
    assert first.planned.schema.required == {"ID"} and first.told("x", ID="int32") == 2
    first.over()
    second = Driver(store, dedup=True)
    assert second.planned.schema.required == {"ID", "x"}
    assert second.planned.schema.frame_types == {"ID": "int32"}
    assert second.planned.schema.version == 2
    assert second.told("x", ID="int32") == 2 and second.told(lost=("x",), ID="int32") == 3
    assert second.planned.schema.required == {"ID"}, "its key is never null"
    assert second.told() == 4 and second.planned.schema.frame_types == {}


def test_a_stream_whose_schema_is_told_anew_keeps_it_for_the_columns_that_stay() -> None:
    driver = Driver(MemoryStore())
    assert driver.told("x", "y", ID="int32", y="large_string") == 2
    properties = {"ID": {"type": "integer"}, "x": {"type": "string"}, "new": {"type": "string"}}
    schema = {"type": "object", "properties": properties}
    driver.planner.plan(LaneQuestion(number=2, stream=A, json_schema=schema), 0, filling=False)
    assert driver.planned.schema.required == {"x"}
    assert driver.planned.schema.frame_types == {"ID": "int32"}


def test_a_column_that_becomes_nullable_is_refused_where_the_file_says_so() -> None:
    driver = Driver(MemoryStore(), more=", schema_evolution: {nullability_change: fail}")
    driver.told("x", "y")
    with pytest.raises(SchemaError) as refused:
        driver.told("y", lost=("x",))
    assert refused.value.code == "schema.nullability_change" and "x" in refused.value.message
    assert driver.told("y") == 3, "what is no change of the source's is none"


def test_keys_of_another_mode_may_be_null() -> None:
    assert plan(dedup=True).streams[0].schema.required == {"ID"}
    assert plan().streams[0].schema.required == frozenset()
