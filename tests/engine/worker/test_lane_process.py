"""A lane in this process over real connectors (scripts): what a full disk, a new configuration and
a source's words come to."""

import errno
import json
import os
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from penstock.codec import duckdb_call
from penstock.codec.json_schema import row_schema
from penstock.config.packages import install
from penstock.connectors.launch import Launch
from penstock.engine.channel import mailbox
from penstock.engine.channel.connector_log import TAIL_BYTES, EventLog, LogLine
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.channel.run_log import RunLog
from penstock.engine.log.log import FileLog
from penstock.engine.specs.lane import LaneEnd, LaneJob, LaneResult, LaneStream, StreamJob
from penstock.engine.worker.lane import run_lane
from penstock.errors import ConfigError
from penstock.model.catalog import Stream, StreamId, SyncMode
from penstock.model.names import clean_columns
from penstock.model.segments import WriteDisposition
from penstock.model.staged_rows import StagedRows
from penstock.model.types import ChangeWords
from penstock.protocols.airbyte.package import PACKAGE
from penstock.protocols.reading import StreamOverrides
from penstock.runtimes.masking import Masker

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
ROW = {"type": "RECORD", "record": {"stream": "s", "data": {"id": 1}, "emitted_at": 1}}
BOUND = next(r for r in metadata.requires("penstock") or () if r.startswith("duckdb"))
OLD, NEW = "old-token-1", "new-token-2"
CONTROL = {
    "type": "CONTROL",
    "control": {
        "type": "CONNECTOR_CONFIG",
        "emitted_at": 1,
        "connectorConfig": {"config": {"auth": {"token": NEW}, "host": "example"}},
    },
}


def lane(folder: Path, body: str, **options: Any) -> LaneResult:
    """Run a source of which ``body`` is the read; ``say`` prints a message."""
    file = folder / "source.py"
    file.write_text(
        "import json, sys\n"
        "def say(message): print(json.dumps(message), flush=True)\n"
        f"ROW = {ROW!r}\nCONTROL = {CONTROL!r}\n{body}\n"
    )
    stream = Stream(id=StreamId(None, "s"), json_schema=SCHEMA, sync_modes=(SyncMode.full_refresh,))
    configured = PACKAGE.source.configure(stream, StreamOverrides(destination_sync_mode="append"))
    record = PACKAGE.schema.data_type(SCHEMA)
    disposition = WriteDisposition(mode=configured.destination_sync_mode)
    Mailbox(folder / "log", "run").create()
    job = LaneJob(
        run="run",
        lane=0,
        epoch=1,
        log_root=str(folder / "log"),
        protocol="airbyte",
        launch=msgspec.to_builtins(
            Launch(protocol="airbyte", command=(sys.executable, str(file)), cwd=str(folder))
        ),
        config={"auth": {"token": OLD}, "host": "example"},
        config_hash="",
        secrets=(OLD,),
        streams=(
            StreamJob(
                configured=configured,
                lane=LaneStream(
                    stream=stream.id,
                    disposition=disposition,
                    schema_version=1,
                    generation=0,
                    fills_generation=False,
                ),
                schema=row_schema(record, clean_columns(f.source for f in record.fields), None),
            ),
        ),
        **options,
    )
    return run_lane(job, threading.Event())


def words(folder: Path) -> str:
    return "".join(p.read_text() for p in folder.glob("log/mailbox/run/log-*.jsonl"))


def test_l10_secrets_that_a_source_changes_are_masked_too(tmp_path: Path) -> None:
    log = {"type": "LOG", "log": {"level": "INFO", "message": f"{NEW} {OLD} example"}}
    body = (
        f"say(CONTROL)\nsay({log!r})\nsay(ROW)\n"
        "import time; time.sleep(1)  # stderr is another pipe: what it says overtakes stdout\n"
        f"sys.stderr.write('{NEW}!\\n')\nsys.exit(1)"
    )
    result = lane(tmp_path, body)
    assert "**** **** example" in words(tmp_path)
    said = words(tmp_path) + json.dumps(msgspec.to_builtins(result))
    assert NEW not in said and OLD not in said
    assert "****!" in result.errors[0]["message"]


def test_stack_trace_of_a_log_message_is_in_the_log(tmp_path: Path) -> None:
    log = {"type": "LOG", "log": {"level": "WARN", "message": "odd", "stack_trace": "line 9"}}
    lane(tmp_path, f"say({log!r})\nsay(ROW)")
    assert "odd\\nline 9" in words(tmp_path)


