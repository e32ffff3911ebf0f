"""What a component's frames may hold: a column's encoding may change from frame to frame, a column
may have no values, values may lie outside of what tables hold (the protocol, section 6; L7, L9)."""

import json
import sys
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from quick_runs import Bench

from penstock.model.report import Report
from penstock.tables.contract import TableName

sys.path.append(str(Path(__file__).parents[1] / "protocols" / "rapidbyte"))

import rapidbyte_guests

pytestmark = pytest.mark.dear

MANIFEST = {
    "id": "them/frames", "name": "Frames", "version": "1", "protocol_version": "4",
    "roles": {"source": {"supported_sync_modes": ["full_refresh", "incremental"]}},
    "permissions": {},
}  # fmt: skip
APPEND = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path, monkeypatch)
    rapidbyte_guests.lend_script(made.home.path, tmp_path / "source.wasm")
    return made


def frame(array: Any) -> bytes:
    """A frame of one column, ``x``."""
    batch = pa.RecordBatch.from_arrays([array], names=["x"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def run(bench: Bench, *arrays: Any, declared: str | None = None, times: int = 1) -> Report:
    """Reads one stream, of a frame for each array. ``declared``: the type that the catalog has for
    its column; None: the catalog does not have the column. ``times``: how often the catalog has the
    stream."""
    columns = [{"name": "x", "data_type": declared, "nullable": True}] if declared else []
    stream = {"name": "s", "schema": columns, "supported_sync_modes": ["full_refresh"]}
    config = {
        "catalog": json.dumps({"streams": [stream] * times}).encode().hex(),
        "s": " ; ".join(f"frame f{i}" for i in range(len(arrays))),
        **{f"f{i}": frame(array).hex() for i, array in enumerate(arrays)},
    }
    section = {"config": config, "assume_manifest": MANIFEST, "streams": [{"name": "s", **APPEND}]}
    report = bench.run(str(bench.folder / "source.wasm"), source=section)
    assert report.status == "succeeded", report.error
    return report


def rows(bench: Bench) -> list[dict[str, Any]]:
    return [dict(row) for row in bench.tables.rows.get(TableName(None, "s"), [])]


def values(bench: Bench) -> list[Any]:
    return [row["x"] for row in rows(bench)]


TEXT = pa.array(["b", None])
MIXED: dict[str, tuple[list[Any], list[Any]]] = {
    "a dictionary": ([pa.array(["a"]).dictionary_encode(), TEXT], ["a", "b", None]),
    "again": ([TEXT, pa.array(["a"]).dictionary_encode(), TEXT], ["b", None, "a", "b", None]),
    "runs": ([pa.RunEndEncodedArray.from_arrays(pa.array([2]), pa.array(["q"])), TEXT],
             ["q", "q", "b", None]),
    "views": ([TEXT, pa.array(["v"], pa.string_view())], ["b", None, "v"]),
    "list views": ([pa.array([[1]]), pa.array([[2]], pa.list_view(pa.int8()))], [[1], [2]]),
    "units": ([pa.array([datetime(3000, 1, 1)], pa.timestamp("us")),
               pa.array([1000], pa.timestamp("ns"))],
              [datetime(3000, 1, 1), datetime(1970, 1, 1, 0, 0, 0, 1)]),
    "maps": ([pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
              pa.array([[("b", "c")]], pa.map_(pa.string(), pa.string()))],
             ['{"a":1}', '{"b":"c"}']),
}  # fmt: skip


def encoded(values: list[Any], indices: list[int | None]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(values))


MIXED |= {
    "dictionaries": ([encoded(["a"], [0]), encoded(["b", None], [0, 1, None])],
                     ["a", "b", None, None]),
    "dictionaries of lists": ([encoded([[1]], [0]), encoded([[2], None], [0, 1])],
                              [[1], [2], None]),
    "dictionaries in lists": (
        [pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), encoded([v, None], [i]))
         for v, i in (("a", 0), ("b", 1), ("c", 0))],
        [["a"], [None], ["c"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", MIXED)
def test_L7_a_column_may_be_encoded_otherwise_in_each_frame(bench: Bench, how: str) -> None:
    """Frames of one kind are decoded together; Arrow does not merge all their types."""
    arrays, wanted = MIXED[how]
    run(bench, *arrays)
    assert values(bench) == wanted


@pytest.mark.parametrize("declared", ["Int64", None])
def test_L9_a_frame_whose_column_has_no_values_says_nothing_of_its_type(
    bench: Bench, declared: str | None
) -> None:
    """Arrow's type ``null``, which writers give a column of NULL alone."""
    run(bench, pa.array([5]), pa.nulls(2), pa.array([7]), declared=declared)
    assert values(bench) == [5, None, None, 7]


def test_a_column_that_begins_without_values_has_its_declared_type(bench: Bench) -> None:
    run(bench, pa.nulls(1), pa.array([7]), declared="Int64")
    assert values(bench) == [None, 7]


def test_L9_a_column_that_nobody_declared_and_that_begins_without_values_has_a_later_frames_type(
    bench: Bench,
) -> None:
    """Also where another frame without values comes between, and in a full refresh, in the middle
    of which a type cannot change."""
    run(bench, pa.nulls(1), pa.nulls(2), pa.array([7]), pa.nulls(1), pa.array([8]))
    assert values(bench) == [None, None, None, 7, None, 8]


def test_L8_rows_of_a_column_that_never_has_values_all_come(bench: Bench) -> None:
    run(bench, pa.nulls(1), pa.nulls(2))
    assert values(bench) == [None] * 3


@pytest.mark.parametrize(
    "array",
    [
        pa.array([2**63 - 1, 0, -(2**63)], pa.timestamp("us")),
        pa.array([2**63 - 1, 0, -(2**63)], pa.timestamp("us", "UTC")),
        pa.array([2**40, 0, -(2**40)], pa.timestamp("s")),
        pa.array([2**31 - 1, 0, -(2**31)], pa.date32()),
    ],
    ids=lambda a: str(a.type),
)
def test_L9_a_time_beyond_the_year_9999_does_not_fit(bench: Bench, array: Any) -> None:
    """Such as Postgres's ``infinity``: no table and no JSON has it."""
    report = run(bench, array)
    first, epoch, last = rows(bench)
    assert (first["x"], last["x"]) == (None, None) and str(epoch["x"]).startswith("1970-01-01")
    for row in (first, last):
        assert [c["change"] for c in row["_penstock_changes"]] == ["NULLED"]
    assert any("2 values of s.x did not fit" in note for note in report.notes)


def test_the_last_day_fits(bench: Bench) -> None:
    run(bench, pa.array([date(9999, 12, 31), date(1, 1, 1)]))
    assert values(bench) == [date(9999, 12, 31), date(1, 1, 1)]


def test_a_union_without_rows_and_one_of_intervals(bench: Bench) -> None:
    """PyArrow asks a union without rows for a buffer that it does not have, and the process died
    (SIGSEGV)."""
    none = pa.array([], pa.int8())
    empty = pa.UnionArray.from_sparse(none, [pa.array([], pa.int64())])
    intervals = pa.array([[pa.MonthDayNano([1, 2, 3])]])
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [intervals])
    run(bench, empty, union)
    assert values(bench) == ["[[1,2,3]]"]


def test_L8_no_entry_of_a_map_is_lost(bench: Bench) -> None:
    kind = pa.map_(pa.string(), pa.int64())
    run(bench, pa.array([[("a", 1), ("b", 2)], [("a", 1), ("a", 2)], [], None], kind))
    assert values(bench) == ['{"a":1,"b":2}', '[["a",1],["a",2]]', "{}", None]


def test_L8_a_stream_that_the_catalog_has_twice_is_read_once(bench: Bench) -> None:
    """The protocol asks for a run by the stream's name alone (section 6)."""
    report = run(bench, pa.array([1, 2]), declared="Int64", times=2)
    assert values(bench) == [1, 2] and [s.read for s in report.streams] == [2]
    assert "stream s comes twice in the catalog; the first is taken" in report.notes
