"""L6: a full refresh whose source fails is shown only if the source's last word on the stream was
that it is whole: of a tap, the activation of its rows' version.

PipelineWise's taps announce a version before its rows, by the same message that ends it.
"""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

pytestmark = pytest.mark.dear

# ``turns``: ["row", version, id] or ["activate", version]; ``code``: of the exit.
TAP = """
schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
about = {"replication-method": "FULL_TABLE", "forced-replication-method": "FULL_TABLE"}
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": "sales", "stream": "sales", "schema": schema,
        "metadata": [{"breadcrumb": [], "metadata": about}]}]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
say({"type": "SCHEMA", "stream": "sales", "schema": schema, "key_properties": []})
for kind, version, *number in WORLD["turns"]:
    if kind == "activate":
        say({"type": "ACTIVATE_VERSION", "stream": "sales", "version": version})
    else:
        record = {"id": number[0]}
        say({"type": "RECORD", "stream": "sales", "version": version, "record": record})
sys.exit(WORLD["code"])
"""
OLD = [["row", 1, 1], ["row", 1, 2], ["activate", 1]]
WHOLE = [["row", 2, 3], ["row", 2, 4], ["activate", 2]]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("turns", "shown"),
    [
        (WHOLE, [3, 4]),
        ([*WHOLE, ["activate", 2]], [3, 4]),
        ([["activate", 2], *WHOLE], [3, 4]),
        ([["activate", 2], ["row", 2, 3]], [1, 2]),
        ([["row", 2, 3], ["activate", 3]], [1, 2]),
        ([*WHOLE, ["activate", 3]], [1, 2]),
        ([*WHOLE, ["row", 2, 5]], [1, 2]),
        ([*WHOLE, ["row", 3, 5]], [1, 2]),
        ([*WHOLE, ["row", 3, 5], ["activate", 3]], [3, 4, 5]),
    ],
)
def test_L6_a_refresh_of_a_dead_tap_is_shown_if_the_last_word_was_that_it_is_whole(
    bench: Bench, turns: list[Any], shown: list[int]
) -> None:
    tap = bench.connector(TAP)
    bench.set(turns=OLD, code=0)
    assert bench.run(tap).exit_code == 0
    assert bench.ids("sales") == [1, 2]
    bench.set(turns=turns, code=1)
    report = bench.run(tap)
    assert report.exit_code != 0
    assert bench.ids("sales") == shown
    assert (report.streams[0].status == "complete") is (shown != [1, 2])


def test_L6_exit_code_0_shows_a_refresh_whatever_was_announced(bench: Bench) -> None:
    bench.set(turns=[*WHOLE, ["activate", 3], ["row", 3, 5]], code=0)
    assert bench.run(bench.connector(TAP)).exit_code == 0
    assert bench.ids("sales") == [3, 4, 5]


# ``turns``: as above, or ["status", status].
SOURCE = """
if "spec" in sys.argv:
    say({"type": "SPEC", "spec": {"connectionSpecification": {}}})
elif "check" in sys.argv:
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif "discover" in sys.argv:
    schema = {"properties": {"id": {"type": "integer"}}}
    say({"type": "CATALOG", "catalog": {"streams": [
        {"name": "sales", "json_schema": schema, "supported_sync_modes": ["full_refresh"]}]}})
else:
    for kind, value in WORLD["turns"]:
        if kind == "row":
            say({"type": "RECORD", "record":
                {"stream": "sales", "data": {"id": value}, "emitted_at": 1}})
        else:
            say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1.0,
                "stream_status": {"stream_descriptor": {"name": "sales"}, "status": value}}})
    sys.exit(WORLD["code"])
"""
ENDED = ["status", "COMPLETE"]


@pytest.mark.parametrize(
    ("turns", "code", "shown"),
    [
        ([["row", 3], ENDED], 1, [3]),
        ([["row", 3], ENDED, ENDED], 1, [3]),
        ([["row", 3], ENDED, ["row", 4]], 1, [1]),
        ([ENDED, ["row", 3]], 1, [1]),
        ([ENDED, ["row", 3], ENDED], 1, [3]),
        ([ENDED, ["row", 3]], 0, [3]),
        ([["row", 3], ENDED, ["status", "INCOMPLETE"]], 0, [1]),
    ],
)
def test_L6_a_status_before_the_rows_of_a_dead_source_says_nothing_of_them(
    bench: Bench, turns: list[Any], code: int, shown: list[int]
) -> None:
    source = bench.connector(SOURCE, "airbyte")
    how = {"defaults": {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}}
    bench.set(turns=[["row", 1], ENDED], code=0)
    assert bench.run(source, source=how).exit_code == 0
    bench.set(turns=turns, code=code)
    bench.run(source, source=how)
    assert bench.ids("sales") == shown
