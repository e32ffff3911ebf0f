"""Real kills where the destination is a connector (issue 4, Must be shown): a few cells.

The whole matrix: ``python tests/e2e/kills.py --all``.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_harness import end_all
from push_kills import push_cell, push_cells, run_push_cell
from syncmaven_kills import run_syncmaven_cell, syncmaven_cell, syncmaven_cells

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    yield
    end_all()


IN_CI = (
    "airbyte-push/mid-push/destination",
    "airbyte-push/after-ack/program",
    "airbyte-push/before-settle/pusher",
    "singer-push/after-settle/pusher",
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


OF_SYNCMAVEN = (
    "syncmaven/row/push-worker",
    "syncmaven/asked/destination",
    "syncmaven/told/program",
    "syncmaven/row/pusher",
)


@pytest.mark.parametrize("name", OF_SYNCMAVEN)
def test_no_row_that_a_syncmaven_destination_acknowledged_is_lost(
    name: str, tmp_path: Path
) -> None:
    """Issue 12: killed between rows, before and after the result of a stream."""
    run_syncmaven_cell(syncmaven_cell(name), tmp_path)


def test_the_syncmaven_cells_in_ci_meet_every_moment_target_dialect_and_number() -> None:
    chosen = [syncmaven_cell(name) for name in OF_SYNCMAVEN]
    for what in ("point", "target", "page", "processes"):
        assert {getattr(c, what) for c in chosen} == {getattr(c, what) for c in syncmaven_cells()}
