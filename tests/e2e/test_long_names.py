"""Names as long as a source likes (issue 36, 16): whole where they name or are compared, cut where
they are shown."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pipelines import Heard, Site

from penstock.config.load import load_pipeline
from penstock.engine.inspect.plan_check import plan_pipeline

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

HUGE = "n" * 3_000_000
FEW = 100_000  # bytes
APPEND = {"destination_sync_mode": "append"}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"id": {"type": "integer"}, **properties}}


def stream(name: str = "s0", **properties: Any) -> dict[str, Any]:
    modes = ["full_refresh", "incremental"]
    return {"name": name, "json_schema": schema(**properties), "supported_sync_modes": modes}


def record(data: dict[str, Any], name: str = "s0") -> dict[str, Any]:
    body = {"stream": name, "data": data, "emitted_at": 0}
    return {"message": {"type": "RECORD", "record": body}}


CASES: dict[str, tuple[list[Any], list[Any]]] = {
    "an undeclared field": ([stream()], [record({"id": 1, HUGE: 1})]),
    "a column": ([stream(**{HUGE: {"type": "integer"}})], [record({"id": 1, HUGE: "no number"})]),
    "a field of an object": (
        [stream(o={"type": "object", "properties": {HUGE: {"type": "integer"}}})],
        [record({"id": 1, "o": {HUGE: "x", HUGE + "2": 2}})],
    ),
    "a stream that is not selected": ([stream()], [record({"id": 1}), record({"id": 2}, HUGE)]),
    "a stream": ([stream(HUGE)], [record({"id": 1}, HUGE)]),
    "a type of message": ([stream()], [{"message": {"type": HUGE}}, record({"id": 1})]),
    "a status": (
        [stream()],
        [
            record({"id": 1}),
            {"message": {"type": "TRACE", "trace": {"type": HUGE, "emitted_at": 0}}},
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_names_are_cut_where_they_are_shown(
    site: Callable[..., Site], tmp_path: Any, case: str
) -> None:
    streams, steps = CASES[case]
    told = tmp_path / "told.json"  # longer than a command line takes
    here = site()
    told.write_text(json.dumps({"streams": streams, "steps": steps}))
    parts: dict[str, Any] = {
        "use": f"airbyte:{tmp_path / 'tap'}",
        "defaults": {**APPEND, "sync_mode": "full_refresh"},
    }
    tap = tmp_path / "tap"
    tap.write_text(TAP.format(told=str(told)))
    tap.chmod(0o755)
    plan = plan_pipeline(load_pipeline(here.write(**parts), env={}), here.home, observer=Heard())
    assert len(json.dumps(plan)) < FEW, {k: len(json.dumps(v)) for k, v in plan.items()}
    ran = here.run(**parts)
    assert ran.status == "succeeded", str(ran.error)[:1000]
    folder = here.home.run(ran.report.run)
    assert (folder / "report.json").stat().st_size < FEW
    assert (folder / "log.jsonl").stat().st_size < FEW
    assert sum(map(len, ran.heard.notes)) < FEW
    assert sum(len(detail) for _, detail in ran.heard.phases) < FEW
    assert len(here.tables()) == 1 and len(here.rows(here.tables()[0], "id")) == 1


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
