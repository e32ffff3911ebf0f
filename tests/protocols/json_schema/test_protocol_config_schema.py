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


# -- schemas with a fault

SDK: dict[str, Any] = {  # as the Singer SDK 0.52 to 0.54 prints it
    "type": "object",
    "required": ["path"],
    "properties": {
        "path": {"type": ["string"]},
        "primary_keys": {"type": ["array", "null"], "items": {"type": ["string"]}},
        "stream_maps": {
            "type": ["object", "null"],
            "properties": {
                "__else__": {"anyOf": [{"const": "__NULL__"}, {"type": "null"}, "null"]}
            },
        },
    },
}


def test_a_bare_type_in_anyof_costs_no_check_and_is_a_detail() -> None:
    details: list[str] = []
    spec = ConnectorSpec(protocol="x", config_schema=SDK)
    config: dict[str, Any] = {"path": "p", "primary_key": ["id"], "stream_maps": {"__else__": None}}
    assert validate_config(spec, config, WORD, details.append) == [
        "config.primary_key: the connector's schema does not name it; did you mean 'primary_keys'?"
    ]
    assert len(details) == 1 and "stream_maps.properties.__else__.anyOf.2" in details[0]
    assert problems({"primary_keys": "id", "stream_maps": {"__else__": 5}}, SDK) == [
        "config: 'path' is required",
        "config.primary_keys: expected null or array, not string (got 'id')",
        'config.stream_maps.__else__: "__NULL__" was expected (got 5)',
        "config.stream_maps.__else__: fits none of 3 alternatives (the nearest is shown)",
    ]


FAULTY = [  # a faulty part of a schema; a value that only it could refuse; does it cost a check?
    ({"type": ["string", None]}, None, False),
    ({"type": "string", "title": 1, "description": None, "examples": "x"}, "x", False),
    ({"type": "object", "required": ["a", "a"]}, {"a": 1}, False),
    ({"type": "string", "required": False}, "x", False),
    ({"properties": {"b": "string"}}, {"b": "x"}, False),
    ({"type": "str"}, 5, True),
    ({"type": "string", "pattern": "(?<x"}, "x", True),
    ({"minimum": "1"}, 0, True),
    ({"anyOf": {"type": "string"}}, 5, True),
    ({"anyOf": [{"type": "string"}, 7]}, 5, True),
    ({"oneOf": [{"type": "string", "pattern": "("}, {"const": "x"}]}, "x", True),
    ({"not": {"pattern": "("}}, "x", True),
    ({"if": {"pattern": "("}, "then": {"type": "integer"}}, "x", True),
    ({"properties": None, "additionalProperties": False}, {"b": 1}, True),
    ({"patternProperties": {"(": {}}, "additionalProperties": False}, {"b": 1}, True),
    ({"properties": {"not": {"type": "s"}, "oneOf": {}}, "additionalProperties": False},
     {"not": 1, "oneOf": 2}, True),
    ({"items": [{"type": "string"}, 5]}, ["x", 1], True),
    ({"$ref": "#/definitions/none"}, 5, True),
    ({"$ref": "https://example.org/x"}, 5, True),
    ({"dependencies": {"a": "b"}}, {"a": 1}, True),
]  # fmt: skip


@pytest.mark.parametrize(("part", "value", "costs"), FAULTY, ids=lambda v: None)
def test_a_fault_in_a_schema_costs_its_own_check_alone(
    part: dict[str, Any], value: Any, costs: bool
) -> None:
    schema = {
        "type": "object",
        "required": ["port"],
        "properties": {"port": {"type": "integer"}, "odd": part},
    }
    details: list[str] = []
    spec = ConnectorSpec(protocol="x", config_schema=schema)
    found = validate_config(spec, {"port": 1, "odd": value}, WORD, details.append)
    lost = [note for note in found if "invalid here, which is not checked" in note]
    assert (bool(lost), bool(details)) == (costs, not costs)
    assert not costs or "properties.odd" in lost[0]
    assert "config.port: expected integer, not string (got 'x')" in problems(
        {"port": "x", "odd": value}, schema
    )
    assert problems({"odd": value}, schema) == ["config: 'port' is required"]


