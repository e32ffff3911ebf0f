"""What sources do and no real one does on demand: each scenario from the connector to the table.

Every run here is held against L8 and its stored report by ``pipelines.Site.run``. Tables are read
by DuckDB or delta-rs.
"""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pipelines import Site, changes_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]
FULL = list(range(1, 101))
OVERWRITE = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
DEDUP = {"destination_sync_mode": "append_dedup"}
APPEND = {"destination_sync_mode": "append"}


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


@pytest.mark.parametrize(
    ("format", "defaults"),
    [("parquet", APPEND), ("delta", OVERWRITE)],
    ids=["append-parquet", "overwrite-delta"],
)
def test_l2_a_loads_parts_become_files_of_its_table(
    site: MakeSite, format: str, defaults: dict[str, str]
) -> None:
    here = site(format=format)
    here.run(defaults=defaults)
    here.run({"records": 130}, defaults=defaults)
    assert here.seqs("s0") == here.seqs("s1") == list(range(1, 131))
    files = [pq.ParquetFile(f).metadata for f in (here.lake / "s0").glob("*.parquet")]
    kept = {f.row_group(0).column(0).compression for f in files}
    assert kept == {"ZSTD"}  # as parts have it; Spark would have chosen SNAPPY
    assert not [*here.home.path.rglob("parts/*.parquet")]


def test_legacy_source_becomes_a_stream_state_source(site: MakeSite) -> None:
    here = site(records=40)
    here.run({"state_type": "LEGACY"})
    assert here.described()["type"] == "LEGACY"
    second = here.run({"state_type": "STREAM", "records": 60})
    assert set(here.journal()[-1]["state"]["positions"].values()) == {40}  # as it was sent
    assert second.counts("s1") == ("complete", 20, 20, 0)
    assert here.described()["type"] == "STREAM"
    assert here.saved() == {"s0": {"seq": 60}, "s1": {"seq": 60}}
    assert here.seqs("s0") == list(range(1, 61))


def test_control_config_is_used_until_the_user_changes_theirs(site: MakeSite) -> None:
    here = site(scenario="control", records=20, streams=1, seed=7)
    config = {"refresh_token": "first-token"}
    here.run(config=config)
    here.run({"control": False, "records": 30}, config=config)
    here.run({"control": False, "records": 40}, config={"refresh_token": "changed-by-the-user"})
    tokens = [call["config"]["refresh_token"] for call in here.journal()]
    assert tokens == ["first-token", "rotated-7", "changed-by-the-user"]
    assert here.seqs("s0") == list(range(1, 41))
    assert here.files_with("rotated-7") == ["state.db"]


# -- sources that fail


@pytest.mark.parametrize("kind", ["STREAM", "GLOBAL"])
def test_l4_a_transient_error_is_tried_again_in_the_same_run(
    site: MakeSite, tmp_path: Path, kind: str
) -> None:
    """Twice it fails 25 records further on, of which a state covers 20; it goes on from there."""
    here = site(records=100, state_every=10, state_type=kind, streams=1, crash_after=25)
    here.stub |= {"crash_trace": True, "failure_type": "transient_error", "times": 2}
    ran = here.run({"once": str(tmp_path / "once")}, source_keys={"backoff": "100ms"})
    assert (ran.status, ran.exit_code, ran.guarantee) == ("succeeded", 0, "exactly-once"), ran.error
    assert ran.counts("s0") == ("complete", 100, 100, 0) and ran.stream("s0").attempts == 3
    assert here.seqs("s0") == FULL
    given = [call["state"] for call in here.journal() if call["command"] == "read"]
    assert len(given) == 3 and given[0] is None and given[1] and given[2]
    for attempt in (2, 3):
        ran.noted(f"the source is tried again (attempt {attempt}", "crashed as asked")


