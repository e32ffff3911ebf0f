"""The schema evolution matrix: as pure rules, and on real tables of both formats."""

import datetime as dt
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tasks_here import LOCAL

from penstock.errors import SchemaError
from penstock.model.types import EXTRA, DataType, Field, Kind
from penstock.tables.contract import (
    LoadResult,
    NewColumn,
    RemovedColumn,
    SchemaChangePolicies,
    TableName,
)
from penstock.tables.formats import open_table
from penstock.tables.frame.schema_evolution import evolve, widened

INT, NUM, STR = DataType(Kind.integer), DataType(Kind.number), DataType(Kind.string)


def decimal(precision: int, scale: int) -> DataType:
    return DataType(Kind.decimal, precision, scale)


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        (INT, NUM, NUM),
        (NUM, INT, NUM),
        (INT, decimal(38, 0), decimal(38, 0)),
        (INT, decimal(10, 2), decimal(21, 2)),
        (decimal(10, 2), INT, decimal(21, 2)),
        (decimal(38, 0), decimal(10, 5), decimal(38, 0)),  # nothing holds both
        (decimal(5, 1), NUM, NUM),
        (DataType(Kind.date), DataType(Kind.timestamp_ntz), DataType(Kind.timestamp_ntz)),
        (DataType(Kind.date), DataType(Kind.timestamp), DataType(Kind.date)),
        (INT, STR, INT),
        (STR, INT, STR),
        (DataType(Kind.boolean), INT, DataType(Kind.boolean)),
    ],
)
def test_a_type_widens_only_where_every_old_value_fits(
    old: DataType, new: DataType, want: DataType
) -> None:
    assert widened(old, new) == want


def test_policies_refuse_with_the_column_and_the_table(loads: Any) -> None:
    old = (
        Field("a", "a", INT),
        Field("s", "s", DataType(Kind.struct, fields=(Field("x", "x", INT),))),
    )
    wide = (
        Field("a", "a", INT),
        Field("s", "s", DataType(Kind.struct, fields=(Field("y", "y", INT),))),
    )
    cases = [
        ({"new_column": "fail"}, wide, "schema.new_column", "s.y"),
        ({"removed_column": "fail"}, wide, "schema.removed_column", "s.x"),
        ({"type_change": "fail"}, (Field("a", "a", STR), old[1]), "schema.type_change", "column a"),
    ]
    for policy, new, code, said in cases:
        with pytest.raises(SchemaError) as caught:
            evolve("shop", old, new, msgspec.convert(policy, SchemaChangePolicies))
        assert caught.value.code == code
        assert said in caught.value.message and "shop" in caught.value.message and caught.value.hint
    merged = evolve("shop", old, wide, SchemaChangePolicies())
    assert merged.added and [f.name for f in merged.fields[1].type.fields] == ["x", "y"]
    ignored = evolve("shop", old, wide, SchemaChangePolicies(new_column=NewColumn.ignore))
    assert ignored.fields == old and not ignored.added


def test_the_column_of_undeclared_properties_comes_and_stays_away_as_it_must() -> None:
    """A run may have no such value, whatever ``removed_column`` says; a column of that name which
    Penstock did not make is not written to."""
    extra = (Field("id", "id", INT), Field(EXTRA, EXTRA, STR))
    strict = SchemaChangePolicies(removed_column=RemovedColumn.fail)
    assert evolve("t", extra, extra[:1], strict).fields == extra
    assert evolve("t", extra[:1], extra, strict).fields == extra
    foreign = (extra[0], Field(EXTRA, EXTRA, INT))
    with pytest.raises(SchemaError, match="a column _penstock_extra of its own") as refused:
        evolve("t", foreign, extra, SchemaChangePolicies())
    assert refused.value.code == "schema.name_taken"


