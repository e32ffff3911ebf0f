"""Names of fields inside objects and lists stay with their properties from run to run."""

from typing import Any

from penstock.codec.json_schema import data_type
from penstock.engine.plan.nested_names import names_so_far, nested_key, with_nested_names
from penstock.model.types import DataType, Field, Kind, RowSchema


def record(*names: str, listed: bool = False) -> DataType:
    """A record whose address, two levels deep, has the properties ``names``."""
    inner: dict[str, Any] = {"type": "object", "properties": {n: {"type": "string"} for n in names}}
    if listed:
        inner = {"type": "array", "items": inner}
    address = {"type": "object", "properties": {"the place": inner}}
    return data_type({"type": "object", "properties": {"address": address}})


def names_of(type_: DataType) -> dict[str, str]:
    place = type_.fields[0].type.fields[0]
    assert (place.source, place.name) == ("the place", "the_place")
    inner = place.type.item or place.type
    return {f.source: f.name for f in inner.fields}


def runs(*each: tuple[str, ...], listed: bool = False) -> list[dict[str, str]]:
    known: dict[str, str] = {}
    found: list[dict[str, str]] = []
    for names in each:
        type_, known = with_nested_names(record(*names, listed=listed), known)
        found.append(names_of(type_))
    return found


def test_l9_a_plain_name_does_not_take_over_the_field_of_a_cleaned_one() -> None:
    for listed in (False, True):
        first, second = runs(("zip code",), ("zip code", "zip_code"), listed=listed)
        assert first == {"zip code": "zip_code"}
        assert second["zip code"] == "zip_code"
        assert second["zip_code"].startswith("zip_code_")


def test_l9_two_cleaned_names_stay_apart_and_one_comes_back_to_its_field() -> None:
    first, second, third = runs(("zip code",), ("zip,code",), ("zip code", "zip,code"))
    assert first == {"zip code": "zip_code"}
    assert second["zip,code"] not in ("zip_code", "")
    assert third == first | second


def test_l9_names_that_differ_by_case_stay_apart() -> None:
    first, second = runs(("Zip",), ("zip",))
    assert (first, second["zip"] != "zip") == ({"Zip": "Zip"}, True)
    assert second["zip"].lower() != "zip"


def test_names_of_one_run_are_those_of_the_rule() -> None:
    for names in (("a", "b c", "b_c"), ("x,y", "x;y"), ("",), ("\u00e9 1",)):
        type_ = record(*names)
        assert with_nested_names(type_, {})[0] == type_


def test_names_that_a_protocol_does_not_clean_stay() -> None:
    inner = DataType(Kind.struct, fields=(Field("zip code", "zip code", DataType(Kind.string)),))
    row = DataType(Kind.struct, fields=(Field("a", "a", inner),))
    assert with_nested_names(row, {})[0] == row


def test_l9_the_first_run_takes_the_names_that_earlier_schemas_gave() -> None:
    def version(*names: str) -> RowSchema:
        return RowSchema(record(*names).fields)

    path = ("address", "the place")
    old = names_so_far({1: version("zip code"), 2: version("other")})
    assert old[nested_key((*path, "zip code"))] == "zip_code"
    assert old[nested_key((*path, "other"))] == "other"
    assert old[nested_key(path)] == "the_place"
    mixed = names_so_far({1: version("zip code"), 2: version("zip code", "zip_code")})
    assert mixed[nested_key((*path, "zip_code"))] == "zip_code"
    assert mixed[nested_key((*path, "zip code"))].startswith("zip_code_")
    taken = names_so_far({1: version("zip code"), 2: version("zip_code")})
    assert nested_key((*path, "zip code")) not in taken