def test_alternatives_beside_a_fault_are_still_checked() -> None:
    faulty = {"properties": {**SCHEMA["properties"], "odd": {"type": "str"}}, "required": ["host"]}
    one = {"host": "h", "tunnels": [{"method": "KEY"}]}
    assert problems(one, faulty) == ["config.tunnels.0: 'key' is required"]


# -- required, with a default


def test_a_required_property_with_a_default_is_not_missing() -> None:
    schema: dict[str, Any] = {
        "required": ["a", "b", "inner", "linked"],
        "definitions": {
            "linked": {"required": ["x", "y"], "properties": {"x": {"$ref": "#/definitions/x"}}},
            "x": {"type": "integer", "default": 0},
        },
        "properties": {
            "a": {"type": "string", "default": "A"},
            "b": {"type": "string"},
            "inner": {"required": ["c", "d"], "properties": {"c": {"default": None}, "d": {}}},
            "linked": {"$ref": "#/definitions/linked"},
        },
        "allOf": [{"required": ["a"]}],
    }
    assert problems({"inner": {}, "linked": {}}, schema) == [
        "config: 'b' is required",
        "config.inner: 'd' is required",
        "config.linked: 'y' is required",
    ]
    wrong = {"a": 1, "b": "", "inner": {"d": 1}, "linked": {"y": 1}}
    assert problems(wrong, schema) == ["config.a: expected string, not integer (got 1)"]


BRANCHES: dict[str, Any] = {
    "properties": {
        "login": {
            "required": ["region"],
            "properties": {"region": {"default": "eu"}},
            "oneOf": [
                {
                    "required": ["kind", "token", "region"],
                    "properties": {"kind": {"const": "T", "default": "T"}, "token": {}},
                },
                {
                    "required": ["kind", "user", "port"],
                    "properties": {"kind": {"const": "U"}, "user": {}, "port": {"default": 22}},
                },
                {"required": ["kind", "token"], "properties": {"kind": {"const": "V"},
                                                              "token": {"default": "t"}}},
            ],
        }
    }
}  # fmt: skip


@pytest.mark.parametrize(
    ("login", "found"),
    [
        ({"kind": "U", "user": "u"}, []),
        ({"token": "t"}, []),
        ({"kind": "V"}, []),
        ({"kind": "T", "token": "t"}, []),
        ({"kind": "T"}, ["config.login: 'token' is required"]),  # that of V is no default of T
        ({"kind": "U"}, ["config.login: 'user' is required"]),
    ],
)
def test_a_default_counts_in_its_own_alternative(login: dict[str, Any], found: list[str]) -> None:
    if found:
        assert problems({"login": login}, BRANCHES) == found
    else:
        spec = ConnectorSpec(protocol="x", config_schema=BRANCHES)
        assert validate_config(spec, {"login": login}, WORD) == []


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


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ({"pattern_descriptor": "YYYY-MM-DD"}, "expected the form YYYY-MM-DD"),
        ({"pattern_descriptor": 7}, "does not match"),
        ({}, "does not match"),
    ],
)
def test_a_pattern_is_reported_in_the_schema_s_words(
    described: dict[str, Any], expected: str
) -> None:
    """Airbyte's ``pattern_descriptor``, also in a branch and behind a reference."""
    day = {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", **described}
    branch = {"properties": {"kind": {"const": "b"}, "day": {"$ref": "#/definitions/day"}}}
    schema = {
        "definitions": {"day": day},
        "properties": {"day": day, "of": {"oneOf": [branch]}},
    }
    for config, where in (
        ({"day": "yesterday"}, "day"),
        ({"of": {"kind": "b", "day": "yesterday"}}, "of.day"),
    ):
        with pytest.raises(ConfigError) as failure:
            validate_config(ConnectorSpec(protocol="any", config_schema=schema), config, WORD)
        (problem,) = failure.value.problems
        assert where in problem and expected in problem
