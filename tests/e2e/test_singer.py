"""Singer taps into tables: what taps do and no real one does on demand, from the process to the
table (issue 4, "Singer source").

Every run is held against L8 and its stored report by ``pipelines.Site.run``. Tables are read by
DuckDB or delta-rs.
"""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from connector_sites import TapSite, cancelled_when
from pipelines import NAME

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeTap = Callable[..., TapSite]
FULL = list(range(1, 101))
OVERWRITE = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}


@pytest.fixture
def tap(tmp_path: Path, shared_spark: "SparkSession") -> MakeTap:
    """``tap(format="parquet", **stub options)``: a pipeline from the stub tap."""
    del shared_spark
    made: list[TapSite] = []

    def make(format: str = "parquet", **stub: Any) -> TapSite:
        made.append(TapSite(tmp_path / f"tap-{len(made)}", format, **stub))
        return made[-1]

    return make


# -- states


def test_l1_bookmarks_bring_what_is_new_and_are_shown_and_reset(tap: MakeTap) -> None:
    """Issue 4, Singer source 1, 3, 5: one blob, given back byte for byte, told by stream."""
    here = tap("delta")
    first = here.run()
    assert (first.status, first.exit_code, first.guarantee) == ("succeeded", 0, "exactly-once")
    assert first.counts("s0") == ("complete", 100, 100, 0)
    assert here.seqs("s0") == here.seqs("s1") == FULL
    assert here.bookmarks() == {"s0": 100, "s1": 100}
    second = here.run({"records": 130})
    assert second.counts("s1") == ("complete", 30, 30, 0)
    assert here.seqs("s0") == here.seqs("s1") == list(range(1, 131))
    (selected,) = {json.dumps(_selected(call["catalog"])) for call in here.journal()}
    assert json.loads(selected) == {"s0": "INCREMENTAL", "s1": "INCREMENTAL"}
    given = [call["state"] for call in here.journal()]
    marks = {s: {"replication_key": "seq", "replication_key_value": 100} for s in ("s0", "s1")}
    assert given == [None, {"bookmarks": marks, "currently_syncing": None}]

    shown = here.cli("state", "show", NAME, "--json").json
    assert {s["name"]: s["state"]["replication_key_value"] for s in shown["streams"]} == {
        "s0": 130,
        "s1": 130,
    }
    assert shown["shared"] == {"currently_syncing": None}
    reset = here.cli("state", "reset", NAME, "--stream", "s1", "--json")
    assert reset.code == 0, reset.err
    third = here.run({"records": 130})
    assert (third.stream("s0").read, third.stream("s1").read) == (0, 130)
    assert here.seqs("s1") == list(range(1, 131))  # read again, and one row per key


def _selected(catalog: dict[str, Any]) -> dict[str, str]:
    roots = {
        entry["tap_stream_id"]: m["metadata"]
        for entry in catalog["streams"]
        for m in entry["metadata"]
        if not m["breadcrumb"]
    }
    return {name: m["replication-method"] for name, m in roots.items() if m.get("selected")}


# -- how a tap is started


def test_a_tap_without_discovery_tells_its_streams_while_it_is_read(tap: MakeTap) -> None:
    """Streams and schemas come from the messages, a column half way too; it goes on from its own
    state, and nothing is replaced."""
    here = tap(scenario="no_discovery", changed_schema=True)
    first = here.run()
    assert first.counts("s0") == first.counts("s1") == ("complete", 100, 100, 0)
    first.noted("only while it is read")
    rows = here.rows("s0")
    assert [row["seq"] for row in rows] == FULL
    assert [row["extra"] for row in rows] == [None] * 50 + [f"extra {n}" for n in FULL[50:]]
    assert rows[0]["name"].startswith("s0-")
    second = here.run({"records": 120, "changed_schema": False})
    assert second.counts("s0") == ("complete", 20, 20, 0)
    assert here.seqs("s0") == here.seqs("s1") == list(range(1, 121))
    assert here.bookmarks() == {"s0": 120, "s1": 120}
    call = here.journal()[-1]
    assert call["state"]["bookmarks"]["s1"]["replication_key_value"] == 100
    anew = here.run({"records": 5, "changed_schema": False}, full_refresh=True)
    assert anew.counts("s0") == ("complete", 5, 5, 0)
    assert not here.journal()[-1]["state"]["bookmarks"]


