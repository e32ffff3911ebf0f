"""Types of key columns in tables (L9: keys are exact)."""

import pytest

from penstock.engine.plan.key_types import (
    EXACT_NUMBER,
    exact_columns,
    exact_keys,
    kept_keys,
    number_texts,
)
from penstock.model.type_words import parse_type, type_text
from penstock.model.types import Field, RowSchema


def schema(**types: str) -> RowSchema:
    return RowSchema(tuple(Field(name, name, parse_type(text)) for name, text in types.items()))


def types(of: RowSchema) -> dict[str, str]:
    return {f.name: type_text(f.type) for f in of.fields}


def test_l9_a_number_of_a_new_tables_key_is_a_decimal_also_inside_an_object() -> None:
    key = (("id",), ("o", "n"), ("named",), ("absent", "x"))
    declared = schema(id="number", o="struct<n: number, m: number>", named="number", price="number")
    found = exact_keys(declared, key, {"named": "number"})
    exact = type_text(EXACT_NUMBER)
    assert types(found) == {
        "id": exact,
        "o": f"struct<n: {exact}, m: number>",
        "named": "number",
        "price": "number",
    }
    assert exact_columns(found, declared, key) == ("id", "o.n")


@pytest.mark.parametrize(("had", "now", "kept", "refused"), [
    ("number", "number", "number", "number"),
    ("number", "integer", "number", "integer"),
    ("number", "string", "number", "string"),
    ("decimal(38,18)", "number", "decimal(38,18)", "decimal(38,18)"),
    ("decimal(38,18)", "integer", "decimal(38,18)", "integer"),
    ("integer", "number", "integer", "number"),
    ("integer", "string", "integer", "string"),
    ("integer", "decimal(20,0)", "decimal(20,0)", "decimal(20,0)"),
    ("integer", "decimal(4,2)", "decimal(4,2)", "decimal(4,2)"),
    ("date", "timestamp_ntz", "timestamp_ntz", "timestamp_ntz"),
    ("date", "timestamp", "date", "timestamp"),
    ("timestamp", "string", "timestamp", "string"),
    ("string", "integer", "integer", "integer"),
    ("json", "number", "number", "number"),
    ("number_text", "string", "number_text", "number_text"),
    ("number_text", "number", "number_text", "number"),
    ("number_text", "integer", "number_text", "integer"),
    ("string", "number_text", "number_text", "number_text"),
])  # fmt: skip
def test_l9_a_table_that_is_there_keeps_the_type_of_its_key_or_widens_it_exactly(
    had: str, now: str, kept: str, refused: str
) -> None:
    """``refused``: under ``type_change: fail`` the table sees the new type, and refuses it."""
    declared, before, key = schema(id=now, v="number"), schema(id=had), (("id",),)
    chosen = exact_keys(declared, key)
    for coerces, wanted in ((True, kept), (False, refused)):
        found = kept_keys(chosen, declared, before, key, coerces=coerces)
        assert types(found) == {"id": wanted, "v": "number"}
    assert kept_keys(chosen, declared, schema(other="integer"), key, coerces=True) == chosen


def test_l9_a_key_of_numbers_that_the_pipeline_makes_text_is_text_of_one_form() -> None:
    declared = schema(
        id="number", o="struct<n: number, m: number>", name="string", n="decimal(4,2)"
    )
    given = schema(id="string", o="struct<n: string, m: string>", name="string", n="decimal(4,2)")
    found = number_texts(given, declared, (("id",), ("o", "n"), ("name",), ("n",), ("absent",)))
    assert types(found) == {
        "id": "number_text",
        "o": "struct<n: number_text, m: string>",
        "name": "string",
        "n": "decimal(4,2)",
    }
