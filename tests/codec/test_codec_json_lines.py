"""Rows to JSON lines (issue 4, destinations 1): the form of every type's values, and that decoding
what was encoded gives the same rows."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.codec import json_lines_encoder
from penstock.codec.arrow import arrow_type, part_schema
from penstock.codec.decode import RowDecoder
from penstock.codec.json_lines_encoder import LineEncoder, Slot
from penstock.codec.json_text import WrittenAs
from penstock.model.types import CHANGES, EXTRACTED_AT, DataType, Field, Kind, RowSchema

pytestmark = pytest.mark.dear

AT = datetime(2024, 2, 29, 12, 0, 0, 500, tzinfo=UTC)
STRING, JSON = DataType(Kind.string), DataType(Kind.json)
DECIMAL = DataType(Kind.decimal, precision=38, scale=10)


def array(item: DataType) -> DataType:
    return DataType(Kind.array, item=item)


def struct(**types: DataType) -> DataType:
    fields = tuple(Field(f"c_{n}", n, t) for n, t in types.items())
    return DataType(Kind.struct, fields=fields)


def column(data_type: DataType, values: list[Any]) -> Any:
    return pa.array([_arrow_value(v, data_type) for v in values], arrow_type(data_type))


def _arrow_value(value: Any, of: DataType) -> Any:
    if value is None:
        return None
    if of.kind is Kind.array and of.item is not None:
        return [_arrow_value(v, of.item) for v in value]
    if of.kind is Kind.struct:
        return {f.name: _arrow_value(value.get(f.source), f.type) for f in of.fields}
    return value


def part(schema: RowSchema, columns: list[Any], changes: Any = None) -> Any:
    """A batch as it stands in a part; its slice has an offset, as a reader's batches may have."""
    rows = len(columns[0]) if columns else 3
    whole = [
        *columns,
        pa.array(range(rows), pa.int64()),
        pa.array(["id"] * rows),
        pa.array([AT] * rows, pa.timestamp("us", tz="UTC")),
        pa.array(changes or [[]] * rows, part_schema(schema).field(CHANGES).type),
    ]
    return pa.RecordBatch.from_arrays(whole, schema=part_schema(schema))


def lines(schema: RowSchema, batch: Any, *template: str | Slot, **options: Any) -> list[bytes]:
    found = bytes(LineEncoder(schema, template or (Slot.data,), **options).encode(batch))
    assert found == b"" or found.endswith(b"\n")
    return found.split(b"\n")[:-1]


def texts(data_type: DataType, values: list[Any], **options: Any) -> list[str]:
    """The JSON text of each value, also where the column is a slice of a longer one."""
    schema = RowSchema((Field("c", "c", data_type),))
    batch = part(schema, [column(data_type, [*values[-1:], *values, *values[:1]])])
    found = lines(schema, batch, **options)
    middle = lines(schema, batch.slice(1, len(values)), **options)
    assert middle == found[1:-1]
    return [line.decode()[len('{"c":') : -1] for line in middle]


