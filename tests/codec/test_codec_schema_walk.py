"""The parts of a JSON Schema that speak of one value (L10: a secret in any of them is found)."""

import time
from typing import Any

import pytest

from penstock.codec.schema_walk import parts, referred
from penstock.protocols.json_schema.config_check import secret_values
from penstock.protocols.json_schema.paths import exists, names_of

ROOT: dict[str, Any] = {
    "definitions": {"a/b~c": {"title": "named"}, "list": [{"title": "first"}, {"title": "second"}]},
    "$defs": {"one": {"$ref": "#/$defs/two"}, "two": {"$ref": "#/$defs/one"}},
}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", ROOT),
        ("#/definitions/a~1b~0c", {"title": "named"}),
        ("#/definitions/list/1", {"title": "second"}),
        ("#/definitions/list/2", None),
        ("#/definitions/list/²", None),
        ("#/definitions/list/" + "9" * 5000, None),
        ("#/definitions/none/deeper", None),
        ("https://elsewhere/#/definitions", None),
    ],
)
def test_a_reference_leads_into_the_document_or_nowhere(reference: str, found: Any) -> None:
    assert referred(ROOT, reference) == found


def test_a_circle_of_references_ends() -> None:
    assert parts(ROOT, [{"$ref": "#/$defs/one"}])[1:] == list(ROOT["$defs"].values())


def test_references_that_fan_out_cost_no_more_than_the_document() -> None:
    names = [f"n{i}" for i in range(40)]
    both = [{"anyOf": [{"$ref": f"#/{n}"}, {"$ref": f"#/{n}"}]} for n in names[1:]]
    root = {**dict(zip(names, both, strict=False)), names[-1]: {"properties": {"id": {}}}}
    began = time.monotonic()
    assert names_of({"$ref": f"#/{names[0]}", **root}) == ["id"]
    assert time.monotonic() - began < 20  # 2 ** 40 ways


def test_parts_come_in_the_order_of_the_document() -> None:
    schema = {"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}], "anyOf": [True]}
    assert names_of(schema) == ["a", "b"]
    assert exists(schema, ("b",)) and not exists(schema, ("c",))


def test_l10_a_secret_is_found_wherever_its_property_is_defined() -> None:
    schema = {
        "definitions": {"ways": [{"properties": {"key": {"airbyte_secret": True}}}]},
        "properties": {"inner": {"if": {}, "then": {"$ref": "#/definitions/ways/0"}}},
    }
    assert secret_values(schema, {"inner": {"key": "s3cret"}}, "airbyte_secret") == ["s3cret"]
