"""transform-validate: which rows break which rule, and what becomes of them."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.codec.arrow import arrow_type
from penstock.errors import ConfigError, SourceError
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.transforms.contract import BatchTransform, OnFailure, TransformResult
from penstock.transforms.open import open_transform

NAN, INF = float("nan"), float("inf")


def validate(rules: Any, on_failure: OnFailure = "dlq", *, v4: bool = False) -> BatchTransform:
    return open_transform(
        "transform-validate", {"rules": rules}, where="transforms[0]", on_failure=on_failure, v4=v4
    )


def schema(**columns: DataType | Kind) -> RowSchema:
    types = {n: k if isinstance(k, DataType) else DataType(k) for n, k in columns.items()}
    return RowSchema(tuple(Field(n, n, t) for n, t in types.items()))


def batch(of: RowSchema, *columns: list[Any]) -> pa.Table:
    """In several chunks, as a stream's batches are."""
    arrow = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in of.fields])
    whole = pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)], schema=arrow
    )
    return pa.Table.from_batches(whole.to_batches(max_chunksize=2), arrow)


def failing(rules: Any, kind: DataType | Kind, values: list[Any], *, v4: bool = False) -> list[int]:
    """Which rows of one column ``x`` are rejects; every other row must come out, in order."""
    columns = schema(x=kind)
    transform = validate(rules, v4=v4)
    assert transform.output(columns) is columns
    rows = batch(columns, values)
    found = transform.apply(rows)
    bad = [r.index for r in found.rejects]
    assert found.origin is not None and found.origin.type == pa.int64()
    assert found.origin.to_pylist() == [i for i in range(len(values)) if i not in bad]
    assert repr(found.table.to_pylist()) == repr(rows.take(found.origin).to_pylist())
    return bad


def faults(rules: Any, of: RowSchema | None = None) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        validate(rules).output(of or schema(x=Kind.integer))
    assert raised.value.code == "config.transform" and raised.value.where == "transforms[0]"
    assert raised.value.hint is not None and "assert_not_null" in raised.value.hint
    return raised.value.problems


# -- rules
def test_not_null_of_any_type() -> None:
    rule = [{"assert_not_null": "x"}]
    assert failing(rule, Kind.string, ["a", None, "", None, "b"]) == [1, 3]
    assert failing(rule, Kind.number, [NAN, None]) == [1]
    assert failing(rule, DataType(Kind.array, item=DataType(Kind.string)), [[], None]) == [1]
    assert failing(rule, Kind.string, []) == []


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Kind.integer, [1, 2, 1, None, None, 1]),
        (Kind.string, ["a", "b", "a", None, None, "a"]),
        (DataType(Kind.decimal, 5, 2), [Decimal("1.50"), 2, Decimal("1.5"), None, None, 1.5]),
        (Kind.binary, [b"a", b"b", b"a", None, None, b"a"]),
        (Kind.boolean, [True, False, True, None, None, True]),
        (Kind.timestamp, [1, 2, 1, None, None, 1]),
    ],
)
def test_unique_keeps_the_first_of_a_batch_and_counts_no_nulls(
    kind: DataType | Kind, values: list[Any]
) -> None:
    if isinstance(kind, DataType):
        values = [None if v is None else Decimal(str(v)) for v in values]
    assert failing([{"assert_unique": "x"}], kind, values) == [2, 5]


def test_unique_knows_nothing_of_the_batch_before() -> None:
    columns = schema(x=Kind.integer)
    transform = validate([{"assert_unique": ["x"]}])
    transform.output(columns)
    for _ in range(2):
        assert transform.apply(batch(columns, [1, 2, 3])).rejects == []


@pytest.mark.parametrize(
    ("pattern", "bad"),
    [
        ("^.+@.+$", [1, 2]),  # a NULL passes
        ("@", [1, 2]),  # found anywhere
        ("(?i)^A@", [1, 2, 4]),
        (r"^\d+$|@", [1]),
        (r"\Aa@b\z", [1, 2, 4]),
        ("", []),
        ("é", [0, 1, 2]),
    ],
)
def test_regex_is_re2_and_found_anywhere(pattern: str, bad: list[int]) -> None:
    values = ["a@b", "", "17", None, "é@x"]
    assert failing([{"assert_regex": {"field": "x", "pattern": pattern}}], Kind.string, values) == (
        bad
    )


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "[z-a]"])
def test_a_pattern_that_is_none_of_re2s_is_told_at_plan(pattern: str) -> None:
    problems = faults([{"assert_regex": {"x": pattern}}], schema(x=Kind.string))
    assert len(problems) == 1 and "the pattern of 'x' is not one of RE2's" in problems[0]
    assert problems[0].startswith("transforms[0].config.rules[0].assert_regex: ")


