"""Names as long as a source likes (issue 36, 16): whole where they name or are compared, cut where
they are shown."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipelines import Heard, Site

from penstock.config.load import load_pipeline
from penstock.engine.inspect.plan_check import plan_pipeline

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

HUGE = "n" * 300_000
FEW = 100_000  # bytes


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"id": {"type": "integer"}, **properties}}


def stream(name: str = "s0", **properties: Any) -> dict[str, Any]:
    modes = ["full_refresh", "incremental"]
    return {"name": name, "json_schema": schema(**properties), "supported_sync_modes": modes}


def record(data: dict[str, Any], name: str = "s0") -> dict[str, Any]:
    body = {"stream": name, "data": data, "emitted_at": 0}
    return {"message": {"type": "RECORD", "record": body}}


EVERY = [
    {"id": 1, HUGE: 1},  # not declared
    {"id": 2, HUGE + "c": "no number"},
    {"id": 3, "o": {HUGE: "no number", HUGE + "x": 2}},
]
RUNS: dict[str, tuple[str, list[Any]]] = {
    "fields": (
        "s0",
        [
            *map(record, EVERY),
            record({"id": 1}, HUGE),  # of a stream that nobody named
            {"message": {"type": HUGE}},
            {"message": {"type": "TRACE", "trace": {"type": HUGE, "emitted_at": 0}}},
        ],
    ),
    "a stream": (HUGE, [record({"id": n, HUGE + "c": n}, HUGE) for n in (1, 2, 3)]),
}


@pytest.mark.parametrize("case", RUNS)
def test_names_are_cut_where_they_are_shown(
    site: Callable[..., Site], tmp_path: Path, case: str
) -> None:
    name, steps = RUNS[case]
    number = {"type": "integer"}
    nested = {"type": "object", "properties": {HUGE: number}}
    streams = [stream(name, **{HUGE + "c": number, "o": nested})]
    told, tap, here = tmp_path / "told.json", tmp_path / "tap", site()
    told.write_text(json.dumps({"streams": streams, "steps": steps}))
    tap.write_text(TAP.format(told=str(told)))
    tap.chmod(0o755)
    parts: dict[str, Any] = {
        "use": f"airbyte:{tap}",
        "defaults": {"destination_sync_mode": "append", "sync_mode": "full_refresh"},
    }
    plan = plan_pipeline(load_pipeline(here.write(**parts), env={}), here.home, observer=Heard())
    assert len(json.dumps(plan)) < FEW, {k: len(json.dumps(v)) for k, v in plan.items()}
    ran = here.run(**parts)
    assert ran.status == "succeeded", str(ran.error)[:1000]
    folder = here.home.run(ran.report.run)
    assert (folder / "report.json").stat().st_size < FEW
    assert (folder / "log.jsonl").stat().st_size < FEW
    assert sum(map(len, ran.heard.notes)) < FEW
    assert sum(len(detail) for _, detail in ran.heard.phases) < FEW
    (table,) = here.tables()
    assert [row["id"] for row in here.rows(table, "id")] == [1, 2, 3]
    again = here.run(**parts)  # each name is still the same stream and column
    assert again.counts(ran.report.streams[0].name) == ("complete", 3, 3, 0)
    assert here.tables() == [table]


TAP = """#!/usr/bin/env python3
import json, sys

told = json.load(open({told!r}))
command, catalog = sys.argv[1], {{"streams": told["streams"]}}
say = lambda **message: print(json.dumps(message), flush=True)
if command == "spec":
    say(type="SPEC", spec={{"connectionSpecification": {{"type": "object"}}}})
elif command == "check":
    say(type="CONNECTION_STATUS", connectionStatus={{"status": "SUCCEEDED"}})
elif command == "discover":
    say(type="CATALOG", catalog=catalog)
else:
    for step in told["steps"]:
        say(**step["message"])
"""
