"""Homes, state stores and tables that earlier code left run on: finished syncs, open loads, sealed
segments, an unfinished generation, a model's snapshot, rows that a destination has not acked.

Every archive of ``tests/fixtures/kept_homes`` is gone on with by today's code: the tables hold
exactly the right rows (L1, L3), what is sealed is drained and not read again (L5), a source is
given the state that was saved, and nothing begins again (L6). ``kept_homes`` makes the archives.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kept_homes
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipelines import Heard, Ran, Site, assert_adds_up

from penstock.config.home import Home
from penstock.config.load import load_pipeline
from penstock.engine.run.start import run_pipeline
from penstock.protocols import load as load_protocol

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ARCHIVES = sorted(kept_homes.KEPT.glob("homes-*.tar.xz"))
CASES = {case.name: case for case in kept_homes.cases()}
FINISHED = 50  # records of each stream in the run that ended well


class Kept:
    """A case's folder, and runs of today's code in it."""

    def __init__(self, folder: Path, case: kept_homes.Case) -> None:
        self.folder, self.case = folder, case
        self.site = Site(folder, case.format)
        self.known = len(self.reads())

    def run(self, **options: Any) -> Ran:
        kept_homes.ask(
            self.folder, self.case.stub, {**self.case.options, **options}, self.case.sink
        )
        heard = Heard()
        pipeline = load_pipeline(self.folder / "pipeline.yaml", env={})
        report = run_pipeline(pipeline, Home(self.folder / "home"), observer=heard)
        assert_adds_up(report)
        ran = Ran(report, heard)
        assert ran.exit_code == 0, (ran.error, ran.notes)
        return ran

    def reads(self) -> list[dict[str, Any]]:
        """The source's reads, of the earlier code too."""
        if self.case.stub == "stub_source.py":
            return self.site.journal()
        lines = self.site.journal_path.read_text().splitlines()
        calls = [json.loads(line) for line in lines]
        return [c for c in calls if not (c.get("about") or c.get("discover"))]

    def given(self) -> dict[str, int]:
        """stream -> where the one read of today's code was told to go on."""
        new = self.reads()[self.known :]
        assert len(new) == 1, new
        state = new[0]["state"]
        if self.case.stub == "stub_tap.py":
            marks = (state or {}).get("bookmarks", {})
            return {s: mark["replication_key_value"] for s, mark in marks.items()}
        found: dict[str, int] = {}
        for message in state or ():
            shared = message.get("global", {}).get("stream_states")
            for entry in shared or [message["stream"]]:
                found[entry["stream_descriptor"]["name"]] = entry["stream_state"]["seq"]
        return found

    def saved(self) -> dict[str, int]:
        protocol = "singer" if self.case.stub == "stub_tap.py" else "airbyte"
        with self.site.store() as store:
            told = load_protocol(protocol).state.describe(store.states("kept"))
        state = "replication_key_value" if protocol == "singer" else "seq"
        found = {s["name"]: s["state"][state] for s in told["streams"]}
        found.pop("plans", None)  # a full refresh: its state is given to nobody
        return found

    def seqs(self, table: str) -> list[int]:
        return self.site.seqs(table)

    def users(self) -> dict[int, int]:
        """key -> its newest record; a key comes once."""
        rows = self.site.ids("users")
        assert len(dict(rows)) == len(rows), "a key twice"
        return dict(rows)

    def assert_tables(self, records: int) -> None:
        """What the source has sent once it has ``records`` of each stream."""
        whole = list(range(1, records + 1))
        newest = {seq % kept_homes.KEYS: seq for seq in whole}
        assert self.users() == newest
        assert self.seqs("events") == whole
        if any(s["name"] == "plans" for s in self.case.streams or ()):
            assert self.seqs("plans") == whole


@pytest.fixture(params=ARCHIVES, ids=lambda p: p.name.split(".")[0])
def kept(
    request: pytest.FixtureRequest, tmp_path: Path, shared_spark: object
) -> Callable[[str], Kept]:
    del shared_spark
    archive: Path = request.param

    def unpacked(name: str) -> Kept:
        return Kept(kept_homes.unpack(archive, name, tmp_path), CASES[name])

    return unpacked


