"""The examples in C: built by the documentation's command, run by the protocol's roles."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import built
import msgspec
import pyarrow as pa
import pytest
import rapidbyte_guests
import running
from running import arrow, counts, ended, frames, incremental, run, table

from penstock.protocols.rapidbyte.declared.manifest import role_problems
from penstock.protocols.rapidbyte.declared.permissions import effective
from penstock.protocols.rapidbyte.guest import probe, stream_run
from penstock.protocols.rapidbyte.guest.events import CheckpointCall, ComponentLog
from penstock.protocols.rapidbyte.guest.session import load
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.messages import StreamLimits
from penstock.runtimes.wasm.compile_cache import CompileCache


def marks(told: list[Any]) -> list[CheckpointCall]:
    return [t for t in told if isinstance(t, CheckpointCall)]


def test_one_command_builds_one(tmp_path: Path):
    command = [sys.executable, str(built.ROOT / "examples" / "rapidbyte" / "build.py")]
    done = subprocess.run(
        [*command, "c-source", "-o", str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "c_source.wasm")
    assert (tmp_path / "c_source.wasm").read_bytes() == running.component("c-source")
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert listed.stdout.split() == list(built.EXAMPLES)


@pytest.mark.parametrize("name", ["c-source", "c-destination", "c-transform"])
def test_its_manifest_names_its_role_and_no_other(name: str):
    found = running.manifest(name)
    assert found.problem is None and found.manifest is not None and not found.warnings
    able = [r for r in ("source", "destination", "transform")
            if not role_problems(found.manifest, r)]  # type: ignore[arg-type]  # fmt: skip
    assert able == [running.role_of(name)]
    allowed = effective(found, None, None, {"host": "db.example"})
    assert (allowed.hosts, allowed.variables, allowed.folders) == ((), (), ())


# -- source


def test_the_source_describes_what_it_sends():
    (stream,) = probe.discover(running.stage("c-source", {}), lambda _: None).streams
    sent = table(run("c-source", {"rows": 25, "batch_rows": 10}))
    words = {"int64": "Int64", "string": "Utf8", "double": "Float64", "bool": "Boolean",
             "timestamp[us]": "TimestampMicros", "date32[day]": "Date32"}  # fmt: skip
    assert [(c.name, c.data_type) for c in stream.schema] == [
        (f.name, words[str(f.type)]) for f in sent.schema
    ]
    rows = sent.to_pylist()
    assert [row["id"] for row in rows] == list(range(1, 26))
    assert [row["name"] for row in rows[:4]] == ["N1", "N2", None, "N4"]
    assert rows[2]["amount"] == 1.5 and rows[2]["ok"] is False
    assert str(rows[2]["at"]) == "2023-11-14 22:13:23" and str(rows[2]["day"]) == "2023-11-14"


def test_the_source_checkpoints_each_frame_and_goes_on_after_the_last_value():
    told = run("c-source", {"rows": 25, "batch_rows": 10}, context=incremental())
    seen = [(m.frames, m.payload and m.payload.cursor_value and m.payload.cursor_value.text())
            for m in marks(told)]  # fmt: skip
    assert seen == [(1, "10"), (2, "20"), (3, "25")]
    assert counts(told) == {
        "records_read": 25, "bytes_read": sum(map(len, frames(told))), "batches_emitted": 3,
        "checkpoint_count": 3, "records_skipped": 0,
    }  # fmt: skip
    rest = run("c-source", {"rows": 25}, context=incremental("23"))
    assert table(rest).column("id").to_pylist() == [24, 25]
    assert not frames(run("c-source", {"rows": 25}, context=incremental("25")))
    assert not marks(run("c-source", {"rows": 25}))  # a full refresh has no cursor to move


def test_the_source_keeps_to_what_the_context_asks():
    capped = msgspec.structs.replace(
        running.FULL, limits=StreamLimits(max_records=13), selected_columns=["ok", "id"]
    )
    sent = table(run("c-source", {"rows": 25, "batch_rows": 10}, context=capped))
    assert sent.column_names == ["id", "ok"] and sent.num_rows == 13
    parts = [msgspec.structs.replace(running.FULL, partition_count=3, partition_index=i)
             for i in range(3)]  # fmt: skip
    ids = [table(run("c-source", {"rows": 25}, context=part)).column("id").to_pylist()
           for part in parts]  # fmt: skip
    assert sorted(i for part in ids for i in part) == list(range(1, 26))
    assert all(len(part) >= 8 for part in ids)


@pytest.mark.parametrize("config, context, code", [
    ({"batch_rows": 0}, running.FULL, "BATCH_ROWS"),
    ({}, msgspec.structs.replace(running.FULL, stream_name="letters"), "NO_SUCH_STREAM"),
    ({}, incremental(field="name"), "NO_SUCH_CURSOR"),
    ({}, msgspec.structs.replace(running.FULL, selected_columns=["no"]), "NO_COLUMNS"),
])  # fmt: skip
def test_what_the_source_cannot_do_is_a_config_error(config: Any, context: Any, code: str):
    fault = ended(run("c-source", config, context=context)).fault
    assert fault is not None
    assert (fault.category, fault.code, fault.retryable) == ("config", code, False)


def test_the_source_is_fast():
    """In CPU time, ours and the guest's: what else the machine does is no fault of it."""
    running.loaded("c-source")
    began = time.process_time()
    told = run("c-source", {"rows": 1_000_000})
    seconds = time.process_time() - began
    size = sum(map(len, frames(told)))
    assert 900_000 < size / len(frames(told)) < 1_200_000
    assert size / seconds > 16e6


