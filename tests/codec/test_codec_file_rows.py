"""Lines of files become typed rows, and texts get types that lose nothing (issue 35, B3; L9)."""

import datetime
import itertools
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec.columns import fit_text
from penstock.codec.csv_lines import CsvDialect
from penstock.codec.file_rows import CsvRows, CsvTypes, JsonRows
from penstock.model.staged_rows import BROKEN, GIVEN, LINE, MISFITS
from penstock.model.types import DataType, Field, Kind

INTEGER, STRING = DataType(Kind.integer), DataType(Kind.string)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", None], Kind.integer),
        (["01234", "1"], Kind.string),
        (["+49"], Kind.string),
        (["0x1F"], Kind.string),
        (["12345678901234567890"], Kind.decimal),
        (["1", "1.5", "-0.5"], Kind.number),
        (["1.0"], Kind.number),
        (["0.12345678901234567891"], Kind.string),
        (["9007199254740993", "1.5"], Kind.string),
        (["NaN"], Kind.string),
        (["12d"], Kind.string),
        (["true", "FALSE"], Kind.boolean),
        (["2026-01-02"], Kind.date),
        (["2026-02-30"], Kind.string),
        (["2026-01-02T03:04:05Z", "2026-01-02 03:04:05.123456+02:00"], Kind.timestamp),
        (["2026-01-02 03:04:05.1234567"], Kind.string),
        (["1", ""], Kind.string),
        (["1.1", "1.10", "1.9"], Kind.string),  # versions
        (["1.0", "1.10"], Kind.string),
        (["10", "10.00", "9.99"], Kind.string),
        (["12E3", "12E4", "5E1"], Kind.string),  # products
        (["5E7"], Kind.string),
        (["10.00", "0.10", "-12.50"], Kind.number),  # amounts
        (["10", "9.99", "12.50"], Kind.number),
        (["1.0", "2.25", "1e-07"], Kind.number),  # as Python prints them
        (["1.0E10", "2.5"], Kind.number),  # as Java does
        (["1e+21", "1"], Kind.number),  # as JavaScript does
        (["1.20e+05", "1.23e-05"], Kind.number),  # as C does
        ([".5", "1", "-.25"], Kind.number),  # as Oracle does
        ([" 1"], Kind.string),
        ([None], Kind.string),
        ([], Kind.string),
    ],
)
def test_B3_a_column_has_the_type_that_holds_every_value(values: list[Any], kind: Kind) -> None:
    types = CsvTypes([0])
    types.add([pa.array(values, pa.string())])
    assert types.types()[0].kind is kind
    other = CsvTypes([0])
    other.merge(types.found())
    assert other.types() == types.types()


SPELLINGS = [
    "0", "0.0", "0.00", ".0", "0e+00", "0.0e+00", "1", "1.0", "1.00", "1.", "01", "+1", "1e0",
    "1E0", "1e+0", "1e+00", "1.0E0", ".5", "0.5", "0.50", "5e-1", "5.0E-1", "5e-01", "5.00e-01",
    "0.05e+01", "10", "1e1", "1e+01", "1.0E1", "1000000", "1000000.0", "1e6", "1e+6", "1e+06",
    "1.0E6", "1.000000e+06", "0.10e+07", "10000000.0", "1.0E7", "1e15", "1e+15",
    "1000000000000000", "1e21", "1e+21", "1000000000000000000000", "0.0001", "1e-4", "1e-04",
    "1.0E-4", "0.00001", "1e-5", "1e-05", "1.0E-5", "0.0000001", "1e-7", "1e-07",
]  # fmt: skip


def test_L9_no_column_of_numbers_has_two_spellings_of_one() -> None:
    """Decided by the values, whatever the notation."""
    for one, other in itertools.permutations(SPELLINGS, 2):
        if float(one) == float(other):
            types = CsvTypes([0])
            types.add([pa.array([one, other])])
            assert types.types()[0].kind is not Kind.number, (one, other)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_B3_floats_as_python_prints_them_are_numbers(values: list[float]) -> None:
    types = CsvTypes([0])
    types.add([pa.array([repr(value) for value in values])])
    assert types.types()[0].kind is Kind.number


def test_B3_types_of_several_tasks_are_those_of_all() -> None:
    every = CsvTypes([0])
    for values in (["1"], ["2.5"], [None]):
        one = CsvTypes([0])
        one.add([pa.array(values, pa.string())])
        every.merge(one.found())
    assert every.types()[0].kind is Kind.number


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("01", INTEGER, None),
        ("+5", INTEGER, None),
        ("0x1F", INTEGER, None),
        ("-7", INTEGER, -7),
        (".5", DataType(Kind.number), 0.5),
        ("5.", DataType(Kind.decimal, 5, 2), Decimal("5.00")),
        ("TRUE", DataType(Kind.boolean), True),
        ("yes", DataType(Kind.boolean), None),
        ("1582-10-15", DataType(Kind.date), datetime.date(1582, 10, 15)),
        ("", STRING, ""),
    ],
)
def test_L9_a_text_that_loses_something_does_not_fit(
    text: str, kind: DataType, value: object
) -> None:
    fitted = fit_text(pa.array([text], pa.string()), kind)
    assert fitted.values.to_pylist() == [value]
    assert (fitted.cast_failures is not None) is (value is None)


def test_B3_rows_of_csv_carry_what_did_not_fit_and_what_is_broken() -> None:
    reader = CsvRows(CsvDialect(), (1, 0), [STRING, INTEGER], header=True, file="a.csv")
    lines = pa.array([b"", b"v,k", b"1,a\r", b"A-17,b", b"3", b""], pa.binary())
    rows, at = reader.add(lines, end=True)
    assert list(at) == list(range(6))
    found = rows.to_pylist()
    assert [found[n] for n in (0, 1, 5)] == [None, None, None]
    assert [(r["c0"], r["c1"], r[MISFITS]) for r in found[2:4]] == [
        ("a", 1, None), ("b", None, [1]),
    ]  # fmt: skip
    assert found[3][GIVEN] == ["b", "A-17"]
    assert found[4][LINE] == b"3" and found[4][BROKEN].startswith("a.csv: 1 field ")


def test_B3_rows_of_json_carry_what_did_not_fit_and_what_is_broken() -> None:
    inner = DataType(Kind.struct, fields=(Field("a", "a", INTEGER),))
    reader = JsonRows([Field("id", "id", INTEGER), Field("v", "v", inner)], "a.jsonl")
    lines = [b'{"id": 1, "v": {"a": "x"}}', b'{"id": 2,', b'[{"id": 3}, {"id": 4}]', b" ", b"7"]
    rows, at = reader.add(pa.array(lines, pa.binary()))
    found = rows.to_pylist()
    assert list(at) == [0, 1, 2, 2, 3, 4]
    assert (found[0]["c0"], found[0]["c1"], found[0][MISFITS]) == (1, {"a": None}, [1])
    assert found[0][GIVEN] == [lines[0].decode()]
    assert [found[n]["c0"] for n in (2, 3)] == [3, 4] and found[4] is None
    assert [found[n][LINE] for n in (1, 5)] == [lines[1], b"7"]


def test_B3_a_misfit_is_of_its_column_also_where_the_name_has_a_point() -> None:
    fields = [Field("a.b", "a.b", INTEGER), Field("x", "x", INTEGER)]
    reader = JsonRows(fields, "a.jsonl")
    rows, _ = reader.add(pa.array([b'{"a.b":"no","x":1}', b'{"a.b":1,"x":"no"}'], pa.binary()))
    assert [row[MISFITS] for row in rows.to_pylist()] == [[0], [1]]
