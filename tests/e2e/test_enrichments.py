"""Rows enriched on the way, through Spark (issue 12, part 4; L1, L2, L4, L8): by a stub that
misbehaves as it is told to, and by a connector of ``penstock.sdk`` that has both roles."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from connector_sites import stub
from pipelines import NAME, Ran, Site

from penstock.config.load import load_pipeline
from penstock.engine.inspect.plan_check import check_pipeline
from penstock.engine.inspect.runs import rejects
from penstock.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MakeSite = Callable[..., Site]
ONE = {"streams": 1}
FULL = list(range(1, 101))

BOTH_ROLES = """
from typing import TypedDict
from penstock.sdk import Connector, Enricher, StreamWriter, run

class Credentials(TypedDict):
    token: str
    file: str

class Contacts(StreamWriter):
    name = "contacts"
    def write(self, rows):
        with open(self.sync.credentials["file"], "a") as out:
            for row in rows:
                out.write(f"{row['seq']} {row.get('visits')}\\n")

class Visits(Enricher):
    def enrich(self, row):
        before = self.sync.store.get(["visits"]) or 0
        self.sync.store.set(["visits"], before + 1)
        return {**row, "visits": before + 1}

run(Connector(credentials=Credentials, streams=[Contacts], enrichment=Visits))
"""


class Enriched:
    """A site whose rows pass through the stub enrichment."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.sink = site.folder / "sink.jsonl"

    def section(self, told: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        overrides = {"sink": str(self.sink), **(told or {})}
        use = f"syncmaven:{stub('stub_enrichment.py', json.dumps(overrides))}"
        return {"use": use, "config": {"token": "t"}, **more}

    def run(
        self,
        source: dict[str, Any] | None = None,
        *,
        told: dict[str, Any] | None = None,
        how: dict[str, Any] | None = None,
        **parts: Any,
    ) -> Ran:
        self.sink.write_text("")
        return self.site.run(source, enrichments=[self.section(told, **(how or {}))], **parts)

    def asked(self) -> list[int]:
        """``seq`` of every row that it was requested, in order."""
        lines = [json.loads(line) for line in self.sink.read_text().splitlines()]
        requests = [m["payload"]["row"] for m in lines if m["type"] == "enrichment-request"]
        return [row["seq"] for row in requests]

    def saved(self) -> int | None:
        return self.site.saved().get("s0", {}).get("seq")


@pytest.fixture
def there(site: MakeSite) -> Enriched:
    return Enriched(site(**ONE))


def test_rows_are_enriched_in_order_and_a_second_run_asks_for_what_is_new(there: Enriched) -> None:
    first = there.run(how={"processes": 2})
    assert (first.status, first.guarantee) == ("succeeded", "at-least-once"), first.error
    assert first.counts("s0") == ("complete", 100, 100, 0)
    assert sorted(there.asked()) == FULL
    assert there.site.seqs("s0") == FULL
    row = there.site.rows("s0")[6]
    assert row["company"] == f"company {row['id']}" and row["visits"] == row["id"]
    second = there.run({"records": 130})
    assert second.counts("s0") == ("complete", 30, 30, 0)
    assert there.asked() == list(range(101, 131))
    assert there.site.seqs("s0") == list(range(1, 131))


def test_only_the_streams_that_are_named_are_enriched(site: MakeSite) -> None:
    there = Enriched(site(streams=2))
    ran = there.run(how={"streams": ["s1"]})
    assert ran.status == "succeeded", ran.error
    assert len(there.asked()) == 100
    assert "company" in there.site.rows("s1")[0] and "company" not in there.site.rows("s0")[0]
    assert there.site.seqs("s0") == there.site.seqs("s1") == FULL


def test_l8_rows_without_an_answer_are_rejects_or_pass(there: Enriched) -> None:
    answers = {"7": {"payload": {"error": "no such company"}}, "9": [], "11": {"seq": "x"}}
    ran = there.run(told={"answers": answers})
    assert ran.counts("s0") == ("complete", 100, 97, 2), ran.error
    assert ran.stream("s0").filtered == 1
    with there.site.store() as store:
        kept = list(rejects(store, there.site.home, NAME))
    assert [json.loads(line["bytes"])["id"] for line in kept] == [7, 11]
    assert kept[0]["reason"] == "the enrichment: no such company"
    assert len(there.site.rows("s0")) == 97
    ran = there.run(told={"answers": answers}, how={"on_error": "pass"}, full_refresh=True)
    assert ran.noted("rows_not_enriched: 2") and ran.status == "succeeded"
    assert len(there.site.rows("s0")) == 97 + 99, "the second run appends"


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"halt": {"at": "enrichment-request", "after": 50}}, "transform.halted"),
        ({"die": {"at": "enrichment-request", "after": 50}}, "transform.exited"),
        ({"twice": 50}, "transform.unasked_answer"),
    ],
)
def test_l1_a_bad_enrichment_fails_its_stream_and_no_state_is_ahead(
    there: Enriched, told: dict[str, Any], code: str
) -> None:
    first = there.run(told=told)
    assert (first.status, first.exit_code, first.error["code"]) == ("failed", 4, code)
    assert "enrichments[0]" in first.error["message"] and first.error["hint"]
    assert (there.saved() or 0) <= 50 and there.site.seqs("s0") == FULL[: there.saved() or 0]
    second = there.run()
    assert second.status == "succeeded", second.error
    assert there.site.seqs("s0") == FULL and there.saved() == 100


