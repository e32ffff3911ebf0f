"""The text of a new pipeline file: it parses, and its config is what the connector's own schema
takes."""

import json
from typing import Any

import jsonschema_rs
import pytest

from penstock.api.new_file import FileEnd, pipeline_text, questions
from penstock.config.load import parse_pipeline

# As connectors of Airbyte's registry write theirs: alternatives with a const, optional ones with a
# default, tags in descriptions, null in types, references.
SHOP: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["host", "port", "credentials", "ids", "tables", "on"],
    "definitions": {"secret": {"type": "string", "airbyte_secret": True}},
    "properties": {
        "tunnel": {
            "oneOf": [
                {"title": "None", "properties": {"method": {"const": "NONE"}}},
                {"title": "SSH", "required": ["key"], "properties": {"key": {"type": "string"}}},
            ]
        },
        "port": {"type": ["null", "integer"], "title": "Port", "order": 2},
        "host": {
            "type": "string",
            "order": 1,
            "title": "Host",
            "description": 'The <a href="https://x">server</a>,\n not ${HOST}: "the" # first',
        },
        "credentials": {
            "type": "object",
            "oneOf": [
                {
                    "title": "Password",
                    "required": ["auth", "password"],
                    "properties": {
                        "auth": {"type": "string", "const": "password"},
                        "password": {"$ref": "#/definitions/secret"},
                    },
                },
                {
                    "title": "Token",
                    "required": ["auth", "token"],
                    "properties": {
                        "auth": {"type": "string", "const": "token"},
                        "token": {"type": "string", "airbyte_secret": True},
                    },
                },
            ],
        },
        "ids": {"type": "array", "items": {"type": "integer"}},
        "tables": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "limit": {"type": "integer"}},
            },
        },
        "on": {"type": "boolean"},
        "region": {"type": "string", "enum": ["eu", "us"], "default": "eu"},
        "page: size": {"type": "integer", "default": 100},
        "tricky": {"type": "string", "default": "${NOT_MINE} # no, ${x:-y}"},
        "since": {"type": "string", "examples": ["2017-01-25T00:00:00Z"]},
        "pin": {"type": "string", "airbyte_secret": True, "default": "1234"},
    },
}
SOURCE = FileEnd(
    "airbyte:source-shop@1.2.0", SHOP, "airbyte_secret", "https://docs.example.com/shop"
)
LAKE = FileEnd("parquet:./lake")
SET = {
    "SOURCE_SHOP_HOST": "007",
    "SOURCE_SHOP_PORT": "5432",
    "SOURCE_SHOP_CREDENTIALS_PASSWORD": "s3cret",
    "SOURCE_SHOP_IDS": "7",
    "SOURCE_SHOP_TABLES_NAME": "orders",
    "SOURCE_SHOP_ON": "true",
}


def config_of(end: FileEnd, values: dict[str, str]) -> dict[str, Any]:
    text, variables = pipeline_text("shop", end, LAKE)
    assert {v.name for v in variables} == values.keys()
    pipeline = parse_pipeline(text, values)
    assert pipeline.warnings == ()
    return pipeline.source.config


def test_what_is_written_is_what_the_connector_takes() -> None:
    config = config_of(SOURCE, SET)
    assert config == {
        "host": "007",
        "port": 5432,
        "credentials": {"auth": "password", "password": "s3cret"},
        "ids": [7],
        "tables": [{"name": "orders"}],
        "on": True,
        "region": "eu",
        "page: size": 100,
        "tricky": "${NOT_MINE} # no, ${x:-y}",
    }
    assert jsonschema_rs.Draft7Validator(SHOP).is_valid(config)


def test_the_comments_say_what_each_property_is() -> None:
    text, variables = pipeline_text("shop", SOURCE, LAKE)
    lines = [line.strip() for line in text.splitlines()]
    assert '# Host: The server, not ${HOST}: "the" # first' in lines
    assert "# This is Password; or: Token." in lines
    assert "# One of eu, us." in lines
    assert '# since: "2017-01-25T00:00:00Z"' in lines
    assert '# pin: "${SOURCE_SHOP_PIN}"' in lines  # a secret's default is nobody's
    assert "# Documentation: https://docs.example.com/shop" in lines
    assert max(map(len, lines)) <= 100
    assert [v.name for v in variables if v.secret] == ["SOURCE_SHOP_CREDENTIALS_PASSWORD"]
    assert variables[0] == ("SOURCE_SHOP_HOST", "config.host", False)


