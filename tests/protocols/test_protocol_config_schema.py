"""Configs against the schema a connector published (protocol, Actor Specification; L10)."""

from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.model.catalog import ConnectorSpec
from penstock.protocols.config_schema import secret_values, validate_config

WORD = "airbyte_secret"
SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["host"],
    "additionalProperties": False,
    "definitions": {"token": {"type": "string", WORD: True, "pattern": "^t"}},
    "properties": {
        "host": {"type": "string"},
        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "mode": {"enum": ["full", "partial"]},
        "pin": {"type": "integer", WORD: True, "minimum": 1000},
        "token": {"$ref": "#/definitions/token"},
        "nested": {"type": "object", WORD: True},
        "tunnels": {
            "type": "array",
            "items": {
                "type": "object",
                "oneOf": [
                    {
                        "required": ["method", "key"],
                        "properties": {
                            "method": {"const": "KEY"},
                            "key": {"type": "string", WORD: True},
                            "port": {"type": "integer"},
                        },
                    },
                    {
                        "required": ["method"],
                        "properties": {"method": {"type": "string", "enum": ["NONE"]}},
                    },
                ],
            },
        },
    },
}


def problems(config: dict[str, Any], schema: dict[str, Any] = SCHEMA) -> list[str]:
    spec = ConnectorSpec(protocol="x", config_schema=schema)
    with pytest.raises(ConfigError) as caught:
        validate_config(spec, config, WORD)
    return caught.value.problems


def test_a_good_config_passes():
    spec = ConnectorSpec(protocol="x", config_schema=SCHEMA)
    good = {"host": "h", "port": 1, "token": "t", "tunnels": [{"method": "KEY", "key": "k"}]}
    assert validate_config(spec, good, WORD) == []


def test_every_fault_is_listed_with_its_path():
    found = problems({"port": 0, "mode": "ful", "other": 1, "tunnels": [{"method": "NONE"}, 5]})
    text = "\n".join(found)
    assert "config: 'host' is required" in found
    assert "config: unknown: other" in found
    assert "config.port: the value is less than the minimum of 1 (got 0)" in found
    assert "config.mode: not one of the allowed values (got 'ful'); did you mean 'full'?" in found
    assert "config.tunnels.1: expected object, not integer (got 5)" in text


def test_alternatives_are_told_apart_by_their_constant():
    one = {"host": "h", "tunnels": [{"method": "KEY", "key": "k", "port": "x"}]}
    assert problems(one) == ["config.tunnels.0.port: expected integer, not string (got 'x')"]
    one = {"host": "h", "tunnels": [{"method": "KEY"}]}
    assert problems(one) == ["config.tunnels.0: 'key' is required"]
    one = {"host": "h", "tunnels": [{"method": "KEYS"}]}
    assert problems(one) == [
        "config.tunnels.0.method: not one of the alternatives (got 'KEYS'); did you mean 'KEY'?"
    ]


def test_l10_no_secret_in_a_message():
    config: dict[str, Any] = {
        "host": "h",
        "token": "SECRET1",
        "pin": 13,
        "nested": "SECRET2",
        "tunnels": [{"method": "NO", "key": "SECRET3"}],
        "mode": "SECRET1",
    }
    text = "\n".join(problems(config))
    assert "SECRET" not in text and "13" not in text
    for place in ("config.token", "config.pin", "config.nested", "config.tunnels.0.method"):
        assert place in text


def test_a_schema_that_is_none_is_a_note_and_not_the_users_fault():
    spec = ConnectorSpec(protocol="x", config_schema={"properties": {"a": {"required": True}}})
    (note,) = validate_config(spec, {"a": 1}, WORD)
    assert "not checked" in note
    remote = ConnectorSpec(protocol="x", config_schema={"$ref": "https://example.org/x"})
    assert len(validate_config(remote, {}, WORD)) == 1


def test_formats_are_not_stricter_than_the_connector():
    schema = {"properties": {"at": {"type": "string", "format": "date-time"}}}
    spec = ConnectorSpec(protocol="x", config_schema=schema)
    assert validate_config(spec, {"at": "yesterday"}, WORD) == []


def test_l10_every_secret_is_found():
    config: dict[str, Any] = {
        "host": "visible",
        "pin": 1234,
        "token": "t-long-secret",
        "nested": {"a": "in", "b": [1.5, True, None, ""]},
        "tunnels": [{"method": "KEY", "key": "k1"}, {"method": "NONE", "key": "k2"}],
    }
    assert secret_values(SCHEMA, config, WORD) == [
        "t-long-secret",
        "1234",
        "1.5",
        "in",
        "k1",
        "k2",
    ]
    assert secret_values(SCHEMA, config, "other_word") == []


def test_secrets_in_combined_and_open_schemas():
    secret = {"type": "string", WORD: True}
    schema = {
        "allOf": [{"properties": {"a": secret}}, {"anyOf": [{"properties": {"b": secret}}]}],
        "additionalProperties": {"type": "string"},
        "properties": {
            "c": {"patternProperties": {"^x": secret}},
            "d": {"additionalProperties": secret},
            "e": {"items": [secret, {"type": "string"}]},
            "loop": {"$ref": "#"},
        },
    }
    config = {
        "a": "A1",
        "b": "B1",
        "c": {"x1": "C1"},
        "d": {"any": "D1"},
        "e": ["E1", "E2"],  # a list of items schemas means any of them
        "loop": {"a": "L1", "loop": {"b": "L2"}},
        "z": "visible",
    }
    found = set(secret_values(schema, config, WORD))
    assert found == {"A1", "B1", "C1", "D1", "E1", "E2", "L1", "L2"}
