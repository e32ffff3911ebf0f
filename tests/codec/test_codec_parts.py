"""A part is on the disk, its sum is that of its bytes, and other readers can read it."""

import zlib
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from penstock.codec.decode import RowDecoder
from penstock.codec.json_schema import data_type, row_schema
from penstock.codec.parquet_parts import write_part
from penstock.model.types import CHANGES, EXTRACTED_AT, SEQ

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
