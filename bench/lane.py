"""One lane without Spark: the process that reads, decodes and seals, against orjson.loads.

    python bench/lane.py [--records 300000] [--rounds 3] [--wrap "perf record -g -o OUT"]

Starts ``penstock.engine.worker.lane`` on the prepared file as a Spark task would, and prints per
round: ``us`` CPU of the lane a record (start-up included), ``wall_us``, ``orjson_us`` (the mean of
one measured before and one after), and both ratios. ``--wrap`` puts a command before the
interpreter.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"


def job(path: Path, schema: Path, log_root: Path, repeat: int) -> Any:
    import msgspec

    from penstock.codec.json_schema import row_schema
    from penstock.connectors.launch import Launch
    from penstock.engine.specs.lane import LaneJob, LaneStream, StreamJob
    from penstock.model.catalog import Stream, StreamId, SyncMode
    from penstock.model.names import clean_columns
    from penstock.model.segments import WriteDisposition
    from penstock.protocols.airbyte.package import PACKAGE
    from penstock.protocols.reading import StreamOverrides

    told = json.loads(schema.read_text())
    modes = (SyncMode.full_refresh, SyncMode.incremental)
    stream = Stream(
        id=StreamId(None, "bench"),
        json_schema=told,
        sync_modes=modes,
        source_defined_cursor=True,
        default_cursor_field=("updated_at",),
        source_defined_primary_key=(("id",),),
    )
    overrides = StreamOverrides(sync_mode="incremental", destination_sync_mode="append")
    configured = PACKAGE.source.configure(stream, overrides)
    record = PACKAGE.schema.data_type(told)
    command = (sys.executable, "-S", str(HERE / "file_source.py"))
    lane = LaneStream(
        stream=stream.id,
        disposition=WriteDisposition(mode=configured.destination_sync_mode),
        schema_version=1,
        generation=0,
        fills_generation=False,
    )
    columns = clean_columns(f.source for f in record.fields)
    return LaneJob(
        run="run",
        lane=0,
        epoch=1,
        log_root=str(log_root),
        protocol="airbyte",
        launch=msgspec.to_builtins(Launch(protocol="airbyte", command=command, cwd=str(HERE))),
        config={"file": str(path), "schema": str(schema), "repeat": repeat},
        config_hash="",
        streams=(
            StreamJob(
                configured=configured,
                lane=lane,
                schema=row_schema(record, columns, None),
                key=(("id",),),
            ),
        ),
    )


def run(path: Path, schema: Path, repeat: int, wrap: str) -> tuple[float, float, dict[str, Any]]:
    """(CPU seconds, wall seconds, the lane's result)"""
    import msgspec
    from spine import environment

    from penstock.engine.channel.mailbox import Mailbox

    folder = Path(tempfile.mkdtemp(prefix="lane-", dir=DATA))
    try:
        mailbox = Mailbox(folder / "log", "run")
        mailbox.create()
        body = msgspec.json.encode(job(path, schema, folder / "log", repeat))
        began = time.monotonic()
        child = subprocess.Popen(
            [
                *shlex.split(wrap),
                sys.executable,
                "-m",
                "penstock.tasks.child_start",
                "penstock.engine.worker.lane",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment(), "ARROW_DEFAULT_MEMORY_POOL": "system"},  # as child_process
        )
        assert child.stdin and child.stdout
        child.stdin.write(msgspec.msgpack.encode(len(body)) + body)
        child.stdin.flush()
        os.set_blocking(child.stdout.fileno(), False)
        answer = b""
        while child.poll() is None:
            mailbox.beat()
            time.sleep(0.05)
            answer += child.stdout.read() or b""
        wall = time.monotonic() - began
        answer += child.stdout.read() or b""
        result = json.loads(answer)
        if result["end"] != "finished" or result["errors"]:
            raise SystemExit(json.dumps(result))
        return result["stats"]["cpu"], wall, result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    from messages import prepare
    from spine import orjson_seconds

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wrap", default="")
    overrides = parser.parse_args()
    run(*prepare(DATA, 1000), 1, "")  # caches are filled
    path, schema = prepare(DATA, overrides.records)
    count = overrides.records * overrides.repeat
    before = orjson_seconds(path)
    for _ in range(overrides.rounds):
        cpu, wall, result = run(path, schema, overrides.repeat, overrides.wrap)
        after = orjson_seconds(path)
        loads = [(a + b) / 2 * overrides.repeat for a, b in zip(before, after, strict=True)]
        before, stats = after, result["stats"]
        print(json.dumps({
            "us": round(cpu * 1e6 / count, 2),
            "wall_us": round(wall * 1e6 / count, 2),
            "extract_us": round(stats["extract"] * 1e6 / count, 2),
            "orjson_us": round(loads[1] * 1e6 / count, 2),
            "cpu_ratio": round(loads[1] / cpu, 3),
            "wall_ratio": round(loads[0] / stats["extract"], 3),
            "decode_s": round(stats["decode"], 2),
            "wait_s": round(stats["source_wait"], 2),
            "peak_mb": round(stats["peak_bytes"] / 1e6),
            "segments": stats["segments"],
            "load_average": round(os.getloadavg()[0], 1),
        }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
