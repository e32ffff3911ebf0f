"""Real kills with WebAssembly components at both ends (issue 5, Must be shown): a few cells.

The whole matrix: ``python tests/e2e/kills.py --only wasm``.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_harness import end_all
from wasm_kills import run_wasm_cell, wasm_cell, wasm_cells

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
    "wasm-upsert/before-ack/program",
    "wasm-replace/mid-part/program",
    "wasm-replace/after-order/program",
)


@pytest.mark.parametrize("name", IN_CI)
def test_a_kill_repeats_no_more_than_plan_says(name: str, tmp_path: Path) -> None:
    run_wasm_cell(wasm_cell(name), tmp_path)


def test_the_cells_in_ci_meet_every_point_and_every_target() -> None:
    chosen = [wasm_cell(name) for name in IN_CI]
    for what in ("point", "target", "shape"):
        assert {getattr(c, what) for c in chosen} == {getattr(c, what) for c in wasm_cells()}