def test_l7_late_crash_is_partial_and_the_next_run_completes_exactly(site: MakeSite) -> None:
    here = site(scenario="late_crash", records=40, state_every=10, crash_after=65)
    here.stub["once"] = str(here.folder / "crashed")
    first = here.run()
    assert (first.status, first.exit_code) == ("partial", 1)
    assert "crashed as asked" in first.error["message"]
    assert first.counts("s0") == ("complete", 40, 40, 0)
    assert first.stream("s1").status == "incomplete"
    assert (here.seqs("s0"), here.seqs("s1")) == (list(range(1, 41)), list(range(1, 21)))
    assert here.saved() == {"s0": {"seq": 40}, "s1": {"seq": 20}}
    second = here.run()
    assert (second.status, second.exit_code) == ("succeeded", 0)
    assert second.counts("s1") == ("complete", 20, 20, 0)
    assert here.seqs("s0") == here.seqs("s1") == list(range(1, 41))


def test_l7_complete_and_then_exit_1_keeps_every_stream(site: MakeSite) -> None:
    here = site(scenario="complete_then_exit_1", records=30)
    ran = here.run()
    assert {s.status for s in ran.report.streams} == {"complete"}
    assert ran.exit_code == 4  # every stream is complete, and the source failed all the same
    assert "ends badly as asked" in ran.error["message"]
    assert here.seqs("s0") == here.seqs("s1") == list(range(1, 31))
    assert here.saved() == {"s0": {"seq": 30}, "s1": {"seq": 30}}


def test_bad_stream_fails_alone_with_its_own_error(site: MakeSite) -> None:
    ran = site(scenario="bad_stream", records=40).run()
    assert (ran.status, ran.exit_code) == ("partial", 1)
    assert ran.counts("s0") == ("complete", 40, 40, 0)
    bad = ran.stream("s1")
    assert bad.status == "failed"
    assert bad.error is not None
    assert bad.error["stream"] == "s1"
    assert "stream s1 failed as asked" in bad.error["message"]


def test_l11_silent_source_is_ended_with_its_whole_tree(site: MakeSite) -> None:
    here = site(scenario="hang_grandchildren", state_every=10)
    ran = here.run(timeouts={"heartbeat": "5s", "stop": "1s"})
    assert (ran.status, ran.exit_code) == ("failed", 4)
    assert "sent no record and no state for 5 s" in ran.error["message"]
    assert here.seqs("s0") == list(range(1, 31))
    assert here.saved() == {"s0": {"seq": 30}}
    pid = here.journal()[-1]["pid"]
    assert not Path(f"/proc/{pid}").exists()
    assert not _commands_with(str(here.journal_path))


def _commands_with(text: str) -> list[str]:
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command:
            found.append(command)
    return found


def test_l6_overwrite_that_fails_midway_keeps_the_old_table(site: MakeSite) -> None:
    _overwrite_that_fails_midway(site("parquet"))


def test_l6_overwrite_that_fails_midway_keeps_the_old_delta_table(site: MakeSite) -> None:
    _overwrite_that_fails_midway(site("delta"))


def _overwrite_that_fails_midway(here: Site) -> None:
    here.stub |= {"records": 30}
    here.run(defaults=OVERWRITE)
    failed = here.run({"scenario": "late_crash", "crash_after": 45}, defaults=OVERWRITE)
    assert (failed.status, failed.exit_code) == ("partial", 1)
    assert failed.stream("s1").committed == 0
    assert here.seqs("s1") == list(range(1, 31))
    generations = [{r["_airbyte_generation_id"] for r in here.rows(t)} for t in ("s0", "s1")]
    assert generations == [{2}, {1}]


def test_a_source_that_ends_well_and_leaves_a_stream_out_is_told(site: MakeSite) -> None:
    """L6: where statuses are reported they decide, not exit code 0."""
    here = site(streams=[{"name": "done"}, {"name": "left"}], steps=_steps("done", {"id": 1}))
    ran = here.run()
    assert (ran.status, ran.exit_code) == ("partial", 1)
    assert ran.error["code"] == "source.incomplete"
    assert "left" in ran.error["message"]
    assert ran.error["hint"]
    assert (ran.stream("done").status, ran.stream("left").status) == ("complete", "incomplete")


# -- lines of all kinds


