"""L9: an entry of the change list has the source's text of a value that does not fit."""

from typing import Any

import pyarrow as pa
import pytest

from penstock.codec.columns import ColumnDecoder, Columns
from penstock.codec.decode import RowDecoder
from penstock.model.types import CHANGES, DataType, Field, Kind, RowSchema

INTEGER, NUMBER, DATE = DataType(Kind.integer), DataType(Kind.number), DataType(Kind.date)
INSTANT, BINARY, JSON = DataType(Kind.timestamp), DataType(Kind.binary), DataType(Kind.json)
LISTED = DataType(Kind.array, item=INTEGER)
INSIDE = DataType(Kind.struct, fields=(Field("zip_code", "zip code", INTEGER),))


def reasons(type_: DataType, *texts: str, **options: Any) -> list[list[str]]:
    decoder = RowDecoder(RowSchema((Field("x", "x", type_),)), texts=True, **options)
    bodies = [f'{{"x":{text}}}'.encode("utf-8", "surrogatepass") for text in texts]
    table = decoder.decode(bodies, 0, [0] * len(bodies)).table
    return [[e["reason"] for e in row or []] for row in table[CHANGES].to_pylist()]


@pytest.mark.parametrize(
    ("type_", "sent", "text"),
    [
        (INTEGER, '"twelve"', "twelve"),
        (INTEGER, "1.50", "1.50"),
        (INTEGER, '"a\\"b\\u00e9\\n"', 'a"b\u00e9\n'),
        (INTEGER, '{"a": 1.0}', '{"a":1.0}'),
        (INTEGER, "[1, 2]", "[1, 2]"),
        (INTEGER, "true", "true"),
        (NUMBER, "9007199254740993", "9007199254740993"),
        (NUMBER, '"1e400"', "1e400"),
        (DataType(Kind.decimal, 5, 2), "1234.5", "1234.5"),
        (DATE, '"31.12.2023"', "31.12.2023"),
        (INSTANT, '"infinity"', "infinity"),
        (INSTANT, "1700000000", "1700000000"),
        (BINARY, '"no base64!"', "no base64!"),
        (LISTED, '["a", 1, "b"]', "a, b"),
        (LISTED, '"none"', "none"),
        (INSIDE, '{"zip code": "12 B"}', "12 B"),
        (INSIDE, '"n/a"', "n/a"),
        (INSIDE, "[7.0]", "[7.0]"),
        (INTEGER, "NaN", "NaN"),
        (JSON, '{"a":[NaN,"\u00e9"]}', '{"a":[NaN,"\u00e9"]}'),
    ],
)
def test_l9_the_reason_has_the_text_as_it_was_sent(type_: DataType, sent: str, text: str) -> None:
    (entries,) = reasons(type_, sent)
    assert [e.replace(": [1,2]", ": [1, 2]") for e in entries] == [f"TYPE_MISFIT: {text}"]


def test_l9_a_long_text_is_cut_between_characters() -> None:
    (entries,) = reasons(INTEGER, '"' + "\u20ac" * 1000 + '"')
    text = entries[0].removeprefix("TYPE_MISFIT: ")
    assert text == "\u20ac" * 340 + "\u2026"
    assert len(text.encode()) <= 1024


def test_l9_each_row_has_its_own_text_after_the_entries_of_its_source() -> None:
    own = b'[{"field":"x","change":"NULLED","reason":"SOURCE_RETRIEVAL_ERROR"}]'
    decoder = RowDecoder(RowSchema((Field("x", "x", INTEGER), Field("y", "y", DATE))), texts=True)
    bodies = [b'{"x":"a","y":"b"}', b'{"x":1}', b'{"x":{"c":1},"y":"d"}', b'{"x":null,"y":"e"}']
    rows = decoder.decode(bodies, 0, [0] * 4, {2: own, 3: own}).table[CHANGES].to_pylist()
    assert [[(e["field"], e["reason"].partition(": ")[2]) for e in row] for row in rows] == [
        [("x", "a"), ("y", "b")],
        [],
        [("x", ""), ("x", '{"c":1}'), ("y", "d")],
        [("x", ""), ("y", "e")],
    ]


def test_l9_a_cut_cursor_keeps_its_text_and_other_times_do_not() -> None:
    sent = '"2024-01-01T00:00:00.123456789Z"'
    text = "TYPE_MISFIT: 2024-01-01T00:00:00.123456789Z"
    whole = '"2024-01-01T00:00:00.123456000Z"'
    assert reasons(INSTANT, sent, whole, cursor=("x",)) == [[text], []]
    assert reasons(INSTANT, sent) == [[]]
    column = pa.array([1_704_067_200_123_456_789, 1000], pa.timestamp("ns", tz="UTC"))
    decoder = ColumnDecoder(RowSchema((Field("x", "x", INSTANT),)), texts=True, cursor=("x",))
    rows = decoder.decode(Columns(pa.table({"x": column})), 0, [0, 0], {})
    assert rows.listed == {"x": 1}
    first, second = rows.table[CHANGES].to_pylist()
    assert "00:00:00.123456789" in first[0]["reason"]
    assert not second


@pytest.mark.parametrize(
    ("column", "type_", "text"),
    [
        (pa.array([1.5]), INTEGER, "1.5"),
        (pa.array(["x1"]), INTEGER, "x1"),
        (pa.array([[1, 2]]), INTEGER, "[1,2]"),
        (pa.array([{"a": 1}]), INTEGER, '{"a":1}'),
        (pa.array([b"\xff"]), INTEGER, "/w=="),
        (pa.array(["x1"]).dictionary_encode(), INTEGER, "x1"),
    ],
)
def test_l9_arrow_values_are_entered_as_text(column: Any, type_: DataType, text: str) -> None:
    decoder = ColumnDecoder(RowSchema((Field("x", "x", type_),)), texts=True)
    table = decoder.decode(Columns(pa.table({"x": column})), 0, [0], {}).table
    assert [e["reason"].partition(": ")[2].strip('"') for e in table[CHANGES].to_pylist()[0]] == [
        text
    ]


def test_l10_a_secret_is_hidden_before_the_text_is_cut() -> None:
    def mask(text: str) -> str:
        return text.replace("hunter2", "****")

    (entries,) = reasons(INTEGER, '"' + "x" * 1019 + 'hunter2 and more"', mask=mask)
    assert "hunt" not in entries[0]
