"""Rows of Python in the one file that Spark reads: each value exactly, or an error that says what
was expected. Of what each row has is decided here, by hand."""

import datetime as dt
import enum
import tracemalloc
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import numpy
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.api import handed_rows
from penstock.api.handed_rows import stage
from penstock.errors import ConfigError

NOON = dt.datetime(2024, 1, 1, 12)
UTC = dt.UTC


def staged(rows: Any, folder: Path) -> list[dict[str, Any]]:
    stage(rows, folder)
    [file] = folder.iterdir()  # and nothing else
    return pq.ParquetFile(file).read().to_pylist()


def refusal(rows: Any, folder: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        stage(rows, folder)
    assert refused.value.code == "write.rows" and refused.value.hint
    return refused.value.message


def test_L8_a_column_that_comes_with_a_later_row_is_kept(tmp_path: Path) -> None:
    """PyArrow's ``Table.from_pylist`` takes the columns of the first row, and drops the others."""
    rows = [{"id": 1}, {"id": 2, "late": "x"}, {"other": {"a": 1}}, {"other": {"b": [2]}}]
    assert staged(rows, tmp_path) == [
        {"id": 1, "late": None, "other": None},
        {"id": 2, "late": "x", "other": None},
        {"id": None, "late": None, "other": {"a": 1, "b": None}},
        {"id": None, "late": None, "other": {"a": None, "b": [2]}},
    ]


@pytest.mark.parametrize("rows", [1, 2, 3, 20_000])
def test_L8_blocks_of_other_types_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """However many rows a block has, the file has the same rows."""
    monkeypatch.setattr(handed_rows, "_MOST_ROWS", rows)
    given: list[dict[str, Any]] = [
        {"id": 1, "n": None, "o": {}, "l": [], "d": 3, "t": None},
        {"id": 2, "n": 1, "o": {"x": None}, "l": [None], "d": Decimal("1.25"), "t": "a"},
        {"id": 3, "n": 2.5, "o": None, "l": [1], "d": Decimal("-700.5"), "new": True},
        {"id": 4, "n": 2**53, "o": {"x": {"y": 1}}, "l": [2.5], "d": None},
    ]
    assert staged((row for row in given), tmp_path) == [
        {"id": 1, "n": None, "o": {"x": None}, "l": [], "d": Decimal(3), "t": None, "new": None},
        {
            "id": 2, "n": 1.0, "o": {"x": None}, "l": [None], "d": Decimal("1.25"), "t": "a",
            "new": None,
        },
        {"id": 3, "n": 2.5, "o": None, "l": [1.0], "d": Decimal("-700.5"), "t": None, "new": True},
        {
            "id": 4, "n": 2.0**53, "o": {"x": {"y": 1}}, "l": [2.5], "d": None, "t": None,
            "new": None,
        },
    ]  # fmt: skip


def test_instants_keep_their_moment_whatever_their_zone(tmp_path: Path) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    twice = dt.datetime(2024, 10, 27, 2, 30, tzinfo=berlin)
    rows = [{"t": twice}, {"t": twice.replace(fold=1)}, {"t": NOON.replace(tzinfo=UTC)}]
    hours = [row["t"].astimezone(UTC).isoformat() for row in staged(rows, tmp_path)]
    assert [hour[:16] for hour in hours] == [
        "2024-10-27T00:30", "2024-10-27T01:30", "2024-01-01T12:00",
    ]  # fmt: skip


class OtherFrame(list[str]):
    """A frame of a library that Penstock does not know: what it iterates over is its names."""

    columns = ("a", "b")


class Colour(enum.Enum):
    red = "r"


MIXED = {
    "a date (row 1) and a time without a zone (row 2)": [dt.date(2024, 1, 1), NOON],
    "a time with a zone (row 2) and a time without a zone (row 1)": [
        NOON,
        NOON.replace(tzinfo=UTC),
    ],
    "bytes (row 2) and text (row 1)": ["a", b"b"],
    "a whole number (row 2) and true or false (row 1)": [True, 1],
    "a whole number (row 1) and text (row 3)": [1, None, "x"],
    "a decimal (row 1) and a number (row 2)": [Decimal("1.1"), 2.5],
    "a list (row 1) and an object (row 2)": [[1], {"a": 1}],
}


@pytest.mark.parametrize("block", [1, 20_000])
@pytest.mark.parametrize("nest", ["", "[]", "x"])
@pytest.mark.parametrize("says", MIXED)
def test_L9_values_that_cannot_share_a_column_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, nest: str, block: int
) -> None:
    """PyArrow takes the first three: it cuts the time off, makes bytes, or moves the time."""
    monkeypatch.setattr(handed_rows, "_MOST_ROWS", block)
    within = {"": lambda v: v, "[]": lambda v: [v], "x": lambda v: {"x": v}}[nest]
    told = refusal(({"c": within(value)} for value in MIXED[says]), tmp_path)
    column = {"": "c", "[]": "c[]", "x": "c.x"}[nest]
    assert f"the column {column!r} has values of two types: " in told
    if block > 1:
        assert says in told
    else:  # the earlier row's number is not kept
        assert all(word.partition(" (")[0] in told for word in says.split(" and "))


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "there are no rows, and so no columns"),
        (iter(()), "there are no rows, and so no columns"),
        ([1, 2], "row 1 is an int: a row is a dict"),
        ([{"a": 1}, [2]], "row 2 is a list: a row is a dict"),
        ([{"a": 1}, {}], "row 2 has no columns"),
        ([{"a": 1}, pa.table({"a": [1]})], "row 2 is a Table: a row is a dict"),
        ([pa.table({"a": [1]}), {"a": 1}], "row 2 is a dict: the rows before it are tables"),
        (iter("ab"), "row 1 is a str"),
        ("text", "str is not a table"),
        (b"x", "bytes is not a table"),
        ({"a": [1]}, "dict is not a table"),
        (OtherFrame("ab"), "OtherFrame is not a table"),
        (7, "int is not a table"),
        (None, "NoneType is not a table"),
        (pa.chunked_array([[1]]), "ChunkedArray is not a table"),
        (pa.array([1]), "is not a table"),
        (pandas.Series([1]), "Series is not a table"),
        (polars.Series([1]), "Series is not a table"),
        (pandas.DataFrame({"a": [1]}).to_numpy(), "ndarray is not a table"),
        ([{1: 2}], "a row has 1, and names are text"),
        ([{"a": {1: 2}}], "an object in 'a' has the field 1, and names are text"),
        ([{"a": {"b": 1, b"b": 2}}], "has the field b'b', and names are text"),
        ([{"a": {}}], "a holds objects without a field"),
        ([{"a": 2**63}], "the column 'a' has a whole number of more than 64 bits"),
        ([{"a": Colour.red}], "the column 'a'"),
        ([{"a": "\ud800"}], "the column 'a'"),
        ([{"a": pandas.NaT}], "the column 'a'"),
        ([{"a": Decimal("NaN")}], "the column 'a'"),
        ([{"a": 2**53 + 1}, {"a": 0.5}], "the column 'a'"),
        ([{"a": uuid.UUID(int=7)}], "a holds UUIDs"),
        ([{"a": dt.time(1)}], "a holds times of a day"),
        ([{"a": dt.timedelta(1)}], "a holds spans of time"),
        ([{"a": Decimal("1" * 39)}], "a is decimal256"),
        ([pa.table({"a": [1.5]}), pa.table({"a": [Decimal("1.1")]})], "double and decimal"),
        ([pa.table({"a": ["x"]}), pa.table({"a": [b"x"]})], "string and binary"),
        ([pa.table({"a": [2**53 + 1]}), pa.table({"a": [0.5]})], "the column 'a'"),
    ],
)
def test_bad_rows_are_refused_with_what_was_expected(tmp_path: Path, rows: Any, says: str) -> None:
    assert says in refusal(rows, tmp_path)


