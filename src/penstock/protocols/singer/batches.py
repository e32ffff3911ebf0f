"""The files of a BATCH message -> bodies, block by block, for the same decoder as records.

``jsonl`` (gzip or not) is read as it stands; rows of ``parquet`` become JSON by column. Memory is
bounded by a block. Files are never deleted: nobody says whose they are. Source: the Singer SDK's
BATCH message (``encoding`` and ``manifest``; a preview, no part of the specification).
"""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote

from penstock.codec.framing import LineFramer, Oversized
from penstock.protocols.lines import FIRST, OPEN, split

_BLOCK = 4 * 1024 * 1024
_ROWS = 10_000
_GZIP = b"\x1f\x8b"
_PACKINGS = (None, "", "none", "gzip")


class BatchError(Exception):
    """A batch whose rows cannot all be read: says which file, and why."""


@dataclass(slots=True)
class Faulty:
    """A row that is no object: its bytes, or their beginning where all of them are in ``spool``."""

    reason: str
    raw: bytes
    spool: str | None = None


def read_batch(
    encoding: Any, manifest: Any, max_record_bytes: int, spool_folder: str | None
) -> Iterator[Sequence[Any] | Faulty]:
    """JSON objects, some thousands at a time, in the order of the files. Raises
    :class:`BatchError`."""
    words = cast(dict[str, Any], encoding) if isinstance(encoding, dict) else {}
    form, packing = words.get("format"), words.get("compression")
    if not isinstance(manifest, list):
        raise BatchError("a BATCH message without a manifest")
    files = [_path(m) for m in cast(list[Any], manifest)]
    for path in files:
        if form == "jsonl" and packing in _PACKINGS:
            framer = LineFramer(max_record_bytes, spool_folder)
            try:
                yield from _json_lines(path, framer)
            finally:
                framer.close()
        elif form == "parquet":
            yield from _parquet(path)
        else:
            raise BatchError(f"{path}: format {form!r} with compression {packing!r} is not known")


def _path(entry: Any) -> Path:
    if not isinstance(entry, str):
        raise BatchError("a BATCH manifest that holds something else than paths")
    scheme, colon, rest = entry.partition("://")
    if not colon:
        return Path(entry)
    if scheme != "file":
        raise BatchError(f"{entry}: only batches in local files are read")
    path = Path(rest)
    return path if path.exists() else Path(unquote(rest))


def _json_lines(path: Path, framer: LineFramer) -> Iterator[Sequence[Any] | Faulty]:
    try:
        with path.open("rb") as plain:
            packed = plain.read(len(_GZIP)) == _GZIP
            plain.seek(0)
            file = cast(IO[bytes], gzip.GzipFile(fileobj=plain)) if packed else plain
            while block := file.read(_BLOCK):
                for item in framer.feed(block):
                    yield from _taken(item)
            for item in framer.finish():
                yield from _taken(item)
    except (OSError, EOFError, zlib.error) as e:
        raise BatchError(f"{path}: {getattr(e, 'strerror', None) or e}") from e


def _taken(item: Any) -> Iterator[Sequence[Any] | Faulty]:
    if isinstance(item, Oversized):
        spool = None if item.path is None else str(item.path)
        reason = f"a row of {item.size} bytes is larger than max_record_bytes"
        yield Faulty(reason, item.head, spool)
        return
    lines = [line for line in split(bytes(item.data)) if line.strip()]
    if lines and set(map(FIRST, lines)) != {OPEN}:
        for line in lines:
            if line[0] != OPEN and not line.lstrip().startswith(b"{"):
                yield Faulty("a row of a batch is not an object", line)
        lines = [line.lstrip() for line in lines if line.lstrip().startswith(b"{")]
    if lines:
        yield lines


def _parquet(path: Path) -> Iterator[Sequence[Any]]:
    import duckdb

    if not path.is_file():
        raise BatchError(f"{path}: No such file or directory")
    try:
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            sql = "SELECT CAST(to_json(r) AS VARCHAR) AS b FROM read_parquet($file) AS r"
            rows = connection.sql(sql, params={"file": str(path)})
            reader: Any = rows.to_arrow_reader(_ROWS)
            for batch in reader:
                yield _bodies(batch.column(0))
    except duckdb.Error as e:
        raise BatchError(f"{path}: {e}") from e


def _bodies(column: Any) -> Sequence[Any]:
    """Slices of the column's own bytes."""
    import pyarrow as pa

    column = column.cast(pa.large_string())
    _, ends, data = column.buffers()
    bounds = memoryview(ends).cast("q")[column.offset : column.offset + len(column) + 1]
    text = memoryview(data)
    return [text[a:b] for a, b in pairwise(bounds)]
