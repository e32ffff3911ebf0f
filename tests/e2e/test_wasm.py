"""WebAssembly sources into tables, from the component to the table (issue 5; the protocol,
sections 3 to 9): unmodified examples, and a guest that does what its script says.

Every run is held against L8 and its stored report by ``pipelines.Site.run``. Tables are read by
DuckDB or delta-rs.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from pipelines import NAME, Ran
from wasm_sites import (
    MANIFEST,
    StageEvent,
    WasmSite,
    checkpoint,
    component,
    count_destination,
    counting_server,
    numbered,
    numbers_source,
    python_guest,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeWasm = Callable[..., WasmSite]
FULL = list(range(1, 101))
OVERWRITE = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
APPEND = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}
INCREMENTAL = {"sync_mode": "incremental", "destination_sync_mode": "append"}
DEDUP = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}


@pytest.fixture
def wasm(tmp_path: Path, shared_spark: "SparkSession") -> MakeWasm:
    """``wasm(format="parquet", manifest=..., schema=..., binary=...)``: a pipeline from the
    scripted guest, or from ``binary``."""
    del shared_spark
    made: list[WasmSite] = []

    def make(
        format: str = "parquet",
        *,
        manifest: Any = MANIFEST,
        schema: Any = None,
        binary: bytes | None = None,
    ) -> WasmSite:
        content = component(manifest, schema) if binary is None else binary
        made.append(WasmSite(tmp_path / f"wasm-{len(made)}", format, binary=content))
        return made[-1]

    return make


@pytest.fixture
def numbers(wasm: MakeWasm) -> MakeWasm:
    """The same from the C example."""
    binary = numbers_source()
    return lambda format="parquet": wasm(format, binary=binary)


def two_halves(told: StageEvent) -> dict[str, list[str]]:
    """100 rows of s0 in two frames, each with its checkpoint."""
    return {"s0": [told.rows(1, 50), "at 50", told.rows(51, 100), "at 100"]}


# -- the C example into tables (section 3.1; issue, "Must be shown")


def test_full_refresh_overwrites_or_appends(numbers: MakeWasm) -> None:
    here = numbers("parquet")
    first = here.run(config={"rows": 100, "batch_rows": 30}, defaults=OVERWRITE)
    assert (first.status, first.exit_code, first.guarantee) == ("succeeded", 0, "exactly-once")
    assert first.counts("numbers") == ("complete", 100, 100, 0), first.error
    assert [row["id"] for row in here.rows("numbers", "id")] == FULL
    again = here.run(config={"rows": 20}, defaults=OVERWRITE)
    assert again.counts("numbers") == ("complete", 20, 20, 0)
    assert [row["id"] for row in here.rows("numbers", "id")] == FULL[:20]
    here.run(config={"rows": 10, "start": 101}, defaults=APPEND)
    found = [row["id"] for row in here.rows("numbers", "id")]
    assert found == [*FULL[:20], *range(101, 111)]
    row = here.rows("numbers", "id")[4]
    assert row["name"] == "N5"
    assert (row["amount"], row["day"], row["ok"]) == (2.5, date(2023, 11, 14), False)
    assert row["at"].replace(tzinfo=UTC) == datetime(2023, 11, 14, 22, 13, 25, tzinfo=UTC)
    assert here.rows("numbers", "id")[2]["name"] is None
    assert here.described()["streams"] == []


def test_l1_incremental_brings_what_is_new_and_saves_its_own_checkpoint(numbers: MakeWasm) -> None:
    """Sections 6 and 7: the saved state is the source's own document; the cursor goes back."""
    here = numbers("parquet")
    first = here.run(config={"rows": 100, "batch_rows": 30}, defaults=INCREMENTAL)
    assert first.counts("numbers") == ("complete", 100, 100, 0), first.error
    second = here.run(config={"rows": 130}, defaults=INCREMENTAL)
    assert second.counts("numbers") == ("complete", 30, 30, 0)
    assert [row["id"] for row in here.rows("numbers", "id")] == list(range(1, 131))
    third = here.run(config={"rows": 130}, defaults=INCREMENTAL)
    assert third.counts("numbers") == ("complete", 0, 0, 0)
    shown = here.cli("state", "show", NAME, "--json").json
    (entry,) = shown["streams"]
    state = entry["state"]
    assert (entry["name"], state["cursor_field"], state["kind"]) == ("numbers", "id", "source")
    assert str(state["cursor_value"]["value"]) == "130"
    assert state["records_processed"] == 30
    assert here.cli("state", "reset", NAME, "--stream", "numbers", "--json").code == 0
    assert here.run(config={"rows": 130}, defaults=INCREMENTAL).stream("numbers").read == 130


def test_append_dedup_keeps_the_newest_row_of_a_key(numbers: MakeWasm) -> None:
    here = numbers("delta")
    assert here.run(config={"rows": 50}, defaults=DEDUP).exit_code == 0
    assert here.cli("state", "reset", NAME, "--json").code == 0
    ran = here.run(config={"rows": 80}, defaults=DEDUP)
    assert ran.counts("numbers") == ("complete", 80, 80, 0), ran.error
    assert [row["id"] for row in here.rows("numbers", "id")] == FULL[:80]


def test_a_million_rows_stay_columns(numbers: MakeWasm) -> None:
    """Columns from the guest to the table: seconds, where a Python object per row takes minutes."""
    here = numbers()
    began = time.monotonic()
    ran = here.run(config={"rows": 1_000_000}, defaults=OVERWRITE)
    took = time.monotonic() - began
    assert ran.counts("numbers") == ("complete", 1_000_000, 1_000_000, 0), ran.error
    assert took < 60, f"{took:.0f} s"
    assert ran.report.time.decode < 20, ran.report.time


def test_selected_columns_are_all_that_is_asked_for(numbers: MakeWasm) -> None:
    here = numbers()
    ran = here.run(config={"rows": 5}, streams=[{"name": "numbers", "columns": ["name"]}])
    assert ran.exit_code == 0, ran.error
    row = here.rows("numbers", "id")[0]
    assert {n for n in row if not n.startswith("_")} == {"id", "name"}


