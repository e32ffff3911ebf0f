"""A load that is written down and whose parts are gone for good: what gets past it, as its error
says (L3)."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from quick_runs import NAME, Bench

from penstock.engine.inspect.states import reset
from penstock.errors import DestinationError
from penstock.model.report import Report

TAP = """
ids = {"type": "object", "properties": {"id": {"type": "integer"}}}
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": "s", "stream": "s", "key_properties": [], "schema": ids,
                      "metadata": [{"breadcrumb": [], "metadata": {"selected": True}}]}]})
elif "--config" in sys.argv or "--catalog" in sys.argv:
    say({"type": "SCHEMA", "stream": "s", "key_properties": [], "schema": ids})
    for i in range((given("--state") or {}).get("at", 0) + 1, WORLD["n"] + 1):
        say({"type": "RECORD", "stream": "s", "record": {"id": i}})
    say({"type": "STATE", "value": {"at": WORLD["n"]}})
else:
    sys.exit(1)
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def refuse(_: Any, loads: list[Any]) -> list[Any]:
    return [DestinationError("no room") for _ in loads]


def test_L3_the_error_of_parts_that_are_gone_names_the_way_past_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh alone repeats the load first: where the refresh is cancelled, the pipeline goes on
    from the states behind the load, which must not be gone then."""
    use = bench.connector(TAP)
    bench.set(n=3)
    assert bench.run(use).exit_code == 0
    bench.set(n=6)
    with monkeypatch.context() as patch:
        patch.setattr(bench.tables, "commit", refuse)
        assert bench.run(use).exit_code != 0
    (epochs,) = bench.home.path.rglob("epochs")
    shutil.rmtree(epochs)

    def refused(report: Report) -> None:
        assert report.exit_code == 6 and report.error is not None
        assert report.error["code"] == "log.corrupt"
        hint = report.error["hint"]
        assert f"`penstock state reset {NAME} --home {bench.home.path}`" in hint, hint
        assert "`--recreate`" in hint
        assert bench.ids("s") == [1, 2, 3]

    refused(bench.run(use))
    refused(bench.run(use, recreate=True))
    with bench.known() as known:
        reset(known)
    assert bench.run(use, recreate=True).exit_code == 0
    assert bench.ids("s") == [1, 2, 3, 4, 5, 6]
