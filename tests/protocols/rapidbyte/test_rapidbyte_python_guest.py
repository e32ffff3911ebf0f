"""A Python component (componentize-py) with all of WASI: what it sees of this system, and what it
cannot do to it. Built and compiled once, and kept; slow the first time."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rapidbyte_guests
from rapidbyte_guests import allowed

from penstock.errors import SourceError
from penstock.protocols.rapidbyte.guest import probe, stream_run
from penstock.protocols.rapidbyte.guest.events import ComponentLog, Frame, RunEnded, StageEvent
from penstock.protocols.rapidbyte.guest.session import CompiledConnector, load
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.messages import StreamContext
from penstock.runtimes.wasm.compile_cache import CompileCache

pytestmark = pytest.mark.slow
CONTEXT = StreamContext(stream_name="numbers", sync_mode="full_refresh")


@pytest.fixture(scope="module")
def loaded(cache: CompileCache) -> CompiledConnector:
    found = load(rapidbyte_guests.python_guest(), "source", cache)
    assert found.plain is None
    return found


def read(loaded: CompiledConnector, config: dict[str, Any], **allow: Any) -> list[StageEvent]:
    return list(stream_run.read(Stage(loaded, config, allowed(**allow), "source"), CONTEXT))


def end(told: list[StageEvent]) -> RunEnded:
    assert isinstance(told[-1], RunEnded)
    return told[-1]


def look(loaded: CompiledConnector, paths: list[str], **allow: Any) -> dict[str, Any]:
    told = read(loaded, {"mode": "look", "paths": paths}, **allow)
    assert end(told).error is None, end(told)
    (line,) = (t.message for t in told if isinstance(t, ComponentLog) and t.message.startswith("{"))
    return json.loads(line)


def test_rows_arrive(loaded: CompiledConnector):
    told = read(loaded, {"frames": 2, "rows": 500})
    tables: list[Any] = []
    for frame in told:
        if isinstance(frame, Frame):
            with pa.ipc.open_stream(pa.py_buffer(frame.data)) as reader:
                table = reader.read_all()
            table.validate(full=True)
            tables.append(table)
    whole = pa.concat_tables(tables)
    assert whole.column("id").to_pylist() == list(range(1000))
    assert whole.column("name").to_pylist()[2:5] == ["n2", None, "n4"]
    assert whole.column("ok").to_pylist()[:2] == [True, False]
    summary = end(told).summary
    assert summary is not None and summary.counts["records_read"] == 1000


def test_it_sees_no_variable_no_file_no_argument(
    loaded: CompiledConnector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Protocol, section 8: what is not allowed is not there."""
    monkeypatch.setenv("GIVEN", "yes")
    monkeypatch.setenv("SECRET", "no")
    (tmp_path / "file").write_text("content")
    paths = ["/etc/passwd", "/proc/self/environ", str(tmp_path / "file"), "file", "/"]
    seen = look(loaded, paths)
    assert seen["env"] == {} and seen["argv"] == [] and not seen["stdin"]
    assert all(word.endswith("Error") for word in seen["files"].values())
    seen = look(loaded, paths, variables=("GIVEN",), folders=(str(tmp_path),))
    assert seen["env"] == {"GIVEN": "yes"}
    assert seen["files"][str(tmp_path / "file")] == "content"
    climbing = [str(tmp_path / ".." / ".." / "etc" / "passwd"), f"{tmp_path}/../../../etc/passwd"]
    (tmp_path / "link").symlink_to("/etc/passwd")
    seen = look(loaded, [*climbing, str(tmp_path / "link")], folders=(str(tmp_path),))
    assert all(word.endswith("Error") for word in seen["files"].values())


def test_a_flood_on_stdout_and_stderr_does_no_harm(loaded: CompiledConnector):
    told = read(loaded, {"mode": "print", "n": 20_000})
    assert end(told).error is None
    lines = [t for t in told if isinstance(t, ComponentLog)]
    assert len(lines) == 10_001


def test_memory_that_ran_out_is_told_as_such(loaded: CompiledConnector):
    ended = end(read(loaded, {"mode": "hog"}, max_memory=96 << 20))
    assert ended.error is not None
    # Python answers a failed allocation with a MemoryError, which the bindings make a crash of.
    assert ended.error.code == "connector.memory"


def test_a_guest_that_ends_itself_is_told_with_its_last_words(loaded: CompiledConnector):
    ended = end(read(loaded, {"mode": "exit"}))
    assert ended.error is not None
    assert "my last words" in ended.error.message


def test_its_own_error_is_kept(loaded: CompiledConnector):
    ended = end(read(loaded, {"mode": "open-err"}))
    assert ended.fault is not None and ended.fault.code == "BAD_JSON"


@pytest.mark.parametrize("mode", ["sleep", "open-sleep"])
def test_sleep_is_the_guests_time_and_nobody_waits_for_its_end(
    loaded: CompiledConnector, mode: str
):
    """L11: it sleeps in a call of the system's, where no epoch is looked at."""
    began = time.monotonic()
    ended = end(read(loaded, {"mode": mode, "seconds": 20}, timeout_seconds=1))
    assert time.monotonic() - began < 10
    assert ended.error is not None and ended.error.code == "connector.timeout"
    assert "timeout_seconds" in (ended.error.hint or "")
    assert ended.worked > 1


def test_sleep_while_it_is_asked_ends_the_question(loaded: CompiledConnector):
    config = {"mode": "open-sleep", "seconds": 20}
    stage = Stage(loaded, config, allowed(timeout_seconds=1), "source")
    began = time.monotonic()
    with pytest.raises(SourceError) as caught:
        probe.check(stage, lambda _: None)
    assert time.monotonic() - began < 10
    assert caught.value.code == "connector.timeout"
    assert "timeout_seconds" in (caught.value.hint or "")
