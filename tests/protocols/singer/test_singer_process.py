"""The whole conversation with a real process: the scriptable stub tap, run as it stands."""

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SourceError
from penstock.model.catalog import StreamId
from penstock.model.events import (
    Activate,
    Batch,
    ConnectorExited,
    Control,
    Error,
    Event,
    LogEvent,
    Reject,
    Schema,
    SkippedItems,
    State,
)
from penstock.model.state import StoredState
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.protocols.singer.package import PACKAGE
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.masking import Masker
from penstock.runtimes.process import ProcessRuntime

STUB = Path(__file__).parents[2] / "stubs" / "stub_tap.py"
SOURCE, STATE = PACKAGE.source, PACKAGE.state
LIMITS = RunTimeouts(start=30, heartbeat=30, stop=2)


def runtime(**given: Any) -> ProcessRuntime:
    return ProcessRuntime([sys.executable, str(STUB), "--with", json.dumps(given)])


def ignore(_: Event) -> None: ...


def request(config: dict[str, Any], **more: Any) -> ReadRequest:
    overrides = more.pop("overrides", {})
    known = {"metadata", "fields", "stream_name", "streams"}
    asked = {k: v for k, v in config.items() if k in known}
    if config.get("scenario") in ("two_names", "same_names"):
        asked["scenario"] = config["scenario"]
    catalog = SOURCE.discover(runtime(), asked, LIMITS, ignore)
    streams = tuple(SOURCE.configure(s, StreamOverrides(**overrides)) for s in catalog.streams)
    return ReadRequest(config=config, streams=streams, **{"timeouts": LIMITS, **more})


def read(config: dict[str, Any], **more: Any) -> list[Event]:
    return list(SOURCE.read(runtime(), request(config, **more)))


def only(events: list[Event], kind: type) -> list[Any]:
    return [e for e in events if isinstance(e, kind)]