def test_every_arrow_type_is_the_right_column(wasm: MakeWasm) -> None:
    """Frames decide: what a catalog declares is a hint (reference, section 2.2)."""
    here = wasm("delta")
    told = StageEvent()
    table = pa.table(
        {
            "seq": pa.array([1, 2], pa.int64()),
            "small": pa.array([1, None], pa.int8()),
            "big": pa.array([2**64 - 1, 0], pa.uint64()),
            "half": pa.array([1.5, None], pa.float32()),
            "price": pa.array([Decimal("1.25"), Decimal("-9.99")], pa.decimal128(12, 2)),
            "flag": pa.array([True, None], pa.bool_()),
            "text": pa.array(["ö", None], pa.large_string()),
            "raw": pa.array([b"\x00\xff", None], pa.binary()),
            "day": pa.array([date(2024, 2, 29), None], pa.date32()),
            "local": pa.array([datetime(2024, 1, 2, 3, 4, 5), None], pa.timestamp("ms")),
            "zoned": pa.array(
                [datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")
            ),
            "list": pa.array([[1, 2], None], pa.list_(pa.int32())),
            "inner": pa.array(
                [{"a": 1, "b": "x"}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])
            ),
            "doc": pa.array(['{"k": [1]}', None], pa.string()),
        }
    )
    declared = [
        ("seq", "Int64"), ("small", "Int8"), ("big", "UInt64"), ("half", "Float32"),
        ("price", "Decimal128"), ("flag", "Boolean"), ("text", "LargeUtf8"), ("raw", "Binary"),
        ("day", "Date32"), ("local", "TimestampMillis"), ("zoned", "TimestampMicros"),
        ("list", "Json"), ("inner", "Json"), ("doc", "Json"),
    ]  # fmt: skip
    config = told.config({"s0": [told.frame(table), "at 2"]}, {"s0": declared})
    ran = here.run(config=config)
    assert ran.counts("s0") == ("complete", 2, 2, 0), ran.error
    one, two = here.rows("s0")
    assert (one["small"], one["big"], one["half"]) == (1, Decimal(2**64 - 1), 1.5)
    assert (one["price"], one["flag"], one["text"]) == (Decimal("1.25"), True, "ö")
    assert (one["raw"], one["day"]) == (b"\x00\xff", date(2024, 2, 29))
    assert one["zoned"] == datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert one["local"].replace(tzinfo=None) == datetime(2024, 1, 2, 3, 4, 5)
    assert one["list"] == [1, 2]
    assert one["inner"] == {"a": 1, "b": "x"}
    assert json.loads(one["doc"]) == {"k": [1]}
    kept = {n: v for n, v in two.items() if not n.startswith("_")}
    assert kept == {
        **dict.fromkeys(kept), "seq": 2, "big": Decimal(0), "price": Decimal("-9.99"),
    }  # fmt: skip


def test_a_stream_whose_frames_change_goes_on_with_the_new_column(wasm: MakeWasm) -> None:
    here = wasm("delta")
    told = StageEvent()
    wider = numbered(51, 100, extra=pa.array([0.5] * 50))
    script = {"s0": [told.rows(1, 50), "at 50", told.frame(wider), "at 100"]}
    ran = here.run(config=told.config(script))
    assert ran.counts("s0") == ("complete", 100, 100, 0), ran.error
    rows = here.rows("s0")
    assert [row["seq"] for row in rows] == FULL
    assert [row["extra"] for row in rows] == [None] * 50 + [0.5] * 50


def test_l8_a_row_without_its_key_is_a_reject(wasm: MakeWasm) -> None:
    here = wasm("delta")
    told = StageEvent()
    table = pa.table({"seq": pa.array([1, None, 3, 1], pa.int64()), "name": ["a", "b", "c", "d"]})
    ran = here.run(config=told.config({"s0": [told.frame(table), "at 3"]}), defaults=DEDUP)
    assert ran.counts("s0") == ("complete", 4, 3, 1), ran.error
    assert [row["seq"] for row in here.rows("s0")] == [1, 3]
    (reject,) = here.rejects()
    assert json.loads(reject["bytes"]) == {"seq": None, "name": "b"}
    assert reject["field"] == "seq"


@pytest.mark.parametrize("how", ["coerce", "fail"])
def test_a_column_whose_type_changes_is_the_schema_policys(wasm: MakeWasm, how: str) -> None:
    """``schema_evolution.type_change``; what had been committed stays."""
    here = wasm("delta")
    first = StageEvent()
    config = first.config({"s0": [first.rows(1, 5), "at 5"]})
    assert here.run(config=config, defaults=INCREMENTAL).exit_code == 0
    told = StageEvent()
    texts = pa.table({"seq": pa.array([6, 7], pa.int64()), "name": pa.array([1, 2], pa.int64())})
    ran = here.run(
        config=told.config({"s0": [told.frame(texts), "at 7"]}),
        defaults=INCREMENTAL,
        destination={"schema_evolution": {"type_change": how}},
    )
    if how == "fail":
        assert ran.exit_code != 0
        assert "name" in json.dumps(ran.error)
        assert here.cursors() == {"s0": "5"}
        assert here.seqs("s0") == FULL[:5]
        return
    assert ran.counts("s0") == ("complete", 2, 2, 0), ran.error
    assert [row["name"] for row in here.rows("s0")][5:] == ["1", "2"]


# -- failures of the source (L1, L7, L8; section 7)