def test_whole_numbers_that_a_later_fraction_would_change_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handed_rows, "_MOST_ROWS", 1)
    assert "the column 'a'" in refusal([{"a": 2**53 + 1}, {"a": 0.5}], tmp_path)


def test_arrow_streams_and_generators_of_tables(tmp_path: Path) -> None:
    def place(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    rows = [{"id": n, "name": f"n{n}"} for n in range(1, 6)]
    table = pa.Table.from_pylist(rows)
    batches = table.to_batches(max_chunksize=2)
    assert staged(pa.RecordBatchReader.from_batches(table.schema, batches), place("a")) == rows
    assert staged(iter(batches), place("b")) == rows
    assert staged(duckdb.from_arrow(table), place("c")) == rows
    chunks = (pandas.DataFrame(rows[at : at + 2]) for at in range(0, 5, 2))
    assert staged(chunks, place("d")) == rows
    numbers = [pandas.DataFrame({"n": [1, 2]}), pandas.DataFrame({"n": [None, 2.5]})]
    assert [row["n"] for row in staged(iter(numbers), place("e"))] == [1.0, 2.0, None, 2.5]
    empty = pa.RecordBatchReader.from_batches(table.schema, [])
    assert staged(empty, place("f")) == []


def test_a_closed_object_of_another_library_is_an_error_of_ours(tmp_path: Path) -> None:
    connection = duckdb.connect()
    relation = connection.sql("SELECT 1 AS a")
    connection.close()
    assert "DuckDBPyRelation gives no rows: " in refusal(relation, tmp_path)
    rows = (row for row in [{"a": 1}])
    rows.close()
    assert "there are no rows" in refusal(rows, tmp_path)


def test_what_a_generator_raises_reaches_the_caller(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, int]]:
        yield {"id": 1}
        raise LookupError("page 2")

    with pytest.raises(LookupError, match="page 2") as raised:
        stage(rows(), tmp_path)
    assert raised.value.__notes__ == [
        "raised after row 1 of those given to penstock.write: no row was written"
    ]