def rows(events: list[Event]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for batch in only(events, Batch):
        numbers = [json.loads(bytes(b))["seq"] for b in batch.bodies]
        found.setdefault(batch.stream.name, []).extend(numbers)
    return found


def counted(events: list[Event]) -> Counter[str]:
    total: Counter[str] = Counter()
    for event in only(events, SkippedItems):
        total[event.what] += event.count
    return total


def saved(events: list[Event]) -> tuple[StoredState, ...]:
    return tuple(StoredState(s.scope, s.blob) for s in only(events, State)[-1:])


# -- spec, check, discover


def test_spec_by_about():
    spec = SOURCE.spec(runtime(), LIMITS, ignore)
    assert spec.abilities["capabilities"] == ["catalog", "state", "discover", "about"]
    assert spec.config_schema["properties"]["refresh_token"]["secret"] is True


@pytest.mark.parametrize(
    ("scenario", "capabilities"),
    [
        ("no_discovery", ["state"]),
        ("properties", ["properties", "discover", "state"]),
        ("neither", ["discover", "state"]),
    ],
)
def test_spec_without_about_is_no_error(scenario: str, capabilities: list[str]):
    spec = SOURCE.spec(runtime(scenario=scenario), LIMITS, ignore)
    assert spec.config_schema["type"] == "object"
    assert spec.abilities["capabilities"] == capabilities


IGNORES_OPTIONS = """
import json, time
print(json.dumps({"type": "SCHEMA", "stream": "a", "schema": {}, "key_properties": []}), flush=True)
for n in range(100_000):
    print(json.dumps({"type": "RECORD", "stream": "a", "record": {"n": n}}), flush=True)
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("program", "level", "said"),
    [
        (IGNORES_OPTIONS, "INFO", "the tap began to send messages, and was stopped"),
        ("import sys; sys.exit(2)", "INFO", "ended with exit code 2; it wrote nothing to stderr"),
        ("import os; os.kill(os.getpid(), 9)", "INFO", "the tap was killed by signal 9"),
        ("import not_there", "WARN", "No module named 'not_there' (the tap ended with exit code"),
    ],
    ids=["sends", "ends", "dies", "cannot start"],
)
def test_a_tap_without_about_and_help_is_no_fault(
    program: str, level: str, said: str, tmp_path: Path
):
    """The specification has neither option; one that cannot start at all is warned of."""
    file = tmp_path / "tap.py"
    file.write_text(program)
    heard: list[Event] = []
    tap = ProcessRuntime([sys.executable, str(file)])
    spec = SOURCE.spec(tap, LIMITS, heard.append)
    assert spec.config_schema["type"] == "object" and spec.abilities == {}
    (line,) = only(heard, LogEvent)
    assert line.level == level and said in line.message and "None" not in line.message


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ("raise SystemExit(2)", "start the tap by itself"),
        ("raise ValueError('no token')", "correct what it names"),
    ],
    ids=["silent", "speaks"],
)
def test_what_to_do_after_a_failed_discovery(program: str, hint: str, tmp_path: Path):
    file = tmp_path / "tap.py"
    file.write_text(program)
    with pytest.raises(SourceError) as caught:
        SOURCE.discover(ProcessRuntime([sys.executable, str(file)]), {}, LIMITS, ignore)
    assert caught.value.hint is not None and caught.value.hint.startswith(hint)


def test_the_users_start_bounds_a_tap_that_says_what_it_is_late(tmp_path: Path):
    file = tmp_path / "tap.py"
    about = {"capabilities": ["catalog"], "settings": {"type": "object"}}
    file.write_text(f"import time; time.sleep(2); print({json.dumps(about)!r})")
    tap = ProcessRuntime([sys.executable, str(file)])
    late = SOURCE.spec(tap, RunTimeouts(start=20, stop=1), ignore)
    assert late.abilities["capabilities"] == ["catalog"]
    heard: list[Event] = []
    began = time.monotonic()
    assert SOURCE.spec(tap, RunTimeouts(start=0.5, stop=1), heard.append).abilities == {}
    assert time.monotonic() - began < 10 and "0.5" in only(heard, LogEvent)[0].message


def test_discover_and_check():
    catalog = SOURCE.discover(runtime(), {}, LIMITS, ignore)
    assert [s.id for s in catalog.streams] == [StreamId(None, "s0"), StreamId(None, "s1")]
    assert not catalog.open
    assert SOURCE.check(runtime(), {}, LIMITS, ignore).succeeded
    failed = SOURCE.check(runtime(), {"check": "FAILED"}, LIMITS, ignore)
    assert not failed.succeeded
    assert failed.message == "the stub's password is wrong (the tap ended with exit code 1)"
    with pytest.raises(SourceError) as caught:
        SOURCE.discover(runtime(), {"check": "FAILED"}, LIMITS, ignore)
    assert "the stub's password is wrong" in caught.value.message


@pytest.mark.parametrize("scenario", ["no_discovery", "open_stream"])
def test_a_tap_without_discovery_has_an_open_catalog_specification_Synopsis(scenario: str):
    tap = runtime(scenario=scenario)
    catalog = SOURCE.discover(tap, {"records": 100_000}, LIMITS, ignore)
    assert (catalog.streams, catalog.open) == ((), True)
    began = time.monotonic()
    assert SOURCE.check(tap, {"records": 100_000}, LIMITS, ignore).succeeded
    assert time.monotonic() - began < 20
    failing = SOURCE.check(tap, {"check": "FAILED"}, LIMITS, ignore)
    assert not failing.succeeded
    whole = ReadRequest(config={"records": 3}, streams=(), open=True, timeouts=LIMITS)
    events = list(SOURCE.read(tap, whole))
    assert [e.stream.name for e in only(events, Schema)] == ["s0", "s1"]
    assert rows(events) == {"s0": [1, 2, 3], "s1": [1, 2, 3]}


# -- reads


def test_full_then_incremental_from_the_saved_state():
    first = read({"records": 30}, overrides={"sync_mode": "incremental"})
    assert rows(first) == {"s0": list(range(1, 31)), "s1": list(range(1, 31))}
    assert only(first, ConnectorExited)[0].code == 0
    assert not only(first, Schema)
    second = read({"records": 32}, states=saved(first), overrides={"sync_mode": "incremental"})
    assert rows(second) == {"s0": [31, 32], "s1": [31, 32]}
    anew = STATE.without(saved(second), [StreamId(None, "s1")])
    third = read({"records": 32}, states=tuple(anew), overrides={"sync_mode": "incremental"})
    assert rows(third) == {"s1": list(range(1, 33))}


@pytest.mark.parametrize("scenario", ["properties", "neither", "basic"])
@pytest.mark.parametrize("known", [True, False])
def test_the_catalog_reaches_the_tap_however_it_takes_it(
    scenario: str, known: bool, tmp_path: Path
):
    tap = runtime(scenario=scenario, journal=str(tmp_path / "journal"))
    abilities = SOURCE.spec(tap, LIMITS, ignore).abilities if known else {}
    (tmp_path / "journal").unlink(missing_ok=True)
    asked = request({"records": 3}, abilities=abilities)
    events = list(SOURCE.read(tap, asked))
    assert rows(events)["s0"] == [1, 2, 3]
    assert not only(events, Error)
    runs = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    given = runs[-1].get("properties") or runs[-1].get("catalog")
    assert (given is None) is (scenario == "neither")


def test_only_selected_fields_come_and_no_schema_event(tmp_path: Path):
    overrides = {"columns": ("name",)}
    events = read({"records": 2, "journal": str(tmp_path / "j")}, overrides=overrides)
    names = {tuple(json.loads(bytes(b))) for e in only(events, Batch) for b in e.bodies}
    assert names == {("id", "seq", "name")}
    assert not only(events, Schema)


@pytest.mark.parametrize("scenario", ["batch", "batch_plain"])
def test_batches_of_the_tap(scenario: str, tmp_path: Path):
    root = {"batch_config": {"storage": {"root": tmp_path.as_uri()}}}
    events = read({"scenario": scenario, "batch_folder": str(tmp_path), **root})
    assert rows(events) == {"s0": list(range(1, 101)), "s1": list(range(1, 101))}
    assert json.loads(only(events, State)[-1].blob)["bookmarks"].keys() == {"s0", "s1"}


def test_a_batch_file_that_is_gone_fails_the_read_L1_L8(tmp_path: Path):
    root = {"batch_config": {"storage": {"root": tmp_path.as_uri()}}}
    events = read({"scenario": "batch_missing", "batch_folder": str(tmp_path), **root})
    assert only(events, Error)[0].code == "source.batch_unreadable"
    marks = [json.loads(s.blob)["bookmarks"] for s in only(events, State)]
    assert all(m.get("s0", {}).get("replication_key_value", 0) <= 50 for m in marks)


@pytest.mark.parametrize("scenario", ["versioned", "versioned_both"])
def test_versions_and_activations_L6(scenario: str):
    events = read({"scenario": scenario})
    assert {b.version for b in only(events, Batch)} == {7}
    order = [type(e).__name__ for e in events if isinstance(e, Batch | Activate)]
    assert order[-1] == "Activate"
    assert order.count("Activate") == (2 if scenario == "versioned" else 4)


def test_a_schema_change_is_a_barrier_and_a_repeated_schema_is_not():
    events = read({"scenario": "changed_schema", "streams": 1})
    (event,) = only(events, Schema)
    assert "extra" in event.json_schema["properties"]
    before = rows(events[: events.index(event)])
    assert before == {"s0": list(range(1, 51))}
    assert not only(read({"scenario": "schema_repeated"}), Schema)
    broken = read({"scenario": "schema_broken"})
    assert counted(broken)["malformed:SCHEMA"] == 2
    assert len(rows(broken)["s0"]) == 100


def test_names_in_messages():
    assert set(rows(read({"scenario": "two_names"}))) == {"s0", "s1"}
    assert only(read({"scenario": "same_names"}), Error)[0].code == "source.ambiguous_stream"


def test_types_in_lower_case_noise_nan_null_records_and_a_half_line_L8():
    assert len(rows(read({"scenario": "lower"}))["s1"]) == 100
    noise = read({"scenario": "noise"})
    assert len(rows(noise)["s0"]) == 100
    assert counted(noise)["unknown_type:FUTURE"] == 20
    assert counted(noise)["blank_line"] == 20
    assert len(only(read({"scenario": "null_records"}), Reject)) == 20
    assert len(only(read({"scenario": "half_line"}), Reject)) == 1
    nan = read({"scenario": "nan"})
    assert len(rows(nan)["s0"]) == 100 and not only(nan, Reject)


def test_a_crash_keeps_what_came_and_says_its_critical_line():
    events = read({"scenario": "late_crash"})
    assert rows(events) == {"s0": list(range(1, 61))}
    assert only(events, Error)[0].message == "the stub crashed as asked (exit code 1)"
    assert only(events, ConnectorExited)[0].code == 1


@pytest.mark.parametrize("scenario", ["hang", "hang_stubborn", "drains"])
def test_who_was_stopped_did_not_complete_although_it_exits_0_L11(scenario: str):
    limits = RunTimeouts(start=30, heartbeat=1, total=4, stop=1)
    events = read({"scenario": scenario}, timeouts=limits)
    assert only(events, ConnectorExited)[0].code is None
    assert only(events, Error)


def test_closing_the_read_ends_the_tap(tmp_path: Path):
    journal = tmp_path / "journal"
    asked = request({"scenario": "hang", "journal": str(journal)}, tick=0.1)
    events = SOURCE.read(runtime(), asked)
    next(e for e in events if isinstance(e, Batch))
    events.close()
    pid = json.loads(journal.read_text().splitlines()[-1])["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# -- config


def test_a_changed_config_is_told_whole_and_only_once_specification_Config():
    events = read({"scenario": "write_back", "api_key": "k"})
    (control,) = only(events, Control)
    assert control.config["refresh_token"] == "rotated-0"
    assert control.config["api_key"] == "k"
    assert all("rotated-0" not in e.message for e in only(events, LogEvent))


@pytest.mark.parametrize("fault", [{"crash_after": 50}, {"hang_after": 50, "hang": "stubborn"}])
def test_a_changed_config_is_told_after_a_failure_too(fault: dict[str, Any]):
    limits = RunTimeouts(start=30, heartbeat=1, stop=0.5)
    events = read({"scenario": "write_back", **fault}, timeouts=limits, tick=0.2)
    assert [c.config["refresh_token"] for c in only(events, Control)] == ["rotated-0"]
    assert isinstance(events[-1], ConnectorExited) and events[-1].code != 0


def test_an_unchanged_config_is_told_by_nobody():
    assert not only(read({"records": 1}), Control)


def test_secrets_stay_out_of_the_error_L10():
    secret = "s3cr3t-value"
    tap = ProcessRuntime([sys.executable, str(STUB)], masker=Masker([secret]))
    asked = request({"scenario": "leak", "api_key": secret, "exit_code": 1})
    events = list(SOURCE.read(tap, asked))
    words = [e.message for e in only(events, Error)] + [
        only(events, ConnectorExited)[0].stderr_tail
    ]
    assert not any(secret in w for w in words)


def test_a_tap_killed_by_a_signal_failed():
    steps = [{"records": {"stream": "s0", "to": 3}}, {"kill": signal.SIGKILL}]
    events = read({"steps": steps})
    assert rows(events) == {"s0": [1, 2, 3]}
    assert only(events, ConnectorExited)[0].code == -signal.SIGKILL