@pytest.mark.parametrize(
    ("kind", "bounds", "values", "bad"),
    [
        (Kind.integer, {"min": 0, "max": 10}, [0, 10, -1, 11, None], [2, 3]),
        (Kind.integer, {"min": 0.5}, [0, 1, -1], [0, 2]),
        (Kind.integer, {"max": 1.9}, [1, 2], [1]),
        (Kind.integer, {"max": 2**63 - 1, "min": -(2**63)}, [2**63 - 1, -(2**63)], []),
        (Kind.integer, {"max": 1e30}, [2**63 - 1], []),
        (Kind.integer, {"min": 2**63}, [2**63 - 1, None], [0]),
        (Kind.integer, {"max": -1e30}, [-(2**63), None], [0]),
        (Kind.integer, {"min": -INF, "max": INF}, [1], []),
        (Kind.integer, {"max": 9007199254740993}, [9007199254740993, 9007199254740994], [1]),
        (Kind.number, {"min": 0, "max": 1.5}, [0.0, 1.5, 1.6, -0.1, NAN, None, INF], [2, 3, 4, 6]),
        (DataType(Kind.decimal, 6, 2), {"min": 0.1, "max": 9.999},
         [Decimal("0.10"), Decimal("0.09"), Decimal("9.99"), Decimal("10.00"), None], [1, 3]),
        (DataType(Kind.decimal, 6, 2), {"max": 100000, "min": -100000},
         [Decimal("9999.99"), Decimal("-9999.99")], []),
        (DataType(Kind.decimal, 38, 0), {"min": -(10**38), "max": 10**37 + 1},
         [Decimal(10**37 + 1), Decimal(10**37 + 2), Decimal(1 - 10**38)], [1]),
        (Kind.date, {"min": "2024-01-01", "max": date(2024, 12, 31)},
         [date(2024, 1, 1), date(2024, 12, 31), date(2025, 1, 1), None], [2]),
        (Kind.timestamp, {"min": "2024-01-01", "max": "2024-01-01T12:00:00+02:00"},
         [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 10, tzinfo=UTC),
          datetime(2024, 1, 1, 10, 0, 1, tzinfo=UTC), None], [2]),
        (Kind.timestamp_ntz, {"min": "2024-01-01T00:00:00"},
         [datetime(2024, 1, 1), datetime(2023, 12, 31)], [1]),
    ],
)  # fmt: skip
def test_range_includes_its_bounds_and_rounds_no_value(
    kind: DataType | Kind, bounds: dict[str, Any], values: list[Any], bad: list[int]
) -> None:
    assert failing([{"assert_range": {"field": "x", **bounds}}], kind, values) == bad


# -- v4's rules: those of its transform-validate, for its files


@pytest.mark.parametrize(
    ("rule", "kind", "values", "bad", "why"),
    [
        ({"assert_not_null": "x"}, Kind.string, ["a", None], [1], "x is null"),
        ({"assert_unique": "x"}, Kind.integer, [1, 2, 1, 3, 1], [0, 2, 4],
         "x has the value of another row"),
        ({"assert_unique": "x"}, Kind.string, [None, "a", None], [0, 2],
         "x has the value of another row"),
        ({"assert_unique": "x"}, Kind.string, [None, "a", ""], [], ""),
        ({"assert_unique": "x"}, Kind.string, [], [], ""),
        ({"assert_regex": {"x": "^a"}}, Kind.string, ["a", None, "b"], [1, 2],
         "x is null or does not match its pattern"),
        ({"assert_range": {"field": "x", "min": 0}}, Kind.integer, [0, None, -1], [1, 2],
         "x is null or is not at least 0"),
        ({"assert_range": {"field": "x", "max": 2**64}}, Kind.integer, [2**63 - 1, None], [1],
         f"x is null or is not at most {2**64}"),
        ({"assert_range": {"field": "x", "max": 9.5}}, Kind.number, [9.5, NAN, -INF, INF, None],
         [1, 2, 3, 4], "x is null or is not at most 9.5"),
    ],
)  # fmt: skip
def test_a_v4_file_turns_away_what_v4_does(
    rule: dict[str, Any], kind: Kind, values: list[Any], bad: list[int], why: str
) -> None:
    assert failing([rule], kind, values, v4=True) == bad
    transform = validate([rule], v4=True)
    transform.output(schema(x=kind))
    rejects = transform.apply(batch(schema(x=kind), values)).rejects
    assert {r.reason for r in rejects} == ({f"{next(iter(rule))}: {why}"} if bad else set())