FORMS: list[tuple[DataType, list[Any], list[str]]] = [
    (STRING, ["plain", None, ""], ['"plain"', "null", '""']),
    (
        STRING,
        ['a "q" \\ /', "\n\r\t\b\f", "\0\x01\x1f\x7f", "\u2028\u2029", "é😀", None],
        [
            r'"a \"q\" \\ /"',
            r'"\n\r\t\b\f"',
            '"\\u0000\\u0001\\u001F\x7f"',
            '"\u2028\u2029"',
            '"é😀"',
            "null",
        ],
    ),
    (DataType(Kind.boolean), [True, False, None], ["true", "false", "null"]),
    (
        DataType(Kind.integer),
        [0, -(2**63), 2**63 - 1, None],
        ["0", "-9223372036854775808", "9223372036854775807", "null"],
    ),
    (
        DataType(Kind.number),
        [0.1, 1e300, -5e-324, 2.0, float("nan"), float("-inf"), None],
        ["0.1", "1e+300", "-5e-324", "2", "null", "null", "null"],
    ),
    (
        DECIMAL,
        [Decimal("1234567890123456789012345678.0123456789"), Decimal("0.0000000001"), None],
        ["1234567890123456789012345678.0123456789", "0.0000000001", "null"],
    ),
    (
        DataType(Kind.decimal, precision=38, scale=0),
        [Decimal(10**38 - 1), Decimal(-1)],
        ["9" * 38, "-1"],
    ),
    (DataType(Kind.date), [date(1, 1, 1), date(9999, 12, 31)], ['"0001-01-01"', '"9999-12-31"']),
    (
        DataType(Kind.timestamp),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None],
        ['"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"', "null"],
    ),
    (DataType(Kind.timestamp), [AT, AT], ['"2024-02-29T12:00:00.000500Z"'] * 2),
    (
        DataType(Kind.timestamp_ntz),
        [datetime(1969, 12, 31, 23, 59, 59, 1), datetime(2024, 1, 1)],
        ['"1969-12-31T23:59:59.000001"', '"2024-01-01T00:00:00"'],
    ),
    (DataType(Kind.time), ["12:00:60", None], ['"12:00:60"', "null"]),
    (DataType(Kind.time_tz), ["12:00:00.5+02:00"], ['"12:00:00.5+02:00"']),
    (DataType(Kind.binary), [b"\xff\xfe", b"", None], ['"//4="', '""', "null"]),
    (
        JSON,
        ['{"a":1.10}', '"x"', "[\n1,\r2]", "12345678901234567890.5", None],
        ['{"a":1.10}', '"x"', "[ 1, 2]", "12345678901234567890.5", "null"],
    ),
    (array(STRING), [["a", None, '"'], [], None], [r'["a",null,"\""]', "[]", "null"]),
    (array(STRING), [[], []], ["[]", "[]"]),
    (array(array(DECIMAL)), [[[Decimal(1)], None, []]], ["[[1.0000000000],null,[]]"]),
    (
        struct(a=STRING, b=struct(d=DataType(Kind.integer))),
        [{"a": "x", "b": {"d": 1}}, {"a": None, "b": None}, None],
        ['{"a":"x","b":{"d":1}}', '{"a":null,"b":null}', "null"],
    ),
    (array(struct(a=STRING)), [[{"a": "x"}, None], None], ['[{"a":"x"},null]', "null"]),
]


@pytest.mark.parametrize(("data_type", "values", "expected"), FORMS)
def test_the_form_of_a_value(data_type: DataType, values: list[Any], expected: list[str]) -> None:
    assert texts(data_type, values) == expected


def test_a_text_does_not_depend_on_its_neighbours() -> None:
    """A value is written alike whether or not its neighbours are NULL, escaped or fractional."""
    for data_type, values, expected in FORMS:
        for value, text in zip(values, expected, strict=True):
            assert texts(data_type, [value]) == [text]


def test_decimals_are_strings_where_the_protocol_wants_them_so() -> None:
    values = [{"a": Decimal("1.5")}, None]
    expected = ['{"a":"1.5000000000"}', "null"]
    assert texts(struct(a=DECIMAL), values, decimals_as_text=True) == expected
    nested = [[Decimal("0.0000000001"), None]]
    expected = ['["0.0000000001",null]']
    assert texts(array(DECIMAL), nested, decimals_as_text=True) == expected