def test_full_disk_skips_progress_and_costs_lines_but_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = mailbox.replace

    def put(path: Path, body: bytes, **kw: Any) -> None:
        if path.name.startswith("progress"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, body, **kw)

    monkeypatch.setattr(mailbox, "replace", put)
    monkeypatch.setattr(Mailbox, "log_path", lambda self, epoch: Path("/dev/full"))
    log = {"type": "LOG", "log": {"level": "INFO", "message": "hello"}}
    result = lane(tmp_path, f"say(ROW)\nsay({log!r})")
    assert (result.end, result.errors) == (LaneEnd.finished, [])
    assert result.read == [(StreamId(None, "s"), 1)]
    assert "lines of the log that could not be written: 1" in result.notes
    assert sum(s.rows for g in FileLog(tmp_path / "log").segments() for s in g.slices) == 1


def test_full_disk_in_the_spool_is_an_error_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkstemp", full)
    result = lane(tmp_path, "say(ROW)\nprint('x' * 5000)", max_record_bytes=1000)
    assert result.end is LaneEnd.failed
    assert (result.errors[0]["code"], result.errors[0]["exit_code"]) == ("log.full", 6)


def test_changes_are_in_the_words_of_the_protocol(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    bad = {**ROW, "record": {**ROW["record"], "data": {"id": "no number"}}}  # type: ignore[dict-item]
    lane(tmp_path, f"say({bad!r})", change_words=PACKAGE.change_words)
    (part,) = tmp_path.glob("log/epochs/*/parts/*.parquet")
    assert pq.read_table(part)["_penstock_changes"].to_pylist() == [
        [{"field": "id", "change": "NULLED", "reason": "DESTINATION_TYPECAST_ERROR: no number"}]
    ]
    assert ChangeWords().reason == "TYPE_MISFIT"


def test_line_that_a_full_disk_cut_off_ends_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.jsonl"
    log = EventLog(path, Masker(()))
    real, room = os.write, [10]

    def write(fd: int, data: Any) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "")
        return real(fd, bytes(data)[: room.pop()])

    monkeypatch.setattr(os, "write", write)
    log.log("INFO", "one")
    log.log("INFO", "two")
    log.flush()
    monkeypatch.setattr(os, "write", real)
    log.log("INFO", "three")
    log.close()
    half, whole = path.read_bytes().splitlines()
    assert len(half) == 10
    assert msgspec.json.decode(whole, type=LogLine).message == "three"
    assert log.lost == 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"id":"\xff"}', "not UTF-8"),
        (b'{"id":1,"id":2,"x":' + b"[" * 500 + b"]" * 500 + b"}", "nested deeper than 400 levels"),
    ],
)
def test_l8_a_record_is_refused_for_what_it_is(tmp_path: Path, data: bytes, reason: str) -> None:
    """In the words that a host of ``penstock serve`` gets, where such a record ends the run."""
    line = json.dumps(ROW).encode().replace(b'{"id": 1}', data) + b"\n"
    result = lane(tmp_path, f"sys.stdout.buffer.write({line!r})", on_data_error="fail")
    assert result.errors[0]["message"] == f"a record of s is refused: {reason}"


def test_L11_a_log_is_bounded_and_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    """150 MB of stderr are a program's, the disk is the user's."""
    path = tmp_path / "log.jsonl"
    log = EventLog(path, Masker(()), limit=100_000)
    for n in range(40_000):
        log.stderr(f"line {n} " + "x" * 100)
    log.close()
    log.close()
    lines = [msgspec.json.decode(x, type=LogLine).message for x in path.read_bytes().splitlines()]
    assert path.stat().st_size < 100_000 + TAIL_BYTES + 1000
    assert lines[0].startswith("line 0 ") and lines[-1].startswith("line 39999 ")
    (told,) = [x for x in lines if "left out" in x]
    assert int(told.split()[0]) == 40_000 - (len(lines) - 1)


def test_L11_a_runs_log_takes_over_block_by_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Heard:
        lines = 0

        def log(self, level: str, origin: str, message: str) -> None:
            self.lines += 1

    said = EventLog(tmp_path / "lane.jsonl", Masker(()))
    for n in range(3000):
        said.log("INFO", f"{n} " + "y" * 1000)
    said.flush()
    monkeypatch.setattr("penstock.engine.channel.run_log.BLOCK_BYTES", 4096)
    heard: Any = Heard()
    log = RunLog(tmp_path / "run.jsonl", heard, Masker(()))
    log.follow(tmp_path / "lane.jsonl")
    tracemalloc.start()
    log.poll()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    said.log("INFO", "last")
    said.close()
    log.close()
    assert heard.lines == 3001 and peak < 1 << 20
    assert len((tmp_path / "run.jsonl").read_bytes().splitlines()) == 3001