def test_memory_of_nested_rows_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handed_rows, "_BLOCK_BYTES", 1 << 20)
    waiting: list[int] = []
    dicts = handed_rows._cut

    def cut(rows: Iterator[Any]) -> Iterator[list[Any]]:
        for block in dicts(rows):
            waiting.append(len(block))
            yield block

    monkeypatch.setattr(handed_rows, "_cut", cut)
    rows = ({"id": n, "o": {"texts": ["x" * 100_000]}} for n in range(30))  # 3 MB
    assert stage(rows, tmp_path).rows == 30
    assert max(waiting) < 12


def test_memory_is_bounded_whatever_the_number_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handed_rows, "_BLOCK_BYTES", 1 << 20)
    text = "x" * 10_000
    tracemalloc.start()
    try:
        before = pa.total_allocated_bytes()
        most = 0

        def rows() -> Iterator[dict[str, Any]]:
            nonlocal most
            for n in range(3_000):  # 30 MB
                if n % 100 == 0:
                    most = max(most, pa.total_allocated_bytes() - before)
                yield {"id": n, "text": text + str(n)}

        stage(rows(), tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert most < 8 << 20
    assert pq.ParquetFile(tmp_path / "rows.parquet").metadata.num_rows == 3_000


NANOS = pandas.Timestamp("2024-01-01 00:00:00.000000001")
BERLIN = pandas.Timestamp("2024-01-01 00:00:00.000000001", tz="Europe/Berlin")


@pytest.mark.parametrize(
    "rows",
    [
        [{"a": NANOS}],
        [{"a": BERLIN}],
        [{"a": [NANOS]}],
        [{"a": {"b": NANOS}}],
        [{"a": NOON}, {"a": NANOS}],
        [{"a": numpy.datetime64("2024-01-01T00:00:00.000000001")}],
        pandas.DataFrame({"a": [NANOS]}),
        pandas.DataFrame({"a": pandas.Series([NANOS], dtype=object)}),
        pandas.DataFrame({"a": [[NANOS]]}),
        pandas.DataFrame({"a": [{"b": BERLIN}]}),
        polars.DataFrame({"a": polars.Series([1], dtype=polars.Datetime("ns"))}),
        pa.table({"a": pa.array([[1]], pa.list_(pa.timestamp("ns")))}),
        pa.table({"a": pa.array([1], pa.timestamp("ns")).dictionary_encode()}),
        [pa.table({"a": pa.array([1], pa.timestamp("ns"))}), pa.table({"a": [NOON]})],
    ],
)
def test_L9_nanoseconds_are_refused_and_never_cut(tmp_path: Path, rows: Any) -> None:
    """Two keys that differ in nanoseconds would become one."""
    assert "the column 'a" in refusal(rows, tmp_path)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([dt.date(2024, 1, 1), NOON], "a date (row 1) and a time without a zone (row 2)"),
        ([NOON, NOON.replace(tzinfo=UTC)], "a time with a zone (row 2) and a time without"),
        (["x", b"y"], "bytes (row 2) and text (row 1)"),
        ([{"b": dt.date(2024, 1, 1)}, {"b": NOON}], "the column 'a.b' has values of two types"),
        ([numpy.array([dt.date(2024, 1, 1), NOON], object)], "the column 'a[]' has values of two"),
    ],
)
def test_L9_objects_of_a_frame_that_cannot_share_a_column_are_refused(
    tmp_path: Path, values: list[Any], says: str
) -> None:
    series = pandas.Series(values, dtype=object, name="a")
    assert says in refusal(series.to_frame(), tmp_path)
    if len(values) == 2 and not isinstance(values[0], dict):
        index = pandas.Index(values, dtype=object, name="i")
        assert says in refusal(pandas.DataFrame({"a": [1, 2]}, index=index), tmp_path)
        assert "the column 'a[]' has values of two types" in refusal([{"a": {*values}}], tmp_path)


