"""Writes an Arrow table as the Parquet file of a part, durably by default.

Spark 4.1, DuckDB and pandas can read the file. The compression was chosen by measurement: zstd
level 1 without dictionaries is the smallest and, within a few per cent, as fast as lz4 and snappy.
Not here: where parts lie and how they are sealed (``engine.log.log``)."""

import io
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

import pyarrow.parquet as pq

from penstock.codec.table_rows import table_rows
from penstock.codec.untyped import ArrowSchema, Table, pa
from penstock.codec.untyped import compute as pc
from penstock.files import private, sync_file
from penstock.model.segments import PartLayout

_FORMAT: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": False,
    "coerce_timestamps": "us",
    "version": "2.6",
}


_LONG_BYTES = 1 << 20  # of a value, far above the 4 kB of which Parquet keeps statistics
_NESTED_BYTES = 64 << 20


def table_file(
    file: IO[bytes], schema: ArrowSchema, without: Collection[str] = ()
) -> pq.ParquetWriter:
    """Returns a writer of row groups, in the form of a part in its table's layout. ``without``:
    columns without statistics."""
    statistics: Any = _with_statistics(schema, without)
    return pq.ParquetWriter(
        file, schema, store_schema=False, write_statistics=statistics, **_FORMAT
    )


def long_columns(rows: Table) -> set[str]:
    """Returns the columns with long values: making their statistics would take four copies of the
    longest value, and Parquet would not keep them."""
    found: set[str] = set()
    for field in rows.schema:
        column = rows.column(field.name)
        if column.nbytes < _LONG_BYTES:
            continue
        if pa.types.is_nested(field.type):
            long = column.nbytes >= _NESTED_BYTES
        else:
            sized = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
            long = sized and (pc.max(pc.binary_length(column)).as_py() or 0) >= _LONG_BYTES
        if long:
            found.add(field.name)
    return found


def _with_statistics(schema: ArrowSchema, without: Collection[str]) -> list[str] | bool:
    """Returns the columns that have statistics; True: all. If there are long columns, nested ones
    have none."""
    if not without:
        return True
    return [f.name for f in schema if f.name not in without and not pa.types.is_nested(f.type)]


def write_part(
    path: str | Path, table: Table, layout: PartLayout | None = None, *, sync: bool = True
) -> tuple[int, int]:
    """Writes ``table`` to ``path``, fsynced; returns (bytes, CRC-32 of the file). ``layout``: that
    of the table that may take the file unchanged. ``sync`` False: the caller makes it durable.

    The file has mode 0600 and replaces an existing one. The folder's entry is not synced: the
    caller does that when it makes the part visible. Raises ``OSError``."""
    if layout is not None:
        table = table_rows(table, layout)
    # a part that is read once, and whole, needs none
    statistics: Any = layout is not None and _with_statistics(table.schema, long_columns(table))
    with private(path, "wb", buffering=0) as file:
        sink = _Summed(file)
        with pq.ParquetWriter(
            sink,
            table.schema,
            write_statistics=statistics,
            store_schema=layout is None,
            **_FORMAT,
        ) as writer:
            writer.write_table(table, row_group_size=1 << 20)
            if layout is not None:
                writer.add_key_value_metadata(layout.described)
        sink.flush()
        if sync:
            sync_file(file)
    return sink.size, sink.crc


class _Summed(io.BufferedIOBase):
    """A writable file that passes bytes on and keeps their number and CRC-32."""

    def __init__(self, file: io.RawIOBase | Any) -> None:
        self._file = file
        self.size = 0
        self.crc = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self.crc = zlib.crc32(view, self.crc)
        self.size += len(view)
        while view:  # a raw file may take less than it is given
            view = view[self._file.write(view) :]
        return len(data)
