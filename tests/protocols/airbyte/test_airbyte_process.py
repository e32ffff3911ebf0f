"""The whole conversation with a real process: the scriptable stub source, run as it stands."""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SourceError
from penstock.model.catalog import CheckResult, StreamId
from penstock.model.events import (
    Batch,
    ConnectorExited,
    Control,
    Error,
    Event,
    LogEvent,
    Reject,
    SkippedItems,
    State,
    Status,
    StreamStatus,
)
from penstock.model.state import StateType, StoredState
from penstock.protocols.airbyte.catalog import configured_catalog
from penstock.protocols.airbyte.package import PACKAGE
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.process import ProcessRuntime

STUB = Path(__file__).parents[2] / "stubs" / "stub_source.py"
SOURCE, STATE = PACKAGE.source, PACKAGE.state
LIMITS = RunTimeouts(start=30, heartbeat=30, stop=2)


def runtime(**given: Any) -> ProcessRuntime:
    return ProcessRuntime([sys.executable, str(STUB), "--with", json.dumps(given)])


def ignore(_: Event) -> None: ...


def read(
    config: dict[str, Any],
    states: list[StoredState] | None = None,
    timeouts: RunTimeouts = LIMITS,
    catalog_of: dict[str, Any] | None = None,
    **overrides: Any,
) -> list[Event]:
    process = runtime()
    catalog = SOURCE.discover(
        process, config if catalog_of is None else catalog_of, timeouts, ignore
    )
    streams = tuple(SOURCE.configure(s, StreamOverrides(**overrides)) for s in catalog.streams)
    request = ReadRequest(
        config=config, streams=streams, states=tuple(states or ()), timeouts=timeouts
    )
    return list(SOURCE.read(process, request))


def rows(events: list[Event]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in events:
        if isinstance(event, Batch):
            numbers = [json.loads(bytes(b))["seq"] for b in event.bodies]
            found.setdefault(event.stream.name, []).extend(numbers)
    return found


def saved(events: list[Event]) -> list[StoredState]:
    new = [StoredState(e.scope, e.blob) for e in events if isinstance(e, State)]
    return STATE.merge([], new)


def test_spec_check_and_discover():
    spec = SOURCE.spec(runtime(), LIMITS, ignore)
    assert spec.protocol_version == "0.18.0"
    assert spec.config_schema["properties"]["api_key"]["airbyte_secret"] is True
    assert SOURCE.check(runtime(), {}, LIMITS, ignore) == CheckResult(True, None)
    catalog = SOURCE.discover(runtime(), {"streams": 3, "namespace": "n"}, LIMITS, ignore)
    assert [str(s.id) for s in catalog.streams] == ["n.s0", "n.s1", "n.s2"]


def test_check_that_exits_0_with_failed_is_a_failed_check():
    found = SOURCE.check(runtime(), {"scenario": "check_failed"}, LIMITS, ignore)
    assert found == CheckResult(False, "the stub's password is wrong")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"scenario": "exit_3"}, "exited with code 3.*the stub exits 3 as asked"),
        ({"scenario": "nothing"}, "exited with code 0 and printed no SPEC"),
    ],
)
def test_no_answer_says_what_happened(given: dict[str, Any], words: str):
    with pytest.raises(SourceError, match=words) as caught:
        SOURCE.spec(runtime(**given), LIMITS, ignore)
    assert caught.value.hint


def test_a_program_without_the_sdk_is_told_which_python_has_it(tmp_path: Path):
    (tmp_path / "own.py").write_text(
        "import sys; sys.exit(\"ModuleNotFoundError: No module named 'penstock'\")"
    )
    with pytest.raises(SourceError) as caught:
        SOURCE.spec(ProcessRuntime([sys.executable, str(tmp_path / "own.py")]), LIMITS, ignore)
    assert sys.executable in (caught.value.hint or "")


def test_another_major_protocol_version_is_a_warning():
    heard: list[Event] = []
    spec = {"protocol_version": "1.2.0", "connectionSpecification": {"type": "object"}}
    SOURCE.spec(runtime(spec=spec), LIMITS, heard.append)
    (warning,) = [e for e in heard if isinstance(e, LogEvent)]
    assert warning.level == "WARN" and "1.2.0" in warning.message


@pytest.mark.parametrize(
    ("kind", "field"), [("STREAM", "type"), ("GLOBAL", "state_type"), ("LEGACY", "type")]
)
def test_a_sync_goes_on_from_its_state(kind: str, field: str):
    config: dict[str, Any] = {"state_type": kind, "state_field": field, "interleave": True}
    first = read({**config, "records": 40})
    assert {k: len(v) for k, v in rows(first).items()} == {"s0": 40, "s1": 40}
    assert first[-1] == ConnectorExited(0, "")
    states = saved(first)
    assert {s.scope.type for s in states} == {StateType(kind)}
    second = read({**config, "records": 60}, states)
    assert rows(second) == {"s0": list(range(41, 61)), "s1": list(range(41, 61))}
    full = read({**config, "records": 60}, states, sync_mode="full_refresh")
    assert {k: len(v) for k, v in rows(full).items()} == {"s0": 60, "s1": 60}


def test_a_reset_stream_starts_anew_and_the_others_go_on():
    states = saved(read({"state_type": "GLOBAL", "records": 10}))
    after = STATE.reset(states, StreamId(None, "s1"))
    again = read({"state_type": "GLOBAL", "records": 12}, after)
    assert rows(again) == {"s0": [11, 12], "s1": list(range(1, 13))}


