"""L3 from the connector to the table: a home that is put back from a copy, a table that is gone.

The many ways are the simulation's (``tests/engine/test_restored_homes.py``); this is one of each
format, all the way down.
"""

import shutil
from collections.abc import Callable

import pytest
from pipelines import Site

from penstock.engine.inspect import states
from penstock.engine.inspect.pipelines import open_known

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_L3_a_restored_home_and_a_lost_table_lose_no_row(site: MakeSite, format: str) -> None:
    here = site(format, streams=1)
    copy = here.folder / "copy"
    append = {"destination_sync_mode": "append"}
    here.run({"records": 20}, defaults=append)
    shutil.copytree(here.home.path, copy)
    here.run({"records": 30}, defaults=append)
    shutil.rmtree(here.home.path)
    shutil.move(copy, here.home.path)
    told = here.run({"records": 50}, defaults=append)
    assert (told.exit_code, told.error["code"]) == (6, "state.table_ahead"), told.error
    assert "state adopt e2e" in told.error["hint"]
    assert here.saved() == {"s0": {"seq": 20}}
    assert here.seqs("s0") == list(range(1, 31))
    with open_known("e2e", here.home) as known:
        states.adopt(known)
    assert here.run({"records": 50}, defaults=append).exit_code == 0
    assert set(here.seqs("s0")) == set(range(1, 51)) and len(here.seqs("s0")) == 60
    shutil.rmtree(here.lake / "s0")
    told = here.run({"records": 60}, defaults=append)
    assert (told.exit_code, told.error["code"]) == (5, "destination.table_behind"), told.error
    assert "--recreate" in told.error["hint"]
    assert here.saved() == {"s0": {"seq": 50}}
    assert here.run({"records": 60}, defaults=append, recreate=True).exit_code == 0
    assert here.seqs("s0") == list(range(1, 61))
