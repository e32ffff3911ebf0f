"""L9: a delete mark is judged by the value that the source sent, whatever its column's type is."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.codec.columns import ColumnDecoder, Columns
from penstock.codec.decode import RowDecoder
from penstock.codec.delete_marks import marked
from penstock.model.delete_marks import DeleteMark, is_time, marks_delete
from penstock.model.types import DataType, Field, Kind, RowSchema

LIVE: list[Any] = [
    None, False, "false", " FALSE ", "f", "n", "No", "off", "None", "null", " NULL", 0, 0.0, "0",
    "0.0", "-0", "00", "0e5", "+0", "", "   ", [], {}, "[]", "{ }", "0000-00-00",
    "0000-00-00 00:00:00", "0000-00-00T00:00:00Z", "0000-00-00T00:00:00.000+00:00", "NaT",
    "00/00/0000", "00000000T000000Z", "0x0", "\u2003no\u3000", "\ufeff", "\u00a0", "0,00", "nil",
]  # fmt: skip
GONE: list[Any] = [
    True, "true", "T", "yes", "Y", "on", 1, -1, "1", "2.5", 0.001, 1542891090, "1e3", "0.5",
    "2018-11-22T12:51:30Z", "2018-11-22 12:51:30", "2018-11-22", "1970-01-01T00:00:00Z",
    "1970-01-01", "0001-01-01", "2018-11-22T12:51:30.123456789+02:00",
    "20181122T125130Z", "2018-11-22T24:00:00Z", "2016-12-31T23:59:60Z", "12018-11-22T00:00:00Z",
    "20181122T1251+0100",
]  # fmt: skip
ODD: list[Any] = [
    "2018-11-22T12:51:30+00:00+00:00", "Thu Nov 22 2018 12:51:30 GMT", "2024-00-00", "deleted",
    [1], {"a": 1},
]  # fmt: skip
TYPES = {
    "string": DataType(Kind.string), "json": DataType(Kind.json), "boolean": DataType(Kind.boolean),
    "integer": DataType(Kind.integer), "number": DataType(Kind.number),
    "decimal": DataType(Kind.decimal, 10, 2), "fraction": DataType(Kind.decimal, 2, 2),
    "date": DataType(Kind.date), "timestamp": DataType(Kind.timestamp),
    "timestamp_ntz": DataType(Kind.timestamp_ntz), "time": DataType(Kind.time),
    "binary": DataType(Kind.binary),
}  # fmt: skip


def decoded(values: list[Any], kind: DataType, *, null_if_live: bool = False) -> Any:
    schema = RowSchema(
        (Field("id", "id", DataType(Kind.integer)), Field("gone", "_sdc_deleted_at", kind))
    )
    mark = DeleteMark("_sdc_deleted_at", is_time(kind), null_if_live)
    bodies = [json.dumps({"id": i, "_sdc_deleted_at": v}).encode() for i, v in enumerate(values)]
    return RowDecoder(schema, deletes=mark).decode(bodies, 0, [1700000000123] * len(values))


@pytest.mark.parametrize("name", TYPES)
def test_l9_every_spelling_means_the_same_in_every_column(name: str) -> None:
    kind = TYPES[name]
    values = [*LIVE, *GONE, *ODD]
    found = decoded(values, kind)
    gone = marked(found.table["gone"]).to_pylist()
    rows = dict(zip(found.table["id"].to_pylist(), gone, strict=True))
    for index, value in enumerate(values):
        if value in ODD[-6:] and isinstance(value, (str, list, dict)) and index >= len(LIVE + GONE):
            wanted = True if is_time(kind) else None
        else:
            wanted = index >= len(LIVE)
        assert rows.get(index) is wanted, (name, value, rows.get(index))
    rejected = [] if is_time(kind) else [*range(len(LIVE + GONE), len(values))]
    assert [r.index for r in found.rejects] == rejected
    assert all(r.field == "_sdc_deleted_at" for r in found.rejects)
    plain = [marks_delete(v) for v in found.table["gone"].to_pylist()]
    assert plain == gone, "values in Python are judged alike"


def test_l9_a_delete_whose_mark_does_not_fit_has_the_extraction_time_and_an_entry() -> None:
    found = decoded(["2018-11-22T12:51:30+00:00+00:00", None, ""], TYPES["timestamp"])
    at, *others = found.table["gone"].cast(pa.int64()).to_pylist()
    assert at == 1700000000123000 and others == [None, None]
    assert [len(c or ()) for c in found.table["_penstock_changes"].to_pylist()] == [1, 0, 1]
    assert found.filled_marks == {"_sdc_deleted_at": 1}


def test_values_that_fit_are_stored_as_they_were_sent() -> None:
    assert decoded([False, True], TYPES["boolean"]).table["gone"].to_pylist() == [False, True]
    assert decoded(["", "No", "0"], TYPES["string"]).table["gone"].to_pylist() == ["", "No", "0"]
    assert decoded([0, 5], TYPES["integer"]).table["gone"].to_pylist() == [0, 5]


def test_a_destination_connector_is_sent_null_for_a_live_mark() -> None:
    """Such destinations take every mark that is not null for a delete."""
    found = decoded(["", "No", "yes", None], TYPES["string"], null_if_live=True)
    assert found.table["gone"].to_pylist() == [None, None, "yes", None]
    assert found.cleared_marks == {"_sdc_deleted_at": 2}


def test_l9_a_mark_that_does_not_fit_its_column_is_counted_once_and_strict_takes_it() -> None:
    schema = RowSchema((Field("gone", "_sdc_deleted_at", TYPES["timestamp"]),))
    sent = [b'{"_sdc_deleted_at":"2018-11-22T12:51:30+00:00+00:00"}', b'{"_sdc_deleted_at":""}']
    mark = DeleteMark("_sdc_deleted_at", of_time=True)
    for strict in (False, True):
        found = RowDecoder(schema, deletes=mark, strict=strict).decode(sent, 0, [0, 0])
        assert not found.rejects and found.table.num_rows == 2
        assert found.filled_marks == {"_sdc_deleted_at": 1}
        assert found.nulled == {"_sdc_deleted_at": 1}, "of the live mark only"
        columns = pa.table({"_sdc_deleted_at": ["2018-11-22T12:51:30+00:00+00:00", ""]})
        decoder = ColumnDecoder(schema, deletes=mark, strict=strict)
        other = decoder.decode(Columns(columns), 0, [0, 0], {})
        assert not other.rejects and other.filled_marks == found.filled_marks
        assert other.nulled == found.nulled


def test_l9_an_escape_in_a_mark_is_what_it_says() -> None:
    bodies = [b'{"id":1,"_sdc_deleted_at":"\\t0"}', b'{"id":2,"_sdc_deleted_at":"fals\\u0065"}']
    for name in ("json", "boolean", "string", "integer"):
        schema = RowSchema((Field("gone", "_sdc_deleted_at", TYPES[name]),))
        mark = DeleteMark("_sdc_deleted_at", of_time=False)
        found = RowDecoder(schema, deletes=mark).decode(bodies, 0, [0, 0])
        assert not found.rejects, name


COLUMNS: dict[str, tuple[pa.Array, list[bool | None]]] = {
    "bool": (pa.array([True, False, None]), [True, False, False]),
    "float": (pa.array([0.0, -0.0, 2.5, float("nan"), None]), [False, False, True, False, False]),
    "decimal": (pa.array([Decimal("0.00"), Decimal("0.01")]), [False, True]),
    "text": (pa.array(["false", "2024-01-01", "?", None]), [False, True, None, False]),
    "large": (pa.array(["", "on"], pa.large_string()), [False, True]),
    "view": (pa.array(["", "on"], pa.string_view()), [False, True]),
    "words": (pa.array(["no", "yes", "no"]).dictionary_encode(), [False, True, False]),
    "time": (pa.array([0, None], pa.timestamp("ns")), [True, False]),
    "list": (pa.array([[], None], pa.list_(pa.int64())), [False, False]),
    "struct": (pa.array([{"a": None}, None]), [False, False]),
    "null": (pa.nulls(2), [False, False]),
}


@pytest.mark.parametrize("target", ["string", "boolean", "integer", "number", "timestamp", "json"])
@pytest.mark.parametrize("sent", COLUMNS)
def test_l9_arrow_columns_are_judged_as_json_is(sent: str, target: str) -> None:
    column, wanted = COLUMNS[sent]
    schema = RowSchema((Field("gone", "_ab_cdc_deleted_at", TYPES[target]),))
    mark = DeleteMark("_ab_cdc_deleted_at", is_time(TYPES[target]))
    rows = Columns(pa.table({"_ab_cdc_deleted_at": column}))
    found = ColumnDecoder(schema, deletes=mark).decode(rows, 0, [1700000000123] * len(column), {})
    if is_time(TYPES[target]):
        wanted = [True if w is None else w for w in wanted]
    assert marked(found.table["gone"]).to_pylist() == [w for w in wanted if w is not None]
    assert [r.index for r in found.rejects] == [i for i, w in enumerate(wanted) if w is None]
