"""Real kills with WebAssembly components at both ends (issue 5, Must be shown): a few cells.

The whole matrix: ``python tests/e2e/kills.py --only wasm``.
"""

from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest
from e2e_harness import Place, assert_adds_up, end_all
from wasm_kills import RECORDS, built, run_wasm_cell, wasm_cell, wasm_cells
from wasm_sites import share_compiled

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    yield
    end_all()


IN_CI = (
    "wasm-append/after-seal/child",
    "wasm-append/before-settle/pusher",
    "wasm-append/after-settle/program",
    "wasm-append/after-ack/pusher",
    "wasm-upsert/mid-push/push-worker",
    "wasm-upsert/before-ack/pusher",
    "wasm-replace/mid-part/child",
    "wasm-replace/after-order/program",
)


@pytest.mark.parametrize("name", IN_CI)
def test_a_kill_repeats_no_more_than_plan_says(name: str, tmp_path: Path) -> None:
    run_wasm_cell(wasm_cell(name), tmp_path)


@pytest.mark.parametrize("point", ["mid-part", "after-seal"])
def test_l4_a_shard_that_is_killed_ends_in_the_same_run(point: str, tmp_path: Path) -> None:
    """Issue 5, part 11: it is read again, into the generation that the other shard fills, or was
    whole already."""
    source = tmp_path / "source.wasm"
    source.write_bytes(built.c_source().read_bytes())
    place = Place(
        tmp_path,
        "delta",
        config={"rows": RECORDS, "batch_rows": 20},
        options={"sync_mode": "full_refresh", "destination_sync_mode": "append"},
        source=str(source),
        told={"bounds": {"seal_bytes": 1, "seal_seconds": 0.01}, "shards": 2},
    )
    share_compiled(place.home)
    struck = tmp_path / "struck"
    ended = place.run(
        {"PENSTOCK_FAILPOINT": f"{point}@child", "PENSTOCK_FAILPOINT_ONCE": str(struck)}
    )
    assert struck.exists() and ended.code == 0, (ended.report, ended.told[-3000:])
    assert_adds_up(ended)
    table = deltalake.DeltaTable(str(place.lake / "numbers"))
    ids = table.to_pyarrow_table(columns=["id"])["id"].to_pylist()
    assert sorted(ids) == list(range(1, RECORDS + 1))
    assert len(table.history()) <= 2  # one load, whatever was begun again
    assert any("lane was lost" in note for note in (ended.report or {})["notes"])


def test_the_cells_in_ci_meet_every_point_and_every_target() -> None:
    chosen = [wasm_cell(name) for name in IN_CI]
    for what in ("point", "target", "shape"):
        assert {getattr(c, what) for c in chosen} == {getattr(c, what) for c in wasm_cells()}
