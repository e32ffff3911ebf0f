#!/usr/bin/env python3
"""A Singer tap of three rows and the standard library alone: what ``release.sh`` runs in a bare
environment."""

import json
import sys

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
CATALOG = {
    "streams": [
        {"tap_stream_id": "rows", "stream": "rows", "schema": SCHEMA, "key_properties": ["id"]}
    ]
}


def write(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")


if "--discover" in sys.argv:
    write(CATALOG)
else:
    write({"type": "SCHEMA", "stream": "rows", "schema": SCHEMA, "key_properties": ["id"]})
    for number, name in enumerate(("one", "two", "three"), 1):
        record = {"id": number, "name": name}
        write({"type": "RECORD", "stream": "rows", "record": record})
    write({"type": "STATE", "value": {"rows": 3}})
