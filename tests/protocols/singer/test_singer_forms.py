"""However a tap writes its messages and cuts its output, the same comes of it (L1, L8, L9)."""

import json
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from json_forms import LOOKS, otherwise, plainly, value, without_strange
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, SyncMode
from penstock.model.events import (
    Activate,
    Batch,
    Event,
    LogEvent,
    Reject,
    Schema,
    SkippedItems,
    State,
    Tick,
)
from penstock.protocols.reading import ReadRequest
from penstock.protocols.singer.package import PACKAGE
from penstock.runtimes.memory import MemoryRuntime

CONTENT = frozenset({"record", "schema", "value"})
TIME = "2004-04-26T17:21:23.807+02:00"


def read(*blocks: bytes) -> list[Event]:
    catalog = PACKAGE.source.catalog_of(
        {"streams": [{"tap_stream_id": n, "stream": n, "schema": {}} for n in ("a", "b")]}
    )
    streams = tuple(
        ConfiguredStream(
            stream=stream,
            sync_mode=SyncMode.incremental,
            destination_sync_mode=DestinationSyncMode.append,
        )
        for stream in catalog.streams
    )
    request = ReadRequest(config={}, streams=streams, abilities={"catalog_argument": "catalog"})
    return list(PACKAGE.source.read(MemoryRuntime(lambda _: blocks), request))


def record(n: int, choose: Random) -> dict[str, Any]:
    found = {"stream": choose.choice(["a", "a", "b", "other"]), "time_extracted": TIME}
    found |= {"record": {"n": n, "v": value(choose)}}
    more: list[dict[str, Any]] = [
        {}, {}, {"time_extracted": f"2024-01-01 00:00:{n:02d}"}, {"version": 1}, {"version": "2"},
        {"version": "none"}, {"version": None}, {"record": [{}]}, {"record": None}, {"stream": 5},
    ]  # fmt: skip
    return {"type": choose.choice(["RECORD", "RECORD", "record"]), **found, **choose.choice(more)}


def message(n: int, choose: Random) -> dict[str, Any]:
    if choose.random() < 0.6:
        return record(n, choose)
    stream = choose.choice(["a", "b", "other"])
    text = {"type": "string", "pattern": choose.choice(LOOKS)}
    schema = choose.choice([{"properties": {"n": {"type": "integer"}, "v": text}}, {}, True, 5])
    keys = choose.choice([["n"], [], None])
    return choose.choice([
        {"type": "STATE", "value": value(choose)},
        {"type": "STATE"},
        {"type": "SCHEMA", "stream": stream, "schema": schema, "key_properties": keys},
        {"type": "ACTIVATE_VERSION", "stream": stream, "version": choose.choice([1, "2", None])},
        {"type": "FUTURE", "n": n},
    ])  # fmt: skip


def come(events: Iterable[Event]) -> Any:
    """What comes: rows by stream and version, and rejects by stream; all else in order, with the
    numbers of rows and rejects before it; counts."""
    rows: dict[Any, list[Any]] = {}
    rejects: dict[Any, list[Any]] = {}
    others: list[Any] = []
    counts: Counter[str] = Counter()
    for event in events:
        match event:
            case Batch(stream, bodies, times):
                for body, at in zip(bodies, times, strict=True):
                    parsed = json.loads(bytes(body)), at
                    rows.setdefault((stream, event.version), []).append(parsed)
            case Reject(stream, reason, raw):
                told = json.dumps(without_strange(json.loads(raw)), sort_keys=True)
                rejects.setdefault(stream, []).append((reason, told))
            case SkippedItems(what, count):
                counts[what] += 0 if what == "blank_line" else count
            case State(scope, blob):
                others.append((scope, json.loads(blob), _sizes(rows), _sizes(rejects)))
            case Activate(stream) | Schema(stream):
                of = {key: found for key, found in rows.items() if key[0] == stream}
                others.append((event, _sizes(of)))
            case LogEvent() if event.level == "INFO":  # a line that is not known, as it was written
                pass
            case Tick():
                pass
            case _:
                others.append(event)
    return rows, {s: sorted(r) for s, r in rejects.items()}, others, +counts


def _sizes(found: dict[Any, list[Any]]) -> dict[Any, int]:
    return {key: len(of) for key, of in found.items()}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 12))
def test_how_messages_are_written_and_cut_changes_nothing(seed: int, count: int) -> None:
    choose = Random(seed)
    messages = [message(n, choose) for n in range(count)]
    assert come(read(*otherwise(messages, choose, CONTENT))) == come(read(plainly(messages)))
