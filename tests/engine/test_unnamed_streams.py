"""L2: rows of a stream that a GLOBAL state does not name are sent again, and the report says so.

Protocol, State & Checkpointing: a source reads a stream without an entry from the start.
"""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

# ``named``: for each of its states in turn, the streams that it names, after all rows of both.
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
         "default_cursor_field": ["number"]} for name in ("orders", "clicks")]}})
else:
    old = (given("--state") or [{"global": {"stream_states": []}}])[0]["global"]["stream_states"]
    last = {one["stream_descriptor"]["name"]: one["stream_state"]["last"] for one in old}
    for name in ("orders", "clicks"):
        for number in range(last.get(name, 0) + 1, 4):
            say({"type": "RECORD", "record": {"stream": name, "namespace": "shop",
                "data": {"number": number}, "emitted_at": 1}})
    for named in WORLD["named"]:
        told = [{"stream_descriptor": {"name": name, "namespace": "shop"},
                 "stream_state": {"last": 3}} for name in named]
        say({"type": "STATE", "state": {"type": "GLOBAL", "global":
            {"stream_states": told, **WORLD["beside"]}}})
"""
SAID = "at least once: rows that no state covers were loaded (shop.clicks)"
LOG = {"shared_state": {"lsn": 7}}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def sync(bench: Bench, mode: str, named: list[list[str]], beside: dict[str, Any]) -> Any:
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    if mode == "full_refresh":
        modes = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
    bench.set(named=named, beside=beside)
    report = bench.run(bench.connector(SOURCE, "airbyte"), source={"defaults": modes})
    assert report.exit_code == 0, report.error
    return report


def clicks(bench: Bench) -> list[int]:
    (rows,) = [kept for table, kept in bench.tables.rows.items() if "clicks" in table.name]
    return sorted(row["number"] for row in rows)


@pytest.mark.parametrize("beside", [{}, LOG])
def test_L2_rows_of_a_stream_that_the_state_does_not_name_are_at_least_once(
    bench: Bench, beside: dict[str, Any]
) -> None:
    for times in (1, 2):
        report = sync(bench, "incremental", [["orders"]], beside)
        assert clicks(bench) == sorted([1, 2, 3] * times)  # nothing is lost
        assert report.guarantee == "at-least-once" and SAID in report.notes


@pytest.mark.parametrize(
    ("mode", "named", "beside"),
    [
        ("incremental", [["orders", "clicks"]], {}),
        ("incremental", [["orders"], ["orders", "clicks"]], {}),
        ("incremental", [[]], LOG),
        ("full_refresh", [["orders"]], {}),
    ],
)
def test_L2_rows_that_are_not_sent_again_are_exactly_once(
    bench: Bench, mode: str, named: list[list[str]], beside: dict[str, Any]
) -> None:
    report = sync(bench, mode, named, beside)
    assert not any("no state covers" in note for note in report.notes)
    label = "exactly-once" if mode == "full_refresh" else "at-least-once"  # for its cursor
    assert report.guarantee == label


def test_L2_a_state_that_no_longer_names_a_stream_makes_its_rows_at_least_once(
    bench: Bench,
) -> None:
    report = sync(bench, "incremental", [["orders", "clicks"], ["orders"]], {})
    assert report.guarantee == "at-least-once" and SAID in report.notes
