"""Singer measured whole: 1,000,000 messages of a tap into Parquet, and from a tap into a target.

    python bench/singer.py [--records 1000000] [--quick] [--only table|push]

Both ends are ``cat``: the tap prints a prepared file, the target gives back every line it gets (its
states are among them). Ratios and CPU as in ``spine.py``. ``push_rows_s`` is rows over the seconds
of the push task, from its first order to the target's exit; beside it ``encode_ratio``, the push
over ``cat`` of the same bytes through two pipes in the same call.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
from messages import SCHEMA, STREAM, records_of
from spine import DATA, measure

STATE_EVERY = 10_000


def prepare(folder: Path, count: int) -> Path:
    """SCHEMA, RECORDs, a STATE every 10,000, as a tap prints them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"singer-{count}.jsonl"
    if path.exists():
        return path
    temporary = path.with_suffix(".tmp")
    schema = {"type": "SCHEMA", "stream": STREAM, "schema": SCHEMA, "key_properties": ["id"]}
    with temporary.open("wb", buffering=1 << 20) as f:
        f.write(orjson.dumps(schema) + b"\n")
        for i, record in enumerate(records_of(count), 1):
            body = {"type": "RECORD", "stream": STREAM, "record": record}
            f.write(orjson.dumps(body) + b"\n")
            if i % STATE_EVERY == 0 or i == count:
                value = {"bookmarks": {STREAM: {"replication_key_value": i}}}
                f.write(orjson.dumps({"type": "STATE", "value": value}) + b"\n")
    temporary.rename(path)
    return path


def command(body: str) -> str:
    """A connector of the shell: what the protocol adds to its command is ignored."""
    return "singer:" + shlex.join(["sh", "-c", body, "cat"])


def pipes_seconds(path: Path) -> float:
    """``cat FILE | cat | cat > /dev/null``."""
    began = time.perf_counter()
    subprocess.run(f"cat {shlex.quote(str(path))} | cat | cat > /dev/null", shell=True, check=True)
    return time.perf_counter() - began


def push(path: Path, records: int) -> dict[str, Any]:
    given = {
        "source": command(f"exec cat {shlex.quote(str(path))}"),
        "destination": command("exec cat"),
        "options": {},
        "acks": "at_end",
    }
    found = measure(given, path, 1, records)
    seconds = found["push_s"]
    found |= {
        "push_rows_s": round(records / seconds),
        "encode_ratio": round(pipes_seconds(path) / seconds, 3),
    }
    return {"what": "tap -> target", **found}


def table(path: Path, records: int) -> dict[str, Any]:
    given = {
        "source": command(f"exec cat {shlex.quote(str(path))}"),
        "destination": "parquet:{folder}/lake",
        "options": {},
    }
    return {"what": "tap -> parquet", **measure(given, path, 1, records)}


SHOWN = ("records", "extract_s", "extract_records_s", "ratio", "cpu_ratio", "cpu_us_per_record",
         "push_s", "push_rows_s", "encode_ratio", "whole_s", "pss_peak_mb",
         "load_average")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="100,000 records")
    parser.add_argument("--only", choices=("table", "push"))
    overrides = parser.parse_args()
    count = 100_000 if overrides.quick else overrides.records
    path = prepare(DATA, count)
    table(prepare(DATA, 1000), 1000)  # caches are filled
    ways = {"table": table, "push": push}
    found = [way(path, count) for name, way in ways.items() if overrides.only in (None, name)]
    width = max(map(len, SHOWN))
    for name in ("what", *SHOWN):
        print(f"{name:<{width}}", *(f"{one.get(name, ''):>15}" for one in found))
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
