"""Bodies to rows (L9): the supported-data-types table and every rule of what fits, value by value,
then shapes, double keys, rejects, change lists, extra fields."""

import json
import math
import random
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.codec.arrow import duckdb_type, part_schema
from penstock.codec.decode import DecodedBatch, RowDecoder, warm
from penstock.codec.json_schema import data_type, row_schema
from penstock.codec.system_columns import row_ids
from penstock.model.types import CHANGES, RAW_ID, SEQ, ChangeWords, DataType, Field, Kind, RowSchema

MISFIT = object()
DIGITS = "12345678901234567890123456789012345678"
STRING, INTEGER, NUMBER = DataType(Kind.string), DataType(Kind.integer), DataType(Kind.number)
JSON, BOOLEAN, DATE = DataType(Kind.json), DataType(Kind.boolean), DataType(Kind.date)
DECIMAL = DataType(Kind.decimal, precision=10, scale=2)
BIG = DataType(Kind.decimal, precision=38, scale=0)
INSTANT, WALL = DataType(Kind.timestamp), DataType(Kind.timestamp_ntz)
TIME, TIME_TZ, BINARY = DataType(Kind.time), DataType(Kind.time_tz), DataType(Kind.binary)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type]


def schema(**types: DataType) -> RowSchema:
    return RowSchema(tuple(Field(n, n, t) for n, t in types.items()))


def decode(of: RowSchema, *bodies: str | bytes, **options: Any) -> DecodedBatch:
    raw = [b.encode() if isinstance(b, str) else b for b in bodies]
    changes = options.pop("changes", {})
    return RowDecoder(of, **options).decode(raw, 1, [1_700_000_000_000] * len(raw), changes)


def change(path: str) -> dict[str, str]:
    return {"field": path, "change": "NULLED", "reason": "TYPE_MISFIT"}


