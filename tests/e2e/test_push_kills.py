"""Real kills where the destination is a connector (issue 4, Must be shown): a few cells.

The whole matrix: ``python tests/e2e/kills.py --all``.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_harness import end_all
from push_kills import push_cell, push_cells, run_push_cell

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    yield
    end_all()


IN_CI = (
    "airbyte-push/mid-push/destination",
    "airbyte-push/after-ack/program",
    "airbyte-push/before-settle/pusher",
    "singer-push/after-settle/program",
    "singer-push/before-ack/push-worker",
    "singer-push/after-order/destination",
)


@pytest.mark.parametrize("name", IN_CI)
def test_after_a_kill_nothing_is_lost_and_what_is_sent_again_is_told(
    name: str, tmp_path: Path
) -> None:
    run_push_cell(push_cell(name), tmp_path)


def test_the_cells_in_ci_meet_every_point_and_every_target() -> None:
    chosen = [push_cell(name) for name in IN_CI]
    for what in ("point", "target", "shape"):
        assert {getattr(c, what) for c in chosen} == {getattr(c, what) for c in push_cells()}