def test_l7_a_stream_that_finished_keeps_its_state_when_another_fails(wasm: MakeWasm) -> None:
    here = wasm("delta")
    told = StageEvent()
    script = {
        "s0": [told.rows(1, 10), "at 10"],
        "s1": [told.rows(1, 20), "at 20", told.rows(21, 30), "fail 5 GONE 0 0 -1 -1"],
        "s2": [told.rows(1, 5), "at 5"],
    }
    ran = here.run(config=told.config(script))
    assert (ran.status, ran.exit_code) == ("partial", 1)
    assert ran.counts("s0") == ("complete", 10, 10, 0)
    assert ran.counts("s2") == ("complete", 5, 5, 0)
    assert ran.stream("s1").status != "complete"
    assert ran.stream("s1").committed == 20
    assert here.seqs("s1") == FULL[:20], "rows behind the last checkpoint are dropped"
    assert here.cursors() == {"s0": "10", "s1": "20", "s2": "5"}
    assert ran.error["code"] == "source.transient_db"
    assert ran.error["stream"] == "s1"
    fields = ran.error["connector"]
    assert (fields["code"], fields["message"]) == ("GONE", "as asked")
    assert (fields["retryable"], fields["safe_to_retry"]) == (False, False)
    mended = StageEvent()
    script = {
        "s0": [mended.rows(11, 12), "at 12"],
        "s1": ["context", mended.rows(21, 40), "at 40"],
        "s2": ["at 5"],
    }
    second = here.run(config=mended.config(script))
    assert second.status == "succeeded", second.error
    assert here.seqs("s1") == FULL[:40]
    assert here.seqs("s0") == FULL[:12]
    contexts = [text for _, _, text in second.heard.lines if '"last_value"' in text]
    lines = [e["message"] for e in here.log_lines(second.report.run)]
    assert any('"last_value":{"type":"utf8","value":"20"}' in text for text in contexts + lines)


def test_l1_a_source_that_fails_before_any_checkpoint_leaves_nothing(wasm: MakeWasm) -> None:
    here = wasm()
    told = StageEvent()
    ran = here.run(
        config=told.config({"s0": [told.rows(1, 50), "fail 8 BROKEN 0 0 -1 -1"]}),
        defaults=INCREMENTAL,
    )
    assert (ran.status, ran.exit_code) == ("failed", 4)
    assert ran.stream("s0").committed == 0
    assert here.described()["streams"] == []
    assert here.rows("s0") == []


def test_l6_a_failed_overwrite_leaves_the_table_as_it_was(wasm: MakeWasm) -> None:
    here = wasm("delta")
    told = StageEvent()
    script = two_halves(told)
    assert here.run(config=told.config(script), defaults=OVERWRITE).exit_code == 0
    worse = StageEvent()
    broken = {"s0": [worse.rows(1, 7), "at 7", "fail 5 GONE 0 0 -1 -1"]}
    ran = here.run(config=worse.config(broken), defaults=OVERWRITE)
    assert (ran.exit_code, ran.error["code"]) == (4, "source.transient_db")
    assert here.seqs("s0") == FULL


def test_a_source_without_checkpoints_is_committed_at_its_end(wasm: MakeWasm) -> None:
    """On a clean end the rest is sealed under the previous state, and the report says so (L2)."""
    here = wasm()
    told = StageEvent()
    config = told.config({"s0": [told.rows(1, 100)]})
    first = here.run(config=config, defaults=INCREMENTAL)
    assert first.counts("s0") == ("complete", 100, 100, 0), first.error
    assert first.guarantee == "at-least-once"
    assert here.described()["streams"] == []
    second = here.run(config=config, defaults=INCREMENTAL)
    assert second.stream("s0").read == 100
    assert here.seqs("s0") == sorted([*FULL, *FULL])


def test_checkpoints_that_are_none_are_named_and_save_nothing(wasm: MakeWasm) -> None:
    """Issue 5, part 6: malformed payloads are named. A transform's kind and another stream's are no
    state of this one."""
    here = wasm()
    told = StageEvent()
    script = {
        "s0": [
            told.rows(1, 50),
            told.raw({"id": 1}),
            told.raw(checkpoint("s9", "40")),
            told.raw(checkpoint("s0", "41"), kind=2),
            told.raw(checkpoint("s0", None, cursor_value={"type": "null"})),
            told.raw(checkpoint("s0", "50")),
            told.rows(51, 60),
        ]
    }
    ran = here.run(config=told.config(script), defaults=INCREMENTAL)
    assert ran.counts("s0") == ("complete", 60, 60, 0), ran.error
    assert here.cursors() == {"s0": "50"}
    ran.noted("malformed:checkpoint", "1")
    ran.noted("foreign:checkpoint", "2")
    said = [e["message"] for e in here.log_lines(ran.report.run)]
    assert any("a malformed checkpoint" in text and "kind" in text for text in said), said
    assert any("'s9'" in text for text in said)


def test_a_checkpoint_that_is_no_json_is_the_guests_to_hear(wasm: MakeWasm) -> None:
    """``PARSE_CHECKPOINT``: the call fails, and a guest that passes it on ends the stream."""
    here = wasm()
    told = StageEvent()
    ran = here.run(config=told.config({"s0": [told.rows(1, 5), told.raw("{")]}))
    assert (ran.exit_code, ran.error["code"]) == (4, "source.internal")
    assert "PARSE_CHECKPOINT" in ran.error["message"]


def test_every_kind_of_cursor_goes_back_as_v4_tells_it(wasm: MakeWasm) -> None:
    """Section 6: a cursor is text when it goes back, whatever its kind was."""
    here = wasm()
    for value, text in (
        ({"type": "int64", "value": 7}, "7"),
        ({"type": "timestamp_micros", "value": 1_700_000_000_000_000}, "1700000000000000"),
        ({"type": "decimal", "value": "1.50", "scale": 2}, "1.50"),
        ({"type": "json", "value": {"a": 1}}, '{\\"a\\":1}'),
    ):
        told = StageEvent()
        mark = checkpoint("s0", None, cursor_value=value)
        ran = here.run(config=told.config({"s0": [told.rows(1, 1), told.raw(mark)]}))
        assert ran.exit_code == 0, ran.error
        again = StageEvent()
        ran = here.run(config=again.config({"s0": ["context"]}))
        said = [e["message"] for e in here.log_lines(ran.report.run)]
        wanted = f'"last_value":{{"type":"utf8","value":"{text}"}}'
        assert any(wanted in line for line in said), said


# -- dead letters (issue 5, part 13; L8)