VALUES: list[tuple[DataType, str, Any]] = [
    (STRING, '"foo"', "foo"),
    (STRING, '""', ""),
    (STRING, "null", None),
    (STRING, "12.50", "12.50"),
    (STRING, "12345678901234567890.123456789", "12345678901234567890.123456789"),
    (STRING, "true", "true"),
    (STRING, '{"a": 1.10}', '{"a":1.10}'),
    (STRING, "[1, 2]", "[1,2]"),
    (STRING, r'"\u00e9\ud83d\ude00\n\u0000"', "é😀\n\0"),
    (STRING, r'"\ud800"', MISFIT),
    (BOOLEAN, "true", True),
    (BOOLEAN, "false", False),
    (BOOLEAN, '"true"', True),
    (BOOLEAN, '"yes"', MISFIT),
    (BOOLEAN, "1", MISFIT),
    (BOOLEAN, "0", MISFIT),
    (BOOLEAN, "{}", MISFIT),
    (INTEGER, "42", 42),
    (INTEGER, "-0", 0),
    (INTEGER, "9223372036854775807", 2**63 - 1),
    (INTEGER, "-9223372036854775808", -(2**63)),
    (INTEGER, "9223372036854775808", MISFIT),
    (INTEGER, "1.0", 1),
    (INTEGER, "9007199254740993.0", 9007199254740993),
    (INTEGER, "1e3", 1000),
    (INTEGER, "1e999999999", MISFIT),
    (INTEGER, "1.5", MISFIT),
    (INTEGER, '"3"', 3),
    (INTEGER, '"3.0"', 3),
    (INTEGER, '"3.5"', MISFIT),
    (INTEGER, '"0x10"', MISFIT),
    (INTEGER, '"007"', MISFIT),
    (INTEGER, '" 5 "', MISFIT),
    (INTEGER, '""', MISFIT),
    (INTEGER, '"x"', MISFIT),
    (INTEGER, "true", MISFIT),
    (INTEGER, "[1]", MISFIT),
    (INTEGER, "NaN", MISFIT),
    (NUMBER, "1234.56", 1234.56),
    (NUMBER, "7", 7.0),
    (NUMBER, "5e-324", 5e-324),
    (NUMBER, "0.10000000000000001", 0.1),
    (NUMBER, "0.1000000000000000055511151231257827", 0.1),
    (NUMBER, "9007199254740992", 2.0**53),
    (NUMBER, "123456789012345680", 123456789012345680.0),
    (NUMBER, "1.50000000000000000000", 1.5),
    (NUMBER, "5.960464477539063e-08", 2.0**-24),
    (NUMBER, '"3.5"', 3.5),
    (NUMBER, '"1_0"', MISFIT),
    (NUMBER, '"NaN"', MISFIT),
    (NUMBER, '"Infinity"', MISFIT),
    (NUMBER, "NaN", MISFIT),
    (NUMBER, "-Infinity", MISFIT),
    (NUMBER, "1e400", MISFIT),
    (NUMBER, "true", MISFIT),
    (NUMBER, "{}", MISFIT),
    (DECIMAL, "1.23", Decimal("1.23")),
    (DECIMAL, "1.230", Decimal("1.23")),
    (DECIMAL, "1e2", Decimal("100.00")),
    (DECIMAL, '"12.5"', Decimal("12.50")),
    (DECIMAL, "99999999.99", Decimal("99999999.99")),
    (DECIMAL, "1.235", MISFIT),
    (DECIMAL, "1.5e-3", MISFIT),
    (DECIMAL, "123456789.12", MISFIT),
    (DECIMAL, "1e99999", MISFIT),
    (DECIMAL, "true", MISFIT),
    (DECIMAL, '"abc"', MISFIT),
    (BIG, DIGITS, Decimal(DIGITS)),
    (BIG, DIGITS + "9", MISFIT),
    (BIG, "-7" + "0" * 38, MISFIT),
    (BIG, "1" + "0" * 41, MISFIT),
    (BIG, "1.5", MISFIT),
    (DATE, '"2021-01-23"', date(2021, 1, 23)),
    (DATE, '"2024-02-29"', date(2024, 2, 29)),
    (DATE, '"9999-12-31"', date(9999, 12, 31)),
    (DATE, '"2021-01-23T00:00:00Z"', date(2021, 1, 23)),
    (DATE, '"2021-01-23T05:00:00Z"', MISFIT),
    (DATE, '"2021-01-23 BC"', MISFIT),
    (DATE, '"2021-02-29"', MISFIT),
    (DATE, '"0000-01-01"', MISFIT),
    (DATE, '"12021-01-23"', MISFIT),
    (DATE, '"2021/01/23"', MISFIT),
    (DATE, '"20210123"', MISFIT),
    (DATE, '"infinity"', MISFIT),
    (DATE, "20210123", MISFIT),
    (INSTANT, '"2022-11-22T01:23:45+05:00"', utc(2022, 11, 21, 20, 23, 45)),
    (INSTANT, '"2022-11-22T01:23:45+0500"', utc(2022, 11, 21, 20, 23, 45)),
    (INSTANT, '"2022-11-22T01:23:45.123456Z"', utc(2022, 11, 22, 1, 23, 45, 123456)),
    (INSTANT, '"2022-11-22T01:23:45.123456000Z"', utc(2022, 11, 22, 1, 23, 45, 123456)),
    (INSTANT, '"2022-11-22T01:23:45.123456789Z"', utc(2022, 11, 22, 1, 23, 45, 123456)),
    (INSTANT, '"2022-11-22T01:23:45.9999999"', utc(2022, 11, 22, 1, 23, 45, 999999)),
    (INSTANT, '"2022-11-22 01:23:45.1234567+02:00"', utc(2022, 11, 21, 23, 23, 45, 123456)),
    (INSTANT, '"2022-11-22T01:23:45,123456789Z"', utc(2022, 11, 22, 1, 23, 45, 123456)),
    (INSTANT, '"2022-11-22 01:23:45.123456789 +0100 CET"', utc(2022, 11, 22, 0, 23, 45, 123456)),
    (INSTANT, '"2022-11-22 01:23:45.5 +0000 UTC"', utc(2022, 11, 22, 1, 23, 45, 500000)),
    (INSTANT, '"2022-11-22T01:23:45.1+01:00[Europe/Paris]"', utc(2022, 11, 22, 0, 23, 45, 100000)),
    (INSTANT, '"2022-11-22 01:23:45Z"', utc(2022, 11, 22, 1, 23, 45)),
    (INSTANT, '"2022-11-22t01:23:45z"', utc(2022, 11, 22, 1, 23, 45)),
    (INSTANT, '"2022-11-22T01:23:45"', utc(2022, 11, 22, 1, 23, 45)),
    (INSTANT, '"2022-11-22 01:23:45.5"', utc(2022, 11, 22, 1, 23, 45, 500000)),
    (INSTANT, '"2022-11-22"', utc(2022, 11, 22)),
    (INSTANT, '"2022-11-22T01"', utc(2022, 11, 22, 1)),
    (INSTANT, '"2022-11-22 01+0100"', utc(2022, 11, 22)),
    (WALL, '"2022-11-22 01"', datetime(2022, 11, 22, 1)),
    (WALL, '"2022-11-22T01Z"', datetime(2022, 11, 22, 1)),
    (WALL, '"2022-11-22T1"', MISFIT),
    (INSTANT, '"9999-12-31T23:59:59Z"', utc(9999, 12, 31, 23, 59, 59)),
    (INSTANT, '"9999-12-31T23:59:59-05:00"', MISFIT),
    (INSTANT, '"2022-11-22T01:23:45.123456Z BC"', MISFIT),
    (INSTANT, '"0000-00-00 00:00:00"', MISFIT),
    (INSTANT, '"2022-02-30T00:00:00Z"', MISFIT),
    (INSTANT, '"not a date"', MISFIT),
    (INSTANT, '"infinity"', MISFIT),
    (INSTANT, "1700000000", MISFIT),
    (INSTANT, '"1700000000"', MISFIT),
    (WALL, '"2022-11-22T01:23:45.123456"', datetime(2022, 11, 22, 1, 23, 45, 123456)),
    (WALL, '"2022-11-22 01:23:45"', datetime(2022, 11, 22, 1, 23, 45)),
    (WALL, '"2022-11-22"', datetime(2022, 11, 22)),
    (WALL, '"2022-11-22T01:23:45Z"', datetime(2022, 11, 22, 1, 23, 45)),
    (WALL, '"2022-11-22t01:23:45z"', datetime(2022, 11, 22, 1, 23, 45)),
    (WALL, '"2022-11-22T01:23:45.123456789Z"', datetime(2022, 11, 22, 1, 23, 45, 123456)),
    (WALL, '"2022-11-22 01:23:45.5 UTC"', datetime(2022, 11, 22, 1, 23, 45, 500000)),
    (WALL, '"2022-11-22 01:23:45 +0000 UTC"', datetime(2022, 11, 22, 1, 23, 45)),
    (WALL, '"2022-11-22T01:23:45+00:00"', datetime(2022, 11, 22, 1, 23, 45)),
    (WALL, '"2022-11-22T01:23:45-0000"', datetime(2022, 11, 22, 1, 23, 45)),
    (WALL, '"2022-11-22 01:23+00"', datetime(2022, 11, 22, 1, 23)),
    (WALL, '"9999-12-31T23:59:59Z"', datetime(9999, 12, 31, 23, 59, 59)),
    (WALL, '"2022-11-00Z"', MISFIT),
    (WALL, '"2022-11-22T01:23:45+05:00"', MISFIT),
    (WALL, '"2022-11-22T01:23:45+00:30"', MISFIT),
    (WALL, '"2022-11-22T01:23:45 CET"', MISFIT),
    (WALL, '"2022-11-22T01:23:45.123456 BC"', MISFIT),
    (TIME, '"01:23:45.123456"', "01:23:45.123456"),
    (TIME, '"23:59:60"', "23:59:60"),
    (TIME, '"25:00:00"', MISFIT),
    (TIME, '"01:23:45Z"', MISFIT),
    (TIME, "12345", MISFIT),
    (TIME_TZ, '"01:23:45Z"', "01:23:45Z"),
    (TIME_TZ, '"01:23:45+05:00"', "01:23:45+05:00"),
    (TIME_TZ, '"noon"', MISFIT),
    (BINARY, '"aGVsbG8="', b"hello"),
    (BINARY, '""', b""),
    (BINARY, '"aGVs\\nbG8"', b"hello"),
    (BINARY, '"_-8="', b"\xff\xef"),
    (BINARY, '"a"', MISFIT),
    (BINARY, '"%%%%"', MISFIT),
    (BINARY, "1234", MISFIT),
    (BINARY, "true", MISFIT),
    (JSON, '{"a": 1.10, "n": 12345678901234567890.5}', '{"a":1.10,"n":12345678901234567890.5}'),
    (JSON, "1e3", "1e3"),
    (JSON, '"x"', '"x"'),
    (JSON, "[]", "[]"),
    (JSON, "null", None),
    (JSON, "NaN", MISFIT),
    (JSON, '{"a":"NaN"}', '{"a":"NaN"}'),
    (DataType(Kind.array, item=INTEGER), "[1,null,2]", [1, None, 2]),
    (DataType(Kind.array, item=INTEGER), "[]", []),
    (DataType(Kind.array, item=INTEGER), "5", MISFIT),
    (DataType(Kind.array, item=INTEGER), "{}", MISFIT),
    (DataType(Kind.struct, fields=(Field("p", "p", INTEGER),)), '{"p":1}', {"p": 1}),
    (DataType(Kind.struct, fields=(Field("p", "p", INTEGER),)), "{}", {"p": None}),
    (DataType(Kind.struct, fields=(Field("p", "p", INTEGER),)), "5", MISFIT),
    (DataType(Kind.struct, fields=(Field("p", "p", INTEGER),)), "[]", MISFIT),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":[NaN],"b":1.10}', '{"a":[null],"b":1.10}'),
        (r'["\"NaN",-Infinity,"Infinity"]', r'["\"NaN",null,"Infinity"]'),
        (r'{"a":"\ud800","b":"NaN"}', '{"a":null,"b":"NaN"}'),
    ],
)
def test_l9_json_keeps_all_that_json_has(text: str, expected: str) -> None:
    done = decode(schema(x=JSON), f'{{"x":{text}}}')
    row = done.table.to_pylist()[0]
    assert (row["x"], row[CHANGES], done.cast_failures) == (expected, [change("x")], 1)


