"""Rows of Parquet batches: short, long and too long ones come out alike, and in bounded memory (L8;
issue 36, 14)."""

import base64
import json
import subprocess
import sys
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.protocols.singer import batch_parquet
from penstock.protocols.singer.batch_files import read_batch
from penstock.protocols.singer.batch_rows import MalformedRow
from penstock.runtimes.contract import SharedFolders
from penstock.runtimes.granted_files import GrantedFiles

pytestmark = pytest.mark.dear


def taken(path: Path, limit: int = 256 << 20) -> tuple[list[bytes], list[MalformedRow]]:
    """(rows, rejects)"""
    rows: list[bytes] = []
    rejects: list[MalformedRow] = []
    given = SharedFolders(paths=(str(path.parent),))
    with GrantedFiles(given) as files:
        for found in read_batch(files, {"format": "parquet"}, [str(path)], limit, str(path.parent)):
            if isinstance(found, MalformedRow):
                rejects.append(found)
            else:
                rows += map(bytes, found)
    return rows, rejects


def everything(rows: int) -> Any:
    """A table of every type that takes part in the size of a row, and some that do not."""
    texts = ["", "a", 'quo"te\\', "\x00\x1f\n", "ü€😀" * 50, None, "x" * 500]
    text = pa.array([texts[n % 7] for n in range(rows)])
    inner = pa.struct([("s", pa.string()), ("b", pa.binary())])
    some = [None, [], [{"s": "a" * 40, "b": b"\xff" * 30}, None], [{"s": None, "b": b""}]]
    maps = [None, [], [("k", ["v" * 60, None])], [("\x01", None)]]
    when = datetime(2020, 1, 2, 3, 4, 5, 678901, UTC)
    return pa.table(
        {
            "n": pa.array(range(rows), pa.int64()),
            "t": text,
            "T": text.dictionary_encode(),
            'odd "name" ü': text.cast(pa.large_string()),
            "b": pa.array([None if n % 5 == 0 else b"\x00\xff" * n for n in range(rows)]),
            "f": pa.array([b"abc"] * rows, pa.binary(3)),
            "l": pa.array([some[n % 4] for n in range(rows)], pa.list_(inner)),
            "i": pa.array([[n] * (n % 4) for n in range(rows)], pa.list_(pa.int32())),
            "m": pa.array(
                [maps[n % 4] for n in range(rows)], pa.map_(pa.string(), pa.list_(pa.string()))
            ),
            "s": pa.array([{"s": "y" * n, "b": b"z"} for n in range(rows)], inner),
            "d": pa.array([Decimal("12345678901234567890.12")] * rows),
            "w": pa.array([when] * rows, pa.timestamp("us", "UTC")),
            "c": pa.array([time(1, 2, 3)] * rows, pa.time64("us")),
            "x": pa.array([1.5] * rows),
            "o": pa.array([n % 2 == 0 for n in range(rows)]),
            "z": pa.nulls(rows, pa.string()),
        }
    )


@pytest.mark.parametrize(("short", "slice_bytes"), [(0, 0), (300, 400), (600, 5000)])
def test_rows_are_the_same_however_long_they_are_taken_to_be_L8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int, slice_bytes: int
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(everything(24), path, row_group_size=10)
    plain, none = taken(path)
    assert len(plain) == 24 and not none
    monkeypatch.setattr(batch_parquet, "_SHORT", short)
    monkeypatch.setattr(batch_parquet, "_SLICE", slice_bytes)
    monkeypatch.setattr(batch_parquet, "_PIECE", 6)
    rows, none = taken(path)
    assert not none
    assert [json.loads(r) for r in rows] == [json.loads(r) for r in plain]
    assert [json.loads(r)["n"] for r in rows] == list(range(24))


