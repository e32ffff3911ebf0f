"""A few cells of the crash matrix of the Python interface; ``kills.py --all`` runs every one."""

from pathlib import Path

import pytest
from api_kills import api_cell, run_api_cell

CELLS = (
    "read/after-seal/program",
    "read/after-commit/program",
    "write-overwrite/after-commit/program",
    "write-push/mid-push/pusher",
)


@pytest.mark.spark
@pytest.mark.parametrize("name", CELLS)
def test_a_killed_call_of_the_python_interface_is_made_good_by_the_next_one_L1_L3(
    tmp_path: Path, name: str
) -> None:
    run_api_cell(api_cell(name), tmp_path)