@pytest.mark.parametrize(("of", "text", "expected"), VALUES)
def test_l9_a_value_fits_exactly_or_is_null_and_listed(
    of: DataType, text: str, expected: Any
) -> None:
    done = decode(schema(x=of), f'{{"x":{text}}}')
    assert done.rejects == []
    row = done.table.to_pylist()[0]
    if expected is MISFIT:
        assert row["x"] is None and row[CHANGES] == [change("x")] and done.cast_failures == 1
    else:
        assert row["x"] == expected and row[CHANGES] == [] and done.cast_failures == 0


@pytest.mark.parametrize("of", {id(of): of for of, _, _ in VALUES}.values(), ids=duckdb_type)
def test_l9_holds_among_other_values(of: DataType) -> None:
    """All values of a type in one batch, misfits between fits, give what each gives alone."""
    cases = [(t, e) for o, t, e in VALUES if o == of]
    done = decode(
        schema(id=INTEGER, x=of), *(f'{{"id":{i},"x":{t}}}' for i, (t, _) in enumerate(cases))
    )
    for row, (text, expected) in zip(done.table.to_pylist(), cases, strict=True):
        assert row["x"] == (None if expected is MISFIT else expected), text
        assert row[CHANGES] == ([change("x")] if expected is MISFIT else []), text


@pytest.mark.parametrize("of", {id(of): of for of, _, _ in VALUES}.values(), ids=duckdb_type)
def test_l9_holds_inside_arrays_and_objects(of: DataType) -> None:
    cases = [(t, e) for o, t, e in VALUES if o == of and t != "null"]
    inner = DataType(Kind.struct, fields=(Field("v w", "v w", of),))
    kept = schema(o=inner, a=DataType(Kind.array, item=of), s=DataType(Kind.array, item=inner))
    for text, expected in cases:
        done = decode(
            kept, f'{{"o":{{"v w":{text}}},"a":[null,{text}],"s":[{{"v w":{text}}},null]}}'
        )
        row = done.table.to_pylist()[0]
        value = None if expected is MISFIT else expected
        assert (row["o"], row["a"], row["s"]) == (
            {"v w": value},
            [None, value],
            [{"v w": value}, None],
        )
        listed = [c["field"] for c in row[CHANGES]]
        assert sorted(listed) == (["a[]", "o.v w", "s[].v w"] if expected is MISFIT else []), text


def test_shapes_inside_arrays() -> None:
    of = schema(m=DataType(Kind.array, item=DataType(Kind.array, item=INTEGER)))
    done = decode(of, '{"m":[[1],null,[]]}', '{"m":[[1],7]}', '{"m":null}', "{}")
    assert done.table["m"].to_pylist() == [[[1], None, []], [[1], None], None, None]
    assert [len(c) for c in done.table[CHANGES].to_pylist()] == [0, 1, 0, 0]
    assert done.table[CHANGES].to_pylist()[1] == [change("m[]")]


def test_columns_are_exactly_the_part_schema() -> None:
    of = RowSchema((Field("a_b", "a b", INTEGER), Field("o", "o", DataType(
        Kind.struct, fields=(Field("c_d", "c=d", STRING),)))))  # fmt: skip
    done = decode(of, '{"a b":1,"o":{"c=d":"x"}}', '{"a b":2}')
    assert done.table.schema.equals(part_schema(of), check_metadata=True)
    assert done.table.schema.field("a_b").metadata == {b"penstock.source": b"a b"}
    assert done.table.select(["a_b", "o"]).to_pylist() == [
        {"a_b": 1, "o": {"c_d": "x"}},
        {"a_b": 2, "o": None},
    ]
    assert done.table[SEQ].to_pylist() == [1, 2]
    ids = done.table[RAW_ID].to_pylist()
    assert len(set(ids)) == 2 and all(
        len(i) == 36 and i[14] == "7" and i[19] in "89ab" for i in ids
    )
    assert [uuid.UUID(i).version for i in ids] == [7, 7]


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097, 20_000])
def test_row_ids_are_unique_within_and_across_batches(count: int) -> None:
    first, second = row_ids(count).to_pylist(), row_ids(count).to_pylist()
    assert len({*first, *second}) == 2 * count
    at = time.time() * 1000
    assert all(abs(uuid.UUID(i).int >> 80) - at < 60_000 for i in first[:5])
    assert all(str(uuid.UUID(i)) == i for i in (*first[:3], *first[-3:]))


def test_no_rows_and_no_columns() -> None:
    assert decode(schema(a=INTEGER)).table.num_rows == 0
    done = decode(RowSchema(()), '{"a":1}')
    assert done.table.num_rows == 1 and done.extra_fields == {"a": 1}


def test_a_body_that_is_no_object_is_rejected_and_the_rest_survives() -> None:
    deep = '{"a":1,"a":1,"x":' + "[" * 500 + "]" * 500 + "}"
    reasons = {'{"a":"\xff"}'.encode("latin-1"): "not UTF-8", deep: "nested deeper than 400 levels"}
    bad = ["[1]", "5", "null", '"x"', '{"a":', "", '{"a":1} x', *reasons]
    bodies = [b for pair in zip(bad, ['{"a":1}'] * len(bad), strict=True) for b in pair]
    done = decode(schema(a=INTEGER), *bodies)
    assert [r.index for r in done.rejects] == list(range(0, len(bodies), 2))
    assert [r.reason for r in done.rejects] == [reasons.get(b, "not a JSON object") for b in bad]
    assert done.table["a"].to_pylist() == [1] * len(bad)
    assert done.table[SEQ].to_pylist() == [2 * (i + 1) for i in range(len(bad))]
    assert decode(schema(a=INTEGER), ' {"a" : 1} ').table["a"].to_pylist() == [1]


@pytest.mark.parametrize("body", ['{"a":null,"a":7}', '{"a":1,"a":7}', '{"a":"x","a":7}'])
def test_of_double_keys_the_last_counts(body: str) -> None:
    done = decode(schema(a=INTEGER, b=STRING), '{"a":0,"b":"x"}', body, '{"a":9}')
    assert done.table["a"].to_pylist() == [0, 7, 9] and done.cast_failures == 0