def test_l8_dead_letters_are_rejects_that_can_be_queried(wasm: MakeWasm) -> None:
    here = wasm()
    told = StageEvent()
    bad = {"seq": 51, "name": None, "café": [1]}
    script = {"s0": [told.rows(1, 50), told.dead(bad, 3), "at 53", told.rows(54, 60), "at 60"]}
    ran = here.run(config=told.config(script))
    assert ran.counts("s0") == ("complete", 60, 57, 3), ran.error
    rows = here.rejects()
    assert len(rows) == 3
    assert {r["reason"] for r in rows} == {"data: bad name"}
    assert {r["bytes"] for r in rows} == {json.dumps(bad)}, "the connector's own bytes"
    shown = here.cli("rejects", NAME, "--json")
    assert shown.code == 0, shown.err
    assert len(shown.json) == 3
    assert here.cursors() == {"s0": "60"}


@pytest.mark.parametrize("how", ["fail", "skip", "dlq"])
def test_on_data_error_holds_for_dead_letters(wasm: MakeWasm, how: str) -> None:
    here = wasm()
    told = StageEvent()
    script = {"s0": [told.rows(1, 50), "at 50", told.dead({"seq": 51}), "context", "at 51"]}
    ran = here.run(config=told.config(script), destination={"on_data_error": how})
    stream = ran.stream("s0")
    if how == "fail":
        assert (ran.exit_code, ran.error["code"]) == (4, "source.data"), ran.error
        assert "bad name" in ran.error["message"]
        assert stream.committed == len(here.rows("s0"))
        assert here.cursors() == {}, "the state did not move"
        return
    assert ran.exit_code == 0, ran.error
    put_aside = (stream.rejected, stream.filtered)
    assert put_aside == ((1, 0) if how == "dlq" else (0, 1))
    assert (stream.read, stream.committed) == (51, 50)
    assert len(here.rejects()) == (1 if how == "dlq" else 0)


# -- retries (section 5; issue 5, part 7)


def failing(
    told: StageEvent, tries: int, *words: str, before: list[str] | None = None
) -> dict[str, list[str]]:
    """s0 fails the first ``tries`` times after 30 rows, then gives all 100."""
    fail = f"tries {tries} fail {' '.join(words)}"
    return {"s0": [*(before or []), told.rows(1, 30), fail, told.rows(31, 100), "at 100"]}


def network(port: int) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": port}


@pytest.mark.parametrize("defaults", [INCREMENTAL, OVERWRITE], ids=["incremental", "overwrite"])
def test_l8_what_is_retryable_is_tried_again_until_it_works(
    wasm: MakeWasm, defaults: dict[str, str]
) -> None:
    here = wasm("delta")
    told = StageEvent()
    with counting_server() as (port, asked):
        config = told.config(failing(told, 2, "4 RESET 1 1 -1 -1"), **network(port))
        ran = here.run(config=config, defaults=defaults)
    assert (ran.status, ran.exit_code) == ("succeeded", 0), ran.error
    assert len(asked) == 3
    assert ran.counts("s0") == ("complete", 100, 100, 0)
    assert here.seqs("s0") == FULL
    ran.noted("s0 is tried again", "attempt 2", "RESET")
    ran.noted("s0 is tried again", "attempt 3", "RESET")


def test_l8_an_attempt_keeps_what_its_checkpoint_covers(wasm: MakeWasm) -> None:
    here = wasm("delta")
    told = StageEvent()
    with counting_server() as (port, _):
        config = told.config(
            failing(told, 1, "4 RESET 1 1 -1 -1", before=[told.rows(1, 10), "at 10", "context"]),
            **network(port),
        )
        ran = here.run(config=config, defaults=INCREMENTAL)
    assert ran.exit_code == 0, ran.error
    said = [e["message"] for e in here.log_lines(ran.report.run) if "stream_name" in e["message"]]
    assert '"last_value"' not in said[0]
    assert '"value":"10"' in said[1], "the second attempt goes on from the saved checkpoint"
    assert here.seqs("s0") == sorted([*FULL[:10], *FULL[:10], *FULL])
    assert ran.stream("s0").read == ran.stream("s0").committed == 120


@pytest.mark.parametrize(
    "words",
    [
        "4 RESET 0 1 -1 -1",
        "4 RESET 1 0 -1 -1",
        "4 RESET 1 1 -1 1",
        "4 RESET 1 1 -1 2",
    ],
    ids=["not retryable", "not safe", "after commit, unknown", "after commit"],
)
def test_what_may_not_be_tried_again_is_not(wasm: MakeWasm, words: str) -> None:
    here = wasm()
    told = StageEvent()
    with counting_server() as (port, asked):
        config = told.config(failing(told, 1, words), **network(port))
        ran = here.run(config=config)
    assert (ran.exit_code, len(asked)) == (4, 1)
    assert ran.error["code"] == "source.transient_network"
    assert not [n for n in ran.notes if "tried again" in n]


def test_retries_end_with_max_retries(wasm: MakeWasm) -> None:
    """v4's default is three; 0 in a v4 file means none (``resources.max_retries``)."""
    here = wasm()
    told = StageEvent()
    with counting_server() as (port, asked):
        config = told.config(failing(told, 99, "4 RESET 1 1 10 -1"), **network(port))
        ran = here.run(config=config)
    assert (ran.exit_code, len(asked)) == (4, 4)
    assert ran.error["code"] == "source.transient_network"
    assert ran.error["connector"]["retryable"] is True
    assert ran.stream("s0").committed == 0


@pytest.mark.parametrize(("most", "runs"), [(0, 1), (1, 2)])
def test_max_retries_is_the_pipelines(wasm: MakeWasm, most: int, runs: int) -> None:
    here = wasm()
    told = StageEvent()
    with counting_server() as (port, asked):
        config = told.config(failing(told, 99, "4 RESET 1 1 10 -1"), **network(port))
        ran = here.run(config=config, resources={"max_retries": most})
    assert (ran.exit_code, len(asked)) == (4, runs), ran.error


