"""L10 by construction: whatever a connector says comes out of its Connection masked, and data as it
went in. Components: ``rapidbyte/test_rapidbyte_connection``."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from penstock.connectors.connector import RunnableConnector, silent
from penstock.connectors.destination import DestinationConnector
from penstock.connectors.launch import Launch, connect
from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.errors import DestinationError, PenstockError, SourceError
from penstock.model.catalog import (
    CheckResult,
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import (
    Activate,
    Batch,
    ConnectorExited,
    ConnectorMetrics,
    Control,
    Error,
    Estimate,
    Event,
    LogEvent,
    RecordCountMismatch,
    Reject,
    Schema,
    SkippedItems,
    State,
    Status,
    StreamHalted,
    StreamStatus,
    Tick,
    TransformColumns,
    UnconfiguredRecords,
)
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.connection import Connection
from penstock.protocols.memory import MemoryProtocol, PlayedConnector
from penstock.protocols.reading import ReadRequest
from penstock.protocols.transforming import (
    Given,
    TransformedRows,
    TransformProgress,
    TransformRequest,
)
from penstock.protocols.writing import (
    Ack,
    Answer,
    DestinationCounts,
    Feed,
    GivesResults,
    StateMark,
    StreamAck,
    WriteRequest,
    WriteStream,
)
from penstock.runtimes.contract import ConnectionStats, RunTimeouts, Start
from penstock.runtimes.masking import Masker

SECRET, LATE = "hunter2-hunter2", "renewed-7-renewed"
BOTH = f"{SECRET} {LATE}"
A = StreamId(None, "a")
CONFIG = {"key": SECRET}
WANTED = ConfiguredStream(
    stream=Stream(id=A, json_schema={}),
    sync_mode=SyncMode.full_refresh,
    destination_sync_mode=DestinationSyncMode.append,
)
QUICK = RunTimeouts(stop=1)


def clean(*told: Any) -> str:
    """All of it as text: something was masked and no secret is left."""
    text = " ".join(json.dumps(t.as_dict()) + str(t) if isinstance(t, PenstockError) else repr(t)
                    for t in told)  # fmt: skip
    assert "****" in text
    assert SECRET not in text and LATE not in text, text
    return text


def heard(events: Iterator[Any]) -> tuple[list[Any], PenstockError | None]:
    """All of them, and what they ended with."""
    found: list[Any] = []
    take = found.append
    try:
        for event in events:
            take(event)
    except PenstockError as e:
        return found, e
    return found, None


def printed(lines: list[str]) -> None:
    """Each line of stderr is masked when it is printed: what a CONTROL brings may be read later."""
    assert any("****" in line for line in lines)
    assert SECRET not in "".join(lines)


def split(events: list[Any]) -> tuple[list[Any], list[Any]]:
    """Words and data. A CONTROL is data: it is stored encrypted, and never shown."""
    words = [e for e in events if isinstance(e, MASKED)]
    return words, [e for e in events if not isinstance(e, MASKED)]


# -- the in-memory twin: each kind of event, each question, what is raised

MASKED = (
    LogEvent,
    Error,
    ConnectorMetrics,
    ConnectorExited,
    SkippedItems,
    StreamHalted,
    TransformProgress,
)
WORDS: list[Any] = [
    LogEvent("INFO", BOTH, BOTH),
    Error(BOTH, "system_error", A, {"stack": [BOTH]}, hint=BOTH),
    ConnectorMetrics(A, [{"name": BOTH}]),
    SkippedItems(BOTH),
    StreamHalted(A, BOTH),
    ConnectorExited(1, BOTH),
]
DATA: list[Any] = [
    Batch(A, [SECRET.encode()], [0]),
    State(StateScope(StateType.legacy), BOTH),
    Reject(A, BOTH, SECRET.encode(), None),
    Schema(A, {"title": BOTH}),
    StreamStatus(A, Status.started),
    Estimate(A, 1, 1),
    Activate(A, 1),
    UnconfiguredRecords(A),
    RecordCountMismatch(A, 1, 2),
    DestinationCounts({A: 2}, 1, 1),
    Tick(),
]
CONTROL = Control({**CONFIG, "token": LATE})


def played(role: Any, **does: Callable[..., Any]) -> Connection:
    launch = Start(role=role)
    return MemoryProtocol(PlayedConnector(**does)).connect(
        launch, Masker([SECRET]), ConnectionStats()
    )


def saying(*events: Any, then: type[PenstockError] | None = None) -> Callable[..., Iterator[Any]]:
    def say(*asked: Any) -> Iterator[Any]:
        del asked
        yield from events
        if then is not None:
            raise then(BOTH, hint=BOTH, connector={"raw": BOTH})

    return say


def test_every_kind_of_event_is_known_to_be_words_or_data() -> None:
    """A new kind of event must be put to one of them."""
    kinds = {*get_args(Event), *get_args(Answer), *get_args(Given)}
    ours = {TransformColumns, Ack, StreamAck, TransformedRows, TransformProgress, Control}
    ours |= {GivesResults}
    assert kinds - ours == {type(event) for event in (*WORDS, *DATA)}


def run(connection: Connection, role: str) -> Iterator[Any]:
    write = WriteRequest(config=CONFIG, streams=(), source_protocol="x")
    apply = TransformRequest(config=CONFIG, stream=WANTED, scope="s")
    match role:
        case "source":
            return connection.read(ReadRequest(config=CONFIG, streams=()))
        case "destination":
            return connection.write(write, iter(()))
        case _:
            return connection.apply(apply, iter(()))


@pytest.mark.parametrize("role", ["source", "destination", "transform"])
def test_l10_words_are_masked_and_data_is_not_in_every_role(role: str) -> None:
    """Also with what a CONTROL has changed, from that event on."""
    said = saying(CONTROL, *WORDS, *DATA, then=SourceError)
    events, error = heard(run(played(role, read=said, write=said, apply=said), role))
    words, data = split(events)
    assert [type(e) for e in words] == [type(e) for e in WORDS]
    clean(*words, error)
    assert str(error) == "**** ****"
    assert data == [CONTROL, *DATA]


@pytest.mark.parametrize("fails", [False, True])
def test_l10_questions_are_answered_in_masked_words(fails: bool) -> None:
    def told(*asked: Any) -> Any:
        for event in (CONTROL, *WORDS):
            asked[-1](event)
        if fails:
            raise SourceError(BOTH, hint=BOTH, connector={"raw": [BOTH]})
        return CheckResult(False, BOTH)

    log: list[Any] = []
    connection = played("source", check=told, discover=told, spec=told)
    for ask in (
        lambda: connection.check(CONFIG, QUICK, log.append),
        lambda: connection.discover(CONFIG, QUICK, log.append),
        lambda: connection.spec(QUICK, log.append),
    ):
        if fails:
            with pytest.raises(SourceError) as caught:
                ask()
            clean(caught.value)
        else:
            ask()
    if not fails:
        assert connection.check(CONFIG, QUICK, silent).message == "**** ****"
    words, data = split(log)
    clean(*words)
    assert data == [CONTROL] * 3


def test_l10_what_one_connection_learns_all_know_that_share_its_secrets() -> None:
    """A lane's transforms see what its source has changed."""
    secrets = Masker([SECRET])

    def made(role: Any, *said: Any) -> Connection:
        does = PlayedConnector(read=saying(*said), apply=saying(*said))
        return MemoryProtocol(does).connect(Start(role=role), secrets, ConnectionStats())

    transform = run(made("transform", *WORDS), "transform")
    list(run(made("source", CONTROL), "source"))
    clean(*transform)


