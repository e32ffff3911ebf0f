"""However a source writes its messages and cuts its output, the same comes of it (L1, L8, L9)."""

import json
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from json_forms import LOOKS, otherwise, plainly, value, without_strange
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import (
    Batch,
    Error,
    Event,
    LogEvent,
    Reject,
    SkippedItems,
    State,
    StreamStatus,
    Tick,
)
from penstock.protocols.airbyte.package import PACKAGE
from penstock.protocols.reading import ReadRequest
from penstock.runtimes.memory import MemoryRuntime

STREAMS = StreamId(None, "a"), StreamId("n", "b")
CONTENT = frozenset({"data", "stream_state", "config"})


def read(*blocks: bytes) -> list[Event]:
    def configured(stream: StreamId) -> ConfiguredStream:
        return ConfiguredStream(
            stream=Stream(id=stream, json_schema={}),
            sync_mode=SyncMode.incremental,
            destination_sync_mode=DestinationSyncMode.append,
        )

    request = ReadRequest(config={}, streams=tuple(map(configured, STREAMS)))
    return list(PACKAGE.source.read(MemoryRuntime(lambda _: blocks), request))


def record(n: int, choose: Random) -> dict[str, Any]:
    name = choose.choice(["a", "a", "b", "other"])
    at = choose.choice([1000 + n, 1000 + n, float(1000 + n), f"{1000 + n}"])
    found = {"stream": name, "data": {"n": n, "v": value(choose)}, "emitted_at": at}
    changes = [{"field": "v", "change": "NULLED", "reason": "R"}]
    more: list[dict[str, Any]] = [
        {}, {}, {"namespace": "n" if name == "b" else ""}, {"namespace": None},
        {"meta": {"changes": changes}}, {"meta": {"changes": []}}, {"meta": None},
        {"file_reference": {"staging_file_url": "u"}},
        {"data": [5]}, {"data": None}, {"namespace": 5}, {"stream": 5},
    ]  # fmt: skip
    return {**found, **choose.choice(more)}


def message(n: int, choose: Random) -> dict[str, Any]:
    if choose.random() < 0.6:
        return {"type": "RECORD", "record": record(n, choose)}
    named = choose.choice([{"name": "a"}, {"name": "b", "namespace": "n"}, {"name": "b"}])
    saved = {"stream_descriptor": named, "stream_state": {"n": n, "v": value(choose)}}
    status = {"stream_descriptor": named, "status": choose.choice(["RUNNING", "COMPLETE", "ODD"])}
    error = {"message": choose.choice(LOOKS), "stream_descriptor": named}
    config = {"config": {"v": value(choose)}}
    return choose.choice([
        {"type": "RECORD", "record": None},
        {"type": "STATE", "state": {"type": "STREAM", "stream": saved}},
        {"type": "STATE", "state": {"stream": saved, "sourceStats": {"recordCount": 1.0}}},
        {"type": "TRACE", "trace": {"type": "STREAM_STATUS", "stream_status": status}},
        {"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1.5, "error": error}},
        {"type": "CONTROL", "control": {"type": "CONNECTOR_CONFIG", "connectorConfig": config}},
        {"type": "LOG", "log": {"level": "WARN", "message": f"{choose.choice(LOOKS)}{n}"}},
        {"type": choose.choice(["FUTURE", "CATALOG"]), "n": n},
    ])  # fmt: skip


def come(events: Iterable[Event]) -> Any:
    """What comes: rows and rejects by stream; all else in order, with the number of its stream's
    rows and rejects before it; counts."""
    rows: dict[Any, list[Any]] = {}
    rejects: dict[Any, list[Any]] = {}
    others: list[Any] = []
    counts: Counter[str] = Counter()
    for event in events:
        match event:
            case Batch(stream, bodies, times, changes):
                for i, (body, at) in enumerate(zip(bodies, times, strict=True)):
                    listed = without_strange(json.loads(changes.get(i, b"[]")))
                    rows.setdefault(stream, []).append((json.loads(bytes(body)), at, listed))
            case Reject(stream, reason, raw):
                told = json.dumps(without_strange(json.loads(raw)), sort_keys=True)
                rejects.setdefault(stream, []).append((reason, told))
            case SkippedItems(what, count):
                counts[what] += 0 if what == "blank_line" else count
            case State(scope, blob):
                before = len(rows.get(scope.stream, ())), len(rejects.get(scope.stream, ()))
                others.append((scope, without_strange(json.loads(blob)), before))
            case StreamStatus(stream):
                others.append((event, len(rows.get(stream, ()))))
            case Error():
                others.append((event.message, event.stream, event.code))
            case LogEvent() if event.level == "INFO":  # a line that is not known, as it was written
                pass
            case Tick():
                pass
            case _:
                others.append(event)
    return rows, {s: sorted(r) for s, r in rejects.items()}, others, +counts


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 12))
def test_how_messages_are_written_and_cut_changes_nothing(seed: int, count: int) -> None:
    choose = Random(seed)
    messages = [message(n, choose) for n in range(count)]
    assert come(read(*otherwise(messages, choose, CONTENT))) == come(read(plainly(messages)))
