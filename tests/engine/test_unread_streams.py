"""L1, L8: a run of fewer streams leaves the others' positions, whatever the source's state names.

Sources that keep one state for all of their streams, and write into it only those that they were
asked for: the protocol's GLOBAL state without a shared part, and bookmarks of a tap. Three runs
each, rows counted under append, where a stream that is read again has its rows twice.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.config.pipeline import StreamOptions
from penstock.engine.inspect import states
from penstock.engine.run.reject_retry import RetryRequest

pytestmark = pytest.mark.dear

# ``rows``: stream -> how many there are; ``beside``: what the state has beside its streams.
SOURCE = """
properties = {"number": {"type": "integer"}}
if "spec" in sys.argv:
    say({"type": "SPEC", "spec": {"connectionSpecification": {}}})
elif "check" in sys.argv:
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif "discover" in sys.argv:
    say({"type": "CATALOG", "catalog": {"streams": [
        {"name": name, "namespace": "shop", "json_schema": {"properties": properties},
         "supported_sync_modes": ["incremental", "full_refresh"], "source_defined_cursor": True,
         "default_cursor_field": ["number"]} for name in WORLD["rows"]]}})
else:
    asked = [one["stream"]["name"] for one in given("--catalog")["streams"]]
    old = (given("--state") or [{"global": {"stream_states": []}}])[0]["global"]["stream_states"]
    last = {one["stream_descriptor"]["name"]: one["stream_state"]["last"] for one in old
            if one.get("stream_state")}
    for name in asked:
        for number in range(last.get(name, 0) + 1, WORLD["rows"][name] + 1):
            say({"type": "RECORD", "record": {"stream": name, "namespace": "shop",
                "data": {"number": number}, "emitted_at": 1}})
        last[name] = WORLD["rows"][name]
    told = [{"stream_descriptor": {"name": name, "namespace": "shop"},
             "stream_state": {"last": last[name]}} for name in asked]
    say({"type": "STATE", "state": {"type": "GLOBAL", "global":
        {"stream_states": told, **WORLD.get("beside", {})}}})
    for name in asked:
        say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status":
            {"stream_descriptor": {"name": name, "namespace": "shop"}, "status": "COMPLETE"}}})
"""

TAP = """
schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": "shop-" + name, "stream": name, "schema": schema, "metadata":
        [{"breadcrumb": [], "metadata": {"replication-method": WORLD.get("method", "INCREMENTAL"),
          "forced-replication-method": WORLD.get("method", "INCREMENTAL"),
          "replication-key": "number", "valid-replication-keys": ["number"]}}]}
        for name in WORLD["rows"]]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
asked = [one for one in given("--catalog")["streams"] if any(
    m["breadcrumb"] == [] and m["metadata"].get("selected") for m in one["metadata"])]
old = (given("--state") or {}).get("bookmarks", {})
new = {}
for one in asked:
    name = one["stream"]
    say({"type": "SCHEMA", "stream": name, "schema": schema, "key_properties": []})
    for number in range(old.get(one["tap_stream_id"], {}).get("number", 0) + 1,
                        WORLD["rows"][name] + 1):
        say({"type": "RECORD", "stream": name, "record": {"number": number}})
    new[one["tap_stream_id"]] = {"number": WORLD["rows"][name]}
    say({"type": "STATE", "value": {"bookmarks": new, **WORLD.get("beside", {})}})
