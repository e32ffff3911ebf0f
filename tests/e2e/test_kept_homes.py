"""Homes, state stores and tables that earlier code left run on: finished syncs, open loads, sealed
segments, an unfinished generation, a model's snapshot, rows that a destination has not acked,
tables without a column that today's code makes.

Every archive of ``tests/fixtures/kept_homes`` is gone on with by today's code: the tables hold
exactly the right rows (L1, L3), what is sealed is drained and not read again (L5), a source is
given the state that was saved, and nothing begins again (L6). ``kept_homes`` makes the archives.
"""

import datetime
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import kept_homes
import kept_newest
import pytest
from pipelines import Heard, Ran, Site, assert_adds_up

from penstock.config.home import Home
from penstock.config.load import load_pipeline
from penstock.engine.run.start import run_pipeline
from penstock.protocols import load as load_protocol
from penstock.store.lock_holder import this_holder

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ARCHIVES = sorted(kept_homes.KEPT.glob("homes-*.tar.xz"))
HELD = {archive: kept_homes.names(archive) for archive in ARCHIVES}
CASES = {case.name: case for case in kept_homes.cases()}
FINISHED = 50  # records of each stream in the run that ended well


class Kept:
    """A case's folder, and runs of today's code in it."""

    def __init__(self, folder: Path, case: kept_homes.Case) -> None:
        self.folder, self.case = folder, case
        self.site = Site(folder, case.format)
        self.known = len(self.reads())
        with self.site.store() as store:  # of a run that was killed on another machine, long ago:
            if (lock := store.lock("kept")) is not None:  # what `penstock state unlock` does
                store.release(store.acquire("kept", this_holder("unlock"), 60, lock))

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


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path, shared_spark: object) -> Kept:
    del shared_spark
    archive, name = request.param
    return Kept(kept_homes.unpack(archive, name, tmp_path), CASES[name])


def of(*cases: str) -> pytest.MarkDecorator:
    """The test is given each of the cases from every archive that has it."""
    found = [
        pytest.param((archive, case), id=f"{case}-{archive.name.split('.')[0]}")
        for case in cases
        for archive in ARCHIVES
        if case in HELD[archive]
    ]
    return pytest.mark.parametrize("kept", found, indirect=True)


def test_every_case_is_in_an_archive() -> None:
    assert ARCHIVES
    assert set().union(*HELD.values()) == CASES.keys()


@of("stream-parquet", "stream-delta", "global", "singer")
def test_L1_a_finished_sync_goes_on_from_its_states(kept: Kept) -> None:
    kept.assert_tables(FINISHED)
    kept.run(records=80)
    assert kept.given() == {"users": FINISHED, "events": FINISHED}
    kept.assert_tables(80)
    assert kept.saved() == {"users": 80, "events": 80}


@of("intent-parquet", "intent-delta", "commit-parquet", "commit-delta")
def test_L3_an_open_load_is_committed_once(kept: Kept) -> None:
    assert kept.saved() == {"users": FINISHED, "events": FINISHED}
    kept.run(records=100)
    assert kept.given() == {"users": 80, "events": 80}, "the load was not taken for the sync's end"
    kept.assert_tables(100)
    assert kept.saved() == {"users": 100, "events": 100}


@of("sealed-parquet", "sealed-delta", "global-sealed", "singer-sealed")
def test_L5_sealed_segments_are_drained_and_not_read_again(kept: Kept) -> None:
    assert kept.saved() == {"users": FINISHED, "events": FINISHED}
    kept.assert_tables(FINISHED)
    kept.run(records=150)
    given = kept.given()
    assert given.keys() == {"users", "events"} and all(n > FINISHED for n in given.values()), given
    kept.assert_tables(150)
    assert kept.saved() == {"users": 150, "events": 150}


