"""L6: a full refresh whose tap fails is shown only if the tap's last word on the stream was that
the version of its rows is whole.

PipelineWise's taps announce a version before its rows, by the same message that ends it.
"""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

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