def test_a_row_beyond_the_limit_is_a_reject_with_all_its_bytes_in_its_place_L8(
    tmp_path: Path,
) -> None:
    """The others of its file are rows."""
    path = tmp_path / "t.parquet"
    long = ['"ü' * (4 << 20), "x" * (9 << 20)]
    table = pa.table({"n": [1, 2, 3, 4, 5], "t": ["a", long[0], "b", long[1], None]})
    pq.write_table(table, path, compression="zstd")
    rows, rejects = taken(path, 1 << 20)
    assert [json.loads(r)["n"] for r in rows] == [1, 3, 5]
    for reject, n, text in zip(rejects, (2, 4), long, strict=True):
        whole = Path(str(reject.spool)).read_bytes()
        assert json.loads(whole) == {"n": n, "t": text}
        assert (reject.size, reject.raw) == (len(whole), whole[: 64 << 10])
        assert reject.reason == f"a row of {len(whole)} bytes is larger than max_record_bytes"


def test_what_grows_as_json_counts_as_it_is_written_L8(tmp_path: Path) -> None:
    """A control character takes six bytes, and three bytes take four in base64."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"t": ["\x00" * (9 << 20)], "b": [b"\xff" * (9 << 20)]}), path)
    rows, (reject,) = taken(path, 20 << 20)
    assert not rows and reject.size > 66 << 20
    with open(str(reject.spool), "rb") as file:
        assert file.read(12) == rb'{"t":"\u0000'
    narrow = tmp_path / "b.parquet"
    pq.write_table(pa.table({"b": [b"\xff" * (9 << 20)]}), narrow)
    (row,), none = taken(narrow, 20 << 20)
    assert not none and base64.b64decode(json.loads(row)["b"]) == b"\xff" * (9 << 20)


_MEASURE = """
import re, sys
from penstock.protocols.singer.batch_files import read_batch
from penstock.protocols.singer.batch_rows import MalformedRow
from penstock.runtimes.contract import SharedFolders
from penstock.runtimes.granted_files import GrantedFiles
folder, name, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
rows = rejects = 0
with GrantedFiles(SharedFolders(paths=(folder,))) as files:
    for found in read_batch(files, {"format": "parquet"}, [folder + "/" + name], limit, folder):
        if isinstance(found, MalformedRow):
            rejects += 1
        else:
            rows += len(found)
# not ru_maxrss, which begins at what the parent had
with open("/proc/self/status") as status:
    print(rows, rejects, int(re.search(r"VmHWM:\\s*(\\d+)", status.read())[1]) >> 10)
"""


def measured(path: Path, limit: int) -> tuple[int, int, int]:
    """(rows, rejects, peak MB) of a process of its own."""
    words = [sys.executable, "-c", _MEASURE, str(path.parent), path.name, str(limit)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=240)
    rows, rejects, peak = map(int, done.stdout.split())
    return rows, rejects, peak


def test_a_dictionary_bomb_is_read_in_bounded_memory_L8(tmp_path: Path) -> None:
    """One value of 4 MB that 150 rows refer to, in a file of some kB."""
    path = tmp_path / "t.parquet"
    long = pa.DictionaryArray.from_arrays([0, 1] * 150, ["x" * (4 << 20), "y"])
    pq.write_table(pa.table({"t": long}), path, compression="zstd")
    assert path.stat().st_size < 10_000
    rows, rejects, peak = measured(path, 1 << 20)
    assert (rows, rejects) == (150, 150)
    assert peak < 600


def test_a_cell_of_many_times_the_limit_in_a_small_file_is_a_reject_L8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is larger than what DuckDB may hold at first."""
    monkeypatch.setattr(batch_parquet, "_LEAST_HELD", 32 << 20)
    path = tmp_path / "t.parquet"
    table = pa.table({"n": [1, 2, 3], "t": ["a", "x" * (80 << 20), "b"]})
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 20_000
    rows, (reject,) = taken(path, 1 << 20)
    assert [json.loads(r)["n"] for r in rows] == [1, 3]
    assert reject.size == (80 << 20) + len('{"n":2,"t":""}')