def test_odd_lines_and_values_lose_nothing(site: MakeSite) -> None:
    """NaN and Infinity; the source's own changes; noise; the output ends inside a line."""
    here = site(special="nan", changes_every=10, noise=True, half_line=True, streams=1, records=30)
    ran = here.run()
    assert (ran.status, ran.exit_code) == ("succeeded", 0)
    assert ran.counts("s0") == ("complete", 31, 30, 1)
    rows = {row["seq"]: row for row in here.rows("s0")}
    assert sorted(rows) == list(range(1, 31))
    assert rows[5]["amount"] is None
    assert rows[5]["note"] == "not a number"
    assert changes_of(rows[5]) == [("amount", "NULLED", "DESTINATION_TYPECAST_ERROR: NaN")]
    assert changes_of(rows[10]) == [("note", "NULLED", "SOURCE_RETRIEVAL_ERROR")]
    assert changes_of(rows[11]) == []
    ran.noted("did not fit", "1")
    for what in ("text_line", "blank_line", "not_a_message", "unknown_type:FUTURE"):
        ran.noted(what)
    (reject,) = here.rejects()
    assert (reject["stream"], "ended inside it" in reject["reason"]) == ("s0", True)
    assert reject["bytes"].startswith('{"type": "RECORD"')
    assert not reject["bytes"].endswith("}")
    assert any("a line of plain text" in text for _, _, text in ran.heard.lines)


def test_a_key_that_comes_twice_and_records_after_the_last_state(site: MakeSite) -> None:
    here = site(special="duplicate_keys", trailing=10, streams=1)
    first = here.run(defaults=APPEND)
    assert (first.status, first.guarantee) == ("succeeded", "at-least-once")
    first.noted("at least once", "no state covers", "s0")
    assert first.counts("s0") == ("complete", 100, 100, 0)
    assert here.saved() == {"s0": {"seq": 90}}
    assert here.seqs("s0") == FULL
    assert all(row["name"] for row in here.rows("s0"))  # of two values the last one
    second = here.run({"trailing": 0}, defaults=APPEND)
    assert not any("no state covers" in note for note in second.notes)
    second.noted("at-least-once: s0")
    assert here.seqs("s0") == sorted([*FULL, *range(91, 101)])


def test_a16_by_default_a_key_that_comes_again_is_one_row(site: MakeSite) -> None:
    """What came after the last state comes again: appended by default, it was there twice."""
    here = site(trailing=10, streams=1)
    assert here.run().counts("s0") == ("complete", 100, 100, 0)
    assert here.run({"trailing": 0}).counts("s0") == ("complete", 10, 10, 0)
    assert here.seqs("s0") == FULL
    here.run({"records": 40}, defaults={"destination_sync_mode": "overwrite"})  # A3: reads all
    assert here.seqs("s0") == list(range(1, 41))
    gone = {"mode": "full_refresh_overwrite_deduped"}
    assert here.run({"records": 30}, defaults=gone).stream("s0").written == 30  # A6
    assert here.seqs("s0") == list(range(1, 31))


def test_a_line_of_50_mb_lands(site: MakeSite) -> None:
    here = site(scenario="big_line", records=20)
    ran = here.run()
    assert ran.counts("s0") == ("complete", 20, 20, 0)
    rows = here.rows("s0")
    assert [row["seq"] for row in rows] == list(range(1, 21))
    assert [len(row["note"] or "") for row in rows if row["seq"] == 5] == [50_000_000]


def test_a_line_over_max_record_bytes_is_a_reject(site: MakeSite) -> None:
    here = site(scenario="big_line", records=20, big_bytes=3_000_000)
    ran = here.run(max_record_bytes="1mb")
    assert ran.counts("s0") == ("complete", 20, 19, 1)
    assert 5 not in here.seqs("s0")
    (reject,) = here.rejects()
    assert "larger than max_record_bytes" in reject["reason"]


def test_no_records_leave_appended_tables_and_empty_overwritten_ones(site: MakeSite) -> None:
    here = site(records=10)
    streams = [{"name": "s0", **OVERWRITE}, {"name": "s1"}]
    here.run(streams=streams)
    ran = here.run({"scenario": "empty", "records": 0}, streams=streams)
    assert (ran.status, ran.exit_code) == ("succeeded", 0)
    assert ran.counts("s0") == ran.counts("s1") == ("complete", 0, 0, 0)
    assert (here.seqs("s0"), here.seqs("s1")) == ([], list(range(1, 11)))
    assert here.saved()["s1"] == {"seq": 10}