# -- connectors that print lines: real processes

AIRBYTE = """
import json, os, sys
def say(**message): print(json.dumps(message), flush=True)
schema = {"type": "object", "properties": {"key": {"type": "string", "airbyte_secret": True}}}
if sys.argv[-1] == "spec":
    say(type="SPEC", spec={"connectionSpecification": schema,
                           "supported_destination_sync_modes": ["append"]})
    sys.exit()
key = json.load(open(sys.argv[sys.argv.index("--config") + 1]))["key"]
late = "LATE"
print("stderr", key, file=sys.stderr, flush=True)
say(type="CONTROL", control={"type": "CONNECTOR_CONFIG", "emitted_at": 1,
                             "connectorConfig": {"config": {"key": key, "token": late}}})
say(type="LOG", log={"level": "INFO", "message": "log " + key + late, "stack_trace": late + key})
print("a text line " + key + late, flush=True)
say(type=key, **{late: key})
if sys.argv[1] == "check":
    say(type="CONNECTION_STATUS",
        connectionStatus={"status": "FAILED", "message": "wrong " + key + late})
if sys.argv[1] == "write":
    for line in sys.stdin:
        state = json.loads(line)
        if state["type"] == "STATE":
            say(type="STATE", state={"type": "LEGACY", "data": {"never sent": key + late}})
            say(type="RECORD", record={"stream": key, "data": {"late": late}, "emitted_at": 1})
if sys.argv[1] == "read":
    say(type="STATE", state={"type": "LEGACY", "data": {"cursor": key}})
say(type="TRACE", trace={"type": "ERROR", "emitted_at": 1, "error": {
    "message": "bad " + key + late, "internal_message": key + late, "stack_trace": key + late,
    "failure_type": "config_error"}})
print("last words", key, late, file=sys.stderr, flush=True)
sys.exit(1)
"""

