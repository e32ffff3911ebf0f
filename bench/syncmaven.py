"""Rows a second into Syncmaven destinations that only count: in Python, and in JavaScript on the
real node CDK, which npm installs.

    python bench/syncmaven.py [--rows 200000] [--node] [--processes 1] [--rounds 3]

Each is also measured *alone*: the same bytes from files on its stdin, a process a phase, without
Penstock. That is the destination's own bound: the node CDK, for one, waits a second before it says
its result. The best of the rounds counts, of both in turns.

No Spark and no source: the rows are Arrow batches as a part has them, so that what is measured is
the encoding, the check against the row type, and the pipe. ``permissive``: the columns prove that
every row fits. ``checked``: each row is validated (an e-mail format).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import ConnectorExited, Error
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.syncmaven.destination import SyncmavenDestination
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.writing import Feed, Rows, WriteRequest, WriteStream
from penstock.runtimes.process import ProcessRuntime

USERS = StreamId(None, "users")
KINDS = {"id": Kind.integer, "email": Kind.string, "name": Kind.string, "score": Kind.number}
SCHEMA = RowSchema(tuple(Field(n, n, DataType(k)) for n, k in KINDS.items()))
DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
ROW_TYPES = {
    "permissive": {**DRAFT, "properties": {"id": {"type": "integer"}}},
    "checked": {**DRAFT, "properties": {"email": {"type": "string", "format": "email"}}},
}
BATCH = 20_000

PYTHON = """
import json, sys
n = 0
ROW_TYPE = json.loads(sys.argv[1])
def say(type_, **payload):
    print(json.dumps({"type": type_, "payload": payload}), flush=True)
for line in sys.stdin.buffer:
    if line.startswith(b'{"type":"row"'):
        n += 1
        continue
    type_ = json.loads(line)["type"]
    if type_ == "describe-streams":
        say("stream-spec", defaultStream="users", streams=[{"name": "users", "rowType": ROW_TYPE}])
    elif type_ == "end-stream":
        say("stream-result", received=n, skipped=0, success=n, failed=0)
"""

NODE = """
const { stdProtocol } = require("@syncmaven/node-cdk");
const { z } = require("zod");
const rowTypes = { permissive: z.object({ id: z.number().int() }),
                   checked: z.object({ email: z.string().email() }) };
stdProtocol({
  name: "count", credentialsType: z.any(), defaultStream: "users",
  streams: [{ name: "users", rowType: rowTypes[process.argv[2]],
              createOutputStream: async () => ({ handleRow: async () => {} }) }],
});
"""


def batches(rows: int) -> Iterator[Feed]:
    for start in range(0, rows, BATCH):
        ids = range(start, min(start + BATCH, rows))
        columns: dict[str, Any] = {
            "id": pa.array(ids, pa.int64()),
            "email": pa.array([f"user{i}@example.com" for i in ids]),
            "name": pa.array([f"User {i} of the shop" for i in ids]),
            "score": pa.array([i / 7 for i in ids]),
        }
        yield Rows(USERS, 0, pa.record_batch(columns))


def measure(command: list[str], feed: list[Feed], processes: int = 1) -> float:
    """Seconds of the write. ``processes``: that the rows are divided among."""
    configured = ConfiguredStream(
        stream=Stream(id=USERS, json_schema={}),
        sync_mode=SyncMode.incremental,
        destination_sync_mode=DestinationSyncMode.append,
        primary_key=(("id",),),
    )
    stream = WriteStream(configured=configured, target=USERS, schemas={0: SCHEMA}, latest=0)
    host = Host(lambda env: ProcessRuntime(command, env=dict(env), role="destination"))
    request = WriteRequest(
        config={},
        streams=(stream,),
        source_protocol="bench",
        tick=0.2,
        options={"parallelism": processes},
    )
    began = time.monotonic()
    for answer in SyncmavenDestination().write(host, request, iter(feed)):
        if isinstance(answer, Error):
            raise SystemExit(answer.message)
        if isinstance(answer, ConnectorExited) and answer.code != 0:
            raise SystemExit("the destination failed")
    return time.monotonic() - began


def recorded(command: list[str], feed: list[Feed], folder: Path) -> list[Path]:
    """What Penstock writes to each process of a destination, a file each."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tee = ["sh", "-c", 'f="$0/$(date +%s%N)"; tee "$f" | exec "$@"', str(folder), *command]
    measure(tee, feed)
    return sorted(folder.iterdir())


def measure_alone(command: list[str], inputs: list[Path]) -> float:
    """Seconds that the processes take to read these."""
    began = time.monotonic()
    for path in inputs:
        with path.open("rb") as file:
            subprocess.run(command, stdin=file, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def node_destination(folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is needed")
    (folder / "package.json").write_text('{"name": "count", "version": "1.0.0"}')
    command = [npm, "install", "--no-audit", "--no-fund", "@syncmaven/node-cdk@0.0.11"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (folder / "main.js").write_text(NODE)
    return folder / "main.js"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rows", type=int, default=200_000)
    asked.add_argument("--node", action="store_true")
    asked.add_argument("--processes", type=int, default=1, help="of the stream")
    asked.add_argument("--rounds", type=int, default=3)
    told = asked.parse_args()
    feed = list(batches(told.rows))
    with tempfile.TemporaryDirectory() as scratch:
        for kind, row_type in ROW_TYPES.items():
            commands = {"python": [sys.executable, "-c", PYTHON, json.dumps(row_type)]}
            if told.node:
                commands["node"] = ["node", str(node_destination(Path(scratch))), kind]
            for language, command in commands.items():
                inputs = recorded(command, feed, Path(scratch) / "input")
                through, alone = [
                    min(seconds)
                    for seconds in zip(
                        *(
                            (measure(command, feed, told.processes), measure_alone(command, inputs))
                            for _ in range(told.rounds)
                        ),
                        strict=True,
                    )
                ]
                print(
                    f"{language:8}{kind:12}{told.rows:>9,} rows  {through:6.2f} s"
                    f"  {told.rows / through:>9,.0f} rows/s   alone {told.rows / alone:>9,.0f}"
                    f" ({alone / through:.2f} of it)   load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