@of("generation-parquet", "generation-delta")
def test_L6_an_unfinished_generation_goes_on(kept: Kept) -> None:
    assert kept.seqs("plans") == list(range(1, 41)), "what was complete before stands"
    kept.run(records=200)
    assert 0 < kept.given()["plans"] < 200, "the refresh went on where its last segment ends"
    assert kept.seqs("plans") == list(range(1, 201))


@of("mirror-parquet", "mirror-delta")
def test_L1_a_models_snapshot_goes_on(kept: Kept) -> None:
    ran = given_rows(kept, (1, "Ann"), (2, "Bea"), (5, "Eve"))
    ran.noted("1 added, 0 changed, 1 removed, 2 as before, 0 refused")
    assert ran.stream("query").read == 2
    assert named(kept) == [(1, "Ann"), (2, "Bea"), (5, "Eve")]


def given_rows(here: Kept, *rows: tuple[int, str]) -> Ran:
    """A run of the model with these rows."""
    kept_homes.give(here.folder, sys.executable, {"rows": rows})
    return here.run()


def named(here: Kept) -> list[tuple[int, str]]:
    return [(row["id"], row["name"]) for row in here.site.rows("query", "id")]


DOUBT = "does not record which rows the transforms left out"


@of("mirror-filter-parquet", "mirror-filter-delta")
def test_B2_what_a_filter_may_never_have_let_out_is_not_removed(kept: Kept) -> None:
    """Of 2 the destination has the row that passed; the snapshot has the one that was left out."""
    assert named(kept) == [(1, "Ann"), (2, "Bob"), (4, "Dan")]
    ran = given_rows(kept, (1, "Ann"), (2, "Bea"), (5, "Bea"))
    ran.noted(DOUBT)
    assert ran.stream("query").committed == 1, "the removal of 4, which passed"
    assert named(kept) == [(1, "Ann"), (2, "Bob")]
    if kept.case.format == "delta":
        return  # what is compared later is of today's code, and sees no format
    ran = given_rows(kept, (1, "Ann"))
    assert not [note for note in ran.notes if DOUBT in note], "it is told once"
    assert ran.stream("query").committed == 0
    assert named(kept) == [(1, "Ann"), (2, "Bob")]
    given_rows(kept, (1, "Ann"), (2, "Bo"))
    assert named(kept) == [(1, "Ann"), (2, "Bo")]
    given_rows(kept, (1, "Bea"), (2, "Bo"))
    assert named(kept) == [(2, "Bo")], "it was sent for sure"


@of("insert-filter-parquet", "insert-filter-delta")
def test_B2_under_insert_what_an_old_snapshot_has_counts_as_sent(kept: Kept) -> None:
    assert named(kept) == [(1, "Ann"), (2, "Bob"), (4, "Dan")]
    ran = given_rows(kept, (1, "Ann"), (2, "Bob"), (3, "Cyd"), (5, "Cid"))
    ran.noted("each of them counts as sent")
    assert named(kept) == [(1, "Ann"), (2, "Bob"), (4, "Dan")]
    if kept.case.format == "delta":
        return
    ran = given_rows(kept, (1, "Ann"), (3, "Cyd"), (5, "Eve"))
    assert not [note for note in ran.notes if "counts as sent" in note]
    assert named(kept) == [(1, "Ann"), (2, "Bob"), (4, "Dan"), (5, "Eve")]


@of("mirror-filter-push")
def test_B2_a_connector_is_sent_no_removal_of_what_may_never_have_gone_out(kept: Kept) -> None:
    """The removal of 4 is sent, since 4 is gone from the query; 2, which the filter leaves out
    today, may be at the destination or not."""
    (kept.folder / "sink.jsonl").unlink()
    ran = given_rows(kept, (1, "Ann"), (2, "Bea"), (5, "Bea"))
    ran.noted(DOUBT)
    assert [row["id"] for row in rows_sent(kept)] == [4], "no row is sent again"
    assert rows_sent(kept)[0]["_ab_cdc_deleted_at"]
    (kept.folder / "sink.jsonl").unlink()
    ran = given_rows(kept, (1, "Ann"), (2, "Bo"), (5, "Eve"))
    assert [(row["id"], row["name"]) for row in rows_sent(kept)] == [(2, "Bo"), (5, "Eve")]
    assert not [note for note in ran.notes if DOUBT in note], "it is told once"