# -- values that do not fit

SHAPES = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "amount": {"type": ["null", "integer"]},
        "at": {"type": ["null", "string"], "format": "date"},
        "inner": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}
MISFITS: list[dict[str, Any]] = [
    {"id": 1, "amount": 10, "at": "2026-01-31", "inner": {"n": 1}},
    {"id": 2, "amount": "ten", "at": "2026-02-31", "inner": {"n": "x"}},
    {"id": 3, "amount": 1.5, "extra": {"a": 1}},
    {"id": 4, "extra": 1},
]


def _steps(stream: str, *data: Any, end: int | None = 1) -> list[dict[str, Any]]:
    records = [{"record": {"stream": stream, "data": one}} for one in data]
    state = [{"state": {"stream": stream, "state": {"seq": end}}}] if end is not None else []
    return [*records, *state, {"status": {"stream": stream, "status": "COMPLETE"}}]


def test_l9_misfits_are_null_and_told_extra_fields_counted(site: MakeSite) -> None:
    here = site(
        streams=[{"name": "t", "json_schema": SHAPES, "source_defined_cursor": True}],
        steps=[*_steps("elsewhere", {"id": 9}), *_steps("t", *MISFITS)],
    )
    ran = here.run()
    assert ran.counts("t") == ("complete", 4, 4, 0)
    rows = here.rows("t", "id")
    assert [row["amount"] for row in rows] == [10, None, None, None]
    assert [str(row["at"]) for row in rows] == ["2026-01-31", "None", "None", "None"]
    why = "DESTINATION_TYPECAST_ERROR"
    told = [{(field, change) for field, change, _ in changes_of(row)} for row in rows]
    assert told == [
        set(),
        {("amount", "NULLED"), ("at", "NULLED"), ("inner.n", "NULLED")},
        {("amount", "NULLED")},
        set(),
    ]
    found = {reason.partition(": ")[0] for row in rows for _, _, reason in changes_of(row)}
    assert found == {why}
    ran.noted("2 values of t.amount did not fit", "change list")
    ran.noted("field not in the schema", "t.extra", "2")
    ran.noted("stream_not_configured:elsewhere", "1")
    assert "extra" not in rows[0]


def test_strict_mode_rejects_and_the_verb_shows_the_original_bytes(site: MakeSite) -> None:
    here = site(
        streams=[{"name": "t", "json_schema": SHAPES}],
        steps=[*_steps("t", *MISFITS), {"line": '{"type": "RECORD", "record": {"stream": "t"}}'}],
    )
    ran = here.run(strict=True)
    assert ran.counts("t") == ("complete", 5, 2, 3)
    assert [row["id"] for row in here.rows("t", "id")] == [1, 4]
    answer = here.cli("rejects", "e2e", "--json")
    assert answer.code == 0, answer.err
    shown = sorted(answer.json, key=lambda r: str(r["field"]))
    assert {r["stream"] for r in shown} == {"t"}
    bodies = [r["bytes"] for r in shown]
    assert json.dumps(MISFITS[1]) in bodies
    assert json.dumps(MISFITS[2]) in bodies
    assert '{"type": "RECORD", "record": {"stream": "t"}}' in bodies
    assert {r["field"] for r in shown} == {"amount", None}
    assert all(r["run"] == ran.report.run and r["reason"] and r["at"] for r in shown)


# -- secrets


def test_l10_secrets_are_in_no_file_line_or_command(site: MakeSite) -> None:
    secret = 'sEcr3t/"quoted"+x'
    here = site(scenario="leak", records=5)
    ran = here.run(config={"api_key": secret})
    assert ran.status == "succeeded"
    forms = (secret, json.dumps(secret)[1:-1])
    assert [here.files_with(form) for form in forms] == [[], []]
    said = [text for _, _, text in ran.heard.lines]
    assert any("connecting with ****" in text for text in said)
    assert any("stderr ****" in text for text in said)
    assert not any(form in text for text in said for form in forms)
    file = here.write(config={"api_key": "${KEY}"})
    answer = here.cli("run", str(file), "--dry-run", "-vv", KEY=secret)
    assert answer.code == 0, answer.err
    assert "****" in answer.err
    assert not any(form in answer.err + answer.out for form in forms)
    assert [here.files_with(form) for form in forms] == [[], []]


