"""A source of rows that it makes up: full refresh, or incremental by id with a checkpoint after
each batch. It can be read in shards."""

import json
from datetime import date

from rapidbyte_guest import host
from rapidbyte_guest.arrow import DATA_TYPES, Column
from rapidbyte_guest.faults import fault
from wit_world import exports

COLUMNS = {
    "id": "int64",
    "name": "utf8",
    "amount": "float64",
    "at": "timestamp_micros",
    "day": "date32",
    "ok": "bool",
}
FIRST_SECOND = 1_700_000_000
FIRST_DAY = (date(2023, 11, 14) - date(1970, 1, 1)).days
VALUES = {
    "id": lambda ids: list(ids),
    "name": lambda ids: [None if i % 10 == 3 else f"N{i}" for i in ids],
    "amount": lambda ids: [i * 0.5 for i in ids],
    "at": lambda ids: [(FIRST_SECOND + i) * 1_000_000 for i in ids],
    "day": lambda ids: [FIRST_DAY + i // 86400 % 10000 for i in ids],
    "ok": lambda ids: [i % 2 == 0 for i in ids],
}


# The bindings make a Source for each call, so what lasts from open to close is the module's. The
# host opens a fresh component each time.
CONFIG = {"rows": 1000, "batch_rows": 10_000, "start": 1}


class Source(exports.Source):
    def open(self, config_json):
        CONFIG.update(json.loads(config_json))
        return 1

    def discover(self, session):
        schema = [
            {"name": name, "data_type": DATA_TYPES[kind], "nullable": name != "id"}
            for name, kind in COLUMNS.items()
        ]
        numbers = {
            "name": "numbers",
            "schema": schema,
            "supported_sync_modes": ["full_refresh", "incremental"],
            "source_defined_cursor": "id",
            "source_defined_primary_key": ["id"],
        }
        return json.dumps({"streams": [numbers]})

    def validate(self, session):
        return host.success("rows are made up: nothing can be wrong with them")

    def close(self, session):
        pass

    def run(self, session, request):
        context = json.loads(request.stream_context_json)
        stream = context.get("source_stream_name") or context["stream_name"]
        if stream != "numbers":
            raise fault("config", "NO_SUCH_STREAM", f"there is no stream {stream}, only numbers")
        names = context.get("selected_columns") or list(COLUMNS)
        cursor = self.cursor(context)
        rows = size = batches = checkpoints = 0
        for ids in self.batches(context):
            size += host.emit([Column(n, COLUMNS[n], VALUES[n](ids)) for n in names])
            rows, batches = rows + len(ids), batches + 1
            if cursor is not None:
                value = {"type": "int64", "value": ids[-1]}
                host.source_checkpoint(context["stream_name"], cursor, value, rows, size)
                checkpoints += 1
        host.count("records_read", rows)
        return host.read_summary(rows, size, batches, checkpoints)

    def cursor(self, context):
        if context["sync_mode"] != "incremental":
            return None
        field = (context.get("cursor_info") or {}).get("cursor_field")
        if field != "id":
            raise fault("config", "NO_SUCH_CURSOR", f"the cursor must be id, not {field}")
        return field

    def batches(self, context):
        """Ranges of ids, after the last run's, of this shard, no more than the stream's limit."""
        first, end = CONFIG["start"], CONFIG["start"] + CONFIG["rows"]
        if context["sync_mode"] == "incremental" and host.last_value(context) is not None:
            first = max(first, int(host.last_value(context)) + 1)
        shard, shards = context.get("partition_index", 0), context.get("partition_count", 1)
        ids = range(first + shard, end, shards)
        ids = ids[: (context.get("limits") or {}).get("max_records")]
        for at in range(0, len(ids), CONFIG["batch_rows"]):
            yield ids[at : at + CONFIG["batch_rows"]]
