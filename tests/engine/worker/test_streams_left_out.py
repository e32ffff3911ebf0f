"""L6: a host of ``penstock serve`` that sends nothing of a stream does not empty its table; the end
of its input is no exit code (issue 34, B.6)."""

from types import SimpleNamespace

import pytest
from scripted import ScriptedLane

from penstock.engine.log.memory import MemoryLog
from penstock.engine.specs.lane import LaneStream, StreamJob
from penstock.engine.worker.sealer import Sealer
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import (
    Batch,
    ConnectorExited,
    Event,
    Reject,
    State,
    Status,
    StreamStatus,
)
from penstock.model.segments import WriteDisposition
from penstock.model.state import StateScope, StateType
from penstock.model.types import RowSchema

FULL, PLAIN = StreamId(None, "full"), StreamId(None, "plain")


def job(stream: StreamId) -> StreamJob:
    """``full`` is replaced by what comes, ``plain`` appended to."""
    full = stream == FULL
    mode = DestinationSyncMode.overwrite if full else DestinationSyncMode.append
    return StreamJob(
        configured=ConfiguredStream(
            stream=Stream(id=stream, json_schema={}),
            sync_mode=SyncMode.full_refresh if full else SyncMode.incremental,
            destination_sync_mode=mode,
        ),
        lane=LaneStream(
            stream=stream,
            disposition=WriteDisposition(mode=mode),
            schema_version=1,
            generation=1,
            fills_generation=full,
        ),
        schema=RowSchema(()),
    )


def read(*events: Event, served: bool = True) -> tuple[dict[StreamId, bool], ScriptedLane]:
    jobs = {s: job(s) for s in (FULL, PLAIN)}
    lane = ScriptedLane(1, jobs)
    lane._job.served = served
    decoded = SimpleNamespace(count=0, rows=None, rejects=(), missing=None)
    sealer = Sealer(
        MemoryLog(),
        epoch=1,
        lane=0,
        streams=[j.lane for j in jobs.values()],
        decode=lambda *_: decoded,
        clock=lambda: 0.0,
        any_status=served,
    )
    for event in (*events, ConnectorExited(0)):
        lane.take(event, sealer)
    return sealer.finish(clean=True), lane


def test_l6_nothing_of_a_stream_does_not_complete_its_refresh() -> None:
    complete, lane = read(Batch(PLAIN, [b"{}"], [0]))
    assert complete == {FULL: False, PLAIN: True}
    assert [stream for stream, _, _ in lane.in_doubt] == [FULL]
    (note,) = lane._doubts
    assert note.startswith("full: ") and "STREAM_STATUS COMPLETE" in (lane.in_doubt[0][2] or "")


@pytest.mark.parametrize(
    "event",
    [
        Batch(FULL, [b"{}"], [0]),
        Reject(FULL, "no object", b"[]"),
        State(StateScope(StateType.stream, FULL), "{}"),
        State(StateScope(StateType.global_), "{}", named=frozenset([FULL])),
    ],
)
def test_l6_whatever_came_of_it_leaves_the_end_to_decide(event: Event) -> None:
    complete, lane = read(event)
    assert complete == {FULL: True, PLAIN: True} and not lane.in_doubt


def test_l6_complete_without_rows_is_an_empty_stream() -> None:
    done = [StreamStatus(s, Status.complete) for s in (FULL, PLAIN)]
    complete, lane = read(*done)
    assert complete == {FULL: True, PLAIN: True} and not lane.in_doubt


def test_l6_exit_code_0_of_a_connector_decides() -> None:
    complete, _ = read(Batch(PLAIN, [b"{}"], [0]), served=False)
    assert complete == {FULL: True, PLAIN: True}