@pytest.mark.parametrize(
    ("data_type", "form", "values", "expected"),
    [
        (
            DataType(Kind.integer),
            "exact",
            [2**53, 2**53 + 1, -(2**53), -(2**63), 2**63 - 1, 7, None],
            ["9007199254740992", '"9007199254740993"', "-9007199254740992",
             '"-9223372036854775808"', '"9223372036854775807"', "7", "null"],
        ),
        (DataType(Kind.integer), "exact", [1, None], ["1", "null"]),
        (DataType(Kind.integer), "exact", [None], ["null"]),
        (DataType(Kind.date), "date-time", [date(2024, 2, 29), None],
         ['"2024-02-29T00:00:00Z"', "null"]),
        (STRING, "exact", ["9007199254740993"], ['"9007199254740993"']),
    ],
)  # fmt: skip
def test_a_form_keeps_the_value_and_does_not_depend_on_its_neighbours(
    data_type: DataType, form: WrittenAs, values: list[Any], expected: list[str]
) -> None:
    """L9: a reader with doubles would round an integer beyond 2^53."""
    casts = {"c": form}
    assert texts(data_type, values, casts=casts) == expected
    assert [texts(data_type, [v], casts=casts)[0] for v in values] == expected


def test_times_without_a_zone_have_one_where_the_protocol_wants_it() -> None:
    naive, at = DataType(Kind.timestamp_ntz), datetime(2024, 1, 1, 1)
    assert texts(naive, [at, None], zoned=True) == ['"2024-01-01T01:00:00Z"', "null"]
    assert texts(struct(a=naive), [{"a": at}], zoned=True) == ['{"a":"2024-01-01T01:00:00Z"}']
    assert texts(array(naive), [[at]], zoned=True) == ['["2024-01-01T01:00:00Z"]']


def test_a_template_is_filled_with_its_slots() -> None:
    schema = RowSchema((Field("a", "a", STRING),))
    changes = [[], [{"field": 'a"b', "change": "NULLED", "reason": None}]]
    batch = part(schema, [pa.array(["x", None])], changes)
    template = ('{"m":', Slot.extracted_ms, ',"t":', Slot.extracted_text, ',"c":', Slot.changes,
                ',"d":', Slot.data, "}")  # fmt: skip
    first, second = lines(schema, batch, *template)
    start = b'{"m":1709208000000,"t":"2024-02-29T12:00:00.000500Z","c":'
    assert first == start + b'[],"d":{"a":"x"}}'
    entry = rb'[{"field":"a\"b","change":"NULLED","reason":null}]'
    assert second == start + entry + b',"d":{"a":null}}'
    assert lines(schema, batch.slice(0, 0), *template) == []


HALF = "\ud800"  # of a surrogate pair: a schema cannot be decoded by it
NAMES = ["", "a", "A", 'say "x"', "a.b", "a b", "line\nbreak", "ü😀", HALF, "back\\slash"]


def test_names_are_those_of_the_source() -> None:
    """Quotes, dots, case clashes, the empty name, and half a surrogate pair, which needs an
    escape."""
    fields = tuple(Field(f"c{i}", n, DataType(Kind.integer)) for i, n in enumerate(NAMES))
    schema = RowSchema(fields)
    batch = part(schema, [pa.array([i, None], pa.int64()) for i in range(len(NAMES))])
    first, second = lines(schema, batch)
    assert json.loads(first) == {n: i for i, n in enumerate(NAMES)}
    assert json.loads(second) == dict.fromkeys(NAMES)
    assert lines(RowSchema(()), part(RowSchema(()), [])) == [b"{}"] * 3


def test_columns_of_another_width_are_those_of_the_schema() -> None:
    """A transform may give large strings or smaller integers."""
    schema = RowSchema((Field("s", "s", STRING), Field("i", "i", DataType(Kind.integer))))
    batch = part(schema, [pa.array(["x"]), pa.array([1], pa.int64())])
    batch = batch.set_column(0, "s", pa.array(["x"], pa.large_string()))
    batch = batch.set_column(1, "i", pa.array([1], pa.int32()))
    assert lines(schema, batch) == [b'{"s":"x","i":1}']


