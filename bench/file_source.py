#!/usr/bin/env python3
"""An Airbyte source that copies a prepared file to its stdout as fast as the system can.

Standard library only. Its configuration: ``file`` (whole lines of Airbyte messages), ``schema`` (a
JSON file with the schema of the one stream, ``bench``) and ``repeat``, how often the file is sent.
"""

import json
import os
import sys

STREAM = "bench"


def say(message: dict) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def status(value: str) -> None:
    descriptor = {"name": STREAM}
    told = {"stream_descriptor": descriptor, "status": value}
    say({"type": "TRACE", "trace": {
        "type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status": told}})  # fmt: skip


def copy(path: str) -> None:
    with open(path, "rb") as file:
        size, sent = os.fstat(file.fileno()).st_size, 0
        while sent < size:
            sent += os.sendfile(1, file.fileno(), sent, size - sent)


def main() -> None:
    command, given = sys.argv[1], dict(zip(sys.argv[2::2], sys.argv[3::2], strict=False))
    if command == "spec":
        say({"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}})
        return
    with open(given["--config"]) as f:
        config = json.load(f)
    if command == "check":
        say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
    elif command == "discover":
        with open(config["schema"]) as f:
            schema = json.load(f)
        stream = {
            "name": STREAM,
            "json_schema": schema,
            "supported_sync_modes": ["full_refresh", "incremental"],
            "source_defined_cursor": True,
            "default_cursor_field": ["updated_at"],
            "source_defined_primary_key": [["id"]],
        }
        say({"type": "CATALOG", "catalog": {"streams": [stream]}})
    elif command == "read":
        status("STARTED")
        for _ in range(int(config.get("repeat", 1))):
            copy(config["file"])
        status("COMPLETE")


if __name__ == "__main__":
    main()
