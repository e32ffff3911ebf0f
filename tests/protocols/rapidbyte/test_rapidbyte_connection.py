"""L10: a WebAssembly component that says its secrets, in every role: what its Connection gives is
masked, and what it learns of the variables that the component is given is masked as well."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rapidbyte_guests

from penstock.codec.arrow import part_schema
from penstock.connectors.launch import Launch, connect
from penstock.errors import PenstockError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import ConnectorExited, Error, LogEvent
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.connection import Connection
from penstock.protocols.reading import ReadRequest
from penstock.protocols.transforming import TransformRequest
from penstock.protocols.writing import Rows, WriteRequest, WriteStream
from penstock.runtimes.contract import Component, ConnectionStats, RunTimeouts
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.component import digest_of

SECRET, GIVEN = "hunter2-hunter2", "of-the-environment"
A = StreamId(None, "a")
WANTED = ConfiguredStream(
    stream=Stream(id=A, json_schema={}),
    sync_mode=SyncMode.full_refresh,
    destination_sync_mode=DestinationSyncMode.append,
)
ECHO = {"mode": "echo-err", "password": SECRET, "other": GIVEN}
Open = Callable[..., tuple[Connection, ConnectionStats]]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """``opened(role, file)``: a component that is given a variable."""
    monkeypatch.setenv("MY_TOKEN", GIVEN)

    def make(role: Any, file: str = "guest.c") -> tuple[Connection, ConnectionStats]:
        path = tmp_path / f"{role}.wasm"
        path.write_bytes(rapidbyte_guests.c_guest(role, file))
        modes = {
            "source": {"supported_sync_modes": ["full_refresh"]},
            "destination": {"supported_write_modes": [{"mode": "append"}]},
            "transform": {},
        }
        manifest = {
            "id": "them/says", "name": "Says", "version": "1", "protocol_version": "4",
            "roles": {role: modes[role]}, "permissions": {"env": {"allowed_vars": ["MY_TOKEN"]}},
        }  # fmt: skip
        component = Component(
            path=str(path),
            digest=digest_of(path.read_bytes()),
            cache=str(rapidbyte_guests.CACHE / "compiled"),
            settings={"assume_manifest": manifest},
        )
        stats = ConnectionStats()
        launch = Launch(protocol="rapidbyte", role=role, component=component)
        return connect(launch, Masker([SECRET]), stats), stats

    return make


def clean(*told: Any) -> None:
    text = " ".join(f"{t.as_dict()} {t}" if isinstance(t, PenstockError) else repr(t) for t in told)
    assert "****" in text
    assert SECRET not in text and GIVEN not in text, text


def test_a_source_that_says_its_secrets_in_its_log_and_its_error(opened: Open) -> None:
    connection, stats = opened("source", "script.c")
    config = {"a": "tell password ; tell other", "password": SECRET, "other": GIVEN}
    events = list(connection.read(ReadRequest(config=config, streams=(WANTED,))))
    assert [e.message for e in events if isinstance(e, LogEvent)] == ["****", "****"]
    clean(*events)
    assert stats.spoke
    failing, _ = opened("source")
    events = list(failing.read(ReadRequest(config=ECHO, streams=(WANTED,))))
    assert [type(e) for e in events if isinstance(e, Error | ConnectorExited)] == [
        Error,
        ConnectorExited,
    ]
    clean(*events)


@pytest.mark.parametrize("ask", ["check", "discover"])
def test_a_source_that_says_its_secrets_when_it_is_asked(opened: Open, ask: str) -> None:
    connection, _ = opened("source")
    log: list[Any] = []
    with pytest.raises(PenstockError) as caught:
        getattr(connection, ask)(ECHO, RunTimeouts(), log.append)
    clean(caught.value, *log)
    if ask == "check":
        found = connection.check({**ECHO, "mode": "echo-validate"}, RunTimeouts(), log.append)
        clean(found)


def test_a_transform_that_says_its_secrets(opened: Open) -> None:
    connection, _ = opened("transform")
    request = TransformRequest(config=ECHO, stream=WANTED, scope=A.key)
    clean(*connection.apply(request, iter([pa.table({"id": [1]})])))
    with pytest.raises(PenstockError) as caught:
        connection.outline(request, pa.schema({"id": pa.int64()}))
    clean(caught.value)


def test_a_destination_that_says_its_secrets(opened: Open) -> None:
    connection, _ = opened("destination")
    schema = RowSchema((Field("id", "id", DataType(Kind.integer)),), 1)
    target = WriteStream(configured=WANTED, target=A, schemas={1: schema}, latest=1)
    request = WriteRequest(config=ECHO, streams=(target,), source_protocol="airbyte", tick=0.1)

    def feed() -> Iterator[Rows]:
        shape = part_schema(schema)
        values = [pa.nulls(1, f.type) for f in shape]
        yield Rows(A, 1, pa.RecordBatch.from_arrays(values, schema=shape))

    clean(*connection.write(request, feed()))
