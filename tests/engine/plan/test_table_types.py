"""Which type a lane decodes a column by, where its table has another than now declared as
(L9: text stays the text that was sent, and a key of text one key)."""

from collections.abc import Sequence

import pytest

from penstock.engine.plan.table_types import TableTypes, json_texts, kept_notes, with_types
from penstock.model.catalog import StreamId
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.tables.contract import TableName, TypeChange

STREAM, TABLE = StreamId(None, "s"), TableName(None, "s")
STRUCT = DataType(Kind.struct, fields=(Field("x", "x", DataType(Kind.integer)),))


def row(kind: Kind | DataType, version: int = 1) -> RowSchema:
    type_ = kind if isinstance(kind, DataType) else DataType(kind)
    return RowSchema((Field("a", "A", type_),), version)


def decoded(
    declared: Kind | DataType,
    table: Kind | None,
    *stored: Kind,
    change: TypeChange = TypeChange.coerce,
    transformed: bool = False,
    compared: Sequence[str] = (),
) -> Kind | None:
    """The kind by which the column is decoded; None: as declared. ``table``: its type there, None:
    there is no table. ``stored``: the kinds in the store, the oldest first."""
    versions = {n: row(kind, n) for n, kind in enumerate(stored, 1)}
    columns = () if table is None else row(table).fields
    types = TableTypes(
        lambda name: columns if name == TABLE else (),
        {STREAM: versions[len(stored)]} if stored else {},
        lambda _: versions,
        change,
    )
    fields = row(declared).fields
    found = types.kept(
        STREAM, TABLE, fields, None, transformed=transformed, compared={*compared}
    ).get("A")
    return None if found is None else found.kind


EVERY = [kind for kind in Kind if kind not in (Kind.struct, Kind.array, Kind.decimal)]
OTHERS = [DataType(Kind.decimal, 10, 2), DataType(Kind.array, item=DataType(Kind.json)), STRUCT]


@pytest.mark.parametrize("declared", [*EVERY, *OTHERS])
def test_l9_a_column_of_text_is_decoded_as_text_and_one_of_json_as_json(
    declared: Kind | DataType,
) -> None:
    is_text = None if declared is Kind.string else Kind.string
    assert decoded(declared, Kind.string, Kind.string) == is_text
    is_json = None if declared is Kind.json else Kind.json
    assert decoded(declared, Kind.string, Kind.json) == is_json


def test_a_table_that_is_not_there_binds_nothing() -> None:
    assert decoded(Kind.json, None, Kind.string) is None
    assert decoded(Kind.integer, None) is None


def test_a_table_of_another_home_keeps_its_text() -> None:
    assert decoded(Kind.integer, Kind.string) is Kind.string
    assert decoded(STRUCT, Kind.string) is Kind.string
    assert decoded(Kind.json, Kind.string) is None  # nothing says which of the two it holds


def test_a_type_that_was_stored_and_never_reached_the_table_binds_nothing() -> None:
    # the load was refused (type_change: fail), or a version before decoded by the declared type
    assert decoded(Kind.integer, Kind.string, Kind.string, Kind.integer) is Kind.string
    assert decoded(Kind.number, Kind.string, Kind.json, Kind.number) is Kind.json


def test_a_typed_column_takes_text_and_json_that_fit_it() -> None:
    assert decoded(Kind.json, Kind.integer, Kind.integer) is Kind.integer
    assert decoded(Kind.string, Kind.timestamp, Kind.timestamp) is Kind.timestamp
    assert decoded(Kind.number, Kind.integer, Kind.integer) is None  # the column becomes wider
    assert decoded(Kind.date, Kind.timestamp, Kind.timestamp) is None
    assert decoded(Kind.string, Kind.binary, Kind.binary) is None  # `A1` would become a byte


def test_l9_no_key_and_no_cursor_is_rounded_by_its_tables_type() -> None:
    for kind, exact in ((Kind.number, None), (Kind.timestamp, None), (Kind.integer, Kind.integer)):
        assert decoded(Kind.string, kind, kind, compared=["A"]) == exact
    assert decoded(Kind.integer, Kind.string, Kind.string, compared=["A"]) is Kind.string


@pytest.mark.parametrize("change", [TypeChange.fail, TypeChange.null])
def test_a_policy_that_refuses_another_type_is_asked_as_before(change: TypeChange) -> None:
    assert decoded(Kind.integer, Kind.string, Kind.string, change=change) is None
    assert decoded(Kind.json, Kind.integer, Kind.integer, change=change) is None
    # text and JSON are one type in a table
    assert decoded(Kind.json, Kind.string, Kind.string, change=change) is Kind.string


def test_transforms_see_the_declared_types_but_text_stays_text() -> None:
    assert decoded(Kind.integer, Kind.string, Kind.string, transformed=True) is None
    assert decoded(Kind.json, Kind.string, Kind.string, transformed=True) is Kind.string
    assert decoded(Kind.string, Kind.string, Kind.json, transformed=True) is Kind.json


def test_rows_that_this_run_has_read_bind_though_there_is_no_table_yet() -> None:
    types = TableTypes(lambda _: (), {}, lambda _: {}, TypeChange.coerce)
    kept = types.kept(STREAM, TABLE, row(Kind.json).fields, row(Kind.string))
    assert kept == {"A": DataType(Kind.string)}
    assert types.kept(STREAM, TABLE, row(Kind.json).fields, row(Kind.integer)) == {}


def test_a_run_without_a_type_change_looks_at_no_table() -> None:
    def none(*_: object) -> None:
        raise AssertionError("it looked")

    types = TableTypes(none, {STREAM: row(Kind.string)}, none, TypeChange.coerce)  # pyright: ignore
    assert types.kept(STREAM, TABLE, row(Kind.string).fields, None) == {}


def test_the_plan_names_what_a_column_keeps_and_the_way_to_the_new_type() -> None:
    declared = {"A": DataType(Kind.integer)}
    (note,) = kept_notes(STREAM, row(Kind.string), declared)
    assert "a (text; now declared as integer)" in note and "--recreate" in note
    (note,) = kept_notes(STREAM, row(Kind.integer), {"A": DataType(Kind.json)})
    assert "a (integer; now declared as json)" in note and "become NULL" in note
    assert kept_notes(STREAM, row(Kind.string), {}) == []
    text = {"A": DataType(Kind.string)}
    assert json_texts(with_types(row(Kind.string), {"A": DataType(Kind.json)}), text) == ("A",)