# -- destination


def test_the_destination_counts_what_it_gets():
    sent = run("c-source", {"rows": 95, "batch_rows": 10})
    told = run("c-destination", {"checkpoint_frames": 4}, frames(sent))
    assert [(m.frames, m.payload and (m.payload.id, m.payload.records_processed))
            for m in marks(told)] == [(4, (1, 40)), (8, (2, 80)), (10, (3, 95))]  # fmt: skip
    size = counts(sent)["bytes_read"]
    assert counts(told) == {
        "records_written": 95, "bytes_written": size, "batches_written": 10,
        "checkpoint_count": 3, "records_failed": 0,
    }  # fmt: skip
    assert ComponentLog("INFO", f"95 rows, {size} bytes") in told
    at_end = run("c-destination", {"checkpoint_frames": 0}, frames(sent))
    assert [m.frames for m in marks(at_end)] == [10]


def test_a_frame_may_hold_several_batches():
    batch = pa.RecordBatch.from_pydict({"v": [1, None, 3], "l": [[1], None, []]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for part in (batch, batch.slice(1), batch.slice(0, 0)):
            writer.write_batch(part)
    told = run("c-destination", {}, [sink.getvalue().to_pybytes()])
    assert counts(told)["records_written"] == 5


@pytest.mark.parametrize("category", [
    "config", "auth", "permission", "rate_limit", "transient_network", "transient_db", "data",
    "schema", "internal", "frame",
])  # fmt: skip
def test_it_fails_in_every_category_as_asked(category: str):
    """Protocol, section 5: what is transient may be tried again."""
    sent = [arrow(id=[k]) for k in range(5)]
    told = run("c-destination", {"fail_after": 2, "fail_category": category}, sent)
    fault = ended(told).fault
    transient = category in ("rate_limit", "transient_network", "transient_db")
    assert fault is not None
    assert (fault.category, fault.code) == (category, "AS_ASKED")
    assert (fault.retryable, fault.safe_to_retry) == (transient, transient)
    assert fault.backoff_class == ("slow" if category == "rate_limit" else "normal")
    assert fault.scope == {"data": "record", "frame": "batch"}.get(category, "stream")
    assert fault.commit_state is None
    assert [m.frames for m in marks(told)] == [1, 2]


@pytest.mark.parametrize("commit, safe", [
    ("before_commit", True), ("after_commit_unknown", False), ("after_commit_confirmed", False),
])  # fmt: skip
def test_after_a_commit_another_try_is_not_safe(commit: str, safe: bool):
    config = {"fail_after": 1, "fail_category": "transient_db", "fail_commit_state": commit}
    fault = ended(run("c-destination", config, [arrow(id=[1])])).fault
    assert fault is not None and fault.retryable
    assert (fault.commit_state, fault.safe_to_retry) == (commit, safe)
    config |= {"fail_retryable": False}
    fault = ended(run("c-destination", config, [arrow(id=[1])])).fault
    assert fault is not None and not fault.retryable and not fault.safe_to_retry


def test_a_source_that_failed_is_no_end_of_the_destination():
    def feed():
        yield arrow(id=[1])
        raise OSError("gone")

    told = run("c-destination", {"checkpoint_frames": 0}, feed())
    fault = ended(told).fault
    assert fault is not None and fault.code == "UPSTREAM_FAILED"
    assert not marks(told)


# -- transform


def test_the_transform_hands_frames_on():
    sent = frames(run("c-source", {"rows": 95, "batch_rows": 10}))
    told = run("c-transform", {}, sent)
    assert frames(told) == sent
    size = sum(map(len, sent))
    assert counts(told) == {
        "records_in": 95, "records_out": 95, "bytes_in": size, "bytes_out": size,
        "batches_processed": 10,
    }  # fmt: skip


def test_the_c_sdk_reads_columns_and_writes_them_again():
    kinds = {
        "flag": pa.bool_(), "small": pa.int16(), "int": pa.int32(), "long": pa.int64(),
        "single": pa.float32(), "double": pa.float64(), "text": pa.utf8(), "raw": pa.binary(),
        "money": pa.decimal128(20, 3), "day": pa.date32(), "at": pa.timestamp("us"),
    }  # fmt: skip
    numbers = [0, None, 2, 3, 4, None, 6, 7, 8]
    words = ["", None, "naïve", "b" * 100, "日本", None, "'", "x", "end"]
    columns: dict[str, Any] = {}
    for name, kind in kinds.items():
        if name in ("text", "raw"):
            columns[name] = pa.array(words, pa.utf8()).cast(kind)
        elif name == "flag":
            columns[name] = pa.array([None if v is None else v % 3 == 0 for v in numbers])
        elif name in ("day", "at"):
            whole = pa.array(numbers, pa.int32() if name == "day" else pa.int64())
            columns[name] = whole.cast(kind)
        else:
            columns[name] = pa.array(numbers, kind)
    batch = pa.RecordBatch.from_pydict(columns)
    given = [batch, batch.slice(2, 5), batch.slice(4, 1), batch.slice(0, 0)]
    found = load(rapidbyte_guests.c_guest("transform", "columns.c"), "transform",
                 CompileCache(built.COMPILED))  # fmt: skip
    made = Stage(found, {}, running.stage("c-transform", {}).allowed, "transform:0")
    told = list(stream_run.apply(made, running.FULL, [bytes(running.frame_of(b)) for b in given]))
    assert counts(told)["records_in"] == 15
    back = table(told)
    assert back.schema == batch.schema
    assert back.equals(pa.Table.from_batches(given))
