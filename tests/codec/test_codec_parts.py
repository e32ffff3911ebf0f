"""A part is on the disk, its sum is that of its bytes, and other readers can read it."""

import json
import subprocess
import sys
import zlib
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from penstock.codec.decode import RowDecoder
from penstock.codec.json_schema import data_type, row_schema
from penstock.codec.parquet_parts import write_part
from penstock.model.types import CHANGES, EXTRACTED_AT, NEUTRAL_METADATA, SEQ
from penstock.tables.files import direct_parts

SCHEMA = {
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "price": {"type": "number", "multipleOf": 0.01},
        "tags": {"type": "array", "items": {"type": "string"}},
        "geo": {"properties": {"lat": {"type": "number"}}},
        "blob": {"type": "string", "contentEncoding": "base64"},
    }
}
BODY = (
    b'{"id":1,"at":"2024-01-02T03:04:05.000006Z","price":1.25,"tags":["a",null],'
    b'"geo":{"lat":1.5},"blob":"aGk="}'
)


def test_l2_a_part_is_what_its_sum_says(tmp_path: Path) -> None:
    done = RowDecoder(row_schema(data_type(SCHEMA), {})).decode(
        [BODY, b'{"id":"x"}'], 1, [1, 2], {}
    )
    path = tmp_path / "p.parquet"
    size, crc = write_part(path, done.table)
    data = path.read_bytes()
    assert (size, crc) == (len(data), zlib.crc32(data))
    assert path.stat().st_mode & 0o777 == 0o600
    assert pq.read_table(path).equals(done.table)
    assert pq.read_schema(path).field("id").metadata[b"penstock.source"] == b"id"
    columns = (
        f'id, price::VARCHAR, tags, geo.lat, epoch_us("at"), len({CHANGES}), '
        f"epoch_ms({EXTRACTED_AT})"
    )
    found = duckdb.sql(f"SELECT {columns} FROM '{path}' ORDER BY {SEQ}").fetchall()
    assert found == [(1, "1.25", ["a", None], 1.5, 1704164645000006, 0, 1), (None,) * 5 + (1, 2)]


def test_a_part_is_replaced_and_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    table = RowDecoder(row_schema(data_type(SCHEMA), {})).decode([BODY] * 3, 1, [1] * 3, {}).table
    path = tmp_path / "p.parquet"
    write_part(path, table)
    size, _ = write_part(path, table.slice(0, 0))
    assert pq.read_table(path).num_rows == 0 and path.stat().st_size == size
    with pytest.raises(OSError):
        write_part(tmp_path / "no" / "p.parquet", table)


_MEASURE = """
import re, sys
from pathlib import Path
from penstock.codec.decode import RowDecoder
from penstock.codec.json_schema import data_type, row_schema
from penstock.codec.parquet_parts import write_part
from penstock.model.segments import PartLayout, TableShape
from penstock.model.types import NEUTRAL_METADATA

def peak():  # not ru_maxrss, which begins at what the parent had
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:\\s*(\\d+)", status.read())[1]) >> 10

schema = {"properties": {"id": {"type": "integer"}, "t": {"type": "string"}}}
decoder = RowDecoder(row_schema(data_type(schema), {}))
layout = PartLayout(
    shape=TableShape(NEUTRAL_METADATA, ""), columns=("id", "t"), sync_id=None, generation=0,
    described={},
)
decoder.decode([b'{"id":1,"t":"x"}'], 1, [1])
before = peak()
table = decoder.decode([b'{"id":1,"t":"' + b"x" * (96 << 20) + b'"}'], 1, [1]).table
decoded = peak()
write_part(Path(sys.argv[1]), table, layout)
print(decoded - before, peak() - before)
"""


def test_a_long_record_takes_a_few_times_its_bytes_L11(tmp_path: Path) -> None:
    """Statistics of the column took four copies of its longest value, to keep none."""
    path = tmp_path / "p.parquet"
    words = [sys.executable, "-c", _MEASURE, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    decoded, written = map(int, done.stdout.split())
    assert decoded <= 5 * 96 and written <= 5 * 96
    columns = pq.ParquetFile(path).metadata.row_group(0)
    assert columns.column(0).statistics.max == 1  # the others have theirs
    assert columns.column(1).statistics is None


def test_a_part_in_the_shape_of_its_table_says_what_sparks_own_files_say(tmp_path: Path) -> None:
    """Spark goes by the version that wrote a file, and by the columns' metadata."""
    schema = row_schema(data_type(SCHEMA), {})
    table = RowDecoder(schema).decode([BODY], 1, [1]).table
    part = tmp_path / "p.parquet"
    write_part(part, table, direct_parts.layout(schema, NEUTRAL_METADATA, None, 0))
    about = pq.read_metadata(part).metadata or {}
    assert about[b"org.apache.spark.version"]
    columns = json.loads(about[b"org.apache.spark.sql.parquet.row.metadata"])["fields"]
    assert {"id", "at"} <= {column["name"] for column in columns}
