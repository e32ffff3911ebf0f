"""L9: a value that cannot be kept is entered as what became of it, whatever lies beside it."""

import json
from typing import Any

import pyarrow as pa
import pytest

from penstock.codec.columns import ColumnDecoder, Columns
from penstock.codec.decode import RowDecoder
from penstock.codec.json_text import without_json
from penstock.model.types import CHANGES, DataType, Field, Kind, RowSchema

NUMBER, TEXT, JSON = DataType(Kind.number), DataType(Kind.string), DataType(Kind.json)


def struct(**fields: DataType) -> DataType:
    return DataType(Kind.struct, fields=tuple(Field(n, n, t) for n, t in fields.items()))


def listed(item: DataType) -> DataType:
    return DataType(Kind.array, item=item)


def decoded(type_: DataType, *texts: str, strict: bool = False) -> Any:
    decoder = RowDecoder(RowSchema((Field("x", "x", type_),)), strict=strict)
    return decoder.decode([f'{{"x":{text}}}'.encode() for text in texts], 0, [0] * len(texts))


def entry(field: str, change: str) -> list[dict[str, str]]:
    return [{"field": field, "change": change, "reason": "TYPE_MISFIT"}]


# text, the double, whether digits were lost
SMALL = [
    ("1e-400", 0.0, True),
    ("-1E-400", -0.0, True),
    ("0." + "0" * 400 + "1", 0.0, True),
    ("1e-9999999999", 0.0, True),
    ("2e-324", 0.0, True),
    ("2.5e-324", 5e-324, True),
    ("1.234567e-320", 1.2346e-320, True),
    ("0e-400", 0.0, False),
    ("0.0", 0.0, False),
    ("-0", -0.0, False),
    ("5e-324", 5e-324, False),
    ("4.9406564584124654e-324", 5e-324, False),
    ("1e-323", 1e-323, False),
    ("1.5e-323", 1.5e-323, False),
    ("2.2250738585072014e-308", 2.2250738585072014e-308, False),
    ("1e-300", 1e-300, False),
]


@pytest.mark.parametrize("beside", ["1.5", '"2"', '"no number"', "null"])
@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize(("text", "value", "lost"), SMALL)
def test_l9_a_number_that_a_double_makes_zero_is_entered(
    text: str, value: float, lost: bool, quoted: bool, beside: str
) -> None:
    batch = decoded(NUMBER, json.dumps(text) if quoted else text, beside)
    row = batch.table.to_pylist()[0]
    assert repr(row["x"]) == repr(value)
    assert (row[CHANGES] or []) == (entry("x", "TRUNCATED") if lost else [])
    assert batch.rounded.get("x", 0) == lost


def test_l9_it_is_entered_at_any_depth_and_refused_under_strict() -> None:
    rows = decoded(struct(a=NUMBER, b=listed(NUMBER)), '{"a":1e-400,"b":[0,1e-400]}')
    (row,) = rows.table.to_pylist()
    assert [e["field"] for e in row[CHANGES]] == ["x.a", "x.b[]"]
    strict = decoded(NUMBER, "1e-400", "0", strict=True)
    assert ([r.index for r in strict.rejects], strict.table.num_rows) == ([0], 1)


def test_l9_a_number_in_text_of_arrow_columns_is_entered() -> None:
    table = pa.table({"x": ["1e-400", "0", "1"]})
    schema = RowSchema((Field("x", "x", NUMBER),))
    batch = ColumnDecoder(schema).decode(Columns(table), 0, [0] * 3, {})
    assert [bool(r[CHANGES]) for r in batch.table.to_pylist()] == [True, False, False]


HALF = "\\ud800"
PAIR = "\\ud83d\\ude00"


@pytest.mark.parametrize(
    ("type_", "text", "value", "field"),
    [
        (JSON, f'{{"k":"a{HALF}b","l":1}}', '{"k":null,"l":1}', "x"),
        (JSON, f'["{HALF}",{{"k":["\\udc00"]}},"{PAIR}"]', '[null,{"k":[null]},"\U0001f600"]', "x"),
        (JSON, f'{{"{HALF}":1,"\\ud801":2}}', '{"\\\\ud800":1,"\\\\ud801":2}', "x"),
        (JSON, f'"{HALF}"', None, "x"),
        (TEXT, f'"a{HALF}"', None, "x"),
        (struct(a=TEXT, b=TEXT), f'{{"a":"{HALF}","b":"b"}}', {"a": None, "b": "b"}, "x.a"),
        (struct(a=JSON), f'{{"a":{{"k":"{HALF}"}}}}', {"a": '{"k":null}'}, "x.a"),
        (listed(TEXT), f'["a","{HALF}"]', ["a", None], "x[]"),
    ],
)
def test_l9_half_a_surrogate_pair_becomes_null_as_its_entry_says(
    type_: DataType, text: str, value: Any, field: str
) -> None:
    (row,) = decoded(type_, text).table.to_pylist()
    assert (row["x"], row[CHANGES]) == (value, entry(field, "NULLED"))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("type_", "values", "count"),
    [
        (NUMBER, [1.5, None, 0.0], 0),
        (NUMBER, [NAN, None, INF, -INF, 1.0], 3),
        (listed(NUMBER), [[NAN, 1.0], None, [INF]], 2),
        (struct(a=NUMBER, b=listed(struct(c=NUMBER))), [{"a": NAN, "b": [{"c": INF}]}, None], 2),
        (TEXT, ["NaN"], 0),
    ],
)
def test_doubles_that_json_does_not_have_are_counted(
    type_: DataType, values: list[Any], count: int
) -> None:
    from penstock.codec.arrow import arrow_type

    assert without_json(pa.array(values, arrow_type(type_)), type_) == count