def trace(kind: str, **body: Any) -> dict[str, Any]:
    return {"type": "TRACE", "trace": {"type": kind, "emitted_at": 1, **body}}


def error(kind: str, **more: Any) -> dict[str, Any]:
    return trace("ERROR", error={"message": "reset by peer", "failure_type": kind, **more})


def state(count: float) -> dict[str, Any]:
    body = {"stream_descriptor": {"name": "s"}, "stream_state": {"n": count}}
    stats = {"recordCount": count}
    return {"type": "STATE", "state": {"type": "STREAM", "stream": body, "sourceStats": stats}}


@pytest.mark.parametrize("named", [False, True])
def test_a_transient_error_is_not_the_lanes_last_word(tmp_path: Path, named: bool) -> None:
    """Issue 9, A11. What no state covers is dropped: it is read again."""
    of = {"stream_descriptor": {"name": "s"}} if named else {}
    told = f"say(ROW)\nsay({state(1)!r})\nsay(ROW)\nsay({error('transient_error', **of)!r})"
    result = lane(tmp_path, f"{told}\nsys.exit(1)", attempts=3, backoff=2.0)
    ((stream, wait),) = result.retries
    assert stream == StreamId(None, "s") and 2 <= wait <= 2.5 and result.again
    assert result.errors == [] and result.passing[0]["code"] == "source.transient_error"
    assert sum(s.rows for g in FileLog(tmp_path / "log").segments() for s in g.slices) == 1


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("transient_error", {}),
        ("transient_error", {"attempts": 3, "tries": ((StreamId(None, "s"), 2),)}),
        ("config_error", {"attempts": 3}),
        ("system_error", {"attempts": 3}),
    ],
)
def test_what_may_not_pass_is_an_error(tmp_path: Path, kind: str, options: Any) -> None:
    result = lane(tmp_path, f"say(ROW)\nsay({error(kind)!r})\nsys.exit(1)", **options)
    assert not result.again and result.passing == []
    assert [e["code"] for e in result.errors] == [f"source.{kind}"]


def test_a_transient_error_of_a_stream_that_was_complete_is_kept(tmp_path: Path) -> None:
    status = {"stream_descriptor": {"name": "s"}, "status": "COMPLETE"}
    told = f"say(ROW)\nsay({trace('STREAM_STATUS', stream_status=status)!r})"
    result = lane(tmp_path, f"{told}\nsay({error('transient_error')!r})", attempts=3, backoff=2.0)
    assert not result.again and result.complete == [StreamId(None, "s")]
    assert [e["code"] for e in result.errors] == ["source.transient_error"]


def test_counts_limits_and_estimates_of_a_source_are_told(tmp_path: Path) -> None:
    """Issue 9, A10."""
    reason = {"type": "RATE_LIMITED", "rate_limited": {"quota_reset": 1_900_000_000_000}}
    limited = {"stream_descriptor": {"name": "s"}, "status": "RUNNING", "reasons": [reason]}
    estimates = [
        {"name": "s", "type": "STREAM", "row_estimate": 7},
        {"name": "s", "type": "STREAM", "byte_estimate": 70},
        {"name": "", "type": "SYNC", "row_estimate": 9, "byte_estimate": 90},
    ]
    said = [
        *(trace("ESTIMATE", estimate=e) for e in estimates),
        trace("STREAM_STATUS", stream_status=limited),
        trace("STREAM_STATUS", stream_status=limited),
        ROW,
        state(3),
        ROW,
        state(1),
        ROW,
        state(1000),
    ]
    result = lane(tmp_path, "\n".join(f"say({m!r})" for m in said))
    notes = "\n".join(result.notes)
    assert (
        "s: the source reports that it sent 1,003 records before 2 of its states, and 2 "
        "came" in notes
    )
    assert (
        "s: the source was rate limited 2 times, the last time until 2030-03-17T17:46:40Z" in notes
    )
    assert "rate limited until 2030-03-17T17:46:40Z" in words(tmp_path)
    expected = {s: (e.rows, e.bytes) for s, e in result.expected}
    assert expected == {StreamId(None, "s"): (7, 70), None: (9, 90)}
    progress = Mailbox(tmp_path / "log", "run").progress(1)
    assert progress is not None and dict(progress.expected) == dict(result.expected)


