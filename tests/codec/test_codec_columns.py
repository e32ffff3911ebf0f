"""Arrow columns to the rows of a part: the same answer as for JSON (L9)."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.codec.columns import ColumnDecoder, Columns, data_type, row_schema
from penstock.codec.decode import INEXACT_KEY, NULL_KEY
from penstock.model.types import CHANGES, RAW_ID, SEQ, DataType, Field, Kind, RowSchema


def decode(table: Any, schema: RowSchema | None = None, **options: Any) -> Any:
    decoder = ColumnDecoder(schema or row_schema(table.schema), **options)
    return decoder.decode(Columns(table), 7, [1_700_000_000_000] * table.num_rows, {})


def change(path: str) -> dict[str, str]:
    return {"field": path, "change": "NULLED", "reason": "TYPE_MISFIT"}


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        (pa.array([True, None]), Kind.boolean, [True, None]),
        (pa.array([1, -1], pa.int8()), Kind.integer, [1, -1]),
        (pa.array([2**64 - 1, 0], pa.uint64()), Kind.decimal, [Decimal(2**64 - 1), Decimal(0)]),
        (pa.array([0.5, None], pa.float32()), Kind.number, [0.5, None]),
        (pa.array(["a", None], pa.large_string()), Kind.string, ["a", None]),
        (pa.array(["a", None], pa.string_view()), Kind.string, ["a", None]),
        (pa.array([b"\x00", b""], pa.large_binary()), Kind.binary, [b"\x00", b""]),
        (pa.array([date(2026, 1, 2), None], pa.date64()), Kind.date, [date(2026, 1, 2), None]),
        (
            pa.array([1, None], pa.timestamp("ms")),
            Kind.timestamp_ntz,
            [datetime(1970, 1, 1, 0, 0, 0, 1000), None],
        ),
        (
            pa.array([1, None], pa.timestamp("s", tz="Europe/Paris")),
            Kind.timestamp,
            [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), None],
        ),
        (pa.array([Decimal("1.10"), None]), Kind.decimal, [Decimal("1.10"), None]),
        (pa.array(["x", "x"]).dictionary_encode(), Kind.string, ["x", "x"]),
        (pa.array([[1, None], None, []]), Kind.array, [[1, None], None, []]),
        (pa.array([[1], [2]], pa.list_(pa.int8(), 1)), Kind.array, [[1], [2]]),
        (pa.array([[1], None, [], [2]], pa.list_view(pa.int8())), Kind.array,
         [[1], None, [], [2]]),
        (pa.array([[1], None, [2]], pa.large_list(pa.int8())), Kind.array, [[1], None, [2]]),
        (pa.RunEndEncodedArray.from_arrays(pa.array([2, 3]), pa.array(["x", None])), Kind.string,
         ["x", "x", None]),
        (pa.array([{"p": 1}, None]), Kind.struct, [{"p": 1}, None]),
        (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8())), Kind.json,
         ['{"k":1}', None]),
    ],
)  # fmt: skip
def test_l9_every_arrow_type_is_one_of_ours_and_keeps_its_values(
    array: Any, kind: Kind, expected: list[Any]
) -> None:
    assert data_type(array.type).kind is kind
    done = decode(pa.table({"x": array}))
    assert done.table.column("x").to_pylist() == expected
    assert (done.rejects, done.cast_failures) == ([], 0)
    assert done.table.column(SEQ).to_pylist() == list(range(7, 7 + len(expected)))
    assert len(set(done.table.column(RAW_ID).to_pylist())) == len(expected)


@pytest.mark.parametrize(
    ("array", "wanted", "expected", "lost"),
    [
        (pa.array(["1", "x", None]), DataType(Kind.integer), [1, None, None], [1]),
        (pa.array([1.0, 1.5]), DataType(Kind.integer), [1, None], [1]),
        (pa.array([2**63, 1], pa.uint64()), DataType(Kind.integer), [None, 1], [0]),
        (pa.array([b"a", b"\xff"]), DataType(Kind.string), ["a", None], [1]),
        (pa.array(['{"a":1}', "{", None]), DataType(Kind.json), ['{"a":1}', None, None], [1]),
        (pa.array([["1"], ["x", "2"], None]), DataType(Kind.array, item=DataType(Kind.integer)),
         [[1], [None, 2], None], [1]),
    ],
)  # fmt: skip
def test_l9_a_value_that_loses_something_is_null_and_listed(
    array: Any, wanted: DataType, expected: list[Any], lost: list[int]
) -> None:
    schema = RowSchema((Field("col", "x", wanted),))
    done = decode(pa.table({"x": array}), schema)
    assert done.table.column("col").to_pylist() == expected
    assert done.cast_failures == len(lost)
    path = "x[]" if wanted.kind is Kind.array else "x"
    changes = done.table.column(CHANGES).to_pylist()
    assert [i for i, c in enumerate(changes) if c == [change(path)]] == lost
    strict = decode(pa.table({"x": array}), schema, strict=True)
    assert [r.index for r in strict.rejects] == lost


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Paris"])
def test_l9_nanoseconds_are_cut_to_microseconds_and_counted_by_column(zone: str | None) -> None:
    """Before 1970 too the fraction of the second loses its last digits, and nothing else."""
    array = pa.array([1001, 1000, -1, None], pa.timestamp("ns", tz=zone))
    done = decode(pa.table({"x": array, "l": pa.array([[1], [1, 2], [], None],
                                                     pa.list_(pa.timestamp("ns")))}))  # fmt: skip
    micros = done.table.column("x").combine_chunks().cast(pa.int64()).to_pylist()
    assert micros == [1, 1, -1, None]
    assert done.cut == {"x": 2, "l[]": 3}
    assert (done.cast_failures, done.table.column(CHANGES).to_pylist()) == (0, [[], [], [], []])
    assert decode(pa.table({"x": array}), strict=True).rejects == []


def test_l9_texts_in_frames_are_read_as_times_like_those_in_json() -> None:
    schema = RowSchema((Field("x", "x", DataType(Kind.timestamp)),))
    texts = pa.array(["2024-01-01 00:00:00.1234567Z", "2024-01-01T01:00:00+0100", "soon"])
    done = decode(pa.table({"x": texts}), schema)
    assert done.table.column("x").to_pylist() == [
        datetime(2024, 1, 1, 0, 0, 0, 123456, UTC), datetime(2024, 1, 1, tzinfo=UTC), None,
    ]  # fmt: skip
    assert (done.cut, done.nulled) == ({"x": 1}, {"x": 1})


@pytest.mark.parametrize(
    "array",
    [
        pa.array([2**53 + 1, 2**53, None]),
        pa.array([Decimal("99999999999999.999999"), Decimal("0.5"), None]),
    ],
)
def test_l9_a_number_that_a_double_cannot_hold_is_rounded_and_listed(array: Any) -> None:
    schema = RowSchema((Field("x", "x", DataType(Kind.number)),))
    done = decode(pa.table({"x": array}), schema)
    assert done.table.column("x").to_pylist()[0] == float(array[0].as_py())
    assert (done.rounded, done.cast_failures) == ({"x": 1}, 0)
    entry = {"field": "x", "change": "TRUNCATED", "reason": "TYPE_MISFIT"}
    assert done.table.column(CHANGES).to_pylist() == [[entry], [], []]
    assert [r.index for r in decode(pa.table({"x": array}), schema, strict=True).rejects] == [0]


def test_l9_misfits_in_lists_that_share_their_values_are_listed_by_row() -> None:
    shared = pa.ListViewArray.from_arrays([0, 1, 0], [1, 1, 2], pa.array(["1", "x"]))
    wanted = DataType(Kind.array, item=DataType(Kind.integer))
    done = decode(pa.table({"x": shared}), RowSchema((Field("col", "x", wanted),)))
    assert done.table.column("col").to_pylist() == [[1], [None], [1, None]]
    changes = done.table.column(CHANGES).to_pylist()
    assert [i for i, c in enumerate(changes) if c] == [1, 2]


def test_l9_a_misfit_behind_a_chunk_that_stays_apart_is_listed_by_its_row() -> None:
    """Dictionaries with NULL among their values cannot be made one."""

    def times(*values: int | None) -> Any:
        distinct = pa.array(values, pa.timestamp("us"))
        return pa.DictionaryArray.from_arrays(pa.array(range(len(values))), distinct)

    done = decode(pa.table({"x": pa.chunked_array([times(0, None), times(None, 2**62, 1)])}))
    assert [v is None for v in done.table.column("x").to_pylist()] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert done.table.column(CHANGES).to_pylist() == [[], [], [], [change("x")], []]
    assert dict(done.nulled) == {"x": 1}


def test_l9_a_missing_column_is_null_and_one_too_many_is_counted() -> None:
    schema = RowSchema((Field("a", "a", DataType(Kind.integer)),))
    done = decode(pa.table({"b": [1, None], "c": [1, 2]}), schema, ignored=[("c",)])
    assert done.table.column("a").to_pylist() == [None, None]
    assert done.extra_fields == {"b": 1}


def test_l9_fields_inside_objects_without_a_place_are_counted_by_row() -> None:
    """As of JSON records: the report says what is dropped, and which columns to read as JSON."""
    inner = DataType(Kind.struct, fields=(Field("a", "a", DataType(Kind.integer)),))
    schema = RowSchema(
        (Field("o", "o", inner), Field("l", "l", DataType(Kind.array, item=inner)))
    )  # fmt: skip
    rows = [
        {"o": {"a": 1, "b": 2, "c": None, "d": 9}, "l": [{"a": 1, "b": 3}, {"a": 2, "b": 4}, None]},
        {"o": None, "l": [{"a": 1, "b": None}]},
        {"o": {"a": None, "b": 5, "c": None, "d": None}, "l": None},
    ]
    for size in 3, 1:
        done = decode(
            pa.concat_tables(pa.Table.from_pylist(rows).slice(i, size) for i in range(0, 3, size)),
            schema,
            ignored=[("o", "d")],
        )
        assert (done.extra_fields, done.incomplete) == ({"o.b": 2, "l[].b": 1}, {"o", "l"})
        assert done.table.column("o").to_pylist() == [{"a": 1}, None, {"a": None}]
        assert done.table.column("l").to_pylist() == [[{"a": 1}, {"a": 2}, None], [{"a": 1}], None]
    done = decode(pa.table({"o": [{"a": 1, "b": None}]}), schema)
    assert (done.extra_fields, done.incomplete) == ({}, frozenset())


def test_l9_a_row_without_a_whole_key_is_a_reject() -> None:
    table = pa.table({"id": [1, None, 3], "s": [{"k": 1}, {"k": None}, None]})
    done = decode(table, key=(("id",), ("s", "k")))
    assert [(r.index, r.reason, r.field) for r in done.rejects] == [
        (1, NULL_KEY, "id, s.k"),
        (2, NULL_KEY, "s.k"),
    ]
    assert done.table.column("id").to_pylist() == [1]


def test_l9_what_is_declared_non_null_and_is_comes_out_so() -> None:
    """A frame may deny its nulls; a cast may lose a value."""
    fields = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("lie", pa.int64(), nullable=False),
        pa.field("big", pa.uint64(), nullable=False),
        pa.field("free", pa.int64()),
    ]
    table = pa.table([[1, 2], [1, None], [1, 2**64 - 1], [1, 2]], schema=pa.schema(fields))
    whole = RowSchema(tuple(Field(n, n, DataType(Kind.integer)) for n in table.column_names))
    done = decode(table, whole)
    flags = {f.name: f.nullable for f in done.table.schema}
    assert [flags[n] for n in table.column_names] == [False, True, True, True]
    assert done.rejects == [] and done.cast_failures == 1
    assert [flags[n] for n in (SEQ, RAW_ID, CHANGES)] == [True, True, True]


def test_rows_are_cut_joined_and_shown_as_json() -> None:
    rows = Columns(pa.table({"a": [1, 2, 3], "d": [Decimal("1.10")] * 3}))
    assert rows[1] == b'{"a":2,"d":"1.10"}'
    assert [bytes(r) for r in rows[1:]] == [rows[1], rows[2]]
    both = Columns.joined([rows[:1], Columns(pa.table({"a": [9], "z": ["new"]}))])
    assert both.table.column("a").to_pylist() == [1, 9]
    assert both.table.column("z").to_pylist() == [None, "new"]


@pytest.mark.parametrize("strict", [False, True])
def test_l9_a_key_that_its_column_does_not_hold_exactly_is_a_reject(strict: bool) -> None:
    """Nanoseconds, a decimal past the scale, a number that a double rounds; a null of another
    column stays a value that did not fit."""
    types = {"at": DataType(Kind.timestamp_ntz), "d": DataType(Kind.decimal, 38, 2)}
    types["n"] = DataType(Kind.number)
    schema = RowSchema(tuple(Field(name, name, of) for name, of in types.items()))
    key = tuple((name,) for name in types)
    table = pa.table(
        {
            "at": pa.array([0, 1, 1000, 1000, 1000, 1000], pa.timestamp("ns")),
            "d": ["1.25", "1", "1234567890123456.125", "2", "3", "4"],
            "n": ["1", "1", "1", "9007199254740993", "x", "0.10000000000000000555"],
        }
    )
    decoder = ColumnDecoder(schema, strict=strict, key=key, exact=key)
    found = decoder.decode(Columns(table), 0, [0] * 6, {})
    assert all(r.reason.startswith(INEXACT_KEY) for r in found.rejects)
    assert all(f"`types: {{ {r.field}: string }}`" in r.reason for r in found.rejects)
    assert [(r.index, r.field) for r in found.rejects] == [
        (1, "at"), (2, "d"), (3, "n"), (4, "n"), (5, "n"),
    ]  # fmt: skip
    assert found.table.num_rows == 1 and not found.cut and not found.nulled