def rows_sent(here: Kept) -> list[dict[str, Any]]:
    lines = (here.folder / "sink.jsonl").read_text().splitlines()
    rows = [m["payload"]["row"] for m in map(json.loads, lines) if m["type"] == "row"]
    return sorted(rows, key=lambda row: row["id"])


def descriptors(state: list[dict[str, Any]] | None) -> list[tuple[str, int]]:
    """(namespace as it is spelled, or "none"; seq) of the states that a read was given."""
    found = [message["stream"] for message in state or ()]
    return sorted(
        (d["namespace"] if d.get("namespace") is not None else "none", s["seq"])
        for d, s in ((one["stream_descriptor"], one["stream_state"]) for one in found)
    )


@of("namespaces-both")
def test_A6_streams_that_were_folded_go_on_as_two(kept: Kept) -> None:
    """The identity, the table and the state of none stay; the other one begins."""
    mixed = [*range(1, 11), *range(101, 111)]
    assert kept.seqs("users") == mixed and kept.site.tables() == ["users"]
    steps = kept_homes.spelled((11, 12, None), (101, 112, ""))
    ran = kept.run(steps=steps)
    ran.noted("stream .users", "which were one until now", "the table of users may hold rows")
    (read,) = kept.reads()[kept.known :]
    assert descriptors(read["state"]) == [("none", 10)], "the other one is read from its start"
    (own,) = [table for table in kept.site.tables() if table != "users"]
    assert kept.seqs("users") == sorted([*mixed, 11, 12])
    assert kept.seqs(own) == [*range(101, 113)]
    ran = kept.run(steps=kept_homes.spelled((13, 13, None), (113, 113, "")))
    assert not [note for note in ran.notes if "one until now" in note], "it is told once"
    assert descriptors(kept.reads()[-1]["state"]) == [("", 112), ("none", 12)]
    assert kept.seqs("users") == sorted([*mixed, 11, 12, 13])
    assert kept.seqs(own) == [*range(101, 114)]


@of("namespace-empty")
def test_A6_a_stream_of_the_empty_namespace_alone_goes_on(kept: Kept) -> None:
    assert kept.seqs("users") == [*range(1, 11)]
    ran = kept.run(steps=kept_homes.spelled((11, 12, "")))
    assert not [note for note in ran.notes if " namespace" in note]
    (read,) = kept.reads()[kept.known :]
    assert descriptors(read["state"]) == [("", 10)]
    assert kept.site.tables() == ["users"] and kept.seqs("users") == [*range(1, 13)]


@of("undeclared-parquet", "undeclared-delta")
def test_A2_a_table_without_a_column_for_undeclared_properties_gets_it(kept: Kept) -> None:
    """``users`` is upserted, ``events`` appended; what was dropped before is not read again."""
    for table in ("users", "events"):
        rows = kept.site.rows(table)
        assert [row["seq"] for row in rows] == [1, 2] and EXTRA not in rows[0]
    ran = kept.run(steps=kept_homes.undeclared(3, 4))
    ran.noted("kept: ", "users.nick (2)")
    assert kept.given() == {"users": 2, "events": 2}
    for table in ("users", "events"):
        assert with_extra(kept, table) == [
            (1, "n1", None), (2, "n2", None),
            (3, "n3", '{"nick":"x3"}'), (4, "n4", '{"nick":"x4"}'),
        ]  # fmt: skip


EXTRA = "_penstock_extra"


