"""A lane in this process over real connectors (scripts): what a full disk, a new configuration and
a source's words come to."""

import errno
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.codec.json_schema import row_schema
from penstock.connectors.launch import Launch
from penstock.engine.buffers import LaneStream
from penstock.engine.child import run_lane
from penstock.engine.events_log import EventLog, LogLine
from penstock.engine.job import LaneEnd, LaneJob, LaneResult, StreamJob
from penstock.engine.log import FileLog
from penstock.engine.mailbox import Mailbox
from penstock.model.catalog import Stream, StreamId, SyncMode
from penstock.model.names import clean_columns
from penstock.model.segments import Shape
from penstock.model.types import ChangeWords
from penstock.protocols.airbyte import PACKAGE
from penstock.protocols.contract import StreamWish
from penstock.runtimes.masking import Masker

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
ROW = {"type": "RECORD", "record": {"stream": "s", "data": {"id": 1}, "emitted_at": 1}}
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
    configured = PACKAGE.source.configure(stream, StreamWish(destination_sync_mode="append"))
    record = PACKAGE.schema.data_type(SCHEMA)
    shape = Shape(mode=configured.destination_sync_mode)
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
                    shape=shape,
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
    real = Mailbox._put

    def put(self: Mailbox, name: str, body: bytes) -> None:
        if name.startswith("progress"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(self, name, body)

    monkeypatch.setattr(Mailbox, "_put", put)
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
        [{"field": "id", "change": "NULLED", "reason": "DESTINATION_TYPECAST_ERROR"}]
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