def test_l10_configuration_is_in_no_command_line(quiet: Site) -> None:
    """While the source runs, no process has its configuration among its arguments."""
    seen: list[str] = []
    ready, go = quiet.folder / "ready", quiet.folder / "go"
    steps = [{"touch": str(ready)}, {"wait_for": str(go)}, {"line": "done"}]
    file = quiet.write({"steps": steps}, config={"api_key": "hidden-from-ps"})

    def look() -> None:
        deadline = time.monotonic() + 120
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        seen.extend(_commands_with(str(quiet.folder)))
        seen.extend(_commands_with("hidden-from-ps"))
        go.touch()

    looking = threading.Thread(target=look)
    looking.start()
    answer = quiet.cli("run", str(file), "--dry-run", "--json")
    looking.join(130)
    assert answer.code == 0, answer.err
    assert any("stub_source.py" in command for command in seen)
    assert not any("hidden-from-ps" in command for command in seen)


# -- schemas and names


def test_next_schema_and_a_stream_that_is_gone(site: MakeSite) -> None:
    here = site(records=20)
    streams = [{"name": "s0"}, {"name": "s1"}]
    here.run(streams=streams)
    ran = here.run({"schema": 2, "remove": ["s1"], "records": 30}, streams=streams)
    assert (ran.status, ran.exit_code) == ("succeeded", 0)
    ran.noted("no longer has the stream s1")
    assert [s.name for s in ran.report.streams] == ["s0"]
    assert here.seqs("s1") == list(range(1, 21))
    rows = here.rows("s0")
    assert [row["seq"] for row in rows] == list(range(1, 31))
    assert (rows[0]["email"], rows[29]["email"]) == (None, "u30@example.org")
    assert (rows[0]["amount"], rows[29]["amount"]) == (7, 210.5)  # integer became number
    assert (rows[2]["note"], rows[29]["note"]) == ("note 3", None)  # no longer delivered
    assert here.saved() == {"s0": {"seq": 30}, "s1": {"seq": 20}}


def test_metadata_names_and_a_selection_of_columns(site: MakeSite) -> None:
    here = site(records=5)
    streams = [{"name": "s0", "columns": ["name"]}, {"name": "s1"}]
    here.run(streams=streams)
    native = {
        "_airbyte_raw_id",
        "_airbyte_extracted_at",
        "_airbyte_meta",
        "_airbyte_generation_id",
    }
    row = here.rows("s0")[0]
    assert row.keys() == {"name", "id", "seq"} | native  # key and cursor come with it
    assert row["_airbyte_extracted_at"].timestamp() == 1_700_000_000.001
    assert row["_airbyte_meta"]["sync_id"]
    neutral = site(records=5, streams=1)
    neutral.run(destination={"metadata_columns": "neutral"})
    assert {c for c in neutral.rows("s0")[0] if c.startswith("_")} == {
        "_penstock_id",
        "_penstock_extracted_at",
        "_penstock_meta",
        "_penstock_generation_id",
    }
    none = site(records=5, streams=1)
    none.run(destination={"metadata_columns": "none"})
    assert not [c for c in none.rows("s0")[0] if c.startswith("_")]


