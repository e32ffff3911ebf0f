"""Configs against the schema a connector published (protocol, Actor Specification; L10)."""

from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.model.catalog import ConnectorSpec
from penstock.protocols.json_schema.config_check import secret_values, validate_config

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


OPEN = {"type": "object", "properties": {"count": {"type": "integer"}, "seed": {}}}


def notes(schema: dict[str, Any], config: dict[str, Any]) -> list[str]:
    return validate_config(
        ConnectorSpec(protocol="airbyte", config_schema=schema), config, "airbyte_secret"
    )


def test_a_key_that_the_schema_does_not_name_is_a_note() -> None:
    assert notes(OPEN, {"cuont": 5, "zzz": 1, "seed": 1}) == [
        "config.cuont: the connector's schema does not name it; did you mean 'count'?",
        "config.zzz: the connector's schema does not name it",
    ]
    assert notes(OPEN, {"count": 5}) == []


def test_where_others_are_welcome_only_a_slip_is_told() -> None:
    """Most connectors write ``additionalProperties: true`` whether or not they read others."""
    welcome = {**OPEN, "additionalProperties": True}
    assert notes(welcome, {"cuont": 5, "zzz": 1}) == [
        "config.cuont: the connector's schema does not name it; did you mean 'count'?"
    ]
    assert notes(welcome, {"count": 5, "counts": 1}) == []  # the one it is near to is there


@pytest.mark.parametrize(
    "more",
    [
        {"patternProperties": {"^x-": {}}},
        {"additionalProperties": {"type": "string"}},
    ],
)
def test_keys_that_a_schema_means_are_no_slips(more: dict[str, Any]) -> None:
    assert notes({**OPEN, **more}, {"x-cuont": "a"}) == []


def test_a_schema_that_names_nothing_says_nothing() -> None:
    for schema in ({}, {"type": "object"}, {"properties": {}}):
        assert notes(schema, {"anything": {"at": "all"}}) == []


def test_keys_are_known_from_any_branch_and_any_depth() -> None:
    schema = {
        "definitions": {"login": {"properties": {"user": {}}}},
        "properties": {
            "auth": {
                "oneOf": [
                    {"properties": {"mode": {"const": "a"}, "token": {}}},
                    {"allOf": [{"$ref": "#/definitions/login"}, {"properties": {"mode": {}}}]},
                ]
            },
            "hosts": {"items": {"properties": {"name": {}}}},
        },
    }
    good = {"auth": {"mode": "b", "user": "u"}, "hosts": [{"name": "h"}]}
    assert notes(schema, good) == []
    bad = {"auth": {"mode": "b", "usr": "u"}, "hosts": [{"name": "h"}, {"nmae": "h"}]}
    assert notes(schema, bad) == [
        "config.auth.usr: the connector's schema does not name it; did you mean 'user'?",
        "config.hosts.1.nmae: the connector's schema does not name it; did you mean 'name'?",
    ]


# -- configurations that are credentials

ZOD = {
    "type": "object",
    "properties": {
        "apiKey": {"type": "string"},
        "method": {"enum": ["POST", "PUT", "PATCH"]},
        "base": {"anyOf": [{"type": "string", "default": "https://api.x.io"}]},
        "pin": {"type": "string", "default": "1234"},
    },
}


@pytest.mark.parametrize(
    ("config", "secrets"),
    [
        ({"apiKey": "re_0123456789"}, {"re_0123456789"}),
        ({"url": "https://hooks.x.io/T0/B1"}, {"https://hooks.x.io/T0/B1"}),
        ({"region": "us-east-1", "mail": "a@x.io"}, {"us-east-1", "a@x.io"}),
        ({"deep": [{"lists": [["hush-hush"]]}]}, {"hush-hush"}),
        # what everybody writes, or the schema shows
        ({"method": "PATCH", "base": "https://api.x.io"}, set()),
        ({"on": True, "off": "false", "n": 86400, "t": "86400", "day": "2026-01-02"}, set()),
        ({"mode": "fast", "none": None, "empty": ""}, set()),
        # unless its name tells
        ({"password": "1234", "apiKey": 123456, "pin": "1234"}, {"1234", "123456"}),
        # the parts of a text that connectors take apart
        (
            {"headers": ["Authorization: Bearer abc-def", "X-Key:ghijkl"]},
            {"Authorization: Bearer abc-def", "Bearer abc-def", "abc-def", "X-Key:ghijkl",
             "ghijkl"},
        ),
        ({"account": '{"id": "acme-1", "n": 1}'}, {'{"id": "acme-1", "n": 1}', "acme-1"}),
        ({"text": "{no json"}, {"{no json"}),
    ],
)  # fmt: skip
def test_l10_every_text_of_credentials_is_a_secret(
    config: dict[str, Any], secrets: set[str]
) -> None:
    assert set(secret_values(ZOD, config, None)) == secrets


def test_l10_no_value_of_credentials_is_in_a_message() -> None:
    spec = ConnectorSpec(protocol="x", config_schema=ZOD)
    with pytest.raises(ConfigError) as told:
        validate_config(spec, {"apiKey": 12345678, "method": "hush-hush"}, None)
    text = "; ".join(told.value.problems)
    assert "config.apiKey" in text and "config.method" in text and "PUT" in text
    assert "12345678" not in text and "hush" not in text


# -- secrets in addresses


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("https://host/x?token=abc", {"abc"}),
        ("https://host/x?a=1&api_key=k%2Fz&page=2", {"k%2Fz", "k/z"}),
        ("https://host/x#access_token=qwertz", {"qwertz"}),
        ("/v1/items?apikey=qwertz", {"qwertz"}),
        ("https://x.blob/c?sv=2024&sig=abcdefgh%3D", {"abcdefgh%3D", "abcdefgh="}),
        ("https://maps/api?key=AIzaSyA12345", {"AIzaSyA12345"}),
        ("jdbc:postgresql://h/db?user=me&password=hunter2&ssl=true", {"hunter2"}),
        ("Server=h;Uid=me;Pwd=hunter2;AccountKey=QUJD==", {"hunter2", "QUJD=="}),
        ("postgres://me:p%40ss@host:5432/db", {"p%40ss", "p@ss"}),
        ("https://host/x?key=name&sort_key=updated&auth=basic&author=someone", set[str]()),
        ("https://host:8080/x?page_token_size=10", set[str]()),
        ("a = b", set[str]()),
    ],
)
def test_l10_a_secret_in_an_address_is_one(text: str, secrets: set[str]) -> None:
    """However deep it lies, and whatever the schema says of it."""
    config = {"connection": [{"address": text}], "page": 7}
    assert set(secret_values({"type": "object"}, config, "airbyte_secret")) == secrets


def test_l10_a_fault_never_shows_an_address_with_a_token() -> None:
    schema = {"type": "object", "properties": {"url": {"type": "string", "maxLength": 3}}}
    for kind in (schema, {"type": "object", "properties": {"url": {"enum": ["https://a"]}}}):
        spec = ConnectorSpec(protocol="airbyte", config_schema=kind)
        with pytest.raises(ConfigError) as caught:
            validate_config(spec, {"url": "https://host/x?token=hunter2"}, "airbyte_secret")
        assert "hunter2" not in str(caught.value) + str(caught.value.as_dict())