def with_extra(here: Kept, table: str) -> list[tuple[int, str, str | None]]:
    folder = here.site.lake / table
    if here.case.format == "delta":
        arrow = deltalake.DeltaTable(str(folder)).to_pyarrow_table()
    else:  # files of before lack the column
        files = f"read_parquet('{folder}/*.parquet', union_by_name = true)"
        arrow = duckdb.connect().sql(f"SELECT * FROM {files}").to_arrow_table()
    found = arrow.select(["seq", "name", EXTRA]).to_pylist()
    return sorted((row["seq"], row["name"], row[EXTRA]) for row in found)


@of("newest-parquet", "newest-delta")
def test_L1_tables_that_another_rule_merged_go_on(kept: Kept) -> None:
    """Issue 38: the first run doubles no key and loses no update; what changes is said once."""
    for name, before in kept_newest.BEFORE.items():
        assert merged(kept, name) == before, name
    streams = kept_newest.streams(changed=True)
    ran = kept.run(streams=streams, steps=kept_newest.steps(kept_newest.NOW, 3))
    assert kept.given() == dict.fromkeys(kept_newest.TYPES, 2), "nothing begins again"
    for name, rows in kept_newest.MERGED.items():
        assert merged(kept, name) == rows, name
    assert ran.counts("numbers") == ("complete", 4, 3, 1), "a double has no room for one of them"
    noted = [note for note in ran.notes if OTHER_RULE in note]
    assert len(noted) == 1 and "streams times, texts, unions, quoted: " in noted[0]
    kept.known = len(kept.reads())
    ran = kept.run(streams=streams, steps=kept_newest.steps({}, 3))
    assert kept.given() == dict.fromkeys(kept_newest.TYPES, 3)
    assert not [note for note in ran.notes if OTHER_RULE in note], "it is said once"
    assert not any(stream.written for stream in ran.report.streams)
    for name, rows in kept_newest.MERGED.items():
        assert merged(kept, name) == rows, name


OTHER_RULE = "an earlier version of Penstock wrote its table"


def merged(here: Kept, table: str) -> list[tuple[Any, ...]]:
    """The rows of a table of ``kept_newest``, by key."""
    columns = ("id", "at", "v", *((kept_newest.MARK,) if table == "soft" else ()))
    return [tuple(row[name] for name in columns) for row in here.site.rows(table, "id")]


@of("csv-parquet", "csv-delta")
def test_B3_columns_that_spark_typed_keep_their_types(kept: Kept) -> None:
    """``csv-delta`` is mirror: no row that did not change is sent again."""
    before = values(kept)
    assert [row["price"] for row in before] == [1.5, 2.25]
    again = kept_homes.PARTS + "3,A-17,3,1.25,2026-01-04,2026-01-02T03:04:07Z,true,01234\n"
    kept_homes.give(kept.folder, sys.executable, {"csv": again})
    ran = kept.run()
    found = values(kept)
    assert found[:2] == before
    at = datetime.datetime(2026, 1, 2, 3, 4, 7, tzinfo=datetime.UTC)
    assert found[2:] == [
        {"id": 3, "n": None, "big": 3, "price": 1.25, "day": datetime.date(2026, 1, 4), "at": at,
         "flag": True, "text": "01234"}
    ]  # fmt: skip
    ran.noted("types: { n: string }")
    ran.noted("rows 1 added, 0 changed, 0 removed", "2 as before")


def values(here: Kept) -> list[dict[str, Any]]:
    """The rows, without metadata columns; times in UTC."""
    found: list[dict[str, Any]] = []
    for row in here.site.rows("parts", "id"):
        own = {name: value for name, value in row.items() if not name.startswith("_")}
        found.append({**own, "at": own["at"].astimezone(datetime.UTC)})
    return found


@of("push-airbyte", "push-singer")
def test_L5_rows_without_an_ack_are_sent_again_and_no_others(kept: Kept) -> None:
    kept.run(records=120)
    assert kept.given() == {"users": 90, "events": 90}, "what was sealed is not read again"
    assert kept.saved() == {"users": 120, "events": 120}
    for stream, heard in sent(kept.folder / "sink.jsonl").items():
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
