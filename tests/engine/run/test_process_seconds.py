"""A report's ``time`` has the seconds of the whole process (issue 37, part 6)."""

import time
from pathlib import Path

import msgspec
import pytest
from quick_runs import Bench

from penstock import process_start
from penstock.config.home import Home

pytestmark = pytest.mark.dear
TAP = """
schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": "s", "stream": "s", "schema": schema, "metadata": []}]})
    sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
say({"type": "SCHEMA", "stream": "s", "schema": schema, "key_properties": []})
say({"type": "RECORD", "stream": "s", "record": {"id": 1}})
"""


def test_the_first_run_of_a_command_counts_from_its_start_and_each_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    bench.set()
    use = bench.connector(TAP)
    monkeypatch.setattr(process_start, "_noted", [time.monotonic() - 1000])
    first, second = bench.run(use), bench.run(use)
    assert first.time.wall > 1000 > second.time.wall
    for report in (first, second):
        assert report.status == "succeeded"
        assert report.time.wall >= round(report.seconds + report.time.close, 3) - 0.002 > 0
        kept = Home(tmp_path / "home").run(report.run) / "report.json"
        assert msgspec.json.decode(kept.read_bytes()) == msgspec.to_builtins(report)