def test_of_double_keys_a_null_counts_where_rows_have_all_properties() -> None:
    """As of a query whose join has two columns of one name."""
    of = schema(a=INTEGER, b=STRING, o=struct(p=INTEGER), j=JSON)
    plain = '{"a":%d,"b":"a:null","o":{"p":1},"j":{"k":null}}'
    bodies = [
        plain % 0,
        '{"a":1,"b":"x","o":{"p":2},"a":null,"j":1}',
        '{"a":2,"o":{"p":3,"p":null},"b":"{\\"k\\":null}","j":2}',
        '{"a":3,"b":"y","o":{"p":4},"o":null,"j":3}',
        '{"a":4,"b":"z","o":{"p":5},"j":{"q":1},"j": null}',
    ]
    for rows in bodies, [plain % 7, *bodies]:
        found = decode(of, *rows).table.select(["a", "o", "j"]).to_pylist()[-4:]
        assert found == [
            {"a": None, "o": {"p": 2}, "j": "1"},
            {"a": 2, "o": {"p": None}, "j": "2"},
            {"a": 3, "o": None, "j": "3"},
            {"a": 4, "o": {"p": 5}, "j": None},
        ]


def test_an_undeclared_property_that_is_always_null_is_looked_for_once() -> None:
    decoder = RowDecoder(schema(a=INTEGER))
    for _ in range(2):
        done = decoder.decode([b'{"a":1,"x":null}', b'{"a":2,"x":null}'], 1, [1] * 2)
        assert done.table["a"].to_pylist() == [1, 2] and done.extra_fields == {}
    assert [f.source for f in decoder._plan.read.fields] == ["a", "x"]


def test_double_keys_inside() -> None:
    o = DataType(Kind.struct, fields=(Field("p", "p", INTEGER),))
    of = schema(o=o, s=DataType(Kind.array, item=o))
    done = decode(of, '{"o":{"p":null,"p":2},"s":[{"p":5}]}', '{"s":[{"p":1},{"p":null,"p":4}]}')
    assert done.table["o"].to_pylist() == [{"p": 2}, None]
    assert done.table["s"].to_pylist() == [[{"p": 5}], [{"p": 1}, {"p": 4}]]


def test_names_that_differ_by_case_and_awkward_names() -> None:
    names = [
        "id",
        "ID",
        "Id",
        "",
        "a\0b",
        'q"x',
        "c'd",
        "$.e",
        "f.g",
        "h\\i",
        "\x01",
        "ü",
        "Ü",
        "*",
    ]
    of = RowSchema(tuple(Field(f"c{i}", n, INTEGER) for i, n in enumerate(names)))
    body = json.dumps({n: i for i, n in enumerate(names)})
    done = decode(of, body, body.replace(": 3", ': "x"'))
    first, second = done.table.to_pylist()
    assert [first[f"c{i}"] for i in range(len(names))] == list(range(len(names)))
    assert second["c3"] is None and second[CHANGES] == [change("")]
    lists = RowSchema(tuple(Field(f"c{i}", n, DataType(Kind.array, item=INTEGER))
                            for i, n in enumerate(names)))  # fmt: skip
    done = decode(lists, body)
    assert done.cast_failures == len(names) and done.extra_fields == {}


def test_l9_a_row_without_a_whole_key_is_a_reject() -> None:
    of = schema(id=INTEGER, o=DataType(Kind.struct, fields=(Field("k", "k", STRING),)), v=STRING)
    bodies = [
        '{"id":1,"o":{"k":"x"}}',
        '{"o":{"k":"x"}}',
        '{"id":1,"v":"y"}',
        '{"id":null,"o":{"k":null}}',
        '{"id":"bad","o":{"k":"x"}}',
        '{"id":0,"o":{"k":""}}',
    ]
    done = decode(of, *bodies, key=(("id",), ("o", "k")))
    assert [(r.index, r.reason, r.field) for r in done.rejects] == [
        (1, "primary key is null", "id"),
        (2, "primary key is null", "o.k"),
        (3, "primary key is null", "id, o.k"),
        (4, "primary key is null", "id"),
    ]
    assert done.table.column("id").to_pylist() == [1, 0] and done.cast_failures == 0


def test_l9_columns_are_non_null_as_far_as_it_holds() -> None:
    """A key is, as rows without one are rejects; a value that was lost to its type is not denied,
    and costs no row."""
    of = schema(id=INTEGER, v=INTEGER, w=INTEGER).with_required({"id", "v"})
    good = decode(of, '{"id":1,"v":1}', '{"v":2}', key=(("id",),)).table
    assert [f.nullable for f in good.schema][:3] == [False, False, True]
    lost = decode(of, '{"id":1,"v":"x"}', '{"id":2}', key=(("id",),))
    assert [f.nullable for f in lost.table.schema][:3] == [False, True, True]
    assert lost.table.num_rows == 2 and lost.rejects == []
    assert lost.table.schema.equals(part_schema(of.with_required({"id"})), check_metadata=True)


def test_strict_rejects_the_row_with_field_and_reason() -> None:
    done = decode(schema(a=INTEGER, b=BOOLEAN), '{"a":1}', '{"a":1.5,"b":1}', strict=True)
    assert [(r.index, r.reason, r.field) for r in done.rejects] == [(1, "TYPE_MISFIT", "a")]
    assert done.table["a"].to_pylist() == [1]


@pytest.mark.parametrize(
    "form",
    [
        "2024-03-01T10:20:30.{0}Z", "2024-03-01 10:20:30.{0}+00:00", "2024-03-01T10:20:30.{0}",
        "2024-03-01T12:20:30.{0}+0200", "2024-03-01T10:20:30,{0}Z",
    ],
)  # fmt: skip
@pytest.mark.parametrize("digits", ["1234567", "123456789"])
def test_l9_a_column_of_finer_times_keeps_its_microseconds_and_is_counted(
    form: str, digits: str
) -> None:
    """100 ns from .NET, ns from Go and pandas: no value is lost, and no entry stands in a row."""
    bodies = [f'{{"at":"{form.format(f)}"}}' for f in (digits, digits, "123456000", "5")]
    done = decode(schema(at=INSTANT), *bodies, '{"at":null}')
    at = utc(2024, 3, 1, 10, 20, 30, 123456)
    assert done.table.column("at").to_pylist() == [
        at, at, at, utc(2024, 3, 1, 10, 20, 30, 500000), None,
    ]  # fmt: skip
    assert (done.cut, done.cast_failures) == ({"at": 2}, 0)
    assert done.table.column(CHANGES).to_pylist() == [[]] * 5
    assert decode(schema(at=INSTANT), *bodies, strict=True).rejects == []
    assert decode(schema(at=WALL), '{"at":"2024-03-01T10:20:30.1234567"}').cut == {"at": 1}


