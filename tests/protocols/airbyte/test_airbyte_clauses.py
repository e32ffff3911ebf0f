"""Clauses of the two Airbyte pages that hold for a connector written from the pages alone."""

import json
from typing import Any

import pytest

from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.events import Event, LogEvent
from penstock.model.types import Kind
from penstock.protocols.airbyte import serve
from penstock.protocols.airbyte.catalog import catalog_of, configured_catalog
from penstock.protocols.airbyte.package import PACKAGE
from penstock.protocols.reading import StreamOverrides
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.memory import MemoryRuntime

SOURCE = PACKAGE.source


def printing(*lines: str) -> MemoryRuntime:
    output = "".join(f"{line}\n" for line in lines).encode()
    return MemoryRuntime(lambda _: [output])


def spec(**more: Any) -> dict[str, Any]:
    body = {"connectionSpecification": {"type": "object"}, **more}
    return {"type": "SPEC", "spec": body}


# -- Interface Invariants: answers


@pytest.mark.parametrize("indent", [0, 1, 4])
def test_an_answer_over_several_lines_is_read(indent: int) -> None:
    """The pages print answers so; parts of it that are messages by themselves do not end it."""
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}}}
    pretty = json.dumps(spec(connectionSpecification=schema), indent=indent)
    heard: list[Event] = []
    runtime = printing("{", "starting", pretty, '{"no": "message"}', "[1]", "done")
    answer = SOURCE.spec(runtime, RunTimeouts(), heard.append)
    assert answer.config_schema == schema
    logged = [e.message for e in heard if isinstance(e, LogEvent)]
    assert logged == [
        "text_line: {",
        "text_line: starting",
        'not_a_message: {"no": "message"}',
        "not_a_message: [1]",
        "text_line: done",
    ]


def test_a_log_of_several_lines_and_a_compact_answer_after_half_an_object() -> None:
    log = json.dumps({"type": "LOG", "log": {"level": "WARN", "message": "slow"}}, indent=2)
    heard: list[Event] = []
    answer = SOURCE.spec(
        printing(log, '{ "type": "SPEC",', json.dumps(spec())), RunTimeouts(), heard.append
    )
    assert answer.config_schema == {"type": "object"}
    assert LogEvent("WARN", "slow") in heard


# -- Actor Specification


def test_a_spec_shows_what_the_page_names() -> None:
    auth = {"auth_type": "oauth2.0", "oauth2Specification": {"rootObject": ["credentials", "0"]}}
    message = spec(supportsNormalization=True, supportsDBT=False, authSpecification=auth)
    found = SOURCE.spec(printing(json.dumps(message)), RunTimeouts(), lambda _: None)
    assert found.abilities == {
        "supportsNormalization": True,
        "supportsDBT": False,
        "authSpecification": auth,
    }


# -- Discover


def test_a_schema_under_the_other_pages_word_is_the_streams() -> None:
    """Specification, Discover: its first example has ``schema``."""
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "v": {}}}
    catalog = catalog_of({"streams": [{"name": "users", "schema": schema}]})
    (stream,) = catalog.streams
    assert stream.json_schema == schema
    assert catalog.notes == (
        "stream users: its catalog has `schema`, which is read as `json_schema`",
    )
    configured = SOURCE.configure(stream, StreamOverrides(columns=("id",)))
    (entry,) = configured_catalog([configured])["streams"]
    assert entry["stream"]["schema"] == entry["stream"]["json_schema"]
    assert [*entry["stream"]["schema"]["properties"]] == ["id"]
    both = {"name": "b", "schema": {"x": 1}, "json_schema": {"type": "object"}}
    assert catalog_of({"streams": [both]}).streams[0].json_schema == {"type": "object"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("String", Kind.string),
        ("BinaryData", Kind.binary),
        ("Boolean", Kind.boolean),
        ("Integer", Kind.integer),
        ("Number", Kind.number),
        ("Date", Kind.date),
        ("TimestampWithTimezone", Kind.timestamp),
        ("TimestampWithoutTimezone", Kind.timestamp_ntz),
        ("TimeWithTimezone", Kind.time_tz),
        ("TimeWithoutTimezone", Kind.time),
        ("Unheard", Kind.json),
    ],
)
@pytest.mark.parametrize(
    "file", ["WellKnownTypes.json", "well_known_types.yaml", "https://x.test/WellKnownTypes.json"]
)
def test_a_reference_to_a_well_known_type_is_that_type(name: str, kind: Kind, file: str) -> None:
    ref = {"$ref": f"{file}#/definitions/{name}"}
    data_type = PACKAGE.schema.data_type
    assert data_type(ref).kind is kind
    assert data_type({"oneOf": [{"type": "null"}, ref]}).kind is kind
    record = data_type({"type": "object", "properties": {"a": {"type": "array", "items": ref}}})
    item = record.fields[0].type.item
    assert (item.kind if item else Kind.json) is kind


# -- Destination, Write


def test_a_host_may_give_a_plain_catalog() -> None:
    """Protocol, Destination, Write: ``write(Config, AirbyteCatalog, stdin)``; the modes are the
    page's defaults."""
    stream = {"name": "users", "json_schema": {"type": "object"}, "namespace": "shop"}
    catalog, (users,) = serve.configured(json.dumps({"streams": [stream]}).encode())
    assert users.id == StreamId("shop", "users")
    modes = users.sync_mode, users.destination_sync_mode
    assert modes == (SyncMode.full_refresh, DestinationSyncMode.append)
    assert "without modes" in catalog.notes[0]
