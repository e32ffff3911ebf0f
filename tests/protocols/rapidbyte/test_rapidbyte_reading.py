"""The source role over a real component: whose checkpoint is whose, and failures that stay with
their stream (protocol, sections 5 to 7)."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import rapidbyte_guests

from penstock.codec.arrow import part_schema
from penstock.config.sections import Limits, Resources
from penstock.engine.log.memory import MemoryLog
from penstock.engine.specs.lane import LaneStream
from penstock.engine.worker.sealer import Sealer
from penstock.errors import PenstockError
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
    Error,
    Event,
    LogEvent,
    Reject,
    SkippedItems,
    State,
    Status,
    StreamStatus,
)
from penstock.model.segments import WriteDisposition
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.rapidbyte.destination import RapidbyteDestination
from penstock.protocols.rapidbyte.guest.component import open_component
from penstock.protocols.rapidbyte.source import RapidbyteSource
from penstock.protocols.rapidbyte.transform import RapidbyteTransform
from penstock.protocols.rapidbyte.wire.arrow_ipc import frame_of
from penstock.protocols.reading import ReadRequest
from penstock.protocols.transforming import TransformRequest
from penstock.protocols.writing import Rows, WriteRequest, WriteStream
from penstock.runtimes.contract import Component, RunTimeouts
from penstock.runtimes.wasm.component import ComponentRuntime, digest_of

A, B = StreamId(None, "a"), StreamId(None, "b")
SOURCE = RapidbyteSource()
QUICK = RunTimeouts(start=1.0, heartbeat=1.0)
Make = Callable[..., ComponentRuntime]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """``made(role, file, **settings)``"""

    def make(role: str = "source", file: str = "script.c", **settings: Any) -> ComponentRuntime:
        path = tmp_path / f"{role}.wasm"
        path.write_bytes(rapidbyte_guests.c_guest(role, file))
        return ComponentRuntime(
            Component(
                path=str(path),
                digest=digest_of(path.read_bytes()),
                cache=str(rapidbyte_guests.CACHE / "compiled"),
                settings=settings,
            )
        )

    return make


def stream(of: StreamId, cursor: str = "id", mode: SyncMode = SyncMode.incremental) -> Any:
    return ConfiguredStream(
        stream=Stream(id=of, json_schema={}),
        sync_mode=mode,
        destination_sync_mode=DestinationSyncMode.append,
        cursor_field=(cursor,),
    )


def told(runtime: ComponentRuntime, request: ReadRequest) -> list[Event]:
    return list(SOURCE.read(runtime, request))


def checkpoint(name: str, field: str, value: dict[str, Any]) -> str:
    mark = {
        "id": 0, "kind": "source", "stream": name, "cursor_field": field, "cursor_value": value,
        "records_processed": 1, "bytes_processed": 1, "own": {"kept": [1]},
    }  # fmt: skip
    return json.dumps(mark).encode().hex()


def states(events: list[Event]) -> list[Any]:
    return [json.loads(e.blob) for e in events if isinstance(e, State)]


def counted(events: list[Event]) -> list[str]:
    return [e.what for e in events if isinstance(e, SkippedItems)]


def test_a_checkpoint_that_names_its_column_otherwise_goes_on_from_there(made: Make):
    """As in v4, which hands the text back under the configured field."""
    runtime = made()
    mark = checkpoint("a", "ID", {"type": "int64", "value": 42})
    config = {"a": "raw 0 mark ; context", "mark": mark}
    first = told(runtime, ReadRequest(config=config, streams=(stream(A),)))
    (state,) = states(first)
    assert state["cursor_field"] == "id" and state["own"] == {"kept": [1]}
    saved = [StoredState(e.scope, e.blob) for e in first if isinstance(e, State)]
    again = told(runtime, ReadRequest(config=config, streams=(stream(A),), states=tuple(saved)))
    assert isinstance(again[-1], ConnectorExited) and again[-1].code == 0
    (context,) = (
        json.loads(e.message)
        for e in again
        if isinstance(e, LogEvent) and e.message.startswith("{")
    )
    assert context["cursor_info"] == {
        "cursor_field": "id", "cursor_type": "utf8", "last_value": {"type": "utf8", "value": "42"},
    }  # fmt: skip


def test_its_own_document_is_saved_as_it_stands(made: Make):
    """L1."""
    mark = checkpoint("a", "id", {"type": "utf8", "value": "7"})
    config = {"a": "raw 0 mark", "mark": mark}
    events = told(made(), ReadRequest(config=config, streams=(stream(A),)))
    (state,) = (e for e in events if isinstance(e, State))
    assert state.blob.encode() == bytes.fromhex(mark)


@pytest.mark.parametrize("value", [{"type": "bogus", "value": {"a": 1}},
                                   {"type": "int64", "value": 1.5e30}])  # fmt: skip
def test_a_malformed_cursor_is_counted_and_saves_nothing(made: Make, value: Any):
    config = {"a": "raw 0 mark", "mark": checkpoint("a", "id", value)}
    events = told(made(), ReadRequest(config=config, streams=(stream(A),)))
    assert not states(events) and counted(events) == ["malformed:checkpoint"]


def test_a_replication_position_is_no_place_in_a_column(made: Make):
    mark = checkpoint("a", "lsn", {"type": "lsn", "value": "0/1"})
    events = told(made(), ReadRequest(config={"a": "raw 0 m", "m": mark}, streams=(stream(A),)))
    assert not states(events) and counted(events) == ["foreign:checkpoint"]


def test_a_saved_place_in_another_column_fails_its_stream_only(made: Make):
    """L7: the user has changed the cursor; the streams after it are read."""
    blob = bytes.fromhex(checkpoint("a", "updated_at", {"type": "utf8", "value": "7"})).decode()
    saved = StoredState(StateScope(StateType.stream, A), blob)
    mark = checkpoint("b", "id", {"type": "utf8", "value": "8"})
    config = {"a": "raw 0 mark", "b": "raw 0 mark", "mark": mark}
    request = ReadRequest(config=config, streams=(stream(A), stream(B)), states=(saved,))
    events = told(made(), request)
    (error,) = (e for e in events if isinstance(e, Error))
    assert error.stream == A and error.code == "state.cursor_changed"
    assert "state reset" in error.hint
    ends = [(e.stream, e.status) for e in events if isinstance(e, StreamStatus)]
    assert ends == [
        (A, Status.started), (A, Status.incomplete), (B, Status.started), (B, Status.complete),
    ]  # fmt: skip
    assert [s["cursor_value"]["value"] for s in states(events)] == ["8"]
    assert isinstance(events[-1], ConnectorExited) and events[-1].code == 1


# -- what a source counts (L8)


@pytest.mark.parametrize(
    ("script", "counts", "covered"),
    [
        ("raw 0 mark ; skipped 3", 3, True),
        ("skipped 3", 3, False),
        ("raw 0 mark ; frame rows ; skipped 3", 3, False),
        ("dead letter 3 ; raw 0 mark ; skipped 3", 0, True),
        ("dead letter 1 ; raw 0 mark ; skipped 3", 2, True),
    ],
)
def test_l8_what_a_source_skips_by_itself_was_read_and_filtered(
    made: Make, script: str, counts: int, covered: bool
):
    """A dead letter is counted by itself. The checkpoint that came last covers what was skipped, so
    that a run that only skipped is still exact."""
    rows = pa.record_batch({"id": [1]})
    config = {
        "a": script,
        "mark": checkpoint("a", "id", {"type": "utf8", "value": "7"}),
        "rows": bytes(frame_of(rows)).hex(),
        "letter": b'{"id":9}'.hex(),
    }
    events = told(made(), ReadRequest(config=config, streams=(stream(A),)))
    none = [e for e in events if isinstance(e, Batch) and not len(e.bodies)]
    assert [(b.read, b.filtered) for b in none] == [(counts, counts)] * bool(counts)
    noted = [(e.what, e.count) for e in events if isinstance(e, SkippedItems)]
    assert noted == [("skipped_by_source:a", counts)] * bool(counts)

    log, lane = MemoryLog(), LaneStream(
        stream=A, disposition=WriteDisposition(mode=DestinationSyncMode.append),
        schema_version=1, generation=0, fills_generation=False,
    )  # fmt: skip
    sealer = Sealer(
        log, epoch=1, lane=0, streams=[lane], clock=lambda: 0.0,
        decode=lambda _, bodies, *rest: SimpleNamespace(
            rows=pa.table({}), count=len(bodies), rejects=[], missing=None
        ),
    )  # fmt: skip
    handle = {Batch: sealer.batch, State: sealer.state, Reject: sealer.reject}
    for event in events:
        if type(event) in handle:
            handle[type(event)](event)
    sealer.finish(clean=True)
    slices = [s for segment in log.segments() for s in segment.slices]
    kept = sum(s.read - s.rejected - s.filtered for s in slices)
    assert kept == ("rows" in script) and sum(s.filtered for s in slices) == counts
    assert all(segment.exact for segment in log.segments()) is covered


# -- a source that takes no notice of what its host refuses (L1, L8)


@pytest.mark.parametrize(
    ("how", "frames", "states", "well"),
    [
        ("ggc", 2, 1, True),
        ("gu", 1, 0, False),
        ("gcugc", 2, 1, False),
        ("tc", 1, 1, True),
        ("dgc", 1, 1, True),
    ],
)
def test_l8_a_frame_that_was_refused_is_not_lost_in_silence(
    made: Make, how: str, frames: int, states: int, well: bool
):
    """The protocol, section 4.1: a frame is published when it is sealed."""
    data = bytes(frame_of(pa.RecordBatch.from_pylist([{"id": 1}]))).hex()
    request = ReadRequest(config={"how": how, "frame": data}, streams=(stream(A),))
    events = told(made(file="careless.c"), request)
    assert sum(isinstance(e, Batch) for e in events) == frames
    assert sum(isinstance(e, State) for e in events) == states
    errors = [(e.code, e.message) for e in events if isinstance(e, Error)]
    assert not errors if well else errors[0][0] == "source.bad_answer"
    assert well or "1 of its frames were refused" in errors[0][1]
    assert StreamStatus(A, Status.complete if well else Status.incomplete) in events


# -- a peer that never answers (L11)


@pytest.fixture
def silent() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def reaching(role: str) -> dict[str, Any]:
    modes = {
        "source": {"supported_sync_modes": ["full_refresh", "incremental"]},
        "destination": {"supported_write_modes": [{"mode": "append"}]},
        "transform": {},
    }
    return {
        "id": "them/polls", "name": "Polls", "version": "1", "protocol_version": "4",
        "roles": {role: modes[role]},
        "permissions": {"network": {"allowed_domains": ["127.0.0.1"]}},
    }  # fmt: skip


@pytest.mark.parametrize("ask", ["check", "discover"])
def test_a_question_ends_at_the_pipelines_own_timeouts(made: Make, silent: int, ask: str):
    runtime = made(file="guest.c", assume_manifest=reaching("source"))
    config = {"mode": "polls", "host": "127.0.0.1", "port": silent}
    began = time.monotonic()
    with pytest.raises(PenstockError) as caught:
        getattr(SOURCE, ask)(runtime, config, QUICK, lambda _: None)
    assert time.monotonic() - began < 8
    assert caught.value.code == "connector.timeout"
    assert "raise timeouts.start" in (caught.value.hint or "")


def test_a_source_that_polls_a_silent_peer_ends_at_its_heartbeat(made: Make, silent: int):
    runtime = made(file="guest.c", assume_manifest=reaching("source"))
    config = {"mode": "tcp", "host": "127.0.0.1", "port": silent, "bytes": 10}
    began = time.monotonic()
    request = ReadRequest(config=config, streams=(stream(A),), timeouts=QUICK, tick=0.1)
    events = told(runtime, request)
    assert time.monotonic() - began < 8
    (error,) = (e for e in events if isinstance(e, Error))
    assert error.code == "source.heartbeat" and error.retry is None
    assert "timeouts.heartbeat" in error.hint
    assert StreamStatus(A, Status.incomplete) in events


def test_a_destination_that_polls_a_silent_peer_ends_at_its_heartbeat(made: Make, silent: int):
    schema = RowSchema((Field("id", "id", DataType(Kind.integer)),), 1)
    arrays = [
        pa.array([1], f.type) if f.name == "id" else pa.nulls(1, f.type)
        for f in part_schema(schema)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=part_schema(schema))
    runtime = made("destination", "guest.c", assume_manifest=reaching("destination"))
    config = {"mode": "tcp", "host": "127.0.0.1", "port": silent, "bytes": 10}
    target = WriteStream(configured=stream(A), target=A, schemas={1: schema}, latest=1)
    request = WriteRequest(
        config=config, streams=(target,), source_protocol="airbyte", tick=0.1, timeouts=QUICK
    )
    began = time.monotonic()
    answers = list(RapidbyteDestination().write(runtime, request, iter([Rows(A, 1, batch)])))
    assert time.monotonic() - began < 10
    (error,) = (a for a in answers if isinstance(a, Error))
    assert error.code == "destination.heartbeat"
    assert isinstance(answers[-1], ConnectorExited) and answers[-1].code == 1


def test_a_transform_with_rows_to_work_on_ends_at_its_heartbeat(made: Make, silent: int):
    """Its timeout for rows is days; its own silence is not."""
    runtime = made("transform", "guest.c", assume_manifest=reaching("transform"))
    config = {"mode": "tcp", "host": "127.0.0.1", "port": silent, "bytes": 10}
    request = TransformRequest(config=config, stream=stream(A), scope=A.key, timeouts=QUICK)
    began = time.monotonic()

    def feed() -> Iterator[Any]:
        yield pa.table({"id": [1]})
        time.sleep(15)  # what comes next is not waited for either

    given = list(RapidbyteTransform().apply(runtime, request, feed()))
    assert time.monotonic() - began < 10
    (error,) = (g for g in given if isinstance(g, Error))
    assert error.code == "transform.heartbeat"


def test_what_is_held_for_a_component_follows_from_its_memory(tmp_path: Path) -> None:
    """Frames, what waits, and the batches it is told to make; quotas of the pipeline."""
    file = tmp_path / "x.wasm"
    file.write_bytes(rapidbyte_guests.c_guest("source"))
    settings = msgspec.to_builtins({"place": "source", "resources": Resources(max_memory=64 << 20)})
    made = Component(path=str(file), digest=digest_of(file.read_bytes()), settings=settings)
    limits = Limits(max_keys=10, max_dead_letters=20)
    stage = open_component(ComponentRuntime(made, limits=limits)).stage("source", {})
    assert stage.allowed.max_memory == 64 << 20
    assert stage.bounds.frames.all_bytes == stage.bounds.frames.frame_bytes == 8 << 20
    waiting = stage.pressure.inbox_bytes + stage.pressure.outbox_bytes
    assert stage.host_bytes == stage.bounds.frames.all_bytes + waiting == 16 << 20
    assert (stage.bounds.keys, stage.bounds.dead_letters) == (10, 20)
    told = open_component(ComponentRuntime(made)).settings.limits()
    assert told.max_batch_bytes == 8 << 20
    free = Component(path=made.path, digest=made.digest, settings={"place": "source"})
    stage = open_component(ComponentRuntime(free)).stage("source", {})
    assert (stage.host_bytes, stage.bounds.frames.all_bytes) == (0, 1 << 30)


def test_L6_an_error_in_its_log_and_a_good_end_are_a_warning(made: Make):
    """A component that skips what it cannot read: COMPLETE holds, and the report says so."""
    words = b"page 2: no access".hex()
    config = {"a": "log 0 words ; log 0 words", "b": "log 1 words", "words": words}
    events = told(made(), ReadRequest(config=config, streams=(stream(A), stream(B))))
    done = [e.stream for e in events if isinstance(e, StreamStatus) and e.status == "COMPLETE"]
    assert done == [A, B]
    assert isinstance(events[-1], ConnectorExited)
    (doubt,) = events[-1].doubts
    assert (doubt.streams, doubt.complete) == ((A,), True)
    assert "2 errors" in doubt.reason and "page 2: no access" in doubt.reason