def test_a_v4_file_that_fails_on_bad_data_fails_on_its_first_repeated_value() -> None:
    columns = schema(x=Kind.string)
    transform = validate([{"assert_unique": "x"}], "fail", v4=True)
    transform.output(columns)
    with pytest.raises(SourceError, match=r"assert_unique on x \(2 rows\)"):
        transform.apply(batch(columns, ["a", "b", "a"]))


# -- every form of v4's configuration
@pytest.mark.parametrize(
    "rules",
    [
        [{"assert_not_null": ["a", "b"]}, {"assert_regex": {"field": "a", "pattern": "^x"}}],
        [{"assert_not_null": "a"}, {"assert_not_null": "b"}, {"assert_regex": {"a": "^x"}}],
        [{"assert_not_null": ["a", "b"], "assert_regex": [{"field": "a", "pattern": "^x"}]}],
    ],
)
def test_a_rule_is_written_in_several_ways(rules: list[Any]) -> None:
    columns = schema(a=Kind.string, b=Kind.string)
    transform = validate(rules)
    transform.output(columns)
    found = transform.apply(batch(columns, ["x1", "y", None, "x2"], ["1", "2", None, None]))
    assert [(r.index, r.reason, r.field) for r in found.rejects] == [
        (1, "assert_regex: a does not match its pattern", "a"),
        (2, "assert_not_null: a is null; assert_not_null: b is null", "a"),
        (3, "assert_not_null: b is null", "b"),
    ]
    assert found.table.to_pydict() == {"a": ["x1"], "b": ["1"]}


def test_ranges_are_one_or_a_list() -> None:
    one = {"field": "x", "min": 1}
    assert failing([{"assert_range": [one, {"field": "x", "max": 2}]}], Kind.integer,
                   [0, 1, 2, 3]) == [0, 3]  # fmt: skip


def test_a_column_may_be_named_as_the_source_does() -> None:
    columns = RowSchema((Field("user_name", "user name", DataType(Kind.string)),))
    for name in ("user name", "user_name"):
        transform = validate([{"assert_not_null": name}])
        transform.output(columns)
        assert [r.field for r in transform.apply(batch(columns, [None])).rejects] == ["user name"]


# -- what becomes of a row (on_data_error)
RULES = [
    {"assert_not_null": "id"},
    {"assert_range": {"field": "age", "min": 0, "max": 150}},
    {"assert_unique": "id"},
]
PEOPLE = schema(id=Kind.integer, age=Kind.integer)
ROWS = ([1, None, 2, 2, 3], [20, 200, 30, -1, None])
COUNTS = {
    "validation_failures_total{rule=assert_not_null,field=id}": 1,
    "validation_failures_total{rule=assert_range,field=age}": 2,
    "validation_failures_total{rule=assert_unique,field=id}": 1,
    "validation_rows_valid_total": 3,
    "validation_rows_invalid_total": 2,
}


def people(on_failure: OnFailure) -> TransformResult:
    transform = validate(RULES, on_failure)
    transform.output(PEOPLE)
    return transform.apply(batch(PEOPLE, *ROWS))


def test_dlq_rejects_each_row_once_with_all_that_it_breaks() -> None:
    found = people("dlq")
    assert found.counts == COUNTS
    assert found.table["id"].to_pylist() == [1, 2, 3]
    assert [(r.index, r.reason, r.field) for r in found.rejects] == [
        (1, "assert_not_null: id is null; assert_range: age is not at least 0 and at most 150",
         "id"),
        (3, "assert_range: age is not at least 0 and at most 150; "
         "assert_unique: id repeats an earlier row's value", "age"),
    ]  # fmt: skip


def test_skip_drops_and_counts() -> None:
    found = people("skip")
    assert found.rejects == [] and found.counts == COUNTS
    assert found.table["id"].to_pylist() == [1, 2, 3]