def test_records_without_any_schema_land_as_json_text(tap: MakeTap) -> None:
    """Also where what is called a schema is none; the original numbers are kept."""
    steps: list[dict[str, Any]] = [
        {"record": {"stream": "loose", "record": {"n": 12345678901234567890123, "a": [1, {}]}}},
        {"line": '{"type": "RECORD", "stream": "loose", "record": {"n": 1.10, "b": NaN}}'},
        {"schema": {"stream": "odd", "schema": "not a schema", "key_properties": ["id"]}},
        {"record": {"stream": "odd", "record": {"id": 7}}},
        {"record": {"stream": "odd", "record": None}},
        {"state": {"bookmarks": {}}},
    ]
    here = tap(scenario="no_discovery", steps=steps)
    ran = here.run()
    assert ran.counts("loose") == ("complete", 2, 2, 0)
    assert ran.counts("odd") == ("complete", 2, 1, 1)
    ran.noted("malformed:SCHEMA", "1")
    texts = [row["record"] for row in here.rows("loose", "record")]
    assert sorted(texts) == ['{"n":1.10,"b":null}', '{"n":12345678901234567890123,"a":[1,{}]}']
    assert [json.loads(row["record"]) for row in here.rows("odd", "record")] == [{"id": 7}]
    (reject,) = here.rejects()
    assert (reject["stream"], '"record": null' in reject["bytes"]) == ("odd", True)


def test_a_catalog_of_the_users_own_and_a_tap_that_wants_properties(tap: MakeTap) -> None:
    """``--properties`` is found by trying; the file's selection holds."""
    here = tap(scenario="properties", records=10)
    catalog = {
        "streams": [
            {
                "tap_stream_id": "s1",
                "stream": "s1",
                "schema": _SCHEMA,
                "metadata": [
                    {"breadcrumb": [], "metadata": {"selected": True, "replication-key": "seq"}},
                    {"breadcrumb": ["properties", "name"], "metadata": {"selected": False}},
                ],
            }
        ]
    }
    (here.folder / "catalog.json").write_text(json.dumps(catalog))
    source = {"use": here.connector(), "config": {}, "catalog": "./catalog.json"}
    ran = here.run(source=source)
    assert [s.name for s in ran.report.streams] == ["s1"]
    assert here.tables() == ["s1"]
    assert here.seqs("s1") == list(range(1, 11))
    assert not here.journal("discover")
    assert "name" not in here.rows("s1")[0]
    assert not here.journal()[-1].get("catalog")
    assert _selected(here.journal()[-1]["properties"]) == {"s1": "INCREMENTAL"}


_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "seq": {"type": "integer"},
        "name": {"type": "string"},
    },
}


def test_a_run_that_selects_nothing_is_an_error(tap: MakeTap) -> None:
    """By its catalog: refused before it starts. In silence: failed, with exit code 0 or not."""
    here = tap(streams=1, metadata={"s0": {"selected": False}})
    with pytest.raises(ConfigError) as refused:
        here.run()
    assert "no stream to sync" in " ".join(refused.value.problems)
    assert not here.journal()
    silent = tap(scenario="unselective", knows=["state"])
    ran = silent.run()
    assert (ran.status, ran.exit_code, ran.error["code"]) == ("failed", 4, "source.silent")


# -- messages


def test_odd_lines_and_values_lose_nothing(tap: MakeTap) -> None:
    """Lower case, noise, blank lines, unknown types, NaN, 2 MB in a line, the same SCHEMA again,
    null records, an output that ends inside a line."""
    here = tap(
        lower=True,
        noise=True,
        special="nan",
        null_every=10,
        schema_repeated=True,
        half_line=True,
        big_bytes=2_000_000,
        streams=1,
    )
    ran = here.run()
    assert (ran.status, ran.exit_code) == ("succeeded", 0), ran.error
    assert ran.counts("s0") == ("complete", 101, 90, 11)
    kept = [n for n in FULL if n % 10]
    rows = {row["seq"]: row for row in here.rows("s0")}
    assert sorted(rows) == kept
    assert rows[5]["amount"] is None
    assert len(rows[5]["note"]) == 2_000_000
    assert rows[7]["amount"] == 49
    ran.noted("did not fit", "1")
    for what in ("text_line", "blank_line", "not_a_message", "unknown_type:"):
        ran.noted(what)
    reasons = sorted(r["reason"] for r in here.rejects())
    assert len(reasons) == 11
    assert sum("record is not an object" in r for r in reasons) == 10
    assert sum("ended inside it" in r for r in reasons) == 1
    assert here.bookmarks() == {"s0": 100}


