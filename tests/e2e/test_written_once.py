"""The first rows of a stream with keys are written once (issue 37, part 5): the parts that its lane
wrote become files of the table, where no key comes twice; else the newest row of each key stays."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pipelines import Ran, Site

from penstock.engine.log.log import FileLog

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SOURCE = """
import json, sys
WALL = {"type": ["null", "string"], "format": "date-time",
        "airbyte_type": "timestamp_without_timezone"}
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "v": {"type": "string"},
                                           "wall": WALL}}
STREAM = {"name": "t", "json_schema": SCHEMA, "supported_sync_modes": ["full_refresh"],
          "source_defined_primary_key": [["id"]]}
if sys.argv[1] == "spec":
    print(json.dumps({"type": "SPEC", "spec": {"connectionSpecification": {}}}))
elif sys.argv[1] == "check":
    print(json.dumps({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}}))
elif sys.argv[1] == "discover":
    print(json.dumps({"type": "CATALOG", "catalog": {"streams": [STREAM]}}))
else:
    for id, v in %r:
        data = {"id": id, "v": v, "wall": "2024-01-02T03:04:05"}
        record = {"stream": "t", "emitted_at": 1, "data": data}
        print(json.dumps({"type": "RECORD", "record": record}), flush=True)
"""
Rows = Sequence[tuple[int, str]]


def run(site: Site, rows: Rows) -> Ran:
    script = site.folder / "source.py"
    script.write_text(SOURCE % list(rows))
    modes = {"sync_mode": "full_refresh", "destination_sync_mode": "append_dedup"}
    done = site.run(use=f"airbyte:{sys.executable} {script}", defaults=modes)
    assert done.exit_code == 0, done.error
    return done


def pairs(site: Site) -> list[tuple[int, str]]:
    return sorted((r["id"], r["v"]) for r in site.rows("t", "id"))


@pytest.fixture
def parts(site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch) -> Callable[[Site], set[int]]:
    """The inodes of all parts that a site's lanes sealed; they stay in the log for this test."""
    for name in ("discard", "drop_epochs"):
        monkeypatch.setattr(FileLog, name, lambda self, gone: None)
    return lambda place: inodes(place.folder.rglob("epochs/*/parts/*.parquet"))


def inodes(files: Any) -> set[int]:
    return {Path(file).stat().st_ino for file in files}


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_first_rows_are_written_once_and_later_ones_are_merged(
    site: Callable[..., Site], parts: Callable[[Site], set[int]], format: str
) -> None:
    place = site(format)
    first = run(place, [(1, "a"), (2, "b"), (3, "c")])
    assert first.report.streams[0].written == 3
    files = inodes(place.lake.rglob("t/*.parquet"))
    assert files and files <= parts(place)
    assert pairs(place) == [(1, "a"), (2, "b"), (3, "c")]
    run(place, [(3, "new"), (4, "d"), (4, "last")])
    assert pairs(place) == [(1, "a"), (2, "b"), (3, "new"), (4, "last")]


def test_of_first_rows_with_one_key_the_last_one_stays(
    site: Callable[..., Site], parts: Callable[[Site], set[int]]
) -> None:
    place = site("delta")
    done = run(place, [(1, "a"), (2, "b"), (1, "c")])
    assert pairs(place) == [(1, "c"), (2, "b")]
    assert done.report.streams[0].superseded == 1
    assert not inodes(place.lake.rglob("t/*.parquet")) & parts(place)