@pytest.mark.parametrize("fraction", ["1234567", "123456789"])
def test_l9_times_of_day_keep_all_their_digits(fraction: str) -> None:
    for of, offset in ((TIME, ""), (TIME_TZ, "Z"), (TIME_TZ, "+02:00")):
        text = f"10:20:30.{fraction}{offset}"
        done = decode(schema(at=of), f'{{"at":"{text}"}}')
        assert (done.table.column("at").to_pylist(), done.cut) == ([text], {})


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740993", "-9007199254740993", "99999999999999.999999", "99999999999999.99",
        "12345678901234567890", "0.12345678901234567890", "900719925474099300000e-5",
        '"9007199254740993"', '"99999999999999.999999"',
    ],
)  # fmt: skip
def test_l9_a_number_that_a_double_cannot_hold_is_rounded_and_listed(text: str) -> None:
    done = decode(schema(n=NUMBER), f'{{"n":{text}}}', '{"n":1.5}', f'{{"n":{text}}}')
    rounded = float(text.strip('"'))
    assert done.table.column("n").to_pylist() == [rounded, 1.5, rounded]
    assert (done.rounded, done.cast_failures) == ({"n": 2}, 0)
    entry = {"field": "n", "change": "TRUNCATED", "reason": "TYPE_MISFIT"}
    assert done.table.column(CHANGES).to_pylist() == [[entry], [], [entry]]
    assert [r.index for r in decode(schema(n=NUMBER), f'{{"n":{text}}}', strict=True).rejects]


WIDE = DataType(Kind.decimal, precision=38, scale=18)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("12.5", "12.5"),
        ("-0.000000000000000001", "-1e-18"),
        ("12345678901234567890.123456789012345678", "12345678901234567890.123456789012345678"),
        ("0.33333333333333333333", "0.333333333333333333"),  # a quotient in Postgres
        ('"66.66666666666666666666666666666666666667"', "66.666666666666666667"),  # and in Oracle
        ("99999999999999999999.9999999999999999999", None),
        ("123456789012345678901", None),
        ("0.0000000000333333333333", None),
    ],
)
def test_l9_digits_after_a_decimal_of_38_are_rounded_and_listed(
    text: str, kept: str | None
) -> None:
    """As for a double, which keeps 15; where fewer would be left, the value does not fit."""
    done = decode(schema(n=WIDE), f'{{"n":{text}}}', '{"n":1}', f'{{"n":{text}}}')
    value = None if kept is None else Decimal(kept)
    assert done.table.column("n").to_pylist() == [value, 1, value]
    lost = value is None or value != Decimal(text.strip('"'))
    words = "NULLED" if value is None else "TRUNCATED"
    entries = [{"field": "n", "change": words, "reason": "TYPE_MISFIT"}] if lost else []
    assert done.table.column(CHANGES).to_pylist() == [entries, [], entries]
    found = ({"n": 2} if lost and value else {}, {} if value else {"n": 2})
    assert (done.rounded, done.nulled) == found
    assert bool(decode(schema(n=WIDE), f'{{"n":{text}}}', strict=True).rejects) == lost


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([(38, 0), (38, 9), (38, 18), (38, 37), (30, 18), (20, 2)]),
    st.lists(
        st.from_regex(r"-?[1-9][0-9]{0,45}(\.[0-9]{1,20})?([eE][0-9]{1,2})?", fullmatch=True),
        max_size=3,
    ),
)
@example((38, 18), ["-7" + "0" * 20, "1" + "0" * 21 + ".123456789012345678"])
@example((38, 37), ["-70"])
@example((38, 9), ["-7e29"])
def test_l9_a_decimal_is_the_number_that_was_sent_or_null(
    digits: tuple[int, int], texts: list[str]
) -> None:
    """Arrow's cast does not notice every number that is too large for it."""
    of = DataType(Kind.decimal, precision=digits[0], scale=digits[1])
    bodies = [f'{{"n":{text}}}' for text in texts]
    alone = [decode(schema(n=of), body).table.to_pylist()[0] for body in bodies]
    for text, row, beside in zip(
        texts, alone, decode(schema(n=of), *bodies).table.to_pylist(), strict=True
    ):
        assert (row["n"], row[CHANGES]) == (beside["n"], beside[CHANGES])
        if row["n"] is None:
            assert row[CHANGES] == [change("n")]
        elif row[CHANGES]:
            assert abs(row["n"] - Decimal(text)) < Decimal(1).scaleb(-digits[1])
        else:
            assert row["n"] == Decimal(text)


def test_l9_a_narrower_decimal_and_an_integer_are_never_rounded() -> None:
    of = schema(n=DataType(Kind.decimal, precision=30, scale=18), i=BIG)
    done = decode(of, '{"n":0.33333333333333333333,"i":1234567890123456789012.5}')
    assert done.nulled == {"n": 1, "i": 1} and done.rounded == {}


