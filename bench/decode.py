"""Landing speed on one core: framing, envelope, decoding and Parquet, against orjson.loads.

    python bench/decode.py [RECORDS] [--file MESSAGES.jsonl] [--kind KIND]

Without ``--file`` it makes RECORDS (default 100,000) messages of about 500 bytes. A file holds one
message per line: {"type": "SCHEMA", "schema": ...} first, then {"type": "RECORD", "record": ...}.
Kinds: ``clean``; ``extra``, ``nested``: every record with a property that the schema lacks, beside
the others or inside an object; ``misfit``: one value in a thousand that does not fit; ``repair``:
one record in a thousand with a key that comes twice.
"""

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import orjson

from penstock.codec.decode import RowDecoder, warm
from penstock.codec.framing import LineFramer, Lines
from penstock.codec.json_schema import data_type, row_schema
from penstock.codec.parquet_parts import write_part

BLOCK_BYTES = 1 << 20
BATCH_BYTES = 16 << 20


def _nullable(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": ["null", kind], **more}


SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "total": _nullable("number"),
        "balance": _nullable("string"),
        "name": _nullable("string"),
        "email": _nullable("string"),
        "country": _nullable("string"),
        "subscribed": _nullable("boolean"),
        "created_at": _nullable("string", format="date-time"),
        "updated_at": _nullable("string", format="date-time"),
        "born": _nullable("string", format="date"),
        "score": _nullable("number"),
        "counter": _nullable("integer"),
        "address": _nullable(
            "object",
            properties={
                "number": {"type": "integer"},
                "street": {"type": "string"},
                "place": {"properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}},
            },
        ),
        "labels": _nullable("array", items={"type": "string"}),
        "comment": _nullable("string"),
    },
}
COMMENTS = [None, "plain", 'a "quoted" one \\ here', "zwei\nZeilen\tüber", "smile \U0001f600", ""]


class Envelope(msgspec.Struct, gc=False):
    type: str
    record: msgspec.Raw = msgspec.Raw()
    schema: Any = None


def records(count: int) -> Iterator[dict[str, Any]]:
    chance, start = random.Random(11), datetime(2024, 1, 1, tzinfo=UTC)
    for i in range(count):
        r = chance.random()
        yield {
            "id": i,
            "total": round(r * 10_000, 4),
            "balance": f"{int(r * 1e9)}.{i % 100:02d}",
            "name": f"Customer {i} of Zürich",
            "email": f"customer{i}@example.org",
            "country": ("CH", "Österreich", "日本", "BR")[i % 4],
            "subscribed": i % 3 == 0,
            "created_at": "2024-01-01T00:00:00Z",
            "updated_at": (
                start + timedelta(seconds=7 * i, microseconds=i % 1_000_000)
            ).isoformat(),
            "born": f"{1950 + i % 60}-{1 + i % 12:02d}-{1 + i % 28:02d}",
            "score": None if i % 5 == 0 else r,
            "counter": i * 9_007_199,
            "address": {
                "number": i % 97,
                "street": f"Street {i % 1000}",
                "place": {"lat": round(r * 180 - 90, 6), "lon": round(r * 360 - 180, 6)},
            },
            "labels": ["red", "green", "blue", "new", "sale"][: i % 6],
            "comment": COMMENTS[i % 6],
        }


def make(path: Path, count: int, kind: str) -> None:
    with path.open("wb") as f:
        f.write(orjson.dumps({"type": "SCHEMA", "schema": SCHEMA}) + b"\n")
        for i, record in enumerate(records(count)):
            if kind == "extra":
                record["unknown"] = i
            if kind == "nested":
                record["address"]["unknown"] = i
            if kind == "misfit" and i % 1000 == 0:
                record["score"] = "high"
            line = orjson.dumps({"type": "RECORD", "stream": "bench", "record": record})
            if kind == "repair" and i % 1000 == 0:
                line = line.replace(b'"born":', b'"born":null,"born":')
            f.write(line + b"\n")


class Clock:
    """CPU seconds per step."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def time(self, step: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        answer = work()
        self.spent[step] = self.spent.get(step, 0.0) + time.process_time() - began
        return answer


def land(path: Path, folder: Path, clock: Clock) -> tuple[int, int, int]:
    """Rows, misfits and bytes of the parts."""
    framer, envelope = LineFramer(256 << 20, folder), msgspec.json.Decoder(Envelope)
    decoder, pending, size, rows, misfits, written = None, [], 0, 0, 0, 0

    def flush() -> None:
        nonlocal pending, size, rows, misfits, written
        done = clock.time("decode", lambda: decoder.decode(pending, rows, [0] * len(pending), {}))
        part = folder / f"{rows}.parquet"
        written += clock.time("parquet", lambda: write_part(part, done.table))[0]
        rows, misfits = rows + done.table.num_rows, misfits + done.cast_failures
        pending, size = [], 0

    def gather(messages: list[Envelope]) -> None:
        nonlocal decoder, size
        for m in messages:
            if m.type == "RECORD":
                pending.append(m.record)
            elif m.type == "SCHEMA":
                decoder = RowDecoder(row_schema(data_type(m.schema), {}), key=(("id",),))

    with path.open("rb", buffering=0) as f:
        while block := clock.time("read", lambda: f.read(BLOCK_BYTES)):
            for item in clock.time("frame", lambda block=block: list(framer.feed(block))):
                if isinstance(item, Lines):
                    messages = clock.time("envelope", lambda i=item: envelope.decode_lines(i.data))
                    clock.time("envelope", lambda m=messages: gather(m))
                    size += len(item.data)
                    if size >= BATCH_BYTES:
                        flush()
    if pending:
        flush()
    return rows, misfits, written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", nargs="?", type=int, default=100_000)
    parser.add_argument("--file", type=Path)
    kinds = ("clean", "extra", "nested", "misfit", "repair")
    parser.add_argument("--kind", choices=kinds, default="clean")
    overrides = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = overrides.file or Path(name) / "messages.jsonl"
        if overrides.file is None:
            make(path, overrides.records, overrides.kind)
        warm()
        data = path.read_bytes()
        lines = data.splitlines()
        megabytes, count = len(data) / 1e6, len(lines)
        loads, best, clock = 1e9, 1e9, Clock()
        del data
        for _ in range(3):
            began = time.process_time()
            for line in lines:
                orjson.loads(line)
            loads = min(loads, time.process_time() - began)
        del lines
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(3):
            spent, began = Clock(), time.process_time()
            rows, misfits, written = land(path, Path(name), spent)
            if (took := time.process_time() - began) < best:
                best, clock = took, spent
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    steps = {k: f"{v * 1e9 / count / 1000:.2f}" for k, v in clock.spent.items()}
    print(json.dumps({
        "records": rows, "bytes_per_record": round(megabytes * 1e6 / count), "misfits": misfits,
        "orjson_mb_s": round(megabytes / loads), "landing_mb_s": round(megabytes / best),
        "ratio": round(loads / best, 3), "us_cpu_per_record": round(best * 1e6 / count, 2),
        "us_per_step": steps, "parquet_mb": round(written / 1e6, 1),
        "rss_growth_mb": (after - before) // 1024,
    }, indent=1))  # fmt: skip
    sys.stdout.flush()


if __name__ == "__main__":
    main()