"""

APPEND = {"defaults": {"sync_mode": "incremental", "destination_sync_mode": "append"}}
EACH = pytest.mark.parametrize(("protocol", "program"), [("airbyte", SOURCE), ("singer", TAP)])


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def name_of(stream: str, protocol: str) -> str:
    return f"shop-{stream}" if protocol == "singer" else stream


def rows(bench: Bench, stream: str) -> list[int]:
    tables = bench.tables.rows.items()
    return sorted(r["number"] for table, kept in tables if stream in table.name for r in kept)


def sync(bench: Bench, source: str, *streams: str) -> None:
    chosen: dict[str, Any] = {}
    if streams:
        chosen = {"streams": [name_of(stream, bench.protocol) for stream in streams]}
    report = bench.run(source, source={**APPEND, **chosen})
    assert report.exit_code == 0, report.error
    assert all(line.status == "complete" for line in report.streams)


def positions(bench: Bench) -> dict[str, int]:
    """Stream -> the last number, by the saved state."""
    (saved,) = bench.states()
    value = json.loads(saved.blob)
    if bench.protocol == "singer":
        return {name.removeprefix("shop-"): m["number"] for name, m in value["bookmarks"].items()}
    entries = value["global"]["stream_states"]
    return {
        e["stream_descriptor"]["name"]: e["stream_state"]["last"] for e in entries
        if e["stream_state"]
    }  # fmt: skip


@EACH
def test_L1_a_run_of_fewer_streams_leaves_the_others_positions(
    bench: Bench, protocol: str, program: str
) -> None:
    source = bench.connector(program, protocol)
    bench.set(rows={"orders": 3, "clicks": 2})
    sync(bench, source)
    bench.set(rows={"orders": 5, "clicks": 4})
    sync(bench, source, "orders")
    assert positions(bench) == {"orders": 5, "clicks": 2}
    sync(bench, source)
    assert rows(bench, "orders") == [1, 2, 3, 4, 5]
    assert rows(bench, "clicks") == [1, 2, 3, 4]
    sync(bench, source, "clicks")
    sync(bench, source)
    assert rows(bench, "orders") == [1, 2, 3, 4, 5]


@EACH
def test_L6_the_position_of_a_stream_that_was_reset_does_not_come_back(
    bench: Bench, protocol: str, program: str
) -> None:
    source = bench.connector(program, protocol)
    bench.set(rows={"orders": 3, "clicks": 2})
    sync(bench, source)
    assert positions(bench) == {"orders": 3, "clicks": 2}
    with bench.known() as known:
        states.reset(known, StreamOptions(name=name_of("clicks", protocol)))
    sync(bench, source, "orders")
    assert positions(bench) == {"orders": 3}


@EACH
def test_L6_positions_are_not_kept_beside_one_that_all_streams_share(
    bench: Bench, protocol: str, program: str
) -> None:
    """A place in a log moves on for the streams that are not read too."""
    source = bench.connector(program, protocol)
    shared = {"shared_state": {"lsn": 7}} if protocol == "airbyte" else {"lsn": 7}
    bench.set(rows={"orders": 3, "clicks": 2}, beside=shared)
    sync(bench, source)
    sync(bench, source, "orders")
    assert positions(bench) == {"orders": 3}


def test_L8_the_position_in_a_log_of_a_stream_that_was_not_read_is_not_kept(bench: Bench) -> None:
    """What a log says of it meanwhile may be gone: it is read from the start."""
    source = bench.connector(TAP)
    bench.set(rows={"orders": 3, "clicks": 2}, method="LOG_BASED")
    log_based = {"defaults": {"sync_mode": "cdc", "destination_sync_mode": "append"}}
    bench.run(source, source=log_based)
    assert positions(bench) == {"orders": 3, "clicks": 2}
    bench.run(source, source={**log_based, "streams": ["shop-orders"]})
    assert positions(bench) == {"orders": 3}


def test_L1_a_retry_of_rejects_reads_no_stream(bench: Bench) -> None:
    """The state says something of a stream that no run has read, and a retry is no read."""
    source = bench.connector(SOURCE, "airbyte")
    ahead = [
        {"stream_descriptor": {"name": name, "namespace": "shop"}, "stream_state": {"last": last}}
        for name, last in (("orders", 3), ("clicks", 2))
    ]
    bench.set(rows={"orders": 3}, beside={"stream_states": ahead})
    sync(bench, source)
    bench.set(rows={"orders": 5, "clicks": 4})
    for _ in range(2):
        report = bench.run(source, source=APPEND, retry=RetryRequest())
        assert report.exit_code == 0, report.error
    sync(bench, source)
    assert rows(bench, "orders") == [1, 2, 3, 4, 5]
    assert rows(bench, "clicks") == [1, 2, 3, 4]
