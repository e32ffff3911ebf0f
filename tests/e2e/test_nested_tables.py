"""Two pipelines in one lake (issue 36, 2; L8): no new table inside another one's folder, whoever
made it; what lies so already goes on, with a note; and what ``plan`` says of rewritten tables."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from pipelines import Heard, Site

from penstock.config.load import load_pipeline
from penstock.engine.inspect.plan_check import plan_pipeline
from penstock.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]
INSIDE = {"namespace": "s0"}  # the table s0/s0 lies in the folder of the table s0
FIVE = list(range(1, 6))


def planned(here: Site, **parts: Any) -> dict[str, Any]:
    return plan_pipeline(load_pipeline(here.write(**parts), env={}), here.home, observer=Heard())


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_l8_a_second_pipelines_table_inside_the_firsts_is_refused(
    site: MakeSite, format: str
) -> None:
    first, second = (site(format=format, streams=1, records=5) for _ in range(2))
    second.lake = first.lake
    first.run()
    (problem,) = planned(second, destination=INSIDE)["problems"]
    with pytest.raises(ConfigError) as refused:
        second.run(destination=INSIDE)
    assert refused.value.problems == [problem] and not (first.lake / "s0" / "s0").exists()
    assert f"{first.lake}/s0/s0 would lie inside the table {first.lake}/s0" in problem
    assert "destination.namespace" in problem
    ran = second.run(destination={"namespace": "t0"})  # a way out, for a pipeline that has not run
    assert ran.status == "succeeded" and second.seqs("t0/s0") == FIVE
    # and around it
    third = site(format=format, streams=[{"name": "t0", "records": 5}])
    third.lake = first.lake
    (problem,) = planned(third)["problems"]
    assert f"would have the table {first.lake}/t0/s0 inside its folder" in problem


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_l8_nested_tables_of_an_earlier_version_go_on_and_are_parted(
    site: MakeSite, format: str
) -> None:
    append = {"destination_sync_mode": "append"}
    outer, inner = (site(format=format, streams=1, records=5, defaults=append) for _ in range(2))
    outer.run(defaults=append)
    inner.run(defaults=append, destination=INSIDE)
    os.rename(inner.lake / "s0" / "s0", outer.lake / "s0" / "s0")
    inner.lake = outer.lake
    for here, more in ((outer, {}), (inner, {"destination": INSIDE})):
        ran = here.run({"records": 8}, defaults=append, **more)
        assert ran.status == "succeeded" and here.seqs("s0") == list(range(1, 9))
        note = ran.noted("run no VACUUM on")
        assert note in planned(here, defaults=append, **more)["notes"]
        assert f"VACUUM on {outer.lake}/s0;" in note and f"{outer.lake}/s0/s0" in note
    assert inner.seqs("s0/s0") == list(range(1, 9))
    inner.lake = inner.folder / "own"  # as the note says
    ran = inner.run({"records": 8}, defaults=append, destination=INSIDE, recreate=True)
    assert ran.status == "succeeded" and inner.seqs("s0/s0") == list(range(1, 9))
    assert not [n for n in ran.notes if "VACUUM" in n]


@pytest.mark.parametrize(
    ("format", "mode", "rewrites"),
    [
        ("parquet", {"destination_sync_mode": "append_dedup"}, True),
        ("parquet", {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}, True),
        ("parquet", {"destination_sync_mode": "append"}, False),
        ("delta", {"destination_sync_mode": "append_dedup"}, False),
    ],
)
def test_a_plan_says_where_readers_may_find_a_file_gone(
    site: MakeSite, format: str, mode: dict[str, str], rewrites: bool
) -> None:
    notes = planned(site(format=format), defaults=mode)["notes"]
    found = [n for n in notes if "may miss a file" in n]
    assert len(found) == rewrites
    assert all(n.startswith("s0, s1: ") and "delta:PATH" in n for n in found)