@pytest.mark.parametrize("status", [False, True], ids=["exit code 0", "COMPLETE"])
def test_l6_a_stream_whose_records_may_have_gone_by_is_not_complete(
    tmp_path: Path, status: bool
) -> None:
    """An empty generation would replace its table."""
    other = {**ROW, "record": {**ROW["record"], "namespace": "unknown"}}  # type: ignore[dict-item]
    complete = {"stream_descriptor": {"name": "s"}, "status": "COMPLETE"}
    said = [other, *([trace("STREAM_STATUS", stream_status=complete)] if status else [])]
    result = lane(tmp_path, "\n".join(f"say({m!r})" for m in said))
    assert (result.end, result.complete) == (LaneEnd.failed, [])
    assert [e["code"] for e in result.errors] == ["source.unclear_stream"]


def test_l6_an_error_without_its_optional_fields_completes_nothing(tmp_path: Path) -> None:
    """Exit code 0 after two of a thousand records must not publish them."""
    told = {"type": "TRACE", "trace": {"type": "ERROR", "error": {"message": "boom"}}}
    result = lane(tmp_path, f"say(ROW)\nsay({told!r})")
    assert (result.end, result.complete) == (LaneEnd.failed, [])
    assert [e["message"] for e in result.errors] == ["boom"]


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB as 2.0.1 is: numbers pass through a double. With the guard not yet passed."""
    monkeypatch.setattr(duckdb_call, "RAW_NUMBERS", "BIGINT")
    monkeypatch.setattr(duckdb_call, "_root", None)
    monkeypatch.setattr(duckdb_call, "_local", threading.local())


@pytest.mark.usefixtures("rounding")
@pytest.mark.parametrize("rows", [0, 1, 3], ids="{} rows".format)
def test_L9_a_guard_that_fires_beside_the_source_ends_the_lane(tmp_path: Path, rows: int) -> None:
    state = {"type": "STREAM", "stream": {"stream_descriptor": {"name": "s"}}}
    body = f"for _ in range({rows}): say(ROW)\nsay({ {'type': 'STATE', 'state': state}!r})"
    with pytest.raises(ConfigError, match="does not keep the digits of JSON numbers") as raised:
        lane(tmp_path, body)
    assert (raised.value.code, raised.value.exit_code) == ("config.duckdb", 2)
    assert raised.value.hint == install(BOUND)
    assert not sum(s.rows for g in FileLog(tmp_path / "log").segments() for s in g.slices)


def test_a_thread_that_breaks_fails_the_process(tmp_path: Path) -> None:
    """Whichever thread it is: nobody waits for it, and its exception is the job's answer."""
    program = (
        "import msgspec, threading\n"
        "from penstock.tasks.child_main import carry_out\n"
        "class Job(msgspec.Struct): pass\n"
        "class Answer(msgspec.Struct): error: dict = {}\n"
        "def run(job, orphaned):\n"
        "    one = threading.Thread(target=lambda: 1 / 0, name='odd')\n"
        "    one.start(); one.join()\n"
        "    return Answer()\n"
        "carry_out(Job, run, Answer)\n"
    )
    job = b"{}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=msgspec.msgpack.encode(len(job)) + job + b" " * 10_000_000,
        capture_output=True,
        timeout=60,
    )
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["exit_code"]) == ("lane.thread", 70)
    assert "the thread odd broke: ZeroDivisionError" in error["message"]


def test_a_query_s_rows_are_read_in_place_of_a_connector(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c0": [1, None, 3]}), tmp_path / "rows.parquet")
    state = '{"stream":"s","cursor_field":"id","cursor":"3"}'
    staged = StagedRows(files=(str(tmp_path / "rows.parquet"),), columns=("id",), at=7, last=state)
    began = tmp_path / "began"
    result = lane(tmp_path, f"open({str(began)!r}, 'w')\nsay(ROW)", staged=staged)
    stream = StreamId(None, "s")
    assert (result.end, result.errors, result.complete) == (LaneEnd.finished, [], [stream])
    assert result.read == [(stream, 3)] and not began.exists()
    segments = FileLog(tmp_path / "log").segments()
    parts = [part for s in segments for one in s.slices for part in one.parts]
    rows = [r for p in parts for r in pq.read_table(tmp_path / "log" / p.path)["id"].to_pylist()]
    assert rows == [1, None, 3]
    assert [s.state for s in segments] == [state, None]