SINGER = """
import json, sys
if "--about" in sys.argv:
    schema = {"type": "object", "properties": {"key": {"type": "string", "secret": True}}}
    print(json.dumps({"name": "tap-x", "settings": schema, "capabilities": ["catalog"]}))
    sys.exit()
file = sys.argv[sys.argv.index("--config") + 1]
key = json.load(open(file))["key"]
late = "LATE"
print("INFO", key, file=sys.stderr, flush=True)
if "--discover" not in sys.argv:
    if ROLE == "tap":
        json.dump({"key": key, "token": late}, open(file, "w"))
        print(json.dumps({"type": "STATE", "value": {"cursor": key}}), flush=True)
    else:
        for line in sys.stdin:
            print(json.dumps({"bookmarks": {key: late}}), flush=True)
    print("a text line " + key, flush=True)
    print(json.dumps({"type": key, "token": key}), flush=True)
print("CRITICAL bad", key, late if ROLE == "tap" and "--discover" not in sys.argv else "",
      file=sys.stderr)
sys.exit(1)
"""


def connector(tmp_path: Path, role: type[RunnableConnector], log: list[Any], protocol: str) -> Any:
    body = AIRBYTE if protocol == "airbyte" else SINGER
    body = body.replace("LATE", LATE)
    body = body.replace("ROLE", "'tap'" if role is SourceConnector else "'target'")
    file = tmp_path / "connector"
    file.write_text(f"#!{sys.executable} -S\n{body}")
    file.chmod(0o755)
    return resolve(role, f"{protocol}:./connector", tmp_path, base=tmp_path, log=log.append)


def opened(launch: Launch, stderr: list[str]) -> tuple[Connection, ConnectionStats]:
    stats = ConnectionStats()
    return connect(launch, Masker([SECRET]), stats, stderr=stderr.append), stats


def answered(log: list[Any]) -> list[Any]:
    """What was logged but for stderr (see ``printed``)."""
    lines = [e.message for e in log if isinstance(e, LogEvent)]
    printed(lines)
    return [e for e in split(log)[0] if not (isinstance(e, LogEvent) and "last words" in e.message)]


PROTOCOLS = pytest.mark.parametrize("protocol", ["airbyte", "singer"])


@PROTOCOLS
def test_l10_a_source_that_says_its_secrets_when_it_is_asked(tmp_path: Path, protocol: str) -> None:
    log: list[Any] = []
    source = connector(tmp_path, SourceConnector, log, protocol)
    result = source.check(CONFIG)
    assert not result.succeeded and "****" in result.message
    with pytest.raises(SourceError) as caught:
        source.discover(CONFIG)
    clean(result, caught.value, *answered(log))


@PROTOCOLS
def test_l10_a_source_that_says_its_secrets_while_it_is_read(tmp_path: Path, protocol: str) -> None:
    stderr: list[str] = []
    launch = connector(tmp_path, SourceConnector, [], protocol).launch()
    connection, stats = opened(launch, stderr)
    streams = () if protocol == "singer" else (WANTED,)
    request = ReadRequest(config=CONFIG, streams=streams, open=not streams, timeouts=QUICK)
    events, error = heard(connection.read(request))
    words, data = split(events)
    clean(*words, *filter(None, [error]))
    printed(stderr)
    kinds = {type(e) for e in words}
    assert kinds >= {LogEvent, Error, SkippedItems, ConnectorExited}
    assert any(isinstance(e, Control) and e.config["token"] == LATE for e in data)
    assert [SECRET in e.blob for e in data if isinstance(e, State)] == [True], "the source's own"
    assert stats.spoke and stats.bytes > 0


@PROTOCOLS
def test_l10_a_destination_that_says_its_secrets(tmp_path: Path, protocol: str) -> None:
    log: list[Any] = []
    stderr: list[str] = []
    destination = connector(tmp_path, DestinationConnector, log, protocol)
    if protocol == "airbyte":
        clean(destination.check(CONFIG), *answered(log))
    connection, stats = opened(destination.launch(), stderr)
    schema = RowSchema((Field("id", "id", DataType(Kind.integer)),), 1)
    stream = WriteStream(configured=WANTED, target=A, schemas={1: schema}, latest=1)
    request = WriteRequest(
        config=CONFIG, streams=(stream,), source_protocol=protocol, timeouts=QUICK, tick=0.2
    )
    mark = StoredState(StateScope(StateType.legacy), '{"type":"LEGACY","data":{"cursor":1}}')
    feed: list[Feed] = [StateMark(1, mark)]
    answers, error = heard(connection.write(request, iter(feed)))
    words, _ = split(answers)
    clean(*words, *filter(None, [error]))
    printed(stderr)
    assert {type(e) for e in words} >= {Error, ConnectorExited}
    assert stats.written > 0


def test_l10_an_error_of_the_start_is_masked() -> None:
    launch = Launch(protocol="singer", role="destination", command=(f"./no/{SECRET}",), cwd="/tmp")
    connection, _ = opened(launch, [])
    request = WriteRequest(config=CONFIG, streams=(), source_protocol="singer")
    _, error = heard(connection.write(request, iter(())))
    assert isinstance(error, DestinationError)
    clean(error)