def test_retry_after_is_waited_for(wasm: MakeWasm) -> None:
    here = wasm()
    told = StageEvent()
    with counting_server() as (port, asked):
        config = told.config(failing(told, 1, "3 SLOW 1 1 1500 -1"), **network(port))
        ran = here.run(config=config)
    assert ran.exit_code == 0, ran.error
    assert len(asked) == 2
    assert asked[1] - asked[0] >= 1.5


def test_of_several_streams_only_the_failed_one_is_tried_again(wasm: MakeWasm) -> None:
    """Issue 5, part 7: per stream. v4 repeats the whole pipeline."""
    here = wasm("delta")
    told = StageEvent()
    with counting_server() as (port, _):
        script = {"s1": [told.rows(1, 20), "at 20"], **failing(told, 1, "5 LOST 1 1 -1 -1")}
        ran = here.run(config=told.config(script, **network(port)), defaults=INCREMENTAL)
    assert ran.exit_code == 0, ran.error
    assert ran.counts("s1") == ("complete", 20, 20, 0)
    assert ran.counts("s0") == ("complete", 100, 100, 0)
    assert here.seqs("s1") == FULL[:20]
    assert here.seqs("s0") == FULL


# -- its own keys (section 4.3; issue 5, part 5)


def test_its_keys_last_as_its_checkpoints_do(wasm: MakeWasm) -> None:
    """Durable with the state that covers them; never in a dry run."""
    here = wasm()

    def run(*commands: str, **how: Any) -> Ran:
        told = StageEvent()
        return here.run(
            config=told.config({"s0": [*commands, told.rows(1, 2), "at 2"]}),
            defaults=INCREMENTAL,
            **how,
        )

    def got(ran: Ran) -> list[str]:
        said = [e["message"] for e in here.log_lines(ran.report.run)]
        return [text for text in said if text.startswith("got ")]

    assert run("put 0 a dry", dry_run=True).exit_code == 0
    assert got(run("get 0 a", "put 0 a one", "put 1 a stream", "put 2 a mine")) == ["got nothing"]
    ran = run("get 0 a", "get 1 a", "get 2 a", "put 0 a two", "fail 8 BROKEN 0 0 -1 -1")
    assert got(ran) == ["got one", "got stream", "got mine"]
    assert ran.exit_code == 4
    assert got(run("get 0 a")) == ["got one"], "what no state covers is gone with its run"


# -- traps and limits (L10, L11; issue 5, parts 2 and 10)


@pytest.mark.parametrize(
    ("command", "limits", "code"),
    [
        ("spin", {"timeout_seconds": 1}, "source.timeout"),
        ("hog", {"max_memory": "16mb"}, "source.memory"),
        ("trap", {}, "source.crashed"),
    ],
)
def test_a_trap_ends_its_stream_alone_and_says_why(
    wasm: MakeWasm, command: str, limits: dict[str, Any], code: str
) -> None:
    here = wasm()
    told = StageEvent()
    script = {
        "s0": [told.rows(1, 50), "at 50", told.rows(51, 60), command],
        "s1": [told.rows(1, 5), "at 5"],
    }
    source = {"limits": limits} if limits else {}
    ran = here.run_source(source, config=told.config(script))
    assert (ran.status, ran.exit_code) == ("partial", 1), ran.error
    assert ran.error["code"] == code
    assert ran.error["hint"]
    assert ran.error["stream"] == "s0"
    assert here.seqs("s0") == FULL[:50]
    assert ran.counts("s1") == ("complete", 5, 5, 0), "its neighbour is unharmed"
    assert not [n for n in ran.notes if "tried again" in n]
    mended = StageEvent()
    again = here.run(config=mended.config({"s0": [mended.rows(51, 60), "at 60"]}))
    assert again.status == "succeeded", again.error
    assert here.seqs("s0") == FULL[:60]


def test_time_that_a_guest_waits_for_a_slow_peer_is_not_its_own(wasm: MakeWasm) -> None:
    """Issue 5, part 10: ``limits.timeout_seconds`` measures guest work."""
    here = wasm()
    told = StageEvent()
    with counting_server(hold=3) as (port, asked):
        script = {"s0": ["wait", told.rows(1, 5), "at 5"]}
        ran = here.run_source(
            {"limits": {"timeout_seconds": 2}}, config=told.config(script, **network(port))
        )
    assert len(asked) == 1
    assert ran.counts("s0") == ("complete", 5, 5, 0), ran.error


@pytest.mark.slow
def test_its_last_words_on_stderr_are_in_the_error(wasm: MakeWasm) -> None:
    """A Python component; slow where it was not built and compiled before."""
    here = wasm(binary=python_guest())
    column = {"name": "id", "data_type": "Int64", "nullable": False}
    words = {"name": "words", "schema": [column], "supported_sync_modes": ["full_refresh"]}
    left = here.run(config={"mode": "exit", "streams": [words]})
    assert (left.exit_code, left.error["code"]) == (4, "source.exited"), left.error
    assert "my last words" in left.error["message"]
    said = [e["message"] for e in here.log_lines(left.report.run)]
    assert "a line before" in said
    assert "my last words" in said
    raised = here.run(config={"mode": "raise", "streams": [words]})
    assert raised.exit_code == 4
    assert "LookupError: no such table" in raised.error["message"], raised.error


def test_a_connector_that_does_not_open_is_quoted(wasm: MakeWasm) -> None:
    here = wasm()
    told = StageEvent()
    script = two_halves(told)
    error = here.run_or_error(config=told.config(script, refuse=True))
    assert error["code"] == "connector.failed"
    assert "[auth] NO_ENTRY: the door is shut" in error["message"]
    fields = error["connector"]
    assert (fields["category"], fields["code"]) == ("auth", "NO_ENTRY")


def test_a_frame_that_is_no_arrow_stream_is_named(wasm: MakeWasm) -> None:
    here = wasm()
    told = StageEvent()
    ran = here.run(config=told.config({"s0": [told.rows(1, 5), "at 5", told.bytes(b"not arrow")]}))
    assert (ran.exit_code, ran.error["code"]) == (4, "source.bad_frame")
    assert "Arrow IPC" in ran.error["message"]
    assert here.cursors() == {"s0": "5"}


