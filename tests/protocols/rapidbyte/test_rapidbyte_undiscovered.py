"""``discover`` and ``validate`` are optional (section 3): what a component without them comes to,
and what is assumed of streams that nobody told of."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import rapidbyte_guests

from penstock.errors import PenstockError, SourceError
from penstock.model.catalog import (
    Catalog,
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import Batch, LogEvent, Schema
from penstock.model.types import DataType, Kind
from penstock.protocols.json_schema.exact_types import object_schema
from penstock.protocols.rapidbyte import source
from penstock.protocols.rapidbyte.guest import probe
from penstock.protocols.rapidbyte.guest.session import ComponentSession
from penstock.protocols.rapidbyte.package import PACKAGE
from penstock.protocols.rapidbyte.wire.arrow_ipc import frame_of
from penstock.protocols.rapidbyte.wire.schema import changed_schema, schema_fields
from penstock.protocols.reading import ReadRequest
from penstock.runtimes.contract import Component, RunTimeouts
from penstock.runtimes.wasm.component import ComponentRuntime, digest_of

A = StreamId(None, "a")


def answered(monkeypatch: pytest.MonkeyPatch, code: str) -> tuple[Any, list[Any]]:
    """What discovery comes to where the connector answers with this error."""

    def fails(*_: Any) -> Any:
        raise SourceError("no", connector={"category": "internal", "code": code})

    what = SimpleNamespace(stage=lambda *_: None, found=SimpleNamespace(manifest=None))
    monkeypatch.setattr(source, "open_component", lambda _: what)
    monkeypatch.setattr(source.probe, "discover", fails)
    said: list[Any] = []
    runtime: Any = None
    return PACKAGE.source.discover(runtime, {}, RunTimeouts(), said.append), said


@pytest.mark.parametrize(
    "code", ["NOT_IMPLEMENTED", "DiscoverUnsupported", "unimplemented", "UNSUPPORTED_OPERATION"]
)
def test_a_source_that_says_that_it_has_no_discover_has_no_streams_to_tell(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    found, said = answered(monkeypatch, code)
    assert found == Catalog(()) and [type(s) for s in said] == [LogEvent]


@pytest.mark.parametrize("code", ["CONNECTION_REFUSED", "UNSUPPORTED_SERVER_VERSION"])
def test_another_failure_of_discover_is_one(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    with pytest.raises(SourceError):
        answered(monkeypatch, code)


def test_a_component_without_the_function_is_not_asked() -> None:
    instance = SimpleNamespace(exports=lambda interface, function: function != "discover")
    session: Any = SimpleNamespace(_instance=instance, _interface="source")
    assert ComponentSession.discover(session).streams == []


@pytest.mark.parametrize("role", [PACKAGE.source, PACKAGE.destination, PACKAGE.transform])
def test_a_component_without_validate_passes_its_check_with_a_warning(
    tmp_path: Path, role: Any
) -> None:
    path = tmp_path / "component.wasm"
    path.write_bytes(rapidbyte_guests.c_guest_without(role.role, "validate"))
    cache = str(rapidbyte_guests.CACHE / "compiled")
    made = Component(path=str(path), digest=digest_of(path.read_bytes()), cache=cache)
    said: list[Any] = []
    found = role.check(ComponentRuntime(made), {}, RunTimeouts(), said.append)
    assert found.succeeded and "no validate" in found.message
    assert [e.message for e in said if e.level == "WARN"] == [found.message]
    with pytest.raises(PenstockError) as failed:
        role.check(ComponentRuntime(made), {"mode": "open-err"}, RunTimeouts(), said.append)
    assert failed.value.code == "connector.failed", "its open is asked all the same"


@pytest.mark.parametrize(
    ("code", "none"),
    [
        ("NOT_IMPLEMENTED", True),
        ("VALIDATE_NOT_SUPPORTED", True),
        ("UNSUPPORTED_SERVER_VERSION", False),
        ("DISCOVER_NOT_SUPPORTED", False),
        ("AUTH_FAILED", False),
    ],
)
def test_a_component_that_says_that_it_has_no_validate_passes_too(
    monkeypatch: pytest.MonkeyPatch, code: str, none: bool
) -> None:
    def fails(*_: Any) -> Any:
        raise SourceError("no such thing", connector={"category": "internal", "code": code})

    monkeypatch.setattr(probe, "ask", fails)
    stage: Any = None
    if not none:
        with pytest.raises(SourceError):
            probe.check(stage, lambda _: None)
        return
    report = probe.check(stage, lambda _: None)
    assert report.status == "warning" and "no such thing" in report.message


@pytest.mark.parametrize(
    ("policy", "assumed", "names"),
    [("fail", True, ["id"]), ("ignore", True, None), ("fail", False, None)],
)
def test_the_first_rows_say_which_columns_an_undiscovered_stream_no_longer_has(
    tmp_path: Path, policy: str, assumed: bool, names: list[str] | None
) -> None:
    """Where ``removed_column`` asks for it: a catalog says it of the others. A frame without rows
    says nothing, and what comes later is a column again."""
    path = tmp_path / "source.wasm"
    path.write_bytes(rapidbyte_guests.c_guest("source", "script.c"))
    frames = [{"id": [], "y": []}, {"id": [1]}, {"id": [2]}, {"id": [3], "x": [4]}]
    config: dict[str, Any] = {"a": " ; ".join(f"frame f{n}" for n in range(len(frames)))}
    for number, columns in enumerate(frames):
        arrays = {name: pa.array(values, pa.int64()) for name, values in columns.items()}
        config[f"f{number}"] = bytes(frame_of(pa.RecordBatch.from_pydict(arrays))).hex()
    schema = object_schema({name: DataType(Kind.integer) for name in ("id", "x", "y")})
    asked = ConfiguredStream(
        stream=Stream(id=A, json_schema=schema, assumed=assumed),
        sync_mode=SyncMode.full_refresh,
        destination_sync_mode=DestinationSyncMode.append,
    )
    made = Component(
        path=str(path),
        digest=digest_of(path.read_bytes()),
        cache=str(rapidbyte_guests.CACHE / "compiled"),
        settings={"schema_evolution": {"removed_column": policy}},
    )
    events = list(
        PACKAGE.source.read(ComponentRuntime(made), ReadRequest(config=config, streams=(asked,)))
    )
    told = [sorted(e.json_schema["properties"]) for e in events if isinstance(e, Schema)]
    assert told == ([] if names is None else [names, ["id", "x"]])
    assert sum(len(e.bodies) for e in events if isinstance(e, Batch)) == 3


@pytest.mark.parametrize(
    ("script", "told", "rows"),
    [
        # x is known with the second frame, and y, which that one begins, with the third
        ("frame f0 ; frame f1 ; frame f2", [{"x": "integer"}, {"x": "integer", "y": "number"}], 3),
        # what came before a checkpoint does not wait behind it
        ("frame f0 ; raw 0 mark ; frame f1", [{"x": "string"}, {"x": "integer"}], 2),
        ("frame f0", [{"x": "string"}], 1),
        ("frame f0 ; " * 300 + "frame f1", [{"x": "string"}, {"x": "integer"}], 301),
    ],
)
def test_rows_wait_for_the_type_of_a_column_that_holds_nothing_yet(
    tmp_path: Path, script: str, told: list[dict[str, str]], rows: int
) -> None:
    path = tmp_path / "source.wasm"
    path.write_bytes(rapidbyte_guests.c_guest("source", "script.c"))
    frames = [{"x": pa.nulls(1)}, {"x": pa.array([1]), "y": pa.nulls(1)}, {"y": pa.array([0.5])}]
    if len(told) == 1 or told[1] == {"x": "integer"}:
        del frames[1]["y"]
    config: dict[str, Any] = {"a": script, "mark": json.dumps({"id": 1}).encode().hex()}
    for number, columns in enumerate(frames):
        config[f"f{number}"] = bytes(frame_of(pa.RecordBatch.from_pydict(columns))).hex()
    asked = ConfiguredStream(
        stream=Stream(id=A, json_schema={}, assumed=True),
        sync_mode=SyncMode.full_refresh,
        destination_sync_mode=DestinationSyncMode.append,
    )
    made = Component(
        path=str(path),
        digest=digest_of(path.read_bytes()),
        cache=str(rapidbyte_guests.CACHE / "compiled"),
    )
    events = list(
        PACKAGE.source.read(ComponentRuntime(made), ReadRequest(config=config, streams=(asked,)))
    )
    schemas = [e.json_schema for e in events if isinstance(e, Schema)]
    assert [{f.name: f.type.kind.value for f in schema_fields(s)} for s in schemas] == told
    assert sum(len(e.bodies) for e in events if isinstance(e, Batch)) == rows


def test_frames_decide_what_nobody_told() -> None:
    text, number = DataType(Kind.string), DataType(Kind.integer)
    assert PACKAGE.undiscovered is not None
    stream = PACKAGE.undiscovered(A, {"id": None, "n": number})
    assert stream.assumed and set(stream.sync_modes) == set(SyncMode)
    assert [f.name for f in schema_fields(stream.json_schema)] == ["id", "n"], (
        "so that they can be named"
    )
    frames = pa.schema([("id", pa.string()), ("n", pa.int64())])
    told = changed_schema(stream.json_schema, frames)
    assert told is not None
    assert {f.name: f.type for f in schema_fields(told)} == {"id": text, "n": number}
    assert changed_schema(told, frames) is None
    bare = changed_schema(stream.json_schema, pa.schema([("n", pa.int64())]))
    assert bare is None or [f.name for f in schema_fields(bare)] == ["n"]
