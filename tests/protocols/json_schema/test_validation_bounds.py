"""L11: a spec that a validator would walk for ever, or that would end the process by its depth."""

import time
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.model.catalog import ConnectorSpec
from penstock.protocols.json_schema.config_check import secret_values, validate_config
from penstock.protocols.json_schema.paths import closed_objects, exists, names_of
from penstock.protocols.json_schema.validation_steps import DEEPEST, why_not_validated

pytestmark = pytest.mark.dear

SECONDS = 5.0


def chain(word: str, levels: int = 40) -> dict[str, Any]:
    """Some 2 kB with 2^40 ways to one value."""
    steps: dict[str, Any] = {
        f"s{n}": {word: [{"$ref": f"#/definitions/s{n + 1}"}, {"$ref": f"#/definitions/s{n + 1}"}]}
        for n in range(levels)
    }
    steps[f"s{levels}"] = {"type": "object", "required": ["id"]}
    return {"$ref": "#/definitions/s0", "definitions": steps}


def through_properties(levels: int = 40) -> dict[str, Any]:
    both = {"anyOf": [{"$ref": "#/definitions/node"}, {"$ref": "#/definitions/node"}]}
    return {
        "$ref": "#/definitions/node",
        "definitions": {"node": {"properties": {"a": both, "key": {"airbyte_secret": True}}}},
    }


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def nested(levels: int, inmost: Any) -> Any:
    for _ in range(levels):
        inmost = {"a": inmost}
    return inmost


def in_named_documents(levels: int = 40) -> dict[str, Any]:
    """The same ways by ``$id``."""
    steps = [
        {"$id": f"s{n}.json", "oneOf": [{"$ref": f"s{n + 1}.json"}, {"$ref": f"s{n + 1}.json"}]}
        for n in range(levels)
    ]
    last = {"$id": f"s{levels}.json", "type": "object", "required": ["id"]}
    return {"$id": "http://x/root.json", "$ref": "s0.json", "definitions": {"all": [*steps, last]}}


@pytest.mark.parametrize(
    ("schema", "config"),
    [
        *((chain(word), {"x": 1}) for word in ("oneOf", "anyOf", "allOf")),
        (through_properties(), nested(40, {"key": "s3cret-key"})),
        (in_named_documents(), {"x": 1}),
        ({"oneOf": [{"$ref": "#"}, {"$ref": "#"}]}, {}),
        (deep(DEEPEST), {}),
        (deep(900), {}),
        ({"properties": {"a": {"type": "object"}}}, nested(10_000, 1)),
    ],
    ids=["oneOf", "anyOf", "allOf", "properties", "ids", "itself", "deep", "deeper", "value"],
)  # fmt: skip
def test_l11_a_config_that_cannot_be_validated_in_time_is_said_not_to_be(
    schema: dict[str, Any], config: dict[str, Any]
) -> None:
    began = time.monotonic()
    notes = validate_config(
        ConnectorSpec(protocol="airbyte", config_schema=schema), config, "airbyte_secret"
    )
    secrets = secret_values(schema, config, "airbyte_secret")
    assert time.monotonic() - began < SECONDS
    assert len(notes) == 1 and notes[0].endswith(", so config is not checked")
    assert secrets == (
        ["s3cret-key"] if "airbyte_secret" in str(schema.get("definitions")) else []
    )  # L10


def test_l11_a_pattern_that_backtracks_for_ever_is_given_up() -> None:
    schema = {"patternProperties": {"^(a+)+$": {"airbyte_secret": True}}, "properties": {"b": {}}}
    began = time.monotonic()
    validate_config(
        ConnectorSpec(protocol="airbyte", config_schema=schema),
        {"a" * 40 + "!": "text"},
        "airbyte_secret",
    )
    secret_values(schema, {"a" * 40 + "!": "text"}, "airbyte_secret")
    assert time.monotonic() - began < SECONDS
    assert secret_values(schema, {"aaa": "text"}, "airbyte_secret") == ["text"]


GIVEN_UP = r"^(a*)*\1b$"
"""A pattern that needs backtracking, and takes too many steps on a long text."""


@pytest.mark.parametrize("around", [None, "anyOf", "oneOf"])
def test_l11_a_pattern_that_is_given_up_is_no_fault_of_the_configuration(
    around: str | None,
) -> None:
    """The validator called each value of it wrong, and nothing that the user could write was
    right."""
    inner: dict[str, Any] = {"type": "string", "pattern": GIVEN_UP}
    schema = {"properties": {"k": {around: [inner, {"type": "integer"}]} if around else inner}}
    spec = ConnectorSpec(protocol="airbyte", config_schema=schema)
    notes = validate_config(spec, {"k": "a" * 60 + "!"}, "airbyte_secret")
    assert len(notes) == 1 and "config.k: not checked" in notes[0] and "too many steps" in notes[0]
    with pytest.raises(ConfigError) as caught:
        validate_config(spec, {"k": True}, "airbyte_secret")
    assert "config.k" in caught.value.problems[0]


def test_l10_a_property_whose_pattern_is_given_up_may_be_a_secret() -> None:
    schema = {"patternProperties": {GIVEN_UP: {"airbyte_secret": True}}}
    assert secret_values(schema, {"a" * 60 + "!": "text"}, "airbyte_secret") == ["text"]


def test_l11_paths_through_a_schema_that_fans_out_come_to_an_end() -> None:
    fans: dict[str, Any] = {
        "properties": {f"p{n}": {"$ref": "#"} for n in range(10)},
        "additionalProperties": False,
    }
    both: dict[str, Any] = {"anyOf": [{"$ref": "#/definitions/n"}, {"$ref": "#/definitions/m"}]}
    node = {"properties": {"a": both}}
    twice = {"properties": {"a": both}, "definitions": {"n": node, "m": {**node, "title": "m"}}}
    began = time.monotonic()
    found = set(closed_objects(fans))
    assert {(), ("p1",), ("p1", "p2")} <= found
    assert exists(twice, ("a",) * 60) and names_of(twice, ("a",) * 60)[0] == "a"
    assert time.monotonic() - began < SECONDS


def test_schemas_of_the_usual_kind_are_counted_and_checked() -> None:
    schema = {
        "definitions": {"host": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "properties": {
            "auth": {"oneOf": [{"properties": {"kind": {"const": n}}} for n in range(50)]},
            "hosts": {"items": {"$ref": "#/definitions/host"}},
        },
        "additionalProperties": {"$ref": "#/definitions/host"},
    }
    config = {"auth": {"kind": 1}, "hosts": [{"name": "a"}] * 100, "more": {"name": "b"}}
    assert why_not_validated(schema, config) is None