def test_l9_where_the_schema_asks_for_decimals_all_digits_are_kept() -> None:
    asked = data_type({"type": "object", "properties": {"n": {"multipleOf": 0.000001,
                                                              "type": "number"}}})  # fmt: skip
    done = decode(row_schema(asked, {}), '{"n":99999999999999.999999}', '{"n":"9007199254740993"}')
    assert done.table.column("n").to_pylist() == [
        Decimal("99999999999999.999999"), Decimal("9007199254740993"),
    ]  # fmt: skip
    assert (done.rounded, done.cast_failures) == ({}, 0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@pytest.mark.dear
def test_l9_no_double_that_a_source_wrote_is_called_rounded(numbers: list[float]) -> None:
    """Neither in the shortest form nor with the 17 digits that some write."""
    for form in ("{!r}", "{:.17g}", "{:.16e}"):
        done = decode(schema(n=NUMBER), *('{"n":' + form.format(n) + "}" for n in numbers))
        assert done.table.column("n").to_pylist() == numbers
        assert done.rounded == {}


def test_change_lists_of_the_source_come_first() -> None:
    theirs = [{"field": "z", "change": "TRUNCATED", "reason": "SOURCE_FIELD_SIZE_LIMITATION"}]
    given = {1: json.dumps(theirs).encode(), 2: b'{"no":"list"}', 0: b"[]"}
    done = decode(schema(a=INTEGER), '{"a":1}', '{"a":"x"}', '{"a":2}', changes=given)
    assert done.table[CHANGES].to_pylist() == [[], [*theirs, change("a")], []]


def test_the_words_of_a_change_are_the_caller_s() -> None:
    done = decode(schema(a=INTEGER), '{"a":"x"}', words=ChangeWords("GONE", "BECAUSE"))
    assert done.table[CHANGES].to_pylist() == [
        [{"field": "a", "change": "GONE", "reason": "BECAUSE"}]
    ]


@pytest.mark.parametrize("space", ["", " "])
def test_extra_fields_are_dropped_and_counted(space: str) -> None:
    def body(**fields: Any) -> str:
        return json.dumps(fields, separators=("," + space, ":" + space))

    rows = [body(a=1, x=1), body(a=None, y={"p": 1}), body(a=3), body(a=4, x=None), body(z=[1])]
    done = decode(schema(a=INTEGER), *rows, ignored=[("z",)])
    assert done.extra_fields == {"x": 1, "y": 1} and done.cast_failures == 0
    assert decode(schema(a=INTEGER, s=STRING), body(a=1, s='{"k":null,"l":1}')).extra_fields == {}


def test_extra_fields_are_counted_in_later_batches_too() -> None:
    decoder = RowDecoder(schema(a=INTEGER))
    for expected in ({"x": 2}, {"x": 2}):
        done = decoder.decode([b'{"a":1,"x":{"q":1}}', b'{"x":null}', b'{"x":"z"}'], 1, [1] * 3)
        assert done.extra_fields == expected
    done = decoder.decode([b'{"a":1,"y":2,"a":3}', b'{"a":"7.5","x":1}'], 1, [1] * 2)
    assert done.extra_fields == {"x": 1, "y": 1}
    assert done.table["a"].to_pylist() == [3, None] and done.cast_failures == 1


def struct(**types: DataType) -> DataType:
    return DataType(Kind.struct, fields=tuple(Field(n, n, t) for n, t in types.items()))


def array(item: DataType) -> DataType:
    return DataType(Kind.array, item=item)


NESTED = schema(
    user=struct(login=STRING, home=struct(city=STRING)),
    items=array(struct(sku=STRING, tags=array(array(struct(t=STRING))))),
)


@pytest.mark.parametrize("space", ["", " "])
@pytest.mark.parametrize("strict", [False, True])
def test_extra_fields_inside_objects_are_counted_by_record(space: str, strict: bool) -> None:
    """Nothing is dropped without a trace, also where an object's schema allows other properties."""
    rows = [
        {"top": 9, "user": {"login": "a", "email": "a@x", "plan": {"id": 1, "login": None}},
         "items": [{"sku": "s", "qty": 3}, {"sku": "t", "qty": 4}]},
        {"user": {"login": "b", "email": None, "home": {"city": "Ulm", "zip": 1}}, "items": []},
        {"user": {"email": "c@x"}, "items": [{"tags": [[{"t": "x", "u": [1]}], None]}, {"qty": 0}]},
        {"user": {"login": '{"email":1,"b":null}'}, "items": None},
        {"user": None},
    ]  # fmt: skip
    bodies = [json.dumps(r, separators=("," + space, ":" + space)).encode() for r in rows]
    decoder = RowDecoder(NESTED, strict=strict)
    for _ in range(2):
        done = decoder.decode(bodies, 1, [1] * len(bodies))
        assert done.extra_fields == {
            "top": 1, "user.email": 2, "user.plan": 1, "user.home.zip": 1, "items[].qty": 2,
            "items[].tags[][].u": 1,
        }  # fmt: skip
        assert done.incomplete == {"user", "items"}
        assert (done.rejects, done.cast_failures) == ([], 0)
        assert done.table["user"].to_pylist() == [
            {"login": "a", "home": None},
            {"login": "b", "home": {"city": "Ulm"}},
            {"login": None, "home": None},
            {"login": '{"email":1,"b":null}', "home": None},
            None,
        ]
        assert done.table["items"].to_pylist()[2:4] == [
            [{"sku": None, "tags": [[{"t": "x"}], None]}, {"sku": None, "tags": None}],
            None,
        ]
    done = decoder.decode([b'{"user":{"login":"x"}}', b'{"user":{"new":1}}'], 1, [1, 1])
    assert (done.extra_fields, done.incomplete) == ({"user.new": 1}, {"user"})


def test_extra_fields_inside_objects_beside_double_keys_and_misfits() -> None:
    done = decode(
        NESTED,
        '{"user":{"login":"a","email":1,"email":2,"home":{"city":"x","city":"y"}}}',
        '{"user":{"login":"b","home":7,"email":3},"items":{"sku":1}}',
        '{"user":5,"items":[{"sku":"s","qty":1,"sku":"t"}]}',
    )
    assert done.table["user"].to_pylist() == [
        {"login": "a", "home": {"city": "y"}}, {"login": "b", "home": None}, None,
    ]  # fmt: skip
    assert done.table["items"].to_pylist() == [None, None, [{"sku": "t", "tags": None}]]
    assert done.nulled == {"user.home": 1, "items": 1, "user": 1}
    assert done.extra_fields == {"user.email": 2, "items[].qty": 1}


def test_fields_that_were_deselected_inside_objects_are_no_extra_fields() -> None:
    body = '{"user":{"login":"a","email":1,"home":{"city":"x","zip":2}},"items":[{"qty":1}]}'
    ignored = [("user", "email"), ("user", "home", "zip"), ("items", "qty")]
    done = decode(NESTED, body, body, ignored=ignored)
    assert (done.extra_fields, done.incomplete) == ({}, set())
    done = decode(NESTED, body, ignored=ignored[1:])
    assert done.extra_fields == {"user.email": 1}


@pytest.mark.parametrize(
    "name", ["LOGIN", "", "a\0b", 'q"x', "c'd", "$.e", "f.g", "h\\i", "*", "ü"]
)
def test_extra_fields_of_awkward_names_are_counted(name: str) -> None:
    """A name that cannot be looked for inside an object is counted with its like, as ``*``."""
    label = "*" if name in ("LOGIN", "", "a\0b") else name
    bodies = [json.dumps({"user": {"login": "a", name: 1}}).encode()] * 2
    decoder = RowDecoder(NESTED)
    for _ in range(2):
        assert decoder.decode(bodies, 1, [1, 1]).extra_fields == {f"user.{label}": 2}
    top = decode(schema(a=INTEGER, LOGIN=INTEGER), json.dumps({"a": 1, "login": 2, name: 3}))
    beside = {"*": 1} if name in ("", "a\0b") else {} if name == "LOGIN" else {name: 1}
    assert top.extra_fields == {"login": 1, **beside}


@pytest.mark.parametrize("inside", [False, True])
def test_very_many_extra_fields_are_counted_together(inside: bool) -> None:
    """Names that are data, such as ids, do not fill memory and reports."""
    decoder = RowDecoder(schema(a=INTEGER, o=struct(b=STRING)))
    objects = [{f"k{i % 500}": 1} for i in range(1000)]
    records = [{"a": i, **({"o": o} if inside else o)} for i, o in enumerate(objects)]
    bodies = [json.dumps(r).encode() for r in records]
    for _ in range(2):
        done = decoder.decode(bodies, 1, [1] * 1000)
        assert done.extra_fields == {"o.*" if inside else "*": 1000}
        assert decoder.decode([b'{"o":{"b":"x","c":1}}'], 1, [1]).extra_fields == {"o.c": 1}
    assert done.table["a"].to_pylist() == list(range(1000))


def test_l9_a_misfit_costs_no_other_row_of_a_large_batch() -> None:
    bodies = [
        b'{"id":%d,"at":"2024-01-%02dT00:00:00Z","n":1.5}' % (i, i % 28 + 1) for i in range(20_000)
    ]
    bodies[777] = b'{"id":"x","at":5,"n":true}'
    bodies[12_345] = b'{"id":1.0,"at":"2024-01-01","n":"2.5"}'
    done = RowDecoder(schema(id=INTEGER, at=INSTANT, n=NUMBER)).decode(
        bodies, 1, [0] * len(bodies), {}
    )
    assert done.cast_failures == 3 and done.table["id"].null_count == 1
    assert done.table.slice(12_345, 1).select(["id", "n"]).to_pylist() == [{"id": 1, "n": 2.5}]


def test_raw_messages_and_memoryviews_are_bodies() -> None:
    raw = msgspec.json.decode(b'[{"a":1},{"a":2}]', type=list[msgspec.Raw])
    done = RowDecoder(schema(a=INTEGER)).decode([*raw, memoryview(b'{"a":3}')], 5, [0, 1, 2], {})
    assert done.table["a"].to_pylist() == [1, 2, 3]


ODD_KEYS = {
    "a space before a colon": '{"i" :1,%s}',
    "spaces before a colon inside": '{"i":1,"o":{"p"   : true},%s}',
    "a tab before a colon": '{"i"\t:1,%s}',
    "a line's end before a colon": '{"i"\r\n :1,%s}',
    "a text with what looks like a null": '{"s":"a:null, of b:nul","i":1,"s2":":null",%s}',
    "a text with a null of JSON in it": r'{"s":"{\"a\":null}","i":1,%s}',
    "a text whose quotes are escaped by number": r'{"s":"{\u0022a\u0022:1}","i":1,%s}',
    "a text whose colon is escaped by number": r'{"s":"\"\u003a\"\u003A1","i":1,%s}',
    "a JSON value with such a text": r'{"j":{"k":"\u0022:1"},"i":1,%s}',
    "a name that ends with a backslash": r'{"j":{"k\\":1},"s":"\\\":","i":1,%s}',
}


@pytest.mark.parametrize("odd", ODD_KEYS.values(), ids=ODD_KEYS)
@pytest.mark.parametrize("rows", [1, 3])
def test_l9_no_way_to_write_a_key_hides_another_one(odd: str, rows: int) -> None:
    """Where the bytes of a body look like fewer or more keys than it has, what else is there is
    still found: a list that is none, a key twice, a property that the schema lacks."""
    of = schema(
        i=INTEGER, s=STRING, s2=STRING, j=JSON, o=struct(p=BOOLEAN), l=array(INTEGER), k=INTEGER
    )
    plain = decode(of, *[odd % '"k":7'] * rows)
    assert plain.table["k"].to_pylist() == [7] * rows and not plain.extra_fields
    assert plain.table["i"].to_pylist() == [1] * rows and plain.cast_failures == 0

    hidden = {'"l":"x"': change("l"), '"l":{"a":1}': change("l"), '"o":"x"': change("o")}
    for text, expected in hidden.items():
        if '"o"' in text and '"o"' in odd:
            continue
        done = decode(of, *[odd % text] * rows)
        assert done.table[CHANGES].to_pylist() == [[expected]] * rows, text
    for times in (1, 2, 3):
        many = ",".join(f'"x{n}":{n}' for n in range(times))
        done = decode(of, *[odd % many] * rows)
        assert done.extra_fields == {f"x{n}": rows for n in range(times)}, many
    done = decode(of, *[odd % '"k":1,"k":2'] * rows)
    assert done.table["k"].to_pylist() == [2] * rows
    assert done.table["s"].to_pylist() == plain.table["s"].to_pylist()


def test_warm_proves_that_digits_survive() -> None:
    warm()


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def _finite(value: Any) -> Any:
    """NaN and its like, which JSON has not, are null in a text of JSON."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case list():
            return [_finite(v) for v in value]
        case dict():
            return {k: _finite(v) for k, v in value.items()}
        case _:
            return value


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["i", "n", "s", "j", "a", "o", "x"]), _values), max_size=5
    )
)
@pytest.mark.dear
def test_l9_no_value_is_lost_silently(records: list[dict[str, Any]]) -> None:
    """Every value is in its column, equal to what was sent, or NULL and in the change list."""
    of = row_schema(data_type({"properties": {
        "i": {"type": "integer"}, "n": {"type": "number"}, "s": {"type": "string"}, "j": {},
        "a": {"type": "array"}, "o": {"properties": {"p": {"type": "boolean"}}}}}), {})  # fmt: skip
    done = decode(of, *(json.dumps(r) for r in records))
    assert done.rejects == [] and done.table.num_rows == len(records)
    for row, sent in zip(done.table.to_pylist(), records, strict=True):
        listed = {c["field"].rstrip("[]").split(".")[0] for c in row[CHANGES]}
        for name in ("i", "n", "s", "j", "a", "o"):
            if sent.get(name) is None:
                assert row[name] is None and name not in listed
            elif row[name] is None:
                assert name in listed
        if row["i"] is not None and not isinstance(sent["i"], str):
            assert row["i"] == Decimal(json.dumps(sent["i"]))
        if row["j"] is not None:
            kept = _finite(sent["j"])
            assert json.loads(row["j"]) == kept and ("j" in listed or kept == sent["j"])
        if row["s"] is not None and isinstance(sent["s"], str):
            assert row["s"] == sent["s"]


def _written(value: Any, choose: random.Random, spaces: Sequence[str]) -> str:
    """JSON as another program may write it: with white space between tokens, and any character of
    a text or name escaped."""

    def text(of: str) -> str:
        return '"' + "".join(map(character, of)) + '"'

    def character(c: str) -> str:
        if choose.random() < 0.2 or ord(c) < 32 or 0xD800 <= ord(c) < 0xE000:
            units = c.encode("utf-16-be", "surrogatepass").hex()
            units = units.upper() if choose.random() < 0.5 else units
            return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
        return f"\\{c}" if c in '"\\' or (c == "/" and choose.random() < 0.5) else c

    def space() -> str:
        return choose.choice(spaces)

    def inside(parts: Iterator[str], begin: str, end: str) -> str:
        return begin + space() + f"{space()},{space()}".join(parts) + space() + end

    def write(of: Any) -> str:
        match of:
            case dict():
                pairs = (f"{text(k)}{space()}:{space()}{write(v)}" for k, v in of.items())
                return inside(pairs, "{", "}")
            case list():
                return inside(map(write, of), "[", "]")
            case str():
                return text(of)
            case _:
                return json.dumps(of)

    return write(value)


_looks = st.sampled_from(
    ['{"a":null}', "a:null", '":', '": null', '"x" :', '\\":1', 'x":nul', "x: nul", "é\t😀/"]
)
_tree = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | _looks,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["p", "q", "a", "k\\", 'k":']), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["i", "s", "t", "j", "l", "o", "m", "x", "y"]), _tree, max_size=5
        ),
        min_size=1,
        max_size=3,
    ),
    st.randoms(use_true_random=False),
    st.sampled_from([("",), ("", " "), ("", "  ", "\t"), (" ",), ("\r\n", "")]),
)
@pytest.mark.dear
def test_l9_how_json_is_written_changes_nothing(
    records: list[dict[str, Any]], choose: random.Random, spaces: tuple[str, ...]
) -> None:
    """White space and escapes change no value, no change list and no count of properties."""
    of = schema(
        i=INTEGER, s=STRING, t=STRING, j=JSON, l=array(INTEGER), m=array(struct(p=STRING)),
        o=struct(p=STRING, q=array(STRING)),
    )  # fmt: skip
    plain = decode(of, *(json.dumps(r, separators=(",", ":")) for r in records))
    other = decode(of, *(_written(r, choose, spaces) for r in records))
    for done in plain, other:  # what is read of each record alone is what is read of all
        assert done.rejects == []
        for row, sent in zip(done.table.to_pylist(), records, strict=True):
            alone = decode(of, _written(sent, choose, spaces))
            assert [{**r, RAW_ID: 0, SEQ: 0} for r in alone.table.to_pylist()] == [
                {**row, RAW_ID: 0, SEQ: 0}
            ]
            for name, value in sent.items():
                listed = any(re.split(r"[.\[]", c["field"])[0] == name for c in row[CHANGES])
                assert name in "xy" or value is None or row[name] is not None or listed
    assert other.extra_fields == plain.extra_fields
    assert plain.extra_fields == Counter(
        label for r in records for label in set(_undeclared(r, of.fields, ""))
    )


def _undeclared(value: Any, fields: Sequence[Field], label: str) -> Iterator[str]:
    """The labels of properties with values for which ``fields`` have no place."""
    known = {f.source: f.type for f in fields}
    for name, inner in value.items():
        of, path = known.get(name), label + name
        if of is None:
            yield from [path] if inner is not None else []
            continue
        while of.kind is Kind.array and of.item is not None and isinstance(inner, list):
            of, path = of.item, f"{path}[]"
        for each in inner if path.endswith("[]") else [inner]:
            if of.kind is Kind.struct and isinstance(each, dict):
                yield from _undeclared(each, of.fields, f"{path}.")


@given(st.text(min_size=1))
@settings(max_examples=100, deadline=None)
def test_any_property_name_is_found(name: str) -> None:
    of = RowSchema((Field("c", name, INTEGER),))
    assert decode(of, json.dumps({name: 5})).table["c"].to_pylist() == [5]


def test_duckdb_types_are_duckdb_s() -> None:
    o = DataType(Kind.struct, fields=(Field('q"x', "q", DataType(Kind.array, item=DECIMAL)),))
    assert duckdb.sql(f"SELECT NULL::{duckdb_type(o)} AS x").to_arrow_table().schema.field(
        0
    ).type == (pa.struct([('q"x', pa.list_(pa.field("l", pa.decimal128(10, 2))))]))


# -- the whole record as a column (``model.types.WHOLE_RECORD``)

BESIDE = schema(id=JSON, record=JSON, n=INTEGER, tags=DataType(Kind.array, item=STRING))


def test_L8_a_whole_record_stands_beside_its_columns() -> None:
    """Its text is the source's, whatever became of the values in the columns."""
    bodies = (
        '{"id": "a", "n": 1, "tags": ["x"], "more": {"big": 12345678901234567890.10}}',
        '{"id": 2, "n": "two", "tags": {"no": "list"}, "record": {"record": 1}}',
        '{"id": null}',
        "{}",
    )
    done = decode(BESIDE, *bodies, whole=True)
    assert done.table.column_names[:4] == ["id", "record", "n", "tags"]
    kept = done.table["record"].to_pylist()
    assert kept == [body.replace(": ", ":").replace(", ", ",") for body in bodies]
    assert done.table["id"].to_pylist() == ['"a"', "2", None, None]
    assert done.table["n"].to_pylist() == [1, None, None, None]
    assert done.table["tags"].to_pylist() == [["x"], None, None, None]
    assert done.table[CHANGES].to_pylist()[1] == [change("tags"), change("n")]
    assert done.extra_fields == {} and done.nulled == {"n": 1, "tags": 1}


def test_L8_rejects_of_a_whole_record_are_those_of_its_columns_and_its_own() -> None:
    bodies = '{"id": 1}', "[1]", '{"n": 1}', '{"id": 2', '{"id": 3, "x": NaN}'
    done = decode(BESIDE, *bodies, whole=True, key=(("id",),))
    assert [(r.index, r.reason) for r in done.rejects] == [
        (1, "not a JSON object"),
        (2, "primary key is null"),
        (3, "not a JSON object"),
    ]
    assert done.table["record"].to_pylist() == ['{"id":1}', '{"id":3,"x":null}']
    assert done.table[SEQ].to_pylist() == [1, 5]
    assert done.table[CHANGES].to_pylist()[1] == [change("record")]


def test_L8_a_whole_record_may_have_any_number_of_other_fields() -> None:
    records = [{"id": n, **{f"f{n}_{i}": i for i in range(200)}} for n in range(5)]
    done = decode(BESIDE, *map(json.dumps, records), whole=True)
    assert [json.loads(text) for text in done.table["record"].to_pylist()] == records
    assert done.extra_fields == {} and not done.rejects


def test_L8_a_whole_record_is_one_value_also_where_no_column_is_beside_it() -> None:
    bodies = (
        '{"id":1,"x":[NaN,1e400]}',
        '{"id":2},"b":2',
        '{"id":3},"b":null',
        '{"id":4},"record":{"id":5}',
        '{"id":6,"id":7,"record":{"record":null}}',
        '{"id":8,"x":"\\ud800"}',
        '{"id":9}},{"record":{"id":10}',
    )
    sound = {1: bodies[0], 7: bodies[4], 8: bodies[5]}
    for together in (bodies, *((body,) for body in bodies)):
        done = decode(schema(record=JSON), *together, whole=True)
        kept = [json.loads(text)["id"] for text in done.table.to_pydict()["record"]]
        assert kept == [number for number, body in sound.items() if body in together]
        refused = [i for i, body in enumerate(together) if body not in sound.values()]
        assert [(r.index, r.reason) for r in done.rejects] == [
            (i, "not a JSON object") for i in refused
        ]
