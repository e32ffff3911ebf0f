"""Both directions of every Airbyte message (protocol 0.18, both specifications)."""

import json
from typing import Any

import pytest

from penstock.protocols.airbyte.enums import ChangeReason, MessageType, TraceType
from penstock.protocols.airbyte.messages import (
    AirbyteMessage,
    AirbyteStateMessage,
    ConfiguredAirbyteCatalog,
    ConnectorSpecification,
)
from penstock.protocols.stdio import wire_struct

DESCRIPTOR = {"name": "users", "namespace": "shop", "future": 1}
STREAM = {
    "name": "users",
    "namespace": "shop",
    "json_schema": {"type": "object", "properties": {"id": {"type": "integer"}}},
    "supported_sync_modes": ["full_refresh", "incremental", "future_mode"],
    "source_defined_cursor": True,
    "default_cursor_field": ["updated_at"],
    "source_defined_primary_key": [["id"], ["meta", "key"]],
    "is_resumable": True,
    "is_file_based": False,
    "future": {"a": [1, 2.50]},
}
OAUTH = {
    "oauth_user_input_from_connector_config_specification": {"type": "object"},
    "oauth_connector_input_specification": {"a": 1},
    "complete_oauth_output_specification": {"b": 1},
    "complete_oauth_server_input_specification": {"c": 1},
    "complete_oauth_server_output_specification": {"d": 1},
    "future": True,
}
SPEC = {
    "protocol_version": "0.18.0",
    "documentationUrl": "https://example.org/d",
    "changelogUrl": "https://example.org/c",
    "connectionSpecification": {"type": "object", "x": 1.5},
    "supportsIncremental": True,
    "supportsNormalization": False,
    "supportsDBT": False,
    "supported_destination_sync_modes": ["append", "soft_delete"],
    "authSpecification": {
        "auth_type": "oauth2.0",
        "oauth2Specification": {
            "rootObject": ["credentials", 0],
            "oauthFlowInitParameters": [["a"]],
            "oauthFlowOutputParameters": [["b"]],
        },
    },
    "advanced_auth": {
        "auth_flow_type": "oauth2.0",
        "predicate_key": ["credentials", "auth_type"],
        "predicate_value": "oauth",
        "oauth_config_specification": OAUTH,
    },
    "future": "x",
}
TRACES: list[dict[str, Any]] = [
    {
        "type": "ERROR",
        "emitted_at": 1795184964968.2852,
        "error": {
            "message": "m",
            "internal_message": "i",
            "stack_trace": "s",
            "failure_type": "transient_error",
            "stream_descriptor": DESCRIPTOR,
            "future": 1,
        },
    },
    {
        "type": "ESTIMATE",
        "emitted_at": 1,
        "estimate": {
            "name": "users",
            "namespace": "shop",
            "type": "STREAM",
            "row_estimate": 10,
            "byte_estimate": 20,
        },
    },
    {
        "type": "STREAM_STATUS",
        "emitted_at": 1,
        "stream_status": {
            "stream_descriptor": DESCRIPTOR,
            "status": "RUNNING",
            "reasons": [{"type": "RATE_LIMITED", "rate_limited": {"quota_reset": 5, "f": 1}}],
        },
    },
    {"type": "ANALYTICS", "emitted_at": 1, "analytics": {"type": "t", "value": "v", "f": 1}},
    {"type": "FUTURE", "emitted_at": 1, "future": {}},
]
STATES: list[dict[str, Any]] = [
    {
        "type": "STREAM",
        "stream": {"stream_descriptor": DESCRIPTOR, "stream_state": {"n": 1}, "future": 1},
        "sourceStats": {"recordCount": 0.0},
        "destinationStats": {"recordCount": 2.0, "rejectedRecordCount": 1.0},
        "id": 7,
        "partition_id": "p",
    },
    {"type": "STREAM", "stream": {"stream_descriptor": {"name": ""}, "stream_state": None}},
    {
        "type": "GLOBAL",
        "global": {
            "shared_state": {"lsn": 123456789012345678901234567890.123456789},
            "stream_states": [
                {"stream_descriptor": DESCRIPTOR, "stream_state": None},
                {"stream_descriptor": {"name": "b", "namespace": None}},
            ],
            "future": [None],
        },
    },
    {"type": "LEGACY", "data": {"cursor": "x"}},
    {"data": {"V1": True}},
]
MESSAGES: list[dict[str, Any]] = [
    {
        "type": "RECORD",
        "record": {
            "namespace": "shop",
            "stream": "users",
            "data": {"id": 1, "none": None},
            "emitted_at": 1700000000000,
            "meta": {
                "changes": [
                    {"field": "a", "change": "NULLED", "reason": r, "future": 1}
                    for r in [*ChangeReason, "FUTURE_REASON"]
                ],
                "future": 1,
            },
            "file_reference": {
                "staging_file_url": "u",
                "source_file_relative_path": "p",
                "file_size_bytes": 3,
            },
            "future": 1,
        },
        "future": None,
    },
    {"type": "LOG", "log": {"level": "WARN", "message": "m", "stack_trace": "s", "future": 1}},
    {"type": "SPEC", "spec": SPEC},
    {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "FAILED", "message": "m", "f": 1}},
    {"type": "CATALOG", "catalog": {"streams": [STREAM, {"name": "b"}], "future": 1}},
    {
        "type": "CONTROL",
        "control": {
            "type": "CONNECTOR_CONFIG",
            "emitted_at": 1.5,
            "connectorConfig": {"config": {"token": "t"}, "future": 1},
            "future": 1,
        },
    },
    {
        "type": "DESTINATION_CATALOG",
        "destination_catalog": {
            "operations": [
                {
                    "object_name": "o",
                    "sync_mode": "update",
                    "json_schema": {},
                    "matching_keys": [["id"]],
                    "future": 1,
                }
            ]
        },
    },
    {"type": "FUTURE", "future": {"a": 1}},
    *({"type": "TRACE", "trace": t} for t in TRACES),
    *({"type": "STATE", "state": s} for s in STATES),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: str(m["type"]))