def test_missing_values_of_a_frame_are_NULL_and_NaN_of_a_dict_is_a_number(tmp_path: Path) -> None:
    def place(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    values = ["x", None, float("nan"), pandas.NA, pandas.NaT]
    frame = pandas.DataFrame({"a": values, "l": [numpy.array(["x", float("nan")], object)] * 5})
    found = staged(frame, place("a"))
    assert [row["a"] for row in found] == ["x", None, None, None, None]
    assert found[0]["l"] == ["x", None]
    [row] = staged([{"a": float("nan")}], place("b"))
    assert row["a"] != row["a"]
    for missing, word in ((pandas.NaT, "NaT"), (pandas.NA, "NA")):
        told = refusal([{"a": 1}, {"a": missing}], tmp_path)
        assert f"the column 'a' has pandas' {word} (row 2)" in told


def test_scalars_and_arrays_of_numpy_come_as_their_values(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"b": True, "n": numpy.uint64(2**63), "l": [1, 2], "s": numpy.str_("x")},
        {"b": numpy.bool_(False), "n": None, "l": numpy.array([3]), "s": "y"},
    ]
    assert staged(rows, tmp_path) == [
        {"b": True, "n": 2**63, "l": [1, 2], "s": "x"},
        {"b": False, "n": None, "l": [3], "s": "y"},
    ]


def test_dictionaries_of_arrow_come_as_their_values(tmp_path: Path) -> None:
    nulls = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["x", None]))
    tables = [pa.table({"a": nulls}), pa.table({"a": ["y"]})]
    assert [row["a"] for row in staged(tables, tmp_path)] == ["x", None, "y"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (pa.table([[1], [2]], names=["a", "a"]), "two columns have one name: a and a"),
        ([{"a": 1, "A": 2}], "two columns have one name: a and A"),
        ([{"a": [{"b": 1, "B": 2}]}], "two fields have one name: a.b and a.B"),
        (pa.table({}), "they have no columns"),
        (
            pa.table({"a": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8()))}),
            "a holds bool8",
        ),
        (pandas.DataFrame(index=[1, 2]), "they have no columns"),
        (polars.DataFrame(), "they have no columns"),
    ],
)
def test_columns_that_no_table_can_have_are_refused_before_spark_starts(
    tmp_path: Path, rows: Any, says: str
) -> None:
    assert says in refusal(rows, tmp_path)


def test_an_object_that_contains_itself_is_refused(tmp_path: Path) -> None:
    row: dict[str, Any] = {"a": 1}
    row["b"] = row
    assert "an object in the rows 1 to 1 contains itself" in refusal([row], tmp_path)


def test_L8_what_an_earlier_write_has_read_is_refused(tmp_path: Path) -> None:
    """Its rows are gone, or some of them: an overwrite would lose them."""
    table = pa.table({"a": [1, 2, 3]})
    reader = table.to_reader(max_chunksize=1)
    stage(reader, tmp_path)
    assert "an earlier write has read this RecordBatchReader" in refusal(reader, tmp_path)

    rows = ({"a": value} for value in [1, "x", 3])
    assert "two types" in refusal(rows, tmp_path)
    assert "an earlier write has read this generator" in refusal(rows, tmp_path)


def test_chunks_of_a_file_that_pandas_reads(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,x\n2,y\n")
    (tmp_path / "to").mkdir()
    rows = staged(pandas.read_csv(file, chunksize=1), tmp_path / "to")
    assert rows == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