def test_odd_names_are_cleaned_apart_and_the_originals_kept(site: MakeSite) -> None:
    names = ["a/b", "a.b", "..", "Users", "users", "wörd", "x y"]
    clash = {
        "type": "object",
        "properties": {"A": {"type": "integer"}, "a": {"type": "integer"}, "a b": {}},
    }
    streams = [
        *({"name": name} for name in names),
        {"name": "users", "namespace": "shop"},
        {"name": "clash", "json_schema": clash},
    ]
    steps = [s for name in names for s in _steps(name, {"id": 1, "seq": 1, "name": name})]
    in_shop = {"stream": "users", "namespace": "shop"}
    steps += [
        {"record": {**in_shop, "data": {"id": 1, "seq": 1, "name": "of shop"}}},
        {"state": {**in_shop, "state": {"seq": 5}}},
        {"status": {**in_shop, "status": "COMPLETE"}},
        *_steps("clash", {"A": 1, "a": 2, "a b": {"c": 3}}),
    ]
    here = site(streams=streams, steps=steps)
    ran = here.run()
    assert ran.status == "succeeded", ran.error
    assert len(here.tables()) == len(streams)
    assert len({t.casefold() for t in here.tables()}) == len(streams)
    for name in names:
        table = Path(ran.stream(name).table or "")
        assert table.parent == here.lake
        assert here.rows(table.name)[0]["name"] == name
    assert here.rows("shop/users")[0]["name"] == "of shop"
    columns = {
        column: value
        for column, value in here.rows("clash", "A")[0].items()
        if not column.startswith("_airbyte")
    }
    assert len(columns) == 3
    assert sorted(columns.values(), key=str) == [1, 2, '{"c":3}']
    assert here.run().counts("users", "shop") == ("complete", 1, 1, 0)
    assert len(here.tables()) == len(streams)  # names do not move
    states = [(e["namespace"], e["name"]) for e in here.described()["streams"]]
    assert sorted(states, key=str) == sorted(
        [(s.get("namespace"), s["name"]) for s in streams], key=str
    )


# -- how rows join a table

NESTED = {
    "type": "object",
    "properties": {
        "key": {"type": "object", "properties": {"id": {"type": "integer"}}},
        "seq": {"type": "integer"},
    },
}


def test_append_dedup_beside_append_and_overwrite(site: MakeSite) -> None:
    cdc = {"type": "object", "properties": {c: {"type": "integer"} for c in ("id", "seq")}}
    cdc["properties"]["_ab_cdc_deleted_at"] = {"type": "string"}
    here = site(
        "delta",
        streams=[
            {"name": "flat"},
            {
                "name": "nested",
                "json_schema": NESTED,
                "source_defined_primary_key": [["key", "id"]],
            },
            {"name": "cdc", "json_schema": cdc},
            {"name": "plain"},
            {"name": "whole"},
        ],
    )
    streams = [
        *({"name": name, **DEDUP} for name in ("flat", "nested", "cdc")),
        {"name": "plain", "destination_sync_mode": "append"},
        {"name": "whole", **OVERWRITE},
    ]

    def flat(*pairs: tuple[int | None, int]) -> list[dict[str, Any]]:
        return [{"id": i, "seq": s} for i, s in pairs]

    first = [
        *_steps("flat", *flat((1, 5), (2, 3), (2, 2), (3, 4))),
        *_steps("nested", {"key": {"id": 1}, "seq": 1}, {"key": {"id": 2}, "seq": 1}),
        *_steps("cdc", *flat((1, 1), (2, 1), (3, 1))),
        *_steps("plain", *flat((1, 1))),
        *_steps("whole", *flat((1, 1), (2, 2))),
    ]
    ran = here.run({"steps": first}, streams=streams)
    assert ran.status == "succeeded", ran.error
    assert here.ids("flat") == [(1, 5), (2, 3), (3, 4)]
    assert ran.stream("flat").written == 3
    second = [
        *_steps("flat", *flat((1, 2), (2, 9), (None, 7), (4, 1))),
        *_steps("nested", {"key": {"id": 2}, "seq": 4}, {"key": None, "seq": 5}),
        *_steps(
            "cdc",
            {"id": 1, "seq": 2, "_ab_cdc_deleted_at": "2026-01-01"},
            {"id": 2, "seq": 0, "_ab_cdc_deleted_at": "2026-01-01"},
        ),
        *_steps("plain", *flat((1, 1))),
        *_steps("whole", *flat((7, 7))),
    ]
    ran = here.run({"steps": second}, streams=streams)
    assert here.ids("flat") == [(1, 5), (2, 9), (3, 4), (4, 1)]  # the older one changed nothing
    assert ran.counts("flat") == ("complete", 4, 3, 1)
    assert ran.counts("nested") == ("complete", 2, 1, 1)
    nested = sorted((row["key"]["id"], row["seq"]) for row in here.rows("nested"))
    assert nested == [(1, 1), (2, 4)]
    assert here.ids("cdc") == [(2, 1), (3, 1)]  # 1 is deleted; 2's deletion is older than its row
    assert here.ids("plain") == [(1, 1), (1, 1)]
    assert here.ids("whole") == [(7, 7)]
    assert sorted((r["stream"], r["field"]) for r in here.rejects()) == [
        ("flat", "id"),
        ("nested", "key.id"),
    ]


