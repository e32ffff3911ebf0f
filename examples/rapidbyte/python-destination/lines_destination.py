"""A destination that sends rows as lines of JSON to a TCP peer, and waits for its word.

After the rows of a batch comes an empty line; the peer answers ``ok`` and a newline once it has
kept them, and only then is there a checkpoint. Anything else that it answers is an error. What a
run that failed had sent after its last checkpoint, the next one sends again.
"""

import base64
import json
import math
from datetime import UTC, date, datetime, timedelta

from rapidbyte_guest import host
from rapidbyte_guest.faults import fault
from rapidbyte_guest.tcp import Connection
from wit_world import exports

EPOCH, FIRST = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
UNITS = {"timestamp_millis": 1000, "timestamp_micros": 1, "timestamp_nanos": 0.001}


def json_values(column):
    """As JSON has them: times and dates as ISO 8601, bytes as base64, decimals as text, no NaN."""
    if column.type in UNITS:
        unit = UNITS[column.type]
        return [None if v is None else moment(v * unit) for v in column.values]
    if column.type == "date32":
        return [None if v is None else str(FIRST + timedelta(days=v)) for v in column.values]
    if column.type.endswith("binary"):
        return [None if v is None else base64.b64encode(v).decode() for v in column.values]
    if column.type.startswith("decimal"):
        return [None if v is None else str(v) for v in column.values]
    if column.type.startswith("float"):
        return [v if v is not None and math.isfinite(v) else None for v in column.values]
    return column.values


def moment(micros):
    return (EPOCH + timedelta(microseconds=micros)).isoformat()


CONFIG = {}  # the bindings make a Destination for each call


class Destination(exports.Destination):
    def open(self, config_json):
        CONFIG.update(json.loads(config_json))
        return 1

    def validate(self, session):
        self.connect().close()
        return host.success("the peer is there")

    def close(self, session):
        pass

    def run(self, session, request):
        stream = json.loads(request.stream_context_json)["stream_name"]
        rows = size = frames = 0
        peer = self.connect()
        for batches, length in host.frames():
            rows += sum(self.send(peer, batch) for batch in batches)
            size, frames = size + length, frames + 1
            host.destination_checkpoint(frames, stream, rows, size)
        peer.close()
        return host.write_summary(rows, size, frames, frames)

    def connect(self):
        return Connection(CONFIG["host"], CONFIG["port"])

    def send(self, peer, columns):
        names = [column.name for column in columns]
        values = zip(*(json_values(column) for column in columns), strict=True)
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in values]
        peer.send("".join(line + "\n" for line in [*lines, ""]).encode())
        answer = peer.line()
        if answer != b"ok\n":
            raise fault("data", "NOT_KEPT", f"the peer answered {answer[:200]!r}", scope="batch")
        return len(lines)