def test_l4_a_lane_killed_between_its_answers_brings_each_row_once(
    there: Enriched, tmp_path: Path
) -> None:
    """L2: answers without their state are dropped, and are asked for again by another epoch."""
    file = there.site.write(enrichments=[there.section()])
    struck = tmp_path / "struck"
    answer = there.site.cli(
        "run", str(file), "--json",
        PENSTOCK_FAILPOINT="mid-transform:1", PENSTOCK_FAILPOINT_ONCE=str(struck),
    )  # fmt: skip
    assert struck.exists(), answer.err[-2000:]
    if answer.code != 0:
        again = there.run()
        assert again.status == "succeeded", again.error
    assert there.site.seqs("s0") == FULL and there.saved() == 100


def test_answers_are_kept_in_the_store_for_their_time(there: Enriched) -> None:
    how = {"cache": {"ttl": "1h", "by": ["id"]}}
    assert there.run(how=how).status == "succeeded" and len(there.asked()) == 100
    again = there.run({"records": 110}, how=how, full_refresh=True)
    assert again.counts("s0") == ("complete", 110, 110, 0), again.error
    assert there.asked() == list(range(101, 111))
    assert len(there.site.rows("s0")) == 100 + 110
    assert {row["company"] is None for row in there.site.rows("s0")} == {False}


def test_one_package_enriches_and_takes_the_rows_with_the_same_credentials(site: MakeSite) -> None:
    """Its store is served to it in both roles."""
    here = site(**ONE)
    script, out = here.folder / "both.py", here.folder / "out.txt"
    script.write_text(BOTH_ROLES)
    use = f"syncmaven:{shlex.join([sys.executable, str(script)])}"
    section = {"use": use, "config": {"token": "t", "file": str(out)}}
    ran = here.run(enrichments=[section], destination={**section, "stream": "contacts"})
    assert ran.status == "succeeded", ran.error
    assert out.read_text().splitlines() == [f"{n} {n}" for n in FULL]
    ran = here.run(
        {"records": 103}, enrichments=[section], destination={**section, "stream": "contacts"}
    )
    assert out.read_text().splitlines()[100:] == [f"{n} {n}" for n in (101, 102, 103)]
    bad = {**section, "config": {"token": 1, "file": str(out)}}
    _refused(here, "enrichments[0].config.token", enrichments=[bad])
    check = check_pipeline(
        load_pipeline(here.write(enrichments=[section]), env={}), here.home, observer=ran.heard
    )
    assert check.succeeded


def _refused(here: Site, words: str, **parts: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        here.run(**parts)
    said = " ".join([refused.value.message, *refused.value.problems, refused.value.hint or ""])
    assert words in said


def test_what_is_no_enrichment_is_refused_with_where_it_belongs(there: Enriched) -> None:
    section = there.section()
    here = there.site
    _refused(here, "goes under `enrichments`", transforms=[section])
    sql = {"use": "transform-sql", "config": {"query": "SELECT * FROM input"}}
    _refused(here, "under `transforms`", enrichments=[sql])
    _refused(
        here, "its roles are destination", enrichments=[there.section({"roles": ["destination"]})]
    )
    _refused(here, "under `transforms`", enrichments=[{"use": "airbyte:source-faker"}])
