"""Rows of a compared model in a lane's transforms: which of them go out, which are removed at the
destination, and which are recorded as left out before a state passes (L1; issue 35, B2)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.codec.columns import Columns
from penstock.engine.specs.lane import LaneJob, LaneStream, StreamJob
from penstock.engine.worker.row_decoding import StreamDecoders
from penstock.engine.worker.transforms.stages import Transforming
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, Stream, StreamId, SyncMode
from penstock.model.events import Batch, ComparedRows, Event, Reject, State
from penstock.model.segments import WriteDisposition
from penstock.model.state import StateScope, StateType
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.transforms.chain import plan_chain
from penstock.transforms.contract import TransformJob

A = StreamId(None, "a")
MARK = "_ab_cdc_deleted_at"
SCHEMA = RowSchema(
    (
        Field("id", "id", DataType(Kind.integer)),
        Field("v", "v", DataType(Kind.string)),
        Field(MARK, MARK, DataType(Kind.timestamp)),
    )
)
FILTER = TransformJob(
    use="transform-sql",
    config={"query": "SELECT * FROM input WHERE v <> 'no'"},
    where="transforms[0]",
)
RULE = TransformJob(
    use="transform-validate",
    config={"rules": [{"assert_regex": {"field": "v", "pattern": "^[^n]"}}]},
    where="transforms[0]",
)
Row = tuple[int, str | None, bool, bool]
"""(id, v, whether it is a removal, whether the destination has a row of the key)"""


def batch(folder: Path, *rows: Row, removes: bool = True, probe: bool = False) -> Batch:
    at = pa.timestamp("us", tz="UTC")
    table = pa.table(
        {
            "id": pa.array([r[0] for r in rows], pa.int64()),
            "v": pa.array([r[1] for r in rows], pa.string()),
            MARK: pa.array([1 if r[2] else None for r in rows], pa.int64()).cast(at),
        }
    )
    keys = pa.table({"c0": pa.array([r[0] for r in rows], pa.int64())})
    compared = ComparedRows(keys, pa.array([r[3] for r in rows]), str(folder), 5, removes, probe)
    none = 0 if probe else None
    return Batch(A, Columns(table), [5] * len(rows), stands_for=none, compared=compared)


def went(chain: TransformJob, given: Batch, deleted: str | None = MARK) -> list[Event]:
    configured = ConfiguredStream(
        stream=Stream(id=A, json_schema={}),
        sync_mode=SyncMode.incremental,
        destination_sync_mode=DestinationSyncMode.append_dedup,
        primary_key=(("id",),),
    )
    plan = plan_chain([chain], SCHEMA, configured, mark=MARK)
    assert plan.passes_deletes and plan.one_to_one
    lane = LaneStream(
        stream=A,
        disposition=WriteDisposition(
            mode=DestinationSyncMode.append_dedup, primary_key=(("id",),), deleted_column=deleted
        ),
        schema_version=1,
        generation=0,
        fills_generation=False,
    )
    stream = StreamJob(
        configured=configured, lane=lane, schema=plan.schema, given=SCHEMA, key=(("id",),)
    )
    job = LaneJob(
        run="r", lane=0, epoch=1, log_root="", protocol="spark", launch={}, config={},
        config_hash="", streams=(stream,), transforms=(chain,),
    )  # fmt: skip

    def events() -> Iterator[Event]:
        yield given
        yield State(StateScope(StateType.stream, A), "{}")

    def none(_: Any) -> Any:
        raise AssertionError

    return list(Transforming(job, StreamDecoders(job), none).events(events()))


def out(events: list[Event]) -> list[tuple[int, str | None, bool]]:
    tables = [e.bodies.table for e in events if isinstance(e, Batch) and len(e.bodies)]
    return [(r["id"], r["v"], r[MARK] is not None) for t in tables for r in t.to_pylist()]


def counts(events: list[Event]) -> tuple[int, int, int]:
    """(read, filtered, rejected)."""
    batches = [e for e in events if isinstance(e, Batch)]
    rejected = sum(e.records or 0 for e in events if isinstance(e, Reject))
    return sum(b.read for b in batches) + rejected, sum(b.filtered for b in batches), rejected


def left_out(folder: Path) -> list[tuple[int, bool]]:
    """(key, whether the destination was sent a removal)."""
    files = sorted((folder / "left_out").glob("*.parquet"))
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    return [(row["c0"], row["penstock_removed"]) for row in rows]


def test_a_row_that_is_left_out_is_removed_where_the_destination_has_it(tmp_path: Path) -> None:
    rows: list[Row] = [(1, "a", False, True), (2, "no", False, True), (3, "no", False, False)]
    events = went(FILTER, batch(tmp_path, *rows))
    assert out(events) == [(1, "a", False), (2, None, True)]
    assert counts(events) == (3, 1, 0)
    assert left_out(tmp_path) == [(2, True), (3, False)]


def test_a_removal_passes_unless_it_is_not_known_that_the_row_went_out(tmp_path: Path) -> None:
    rows: list[Row] = [
        (1, "a", True, True), (2, "no", True, True), (3, "no", True, False), (4, "a", True, False),
    ]  # fmt: skip
    events = went(FILTER, batch(tmp_path, *rows))
    assert out(events) == [(1, "a", True), (2, None, True), (4, "a", True)]
    assert left_out(tmp_path) == [(3, False)]


def test_a_reject_removes_nothing(tmp_path: Path) -> None:
    events = went(RULE, batch(tmp_path, (1, "a", False, True), (2, "no", False, True)))
    assert out(events) == [(1, "a", False)]
    assert counts(events) == (2, 0, 1)
    assert left_out(tmp_path) == [(2, False)]


def test_rows_that_are_only_tried_are_not_sent(tmp_path: Path) -> None:
    rows: list[Row] = [(1, "a", False, True), (2, "no", False, True), (3, "no", False, False)]
    events = went(FILTER, batch(tmp_path, *rows, probe=True))
    assert out(events) == [(2, None, True)]
    assert counts(events) == (1, 0, 0)
    assert left_out(tmp_path) == [(2, True), (3, False)]


@pytest.mark.parametrize("deleted", [MARK, None])
def test_only_mirror_removes(tmp_path: Path, deleted: str | None) -> None:
    given = batch(tmp_path, (1, "a", False, True), (2, "no", False, True), removes=False)
    assert out(went(FILTER, given, deleted)) == [(1, "a", False)]
    assert left_out(tmp_path) == [(2, False)]
