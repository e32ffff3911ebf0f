"""Rows to JSON lines on one core: four ways, against orjson.dumps of dicts in the same run.

    python bench/encode.py [RECORDS] [--file SINGER_MESSAGES.jsonl] [--batch ROWS]

``ours``: ``codec.json_lines_encoder`` (Arrow texts per column, one join). ``take``: the same texts,
put in place by one ``take``, whose values are the lines. ``concat``: texts joined in DuckDB's SQL.
``to_json``: DuckDB's to_json of a struct. ``dicts``: to_pylist and orjson. Each one's first lines
are compared with ours: ``right`` says whether they hold the same values. Without a file: records
of ``messages.py``, 17 columns, about 600 bytes. With one: a SCHEMA line, then RECORD lines.
"""

import argparse
import json
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from messages import SCHEMA, prepare

from penstock.codec import json_text
from penstock.codec.decode import RowDecoder, warm
from penstock.codec.json_lines_encoder import LineEncoder, Slot
from penstock.codec.json_schema import data_type, row_schema
from penstock.model.types import EXTRACTED_AT, DataType, Kind, RowSchema

START = '{"type":"RECORD","stream":"bench","record":'
TEMPLATE = [START, Slot.data, ',"time_extracted":', Slot.extracted_text, "}"]
INSTANT = DataType(Kind.timestamp)


class Line(msgspec.Struct):
    type: str
    record: msgspec.Raw = msgspec.Raw()
    schema: Any = None


def _decimals(schema: Any) -> DataType | None:
    wanted = schema.get("format") == "singer.decimal"
    return DataType(Kind.decimal, precision=38, scale=9) if wanted else None


def bodies(path: Path) -> tuple[Any, list[Any]]:
    """JSON Schema (None: not in the file) and the records."""
    schema, found = None, []
    with path.open("rb") as f:
        for line in map(msgspec.json.Decoder(Line).decode, f):
            if line.type == "SCHEMA":
                schema = line.schema
            elif line.type == "RECORD":
                found.append(line.record)
    return schema, found


def batches(schema: RowSchema, records: list[Any], rows: int) -> list[Any]:
    decoder, found = RowDecoder(schema), []
    for start in range(0, len(records), rows):
        part = records[start : start + rows]
        table = decoder.decode(part, start, [1_700_000_000_123] * len(part)).table
        found += table.combine_chunks().to_batches()
    return found


# -- the ways


def ours(schema: RowSchema) -> Callable[[Any], Any]:
    return LineEncoder(schema, TEMPLATE).encode


def take(schema: RowSchema) -> Callable[[Any], Any]:
    def encode(batch: Any) -> Any:
        parts: list[Any] = [START]
        for i, f in enumerate(schema.fields):
            parts.append(("{" if i == 0 else ",") + json_text.name(f.source) + ":")
            parts += json_text.pieces(batch.column(f.name), f.type)
        parts.append('},"time_extracted":')
        parts += json_text.pieces(batch.column(EXTRACTED_AT), INSTANT)
        parts.append("}\n")
        merged: list[Any] = []
        for part in parts:
            both = merged and isinstance(part, str) and isinstance(merged[-1], str)
            merged[-1:] = [merged[-1] + part] if both else [*merged[-1:], part]
        columns = [pa.array([p]) if isinstance(p, str) else pc.fill_null(p, "null") for p in merged]
        alone = tuple(isinstance(p, str) for p in merged)
        order = _interleaved(batch.num_rows, alone)
        return json_text.data_of(pa.concat_arrays(columns).take(order))

    return encode


@cache
def _interleaved(rows: int, alone: tuple[bool, ...]) -> Any:
    """Row by row, where each column's text is in all columns, one after the other."""
    width, start = len(alone), 0
    places = array("i", bytes(4 * rows * width))
    for i, one in enumerate(alone):
        places[i::width] = array("i", [start] * rows if one else range(start, start + rows))
        start += 1 if one else rows
    return pa.array(places, pa.int32())


def _sql(name: str, of: DataType) -> str:
    column = '"' + name.replace('"', '""') + '"'
    match of.kind:
        case Kind.string | Kind.array | Kind.struct:
            text = f"to_json({column})::VARCHAR"
        case Kind.date:
            text = f"'\"' || {column}::VARCHAR || '\"'"
        case Kind.timestamp:
            text = f"strftime({column}::TIMESTAMP, '\"%Y-%m-%dT%H:%M:%S.%fZ\"')"
        case _:
            text = f"{column}::VARCHAR"
    return f"coalesce({text}, 'null')"