def test_large_batches_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = RowSchema((Field("s", "s", array(STRING)),))
    values = [[f'"{i}'] * (i % 5) if i % 7 else None for i in range(1000)]
    batch = part(schema, [column(array(STRING), values)])
    whole = lines(schema, batch)
    monkeypatch.setattr(json_lines_encoder, "BLOCK_BYTES", 2000)
    assert lines(schema, batch) == whole
    assert [json.loads(line)["s"] for line in whole] == values


# -- what is decoded again is the same

# The decoder normalises escapes inside JSON columns: without control characters there are few.
_words = st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs"]), max_size=5)
_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=5,
)
_clocks = st.times().map(lambda t: t.isoformat())
_leaves: list[tuple[DataType, st.SearchStrategy[Any]]] = [
    (STRING, st.text(max_size=20)),
    (DataType(Kind.boolean), st.booleans()),
    (DataType(Kind.integer), st.integers(-(2**63), 2**63 - 1)),
    (DataType(Kind.number), st.floats(allow_nan=False, allow_infinity=False)),
    (
        DataType(Kind.decimal, precision=38, scale=9),
        st.integers(1 - 10**38, 10**38 - 1).map(lambda i: Decimal(f"{i}E-9")),
    ),
    (
        DataType(Kind.decimal, precision=38, scale=38),
        st.integers(1 - 10**38, 10**38 - 1).map(lambda i: Decimal(f"{i}E-38")),
    ),
    (DataType(Kind.date), st.dates()),
    (DataType(Kind.timestamp), st.datetimes(timezones=st.just(UTC))),
    (DataType(Kind.timestamp_ntz), st.datetimes()),
    (DataType(Kind.time), _clocks),
    (DataType(Kind.time_tz), _clocks.map(lambda t: t + "+02:00")),
    (DataType(Kind.binary), st.binary(max_size=9)),
    (
        JSON,
        _json_values.filter(lambda v: v is not None).map(
            lambda v: json.dumps(v, ensure_ascii=False, separators=(",", ":"))
        ),
    ),
]
_leaf = st.sampled_from(_leaves)


@st.composite
def _nested(draw: st.DrawFn, inner: Any) -> tuple[DataType, st.SearchStrategy[Any]]:
    if draw(st.booleans()):
        item, values = draw(inner)
        return array(item), st.lists(st.none() | values, max_size=3)
    names = draw(st.lists(st.sampled_from(["a", "b.c", 'd"e', "f g"]), min_size=1, unique=True))
    members = {n: draw(inner) for n in names}
    shape = struct(**{n: t for n, (t, _) in members.items()})
    return shape, st.fixed_dictionaries({n: st.none() | v for n, (_, v) in members.items()})


_columns = st.recursive(_leaf, lambda inner: _nested(inner), max_leaves=4)


@st.composite
def _rows(draw: st.DrawFn) -> tuple[RowSchema, list[Any]]:
    decodable = [n for n in NAMES if n != HALF]
    names = draw(st.lists(st.sampled_from(decodable), min_size=1, max_size=4, unique=True))
    rows = draw(st.integers(1, 4))
    fields, columns = [], []
    for i, name in enumerate(names):
        data_type, values = draw(_columns)
        fields.append(Field(f"c{i}", name, data_type))
        drawn = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        columns.append(column(data_type, drawn))
    return RowSchema(tuple(fields)), columns


@settings(max_examples=100, deadline=None)
@given(_rows())
def test_decoding_what_was_encoded_gives_the_same_rows(given_rows: Any) -> None:
    """L9 both ways: for every kind, with NULLs, nested values and odd names."""
    schema, columns = given_rows
    batch = part(schema, columns)
    bodies = lines(schema, batch)
    again = RowDecoder(schema).decode(bodies, 0, [0] * len(bodies))
    assert (again.cast_failures, again.rejects, again.extra_fields) == (0, [], {})
    for field, before in zip(schema.fields, columns, strict=True):
        after = again.table.column(field.name).combine_chunks()
        assert after.to_pylist() == before.to_pylist(), field
    assert EXTRACTED_AT in again.table.column_names
