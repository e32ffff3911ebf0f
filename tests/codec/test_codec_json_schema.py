"""JSON Schema to types: the supported-data-types table and the dialects met in the wild."""

from decimal import Decimal
from typing import Any

import pytest

from penstock.codec.json_schema import MAX_DEPTH, SchemaDialect, data_type, row_schema
from penstock.model.types import DataType, Field, Kind


def array(item: DataType) -> DataType:
    return DataType(Kind.array, item=item)


def struct(**fields: DataType) -> DataType:
    return DataType(Kind.struct, fields=tuple(Field(n, n, t) for n, t in fields.items()))


STRING, INTEGER, NUMBER = DataType(Kind.string), DataType(Kind.integer), DataType(Kind.number)
BOOLEAN, JSON = DataType(Kind.boolean), DataType(Kind.json)
BIG = DataType(Kind.decimal, precision=38, scale=0)


def decimal(precision: int, scale: int) -> DataType:
    return DataType(Kind.decimal, precision=precision, scale=scale)


def numeric(precision: int, scale: int) -> dict[str, Any]:
    """As taps for Postgres describe a column numeric(precision, scale)."""
    return {
        "type": ["null", "number"],
        "multipleOf": Decimal(f"1e-{scale}") if scale > 30 else 10**-scale,
        "minimum": -(10 ** (precision - scale)),
        "exclusiveMinimum": True,
        "maximum": 10 ** (precision - scale),
        "exclusiveMaximum": True,
    }


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        # the table of supported data types
        ({"type": "string"}, STRING),
        ({"type": "boolean"}, BOOLEAN),
        ({"type": "string", "format": "date"}, DataType(Kind.date)),
        ({"type": "string", "format": "date-time"}, DataType(Kind.timestamp)),
        ({"type": "string", "format": "time"}, DataType(Kind.time_tz)),
        ({"type": "integer"}, INTEGER),
        ({"type": "number"}, NUMBER),
        ({"type": "array"}, array(JSON)),
        ({"type": "array", "items": {"type": "integer"}}, array(INTEGER)),
        ({"type": "array", "items": [{"type": "integer"}, {"type": "boolean"}]}, array(JSON)),
        ({"type": "array", "items": [{"type": "integer"}, {"type": "null"}]}, array(INTEGER)),
        ({"type": "object"}, JSON),
        ({"type": "object", "properties": {}}, JSON),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, struct(a=INTEGER)),
        ({"type": "object", "additionalProperties": {"type": "string"}}, JSON),
        *(
            ({"properties": {"o": {"type": "object", "properties": {"a": {"type": "integer"}},
                                   **rest}}}, struct(o=inner))
            for rest, inner in [
                # its keys are data
                ({"additionalProperties": {"type": "string"}}, JSON),
                ({"additionalProperties": {"$ref": "#/definitions/x"}}, JSON),
                ({"patternProperties": {"^x-": {}}}, JSON),
                ({"patternProperties": {"^x-": {}}, "additionalProperties": False}, JSON),
                # nothing is said of other keys
                ({"additionalProperties": True}, struct(a=INTEGER)),
                ({"additionalProperties": False}, struct(a=INTEGER)),
                ({"additionalProperties": {}}, struct(a=INTEGER)),
                ({"patternProperties": {}}, struct(a=INTEGER)),
            ]
        ),
        # a record has columns all the same
        (
            {"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
            struct(a=INTEGER),
        ),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, JSON),
        ({"type": ["string", "object"]}, JSON),
        # null and unions
        ({"type": ["null", "string"]}, STRING),
        ({"type": ["string", "null"], "format": "date"}, DataType(Kind.date)),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, INTEGER),
        ({"anyOf": [{"type": "null"}, {"items": {"type": "string"}}]}, array(STRING)),
        ({"type": ["integer", "number", "null"]}, NUMBER),
        ({"oneOf": [{"type": "string", "format": "date"}, {"type": "string"}]}, STRING),
        ({"type": "null"}, JSON),
        (
            {"properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]},
            struct(a=STRING),
        ),
        (
            {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}},
                       {"properties": {"b": {"type": "integer"}}}]},
            struct(a=STRING, b=INTEGER),
        ),
        # no shape at all
        ({}, JSON),
        (True, JSON),
        (False, JSON),
        (None, JSON),
        ("nonsense", JSON),
        ({"type": "wat"}, JSON),
        ({"type": []}, JSON),
        # no type, but other words
        ({"enum": ["a", "b", None]}, STRING),
        ({"enum": [1, 2]}, INTEGER),
        ({"enum": [1, "a"]}, JSON),
        ({"const": True}, BOOLEAN),
        ({"properties": {"a": {"type": "string"}}}, struct(a=STRING)),
        ({"items": {"type": "string"}}, array(STRING)),
        # numbers
        ({"type": "number", "multipleOf": 0.01}, DataType(Kind.decimal, precision=38, scale=2)),
        ({"type": "number", "multipleOf": 1e-10}, DataType(Kind.decimal, precision=38, scale=10)),
        (
            {"type": "number", "multipleOf": 0.01, "minimum": -99999999.99, "maximum": 99999999.99},
            DataType(Kind.decimal, precision=10, scale=2),
        ),
        (
            {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": 0, "exclusiveMaximum": 10},
            DataType(Kind.decimal, precision=3, scale=1),
        ),
        ({"type": "number", "multipleOf": 1}, INTEGER),
        # more digits than a decimal has: pipelinewise-tap-postgres and singer-io's tap-postgres of
        # a numeric without precision, numeric(38,10) and numeric(40,30); DECIMAL(65,30)
        (numeric(100, 38), decimal(38, 18)),
        (numeric(38, 10), decimal(38, 10)),
        (numeric(38, 38), decimal(38, 38)),
        (numeric(40, 30), decimal(38, 28)),
        (numeric(40, 2), decimal(38, 2)),
        (numeric(65, 30), decimal(38, 18)),
        (numeric(1000, 0), BIG),
        (numeric(1000, 500), decimal(38, 18)),
        ({"type": "number", "multipleOf": 1e-18}, decimal(38, 18)),
        ({"type": "number", "multipleOf": 1e-30}, decimal(38, 18)),
        ({"type": "number", "multipleOf": 1e-45}, decimal(38, 18)),
        ({"type": "number", "multipleOf": 1e-30, "minimum": 0}, decimal(38, 18)),
        ({"type": "number", "multipleOf": 0}, NUMBER),
        ({"type": "number", "multipleOf": "x"}, NUMBER),
        ({"type": "integer", "maximum": 9223372036854775807}, INTEGER),
        ({"type": "integer", "maximum": 9223372036854775808}, BIG),
        ({"type": "integer", "minimum": -1e30, "maximum": 1e30}, BIG),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, INTEGER),
        # binary
        ({"type": "string", "contentEncoding": "base64"}, DataType(Kind.binary)),
    ],
)  # fmt: skip
def test_types(schema: Any, expected: DataType) -> None:
    assert data_type(schema) == expected


