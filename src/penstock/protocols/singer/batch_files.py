"""Reads the files of a BATCH message and yields the JSON bodies of their rows, block by block.

``jsonl`` (gzip or not) is read as it stands; rows of ``parquet`` are converted to JSON by column:
bytes become base64, names are the file's own. Memory is bounded by a block. Files are never
deleted, since the message does not say who owns them. Not here: decoding bodies (``codec.decode``,
as for records). Source: the Singer SDK's BATCH message (``encoding`` and ``manifest``; a preview,
not part of the specification).
"""

import glob
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote

from penstock.codec.framing import LineFramer, Oversized
from penstock.protocols.stdio.json_lines import FIRST, OPEN, split

_BLOCK = 4 * 1024 * 1024
_ROWS = 10_000
_GZIP = b"\x1f\x8b"
_PACKINGS = (None, "", "none", "gzip")
_LOCAL = re.compile(r"file:(?://(?:localhost(?=/))?|(?=/))", re.IGNORECASE)  # RFC 8089


class BatchError(Exception):
    """Raised for a batch of which not all rows can be read; names the file and the reason."""


@dataclass(slots=True)
class MalformedRow:
    """A row that is not an object. ``raw``: its bytes; or their beginning, where ``spool`` is a
    file with all of them, of ``size`` bytes."""

    reason: str
    raw: bytes
    spool: str | None = None
    size: int = 0


def read_batch(
    encoding: Any, manifest: Any, max_record_bytes: int, spool_folder: str | None
) -> Iterator[Sequence[Any] | MalformedRow]:
    """Yields JSON objects, some thousands at a time, in the order of the files. Raises
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
                yield from _json_lines(path, packing == "gzip", framer)
            finally:
                framer.close()
        elif form == "parquet":
            yield from _parquet(path)
        else:
            raise BatchError(f"{path}: format {form!r} with compression {packing!r} is not known")


def _path(entry: Any) -> Path:
    if not isinstance(entry, str):
        raise BatchError("a BATCH manifest that holds something else than paths")
    local = _LOCAL.match(entry)
    if local is None:
        if "://" in entry:
            raise BatchError(f"{entry}: only batches in local files are read")
        return Path(entry)
    rest = entry[local.end() :]
    path = Path(rest)
    return path if path.exists() else Path(unquote(rest))


def _json_lines(
    path: Path, gzipped: bool, framer: LineFramer
) -> Iterator[Sequence[Any] | MalformedRow]:
    """``gzipped``: what the message says; the file's first bytes decide, if it has any."""
    try:
        with path.open("rb") as plain:
            start = plain.read(len(_GZIP))
            if gzipped and len(start) < len(_GZIP):  # gzip writes more, also of no row
                raise EOFError("the file ends before the header of gzip does")
            plain.seek(0)
            file = cast(IO[bytes], gzip.GzipFile(fileobj=plain)) if start == _GZIP else plain
            while block := file.read(_BLOCK):
                for item in framer.feed(block):
                    yield from _taken(item)
            for item in framer.finish():
                yield from _taken(item)
    except (OSError, EOFError, zlib.error) as e:
        raise BatchError(f"{path}: {getattr(e, 'strerror', None) or e}") from e


def _taken(item: Any) -> Iterator[Sequence[Any] | MalformedRow]:
    if isinstance(item, Oversized):
        spool = None if item.path is None else str(item.path)
        reason = f"a row of {item.size} bytes is larger than max_record_bytes"
        yield MalformedRow(reason, item.head, spool, 0 if spool is None else item.size)
        return
    lines = [line for line in split(bytes(item.data)) if line.strip()]
    if lines and set(map(FIRST, lines)) != {OPEN}:
        for line in lines:
            if line[0] != OPEN and not line.lstrip().startswith(b"{"):
                yield MalformedRow("a row of a batch is not an object", line)
        lines = [line.lstrip() for line in lines if line.lstrip().startswith(b"{")]
    if lines:
        yield lines


def _parquet(path: Path) -> Iterator[Sequence[Any]]:
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise BatchError(f"{path}: No such file or directory")
    # A path is a pattern to DuckDB, and names of folders may become columns.
    source = "read_parquet($file, hive_partitioning = false)"
    given = {"file": glob.escape(str(path))}
    try:
        known = list(cast(Any, pq.read_schema(path)))
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            types = connection.sql(f"SELECT * FROM {source}", params=given).types
            columns = [f"c{n}" for n in range(len(types))]
            record = _object(columns, types, [f.name for f in known], [f.type for f in known], 0)
            sql = f"SELECT CAST({record} AS VARCHAR) AS b FROM {source} AS r({', '.join(columns)})"
            reader: Any = connection.sql(sql, params=given).to_arrow_reader(_ROWS)
            for batch in reader:
                yield _bodies(batch.column(0))
    except (duckdb.Error, pa.ArrowException, OSError) as e:
        raise BatchError(f"{path}: {e}") from e


def _object(
    values: Sequence[str],
    types: Sequence[Any],
    names: Sequence[str],
    own: Sequence[Any],
    depth: int,
) -> str:
    """The SQL expression of a JSON object. Fields are taken by position, since DuckDB renames
    columns that differ only in case."""
    parts: list[str] = []
    for value, kind, name, inner in zip(values, types, names, own, strict=True):
        key = name.replace("'", "''")
        parts.append(f"'{key}', {_value(value, kind, inner, depth)}")
    return f"json_object({', '.join(parts)})"


def _value(value: str, kind: Any, own: Any, depth: int) -> str:
    """The SQL expression of the JSON value of ``value``; ``value`` itself where DuckDB's own JSON
    is right. ``own``: its type in the file's schema."""
    own = getattr(own, "storage_type", own)
    item = f"x{depth}"
    match kind.id:
        case "blob":
            return f"to_base64({value})"
        case "list" | "array":
            inner = _value(item, kind.children[0][1], own.value_type, depth + 1)
            if inner == item:
                return value
            return f"list_transform({value}, lambda {item}: {inner})"
        case "map":
            (_, key), (_, value_type) = kind.children
            pair = [f"{item}.key", f"{item}.value"]
            made = [
                _value(pair[0], key, own.key_type, depth + 1),
                _value(pair[1], value_type, own.item_type, depth + 1),
            ]
            if made == pair:
                return value
            entry = f"struct_pack(key := {made[0]}, value := {made[1]})"
            entries = f"list_transform(map_entries({value}), lambda {item}: {entry})"
            return f"map_from_entries({entries})"
        case "struct":
            names, types = zip(*kind.children, strict=True)
            called, inner = [f.name for f in own], [f.type for f in own]
            fields = [f"struct_extract_at({value}, {n + 1})" for n in range(len(types))]
            made = [_value(*one, depth) for one in zip(fields, types, inner, strict=True)]
            if made == fields and called == [*names]:
                return value
            whole = _object(fields, types, called, inner, depth)
            return f"CASE WHEN {value} IS NULL THEN NULL ELSE {whole} END"
        case _:
            return value


def _bodies(column: Any) -> Sequence[Any]:
    """The texts of a column as slices of its buffer, without a copy."""
    import pyarrow as pa

    column = column.cast(pa.large_string())
    _, ends, data = column.buffers()
    bounds = memoryview(ends).cast("q")[column.offset : column.offset + len(column) + 1]
    text = memoryview(data)
    return [text[a:b] for a, b in pairwise(bounds)]