@pytest.mark.parametrize(
    ("scenario", "code", "total", "message"),
    [
        ("late_crash", 1, 60, "the stub crashed as asked"),
        ("late_crash_silent", 1, 60, None),
        ("complete_then_exit_1", 1, 200, "the stub ends badly as asked"),
        ("check_failed", 1, 0, "the stub's password is wrong"),
        ("exit_3", 3, 0, None),
        ("nothing", 0, 0, None),
        ("trailing", 0, 200, None),
        ("empty", 0, 0, None),
        ("stateless", 0, 200, None),
        ("removed", 0, 100, None),
        ("leak", 0, 200, None),
        ("noise", 0, 200, None),
        ("nan", 0, 200, None),
        ("duplicate_keys", 0, 200, None),
    ],
)
def test_scenarios_end_as_they_say(scenario: str, code: int, total: int, message: str | None):
    events = read({"scenario": scenario}, catalog_of={})
    end = events[-1]
    assert isinstance(end, ConnectorExited) and end.code == code
    assert sum(len(e.bodies) for e in events if isinstance(e, Batch)) == total
    assert next((e.message for e in events if isinstance(e, Error)), None) == message


def test_l7_the_good_streams_status_and_states_survive_a_bad_one():
    events = read({"scenario": "bad_stream"})
    ends = {e.stream.name: e.status for e in events if isinstance(e, StreamStatus)}
    assert ends == {"s0": Status.complete, "s1": Status.incomplete}
    assert StreamId(None, "s0") in {s.scope.stream for s in saved(events)}


def test_control_gives_the_whole_new_config():
    config = {"scenario": "control", "refresh_token": "old"}
    (control,) = [e for e in read(config) if isinstance(e, Control)]
    assert control.config == {**config, "refresh_token": "rotated-0"}


def test_changes_travel_with_their_row():
    batches = [e for e in read({"scenario": "changes"}) if isinstance(e, Batch)]
    changed = [json.loads(bytes(b.bodies[i]))["seq"] for b in batches for i in b.changes]
    assert changed == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100] * 2


def test_half_a_line_is_a_reject_of_a_clean_exit():
    events = read({"scenario": "half_line"})
    (reject,) = [e for e in events if isinstance(e, Reject)]
    assert reject.raw.startswith(b'{"type": "RECORD"')
    assert events[-1] == ConnectorExited(0, "")


def test_a_line_of_50_megabytes_is_one_record():
    events = read({"scenario": "big_line", "records": 10})
    sizes = [len(b) for e in events if isinstance(e, Batch) for b in e.bodies]
    assert len(sizes) == 10 and max(sizes) > 50_000_000


@pytest.mark.parametrize("scenario", ["hang", "hang_stubborn", "hang_grandchildren"])
def test_l11_a_source_that_hangs_is_stopped(scenario: str):
    limits = RunTimeouts(start=30, heartbeat=1.0, stop=0.5)
    started = time.monotonic()
    events = read({"scenario": scenario}, timeouts=limits)
    assert time.monotonic() - started < 20
    error, end = events[-2:]
    assert isinstance(error, Error) and error.code == "source.heartbeat"
    assert isinstance(end, ConnectorExited) and end.code is None
    assert sum(len(e.bodies) for e in events if isinstance(e, Batch)) == 30


@pytest.mark.dear
def test_ten_thousand_streams_of_one_row(tmp_path: Path):
    events = read({"scenario": "wide_10000", "journal": str(tmp_path / "journal")})
    kinds = Counter(type(e) for e in events)
    assert kinds[Batch] == kinds[State] == 10_000
    assert kinds[StreamStatus] == 30_000
    calls = [json.loads(x)["command"] for x in (tmp_path / "journal").read_text().splitlines()]
    assert calls == ["discover", "read"]


def test_streams_that_were_not_configured_are_counted():
    process = runtime()
    catalog = SOURCE.discover(process, {}, LIMITS, ignore)
    one = SOURCE.configure(catalog.streams[0], StreamOverrides())
    steps: list[Any] = [
        {"records": {"stream": "s0", "to": 3}},
        {"records": {"stream": "other", "to": 2}},
        {"exit": 0},
    ]
    events = list(SOURCE.read(process, ReadRequest(config={"steps": steps}, streams=(one,))))
    assert rows(events) == {"s0": [1, 2, 3]}
    assert SkippedItems("stream_not_configured:other", 2) in events


def test_l10_the_files_of_a_read_are_private_and_removed(tmp_path: Path):
    """The stub waits while we look; the folder is gone at the end."""
    go = tmp_path / "go"
    steps = [{"records": {"stream": "s0", "to": 1}}, {"wait_for": str(go)}]
    process = runtime()
    stream = SOURCE.discover(process, {}, LIMITS, ignore).streams[0]
    configured = SOURCE.configure(stream, StreamOverrides())
    journal = tmp_path / "journal"
    config = {"steps": steps, "journal": str(journal), "api_key": "s"}
    events = SOURCE.read(process, ReadRequest(config=config, streams=(configured,)))
    next(events)
    pid = json.loads(journal.read_text())["pid"]
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    path = Path(os.fsdecode(arguments[arguments.index(b"--config") + 1]))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    go.touch()
    assert list(events)[-1] == ConnectorExited(0, "")
    assert not path.parent.exists()
    sent = json.loads(journal.read_text())["catalog"]
    assert sent == configured_catalog([configured])
