"""What sources do and no real one does on demand: each scenario from the connector to the table.

Every run here is held against L8 and its stored report by ``pipelines.Site.run``. Tables are read
by DuckDB or delta-rs.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipelines import Site, changes_of

from penstock.errors import PenstockError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]
FULL = list(range(1, 101))
OVERWRITE = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
DEDUP = {"destination_sync_mode": "append_dedup"}


# -- states


@pytest.mark.parametrize("kind", ["STREAM", "GLOBAL", "LEGACY"])
def test_l1_second_run_brings_only_what_is_new(site: MakeSite, kind: str) -> None:
    here = site(state_type=kind)
    first = here.run()
    assert (first.status, first.exit_code, first.guarantee) == ("succeeded", 0, "exactly-once")
    assert first.counts("s0") == ("complete", 100, 100, 0)
    assert here.seqs("s0") == here.seqs("s1") == FULL
    described = here.described()
    assert described["type"] == kind
    if kind == "LEGACY":
        assert set(described["shared"]["positions"].values()) == {100}
    else:
        assert here.saved() == {"s0": {"seq": 100}, "s1": {"seq": 100}}
    second = here.run({"records": 130})
    assert second.counts("s0") == ("complete", 30, 30, 0)
    assert second.stream("s0").states >= 1
    assert here.seqs("s0") == here.seqs("s1") == list(range(1, 131))
    given = here.journal()[-1]["state"]
    if kind == "LEGACY":
        assert set(given["positions"].values()) == {100}
    else:
        assert [s["type"] for s in given] == (["STREAM"] * 2 if kind == "STREAM" else ["GLOBAL"])


def test_full_refresh_overwrite_gets_no_state_and_replaces(site: MakeSite) -> None:
    here = site()
    here.run(defaults=OVERWRITE)
    second = here.run({"records": 40}, defaults=OVERWRITE)
    assert second.counts("s0") == ("complete", 40, 40, 0)
    assert here.seqs("s0") == list(range(1, 41))
    assert not here.journal()[-1]["state"]
    assert {row["_airbyte_generation_id"] for row in here.rows("s0")} == {2}
