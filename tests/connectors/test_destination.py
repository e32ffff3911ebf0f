"""The facade of the destination role, over the stub destination: a real process, no network."""

import json
import sys
from pathlib import Path

import msgspec
import pytest

from penstock.connectors.destination import DestinationConnector
from penstock.connectors.resolve import resolve
from penstock.errors import ConfigError, DestinationError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import Event, LogEvent
from penstock.model.types import RowSchema
from penstock.protocols.writing import WriteStream
from penstock.runtimes.contract import RunTimeouts

STUB = Path(__file__).parents[1] / "stubs" / "stub_destination.py"
SYNCMAVEN = STUB.with_name("stub_syncmaven.py")
SECRET = "s3cr3t-k3y"
BOUNDS = RunTimeouts(start=20, stop=1)


def stub(tmp_path: Path, log: list[Event] | None = None, **options: object) -> DestinationConnector:
    words = f"airbyte:{sys.executable} {STUB} --with '{json.dumps(options)}'"
    heard = [] if log is None else log
    return resolve(
        DestinationConnector, words, tmp_path / "connectors", log=heard.append, base=tmp_path
    )


def stream(mode: DestinationSyncMode) -> WriteStream:
    configured = ConfiguredStream(
        stream=Stream(id=StreamId(None, "s"), json_schema={}),
        sync_mode=SyncMode.full_refresh,
        destination_sync_mode=mode,
    )
    return WriteStream(
        configured=configured, target=configured.id, schemas={1: RowSchema(())}, latest=1
    )


def test_spec_check_problems_and_fidelity_of_a_command(tmp_path: Path) -> None:
    destination = stub(tmp_path, modes=["append"])
    assert destination.spec().abilities["supported_destination_sync_modes"] == ["append"]
    assert destination.check({}).succeeded
    assert destination.problems([stream(DestinationSyncMode.append)], {}, BOUNDS) == []
    refused = destination.problems([stream(DestinationSyncMode.overwrite)], {}, BOUNDS)
    assert "overwrite" in refused[0] and "append" in refused[0]
    assert any("at least once" in n for n in destination.fidelity("airbyte", [], {}, {}, BOUNDS))
    assert destination.describe()["path"] == sys.executable


ANONYMOUS = {"told_by_name": ["s"], "others": ["t"], "none": [], "refused": None}


@pytest.mark.parametrize("anonymous", ANONYMOUS.values(), ids=ANONYMOUS)
def test_streams_that_a_destination_tells_only_with_credentials_are_no_problem(
    tmp_path: Path, anonymous: list[str] | None
) -> None:
    """Syncmaven: `describe-streams` has the credentials so that streams may depend on them."""
    sink = tmp_path / "heard"
    told = {"anonymous": anonymous, "streams": ["t", "s"], "sink": str(sink)}
    command = f"syncmaven:{sys.executable} {STUB.with_name('stub_syncmaven.py')}"
    words = f"{command} '{json.dumps(told)}'"
    destination = resolve(DestinationConnector, words, tmp_path / "connectors", base=tmp_path)
    append = stream(DestinationSyncMode.append)
    for _ in range(2):
        assert destination.problems([append], {"key": SECRET}, BOUNDS) == []
    asked = [json.loads(line) for line in sink.read_text().splitlines()]
    given = [m["payload"]["credentials"] for m in asked if m["type"] == "describe-streams"]
    again = [] if anonymous == ["s"] else [{"key": SECRET}]
    assert given == [{"$empty": True}, *again], "once with the configuration, where it must be"
    unknown = msgspec.structs.replace(append, into="u")
    (problem,) = destination.problems([unknown], {"key": SECRET}, BOUNDS)
    assert "no stream 'u'" in problem


def test_a_destination_that_does_not_tell_its_streams_with_credentials_either_is_refused(
    tmp_path: Path,
) -> None:
    told = json.dumps({"halt": {"at": "describe-streams"}, "anonymous": None, "streams": None})
    words = f"syncmaven:{sys.executable} {STUB.with_name('stub_syncmaven.py')} '{told}'"
    destination = resolve(DestinationConnector, words, tmp_path / "connectors", base=tmp_path)
    with pytest.raises(DestinationError) as refused:
        destination.problems([stream(DestinationSyncMode.append)], {}, BOUNDS)
    assert refused.value.code == "destination.halted"


def test_config_is_validated_and_a_failed_check_hides_the_secret(tmp_path: Path) -> None:
    """L10."""
    heard: list[Event] = []
    destination = stub(tmp_path, heard, check="FAILED")
    result = destination.check({"api_key": SECRET})
    assert not result.succeeded and result.message == "no such place, and **** is wrong"
    with pytest.raises(ConfigError):
        destination.check({"api_key": 5})
    assert destination.secrets({"api_key": SECRET}) == [SECRET]


def test_l10_everything_in_a_syncmaven_destinations_config_is_masked(tmp_path: Path) -> None:
    """No schema of the protocol marks secrets, and published connectors log what they are sent."""
    heard: list[Event] = []
    command = f"syncmaven:{sys.executable} {SYNCMAVEN} '{json.dumps({'echo': True})}'"
    destination = resolve(
        DestinationConnector, command, tmp_path / "connectors", log=heard.append, base=tmp_path
    )
    key = {"private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n", "project": "acme-1"}
    config = {"apiKey": "re_0123456789", "nested": [{"user": "ann@x.io"}], "key": json.dumps(key)}
    assert destination.check(config).succeeded
    said = "\n".join(e.message for e in heard if isinstance(e, LogEvent))
    assert "Received message describe-streams" in said and "****" in said
    for secret in ("re_0123456789", "ann@x.io", "MIIEvQIBADANBg", "acme-1"):
        assert secret not in said


def test_failures_are_a_destinations_with_its_exit_code(tmp_path: Path) -> None:
    broken = resolve(DestinationConnector, "airbyte:'sh -c \"exit 4\"'", tmp_path, base=tmp_path)
    with pytest.raises(DestinationError) as told:
        broken.spec()
    assert told.value.code == "destination.exited" and told.value.exit_code == 5
    missing = resolve(DestinationConnector, "airbyte:./nothing", tmp_path, base=tmp_path)
    with pytest.raises(DestinationError) as gone:
        missing.spec()
    assert gone.value.code == "connector.not_found" and str(tmp_path) in gone.value.message


def test_stderr_is_heard(tmp_path: Path) -> None:
    heard: list[Event] = []
    words = f"airbyte:sh -c 'echo hello >&2; exec {sys.executable} {STUB} spec'"
    resolve(DestinationConnector, words, tmp_path, log=heard.append, base=tmp_path).spec()
    assert any(isinstance(e, LogEvent) and e.message == "hello" for e in heard)


@pytest.mark.parametrize("words", ["parquet:./lake", "airbyte:source-faker"])
def test_what_is_no_destination_is_refused(words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        resolve(DestinationConnector, words, tmp_path)
    assert told.value.code == "connector.not_a_destination"