def test_columns_whose_numbers_may_have_more_digits_than_a_decimal_are_told() -> None:
    """So that a user can choose; a number inside an object is its column's."""
    properties = {
        "free": numeric(100, 38),
        "price": numeric(10, 2),
        "full": numeric(38, 10),
        "line": {"type": "array", "items": {"properties": {"rate": numeric(65, 30)}}},
        "any": {"anyOf": [numeric(100, 38), {"type": "string"}]},
    }
    assert SchemaDialect().narrowed({"properties": properties}) == ("free", "line")
    assert SchemaDialect().narrowed(numeric(100, 38)) == ()


def test_local_references() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/m~1n"}, "b": {"$ref": "other.json#/x"}},
        "definitions": {"m/n": {"type": "integer"}},
    }
    assert data_type(schema) == struct(a=INTEGER, b=JSON)


def test_a_reference_to_the_whole_record() -> None:
    schema = {"$ref": "#/definitions/row", "definitions": {"row": {"properties": {"a": {}}}}}
    assert data_type(schema) == struct(a=JSON)


@pytest.mark.parametrize("reference", ["#", "#/definitions/node"])
def test_recursion_becomes_json(reference: str) -> None:
    node = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "child": {"$ref": reference}},
    }
    found = data_type({**node, "definitions": {"node": node}})
    assert found.kind is Kind.struct
    inner = found.fields[1].type
    assert JSON in (inner, *(f.type for f in inner.fields))


def test_depth_and_breadth_are_bounded() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(MAX_DEPTH * 3):
        deep = {"type": "object", "properties": {"x": deep}}
    levels, found = 0, data_type(deep)
    while found.kind is Kind.struct:
        levels, found = levels + 1, found.fields[0].type
    assert found == JSON and levels <= MAX_DEPTH + 1
    wide = {f"d{i}": {"properties": {k: {"$ref": f"#/definitions/d{i + 1}"} for k in "abcdefgh"}}
            for i in range(25)}  # fmt: skip
    assert data_type({"$ref": "#/definitions/d0", "definitions": wide}).kind is Kind.struct


def test_a_hook_decides_first_at_every_level() -> None:
    def hook(schema: Any) -> DataType | None:
        return DataType(Kind.timestamp_ntz) if schema.get("x-kind") == "wall" else None

    wall = {"type": "string", "format": "date-time", "x-kind": "wall"}
    found = data_type({"properties": {"a": {"oneOf": [{"type": "null"}, wall]}}}, hook)
    assert found == struct(a=DataType(Kind.timestamp_ntz))


def test_nested_names_are_cleaned_and_clashes_become_json() -> None:
    nested = {"properties": {"a b": {"type": "string"}, "c=d": {"type": "string"}}}
    (a, c) = data_type({"properties": {"n": nested}}).fields[0].type.fields
    assert (a.source, c.source) == ("a b", "c=d")
    assert not set(a.name + c.name) & set(" ,;{}()\n\t=")
    clash = {"properties": {"id": {"type": "string"}, "ID": {"type": "string"}}}
    assert data_type({"properties": {"n": clash}}).fields[0].type == JSON


def test_row_schema_selects_and_names() -> None:
    row = data_type({"properties": {n: {"type": "string"} for n in ("id", "ID", "a b", "skip")}})
    schema = row_schema(row, {"id": "ident"}, ("id", "ID", "a b"))
    assert [f.source for f in schema.fields] == ["id", "ID", "a b"]
    assert schema.fields[0].name == "ident"
    assert len({f.name.lower() for f in schema.fields}) == 3
    assert row_schema(JSON, {}).fields == ()