# -- plan (sections 8 and 9, "Pipeline-Level Permissions & Limits")

HELD = (
    "network.allowed_hosts", "env.allowed_vars", "fs.allowed_preopens", "limits.max_memory",
    "limits.timeout_seconds",
)  # fmt: skip


def asking(**changes: Any) -> dict[str, Any]:
    """A manifest that asks for something of every kind."""
    return {
        **MANIFEST,
        "permissions": {
            "network": {"allowed_domains": ["db.test", "*.corp.test"]},
            "env": {"allowed_vars": ["TOKEN", "REGION"]},
            "fs": {"preopens": ["/data/exports"]},
        },
        "limits": {"max_memory": "64mb", "timeout_seconds": 60},
        **changes,
    }


def planned(here: WasmSite, source: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    told = StageEvent()
    parts.setdefault("config", told.config(two_halves(told)))
    answer = here.cli("plan", str(here.write_source(source or {}, **parts)), "--json")
    assert answer.code in (0, 2), answer.err
    return answer.json


def held(answer: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    return {line["name"]: (line["value"], line["rule"]) for line in answer["held"]["source"]}


def test_plan_shows_what_is_held_and_which_rule_won(wasm: MakeWasm) -> None:
    here = wasm(manifest=asking())
    plain = held(planned(here))
    assert set(plain) == set(HELD)
    assert sorted(plain["network.allowed_hosts"][0]) == ["*.corp.test", "db.test"]
    assert plain["env.allowed_vars"] == (["REGION", "TOKEN"], "manifest; the pipeline sets nothing")
    assert plain["limits.max_memory"] == (64 << 20, "manifest")
    assert plain["limits.timeout_seconds"] == (60, "manifest")
    narrowed = held(
        planned(
            here,
            {
                "permissions": {
                    "network": {"allowed_hosts": ["db.test", "elsewhere.test"]},
                    "env": {"allowed_vars": []},
                    "fs": {"allowed_preopens": ["/data/other"]},
                },
                "limits": {"max_memory": "16mb", "timeout_seconds": 100},
            },
        )
    )
    assert narrowed["network.allowed_hosts"] == (["db.test"], "manifest and pipeline")
    assert narrowed["env.allowed_vars"] == ([], "the pipeline blocks all")
    assert narrowed["fs.allowed_preopens"] == ([], "manifest and pipeline")
    assert narrowed["limits.max_memory"] == (16 << 20, "pipeline")
    assert narrowed["limits.timeout_seconds"] == (60, "manifest"), "never widened"


def test_defaults_where_nobody_says_anything(wasm: MakeWasm) -> None:
    """Memory unlimited, 300 s."""
    quiet = {k: v for k, v in MANIFEST.items() if k != "permissions"}
    lines = held(planned(wasm(manifest=quiet)))
    assert lines["limits.max_memory"] == (None, "default")
    assert lines["limits.timeout_seconds"] == (300, "default")
    assert lines["network.allowed_hosts"][0] == []


def test_l10_a_host_that_is_not_allowed_is_not_reached(wasm: MakeWasm) -> None:
    here = wasm()
    told = StageEvent()
    with counting_server() as (port, asked):
        config = told.config(failing(told, 0, "4 NEVER 0 0 -1 -1"), **network(port))
        ran = here.run_source({"permissions": {"network": {"allowed_hosts": []}}}, config=config)
        assert (ran.exit_code, asked) == (4, [])
        assert "NETWORK_DENIED" in ran.error["message"]
        assert "127.0.0.1" in ran.error["message"]
        assert here.run(config=config).exit_code == 0
        assert len(asked) == 1


@pytest.mark.parametrize("broken", [None, "{", '{"id": 1}'], ids=["none", "no JSON", "no manifest"])
def test_without_a_manifest_nothing_is_granted_until_one_is_assumed(
    wasm: MakeWasm, broken: str | None
) -> None:
    """Issue 5, part 9; v4's host lets such a connector reach everything."""
    here = wasm(manifest=broken)
    answer = planned(here)
    assert not answer["problems"]
    lines = held(answer)
    assert all(lines[name][0] == [] for name in HELD[:3])
    assert any("granted nothing" in note for note in answer["notes"]), answer["notes"]
    told = StageEvent()
    with counting_server() as (port, asked):
        config = told.config(failing(told, 0, "4 NEVER 0 0 -1 -1"), **network(port))
        refused = here.run(config=config)
        assert (refused.exit_code, asked) == (4, [])
        assert "NETWORK_DENIED" in refused.error["message"]
        assumed = here.run_source({"assume_manifest": MANIFEST}, config=config)
        assert assumed.exit_code == 0, assumed.error
        assert len(asked) == 1
    assert any("assume_manifest" in note for note in assumed.notes), assumed.notes
    answer = planned(here, {"assume_manifest": MANIFEST})
    assert any("assume_manifest" in note for note in answer["notes"])
    assert "assume_manifest" in held(answer)["network.allowed_hosts"][1]


def test_a_manifest_of_another_protocol_version_is_used_with_a_warning(wasm: MakeWasm) -> None:
    """Section 9: mismatches emit warnings."""
    here = wasm(manifest={**MANIFEST, "protocol_version": "5"})
    answer = planned(here)
    assert not answer["problems"]
    assert any("protocol version 5" in note for note in answer["notes"]), answer["notes"]
    told = StageEvent()
    ran = here.run(config=told.config(two_halves(told)))
    assert ran.exit_code == 0, ran.error


def test_a_sync_mode_that_its_manifest_does_not_name_is_refused(wasm: MakeWasm) -> None:
    only = {"source": {"supported_sync_modes": ["full_refresh"]}}
    here = wasm(manifest={**MANIFEST, "roles": only})
    answer = planned(here, defaults=INCREMENTAL)
    assert any("sync_mode incremental" in p for p in answer["problems"]), answer["problems"]
    told = StageEvent()
    error = here.run_or_error(config=told.config(two_halves(told)), defaults=INCREMENTAL)
    assert (error["exit_code"], error["code"]) == (2, "config.streams")
    assert any("sync_mode incremental" in p for p in error["problems"])
    assert here.tables() == []
    ran = here.run(config=told.config(two_halves(told)), defaults=OVERWRITE)
    assert ran.exit_code == 0, ran.error


SCHEMA = {
    "type": "object",
    "required": ["password"],
    "properties": {
        "password": {"type": "string", "x-secret": True},
        "port": {"type": "integer", "maximum": 65535},
    },
}


def test_a_config_that_breaks_its_schema_is_refused_before_anything_runs(wasm: MakeWasm) -> None:
    here = wasm(schema=SCHEMA)
    told = StageEvent()
    error = here.run_or_error(config=told.config({"s0": ["spin"]}, port=70000, spin=True))
    assert error["code"].startswith("config."), error
    assert "password" in error["message"] + str(error.get("problems"))
    answer = planned(here)
    assert any("password" in p for p in answer["problems"])


def test_a_destination_is_no_source(wasm: MakeWasm) -> None:
    here = wasm(binary=count_destination())
    error = here.run_or_error(config={})
    assert error["code"] == "connector.role"
    assert "it is a destination" in error["message"]
    assert any("is a destination" in p for p in planned(here, config={})["problems"])


# -- metrics, logs, secrets (issue 5, part 14; L10)


def test_metrics_and_logs_of_a_guest_reach_report_and_run_log(wasm: MakeWasm) -> None:
    here = wasm()
    told = StageEvent()
    script = {
        "s0": [
            told.rows(1, 5),
            told.metric("rows_seen", "counter", 2, table="a"),
            told.metric("rows_seen", "counter", 5, table="a"),
            told.metric("queue", "gauge", 1.5),
            told.log(0, "it hurts"),
            told.log(1, "mind the gap"),
            told.log(2, "all is well: café"),
            told.log(3, "details"),
            told.log(7, "more"),
            "at 5",
        ]
    }
    ran = here.run(config=told.config(script))
    assert ran.exit_code == 0, ran.error
    (measured,) = ran.report.metrics
    assert measured["stream"] == "s0"
    series = {m["name"]: m for m in measured["series"]}
    assert set(series) == {"rows_seen", "queue"}
    assert "table" in json.dumps(series["rows_seen"])
    levels = {e["message"]: e["level"] for e in here.log_lines(ran.report.run) if "message" in e}
    assert levels["it hurts"] == "ERROR"
    assert levels["mind the gap"] == "WARN"
    assert levels["all is well: café"] == "INFO"
    assert levels["details"] == "DEBUG"


def test_l10_a_secret_of_the_config_is_shown_nowhere(wasm: MakeWasm) -> None:
    here = wasm(schema=SCHEMA)
    told = StageEvent()
    secret = "hunter2-and-more"
    script = {
        "s0": [told.rows(1, 5), "at 5", "tell password", "at 6"],
        "s1": ["fail 1 DENIED 0 0 -1 -1"],
    }
    config = told.config(script, password=secret, message=f"login with {secret} failed")
    ran = here.run(config=config)
    assert ran.status == "partial"
    assert "login with" in ran.error["message"]
    shown = json.dumps(msgspec.to_builtins(ran.report)) + json.dumps(ran.heard.lines)
    assert secret not in shown
    assert here.files_with(secret) == []
    assert any("****" in e["message"] for e in here.log_lines(ran.report.run))


# -- verbs on a file


def test_check_spec_discover_preview_of_a_file(wasm: MakeWasm) -> None:
    here = wasm(binary=numbers_source())
    spec = here.cli("spec", "./source.wasm", "--json").json
    assert spec["protocol"] == "rapidbyte"
    assert spec["protocol_version"] == "4"
    assert spec["config_schema"]["properties"]["rows"]["default"] == 100000
    assert spec["abilities"]["manifest"]["name"] == "Numbers, made in C"
    checked = here.cli("check", "./source.wasm", "--config", '{"rows": 5}', "--json")
    assert (checked.code, checked.json["status"]) == (0, "succeeded")
    found = here.cli("discover", "./source.wasm", "--config", '{"rows": 5}', "--json").json
    (stream,) = found["streams"]
    assert stream["name"] == "numbers"
    assert sorted(stream["sync_modes"]) == ["full_refresh", "incremental"]
    rows = here.cli(
        "preview", "./source.wasm", "--config", '{"rows": 50}', "--limit", "3", "--json"
    )
    assert rows.code == 0, rows.err
    assert [row["id"] for row in rows.json["rows"]] == [1, 2, 3]
    assert rows.json["rows"][0]["name"] == "N1"
    assert rows.json["rows"][0]["amount"] == 0.5
    wrong = here.cli("check", "./source.wasm", "--config", '{"rows": -5}', "--json")
    assert (wrong.code, wrong.error["code"]) == (2, "config.connector")


def test_validate_that_fails_or_warns(wasm: MakeWasm) -> None:
    here = wasm()
    for status, code in ((0, 0), (1, 4), (2, 0)):
        config = StageEvent().config({"s0": []}, status=status)
        answer = here.cli("check", "./source.wasm", "--config", json.dumps(config), "--json")
        assert answer.code == code, answer.err
        assert "as asked" in answer.json["message"]


def test_l10_verbs_are_under_the_same_permissions_and_limits_as_a_run(wasm: MakeWasm) -> None:
    """v4's host leaves them out of ``check`` and ``discover``."""
    here = wasm(manifest=asking(permissions={}, limits={"timeout_seconds": 1}))
    told = StageEvent()
    spinning = told.config(two_halves(told), spin=True)
    for verb in ("check", "discover", "preview"):
        answer = here.cli(verb, "./source.wasm", "--config", json.dumps(spinning), "--json")
        assert answer.code == 4, (verb, answer.out, answer.err)
        assert answer.error["code"] == "connector.timeout"
    with counting_server() as (port, asked):
        again = StageEvent()
        dialing = again.config(failing(again, 0, "4 NEVER 0 0 -1 -1"), **network(port))
        answer = here.cli(
            "preview", "./source.wasm", "--config", json.dumps(dialing), "--limit", "50", "--json"
        )
        assert (answer.code, asked) == (4, [])
        assert "NETWORK_DENIED" in answer.error["message"]


def test_a_dry_run_and_a_limit_save_nothing(numbers: MakeWasm) -> None:
    here = numbers()
    config = {"rows": 1000, "batch_rows": 10}
    for how in ({"dry_run": True}, {"limit": 15}, {"dry_run": True, "limit": 15}):
        ran = here.run(config=config, defaults=INCREMENTAL, **how)
        assert ran.exit_code == 0, ran.error
        assert ran.stream("numbers").read in ((15,) if "limit" in how else (1000,))
        assert here.tables() == []
        assert here.described()["streams"] == []


# -- bad inputs


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "connector.not_found"),
        (b"", "connector.refused"),
        (b"#!/bin/sh\necho no\n", "connector.refused"),
        (b"\x00asm\x01\x00\x00\x00", "connector.refused"),
    ],
    ids=["missing", "empty", "no wasm", "a core module"],
)
def test_a_file_that_is_no_component_is_named(
    wasm: MakeWasm, content: bytes | None, code: str
) -> None:
    here = wasm(binary=content or b"")
    if content is None:
        here.wasm.unlink()
    ran = here.run_or_error(config={})
    assert ran["code"] == code, ran
    assert ran["hint"]
    assert "source.wasm" in ran["message"] or "component" in ran["message"]
    checked = here.cli("check", "./source.wasm", "--config", "{}", "--json")
    assert (checked.code, checked.error["code"]) == (2 if content is None else 4, code)


