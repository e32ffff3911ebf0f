"""L9: keys that differ stay apart, and one number is one key, whatever its column is."""

from typing import Any

import pyarrow as pa
import pytest

from penstock.codec.columns import ColumnDecoder, Columns
from penstock.codec.decode import RowDecoder
from penstock.codec.values import fit
from penstock.model.types import CHANGES, DataType, Field, Kind, RowSchema

INTEGER, NUMBER, TEXT = DataType(Kind.integer), DataType(Kind.number), DataType(Kind.number_text)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("1", ("1", "1.0", "1e0", "10e-1", "0.1E1", "1.000000000000000000000", '"1"')),
        ("0", ("0", "-0", "0.0", "-0.0e5", "0e-400")),
        ("-1.5", ("-1.5", "-1.50", "-15e-1")),
        ("9007199254740993", ("9007199254740993", "9007199254740993.0", "9007199254740.993e3")),
        ("0.10000000000000000555", ("0.10000000000000000555", "10000000000000000555e-20")),
        ("1" + "0" * 36, ("1e36", "1" + "0" * 36, "10e35")),
        ("1E+37", ("1e37", "1" + "0" * 37, "0.1e38")),
        ("1.5E+400", ("1.5e400", "15E399", "15" + "0" * 399)),
        ("1E-37", ("1e-37", "0." + "0" * 36 + "1")),
        # what is text is sent as it is: 1.10 may be another thing than 1.1
        ("1.10", ('"1.10"',)),
        ("007", ('"007"',)),
        ('A"7', ('"A\\"7"',)),
        ("\u00e9", ('"\u00e9"', '"\\u00e9"')),
        ("true", ("true",)),
        ('{"a":1.0}', ('{"a":1.0}',)),
    ],
)
def test_l9_a_number_as_text_has_one_form(text: str, sent: tuple[str, ...]) -> None:
    decoder = RowDecoder(RowSchema((Field("x", "x", TEXT),)), key=(("x",),), exact=(("x",),))
    found = decoder.decode([f'{{"x":{s}}}'.encode() for s in sent], 0, [0] * len(sent))
    assert not found.rejects and set(found.table["x"].to_pylist()) == {text}


def test_l9_arrow_numbers_as_text_have_the_same_form_and_texts_are_as_they_were_sent() -> None:
    decoder = ColumnDecoder(RowSchema((Field("x", "x", TEXT),)))
    for column, wanted in (
        (pa.array([1.0, 1e30, 0.5]), ["1", "1" + "0" * 30, "0.5"]),
        (pa.array([1, 2**62]), ["1", str(2**62)]),
        (pa.array(["1.00", "7.5"]).cast(pa.decimal128(10, 3)), ["1", "7.5"]),
        (pa.array(["1.0", "A"]), ["1.0", "A"]),
        (pa.array([[1], None]), ["[1]", None]),
    ):
        rows = decoder.decode(Columns(pa.table({"x": column})), 0, [0] * len(column), {})
        assert rows.table["x"].to_pylist() == wanted


# One number of each double is its key: a whole number of 64 bits, else that of its shortest text.
HELD = ["0.1", "1e-1", "0.10", "9007199254740992", "1152921504606846976", "1e23", "5e-324", "0.3",
        "-2.5", "9007199254740994.0", "0", "-0.0", "12345678901234.5"]  # fmt: skip
NOT_HELD = ["0.10000000000000000555", "0.1000000000000000055", "0.10000000000000001",
            "0.1000000000000000055511151231257827021181583404541015625", "9007199254740993",
            "1152921504606847000", "99999999999999991611392", "4e-324", "1e-400",
            "123456789012345.678"]  # fmt: skip


def _keys(texts: list[str], *, quoted: bool = False) -> tuple[list[int], list[int]]:
    decoder = RowDecoder(RowSchema((Field("x", "x", NUMBER),)), key=(("x",),), exact=(("x",),))
    said = [f'"{t}"' if quoted else t for t in texts]
    found = decoder.decode([f'{{"x":{t}}}'.encode() for t in said], 0, [0] * len(said))
    rejected = [r.index for r in found.rejects]
    return [i for i in range(len(texts)) if i not in rejected], rejected


@pytest.mark.parametrize("quoted", [False, True])
def test_l9_a_double_is_the_key_of_one_number_only(quoted: bool) -> None:
    kept, rejected = _keys([*HELD, *NOT_HELD], quoted=quoted)
    assert kept == list(range(len(HELD))) and len(rejected) == len(NOT_HELD)
    both = fit(pa.array(["0.1", "0.10000000000000000555"]), NUMBER)
    assert both.rounded is None, "as a value it has lost nothing that 15 digits tell"


def _dotted(**options: Any) -> RowDecoder:
    inside = DataType(Kind.struct, fields=(Field("b", "b", INTEGER),))
    fields = Field("a.b", "a.b", INTEGER), Field("a", "a", inside)
    return RowDecoder(RowSchema(fields), texts=True, **options)


def test_l9_a_name_with_a_point_is_no_path() -> None:
    bodies = [b'{"a.b":1,"a":{"b":"x"}}', b'{"a.b":"y","a":{"b":2}}', b'{"a.b":3,"a":7}']
    for key, rejected in ((("a.b",), [1]), (("a", "b"), [0, 2])):
        found = _dotted(exact=(key,)).decode(bodies, 0, [0] * 3)
        assert [r.index for r in found.rejects] == rejected
        texts = [[e["reason"] for e in row] for row in found.table[CHANGES].to_pylist()]
        assert sum(map(len, texts)) == 3 - len(rejected)
    at = DataType(Kind.timestamp)
    inside = DataType(Kind.struct, fields=(Field("b", "b", at),))
    fields = Field("a.b", "a.b", at), Field("a", "a", inside)
    decoder = RowDecoder(RowSchema(fields), texts=True, cursor=("a.b",), exact=(("a", "b"),))
    cut, whole = "2024-01-01T00:00:00.123456789Z", "2024-01-01T00:00:00Z"
    bodies = [f'{{"a.b":"{cut}","a":{{"b":"{whole}"}}}}'.encode(),
              f'{{"a.b":"{whole}","a":{{"b":"{cut}"}}}}'.encode()]  # fmt: skip
    found = decoder.decode(bodies, 0, [0] * 2)
    assert [r.index for r in found.rejects] == [1] and found.listed == {"a.b": 1}
    table = pa.table({"a.b": ["1", "y"], "a": [{"b": "x"}, {"b": "2"}]})
    own = DataType(Kind.struct, fields=(Field("b", "b", INTEGER),))
    columns = ColumnDecoder(
        RowSchema((Field("a.b", "a.b", INTEGER), Field("a", "a", own))), exact=(("a.b",),)
    )
    assert [r.index for r in columns.decode(Columns(table), 0, [0] * 2, {}).rejects] == [1]
