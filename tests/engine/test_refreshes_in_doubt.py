"""L1, L6: what a refresh (``--recreate``) may go on from, which state waits for it, and its label.

Each source is written from a public report. Runs without Spark (``quick_runs``).
"""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.config.pipeline import StreamOptions
from penstock.engine.inspect import states
from penstock.model.report import Report

# A source whose API fails for some pages: it logs that, reads the next page and ends with exit code
# 0 (https://github.com/airbytehq/airbyte/issues/12782). ``hole``: rows of such pages.
SOURCE = """
if "spec" in sys.argv:
    say({"type": "SPEC", "spec": {"connectionSpecification": {}}})
elif "check" in sys.argv:
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif "discover" in sys.argv:
    say({"type": "CATALOG", "catalog": {"streams": [
        {"name": "a", "json_schema": {"properties": {"id": {"type": "integer"}}},
         "supported_sync_modes": ["incremental", "full_refresh"], "default_cursor_field": ["id"],
         "source_defined_primary_key": [["id"]]}]}})
else:
    old = given("--state") or []
    at = old[0]["stream"]["stream_state"]["at"] if old else 0
    for number in range(max(at, 1), WORLD["rows"] + 1):  # by >=: the row at the cursor comes again
        if number in WORLD.get("hole", []):
            say({"type": "LOG", "log": {"level": "ERROR", "message": f"page {number}: 500"}})
            continue
        say({"type": "RECORD", "record": {"stream": "a", "data": {"id": number}, "emitted_at": 1}})
        say({"type": "STATE", "state": {"type": "STREAM", "stream": {
            "stream_descriptor": {"name": "a"}, "stream_state": {"at": number}}}})
        if number == WORLD.get("dies"): sys.exit(1)
"""

# A tap with a second bookmark of its stream, under a name that no stream has
# (https://github.com/singer-io/tap-stripe/pull/130). ``events``: when a row of ``charges`` changed.
TAP = """
schema = {"type": "object", "properties": {"id": {"type": "integer"}, "v": {"type": "string"}}}
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": name, "stream": name, "schema": schema,
        "key_properties": ["id"], "metadata": [{"breadcrumb": [], "metadata":
        {"replication-method": "INCREMENTAL", "replication-key": "id",
         "valid-replication-keys": ["id"]}}]} for name in ("charges", "refunds")]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
marks = dict((given("--state") or {}).get("bookmarks") or {})
asked = [one["stream"] for one in given("--catalog")["streams"] if any(
    m["breadcrumb"] == [] and m["metadata"].get("selected") for m in one["metadata"])]
for name in asked:
    say({"type": "SCHEMA", "stream": name, "schema": schema, "key_properties": ["id"]})
    for number in range(marks.get(name, 0) + 1, WORLD[name] + 1):
        changed = name == "charges" and number in WORLD["events"]
        say({"type": "RECORD", "stream": name,
             "record": {"id": number, "v": "new" if changed else "old"}})
        marks[name] = number
        say({"type": "STATE", "value": {"bookmarks": marks}})
        if WORLD.get("dies") == [name, number]: sys.exit(1)
    if name == "charges":
        for number in WORLD["events"]:
            if WORLD["now"] > marks.get("charges_events", 0):
                say({"type": "RECORD", "stream": name, "record": {"id": number, "v": "new"}})
        marks["charges_events"] = WORLD["now"]
    say({"type": "STATE", "value": {"bookmarks": marks}})
"""

UPSERT = {"defaults": {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}}
APPEND = {"defaults": {"sync_mode": "incremental", "destination_sync_mode": "append"}}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def recreate(bench: Bench, use: str, source: dict[str, Any]) -> Report:
    return bench.run(use, source=source, recreate=True)


def test_L6_nothing_goes_on_from_a_refresh_that_may_lack_rows(bench: Bench) -> None:
    source = bench.connector(SOURCE, "airbyte")
    bench.set(rows=6)
    assert bench.run(source, source=UPSERT).exit_code == 0
    bench.set(rows=6, hole=[2, 3])
    assert recreate(bench, source, UPSERT).exit_code == 4
    assert bench.ids("a") == [1, 2, 3, 4, 5, 6]
    bench.set(rows=6)
    assert bench.run(source, source=UPSERT).exit_code == 0
    assert bench.ids("a") == [1, 2, 3, 4, 5, 6]


def test_a_refresh_under_append_is_not_said_to_be_exactly_once(bench: Bench) -> None:
    """The rows at its cursor come again: where it goes on, and in the run after it."""
    source = bench.connector(SOURCE, "airbyte")
    bench.set(rows=4)
    assert bench.run(source, source=APPEND).exit_code == 0
    bench.set(rows=4, dies=2)
    assert recreate(bench, source, APPEND).exit_code == 4
    bench.set(rows=4)
    report = bench.run(source, source=APPEND)
    assert report.exit_code == 0 and bench.ids("a") == [1, 2, 2, 3, 4]
    assert report.guarantee == "at-least-once"
    assert any("cursor id" in note for note in report.notes), report.notes
    assert recreate(bench, source, APPEND).guarantee == "at-least-once"
    assert bench.ids("a") == [1, 2, 3, 4]


def test_L1_a_bookmark_of_no_known_stream_waits_for_the_refresh(bench: Bench) -> None:
    tap = bench.connector(TAP)
    bench.set(charges=3, refunds=2, events=[], now=5)
    assert bench.run(tap, source=UPSERT).exit_code == 0
    bench.set(charges=3, refunds=2, events=[], now=5, dies=["charges", 2])
    alone = {**UPSERT, "streams": ["charges"]}
    assert recreate(bench, tap, alone).exit_code == 4
    # row 1 changes; the run reads that of charges, and dies later, in refunds
    bench.set(charges=3, refunds=5, events=[1], now=6, dies=["refunds", 4])
    assert bench.run(tap, source=UPSERT).exit_code == 4
    with bench.known() as known:
        states.cancel_refresh(known, StreamOptions(name="charges"))
    bench.set(charges=3, refunds=5, events=[1], now=6)
    assert bench.run(tap, source=UPSERT).exit_code == 0
    assert bench.ids("charges", "v") == ["new", "old", "old"]
    assert bench.ids("refunds") == [1, 2, 3, 4, 5]
