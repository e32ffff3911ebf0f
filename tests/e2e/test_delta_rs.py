"""A Delta table from which delta-rs removed or changed rows (a GDPR delete): later runs merge into
it (L9)."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable
from pipelines import Site

from reported_connectors import INTEGER, TEXT, TIME, script, stream

pytestmark = [pytest.mark.spark, pytest.mark.dear, pytest.mark.timeout(300)]


@pytest.mark.parametrize("history", [False, True], ids=["upsert", "history"])
def test_runs_go_on_after_delta_rs_rewrote_files(site: Callable[..., Site], history: bool) -> None:
    here = site("delta")
    world, program = here.folder / "world.json", here.folder / "connector.py"
    program.write_text(script("airbyte", str(world), str(here.folder / "state.json")))
    offered = stream({"id": INTEGER, "name": TEXT, "at": TIME}, ("id",), "at")
    how = {"history": True} if history else {"mode": "upsert"}

    def sends(*rows: tuple[int, str, str]) -> None:
        sent: list[Any] = [["orders", {"id": i, "name": n, "at": at}] for i, n, at in rows]
        world.write_text(json.dumps({"streams": {"orders": offered}, "sent": sent}))
        parts = {"use": f"airbyte:{sys.executable} {program}"}
        ran = here.run(**parts, streams=[{"name": "orders", **how}])
        assert ran.status == "succeeded", ran.error

    def current() -> list[tuple[int, str]]:
        found = DeltaTable(str(here.lake / "orders")).to_pyarrow_table().to_pylist()
        return sorted((r["id"], r["name"]) for r in found if r.get("is_current", True))

    sends(*((i, f"c{i}", "2026-01-01T00:00:00Z") for i in range(1, 6)))
    table = DeltaTable(str(here.lake / "orders"))
    table.delete("id = 3")
    late = "2026-03-01T00:00:00" + ("Z" if history else ".123456789Z")  # cut to its column
    sends((2, "bob", "2026-03-01T00:00:00Z"), (6, "new", late))
    assert current() == [(1, "c1"), (2, "bob"), (4, "c4"), (5, "c5"), (6, "new")]
    DeltaTable(str(here.lake / "orders")).update(updates={"name": "'x'"}, predicate="id = 4")
    sends((1, "c1 too", "2026-03-02T00:00:00Z"), (6, "old", "2026-02-01T00:00:00Z"))
    assert current() == [(1, "c1 too"), (2, "bob"), (4, "x"), (5, "c5"), (6, "new")]