def test_a_field_that_differs_by_case_alone_from_the_tables_is_refused() -> None:
    from penstock.model.types import Field

    def columns(*names: str, top: str = "o") -> Any:
        inside = tuple(Field(n, n, STR) for n in names)
        return (Field(top, top, DataType(Kind.struct, fields=inside)),)

    policies = SchemaChangePolicies()
    for new, said in ((columns("name"), "o.name"), (columns("Name", top="O"), "field O is new")):
        with pytest.raises(SchemaError, match=said) as caught:
            evolve("shop", columns("Name"), new, policies)
        assert caught.value.code == "schema.name_taken"
    assert evolve("shop", columns("Name"), columns("name"), policies, replaces=True).fields
    both = columns("Name", "name")  # of a table that was made so before
    assert evolve("shop", both, columns("name"), policies).fields == both
    ignored = SchemaChangePolicies(new_column=NewColumn.ignore)
    assert evolve("shop", columns("Name"), columns("name"), ignored).fields == columns("Name")


@pytest.fixture(params=["parquet", "delta"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return open_table(request.param, str(tmp_path / "lake"))


def rows(tables: Any, spark: Any, *columns: str) -> list[Any]:
    frame = spark.read.format(tables.name).load(tables.location(TableName(None, "t")))
    return sorted((tuple(r) for r in frame.selectExpr(*columns).collect()), key=str)


def only(outcomes: list[Any]) -> LoadResult:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes[-1]


LOST = "transform(_meta.changes, c -> concat_ws(' ', c.field, c.change))"


@pytest.mark.spark
def test_append_adds_columns_and_widens_old_rows(tables: Any, spark: Any, loads: Any) -> None:
    first = loads.load(
        1,
        [{"id": 1, "n": 5, "s": {"x": 1}}],
        {"id": "integer", "n": "integer", "s": {"x": "integer"}},
    )
    only(tables.commit(spark, LOCAL, [first]))
    second = loads.load(
        2,
        [{"id": 2, "n": 1.5, "s": {"x": 2, "y": "new"}, "extra": ["e"]}],
        {"id": "integer", "n": "number", "s": {"x": "integer", "y": "string"}, "extra": ["string"]},
    )
    assert only(tables.commit(spark, LOCAL, [second])) == LoadResult(1)
    assert rows(tables, spark, "id", "n", "s.x", "s.y", "extra[0]", LOST) == [
        (1, 5.0, 1, None, None, []),
        (2, 1.5, 2, "new", "e", []),
    ]
    assert only(tables.commit(spark, LOCAL, [second])).repeated
    third = loads.load(3, [{"id": 3}], {"id": "integer"})  # removed columns become NULL
    only(tables.commit(spark, LOCAL, [third]))
    assert rows(tables, spark, "id", "n") == [(1, 5.0), (2, 1.5), (3, None)]


@pytest.mark.spark
def test_what_does_not_fit_becomes_null_with_an_entry_L9(
    tables: Any, spark: Any, loads: Any
) -> None:
    columns = {
        "id": "integer",
        "n": "integer",
        "d": "date",
        "l": ["integer"],
        "o": {"b": "boolean"},
    }
    only(tables.commit(spark, LOCAL, [loads.load(1, [{"id": 1, "n": 2**53 + 1}], columns)]))
    other = {"id": "integer", "n": "number", "d": "string", "l": ["string"], "o": {"b": "string"}}
    given = [
        {"id": 2, "n": 2.0, "d": "2024-02-03", "l": ["4"], "o": {"b": "true"}},
        {"id": 3, "n": 2.5, "d": "2024-02-30", "l": ["4", "x"], "o": {"b": "yes"}},
    ]
    only(
        tables.commit(spark, LOCAL, [loads.load(2, given, other)])
    )  # n stays: a double loses 2**53 + 1
    assert rows(tables, spark, "id", "n", "cast(d as string)", "l", "o.b", LOST) == [
        (1, 2**53 + 1, None, None, None, []),
        (2, 2, "2024-02-03", [4], True, []),
        (3, None, None, [4, None], None, ["n NULLED", "d NULLED", "l NULLED", "o.b NULLED"]),
    ]
    nulls = loads.load(
        3,
        [{"id": 4, "n": 7.0}],
        {"id": "integer", "n": "number"},
        evolution={"type_change": "null"},
    )
    only(tables.commit(spark, LOCAL, [nulls]))
    assert rows(tables, spark, "id", "n", LOST)[-1] == (4, None, ["n NULLED"])


@pytest.mark.spark
def test_dedup_evolves_and_policies_hold(tables: Any, spark: Any, loads: Any) -> None:
    def load(number: int, row: dict[str, Any], columns: dict[str, Any], **more: str) -> Any:
        return loads.load(number, [row], columns, mode="append_dedup", evolution=more)

    only(
        tables.commit(spark, LOCAL, [load(1, {"id": 1, "v": 1}, {"id": "integer", "v": "integer"})])
    )
    only(
        tables.commit(spark, LOCAL, [load(2, {"id": 2, "v": 2}, {"id": "integer", "v": "integer"})])
    )
    wide = {"id": "integer", "v": (38, 0), "w": "string"}
    assert (
        only(
            tables.commit(spark, LOCAL, [load(3, {"id": 1, "v": Decimal(10**30), "w": "x"}, wide)])
        ).written
        == 1
    )
    assert rows(tables, spark, "id", "v", "w") == [
        (1, Decimal(10**30), "x"),
        (2, Decimal(2), None),
    ]
    ignored = load(
        4,
        {"id": 3, "v": Decimal(3), "z": 1},
        {"id": "integer", "v": (38, 0), "z": "integer"},
        new_column="ignore",
    )
    only(tables.commit(spark, LOCAL, [ignored]))
    assert rows(tables, spark, "id", "v")[2] == (3, Decimal(3))
    assert (
        "z"
        not in spark.read.format(tables.name).load(tables.location(TableName(None, "t"))).columns
    )
    refused = load(5, {"id": 4, "q": 1}, {"id": "integer", "q": "integer"}, new_column="fail")
    outcome = tables.commit(spark, LOCAL, [refused])[0]
    assert isinstance(outcome, SchemaError) and outcome.code == "schema.new_column"
    assert len(rows(tables, spark, "id")) == 3


@pytest.mark.spark
def test_text_is_read_as_it_stands_and_not_as_spark_takes_it_L9(
    spark: Any, loads: Any, tmp_path: Path
) -> None:
    """Spark reads `30d` as a number, `08:30` as that time of the day of the load, and compares 1.5
    with a decimal without digits after the point as 2."""
    tables = open_table("parquet", str(tmp_path / "lake"))
    columns = {
        "id": "integer", "x": "number", "t": "timestamp", "w": "timestamp_ntz", "d": (38, 0),
        "p": (30, 2),
    }  # fmt: skip
    text = {name: "integer" if name == "id" else "string" for name in columns}
    taken: list[dict[str, Any]] = [
        {"x": "1.50", "t": "2024-01-02T03:04:05Z", "w": "2024-01-02 03:04:05", "d": "9" * 38,
         "p": "1.5"},
        {"x": "-1e5", "t": "2024-01-02", "w": "2024-01-02", "d": "12.0", "p": "1.25e1"},
        {"x": "+.5", "t": "1899-12-31 23:59:59.999999", "w": None, "d": "-7e3", "p": "-.120"},
    ]  # fmt: skip
    refused: list[dict[str, Any]] = [
        {"x": "30d", "t": "08:30", "w": "2024", "d": "1.5", "p": "0.125"},
        {"x": "1e999", "t": "T12", "w": "2024-02", "d": "9" * 39, "p": "1.00000000001"},
        {"x": "NaN", "t": "2024", "w": "08:30", "d": "15e-1", "p": "1.25e-1"},
    ]
    given = [{"id": n, **row} for n, row in enumerate((*taken, *refused), 2)]
    only(tables.commit(spark, LOCAL, [loads.load(1, [{"id": 1}], columns)]))
    only(tables.commit(spark, LOCAL, [loads.load(2, given, text)]))
    fields = ("x", "cast(t as string)", "cast(w as string)", "d", "p")
    found = rows(tables, spark, "id", *fields, LOST)[1:]
    assert [row[1:] for row in found[:3]] == [
        (1.5, "2024-01-02 03:04:05", "2024-01-02 03:04:05", Decimal("9" * 38), Decimal("1.5"), []),
        (-1e5, "2024-01-02 00:00:00", "2024-01-02 00:00:00", 12, Decimal("12.5"), []),
        (0.5, "1899-12-31 23:59:59.999999", None, -7000, Decimal("-0.12"), []),
    ]
    lost = [f"{name} NULLED" for name in ("x", "t", "w", "d", "p")]
    assert [row[1:] for row in found[3:]] == [(None,) * 5 + (lost,)] * 3


@pytest.mark.spark
def test_a_number_in_text_that_a_double_cannot_hold_is_entered_L9(
    spark: Any, loads: Any, tmp_path: Path
) -> None:
    """As of sources (``codec.values``): the nearest double, and an entry where digits are lost."""
    tables = open_table("parquet", str(tmp_path / "lake"))
    columns = {"id": "integer", "x": "number", "s": {"y": "number"}, "l": ["number"]}
    text = {"id": "integer", "x": "string", "s": {"y": "string"}, "l": ["string"]}
    parsed = {"id": "integer", "x": "string", "s": "json", "l": "json"}
    exact = ["9007199254740992", "-4611686018427387904", "0.1", "123456789012345.6", "1.50e3",
             "0", "1000000000000000000000", "0.30000000000000004", "00000000000000000001.50",
             " 7 ", "0e-400", "5e-324"]  # fmt: skip
    rounded = ["1e-400", "-1E-400", f"0.{'0' * 400}1", "9007199254740993",
               "99999999999999.999999", "-12345678901234567890", "0.12345678901234567891",
               "1.2345678901234567891e5", "0.1000000000000000055",
               "12345678.10000000000000005"]  # fmt: skip
    only(tables.commit(spark, LOCAL, [loads.load(1, [{"id": 0}], columns)]))
    made = [*exact, *rounded]
    rows_in = [{"id": n, "x": x, "s": {"y": x}, "l": ["1", x]} for n, x in enumerate(made, 1)]
    as_json = [{"id": -n, "x": None, "s": f'{{"y": "{x}"}}', "l": f'["{x}"]'}
               for n, x in enumerate(made, 1)]  # fmt: skip
    only(
        tables.commit(spark, LOCAL, [loads.load(2, rows_in, text), loads.load(3, as_json, parsed)])
    )
    found = {row[0]: row[1:] for row in rows(tables, spark, "id", "x", "s.y", "l", LOST)}
    for n, x in enumerate(made, 1):
        lost = [f"{path} TRUNCATED" for path in ("x", "s.y", "l") if x in rounded]
        assert found[n] == (float(x), float(x), [1.0, float(x)], lost), x
        lost = [f"{path} TRUNCATED" for path in ("s", "l") if x in rounded]
        assert found[-n] == (None, float(x), [float(x)], lost), x


@pytest.mark.spark
def test_a_table_stays_readable_when_a_nested_name_changes_its_case(
    tables: Any, spark: Any, loads: Any
) -> None:
    """Parquet took the load, and Spark could not read the table from then on."""
    for number, name in ((1, "Name"), (2, "name")):
        row, columns = {"id": number, "o": {name: "x"}}, {"id": "integer", "o": {name: "string"}}
        outcome = tables.commit(spark, LOCAL, [loads.load(number, [row], columns)])[0]
    assert isinstance(outcome, SchemaError) and outcome.code == "schema.name_taken"
    assert [r[0] for r in rows(tables, spark, "id")] == [1]


@pytest.mark.spark
def test_a_key_that_does_not_fit_its_column_is_refused_L9(
    tables: Any, spark: Any, loads: Any
) -> None:
    """A key's type changed at the source, from numbers to text: as NULLs all new rows would have
    one key, or none."""
    dedup: dict[str, Any] = {"mode": "append_dedup"}
    only(tables.commit(spark, LOCAL, [loads.load(1, [{"id": 1, "v": 1}], KEYED, **dedup)]))
    text = {"id": "string", "v": "integer"}
    only(tables.commit(spark, LOCAL, [loads.load(2, [{"id": "2", "v": 2}], text, **dedup)]))
    given = [{"id": "2", "v": 3}, {"id": "six", "v": 6}, {"id": "seven", "v": 7}]
    third = loads.load(3, given, text, **dedup)
    with pytest.raises(SchemaError) as caught:
        only(tables.commit(spark, LOCAL, [third]))
    assert caught.value.code == "schema.key_type" and "id" in caught.value.message
    assert rows(tables, spark, "id", "v") == [(1, 1), (2, 2)]
    anew = loads.load(3, given, text, replaces=True, **dedup)
    only(tables.commit(spark, LOCAL, [anew]))
    assert rows(tables, spark, "id", "v") == [("2", 3), ("seven", 7), ("six", 6)]


@pytest.mark.spark
def test_keys_that_would_lose_digits_are_refused_L9(spark: Any, loads: Any, tmp_path: Path) -> None:
    """Two of them would become one key, and one row would be lost. A key of doubles is the number
    that its double stands for, one of times has microseconds."""
    tables, dedup = open_table("parquet", str(tmp_path / "lake")), {"mode": "append_dedup"}
    kept = {
        "number": ["0.1", "9007199254740992", "1e0", "0.10"],
        "timestamp": ["2024-05-01T12:00:00.123456Z", "2024-05-01T12:00:00.123456000Z"],
    }
    inexact = {
        "number": ["9007199254740993", "0.1000000000000000055", "-12345678.10000000000000005",
                   "3e-324"],
        "timestamp": ["2024-05-01T12:00:00.123456789Z"],
    }  # fmt: skip
    first = {"number": 1.0, "timestamp": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)}
    for kind, made in inexact.items():

        def load(number: int, keys: list[Any], of: str, kind: str = kind) -> Any:
            rows = [{"id": key, "v": number} for key in keys]
            return loads.load(number, rows, {"id": of, "v": "integer"}, table=kind, **dedup)

        only(tables.commit(spark, LOCAL, [load(1, [first[kind]], kind)]))
        only(tables.commit(spark, LOCAL, [load(2, kept[kind], "string")]))
        for key in made:
            with pytest.raises(SchemaError) as caught:
                only(tables.commit(spark, LOCAL, [load(3, [key], "string")]))
            assert caught.value.code == "schema.key_type" and "id" in caught.value.message, key


@pytest.mark.spark
def test_a_text_with_room_for_a_secret_is_in_no_entry_L10(
    spark: Any, loads: Any, tmp_path: Path
) -> None:
    """Spark is not told secrets: its plans are shown. A name with a point is no path."""
    tables = open_table("parquet", str(tmp_path / "lake"))
    inside = {"id": "integer", "a.b": "integer", "a": {"b": "integer"}}
    only(tables.commit(spark, LOCAL, [loads.load(1, [{"id": 1}], inside)]))
    text = {"id": "integer", "a.b": "string", "a": {"b": "string"}}
    given = [{"id": 2, "a.b": "short", "a": {"b": "hunter2 is it"}}, {"id": 3, "a.b": "7"}]
    second = loads.load(2, given, text)
    policy = msgspec.structs.replace(second.policy, longest_text=6)
    only(tables.commit(spark, LOCAL, [msgspec.structs.replace(second, policy=policy)]))
    reasons = "transform(_meta.changes, c -> concat_ws(' ', c.field, c.reason))"
    assert rows(tables, spark, "id", "`a.b`", "a.b", reasons) == [
        (1, None, None, []),
        (2, None, None, ["a.b TYPE_MISFIT: short", "a.b TYPE_MISFIT"]),
        (3, 7, None, []),
    ]


@pytest.mark.spark
def test_a_column_that_keeps_another_type_is_told_L9(tables: Any, spark: Any, loads: Any) -> None:
    """A NULL in place of a value is in the row's change list, and the report says which column."""
    first = only(tables.commit(spark, LOCAL, [loads.load(1, [{"id": 1, "v": 1}], KEYED)]))
    text = {"id": "integer", "v": "string"}
    given = [{"id": 2, "v": "2"}, {"id": 3, "v": "six"}]
    second = only(tables.commit(spark, LOCAL, [loads.load(2, given, text)]))
    assert rows(tables, spark, "id", "v") == [(1, 1), (2, 2), (3, None)]
    assert first.notes == ()
    (note,) = second.notes
    assert " v have another type" in note and "NULL" in note


@pytest.mark.spark
def test_json_goes_into_a_column_of_objects_as_far_as_it_has_fields_L9(
    tables: Any, spark: Any, loads: Any
) -> None:
    """A column that was an object of known fields and is JSON now, as the pipeline or a newer
    version says; its table keeps its type until it is written anew."""
    columns = {
        "id": "integer",
        "o": {"n-1": "integer", "at": "timestamp_ntz", "in": {"b": "boolean"}},
        "l": [{"q": (10, 2)}],
    }
    before = {"n-1": 1, "at": None, "in": {"b": True}}
    first = [{"id": 1, "o": before, "l": [{"q": Decimal("1.50")}]}]
    only(tables.commit(spark, LOCAL, [loads.load(1, first, columns)]))
    given = [
        {"id": 2, "o": '{"n-1":2,"in":{"b":false,"c":1},"x":[1]}', "l": '[{"q":2.5},null,{}]'},
        {"id": 3, "o": '{"at":"2024-01-02T03:04:05Z","in":null}', "l": "[]"},
        {"id": 4, "o": '{"n-1":"x","in":7}', "l": '{"q":1}'},
        {"id": 5, "o": "[1]", "l": None},
        {"id": 6, "o": None, "l": '[{"q":3.333}]'},
    ]
    json = {"id": "integer", "o": "json", "l": "json"}
    notes = only(tables.commit(spark, LOCAL, [loads.load(2, given, json)])).notes
    assert rows(tables, spark, "id", "o.`n-1`", "o.at", "o.in.b", "l.q", LOST) == [
        (1, 1, None, True, [Decimal("1.50")], []),
        (2, 2, None, False, [Decimal("2.50"), None, None], []),
        (3, None, datetime(2024, 1, 2, 3, 4, 5), None, [], []),
        (4, None, None, None, None, ["o NULLED", "l NULLED"]),
        (5, None, None, None, None, ["o NULLED"]),
        (6, None, None, None, [None], ["l NULLED"]),
    ]
    assert "o, l have another type" in notes[0] and "--recreate" in notes[0]
    assert notes[1].startswith("of the source's JSON in o, l ")


KEYED = {"id": "integer", "v": "integer"}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("tables", "old"),
    [("parquet", {"at": "string"}), ("delta", ["string"])],
    indirect=["tables"],
)
def test_a_mark_that_was_kept_as_an_object_or_a_list_and_is_json_now_deletes_L9(
    tables: Any, spark: Any, loads: Any, old: Any
) -> None:
    dedup: dict[str, Any] = {"mode": "append_dedup", "deleted": "gone"}
    before = {"id": "integer", "gone": old}
    only(
        tables.commit(spark, LOCAL, [loads.load(1, [{"id": n} for n in range(5)], before, **dedup)])
    )
    marks = [None, "{}", '"2018-11-22T12:51:30Z"', "true", "[]"]
    given = [{"id": n, "gone": mark} for n, mark in enumerate(marks)]
    second = loads.load(2, given, {"id": "integer", "gone": "json"}, **dedup)
    only(tables.commit(spark, LOCAL, [second]))
    assert rows(tables, spark, "id", "gone is null") == [(0, True), (1, True), (4, True)]