def test_every_message_survives_a_round_trip_unknown_fields_included(message: dict[str, Any]):
    """Protocol, Messages/Common: unknown properties are allowed everywhere, and pass untouched."""
    text = json.dumps(message)
    assert json.loads(wire_struct.encode(wire_struct.decode(AirbyteMessage, text))) == message


def test_the_round_trip_covers_every_type_the_protocol_knows():
    assert {m["type"] for m in MESSAGES} >= set(MessageType)
    assert {t["type"] for t in TRACES} >= set(TraceType)


def test_the_configured_catalog_survives_a_round_trip():
    entry = {
        "stream": STREAM,
        "sync_mode": "incremental",
        "destination_sync_mode": "append_dedup",
        "cursor_field": ["updated_at"],
        "primary_key": [["id"]],
        "destination_object_name": "o",
        "include_files": True,
        "generation_id": 3,
        "minimum_generation_id": 0,
        "sync_id": 9,
        "future": {},
    }
    text = json.dumps({"streams": [entry], "future": 1})
    catalog = wire_struct.decode(ConfiguredAirbyteCatalog, text)
    assert catalog.streams[0].generation_id == 3
    assert json.loads(wire_struct.encode(catalog)) == json.loads(text)


def test_numbers_of_unknown_fields_keep_every_digit():
    text = b'{"data":{"n":12345678901234567890.123456789,"x":1.10},"u":0.10}'
    assert wire_struct.encode(wire_struct.decode(AirbyteStateMessage, text)).replace(b" ", b"") in (
        b'{"u":0.10,"data":{"n":12345678901234567890.123456789,"x":1.10}}',
        b'{"data":{"n":12345678901234567890.123456789,"x":1.10},"u":0.10}',
    )


def test_state_type_is_read_and_type_is_written():
    """Protocol, AirbyteStateMessage V2 names the discriminator `state_type`."""
    body = {"stream_descriptor": {"name": "a"}, "stream_state": {}}
    state = wire_struct.decode(
        AirbyteStateMessage, json.dumps({"state_type": "STREAM", "stream": body})
    )
    assert state.type == "STREAM"
    assert json.loads(wire_struct.encode(state))["type"] == "STREAM"


def test_a_changed_field_wins_over_what_was_read():
    spec = wire_struct.decode(
        ConnectorSpecification, '{"connectionSpecification":{},"documentationUrl":null,"new":1}'
    )
    spec.documentation_url = "https://example.org"
    assert json.loads(wire_struct.encode(spec)) == {
        "connectionSpecification": {},
        "documentationUrl": "https://example.org",
        "new": 1,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"x": 1}', "type"),
        ('{"type":"LOG","log":{"level":"INFO"}}', "message"),
        ('{"type":"RECORD","record":{"stream":"a","data":[],"emitted_at":1}}', "record.data"),
        ('{"type":"CONNECTION_STATUS","connectionStatus":{"status":"MAYBE"}}', "MAYBE"),
        ("not json", "JSON"),
        ("[]", "object"),
    ],
)
def test_a_wrong_shape_says_where(text: str, words: str):
    with pytest.raises(wire_struct.WireError, match=words):
        wire_struct.decode(AirbyteMessage, text)


def test_an_optional_field_that_does_not_fit_costs_nothing_else():
    entry = {
        "stream": {**STREAM, "is_resumable": "yes", "default_cursor_field": [5]},
        "sync_mode": "incremental",
        "destination_sync_mode": "append",
        "generation_id": "three",
    }
    catalog, faults = wire_struct.lenient(ConfiguredAirbyteCatalog, {"streams": [entry]})
    (found,) = catalog.streams
    assert [f.partition(":")[0] for f in faults] == [
        "default_cursor_field", "is_resumable", "generation_id",
    ]  # fmt: skip
    assert (found.generation_id, found.stream.is_resumable, found.stream.name) == (
        None, None, "users",
    )  # fmt: skip
    assert found.stream.source_defined_primary_key == [["id"], ["meta", "key"]]
    with pytest.raises(wire_struct.WireError, match="destination_sync_mode"):
        wire_struct.lenient(
            ConfiguredAirbyteCatalog, {"streams": [{**entry, "destination_sync_mode": 5}]}
        )