Unpacked = Callable[[str], Kept]


def test_every_case_is_in_an_archive() -> None:
    assert ARCHIVES
    assert kept_homes.names(ARCHIVES[-1]) == sorted(CASES)


@pytest.mark.parametrize("case", ["stream-parquet", "stream-delta", "global", "singer"])
def test_L1_a_finished_sync_goes_on_from_its_states(kept: Unpacked, case: str) -> None:
    here = kept(case)
    here.assert_tables(FINISHED)
    here.run(records=80)
    assert here.given() == {"users": FINISHED, "events": FINISHED}
    here.assert_tables(80)
    assert here.saved() == {"users": 80, "events": 80}


@pytest.mark.parametrize("format", ["parquet", "delta"])
@pytest.mark.parametrize("struck", ["intent", "commit"])
def test_L3_an_open_load_is_committed_once(kept: Unpacked, struck: str, format: str) -> None:
    here = kept(f"{struck}-{format}")
    assert here.saved() == {"users": FINISHED, "events": FINISHED}
    here.run(records=100)
    assert here.given() == {"users": 80, "events": 80}, "the load was not taken for the sync's end"
    here.assert_tables(100)
    assert here.saved() == {"users": 100, "events": 100}


@pytest.mark.parametrize(
    "case", ["sealed-parquet", "sealed-delta", "global-sealed", "singer-sealed"]
)
def test_L5_sealed_segments_are_drained_and_not_read_again(kept: Unpacked, case: str) -> None:
    here = kept(case)
    assert here.saved() == {"users": FINISHED, "events": FINISHED}
    here.assert_tables(FINISHED)
    here.run(records=150)
    given = here.given()
    assert given.keys() == {"users", "events"} and all(n > FINISHED for n in given.values()), given
    here.assert_tables(150)
    assert here.saved() == {"users": 150, "events": 150}


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_L6_an_unfinished_generation_goes_on(kept: Unpacked, format: str) -> None:
    here = kept(f"generation-{format}")
    assert here.seqs("plans") == list(range(1, 41)), "what was complete before stands"
    here.run(records=200)
    assert 0 < here.given()["plans"] < 200, "the refresh went on where its last segment ends"
    assert here.seqs("plans") == list(range(1, 201))


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_L1_a_models_snapshot_goes_on(kept: Unpacked, format: str) -> None:
    here = kept(f"mirror-{format}")
    rows = [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bea"}, {"id": 5, "name": "Eve"}]
    pq.write_table(pa.Table.from_pylist(rows), here.folder / "users.parquet")
    ran = here.run()
    ran.noted("1 added, 0 changed, 1 removed, 2 as before, 0 refused")
    assert ran.stream("query").read == 2
    found = [(row["id"], row["name"]) for row in here.site.rows("query", "id")]
    assert found == [(1, "Ann"), (2, "Bea"), (5, "Eve")]


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_L5_rows_without_an_ack_are_sent_again_and_no_others(kept: Unpacked, protocol: str) -> None:
    here = kept(f"push-{protocol}")
    here.run(records=120)
    assert here.given() == {"users": 90, "events": 90}, "what was sealed is not read again"
    assert here.saved() == {"users": 120, "events": 120}
    for stream, heard in sent(here.folder / "sink.jsonl").items():
        assert set(heard) == set(range(1, 121)), stream
        twice = {seq for seq, times in heard.items() if times > 1}
        assert min(twice, default=FINISHED + 1) > FINISHED, "acked rows were sent again"
        assert max(twice, default=90) <= 90 and max(heard.values()) <= 2


def sent(sink: Path) -> dict[str, Counter[int]]:
    """stream -> how often the destination was sent each seq; a line that it died over is none."""
    found: dict[str, Counter[int]] = {"users": Counter(), "events": Counter()}
    for line in sink.read_text().split("\n")[:-1]:
        message = json.loads(line)
        if message.get("type") == "RECORD":
            record = message.get("record", message)
            record = message if "stream" in message else record
            found[record["stream"]][record.get("data", record.get("record"))["seq"]] += 1
    return found
