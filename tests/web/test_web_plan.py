"""What the plan page says of a table's columns, beside a real table."""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.api.answers import Plan
from penstock.api.table_changes import table_changes
from penstock.config.home import Home
from penstock.config.load import load_pipeline
from penstock.engine.inspect.plan_check import plan_pipeline
from penstock.web.jobs import JobObserver

SOURCE = """
import json, sys
def say(message): print(json.dumps(message), flush=True)
if sys.argv[1] == "spec":
    say({"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}}); sys.exit()
config = json.load(open(sys.argv[sys.argv.index("--config") + 1]))
if sys.argv[1] == "discover":
    say({"type": "CATALOG", "catalog": {"streams": [{"name": "t", "supported_sync_modes":
         ["full_refresh"], "source_defined_primary_key": [["id"]],
         "json_schema": {"type": "object", "properties": config["fields"]}}]}})
if sys.argv[1] == "read":
    def status(word): say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1,
        "stream_status": {"stream_descriptor": {"name": "t"}, "status": word}}})
    status("STARTED")
    say({"type": "RECORD", "record": {"stream": "t", "data": config["row"], "emitted_at": 1}})
    status("COMPLETE")
"""
INTEGER, NUMBER, TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}
BEFORE = {"id": INTEGER, "same": TEXT, "wider": INTEGER, "other": INTEGER, "gone": TEXT}
AFTER = {"id": INTEGER, "same": TEXT, "wider": NUMBER, "other": TEXT, "fresh": TEXT}
ROWS = ({"id": 1, "same": "a", "wider": 1, "other": 5, "gone": "x"},
        {"id": 2, "same": "a", "wider": 1.5, "other": "6", "fresh": "y"})  # fmt: skip
SAID = {
    "append": {"wider": "widened", "other": "cast", "gone": "kept", "fresh": "added"},
    "overwrite": {"wider": "changed", "other": "changed", "gone": "dropped", "fresh": "added"},
}


def write(place: Path, kind: str, mode: str, fields: Any, row: Any, policy: str = "") -> Path:
    (place / "source.py").write_text(SOURCE)
    file, use = place / "t.yaml", f"airbyte:{sys.executable} {place}/source.py"
    file.write_text(
        f"pipeline: t\nsource:\n  use: {json.dumps(use)}\n"
        f"  config: {json.dumps({'fields': fields, 'row': row})}\n"
        f"  defaults: {{destination_sync_mode: {mode}}}\n"
        f"destination:\n  use: {kind}:{place}/lake\n{policy}"
    )
    return file


def changes(place: Path, file: Path) -> Any:
    pipeline = load_pipeline(file)
    plan = plan_pipeline(pipeline, Home(place / "home"), observer=JobObserver())
    return table_changes(pipeline, msgspec.convert(plan, Plan))[0]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_the_plan_says_what_becomes_of_each_column(tmp_path: Path, mode: str) -> None:
    import deltalake
    import pyarrow as pa

    file = write(tmp_path, "delta", mode, BEFORE, ROWS[0])
    new = changes(tmp_path, file)
    assert new.is_new and {c.change for c in new.columns} == {"new"}
    whole = dict.fromkeys(("id", "wider", "other"), pa.array([1], pa.int64()))
    table = pa.table({**whole, "same": ["a"], "gone": ["x"], "_penstock_seq": ["1"]})
    deltalake.write_deltalake(str(tmp_path / "lake" / "t"), table)
    assert changes(tmp_path, file).changes == 0

    write(tmp_path, "delta", mode, AFTER, ROWS[1])
    found = changes(tmp_path, file)
    assert {c.name: c.change for c in found.columns if c.change != "same"} == SAID[mode]
    after = {c.name: c.after for c in found.columns}
    assert after["gone"] == (None if mode == "overwrite" else "string")
    assert after["wider"] == "number"

    policy = "  schema_evolution: {new_column: ignore, type_change: fail}\n"
    write(tmp_path, "delta", "append", BEFORE | {"id": TEXT, "more": TEXT}, ROWS[0], policy)
    refused = changes(tmp_path, file)
    assert "column id changes" in refused.refused
