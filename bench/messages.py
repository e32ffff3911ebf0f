"""The prepared file: Airbyte messages of one stream with 17 mixed columns, about 600 bytes each.

A nested object, an array, decimals as strings, dates and date-times, NULLs, escapes and letters
beyond ASCII; a STREAM state every 10,000 records. The same count gives the same bytes.
"""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

STREAM = "bench"
STATE_EVERY = 10_000
PLACES = ["Genève", "Zürich", "京都", "Belém", "Accra", "Turku", "Nashik", "Cusco"]
COMMENTS = [None, "plain", 'a "quoted" one \\ here', "zwei\nZeilen\tüber", "smile \U0001f600", ""]
LABELS = ["red", "green", "blue", "new", "sale", "vip"]


def _nullable(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": ["null", kind], **more}


SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "amount": _nullable("number"),
        "price": _nullable("string"),
        "name": _nullable("string"),
        "email": _nullable("string"),
        "city": _nullable("string"),
        "active": _nullable("boolean"),
        "created_at": _nullable("string", format="date-time"),
        "updated_at": _nullable("string", format="date-time"),
        "birthday": _nullable("string", format="date"),
        "score": _nullable("number"),
        "big": _nullable("integer"),
        "payload": _nullable(
            "object",
            properties={
                "k": _nullable("integer"),
                "label": _nullable("string"),
                "geo": _nullable(
                    "object", properties={"lat": {"type": "number"}, "lon": {"type": "number"}}
                ),
            },
        ),
        "tags": _nullable("array", items={"type": "string"}),
        "note": _nullable("string"),
        "reference": _nullable("string"),
        "agent": _nullable("string"),
    },
}


def records_of(count: int) -> Iterator[dict[str, Any]]:
    chance, start = random.Random(7), datetime(2024, 1, 1, tzinfo=UTC)
    for i in range(1, count + 1):
        r = chance.random()
        at = start + timedelta(seconds=7 * i, microseconds=i % 1_000_000)
        yield {
            "id": i,
            "amount": round(r * 10_000, 4),
            "price": f"{int(r * 1e9)}.{i % 100:02d}",
            "name": f"Customer {i} of {PLACES[i % 8]}",
            "email": f"customer{i}@example.org",
            "city": PLACES[(i * 7) % 8],
            "active": i % 3 == 0,
            "created_at": "2024-01-01T00:00:00Z",
            "updated_at": at.isoformat(timespec="microseconds"),
            "birthday": f"{1950 + i % 60}-{1 + i % 12:02d}-{1 + i % 28:02d}",
            "score": None if i % 5 == 0 else r,
            "big": i * 9_007_199,
            "payload": {
                "k": i % 97,
                "label": f"L{i % 1000}",
                "geo": {"lat": round(r * 180 - 90, 6), "lon": round(r * 360 - 180, 6)},
            },
            "tags": LABELS[: i % 6],
            "note": COMMENTS[i % 6],
            "reference": f"{int(r * 1e15):016x}-{i:08d}",
            "agent": f"Browser/{i % 90}.0 (System {i % 12}; rv:{i % 40})",
        }


def prepare(folder: Path, count: int) -> tuple[Path, Path]:
    """(messages, schema), made where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = folder / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    path = folder / f"messages-{count}.jsonl"
    if path.exists():
        return path, schema
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb", buffering=1 << 20) as f:
        for i, record in enumerate(records_of(count), 1):
            body = {"stream": STREAM, "data": record, "emitted_at": 1_700_000_000_000 + i}
            f.write(orjson.dumps({"type": "RECORD", "record": body}) + b"\n")
            if i % STATE_EVERY == 0 or i == count:
                state = {
                    "stream_descriptor": {"name": STREAM},
                    "stream_state": {"updated_at": record["updated_at"], "at": i},
                }
                told = {"type": "STREAM", "stream": state}
                f.write(orjson.dumps({"type": "STATE", "state": told}) + b"\n")
    temporary.rename(path)
    return path, schema