def _duckdb(expression: str) -> Callable[[Any], Any]:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")

    def encode(batch: Any) -> Any:
        rows = pa.Table.from_batches([batch])
        connection.register("rows", rows)
        answer = connection.sql(f"SELECT ({expression})::VARCHAR AS line FROM rows")
        column = answer.to_arrow_table().column(0).combine_chunks().cast(pa.string())
        return json_text.data_of(column)

    return encode


def concat(schema: RowSchema) -> Callable[[Any], Any]:
    pieces = [f"'{START}'"]
    for i, f in enumerate(schema.fields):
        key = ("{" if i == 0 else ",") + json_text.name(f.source) + ":"
        pieces += [f"'{key}'", _sql(f.name, f.type)]
    pieces += ["'},\"time_extracted\":'", _sql(EXTRACTED_AT, INSTANT), "'}' || chr(10)"]
    return _duckdb(" || ".join(pieces))


def to_json(schema: RowSchema) -> Callable[[Any], Any]:
    members = ", ".join(f'"{f.source}" := "{f.name}"' for f in schema.fields)
    end = f"',\"time_extracted\":' || to_json(\"{EXTRACTED_AT}\") || '}}' || chr(10)"
    return _duckdb(f"'{START}' || to_json(struct_pack({members}))::VARCHAR || {end}")


def dicts(schema: RowSchema) -> Callable[[Any], Any]:
    names = [f.name for f in schema.fields]

    def encode(batch: Any) -> Any:
        times = batch.column(EXTRACTED_AT).to_pylist()
        rows = batch.select(names).to_pylist()
        lines = [
            orjson.dumps(
                {"type": "RECORD", "stream": "bench", "record": r, "time_extracted": t},
                default=str,
            )
            for r, t in zip(rows, times, strict=True)
        ]
        return b"\n".join([*lines, b""])

    return encode


def _values(data: Any, count: int = 1000) -> Iterator[Any]:
    for line in bytes(data).split(b"\n", count)[:count]:
        if line:
            yield msgspec.json.decode(line, type=dict[str, Any])


def measure(encode: Callable[[Any], Any], given: list[Any], times: int) -> tuple[float, int]:
    """Best CPU seconds, and bytes."""
    best, size = 1e9, 0
    for _ in range(times):
        began, size = time.process_time(), 0
        for batch in given:
            size += len(encode(batch))
        best = min(best, time.process_time() - began)
    return best, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", nargs="?", type=int, default=100_000)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--batch", type=int, default=32_768)
    overrides = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if overrides.file is not None:
            told, records = bodies(overrides.file)
        else:
            path, _ = prepare(Path(name), overrides.records)
            _, found = bodies(path)
            told, records = SCHEMA, [msgspec.json.decode(r, type=Inner).data for r in found]
    warm()
    pa.set_cpu_count(1)
    schema = row_schema(data_type(told, _decimals), {})
    given = batches(schema, records[: overrides.records], overrides.batch)
    rows = sum(b.num_rows for b in given)
    encode = ours(schema)
    expected = list(_values(encode(given[0])))
    lines = [orjson.loads(x) for b in given for x in bytes(encode(b)).splitlines()]
    dumped, _ = measure(lambda part: b"".join(map(orjson.dumps, part)), [lines], 3)
    del lines
    report: dict[str, Any] = {"rows": rows, "orjson_dumps_rows_s": round(rows / dumped)}
    for way in (ours, take, concat, to_json, dicts):
        encode = way(schema)
        right = list(_values(encode(given[0]))) == expected
        seconds, size = measure(encode, given, 3)
        report[way.__name__] = {
            "rows_s": round(rows / seconds),
            "mb_s": round(size / seconds / 1e6),
            "ratio_to_orjson_dumps": round(dumped / seconds, 2),
            "bytes_per_row": round(size / rows),
            "right": right,
        }
    print(json.dumps(report, indent=1))


class Inner(msgspec.Struct):
    data: msgspec.Raw


if __name__ == "__main__":
    main()