def test_a_schema_with_every_number_and_a_key_that_is_no_property(tap: MakeTap) -> None:
    """A key that no record has is no key; a big integer keeps its digits where the schema has room
    for it; a column half way is added, and older rows have NULL there."""
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "big": {"type": ["null", "string"], "format": "singer.decimal"},
            "seq": {"type": "integer"},
        },
    }
    wider = {"type": "object", "properties": {**schema["properties"], "late": {"type": "string"}}}
    big = "12345678901234567890.123"
    steps: list[dict[str, Any]] = [
        {"schema": {"stream": "t", "schema": schema, "key_properties": ["nope"]}},
        {"record": {"stream": "t", "record": {"id": 1, "seq": 1, "big": big}}},
        {"schema": {"stream": "t", "schema": wider, "key_properties": ["nope"]}},
        {"record": {"stream": "t", "record": {"id": 2, "seq": 2, "late": "here"}}},
        {"record": {"stream": "t", "record": {"id": 3, "seq": 3, "more": 1}}},
        {"state": {"bookmarks": {}}},
    ]
    here = tap("delta", scenario="no_discovery", steps=steps)
    ran = here.run()
    assert ran.counts("t") == ("complete", 3, 3, 0), ran.error
    rows = here.rows("t")
    assert [row["late"] for row in rows] == [None, "here", None]
    assert Decimal(rows[0]["big"]) == Decimal(big)
    ran.noted("field not in the schema", "t.more", "1")
    asked = here.run(defaults={"destination_sync_mode": "append_dedup"})
    assert asked.exit_code == 2, asked.error
    assert asked.error["code"].startswith("config.")
    assert "nope" in asked.error["message"] or "primary key" in asked.error["message"]
    assert len(here.rows("t")) == 3


def test_l6_a_version_replaces_the_rows_before_only_once_it_is_activated(tap: MakeTap) -> None:
    here = tap("delta", scenario="versioned", streams=1, records=50)
    here.run()
    half = here.run(
        {"version": 8, "crash_after": 30, "records": 90, "activate": "after"},
        full_refresh=True,
    )
    assert half.exit_code == 4
    assert here.seqs("s0") == list(range(1, 51)), "rows of a version that is not active are seen"
    ran = here.run({"version": 8, "records": 90})
    assert ran.status == "succeeded", ran.error
    assert here.seqs("s0") == list(range(1, 91))
    both = tap(scenario="versioned_both", streams=1, records=20)
    both.run()
    again = both.run({"version": 9, "records": 30}, full_refresh=True)
    assert again.status == "succeeded", again.error
    assert both.seqs("s0") == list(range(1, 31))


def _batches(here: TapSite) -> dict[str, Any]:
    """The configuration of a tap that writes its batches into the site's folder."""
    here.stub["batch_folder"] = str(here.folder)
    return {"batch_config": {"storage": {"root": here.folder.as_uri()}}}


@pytest.mark.parametrize("how", ["batch", "batch_parquet"])
def test_batch_files_become_the_same_rows(tap: MakeTap, how: str) -> None:
    here = tap(scenario=how, streams=1)
    config = _batches(here)
    ran = here.run(config=config)
    assert ran.counts("s0") == ("complete", 100, 100, 0), ran.error
    rows = here.rows("s0")
    assert [row["seq"] for row in rows] == FULL
    assert (rows[2]["name"][:3], rows[2]["note"], rows[2]["amount"]) == ("s0-", "note 3", 21)
    assert here.bookmarks() == {"s0": 100}
    assert here.run({"records": 110}, config=config).counts("s0") == ("complete", 10, 10, 0)


def test_a_batch_that_is_gone_is_no_complete_stream(tap: MakeTap) -> None:
    """L8: exit code 0 proves nothing where rows are missing: no state moves past them, and a table
    that was to be replaced is left alone."""
    here = tap(scenario="batch", streams=1, records=100)
    config = _batches(here)
    here.run(defaults=OVERWRITE, config=config)
    lost = here.run({"scenario": "batch_missing"}, defaults=OVERWRITE, config=config)
    assert (lost.exit_code, lost.error["code"]) == (4, "source.batch_unreadable")
    assert lost.stream("s0").status == "failed"
    assert here.seqs("s0") == FULL
    again = tap(scenario="batch_missing", streams=1)
    config = _batches(again)
    assert again.run(config=config).stream("s0").committed == 50
    assert again.bookmarks() == {"s0": 50}
    assert again.run({"scenario": "batch"}, config=config).counts("s0") == ("complete", 50, 50, 0)
    assert again.seqs("s0") == FULL


