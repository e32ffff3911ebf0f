"""Which end completes a version of a served stream (L6): ``engine.worker.lane_events`` and the
sealer, without a process; the driver's answers are given."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from scripted import ScriptedLane

from penstock.engine.log.memory import MemoryLog
from penstock.engine.specs.lane import LaneStream, StreamJob
from penstock.engine.worker.sealer import Sealer
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import Activate, Batch, Event, Schema, State
from penstock.model.segments import WriteDisposition
from penstock.model.state import StateScope, StateType
from penstock.model.types import RowSchema

S = StreamId(None, "s")
STATE = State(StateScope(StateType.legacy), "{}")


def job(version: int | None, cursor: FieldPath | None, *, served: bool = True) -> StreamJob:
    """The driver's answer: another version of the stream is visible."""
    stream = Stream(id=S, json_schema={}, default_cursor_field=cursor)
    return StreamJob(
        configured=ConfiguredStream(
            stream=stream,
            sync_mode=SyncMode.incremental,
            destination_sync_mode=DestinationSyncMode.append,
        ),
        lane=LaneStream(
            stream=S,
            disposition=WriteDisposition(mode=DestinationSyncMode.append),
            schema_version=1,
            generation=2,
            fills_generation=version is not None,
            version=version,
            requires_complete_status=served and version is not None,
        ),
        schema=RowSchema(()),
    )


def rows(version: int, count: int = 2) -> Batch:
    return Batch(S, [b"{}"] * count, [0] * count, version=version)


def ended(
    events: Iterable[Event],
    *,
    cursor: FieldPath | None = ("at",),
    served: bool = True,
    clean: bool = True,
) -> tuple[bool, list[str], str]:
    """Whether the stream is complete, codes of failures, and their words."""
    lane = ScriptedLane(1, {S: job(None, cursor)})
    decoded = SimpleNamespace(count=0, rows=None, rejects=(), missing=None)
    sealer = Sealer(
        MemoryLog(),
        epoch=1,
        lane=0,
        streams=[job(None, cursor).lane],
        decode=lambda *_: decoded,
        clock=lambda: 0.0,
        any_status=served,
    )
    for event in events:
        version: Any = getattr(event, "version", None) or lane._versions.get(S)
        lane.told = [job(version, cursor, served=served)]
        lane.take(event, sealer)
    complete = sealer.finish(clean=clean)
    lane.miss_versions(complete)
    return complete[S], [e.code for e in lane.failures], " ".join(map(str, lane.failures))


BEFORE = [Activate(S, 9), rows(9), STATE]


def test_l6_an_increment_that_begins_anew_is_complete_at_the_end_of_the_input() -> None:
    """pipelinewise-tap-postgres and -mysql, INCREMENTAL: ACTIVATE_VERSION before the rows, none
    after them, and a STATE at the end."""
    assert ended(BEFORE) == (True, [], "")
    assert ended([*BEFORE, rows(9), STATE])[:2] == (True, [])
    again = [Activate(S, 9), rows(9), Schema(S, {}), rows(9), STATE]
    assert ended(again)[:2] == (True, []), "a SCHEMA in the middle changes nothing of it"


@pytest.mark.parametrize(
    ("events", "how"),
    [
        ([Activate(S, 9), rows(9)], {}),
        ([*BEFORE, rows(9)], {}),
        ([rows(9), STATE], {}),
        ([Activate(S, 8), rows(9), STATE], {}),
        (BEFORE, {"cursor": None}),
        ([STATE, Activate(S, 9), rows(9)], {}),
    ],
    ids=["torn", "torn later", "none", "another's", "full table", "state before"],
)
def test_l6_a_tap_that_may_have_died_completes_no_version(
    events: list[Event], how: dict[str, Any]
) -> None:
    """A FULL_TABLE stream, which names no bookmark, sends it before and after its rows."""
    complete, codes, words = ended(events, **how)
    assert (complete, codes) == (False, ["source.open_version"])
    assert "version 9" in words


def test_l6_a_message_after_the_rows_or_exit_code_0_of_our_own_tap_completes_them() -> None:
    for events in ([rows(9), Activate(S, 9)], [Activate(S, 9), rows(9), Activate(S, 9)]):
        assert ended(events, cursor=None)[1] == []
    assert ended([rows(9)], served=False) == (True, [], "")
    assert ended([Activate(S, 9), rows(9)], served=False) == (True, [], "")
