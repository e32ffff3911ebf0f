"""What taps say of themselves and of their ends, times and types: the small pure parts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.model.catalog import ConnectorSpec
from penstock.model.types import DataType, Kind
from penstock.protocols.json_schema.config_check import secret_values, validate_config
from penstock.protocols.singer.command_line import (
    abilities_of_help,
    about_of,
    catalog_options,
    config_schema,
    last_words,
    refused,
    unknown_schema,
)
from penstock.protocols.singer.package import PACKAGE
from penstock.protocols.singer.time_extracted import millis


@pytest.mark.parametrize(
    ("abilities", "options"),
    [
        ({}, [("--catalog",), ("--properties",), ()]),
        ({"catalog_argument": "auto"}, [("--catalog",), ("--properties",), ()]),
        ({"catalog_argument": "properties", "capabilities": ["catalog"]}, [("--properties",)]),
        ({"catalog_argument": "none"}, [()]),
        ({"capabilities": ["catalog", "state"]}, [("--catalog",)]),
        ({"capabilities": ["properties"]}, [("--properties",)]),
        ({"capabilities": ["catalog", "properties"]}, [("--catalog", "--properties")]),
        ({"capabilities": ["state"]}, [()]),
    ],
)
def test_the_catalogs_option_is_known_told_or_tried(abilities: Any, options: Any):
    assert catalog_options(abilities) == options


@pytest.mark.parametrize(
    "words",
    [
        "tap: error: unrecognized arguments: --catalog /tmp/x",
        "Error: No such option: --catalog Did you mean --config?",
        "flag provided but not defined: -catalog",
        "unknown option '--catalog'",
    ],
)
def test_a_refused_option_is_recognised(words: str):
    assert refused(("--catalog",), f"usage: x\n{words}")
    assert not refused(("--properties",), words)


def test_a_failure_that_names_the_option_is_no_refusal():
    assert not refused(("--catalog",), "CRITICAL the --catalog file has no streams")
    assert not refused((), "unrecognized arguments: --catalog")


def test_help_names_the_options():
    text = "usage: tap [-h] -c CONFIG [--config CONFIG] [-p PROPERTIES --properties X] [--discover]"
    assert abilities_of_help(text) == {"capabilities": ["properties", "discover"]}
    assert abilities_of_help("Traceback ...") == {}


def test_about_is_an_object_with_settings_or_capabilities():
    found = about_of(b'noise\n{"capabilities": ["catalog"], "settings": {"type": "object"}}')
    assert found is not None and found.capabilities == ["catalog"]
    assert about_of(b"{}") is None
    assert about_of(b"not json") is None


def test_write_only_properties_are_secret_L10():
    settings = {"properties": {"a": {"writeOnly": True}, "b": {"secret": True}, "c": {}}}
    config = {"a": "one", "b": "two", "c": "three"}
    word = PACKAGE.secret_word
    assert secret_values(config_schema(settings), config, word) == ["one", "two"]


def test_what_is_called_like_a_secret_is_one_marked_declared_or_not_L10():
    settings = {
        "type": "object",
        "allOf": [{"required": ["host"]}],
        "properties": {
            "password": {"type": "string"},
            "host": {"type": "string"},
            "db": {"type": "object", "properties": {"credentials": {"type": "array"}}},
        },
    }
    config = {
        "password": "p1",
        "host": "h",
        "db": {"credentials": ["c2"], "name": "n"},
        "api_token": "t3",
        "hooks": [{"client_secret": 44}],
    }
    schema = config_schema(settings)
    assert set(secret_values(schema, config, PACKAGE.secret_word)) == {"p1", "c2", "t3", "44"}
    spec = ConnectorSpec(protocol="singer", config_schema=schema)
    with pytest.raises(ConfigError) as caught:
        validate_config(spec, {"password": 98765, "api_token": "t3"}, PACKAGE.secret_word)
    assert sorted(caught.value.problems) == [
        "config.password: expected string, not integer",
        "config: 'host' is required",
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
        {
            "patternProperties": {"^my": {"type": "integer"}},
            "additionalProperties": {"type": "null"},
        },
        {"$ref": "#/definitions/x", "definitions": {"x": {"required": ["my_token"]}}},
        {"allOf": [{"properties": {"my_token": {"type": "integer"}}}]},
        {"allOf": 5},
    ],
)
@pytest.mark.parametrize("config", [{}, {"my_token": "x"}, {"my_token": 1}, {"token": None}])
def test_marking_names_changes_nothing_that_a_config_may_hold(settings: Any, config: Any):
    answers: list[Any] = []
    for schema in (settings, config_schema(settings)):
        spec = ConnectorSpec(protocol="singer", config_schema=schema)
        try:
            validate_config(spec, config, PACKAGE.secret_word)
            answers.append([])
        except ConfigError as e:
            answers.append([p.partition(" (got")[0] for p in e.problems])
    assert answers[0] == answers[1]


def test_without_a_schema_what_is_called_like_a_secret_is_one_L10():
    config = {
        "api_token": "t1",
        "db": {"password": "p2"},
        "client_secret": "s3",
        "start_date": "2020",
        "host": "h",
    }
    found = secret_values(unknown_schema(), config, PACKAGE.secret_word)
    assert {"t1", "p2", "s3"} <= set(found)
    assert not {"2020", "h"} & set(found)


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("INFO x\nCRITICAL it broke\nINFO bye", "it broke"),
        ("2026-01-01 10:00:00,1 | CRITICAL | tap-x | it broke", "it broke"),
        ("time=2020 name=tap level=CRITICAL message=it broke", "it broke"),
        ('{"level": "critical", "event": "it broke"}', "it broke"),
        ("[FATAL] it broke", "it broke"),
        (
            "Traceback (most recent call last):\n  File x\nrequests.HTTPError: 401 it broke\n",
            "requests.HTTPError: 401 it broke",
        ),
        ("INFO all CRITICALITY is fine", None),
        ("", None),
    ],
)
def test_the_error_to_show(stderr: str, words: str | None):
    assert last_words(stderr) == words


def test_times_of_every_kind():
    texts = ["2017-11-20T16:45:33Z", None, 7, [], "0001-01-01T00:00:00+14:00", "x"] * 3
    assert list(millis(texts, 5))[:6] == [1511196333000, 5, 5, 5, 5, 5]
    assert list(millis([], 5)) == []
    nanoseconds = [f"2017-11-20T16:45:{n:02d}.123456789Z" for n in range(20)]
    assert next(iter(millis(nanoseconds, 5))) == 1511196300123


@given(st.lists(st.datetimes(datetime(1900, 1, 1), timezones=st.just(UTC)), min_size=1))
@example([datetime(2004, 4, 26, 15, 21, 23, 807_000, UTC)])
@example([datetime(1969, 12, 31, 23, 59, 59, 999_500, UTC)])
@settings(max_examples=100, deadline=None)
def test_a_time_is_the_same_whatever_times_are_beside_it(times: list[datetime]):
    texts = [t.isoformat() for t in times]
    expected = [(t - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) for t in times]
    assert list(millis(texts, 5)) == expected
    assert list(millis(texts * 9, 5)) == expected * 9  # few distinct texts are read one by one


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["null", "string"], "format": "singer.decimal"}, (38, 18)),
        ({"format": "x-singer.decimal", "precision": 10, "scale": 2}, (10, 2)),
        ({"type": "number", "multipleOf": 1e-06, "maximum": 1e14, "minimum": -1e14}, (21, 6)),
        # more digits than a decimal has: whole ones are kept as long as they leave 18 others
        ({"format": "singer.decimal", "type": "string", "precision": 50, "scale": 45}, (38, 33)),
        ({"format": "singer.decimal", "type": "string", "precision": 65, "scale": 30}, (38, 18)),
        ({"format": "singer.decimal", "type": "string", "precision": 76}, (38, 18)),
    ],
)
def test_decimals(schema: Any, expected: tuple[int, int]):
    found = PACKAGE.schema.data_type(schema)
    assert found == DataType(Kind.decimal, precision=expected[0], scale=expected[1])


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (True, Kind.json),
        ({}, Kind.json),
        ({"type": ["null", "integer"], "exclusiveMaximum": True, "maximum": 5}, Kind.integer),
        (
            {"type": ["null", "integer"], "minimum": -(2**63), "maximum": 2**63 - 1},
            Kind.integer,
        ),
        (
            {"anyOf": [{"type": "string", "format": "date-time"}, {"type": ["string", "null"]}]},
            Kind.string,
        ),
        ({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}, Kind.timestamp),
        (
            {"type": ["string", "number", "integer", "array", "object", "boolean", "null"]},
            Kind.json,
        ),
        ({"type": "object", "patternProperties": {".+": {}}}, Kind.json),
        (
            {
                "$ref": "#/definitions/r",
                "definitions": {
                    "r": {"type": ["null", "array"], "items": {"$ref": "#/definitions/r"}}
                },
            },
            Kind.array,
        ),
        ({"type": "array", "format": "singer.decimal", "items": {}}, Kind.array),
    ],
)
def test_dialects_met(schema: Any, kind: Kind):
    assert PACKAGE.schema.data_type(schema).kind is kind


def test_names_of_packages_and_executables():
    assert PACKAGE.package_names("tap-x") == ("tap-x", "meltanolabs-tap-x", "pipelinewise-tap-x")
    assert PACKAGE.package_names("meltanolabs-tap-x") == ("meltanolabs-tap-x",)
    assert PACKAGE.script_names("meltanolabs-tap-x") == ("meltanolabs-tap-x", "tap-x")
    assert PACKAGE.script_names("tap-x") == ("tap-x",)
