"""Sources of v4 that do not tell their streams (section 3.1: ``discover`` is optional): these come
from the pipeline file, their schema from the first frame."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pipelines import NAME
from wasm_sites import MANIFEST, StageEvent, WasmSite, component, numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

UPSERT = {
    "sync_mode": "incremental", "destination_sync_mode": "append_dedup",
    "cursor_field": "seq", "primary_key": "seq",
}  # fmt: skip
NO_STREAMS = json.dumps({"streams": []}).encode().hex()


@pytest.fixture
def site(tmp_path: Path, shared_spark: "SparkSession") -> WasmSite:
    del shared_spark
    return WasmSite(tmp_path / "site", binary=component(MANIFEST))


def script(first: int, last: int) -> dict[str, Any]:
    told = StageEvent()
    commands = [told.frame(numbered(first, last)), f"at {last}"]
    return {**told.config({"s0": commands}), "catalog": NO_STREAMS}


@pytest.mark.parametrize(
    "overrides",
    [{"sync_mode": "full_refresh"}, UPSERT, {"sync_mode": "full_refresh", "columns": ["seq"]}],
    ids=["full refresh", "upsert", "columns"],
)
def test_streams_are_the_files_and_their_schema_is_the_first_frames(
    site: WasmSite, overrides: dict[str, Any]
) -> None:
    streams = [{"name": "s0", **overrides}]
    ran = site.run(config=script(1, 10), streams=streams)
    assert ran.exit_code == 0, ran.error
    assert ran.counts("s0") == ("complete", 10, 10, 0)
    rows = site.rows("s0")
    assert [r["seq"] for r in rows] == list(range(1, 11))
    if "columns" not in overrides:
        assert rows[0]["name"] == "N1"
    again = site.run(config=script(5, 15), streams=streams)
    assert again.exit_code == 0, again.error
    first = 1 if overrides is UPSERT else 5
    assert [r["seq"] for r in site.rows("s0")] == list(range(first, 16))
    with site.store() as store:
        (stream,) = store.known_streams(NAME)
        assert len(store.schemas(NAME, stream)) <= 3, "what is known stays known"


def test_a_stream_without_rows_is_typed_by_the_first_that_come(site: WasmSite) -> None:
    empty = {**StageEvent().config({"s0": []}), "catalog": NO_STREAMS}
    ran = site.run(config=empty, streams=[{"name": "s0", **UPSERT}])
    assert ran.exit_code == 0, ran.error
    full = site.run(config=script(1, 3), streams=[{"name": "s0", **UPSERT}])
    assert full.exit_code == 0, full.error
    assert [r["seq"] for r in site.rows("s0")] == [1, 2, 3]


def test_a_column_that_an_undiscovered_stream_no_longer_sends_is_not_ignored(
    site: WasmSite,
) -> None:
    """The pipeline file says so (``removed_column: fail``); nobody but its rows tells of it."""
    told = StageEvent()
    config = {"s0": [told.frame(numbered(1, 3).select(["seq"])), "at 3"]}
    fewer = {**told.config(config), "catalog": NO_STREAMS}
    destination = {"schema_evolution": {"removed_column": "fail"}}
    streams = [{"name": "s0", **UPSERT}]
    first = site.run(config=script(1, 2), streams=streams, destination=destination)
    assert first.exit_code == 0, first.error
    for _ in range(2):
        ran = site.run(config=fewer, streams=streams, destination=destination)
        assert (ran.exit_code, ran.error["code"]) == (3, "schema.removed_column"), ran.error
        assert [r["name"] for r in site.rows("s0")] == ["N1", "N2"]
        assert site.cursors() == {"s0": "2"}
    allowed = site.run(config=fewer, streams=streams)
    assert allowed.exit_code == 0, allowed.error
    assert {r["seq"]: r["name"] for r in site.rows("s0")} == {1: None, 2: None, 3: None}
