"""The lane's steps, each on its own: CPU a record, beside ``orjson.loads`` in the same process.

    python bench/steps.py [--records 60000]

On the prepared file of ``messages``. Reaches into private parts of ``codec``: it says where the
time goes, and is to be changed with them.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pyarrow as pa
from messages import STREAM, prepare

from penstock.codec import bodies as shape
from penstock.codec import key_accounting
from penstock.codec.decode import RowDecoder, _Batch, _same, warm
from penstock.codec.json_schema import row_schema
from penstock.codec.packed_bodies import Packed
from penstock.codec.parquet_parts import write_part
from penstock.codec.system_columns import row_ids
from penstock.model.catalog import StreamId
from penstock.model.events import Batch
from penstock.model.names import clean_columns
from penstock.protocols.airbyte.messages import PlainLine
from penstock.protocols.airbyte.package import PACKAGE
from penstock.protocols.airbyte.record_reader import AirbyteReader
from penstock.protocols.stdio.json_lines import one_a_line

DATA = Path(__file__).resolve().parent / "data"
CHUNK, PART = 1 << 20, 16 << 20


class Table:
    def __init__(self, records: int) -> None:
        self.records = records
        self.rows: dict[str, float] = {}

    def time(self, step: str, work: Callable[[], Any], rounds: int = 5) -> Any:
        """The best of some rounds; gives what ``work`` gives."""
        best, answer = float("inf"), None
        for _ in range(rounds):
            began = time.process_time()
            answer = work()
            best = min(best, time.process_time() - began)
        self.rows[step] = round(best * 1e6 / self.records, 2)
        return answer


def chunks(lines: list[bytes]) -> list[bytes]:
    found, size = [[]], 0
    for line in lines:
        if size >= CHUNK:
            found.append([])
            size = 0
        found[-1].append(line)
        size += len(line)
    return [b"".join(part) for part in found]


def framing(table: Table, data: list[bytes], count: int) -> Packed:
    plain = msgspec.json.Decoder(PlainLine)
    table.time("envelopes (msgspec)", lambda: [len(plain.decode_lines(c)) for c in data])
    table.time("one message a line", lambda: [one_a_line(c, 0) for c in data])

    def framed() -> list[Packed]:
        sorter = AirbyteReader([StreamId(None, STREAM)])
        given = [e for c in data for e in (*sorter.chunk(c), *sorter.flush())]
        return [e.bodies for e in given if isinstance(e, Batch)]

    packed = table.time("framing, all of it", framed)
    raws = [[line.record.data for line in plain.decode_lines(c)] for c in data]
    table.time("of it: bodies packed, are objects", lambda: [
        Packed.of(r).first_bytes() for r in raws])  # fmt: skip
    whole = Packed.joined(packed)
    if len(whole) != count:
        raise SystemExit(f"{len(whole)} of {count} records came through")
    return whole


def decoding(table: Table, bodies: Packed, schema: Any) -> None:
    decoder = RowDecoder(schema, key=(("id",),))
    each = PART // CHUNK
    parts = [Packed(bodies.pieces[i : i + each]) for i in range(0, len(bodies.pieces), each)]
    times = [[0] * len(p) for p in parts]
    columns = table.time("bodies into one column", lambda: [shape.column(p) for p in parts])
    texts = table.time("DuckDB from_json", lambda: [decoder._plan.texts.of(c) for c in columns])
    kinds = [f.type for f in schema.fields]
    pairs = [list(zip(t, kinds, strict=False)) for t in texts]
    table.time("keys accounted for", lambda: [
        key_accounting.explained(b, p) for b, p in zip(parts, pairs, strict=True)])  # fmt: skip
    batch = _Batch(decoder._plan, [])
    table.time("texts to typed columns", lambda: [
        batch._typed(t, f.type, f.source, _same)
        for found in texts for t, f in zip(found, schema.fields, strict=False)])  # fmt: skip
    table.time("row ids", lambda: [row_ids(len(p)) for p in parts])
    table.time("extraction times", lambda: [pa.array(t, pa.int64()) for t in times])
    done = table.time("decoding, all of it", lambda: [
        decoder.decode(p, 1, t, {}) for p, t in zip(parts, times, strict=True)])  # fmt: skip
    path = DATA / f"steps-{os.getpid()}.parquet"
    table.time("Parquet, zstd 1, CRC", lambda: [
        write_part(path, d.table, sync=False) for d in done])  # fmt: skip
    path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=60_000)
    overrides = parser.parse_args()
    path, schema = prepare(DATA, overrides.records)
    with path.open("rb") as f:
        records = (line for line in f if line.startswith(b'{"type":"RECORD"'))
        lines = list(islice(records, overrides.records))
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    table = Table(len(lines))
    table.time("orjson.loads", lambda: [orjson.loads(line) and None for line in lines])
    record = PACKAGE.schema.data_type(json.loads(schema.read_text()))
    columns = clean_columns(f.source for f in record.fields)
    warm()
    packed = framing(table, chunks(lines), len(lines))
    decoding(table, packed, row_schema(record, columns, None))
    for step, spent in table.rows.items():
        print(f"{step:<36}{spent:>6.2f}")
    print(json.dumps({"us_per_record": table.rows, "load_average": os.getloadavg()[0]}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