def test_a_half_file_is_no_component(wasm: MakeWasm) -> None:
    whole = component(MANIFEST)
    here = wasm(binary=whole[: len(whole) // 2])
    error = here.run_or_error(config={})
    assert error["code"] == "connector.refused", error


# -- where a name is looked for (issue 5, part 16), and v4's own file


def v4_file(here: WasmSite, use: str, **parts: Any) -> Path:
    """A complete v4 pipeline, as v4 documents it; its destination is a table instead."""
    lines = f"""
version: "1.0"
pipeline: {NAME}
source:
  use: {use}
  config:
    rows: 50
    batch_rows: 20
  streams:
    - name: numbers
      sync_mode: incremental
      cursor_field: id
      columns: [id, name, ok]
transforms:
  - use: transform-sql
    config:
      query: "SELECT id, upper(name) AS name FROM input WHERE id % 2 = 0"
destination:
  use: {parts.get("destination", "parquet")}
  config:
    path: {here.lake}
  write_mode: {parts.get("mode", "append")}
  on_data_error: dlq
  schema_evolution: {{ new_column: add, type_change: fail }}
state:
  backend: sqlite
resources:
  max_batch_bytes: 16mb
  parallelism: 1
  checkpoint_interval_rows: 1000
  max_retries: 2
"""
    path = here.folder / "v4.yaml"
    path.write_text(lines)
    return path


def test_a_v4_file_runs_as_it_is(wasm: MakeWasm) -> None:
    """``source-numbers`` is ``source_numbers.wasm`` in ``~/.rapidbyte/plugins``."""
    here = wasm()
    user = here.folder / "user"
    folder = user / ".rapidbyte" / "plugins"
    folder.mkdir(parents=True)
    (folder / "source_numbers.wasm").write_bytes(numbers_source())
    path = v4_file(here, "source-numbers@v1.0.0")
    answer = here.cli("run", str(path), "--json", HOME=str(user))
    assert answer.code == 0, (answer.out, answer.err)
    (stream,) = answer.json["streams"]
    assert (stream["read"], stream["committed"], stream["filtered"]) == (50, 25, 25)
    rows = here.rows("numbers", "id")
    assert [row["id"] for row in rows] == list(range(2, 51, 2))
    assert rows[0]["name"] == "N2"
    assert {n for n in rows[0] if not n.startswith("_")} == {"id", "name"}
    assert here.cursors() == {"numbers": "50"}


def test_a_name_that_is_nowhere_says_where_it_was_looked_for(wasm: MakeWasm) -> None:
    here = wasm()
    path = v4_file(here, "source-nowhere")
    told = {"HOME": str(here.folder), "RAPIDBYTE_CONNECTOR_DIR": str(here.folder / "dir")}
    answer = here.cli("run", str(path), "--json", **told)
    assert (answer.code, answer.error["code"]) == (2, "connector.not_found")
    for text in ("source_nowhere.wasm", str(here.folder / "dir"), ".rapidbyte/plugins"):
        assert text in answer.error["message"]
    assert "airbyte:source-nowhere" in answer.error["hint"]


def test_a_whole_v4_file_with_components_at_both_ends_runs(wasm: MakeWasm) -> None:
    """Components are found in ``RAPIDBYTE_CONNECTOR_DIR``. Told from the shapes alone:
    defaults of v4 hold, and what v4 ignores is a warning."""
    here = wasm()
    folder = here.folder / "dir"
    folder.mkdir()
    (folder / "source_numbers.wasm").write_bytes(numbers_source())
    (folder / "dest_count.wasm").write_bytes(count_destination())
    path = v4_file(here, "source-numbers", destination="dest-count")
    text = path.read_text().replace(f"    path: {here.lake}", "    checkpoint_frames: 1")
    path.write_text(text + "future_key: 1\n")
    answer = here.cli("run", str(path), "--json", RAPIDBYTE_CONNECTOR_DIR=str(folder))
    assert answer.code == 0, (answer.out, answer.err)
    (stream,) = answer.json["streams"]
    assert (stream["read"], stream["committed"], stream["filtered"]) == (50, 25, 25)
    assert answer.json["guarantee"] == "at-least-once"
    assert here.cursors() == {"numbers": "50"}