def test_a_batch_outside_the_taps_folders_is_refused_with_what_to_write_L10(
    tap: MakeTap, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also a pipe, which holds nobody; what came before is kept, and the hint leads on."""
    outside = tmp_path_factory.mktemp("outside")
    here = tap(scenario="batch", streams=1, batch_folder=str(outside))
    config = {"batch_config": {"storage": {"root": outside.as_uri()}}}
    refused = here.run()
    assert (refused.exit_code, refused.error["code"]) == (4, "source.batch_unreadable")
    assert "batch_config.storage.root" in refused.error["hint"]
    assert here.bookmarks() == {}
    assert here.run(config=config).counts("s0") == ("complete", 100, 100, 0)


def test_names_in_messages(tap: MakeTap) -> None:
    """``stream`` differs from ``tap_stream_id``: the latter names it, the former its table; where
    one name means two streams nothing is guessed."""
    here = tap(scenario="two_names", records=10)
    assert here.run().counts("s1") == ("complete", 10, 10, 0)
    assert here.tables() == ["table_s0", "table_s1"]
    ran = tap(scenario="same_names", records=10).run()
    assert (ran.exit_code, ran.error["code"]) == (4, "source.ambiguous_stream")
    assert "s0, s1" in ran.error["message"]
    assert {s.status for s in ran.report.streams} == {"incomplete"}


# -- taps that fail


def test_l7_a_crash_keeps_what_its_state_covers_and_shows_its_critical_line(tap: MakeTap) -> None:
    here = tap(scenario="late_crash")
    first = here.run()
    assert (first.status, first.exit_code) == ("failed", 4)
    assert first.error["code"] == "source.exited"
    assert first.error["message"] == "the stub crashed as asked (exit code 1)"
    assert first.error["hint"]
    assert here.seqs("s0") == list(range(1, 51))
    assert here.bookmarks() == {"s0": 50}
    second = here.run({"scenario": "basic"})
    assert second.counts("s0") == ("complete", 50, 50, 0)
    assert here.seqs("s0") == here.seqs("s1") == FULL


def test_l6_exit_0_after_we_stopped_it_is_not_completeness(tap: MakeTap) -> None:
    """Reference §0.5: a tap of the SDK drains on SIGTERM and exits with 0. By a limit of ours, and
    by Ctrl-C."""
    here = tap(scenario="drains", streams=1, records=10, delay=0)
    here.run(defaults=OVERWRITE)
    slow = {"records": 400, "delay": 0.05}
    stopped = here.run(slow, defaults=OVERWRITE, timeouts={"total": "3s", "stop": "5s"})
    assert (stopped.status, stopped.exit_code) == ("failed", 4)
    assert stopped.error["code"] == "source.timeout"
    assert stopped.stream("s0").status == "incomplete"
    assert here.seqs("s0") == list(range(1, 11))
    ready = here.folder / "ready"
    with cancelled_when(ready):
        steps = [{"records": {"stream": "s0", "to": 5}}, {"touch": str(ready)}]
        hang = [{"repeat": {"times": 600, "steps": [{"sleep": 0.1}]}}]
        cancelled = here.run({"steps": [*steps, *hang]}, defaults=OVERWRITE)
    assert (cancelled.status, cancelled.exit_code) == ("cancelled", 7)
    assert here.seqs("s0") == list(range(1, 11))


def test_a_tap_that_is_killed_or_silent_is_named(tap: MakeTap) -> None:
    here = tap(scenario="hang_stubborn", streams=1)
    silent = here.run(timeouts={"heartbeat": "2s", "stop": "1s"})
    assert (silent.exit_code, silent.error["code"]) == (4, "source.heartbeat")
    assert here.bookmarks() == {"s0": 25}
    assert not Path(f"/proc/{here.journal()[-1]['pid']}").exists()
    steps = [{"records": {"stream": "s0", "from": 26, "to": 40}}, {"kill": 9}]
    killed = here.run({"scenario": "basic", "steps": steps})
    assert (killed.exit_code, killed.error["code"]) == (4, "source.exited")
    assert "signal 9" in killed.error["message"]
    assert here.seqs("s0") == list(range(1, 26))
    assert here.run({"scenario": "basic"}).counts("s0") == ("complete", 75, 75, 0)
    assert here.seqs("s0") == FULL


# -- config write-back


def test_l10_what_a_tap_writes_into_its_config_is_kept_and_never_shown(tap: MakeTap) -> None:
    """Issue 4, Singer source 4: for the next run, also after a failure; the user's own change
    wins."""
    here = tap(scenario="write_back", streams=1, records=20, seed=7)
    config = {"refresh_token": "first-token"}
    first = here.run(config=config)
    assert first.status == "succeeded"
    failed = here.run(
        {"scenario": "late_crash", "write_back": True, "seed": 8, "records": 60, "crash_after": 15},
        config=config,
    )
    assert failed.exit_code == 4
    third = here.run({"scenario": "basic", "records": 60}, config=config)
    assert third.status == "succeeded"
    here.run({"scenario": "basic"}, config={"refresh_token": "changed-by-the-user"})
    tokens = [call["config"]["refresh_token"] for call in here.journal()]
    assert tokens == ["first-token", "rotated-7", "rotated-8", "changed-by-the-user"]
    said = [text for ran in (first, failed, third) for _, _, text in ran.heard.lines]
    for token in ("rotated-7", "rotated-8", "first-token"):
        assert not any(token in text for text in said)
    assert here.files_with("rotated-7") in ([], ["state.db"])
    assert here.files_with("rotated-8") in ([], ["state.db"])
    assert here.seqs("s0") == list(range(1, 61))
