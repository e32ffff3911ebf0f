"""Lines of CSV become records and columns as RFC 4180 has them (issue 35, B3; L8)."""

import csv
import io
import random

import pyarrow as pa
import pytest

from penstock.codec.csv_lines import (
    BARE_RETURN,
    BROKEN_QUOTES,
    MOST_OPEN_BYTES,
    NO_UTF8,
    CsvDialect,
    CsvFields,
    CsvRecords,
    header_names,
    other_separator,
    without_return,
)

RFC = CsvDialect()
Found = list[tuple[bytes, str | None]]


def records(text: bytes, cut: int, width: int, dialect: CsvDialect = RFC) -> Found:
    """Each record with what is wrong with it. ``cut``: how many lines are given at once."""
    lines = text.removesuffix(b"\n").split(b"\n")
    reader, found = CsvRecords(dialect), Found()
    for begin in range(0, len(lines), cut):
        piece = lines[begin : begin + cut]
        made = reader.add(pa.array(piece, pa.binary()), end=begin + cut >= len(lines))
        assert list(made.at) == sorted(made.at) and all(0 <= at < len(piece) for at in made.at)
        made.data = without_return(made.data)
        faults = CsvFields(dialect, width).faults(made)
        found += zip(made.data.to_pylist(), faults.to_pylist(), strict=True)
    return found


@pytest.mark.parametrize("cut", [1, 2, 3, 100])
def test_B3_each_broken_line_is_one_alone(cut: int) -> None:
    text = (
        b'1,"a ""b"", c"\r\n2,"x\r\ny"\r\n3,"open\n4,b\n5,"c"d\n6,\xff\n7\n8,9,10\n'
        b'"11","1\n2\n\n3"\n12,a"b\n13,\\\n14,"z\n15,e\rf\n'
    )
    assert records(text, cut, 2) == [
        (b'1,"a ""b"", c"', None),
        (b'2,"x\r\ny"', None),
        (b'3,"open', BROKEN_QUOTES),
        (b"4,b", None),
        (b'5,"c"d', BROKEN_QUOTES),
        (b"6,\xff", NO_UTF8),
        (b"7", "1 field in this line, and 2 in the header"),
        (b"8,9,10", "3 fields in this line, and 2 in the header"),
        (b'"11","1\n2\n\n3"', None),
        (b'12,a"b', BROKEN_QUOTES),
        (b"13,\\", None),
        (b'14,"z', BROKEN_QUOTES),
        (b"15,e\rf", BARE_RETURN),
    ]


def test_B3_a_field_that_never_ends_is_bounded() -> None:
    long = [b'1,"open', *[b"x" * (1 << 20)] * ((MOST_OPEN_BYTES >> 20) + 1)]
    reader = CsvRecords(RFC)
    found = reader.add(pa.array(long, pa.binary()))
    assert found.data[0].as_py() == b'1,"open' and len(found.data) == len(long)


@pytest.mark.parametrize("cut", [1, 4, 1000])
def test_B3_what_a_writer_of_csv_wrote_is_read_back(cut: int) -> None:
    """Another implementation's eyes: Python's csv module writes, quotes and all."""
    some = random.Random(4180)
    letters = ['"', ",", "\n", "\r\n", "\\", "a", "é", " ", "", "x y", "\t", ";"]
    rows = [
        ["".join(some.choices(letters, k=some.randrange(6))) for _ in range(3)] for _ in range(400)
    ]
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    found = records(text.getvalue().encode(), cut, 3)
    assert [fault for _, fault in found] == [None] * len(rows)
    data = pa.array([record for record, _ in found], pa.binary())
    columns = [column.to_pylist() for column in CsvFields(RFC, 3).texts(data)]
    assert [list(row) for row in zip(*columns, strict=True)] == rows


def test_B3_an_empty_text_and_nothing_differ() -> None:
    data = pa.array([b'"",,x', b',"",', b'"a","",""'], pa.binary())
    columns = [column.to_pylist() for column in CsvFields(RFC, 3).texts(data)]
    assert columns == [["", None, "a"], [None, "", ""], ["x", None, ""]]


def test_B3_other_dialects_are_asked_for() -> None:
    other = CsvDialect(separator=";", escape="\\")
    found = records(rb'1;"a\"b;c"' + b"\n" + rb"2;x\;y" + b"\n", 1, 2, other)
    assert [fault for _, fault in found] == [None, None]
    data = pa.array([record for record, _ in found], pa.binary())
    columns = [column.to_pylist() for column in CsvFields(other, 2).texts(data)]
    assert columns == [["1", "2"], ['a"b;c', "x;y"]]


@pytest.mark.parametrize(
    ("header", "names"),
    [
        (b'id,"na ""me",,ID\r', ("id0", 'na "me', "_c2", "ID3")),
        (b"\xef\xbb\xbfid,name", ("id", "name")),
        (b'"two\nlines",b', ("two\nlines", "b")),
        (b'a,"b', "a quote in it is not closed, not doubled, or followed by text"),
        (b"a\rb", "lines end with a carriage return alone; convert the file"),
        (b"\xff\xfea,b", "it is not UTF-8"),
    ],
)
def test_B3_the_names_of_a_header(header: bytes, names: tuple[str, ...] | str) -> None:
    assert header_names(header, RFC) == names


@pytest.mark.parametrize(
    ("header", "separator", "other"),
    [
        (b"id;name;price", ",", ";"),
        (b"id\tname", ",", "\t"),
        (b"id|name", "\t", "|"),
        (b"id,name", ";", ","),
        (b"id,name", ",", None),
        (b"id", ",", None),
        (b"a;b,c", ",", None),
        (b'"a;b;c",d', ",", None),
        (b"a:b:c", ",", None),
    ],
)
def test_a_header_suggests_another_separator(
    header: bytes, separator: str, other: str | None
) -> None:
    assert other_separator(header, CsvDialect(separator)) == other