def test_fail_names_rules_columns_and_how_many_but_no_value() -> None:
    with pytest.raises(SourceError) as raised:
        people("fail")
    error = raised.value
    assert error.code == "transform.validation_failed" and error.where == "transforms[0]"
    assert "assert_range on age (2 rows)" in error.message
    assert "assert_not_null on id (1 row)" in error.message and "200" not in error.message
    assert error.connector is not None and error.connector["code"] == "VALIDATION_FAILED"
    assert {"rule": "assert_range", "field": "age", "rows": 2} in error.connector["failures"]


@pytest.mark.parametrize("on_failure", ["skip", "fail", "dlq"])
def test_a_sound_batch_passes_uncopied(on_failure: OnFailure) -> None:
    transform = validate(RULES, on_failure)
    transform.output(PEOPLE)
    rows = batch(PEOPLE, [1, 2, 3], [1, 2, None])
    found = transform.apply(rows)
    assert found.table is rows and found.rejects == []
    assert found.counts == {"validation_rows_valid_total": 3, "validation_rows_invalid_total": 0}


# -- faults
@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (None, "rules must be a list of rules"),
        ([], "not empty"),
        ({"assert_not_null": "x"}, "must be a list"),
        (["assert_not_null"], "rules[0] must be one of assert_not_null"),
        ([{"assert_notnull": "x"}], "unknown key 'assert_notnull'; did you mean 'assert_not_null'"),
        ([{"assert_not_null": 3}], "must be a column or a list of columns, not a number"),
        ([{"assert_not_null": []}], "names no column"),
        ([{"assert_regex": "x"}], "must be field and pattern"),
        ([{"assert_regex": {"field": "x", "patern": "a"}}], "did you mean 'pattern'"),
        ([{"assert_regex": {"x": 3}}], "the pattern of 'x' must be a text"),
        ([{"assert_range": {"field": "x"}}], "needs min, max or both"),
        ([{"assert_range": {"min": 1}}], "needs the key 'field'"),
        ([{"assert_range": {"field": "x", "mn": 1}}], "unknown key 'mn'; did you mean 'min'"),
        ([{"assert_range": {"field": "x", "min": True}}], "min must be a number or a date"),
        ([{"assert_range": {"field": "x", "min": "a"}}], "its bounds are numbers"),
        ([{"assert_range": {"field": "x", "min": NAN}}], "not .nan"),
        ([{"assert_range": {"field": "x", "min": 2, "max": 1}}], "is between min and max"),
        ([{"assert_not_null": "xx"}], "there is no column 'xx'; did you mean 'x'?"),
        ([{"assert_regex": {"x": "a"}}], "'x' is integer, and assert_regex works on text"),
    ],
)
def test_a_fault_of_the_rules_is_told_at_plan(rules: Any, words: str) -> None:
    assert any(words in line for line in faults(rules))


def test_all_faults_are_told_at_once() -> None:
    rules = [{"assert_not_null": "y"}, {"assert_regex": {"x": "a"}}, {"assert_unique": "z"}]
    assert len(faults(rules)) == 3


@pytest.mark.parametrize(
    ("rule", "kind", "words"),
    [
        ({"assert_range": {"field": "x", "min": 1}}, Kind.string, "works on numbers, dates"),
        ({"assert_range": {"field": "x", "min": 20240101}}, Kind.date, "bounds are dates"),
        ({"assert_range": {"field": "x", "min": "soon"}}, Kind.timestamp, "are written as 2024"),
        ({"assert_range": {"field": "x", "min": "2024-01-01T00:00:00Z"}}, Kind.timestamp_ntz,
         "have no time zone"),
        ({"assert_unique": "x"}, DataType(Kind.array, item=DataType(Kind.string)), "nested"),
    ],
)  # fmt: skip
def test_a_rule_that_does_not_fit_a_columns_type_is_told_at_plan(
    rule: Any, kind: DataType | Kind, words: str
) -> None:
    assert words in faults([rule], schema(x=kind))[0]


def test_a_config_without_rules_or_with_more_is_refused() -> None:
    for config, words in (({}, "needs the key 'rules'"), ({"rule": []}, "did you mean 'rules'")):
        with pytest.raises(ConfigError, match=words):
            open_transform("transform-validate", config, where="transforms[0]")