def test_soft_deletes_keep_the_row_marked(site: MakeSite) -> None:
    here = site(scenario="deletes", records=20, streams=1)
    ran = here.run(defaults=DEDUP, destination={"deletes": "soft"})
    assert ran.counts("s0") == ("complete", 20, 20, 0)
    gone = [row["seq"] for row in here.rows("s0") if row["_ab_cdc_deleted_at"]]
    assert (here.seqs("s0"), gone) == (list(range(1, 21)), [7, 14])
    hard = site(scenario="deletes", records=20, streams=1)
    hard.run(defaults=DEDUP)
    assert hard.seqs("s0") == [n for n in range(1, 21) if n % 7]


# -- lanes, and runs that write nothing


def test_two_lanes_of_stream_states_are_exact(site: MakeSite) -> None:
    here = site(streams=4, records=50)
    ran = here.run(lanes=2)
    assert (ran.status, ran.guarantee) == ("succeeded", "exactly-once")
    assert sorted(s.lane for s in ran.report.streams) == [0, 0, 1, 1]
    assert len(here.journal()) == 2
    again = here.run({"records": 70}, lanes=2)
    assert [s.read for s in again.report.streams] == [20] * 4
    for name in ("s0", "s1", "s2", "s3"):
        assert here.seqs(name) == list(range(1, 71))
        assert here.saved()[name] == {"seq": 70}


def test_two_lanes_of_one_shared_state_are_refused(site: MakeSite) -> None:
    here = site(scenario="global", records=50)
    ran = here.run(lanes=2)
    assert (ran.status, ran.exit_code) == ("failed", 4)
    assert "cannot be read in several lanes" in ran.error["message"]
    assert "lanes: 1" in ran.error["hint"]
    assert here.saved() == {}
    assert here.run().counts("s0") == ("complete", 50, 50, 0)
    assert here.seqs("s0") == here.seqs("s1") == list(range(1, 51))


def test_dry_run_and_limit_write_and_save_nothing(quiet: Site) -> None:
    ran = quiet.run(dry_run=True)
    assert ran.counts("s0") == ("complete", 100, 100, 0)
    ran.noted("nothing was written")
    limited = quiet.run(limit=10)
    assert limited.status == "succeeded", limited.error
    assert [(s.status, s.read) for s in limited.report.streams] == [("complete", 10)] * 2
    assert quiet.saved() == {}
    assert not quiet.lake.exists()
    with quiet.store() as store:
        assert store.runs(None, 10) == []


def test_chosen_streams_and_one_document_on_stdout(quiet: Site) -> None:
    file = quiet.write({"streams": 3, "noise": True})
    answer = quiet.cli("run", str(file), "--streams", "s1,s2", "--dry-run", "--json")
    assert answer.code == 0, answer.err
    assert [s["name"] for s in answer.json["streams"]] == ["s1", "s2"]
    assert [s["stream"]["name"] for s in quiet.journal()[0]["catalog"]["streams"]] == ["s1", "s2"]


# -- many streams


def test_1000_streams_of_which_50_have_rows(site: MakeSite) -> None:
    here = site(scenario="sparse_1000", records=20)
    ran = here.run()
    assert (ran.status, len(ran.report.streams)) == ("succeeded", 1000)
    with_rows = [s for s in ran.report.streams if s.read]
    assert [s.read for s in with_rows] == [20] * 50
    assert {s.status for s in ran.report.streams} == {"complete"}
    assert len([t for t in here.tables() if here.rows(t)]) == 50
    assert len(here.described()["streams"]) == 1000
    print("1,000 streams:", ran.report.seconds, ran.report.time)