@pytest.mark.parametrize("uncommented", ["tunnel", "since", "pin"])
def test_a_comment_that_is_uncommented_parses(uncommented: str) -> None:
    text, _ = pipeline_text("shop", SOURCE, LAKE)
    text = text.replace(f"# {uncommented}:", f"{uncommented}:")
    config = parse_pipeline(text, {**SET, "SOURCE_SHOP_PIN": "1"}).source.config
    assert uncommented in config


def test_what_is_given_stands_in_the_file_and_secrets_do_not() -> None:
    given = {"host": "db", "port": 1, "more": [{"a": None}], "pin": "9876"}
    left = {k: v for k, v in SET.items() if k not in ("SOURCE_SHOP_HOST", "SOURCE_SHOP_PORT")}
    end = SOURCE._replace(given=given, hidden=frozenset({"pin"}))
    config = config_of(end, {**left, "SOURCE_SHOP_PIN": "x"})
    assert (config["host"], config["port"], config["more"]) == ("db", 1, [{"a": None}])
    assert config["pin"] == "x" and "9876" not in pipeline_text("shop", end, LAKE)[0]


def test_the_user_is_asked_for_what_is_required_and_no_secret() -> None:
    asked = {q.name: q.kind for q in questions(SOURCE)}
    assert asked == {"host": "string", "port": "integer", "on": "boolean"}
    assert [q.name for q in questions(SOURCE._replace(given={"host": "h", "on": True}))] == ["port"]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {}},
        {"properties": {"a": True, "b": {"type": "string"}}, "additionalProperties": True},
        {"properties": {"only": {"type": "object", "properties": {"x": {"type": "string"}}}}},
    ],
)
def test_a_schema_that_asks_for_nothing_gives_an_empty_config(schema: dict[str, Any]) -> None:
    assert config_of(FileEnd("singer:tap-x", schema, "secret"), {}) == {}


def test_a_schema_in_a_circle_ends() -> None:
    node: dict[str, Any] = {
        "type": "object",
        "required": ["child"],
        "properties": {"child": {"$ref": "#/definitions/node"}},
    }
    schema = {**node, "definitions": {"node": node}}
    text, variables = pipeline_text("shop", FileEnd("singer:tap-x", schema, "secret"), LAKE)
    assert variables == [] and "child: {}" in text and len(text) < 5000
    parse_pipeline(text, {v.name: "1" for v in variables})


@pytest.mark.parametrize("name", ["yes", "a: b", "007", "été", "x # y", "- z", "null", "${A}"])
def test_any_name_is_a_text(name: str) -> None:
    schema = {"properties": {name: {"type": "string", "default": name}}}
    text, _ = pipeline_text(name, FileEnd("airbyte:./s", schema, "s"), FileEnd("delta:./l"))
    pipeline = parse_pipeline(text, {})
    assert pipeline.pipeline == name
    assert pipeline.source.config == {name: name}, json.dumps(text)


def test_a_connector_that_publishes_nothing_is_told_as_that() -> None:
    text, variables = pipeline_text("x", FileEnd("singer:tap-old", {}, "secret"), LAKE)
    assert "does not describe its configuration" in text and variables == []


def test_l10_texts_of_credentials_are_variables_and_not_asked_for() -> None:
    """Of a protocol that marks no secrets: a key that was typed would stand in the file."""
    schema = {
        "type": "object",
        "required": ["apiKey", "method", "port"],
        "properties": {
            "apiKey": {"type": "string"},
            "method": {"enum": ["POST", "PUT"]},
            "port": {"type": "integer"},
        },
    }
    end = FileEnd("syncmaven:./crm", schema, None)
    assert [q.name for q in questions(end)] == ["method", "port"]
    text, variables = pipeline_text("x", end, LAKE)
    assert 'apiKey: "${CRM_APIKEY}"' in text
    assert [v.property for v in variables if v.secret] == ["config.apiKey"]
